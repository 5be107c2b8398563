//! Recognizes server processes by their names.

use std::fs;
use std::path::{Path, PathBuf};

pub fn strings(bytes: &[u8]) -> impl Iterator<Item = String> + '_ {
    bytes
        .split(|&byte| byte == 0)
        .filter(|part| !part.is_empty())
        .map(|part| String::from_utf8_lossy(part).into_owned())
}

/// Whether a process is a database server, and not another program that handles such a file.
pub fn is_server(pid: i32) -> bool {
    // The program's name is first, or follows the arguments of the dynamic loader.
    const LOADER_ARGUMENTS: usize = 8;
    let Ok(bytes) = fs::read(format!("/proc/{pid}/cmdline")) else {
        return false;
    };
    let arguments: Vec<_> = strings(&bytes).take(LOADER_ARGUMENTS).collect();
    // Only root and the process's user may read this link.
    let program = fs::read_link(format!("/proc/{pid}/exe"))
        .ok()
        .or_else(|| arguments.first().map(PathBuf::from));
    program.is_some_and(|program| runs_server(&program, &arguments))
}

fn runs_server(program: &Path, arguments: &[String]) -> bool {
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    let runs_others = ["ld-", "ld.so", "ld64", "qemu-"]
        .iter()
        .any(|begin| name.starts_with(begin));
    is_server_name(program)
        || runs_others
            && arguments
                .iter()
                .any(|argument| is_server_name(Path::new(argument)))
}

pub fn is_server_name(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // A file replaced by an upgrade shows as "mariadbd (deleted)".
    let name = name.trim_end_matches(" (deleted)");
    matches!(name, "mysqld" | "mariadbd" | "mysqld-debug")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_programs_are_known_by_name() {
        for name in [
            "/usr/sbin/mysqld",
            "mariadbd",
            "/usr/sbin/mariadbd (deleted)",
        ] {
            assert!(is_server_name(Path::new(name)), "{name}");
        }
        for name in [
            "/usr/bin/mysqld_safe",
            "systemd",
            "/lib64/ld-linux-x86-64.so.2",
            "",
        ] {
            assert!(!is_server_name(Path::new(name)), "{name}");
        }
        assert!(!is_server(std::process::id() as i32));
    }

    #[test]
    fn program_with_a_server_argument_is_no_server() {
        let runs = |program: &str, arguments: &[&str]| {
            let arguments: Vec<_> = arguments.iter().map(|&text| text.to_owned()).collect();
            runs_server(Path::new(program), &arguments)
        };
        let loader = "/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2";
        assert!(runs("/usr/sbin/mariadbd", &["/usr/sbin/mariadbd"]));
        assert!(runs(loader, &[loader, "--library-path", "/a", "/a/mysqld"]));
        assert!(!runs(loader, &[loader, "/usr/bin/ssh"]));
        // A tunnel to a server's socket.
        assert!(!runs("/usr/bin/ssh", &["ssh", "-NL", "/run/b/mysqld", "b"]));
    }
}
