//! The handle of a mounted volume.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::process::{Resource, Rlimit};

use crate::control::{Control, Controls};
use crate::engine::{Engine, fail};
use crate::faults::{Fault, Faults, SECTOR};
use crate::file_system::FileSystem;
use crate::inodes::{Handles, Inodes};
use crate::mounting::{self, Mounted};
use crate::pacer::Pacer;
use crate::pool::Pool;
use crate::profile::Profile;
use crate::statistics::{Counters, Statistics};
use crate::stopper::{Stage, Stopper};
use crate::undo::Tear;
use crate::unsynced::Unsynced;

/// Threads for blocking backing I/O: as many as a fast disk can use at a time.
const POOL_THREADS: usize = 16;

/// Descriptor limit: one for each file and directory that the kernel knows.
const DESCRIPTORS: u64 = 1 << 20;

/// Time that an unmount waits for open files to be closed.
const PATIENCE: Duration = Duration::from_secs(2);

/// Why mounting, using or unmounting a volume failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot use {path} as the {role}: {source}")]
    Path {
        path: PathBuf,
        role: &'static str,
        source: io::Error,
    },
    #[error("cannot mount a volume at {path}: {source}{advice}")]
    Mount {
        path: PathBuf,
        source: io::Error,
        advice: &'static str,
    },
    #[error("cannot unmount {path}: {source}")]
    Unmount { path: PathBuf, source: io::Error },
    #[error("cannot listen on the control socket {path}: {source}")]
    Control { path: PathBuf, source: io::Error },
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    #[error("power loss: {0}")]
    PowerLoss(io::Error),
}

/// Options of a mount.
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub profile: Profile,
    /// Keep the old contents of every change until a sync, so that the volume can lose power. Costs memory for unsynced
    /// changes, and serialises changes to one file.
    pub forget_unsynced: bool,
    /// Pass syncs to the backing directory. Otherwise they cost only their latency.
    pub sync_backing: bool,
    /// Maximum number of asynchronous requests in flight, at least 1, like the request slots of a disk. A caller that
    /// submits one more waits in the kernel until a request completes. `None`: practically unlimited.
    pub slots: Option<u16>,
    /// A Unix socket for commands to the volume, accessible only to its user.
    pub control: Option<PathBuf>,
}

/// Entry point for mounting volumes.
pub struct CloudVolume;

impl CloudVolume {
    /// Mounts `backing` at `mountpoint`. Both must be directories; they may be the same one.
    pub fn mount(
        backing: impl AsRef<Path>,
        mountpoint: impl AsRef<Path>,
        profile: Profile,
    ) -> Result<Volume, Error> {
        let options = Options {
            profile,
            ..Options::default()
        };
        Self::mount_with(backing, mountpoint, options)
    }

    /// Mounts `backing` at `mountpoint` with further options. First detaches a mount whose server has died.
    pub fn mount_with(
        backing: impl AsRef<Path>,
        mountpoint: impl AsRef<Path>,
        options: Options,
    ) -> Result<Volume, Error> {
        let path_error = |path: &Path, role| {
            let path = path.to_owned();
            move |source: io::Error| Error::Path { path, role, source }
        };
        let mountpoint = mountpoint.as_ref();
        let at_mountpoint = || path_error(mountpoint, "mountpoint");
        mounting::detach_if_dead(mountpoint).map_err(at_mountpoint())?;
        let mountpoint = mountpoint.canonicalize().map_err(at_mountpoint())?;
        if !mountpoint.is_dir() {
            return Err(at_mountpoint()(rustix::io::Errno::NOTDIR.into()));
        }
        let backing = backing.as_ref();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let inodes = rustix::fs::open(backing, flags, Mode::empty())
            .map_err(io::Error::from)
            .and_then(Inodes::new)
            .map_err(path_error(backing, "backing directory"))?;
        raise_descriptor_limit();

        let (pool, mut threads) = Pool::start(POOL_THREADS).map_err(Error::Thread)?;
        let engine = Arc::new(Engine {
            inodes,
            handles: Handles::default(),
            pacer: Pacer::new(options.profile),
            pool,
            faults: Faults::new(),
            counters: Counters::default(),
            unsynced: options.forget_unsynced.then(Unsynced::default),
            sync_backing: options.sync_backing,
            notifier: Default::default(),
            storing: AtomicUsize::new(0),
        });
        let paced = engine.clone();
        let pacer = engine.pacer.run(move |due| paced.complete(due));
        threads.push(pacer.map_err(Error::Thread)?);
        let stopper = Stopper::default();
        let ended = stopper.clone();
        let file_system = FileSystem::new(engine.clone(), options.slots, move || {
            ended.set(Stage::Ended)
        });
        let mut volume = Volume {
            backing: backing.to_owned(),
            mountpoint: mountpoint.clone(),
            engine: engine.clone(),
            mounted: None,
            stopper: stopper.clone(),
            control: None,
            threads,
        };
        // From here on, dropping `volume` cleans up.
        let mounted = mounting::mount(file_system, &mountpoint).map_err(|source| Error::Mount {
            advice: advice(&source),
            path: mountpoint.clone(),
            source,
        })?;
        if let Some(notifier) = mounted.notifier() {
            let _ = engine.notifier.set(notifier);
        }
        volume.mounted = Some(mounted);
        if let Some(path) = options.control {
            let control = Control::listen(&path, Controls { engine, stopper })
                .map_err(|source| Error::Control { path, source })?;
            volume.control = Some(control);
        }
        Ok(volume)
    }
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => {
            " (is the fuse kernel module loaded, and fusermount3 from the package fuse3 installed?)"
        }
        io::ErrorKind::PermissionDenied => " (run as root, or install the package fuse3)",
        _ => "",
    }
}

fn raise_descriptor_limit() {
    let now = rustix::process::getrlimit(Resource::Nofile);
    let wanted = |maximum| Rlimit {
        current: maximum,
        maximum,
    };
    if now.current.is_some_and(|current| current < DESCRIPTORS)
        && rustix::process::setrlimit(Resource::Nofile, wanted(Some(DESCRIPTORS))).is_err()
    {
        let _ = rustix::process::setrlimit(Resource::Nofile, wanted(now.maximum));
    }
}

/// A mounted volume. Unmounts when dropped.
pub struct Volume {
    backing: PathBuf,
    mountpoint: PathBuf,
    engine: Arc<Engine>,
    mounted: Option<Mounted>,
    stopper: Stopper,
    control: Option<Control>,
    threads: Vec<JoinHandle<()>>,
}

impl Volume {
    pub fn backing(&self) -> &Path {
        &self.backing
    }

    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// Changes the volume's performance at once, also for waiting requests.
    pub fn set_profile(&self, profile: Profile) {
        self.engine.pacer.set_profile(profile);
    }

    pub fn profile(&self) -> Profile {
        self.engine.pacer.profile()
    }

    /// Totals since the mount.
    pub fn statistics(&self) -> Statistics {
        self.engine.statistics()
    }

    /// Adds a fault. Of several matching faults, the first applies to a request.
    pub fn add_fault(&self, fault: Fault) {
        self.engine.faults.add(fault);
    }

    pub fn clear_faults(&self) {
        self.engine.faults.clear();
    }

    /// Completes no read, write or sync for `time`.
    pub fn stall(&self, time: Duration) {
        self.engine.pacer.stall(time);
    }

    /// Ends a stall early.
    pub fn resume(&self) {
        self.engine.pacer.resume();
    }

    /// Simulates a power loss. Waiting requests fail with EIO, and all files revert to the contents and sizes of their
    /// last sync. Returns the number of changed files. Stop clients before, as a power loss stops them on a real host.
    /// An error means that a file could not be reverted, or that the volume is mounted without
    /// [`Options::forget_unsynced`].
    pub fn power_loss(&self) -> Result<usize, Error> {
        self.engine.power_loss(None).map_err(Error::PowerLoss)
    }

    /// Loses power like [`Volume::power_loss`], but each sector of 512 bytes of the unsynced changes is lost or kept at
    /// random, so that pages are torn. Sizes are reverted.
    pub fn power_loss_torn(&self, seed: u64) -> Result<usize, Error> {
        self.power_loss_reordered(seed, SECTOR as u64)
    }

    /// Loses power like [`Volume::power_loss`], but each aligned unit of `bytes` of the unsynced changes is lost or
    /// kept at random as a whole. This models a disk that makes such writes atomically, in any order. Sizes are
    /// reverted.
    pub fn power_loss_reordered(&self, seed: u64, bytes: u64) -> Result<usize, Error> {
        let tear = Tear::new(seed, bytes);
        self.engine.power_loss(Some(tear)).map_err(Error::PowerLoss)
    }

    /// Files that a power loss would change now, by their paths in the backing directory, with the offsets of the
    /// affected blocks of 4 KiB, in order. Excludes blocks beyond the end to which the file would be cut. Empty without
    /// [`Options::forget_unsynced`].
    pub fn unsynced(&self) -> Vec<(PathBuf, Vec<u64>)> {
        let blocks = self.engine.unsynced.iter().flat_map(Unsynced::blocks);
        blocks
            .map(|(inode, offsets)| (OsString::from_vec(inode.path()).into(), offsets))
            .collect()
    }

    /// A handle that can end [`Volume::wait`] from another thread.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Waits until another process unmounts the volume, or until a [`Stopper`] or the control socket requests that.
    pub fn wait(&self) {
        self.stopper.wait_while(|stage| stage == Stage::Running);
    }

    /// Unmounts. Waits two seconds for clients to close their files, then cuts them off.
    pub fn unmount(mut self) -> Result<(), Error> {
        self.shut_down()
    }

    fn shut_down(&mut self) -> Result<(), Error> {
        drop(self.control.take());
        let mut result = Ok(());
        if let Some(mut mounted) = self.mounted.take() {
            if !self.stopper.ended() {
                match mounted.unmount(&self.mountpoint, PATIENCE) {
                    Ok(false) => {}
                    Ok(true) => log::warn!(
                        "files on {} were still open and have been cut off",
                        self.mountpoint.display()
                    ),
                    Err(source) => {
                        result = Err(Error::Unmount {
                            path: self.mountpoint.clone(),
                            source,
                        });
                    }
                }
            }
            let ended = self.stopper.wait_for_end(PATIENCE);
            mounted.finish(ended);
        }
        for job in self.engine.pacer.stop() {
            fail(job);
        }
        self.engine.pool.stop();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        result
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        if let Err(error) = self.shut_down() {
            log::error!("{error}");
        }
    }
}
