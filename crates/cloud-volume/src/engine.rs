//! The path of a read, a write and a sync: faults, then the schedule, then the backing file.
//!
//! - A **read** waits for its time first. When it is due, the pacer's own thread reads the data if the page cache of
//!   the backing file has it (`RWF_NOWAIT`). Otherwise a pool thread reads it, and the pacer continues.
//! - A **write** is stored on arrival, directly from the kernel's request without a copy, and only its completion
//!   waits. Clients cannot detect this: until a write completes, a read may or may not see it. All but one of the
//!   request threads may store writes at a time. Further writes go to pool threads, so that a blocking backing
//!   directory cannot keep reads from being accepted.
//! - A **sync** makes everything stored so far durable. It costs one latency if there was anything.
//!
//! On an unlimited volume the thread that received the request does all of this.

use std::cell::RefCell;
use std::io::{self, IoSliceMut};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use fuser::{Errno, INodeNo, Notifier, ReplyData, ReplyEmpty, ReplyWrite};
use rustix::io::ReadWriteFlags;

use crate::faults::{Faults, Operation, SECTOR, Strike};
use crate::inodes::{Handles, Inode, Inodes, OpenFile};
use crate::pacer::Pacer;
use crate::pool::Pool;
use crate::schedule::{Cost, Due};
use crate::statistics::{Counters, Statistics, add};
use crate::undo::{Tear, read_fully};
use crate::unsynced::Unsynced;

/// Threads that receive requests from the kernel.
pub(crate) const REQUEST_THREADS: usize = 3;

pub(crate) struct Engine {
    pub(crate) inodes: Inodes,
    pub(crate) handles: Handles,
    pub(crate) pacer: Arc<Pacer<Job>>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) faults: Faults,
    pub(crate) counters: Counters,
    /// Present in the mode that supports power loss.
    pub(crate) unsynced: Option<Unsynced>,
    /// Whether a sync also syncs the backing file.
    pub(crate) sync_backing: bool,
    /// Set once the session is running.
    pub(crate) notifier: OnceLock<Notifier>,
    /// Request threads that currently store a write.
    pub(crate) storing: AtomicUsize,
}

/// Remaining work of a request when it is due.
pub(crate) enum Job {
    Read(Read),
    Data(ReplyData, Errno),
    Written(ReplyWrite, io::Result<usize>),
    Synced(ReplyEmpty, io::Result<()>),
}

pub(crate) struct Read {
    file: Arc<OpenFile>,
    offset: u64,
    size: usize,
    reply: ReplyData,
}

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Engine {
    /// Handles a client's read. `flags` are the current flags of its open file.
    pub(crate) fn read(
        self: &Arc<Self>,
        handle: u64,
        offset: u64,
        size: usize,
        flags: i32,
        reply: ReplyData,
    ) {
        let file = match self.handles.get(handle) {
            Ok(file) => file,
            Err(error) => return reply.error(error.into()),
        };
        if !aligned(flags, offset, size) {
            return reply.error(Errno::EINVAL);
        }
        let cost = self.count_transfer(size);
        add(&self.counters.reads, 1);
        add(&self.counters.read_bytes, size as u64);
        let job = match self.strike(&file.inode, Operation::Read, size) {
            Some(_) => Job::Data(reply, Errno::EIO),
            None => Job::Read(Read {
                file,
                offset,
                size,
                reply,
            }),
        };
        self.submit(cost, job);
    }

    /// Handles a client's write. `flags` are the current flags of its open file.
    pub(crate) fn write(
        self: &Arc<Self>,
        handle: u64,
        offset: u64,
        data: &[u8],
        flags: i32,
        reply: ReplyWrite,
    ) {
        let file = match self.handles.get(handle) {
            Ok(file) => file,
            Err(error) => return reply.error(error.into()),
        };
        if !aligned(flags, offset, data.len()) {
            return reply.error(Errno::EINVAL);
        }
        let cost = self.count_transfer(data.len());
        add(&self.counters.writes, 1);
        add(&self.counters.written_bytes, data.len() as u64);
        let strike = self.strike(&file.inode, Operation::Write, data.len());
        let stored = match strike {
            None => data.len(),
            Some(Strike::Error) => 0,
            Some(Strike::Torn { stored, .. }) => stored,
        };
        let length = data.len();
        let outcome = move |stored: io::Result<usize>| match strike {
            None => stored,
            Some(Strike::Torn { silently: true, .. }) => stored.map(|_| length),
            Some(_) => Err(rustix::io::Errno::IO.into()),
        };
        let data = &data[..stored];
        if self.storing.fetch_add(1, Ordering::AcqRel) < REQUEST_THREADS - 1 {
            let result = self.store(&file, offset, data);
            self.storing.fetch_sub(1, Ordering::AcqRel);
            self.submit(cost, Job::Written(reply, outcome(result)));
        } else {
            self.storing.fetch_sub(1, Ordering::AcqRel);
            let data = data.to_vec();
            let engine = self.clone();
            self.pool.execute(move || {
                let result = engine.store(&file, offset, &data);
                engine.submit(cost, Job::Written(reply, outcome(result)));
            });
        }
    }

    /// Handles fsync or fdatasync.
    pub(crate) fn sync(self: &Arc<Self>, handle: u64, reply: ReplyEmpty) {
        let file = match self.handles.get(handle) {
            Ok(file) => file,
            Err(error) => return reply.error(error.into()),
        };
        add(&self.counters.fsyncs, 1);
        if self.strike(&file.inode, Operation::Sync, 0).is_some() {
            let error = Err(rustix::io::Errno::IO.into());
            return self.submit(Cost::Flush, Job::Synced(reply, error));
        }
        let dirty = file.inode.dirty.swap(false, Ordering::AcqRel);
        if let Some(unsynced) = &self.unsynced {
            unsynced.sync(&file.inode);
        }
        if !dirty {
            reply.ok();
        } else if self.sync_backing {
            let engine = self.clone();
            self.pool.execute(move || {
                let result = file.file.sync_data();
                if result.is_err() {
                    file.inode.dirty.store(true, Ordering::Release);
                }
                engine.submit(Cost::Flush, Job::Synced(reply, result));
            });
        } else {
            self.submit(Cost::Flush, Job::Synced(reply, Ok(())));
        }
    }

    /// Changes `length` bytes at `offset` of a file, and keeps the old contents so that a power loss can undo it.
    /// `file` must be open for reading and writing.
    pub(crate) fn change<R>(
        &self,
        inode: &Arc<Inode>,
        file: &std::fs::File,
        offset: u64,
        length: u64,
        change: impl FnOnce() -> io::Result<R>,
    ) -> io::Result<R> {
        let result = match &self.unsynced {
            None => change(),
            Some(unsynced) => unsynced.change(inode, file, offset, length, change),
        };
        // After the change, so that a sync that begins later sees it.
        inode.dirty.store(true, Ordering::Release);
        result
    }

    fn store(&self, file: &OpenFile, offset: u64, data: &[u8]) -> io::Result<usize> {
        let length = data.len() as u64;
        self.change(&file.inode, &file.file, offset, length, || {
            file.file.write_all_at(data, offset)
        })?;
        if file.synchronous {
            if let Some(unsynced) = &self.unsynced {
                unsynced.sync(&file.inode);
            }
            if self.sync_backing {
                file.file.sync_data()?;
            }
        }
        Ok(data.len())
    }

    fn strike(&self, inode: &Inode, operation: Operation, bytes: usize) -> Option<Strike> {
        let strike = self.faults.strike(operation, bytes, || inode.path());
        if strike.is_some() {
            add(&self.counters.faults, 1);
        }
        strike
    }

    fn count_transfer(&self, bytes: usize) -> Cost {
        let bytes = bytes as u64;
        add(&self.counters.billed_ios, self.pacer.billed(bytes));
        Cost::Transfer { bytes }
    }

    fn submit(self: &Arc<Self>, cost: Cost, job: Job) {
        if self.pacer.is_free() {
            self.perform(job);
        } else if let Err(job) = self.pacer.submit(cost, job) {
            fail(job);
        }
    }

    /// Completes a due request.
    pub(crate) fn complete(self: &Arc<Self>, due: Due<Job>) {
        add(&self.counters.queue_wait, due.waited);
        add(&self.counters.throttled, due.throttled);
        self.perform(due.item);
    }

    fn perform(self: &Arc<Self>, job: Job) {
        match job {
            Job::Read(read) => self.serve(read),
            Job::Data(reply, error) => reply.error(error),
            Job::Written(reply, Ok(written)) => reply.written(written as u32),
            Job::Written(reply, Err(error)) => reply.error(error.into()),
            Job::Synced(reply, Ok(())) => reply.ok(),
            Job::Synced(reply, Err(error)) => reply.error(error.into()),
        }
    }

    fn serve(self: &Arc<Self>, read: Read) {
        BUFFER.with_borrow_mut(|buffer| {
            if buffer.len() < read.size {
                buffer.resize(read.size, 0);
            }
            let buffer = &mut buffer[..read.size];
            let cached = rustix::io::preadv2(
                &read.file.file,
                &mut [IoSliceMut::new(buffer)],
                read.offset,
                ReadWriteFlags::NOWAIT,
            );
            if cached == Ok(read.size) {
                read.reply.data(buffer);
            } else {
                // Not cached, the end of the file, or a backing file system without support for `RWF_NOWAIT`.
                self.pool.execute(move || read.wait_and_serve());
            }
        });
    }

    /// Simulates a power loss: waiting requests fail, and unsynced changes are lost, completely or partly.
    pub(crate) fn power_loss(&self, torn: Option<Tear>) -> io::Result<usize> {
        let Some(unsynced) = &self.unsynced else {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "this volume does not remember what was not synced: mount it with forget-unsynced",
            ));
        };
        for job in self.pacer.drain() {
            fail(job);
        }
        let reverted = unsynced.power_loss(torn).map_err(|(inode, error)| {
            let path = String::from_utf8_lossy(&inode.path()).into_owned();
            io::Error::new(error.kind(), format!("cannot revert {path}: {error}"))
        })?;
        add(&self.counters.power_losses, 1);
        if let Some(notifier) = self.notifier.get() {
            for inode in &reverted {
                // Drops the kernel's cached pages and size. The kernel has none for an inode that it forgot.
                let _ = notifier.inval_inode(INodeNo(inode.number), 0, 0);
            }
        }
        Ok(reverted.len())
    }

    pub(crate) fn statistics(&self) -> Statistics {
        Statistics {
            queued: self.pacer.queued() as u64,
            unsynced_bytes: self.unsynced.as_ref().map_or(0, Unsynced::bytes),
            ..self.counters.snapshot()
        }
    }
}

impl Read {
    fn wait_and_serve(self) {
        BUFFER.with_borrow_mut(|buffer| {
            if buffer.len() < self.size {
                buffer.resize(self.size, 0);
            }
            let buffer = &mut buffer[..self.size];
            match read_fully(&self.file.file, buffer, self.offset) {
                Ok(read) => self.reply.data(&buffer[..read]),
                Err(error) => self.reply.error(error.into()),
            }
        });
    }
}

/// Answers with EIO.
pub(crate) fn fail(job: Job) {
    match job {
        Job::Read(read) => read.reply.error(Errno::EIO),
        Job::Data(reply, _) => reply.error(Errno::EIO),
        Job::Written(reply, _) => reply.error(Errno::EIO),
        Job::Synced(reply, _) => reply.error(Errno::EIO),
    }
}

/// A disk rejects direct I/O that is not made of whole sectors. The volume does the same, so that such mistakes are
/// detected.
fn aligned(flags: i32, offset: u64, size: usize) -> bool {
    flags & libc::O_DIRECT == 0 || (offset % SECTOR as u64 == 0 && size % SECTOR == 0)
}
