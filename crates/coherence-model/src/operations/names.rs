//! Changes of names: create, drop, rename, replace, close and reopen.

use std::ffi::{CString, c_int};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::pages::{read_page, write_pages};
use super::ranges::grow_by;
use super::{alone_with_names, close, count_identity, errno, let_time_pass};
use crate::calls;
use crate::coverage::{Reached, reached};
use crate::random::{below, one_in};
use crate::world::{Alone, File, Slot, world};

const MODE: u32 = 0o640;

/// Opens a file for the server, in one of its ways.
pub fn open(file: &File, path: &CString, flags: c_int) {
    let flags = flags | libc::O_RDWR | libc::O_CLOEXEC;
    let direct = file.page_size() >= 4096 && !one_in(4);
    let with = |flags: c_int| {
        // SAFETY: our own path.
        unsafe {
            match below(5) {
                0 => calls::openat64(libc::AT_FDCWD, path.as_ptr(), flags, MODE),
                1 if flags & libc::O_CREAT == 0 => calls::open64_checked(path.as_ptr(), flags),
                _ => calls::open64(path.as_ptr(), flags, MODE),
            }
        }
    };
    let at_once = direct && one_in(2);
    let mut fd = with(if at_once {
        flags | libc::O_DIRECT
    } else {
        flags
    });
    let mut is_direct = at_once && fd >= 0;
    if fd < 0 && at_once {
        fd = with(flags & !libc::O_EXCL); // a file system without direct I/O, which has made the file
    }
    if fd < 0 {
        return world().violated(
            Some(file),
            &format!("{path:?} could not be opened: errno {}", errno()),
        );
    }
    if direct && !at_once {
        // SAFETY: our own descriptor.
        is_direct = unsafe { libc::fcntl(fd, libc::F_SETFL, libc::O_DIRECT) } == 0;
    }
    file.direct.store(is_direct, Ordering::SeqCst);
    file.fd.store(fd, Ordering::SeqCst);
}

fn inode(file: &File) -> u64 {
    coherence::os::Os::stat(&bpe_plugin::platform::linux::Linux, file.fd())
        .map_or(0, |stat| stat.inode.1)
}

/// Creates a file under this path and fills it. Its gate is still shut.
pub fn create(slot: &Slot, path: &CString) -> Arc<File> {
    let file = File::new(slot);
    open(&file, path, libc::O_CREAT | libc::O_EXCL);
    if world().stopping() {
        return file;
    }
    if world().dropped.lock().remove(&inode(&file)) {
        reached(Reached::SameInode);
    }
    grow_by(
        &file,
        file.most_bytes / 2 + below(file.most_bytes / 4) / file.page_size() * file.page_size(),
    );
    // Unwritten pages stay zero.
    let mut page = 0;
    while page < file.pages() && !world().stopping() {
        let count = (1 + below(16)).min(file.pages() - page);
        if !one_in(8) {
            write_pages(&file, page * file.page_size(), count * file.page_size());
        }
        page += count;
    }
    world().note(&file, format_args!("created with {} pages", file.pages()));
    file
}

/// Creates the files of all slots.
pub fn create_all() {
    for slot in &world().slots {
        let file = create(slot, &slot.path());
        file.open_gate();
        slot.put(file);
    }
}

pub fn unlink(path: &CString) -> c_int {
    // SAFETY: our own path.
    unsafe {
        match below(4) {
            0 => calls::unlinkat(libc::AT_FDCWD, path.as_ptr(), 0),
            1 => calls::remove(path.as_ptr()),
            _ => calls::unlink(path.as_ptr()),
        }
    }
}

fn expect_success(file: &File, what: &str, result: c_int) {
    if result != 0 {
        world().violated(Some(file), &format!("{what} failed with errno {}", errno()));
    }
}

/// Removes the file's name by `act`. The file's gate is shut. The file is closed before or after, possibly only after the
/// harvest of its last requests.
pub fn lose(file: Arc<File>, act: impl FnOnce(&File)) {
    world().dropped.lock().insert(inode(&file));
    if one_in(3) && file.quiet() {
        close(&file);
        world().note(&file, format_args!("closed, then without a name"));
        act(&file);
        return;
    }
    let busy = file.users() > 0;
    act(&file);
    world().note(
        &file,
        format_args!("without a name, {} requests under way", file.users()),
    );
    if busy {
        reached(Reached::DropsUnderIo);
    }
    world().closing.lock().push(file);
}

/// Opens a second descriptor and reads the header.
pub fn probe() {
    let slot = world().slot();
    let Some(_ddl) = slot.ddl() else {
        return;
    };
    let Some(user) = slot.file().enter() else {
        return;
    };
    let file = &user.0;
    let Some(_pages) = file.lock(0, 1) else {
        return;
    };
    reached(Reached::Probes);
    // SAFETY: our own path and buffer.
    unsafe {
        let fd = calls::open64(slot.path().as_ptr(), libc::O_RDONLY, 0);
        let mut head = [0u8; 1024];
        let got = calls::pread64(fd, head.as_mut_ptr().cast(), head.len(), 0);
        if got == head.len() as isize {
            file.check("read of the header by a second descriptor", 0, &head);
        }
        expect_success(file, "closing a second descriptor", calls::close(fd));
    }
}

/// Writes the file under a name that is not a data file's.
pub fn write_by_second_name() {
    let slot = world().slot();
    let Some(_ddl) = slot.ddl() else {
        return;
    };
    let Some(user) = slot.file().enter() else {
        return;
    };
    let file = &user.0;
    let Some(pages) = file.some_pages(2) else {
        return;
    };
    reached(Reached::SecondNames);
    let name = world().path(&format!("{}-copy", slot.name));
    let (offset, length) = (pages.offset(), pages.bytes());
    // SAFETY: our own paths.
    unsafe {
        if libc::link(slot.path().as_ptr(), name.as_ptr()) != 0 {
            return world().violated(Some(file), &format!("link failed with errno {}", errno()));
        }
        // Reads before and after, so that the pages are probably cached when they are written.
        read_each(file, offset, length, "read before a write by a second name");
        let fd = calls::open64(name.as_ptr(), libc::O_RDWR, 0);
        let mut buffer = super::pages::new_contents(file, offset, length);
        super::write_rest(file, fd, buffer.bytes(), offset, 0);
        world().note(
            file,
            format_args!("wrote {length} at {offset} by a second name"),
        );
        expect_success(file, "closing a second name", calls::close(fd));
        expect_success(file, "unlinking a second name", unlink(&name));
    }
    read_each(file, offset, length, "read after a write by a second name");
}

fn read_each(file: &File, offset: usize, length: usize, how: &str) {
    for page in (offset..offset + length).step_by(file.page_size()) {
        read_page(file, page, file.page_size(), how);
    }
}

pub fn rename_path(file: &File, from: &CString, to: &CString) {
    // SAFETY: our own paths.
    let result = unsafe {
        match below(3) {
            0 => calls::renameat(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr()),
            1 => calls::renameat2(
                libc::AT_FDCWD,
                from.as_ptr(),
                libc::AT_FDCWD,
                to.as_ptr(),
                0,
            ),
            _ => calls::rename(from.as_ptr(), to.as_ptr()),
        }
    };
    expect_success(file, "renaming", result);
}

/// Renames a file and restores its name, while the file is in use.
pub fn rename() {
    let slot = world().slot();
    let Some(_ddl) = slot.ddl() else {
        return;
    };
    reached(Reached::Renames);
    let (file, other) = (
        slot.file(),
        world().path(&format!("#sql2-{}.ibd", slot.name)),
    );
    rename_path(&file, &slot.path(), &other);
    world().note(&file, format_args!("renamed"));
    rename_path(&file, &other, &slot.path());
    world().note(&file, format_args!("renamed back"));
}

/// Exchanges the names of two files, while both are in use.
pub fn exchange() {
    let (one, other) = (world().slot(), world().slot());
    if one.shape.page_size != other.shape.page_size || one.shape.base != other.shape.base {
        return;
    }
    let (Some(_ddl), Some(_second)) = (one.ddl(), other.ddl()) else {
        return;
    };
    let (a, b) = (one.file(), other.file());
    // SAFETY: our own paths.
    let result = unsafe {
        calls::renameat2(
            libc::AT_FDCWD,
            one.path().as_ptr(),
            libc::AT_FDCWD,
            other.path().as_ptr(),
            libc::RENAME_EXCHANGE,
        )
    };
    if result == 0 {
        one.put(b);
        other.put(a);
    }
    reached(Reached::Exchanges);
}

/// Replaces a file by a new one under the same name.
pub fn replace() {
    let slot = world().slot();
    let Some(_ddl) = slot.ddl() else {
        return;
    };
    reached(Reached::Replacements);
    let temporary = world().path(&format!("#sql-alter-{}.ibd", slot.name));
    let new = create(slot, &temporary);
    let old = slot.file();
    if !old.shut() {
        return world().violated(Some(&old), "two changes of a file at once");
    }
    lose(old, |old| rename_path(old, &temporary, &slot.path()));
    new.open_gate();
    slot.put(new);
}

/// Recreates a file as TRUNCATE TABLE does.
pub fn truncate_table() {
    let slot = world().slot();
    let Some(_ddl) = slot.ddl() else {
        return;
    };
    reached(Reached::TruncatedTables);
    let old = slot.file();
    if !old.shut() {
        return world().violated(Some(&old), "two changes of a file at once");
    }
    let temporary = world().path(&format!("#sql-ib-{}.ibd", slot.name));
    rename_path(&old, &slot.path(), &temporary);
    let new = create(slot, &slot.path());
    new.open_gate();
    slot.put(new);
    lose(old, |old| {
        expect_success(old, "unlinking", unlink(&temporary))
    });
}

/// Recreates a file as DROP TABLE and CREATE TABLE do.
pub fn drop_and_create() {
    let slot = world().slot();
    let Some(_ddl) = slot.ddl() else {
        return;
    };
    reached(Reached::Drops);
    let old = slot.file();
    if !old.shut() {
        return world().violated(Some(&old), "two changes of a file at once");
    }
    lose(old, |old| {
        expect_success(old, "unlinking", unlink(&slot.path()))
    });
    if one_in(2) {
        super::close_what_is_quiet();
    }
    let new = create(slot, &slot.path());
    new.open_gate();
    slot.put(new);
}

/// Closes and reopens a file, as under the limit on open files.
pub fn reopen() {
    alone_with_names(|slot, Alone(ref file)| {
        reached(Reached::Reopened);
        let before = file.identity();
        let_time_pass();
        close(file);
        world().note(file, format_args!("closed"));
        let_time_pass();
        if one_in(8) {
            let other = world().path(&format!("#closed-{}", slot.name));
            rename_path(file, &slot.path(), &other);
            rename_path(file, &other, &slot.path());
        }
        open(file, &slot.path(), 0);
        world().note(file, format_args!("opened again"));
        if before.is_some() && before == file.identity() {
            reached(Reached::ReopenedKept);
        }
        count_identity(before, file);
        if one_in(2) && file.pages() > 0 {
            read_page(file, 0, file.page_size(), "read after opening");
        }
    });
}

/// Size of the file on disk, bytes.
pub fn real_size(path: &CString) -> usize {
    let path = path.to_str().unwrap_or_default();
    std::fs::metadata(path).map_or(0, |meta| meta.size() as usize)
}
