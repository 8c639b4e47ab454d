//! A disk that is full when the power goes, under a store with a log: recovery needs no more room than was set aside
//! before, finds all that was durable, and afterwards removals make room for changes again.

use crate::common::{Dice, Model, assert_sound, bytes, contents, effort, key, open, seed, tiny};
use hedgerow::internals::store::OpenHow;
use hedgerow::{Database, Durability, ErrorKind, Options, Result, WriteBatch};
use hedgerow_testing::SimDisk;
use hedgerow_testing::count;

fn logged() -> Options {
    let limit = hedgerow::smallest_memory_limit_bytes(512) + (128 << 10);
    tiny().memory_limit_bytes(limit).zone_bytes(32 << 10).log(true).log_segment_blocks(6)
}

/// Keys that the full disk is filled with.
const KEYS: u64 = 600;

/// Fills a store until the disk has refused some changes. Returns what it held after each change since it was last
/// known to be durable.
fn fill(db: &Database, dice: &mut Dice) -> Vec<Model> {
    let mut history = vec![contents(db).unwrap()];
    let mut refused = 0;
    for step in 0.. {
        assert!(step < 20_000, "the disk has no end");
        let mut after = history.last().unwrap().clone();
        let sync = dice.below(8) == 0;
        let durability = if sync { Durability::Sync } else { Durability::Buffered };
        let name = ["robins", "wrens"][dice.below(2) as usize];
        let keyspace = db.keyspace(name).unwrap().with_durability(durability);
        let done = match dice.below(120) {
            0 => {
                db.checkpoint().expect("there is room for a checkpoint of what was let in");
                // What the checkpoint gave back of the log's file is so durably with the log's next sync: a
                // simulated crash would undo it, and keep what was put in its place.
                let durable = keyspace.with_durability(Durability::Sync);
                after.get_mut(name).unwrap().insert(key(0), b"synced".to_vec());
                durable.put(&key(0), b"synced").map(|_| true)
            }
            1..12 => {
                let mut batch = WriteBatch::new();
                batch.set_durability(durability);
                for _ in 0..1 + dice.below(12) {
                    let name = ["robins", "wrens"][dice.below(2) as usize];
                    let (key, keyspace) = (key(dice.below(KEYS)), db.keyspace(name).unwrap());
                    let records = after.get_mut(name).unwrap();
                    if dice.below(4) == 0 {
                        batch.remove(&keyspace, &key).unwrap();
                        records.remove(&key);
                    } else {
                        let len = dice.below(60) as usize;
                        let value = bytes(dice, len);
                        batch.put(&keyspace, &key, &value).unwrap();
                        records.insert(key, value);
                    }
                }
                db.write(&batch).map(|_| sync)
            }
            12..16 => {
                let (key, len) = (key(dice.below(KEYS)), 1000 + dice.below(12_000) as usize);
                let value = bytes(dice, len);
                let done = keyspace.put(&key, &value).map(|_| sync);
                after.get_mut(name).unwrap().insert(key, value);
                done
            }
            16..28 => {
                let key = key(dice.below(KEYS));
                after.get_mut(name).unwrap().remove(&key);
                keyspace.remove(&key).map(|_| sync)
            }
            _ => {
                let (key, len) = (key(dice.below(KEYS)), dice.below(60) as usize);
                let value = bytes(dice, len);
                let done = keyspace.put(&key, &value).map(|_| sync);
                after.get_mut(name).unwrap().insert(key, value);
                done
            }
        };
        match done {
            // What came before is not needed any more: no crash goes back behind this.
            Ok(true) => history = vec![after],
            Ok(false) => history.push(after),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::DiskFull, "{error:?}");
                refused += 1;
                if refused == 30 {
                    break;
                }
            }
        }
    }
    let found = contents(db).unwrap();
    assert!(found == *history.last().unwrap(), "the full store shows something else");
    history
}

/// Makes a change on a disk that is full: one that is refused for want of room has it after a checkpoint.
fn make(db: &Database, change: impl Fn() -> Result<bool>) {
    if let Err(error) = change() {
        assert_eq!(error.kind(), ErrorKind::DiskFull, "{error:?}");
        // The slots that the first one sets free are given out after it, those of the second's parts as well.
        db.checkpoint().expect("a full disk has room for a checkpoint");
        db.checkpoint().expect("a full disk has room for a checkpoint");
        change().expect("there is room after a checkpoint");
    }
}

#[test]
fn a_full_disk_has_room_for_the_recovery_after_a_power_cut() {
    let mut dice = Dice(seed(24));
    let mut recovered = 0;
    for _ in 0..2 * effort() {
        let disk = SimDisk::new(dice.roll());
        let db = open(&logged(), &disk, OpenHow::New).unwrap();
        for name in ["robins", "wrens"] {
            let keyspace = db.keyspace(name).unwrap();
            for n in 0..KEYS / 2 {
                keyspace.put(&key(n), &bytes(&mut dice, 30)).unwrap();
            }
        }
        db.checkpoint().unwrap();
        db.sync().unwrap();
        let capacity = disk.state().allocated_bytes() + (150 << 10) + dice.below(200 << 10);
        disk.set_capacity(Some(capacity));
        let history = fill(&db, &mut dice);
        let state = disk.state();
        drop(db);
        for n in 0..20 {
            let survivor = SimDisk::with_state(state.crash_at_random(dice.roll()), dice.roll());
            // A simulated crash may undo a truncation and keep what another file has put in its place. No file system does that.
            let taken = survivor.state().allocated_bytes();
            survivor.set_capacity(Some(capacity.max(taken)));
            work_on_a_full_disk(&survivor, &history, n);
            recovered += 1;
        }
    }
    count(recovered, "recoveries on a full disk");
}

#[test]
fn the_zone_of_a_large_value_has_room_for_the_recovery() {
    let mut dice = Dice(seed(25));
    let disk = SimDisk::new(dice.roll());
    let db = open(&logged(), &disk, OpenHow::New).unwrap();
    let keyspace = db.keyspace("wrens").unwrap().with_durability(Durability::Sync);
    for n in 0..KEYS {
        keyspace.put(&key(n), &bytes(&mut dice, 30)).unwrap();
    }
    db.checkpoint().unwrap();
    // Into a zone that the checkpoint knows nothing of, with room for many pages besides.
    keyspace.put(&key(KEYS), &bytes(&mut dice, 9_000)).unwrap();
    let capacity = disk.state().allocated_bytes();
    disk.set_capacity(Some(capacity));
    let mut crashes = 0;
    loop {
        let put = keyspace.put(&key(dice.below(KEYS)), &bytes(&mut dice, 40));
        if let Err(error) = put {
            assert_eq!(error.kind(), ErrorKind::DiskFull, "{error:?}");
            break;
        }
        let survivor = SimDisk::with_state(disk.state().crash(&[], None), dice.roll());
        survivor.set_capacity(Some(capacity));
        let opened = open(&logged(), &survivor, OpenHow::Existing);
        let opened = opened.unwrap_or_else(|error| panic!("after {crashes} changes: {error:?}"));
        assert!(contents(&opened).unwrap() == contents(&db).unwrap(), "{crashes}");
        crashes += 1;
    }
    count(crashes, "recoveries on a full disk");
    assert!(crashes > 10, "the disk was full after {crashes} changes");
}

/// Each of them was refused as if it took space.
#[test]
fn batches_transactions_and_swaps_that_only_remove_are_let_in_on_a_full_disk() {
    let mut dice = Dice(seed(26));
    let disk = SimDisk::new(dice.roll());
    let db = open(&logged(), &disk, OpenHow::New).unwrap();
    let keyspace = db.keyspace("wrens").unwrap();
    let value = [7; 40];
    for n in 0..KEYS {
        keyspace.put(&key(n), &value).unwrap();
    }
    db.checkpoint().unwrap();
    disk.set_capacity(Some(disk.state().allocated_bytes() + (32 << 10)));
    let mut fill = || {
        let put = |n| keyspace.put(&key(KEYS + n), &value);
        let refused = (0..20_000).find_map(|_| put(dice.below(20_000)).err());
        assert_eq!(refused.expect("the disk has an end").kind(), ErrorKind::DiskFull);
    };
    fill();
    let mut batch = WriteBatch::new();
    batch.remove(&keyspace, &key(0)).unwrap();
    batch.remove(&keyspace, &key(KEYS - 1)).unwrap();
    db.write(&batch).unwrap();
    // One that has read the only record that it removes, and one that removes two.
    for keys in [1..2, 2..4] {
        fill();
        db.transact(|transaction| -> Result<()> {
            let inside = transaction.keyspace(&keyspace)?;
            keys.clone().try_for_each(|n| inside.take(&key(n)).map(drop))
        })
        .unwrap();
    }
    fill();
    assert!(keyspace.compare_and_swap(&key(4), Some(&value), None).unwrap().is_swapped());
    let left: Vec<u64> = (0..KEYS).filter(|n| keyspace.contains_key(&key(*n)).unwrap()).collect();
    assert!(left.into_iter().eq(5..KEYS - 1));
    assert_sound(&db, "on the full disk");
}

/// Recovers on a full disk, and works on there.
fn work_on_a_full_disk(disk: &SimDisk, history: &[Model], n: u64) {
    let db = open(&logged(), disk, OpenHow::Existing);
    let db = db.unwrap_or_else(|error| panic!("crash {n}, on the full disk: {error:?}"));
    let mut model = contents(&db).unwrap();
    assert!(history.contains(&model), "crash {n}: no state since the last that was durable");
    for name in ["robins", "wrens"] {
        let keyspace = db.keyspace(name).unwrap();
        for n in 0..KEYS * 3 / 4 {
            make(&db, || keyspace.remove(&key(n)));
            model.get_mut(name).unwrap().remove(&key(n));
        }
    }
    // The first has the removals, and sets free what only the one before needed.
    db.checkpoint().unwrap();
    db.checkpoint().unwrap();
    for name in ["robins", "wrens"] {
        let keyspace = db.keyspace(name).unwrap().with_durability(Durability::Sync);
        for n in 0..20 {
            make(&db, || keyspace.put(&key(n), b"again"));
            model.get_mut(name).unwrap().insert(key(n), b"again".to_vec());
        }
    }
    assert!(contents(&db).unwrap() == model, "crash {n}: after more work");
    assert_sound(&db, "on a disk that was full");
    db.close().unwrap();
    let db = open(&logged(), disk, OpenHow::Existing).unwrap();
    assert!(contents(&db).unwrap() == model, "crash {n}: closed and opened");
}
