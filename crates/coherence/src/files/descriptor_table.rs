//! The descriptor table: from the server's descriptors to data files.

use std::ptr::NonNull;

use super::data_file::DataFile;
use crate::platform::sync::{AtomicPtr, AtomicUsize, Ordering};

/// Pointer tag in the table: the descriptor was found open during enabling. Each use verifies it.
///
/// A thread that passed our check in a hook while the extension was off may close the descriptor only now. Another thread
/// may then get the same number for another file, and no hook observes it. The delay before the kernel call is unknown.
/// But a thread that uses a descriptor has it open, so asking the kernel at that moment is a proof.
pub(super) const FOUND: usize = 1;

/// Slot of the descriptor table: null, or a file, tagged or not.
pub type Slot = AtomicPtr<DataFile>;

/// The slot of an unknown descriptor.
pub const fn empty_slot() -> Slot {
    AtomicPtr::new(std::ptr::null_mut())
}

/// A nonempty slot of the descriptor table.
#[derive(Clone, Copy)]
pub struct Entry {
    pub(super) fd: i32,
    pub(super) pointer: NonNull<DataFile>,
}

/// The slots of all descriptors that may be tracked. A data file on a descriptor beyond the end is never cached.
pub(super) struct DescriptorTable {
    pub(super) slots: &'static [Slot],
    /// One more than the highest descriptor ever registered.
    registered_below: AtomicUsize,
}

impl DescriptorTable {
    pub(super) const fn new(slots: &'static [Slot]) -> DescriptorTable {
        DescriptorTable {
            slots,
            registered_below: AtomicUsize::new(0),
        }
    }

    #[inline(always)]
    pub(super) fn slot(&self, fd: i32) -> Option<&'static Slot> {
        self.slots.get(fd as usize)
    }

    /// FileStat up a descriptor. Cost: one load.
    #[inline(always)]
    pub(super) fn look_up(&self, fd: i32) -> Option<Entry> {
        // Acquire: pairs with the `swap` in `attach`, so that the stores of `start` are visible.
        let pointer = self.slot(fd)?.load(Ordering::Acquire);
        NonNull::new(pointer).map(|pointer| Entry { fd, pointer })
    }

    /// Includes this descriptor in [`used_slots`](Self::used_slots).
    pub(super) fn note_registered(&self, fd: i32) {
        self.registered_below
            .fetch_max(fd as usize + 1, Ordering::SeqCst);
    }

    /// The slots that may be in use, by descriptor from 0.
    pub(super) fn used_slots(&self) -> &'static [Slot] {
        let below = self.registered_below.load(Ordering::SeqCst);
        &self.slots[..below.min(self.slots.len())]
    }
}

/// The file of a table entry, tagged or not.
pub(super) fn file_of(entry: *mut DataFile) -> Option<&'static DataFile> {
    // SAFETY: as in `Files::file`.
    unsafe { entry.map_addr(|address| address & !FOUND).as_ref() }
}
