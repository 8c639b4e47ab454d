//! The log: reservation in the ring, the durable LSN, and a sync that fails.
//!
//! The ring's bytes are plain memory, which loom sees through a witness.

use crate::check;
use crate::paper::Paper;
use hedgerow::ErrorKind;
use hedgerow::internals::error::Result;
use hedgerow::internals::types::{Epoch, Lsn, TreeId};
use hedgerow::internals::wal::block::{HEADER_BYTES, PAYLOAD_BYTES};
use hedgerow::internals::wal::ring::Ring;
use hedgerow::internals::wal::{
    Log, LogIdentity, LogOptions, Pace, Promised, RECORD_HEADER_BYTES, Record, SegmentSize,
};
use loom::thread;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

/// The segments of the logs of these models.
pub const SEGMENT: SegmentSize = SegmentSize { blocks: 4 };

/// A value that makes a record half a block long, out of the letter of its writer.
fn half_a_block(letter: u8) -> Vec<u8> {
    vec![letter; PAYLOAD_BYTES as usize / 2 - RECORD_HEADER_BYTES - 1]
}

/// Fills half a block if there is room.
fn append_half(ring: &Ring, letter: u8) -> bool {
    let value = half_a_block(letter);
    let record = Record::Put { tree: TreeId(1), key: &[letter], value: &value };
    let promised = ring.promise(PAYLOAD_BYTES / 2);
    if promised {
        ring.append(&record);
    }
    promised
}

/// Ends the block that is being filled, and writes what was not; returns the letters of the records.
fn flush(ring: &Ring, written: &mut u64) -> Vec<u8> {
    let mut letters = Vec::new();
    let mut flusher = ring.flusher().expect("one flushes at a time");
    let (to, skipped) = flusher.close();
    for number in *written..to {
        let skipped = if number + 1 == to { skipped } else { 0 };
        let block = flusher.whole(number, skipped);
        let used = PAYLOAD_BYTES as usize - skipped as usize;
        for half in block[HEADER_BYTES..][..used].chunks(PAYLOAD_BYTES as usize / 2) {
            let letter = half[RECORD_HEADER_BYTES];
            assert!(half[RECORD_HEADER_BYTES..].iter().all(|&byte| byte == letter), "torn");
            letters.push(letter);
        }
    }
    flusher.release(to);
    drop(flusher);
    *written = to;
    ring.set_limits(Lsn(u64::MAX), Lsn(u64::MAX));
    letters
}

#[test]
fn a_block_that_is_written_is_whole() {
    check(3, || {
        let ring = Arc::new(Ring::new(4, Lsn(0)).unwrap());
        ring.set_limits(Lsn(u64::MAX), Lsn(u64::MAX));
        let writers = [b'a', b'b'].map(|letter| {
            let ring = Arc::clone(&ring);
            thread::spawn(move || assert!(append_half(&ring, letter)))
        });
        let mut written = 0;
        let mut letters = flush(&ring, &mut written);
        for writer in writers {
            writer.join().unwrap();
        }
        letters.extend(flush(&ring, &mut written));
        letters.sort_unstable();
        assert_eq!(letters, b"ab");
    });
}

#[test]
fn a_place_is_filled_again_only_after_it_was_written() {
    check(3, || {
        let ring = Arc::new(Ring::new(4, Lsn(0)).unwrap());
        ring.set_limits(Lsn(u64::MAX), Lsn(u64::MAX));
        let filled = (0..10).take_while(|_| append_half(&ring, b'a')).count();
        assert_eq!(filled, 6, "one block is left for what is skipped");
        let writer = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || (0..3).take_while(|_| append_half(&ring, b'b')).count())
        };
        let mut written = 0;
        let mut letters = flush(&ring, &mut written);
        let more = writer.join().unwrap();
        letters.extend(flush(&ring, &mut written));
        assert_eq!(letters, [&b"aaaaaa"[..], &b"bbb"[..more]].concat());
    });
}

#[test]
fn of_two_who_want_the_last_room_one_gets_it_and_there_is_more_only_after_a_flush() {
    check(3, || {
        let ring = Arc::new(Ring::new(4, Lsn(0)).unwrap());
        // Half a block, and the block that is left for what is skipped.
        ring.set_limits(Lsn(PAYLOAD_BYTES / 2 + PAYLOAD_BYTES), Lsn(u64::MAX));
        let other = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || append_half(&ring, b'a'))
        };
        let mine = append_half(&ring, b'b');
        let others = other.join().unwrap();
        assert!(mine != others, "there was room for one: {mine}, {others}");
        assert!(!append_half(&ring, b'c'), "there is no more");
        let mut written = 0;
        assert_eq!(flush(&ring, &mut written), if mine { b"b" } else { b"a" });
        assert!(append_half(&ring, b'c'), "a flush has made room");
        assert_eq!(flush(&ring, &mut written), b"c");
    });
}

/// How a log of four blocks is made.
pub fn options(threaded: bool) -> LogOptions {
    LogOptions {
        identity: LogIdentity { store_id: [1; 16], incarnation: 1 },
        segment: SEGMENT,
        first_segment: 0,
        checkpoint: Epoch(1),
        ring_blocks: 4,
        interval: Duration::from_millis(100),
        limit_bytes: u64::MAX,
        on_failure: Box::new(|error| panic!("{error}")),
        before_write: Box::new(|| Ok(())),
        threaded,
        on_growth: Box::new(|_| Pace::default()),
    }
}

/// A log on this paper.
pub fn begin_with(paper: &Arc<Paper>, options: LogOptions) -> Arc<Log> {
    Arc::new(Log::begin(options, paper.clone()).unwrap())
}

/// A log of four blocks on this paper.
pub fn begin(paper: &Arc<Paper>, threaded: bool) -> Arc<Log> {
    begin_with(paper, options(threaded))
}

/// Appends a record of this letter, half a block long; returns where it ends.
pub fn append_as(log: &Log, letter: u8, how: Promised) -> Result<Lsn> {
    let value = half_a_block(letter);
    let record = Record::Put { tree: TreeId(1), key: &[letter], value: &value };
    log.promise(record.len_bytes() as u64, how)?;
    Ok(log.append(&record).end)
}

/// The same, with whatever room there is.
pub fn append(log: &Log, letter: u8) -> Result<Lsn> {
    append_as(log, letter, Promised::Freely)
}

/// The same, and waits until it is durable.
pub fn commit(log: &Log, letter: u8) -> Result<()> {
    log.wait_durable(append(log, letter)?)
}

#[test]
fn whoever_was_told_that_it_is_durable_has_it_on_the_disk_and_everybody_is_told() {
    check(2, || {
        let paper = Arc::new(Paper::default());
        let log = begin(&paper, false);
        let committer = |letter: u8| {
            let (log, paper) = (Arc::clone(&log), Arc::clone(&paper));
            move || {
                commit(&log, letter).unwrap();
                assert!(paper.has_synced(&[letter; 16]), "told too early");
            }
        };
        let other = thread::spawn(committer(b'a'));
        committer(b'b')();
        other.join().unwrap();
        assert_eq!(log.durable(), log.tail());
    });
}

#[test]
fn who_finds_no_room_makes_it_or_waits_for_who_does() {
    check(2, || {
        let paper = Arc::new(Paper::default());
        let log = begin_with(&paper, LogOptions { ring_blocks: 2, ..options(false) });
        // Leaves room for one of the two.
        append(&log, b'x').unwrap();
        let other = {
            let log = Arc::clone(&log);
            thread::spawn(move || {
                append(&log, b'a').unwrap();
            })
        };
        append(&log, b'b').unwrap();
        other.join().unwrap();
        log.flush().unwrap();
        for letter in *b"xab" {
            assert!(paper.has_synced(&[letter; 16]), "overwritten before it was written");
        }
    });
}

#[test]
fn after_a_sync_that_failed_nobody_is_told_that_it_is_durable_and_nothing_is_written() {
    check(2, || {
        let paper = Arc::new(Paper::default());
        let failures = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&failures);
        let log = begin_with(
            &paper,
            LogOptions {
                on_failure: Box::new(move |_| {
                    counted.fetch_add(1, Relaxed);
                }),
                ..options(false)
            },
        );
        paper.fail_next_sync();
        let committer = |letter: u8| {
            let log = Arc::clone(&log);
            move || {
                let error = commit(&log, letter).expect_err("nothing was synced");
                assert_eq!(error.kind(), ErrorKind::DurabilityUnknown);
            }
        };
        let other = thread::spawn(committer(b'a'));
        committer(b'b')();
        other.join().unwrap();
        // Nor is anybody who comes later.
        committer(b'c')();
        assert_eq!(log.durable(), Lsn(0));
        assert_eq!(failures.load(Relaxed), 1);
    });
}
