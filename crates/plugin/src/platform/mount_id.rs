//! Identifies the mounted file system of a file, if its change stamps prove anything ([`coherence::stamp`]).
//!
//! Below `/sys/fs` the kernel has a directory for each mounted ext4, XFS and btrfs, from mount to unmount. Its inode number
//! is unique until the host reboots (kernfs: Linux, `fs/kernfs/dir.c`, `__kernfs_new_node`, `idr_alloc_cyclic`). Unlike
//! a mount id it is the same in all namespaces, so a service that restarts in a private namespace recognises the file
//! system.
//!
//! A subvolume of btrfs can be replaced while the file system stays mounted. Its UUID shows that.

use std::fs;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use coherence::os::FileSystem;

/// `f_type` of the file systems: ext2 to ext4, XFS, btrfs.
const EXT4: u64 = 0xef53;
const XFS: u64 = 0x5846_5342;
const BTRFS: u64 = 0x9123_683e;

/// The file system of a descriptor on this device; `None` where stamps prove nothing or the kernel gives no identity.
pub fn file_system(device: u64, fd: BorrowedFd<'_>) -> Option<FileSystem> {
    let system = rustix::fs::fstatfs(fd).ok()?;
    #[allow(
        clippy::unnecessary_cast,
        reason = "of another type on other processors"
    )]
    let kind = system.f_type as u64 & 0xffff_ffff;
    let (directory, subvolume) = match kind {
        EXT4 => (of_device(Path::new("/sys"), "ext4", device)?, 0),
        XFS => (of_device(Path::new("/sys"), "xfs", device)?, 0),
        BTRFS => {
            let name = PathBuf::from("/sys/fs/btrfs").join(btrfs::file_system(fd)?);
            (name, btrfs::subvolume(fd)?)
        }
        _ => return None,
    };
    let superblock = fs::metadata(directory).ok()?.ino();
    (superblock != 0).then_some(FileSystem {
        superblock,
        subvolume,
    })
}

/// `/sys/fs/<kind>/<device>`.
fn of_device(sys: &Path, kind: &str, device: u64) -> Option<PathBuf> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let link = fs::read_link(sys.join(format!("dev/block/{major}:{minor}"))).ok()?;
    Some(sys.join("fs").join(kind).join(link.file_name()?))
}

/// Two ioctls that need no privilege (Linux, `include/uapi/linux/btrfs.h`).
mod btrfs {
    use super::*;

    /// `BTRFS_IOC_FS_INFO`: `_IOR(0x94, 31, 1024 bytes)`; the UUID is at 16.
    const FS_INFO: u32 = 0x8400_941f;
    const FS_INFO_BYTES: usize = 1024;
    const FS_UUID: usize = 16;
    /// `BTRFS_IOC_GET_SUBVOL_INFO`: `_IOR(0x94, 60, 504 bytes)`. The UUID follows number (8), name (256), parent (8),
    /// directory (8), generation (8) and flags (8). Since Linux 4.18.
    const SUBVOLUME_INFO: u32 = 0x81f8_943c;
    const SUBVOLUME_INFO_BYTES: usize = 504;
    const SUBVOLUME_UUID: usize = 296;

    /// The name of the file system's directory below `/sys/fs/btrfs`.
    pub fn file_system(fd: BorrowedFd<'_>) -> Option<String> {
        let uuid = ask::<FS_INFO_BYTES>(fd, FS_INFO, FS_UUID)?.to_be_bytes();
        let digits = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let parts: [String; 5] = [
            digits(&uuid[..4]),
            digits(&uuid[4..6]),
            digits(&uuid[6..8]),
            digits(&uuid[8..10]),
            digits(&uuid[10..]),
        ];
        Some(parts.join("-"))
    }

    /// The UUID of the subvolume; 0 for the top level of an old file system, which has none and cannot be replaced.
    pub fn subvolume(fd: BorrowedFd<'_>) -> Option<u128> {
        ask::<SUBVOLUME_INFO_BYTES>(fd, SUBVOLUME_INFO, SUBVOLUME_UUID)
    }

    /// Returns 16 bytes of the answer to an ioctl.
    fn ask<const BYTES: usize>(fd: BorrowedFd<'_>, question: u32, at: usize) -> Option<u128> {
        // The kernel accesses the buffer in words.
        #[repr(align(8))]
        struct Answer<const BYTES: usize>([u8; BYTES]);
        let mut answer = Answer([0; BYTES]);
        // SAFETY: the ioctl number encodes the size of the answer, which limits the kernel's write.
        let result = unsafe {
            libc::ioctl(
                fd.as_raw_fd(),
                libc::c_ulong::from(question) as _,
                answer.0.as_mut_ptr(),
            )
        };
        let uuid = answer.0.get(at..at + 16)?.try_into().ok()?;
        // The kernel returns 1 for a subvolume that is not the top level (seen on Linux 6.18).
        (result >= 0).then(|| u128::from_be_bytes(uuid))
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn file_without_stamps_has_no_file_system() {
        let of = |path: &str| {
            let file = fs::File::open(path).unwrap();
            file_system(file.metadata().unwrap().dev(), file.as_fd())
        };
        let here = of(".");
        assert_eq!(here, of("."));
        assert_eq!(of("/proc/self/stat"), None);
        assert_eq!(of("/dev/shm"), None);
    }

    #[test]
    fn device_names_its_directory() {
        let sys = tempfile::tempdir().unwrap();
        let sys = sys.path();
        fs::create_dir_all(sys.join("dev/block")).unwrap();
        let link = "../../devices/pci/block/sdb/sdb1";
        std::os::unix::fs::symlink(link, sys.join("dev/block/8:17")).unwrap();
        let of = |major, minor| of_device(sys, "ext4", rustix::fs::makedev(major, minor));
        assert_eq!(of(8, 17), Some(sys.join("fs/ext4/sdb1")));
        assert_eq!(of(8, 18), None);
    }
}
