//! Metadata in an InnoDB page, read from its bytes.
//!
//! - [`header`]: page number and LSN.
//! - [`checksum`]: checksum and end of a page, as InnoDB verifies them.
//! - [`fingerprint`]: fingerprint of a leaf page that is equal on primary and standby.

pub mod checksum;
pub mod fingerprint;
pub mod header;
