//! Overdue reads of several contexts on a simulated kernel, which accepts redirected reads and does not answer them.

use std::cell::RefCell;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use cache::Source;

use super::*;
use crate::async_io::{Iocb, Submission};
use crate::core::requests::{PREAD, is_tag};
use crate::files::Attach;
use crate::switch::Bypass;
use crate::testing::os_for_tests::{self, TestOs};

const PAGE: usize = 16384;
const PAGES: u32 = 8;
const CONTEXTS: [usize; 2] = [0x1_0000, 0x2_0000];

#[repr(align(4096))]
#[derive(Clone)]
struct Buffer([u8; PAGE]);

fn page(number: u32) -> [u8; PAGE] {
    let mut page = [number as u8 + 1; PAGE];
    page[4..8].copy_from_slice(&number.to_be_bytes());
    page
}

/// A data file whose pages are all on the cache disk.
struct Cached {
    core: &'static Core<TestOs>,
    file: File,
    _folder: tempfile::TempDir,
}

impl Cached {
    /// Returns `None` where direct I/O is not available.
    fn new() -> Option<Cached> {
        let core = os_for_tests::core();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.ibd");
        let mut options = File::options();
        options.read(true).write(true).create_new(true);
        let file = options.open(&path).unwrap();
        for number in 0..PAGES {
            file.write_all_at(&page(number), u64::from(number) * PAGE as u64)
                .unwrap();
        }
        let timeout = Some(Duration::from_millis(1));
        core.requests.disarm_all();
        core.switch().start_tracking(|| core.files.forget_all());
        let stat = core.os().stat(file.as_raw_fd()).unwrap();
        let attach = Attach::Opened { anew: false };
        core.files
            .attach(file.as_raw_fd(), &stat, b"./t/t.ibd", attach);
        let active = os_for_tests::active_with(core.switch(), folder.path(), timeout);
        assert!(matches!(
            core.switch().publish(Arc::clone(&active)),
            Ok(None)
        ));
        for number in 1..PAGES {
            let target = target(core, &file, number).unwrap();
            let ticket = core
                .switch()
                .generations()
                .begin_read(target.file.owner, number);
            core.offer(
                &active,
                target,
                &page(number),
                ticket.unwrap(),
                Source::Read,
            );
        }
        while active.extension.pump() {}
        CONTEXTS
            .into_iter()
            .for_each(|context| core.entering_harvest(context));
        // The previous test has searched a moment ago.
        core.requests
            .searched_at
            .iter()
            .for_each(|looked| looked.store(0, Ordering::Relaxed));
        let direct = active.extension.device_statistics()[0].direct_io;
        let cached = Cached {
            core,
            file,
            _folder: folder,
        };
        direct.then_some(cached)
    }

    fn request(&self, number: u32, buffer: &mut Buffer) -> Box<Iocb> {
        // SAFETY: all fields are integers, for which zero is valid.
        let mut iocb: Box<Iocb> = Box::new(unsafe { std::mem::zeroed() });
        (iocb.opcode, iocb.fd) = (PREAD, self.file.as_raw_fd());
        (iocb.buffer, iocb.length) = (buffer.0.as_mut_ptr() as u64, PAGE as u64);
        iocb.offset = i64::from(number) * PAGE as i64;
        iocb.data = 1000 + u64::from(number);
        iocb
    }
}

impl Drop for Cached {
    fn drop(&mut self) {
        self.core.files.detach(self.file.as_raw_fd());
        drop(self.core.switch().kill());
    }
}

fn by(core: &Core<TestOs>, context: usize) -> Submission {
    Submission {
        mode: core.switch().mode(),
        context,
    }
}

fn no_panic() {
    unreachable!("nothing panics here");
}

fn target(core: &'static Core<TestOs>, file: &File, number: u32) -> Option<PageRequest> {
    let offset = i64::from(number) * PAGE as i64;
    let known = core.files.of_descriptor(file.as_raw_fd())?;
    core.page_of_request(core.switch().mode(), known, PAGE, offset)
}

/// A request, and its values before the submission.
struct Sent {
    iocb: Box<Iocb>,
    words: Words,
    /// The tag that it carries while it is redirected.
    tag: u64,
}

impl Sent {
    fn new(cached: &Cached, context: usize, number: u32, buffer: &mut Buffer) -> Sent {
        let mut iocb = cached.request(number, buffer);
        let words = Words::of(&iocb);
        let list = [&raw mut *iocb];
        assert_eq!(
            cached
                .core
                .submit(by(cached.core, context), &list, || 1, || 1),
            1
        );
        assert!(is_tag(iocb.data) && iocb.fd != words.fd, "it is redirected");
        assert_eq!(iocb.rw_flags, libc::RWF_NOWAIT as u32);
        let tag = iocb.data;
        Sent { iocb, words, tag }
    }

    fn key(&self) -> u64 {
        &raw const *self.iocb as u64
    }

    fn event(&self, data: u64, result: i64) -> IoEvent {
        IoEvent {
            data,
            request: self.key(),
            result,
            result2: 0,
        }
    }

    fn is_as_before(&self) -> bool {
        let now = Words::of(&self.iocb);
        (now.data, now.rw_flags, now.fd) == (self.words.data, self.words.rw_flags, self.words.fd)
            && (now.buffer, now.offset) == (self.words.buffer, self.words.offset)
    }
}

/// Number of passes to try: a pass ends early when its thread stalls.
const MAX_PASSES: usize = 50;

fn taken(_: usize, _: *mut Iocb) -> i32 {
    1
}

#[test]
fn overdue_reads_of_each_context_are_reissued_together() {
    let Some(cached) = Cached::new() else { return };
    let mut buffers = vec![Buffer([0; PAGE]); 4];
    let (first, second) = buffers.split_at_mut(3);
    let mut numbers = 1..;
    let busy: Vec<Sent> = first
        .iter_mut()
        .map(|buffer| Sent::new(&cached, CONTEXTS[0], numbers.next().unwrap(), buffer))
        .collect();
    let idle = Sent::new(&cached, CONTEXTS[1], 4, &mut second[0]);
    std::thread::sleep(Duration::from_millis(5));
    let made = RefCell::new(Vec::new());
    let make = |context, request: *mut Iocb| {
        made.borrow_mut().push((context, request as u64));
        1
    };
    // At once: no thread has waited for the first context, and handling it does not delay the second. A pass that stalled
    // leaves the rest to the next, which is due then.
    for context in [CONTEXTS[0], CONTEXTS[1]] {
        (0..MAX_PASSES)
            .for_each(|_| assert!(cached.core.expire_reads(context, 8, &make).is_none()));
    }
    let mut made = made.into_inner();
    made.sort_unstable();
    let mut expected: Vec<_> = busy.iter().map(|sent| (CONTEXTS[0], sent.key())).collect();
    expected.push((CONTEXTS[1], idle.key()));
    expected.sort_unstable();
    assert_eq!(made, expected);
    let all: Vec<&Sent> = busy.iter().chain([&idle]).collect();
    assert!(all.iter().all(|sent| sent.is_as_before()));
    // Both answers arrive, and the server sees one event, once.
    for sent in &all {
        let late = sent.event(sent.tag, PAGE as i64);
        let own = sent.event(sent.words.data, PAGE as i64);
        let mut events = [late, own];
        assert_eq!(cached.core.harvested(&mut events, &taken, no_panic), 1);
        assert_eq!(events[0].data, sent.words.data);
    }
    assert_eq!(cached.core.switch().pending_requests(), 0);
    assert!(!cached.core.requests.expects_tags());
}

#[test]
fn what_the_kernel_does_not_take_is_read_one_at_a_time() {
    let Some(cached) = Cached::new() else { return };
    let mut buffers = vec![Buffer([0; PAGE]); 3];
    let sent: Vec<Sent> = (1..)
        .zip(&mut buffers)
        .map(|(number, buffer)| Sent::new(&cached, CONTEXTS[0], number, buffer))
        .collect();
    std::thread::sleep(Duration::from_millis(5));
    let refuse = |_: usize, _: *mut Iocb| -libc::EAGAIN;
    let mut seen = Vec::new();
    for _ in &sent {
        let event = (0..MAX_PASSES).find_map(|_| cached.core.expire_reads(CONTEXTS[0], 8, &refuse));
        let event = event.expect("one more");
        assert_eq!(event.result, PAGE as i64);
        seen.push(event.data);
    }
    assert!(cached.core.expire_reads(CONTEXTS[0], 8, &refuse).is_none());
    seen.sort_unstable();
    assert_eq!(seen, [1001, 1002, 1003]);
    for (number, buffer) in (1..).zip(&buffers) {
        assert!(buffer.0 == page(number), "the data file's bytes");
    }
    let mut late: Vec<_> = sent.iter().map(|sent| sent.event(sent.tag, 0)).collect();
    assert_eq!(cached.core.harvested(&mut late, &refuse, no_panic), 0);
    assert_eq!(cached.core.switch().pending_requests(), 0);
}

/// No server lets two threads harvest one context. If one did: this thread harvests the late answer and does not find it given
/// up, and then another thread gives the read up. The answer must not complete the server's own read.
#[test]
fn an_answer_that_comes_while_its_read_is_given_up_is_nobodys() {
    let Some(cached) = Cached::new() else { return };
    let mut buffer = Buffer([0; PAGE]);
    let sent = Sent::new(&cached, CONTEXTS[0], 1, &mut buffer);
    std::thread::sleep(Duration::from_millis(5));
    let core = cached.core;
    crate::testing::sync_point::run_at("harvested", move || {
        (0..MAX_PASSES).for_each(|_| assert!(core.expire_reads(CONTEXTS[0], 8, &taken).is_none()));
    });
    let mut late = [sent.event(sent.tag, PAGE as i64)];
    assert_eq!(cached.core.harvested(&mut late, &taken, no_panic), 0);
    assert!(sent.is_as_before());
    let mut own = [sent.event(sent.words.data, PAGE as i64)];
    assert_eq!(cached.core.harvested(&mut own, &taken, no_panic), 1);
    assert_eq!(own[0].data, sent.words.data);
    assert_eq!(cached.core.switch().pending_requests(), 0);
    assert!(!cached.core.requests.expects_tags());
}

/// EAGAIN and an unsupported flag are no disk errors, and the server gets its own read.
#[test]
fn a_read_that_would_have_waited_is_no_error_of_the_disk() {
    let Some(cached) = Cached::new() else { return };
    let mut buffer = Buffer([0; PAGE]);
    for errno in [libc::EAGAIN, libc::EOPNOTSUPP] {
        let sent = Sent::new(&cached, CONTEXTS[0], 5, &mut buffer);
        let mut refused = [sent.event(sent.tag, -i64::from(errno))];
        assert_eq!(
            cached.core.harvested(&mut refused, &taken, no_panic),
            0,
            "it is made anew"
        );
        assert!(sent.is_as_before());
        let mut own = [sent.event(sent.words.data, PAGE as i64)];
        assert_eq!(cached.core.harvested(&mut own, &taken, no_panic), 1);
    }
    let guard = cached.core.switch().active();
    let extension = &guard.as_ref().unwrap().extension;
    let (device, all) = (&extension.device_statistics()[0], extension.statistics());
    assert_eq!((device.errors, device.reads_busy), (0, 2));
    assert_eq!(all.misses_device_failed, 2);
    assert!(device.state.contains("RWF_NOWAIT"), "{}", device.state);
    // The flag is omitted from now on.
    let mut iocb = cached.request(6, &mut buffer);
    let list = [&raw mut *iocb];
    let refused = || -libc::EAGAIN;
    assert_eq!(
        cached
            .core
            .submit(by(cached.core, CONTEXTS[0]), &list, refused, refused),
        -libc::EAGAIN
    );
    assert_eq!((iocb.rw_flags, iocb.data), (0, 1006));
    assert_eq!(cached.core.switch().pending_requests(), 0);
}

/// A redirected read and another one complete in whichever mode is set by then.
#[test]
fn reads_under_way_outlive_every_change_of_bypass() {
    let Some(cached) = Cached::new() else { return };
    let uses = |bypass, group| cached.core.switch().use_for(bypass, group);
    let counts = || {
        let guard = cached.core.switch().active();
        let active = guard.as_ref().unwrap();
        let timed = [false, true].map(|bypassed| active.waits.of(bypassed, false).count);
        (active.extension.statistics().hits_located, timed)
    };
    let mut buffers = vec![Buffer([0; PAGE]); 2];
    let [buffer, other] = &mut buffers[..] else {
        unreachable!()
    };
    // Redirected, and answered in bypass.
    let sent = Sent::new(&cached, CONTEXTS[0], 1, buffer);
    uses(Bypass::On, false);
    assert!(cached.core.may_expire(true));
    let mut answer = [sent.event(sent.tag, 0)];
    assert_eq!(
        cached.core.harvested(&mut answer, &taken, no_panic),
        0,
        "it came short, so the server's own is submitted"
    );
    assert!(sent.is_as_before());
    let mut own = [sent.event(sent.words.data, PAGE as i64)];
    assert_eq!(cached.core.harvested(&mut own, &taken, no_panic), 1);
    // In bypass it passes unmodified.
    let mut iocb = cached.request(2, other);
    let list = [&raw mut *iocb];
    let submit = |core: &'static Core<TestOs>| {
        let by = by(core, CONTEXTS[0]);
        core.submit(by, &list, || 1, || 1)
    };
    let event = |iocb: &Iocb| IoEvent {
        data: iocb.data,
        request: std::ptr::from_ref(iocb) as u64,
        result: PAGE as i64,
        result2: 0,
    };
    assert_eq!(submit(cached.core), 1);
    assert_eq!((iocb.data, iocb.fd), (1002, cached.file.as_raw_fd()));
    assert_eq!(cached.core.switch().pending_requests(), 0);
    // With a control group it is timed but not looked up, and its request stays unmodified.
    uses(Bypass::On, true);
    assert_eq!(submit(cached.core), 1);
    assert_eq!((iocb.data, iocb.fd), (1002, cached.file.as_raw_fd()));
    assert_eq!(cached.core.switch().pending_requests(), 1);
    uses(Bypass::Off, true);
    let mut events = [event(&iocb)];
    assert_eq!(cached.core.harvested(&mut events, &taken, no_panic), 1);
    assert_eq!(counts(), (0, [0, 1]), "it counts for the mode it began in");
    // Serving again, at once.
    let sent = Sent::new(&cached, CONTEXTS[0], 3, other);
    let mut late = [sent.event(sent.tag, 0)];
    uses(Bypass::On, true);
    assert_eq!(cached.core.harvested(&mut late, &taken, no_panic), 0);
    let mut own = [sent.event(sent.words.data, PAGE as i64)];
    assert_eq!(cached.core.harvested(&mut own, &taken, no_panic), 1);
    assert_eq!(counts(), (0, [1, 1]), "with all that it was waited for");
    drop(cached.core.switch().kill());
    assert!(cached.core.switch().mode().is_off());
}
