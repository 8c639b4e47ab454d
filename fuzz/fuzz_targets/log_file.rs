//! A damaged log beside a sound store: opening replays something that the log could mean, or gives a typed error,
//! and then the store is as it was. Checksums cover nothing in a fuzzing build, so that damage reaches what is
//! behind them: records of any length and kind, for trees and batches that never were, and large values in units
//! of others.

#![no_main]

use arbitrary::Arbitrary;
use hedgerow::internals::store::{OpenHow, log_path};
use hedgerow::{ErrorKind, Options, WriteBatch, smallest_memory_limit_bytes};
use hedgerow_fuzz::damage::{self, Buffer, Damage, Used};
use hedgerow_fuzz::{LARGE_VALUES_BYTES, path};
use hedgerow_testing::RamDisk;
use libfuzzer_sys::fuzz_target;
use std::ops::ControlFlow;
use std::sync::OnceLock;

const PAGE_BYTES: usize = 512;
/// What a reference to a large value begins with, and its length if all of the value lies in one run.
const REFERENCE_MAGIC: [u8; 8] = [0x9b, 0xe1, 0x4c, 0x07, 0xd6, 0x3a, 0x81, 0xf5];
const REFERENCE_BYTES: usize = 40;

#[derive(Arbitrary, Debug)]
struct Input {
    damage: Vec<Damage>,
    cut_at: Option<u16>,
    writes: bool,
}

/// A store and its log, as a crash leaves them.
struct Left {
    store: Buffer,
    log: Buffer,
    /// Where the log has something that is not zero.
    used: Used,
    /// Where it has references to large values.
    references: Vec<usize>,
}

fn options() -> Options {
    Options::new()
        .page_bytes(PAGE_BYTES)
        .zone_bytes(128 << 10)
        .memory_limit_bytes(smallest_memory_limit_bytes(PAGE_BYTES) + LARGE_VALUES_BYTES)
        .background_checkpoints(false)
        .log_segment_blocks(4)
}

fn left() -> &'static Left {
    static LEFT: OnceLock<Left> = OnceLock::new();
    LEFT.get_or_init(|| {
        let disk = RamDisk::new();
        let db = options().on_disk(&disk, path(), OpenHow::New).unwrap();
        let keyspace = db.keyspace("a").unwrap();
        keyspace.put(b"checkpointed", b"yes").unwrap();
        keyspace.put(b"large before", &[5; 20_000]).unwrap();
        db.checkpoint().unwrap();
        keyspace.put(b"large", &[6; 20_000]).unwrap();
        for number in 0..60_u32 {
            keyspace.put(&number.to_be_bytes(), &[7; 30]).unwrap();
        }
        db.sync().unwrap();
        let other = db.keyspace("b").unwrap();
        for number in 0..20_u32 {
            keyspace.remove(&number.to_be_bytes()).unwrap();
            other.put(&number.to_be_bytes(), b"here").unwrap();
        }
        db.sync().unwrap();
        let mut batch = WriteBatch::new();
        for number in 10..30_u32 {
            batch.put(&keyspace, &number.to_be_bytes(), b"batch").unwrap();
            batch.remove(&other, &number.to_be_bytes()).unwrap();
        }
        batch.put(&keyspace, b"large in a batch", &[7; 20_000]).unwrap();
        db.write(&batch).unwrap();
        keyspace.remove_range(&[0, 0, 0, 35][..]..&[0, 0, 0, 38]).unwrap();
        db.drop_keyspace("b").unwrap();
        keyspace.put(b"last", &[1; 40]).unwrap();
        db.sync().unwrap();
        drop((keyspace, other, db));
        let store = damage::read(&disk, path()).expect("the store has a file");
        let log = damage::read(&disk, &log_path(path())).expect("the store has a log");
        let at_magic = |at: &usize| log[*at..].starts_with(&REFERENCE_MAGIC);
        let references: Vec<usize> = (0..log.len()).filter(at_magic).collect();
        assert!(!references.is_empty(), "the log refers to large values");
        Left { used: Used::of(&log), references, store, log }
    })
}

fuzz_target!(|input: Input| {
    let left = left();
    let log = damage::damaged(&left.log, &left.used, &input.damage, input.cut_at);
    // A reference that was changed past its checksum may name units that are somebody else's: then a verification
    // has findings, and what is read is anything.
    let is_forged = left.references.iter().any(|&at| {
        let end = at + REFERENCE_BYTES;
        log.get(at..end).is_some_and(|found| left.log.get(at..end) != Some(found))
    });
    let disk = RamDisk::new();
    damage::write(&disk, path(), &left.store);
    damage::write(&disk, &log_path(path()), &log);
    let how = if input.writes { OpenHow::Existing } else { OpenHow::ReadOnly };
    match options().on_disk(&disk, path(), how) {
        Ok(db) => {
            if !is_forged {
                let report = db.verify(|_| ControlFlow::Continue(())).unwrap();
                assert!(report.is_clean(), "{:?}", report.findings);
            }
            for name in db.keyspaces().unwrap() {
                let keyspace = db.open_keyspace(&name).unwrap().unwrap();
                let are_read = keyspace.iter().all(|record| record.is_ok());
                for key in [&b"large"[..], b"large before", b"large in a batch"] {
                    let Ok(reader) = keyspace.value_reader(key) else {
                        assert!(is_forged, "a large value has no reader");
                        continue;
                    };
                    if let Some(mut reader) = reader {
                        let middle = reader.len_bytes() / 2;
                        let read = reader.read_at(middle, &mut [0; 1000]);
                        assert!(is_forged || read.is_ok());
                    }
                }
                assert!(is_forged || are_read);
            }
            drop(db.close());
        }
        Err(error) => {
            let expected = matches!(
                error.kind(),
                ErrorKind::Corrupted { .. }
                    | ErrorKind::UpgradeRequired { .. }
                    | ErrorKind::MemoryLimit
            );
            assert!(expected, "{error:?}");
            // The store itself is sound, and what a log can do to it is nothing.
            if !input.writes {
                assert!(damage::read(&disk, path()).as_ref() == Some(&left.store));
            }
        }
    }
});
