//! The file that names further servers (`--servers`): TOML, a table `[[server]]` for each.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use super::private_file::PrivateFile;
use crate::connection;
use crate::failure::Failure;

/// Bytes read of it.
const MOST: u64 = 1 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    server: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Entry {
    name: String,
    socket: Option<String>,
    host: Option<String>,
    port: Option<u16>,
    user: Option<String>,
    /// Of any type, so that no message about a wrong one quotes it.
    password: Option<Value>,
    defaults_file: Option<PathBuf>,
}

/// A server as the file names it. The password is not among the options, where it would be warned of as on a command
/// line.
pub struct Named {
    pub name: String,
    pub connection: connection::Args,
    pub password: Option<String>,
}

/// Reads the file.
///
/// # Errors
/// When it cannot be read or understood, is another user's, or holds a password that others can read.
pub fn read(path: &Path) -> Result<Vec<Named>, Failure> {
    let failed = |why: String| Failure::usage(format!("--servers {}: {why}", path.display()));
    let mut file = PrivateFile::open(path).map_err(|error| failed(error.to_string()))?;
    let text = file.text(MOST).map_err(|error| failed(error.to_string()))?;
    let servers = parse(&text).map_err(&failed)?;
    let secret = servers.iter().any(|server| server.password.is_some());
    if secret && file.is_open_to_others() {
        return Err(failed(format!(
            "it holds a password and can be read by others (mode {:o})",
            file.mode()
        ))
        .advise(format!("chmod 600 {}", path.display())));
    }
    Ok(servers)
}

fn parse(text: &str) -> Result<Vec<Named>, String> {
    let file: File = toml::from_str(text).map_err(|error| described(&error, text))?;
    file.server
        .into_iter()
        .map(|entry| {
            if entry.name.trim().is_empty() {
                return Err("a server has an empty name".to_owned());
            }
            // What stands here is all there is, unless an option file is named.
            let connection = connection::Args {
                no_defaults: entry.defaults_file.is_none(),
                socket: entry.socket,
                host: entry.host,
                port: entry.port,
                user: entry.user,
                defaults_file: entry.defaults_file,
                no_environment: true,
                ..connection::Args::default()
            };
            let password = match entry.password {
                None => None,
                Some(Value::String(password)) => Some(password),
                Some(_) => {
                    return Err(format!(
                        "the password of server `{}` must be a text in quotes",
                        entry.name
                    ));
                }
            };
            Ok(Named {
                name: entry.name,
                connection,
                password,
            })
        })
        .collect()
}

/// What is wrong, and where. The library's own text quotes the line, on which a password may stand.
fn described(error: &toml::de::Error, text: &str) -> String {
    let before = error.span().and_then(|span| text.get(..span.start));
    match before {
        Some(before) => format!(
            "line {}: {}",
            before.matches('\n').count() + 1,
            error.message()
        ),
        None => error.message().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn servers_are_read() {
        let servers = parse(
            "[[server]]\nname = 'primary'\nsocket = '/run/a.sock'\n\
             [[server]]\nname = 'replica'\nhost = 'db2'\nport = 3307\nuser = 'bpe'\npassword = 'p'\n\
             [[server]]\nname = 'third'\ndefaults-file = '/root/third.cnf'\n",
        )
        .unwrap();
        assert_eq!(servers.len(), 3);
        assert_eq!(servers[0].connection.socket.as_deref(), Some("/run/a.sock"));
        assert!(servers[0].connection.no_defaults && !servers[2].connection.no_defaults);
        assert_eq!(servers[1].connection.port, Some(3307));
        assert_eq!(servers[1].password.as_deref(), Some("p"));
        for wrong in [
            "[[server]]\nsocket = 'a'",
            "[[server]]\nname = ''",
            "[[server]]\nname = 'a'\nhots = 'b'",
            "x",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse("").unwrap().len(), 0);
        assert!(
            servers
                .iter()
                .all(|server| server.connection.no_environment)
        );
    }

    #[test]
    fn no_message_quotes_a_password() {
        for (line, part) in [
            ("password = geheim17", "line 3"),
            ("password = 'geheim17", "line 3"),
            ("password = 'geheim17' x", "line 3"),
            ("password = ['geheim17']", "`a`"),
            ("password = 4711", "`a`"),
            ("pasword = 'geheim17'", "line 3"),
        ] {
            let text = parse(&format!("[[server]]\nname = 'a'\n{line}\n"))
                .err()
                .unwrap();
            assert!(text.contains(part), "{line}: {text}");
            assert!(
                !text.contains("geheim17") && !text.contains("4711"),
                "{line}: {text}"
            );
        }
    }

    #[test]
    fn passwords_are_not_for_everybody() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("servers.toml");
        fs::write(&path, "[[server]]\nname = 'a'\npassword = 'p'\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let text = read(&path).err().unwrap().to_string();
        assert!(text.contains("chmod 600"), "{text}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(read(&path).unwrap().len(), 1);
    }
}
