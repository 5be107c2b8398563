//! Everything that the rules of coherence know of a server's process, as one value.

use crate::aio::requests::Requests;
use crate::damage::Damage;
use crate::files::{Files, Slot};
use crate::notes::Notes;
use crate::os::Os;
use crate::switch::Switch;

/// What is known of the server's files and requests, and whether anything is done about them.
///
/// It is never freed: requests under way and threads of the server refer to it. A test leaks one.
pub struct Core<O: 'static> {
    pub files: Files<O>,
    pub notes: Notes,
    pub requests: Requests,
    pub damage: Damage,
}

impl<O: Os> Core<O> {
    /// Off. `table` has an empty slot for each descriptor that may be followed.
    pub const fn new(os: O, table: &'static [Slot]) -> Core<O> {
        Core {
            files: Files::new(os, table),
            notes: Notes::new(),
            requests: Requests::new(),
            damage: Damage::new(),
        }
    }

    /// What every hook looks at first.
    #[inline(always)]
    pub fn switch(&self) -> &Switch {
        &self.files.switch
    }

    /// Pages of data files that are known to be damaged.
    pub fn damaged_pages(&self) -> u64 {
        if self.damage.any() {
            let all = self.files.all().into_iter();
            let now: Vec<_> = all.map(|file| (file.owner, file.id())).collect();
            self.damage.keep_of(&now);
        }
        self.damage.count()
    }

    /// The machine.
    #[inline(always)]
    pub fn os(&self) -> &O {
        &self.files.os
    }
}
