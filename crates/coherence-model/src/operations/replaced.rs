//! Changes of contents by other ways: other programs while the file is closed, calls without an offset, an open that empties
//! the file, an import.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use super::names::{create, lose, open, real_size};
use super::pages::{new_contents, read_page, write_pages};
use super::{alone_with_names, close, count_identity, errno, let_time_pass};
use crate::calls;
use crate::content::{SECTOR, Stamp};
use crate::coverage::{Reached, reached};
use crate::random::{below, one_in};
use crate::world::{Alone, Buffer, File, Slot, world};

fn as_path(path: &CString) -> &Path {
    Path::new(std::ffi::OsStr::from_bytes(path.as_bytes()))
}

/// Writes new contents into some pages of a closed file, as another program.
fn write_outside(file: &File, path: &CString, first: usize, count: usize) -> std::io::Result<()> {
    let (offset, length) = (first * file.page_size(), count * file.page_size());
    let mut buffer = new_contents(file, offset, length);
    let outside = std::fs::OpenOptions::new()
        .write(true)
        .open(as_path(path))?;
    outside.write_all_at(buffer.bytes(), offset as u64)
}

/// When other programs change a file between the server's close and reopen.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Others {
    /// At any time.
    AtAnyTime,
    /// Sometimes immediately after a close that follows a write, and the server dies at once.
    AndDie,
}

/// A value of [`Others`].
pub static OTHERS: AtomicU8 = AtomicU8::new(Others::AtAnyTime as u8);

/// Changes the file as another program, while the server has it closed.
pub fn change_outside() {
    alone_with_names(|slot, Alone(ref file)| {
        reached(Reached::ReplacedOutside);
        let path = slot.path();
        let before = file.identity();
        let others = OTHERS.load(Ordering::Relaxed);
        let dies = others == Others::AndDie as u8 && one_in(3);
        let pages = file.pages();
        if dies {
            write_pages(file, below(pages) * file.page_size(), file.page_size());
        }
        close(file);
        world().take_number();
        world().note(file, format_args!("closed, to be changed outside"));
        if !dies {
            let_time_pass();
        }
        let result = match below(4) {
            // Some pages, in place.
            0 => {
                let first = below(pages);
                write_outside(file, &path, first, (1 + below(4)).min(pages - first))
            }
            // Copied over: same inode, same size; times restored, as `cp -p` does.
            1 => copied_over(file, &path),
            // Truncated and written again.
            2 => std::fs::OpenOptions::new()
                .write(true)
                .open(as_path(&path))
                .and_then(|outside| {
                    outside
                        .set_len(0)
                        .and_then(|()| outside.set_len(file.size() as u64))
                })
                .map(|()| file.expect(0, file.most_bytes, crate::content::ZERO))
                .and_then(|()| write_outside(file, &path, pages / 3, pages / 3)),
            // Another inode under the name, as after restoring a backup.
            _ => restored(slot, file),
        };
        if let Err(error) = result {
            world().violated(
                Some(file),
                &format!("changing the file outside failed: {error}"),
            );
        }
        if dies {
            world().note(file, format_args!("changed outside, and dies"));
            // SAFETY: plain arguments.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        }
        open(file, &path, 0);
        world().note(file, format_args!("changed outside and opened again"));
        count_identity(before, file);
        for _ in 0..4 {
            read_page(
                file,
                below(pages) * file.page_size(),
                file.page_size(),
                "read after a change outside",
            );
        }
    });
}

fn copied_over(file: &File, path: &CString) -> std::io::Result<()> {
    let times = std::fs::metadata(as_path(path))?;
    let times = std::fs::FileTimes::new()
        .set_accessed(times.accessed()?)
        .set_modified(times.modified()?);
    write_outside(file, path, 0, file.pages())?;
    std::fs::OpenOptions::new()
        .write(true)
        .open(as_path(path))?
        .set_times(times)
}

/// The files of a slot are named after the slot, not after the file: two files that were created for one slot may be in two
/// slots by now.
fn restored(slot: &Slot, file: &File) -> std::io::Result<()> {
    let backup = world().path(&format!("{}-backup", slot.name));
    std::fs::write(as_path(&backup), [])?;
    std::fs::OpenOptions::new()
        .write(true)
        .open(as_path(&backup))?
        .set_len(file.size() as u64)?;
    file.expect(0, file.most_bytes, crate::content::ZERO);
    write_outside(file, &backup, 0, file.pages())?;
    std::fs::rename(as_path(&backup), as_path(&slot.path()))
}

/// Writes without an offset, as other plugins do: the file must not be tracked until it is reopened.
pub fn write_unfollowed() {
    alone_with_names(|slot, Alone(ref file)| {
        reached(Reached::Unfollowed);
        let page = file.page_size();
        let first = below(file.pages());
        let (offset, fd) = (first * page, file.fd());
        let before = file.identity();
        let mut buffer = new_contents(file, offset, page);
        let vector = libc::iovec {
            iov_base: buffer.at(0),
            iov_len: page,
        };
        let source = world().folder.join(format!("{}-source", slot.name));
        if let Err(error) = std::fs::write(&source, buffer.bytes()) {
            return world().violated(
                Some(file),
                &format!("a source could not be written: {error}"),
            );
        }
        let source = CString::new(source.as_os_str().as_bytes()).unwrap_or_default();
        // SAFETY: our own descriptors and buffers.
        let put = unsafe {
            libc::lseek64(fd, offset as i64, libc::SEEK_SET);
            let from = libc::open64(source.as_ptr(), libc::O_RDONLY);
            let put = match below(6) {
                0 => calls::write(fd, buffer.at(0), page),
                1 => calls::writev(fd, &raw const vector, 1),
                2 => calls::pwritev2(fd, &raw const vector, 1, offset as i64, 0),
                3 => calls::sendfile64(fd, from, std::ptr::null_mut(), page),
                4 => spliced(fd, buffer.bytes()),
                _ => {
                    let mut at = offset as i64;
                    calls::copy_file_range(from, std::ptr::null_mut(), fd, &raw mut at, page, 0)
                }
            };
            libc::close(from);
            put
        };
        world().note(
            file,
            format_args!("written without an offset at {offset}: {put}"),
        );
        if put != page as isize {
            // Not every file system supports all of these calls: write in the ordinary way.
            super::write_rest(file, fd, buffer.bytes(), offset, 0);
        }
        for _ in 0..2 {
            read_page(file, offset, page, "read after a write without an offset");
        }
        count_identity(before, file);
        if one_in(2) {
            close(file);
            open(file, &slot.path(), 0);
            world().note(file, format_args!("opened again"));
            read_page(file, offset, page, "read after opening");
        }
    });
}

/// Writes bytes at the file's own offset through a pipe, which has room for them.
fn spliced(fd: i32, bytes: &[u8]) -> isize {
    let mut ends = [-1; 2];
    // SAFETY: our own descriptors and memory.
    unsafe {
        if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) != 0 {
            return -1;
        }
        let filled = libc::write(ends[1], bytes.as_ptr().cast(), bytes.len());
        let nowhere = std::ptr::null_mut;
        let put = match usize::try_from(filled) {
            Ok(filled) => calls::splice(ends[0], nowhere(), fd, nowhere(), filled, 0),
            Err(_) => -1,
        };
        libc::close(ends[0]);
        libc::close(ends[1]);
        put
    }
}

/// Opens a file so that it is emptied.
pub fn empty() {
    alone_with_names(|slot, Alone(ref file)| {
        reached(Reached::Emptied);
        let before = file.identity();
        let size = file.size();
        let open_meanwhile = one_in(2);
        if !open_meanwhile {
            close(file);
        }
        file.forget_contents();
        // SAFETY: our own path.
        unsafe {
            let fd = if one_in(2) {
                calls::creat64(slot.path().as_ptr(), 0o640)
            } else {
                calls::open64(slot.path().as_ptr(), libc::O_RDWR | libc::O_TRUNC, 0)
            };
            if fd < 0 || calls::close(fd) != 0 {
                world().violated(
                    Some(file),
                    &format!("emptying failed with errno {}", errno()),
                );
            }
        }
        if !open_meanwhile {
            open(file, &slot.path(), 0);
        }
        world().note(file, format_args!("emptied"));
        super::ranges::grow_by(file, size);
        for _ in 0..8 {
            let page = below(file.pages());
            if one_in(2) {
                write_pages(file, page * file.page_size(), file.page_size());
            }
            read_page(
                file,
                page * file.page_size(),
                file.page_size(),
                "read after emptying",
            );
        }
        count_identity(before, file);
    });
}

/// Imports a file: DISCARD TABLESPACE, a copy from elsewhere, IMPORT TABLESPACE.
pub fn import() {
    let slot = world().slot();
    let Some(_ddl) = slot.ddl() else {
        return;
    };
    reached(Reached::Imports);
    let old = slot.file();
    if !old.shut() {
        return world().violated(Some(&old), "two changes of a file at once");
    }
    lose(old, |old| {
        // SAFETY: our own path.
        if unsafe { calls::unlink(slot.path().as_ptr()) } != 0 {
            world().violated(
                Some(old),
                &format!("unlinking failed with errno {}", errno()),
            );
        }
    });
    let new = match copied_in(slot) {
        Ok(new) => new,
        Err(error) => {
            world().violated(None, &format!("copying a file in failed: {error}"));
            create(slot, &world().path("failed.ibd"))
        }
    };
    new.open_gate();
    slot.put(new);
}

fn copied_in(slot: &Slot) -> std::io::Result<Arc<File>> {
    let (file, path) = (File::new(slot), slot.path());
    let pages = file.most_bytes / 2 / file.page_size();
    file.set_size(pages * file.page_size());
    // From another server: the same page numbers, another space.
    for page in 0..pages {
        if !one_in(10) {
            let stamp = Stamp::new(0xF0_0000 + below(1000) as u32, 1 + below(1 << 20) as u64);
            file.expect(page * file.page_size(), file.page_size(), stamp);
        }
    }
    let mut whole = Buffer::new(file.size());
    file.compose(0, whole.bytes());
    std::fs::write(as_path(&path), whole.bytes())?;
    debug_assert_eq!(real_size(&path) % SECTOR, 0);
    open(&file, &path, 0);
    world().note(&file, format_args!("copied in"));
    let block = if one_in(2) { 1 << 20 } else { file.page_size() };
    let mut offset = 0;
    while offset < file.size() && !world().stopping() {
        let length = block.min(file.size() - offset);
        read_page(&file, offset, length, "read of an import");
        write_pages(&file, offset, length);
        offset += length;
    }
    if one_in(2) {
        close(&file);
        open(&file, &path, 0);
    }
    world().note(&file, format_args!("imported"));
    Ok(file)
}
