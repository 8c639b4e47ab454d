//! How large files are: two checkpoints after a load, overwrites or removals leave a file near the size
//! of its pages, and little of it when nothing is left. Stores of several times their memory limit, in
//! files of small zones, so that what is rounded up to whole zones is little beside the pages.
//!
//! Each test prints the seed that its keys come from.

use hedgerow::internals::store::OpenHow;
use hedgerow::{Database, Keyspace, Options};
use hedgerow_sync::primitive::random;
use hedgerow_testing::RamDisk;
use std::ops::ControlFlow;
use std::ops::Range;
use std::path::Path;

const LIMIT_BYTES: u64 = 512 << 10;
const ZONE_BYTES: u64 = 64 << 10;
const RECORDS: u64 = 16_000;
const RECORD_BYTES: u64 = 8 + VALUE_BYTES as u64;
const VALUE_BYTES: usize = 100;

/// A store of one keyspace whose keys are spread at random, and the keys that it has.
struct Store {
    db: Database,
    ks: Keyspace,
    seed: u64,
    present: Range<u64>,
}

impl Store {
    fn new(page_bytes: usize) -> Store {
        let limit_bytes = LIMIT_BYTES.max(128 * page_bytes as u64);
        let options = Options::new().memory_limit_bytes(limit_bytes).page_bytes(page_bytes);
        let zone_bytes = (ZONE_BYTES as usize).max(8 * page_bytes) as u32;
        // What pages and files have after changes is looked at here; merges beside are looked at in `compact.rs`.
        let options = options.zone_bytes(zone_bytes).merge_before_writing(false);
        let db = options.on_disk(&RamDisk::new(), Path::new("x.hrow"), OpenHow::New).unwrap();
        let ks = db.keyspace("birds").unwrap();
        let seed = random::seed();
        println!("seed {seed:#x}, pages of {page_bytes} bytes");
        Store { db, ks, seed, present: 0..0 }
    }

    /// The bijection spreads numbers over all keys.
    fn key(&self, n: u64) -> [u8; 8] {
        (n ^ self.seed).wrapping_mul(0x9e37_79b9_7f4a_7c15).swap_bytes().to_be_bytes()
    }

    fn put(&mut self, from: u64, to: u64, filler: u8) {
        for n in from..to {
            self.ks.put(&self.key(n), &[filler; VALUE_BYTES]).unwrap();
        }
        self.present = from.min(self.present.start)..to.max(self.present.end);
    }

    fn remove(&mut self, to: u64) {
        for n in self.present.start..to {
            assert!(self.ks.remove(&self.key(n)).unwrap());
        }
        self.present.start = to;
    }

    /// Two checkpoints, and a file in order. Returns the file's length and the length of the tree's
    /// pages, in bytes.
    fn settle(&self) -> (u64, u64) {
        self.db.checkpoint().unwrap();
        self.db.checkpoint().unwrap();
        let report = self.db.space_report().unwrap();
        let stats = self.ks.stats().unwrap();
        let pages_bytes = stats.pages() * stats.page_bytes as u64;
        assert_eq!((report.accounted_bytes(), report.out_bytes), (report.file_bytes, 0));
        println!("file {}, pages {pages_bytes}, {report:?}", report.file_bytes);
        let verified = self.db.verify(|_| ControlFlow::Continue(())).unwrap();
        assert!(verified.is_clean(), "{:#?}", verified.findings);
        assert_eq!(self.ks.count().unwrap(), self.present.end - self.present.start);
        (report.file_bytes, pages_bytes)
    }

    /// The file is within a few hundredths, and a few zones, of its pages.
    fn assert_near(&self) -> u64 {
        let (file_bytes, pages_bytes) = self.settle();
        let page_bytes = self.db.stats().unwrap().page_bytes;
        // Images differ in length, so some gaps are too short for the next one. Where parts of the map differ from pages as well, more are.
        let spare_zones = if page_bytes == 4096 { 5 } else { 8 };
        let limit = pages_bytes + pages_bytes / 33 + spare_zones * ZONE_BYTES.max(8 * page_bytes);
        assert!(file_bytes <= limit, "{file_bytes} bytes for pages of {pages_bytes}");
        file_bytes
    }
}

#[test]
fn a_file_is_near_its_pages_after_loads_in_any_order() {
    for page_bytes in [2048, 4096, 16384] {
        let mut random = Store::new(page_bytes);
        random.put(0, RECORDS, 1);
        random.assert_near();
        let ordered = Store::new(page_bytes);
        let mut keys: Vec<_> = (0..RECORDS).map(|n| ordered.key(n)).collect();
        keys.sort_unstable();
        for key in &keys {
            ordered.ks.put(key, &[1; VALUE_BYTES]).unwrap();
        }
        let mut ordered = ordered;
        ordered.present = 0..RECORDS;
        ordered.assert_near();
        let mut bulk = Store::new(page_bytes);
        bulk.present = 0..RECORDS;
        let mut keys: Vec<_> = (0..RECORDS).map(|n| bulk.key(n)).collect();
        keys.sort_unstable();
        bulk.ks.bulk_load(keys.iter().map(|key| (key, [1; VALUE_BYTES])), 100).unwrap();
        bulk.assert_near();
    }
}

#[test]
fn overwriting_everything_leaves_the_file_as_long_as_it_was() {
    let mut store = Store::new(4096);
    store.put(0, RECORDS, 1);
    let before = store.assert_near();
    for round in 2..4 {
        store.put(0, RECORDS, round);
        let after = store.assert_near();
        assert!(after <= before + before / 10, "{before} -> {after} bytes in round {round}");
    }
}

#[test]
fn removing_most_leaves_at_most_twice_what_is_left() {
    for page_bytes in [2048, 4096] {
        let mut store = Store::new(page_bytes);
        store.put(0, RECORDS, 1);
        store.settle();
        // The numbers are spread at random over the keys.
        store.remove(RECORDS / 5 * 4);
        let left = RECORDS / 5 * RECORD_BYTES;
        let file_bytes = store.assert_near();
        assert!(file_bytes <= 2 * left + 4 * ZONE_BYTES, "{file_bytes} bytes for {left}");
    }
}

/// Removed records lie between others in every page, and no page becomes empty enough to be merged: their bytes come back all the same.
#[test]
fn removing_half_of_the_records_of_every_page_gives_their_bytes_back() {
    for page_bytes in [4096, 16384] {
        let mut store = Store::new(page_bytes);
        let mut keys: Vec<_> = (0..RECORDS).map(|n| store.key(n)).collect();
        keys.sort_unstable();
        for key in &keys {
            store.ks.put(key, &[1; VALUE_BYTES]).unwrap();
        }
        store.present = 0..RECORDS;
        let (before, pages_before) = store.settle();
        for key in keys.iter().step_by(2) {
            assert!(store.ks.remove(key).unwrap());
        }
        store.present = 0..RECORDS / 2;
        let (after, pages_after) = store.settle();
        assert!(pages_after > pages_before / 10 * 9, "pages were merged");
        let most = before / 2 + before / 8 + 4 * ZONE_BYTES.max(8 * page_bytes as u64);
        assert!(after <= most, "{before} -> {after} bytes");
    }
}

#[test]
fn removing_everything_leaves_a_few_zones() {
    let mut store = Store::new(4096);
    store.put(0, RECORDS, 1);
    store.settle();
    store.remove(RECORDS);
    let file_bytes = store.assert_near();
    assert!(file_bytes <= 5 * ZONE_BYTES, "{file_bytes} bytes for nothing");
}

/// A file that is written all the time keeps the room that it writes to: it would grow again at once.
#[test]
fn checkpoints_of_a_steady_load_leave_room_for_the_next() {
    let mut store = Store::new(4096);
    store.put(0, RECORDS, 1);
    store.settle();
    let written = |store: &Store| store.db.stats().unwrap().pool.pages_written;
    let mut per_round = Vec::new();
    for round in 0..12 {
        let before = written(&store);
        for n in (round * 500..).step_by(7).take(500) {
            store.put(n % RECORDS, n % RECORDS + 1, 9);
        }
        store.db.checkpoint().unwrap();
        per_round.push(written(&store) - before);
    }
    println!("pages written by round: {per_round:?}");
    let (first, last): (u64, u64) = (per_round[..3].iter().sum(), per_round[9..].iter().sum());
    assert!(last <= first + first / 10, "{per_round:?}");
    store.assert_near();
}

/// Whatever leaves are left empty beside others that are full, the last removals merge them all.
#[test]
fn a_keyspace_that_was_emptied_from_both_ends_is_one_page_and_takes_a_load() {
    let options = hedgerow::Options::new().page_bytes(4096).memory_limit_bytes(4 << 20);
    let db = options.in_memory().unwrap();
    let key = |n: u32| format!("http://www.example.com/item/{n:09}").into_bytes();
    for (low, high) in
        (30..170).step_by(7).flat_map(|low| [190, 230, 260, 295, 320].map(|high| (low, high)))
    {
        let keyspace = db.keyspace("items").unwrap();
        keyspace.bulk_load((0..350).map(|n| (key(n), [7; 8])), 100).unwrap();
        keyspace.remove_range(&key(high)[..]..).unwrap();
        keyspace.remove_range(..&key(low)[..]).unwrap();
        keyspace.remove_range(&key(low)[..]..&key(high)[..]).unwrap();
        assert_eq!(keyspace.count().unwrap(), 0);
        assert_eq!(keyspace.stats().unwrap().pages(), 1, "{low} {high}");
        keyspace.bulk_load([(key(1), [8; 8])], 100).unwrap();
        drop(keyspace);
        db.drop_keyspace("items").unwrap();
    }
}
