//! Checks of `enable` on the server's host before it changes anything: the library and its destination, the cache
//! paths, and the directory of the snippet.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use interface::untrusted::one_line;

use super::options::Locations;
use crate::connect::process::Process;
use crate::connect::server::{Flavour, Server};
use crate::connect::trust::is_usual;
use crate::installation::interception::{self, Answer};
use crate::installation::persistence::{self, Obstacle};
use crate::installation::server_options::{SNIPPET, ServerOptions};
use crate::installation::snippet::ExistingFile;
use crate::installation::{disk, library, snippet};
use crate::support::failure::Failure;
use crate::support::files::is_administrators;
use crate::support::quote::{shell, shell_path};
use crate::support::size::human;

/// Default `plugin_dir` of the server packages: Debian and Ubuntu, Red Hat and SUSE, Oracle.
const PLUGIN_DIRS: [&str; 4] = [
    "/usr/lib/mysql/plugin",
    "/usr/lib64/mysql/plugin",
    "/usr/lib64/mariadb/plugin",
    "/usr/lib/mariadb/plugin",
];

/// A library to copy.
#[derive(Debug, Clone)]
pub struct LibraryCopy {
    pub from: PathBuf,
    /// Destination in the server's `plugin_dir`.
    pub place: PathBuf,
    /// Whether another file already exists there.
    pub replaces: bool,
}

/// How the extension survives a restart.
#[derive(Debug, Clone)]
pub enum Permanence {
    /// A snippet with this path, as the server sees it.
    Snippet {
        path: PathBuf,
        early_load: Option<String>,
    },
    /// A snippet cannot be written for this reason; the user gets the lines to add.
    ByHand {
        why: String,
        early_load: Option<String>,
        place: ByHand,
    },
}

/// Where to add these lines, as far as known.
#[derive(Debug, Clone, Default)]
pub struct ByHand {
    /// A file that the server reads.
    pub file: Option<PathBuf>,
    /// Suffix of its group names.
    pub suffix: Option<String>,
}

/// Refuses a server on which the extension would be passive, with the plugin's own message.
pub fn can_be_followed(
    server: &mut Server,
    process: &Process,
    notes: &mut Vec<String>,
) -> Result<(), Failure> {
    match interception::of(server, process) {
        Ok(Answer::Works(_)) => Ok(()),
        Ok(Answer::Refused(refusal)) => Err(interception::failure(&refusal)),
        // Conditions seen at run time may have ended. Switching on checks them again.
        Ok(Answer::Passive(_)) => Ok(()),
        Err(why) => {
            notes.push(format!(
                "{why}: whether its calls can be followed shows when it is switched on"
            ));
            Ok(())
        }
    }
}

/// Finds the library and decides whether to copy it into the server's `plugin_dir`.
pub fn library(
    server: &mut Server,
    process: &Result<Process, String>,
    locations: &Locations,
    loaded: bool,
    notes: &mut Vec<String>,
) -> Result<Option<LibraryCopy>, Failure> {
    let folder = server
        .variable("plugin_dir")?
        .ok_or_else(|| Failure::refused("the server does not tell its plugin_dir"))?;
    let place = Path::new(&folder).join(library::FILE_NAME);
    let process = match process {
        Ok(process) => process,
        Err(why) => {
            notes.push(format!(
                "{why}: bpe.so must lie in its {} already, and --path is not checked",
                folder
            ));
            return Ok(None);
        }
    };
    let refused = |why: String| Failure::refused(format!("{why}; nothing was changed"));
    let file = process.seen(&place);
    let there = file.is_file();
    let from = match library::find(locations.library.as_deref()) {
        Ok(from) => from,
        // A library installed by a package or by hand is sufficient, unless the user named another one.
        Err(_) if there && locations.library.is_none() => file.clone(),
        Err(failure) => return Err(failure),
    };
    library::check(&from, server.flavour, process.architecture()).map_err(refused)?;
    if from == file {
        return Ok(None);
    }
    let unable = |why: String| {
        refused(format!(
            "the library cannot be put into the server's plugin_dir {folder}: {why}"
        ))
        .advise(format!(
            "if the server is the one you mean, copy it yourself: sudo install -m 644 {} {}",
            shell_path(&from),
            shell_path(&place)
        ))
    };
    if rustix::process::geteuid().is_root() && !is_administrators(&from) {
        return Err(refused(format!(
            "{}: another user than root can change it, or a directory above it",
            from.display()
        ))
        .advise("copy it into a directory of root's first"));
    }
    let library =
        library::read(&from).map_err(|error| refused(format!("{}: {error}", from.display())))?;
    if there && library::read(&file).is_ok_and(|there| there == library) {
        return Ok(None);
    }
    let options = ServerOptions::read(process, server.flavour, server.version);
    if let Some(why) = of_others(process, &options) {
        return Err(unable(why));
    }
    if !is_known(process, &options, Path::new(&folder)) {
        return Err(unable(
            "neither the server's command line, nor its option files, nor its package name that directory".to_owned(),
        ));
    }
    let into = process.directory(Path::new(&folder)).map_err(unable)?;
    into.may_write()
        .map_err(|error| unable(error.to_string()))?;
    if there {
        library::check(&file, server.flavour, None).map_err(|why| {
            refused(why).advise("remove that file if the server does not need it")
        })?;
    }
    if there && loaded {
        notes.push(
            "the server keeps the library it has loaded; the new one is used from its next start"
                .to_owned(),
        );
    }
    Ok(Some(LibraryCopy {
        from,
        place,
        replaces: there,
    }))
}

/// Checks every cache path as the server sees it. `size` is in bytes, all paths together. Returns the directories to
/// create. Hints are added to `notes`.
///
/// # Errors
/// A path is unusable or lacks space.
pub fn check_paths(
    server: &mut Server,
    process: &Process,
    paths: &[PathBuf],
    size: u64,
    notes: &mut Vec<String>,
) -> Result<Vec<PathBuf>, Failure> {
    let data = server.variable("datadir")?.unwrap_or_default();
    let data = Path::new(&data);
    // Other nodes receive copies of the data directory.
    let copied = server.variable("wsrep_on")?.as_deref() == Some("ON");
    let mut folders = Vec::new();
    let see = |path: &Path| process.seen(path);
    let shares = disk::shares(size, paths, see);
    for (path, share) in paths.iter().zip(shares) {
        let refuse = |why: String| {
            Failure::refused(format!(
                "--path {}: {why}; nothing was changed",
                path.display()
            ))
        };
        let seen = process.seen(path);
        let parent = path.parent().unwrap_or(Path::new("/"));
        let (there, below) = match fs::symlink_metadata(&seen) {
            Ok(meta) if meta.is_symlink() => {
                return Err(refuse(format!(
                    "is a symbolic link, which the extension does not follow: name its target{}",
                    fs::read_link(&seen)
                        .map(|target| format!(" {}", one_line(&target.to_string_lossy())))
                        .unwrap_or_default()
                )));
            }
            Ok(_) if disk::is_foreign_file(&seen) => {
                return Err(refuse(disk::FOREIGN.to_owned()).advise(disk::FOREIGN_ADVICE));
            }
            Ok(meta) if meta.is_dir() || meta.is_file() => (true, path.as_path()),
            Ok(_) => return Err(refuse("is neither a folder nor a file".to_owned())),
            Err(_) if process.seen(parent).is_dir() => (false, parent),
            Err(error) => {
                return Err(refuse(error.to_string())
                    .advise("create a folder on a fast local disk and name it"));
            }
        };
        if there {
            disk::may_write(process, path).map_err(refuse)?;
        } else if rustix::process::geteuid().is_root() {
            process.directory_for_cache(parent).map_err(|why| {
                refuse(why).advise(
                    "name a path on which only root and the server's user may change the directories",
                )
            })?;
            folders.push(path.clone());
        } else {
            return Err(refuse("does not exist".to_owned()).advise(format!(
                "run with sudo to have it created, or: sudo install -d -m 700 -o {} {}",
                shell(&process.user_name()),
                shell_path(path)
            )));
        }
        let room = disk::room(&process.seen(below)).map_err(|error| refuse(error.to_string()))?;
        if room.read_only {
            return Err(refuse(
                "is on a file system mounted read-only for the server".to_owned(),
            ));
        }
        if path.starts_with(data) && copied {
            return Err(refuse(disk::COPIED.to_owned()).advise(disk::COPIED_ADVICE));
        }
        if path.starts_with(data) {
            notes.push(format!(
                "{} lies in the data directory, where the server takes folders for databases, and on the disk of the \
                 data: choose another place",
                path.display()
            ));
        } else if disk::share_disk(&process.seen(below), &process.seen(data)) {
            notes.push(format!(
                "{} is on the file system of the data directory, so pages would be read from the same disk: is the fast disk \
                 mounted there?",
                path.display()
            ));
        }
        let usable = room.usable(disk::taken(&seen));
        if share > usable {
            return Err(refuse(format!(
                "has room for only {} of {}, but {} are needed there",
                human(usable),
                human(room.total),
                human(share)
            ))
            .advise(if paths.len() > 1 {
                "free some, leave this path out, or give a smaller --size".to_owned()
            } else {
                format!(
                    "free some, or give a --size of at most {}",
                    human(usable / 20 * 19)
                )
            }));
        }
    }
    Ok(folders)
}

/// Describes what a restart keeps of the cache. If nothing is kept, adds the reason to `notes`, because the extension
/// also works without. `data` is the data directory; `variables` are those of the plugin, if installed.
pub fn kept(
    process: &Process,
    size: u64,
    data: &Path,
    variables: &BTreeMap<String, String>,
    notes: &mut Vec<String>,
) -> Option<String> {
    let variable = |name: &str| variables.get(name).map(String::as_str);
    if variable("bpe_persist_path") == Some("") {
        notes.push(persistence::EMPTY.to_owned());
        return None;
    }
    let folder = persistence::folder(variable("bpe_persist_path"));
    let place = persistence::place(process, &folder, persistence::needed(size));
    let kept = place.and_then(|text| persistence::data(&process.seen(data)).map(|()| text));
    kept.map_err(|Obstacle { what, advice }| {
        notes.push(format!(
            "the cache will be empty after a restart: {what} ({advice})"
        ));
    })
    .ok()
}

/// Why root must not follow an option file to a directory: another user could have named a directory that other servers read.
fn of_others(process: &Process, options: &ServerOptions) -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    if !is_usual(process.uid) {
        return Some(format!(
            "the server's user {} is neither root nor the one that servers' packages make",
            process.user_name()
        ));
    }
    let foreign = options.files.foreign.first()?;
    Some(format!(
        "the server reads {}, which another user than root can change",
        foreign.display()
    ))
}

/// Whether `plugin_dir` comes from the process's options or is a package default. The value that the server reports may be forged.
fn is_known(process: &Process, options: &ServerOptions, folder: &Path) -> bool {
    let is_it = |path: &str| Path::new(path).components().eq(folder.components());
    process.option("plugin_dir").is_some_and(is_it)
        || options.value("plugin_dir").is_some_and(is_it)
        || PLUGIN_DIRS.into_iter().any(is_it)
}

/// The directory for a snippet. The error is the reason why `enable` writes none.
pub fn snippet_folder<'a>(
    process: &Process,
    options: &'a ServerOptions,
) -> Result<&'a Path, String> {
    if let Some(why) = of_others(process, options) {
        return Err(why);
    }
    if let Some(suffix) = &options.suffix {
        return Err(format!(
            "it is one of several servers that read the same option files, told apart by the suffix {suffix}"
        ));
    }
    let folder = options.snippet_folder();
    folder.ok_or_else(|| "the server's option files include no folder".to_owned())
}

/// Determines where to write a snippet, and what would override it.
pub fn permanence(
    server: &Server,
    process: &Result<Process, String>,
    locations: &Locations,
    notes: &mut Vec<String>,
) -> Permanence {
    let process = match process {
        Ok(process) => process,
        Err(why) => {
            return by_hand(why.clone(), None, ByHand::default());
        }
    };
    let options = ServerOptions::read(process, server.flavour, server.version);
    if let Some(why) = of_others(process, &options) {
        return by_hand(why, None, ByHand::default());
    }
    let early_load = options.early_load().map(str::to_owned);
    let dropped = options.early_plugins_to_drop().join(", ");
    if !dropped.is_empty() {
        notes.push(format!(
            "{dropped} will not be loaded early any more, as the server's own option files do not name it now"
        ));
    }
    let folder = match (&locations.conf_dir, snippet_folder(process, &options)) {
        (Some(folder), _) => {
            if !options.reads(folder) {
                notes.push(format!(
                    "the server's option files do not include {}: make sure that it reads it",
                    folder.display()
                ));
            }
            folder.clone()
        }
        (None, Ok(folder)) => folder.to_path_buf(),
        (None, Err(why)) => {
            // If two files set it, the later one wins.
            let sets = options.file_of("early_plugin_load");
            let file = sets.or(options.files.files.first().map(PathBuf::as_path));
            let place = ByHand {
                file: file.map(Path::to_owned),
                suffix: options.suffix.clone(),
            };
            return by_hand(why, early_load, place);
        }
    };
    let path = folder.join(SNIPPET);
    let may_write = process
        .directory(&folder)
        .and_then(|folder| folder.may_write().map_err(|error| error.to_string()));
    let obstacle = match (may_write, snippet::inspect(process, &path)) {
        (Err(why), _) => Some(format!("cannot write to {}: {why}", folder.display())),
        (_, Ok(ExistingFile::Nothing | ExistingFile::Ours(_))) => None,
        (_, Ok(ExistingFile::Foreign)) => Some(format!(
            "{} is there, and `bpe enable` has not written it",
            path.display()
        )),
        (_, Err(why)) => Some(format!("{}: {why}", path.display())),
    };
    if let Some(why) = obstacle {
        let (file, suffix) = (Some(path), None);
        return by_hand(why, early_load, ByHand { file, suffix });
    }
    let overridable = match server.flavour {
        Flavour::MariaDb => "innodb_buffer_pool_size",
        Flavour::MySql => "early_plugin_load",
    };
    notes.extend(overridden_by_file(&options, overridable, &path));
    notes.extend(overridden_by_command_line(process, overridable));
    Permanence::Snippet { path, early_load }
}

fn by_hand(why: String, early_load: Option<String>, place: ByHand) -> Permanence {
    Permanence::ByHand {
        why,
        early_load,
        place,
    }
}

/// The note about an option file that overrides this option of the snippet at `path`.
pub fn overridden_by_file(options: &ServerOptions, name: &str, path: &Path) -> Option<String> {
    options.overridden_by(name, path).map(|file| {
        format!(
            "{} sets {name} after {} is read and wins at the next start: change it there",
            file.display(),
            path.display()
        )
    })
}

/// The note about a command line that overrides this option.
pub fn overridden_by_command_line(process: &Process, name: &str) -> Option<String> {
    process.option(name).map(|_| {
        format!(
            "{name} stands on the server's command line and wins at the next start: change it there"
        )
    })
}
