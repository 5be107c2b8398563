//! Files as a process left them, and whether reads return their contents.

use std::ffi::CString;
use std::fs::{self, File as Plain};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bpe_plugin::platform::CORE;

use super::common::origin;
use crate::asynchronous::{self, Purpose, Request};
use crate::calls;
use crate::content::{SECTOR, stamp_of};
use crate::operations::{create, grow_by, open, read_rest, rename_path, unlink};
use crate::random::one_in;
use crate::world::{Buffer, File, Slot, world};

/// A file at the start of a child.
pub struct Found {
    pub slot: &'static Slot,
    pub file: Arc<File>,
    /// Its current name, if it differs from the slot's: the previous child died during a rename.
    other_name: Option<CString>,
    size: u64,
}

/// Reads all files without the plugin.
///
/// # Errors
/// The system's error, or a file with contents that the model never wrote.
pub fn look() -> io::Result<Vec<Option<Found>>> {
    world().slots.iter().map(look_at).collect()
}

/// Temporary names of a file.
fn between(slot: &Slot) -> [String; 3] {
    let name = slot.name;
    [
        format!("#sql2-{name}.ibd"),
        format!("#closed-{name}"),
        format!("#sql-ib-{name}.ibd"),
    ]
}

fn look_at(slot: &'static Slot) -> io::Result<Option<Found>> {
    let names = [slot.name.to_string()].into_iter().chain(between(slot));
    let there = |name: &String| world().folder.join(name).exists();
    let Some(name) = names.into_iter().find(there) else {
        return Ok(None);
    };
    let path = world().folder.join(&name);
    let file = File::new(slot);
    let bytes = fs::read(&path)?;
    let whole = bytes.len().min(file.most_bytes) / file.page_size() * file.page_size();
    if !file.expect_bytes(0, &bytes[..whole]) {
        let what = format!("'{name}' has a sector that nobody wrote like that");
        return Err(io::Error::other(what));
    }
    file.set_size(whole);
    Ok(Some(Found {
        slot,
        file,
        other_name: (name != slot.name).then(|| world().path(&name)),
        size: bytes.len() as u64,
    }))
}

impl Found {
    /// Whether it has the slot's name.
    pub fn is_in_place(&self) -> bool {
        self.other_name.is_none()
    }

    /// Opens it for the server under its own name, if it is closed.
    pub fn open(&self) {
        if self.file.fd() >= 0 {
            return;
        }
        if let Some(other) = &self.other_name {
            rename_path(&self.file, other, &self.slot.path());
        }
        open(&self.file, &self.slot.path(), 0);
    }

    /// Repairs incomplete operations: cuts off a partial page, and extends a file that is too short.
    pub fn repair(&self) {
        let (file, size) = (&self.file, self.file.size());
        if self.size != size as u64 {
            // SAFETY: plain arguments.
            let result = unsafe { calls::ftruncate64(file.fd(), size as i64) };
            if result != 0 {
                world().violated(Some(file), "what was half written cannot be cut off");
            }
        }
        if size < file.most_bytes / 4 {
            grow_by(file, file.most_bytes / 2 - size);
        }
    }
}

/// Removes files with temporary names, repairs the found files, and creates the missing ones.
pub fn complete(found: Vec<Option<Found>>) {
    for (slot, found) in world().slots.iter().zip(found) {
        let passing = ["#sql-alter-", ""].into_iter().zip([".ibd", "-copy"]);
        let passing = passing.map(|(begin, end)| format!("{begin}{}{end}", slot.name));
        for name in passing.chain(between(slot)) {
            if world().folder.join(&name).exists() {
                unlink(&world().path(&name));
            }
        }
        let file = match found {
            Some(found) => {
                found.repair();
                found.file
            }
            None => create(slot, &slot.path()),
        };
        file.open_gate();
        slot.put(file);
    }
}

/// Reads every page of these files once, some asynchronously, and compares it with the file. Returns the number of pages.
pub fn check(found: &[Option<Found>]) -> u64 {
    let mut pages = 0;
    let some_by_requests = one_in(2);
    for Found { file, .. } in found.iter().flatten() {
        file.open_gate();
        let mut requests = Vec::new();
        for page in 0..file.pages() {
            if world().stopping() {
                return pages;
            }
            pages += 1;
            if some_by_requests && one_in(4) {
                requests.extend(request(file, page));
                if requests.len() >= 8 {
                    asynchronous::submit(std::mem::take(&mut requests));
                }
            } else {
                check_page(file, page);
            }
        }
        if !requests.is_empty() {
            asynchronous::submit(requests);
        }
        file.quiet();
        file.shut();
    }
    pages
}

fn request(file: &Arc<File>, page: usize) -> Option<Box<Request>> {
    let (user, pages) = (file.enter()?, file.lock(page, 1)?);
    let (length, buffer) = (pages.bytes(), Buffer::for_file(file, pages.bytes()));
    let read = Purpose::Read;
    Some(Request::new(user, pages, length, buffer, read, false))
}

fn check_page(file: &File, page: usize) {
    let (length, offset) = (file.page_size(), page * file.page_size());
    let (mut read, mut expected) = (Buffer::for_file(file, length), Buffer::new(length));
    // SAFETY: our own buffer.
    let got = unsafe { calls::pread64(file.fd(), read.at(0), length, offset as i64) };
    let done = usize::try_from(got).unwrap_or(0);
    if !read_rest(file, file.fd(), read.bytes(), offset, done) {
        return;
    }
    file.compose(offset, expected.bytes());
    if read.bytes() == expected.bytes() {
        return;
    }
    let sectors = |bytes: &mut [u8]| bytes.chunks_exact(SECTOR).map(stamp_of).collect::<Vec<_>>();
    let (were, are) = (sectors(read.bytes()), sectors(expected.bytes()));
    let at = (0..were.len()).find(|&at| were[at] != are[at]).unwrap_or(0);
    let mut plain = vec![0; length];
    let now = Plain::open(world().folder.join(file.name))
        .and_then(|data| data.read_exact_at(&mut plain, offset as u64))
        .is_ok_and(|()| plain == expected.bytes());
    let known = CORE.files.of_descriptor(file.fd());
    let which = known.map(|known| format!(", identity {}", known.id().0));
    let text = format!(
        "a read of {length} bytes at {offset} of {} (page {page}{}): sector {at} of it was {}, {}; the file has {}, {}. A plain read \
         of it still brings that: {now}",
        file.name,
        which.unwrap_or_default(),
        were[at],
        origin(were[at]),
        are[at],
        origin(are[at]),
    );
    world().violated(Some(file), &text);
}
