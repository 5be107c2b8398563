//! What a policy is.

/// What became of a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Read {
    Hit,
    /// A miss, after which the page was inserted.
    Inserted,
    /// A miss, and the page was not worth a place.
    Bypassed,
}

/// A replacement policy. Pages are indices below the number of pages it was made for.
pub trait Policy {
    fn read(&mut self, page: u32) -> Read;

    /// Whether the page was written to the cache device: because it was resident, or was inserted, which only OPT does.
    fn write(&mut self, page: u32) -> bool;

    /// Resident pages.
    fn resident(&self) -> usize;
}
