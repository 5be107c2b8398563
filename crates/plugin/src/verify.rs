//! Compares cached pages with their data files while the server runs: `bpe_report('verify:...')`, for `bpe verify`.
//!
//! A ticket is taken before both are read. If it is still good afterwards, no write of the page began meanwhile, so the two
//! must be equal. The data file is read through the server's own descriptor: opening and closing one of our own would
//! drop the server's locks.
//!
//! A call looks at a bounded number of pages and takes a bounded time; it says where the next one has to go on.
//!
//! [`sample`] compares some pages of one file, for the [audit](crate::audit).

use std::alloc::{Layout, alloc_zeroed};
use std::time::{Duration, Instant};

use extension::{FileId, Inspected, PageId};
use serde_json::{Value, json};

use crate::calls::input_output::real_pread;
use crate::files::{self, DataFile};
use crate::journal;
use crate::switch;

/// Time that a call takes, about.
const TIME: Duration = Duration::from_millis(200);
/// Pages that are listed as wrong by one call at most.
const LISTED: usize = 64;
/// Between two looks at the clock, pages.
const PAGES_A_LOOK: u32 = 64;

/// Where to go on: `verify:<file>:<page>:<every>`, every how many pages of the data files are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cursor {
    file: u32,
    page: u32,
    every: u32,
}

impl Cursor {
    fn parse(text: &str) -> Option<Cursor> {
        let mut parts = text.split(':').map(str::parse::<u32>);
        let cursor = Cursor {
            file: parts.next()?.ok()?,
            page: parts.next()?.ok()?,
            every: parts.next()?.ok()?,
        };
        (parts.next().is_none() && cursor.every > 0).then_some(cursor)
    }
}

#[derive(Default)]
struct Counts {
    /// Equal to the data file, or not.
    compared: u64,
    /// Written while they were compared, or not readable just then.
    skipped: u64,
    /// In the cache, but they failed their proof, so they would not have been served.
    unproven: u64,
    wrong: u64,
    listed: Vec<Value>,
}

/// Page-aligned memory for direct reads.
#[repr(C, align(4096))]
struct Buffer([u8; extension::MAX_PAGE]);

/// The report of a name; `None` if it is not one of a verification, or if the machine has no memory left.
pub fn answer(name: &str) -> Option<Value> {
    let cursor = Cursor::parse(name.strip_prefix("verify:")?)?;
    let mut counts = Counts::default();
    let next = run(cursor, &mut counts, &mut *buffers()?);
    Some(json!({
        "compared": counts.compared,
        "skipped": counts.skipped,
        "unproven": counts.unproven,
        "wrong": counts.wrong,
        "pages": counts.listed,
        "next": next.map(|next| format!("verify:{}:{}:{}", next.file, next.page, next.every)),
    }))
}

/// Two buffers that never were on the stack, which is small in a server's thread.
fn buffers() -> Option<Box<[Buffer; 2]>> {
    let layout = Layout::new::<[Buffer; 2]>();
    // SAFETY: the layout has a size, the memory is zeroed, which is a value of a buffer, and is given back by the box.
    unsafe {
        let memory = alloc_zeroed(layout).cast::<[Buffer; 2]>();
        (!memory.is_null()).then(|| Box::from_raw(memory))
    }
}

/// Goes through the files in the order of their numbers. Where the next call has to go on; `None` at the end.
fn run(cursor: Cursor, counts: &mut Counts, buffers: &mut [Buffer; 2]) -> Option<Cursor> {
    let until = Instant::now() + TIME;
    let mut all = files::all();
    all.sort_unstable_by_key(|file| file.owner);
    let mut page = cursor.page;
    for file in all.into_iter().filter(|file| file.owner >= cursor.file) {
        if file.owner > cursor.file {
            page = 0;
        }
        let Some((fd, pages)) = open_pages(file) else {
            continue;
        };
        while page < pages {
            let last = pages.min(page.saturating_add(PAGES_A_LOOK.saturating_mul(cursor.every)));
            for number in (page..last).step_by(cursor.every as usize) {
                if let Some(id) = file.cacheable() {
                    counts.add(file, number, compare(file, id, fd, number, buffers));
                }
            }
            page = last.next_multiple_of(cursor.every);
            if Instant::now() >= until {
                return Some(Cursor {
                    file: file.owner,
                    page,
                    ..cursor
                });
            }
        }
    }
    None
}

/// A descriptor of an open file, and how many pages it has; `None` if nothing of it can be cached.
fn open_pages(file: &'static DataFile) -> Option<(i32, u32)> {
    let size = u64::from(file.page_size());
    if size == 0 {
        return None;
    }
    let fd = files::descriptor_of(file)?;
    let stat = files::stat_descriptor(fd)?;
    let pages = u64::try_from(stat.st_size).ok()? / size;
    Some((fd, u32::try_from(pages).unwrap_or(u32::MAX)))
}

/// What became of a comparison.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Compared {
    /// Not in the cache.
    Absent,
    /// In the cache, but it would not have been served.
    Unproven,
    /// Written meanwhile, or not readable just then.
    Skipped,
    Equal,
    /// The page in the cache is not that of the data file. It is dropped.
    Different,
}

impl Counts {
    fn add(&mut self, file: &DataFile, number: u32, compared: Compared) {
        match compared {
            Compared::Absent => {}
            Compared::Unproven => self.unproven += 1,
            Compared::Skipped => self.skipped += 1,
            Compared::Equal => self.compared += 1,
            Compared::Different => {
                self.compared += 1;
                self.wrong += 1;
                if self.listed.len() < LISTED {
                    journal::error(&format!(
                        "page {number} of '{}' in the cache is not that of the data file; it is dropped. Please report \
                         this, and switch the extension off until it is understood.",
                        file.name()
                    ));
                    self.listed
                        .push(json!({ "file": file.name(), "page": number }));
                }
            }
        }
    }
}

/// Compares a page that is cached under this identity of the file.
fn compare(
    file: &'static DataFile,
    id: FileId,
    fd: i32,
    number: u32,
    [cached, stored]: &mut [Buffer; 2],
) -> Compared {
    let guard = switch::active();
    let Some(active) = &*guard else {
        return Compared::Absent;
    };
    let length = file.page_size() as usize;
    let page = PageId::new(id, number);
    let (Some(cached), Some(stored)) = (cached.0.get_mut(..length), stored.0.get_mut(..length))
    else {
        return Compared::Absent;
    };
    let Some(ticket) = switch::generations().begin_read(file.owner, number) else {
        return Compared::Absent; // it is being written, so it is not cached
    };
    match active.extension.inspect(page, cached) {
        Inspected::Absent => return Compared::Absent,
        Inspected::Unproven => return Compared::Unproven,
        Inspected::Copied => {}
    }
    let offset = u64::from(number) * length as u64;
    // SAFETY: a read into our own buffer; if the descriptor stands for another file by now, that shows below.
    let read = unsafe { real_pread(fd, stored.as_mut_ptr().cast(), length, offset as i64) };
    // Whoever changes the whole file gives it another identity before.
    let unchanged = switch::generations().is_current(ticket)
        && file.id() == id
        && files::of_descriptor(fd).is_some_and(|now| std::ptr::eq(now, file));
    if read != length as isize || !unchanged {
        return Compared::Skipped;
    }
    if cached == stored {
        return Compared::Equal;
    }
    active.extension.invalidate(id, number, 1);
    Compared::Different
}

/// Pages that [`sample`] compares at most.
const SAMPLE: u64 = 2048;
/// Pages that it looks for in the cache at most.
const LOOKED_FOR: u32 = 1 << 18;
/// Time that it takes at most, but for a disk that does not answer.
const SAMPLE_TIME: Duration = Duration::from_secs(2);

/// What a sample of a file's cached pages has shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Pages that were compared.
    pub compared: u64,
    /// Of them: other bytes than the data file has.
    pub different: u64,
}

/// Compares some of the pages that are cached under this identity of a file with the file, from all over it. To be called
/// where waiting for the data disk holds up nobody.
pub fn sample(file: &'static DataFile, id: FileId) -> Sample {
    let mut sample = Sample::default();
    let (Some((fd, pages)), Some(mut buffers)) = (open_pages(file), buffers()) else {
        return sample;
    };
    let until = Instant::now() + SAMPLE_TIME;
    for (looked_for, number) in (0..LOOKED_FOR).zip(spread(pages)) {
        if looked_for % PAGES_A_LOOK == 0 && Instant::now() >= until || sample.compared == SAMPLE {
            break;
        }
        match compare(file, id, fd, number, &mut buffers) {
            Compared::Equal => sample.compared += 1,
            Compared::Different => {
                sample.compared += 1;
                sample.different += 1;
            }
            Compared::Absent | Compared::Unproven | Compared::Skipped => {}
        }
    }
    sample
}

/// Each of so many pages once, in an order in which any beginning is spread over all.
fn spread(pages: u32) -> impl Iterator<Item = u32> {
    let pages = u64::from(pages);
    // The golden section of the number, and no factor in common with it.
    let mut stride = (pages * 618 / 1000).max(1);
    while gcd(stride, pages) > 1 {
        stride += 1;
    }
    (0..pages).map(move |n| (n * stride % pages) as u32)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_spread_and_has_each_page_once() {
        for pages in [0, 1, 2, 3, 7, 100, 1024, 6180] {
            let mut all: Vec<u32> = spread(pages).collect();
            let (low, high) = all
                .iter()
                .take(16)
                .partition::<Vec<u32>, _>(|page| **page < pages / 2);
            assert!(pages < 100 || low.len() >= 6 && high.len() >= 6, "{all:?}");
            all.sort_unstable();
            assert!(all.into_iter().eq(0..pages), "{pages}");
        }
        assert_eq!(spread(u32::MAX).take(1000).count(), 1000);
    }

    #[test]
    fn cursors() {
        let cursor = Cursor::parse("3:70000:10");
        assert_eq!(
            cursor,
            Some(Cursor {
                file: 3,
                page: 70_000,
                every: 10
            })
        );
        for bad in [
            "",
            "1",
            "1:2",
            "1:2:0",
            "1:2:3:4",
            "a:2:3",
            "-1:2:3",
            "1:2:99999999999",
        ] {
            assert_eq!(Cursor::parse(bad), None, "{bad}");
        }
        assert!(answer("verify:0:0:1").is_some_and(|report| report["next"].is_null()));
        assert!(answer("verify").is_none() && answer("summary").is_none());
    }
}
