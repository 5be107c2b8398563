//! The table of requests without a kernel.

use super::*;

fn requests() -> &'static Requests {
    Box::leak(Box::new(Requests::new()))
}

#[test]
fn a_context_is_armed_until_all_are_disarmed() {
    let requests = requests();
    requests.arm(0);
    assert!(!requests.is_armed(0), "no context has this number");
    for context in [0x1000, 0x2000, 0x1000] {
        requests.arm(context);
    }
    assert_eq!(requests.number_of(0x1000), Some(0));
    assert_eq!(requests.number_of(0x2000), Some(1));
    assert_eq!(requests.number_of(0x3000), None);
    requests.disarm_all();
    assert!(!requests.is_armed(0x1000) && !requests.is_armed(0x2000));
}

#[test]
fn contexts_are_bounded() {
    let requests = requests();
    (1..=CONTEXTS).for_each(|context| requests.arm(context));
    assert_eq!(requests.number_of(CONTEXTS), Some(CONTEXTS - 1));
    // One more is not armed, and the others stay armed.
    requests.arm(CONTEXTS + 1);
    assert!(!requests.is_armed(CONTEXTS + 1) && requests.is_armed(1));
}

#[test]
fn contexts_that_are_armed_at_once_have_a_place_each() {
    let requests = requests();
    std::thread::scope(|scope| {
        for first in 1..=4 {
            scope.spawn(move || (0..100).for_each(|n| requests.arm(first + n % 25 * 4)));
        }
    });
    let mut numbers: Vec<_> = (1..=100)
        .map(|context| requests.number_of(context).unwrap())
        .collect();
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(0..100));
}

#[test]
fn a_tag_is_its_own_and_counts_while_it_lives() {
    let requests = requests();
    assert!(!requests.expects_tags());
    let (one, other) = (requests.new_tag(), requests.new_tag());
    assert_ne!(one.word(), other.word());
    assert!(is_tag(one.word()) && is_tag(other.word()));
    // Addresses of the lower half are words of the servers.
    assert!(!is_tag(0) && !is_tag(0x7fff_ffff_f000));
    drop(one);
    assert!(requests.expects_tags());
    drop(other);
    assert!(!requests.expects_tags());
}

#[test]
fn nobodys_answer_is_taken_by_nobody() {
    let requests = requests();
    requests.disarm_all();
    let tag = requests.new_tag();
    assert!(requests.take(0x40).is_none());
    assert!(requests.take_answered(0x40, 7).is_none());
    assert!(requests.take_answered(0x40, tag.word()).is_none());
    assert!(!requests.forget(tag.word()) && !requests.forget(7));
    assert!(
        requests.memory_bytes() > 0,
        "there is room before a hook needs it"
    );
}

#[test]
fn neighbours_lie_in_several_shards() {
    let requests = requests();
    let step = size_of::<Iocb>();
    let shards: std::collections::HashSet<_> = (0..1024)
        .map(|n| std::ptr::from_ref(requests.shard(0x7f00_0000_0000 + n * step)))
        .collect();
    assert!(shards.len() > SHARDS / 2, "{}", shards.len());
}

#[test]
fn a_request_gets_its_words_back() {
    // SAFETY: all fields are integers, for which zero is valid.
    let mut iocb: Iocb = unsafe { std::mem::zeroed() };
    (iocb.data, iocb.fd, iocb.buffer, iocb.offset) = (1000, 5, 0x8000, 16384);
    (iocb.opcode, iocb.length) = (PREAD, 16384);
    let words = Words::of(&iocb);
    (iocb.data, iocb.fd, iocb.buffer, iocb.offset) = (TAG, 9, 0x9000, 4096);
    iocb.rw_flags = 8;
    words.restore(&mut iocb);
    assert_eq!(
        (iocb.data, iocb.fd, iocb.buffer, iocb.offset, iocb.rw_flags),
        (1000, 5, 0x8000, 16384, 0)
    );
    assert_eq!((iocb.opcode, iocb.length), (PREAD, 16384));
}

#[test]
fn a_vector_is_as_long_as_its_entries() {
    let entry = |length| Vector { base: 0, length };
    let vectors = [entry(100), entry(0), entry(4096)];
    let bytes = |vectors: &[Vector], count| {
        // SAFETY: `count` is at most the number of entries.
        unsafe { vector_bytes(vectors.as_ptr(), count) }
    };
    assert_eq!(bytes(&vectors, 3), 4196);
    assert_eq!(bytes(&vectors, 1), 100);
    assert_eq!((bytes(&vectors, 0), bytes(&vectors, -1)), (0, 0));
    let long = [entry(usize::MAX), entry(1)];
    assert_eq!(bytes(&long, 2), usize::MAX, "nothing wraps");
    // SAFETY: a null vector is not read.
    assert_eq!(unsafe { vector_bytes(std::ptr::null(), 3) }, 0);
}
