//! The file that names further servers (`--servers`): TOML, a table `[[server]]` for each.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::connection;
use crate::failure::Failure;

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
    password: Option<String>,
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
/// When it cannot be read or understood, or holds a password that others can read.
pub fn read(path: &Path) -> Result<Vec<Named>, Failure> {
    let failed = |why: String| Failure::usage(format!("--servers {}: {why}", path.display()));
    let text = fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    let servers = parse(&text).map_err(&failed)?;
    let secret = servers.iter().any(|server| server.password.is_some());
    let mode = fs::metadata(path)
        .map_err(|error| failed(error.to_string()))?
        .mode();
    if secret && mode & 0o077 != 0 {
        return Err(failed(format!(
            "it holds a password and can be read by others (mode {:o})",
            mode & 0o777
        ))
        .advise(format!("chmod 600 {}", path.display())));
    }
    Ok(servers)
}

fn parse(text: &str) -> Result<Vec<Named>, String> {
    let file: File = toml::from_str(text).map_err(|error| error.to_string())?;
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
                ..connection::Args::default()
            };
            Ok(Named {
                name: entry.name,
                connection,
                password: entry.password,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
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
