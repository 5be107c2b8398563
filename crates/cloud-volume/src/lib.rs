//! A FUSE file system over a directory that behaves like a cloud block volume.
//!
//! Names, attributes and contents are those of the backing directory. The duration of reads, writes and syncs is that
//! of the volume: a latency for each I/O, IOPS and bandwidth caps shared by reads and writes, and burst credits. Faults
//! can be injected: EIO, stalls, torn writes, and a power loss that discards unsynced changes.
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
//! # Billed operations
//!
//! Every read and write that the kernel sends. Direct I/O arrives as the client issued it (in parts of at most 1 MiB).
//! Buffered reads arrive as the page cache needs them. Buffered writes arrive immediately, since there is no write-back
//! cache. fsync costs a latency but no I/O, and nothing if nothing was written since the last one. Metadata is free.
//!
//! # Limitations
//!
//! The volume is no safe storage. A sync does not reach the backing directory unless [`Options::sync_backing`] is set,
//! so a crash of the real host can lose data that clients believe durable. While mounted, no other process may change
//! the backing directory. Another file system mounted inside it is not shown.
//!
//! # Modules
//!
//! `volume` mounts and unmounts; `file_system` answers the kernel; `engine` is the path of a read, write or sync;
//! `schedule` (with `bucket`) computes completion times, and `pacer` completes the requests then; `pool` runs blocking
//! work; `inodes` tracks the kernel's inodes; `faults` and `unsynced` implement the failures; `control` is the line
//! protocol.

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
