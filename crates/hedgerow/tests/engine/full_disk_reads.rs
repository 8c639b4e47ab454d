//! A disk that is full for good: whatever was put and cannot be written keeps memory, and all ways of reading still have
//! the memory that they need, at all limits that let large values in.
#![allow(clippy::disallowed_methods, reason = "a test that looks at the clock")]

use crate::common::{Dice, bytes, contents, key, open, seed, tiny};
use hedgerow::internals::buffer::smallest_limit_without_log_bytes;
use hedgerow::internals::store::OpenHow;
use hedgerow::{Database, Error, ErrorKind, Keyspace, Options};
use hedgerow_testing::SimDisk;
use hedgerow_testing::count;
use hedgerow_testing::sim::{CallKind, Fault};
use std::io::Read;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// Whoever reads waits for no memory; somebody who did would wait for ten seconds.
const LONGEST_READ: Duration = Duration::from_secs(8);
/// Records before the disk is full, and of these, those with a value that nothing keeps in memory.
const RECORDS: u64 = 300;
const LARGE: u64 = 12;

fn options(beyond_smallest: u64, log: bool) -> Options {
    let smallest = match log {
        true => hedgerow::smallest_memory_limit_bytes(512),
        false => smallest_limit_without_log_bytes(512),
    };
    let options = tiny().memory_limit_bytes(smallest + beyond_smallest).log(log);
    options.zone_bytes(64 << 10)
}

/// A store whose large values are in the file only.
fn begin(options: &Options, disk: &SimDisk, dice: &mut Dice, large_bytes: usize) -> Database {
    let db = open(options, disk, OpenHow::New).unwrap();
    let keyspace = db.keyspace("robins").unwrap();
    for n in 0..RECORDS {
        let len = if n % (RECORDS / LARGE) == 0 { large_bytes } else { 30 };
        keyspace.put(&key(n), &bytes(dice, len)).unwrap();
    }
    db.close().unwrap();
    open(options, disk, OpenHow::Existing).unwrap()
}

/// Puts values of such lengths until the store refuses five, or every change for good because its log could not be written.
/// Returns how many it took.
fn fill(keyspace: &Keyspace, dice: &mut Dice, lengths: &[usize], is_logged: bool) -> u64 {
    let (mut taken, mut refused) = (0, 0);
    while refused < 5 && taken < 3000 {
        let len = lengths[dice.below(lengths.len() as u64) as usize];
        match keyspace.put(&key(10_000 + taken), &bytes(dice, len)) {
            Ok(_) => taken += 1,
            Err(error) => {
                assert!(is_allowed(&error, is_logged), "{error:?}");
                refused += 1;
            }
        }
    }
    taken
}

/// What a change, or what needs a checkpoint, may say. The log has its room beforehand: if that is refused it may not be written
/// again.
fn is_allowed(error: &Error, is_logged: bool) -> bool {
    match error.kind() {
        ErrorKind::DiskFull => true,
        ErrorKind::Poisoned => is_logged,
        _ => false,
    }
}

/// Reads everything in every way; what cannot go on without a write says that the disk is full.
fn read_all(db: &Database, keyspace: &Keyspace, is_logged: bool, context: &str) -> u64 {
    let since = Instant::now();
    let model = contents(db).unwrap_or_else(|error| panic!("{context}: a scan: {error:?}"));
    let model = &model["robins"];
    for (key, value) in model {
        let found = keyspace.get(key);
        let found = found.unwrap_or_else(|error| panic!("{context}: a get: {error:?}"));
        assert!(found.unwrap() == value[..], "{context}");
    }
    let keys: Vec<_> = model.keys().collect();
    let many = keyspace.get_many(&keys);
    let many = many.unwrap_or_else(|error| panic!("{context}: many: {error:?}"));
    assert!(many.iter().zip(model.values()).all(|(found, value)| found.as_deref() == Some(value)));
    let back = keyspace.iter().rev().map(|record| record.unwrap().0.to_vec());
    assert!(back.eq(model.keys().rev().cloned()), "{context}: backwards");
    let first = model.keys().next().unwrap();
    let mut reader = keyspace.value_reader(first).unwrap().unwrap();
    let mut read = Vec::new();
    reader.read_to_end(&mut read).unwrap_or_else(|error| panic!("{context}: {error:?}"));
    assert!(read == model[first], "{context}: a stream");
    drop(reader);
    // It checks a checkpoint, which it takes if there was a change since the last one.
    match db.verify(|_| ControlFlow::Continue(())) {
        Ok(report) => assert!(report.is_clean(), "{context}: {:?}", report.findings),
        Err(error) => assert!(is_allowed(&error, is_logged), "{context}: {error:?}"),
    }
    let backup = db.backup("/data/copy.hrow", |_| ControlFlow::Continue(())).unwrap_err();
    assert!(is_allowed(&backup, is_logged), "{context}: {backup:?}");
    let took = since.elapsed();
    assert!(took < LONGEST_READ, "{context}: {took:?} for reading {} records", model.len());
    model.len() as u64
}

/// With the smallest share of large values two buffers of staged values took all of it, so a get of any other value ended
/// with `MemoryLimit`.
#[test]
fn values_are_read_while_staged_ones_cannot_be_written() {
    let mut dice = Dice(seed(41));
    let mut read = 0;
    for log in [false, true] {
        // Shares of two chunks; of a little less than three; of four, when a staged value takes two; and of more.
        for beyond in [128 << 10, 3 << 20, (8 << 20) + (64 << 10), 16 << 20] {
            let options = options(beyond, log);
            let share = (64 << 10) + beyond as usize / 128;
            let disk = SimDisk::new(dice.roll());
            let large = (share / 2).max(beyond as usize / 32);
            let db = begin(&options, &disk, &mut dice, large);
            let keyspace = db.keyspace("robins").unwrap();
            disk.inject(Fault::once(CallKind::Write, 0, Fault::ENOSPC).sticky());
            let staged = (share / 4).min(96 << 10) - 200;
            let taken = fill(&keyspace, &mut dice, &[staged, staged / 2, staged * 3 / 4], log);
            let context = format!("{beyond} bytes more, log {log}, {taken} values taken");
            assert!(taken > 0 && taken < 3000, "{context}");
            read += read_all(&db, &keyspace, log, &context);
            // And when all that memory has for pages that cannot be written is used, too.
            if beyond < 1 << 20 {
                fill(&keyspace, &mut dice, &[20, 90], log);
                read += read_all(&db, &keyspace, log, &format!("{context}, and short ones"));
            }
            disk.clear_faults();
            if log {
                continue;
            }
            keyspace.put(&key(1), b"there is room again").unwrap();
            db.checkpoint().unwrap();
            let model = contents(&db).unwrap();
            db.close().unwrap();
            let db = open(&options, &disk, OpenHow::Existing).unwrap();
            assert!(contents(&db).unwrap() == model, "{context}: nothing was lost");
        }
    }
    count(read, "records read on a full disk");
}
