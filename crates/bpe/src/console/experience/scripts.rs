//! sysbench scripts of one's own.
//!
//! A script is a program in Lua: it can do on this host whatever the console's user can, who is often root. So none comes
//! through the page. An administrator names a folder on the command line, the page shows the names of the scripts that lie
//! there, and asks for one by its name, which is only ever compared with those found, never made a path. Whoever could
//! change folder or scripts could run what he likes as the console's user: they must be that user's or root's, and nobody
//! else's to write to.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::super::private_file::may_own;
use crate::failure::Failure;

/// Scripts shown; a folder with more holds something else.
const MOST: usize = 200;
/// Bytes of a name.
const LONGEST: usize = 100;

/// The folder.
pub struct Scripts {
    folder: PathBuf,
}

/// What was found.
#[derive(Debug, Default, PartialEq)]
pub struct Found {
    /// In their order.
    pub names: Vec<String>,
    /// What looks like a script and is not offered, with the reason.
    pub left_out: Vec<String>,
}

impl Scripts {
    /// # Errors
    /// When it is no folder, or others could put scripts there.
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
        if let Some(why) = changeable(&meta) {
            return Err(wrong(format!("{why}, and scripts run with your rights"))
                .advise("make it yours (chown) and nobody else's to write to (chmod go-w)"));
        }
        Ok(Self { folder: own })
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Looks what is there now. A folder that cannot be read, or that others can write to by now, holds nothing.
    pub fn look(&self) -> Found {
        let mut found = Found::default();
        if !fs::metadata(&self.folder).is_ok_and(|meta| changeable(&meta).is_none()) {
            return found;
        }
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        for entry in entries {
            let name = entry.file_name();
            let Some(name) = name.to_str().filter(|name| name.ends_with(".lua")) else {
                continue;
            };
            // Not of what a link leads to.
            let why = match fs::symlink_metadata(entry.path()) {
                Err(error) => Some(error.to_string()),
                Ok(_) if !is_plain(name) => Some(
                    "its name may have letters, digits and . _ - + only, and begin with none of the latter".to_owned(),
                ),
                Ok(meta) if meta.is_symlink() => Some("it is a symbolic link".to_owned()),
                Ok(meta) if !meta.is_file() => Some("it is no plain file".to_owned()),
                Ok(meta) => changeable(&meta),
            };
            match why {
                None => found.names.push(name.to_owned()),
                Some(why) => found.left_out.push(format!("{name}: {why}")),
            }
        }
        found.names.sort_unstable();
        found.names.truncate(MOST);
        found.left_out.sort_unstable();
        found.left_out.truncate(MOST);
        found
    }

    /// The script of this name.
    ///
    /// # Errors
    /// Says which there are.
    pub fn choose(&self, name: &str) -> Result<PathBuf, String> {
        let found = self.look();
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

/// Whether it is the name of a file in the folder itself, which neither a shell nor a program takes for something else.
fn is_plain(name: &str) -> bool {
    name.len() <= LONGEST
        && name.starts_with(char::is_alphanumeric)
        && name
            .chars()
            .all(|c| c.is_alphanumeric() || "._-+".contains(c))
}

/// Why others could change it.
fn changeable(meta: &Metadata) -> Option<String> {
    let own = rustix::process::geteuid().as_raw();
    if !may_own(meta.uid(), own) {
        return Some(format!("it belongs to another user (id {})", meta.uid()));
    }
    (meta.mode() & 0o022 != 0).then(|| "others can write to it".to_owned())
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
        write(&inner, "open.lua");
        set(&inner.join("open.lua"), 0o666);
        let scripts = Scripts::open(&inner).unwrap();
        let found = scripts.look();
        assert_eq!(found.names, ["a-2.lua", "shop.lua"]);
        let said = found.left_out.join("\n");
        for part in [
            "out.lua: it is a symbolic link",
            "in.lua: it is a symbolic link",
            "dangling.lua: it is a symbolic link",
            "folder.lua: it is no plain file",
            "open.lua: others can write to it",
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
            "open.lua",
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
        // What comes and goes is seen.
        fs::remove_file(inner.join("shop.lua")).unwrap();
        symlink("../outer.lua", inner.join("shop.lua")).unwrap();
        assert!(scripts.choose("shop.lua").is_err());
        assert_eq!(scripts.look().names, ["a-2.lua"]);
        set(&inner, 0o777);
        assert_eq!(scripts.look(), Found::default());
        fs::remove_dir_all(&inner).unwrap();
        assert_eq!(scripts.look(), Found::default());
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
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(outer.path(), Some(65534), None).unwrap();
            assert!(refusal(outer.path()).contains("another user"));
        }
    }
}
