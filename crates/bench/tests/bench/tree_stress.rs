//! Threads on one tree in a pool far too small for it, on both translations.
//!
//! The same tree code runs over the engine's pool (frames and a table) and over vmcache (page id =
//! address). Pages are tiny, so that splits, merges and evictions happen under every operation. Every
//! value names its key and the write that it comes from, so that a reader can tell a wrong answer by
//! itself; writers own keys and know exactly what must be there; some keys stay all the time, and each
//! scan must meet them all. At the end the tree is checked page by page, and nothing is lost of what was
//! given out.

#![cfg(target_os = "linux")]

use hedgerow::internals::page::PagePool;
use hedgerow::internals::storage::{DirectIo, Disk, OpenMode, RealDisk};
use hedgerow::internals::store::{Store, StoreOptions};
use hedgerow::internals::tree::{CompareAndSwap, Tree};
use hedgerow::internals::types::TreeId;
use hedgerow_bench::vmcache::{VmcacheOptions, VmcachePool};
use hedgerow_sync::primitive::random::{self, SplitMix64};
use hedgerow_testing::RamDisk;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;

const PAGE_BYTES: usize = 512;
const WRITERS: u64 = 4;
/// Key `i` belongs to writer `i % (WRITERS + 1)`; those of the last class are put once, before
/// anything else, and stay. Some 1,500 leaves: twenty times the pool.
const KEYS: u64 = 10_000;
const COUNTERS: u64 = 3;

fn key_of(number: u64) -> Vec<u8> {
    let tail = "/page".repeat((number % 3) as usize);
    format!("key/{number:06}{tail}").into_bytes()
}

fn value_of(key: &[u8], generation: u64) -> Vec<u8> {
    let mut value = generation.to_be_bytes().to_vec();
    value.extend_from_slice(key);
    // Lengths change with the generation, so that updates move records and run out of space.
    value.resize(value.len() + (generation % 30) as usize, generation as u8);
    value
}

/// The generation in a value, which must be the value of this key and whole.
fn generation_of(key: &[u8], value: &[u8]) -> u64 {
    let generation = u64::from_be_bytes(value[..8].try_into().expect("eight bytes"));
    assert_eq!(value, value_of(key, generation), "the value of another key, or a torn one");
    generation
}

fn counter_of(number: u64) -> Vec<u8> {
    format!("zz-counter/{number}").into_bytes()
}

fn is_permanent(number: u64) -> bool {
    number % (WRITERS + 1) == WRITERS
}

/// Changes the keys of one class at random and knows what must be there; counts up what all share.
fn write<P: PagePool>(tree: &Tree<P>, class: u64, steps: u64, mut random: SplitMix64) -> u64 {
    let mut model = BTreeMap::new();
    let mut increments = 0;
    for step in 0..steps {
        let shrinking = (step / 2_000) & 1 == 1;
        let number = random.below(KEYS / (WRITERS + 1)) * (WRITERS + 1) + class;
        let key = key_of(number);
        let value = value_of(&key, step);
        match random.below(if shrinking { 16 } else { 9 }) {
            0..=3 => {
                let was = model.insert(number, step).is_some();
                assert_eq!(tree.put(&key, &value).unwrap(), was);
            }
            4 => {
                let was = model.get(&number).map(|generation| value_of(&key, *generation));
                let swap = tree.compare_and_swap(&key, was.as_deref(), Some(&value));
                assert!(swap.unwrap().is_swapped());
                model.insert(number, step);
            }
            5 => {
                let found = tree.get(&key).unwrap().map(|value| generation_of(&key, &value));
                assert_eq!(found, model.get(&number).copied());
            }
            6 => {
                // Somebody else's key: whatever is found is whole.
                let key = key_of(random.below(KEYS));
                tree.get_with(&key, |value| generation_of(&key, value)).unwrap();
            }
            7 => {
                count_up(tree, &counter_of(random.below(COUNTERS)));
                increments += 1;
            }
            _ => assert_eq!(tree.remove(&key).unwrap(), model.remove(&number).is_some()),
        }
    }
    for number in (class..KEYS).step_by(WRITERS as usize + 1) {
        let key = key_of(number);
        let found = tree.get(&key).unwrap().map(|value| generation_of(&key, &value));
        assert_eq!(found, model.get(&number).copied());
    }
    increments
}

fn count_up<P: PagePool>(tree: &Tree<P>, key: &[u8]) {
    let mut present = tree.get(key).unwrap().expect("counters stay");
    loop {
        let number = u64::from_be_bytes(present.as_bytes().try_into().expect("eight bytes"));
        match tree.compare_and_swap(key, Some(&present), Some(&(number + 1).to_be_bytes())) {
            Ok(CompareAndSwap::Swapped) => return,
            Ok(CompareAndSwap::Differs(found)) => present = found.expect("counters stay"),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Scans the whole tree one way; all permanent keys must be met once, and everything in order.
fn scan<P: PagePool>(tree: &Tree<P>, forward: bool) {
    let mut cursor = tree.prefix(b"key/");
    if !forward {
        cursor.seek_to_end();
    }
    let mut expected: Vec<_> = (0..KEYS).filter(|&n| is_permanent(n)).map(key_of).collect();
    expected.sort();
    if !forward {
        expected.reverse();
    }
    let mut expected = expected.into_iter().peekable();
    let mut last: Option<Vec<u8>> = None;
    loop {
        let record = if forward { cursor.next_record() } else { cursor.previous_record() };
        let Some((key, value)) = record.unwrap() else { break };
        generation_of(key, value);
        if let Some(last) = &last {
            assert!(if forward { *key > **last } else { *key < **last }, "out of order");
        }
        if expected.peek().is_some_and(|next| next == key) {
            expected.next();
        }
        last = Some(key.to_vec());
    }
    assert_eq!(expected.next(), None, "a key that was there all the time was not seen");
}

fn look_up_groups<P: PagePool>(tree: &Tree<P>) {
    let keys: Vec<_> = (0..KEYS).step_by(31).map(key_of).collect();
    for group in keys.chunks(16) {
        let values = tree.get_many(group).unwrap();
        assert_eq!(values.len(), group.len());
        for (key, value) in group.iter().zip(&values) {
            if let Some(value) = value {
                generation_of(key, value);
            }
        }
    }
}

fn assert_clean<P: PagePool>(tree: &Tree<P>) {
    let findings = tree.verify().unwrap();
    assert!(findings.is_empty(), "{findings:?}");
}

/// Runs all threads; every failure of one fails the test when the scope ends.
fn stress<P: PagePool>(tree: &Tree<P>, steps: u64, seed: u64) {
    println!("seed {seed}");
    for number in (0..KEYS).filter(|&n| is_permanent(n)) {
        let key = key_of(number);
        tree.put(&key, &value_of(&key, 1)).unwrap();
    }
    for number in 0..COUNTERS {
        tree.put(&counter_of(number), &0_u64.to_be_bytes()).unwrap();
    }
    let (done, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    let increments = thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|class| {
                let random = SplitMix64::new(seed ^ class);
                scope.spawn(move || write(tree, class, steps, random))
            })
            .collect();
        for which in 0..4 {
            let (done, rounds) = (&done, &rounds);
            scope.spawn(move || {
                // At least once, however fast the writers are.
                loop {
                    match which {
                        0 => scan(tree, true),
                        1 => scan(tree, false),
                        2 => look_up_groups(tree),
                        _ => assert_clean(tree),
                    }
                    rounds.fetch_add(1, Relaxed);
                    if done.load(Relaxed) {
                        break;
                    }
                }
            });
        }
        let increments: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        done.store(true, Relaxed);
        increments.into_iter().map(|n| n.expect("a writer has failed")).sum::<u64>()
    });
    assert!(rounds.load(Relaxed) >= 4);
    let count = |number| {
        let value = tree.get(&counter_of(number)).unwrap().expect("counters stay");
        u64::from_be_bytes(value.as_bytes().try_into().expect("eight bytes"))
    };
    assert_eq!((0..COUNTERS).map(count).sum::<u64>(), increments, "increments were lost");
    assert_clean(tree);
}

/// 64 places for pages of 512 bytes, which take 4 KiB of address space each.
fn tiny_vmcache(file: Arc<dyn hedgerow::internals::storage::File>) -> Arc<VmcachePool> {
    let mut options =
        VmcacheOptions { memory_limit_bytes: 1 << 30, page_bytes: PAGE_BYTES, max_pages: 1 << 14 };
    let (metadata, _) = options.divide().unwrap();
    let places = 64 * (4096 + 8);
    options.memory_limit_bytes = metadata.total_bytes() - metadata.clock_bytes + places;
    let pool = VmcachePool::new(&options, file).unwrap();
    assert_eq!(pool.places(), 64);
    Arc::new(pool)
}

fn stress_vmcache(
    file: Arc<dyn hedgerow::internals::storage::File>,
    steps: u64,
    least_faults: u64,
) {
    let tree: Tree<VmcachePool> = Tree::create(tiny_vmcache(file), TreeId(7)).unwrap();
    stress(&tree, steps, random::seed());
    let counts = tree.pool().counts();
    println!("{counts:?}");
    assert!(counts.faults > least_faults && counts.evictions > least_faults, "{counts:?}");
    assert!(counts.pages_written > least_faults / 10, "{counts:?}");
    // Nothing is lost and nothing is held twice: what is reachable is what was given out.
    assert_eq!(tree.stats().unwrap().pages(), tree.pool().pages());
    tree.drop_pages().unwrap();
    assert_eq!(tree.pool().pages(), 0);
}

#[test]
fn threads_see_only_truth_in_vmcache() {
    let disk = RamDisk::new();
    let file = disk.open(Path::new("pages"), OpenMode::CreateNew, DirectIo::Never).unwrap();
    stress_vmcache(file, 10_000, 20_000);
}

#[test]
fn threads_see_only_truth_in_vmcache_on_a_real_file() {
    let directory = tempfile::tempdir().unwrap();
    let disk = RealDisk::new(hedgerow::IoEngine::Auto).unwrap();
    // Pages of 512 bytes are no blocks of many a disk.
    let path = directory.path().join("pages");
    let file = disk.open(&path, OpenMode::CreateNew, DirectIo::Never).unwrap();
    stress_vmcache(file, 4_000, 8_000);
}

#[test]
fn threads_see_only_truth_in_frames() {
    let options = StoreOptions {
        page_bytes: Some(PAGE_BYTES),
        checkpoint_bytes: Some(1 << 18),
        direct_io: false,
        ..StoreOptions::without_log(hedgerow::smallest_memory_limit_bytes(PAGE_BYTES))
    };
    let disk = RamDisk::new();
    let file = disk.open(Path::new("store"), OpenMode::CreateNew, DirectIo::Never).unwrap();
    let store = Store::create_in(&options, file).unwrap();
    store.attend_new(&options).unwrap();
    let tree = store.create_keyspace("stress").unwrap();
    stress(&tree, 10_000, random::seed());
    let counters = store.pool().counters().values();
    println!("{counters:?}");
    assert!(counters.faults > 20_000 && counters.evictions > 20_000, "{counters:?}");
    let report = store.verify(|_| ControlFlow::Continue(())).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}
