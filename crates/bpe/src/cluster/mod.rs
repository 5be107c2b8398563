//! Clusters of servers: roles, lag and cache warmth, changes of all members, and readiness for traffic.
//!
//! # Terms
//! - *Node*: a server of the servers file.
//! - *Group*: nodes that replicate from each other, or that the file names as one cluster.
//! - *In step*: replication runs, or the node is a member of its Galera or group replication cluster.
//! - *Warmth*: share of the hot page list that the node fetched last (`bpe warm`) and has cached or read.
//!
//! # Rolling change
//! [`rolling`] plans all changes before the first one. For each node, replicas first:
//! 1. [`topology_check`]: all nodes answer, none is behind, and the primaries are those of the beginning.
//! 2. [`node_change`]: measure a window, change, wait with [`catch_up`], measure again.
//! 3. [`regression`] compares the two windows. A regression stops the rolling change.
//!
//! Nodes changed before stay as they are.
//!
//! Reading order: [`membership`] (SQL), [`warmth`], [`probe`] (several servers at once), [`group`], [`ready`] (may a node get
//! traffic), then the rolling change.

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
