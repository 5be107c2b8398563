//! A FUSE file system over a directory that behaves like a cloud block volume.
//!
//! Names, attributes and contents are those of the backing directory; the time that reads, writes
//! and syncs take is that of the volume: a latency for each I/O, IOPS and bandwidth caps that reads
//! and writes share, and burst credits. On command it fails: EIO, stalls, torn writes, and a loss
//! of power that forgets what was not synced.
//!
//! ```no_run
//! use cloud_volume::{CloudVolume, Profile};
//!
//! # fn main() -> Result<(), cloud_volume::Error> {
//! let volume = CloudVolume::mount("/srv/backing", "/srv/volume", Profile::unlimited())?;
//! // Load data at full speed, then make it a volume of 3,000 IOPS.
//! volume.set_profile(Profile::default());
//! println!("{} reads", volume.statistics().reads);
//! volume.unmount()?;
//! # Ok(())
//! # }
//! ```
//!
//! # What is billed
//!
//! Every read and write that the kernel sends. Direct I/O arrives as the client issued it (in parts
//! of at most 1 MiB); buffered reads arrive as the page cache needs them; buffered writes arrive as
//! they are made, since there is no write-back cache. fsync costs a latency but no I/O, and nothing
//! at all when nothing was written since the last one. Metadata is free.
//!
//! # What it is not
//!
//! A place for data. A sync is not carried to the backing directory unless
//! [`Options::sync_backing`] is set, so a crash of the real machine can lose what clients believe
//! is durable. While mounted, the backing directory must not be changed by others; another file
//! system mounted inside it is not shown.
//!
//! # Modules
//!
//! `volume` mounts and unmounts; `file_system` answers the kernel; `engine` is the path of a read,
//! write or sync; `schedule` (with `bucket`) decides when each completes and `pacer` does it then;
//! `pool` does what may block; `inodes` knows what the kernel knows; `faults` and `unsynced` are
//! the failures; `control` is the line protocol.

mod bucket;
mod control;
mod engine;
mod faults;
mod file_system;
mod inodes;
mod mounting;
mod pacer;
mod pool;
mod profile;
mod schedule;
mod statistics;
mod stopper;
mod undo;
mod units;
mod unsynced;
mod volume;

pub use control::send;
pub use faults::{Effect, Fault, Operation};
pub use mounting::{detach_if_dead, guard};
pub use profile::{Burst, Jitter, JitterShape, Profile};
pub use statistics::Statistics;
pub use stopper::Stopper;
pub use units::{parse_bytes, parse_duration};
pub use volume::{CloudVolume, Error, Options, Volume};
