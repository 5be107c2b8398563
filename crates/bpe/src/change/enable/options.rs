//! Options of `bpe enable` that concern one server, and their validated form.

use std::path::PathBuf;

use interface::tables::Rules;
use interface::untrusted::refuse_in_path;

use crate::change::setting::TABLES;
use crate::connect::process::Process;
use crate::connect::server::Server;
use crate::installation::install_state::InstallState;
use crate::installation::pool::Pool;
use crate::installation::{disk, size_percent};
use crate::support::failure::Failure;
use crate::support::size::CacheSize;

const SIZE: &str = "bpe_size";

/// The requested installation. Several commands embed these options; their own `--all` takes path and size from a file.
#[derive(Clone, Default, clap::Args)]
pub struct Request {
    /// Folders (or files) on fast local disks for the cache, separated by `:`
    #[arg(long, value_name = "PATH[:PATH...]", required_unless_present = "all")]
    pub path: Option<String>,
    /// Size of the cache, all disks together, such as 100G, or as a part of the room there, such as 80%
    #[arg(long, value_name = "SIZE|PERCENT%", value_parser = CacheSize::parse, required_unless_present = "all")]
    pub size: Option<CacheSize>,
    /// Number of cache instances, 0 to 64; 0 chooses by the number of CPU cores
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=64))]
    pub instances: Option<u64>,
    /// Limit on writes to the cache, in pages of 16 KiB per second; 0 for no limit
    #[arg(long, value_name = "N")]
    pub io_capacity: Option<u64>,
    /// Rules for tables, such as "exclude shop.log_*, limit 20% reports.*"; if not given, those that the server has stay
    #[arg(long, value_name = "RULES")]
    pub tables: Option<String>,
    /// Leave innodb_buffer_pool_size as it is
    #[arg(long)]
    pub keep_pool: bool,
    /// Also create views in schema bpe; `bpe views create` does it later
    #[arg(long)]
    pub views: bool,
}

/// The user's options, validated as far as possible without a server.
#[derive(Debug, Clone)]
pub struct DesiredOptions {
    pub paths: Vec<PathBuf>,
    /// Bytes; 0 until the available space is known.
    pub size: u64,
    /// The size in percent of the available space, if given so.
    pub percent: Option<u64>,
    /// Variables and values, in the order of setting them.
    pub settings: Vec<(&'static str, String)>,
    pub keep_pool: bool,
    pub views: bool,
}

impl DesiredOptions {
    /// # Errors
    /// An option is missing or invalid.
    pub fn of(request: &Request) -> Result<Self, Failure> {
        let (Some(path), Some(size)) = (request.path.as_deref(), request.size) else {
            return Err(Failure::usage("no path or no size is given for the cache")
                .advise("add --path and --size, or `path` and `size` to the server in the file"));
        };
        let paths = disk::split(path).map_err(|why| Failure::usage(format!("--path: {why}")))?;
        if size == CacheSize::Bytes(0) {
            return Err(Failure::usage(
                "--size is 0: give the cache some room, such as 8 times the buffer pool",
            ));
        }
        refuse_in_path("--path", path).map_err(Failure::usage)?;
        let joined: Vec<_> = paths
            .iter()
            .map(|p| p.to_string_lossy().into_owned())
            .collect();
        let (size, percent) = match size {
            CacheSize::Bytes(bytes) => (bytes, None),
            CacheSize::Percent(percent) => (0, Some(percent)),
        };
        let mut settings = vec![("bpe_path", joined.join(":")), (SIZE, size.to_string())];
        if let Some(instances) = request.instances {
            settings.push(("bpe_instances", instances.to_string()));
        }
        if let Some(pages) = request.io_capacity {
            settings.push(("bpe_io_capacity", pages.to_string()));
        }
        if let Some(rules) = &request.tables {
            // The server compares names by its own rules.
            let rules =
                written_anew(rules).map_err(|why| Failure::usage(format!("--tables: {why}")))?;
            settings.push((TABLES, rules));
        }
        Ok(Self {
            paths,
            size,
            percent,
            settings,
            keep_pool: request.keep_pool,
            views: request.views,
        })
    }

    /// Adds the server's current table rules, so that they stay, unless the user gave others. The rules are parsed and
    /// formatted again, so the result contains nothing else.
    ///
    /// # Errors
    /// The server does not answer, or its value is not a list of rules.
    pub fn with_tables(mut self, server: &mut Server) -> Result<Self, Failure> {
        if self.settings.iter().all(|(name, _)| *name != TABLES) {
            let rules = server.whole_variable(TABLES)?.unwrap_or_default();
            let rules = written_anew(&rules).map_err(|why| {
                Failure::refused(format!(
                    "the server has rules for tables that cannot be kept: {why}; nothing was changed"
                ))
                .advise("correct bpe_tables on the server, or give others with --tables")
            })?;
            if !rules.is_empty() {
                self.settings.push((TABLES, rules));
            }
        }
        Ok(self)
    }

    /// Resolves the size to bytes, and adds its derivation to `notes`.
    ///
    /// # Errors
    /// As [`size_percent::resolve`].
    pub fn with_bytes(
        &self,
        server: &mut Server,
        process: Option<&Process>,
        record: &InstallState,
        notes: &mut Vec<String>,
    ) -> Result<Self, Failure> {
        let mut desired = self.clone();
        let Some(percent) = self.percent else {
            return Ok(desired);
        };
        let pool = Pool::of(server)?.size;
        let pool = record.original(pool).unwrap_or(pool);
        let resolved = size_percent::resolve(percent, &self.paths, server, process, pool)?;
        notes.push(resolved.reason);
        desired.size = resolved.bytes;
        for (name, value) in &mut desired.settings {
            if *name == SIZE {
                *value = resolved.bytes.to_string();
            }
        }
        Ok(desired)
    }
}

/// Parses and formats rules, so that the result contains nothing else.
fn written_anew(text: &str) -> Result<String, String> {
    let text = Rules::parse(text, false)?.to_string();
    // The formatted text may be longer.
    Rules::parse(&text, false).map(|_| text)
}

/// Where `enable` and `disable` look for things that are not at their usual place.
#[derive(clap::Args, Debug, Default, Clone)]
pub struct Locations {
    /// The library bpe.so to install, if it is neither beside this command nor where a package puts it
    #[arg(long, value_name = "FILE")]
    pub library: Option<PathBuf>,
    /// Folder for the option file that makes this permanent, if not the one that the server's option files include
    #[arg(long, value_name = "FOLDER")]
    pub conf_dir: Option<PathBuf>,
    /// Folder that keeps the original settings for `bpe disable`
    #[arg(long, value_name = "FOLDER", env = "BPE_STATE_DIR")]
    pub state_dir: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_written_anew() {
        let written = |text: &str| written_anew(text);
        assert_eq!(
            written(" exclude  a.`b c`;; LIMIT 5 % d.*").as_deref(),
            Ok("exclude a.`b c`, limit 5% d.*")
        );
        assert_eq!(written("").as_deref(), Ok(""));
        assert!(written("exclude a.`b\ninit_file=/evil.sql\n#`").is_err());
        let name = "x".repeat(36);
        let long: Vec<_> = (0..81).map(|n| format!("prefer a.{n:03}{name}")).collect();
        assert!(long.join(",").len() < 4000 && written(&long.join(",")).is_err());
    }
}
