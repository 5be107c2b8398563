//! `bpe-lab volume`: mounts an emulated cloud volume, and sends it commands.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitCode, Stdio};
use std::time::Duration;

use bpe::failure::{Exit, Failure};
use clap::Subcommand;
use cloud_volume::{
    Burst, CloudVolume, Jitter, Options, Profile, guard, parse_bytes, parse_duration, send,
};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

/// This program, even if its file was removed or replaced.
pub const PROGRAM: &str = "/proc/self/exe";

const AFTER_HELP: &str = "\
Examples:
  A volume of 3,000 IOPS, 125 MB/s and 0.5 ms:
    bpe-lab volume mount /srv/backing /srv/volume
  One that can be changed while it is mounted:
    bpe-lab volume mount /srv/backing /srv/volume --unlimited --control /run/volume.sock
    bpe-lab volume control /run/volume.sock profile default
    bpe-lab volume control /run/volume.sock statistics";

#[derive(Subcommand)]
enum Command {
    /// Mount a volume and serve it until it is unmounted, or until SIGTERM or SIGINT.
    Mount(Mount),
    /// Send a command to a mounted volume: `help` lists them.
    Control {
        /// The socket given to `mount --control`.
        socket: PathBuf,
        /// The command and its arguments, such as `profile iops=500`.
        #[arg(required = true, trailing_var_arg = true)]
        command: Vec<String>,
    },
    /// Wait for the end of standard input, then detach a dead mount.
    #[command(hide = true)]
    Guard { mountpoint: PathBuf },
}

#[derive(clap::Args)]
struct Mount {
    /// The directory with the data. Leave it alone while it is mounted. Syncs do not reach it
    /// unless --sync-backing is given.
    backing: PathBuf,
    /// The directory where the volume appears.
    mountpoint: PathBuf,
    /// No caps and no latency; other options add some.
    #[arg(long)]
    unlimited: bool,
    /// I/Os a second, reads and writes together, or `none` [default: 3000].
    #[arg(long, value_name = "N")]
    iops: Option<String>,
    /// Least time of an I/O [default: 0.5ms].
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    latency: Option<Duration>,
    /// Bytes a second, reads and writes together, or `none` [default: 125MB].
    #[arg(long, value_name = "SIZE")]
    bandwidth: Option<String>,
    /// Credits (I/Os) saved up while below the cap, and the IOPS while they last.
    #[arg(long, value_name = "CREDITS:IOPS[:REFILL]")]
    burst: Option<Burst>,
    /// Random time added to the latency, evenly up to TIME, or mostly little with `:tail`.
    #[arg(long, value_name = "TIME[:tail]")]
    jitter: Option<Jitter>,
    /// Larger I/Os count as several of this size [default: 256KiB].
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    billed_size: Option<u64>,
    /// Remember in memory what unsynced writes overwrite, so that the command `power-loss` can
    /// bring it back.
    #[arg(long)]
    forget_unsynced: bool,
    /// Carry fsync and fdatasync to the backing directory.
    #[arg(long)]
    sync_backing: bool,
    /// Asynchronous requests under way at most; whoever submits one more waits in the kernel.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    slots: Option<u16>,
    /// Take commands on a Unix socket at this path.
    #[arg(long, value_name = "SOCKET")]
    control: Option<PathBuf>,
}

impl Mount {
    fn profile(&self) -> Result<Profile, String> {
        let mut profile = if self.unlimited {
            Profile::unlimited()
        } else {
            Profile::default()
        };
        for (name, value) in [("iops", &self.iops), ("bandwidth", &self.bandwidth)] {
            if let Some(value) = value {
                profile.set(name, value)?;
            }
        }
        profile.latency = self.latency.unwrap_or(profile.latency);
        profile.billed_size = self.billed_size.unwrap_or(profile.billed_size);
        profile.jitter = self.jitter;
        profile.burst = self.burst;
        if profile.burst.is_some() && profile.iops.is_none() {
            return Err("--burst has no effect without an IOPS cap: give --iops".into());
        }
        Ok(profile)
    }
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let _ = log::set_logger(&Log).map(|()| log::set_max_level(log::LevelFilter::Warn));
    let result = match args.command {
        Command::Mount(options) => mount(&options),
        Command::Control { socket, command } => control(&socket, &command.join(" ")),
        Command::Guard { mountpoint } => guard(&mountpoint).map_err(|error| error.to_string()),
    };
    result.map_err(|why| Failure::step(format!("volume: {why}")))?;
    Ok(Exit::Ok.into())
}

fn mount(arguments: &Mount) -> Result<(), String> {
    let profile = arguments.profile()?;
    let mut signals =
        Signals::new([SIGTERM, SIGINT]).map_err(|error| format!("cannot take signals: {error}"))?;
    let options = Options {
        profile,
        forget_unsynced: arguments.forget_unsynced,
        sync_backing: arguments.sync_backing,
        slots: arguments.slots,
        control: arguments.control.clone(),
    };
    let volume = CloudVolume::mount_with(&arguments.backing, &arguments.mountpoint, options)
        .map_err(|error| error.to_string())?;
    let _guard = start_guard(volume.mountpoint())
        .inspect_err(|error| {
            log::warn!("if this process is killed, run `umount -l` on its mountpoint: {error}");
        })
        .ok();
    let stopper = volume.stopper();
    std::thread::spawn(move || {
        for _ in signals.forever() {
            stopper.stop();
        }
    });
    println!(
        "{} is mounted at {}: {}",
        volume.backing().display(),
        volume.mountpoint().display(),
        volume.profile()
    );
    volume.wait();
    volume.unmount().map_err(|error| error.to_string())
}

/// Starts a process that detaches the mount if this one is killed.
fn start_guard(mountpoint: &Path) -> io::Result<Child> {
    std::process::Command::new(PROGRAM)
        .args(["volume", "guard"])
        .arg(mountpoint)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
}

fn control(socket: &Path, command: &str) -> Result<(), String> {
    let said = send(socket, command).map_err(|error| match error.kind() {
        io::ErrorKind::Other => error.to_string(),
        _ => format!("no volume answers at {}: {error}", socket.display()),
    })?;
    if !said.is_empty() {
        println!("{said}");
    }
    Ok(())
}

/// Writes warnings and errors to standard error.
struct Log;

impl log::Log for Log {
    fn enabled(&self, metadata: &log::Metadata) -> bool {
        metadata.level() <= log::Level::Warn
    }

    fn log(&self, record: &log::Record) {
        if self.enabled(record.metadata()) {
            eprintln!("bpe-lab: volume: {}", record.args());
        }
    }

    fn flush(&self) {}
}
