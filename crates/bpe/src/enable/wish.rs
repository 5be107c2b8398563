//! What the user of `bpe enable` wants.

use std::path::PathBuf;

use crate::failure::Failure;
use crate::{connection, disk, size};

#[derive(clap::Args)]
pub struct Args {
    /// Folders (or files) on fast local disks for the cache, separated by `:`
    #[arg(long, value_name = "PATH[:PATH...]")]
    pub path: String,
    /// Size of the cache, all disks together, such as 100G
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub size: u64,
    /// Number of cache instances, 0 to 64; 0 chooses by the number of CPU cores
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=64))]
    pub instances: Option<u64>,
    /// Limit on writes to the cache, in pages of 16 KiB per second; 0 for no limit
    #[arg(long, value_name = "N")]
    pub io_capacity: Option<u64>,
    /// Leave innodb_buffer_pool_size as it is
    #[arg(long)]
    pub keep_pool: bool,
    /// Also create views in schema bpe; `bpe views create` does it later
    #[arg(long)]
    pub views: bool,
    #[command(flatten)]
    pub places: Places,
    /// Do not ask
    #[arg(short, long)]
    pub yes: bool,
    #[command(flatten)]
    pub connection: connection::Args,
}

/// What the user wants, checked as far as it can be without a server.
#[derive(Debug)]
pub struct Wish {
    pub paths: Vec<PathBuf>,
    pub size: u64,
    /// Variables and values, in the order in which they are set.
    pub settings: Vec<(&'static str, String)>,
}

impl Wish {
    pub fn of(args: &Args) -> Result<Self, Failure> {
        let paths =
            disk::split(&args.path).map_err(|why| Failure::usage(format!("--path: {why}")))?;
        if args.size == 0 {
            return Err(Failure::usage(
                "--size is 0: give the cache some room, such as 8 times the buffer pool",
            ));
        }
        let joined: Vec<_> = paths
            .iter()
            .map(|p| p.to_string_lossy().into_owned())
            .collect();
        let mut settings = vec![
            ("bpe_path", joined.join(":")),
            ("bpe_size", args.size.to_string()),
        ];
        if let Some(instances) = args.instances {
            settings.push(("bpe_instances", instances.to_string()));
        }
        if let Some(pages) = args.io_capacity {
            settings.push(("bpe_io_capacity", pages.to_string()));
        }
        Ok(Self {
            paths,
            size: args.size,
            settings,
        })
    }
}

/// Where `enable` and `disable` look for things that are not at their usual place.
#[derive(clap::Args, Debug, Default, Clone)]
pub struct Places {
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
