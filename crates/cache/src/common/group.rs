//! Page groups: how the table rules classify the file of a page.
//!
//! The caller passes the group of each page ([`Group::NORMAL`] if there are no rules). Pages of the group
//! [`PREFERRED`](Group::PREFERRED) compete with a bonus. Each other group may take a limited part of the cache.
//! Directories track the groups of their entries ([`Tags`](crate::index::directory::tags::Tags)) only while rules need it.

/// A group. Its number is below [`Group::COUNT`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Group(u8);

/// Maximum percentage of the cache per group number; 0: the group is unused, or has no limit.
pub type Limits = [u8; Group::COUNT];

impl Group {
    /// Group numbers have four bits.
    pub const COUNT: usize = 16;
    /// As if there were no groups.
    pub const NORMAL: Group = Group(0);
    /// Admitted sooner, and evicted later.
    pub const PREFERRED: Group = Group(1);
    const FIRST_LIMITED: u8 = 2;
    /// Groups with limits.
    pub const LIMITED: usize = Self::COUNT - Self::FIRST_LIMITED as usize;

    /// A group with a limit; `None` from [`LIMITED`](Self::LIMITED) on.
    pub const fn limited(number: usize) -> Option<Group> {
        if number < Self::LIMITED {
            Some(Group(Self::FIRST_LIMITED + number as u8))
        } else {
            None
        }
    }

    /// Whether its limit is lower than the cache.
    pub(crate) const fn is_limited(self) -> bool {
        self.0 >= Self::FIRST_LIMITED
    }

    pub(crate) const fn from_bits(bits: u32) -> Group {
        Group(bits as u8 % Self::COUNT as u8)
    }

    /// The group with this number, modulo [`COUNT`](Self::COUNT).
    pub const fn of_number(number: usize) -> Group {
        Group((number % Self::COUNT) as u8)
    }

    pub const fn number(self) -> usize {
        self.0 as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_have_numbers_of_their_own() {
        let limited: Vec<Group> = (0..).map_while(Group::limited).collect();
        assert_eq!(limited.len(), Group::LIMITED);
        let numbers: Vec<usize> = limited.iter().map(|group| group.number()).collect();
        assert_eq!(numbers, (2..Group::COUNT).collect::<Vec<_>>());
    }
}
