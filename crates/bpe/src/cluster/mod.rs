//! Clusters of servers: each server's role, lag and cache warmth, and the consequences for cluster-wide changes and for traffic.
//!
//! [`membership`] reads a server's role by SQL, and [`warmth`] its warmth. [`look`] polls several servers at once, and
//! [`group`] forms clusters. [`ready`] judges whether a node may get traffic, and [`worse`] whether a change did harm.
//! [`waiting`] waits until a node follows again. [`rolling`] changes one node after the other while [`standing`]
//! confirms that all others are in order.

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
