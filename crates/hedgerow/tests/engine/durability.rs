//! What the log promises, on a disk that forgets: after a crash at any call the store holds the first of the
//! changes that were made, in their order, and among them all that were said to be durable; a crash while
//! the log is replayed changes nothing; and a log that is missing, foreign or damaged is named.

use crate::common::session::{Mix, Session, Tally, examiner};
use crate::common::{
    Dice, Model, assert_sound, contents, effort, is_thorough, key, open, path, seed, tiny,
};
use hedgerow::internals::storage::Disk;
use hedgerow::internals::store::superblock::POSITIONS;
use hedgerow::internals::store::{OpenHow, log_path};
use hedgerow::{Durability, ErrorKind, Options};
use hedgerow_testing::SimDisk;
use hedgerow_testing::sim::{CallKind, Effect, Fate, Fault, SimState};
use hedgerow_testing::{Accident, count};

fn logged() -> Options {
    let limit = hedgerow::smallest_memory_limit_bytes(512);
    tiny().memory_limit_bytes(limit).log(true).log_segment_blocks(6)
}

fn mix() -> Mix {
    let value = |dice: &mut Dice| vec![dice.roll() as u8; dice.below(60) as usize];
    Mix { keys: 900, long_keys: 0, rare: 60, batch: [3, 30, 500], value, moments: (1, 3) }
}

fn begin(disk: SimDisk, before: Model) -> Session {
    Session::begin(disk, &logged(), mix(), examiner(&logged()), before)
}

#[test]
fn after_a_crash_at_any_call_the_first_changes_are_there_and_all_durable_ones() {
    let mut dice = Dice(seed(71));
    let mut tally = Tally::default();
    let steps = if is_thorough() { 400 } else { 120 };
    for _ in 0..effort() {
        let mut disk = SimDisk::new(dice.roll());
        let mut before = Model::new();
        for _ in 0..3 {
            let mut session = begin(disk, before);
            for _ in 0..steps {
                let durable_before = session.history.durable();
                session.step(&mut dice);
                session.explore(durable_before, &mut dice, &mut tally);
            }
            let left = session.disk.state().crash_at_random(dice.roll());
            let durable = session.history.durable();
            before = session.recover(&left, Accident::PowerCut, durable, &mut dice).found;
            disk = SimDisk::with_state(left, dice.roll());
        }
    }
    tally.count();
    assert!(tally.accidents > 3 * steps && tally.nested > tally.accidents);
}

#[test]
fn a_kill_and_then_a_power_cut_at_any_call_of_the_opening() {
    let mut dice = Dice(seed(72));
    let mut tried = 0;
    let rounds = if is_thorough() { 12 } else { 4 };
    for _ in 0..rounds * effort() {
        let mut session = begin(SimDisk::new(dice.roll()), Model::new());
        session.disk.record_states(false);
        for _ in 0..6 {
            for _ in 0..20 {
                session.step(&mut dice);
            }
            tried += session.kill_and_cut(&mut dice);
        }
    }
    count(tried, "nested crash states");
    assert!(tried > 80 * rounds, "{tried}");
}

/// Keys of the store below, and changes of them; every so many keys in turn, and each key several times.
const KEYS: u64 = 900;
const CHANGES: u64 = 4_000;

fn changed_by(change: u64) -> u64 {
    // 7,919 is prime.
    change * 7_919 % KEYS
}

/// Asserts that the first changes are there, at least so many of them, and nothing of the later ones: each value
/// says which change has put it.
fn assert_first_changes(model: &Model, durable: u64, context: &str) {
    let put_by = |value: &Vec<u8>| u64::from_le_bytes(value[..8].try_into().unwrap());
    let found: Vec<u64> = (0..KEYS).map(|n| put_by(&model["robins"][&key(n)])).collect();
    let last = found.iter().copied().max().unwrap();
    assert!(last >= durable, "{context}: {last} changes, and {durable} were durable");
    let mut expected = vec![0; KEYS as usize];
    for change in 1..=last {
        expected[changed_by(change) as usize] = change;
    }
    let wrong = (0..KEYS as usize).find(|n| found[*n] != expected[*n]);
    assert!(
        wrong.is_none(),
        "{context}: of {last} changes one is missing, and a later one is there: key {wrong:?}"
    );
}

/// What a killed process has written to its log, and not synced, can be read, and a checkpoint in the middle of the replay
/// may have some of it: if the log were without it after a power cut, the earlier changes would be done again over
/// the later ones. The same if it has failed to sync them: then another sync of the same bytes does nothing.
#[test]
fn a_power_cut_in_a_recovery_that_takes_checkpoints_leaves_the_first_changes() {
    let mut dice = Dice(seed(75));
    let (mut cuts, mut in_replay) = (0, 0);
    let rounds = if is_thorough() { 6 } else { 2 };
    for round in 0..rounds * effort() {
        let disk = SimDisk::new(dice.roll());
        let db = open(&logged(), &disk, OpenHow::New).unwrap();
        let keyspace = db.keyspace("robins").unwrap();
        let put = |n: u64, change: u64| {
            let mut value = change.to_le_bytes().to_vec();
            value.resize(40, b'.');
            keyspace.put(&key(n), &value).unwrap();
        };
        for n in 0..KEYS {
            put(n, 0);
        }
        db.checkpoint().unwrap();
        let durable = dice.below(CHANGES);
        for change in 1..=CHANGES {
            put(changed_by(change), change);
            if change == durable {
                db.sync().unwrap();
            }
        }
        if round % 2 == 1 {
            disk.inject(Fault::once(CallKind::SyncData, 0, Fault::EIO).with_effect(Effect::Lost));
            assert_eq!(db.sync().unwrap_err().kind(), ErrorKind::DurabilityUnknown);
            disk.clear_faults();
        }
        let killed = disk.kill(dice.roll());
        drop(keyspace);
        drop(db);
        let is_pending = !killed.state().pending().is_empty();
        assert!(is_pending || round % 2 == 1, "the log has blocks that were not synced");
        killed.record_states(true);
        // What passes the system's cache by shows nothing that is not on the disk.
        let often = logged().background_checkpoints(true).checkpoint_bytes(16 << 10);
        let often = often.direct_io(round % 2 == 0);
        let db = open(&often, &killed, OpenHow::Existing).unwrap();
        let states = killed.take_states();
        killed.record_states(false);
        assert_first_changes(&contents(&db).unwrap(), durable, "after a kill");
        drop(db);
        // The numbers of the checkpoints that the blocks of superblocks have.
        let numbers = |state: &SimState| -> Vec<u8> {
            let file = state.contents(path()).unwrap();
            POSITIONS.iter().flat_map(|at| file[*at as usize + 64..][..8].to_vec()).collect()
        };
        let mut seen: Vec<Vec<u8>> = states.iter().map(numbers).collect();
        seen.dedup();
        // Two blocks each, and two checkpoints are taken after the replay: one of it, one that names the new log.
        in_replay += (seen.len() / 2).saturating_sub(2);
        let step = (states.len() as u64 / 60 / effort()).max(1);
        let mut at = dice.below(step);
        while let Some(state) = states.get(at as usize) {
            for left in [state.crash(&[], None), state.crash_at_random(dice.roll())] {
                let survivor = SimDisk::with_state(left, dice.roll());
                let db = open(&logged(), &survivor, OpenHow::Existing).unwrap();
                let context = format!("a power cut before call {at} of {}", states.len());
                assert_first_changes(&contents(&db).unwrap(), durable, &context);
                cuts += 1;
            }
            at += 1 + dice.below(2 * step);
        }
    }
    println!("{in_replay} checkpoints in the middle of replays");
    // Of the recovery after a kill.
    count(cuts, "nested crash states");
    assert!(cuts > 17 * rounds, "{cuts}");
}

/// What a recovery may still need stays the file's: its checkpoints give nothing back before it needs no log.
#[test]
fn a_recovery_gives_no_space_back_before_it_needs_no_log() {
    let mut dice = Dice(seed(80));
    // How many the thread of the background takes depends on when it runs.
    for _ in 0..50 {
        if checkpoints_in_a_recovery_that_shrinks(dice.roll()) > 2 {
            return;
        }
    }
    panic!("no recovery has taken checkpoints");
}

fn checkpoints_in_a_recovery_that_shrinks(seed: u64) -> u64 {
    let disk = SimDisk::new(seed);
    let options = logged().memory_limit_bytes(4 << 20);
    let db = open(&options, &disk, OpenHow::New).unwrap();
    let keyspace = db.keyspace("robins").unwrap();
    let put = |n: u64| {
        keyspace.put(&key(n), &[b'.'; 100]).unwrap();
    };
    (0..8 * KEYS).for_each(put);
    db.checkpoint().unwrap();
    // Most of the file is free behind these, and then changes go on.
    keyspace.remove_range(key(KEYS)..).unwrap();
    for _ in 0..6 {
        (0..KEYS).for_each(put);
    }
    db.sync().unwrap();
    let killed = disk.kill(1);
    drop(keyspace);
    drop(db);
    killed.record_states(true);
    let often = options.background_checkpoints(true).checkpoint_bytes(16 << 10);
    let db = open(&often, &killed, OpenHow::Existing).unwrap();
    let states = killed.take_states();
    drop(db);
    let file = |state: &SimState| state.contents(path()).unwrap().to_vec();
    let needs_log = |file: &[u8]| {
        let number = |at: u64| -> u64 {
            u64::from_le_bytes(file[at as usize + 64..][..8].try_into().unwrap())
        };
        let newest = POSITIONS.into_iter().max_by_key(|at| number(*at)).unwrap();
        (number(newest), file[newest as usize + 84] & 1 == 1)
    };
    let mut checkpoints = 0;
    let mut last = file(&states[0]);
    for state in &states[1..] {
        let next = file(state);
        let (number, is_recovering) = needs_log(&last);
        if is_recovering {
            assert!(next.len() >= last.len(), "{} bytes become {}", last.len(), next.len());
            checkpoints += u64::from(needs_log(&next).0 > number);
        } else {
            break;
        }
        last = next;
    }
    println!("{checkpoints} checkpoints in the recovery");
    checkpoints
}

/// A process is killed after it has written the first block of a superblock; the next one finds and heals it, and is killed
/// before it has synced that; the third reads two whole blocks, of which neither is durable.
#[test]
fn a_superblock_that_two_killed_processes_left_is_durable_in_the_third() {
    let mut dice = Dice(seed(76));
    let mut cuts = 0;
    let disk = SimDisk::new(dice.roll());
    let db = open(&logged(), &disk, OpenHow::New).unwrap();
    let keyspace = db.keyspace("robins").unwrap().with_durability(Durability::Sync);
    for n in 0..40 {
        keyspace.put(&key(n), b"there").unwrap();
    }
    let expected = contents(&db).unwrap();
    let crashed = disk.crash(dice.roll());
    drop(keyspace);
    drop(db);
    let moments = |disk: &SimDisk| {
        disk.record_states(true);
        let db = open(&logged(), disk, OpenHow::Existing).unwrap();
        let states = disk.take_states();
        disk.record_states(false);
        drop(db);
        states
    };
    let killed = |state: &SimState, dice: &mut Dice| {
        SimDisk::with_state(state.clone(), dice.roll()).kill(dice.roll())
    };
    for first in moments(&crashed) {
        let second = moments(&killed(&first, &mut dice));
        // Up to where the second has healed what it has found.
        for state in second.iter().take(3) {
            for third in moments(&killed(state, &mut dice)) {
                for left in [third.crash(&[], None), third.crash_at_random(dice.roll())] {
                    let survivor = SimDisk::with_state(left, dice.roll());
                    let db = open(&logged(), &survivor, OpenHow::Existing).unwrap();
                    assert_eq!(contents(&db).unwrap(), expected);
                    cuts += 1;
                }
            }
        }
    }
    println!("{cuts} power cuts");
    assert!(cuts > 1_000, "{cuts}");
}

#[test]
fn a_replay_that_needs_most_of_a_store_in_memory_is_as_exact_as_any() {
    let mut dice = Dice(seed(73));
    for background in [false, true] {
        // So many frames that the store is read from beginning to end, with threads and without.
        let options = tiny().memory_limit_bytes(4 << 20).log(true);
        let disk = SimDisk::new(dice.roll());
        let db = open(&options, &disk, OpenHow::New).unwrap();
        let keyspace = db.keyspace("wrens").unwrap();
        let records = (0..6_000).map(|n| (key(n), vec![dice.roll() as u8; 60]));
        keyspace.bulk_load(records, 90).unwrap();
        db.checkpoint().unwrap();
        for _ in 0..5_000 {
            let key = key(dice.below(6_500));
            if dice.below(4) == 0 {
                keyspace.remove(&key).unwrap();
            } else {
                keyspace.put(&key, &dice.roll().to_le_bytes()).unwrap();
            }
        }
        db.sync().unwrap();
        let expected = contents(&db).unwrap();
        let survivor = disk.crash(dice.roll());
        drop(db);
        // Whether it is opened to be read or to be written.
        let reader = SimDisk::with_state(survivor.state(), 1);
        for (disk, how) in [(reader, OpenHow::ReadOnly), (survivor, OpenHow::Existing)] {
            let options = options.clone().background_checkpoints(background);
            let db = open(&options, &disk, how).unwrap();
            assert!(db.replayed().records > 4_000);
            assert!(contents(&db).unwrap() == expected);
            assert_sound(&db, "after a replay of most of the store");
        }
    }
}

#[test]
fn a_closed_store_has_no_log_and_needs_none() {
    let disk = SimDisk::new(1);
    let db = open(&logged(), &disk, OpenHow::New).unwrap();
    db.keyspace("robins").unwrap().put(b"a", b"b").unwrap();
    assert!(disk.exists(&log_path(path())).unwrap());
    let before = contents(&db).unwrap();
    db.close().unwrap();
    assert!(!disk.exists(&log_path(path())).unwrap());
    let db = open(&logged(), &disk.crash(1), OpenHow::ReadOnly).unwrap();
    assert_eq!(contents(&db).unwrap(), before);
    assert_eq!(db.replayed().records, 0);
}

#[test]
fn what_is_said_to_be_durable_is_so_without_a_checkpoint() {
    let disk = SimDisk::new(1);
    let db = open(&logged().durability(Durability::Sync), &disk, OpenHow::New).unwrap();
    let checkpoint = db.stats().unwrap().checkpoint;
    let keyspace = db.keyspace("robins").unwrap();
    for n in 0..50 {
        keyspace.put(&key(n), b"here").unwrap();
    }
    assert_eq!(db.durable_position(), db.log_position());
    assert_eq!(db.stats().unwrap().checkpoint, checkpoint);
    let survivor = disk.crash(2);
    // For reading only as well, in memory: nothing is written.
    for _ in 0..2 {
        let reader = open(&logged(), &survivor, OpenHow::ReadOnly).unwrap();
        assert_eq!(reader.replayed().records, 51);
        assert_eq!(contents(&reader).unwrap(), contents(&db).unwrap());
        let refused = reader.keyspace("robins").unwrap().put(b"a", b"b").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ReadOnly);
    }
    assert_eq!(survivor.calls(CallKind::Write), 0);
    let again = open(&logged(), &survivor, OpenHow::Existing).unwrap();
    assert_eq!(contents(&again).unwrap(), contents(&db).unwrap());
    assert_eq!(again.replayed().records, 51);
    assert!(again.replayed().log_bytes > 50 * 20);
    let beyond = hedgerow::Lsn(again.log_position().0 + 1);
    let refused = again.wait_durable(beyond).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
    again.wait_durable(again.log_position()).unwrap();
}

/// Changes each of which was durable before the next, over more than one segment of the log, of a process that was
/// killed while the system lived on; and what is in the log's file.
fn killed(seed: u64) -> (SimDisk, Model, Vec<u8>) {
    let disk = SimDisk::new(seed);
    let db = open(&logged(), &disk, OpenHow::New).unwrap();
    let keyspace = db.keyspace("robins").unwrap();
    for n in 0..10 {
        keyspace.put(&key(n), b"here").unwrap();
        db.sync().unwrap();
    }
    let model = contents(&db).unwrap();
    let state = disk.state();
    let all = vec![Fate::Keep; state.pending().len()];
    let disk = SimDisk::with_state(state.crash(&all, None), seed);
    let log = disk.state().contents(&log_path(path())).unwrap();
    (disk, model, log)
}

/// Blocks of the log, which has one before its segments; a segment has one before its six.
const BLOCK: usize = 4096;
const SEGMENT: usize = 7 * BLOCK;

/// Puts other bytes in the place of a log. Opening refuses them and writes nothing, and with the log
/// put back it finds everything. Tells where the damage was said to be.
fn refused_offset(what: &str, change: impl FnOnce(&mut Vec<u8>)) -> u64 {
    let (disk, model, good) = killed(1);
    assert!(good.len() >= BLOCK + 2 * SEGMENT, "what is durable needs two segments");
    let log = log_path(path());
    let mut wrong = good.clone();
    change(&mut wrong);
    assert!(wrong != good, "{what}");
    disk.change_state(|state| state.set_contents(&log, &wrong)).unwrap();
    let store = disk.state().contents(path());
    let refused = open(&logged(), &disk, OpenHow::Existing).map(drop);
    let error = refused.expect_err(what);
    let ErrorKind::Corrupted { offset_bytes: Some(offset), .. } = error.kind() else {
        panic!("{what}: {error:?}");
    };
    assert!(disk.state().contents(path()) == store, "{what}: the store was written");
    assert!(disk.state().contents(&log) == Some(wrong), "{what}: the log was written");
    disk.change_state(|state| state.set_contents(&log, &good)).unwrap();
    let db = open(&logged(), &disk, OpenHow::Existing).unwrap();
    assert!(contents(&db).unwrap() == model, "{what}: the log was put back");
    assert_sound(&db, what);
    offset
}

#[test]
fn a_log_that_is_foreign_or_damaged_is_named_and_the_store_is_left_alone() {
    let (_, _, foreign) = killed(2);
    // The header names the store; its checksum covers all of it.
    let offset = refused_offset("another store's log", |log| log.clone_from(&foreign));
    assert_eq!(offset, 24);
    assert_eq!(refused_offset("a damaged header", |log| log[100] ^= 1), 0);
    // The first block of the first segment, which later ones say was durable.
    let first = 2 * BLOCK;
    let offset = refused_offset("a damaged block", |log| log[first + 100] ^= 1);
    assert_eq!(offset, first as u64);
    refused_offset("the first segment lost", |log| log[BLOCK..BLOCK + SEGMENT].fill(0));
}

#[test]
fn a_log_that_was_cut_off_is_refused_and_the_store_is_left_alone() {
    // A log begins with two segments, and never has fewer.
    for len in [0, 100, 5000, BLOCK, BLOCK + SEGMENT, BLOCK + 2 * SEGMENT - 1] {
        refused_offset(&format!("cut off after {len} bytes"), |log| log.truncate(len));
    }
}

#[test]
fn a_log_that_is_missing_is_named_and_put_back_it_is_replayed() {
    let (disk, model, good) = killed(3);
    let log = log_path(path());
    disk.unlink(&log).unwrap();
    let store = disk.state().contents(path());
    let refused = open(&logged(), &disk, OpenHow::Existing).map(drop).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::LogMissing);
    assert!(refused.to_string().contains("-log is missing"), "{refused}");
    assert!(disk.state().contents(path()) == store, "the store was written");
    assert!(!disk.exists(&log).unwrap(), "nothing takes the place of what is missing");
    disk.change_state(|state| state.set_contents(&log, &good)).unwrap();
    let db = open(&logged(), &disk, OpenHow::Existing).unwrap();
    assert!(db.replayed().records > 10);
    assert!(contents(&db).unwrap() == model);
    assert_sound(&db, "with its log put back");
}

#[test]
fn after_a_failed_sync_of_the_log_nothing_is_promised_any_more_and_reads_go_on() {
    for kind in [CallKind::Write, CallKind::SyncData] {
        let disk = SimDisk::new(4);
        let db = open(&logged(), &disk, OpenHow::New).unwrap();
        let keyspace = db.keyspace("robins").unwrap();
        keyspace.put(b"a", b"1").unwrap();
        db.sync().unwrap();
        keyspace.put(b"a", b"2").unwrap();
        disk.inject(Fault::once(kind, 0, Fault::EIO));
        assert_eq!(db.sync().unwrap_err().kind(), ErrorKind::DurabilityUnknown, "{kind:?}");
        assert_eq!(keyspace.put(b"b", b"3").unwrap_err().kind(), ErrorKind::Poisoned);
        assert_eq!(db.checkpoint().unwrap_err().kind(), ErrorKind::Poisoned);
        assert_eq!(keyspace.get(b"a").unwrap().unwrap().as_ref(), b"2");
        let again = open(&logged(), &disk.crash(5), OpenHow::Existing).unwrap();
        let value = again.keyspace("robins").unwrap().get(b"a").unwrap().unwrap();
        assert!([b"1", b"2"].contains(&value.as_ref().first_chunk().unwrap()));
    }
}

#[test]
fn a_replay_says_how_many_changes_it_made_and_how_much_log_it_read() {
    let disk = SimDisk::new(9);
    let db = open(&logged(), &disk, OpenHow::New).unwrap();
    let robins = db.keyspace("robins").unwrap();
    for n in 0..3000 {
        robins.put(&key(n), &[7; 40]).unwrap();
    }
    db.checkpoint().unwrap();
    let cut = db.log_position();
    assert!(cut.0 > 100_000, "the log begins far from zero");
    let wrens = db.keyspace("wrens").unwrap();
    for n in 0..5 {
        wrens.put(&key(n), b"a").unwrap();
    }
    robins.remove(&key(0)).unwrap();
    assert_eq!(robins.remove_range(&key(10)[..]..&key(20)[..]).unwrap(), 10);
    drop(wrens);
    assert!(db.drop_keyspace("wrens").unwrap());
    db.sync().unwrap();
    let db = open(&logged(), &disk.crash(1), OpenHow::Existing).unwrap();
    // A keyspace, five records, a removal, a range, and the end of the keyspace.
    assert_eq!(db.replayed().records, 9);
    let log_bytes = db.replayed().log_bytes;
    assert!((100..20_000).contains(&log_bytes), "{log_bytes}");
    assert_eq!(db.keyspaces().unwrap(), ["robins"]);
    assert_eq!(db.keyspace("robins").unwrap().iter().count(), 2989);
}

#[test]
fn a_store_without_a_log_takes_over_what_a_log_has_and_the_other_way_round() {
    let disk = SimDisk::new(6);
    let db = open(&logged(), &disk, OpenHow::New).unwrap();
    db.keyspace("robins").unwrap().put(b"a", b"1").unwrap();
    db.sync().unwrap();
    let disk = disk.crash(1);
    let db = open(&tiny().log(false), &disk, OpenHow::Existing).unwrap();
    assert_eq!(db.replayed().records, 2);
    let keyspace = db.keyspace("robins").unwrap();
    keyspace.put(b"b", b"2").unwrap();
    db.checkpoint().unwrap();
    keyspace.put(b"c", b"3").unwrap();
    assert_eq!(db.log_position().0, 0);
    let disk = disk.crash(2);
    let db = open(&logged(), &disk, OpenHow::Existing).unwrap();
    let keyspace = db.keyspace("robins").unwrap();
    assert!(keyspace.contains_key(b"a").unwrap() && keyspace.contains_key(b"b").unwrap());
    assert!(!keyspace.contains_key(b"c").unwrap());
    keyspace.put(b"d", b"4").unwrap();
    db.sync().unwrap();
    let db = open(&logged(), &disk.crash(3), OpenHow::Existing).unwrap();
    assert!(db.keyspace("robins").unwrap().contains_key(b"d").unwrap());
}

/// What the log has changed stays in memory, where it must not keep the page table from growing: most of the store is read later.
#[test]
fn all_of_a_large_store_is_read_that_was_killed_and_is_opened_for_reading_only() {
    let options = tiny().page_bytes(4096).memory_limit_bytes(2 << 20).log(true);
    let disk = SimDisk::new(1);
    let db = open(&options, &disk, OpenHow::New).unwrap();
    let robins = db.keyspace("robins").unwrap();
    let value = |n: u64, round: u8| [&[round; 1200][..], &n.to_le_bytes()].concat();
    const RECORDS: u64 = 14_000;
    // Three to a page, in the order of pages: those of the first part of the table that prefer the topmost frames.
    let frames = db.stats().unwrap().memory.frames_bytes / 4096;
    let changed = 3 * (frames - 60)..3 * frames;
    for n in 0..RECORDS {
        robins.put(&key(n), &value(n, 1)).unwrap();
        if n % 500 == 499 {
            db.checkpoint().unwrap();
        }
    }
    for n in changed.clone() {
        robins.put(&key(n), &value(n, 2)).unwrap();
    }
    db.sync().unwrap();
    let left = SimDisk::with_state(disk.state().kill(), 2);
    let db = open(&options, &left, OpenHow::ReadOnly).unwrap();
    let robins = db.keyspace("robins").unwrap();
    for n in (0..RECORDS).rev() {
        let found = robins.get(&key(n)).unwrap().unwrap();
        assert!(found == value(n, if changed.contains(&n) { 2 } else { 1 })[..], "{n}");
    }
    assert!(db.stats().unwrap().dirty_pages >= 60, "none of what was replayed was written");
}
