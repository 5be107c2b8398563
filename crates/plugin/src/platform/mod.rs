//! The platform: this server's process, and the operating system below it.
//!
//! | file | content |
//! |---|---|
//! | `original` | the original of an intercepted call |
//! | `server` | kind and release of the server, its exported symbols |
//! | `identity` | data directory, owner, names of files |
//! | `innodb` | InnoDB's own descriptor: variables, LSN |
//! | `clock`, `mount_id` | clocks; identity of a mounted file system |
//! | `error_log` | messages in the server's error log |
//! | `linux` | system calls, as the trait [`coherence::os::Os`] wants them |
//! | `process` | the one `Core` of the process |
//! | `owned_files` | removal of files that former settings created |
//! | `naive` | a deliberately wrong cache, for tests of the tests |

pub mod clock;
pub mod error_log;
pub mod identity;
pub mod innodb;
pub mod linux;
pub mod mount_id;
#[cfg(debug_assertions)]
pub mod naive;
pub mod original;
pub mod owned_files;
pub mod process;
pub mod server;

pub use linux::Linux;
pub use original::Original;
pub use process::{CORE, SUSPENSIONS};
