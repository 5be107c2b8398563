//! The user's sysbench scripts.
//!
//! A script is a Lua program: it can do anything on this host that the console's user can, who is often root. Therefore no
//! script is uploaded through the page. An administrator names a directory on the command line, and the page lists the
//! scripts in it. The page requests a script by name. The name is only compared with the found ones, and never becomes a
//! path.
//!
//! A user who can change the directory or its scripts can run code as the console's user. Therefore the directory, its
//! scripts and all parent directories must belong to that user or root, and only they may write to them ([`ownership`]). The
//! same holds for every module that `require` can find there: a script runs in its directory, and a foreign module beside it
//! would run with it. If others can change a single code file in the directory or below, no script is offered.

use std::collections::HashSet;
use std::fs::{self, DirEntry};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bpe::failure::Failure;
use private_server::ownership::{self, changeable};
use tokio::sync::Semaphore;

/// Maximum number of scripts; a directory with more has another purpose.
const MOST: usize = 200;
/// Maximum number of examined entries, in the directory and below.
const ENTRIES: usize = 5000;
/// Maximum bytes of a name.
const LONGEST: usize = 100;
/// Timeout of a page for the contents of the directory.
const PATIENCE: Duration = Duration::from_secs(2);

/// The directory of scripts.
pub struct Scripts {
    folder: PathBuf,
    /// Allows one scan at a time for all pages: a hung scan occupies a single thread.
    turn: Arc<Semaphore>,
}

/// Result of a scan.
#[derive(Debug, Default, PartialEq)]
pub struct Found {
    /// In alphabetical order.
    pub names: Vec<String>,
    /// Rejected scripts, with the reason.
    pub left_out: Vec<String>,
    /// The reason if no script is offered.
    pub refused: Option<String>,
}

impl Scripts {
    /// # Errors
    /// It is not a directory, or others could write scripts there.
    pub fn open(folder: &Path) -> Result<Self, Failure> {
        let wrong = |why: String| {
            Failure::refused(format!(
                "{} cannot be the folder of sysbench scripts: {why}",
                folder.display()
            ))
        };
        let own = folder
            .canonicalize()
            .map_err(|error| wrong(error.to_string()))?;
        let meta = fs::metadata(&own).map_err(|error| wrong(error.to_string()))?;
        if !meta.is_dir() {
            return Err(wrong("it is no folder".to_owned()));
        }
        let risky = |why: String| wrong(format!("{why}, and scripts run with your rights"));
        if let Some(why) = changeable(&meta) {
            return Err(risky(why)
                .advise("make it yours (chown), and let nobody else write to it (chmod go-w)"));
        }
        ownership::check(&own).map_err(|why| {
            risky(why).advise(
                "the folders above it must also be yours or root's, and nobody else may write to them",
            )
        })?;
        Ok(Self {
            folder: own,
            turn: Arc::new(Semaphore::new(1)),
        })
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Scans the directory.
    pub fn look(&self) -> Found {
        let mut found = Found::default();
        if let Err(why) = self.collect(&mut found) {
            return Found {
                refused: Some(why),
                ..Found::default()
            };
        }
        found.names.sort_unstable();
        found.names.truncate(MOST);
        found.left_out.sort_unstable();
        found.left_out.truncate(MOST);
        found
    }

    /// Like [`Scripts::look`], in a thread that may block: the directory may be on a hung network file system.
    ///
    /// # Errors
    /// The directory does not answer.
    pub async fn shown(self: &Arc<Self>) -> Result<Found, String> {
        let looking = async {
            let turn = Arc::clone(&self.turn).acquire_owned().await.ok()?;
            let scripts = Arc::clone(self);
            let look = tokio::task::spawn_blocking(move || {
                // Held until the scan ends, even after the caller's timeout.
                let _turn = turn;
                scripts.look()
            });
            look.await.ok()
        };
        match tokio::time::timeout(PATIENCE, looking).await {
            Ok(Some(found)) => Ok(found),
            _ => Err(format!(
                "the folder of scripts, {}, has not answered for {} s",
                self.folder.display(),
                PATIENCE.as_secs()
            )),
        }
    }

    /// Collects all scripts, and checks everything that they could load.
    fn collect(&self, found: &mut Found) -> Result<(), String> {
        ownership::check(&self.folder)?;
        let mut folders = vec![self.folder.clone()];
        let mut known = HashSet::new();
        let mut entries = 0;
        while let Some(folder) = folders.pop() {
            let wrong = |error: std::io::Error| format!("{}: {error}", folder.display());
            let meta = fs::metadata(&folder).map_err(wrong)?;
            if let Some(why) = changeable(&meta) {
                return Err(format!("{}: {why}", folder.display()));
            }
            // Links may form a cycle.
            if !known.insert((meta.dev(), meta.ino())) {
                continue;
            }
            for entry in fs::read_dir(&folder).map_err(wrong)? {
                entries += 1;
                if entries > ENTRIES {
                    return Err(format!(
                        "{}: there are more than {ENTRIES} files in it and below, too many to look at",
                        self.folder.display()
                    ));
                }
                let entry = entry.map_err(wrong)?;
                if self.judge(&entry, folder == self.folder, found)? {
                    folders.push(entry.path());
                }
            }
        }
        Ok(())
    }

    /// Judges one entry. Returns whether it is a directory that may contain modules.
    fn judge(&self, entry: &DirEntry, is_top: bool, found: &mut Found) -> Result<bool, String> {
        let (name, path) = (entry.file_name(), entry.path());
        let bytes = name.as_encoded_bytes();
        let is_script = bytes.ends_with(b".lua");
        let is_code = is_script || bytes.ends_with(b".so");
        // `require` replaces dots by slashes, so it never enters a directory whose name begins with a dot, such as `.git`.
        if bytes.starts_with(b".") && !is_code {
            return Ok(false);
        }
        let wrong = |why: String| {
            format!(
                "{}: {why}, and scripts can load it",
                path.strip_prefix(&self.folder).unwrap_or(&path).display()
            )
        };
        let kind = entry
            .file_type()
            .map_err(|error| wrong(error.to_string()))?;
        if kind.is_symlink() {
            ownership::check(&path).map_err(wrong)?;
        } else if is_code && !kind.is_dir() {
            let meta = fs::symlink_metadata(&path).map_err(|error| wrong(error.to_string()))?;
            if let Some(why) = changeable(&meta) {
                return Err(wrong(why));
            }
        }
        if let Some(name) = name.to_str().filter(|_| is_top && is_script) {
            let why = if !is_plain(name) {
                Some(
                    "its name may have only letters, digits and . _ - +, and must begin with a letter or a digit",
                )
            } else if kind.is_symlink() {
                // Judges the link, not its target.
                Some("it is a symbolic link")
            } else if !kind.is_file() {
                Some("it is no plain file")
            } else {
                None
            };
            match why {
                None => found.names.push(name.to_owned()),
                Some(why) => found.left_out.push(format!("{name}: {why}")),
            }
        }
        Ok(kind.is_dir() || (kind.is_symlink() && path.is_dir()))
    }

    /// Returns the path of the script with this name.
    ///
    /// # Errors
    /// The error lists the available scripts.
    pub fn choose(&self, name: &str) -> Result<PathBuf, String> {
        let found = self.look();
        if let Some(why) = found.refused {
            return Err(format!("no script is offered: {why}"));
        }
        match found.names.iter().find(|one| *one == name) {
            Some(name) => Ok(self.folder.join(name)),
            None if found.names.is_empty() => Err("there is no script".to_owned()),
            None => Err(format!(
                "there is no such script; there are {}",
                found.names.join(", ")
            )),
        }
    }
}

/// Whether it is the name of a file in the directory, without special meaning for a shell or a program.
fn is_plain(name: &str) -> bool {
    name.len() <= LONGEST
        && name.starts_with(char::is_alphanumeric)
        && name
            .chars()
            .all(|c| c.is_alphanumeric() || "._-+".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        set(folder.path(), 0o755);
        folder
    }

    fn set(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn write(folder: &Path, name: &str) {
        let path = folder.join(name);
        fs::write(&path, "function event() end").unwrap();
        set(&path, 0o644);
    }

    #[test]
    fn plain_files_that_end_in_lua_are_offered() {
        let outer = folder();
        write(outer.path(), "outer.lua");
        let inner = outer.path().join("scripts");
        fs::create_dir(&inner).unwrap();
        set(&inner, 0o755);
        for name in [
            "shop.lua",
            "a-2.lua",
            "notes.txt",
            "shop.lua.bak",
            "lua",
            ".lua",
        ] {
            write(&inner, name);
        }
        for name in ["-h.lua", "a b.lua", "a\nb.lua", "$(x).lua", "..lua"] {
            write(&inner, name);
        }
        fs::create_dir(inner.join("folder.lua")).unwrap();
        symlink("../outer.lua", inner.join("out.lua")).unwrap();
        symlink("shop.lua", inner.join("in.lua")).unwrap();
        symlink("nothing", inner.join("dangling.lua")).unwrap();
        let scripts = Scripts::open(&inner).unwrap();
        let found = scripts.look();
        assert_eq!(found.names, ["a-2.lua", "shop.lua"]);
        let said = found.left_out.join("\n");
        for part in [
            "out.lua: it is a symbolic link",
            "in.lua: it is a symbolic link",
            "dangling.lua: it is a symbolic link",
            "folder.lua: it is no plain file",
            "-h.lua: its name",
        ] {
            assert!(said.contains(part), "{part} is missing in\n{said}");
        }

        assert_eq!(
            scripts.choose("shop.lua").unwrap(),
            inner.canonicalize().unwrap().join("shop.lua")
        );
        for name in [
            "../outer.lua",
            "../scripts/shop.lua",
            "./shop.lua",
            "/etc/passwd",
            "out.lua",
            "in.lua",
            "folder.lua",
            "shop.lua\0",
            "shop",
            "SHOP.lua",
            "notes.txt",
            "oltp_read_only",
            "",
            "..",
        ] {
            let why = scripts.choose(name).unwrap_err();
            assert!(why.contains("there are a-2.lua, shop.lua"), "{name}: {why}");
        }
        // Every request sees the current contents.
        fs::remove_file(inner.join("shop.lua")).unwrap();
        symlink("../outer.lua", inner.join("shop.lua")).unwrap();
        assert!(scripts.choose("shop.lua").is_err());
        assert_eq!(scripts.look().names, ["a-2.lua"]);
        set(&inner, 0o777);
        assert!(refused(&scripts).contains("scripts: others can write to it"));
        fs::remove_dir_all(&inner).unwrap();
        assert!(refused(&scripts).contains("No such file"));
    }

    /// Returns the reason why no script is offered.
    fn refused(scripts: &Scripts) -> String {
        let found = scripts.look();
        assert!(found.names.is_empty() && found.left_out.is_empty());
        let why = found.refused.unwrap();
        let said = scripts.choose("shop.lua").unwrap_err();
        assert!(said.contains(&why), "{said}");
        why
    }

    #[test]
    fn nothing_is_offered_beside_what_others_can_change() {
        let outer = folder();
        let inner = outer.path().join("scripts");
        let below = inner.join("shop/parts");
        fs::create_dir_all(&below).unwrap();
        for path in [&inner, &inner.join("shop"), &below] {
            set(path, 0o755);
        }
        write(&inner, "shop.lua");
        let scripts = Scripts::open(&inner).unwrap();
        let is_offered = || scripts.look().names == ["shop.lua"];
        assert!(is_offered());
        for (at, name) in [
            (&inner, "common.so"),
            (&inner, "a b.lua"),
            (&inner, ".lua"),
            (&below, "init.lua"),
            (&below, "fast.so"),
        ] {
            write(at, name);
            assert!(is_offered(), "{name}");
            set(&at.join(name), 0o666);
            let why = refused(&scripts);
            assert!(
                why.contains(&format!("{name}: others can write to it")),
                "{why}"
            );
            fs::remove_file(at.join(name)).unwrap();
        }
        // Others could put a module there.
        set(&below, 0o1777);
        assert!(refused(&scripts).contains("shop/parts: others can write to it"));
        set(&below, 0o755);
        // Files without code, and a directory that `require` cannot enter.
        write(&inner, "notes.txt");
        set(&inner.join("notes.txt"), 0o666);
        fs::create_dir(inner.join(".git")).unwrap();
        set(&inner.join(".git"), 0o777);
        assert!(is_offered());

        // Links to places where others can write.
        let theirs = outer.path().join("theirs");
        fs::create_dir(&theirs).unwrap();
        set(&theirs, 0o755);
        write(&theirs, "common.lua");
        for (target, name) in [
            ("../theirs/common.lua", "common.lua"),
            ("../../theirs", "shop/theirs"),
            ("../theirs/none", "none"),
        ] {
            symlink(target, inner.join(name)).unwrap();
            assert!(is_offered(), "{name}");
            set(&theirs, 0o777);
            let why = refused(&scripts);
            assert!(
                why.contains(name) && why.contains("theirs: others can write"),
                "{why}"
            );
            set(&theirs, 0o755);
            fs::remove_file(inner.join(name)).unwrap();
        }
        symlink("..", inner.join("shop/circle")).unwrap();
        assert!(is_offered());

        // The parent directories.
        set(outer.path(), 0o777);
        assert!(refused(&scripts).contains("others can write to it"));
        set(outer.path(), 0o1777);
        assert!(is_offered());
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(outer.path(), Some(65534), None).unwrap();
            assert!(refused(&scripts).contains("another user"));
        }
    }

    #[test]
    fn a_large_folder_is_not_looked_through() {
        let outer = folder();
        write(outer.path(), "shop.lua");
        let scripts = Scripts::open(outer.path()).unwrap();
        let below = outer.path().join("below");
        fs::create_dir(&below).unwrap();
        set(&below, 0o755);
        for number in 0..ENTRIES - 2 {
            fs::File::create(below.join(number.to_string())).unwrap();
        }
        assert_eq!(scripts.look().names, ["shop.lua"]);
        fs::File::create(below.join("one more")).unwrap();
        assert!(refused(&scripts).contains("too many"));
    }

    #[test]
    fn a_folder_that_hangs_is_not_waited_for() {
        let outer = folder();
        write(outer.path(), "shop.lua");
        let scripts = Arc::new(Scripts::open(outer.path()).unwrap());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(async {
            assert_eq!(scripts.shown().await.unwrap().names, ["shop.lua"]);
            let hanging = Arc::clone(&scripts.turn).acquire_owned().await.unwrap();
            let why = scripts.shown().await.unwrap_err();
            assert!(why.contains("has not answered"), "{why}");
            drop(hanging);
            assert!(scripts.shown().await.is_ok());
        });
    }

    #[test]
    fn the_folder_is_nobody_elses() {
        let outer = folder();
        let refusal = |path: &Path| Scripts::open(path).err().unwrap().to_string();
        write(outer.path(), "a.lua");
        assert!(refusal(&outer.path().join("a.lua")).contains("no folder"));
        assert!(refusal(&outer.path().join("none")).contains("No such file"));
        for mode in [0o777, 0o775, 0o1777] {
            set(outer.path(), mode);
            let text = refusal(outer.path());
            assert!(text.contains("others can write to it"), "{text}");
        }
        set(outer.path(), 0o755);
        assert!(Scripts::open(outer.path()).is_ok());
        let inner = outer.path().join("inner");
        fs::create_dir(&inner).unwrap();
        set(&inner, 0o755);
        assert!(Scripts::open(&inner).is_ok());
        set(outer.path(), 0o777);
        assert!(refusal(&inner).contains("others can write to it"));
        set(outer.path(), 0o755);
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(outer.path(), Some(65534), None).unwrap();
            assert!(refusal(outer.path()).contains("another user"));
            assert!(refusal(&inner).contains("another user"));
        }
    }
}
