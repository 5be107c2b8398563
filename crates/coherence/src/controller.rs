//! Switching on and off as a table: states, events, and what is to be done about them.
//!
//! [`Machine::step`] is the table. It takes no lock, looks at no clock, and does nothing but change the machine's own memory.
//! What it wants done it returns. A [`Store`] only stores, and is done before anybody else may post an event. A [`Later`] may
//! take as long as a disk takes. Whoever posted the event does it afterwards, and posts what came of it as another event.
//!
//! [`state`] has the states, [`events`] what happens, [`step`] the transitions. `transitions.txt` has them as text: tests walk through
//! every event in every state, and through all sequences up to a length.
//!
//! [`driver`] is the table at work: a lock, and threads that post and wait. What it needs of the process is a trait, [`host`];
//! `work` is what takes time.

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
pub use events::{Event, Later, Refused, Store, Told};
pub use host::{Engine, Host};
pub use state::{Built, Layout, Machine, Shown, State, Work};
pub use work::RETIRE_WAIT;
