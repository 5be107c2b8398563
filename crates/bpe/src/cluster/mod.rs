//! Clusters of servers: each server's role, lag and cache warmth, and the consequences for cluster-wide changes and for traffic.
//!
//! [`membership`] reads a server's role by SQL, and [`warmth`] its warmth. [`probe`] polls several servers at once, and
//! [`group`] forms clusters. [`ready`] judges whether a node may get traffic, and [`regression`] whether a change did harm.
//! [`catch_up`] waits until a node follows again. [`rolling`] changes one node after the other while [`topology_check`]
//! confirms that all others are in order.

pub mod catch_up;
pub mod group;
pub mod membership;
pub mod node_change;
pub mod probe;
pub mod ready;
pub mod regression;
pub mod rolling;
pub mod topology_check;
pub mod warmth;
