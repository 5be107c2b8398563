//! Tells one mount of a file system from the next.
//!
//! The kernel has a directory for each file system that is mounted, or for the device behind it, below `/sys`, from mount to
//! unmount. Its inode number is given once until the machine is started anew (kernfs: Linux, `fs/kernfs/dir.c`,
//! `__kernfs_new_node`, `idr_alloc_cyclic`). Other than the number of a mount it is the same in all namespaces, so that a service
//! that is started anew in one of its own knows the file system again.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::StatFs;

/// Whether the times of its files are of this machine's clock.
pub fn is_local(system: &StatFs) -> bool {
    #[allow(
        clippy::unnecessary_cast,
        reason = "of another type on other processors"
    )]
    let kind = system.f_type as u64 & 0xffff_ffff;
    LOCAL.contains(&kind)
}

/// `f_type` of file systems whose times are of this machine's clock: ext2 to ext4, XFS, Btrfs, F2FS, ZFS, bcachefs, overlay, tmpfs, FUSE.
const LOCAL: [u64; 9] = [
    0xef53,
    0x5846_5342,
    0x9123_683e,
    0xf2f5_2010,
    0x2fc1_2fc1,
    0xca45_1a4e,
    0x794c_7630,
    0x0102_1994,
    0x6573_5546,
];

/// The number of the mount of the file system with this device number; `None` if there is no such directory.
pub fn number(device: u64) -> Option<u64> {
    number_below(Path::new("/sys"), device)
}

fn number_below(sys: &Path, device: u64) -> Option<u64> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let directory = if major == 0 {
        // File systems without a block device, such as NFS: there is one for what writes back to each.
        sys.join(format!("class/bdi/{major}:{minor}"))
    } else {
        let link = fs::read_link(sys.join(format!("dev/block/{major}:{minor}"))).ok()?;
        of_block_device(sys, Path::new(link.file_name()?))?
    };
    Some(fs::metadata(directory).ok()?.ino())
}

/// Of ext4, XFS and others: `/sys/fs/<type>/<device>`.
fn of_block_device(sys: &Path, name: &Path) -> Option<PathBuf> {
    let types = fs::read_dir(sys.join("fs")).ok()?;
    let mut places = types.filter_map(|kind| Some(kind.ok()?.path().join(name)));
    places.find(|place| place.is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_has_a_number() {
        let device = |path: &str| fs::metadata(path).unwrap().dev();
        let here = number(device("."));
        assert_eq!(here, number(device(".")));
        // Of what has no directory nothing is said.
        assert_eq!(number(device("/proc")), None);
        assert_eq!(number(rustix::fs::makedev(4095, 1)), None);
    }

    #[test]
    fn places() {
        let sys = tempfile::tempdir().unwrap();
        let sys = sys.path();
        for directory in [
            "fs/ext4/sdb1",
            "fs/ext4/features",
            "class/bdi/0:47",
            "dev/block",
        ] {
            fs::create_dir_all(sys.join(directory)).unwrap();
        }
        let link = "../../devices/pci/block/sdb/sdb1";
        std::os::unix::fs::symlink(link, sys.join("dev/block/8:17")).unwrap();
        let inode = |path: &str| Some(fs::metadata(sys.join(path)).unwrap().ino());
        let of = |major, minor| number_below(sys, rustix::fs::makedev(major, minor));
        assert_eq!(of(8, 17), inode("fs/ext4/sdb1"));
        assert_eq!(of(0, 47), inode("class/bdi/0:47"));
        assert_eq!(of(8, 18), None);
        assert_eq!(of(0, 48), None);
    }
}
