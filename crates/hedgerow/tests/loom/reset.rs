//! Giving places of the log back beside a commit: what the last durable checkpoint needs stays until the next one is.
//!
//! The log is the engine's own, on segments of two blocks and with a ring of two. The store's file is another paper,
//! whose sync takes its time: until it has ended, a crash goes back to the checkpoint before, and the places of the log
//! that this needs are kept on the log's paper, where a write to them is a mistake. Beside that somebody commits,
//! and needs a segment more.

use crate::check;
use crate::log::{begin_with, commit, options};
use crate::paper::Paper;
use hedgerow::internals::error::Error;
use hedgerow::internals::storage::File as _;
use hedgerow::internals::types::Epoch;
use hedgerow::internals::wal::{LogOptions, SegmentSize};
use loom::thread;
use std::sync::Arc;

const SEGMENT: SegmentSize = SegmentSize { blocks: 2 };

/// Where anything of the segment at this place is written: its name, and its blocks.
fn offsets_of(place: u32) -> Vec<u64> {
    let begin = SEGMENT.place_offset_bytes(place);
    let offset = |block| SEGMENT.block_offset_bytes(place, block);
    std::iter::once(begin).chain((0..u64::from(SEGMENT.blocks)).map(offset)).collect()
}

#[test]
fn a_place_that_the_last_checkpoint_needs_is_not_written_before_the_next_is_durable() {
    check(2, || {
        let paper = Arc::new(Paper::default());
        let log = LogOptions { segment: SEGMENT, ring_blocks: 2, ..options(false) };
        let log = begin_with(&paper, log);
        // Fills the first two segments; of the third there is only what is kept for flushes: who commits next needs
        // one more.
        for letter in *b"wxyz" {
            commit(&log, letter).unwrap();
        }
        let cut = log.tail();
        paper.keep([offsets_of(0), offsets_of(1)].concat());
        let committer = {
            let (log, paper) = (Arc::clone(&log), Arc::clone(&paper));
            thread::spawn(move || {
                commit(&log, b'a').unwrap();
                assert!(paper.has_synced(&[b'a'; 16]), "told too early");
            })
        };
        let store = Paper::default();
        let publish = || {
            store.write_at(0, b"superblock")?;
            store.sync_data()?;
            paper.keep(Vec::new());
            Ok::<(), Error>(())
        };
        log.publish_checkpoint(Epoch(2), cut, cut, publish).unwrap();
        committer.join().unwrap();
        // The places are used again now, and nothing that came behind the cut is gone.
        for letter in *b"bcdef" {
            commit(&log, letter).unwrap();
        }
        for letter in *b"abcdef" {
            assert!(paper.has_synced(&[letter; 16]), "lost with the log before the checkpoint");
        }
        assert!(!paper.has_synced(&[b'w'; 16]), "no place is ever used again");
    });
}
