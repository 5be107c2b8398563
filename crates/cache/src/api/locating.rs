//! Locating: returns the position of a page to a caller that reads asynchronously, and verifies the bytes of that read.
//!
//! The caller takes [`Located`] and reads. Then it calls [`Extension::prove_page`]. If the read was not made it calls
//! [`Extension::release`], if it failed [`Extension::release_failed`], if it takes too long [`Extension::give_up`].
//!
//! The page is read into the caller's own buffer if it is stored uncompressed and reads of the device are unbounded.
//! Otherwise the extension lends memory:
//! - for a bounded read, whose bytes may still arrive after it was abandoned
//! - for a compressed page, which is decompressed from there
//! - for a page in staging, which is copied there at once, so that nothing needs to be read

use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::api::extension::{Extension, MissReason};
use crate::api::reading::{Content, read_other_length};
use crate::common::group::Group;
use crate::common::page::{PageId, is_page_length};
use crate::common::statistics::Counter;
use crate::device::bounded::{self, Counted, GivenUp, LentSlot};
use crate::device::file::CacheFile;
use crate::device::segment::format::unpack;
use crate::device::submission::is_flag_refused;
use crate::index::directory::Kind;
use crate::instance::staging::Pinned;
use crate::instance::{Counters, Found, Spot};

/// Position of a page: `length` bytes at `offset` of `fd`, which stays open as long as this value lives. `length` is 0 if the
/// page was copied already.
///
/// The page must be read into [`buffer`](Located::buffer) if there is one. A read that takes longer than its
/// [bound](Located::bound) can then be [abandoned](Extension::give_up).
pub struct Located {
    pub fd: RawFd,
    pub offset: u64,
    pub length: u32,
    lent: Option<Lent>,
    page: PageId,
    /// For a page in staging: its frame, as [`Kind::STAGED`].
    spot: Spot,
    /// Bytes in front of the page, which need not start at a block of the device.
    before: u16,
    started: Instant,
    /// Keeps the descriptor open.
    file: Arc<CacheFile>,
}

/// Lent memory for a read, and the parameters of its request.
struct Lent {
    slot: LentSlot,
    /// Bound of the read in microseconds; 0: unbounded.
    bound: u32,
    /// `None`: nothing is read.
    counted: Option<Counted>,
    /// For the request.
    flags: u32,
}

impl Located {
    pub fn page(&self) -> PageId {
        self.page
    }

    /// Where the page must be read to; `None`: to the caller's own buffer.
    pub fn buffer(&self) -> Option<*mut u8> {
        self.lent.as_ref().map(|lent| lent.slot.as_ptr())
    }

    /// The bytes read into [`buffer`](Located::buffer).
    ///
    /// # Safety
    /// The read must have completed.
    pub unsafe fn bytes(&self) -> Option<&[u8]> {
        // SAFETY: the caller's promise.
        self.lent.as_ref().map(|lent| unsafe { lent.slot.bytes() })
    }

    /// Longest time to wait for the read after its submission.
    pub fn bound(&self) -> Option<Duration> {
        let lent = self.lent.as_ref().filter(|lent| lent.bound > 0);
        lent.map(|lent| Duration::from_micros(lent.bound.into()))
    }

    /// Flags (`RWF_...`) that the request needs, so that its submission does not block.
    pub fn flags(&self) -> u32 {
        self.lent.as_ref().map_or(0, |lent| lent.flags)
    }

    /// Call when the kernel has accepted the request.
    pub fn submitted(&mut self) {
        if let Some(counted) = self.lent.as_mut().and_then(|lent| lent.counted.as_mut()) {
            counted.submitted();
        }
    }

    /// Call when the kernel refused or failed the request with this errno. Returns whether the errno concerns the flags, or means
    /// that the request would have blocked: then it is no evidence against the disk.
    pub fn refused(&self, errno: i32) -> bool {
        let lent = self.lent.as_ref().filter(|lent| lent.flags != 0);
        let Some(counted) = lent.and_then(|lent| lent.counted.as_ref()) else {
            return false;
        };
        if is_flag_refused(errno) {
            counted.submissions().leave_flag_out();
        }
        let busy = errno == libc::EAGAIN || is_flag_refused(errno);
        if busy {
            counted.submissions().busy.add(1);
        }
        busy
    }

    /// Abandons the read. The caller keeps the returned value until the read completes. `None` if nothing was to be read, or if
    /// it was read into the caller's own buffer.
    pub fn give_up(self) -> Option<GivenUp> {
        let Lent { slot, counted, .. } = self.lent?;
        Some(GivenUp::new(counted?, slot, self.file))
    }

    fn is_staged(&self) -> bool {
        self.spot.kind == Kind::STAGED
    }
}

impl Extension {
    /// Position of the page of this group, for a read of `length` bytes to `address`. Counts the access, and a miss if the page
    /// is not cached or cannot be located at present.
    pub fn locate(
        &self,
        page: PageId,
        group: Group,
        length: usize,
        address: usize,
    ) -> Option<Located> {
        let started = Instant::now();
        let shared = &*self.shared;
        let instance = shared.instance(page);
        let counters = &instance.counters;
        if !is_page_length(length) {
            counters.unsuitable.add(1);
            return None;
        }
        let mut state = instance.lock();
        let found_at = state.slot_of(&shared.store, page);
        let known = state.record_access(page, group, found_at, &shared.store);
        let found = state.look_up(&shared.store, instance, page, group, found_at);
        // Allocating memory takes long compared with the work under the lock. The result is verified later in any case.
        drop(state);
        let located = match found {
            Found::Absent => {
                counters.returned.add(u64::from(known));
                Err(&counters.absent)
            }
            Found::DeviceFailed => Err(&counters.device_failed),
            Found::Staged(pinned, removals) => {
                self.copy_staged(counters, page, &pinned, removals, length, started)
            }
            Found::OnDevice(spot) => {
                self.locate_spot(counters, page, spot, length, address, started)
            }
        };
        located.map_err(|reason| reason.add(1)).ok()
    }

    fn locate_spot<'a>(
        &self,
        counters: &'a Counters,
        page: PageId,
        spot: Spot,
        length: usize,
        address: usize,
        started: Instant,
    ) -> Result<Located, &'a Counter> {
        let device = &self.shared.store.devices[spot.device as usize];
        let file = device.file();
        if file.storage.raw_fd() < 0 {
            return Err(&counters.device_failed);
        }
        let stored = spot.kind.stored(length).ok_or(&counters.unsuitable)?;
        let bound = device.bound(&file);
        let offset = device.geometry.offset_of(spot.location);
        let is_direct = bound.is_none() && spot.kind.is_raw();
        let (before, length, lent) = if is_direct {
            if !device.suits(&file, spot.location, address, stored) {
                return Err(&counters.unsuitable);
            }
            (0, stored, None)
        } else {
            let mask = file.alignment - 1;
            let before = offset as usize & mask;
            let whole = (before + stored + mask) & !mask;
            let overdue = &device.health.overdue;
            let counted = Counted::begin(overdue).ok_or(&counters.no_request)?;
            let Some(slot) = bounded::lend(whole) else {
                overdue.submissions.busy.add(1);
                return Err(&counters.no_request);
            };
            let lent = Lent {
                slot,
                bound: bound.map_or(0, |bound| {
                    u32::try_from(bound.as_micros()).unwrap_or(u32::MAX)
                }),
                flags: bound.map_or(0, |_| counted.submissions().flags()),
                counted: Some(counted),
            };
            (before, whole, Some(lent))
        };
        Ok(Located {
            fd: file.storage.raw_fd(),
            offset: offset - before as u64,
            length: length as u32,
            lent,
            page,
            spot,
            before: before as u16,
            started,
            file,
        })
    }

    /// A page in staging is in no file: the caller reads nothing.
    fn copy_staged<'a>(
        &self,
        counters: &'a Counters,
        page: PageId,
        pinned: &Pinned<'_>,
        removals: u64,
        length: usize,
        started: Instant,
    ) -> Result<Located, &'a Counter> {
        let store = &self.shared.store;
        let bytes = pinned.bytes();
        if bytes.len() != length {
            return Err(&counters.unsuitable);
        }
        let device = store.devices.iter().find(|device| device.health.active());
        let device = device.ok_or(&counters.device_failed)?;
        let file = device.file();
        if file.storage.raw_fd() < 0 {
            return Err(&counters.device_failed);
        }
        let mut slot = bounded::lend(length).ok_or(&counters.no_request)?;
        slot.bytes_mut()[..length].copy_from_slice(bytes);
        let frame = pinned.frame();
        Ok(Located {
            fd: file.storage.raw_fd(),
            offset: 0,
            length: 0,
            lent: Some(Lent {
                slot,
                bound: 0,
                counted: None,
                flags: 0,
            }),
            page,
            spot: Spot {
                device: 0,
                location: frame,
                kind: Kind::STAGED,
                check: store.staging.check(frame),
                sequence: 0,
                removals,
            },
            before: 0,
            started,
            file,
        })
    }

    /// Call after the read of a located page. Returns whether `page` now holds the page's bytes. `read` are the
    /// [bytes](Located::bytes) that were lent; `None`: they were read into `page`. Counts a hit or a miss, and drops the entry
    /// if it is wrong.
    pub fn prove_page(&self, located: &Located, read: Option<&[u8]>, page: &mut [u8]) -> bool {
        let instance = self.shared.instance(located.page);
        let counters = &instance.counters;
        let length = page.len();
        let proven = if located.is_staged() {
            self.prove_copy(located, read, page)
        } else {
            self.prove_read(located, read, page)
        };
        if let Err(reason) = proven {
            counters.of(reason).add(1);
            return false;
        }
        if located.is_staged() {
            counters.hits_staged.add(1);
        } else {
            let device = &self.shared.store.devices[located.spot.device as usize];
            device.reads.add(1);
            device.bytes_read.add(located.length.into());
            device.health.note_success();
            counters.hits_located.add(1);
        }
        counters.hits.add(1);
        counters.hit_bytes.add(length as u64);
        self.shared
            .latency
            .record(located.started.elapsed().as_nanos() as u64);
        true
    }

    fn prove_read(
        &self,
        located: &Located,
        read: Option<&[u8]>,
        page: &mut [u8],
    ) -> Result<(), MissReason> {
        let instance = self.shared.instance(located.page);
        let spot = located.spot;
        let stored = spot.kind.stored(page.len());
        let stored = stored.ok_or(MissReason::Unsuitable)?;
        let content = match read {
            None => Content::Page(page),
            Some(read) => {
                let before = usize::from(located.before);
                let read = read.get(before..before + stored);
                let read = read.ok_or(MissReason::Unsuitable)?;
                if spot.kind.is_raw() {
                    page.copy_from_slice(read);
                    Content::Page(page)
                } else if unpack(read, page) {
                    Content::Page(page)
                } else {
                    // Rare, so a synchronous read is acceptable, no longer than any bounded read.
                    let device = &self.shared.store.devices[spot.device as usize];
                    read_other_length(device, spot, page.len())?
                }
            }
        };
        self.verify(instance, located.page, spot, content)
    }

    fn prove_copy(
        &self,
        located: &Located,
        copy: Option<&[u8]>,
        page: &mut [u8],
    ) -> Result<(), MissReason> {
        let instance = self.shared.instance(located.page);
        let copy = copy.and_then(|copy| copy.get(..page.len()));
        page.copy_from_slice(copy.ok_or(MissReason::Unsuitable)?);
        let Spot {
            location: frame,
            check,
            removals,
            ..
        } = located.spot;
        self.verify_staged(instance, located.page, frame, check, removals, page)
    }

    /// Call when the read of a located page was not made.
    pub fn release(&self, located: Located) {
        drop(located);
    }

    /// Call when the read of a located page has taken too long. Counts a miss. The caller keeps the returned value until the read
    /// completes; `None` if it cannot be abandoned.
    pub fn give_up(&self, located: Located) -> Option<GivenUp> {
        let counters = &self.shared.instance(located.page).counters;
        counters.device_failed.add(1);
        located.give_up()
    }

    /// Call when the read of a located page failed with this errno, or was short (0). Counts a miss. Counts an error of the
    /// device, too, unless the request would only have blocked, or nothing was to be read.
    pub fn release_failed(&self, located: Located, errno: i32) {
        let counters = &self.shared.instance(located.page).counters;
        if located.refused(errno) || located.is_staged() {
            return counters.device_failed.add(1);
        }
        counters.device_error.add(1);
        let health = &self.shared.store.devices[located.spot.device as usize].health;
        match errno {
            0 => health.note_error(&"a read came short"),
            _ => health.note_error(&std::io::Error::from_raw_os_error(errno)),
        }
    }
}
