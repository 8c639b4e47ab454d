//! Large values on a disk that forgets and fills up: a crash at any call leaves the first of the changes, each
//! whole, and nothing is leaked or given out twice.

use crate::common::lengths::log_normal;
use crate::common::session::{Mix, Session, Tally, examiner};
use crate::common::{
    Dice, Model, Records, assert_sound, bytes, contents, effort, get, key, open, seed, tiny,
};
use hedgerow::internals::store::OpenHow;
use hedgerow::{ErrorKind, Options};
use hedgerow_testing::SimDisk;
use hedgerow_testing::count;
use hedgerow_testing::sim::{CallKind, Fault};
use std::time::Duration;

/// Records of a leaf with pages of 512 bytes have at most so many bytes. A key has 11 of them.
const RECORD_BYTES: usize = 168;
/// Of a chunk with zones of 8 KiB, and of 32 KiB.
const PAYLOADS: [usize; 2] = [(8 << 10) - 8, (32 << 10) - 8];

/// A length from the mix: half are log-normal, and half at a limit, one below, or one above.
fn any_value(dice: &mut Dice) -> Vec<u8> {
    let len = match dice.below(8) {
        0..4 => log_normal(dice, 150.0, 70_000),
        4 => RECORD_BYTES - 12 + dice.below(3) as usize,
        5 => 511 + dice.below(3) as usize,
        6 => PAYLOADS[dice.below(2) as usize] - 1 + dice.below(3) as usize,
        _ => dice.below(70_000) as usize,
    };
    bytes(dice, len)
}

fn logged() -> Options {
    logged_with(128 << 10, 32 << 10)
}

/// With so much more than the smallest limit.
fn logged_with(more_bytes: u64, zone_bytes: u32) -> Options {
    let limit = hedgerow::smallest_memory_limit_bytes(512) + more_bytes;
    tiny().memory_limit_bytes(limit).zone_bytes(zone_bytes).log(true).log_segment_blocks(6)
}

/// Stores in which part of a chunk is staged; two short chunks are; one long chunk is, and all values are kept in memory.
fn any_options(dice: &mut Dice) -> Options {
    match dice.below(3) {
        0 => logged(),
        1 => logged_with(128 << 10, 8 << 10),
        _ => logged_with(28 << 20, 32 << 10),
    }
}

fn mix() -> Mix {
    Mix { keys: 12, long_keys: 3, rare: 20, batch: [5, 5, 5], value: any_value, moments: (3, 1) }
}

#[test]
fn a_crash_at_any_call_leaves_whole_values_and_leaks_nothing() {
    let mut dice = Dice(seed(5));
    let mut tally = Tally::default();
    for _ in 0..3 * effort() {
        let options = any_options(&mut dice);
        let examiner = examiner(&options).read_only_too().long_values(60_000);
        let mut disk = SimDisk::new(dice.roll());
        let mut model = Model::new();
        for _ in 0..3 {
            let mut session = Session::begin(disk, &options, mix(), examiner.clone(), model);
            for _ in 0..12 {
                let durable_before = session.history.durable();
                for _ in 0..3 {
                    session.step(&mut dice);
                }
                session.explore(durable_before, &mut dice, &mut tally);
            }
            model = session.history.now().clone();
            session.db.sync().unwrap();
            if dice.below(2) == 0 {
                session.db.close().unwrap();
                disk = SimDisk::with_state(session.disk.state(), dice.roll());
            } else {
                disk = session.disk.kill(dice.roll());
            }
        }
    }
    tally.count();
    assert!(tally.accidents > 100);
}

#[test]
fn without_a_log_a_crash_leaves_the_last_checkpoint() {
    let mut dice = Dice(seed(6));
    let options = any_options(&mut dice).log(false);
    let disk = SimDisk::new(dice.roll());
    let db = open(&options, &disk, OpenHow::New).unwrap();
    let keyspace = db.keyspace("wrens").unwrap();
    db.checkpoint().unwrap();
    let mut before = contents(&db).unwrap();
    disk.record_states(true);
    let mut tried = 0;
    for _ in 0..12 {
        for _ in 0..4 {
            let key = key(dice.below(8));
            if dice.below(4) == 0 {
                keyspace.remove(&key).unwrap();
            } else {
                keyspace.put(&key, &any_value(&mut dice)).unwrap();
            }
        }
        db.checkpoint().unwrap();
        let after = contents(&db).unwrap();
        for state in disk.take_states() {
            let survivor = SimDisk::with_state(state.crash_at_random(dice.roll()), dice.roll());
            let db = open(&options, &survivor, OpenHow::Existing).unwrap();
            let found = contents(&db).unwrap();
            assert!(found == before || found == after);
            assert_sound(&db, "after a crash without a log");
            tried += 1;
        }
        before = after;
    }
    count(tried, "crash states");
    assert!(tried > 50, "{tried}");
}

#[test]
fn a_full_or_failing_disk_leaves_what_was_there() {
    let mut dice = Dice(seed(7));
    for options in [logged(), logged_with(128 << 10, 8 << 10), logged_with(28 << 20, 32 << 10)] {
        let disk = SimDisk::new(dice.roll());
        let db = open(&options, &disk, OpenHow::New).unwrap();
        let keyspace = db.keyspace("wrens").unwrap();
        assert_eq!(keyspace.max_record_bytes(), RECORD_BYTES);
        let value = bytes(&mut dice, 60_000);
        keyspace.put(b"wren", &value).unwrap();
        disk.set_capacity(Some(600 << 10));
        let mut put = Records::new();
        let full = loop {
            let key = key(put.len() as u64);
            let value = any_value(&mut dice);
            match keyspace.put(&key, &value) {
                Ok(_) => drop(put.insert(key, value)),
                Err(error) => break error,
            }
            assert!(put.len() < 3000, "the disk has no end");
        };
        assert_eq!(full.kind(), ErrorKind::DiskFull, "{full}");
        assert_eq!(get(&keyspace, b"wren").unwrap(), value);
        for (key, value) in &put {
            assert!(get(&keyspace, key).unwrap() == *value, "{key:?} of {}", value.len());
        }
        for key in put.keys() {
            assert!(keyspace.remove(key).unwrap());
        }
        assert_sound(&db, "on a full disk");
        drop(keyspace);
        drop(db);
        let db = open(&options, &disk, OpenHow::Existing).unwrap();
        assert_eq!(get(&db.keyspace("wrens").unwrap(), b"wren").unwrap(), value);
        assert_eq!(db.keyspace("wrens").unwrap().count().unwrap(), 1);
    }
}

#[test]
fn after_a_failed_write_a_value_cannot_be_finished_and_nobody_panics() {
    let mut dice = Dice(seed(8));
    let disk = SimDisk::new(dice.roll());
    let db = open(&logged(), &disk, OpenHow::New).unwrap();
    let keyspace = db.keyspace("wrens").unwrap();
    let value = bytes(&mut dice, 60_000);
    let mut writer = keyspace.value_writer(b"wren", 200_000).unwrap();
    disk.inject(Fault::once(CallKind::Write, 0, Fault::EIO));
    let mut outcomes = Vec::new();
    for _ in 0..3 {
        outcomes.push(writer.write_bytes(&value).map_err(|error| error.kind()));
    }
    let first = outcomes.iter().position(Result::is_err).unwrap();
    assert!(outcomes[first..].iter().all(Result::is_err), "{outcomes:?}");
    assert!(writer.finish().is_err());
    assert_eq!(keyspace.get(b"wren").unwrap(), None);
}

/// Staged or not, a value that fits into its part of the limit is read from memory after its put.
#[test]
fn a_value_is_in_memory_after_it_was_put() {
    let disk = SimDisk::new(7);
    let db = open(&logged_with(28 << 20, 32 << 10), &disk, OpenHow::New).unwrap();
    let keyspace = db.keyspace("songs").unwrap();
    let mut dice = Dice(seed(9));
    for (n, len) in [1_000, 30_000, 90_000, 150_000, 300_000].into_iter().enumerate() {
        let value = bytes(&mut dice, len);
        keyspace.put(&key(n as u64), &value).unwrap();
        // Whatever the log and the allocator read comes before.
        db.checkpoint().unwrap();
        let reads = disk.calls(CallKind::Read);
        assert!(get(&keyspace, &key(n as u64)).unwrap() == value);
        assert_eq!(disk.calls(CallKind::Read), reads, "{len}");
    }
    assert_sound(&db, "values that are in memory");
}

/// An opening that reads a long log changes nothing for a while. It is no store at rest, whose free room is given back.
#[test]
fn values_that_only_the_log_names_are_left_alone_however_long_an_opening_reads() {
    let mut dice = Dice(seed(0x10_95));
    for round in 0..4 * effort() {
        let options = Options::new()
            .page_bytes(512)
            .zone_bytes(32 << 10)
            .memory_limit_bytes(16 << 20)
            .background_checkpoints(false);
        let disk = SimDisk::new(dice.roll());
        let db = open(&options, &disk, OpenHow::New).unwrap();
        let wrens = db.keyspace("wrens").unwrap();
        for n in 0..2000 {
            wrens.put(&key(n), &bytes(&mut dice, 60)).unwrap();
        }
        db.checkpoint().unwrap();
        let mut expected = Records::new();
        // Some before what takes long to read, and some behind.
        for n in 0..40_000 {
            let long = n % 2000 == 0;
            let value = if long { bytes(&mut dice, 20_000) } else { vec![n as u8; 30] };
            wrens.put(&key(n % 3000), &value).unwrap();
            expected.insert(key(n % 3000), value);
        }
        db.sync().unwrap();
        let disk = if round % 2 == 0 { disk.crash(dice.roll()) } else { disk.kill(dice.roll()) };
        drop(db);
        let eager = options.background_checkpoints(true).settle_after(Duration::ZERO);
        let db = open(&eager, &disk, OpenHow::Existing).unwrap();
        let wrens = db.open_keyspace("wrens").unwrap().unwrap();
        for (key, value) in &expected {
            assert_eq!(wrens.get(key).unwrap().as_deref(), Some(value.as_slice()));
        }
        assert_sound(&db, "opened");
        db.close().unwrap();
    }
}
