//! Page groups with the policy of servers: limits hold, and preferred pages are admitted sooner and evicted later.

use super::*;
use crate::index::directory::tags::Tags;
use crate::index::directory::{Directory, Entry, Kind};
use crate::instance::Instance;
use crate::policy::MemoryPressure;
use crate::{Group, PolicyName};

const LENGTH: usize = 16384;

struct GroupFixture(Fixture);

impl GroupFixture {
    fn new() -> GroupFixture {
        GroupFixture(inline(|c| {
            c.policy = PolicyName::Density;
            c.instances = 2;
        }))
    }

    /// Reads a page of this group like a server. Returns whether it was a hit.
    fn ask(&self, group: Group, page: PageId) -> bool {
        let Fixture {
            extension,
            generations,
            ..
        } = &self.0;
        let mut buffer = vec![0; LENGTH];
        let hit = extension.read(page, group, &mut buffer) == ReadOutcome::Hit;
        if hit {
            assert!(buffer == content(page, 1, LENGTH), "{page:?}");
        } else {
            let ticket = generations.begin_read(page.file.0, page.page).unwrap();
            let bytes = content(page, 1, LENGTH);
            extension.insert(page, group, &bytes, ticket, Source::Read);
        }
        self.0.pump();
        hit
    }

    fn rounds(&self, rounds: u32, group: Group, file: u32, pages: u32) -> u32 {
        let requested = |_| {
            (0..pages)
                .filter(|&n| self.ask(group, page(file, n)))
                .count() as u32
        };
        (0..rounds).map(requested).last().unwrap_or(0)
    }

    fn limit(&self, group: Group, percent: u8) {
        let (mut used, mut limits) = ([false; Group::COUNT], [0; Group::COUNT]);
        used[group.number()] = true;
        used[Group::PREFERRED.number()] = true;
        limits[group.number()] = percent;
        self.0.extension.set_groups(&used, &limits).unwrap();
    }

    /// Cached pages of a group, and its limit.
    fn counted(&self, group: Group) -> (u64, u64) {
        self.0.extension.group_pages()[group.number()]
    }
}

#[test]
fn a_group_has_no_more_than_its_limit() {
    let limited = Group::limited(3).unwrap();
    let f = GroupFixture::new();
    f.limit(limited, 20);
    // All of it fits, and is read repeatedly.
    f.rounds(6, limited, 1, 300);
    let (pages, most) = f.counted(limited);
    assert!(pages <= most && pages > most * 8 / 10, "{pages} of {most}");
    assert!(f.0.extension.statistics().rejected_by_limit > 0);
    // Other pages fill the rest and compete with it.
    f.rounds(6, Group::NORMAL, 2, 300);
    f.rounds(3, limited, 1, 300);
    let (pages, most) = f.counted(limited);
    assert!(pages <= most, "{pages} of {most}");
    f.0.check_books();

    // Insertions of other pages enforce a lower limit.
    f.limit(limited, 5);
    for round in 0..40 {
        f.rounds(2, limited, 1, 60);
        f.rounds(2, Group::NORMAL, 3 + round, 60);
    }
    let (pages, most) = f.counted(limited);
    assert!(pages <= most, "{pages} of {most} under the lower limit");
    f.0.check_books();
}

#[test]
fn entries_of_before_the_rule_count_when_they_are_hit() {
    let limited = Group::limited(0).unwrap();
    let f = GroupFixture::new();
    f.rounds(2, Group::NORMAL, 1, 100);
    f.limit(limited, 90);
    assert_eq!(f.counted(limited).0, 0);
    let hits = f.rounds(1, limited, 1, 100);
    assert_eq!(f.counted(limited).0, u64::from(hits));
    assert!(hits > 90);
    // The group no longer exists, and no entry has a group.
    let memory = f.0.extension.statistics().memory_bytes;
    f.0.extension
        .set_groups(&[false; Group::COUNT], &[0; Group::COUNT])
        .unwrap();
    assert_eq!(f.counted(limited), (0, 0));
    assert!(f.0.extension.statistics().memory_bytes < memory);
    f.0.check_books();
}

#[test]
fn pages_that_are_preferred_no_more_go_like_others() {
    // Number of remaining pages that were read only while they were preferred, after reads of other pages.
    let left = |forgotten: bool| {
        let f = GroupFixture::new();
        f.limit(Group::limited(0).unwrap(), 50);
        f.rounds(6, Group::PREFERRED, 1, 400);
        let preferred = f.counted(Group::PREFERRED).0;
        assert!(preferred > 300, "{preferred}");
        if forgotten {
            let mut used = [false; Group::COUNT];
            used[Group::limited(0).unwrap().number()] = true;
            let limits = [0; Group::COUNT];
            f.0.extension.set_groups(&used, &limits).unwrap();
            assert_eq!(f.counted(Group::PREFERRED).0, 0);
        }
        f.rounds(8, Group::NORMAL, 2, 400);
        f.0.check_books();
        let pages = (0..400).filter(|&n| {
            let page = page(1, n);
            f.0.read(page, 1, LENGTH) == ReadOutcome::Hit
        });
        pages.count()
    };
    let (others, preferred) = (left(true), left(false));
    assert!(
        others + 20 < preferred,
        "{others} are left without their marks, {preferred} with them"
    );
}

/// The lock is released repeatedly.
#[test]
fn groups_are_forgotten_piece_by_piece() {
    let pages = 60_000;
    let policy = PolicyName::SecondChance
        .model(pages)
        .policy(pages, MemoryPressure::Normal);
    let instance = Instance::new(Directory::new(pages).unwrap(), policy.unwrap(), 0, 1);
    let (limited, most) = (Group::limited(0).unwrap(), [0; Group::COUNT]);
    let mut used = [false; Group::COUNT];
    used[Group::PREFERRED.number()] = true;
    let tags = Tags::new(instance.buckets()).unwrap();
    instance.change_groups(Some(tags), &used, most);
    for n in 0..1000 {
        let mut state = instance.lock();
        let key = state.directory.key(page(1, n));
        let entry = Entry {
            check: n,
            location: n,
            kind: Kind::raw(LENGTH),
            clock: 0,
        };
        if state.directory.find(key).is_none() {
            let group = if n % 2 == 0 {
                limited
            } else {
                Group::PREFERRED
            };
            state.directory.insert(key, entry, group);
        }
    }
    let before = (instance.group_pages(), instance.statistics().lock_accesses);
    instance.change_groups(None, &used, most);
    let after = (instance.group_pages(), instance.statistics().lock_accesses);
    assert!(before.0[limited.number()] > 400);
    assert_eq!(after.0[limited.number()], 0);
    assert_eq!(after.0[1], before.0[1]);
    let held = after.1 - before.1;
    assert!(held > 2 && held < 10, "{held} times");
}

#[test]
fn preferred_pages_get_in_sooner_and_go_later() {
    // Two files with equal reads, of which only about one fits.
    let hits = |preferred: Group| {
        let f = GroupFixture::new();
        f.limit(Group::limited(0).unwrap(), 50);
        let mut hits = [0, 0];
        for _ in 0..12 {
            hits = [
                f.rounds(1, preferred, 1, 400),
                f.rounds(1, Group::NORMAL, 2, 400),
            ];
        }
        f.0.check_books();
        hits
    };
    let [alike, _] = hits(Group::NORMAL);
    let [preferred, other] = hits(Group::PREFERRED);
    assert!(
        preferred > alike && preferred > other,
        "{preferred} of 400 preferred pages were hits and {other} of the others, {alike} without the rule"
    );
}
