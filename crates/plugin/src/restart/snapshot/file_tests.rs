use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

const PARTS: [usize; 2] = [BLOCK + 5000, 3 * BLOCK];

struct Place {
    folder: tempfile::TempDir,
    parts: [File; 2],
    head: Head,
}

impl Place {
    fn new() -> Place {
        let folder = tempfile::tempdir().unwrap();
        let parts = PARTS.map(|length| {
            let file = tempfile::tempfile().unwrap();
            let bytes: Vec<u8> = (0..length).map(|at| (at * 7 % 251) as u8).collect();
            file.write_all_at(&bytes, 0).unwrap();
            file
        });
        let head = Head {
            owner: [7; 16],
            boot: 1 << 90,
            data_device: 5,
            fence: [1, 2, 3, 4],
            redo: "/var/lib/mysql".into(),
            token: 5 << 70,
            session: 99,
            parts: PARTS.map(|length| length as u64),
            number: 1234,
        };
        Place {
            folder,
            parts,
            head,
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("bpe-0.image")
    }

    fn write(&self) -> Vec<u8> {
        let length = self.try_to_write().unwrap();
        let bytes = fs::read(self.path()).unwrap();
        assert_eq!(bytes.len() as u64, length);
        assert_eq!(self.names(), ["bpe-0.image"]);
        bytes
    }

    fn try_to_write(&self) -> Result<u64, String> {
        write(&self.path(), &self.head, self.parts.each_ref())
    }

    fn names(&self) -> Vec<String> {
        let names = fs::read_dir(self.folder.path()).unwrap();
        names
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    /// Reads all parts.
    fn read(&self) -> Result<[Vec<u8>; 2], Refused> {
        let snapshot = Snapshot::open(&self.path())?;
        assert_eq!(*snapshot.head(), self.head);
        let mut parts = PARTS.map(|length| vec![0; length]);
        snapshot.read(|part, at, block| {
            parts[part][at as usize..][..block.len()].copy_from_slice(block);
            Ok(())
        })?;
        Ok(parts)
    }

    /// Reads these bytes as a snapshot.
    fn read_as(&self, bytes: &[u8]) -> Result<[Vec<u8>; 2], Refused> {
        let _ = fs::remove_file(self.path());
        let file = make_own(&self.path()).unwrap();
        file.write_all_at(bytes, 0).unwrap();
        self.read()
    }
}

#[test]
fn what_is_written_is_read_once() {
    let place = Place::new();
    place.write();
    let parts = place.read().unwrap();
    for (part, file) in parts.iter().zip(&place.parts) {
        let mut bytes = vec![0; part.len()];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(*part, bytes);
    }
    Snapshot::open(&place.path()).unwrap().discard().unwrap();
    assert!(matches!(place.read(), Err(Refused::Absent)));
    discard(&place.path()).unwrap();
    // A second snapshot replaces the first, and an unfinished one.
    place.write();
    fs::write(unfinished(&place.path()), "x").unwrap();
    fs::set_permissions(unfinished(&place.path()), fs::Permissions::from_mode(0o600)).unwrap();
    place.write();
    place.read().unwrap();
}

#[test]
fn one_that_cannot_be_removed_is_invalid_all_the_same() {
    let place = Place::new();
    place.write();
    let snapshot = Snapshot::open(&place.path()).unwrap();
    let elsewhere = place.folder.path().join("elsewhere");
    fs::rename(place.path(), &elsewhere).unwrap();
    // A new snapshot under the same name stays.
    place.try_to_write().unwrap();
    snapshot.discard().unwrap();
    place.read().unwrap();
    fs::rename(elsewhere, place.path()).unwrap();
    assert!(matches!(place.read(), Err(Refused::Useless(_))));
}

#[test]
fn one_that_is_cut_off_anywhere_is_refused() {
    let place = Place::new();
    let bytes = place.write();
    let (table, end) = place.head.end();
    let ends = [
        0,
        1,
        7,
        8,
        16,
        127,
        128,
        4095,
        4096,
        table,
        table + 3,
        end,
        end + 8,
    ];
    let blocks = (0..bytes.len() as u64).step_by(BLOCK / 2);
    let late = bytes.len() as u64 - TRAILER..bytes.len() as u64;
    for length in ends.into_iter().chain(blocks).chain(late) {
        let read = place.read_as(&bytes[..length as usize]);
        assert!(matches!(read, Err(Refused::Useless(_))), "{length}");
    }
    let longer = [&bytes[..], &[0]].concat();
    assert!(matches!(place.read_as(&longer), Err(Refused::Useless(_))));
}

#[test]
fn one_bit_is_enough() {
    let place = Place::new();
    let bytes = place.write();
    let (table, _) = place.head.end();
    let head = (0..WORDS * 8).chain([WORDS * 8, HEAD as usize - 1]);
    let blocks = (HEAD as usize..table as usize).step_by(BLOCK / 3);
    let end = table as usize..bytes.len();
    for (at, bit) in head.chain(blocks).chain(end).zip((0..8).cycle()) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << bit;
        assert!(place.read_as(&damaged).is_err(), "byte {at}, bit {bit}");
    }
    // Intact blocks at a wrong offset.
    let mut moved = bytes.clone();
    let second = HEAD as usize + PARTS[0];
    moved.copy_within(second..second + BLOCK, second + BLOCK);
    assert!(place.read_as(&moved).is_err());
    place.read_as(&bytes).unwrap();
}

#[test]
fn what_is_not_ours_is_refused_and_left_alone() {
    let place = Place::new();
    let bytes = place.write();
    let other = place.folder.path().join("other");
    let refused = |what: &str| {
        assert!(matches!(place.read(), Err(Refused::Failed(_))), "{what}");
        assert!(discard(&place.path()).is_err(), "{what}");
        assert!(place.try_to_write().is_err(), "{what}");
        assert!(fs::symlink_metadata(place.path()).is_ok(), "{what}");
    };
    fs::rename(place.path(), &other).unwrap();
    symlink(&other, place.path()).unwrap();
    refused("a link");
    fs::remove_file(place.path()).unwrap();
    fs::hard_link(&other, place.path()).unwrap();
    refused("a second name");
    fs::remove_file(place.path()).unwrap();
    fs::create_dir(place.path()).unwrap();
    refused("a directory");
    fs::remove_dir(place.path()).unwrap();
    fs::rename(&other, place.path()).unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o644)).unwrap();
    refused("readable by all");
    fs::remove_file(place.path()).unwrap();
    assert!(
        place
            .read_as(b"a text that somebody has written, and needs")
            .is_err()
    );
    let mut foreign = bytes.clone();
    foreign[..8].copy_from_slice(b"SOMEBODY");
    assert!(place.read_as(&foreign).is_err());
    refused("a file of somebody");
    assert_eq!(fs::read(place.path()).unwrap(), foreign);
    // The temporary name.
    fs::remove_file(place.path()).unwrap();
    symlink(&other, unfinished(&place.path())).unwrap();
    assert!(place.try_to_write().is_err());
    assert!(!place.path().exists() && !other.exists());
}

#[test]
fn another_version_is_of_no_use() {
    let place = Place::new();
    let mut bytes = place.write();
    bytes[8..16].copy_from_slice(&(VERSION + 1).to_ne_bytes());
    let read = place.read_as(&bytes);
    assert!(matches!(read, Err(Refused::Useless(why)) if why.contains("version")));
}

#[test]
fn what_changes_meanwhile_is_not_left() {
    let place = Place::new();
    let other = Place::new();
    // The parts become shorter.
    place.parts[1].set_len(BLOCK as u64).unwrap();
    assert!(place.try_to_write().is_err());
    assert!(place.names().is_empty());
    let mut blocks = 0;
    let table = other.head.checks(other.parts.each_ref(), |_| {
        blocks += 1;
        Ok(())
    });
    other.parts[0].write_all_at(&[1], 77).unwrap();
    let after = other.head.checks(other.parts.each_ref(), |_| Ok(()));
    assert_ne!(table.unwrap(), after.unwrap());
    assert_eq!(blocks, other.head.blocks());
}
