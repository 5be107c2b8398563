//! Locates the required programs and the library before any work begins.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::args::{Args, SideName};
use super::progress;
use crate::sysbench::in_path;

/// Their locations.
pub struct Tools {
    pub sysbench: PathBuf,
    /// `None` only if the side with the extension is not run.
    pub library: Option<PathBuf>,
}

impl Tools {
    /// Finds all of them.
    ///
    /// # Errors
    /// Lists everything that is missing, and what to do.
    pub fn find(args: &Args) -> Result<Tools> {
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        let beside = program.parent().unwrap_or(Path::new("."));
        let mut missing = Vec::new();

        let sysbench = in_path("sysbench");
        if sysbench.is_none() {
            missing.push("sysbench (apt-get install sysbench)".to_owned());
        }
        if in_path("fusermount3").is_none() {
            missing.push("fusermount3 (apt-get install fuse3)".to_owned());
        }
        if !Path::new("/dev/fuse").exists() {
            missing
                .push("/dev/fuse (modprobe fuse; in a container: --device /dev/fuse)".to_owned());
        }
        let wanted = args.sides.contains(&SideName::On);
        let library = match &args.library {
            Some(path) if path.is_file() => Some(path.clone()),
            Some(path) => bail!("there is no library {}", path.display()),
            None => ["bpe.so", "libbpe_plugin.so"]
                .iter()
                .map(|name| beside.join(name))
                .find(|path| path.is_file()),
        };
        if wanted && library.is_none() {
            missing.push(format!(
                "bpe.so, the extension, in {} (make build, or say --library)",
                beside.display()
            ));
        }
        if !missing.is_empty() {
            bail!("the demonstration needs\n  - {}", missing.join("\n  - "));
        }
        Ok(Tools {
            sysbench: sysbench.unwrap_or_default(),
            library: library.filter(|_| wanted),
        })
    }
}

/// Returns the requested server, and downloads it if needed.
///
/// # Errors
/// The server is missing and cannot be provided.
pub fn provide_server(
    args: &Args,
    progress: &progress::Progress,
) -> Result<private_server::Installation> {
    let stage = progress.stage(&format!("Finding {}", args.flavour().name()), 0);
    let mut lines = 0_u32;
    let found = args.flavour().provide(&mut |line| {
        lines += 1;
        // The first line describes the work. debootstrap's own lines follow.
        if lines == 1 {
            progress.say(line);
        } else {
            stage.message(line);
        }
    });
    match found {
        Ok(installation) => {
            stage.finish(&format!(
                "Server: {} {}",
                if installation.flavour.is_mysql() {
                    "MySQL"
                } else {
                    "MariaDB"
                },
                installation.version
            ));
            Ok(installation)
        }
        Err(error) => {
            progress.close();
            let hint = match args.flavour() {
                private_server::Flavour::MariaDb1011 => {
                    "\nOn Debian 12: apt-get install mariadb-server-core"
                }
                // The error already names the missing part.
                _ => "",
            };
            bail!("{error}{hint}")
        }
    }
}
