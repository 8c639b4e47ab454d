//! Room that a batch reserves in the log, beside a writer that takes what is left: the writer never takes what is
//! reserved, and the batch, once it has its room, finds it there whatever others do.

use crate::check;
use crate::log::{SEGMENT, append, append_as, begin_with, options};
use crate::paper::Paper;
use hedgerow::ErrorKind;
use hedgerow::internals::wal::block::PAYLOAD_BYTES;
use hedgerow::internals::wal::{LogOptions, Promised};
use loom::thread;
use std::sync::Arc;

/// Promised beforehand, and not used: leaves less than half a block of the segments that a log begins with, so that
/// both have to widen it.
const HELD_BYTES: u64 = 19 * (PAYLOAD_BYTES / 4);
/// The batch's records, of half a block each. What it reserves for what flushes skip makes it nine blocks.
const BATCH: &[u8; 6] = b"abcdef";
const BATCH_BYTES: u64 = BATCH.len() as u64 * (PAYLOAD_BYTES / 2);
/// So large that nobody waits for a flush but who has no room in the file.
const RING_BLOCKS: u32 = 32;

/// Room for one: the batch fits if nobody widens the log's limit before it has reserved.
const SEGMENTS_FOR_ONE: u32 = 5;
/// Room for both: also if the writer widens it up to what the ring holds.
const SEGMENTS_FOR_BOTH: u32 = 12;

/// A batch beside a writer of one record, in a file of so many segments.
fn beside_a_writer(preemptions: usize, segments: u32) {
    check(preemptions, move || {
        let paper = Arc::new(Paper::default());
        paper.limit(SEGMENT.place_offset_bytes(segments));
        let log = begin_with(&paper, LogOptions { ring_blocks: RING_BLOCKS, ..options(false) });
        log.promise(HELD_BYTES, Promised::Freely).unwrap();
        let writer = {
            let log = Arc::clone(&log);
            thread::spawn(move || {
                append(&log, b'w').unwrap();
            })
        };
        match log.reserve(BATCH_BYTES, &hedgerow::internals::wait::Waiting::Forever) {
            Ok(reservation) => {
                let append = |letter: u8| {
                    append_as(&log, letter, Promised::OfReserved).expect("it was reserved");
                    reservation.used(PAYLOAD_BYTES / 2);
                };
                append(BATCH[0]);
                writer.join().unwrap();
                let mut taken_bytes = 0;
                if segments == SEGMENTS_FOR_ONE {
                    // All that others can have. None of it is used, so that no flush makes any room.
                    let full = loop {
                        match log.promise(PAYLOAD_BYTES, Promised::Freely) {
                            Ok(()) => taken_bytes += PAYLOAD_BYTES,
                            Err(error) => break error,
                        }
                    };
                    assert_eq!(full.kind(), ErrorKind::DiskFull);
                }
                for letter in &BATCH[1..] {
                    append(*letter);
                }
                log.take_back(taken_bytes, Promised::Freely);
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::DiskFull);
                assert!(segments != SEGMENTS_FOR_BOTH, "there is room for both");
                writer.join().unwrap();
            }
        }
        log.take_back(HELD_BYTES, Promised::Freely);
        log.flush().unwrap();
    });
}

#[test]
fn what_a_batch_has_reserved_nobody_else_is_promised() {
    beside_a_writer(2, SEGMENTS_FOR_ONE);
}

#[test]
fn where_there_is_room_for_both_a_batch_and_a_writer_get_it() {
    beside_a_writer(2, SEGMENTS_FOR_BOTH);
}
