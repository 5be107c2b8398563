//! Interface of a policy.

/// Result of a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Read {
    Hit,
    /// A miss, after which the page was inserted.
    Inserted,
    /// A miss, and the page was not worth caching.
    Bypassed,
}

/// A replacement policy. Pages are indices below the number of pages it was created for.
pub trait Policy {
    fn read(&mut self, page: u32) -> Read;

    /// Whether the page was written to the cache device: because it was resident, or because it was inserted, which
    /// only OPT does.
    fn write(&mut self, page: u32) -> bool;

    /// Resident pages.
    fn resident(&self) -> usize;
}
