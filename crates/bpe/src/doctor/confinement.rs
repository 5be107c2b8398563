//! Restrictions that keep the server out of a directory although its permissions allow access: AppArmor, SELinux, and its systemd unit.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use interface::untrusted::one_line;

use super::finding::Finding;
use crate::connect::process::Process;
use crate::installation::disk;
use crate::support::quote::{shell, shell_path};

/// The packages' AppArmor file in /etc/apparmor.d.
const ABSTRACTION: &str = "abstractions/innodb-bpe";

pub fn check(process: &Process, path: &Path) -> Vec<Finding> {
    [
        apparmor(process, path),
        selinux(process, path),
        unit(process, path),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Checks the in-memory directory for data that survives the server's process. The extension works without it.
pub fn memory(process: &Process, folder: &Path) -> Vec<Finding> {
    let shown = one_line(&folder.to_string_lossy());
    let missing = Profile::of(process)
        .filter(|profile| profile.enforces && profile.is_readable)
        .filter(|profile| {
            !["arena", "files"]
                .iter()
                .all(|kind| allows(&profile.rules, folder, kind))
        })
        .map(|profile| {
            let text = format!(
                "profile {} is enforced and does not allow {shown}/bpe-*.arena",
                profile.name
            );
            let lines = format!("  {shown}/bpe-*.arena rwk,\n  {shown}/bpe-*.files rwk,");
            Finding::warn("AppArmor", text).advise(profile.advice(&lines))
        });
    let selinux = is_confined_by_selinux(process).then(|| {
        let text = format!("is enforced: the server needs a rule for files of its own in {shown}");
        Finding::warn("SELinux", text).advise("selinux.md of the package has a policy for them")
    });
    missing.into_iter().chain(selinux).collect()
}

/// The server's AppArmor profile.
struct Profile {
    name: String,
    /// In /etc/apparmor.d.
    file: String,
    enforces: bool,
    /// Whether its file exists. A container engine loads its profile without one.
    is_readable: bool,
    rules: String,
}

impl Profile {
    fn of(process: &Process) -> Option<Self> {
        let read =
            |name: &str| fs::read_to_string(format!("/proc/{}/attr/{name}", process.pid)).ok();
        if fs::read_to_string("/sys/module/apparmor/parameters/enabled")
            .is_ok_and(|text| !text.starts_with('Y'))
        {
            return None;
        }
        let label = read("apparmor/current").or_else(|| read("current"))?;
        let (name, mode) = label.trim().rsplit_once(" (")?;
        let file = name.trim_start_matches('/').replace('/', ".");
        let text = |file: &str| fs::read_to_string(format!("/etc/apparmor.d/{file}"));
        let own = text(&file);
        let is_readable = own.is_ok();
        let text = |file: &str| text(file).unwrap_or_default();
        let mut rules = own.unwrap_or_default() + &text(&format!("local/{file}"));
        if rules.contains(ABSTRACTION) {
            rules += &text(ABSTRACTION);
        }
        Some(Self {
            name: name.to_owned(),
            file,
            enforces: mode.trim_end_matches(')') == "enforce",
            is_readable,
            rules,
        })
    }

    fn advice(&self, lines: &str) -> String {
        let local = format!("/etc/apparmor.d/local/{}", self.file);
        let file = shell(&format!("/etc/apparmor.d/{}", self.file));
        format!(
            "add these lines to {}:\n{lines}\nthen: sudo apparmor_parser -r {file}",
            one_line(&local)
        )
    }
}

fn apparmor(process: &Process, path: &Path) -> Option<Finding> {
    let profile = Profile::of(process)?;
    let (name, shown) = (&profile.name, one_line(&path.to_string_lossy()));
    if !profile.enforces {
        return Some(Finding::ok(
            "AppArmor",
            format!("profile {name} does not enforce"),
        ));
    }
    if !profile.is_readable {
        return Some(
            Finding::warn(
                "AppArmor",
                format!("profile {name} is enforced, and its rules cannot be read here"),
            )
            .advise(format!(
                "a container's usual profile allows it; another one needs {shown}/** rwk"
            )),
        );
    }
    if allows(&profile.rules, path, "cache") {
        return Some(Finding::ok(
            "AppArmor",
            format!("profile {name} allows {shown}"),
        ));
    }
    let text = format!("profile {name} is enforced and does not allow {shown}");
    let lines = format!("  {shown}/ r,\n  {shown}/** rwk,");
    Some(Finding::fail("AppArmor", text).advise(profile.advice(&lines)))
}

/// Whether a rule permits to read, write and lock a file of this kind below `path`. Supports the plain globs that such rules use.
fn allows(rules: &str, path: &Path, kind: &str) -> bool {
    let wanted = format!("{}/bpe-0123456789abcdef.{kind}", path.display());
    rules.lines().any(|line| {
        let line = line
            .trim()
            .trim_start_matches("owner ")
            .trim_start()
            .trim_end_matches(',');
        if line.starts_with('#') || line.starts_with("deny") {
            return false;
        }
        // The access flags follow the path, or precede it.
        let before = line.split_once(char::is_whitespace);
        let before = before.filter(|(access, _)| {
            !access.is_empty() && access.chars().all(|c| "rwaklmix".contains(c))
        });
        let split = before
            .map(|(access, pattern)| (pattern, access))
            .or_else(|| line.rsplit_once(char::is_whitespace));
        let Some((pattern, access)) = split else {
            return false;
        };
        let pattern = pattern.trim().trim_matches('"');
        ['r', 'w', 'k'].iter().all(|&c| access.contains(c)) && glob(pattern, &wanted)
    })
}

/// `*` matches within a directory, `**` also across directories.
fn glob(pattern: &str, text: &str) -> bool {
    let Some(star) = pattern.find('*') else {
        return pattern == text;
    };
    let (head, tail) = pattern.split_at(star);
    let Some(rest) = text.strip_prefix(head) else {
        return false;
    };
    let (deep, tail) = match tail.strip_prefix("**") {
        Some(tail) => (true, tail),
        None => (false, &tail[1..]),
    };
    let end = if deep {
        rest.len()
    } else {
        rest.find('/').unwrap_or(rest.len())
    };
    (0..=end)
        .filter(|&at| rest.is_char_boundary(at))
        .any(|at| glob(tail, &rest[at..]))
}

fn is_confined_by_selinux(process: &Process) -> bool {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    read("/sys/fs/selinux/enforce").trim() == "1"
        && read(&format!("/proc/{}/attr/current", process.pid)).contains(":mysqld_t:")
}

fn selinux(process: &Process, path: &Path) -> Option<Finding> {
    if !is_confined_by_selinux(process) {
        return None;
    }
    let seen = process.seen(path);
    let mut value = vec![0; 256];
    let length = rustix::fs::getxattr(&seen, "security.selinux", &mut value).unwrap_or(0);
    let label = String::from_utf8_lossy(&value[..length]).into_owned();
    if label.contains(":mysqld_db_t:") {
        return Some(Finding::ok("SELinux", "the folder has type mysqld_db_t"));
    }
    let shown = path.display();
    Some(
        Finding::fail(
            "SELinux",
            format!("is enforced, and {shown} has not the type mysqld_db_t"),
        )
        .advise(format!(
            "sudo semanage fcontext -a -t mysqld_db_t {} && sudo restorecon -R {}",
            shell(&format!("{}(/.*)?", path.display())),
            shell_path(path)
        )),
    )
}

/// The unit's ProtectHome, PrivateTmp or ProtectSystem give the server a different view of the files.
fn unit(process: &Process, path: &Path) -> Option<Finding> {
    let unit = process.unit()?;
    // In a chroot or container, paths refer to other files, so a comparison is impossible.
    if !process.shares_root() {
        return None;
    }
    let shown = path.display();
    let own = fs::metadata(path).ok()?;
    let hidden = match fs::metadata(process.seen(path)) {
        Ok(seen) => (seen.dev(), seen.ino()) != (own.dev(), own.ino()),
        Err(_) => true,
    };
    if hidden {
        return Some(
            Finding::fail(
                "systemd",
                format!("{unit} hides {shown} from the server (ProtectHome or PrivateTmp)"),
            )
            .advise("choose a folder outside of /home, /root, /run/user, /tmp and /var/tmp"),
        );
    }
    let read_only = |path: &Path| disk::room(path).is_ok_and(|room| room.read_only);
    if read_only(&process.seen(path)) && !read_only(path) {
        return Some(
            Finding::fail(
                "systemd",
                format!("{unit} lets the server only read {shown} (ProtectSystem)"),
            )
            .advise(format!(
                "sudo systemctl edit {}, add the lines\n  [Service]\n  ReadWritePaths={}\n\
                 and restart the server",
                shell(&unit),
                one_line(&path.to_string_lossy())
            )),
        );
    }
    Some(Finding::ok("systemd", format!("{unit} allows {shown}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn apparmor_rules_are_understood() {
        let path = Path::new("/mnt/nvme/bpe");
        let covered = [
            "  /mnt/nvme/bpe/** rwk,",
            "/mnt/** rwk,",
            "owner /mnt/nvme/bpe/*.cache mrwk,",
            "\"/mnt/nvme/*/**\" rwkl,",
            "rwk /mnt/nvme/bpe/**,",
            "owner  /mnt/**   rwk,",
            "owner rwk \"/mnt/nvme/bpe/**\",",
        ];
        for rule in covered {
            assert!(allows(rule, path, "cache"), "{rule}");
        }
        let not_covered = [
            "/mnt/nvme/bpe/** r,",
            "r /mnt/nvme/bpe/**,",
            "/var/lib/mysql/** rwk,",
            "/mnt/* rwk,",
            "# /mnt/nvme/bpe/** rwk,",
            "deny /mnt/nvme/bpe/** rwk,",
            "",
        ];
        for rule in not_covered {
            assert!(!allows(rule, path, "cache"), "{rule}");
        }
    }

    #[test]
    fn the_packages_abstraction_allows_what_is_kept_in_memory() {
        let rules = include_str!("../../../../packaging/common/apparmor");
        for kind in ["arena", "files"] {
            assert!(
                allows(
                    rules,
                    Path::new(crate::installation::persistence::DEFAULT_PATH),
                    kind
                ),
                "{kind}"
            );
        }
        assert!(!allows(
            rules,
            Path::new(crate::installation::persistence::DEFAULT_PATH),
            "cache"
        ));
    }

    #[test]
    fn globs_stop_at_folders() {
        assert!(glob("/a/*", "/a/b"));
        assert!(!glob("/a/*", "/a/b/c"));
        assert!(glob("/a/**", "/a/b/c"));
        assert!(glob("/a/*/c", "/a/b/c"));
        assert!(!glob("/b", "/a"));
    }
}
