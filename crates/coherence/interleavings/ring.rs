//! The ring of a recording: every event is read once, complete and in order, or counted as lost.

use std::sync::{Arc, Mutex as Plain};

use shuttle::thread;

use super::{explore, is_noticed, seen};
use crate::core::trace::ring::{Event, RECORD_BYTES, Ring};

fn pushed_and_read() {
    const EACH: u32 = 4;
    let ring = Arc::new(Ring::new(2));
    let got = Arc::new(Plain::new(Vec::new()));
    let read = |ring: &Ring, got: &Plain<Vec<u64>>| {
        let (first, bytes) = ring.records(8);
        let records = bytes.chunks_exact(RECORD_BYTES);
        ring.acknowledge(first + records.len() as u64);
        let words = records.map(|record| u64::from_le_bytes(record[..8].try_into().unwrap()));
        got.lock().unwrap().extend(words);
    };
    let pushing = [1, 2].map(|file| {
        let ring = Arc::clone(&ring);
        thread::spawn(move || {
            for page in 1..=EACH {
                let write = false;
                ring.push(Event { file, page, write }, 16384);
            }
        })
    });
    let reading = {
        let (ring, got) = (Arc::clone(&ring), Arc::clone(&got));
        thread::spawn(move || (0..4).for_each(|_| read(&ring, &got)))
    };
    for thread in pushing.into_iter().chain([reading]) {
        thread.join().expect("no thread panics");
    }
    read(&ring, &got);
    let got = got.lock().unwrap();
    assert_eq!(got.len() as u64 + ring.lost(), u64::from(2 * EACH));
    let mut last = [0; 3];
    for event in got.iter() {
        let (file, page) = (*event as u32 as usize, event >> 32);
        assert!(
            (1..=2).contains(&file) && page > last[file],
            "torn: {event:x}"
        );
        last[file] = page;
    }
    seen("events", got.len() as u64);
    seen("lost", ring.lost());
}

#[test]
fn events_are_read_once_and_whole() {
    let seen = explore("ring", pushed_and_read);
    assert!(seen["events"] > 0 && seen["lost"] > 0);
}

#[test]
fn a_place_published_before_it_is_filled_is_noticed() {
    is_noticed("stamp-first", pushed_and_read);
}
