//! The servers file (`--servers`): TOML with a table `[[server]]` for each server. The console, cluster commands and
//! `bpe warm` use the same format.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use crate::connect::{self, SslMode, Target};
use crate::support::failure::Failure;
use crate::support::private_file::PrivateFile;
use crate::support::size::CacheSize;

/// Maximum size in bytes.
const MAX_BYTES: u64 = 1 << 20;

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
    cluster: Option<String>,
    socket: Option<String>,
    host: Option<String>,
    port: Option<u16>,
    user: Option<String>,
    /// Of any type, so that no message about a wrong type quotes it.
    password: Option<Value>,
    defaults_file: Option<PathBuf>,
    server_user: Option<String>,
    ssl_mode: Option<SslMode>,
    ssl_ca: Option<PathBuf>,
    path: Option<String>,
    size: Option<String>,
}

/// A server of the file. The password is not among the options, because a password there causes the warning for command lines.
pub struct ListedServer {
    pub name: String,
    /// Cluster name, chosen by the user.
    pub cluster: Option<String>,
    pub connection: connect::Args,
    pub password: Option<String>,
    /// Cache paths and size for `bpe enable --all`, if they differ from the common ones.
    pub path: Option<String>,
    pub size: Option<CacheSize>,
}

impl ListedServer {
    /// Resolves the server's address. Asks for its password, if requested.
    ///
    /// # Errors
    /// Its option file or address is unusable.
    pub fn target(&self) -> Result<Target, Failure> {
        let mut target = self.connection.target()?;
        if let Some(password) = &self.password {
            target.set_password(password.clone());
        }
        target.ask_password()?;
        Ok(target)
    }
}

/// The server of this name.
///
/// # Errors
/// It does not exist, or is ambiguous.
pub fn by_name<'a>(servers: &'a [ListedServer], name: &str) -> Result<&'a ListedServer, Failure> {
    let mut found = servers.iter().filter(|server| server.name == name);
    match (found.next(), found.next()) {
        (Some(server), None) => Ok(server),
        (Some(_), Some(_)) => Err(Failure::usage(format!(
            "the file of servers has more than one with the name `{name}`"
        ))
        .advise("give each server a name of its own")),
        (None, _) => {
            let names: Vec<_> = servers.iter().map(|server| server.name.as_str()).collect();
            Err(Failure::usage(format!(
                "the file of servers has none with the name `{name}`"
            ))
            .advise(format!("it has: {}", names.join(", "))))
        }
    }
}

/// Reads the file.
///
/// # Errors
/// It cannot be read or parsed, belongs to another user, or contains a password that others can read.
pub fn read(path: &Path) -> Result<Vec<ListedServer>, Failure> {
    let failed = |why: String| Failure::usage(format!("--servers {}: {why}", path.display()));
    let mut file = PrivateFile::open(path).map_err(|error| failed(error.to_string()))?;
    let text = file
        .text(MAX_BYTES)
        .map_err(|error| failed(error.to_string()))?;
    let servers = parse(&text).map_err(&failed)?;
    if servers.iter().any(|server| server.password.is_some()) {
        file.check_secrecy(path)
            .map_err(|error| failed(error.to_string()))?;
    }
    Ok(servers)
}

fn parse(text: &str) -> Result<Vec<ListedServer>, String> {
    let file: File = toml::from_str(text).map_err(|error| described(&error, text))?;
    file.server
        .into_iter()
        .map(|entry| {
            if entry.name.trim().is_empty() {
                return Err("a server has an empty name".to_owned());
            }
            if entry
                .cluster
                .as_deref()
                .is_some_and(|name| name.trim().is_empty())
            {
                return Err(format!(
                    "the cluster of server `{}` has an empty name",
                    entry.name
                ));
            }
            // Use only these entries, unless an option file is named.
            let connection = connect::Args {
                no_defaults: entry.defaults_file.is_none(),
                socket: entry.socket,
                host: entry.host,
                port: entry.port,
                user: entry.user,
                defaults_file: entry.defaults_file,
                server_user: entry.server_user,
                ssl_mode: entry.ssl_mode,
                ssl_ca: entry.ssl_ca,
                no_environment: true,
                ..connect::Args::default()
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
            let size = entry.size.as_deref().map(CacheSize::parse).transpose();
            let size = size.map_err(|why| format!("the size of server `{}`: {why}", entry.name))?;
            Ok(ListedServer {
                path: entry.path,
                size,
                name: entry.name,
                cluster: entry.cluster,
                connection,
                password,
            })
        })
        .collect()
}

/// The error and its line. The library's own message quotes the line, which may contain a password.
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
             [[server]]\nname = 'replica'\nhost = 'db2'\nport = 3307\nuser = 'bpe'\npassword = 'p'\ncluster = 'shop'\n\
             path = '/mnt/b'\nsize = '80%'\n\
             [[server]]\nname = 'third'\ndefaults-file = '/root/third.cnf'\n",
        )
        .unwrap();
        assert_eq!(servers.len(), 3);
        assert_eq!(servers[0].connection.socket.as_deref(), Some("/run/a.sock"));
        assert!(servers[0].connection.no_defaults && !servers[2].connection.no_defaults);
        assert_eq!(servers[1].connection.port, Some(3307));
        assert_eq!(servers[1].cluster.as_deref(), Some("shop"));
        assert_eq!(servers[0].cluster, None);
        assert_eq!(servers[1].path.as_deref(), Some("/mnt/b"));
        assert_eq!(servers[1].size, Some(CacheSize::Percent(80)));
        assert_eq!(servers[1].password.as_deref(), Some("p"));
        for wrong in [
            "[[server]]\nsocket = 'a'",
            "[[server]]\nname = ''",
            "[[server]]\nname = 'a'\nhots = 'b'",
            "[[server]]\nname = 'a'\ncluster = ' '",
            "[[server]]\nname = 'a'\nsize = 'much'",
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
    fn a_server_is_found_by_its_name_if_that_is_its_own() {
        let servers = parse(
            "[[server]]\nname = 'a'\n[[server]]\nname = 'b'\nhost = 'x'\n[[server]]\nname = 'b'\n",
        )
        .unwrap();
        assert_eq!(by_name(&servers, "a").unwrap().name, "a");
        let what = |name| by_name(&servers, name).err().unwrap().to_string();
        assert!(what("b").contains("more than one"), "{}", what("b"));
        assert!(what("c").contains("it has: a, b, b"), "{}", what("c"));
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
    fn verify_ca_without_authority_is_refused() {
        let text = "[[server]]\nname = 'a'\nhost = '127.0.0.1'\nport = 1\nssl-mode = 'VERIFY_CA'\n";
        let mut target = parse(text).unwrap()[0].target().unwrap();
        let failure = target.connect(None).map(drop).unwrap_err().to_string();
        assert!(failure.contains("VERIFY_CA checks no name"), "{failure}");
    }

    #[test]
    fn readable_file_with_passwords_is_refused() {
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
