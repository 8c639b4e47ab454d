//! Large values on a disk that forgets and fills up: a crash at any call leaves the first of the changes, each
//! whole, and nothing is leaked or given out twice.

use crate::common::session::{Mix, Session, Tally, examiner};
use crate::common::{
    Dice, Model, assert_sound, bytes, contents, effort, get, key, open, seed, tiny,
};
use hedgerow::storage::SimDisk;
use hedgerow::storage::sim::{CallKind, Fault};
use hedgerow::store::OpenHow;
use hedgerow::testing::count;
use hedgerow::{ErrorKind, Options};

fn any_value(dice: &mut Dice) -> Vec<u8> {
    let most = [50, 1500, 6000, 70_000][dice.below(4) as usize];
    let len = dice.below(most) as usize;
    bytes(dice, len)
}

fn logged() -> Options {
    let limit = hedgerow::smallest_memory_limit_bytes(512) + (128 << 10);
    tiny().memory_limit_bytes(limit).zone_bytes(32 << 10).log(true).log_segment_blocks(6)
}

fn mix() -> Mix {
    Mix { keys: 12, rare: 20, batch: [5, 5, 5], value: any_value, moments: (3, 1) }
}

#[test]
fn a_crash_at_any_call_leaves_whole_values_and_leaks_nothing() {
    let mut dice = Dice(seed(5));
    let options = logged();
    let examiner = examiner(&options).read_only_too().long_values(60_000);
    let mut tally = Tally::default();
    for _ in 0..3 * effort() {
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
    let limit = hedgerow::smallest_memory_limit_bytes(512) + (128 << 10);
    let options = tiny().memory_limit_bytes(limit).zone_bytes(32 << 10);
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
                let len = dice.below(40_000) as usize;
                keyspace.put(&key, &bytes(&mut dice, len)).unwrap();
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
    let options = logged();
    let disk = SimDisk::new(dice.roll());
    let db = open(&options, &disk, OpenHow::New).unwrap();
    let keyspace = db.keyspace("wrens").unwrap();
    let value = bytes(&mut dice, 60_000);
    keyspace.put(b"wren", &value).unwrap();
    disk.set_capacity(Some(600 << 10));
    let mut put = 0;
    let full = loop {
        match keyspace.put(&key(put), &value) {
            Ok(_) => put += 1,
            Err(error) => break error,
        }
        assert!(put < 100, "the disk has no end");
    };
    assert_eq!(*full.kind(), ErrorKind::DiskFull, "{full}");
    assert_eq!(get(&keyspace, b"wren").unwrap(), value);
    for n in 0..put {
        assert!(keyspace.remove(&key(n)).unwrap());
    }
    assert_sound(&db, "on a full disk");
    drop(keyspace);
    drop(db);
    let db = open(&options, &disk, OpenHow::Existing).unwrap();
    assert_eq!(get(&db.keyspace("wrens").unwrap(), b"wren").unwrap(), value);
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
        outcomes.push(writer.write_bytes(&value).map_err(|error| error.kind().clone()));
    }
    let first = outcomes.iter().position(Result::is_err).unwrap();
    assert!(outcomes[first..].iter().all(Result::is_err), "{outcomes:?}");
    assert!(writer.finish().is_err());
    assert_eq!(keyspace.get(b"wren").unwrap(), None);
}
