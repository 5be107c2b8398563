//! Servers that belong together: what each is among them, how far it is behind, how warm, and what follows for a change of
//! all of them or for whoever sends it traffic.
//!
//! [`membership`] reads a server's place by SQL, [`warmth`] how warm it is. [`look`] asks several servers at once, [`group`]
//! puts together who belongs together. [`ready`] judges whether a node may get traffic, [`worse`] whether a change has done it
//! harm, [`waiting`] waits until a node follows again, and [`rolling`] changes one node after the other, as long as all stand as
//! they should ([`standing`]).

pub mod group;
pub mod look;
pub mod membership;
pub mod ready;
pub mod rolling;
pub mod standing;
pub mod turn;
pub mod waiting;
pub mod warmth;
pub mod worse;
