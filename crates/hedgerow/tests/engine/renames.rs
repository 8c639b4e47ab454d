//! Keyspaces get other names, beside those who use them and those who look for them. Crashes and failed calls at each moment are
//! tried by the `fault_sweep` and by the test of all moments here.
#![allow(clippy::disallowed_methods, reason = "tests use threads")]

use crate::common::{Model, assert_sound, contents, open, tiny};
use hedgerow::internals::store::OpenHow;
use hedgerow::{Database, Durability, ErrorKind, Options};
use hedgerow_testing::SimDisk;
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
        for round in 0..if hedgerow_testing::environment::is_thorough() { 3_000 } else { 600 } {
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
