//! Stores with many more pages than one part of the page map has: what an operation, or a checkpoint, reads and writes of the map.

use super::*;
use crate::testing::sim::CallKind;
use crate::types::PART_WORDS;
use hedgerow_sync::primitive::random::SplitMix64;

/// More than a put reads of the map, and fewer than there are.
const PARTS: usize = 40;

/// Puts records into a keyspace until the store has so many parts of the map.
fn fill(store: &Store, name: &str, parts: usize) {
    let tree = store.create_keyspace(name).unwrap();
    let next = || store.pool().ids().lock().next_id().unwrap().0 as usize;
    let mut number = 0_u64;
    while next() < parts * PART_WORDS {
        tree.put(&number.to_be_bytes(), &[7; 150]).unwrap();
        number += 1;
        if number.is_multiple_of(4_096) {
            store.checkpoint().unwrap();
        }
    }
}

/// All parts before the first free id were read, one after the other, before the first page that a put needed had its id.
#[test]
fn no_put_searches_the_whole_map_for_a_free_page_id() {
    let (disk, store) = new_store();
    fill(&store, "wrens", PARTS);
    fill(&store, "robins", PARTS + PARTS / 8);
    store.drop_keyspace("robins").unwrap();
    for _ in 0..3 {
        store.checkpoint().unwrap();
    }
    store.close().unwrap();
    drop(store);
    let store = open(&options(), &disk, OpenHow::Existing).unwrap();
    let end = store.pool().ids().lock().next_id().unwrap();
    let wrens = store.open_keyspace("wrens").unwrap().unwrap();
    disk.record_log(true);
    let mut most = 0;
    for number in 0..2_000_u64 {
        disk.take_log();
        wrens.put(&(u64::MAX - number).to_be_bytes(), &[7; 150]).unwrap();
        let log = disk.take_log();
        most = most.max(log.iter().filter(|call| call.kind == CallKind::Read).count());
    }
    assert!(most > 4, "{most}: it searches");
    assert!(most < PARTS, "{most} reads in a put");
    // It is found in the end.
    let ids = store.pool().ids().lock();
    let given = ids.next_id().unwrap().0 - end.0;
    assert!(given < 100, "{given} new ids beside {} free ones", ids.free_count());
}

/// Each part of the map was read and written by a call of its own.
#[test]
fn a_checkpoint_reads_and_writes_many_parts_of_the_map_together() {
    let (file, store) = watched();
    fill(&store, "wrens", PARTS);
    store.checkpoint().unwrap();
    let wrens = store.open_keyspace("wrens").unwrap().unwrap();
    let all = PARTS as u64 * PART_WORDS as u64 * 2;
    for number in (0..all).step_by(PART_WORDS / 4) {
        if wrens.get(&number.to_be_bytes()).unwrap().is_some() {
            wrens.put(&number.to_be_bytes(), &[8; 150]).unwrap();
        }
    }
    let before = (file.reads.load(SeqCst), file.writes.load(SeqCst));
    store.checkpoint().unwrap();
    let (reads, writes) = (file.reads.load(SeqCst) - before.0, file.writes.load(SeqCst) - before.1);
    assert!(reads + writes < PARTS as u64 / 2, "{reads} single reads, {writes} writes");
    assert!(is_clean(&store));
}

/// Only gets marked a leaf as used: one that scans came back to went as soon as another page was read.
#[test]
fn a_leaf_at_which_scans_begin_stays_in_memory() {
    let (disk, store) = new_store();
    fill(&store, "wrens", PARTS);
    let wrens = store.open_keyspace("wrens").unwrap().unwrap();
    disk.record_log(true);
    let mut misses = 0;
    let mut random = SplitMix64::new(5);
    for _ in 0..100 {
        for _ in 0..1_000 {
            wrens.get(&random.below(PARTS as u64 * 900).to_be_bytes()).unwrap();
        }
        disk.take_log();
        let mut cursor = wrens.scan();
        cursor.seek(&20_u64.to_be_bytes());
        assert!(cursor.next_record().unwrap().is_some());
        misses += usize::from(!disk.take_log().is_empty());
    }
    assert!(misses < 8, "{misses} of 100 scans read the leaf that they begin at");
}
