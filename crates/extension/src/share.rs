//! How the size of the cache is divided among its devices.

use crate::segment::LEAST_DEVICE_BYTES;

/// Shares that are less than equal are whole numbers of so many bytes: free space changes all the time.
const STEP: u64 = 16 << 20;

/// Room for a cache file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Which file system; those of the same one share its room.
    pub file_system: u64,
    /// Bytes, without what is to stay free.
    pub bytes: u64,
}

/// Divides `total` bytes: the same for each device, but for one with less room than that, which gets what it has, and the
/// others take the rest. A device whose room is not known counts as large enough. Where all of them together have not
/// enough, and where one has not even room for the least cache file, shares do not fit, and opening says which.
pub fn divide(total: u64, rooms: &[Option<Room>]) -> Vec<u64> {
    let equal = total / rooms.len().max(1) as u64;
    let room = |at: usize| {
        rooms[at].map_or(u64::MAX, |room| {
            let of_the_same = rooms
                .iter()
                .flatten()
                .filter(|other| other.file_system == room.file_system)
                .count() as u64;
            room.bytes / of_the_same
        })
    };
    let mut shares = vec![equal; rooms.len()];
    let mut open: Vec<usize> = (0..rooms.len()).collect();
    let mut left = total;
    loop {
        let Some(each) = left.checked_div(open.len() as u64) else {
            return vec![equal; rooms.len()];
        };
        let (small, large): (Vec<usize>, Vec<usize>) =
            open.iter().partition(|&&at| room(at) < each);
        if small.is_empty() {
            large.iter().for_each(|&at| shares[at] = each);
            return shares;
        }
        for at in small {
            shares[at] = (room(at) / STEP * STEP).max(LEAST_DEVICE_BYTES);
            left = left.saturating_sub(shares[at]);
        }
        open = large;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn rooms(sizes: &[u64]) -> Vec<Option<Room>> {
        let room = |(at, &bytes): (usize, &u64)| {
            Some(Room {
                file_system: at as u64,
                bytes,
            })
        };
        sizes.iter().enumerate().map(room).collect()
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
        let one = Some(Room {
            file_system: 7,
            bytes: 2 * GIB,
        });
        let other = Some(Room {
            file_system: 8,
            bytes: 50 * GIB,
        });
        assert_eq!(divide(9 * GIB, &[one, one, other]), [GIB, GIB, 7 * GIB]);
    }

    #[test]
    fn what_does_not_fit_at_all_is_left_as_it_is() {
        assert_eq!(divide(10 * GIB, &rooms(&[GIB, 2 * GIB])), [5 * GIB; 2]);
        // A full disk: its share is refused when it is opened, the other has all the rest.
        let shares = divide(4 * GIB, &rooms(&[0, 50 * GIB]));
        assert_eq!(shares, [LEAST_DEVICE_BYTES, 4 * GIB - LEAST_DEVICE_BYTES]);
    }
}
