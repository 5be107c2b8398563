//! State machine that switches the extension on and off.
//!
//! [`Machine::step`] is the transition function. It takes no lock, reads no clock and changes only the machine's memory. It
//! returns the effects:
//! - [`Store`]: stores only. The driver runs it under the lock, before any other event.
//! - [`Later`]: may take as long as a disk. The poster runs it without the lock and posts the result as another event.
//!
//! [`state`] defines the states, [`events`] the events, [`step`] the transitions. `transitions.txt` lists the transitions:
//! tests walk through every event in every state, and through all sequences up to a length.
//!
//! [`driver`] runs the machine: a lock, and threads that post and wait. The trait [`Host`] is its interface to the process.
//! `work` contains the slow operations.

pub mod driver;
#[cfg(test)]
mod driver_tests;
pub mod events;
pub mod host;
pub mod state;
pub mod step;
#[cfg(test)]
mod tests;
mod work;

pub use driver::Controller;
pub use events::{Answer, Event, Later, LogEvent, Refused, Store};
pub use host::{Engine, Host};
pub use state::{Built, Layout, Machine, Shown, State, Work};
pub use work::RETIRE_WAIT;
