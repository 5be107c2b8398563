//! State of the coherence protocol for one server process.
//!
//! - [`page_request`]: the page of a read, and a write in flight.
//! - [`requests`]: asynchronous requests in flight, by address.
//! - [`damage`]: pages with a damaged copy in the data file.
//! - [`trace`]: hook events for a recording.

pub mod damage;
pub mod page_request;
pub mod requests;
pub mod trace;

use crate::core::damage::Damage;
use crate::core::requests::Requests;
use crate::core::trace::Trace;
use crate::files::{Files, Slot};
use crate::platform::os::Os;
use crate::switch::Switch;

/// The server's files and requests, and the mode of the hooks.
///
/// Never freed: requests in flight and server threads refer to it. Tests leak their instance.
pub struct Core<O: 'static> {
    pub files: Files<O>,
    pub trace: Trace,
    pub requests: Requests,
    pub damage: Damage,
}

impl<O: Os> Core<O> {
    /// State with the extension off. `table` has an empty slot for each descriptor that may be tracked.
    pub const fn new(os: O, table: &'static [Slot]) -> Core<O> {
        Core {
            files: Files::new(os, table),
            trace: Trace::new(),
            requests: Requests::new(),
            damage: Damage::new(),
        }
    }

    /// The switch: every hook reads it first.
    #[inline(always)]
    pub fn switch(&self) -> &Switch {
        &self.files.switch
    }

    /// Number of pages whose copy in the data file is known to be damaged.
    pub fn damaged_pages(&self) -> u64 {
        if self.damage.any() {
            let all = self.files.all().into_iter();
            let now: Vec<_> = all.map(|file| (file.owner, file.id())).collect();
            self.damage.keep_of(&now);
        }
        self.damage.count()
    }

    /// The operating system.
    #[inline(always)]
    pub fn os(&self) -> &O {
        &self.files.os
    }
}
