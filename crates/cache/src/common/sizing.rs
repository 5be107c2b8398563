//! Distribution of the cache size among its devices.

/// Unequal shares are multiples of this many bytes: free space changes all the time.
const STEP: u64 = 16 << 20;

/// A device with less room than this part of an equal share is full for now, or is not the intended disk, such as an
/// unmounted file system. Shares last as long as the cache, so it does not get a small one.
const MIN_PART: u64 = 4;

/// Room for a cache file, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Identity of the file system; devices on the same one share its room.
    pub file_system: u64,
    /// Bytes that the server's user may still allocate there.
    pub free: u64,
    /// Bytes of it that must stay free.
    pub reserve: u64,
    /// Bytes that the existing cache file releases.
    pub own: u64,
}

/// Divides `total` bytes equally among the devices. A device with less room gets all its room, and the others take the rest.
/// A device whose room is unknown or far too small counts as large enough: opening it then fails with a reason, and is
/// retried. If the devices together lack the room, all shares are equal.
pub fn divide(total: u64, rooms: &[Option<Room>]) -> Vec<u64> {
    let equal = total / rooms.len().max(1) as u64;
    let rooms: Vec<u64> = rooms.iter().map(|room| of_one(rooms, *room)).collect();
    let mut shares = vec![equal; rooms.len()];
    if rooms
        .iter()
        .fold(0u64, |sum, room| sum.saturating_add(*room))
        < total
    {
        return shares;
    }
    let is_small = |at: usize, each: u64| rooms[at] < each && rooms[at] >= equal / MIN_PART;
    let mut open: Vec<usize> = (0..rooms.len()).collect();
    let mut left = total;
    while let Some(each) = left.checked_div(open.len() as u64) {
        let (small, large): (Vec<usize>, Vec<usize>) =
            open.iter().partition(|&&at| is_small(at, each));
        if small.is_empty() {
            large.iter().for_each(|&at| shares[at] = each);
            return shares;
        }
        for at in small {
            shares[at] = rooms[at] / STEP * STEP;
            left = left.saturating_sub(shares[at]);
        }
        open = large;
    }
    vec![equal; rooms.len()]
}

/// This percentage of the room of each device, in bytes; `None` for one whose room is unknown.
pub fn part(percent: u64, rooms: &[Option<Room>]) -> Vec<Option<u64>> {
    let part = |room: Room| {
        let bytes = u128::from(of_one(rooms, Some(room))) * u128::from(percent) / 100;
        u64::try_from(bytes).unwrap_or(u64::MAX) / STEP * STEP
    };
    rooms.iter().map(|room| room.map(part)).collect()
}

/// The room of one device among those of its file system, in bytes.
fn of_one(rooms: &[Option<Room>], room: Option<Room>) -> u64 {
    let Some(room) = room else {
        return u64::MAX;
    };
    let same = || {
        let all = rooms.iter().flatten();
        all.filter(|other| other.file_system == room.file_system)
    };
    let own: u64 = same().map(|room| room.own).sum();
    room.free.saturating_add(own).saturating_sub(room.reserve) / same().count().max(1) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn rooms(sizes: &[u64]) -> Vec<Option<Room>> {
        let room = |(at, &bytes): (usize, &u64)| {
            Some(Room {
                file_system: at as u64,
                free: bytes + 5,
                reserve: 5,
                own: 0,
            })
        };
        sizes.iter().enumerate().map(room).collect()
    }

    #[test]
    fn a_part_is_of_each_room() {
        let mut known = rooms(&[2 * GIB, 90 * GIB]);
        known.push(None);
        assert_eq!(part(50, &known), [Some(GIB), Some(45 * GIB), None]);
        // Existing files count as room, because they are released. Two devices on one file system share it.
        let shared = Some(Room {
            file_system: 1,
            free: GIB,
            reserve: GIB,
            own: GIB,
        });
        assert_eq!(part(100, &[shared, shared]), [Some(GIB), Some(GIB)]);
        assert_eq!(
            part(100, &rooms(&[u64::MAX - 5])),
            [Some(u64::MAX - 5 - (u64::MAX - 5) % STEP)]
        );
    }

    #[test]
    fn equal_where_there_is_room() {
        assert_eq!(divide(300, &[None, None, None]), [100, 100, 100]);
        assert_eq!(divide(6 * GIB, &rooms(&[3 * GIB, 90 * GIB])), [3 * GIB; 2]);
        assert_eq!(divide(GIB, &[]), [0u64; 0]);
    }

    #[test]
    fn small_devices_get_what_they_have_and_the_others_the_rest() {
        let shares = divide(12 * GIB, &rooms(&[GIB, 100 * GIB, 4 * GIB + 1]));
        assert_eq!(shares, [GIB, 7 * GIB, 4 * GIB]);
        let shares = divide(6 * GIB, &[rooms(&[GIB])[0], None]);
        assert_eq!(shares, [GIB, 5 * GIB]);
    }

    #[test]
    fn two_paths_on_one_file_system_share_its_room() {
        let one = |own| {
            Some(Room {
                file_system: 7,
                free: GIB,
                reserve: 0,
                own,
            })
        };
        let other = rooms(&[50 * GIB])[0];
        // One of them has a file there, which makes room for both.
        let shares = divide(9 * GIB, &[one(GIB), one(0), other]);
        assert_eq!(shares, [GIB, GIB, 7 * GIB]);
    }

    #[test]
    fn what_does_not_fit_at_all_is_left_as_it_is() {
        assert_eq!(divide(10 * GIB, &rooms(&[GIB, 2 * GIB])), [5 * GIB; 2]);
        // Full for now: opening it fails, and it gets its share when it is retried.
        assert_eq!(divide(4 * GIB, &rooms(&[0, 50 * GIB])), [2 * GIB; 2]);
        assert_eq!(divide(8 * GIB, &rooms(&[GIB - 1, 50 * GIB])), [4 * GIB; 2]);
    }
}
