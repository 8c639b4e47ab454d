//! Models of the log: every interleaving, and every outcome that the memory model allows, of a few threads, up to
//! a bound on preemptions.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p hedgerow --release --test loom
//! ```
//!
//! The ring's bytes are plain memory, which loom sees through a witness. A wake-up that is lost shows as a
//! deadlock. `loom_canaries.sh` leaves out one line at a time and expects these models to notice.

#![cfg(loom)]
#![allow(missing_docs, clippy::disallowed_methods, clippy::disallowed_types, reason = "models")]

use hedgerow::error::Result;
use hedgerow::storage::{File, LockOutcome, ReadRequest, WriteRequest};
use hedgerow::types::{Epoch, Lsn, TreeId};
use hedgerow::wal::block::{HEADER_BYTES, PAYLOAD_BYTES};
use hedgerow::wal::ring::Ring;
use hedgerow::wal::{
    Log, LogIdentity, LogOptions, Promised, RECORD_HEADER_BYTES, Record, SegmentSize,
};
use loom::thread;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Checks every execution with at most `preemptions` involuntary switches.
fn check(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 100_000;
    builder.check(model);
}

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
    let (to, skipped) = ring.close();
    for number in *written..to {
        let skipped = if number + 1 == to { skipped } else { 0 };
        let block = ring.whole(number, skipped);
        let used = PAYLOAD_BYTES as usize - skipped as usize;
        for half in block[HEADER_BYTES..][..used].chunks(PAYLOAD_BYTES as usize / 2) {
            let letter = half[RECORD_HEADER_BYTES];
            assert!(half[RECORD_HEADER_BYTES..].iter().all(|&byte| byte == letter), "torn");
            letters.push(letter);
        }
    }
    ring.release(*written, to);
    *written = to;
    ring.set_limits(to, Lsn(u64::MAX), Lsn(u64::MAX));
    letters
}

#[test]
fn a_block_that_is_written_is_whole() {
    check(3, || {
        let ring = Arc::new(Ring::new(4, Lsn(0)).unwrap());
        ring.set_limits(0, Lsn(u64::MAX), Lsn(u64::MAX));
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
        ring.set_limits(0, Lsn(u64::MAX), Lsn(u64::MAX));
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

/// A file that knows what was written, and what of it was synced.
#[derive(Default, Debug)]
struct Paper(Mutex<(Vec<u8>, Vec<u8>)>);

impl Paper {
    /// Whether a synced block has a record of this letter.
    fn has_synced(&self, letter: u8) -> bool {
        let value = half_a_block(letter);
        let synced = &self.0.lock().unwrap().1;
        synced.windows(16).any(|window| window == &value[..16])
    }
}

impl File for Paper {
    fn read_at(&self, _: u64, _: &mut [u8]) -> Result<()> {
        unreachable!("a log that is written is not read")
    }

    fn write_at(&self, offset_bytes: u64, buf: &[u8]) -> Result<()> {
        let written = &mut self.0.lock().unwrap().0;
        let end = offset_bytes as usize + buf.len();
        let len = written.len().max(end);
        written.resize(len, 0);
        written[offset_bytes as usize..end].copy_from_slice(buf);
        Ok(())
    }

    fn read_batch(&self, _: &mut [ReadRequest<'_>]) {
        unreachable!("a log that is written is not read")
    }

    fn write_batch(&self, requests: &[WriteRequest<'_>]) -> Result<()> {
        requests.iter().try_for_each(|request| self.write_at(request.offset_bytes, request.buf))
    }

    fn len_bytes(&self) -> Result<u64> {
        Ok(self.0.lock().unwrap().0.len() as u64)
    }

    fn set_len(&self, _: u64) -> Result<()> {
        Ok(())
    }

    fn allocate(&self, _: u64, _: u64) -> Result<()> {
        Ok(())
    }

    fn punch_hole(&self, _: u64, _: u64) -> Result<bool> {
        Ok(false)
    }

    fn sync_data(&self) -> Result<()> {
        // Takes its time: the others go on meanwhile.
        thread::yield_now();
        let mut files = self.0.lock().unwrap();
        files.1 = files.0.clone();
        Ok(())
    }

    fn sync_all(&self) -> Result<()> {
        self.sync_data()
    }

    fn allocated_bytes(&self) -> Result<u64> {
        self.len_bytes()
    }

    fn block_bytes(&self) -> usize {
        1
    }

    fn try_lock(&self, _: bool) -> Result<LockOutcome> {
        Ok(LockOutcome::Held)
    }

    fn is_at(&self, _: &Path) -> Result<bool> {
        Ok(true)
    }

    fn unlock(&self) -> Result<()> {
        Ok(())
    }

    fn read_unaligned(&self, _: u64, _: &mut [u8]) -> Result<()> {
        unreachable!("a log that is written is not read")
    }
}

#[test]
fn whoever_was_told_that_it_is_durable_has_it_on_the_disk_and_everybody_is_told() {
    check(2, || {
        let paper = Arc::new(Paper::default());
        let options = LogOptions {
            identity: LogIdentity { store_id: [1; 16], incarnation: 1 },
            segment: SegmentSize { blocks: 4 },
            first_segment: 0,
            checkpoint: Epoch(1),
            ring_blocks: 4,
            interval: Duration::from_millis(100),
            limit_bytes: u64::MAX,
            on_failure: Box::new(|error| panic!("{error}")),
            threaded: false,
            on_growth: Box::new(|_| ()),
        };
        let log = Arc::new(Log::begin(options, paper.clone()).unwrap());
        let commit = |letter: u8| {
            let (log, paper) = (Arc::clone(&log), Arc::clone(&paper));
            move || {
                let value = half_a_block(letter);
                let record = Record::Put { tree: TreeId(1), key: &[letter], value: &value };
                log.promise(record.len_bytes() as u64, Promised::Freely).unwrap();
                let place = log.append(&record);
                log.wait_durable(place.end).unwrap();
                assert!(paper.has_synced(letter), "told too early");
            }
        };
        let other = thread::spawn(commit(b'a'));
        commit(b'b')();
        other.join().unwrap();
        assert_eq!(log.durable(), log.tail());
    });
}
