//! Replay of records whose blocks are whole and which do not belong together: what the engine would never have written is
//! damage, and what the checkpoint has already is not done again.

use super::*;
use crate::storage::Disk;
use crate::store::open::read_superblocks;
use crate::store::superblock::positions_of;
use crate::store::{OpenHow, Store, StoreOptions};
use crate::testing::SimDisk;
use crate::wal::{Promised, commit_id};
use std::ops::ControlFlow;
use std::path::Path;

const LIMIT: u64 = 4 << 20;
const FIRST: TreeId = TreeId(TreeId::CATALOGUE.0 + 1);
const UNKNOWN: TreeId = TreeId(77);

fn path() -> &'static Path {
    Path::new("/data/birds.hrow")
}

fn options() -> StoreOptions {
    StoreOptions {
        page_bytes: Some(512),
        background: false,
        zone_bytes: Some(32 << 10),
        log: true,
        log_segment_blocks: Some(24),
        ..StoreOptions::without_log(LIMIT)
    }
}

fn open(disk: &SimDisk, how: OpenHow) -> Result<Store> {
    Store::open(&options(), disk as &dyn Disk, path(), how)
}

fn encoded(records: &[Record<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for record in records {
        let (header, [key, value]) = record.encode();
        bytes.extend_from_slice(&header);
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(value);
    }
    bytes
}

fn put<'r>(key: &'r [u8], value: &'r [u8]) -> Record<'r> {
    Record::Put { tree: FIRST, key, value }
}

/// Appends a record that the engine would not have written there.
fn forge(store: &Store, record: &Record<'_>) {
    let log = store.log().unwrap();
    let bytes = record.len_bytes() as u64;
    store.pool().make_log_room(log, bytes, Promised::Freely).unwrap();
    log.append(record);
    store.flush_log().unwrap();
}

fn batch(changes: u32, records: &[u8]) -> Record<'_> {
    Record::Batch { batch: BatchId::new(9), changes, records }
}

fn made(change: u32) -> Record<'static> {
    Record::Made { batch: BatchId::new(9), change }
}

/// Keyspaces, and their records.
type Contents = Vec<(String, Vec<(Vec<u8>, Vec<u8>)>)>;

/// All records of all keyspaces.
fn contents(store: &Store) -> Contents {
    let names = store.keyspaces().unwrap();
    let records = |name: &String| {
        let tree = store.open_keyspace(name).unwrap().unwrap();
        let mut cursor = tree.scan();
        let mut records = Vec::new();
        while let Some((key, value)) = cursor.next_record().unwrap() {
            records.push((key.to_vec(), value.to_vec()));
        }
        records
    };
    names.iter().map(|name| (name.clone(), records(name))).collect()
}

fn wrens(records: &[(&[u8], &[u8])]) -> Contents {
    let records = records.iter().map(|(key, value)| (key.to_vec(), value.to_vec()));
    vec![("wrens".to_owned(), records.collect())]
}

fn is_damage(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corrupted { .. })
}

/// A store with the keyspace of `FIRST` and a record, all in a checkpoint.
fn store() -> (SimDisk, Store) {
    let disk = SimDisk::new(1);
    let store = open(&disk, OpenHow::New).unwrap();
    let wrens = store.create_keyspace("wrens").unwrap();
    assert_eq!(wrens.id(), FIRST);
    wrens.put(b"key", b"old").unwrap();
    store.checkpoint().unwrap();
    (disk, store)
}

/// What an opening finds after a log that ends with these records.
fn reopened(records: &[Record<'_>]) -> (SimDisk, Result<Store>) {
    let (disk, store) = store();
    for record in records {
        forge(&store, record);
    }
    let disk = disk.crash(1);
    let opened = open(&disk, OpenHow::Existing);
    (disk, opened)
}

#[test]
fn records_of_batches_that_contradict_each_other_are_damage() {
    let one = encoded(&[put(b"a", b"1")]);
    let two = encoded(&[put(b"a", b"1"), put(b"b", b"2")]);
    let create = encoded(&[Record::Create { tree: UNKNOWN, name: b"robins" }]);
    let cases: [(&str, &[Record<'_>]); 8] = [
        ("of no batch", &[made(0)]),
        ("made before, and finished", &[batch(1, &one), made(0), made(0)]),
        ("made twice", &[batch(2, &two), made(1), made(1)]),
        ("of a change that it does not have", &[batch(2, &two), made(2)]),
        ("made before it is whole", &[batch(2, &one), made(0)]),
        ("of two lengths", &[batch(2, &one), batch(3, &one)]),
        ("with more changes than it says", &[batch(1, &two)]),
        ("with what is no change", &[batch(1, &create)]),
    ];
    for (what, records) in cases {
        let (disk, opened) = reopened(records);
        let error = opened.map(drop).expect_err(what);
        assert!(is_damage(&error), "{what}: {error:?}");
        // Nothing came of it: whoever has the right log may bring it.
        let again = open(&disk, OpenHow::Existing).map(drop).expect_err(what);
        assert_eq!(again.kind(), error.kind(), "{what}");
        let read_only = open(&disk, OpenHow::ReadOnly).map(drop).expect_err(what);
        assert!(is_damage(&read_only), "{what}: {read_only:?}");
    }
}

#[test]
fn a_batch_is_made_whole_and_half_a_batch_is_not() {
    let (one, two) = (encoded(&[put(b"a", b"1")]), encoded(&[put(b"b", b"2")]));
    let (_, opened) = reopened(&[batch(2, &one)]);
    assert_eq!(contents(&opened.unwrap()), wrens(&[(b"key", b"old")]));
    let all: &[(&[u8], &[u8])] = &[(b"a", b"1"), (b"b", b"2"), (b"key", b"old")];
    let halves = [batch(2, &one), batch(2, &two)];
    let (_, opened) = reopened(&halves);
    assert_eq!(contents(&opened.unwrap()), wrens(all), "nothing of it was made before");
    let (_, opened) = reopened(&[halves[0], halves[1], made(1)]);
    assert_eq!(contents(&opened.unwrap()), wrens(all), "a part of it was");
    // What came after a part that was made is the newer.
    let (_, opened) = reopened(&[halves[0], halves[1], made(1), put(b"b", b"3"), made(0)]);
    let newer: &[(&[u8], &[u8])] = &[(b"a", b"1"), (b"b", b"3"), (b"key", b"old")];
    assert_eq!(contents(&opened.unwrap()), wrens(newer));
}

#[test]
fn changes_of_a_keyspace_that_is_not_there_change_no_other() {
    let (_, opened) = reopened(&[
        Record::Put { tree: UNKNOWN, key: b"key", value: b"new" },
        Record::Remove { tree: UNKNOWN, key: b"key" },
        Record::RemoveRange { tree: UNKNOWN, from: b"", to: b"" },
        Record::Drop { tree: UNKNOWN, name: b"wrens" },
        put(b"last", b"1"),
    ]);
    let store = opened.unwrap();
    assert_eq!(contents(&store), wrens(&[(b"key", b"old"), (b"last", b"1")]));
    assert!(store.verify(|_| ControlFlow::Continue(())).unwrap().is_clean());
}

#[test]
fn a_keyspace_that_is_in_the_checkpoint_is_not_created_again() {
    let (_, opened) = reopened(&[
        Record::Create { tree: FIRST, name: b"robins" },
        Record::Create { tree: FIRST, name: b"wrens" },
        put(b"last", b"1"),
    ]);
    let store = opened.unwrap();
    assert_eq!(contents(&store), wrens(&[(b"key", b"old"), (b"last", b"1")]));
}

/// The record is absolute: it does no harm a second time, and none to another tree.
#[test]
fn other_names_are_given_once_and_to_the_tree_that_the_log_says() {
    let (next, unknown) = (TreeId(FIRST.0 + 1), TreeId(FIRST.0 + 7));
    let rename = |tree, from, to| Record::Rename { tree, from, to };
    let (_, opened) = reopened(&[
        Record::Create { tree: next, name: b"terns" },
        Record::Put { tree: next, key: b"k", value: b"1" },
        rename(FIRST, b"wrens", b"terns"),
        rename(FIRST, b"wrens", b"terns"),
        rename(unknown, b"terns", b"gulls"),
        rename(next, b"terns", b"gulls"),
        rename(next, b"nobody", b"gulls"),
    ]);
    let store = opened.unwrap();
    let tree = |name: &str| store.open_keyspace(name).unwrap().map(|tree| tree.id());
    assert_eq!((tree("terns"), tree("wrens"), tree("gulls")), (Some(FIRST), Some(next), None));
    assert!(store.verify(|_| ControlFlow::Continue(())).unwrap().is_clean());
}

#[test]
fn names_and_ids_that_cannot_be_are_damage() {
    let next = TreeId(FIRST.0 + 1);
    let long = [b'w'; 300];
    let cases: [(&str, Record<'_>); 9] = [
        ("a name that a live keyspace has", Record::Create { tree: next, name: b"wrens" }),
        ("another name that is none", Record::Rename { tree: FIRST, from: b"wrens", to: b"" }),
        ("another name that is long", Record::Rename { tree: FIRST, from: b"wrens", to: &long }),
        (
            "a name before that is not UTF-8",
            Record::Rename { tree: FIRST, from: b"\xfe", to: b"a" },
        ),
        ("no name", Record::Create { tree: next, name: b"" }),
        ("a long name", Record::Create { tree: next, name: &long }),
        ("not UTF-8", Record::Create { tree: next, name: b"\xfe" }),
        ("a drop of what is not UTF-8", Record::Drop { tree: FIRST, name: b"\xfe" }),
        ("the last id", Record::Create { tree: TreeId(u32::MAX), name: b"robins" }),
    ];
    for (what, record) in cases {
        let (_, opened) = reopened(&[record]);
        let error = opened.map(drop).expect_err(what);
        assert!(is_damage(&error), "{what}: {error:?}");
    }
}

#[test]
fn a_key_or_a_record_that_no_page_can_hold_is_damage() {
    let long = [b'k'; 600];
    for record in [put(&long, b"1"), put(b"a", &long), Record::Remove { tree: FIRST, key: &long }] {
        let (_, opened) = reopened(&[record]);
        let error = opened.map(drop).expect_err("no page can hold it");
        assert!(is_damage(&error), "{error:?}");
    }
}

/// Makes the newest checkpoint of a crashed store one during which a batch was under way that began at `start`.
fn begin_at(disk: &SimDisk, start: Lsn) {
    disk.change_state(|state| {
        let mut bytes = state.contents(path()).unwrap();
        let whole = SimDisk::new(1);
        whole.change_state(|copy| copy.set_contents(path(), &bytes)).unwrap();
        let file = whole
            .open(path(), crate::storage::OpenMode::ReadOnly, crate::storage::DirectIo::Never)
            .unwrap();
        let chosen = read_superblocks(&*file).unwrap();
        assert!(start < chosen.superblock.log_end);
        let superblock = Superblock { replay_start: start, ..chosen.superblock };
        for at in positions_of(chosen.pair).map(|at| at as usize) {
            let block = superblock.encode(chosen.pair);
            bytes[at..at + block.len()].copy_from_slice(&*block);
        }
        state.set_contents(path(), &bytes)
    })
    .unwrap();
}

/// A log of which `before` lies before the checkpoint's cut and `after` behind it, and that is read from `before` on.
fn cut_in_two(before: &[Record<'_>], after: &[Record<'_>]) -> Result<Store> {
    let (disk, store) = store();
    let start = store.log().unwrap().tail();
    for record in before {
        forge(&store, record);
    }
    // What was done before the cut was done again by somebody else, and is in the checkpoint.
    store.keyspace("wrens").unwrap().put(b"key", b"new").unwrap();
    store.checkpoint().unwrap();
    for record in after {
        forge(&store, record);
    }
    let disk = disk.crash(1);
    begin_at(&disk, start);
    open(&disk, OpenHow::Existing)
}

#[test]
fn what_lies_before_the_cut_is_not_done_again() {
    let next = TreeId(FIRST.0 + 1);
    let store = cut_in_two(
        &[
            put(b"key", b"older"),
            Record::Remove { tree: FIRST, key: b"key" },
            Record::RemoveRange { tree: FIRST, from: b"", to: b"" },
            Record::Create { tree: next, name: b"robins" },
            Record::Drop { tree: FIRST, name: b"wrens" },
        ],
        &[put(b"last", b"1")],
    );
    assert_eq!(contents(&store.unwrap()), wrens(&[(b"key", b"new"), (b"last", b"1")]));
}

#[test]
fn of_a_batch_under_way_at_the_cut_only_what_was_not_made_yet_is_made() {
    let records = encoded(&[put(b"key", b"older"), put(b"b", b"2"), put(b"c", b"3")]);
    let all: &[(&[u8], &[u8])] = &[(b"b", b"2"), (b"c", b"3"), (b"key", b"new")];
    for after in [&[][..], &[made(2)], &[made(2), made(1)]] {
        let store = cut_in_two(&[batch(3, &records), made(0)], after);
        assert_eq!(contents(&store.unwrap()), wrens(all), "{after:?}");
    }
    // The log is damaged only where it contradicts itself.
    let error = cut_in_two(&[batch(3, &records), made(0)], &[made(0)]).map(drop).unwrap_err();
    assert!(is_damage(&error), "{error:?}");
}

#[test]
fn a_batch_that_was_finished_at_the_cut_may_be_there_in_part() {
    let other = Record::Made { batch: BatchId::new(8), change: 5 };
    let last = encoded(&[put(b"key", b"older")]);
    // Its first record lies before the oldest batch that was not finished, or all of them do.
    for before in [&[other][..], &[batch(2, &last), made(1), made(0)]] {
        let store = cut_in_two(before, &[]).unwrap();
        assert_eq!(contents(&store), wrens(&[(b"key", b"new")]), "{before:?}");
    }
    let error = cut_in_two(&[], &[other]).map(drop).unwrap_err();
    assert!(is_damage(&error), "behind the cut its records must be there: {error:?}");
}

#[test]
fn a_group_is_full_of_changes_or_of_bytes_and_not_before() {
    for (value, changes) in [(&[0; 8][..], GROUP_CHANGES), (&[0; GROUP_BYTES / 16 - 1][..], 16)] {
        let mut group = Group::default();
        for _ in 0..changes {
            assert!(!group.is_full());
            group.push((TreeId(7), b"k", Some(value)), Lsn(1));
        }
        assert!(group.is_full());
        assert_eq!(group.trees(), BTreeSet::from([TreeId(7)]));
    }
}

/// The checkpoint refers to the later of two large values, which the log puts one after the other once more: one is superseded
/// and entered again, and the books still balance, though nothing is written.
#[test]
fn a_large_value_that_is_put_again_over_itself_is_counted_once() {
    let (disk, store) = store();
    let wrens = store.keyspace("wrens").unwrap();
    store.expect_stored_forms();
    let mut stored = Vec::new();
    for _ in 0..2 {
        let mut writer = store.write_large(5000, 200, &crate::Wait::Default).unwrap();
        writer.write(&[7; 5000]).unwrap();
        writer.finish().unwrap();
        stored.push(writer.stored_form());
        wrens.put(b"song", &stored[stored.len() - 1]).unwrap();
        writer.keep();
    }
    store.checkpoint().unwrap();
    for value in &stored {
        let record = Record::Extent { tree: FIRST, key: b"song", value, is_moved: false };
        forge(&store, &record);
    }
    for how in [OpenHow::ReadOnly, OpenHow::Existing] {
        let again = open(&disk.crash(1), how).unwrap();
        let found = again.keyspace("wrens").unwrap().get(b"song").unwrap().unwrap();
        assert_eq!(found.as_bytes(), stored[1]);
        let report = again.verify(|_| ControlFlow::Continue(())).unwrap();
        assert!(report.is_clean(), "{how:?}: {:?}", report.findings);
        let space = again.space_report().unwrap();
        assert_eq!(space.accounted_bytes(), space.file_bytes, "{how:?}: {space:?}");
    }
}

/// A kind of a record that damage has changed, past the checksum: the value was put, and its units were held for nobody. A fuzz target
/// found it in 13,353 damaged logs.
#[test]
fn a_plain_put_of_a_stored_form_is_damage() {
    for is_in_batch in [false, true] {
        let (disk, store) = store();
        store.expect_stored_forms();
        let mut writer = store.write_large(5000, 200, &crate::Wait::Default).unwrap();
        writer.write(&[7; 5000]).unwrap();
        writer.finish().unwrap();
        let stored = writer.stored_form();
        let plain = put(b"song", &stored);
        match is_in_batch {
            false => forge(&store, &plain),
            true => forge(&store, &batch(1, &encoded(&[plain]))),
        }
        let crashed = disk.crash(1);
        drop(writer);
        for how in [OpenHow::ReadOnly, OpenHow::Existing] {
            let error = open(&crashed, how).map(drop).unwrap_err();
            assert!(is_damage(&error), "{how:?}: {error:?}");
            assert!(error.to_string().contains("without saying so"), "{error}");
        }
    }
}

fn commit(changes: u32, records: &[u8]) -> Record<'_> {
    Record::Commit { commit: commit_id(9), changes, records }
}

#[test]
fn a_commit_is_made_at_its_last_piece_or_not_at_all() {
    let one = encoded(&[put(b"a", b"1"), put(b"key", b"new")]);
    let two = encoded(&[Record::Remove { tree: FIRST, key: b"gone" }, put(b"b", b"2")]);
    let later = put(b"key", b"later");
    let all: &[(&[u8], &[u8])] = &[(b"a", b"1"), (b"b", b"2"), (b"key", b"new")];
    let other = Record::Commit { commit: commit_id(8), changes: 3, records: &one };
    type Cases<'c> = [(&'c str, &'c [Record<'c>], &'c [(&'c [u8], &'c [u8])]); 6];
    let cases: Cases<'_> = [
        ("nothing of half", &[commit(4, &one)], &[(b"key", b"old")]),
        ("nothing of the other half", &[commit(4, &two)], &[(b"key", b"old")]),
        ("both pieces", &[commit(4, &one), commit(4, &two)], all),
        ("with half of another between", &[commit(4, &one), other, commit(4, &two)], all),
        (
            "before what comes later",
            &[commit(4, &one), commit(4, &two), later],
            &[(b"a", b"1"), (b"b", b"2"), (b"key", b"later")],
        ),
        // Who has put it had the leaf before the commit, or else the record would lie behind its last piece.
        ("where its last piece ends", &[commit(4, &one), later, commit(4, &two)], all),
    ];
    for (what, records, expected) in cases {
        let (disk, opened) = reopened(records);
        assert_eq!(contents(&opened.unwrap()), wrens(expected), "{what}");
        let again = open(&disk, OpenHow::Existing).unwrap();
        assert_eq!(contents(&again), wrens(expected), "{what}");
    }
    // Not even what the first piece has, if the log ends in the middle of many.
    let (_, opened) = reopened(&[commit(4, &one), put(b"last", b"1")]);
    assert_eq!(contents(&opened.unwrap()), wrens(&[(b"key", b"old"), (b"last", b"1")]));
}

#[test]
fn a_commit_before_the_cut_is_in_the_checkpoint() {
    let one = encoded(&[put(b"a", b"1"), put(b"key", b"older")]);
    let store = cut_in_two(&[commit(2, &one)], &[put(b"last", b"1")]);
    assert_eq!(contents(&store.unwrap()), wrens(&[(b"key", b"new"), (b"last", b"1")]));
    // The log may be read from the middle of one on, because of a batch that began there.
    let store = cut_in_two(&[commit(3, &one)], &[put(b"last", b"1")]);
    assert_eq!(contents(&store.unwrap()), wrens(&[(b"key", b"new"), (b"last", b"1")]));
}

#[test]
fn pieces_of_a_commit_that_contradict_each_other_are_damage() {
    let one = encoded(&[put(b"a", b"1")]);
    let two = encoded(&[put(b"a", b"1"), put(b"b", b"2")]);
    let create = encoded(&[Record::Create { tree: UNKNOWN, name: b"robins" }]);
    let of_it = Record::Made { batch: commit_id(9), change: 0 };
    let cases: [(&str, &[Record<'_>]); 4] = [
        ("of two lengths", &[commit(2, &one), commit(3, &one)]),
        ("with more changes than it says", &[commit(1, &two)]),
        ("with what is no change", &[commit(1, &create)]),
        ("with a change that was made by itself", &[commit(2, &one), of_it]),
    ];
    for (what, records) in cases {
        let error = reopened(records).1.map(drop).expect_err(what);
        assert!(is_damage(&error), "{what}: {error:?}");
    }
}
