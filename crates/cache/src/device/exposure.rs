//! Users who could replace a cache file or a directory above it.
//!
//! Other users can never read or change the cache file, which has mode 0600, or make the extension accept one that is not the
//! server's own. They could remove its name, or redirect the next cache file to another place.

use std::fmt;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A directory on the way to a cache file, and who may change it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exposure {
    /// The directory.
    pub directory: PathBuf,
    /// Who may remove and replace its entries, beside root and the server's user.
    pub who: Who,
}

/// A user or group other than root and the server's user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// Every user of the host. Such a place is refused.
    Everybody,
    /// The members of this group.
    Group(u32),
    /// This user, who owns the directory.
    User(u32),
}

impl fmt::Display for Exposure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let directory = self.directory.display();
        match self.who {
            Who::Everybody => write!(f, "every user may write to '{directory}'"),
            Who::Group(group) => {
                write!(f, "the members of group {group} may write to '{directory}'")
            }
            Who::User(user) => write!(f, "'{directory}' belongs to user {user}"),
        }
    }
}

impl Exposure {
    /// Advice to the administrator.
    pub fn advice(&self) -> &'static str {
        match self.who {
            Who::Everybody => "remove that right (chmod o-w) or set the sticky bit (chmod +t)",
            Who::Group(_) => {
                "remove that right (chmod g-w), or give it to root's or the server's group (chgrp)"
            }
            Who::User(_) => "give it to root or the server's user (chown)",
        }
    }
}

/// All directories from `directory` up to the root that others may change, the nearest first. `directory` should be
/// canonical. `user` and `group` are the server's. Rights of root's group and of the server's own group count as intended by
/// the administrator. In a directory with the sticky bit only its owner may replace files of others.
///
/// `look` is `stat`, for callers that see the server's files under another path. Directories above `directory` for which it
/// fails are skipped.
///
/// # Errors
/// `look` fails for `directory`.
pub fn exposures(
    directory: &Path,
    user: u32,
    group: u32,
    look: impl Fn(&Path) -> io::Result<Metadata>,
) -> io::Result<Vec<Exposure>> {
    let nearest = look(directory)?;
    let (users, groups) = (outside("uid"), outside("gid"));
    let above = directory.ancestors().skip(1);
    let above = above.filter_map(|path| Some((path, look(path).ok()?)));
    Ok(std::iter::once((directory, nearest))
        .chain(above)
        .filter_map(|(path, metadata)| {
            let who = who(metadata.mode(), metadata.uid(), metadata.gid(), user, group)?;
            // The kernel shows this number for users or groups outside the user namespace. No process inside has it.
            let is_outside = match who {
                Who::Everybody => false,
                Who::User(number) => users == Some(number),
                Who::Group(number) => groups == Some(number),
            };
            if is_outside {
                return None;
            }
            Some(Exposure {
                directory: path.to_path_buf(),
                who,
            })
        })
        .collect())
}

/// The number that the kernel shows for users (`kind` is `uid`) or groups (`gid`) outside this process's user namespace;
/// `None` if a process inside can have it as well.
fn outside(kind: &str) -> Option<u32> {
    let read = |path: String| std::fs::read_to_string(path).ok();
    let number = read(format!("/proc/sys/kernel/overflow{kind}"))?;
    let number = number.trim().parse().ok()?;
    let map = read(format!("/proc/self/{kind}_map"))?;
    (!is_mapped(&map, number)).then_some(number)
}

/// Whether a user map contains this number. Each line has the first number inside, the first number outside, and the count.
fn is_mapped(map: &str, number: u32) -> bool {
    map.lines().any(|line| {
        let mut numbers = line.split_whitespace().map(|text| text.parse::<u64>());
        let (first, count) = (numbers.next(), numbers.nth(1));
        matches!((first, count), (Some(Ok(first)), Some(Ok(count)))
            if (first..first + count).contains(&number.into()))
    })
}

fn who(mode: u32, owner: u32, owners: u32, user: u32, group: u32) -> Option<Who> {
    let sticky = mode & 0o1000 != 0;
    if mode & 0o002 != 0 && !sticky {
        Some(Who::Everybody)
    } else if owner != 0 && owner != user {
        Some(Who::User(owner))
    } else if mode & 0o020 != 0 && !sticky && owners != 0 && owners != group {
        Some(Who::Group(owners))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_replace_what_lies_in_a_directory() {
        const SERVER: u32 = 101;
        let other = 1000;
        for (mode, owner, group, expected) in [
            (0o755, 0, 0, None), // a mount point
            (0o700, SERVER, SERVER, None),
            (0o770, SERVER, SERVER, None), // the server's own group
            (0o775, 0, 0, None),           // root's group
            (0o1777, 0, 0, None),          // /tmp
            (0o777, 0, 0, Some(Who::Everybody)),
            (0o702, SERVER, SERVER, Some(Who::Everybody)),
            (0o775, 0, other, Some(Who::Group(other))),
            (0o775, SERVER, other, Some(Who::Group(other))),
            (0o1775, SERVER, other, None),
            (0o755, other, other, Some(Who::User(other))),
            (0o1777, other, other, Some(Who::User(other))), // its owner may, in spite of the sticky bit
        ] {
            assert_eq!(
                who(mode, owner, group, SERVER, SERVER),
                expected,
                "{mode:o} {owner} {group}"
            );
        }
    }

    #[test]
    fn users_outside_of_a_namespace_are_known() {
        assert!(is_mapped("         0          0 4294967295\n", 65_534));
        // Rootless containers, of one user and of many.
        assert!(!is_mapped("         0       1000          1\n", 65_534));
        assert!(is_mapped(
            "         0       1000          1\n         1     100000      65536\n",
            65_534
        ));
        assert!(!is_mapped("", 65_534) && !is_mapped("0 0", 0));
    }

    #[test]
    fn every_directory_up_to_the_root_counts() {
        use std::os::unix::fs::PermissionsExt;
        let top = tempfile::tempdir().unwrap();
        let folder = top.path().canonicalize().unwrap().join("a/b/c");
        std::fs::create_dir_all(&folder).unwrap();
        let us = rustix::process::geteuid().as_raw();
        let exposed = || -> Vec<Exposure> {
            let all = exposures(&folder, us, us, |path| std::fs::metadata(path)).unwrap();
            all.into_iter()
                .filter(|exposure| exposure.directory.starts_with(top.path()))
                .collect()
        };
        assert_eq!(exposed(), []);
        let middle = folder.parent().unwrap();
        std::fs::set_permissions(middle, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(
            exposed(),
            [Exposure {
                directory: middle.to_path_buf(),
                who: Who::Everybody
            }]
        );
        assert!(
            exposures(&folder.join("missing"), us, us, |path| std::fs::metadata(
                path
            ))
            .is_err()
        );
    }
}
