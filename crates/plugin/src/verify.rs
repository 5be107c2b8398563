//! Compares cached pages with their data files while the server runs, for `bpe verify`, through `bpe_report()`:
//!
//! | argument | answer, a JSON object |
//! |---|---|
//! | `verify-start KEY EVERY` | begins a verification of every so many pages with a [key](crate::keys); `next` is the argument to go on with |
//! | `verify-next NAME FILE PAGE` | looks at some pages from there on; counts, `pages` that differ, and `next`, null at the end |
//! | `verify-stop NAME` | ends it |
//!
//! `error` stands in an answer when something could not be done. The name of a verification is random; it ends [`LEASE`]
//! after its client was last heard of.
//!
//! A ticket is taken before both are read. If it is still good afterwards, no write of the page began meanwhile, so the two
//! must be equal. The data file is read through the server's own descriptor: opening and closing one of our own would
//! drop the server's locks.
//!
//! A call looks at a bounded number of pages and takes a bounded time; it says where the next one has to go on.
//!
//! [`sample`] compares some pages of one file, for the [audit](crate::audit).
//!
//! Lock: the list of verifications is a leaf.

use std::alloc::{Layout, alloc_zeroed};
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use extension::{FileId, Inspected, PageId};
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};

use crate::files::DataFile;
use crate::keys::Keys;
use crate::linux::Linux;
use crate::os::Os as _;
use crate::process::CORE;

/// Time that a call takes, about.
const TIME: Duration = Duration::from_millis(200);
/// Pages that are listed as wrong by one call at most.
const LISTED: usize = 64;
/// Between two looks at the clock, pages.
const PAGES_A_LOOK: u32 = 64;

/// A verification ends by itself when nobody has asked it to go on for this long.
pub const LEASE: Duration = Duration::from_secs(10);
/// Verifications at a time.
const MOST: usize = 8;

/// Where to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cursor {
    file: u32,
    page: u32,
    /// Every how many pages of the data files are looked at.
    every: u32,
}

struct Verification {
    name: String,
    every: u32,
    heard_of: Instant,
    /// Calls that are at it.
    at_work: u32,
}

/// The verifications under way.
pub struct Verifications(Mutex<Vec<Verification>>);

/// A call at work for a verification.
struct Call<'a> {
    of: &'a Verifications,
    name: &'a str,
    every: u32,
}

impl<'a> Call<'a> {
    fn begin(of: &'a Verifications, name: &'a str) -> Result<Call<'a>, String> {
        let mut under_way = of.now();
        let one = under_way.iter_mut().find(|one| one.name == name).ok_or_else(|| {
            format!(
                "there is no such verification: it has ended, or was not continued for {} seconds",
                LEASE.as_secs()
            )
        })?;
        one.at_work += 1;
        Ok(Call {
            of,
            name,
            every: one.every,
        })
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let mut under_way = self.of.0.lock();
        if let Some(one) = under_way.iter_mut().find(|one| one.name == self.name) {
            one.at_work = one.at_work.saturating_sub(1);
            one.heard_of = Instant::now();
        }
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

impl Verifications {
    pub(crate) const fn new() -> Verifications {
        Verifications(Mutex::new(Vec::new()))
    }

    /// Those under way, without the ones whose client is gone.
    fn now(&self) -> MutexGuard<'_, Vec<Verification>> {
        let mut under_way = self.0.lock();
        under_way.retain(|one| one.at_work > 0 || one.heard_of.elapsed() < LEASE);
        under_way
    }

    /// Verifications that have been begun and have not ended.
    pub fn under_way(&self) -> usize {
        self.now().len()
    }

    /// Ends all; a call that is at work comes to its end within a moment.
    pub fn end_all(&self) {
        self.0.lock().clear();
    }

    /// The answer to an argument of `bpe_report()` that begins with `verify-`; `None` for one that is not known, or if the
    /// machine has no memory left.
    pub fn answer(&self, keys: &Keys, argument: &str) -> Option<Value> {
        let mut words = argument.split_ascii_whitespace();
        let words = [(); 5].map(|()| words.next());
        let result = match words {
            [Some("verify-start"), key, every, None, None] => match every.map(str::parse) {
                None => self.start(keys, key, 1),
                Some(Ok(every)) if every > 0 => self.start(keys, key, every),
                Some(_) => return None,
            },
            [
                Some("verify-next"),
                Some(name),
                Some(file),
                Some(page),
                None,
            ] => self
                .next(name, file.parse().ok()?, page.parse().ok()?)
                .transpose()?,
            [Some("verify-stop"), Some(name), None, None, None] => {
                self.0.lock().retain(|one| one.name != name);
                Ok(json!({}))
            }
            _ => return None,
        };
        Some(result.unwrap_or_else(|reason| json!({ "error": reason })))
    }

    fn start(&self, keys: &Keys, key: Option<&str>, every: u32) -> Result<Value, String> {
        keys.spend(key, "a verification", "bpe verify")?;
        self.begin(every)
    }

    fn begin(&self, every: u32) -> Result<Value, String> {
        let name = format!("{:016x}", RandomState::new().hash_one(Instant::now()));
        let mut under_way = self.now();
        if under_way.len() >= MOST {
            return Err(format!(
                "{MOST} verifications are under way; try again when one has ended"
            ));
        }
        under_way.push(Verification {
            name: name.clone(),
            every,
            heard_of: Instant::now(),
            at_work: 0,
        });
        drop(under_way);
        Linux.note("a verification of cached pages begins");
        Ok(json!({ "verification": name, "next": format!("verify-next {name} 0 0") }))
    }

    /// `None` if the machine has no memory left.
    fn next(&self, name: &str, file: u32, page: u32) -> Result<Option<Value>, String> {
        let call = Call::begin(self, name)?;
        let Some(mut buffers) = buffers() else {
            return Ok(None);
        };
        let mut counts = Counts::default();
        let every = call.every;
        let next = run(Cursor { file, page, every }, &mut counts, &mut buffers);
        drop(call);
        if next.is_none() {
            self.0.lock().retain(|one| one.name != name);
        }
        Ok(Some(json!({
            "compared": counts.compared,
            "skipped": counts.skipped,
            "unproven": counts.unproven,
            "wrong": counts.wrong,
            "pages": counts.listed,
            "next": next.map(|next| format!("verify-next {name} {} {}", next.file, next.page)),
        })))
    }
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
    let mut all = CORE.files.all();
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
    let fd = CORE.files.descriptor_of(file)?;
    let stat = Linux.stat(fd)?;
    let pages = u64::try_from(stat.size).ok()? / size;
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
                    Linux.error(&format!(
                        "page {number} of '{}' in the cache differed from the data file and was dropped. Please report \
                         this, and switch the extension off until the cause is known.",
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
    let guard = CORE.switch().active();
    let Some(active) = &*guard else {
        return Compared::Absent;
    };
    let length = file.page_size() as usize;
    let page = PageId::new(id, number);
    let (Some(cached), Some(stored)) = (cached.0.get_mut(..length), stored.0.get_mut(..length))
    else {
        return Compared::Absent;
    };
    let Some(ticket) = CORE.switch().generations().begin_read(file.owner, number) else {
        return Compared::Absent; // it is being written, so it is not cached
    };
    match active.extension.inspect(page, cached) {
        Inspected::Absent => return Compared::Absent,
        Inspected::Unproven => return Compared::Unproven,
        Inspected::Copied => {}
    }
    let offset = u64::from(number) * length as u64;
    // SAFETY: a read into our own buffer; if the descriptor stands for another file by now, that shows below.
    let read = unsafe { Linux.read(fd, stored.as_mut_ptr(), length, offset as i64) };
    // Whoever changes the whole file gives it another identity before.
    let unchanged = CORE.switch().generations().is_current(ticket)
        && file.id() == id
        && CORE
            .files
            .of_descriptor(fd)
            .is_some_and(|now| std::ptr::eq(now, file));
    if read != Ok(length) || !unchanged {
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

    fn error(answer: Option<Value>) -> String {
        answer
            .map(|answer| answer["error"].to_string())
            .unwrap_or_default()
    }

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
    fn only_known_arguments_are_answered() {
        let (all, keys) = (Verifications::new(), Keys::new());
        let answer = |argument: &str| all.answer(&keys, argument);
        for unknown in [
            "verify",
            "verify:0:0:1",
            "verify-start key 0",
            "verify-start key -1",
            "verify-start key 1 2",
            "verify-next a",
            "verify-next a 1",
            "verify-next a 1 99999999999",
            "verify-next a 1 2 3",
            "verify-stop",
            "summary",
        ] {
            assert_eq!(answer(unknown), None, "{unknown}");
        }
        // This test is no server.
        for nobodys in ["verify-start", "verify-start key", "verify-start key 10"] {
            assert!(
                error(answer(nobodys)).contains("not installed"),
                "{nobodys}"
            );
        }
        assert!(error(answer("verify-next 00 0 0")).contains("no such verification"));
    }

    #[test]
    fn a_verification_from_its_beginning_to_its_end() {
        let (all, keys) = (Verifications::new(), Keys::new());
        let answer = |argument: &str| all.answer(&keys, argument);
        let begun = all.begin(3).unwrap();
        let name = begun["verification"].as_str().unwrap();
        assert_eq!(begun["next"], format!("verify-next {name} 0 0"));
        assert_eq!(Call::begin(&all, name).map(|call| call.every), Ok(3));
        // There are no files here, so that was all.
        let answered = answer(&format!("verify-next {name} 0 0")).unwrap();
        assert!(answered["next"].is_null() && answered["wrong"] == 0);
        assert!(error(answer(&format!("verify-next {name} 0 0"))).contains("it has ended"));

        // One whose client is gone ends, but not while a call is at work.
        let begun = all.begin(1).unwrap();
        let name = begun["verification"].as_str().unwrap();
        let call = Call::begin(&all, name).unwrap();
        let age = || {
            for one in all.0.lock().iter_mut() {
                one.heard_of = Instant::now() - LEASE;
            }
        };
        age();
        assert_eq!(all.under_way(), 1);
        drop(call);
        assert_eq!(all.under_way(), 1);
        age();
        assert_eq!(all.under_way(), 0);

        for _ in 0..MOST {
            assert!(all.begin(1).is_ok());
        }
        assert!(all.begin(1).unwrap_err().contains("under way"));
        let one = all.0.lock()[0].name.clone();
        answer(&format!("verify-stop {one}"));
        assert_eq!(all.under_way(), MOST - 1);
        all.end_all();
        assert_eq!(all.under_way(), 0);
    }
}
