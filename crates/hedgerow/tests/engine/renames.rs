//! Keyspaces get other names, beside those who use them and those who look for them. Crashes and failed calls at each moment are
//! tried by the `fault_sweep` and by the test of all moments here.
#![allow(clippy::disallowed_methods, reason = "tests use threads")]

use crate::common::{
    Dice, Model, assert_sound, contents, effort, is_thorough, key, open, path, seed, tiny,
};
use hedgerow::internals::store::OpenHow;
use hedgerow::internals::store::superblock::POSITIONS;
use hedgerow::{Database, Durability, ErrorKind, Options};
use hedgerow_testing::sim::SimState;
use hedgerow_testing::{SimDisk, count};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

fn logged() -> Options {
    let limit = hedgerow::smallest_memory_limit_bytes(512);
    tiny().memory_limit_bytes(limit).log(true).log_segment_blocks(6)
}

/// What is done, and its words.
type Step = (&'static str, fn(&Database));

/// Two keyspaces with a record each.
fn two(db: &Database) {
    for name in ["robins", "wrens"] {
        db.keyspace(name).unwrap().put(b"who", name.as_bytes()).unwrap();
    }
}

fn who(db: &Database, name: &str) -> String {
    let found = db.open_keyspace(name).unwrap().unwrap().get(b"who").unwrap().unwrap();
    String::from_utf8(found.to_vec()).unwrap()
}

#[test]
fn records_and_handles_go_with_the_tree_and_not_with_the_name() {
    let disk = SimDisk::new(1);
    for db in [
        open(&logged(), &disk, OpenHow::New).unwrap(),
        open(&tiny(), &SimDisk::new(1), OpenHow::New).unwrap(),
        Options::new().memory_limit_bytes(16 << 20).in_memory().unwrap(),
    ] {
        two(&db);
        let handle = db.keyspace("robins").unwrap();
        db.rename_keyspace("robins", "terns").unwrap();
        assert_eq!(db.keyspaces().unwrap(), ["terns", "wrens"]);
        assert!(db.open_keyspace("robins").unwrap().is_none());
        handle.put(b"handle", b"goes on").unwrap();
        assert_eq!(db.keyspace("terns").unwrap().count().unwrap(), 2);
        db.swap_keyspaces("wrens", "terns").unwrap();
        assert_eq!((&*who(&db, "wrens"), &*who(&db, "terns")), ("robins", "wrens"));
        handle.put(b"handle", b"still").unwrap();
        assert_eq!(
            db.keyspace("wrens").unwrap().get(b"handle").unwrap().as_deref(),
            Some(&b"still"[..])
        );
        // The name that is free is nobody's, and a dropped one ends the right tree.
        assert!(db.drop_keyspace("terns").unwrap());
        db.rename_keyspace("wrens", "terns").unwrap();
        assert_eq!(who(&db, "terns"), "robins");
        assert_eq!(db.keyspaces().unwrap(), ["terns"]);
        assert!(db.drop_keyspace("terns").unwrap());
        assert_eq!(handle.get(b"who").unwrap_err().kind(), ErrorKind::KeyspaceDropped);
        assert_sound(&db, "renamed");
    }
}

#[test]
fn a_name_that_is_taken_missing_or_impossible_is_refused_and_nothing_has_changed() {
    let db = open(&logged(), &SimDisk::new(1), OpenHow::New).unwrap();
    two(&db);
    let long = "x".repeat(256);
    let before = contents(&db).unwrap();
    for (from, to, rename, swap) in [
        ("robins", "wrens", Some(ErrorKind::KeyspaceExists), None),
        ("robins", "robins", Some(ErrorKind::KeyspaceExists), None),
        ("terns", "gulls", Some(ErrorKind::KeyspaceNotFound), Some(ErrorKind::KeyspaceNotFound)),
        ("terns", "wrens", Some(ErrorKind::KeyspaceNotFound), Some(ErrorKind::KeyspaceNotFound)),
        ("robins", "", Some(ErrorKind::InvalidName), Some(ErrorKind::InvalidName)),
        ("", "robins", Some(ErrorKind::InvalidName), Some(ErrorKind::InvalidName)),
        ("robins", &long, Some(ErrorKind::InvalidName), Some(ErrorKind::InvalidName)),
    ] {
        let kind = |done: hedgerow::Result<()>| done.err().map(|error| error.kind());
        assert_eq!(kind(db.rename_keyspace(from, to)), rename, "{from:?} to {to:?}");
        if swap.is_some() || from == to {
            assert_eq!(kind(db.swap_keyspaces(from, to)), swap, "{from:?} and {to:?}");
        }
        assert_eq!(contents(&db).unwrap(), before);
    }
    for (done, words) in [
        (db.rename_keyspace("robins", "wrens"), "there is a keyspace `wrens` already"),
        (db.create_keyspace("wrens").map(drop), "there is a keyspace `wrens` already"),
        (db.rename_keyspace("terns", "gulls"), "there is no keyspace `terns`"),
        (db.swap_keyspaces("robins", "gu\nlls"), "there is no keyspace `gu\\nlls`"),
    ] {
        assert_eq!(done.unwrap_err().to_string(), words);
    }
    let again = db.clone();
    db.close().unwrap();
    assert_eq!(again.rename_keyspace("robins", "terns").unwrap_err().kind(), ErrorKind::Closed);
}

#[test]
fn a_read_only_store_keeps_its_names() {
    let disk = SimDisk::new(1);
    let db = open(&logged(), &disk, OpenHow::New).unwrap();
    two(&db);
    db.close().unwrap();
    let db = open(&logged(), &disk, OpenHow::ReadOnly).unwrap();
    for refused in [db.rename_keyspace("robins", "terns"), db.swap_keyspaces("robins", "wrens")] {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::ReadOnly);
    }
    assert_eq!(who(&db, "robins"), "robins");
}

/// At each call of the disk, with what a crash may keep of what is pending: the names of before or of after, and every record.
#[test]
fn a_crash_leaves_the_names_of_before_or_of_after() {
    let mut tried = 0;
    for options in [logged(), tiny()] {
        let disk = SimDisk::new(5);
        let db = open(&options, &disk, OpenHow::New).unwrap();
        two(&db);
        db.checkpoint().unwrap();
        let has_log = db.log_position().0 > 0;
        let mut past: Vec<Model> = vec![contents(&db).unwrap()];
        let mut durable = 0;
        disk.record_states(true);
        let steps: [Step; 7] = [
            ("a swap", |db| db.swap_keyspaces("robins", "wrens").unwrap()),
            ("a put", |db| {
                let wrens = db.keyspace("wrens").unwrap().with_durability(Durability::Sync);
                wrens.put(b"new", b"1").unwrap();
            }),
            ("a rename", |db| db.rename_keyspace("robins", "terns").unwrap()),
            ("a checkpoint", |db| db.checkpoint().unwrap()),
            ("a rename back", |db| db.rename_keyspace("terns", "robins").unwrap()),
            ("a swap again", |db| db.swap_keyspaces("wrens", "robins").unwrap()),
            ("a checkpoint", |db| db.checkpoint().unwrap()),
        ];
        for (what, step) in steps {
            step(&db);
            let after = contents(&db).unwrap();
            if past.last() != Some(&after) {
                past.push(after);
            }
            let mut states = disk.take_states();
            states.push(disk.state());
            let end = states.len() - 1;
            for (at, state) in states.into_iter().enumerate() {
                if at == end && (has_log || what == "a checkpoint") {
                    durable = past.len() - 1;
                }
                for seed in 0..12 {
                    let left = SimDisk::with_state(state.crash_at_random(seed), seed);
                    let context = format!("{what}, call {at}, seed {seed}, log: {has_log}");
                    let again = open(&options, &left, OpenHow::Existing).expect(&context);
                    let found = contents(&again).unwrap();
                    assert!(past[durable..].contains(&found), "{context}: {found:?}");
                    assert_sound(&again, &context);
                    tried += 1;
                }
            }
        }
    }
    assert!(tried > 500, "{tried}");
}

#[test]
fn whoever_looks_for_names_sees_all_of_an_exchange_or_none() {
    let db = open(&logged(), &SimDisk::new(1), OpenHow::New).unwrap();
    two(&db);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Relaxed) {
                    let names = db.keyspaces().unwrap();
                    let is_whole = names == ["robins", "wrens"] || names == ["robins", "terns"];
                    assert!(is_whole, "{names:?}");
                    assert!(db.open_keyspace("robins").unwrap().is_some());
                }
            });
        }
        for round in 0..if is_thorough() { 3_000 } else { 600 } {
            match round % 3 {
                0 => db.rename_keyspace("wrens", "terns").unwrap(),
                1 => db.rename_keyspace("terns", "wrens").unwrap(),
                _ => db.swap_keyspaces("wrens", "robins").unwrap(),
            }
        }
        is_over.store(true, Relaxed);
    });
    assert_sound(&db, "exchanged many times");
}

/// The load notes its end under the name that the keyspace has by then: no opening takes its pages for left over.
#[test]
fn a_load_goes_on_while_its_keyspace_gets_another_name() {
    let disk = SimDisk::new(1);
    let db = open(&logged(), &disk, OpenHow::New).unwrap();
    two(&db);
    let fresh = db.keyspace("fresh").unwrap();
    let mut renamed = false;
    let records = (0..300_u32).map(|n| {
        if n == 150 {
            db.rename_keyspace("fresh", "old").unwrap();
            db.swap_keyspaces("old", "robins").unwrap();
            renamed = true;
        }
        (n.to_be_bytes().to_vec(), b"loaded".to_vec())
    });
    fresh.bulk_load(records, 100).unwrap();
    assert!(renamed);
    assert_eq!(db.keyspace("robins").unwrap().count().unwrap(), 300);
    assert_eq!(who(&db, "old"), "robins");
    db.sync().unwrap();
    let again = open(&logged(), &disk.crash(3), OpenHow::Existing).unwrap();
    assert_eq!(again.keyspace("robins").unwrap().count().unwrap(), 300);
    assert_eq!(again.keyspaces().unwrap(), ["old", "robins", "wrens"]);
    assert_sound(&again, "loaded under three names");
}

/// A recovery takes checkpoints, and is cut off; the next one does the log again over what those have. Names move on in between, so
/// that a name of the log means another tree by then.
#[test]
fn names_are_right_after_a_recovery_that_was_cut_off_behind_a_checkpoint() {
    let mut dice = Dice(seed(79));
    let (mut cuts, mut in_replay) = (0, 0);
    let rounds = if is_thorough() { 24 } else { 8 };
    for _ in 0..rounds * effort() {
        let disk = SimDisk::new(dice.roll());
        let db = open(&logged(), &disk, OpenHow::New).unwrap();
        let name = |n: u64| ["robins", "terns", "wrens"][n as usize];
        db.keyspace(name(0)).unwrap();
        db.checkpoint().unwrap();
        for step in 0..40_u64 {
            let (a, b) = (name(dice.below(3)), name(dice.below(3)));
            let there = |name: &str| db.open_keyspace(name).unwrap().is_some();
            match dice.below(8) {
                0 => drop(db.drop_keyspace(a).unwrap()),
                1..=3 => drop(db.keyspace(a).unwrap()),
                _ if there(a) && !there(b) => db.rename_keyspace(a, b).unwrap(),
                _ if there(a) && there(b) => db.swap_keyspaces(a, b).unwrap(),
                _ => {}
            }
            if let Some(keyspace) = db.open_keyspace(b).unwrap() {
                for _ in 0..dice.below(200) {
                    keyspace.put(&key(dice.below(300)), &step.to_le_bytes()).unwrap();
                }
            }
        }
        db.sync().unwrap();
        let expected = contents(&db).unwrap();
        let killed = disk.kill(dice.roll());
        drop(db);
        killed.record_states(true);
        let often = logged().background_checkpoints(true).checkpoint_bytes(8 << 10);
        let db = open(&often, &killed, OpenHow::Existing).unwrap();
        let states = killed.take_states();
        killed.record_states(false);
        assert_eq!(contents(&db).unwrap(), expected, "after a kill");
        drop(db);
        let replayed = |state: &SimState| -> Vec<u8> {
            let file = state.contents(path()).unwrap();
            POSITIONS.iter().flat_map(|at| file[*at as usize + 192..][..8].to_vec()).collect()
        };
        let mut seen: Vec<Vec<u8>> = states.iter().map(replayed).collect();
        seen.dedup();
        in_replay += seen.len() - 1;
        let step = (states.len() as u64 / 40 / effort()).max(1);
        let mut at = dice.below(step);
        while let Some(state) = states.get(at as usize) {
            let survivor = SimDisk::with_state(state.crash_at_random(dice.roll()), dice.roll());
            let options = if dice.below(2) == 0 { logged() } else { often.clone() };
            let context = format!("a power cut before call {at} of {}", states.len());
            let db = open(&options, &survivor, OpenHow::Existing).expect(&context);
            assert_eq!(contents(&db).unwrap(), expected, "{context}");
            assert_sound(&db, &context);
            cuts += 1;
            at += 1 + dice.below(2 * step);
        }
    }
    println!("{in_replay} superblocks that have renames of a replay");
    count(cuts, "nested crash states");
    assert!(cuts > 17 * rounds && in_replay > rounds as usize, "{cuts}, {in_replay}");
}
