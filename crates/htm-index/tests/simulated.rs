//! The lock-elided trees on a simulated machine: each operation with an abort at each of its accesses, histories of 2 to 16 threads whose regions
//! abort at random, and bugs that these have to notice.
//!
//! `RUSTFLAGS="--cfg hedgerow_sim" cargo test --release -p hedgerow-htm-index --test simulated`

#![cfg(hedgerow_sim)]

use hedgerow_htm_index::bplus::BPlusTree;
use hedgerow_htm_index::delta::{DeltaIndex, Switches};
use hedgerow_htm_index::htm::{Faults, Htm, Lock, RetryPolicy, RwSpin, Sim};
use hedgerow_sim::{Machine, Record, run};
use hedgerow_sync::primitive::random::SplitMix64;
use hedgerow_sync::primitive::{Arc, thread};
use hedgerow_testing::linear::{Call, Clock, History, Recorder};
use std::collections::BTreeMap;

/// A machine whose regions abort now and then for no reason.
fn machine(threads: u32, seed: u64) -> Machine {
    let mut machine = Machine::HSW2S.with_contexts(threads).with_seed(seed);
    machine.transactions.spurious = 0.002;
    machine.transactions.interrupt_every = 200_000;
    machine
}

/// Keys of a history: few, so that operations meet.
const KEYS: u64 = 40;
const OPERATIONS: u64 = 150;

fn history_of<H: Htm + 'static>(
    threads: u32,
    seed: u64,
    htm: impl FnOnce() -> H + 'static,
) -> (Result<(), String>, Record) {
    run(&machine(threads, seed), move || {
        let tree = Arc::new(BPlusTree::new(htm(), 10_000).unwrap());
        // Leaves are full, so that inserts split and removals merge.
        (0..2_000).for_each(|key| assert_eq!(tree.insert(key * 8, key), Ok(None)));
        let before: BTreeMap<u64, u64> = (0..2_000).map(|key| (key * 8, key)).collect();
        let clock = Clock::default();
        let start = |number: u32| {
            let (tree, mut recorder) = (Arc::clone(&tree), Recorder::new(number, &clock));
            thread::spawn_named("client", move || {
                let mut random = SplitMix64::new(seed << 8 | u64::from(number));
                for at in 0..OPERATIONS {
                    let key = 8_000 + random.below(KEYS);
                    let new = u64::from(number) << 32 | at | 1 << 62;
                    let kind = random.below(4);
                    let ask = || match kind {
                        0 => {
                            let old = tree.upsert(key, new).unwrap();
                            Call::Put { new, was_there: Some(old.is_some()) }
                        }
                        1 => {
                            let inserted = tree.insert(key, new).unwrap().is_none();
                            Call::InsertIfAbsent { new, inserted }
                        }
                        2 => Call::Remove { was_there: Some(tree.remove(key).is_some()) },
                        _ => Call::Get { found: tree.get(key) },
                    };
                    recorder.operation(key, ask, |call| *call);
                }
                recorder.into_history()
            })
            .unwrap()
        };
        let clients: Vec<_> = (0..threads).map(start).collect();
        let mut history = History::default();
        clients.into_iter().for_each(|client| history.extend(client.join().unwrap()));
        let checked = history.check(&before).map_err(|violation| violation.to_string());
        checked.and_then(|_| tree.check().map(drop))
    })
    .unwrap()
}

#[test]
fn histories_of_many_threads_can_have_happened_in_an_order() {
    for threads in [2, 3, 4, 8, 16] {
        for seed in 1..=3 {
            for (name, policy) in RetryPolicy::PRESETS {
                let (checked, _) = history_of(threads, seed, move || Sim::new(policy));
                assert_eq!(checked, Ok(()), "{threads} threads, seed {seed}, {name}");
            }
            assert_eq!(history_of(threads, seed, Lock::new).0, Ok(()), "seed {seed}, lock");
            assert_eq!(history_of(threads, seed, RwSpin::new).0, Ok(()), "seed {seed}, RW");
        }
    }
}

#[test]
fn a_history_is_the_same_twice() {
    let run = || history_of(8, 7, || Sim::new(RetryPolicy::HPCA_R)).1;
    assert_eq!(run(), run());
}

/// Regions that do not look at the lock go on while somebody writes under it.
#[test]
fn regions_that_do_not_subscribe_to_the_lock_are_noticed() {
    let is_noticed = (1..=20).any(|seed| {
        // A run may also fail: what a region reads may be no tree.
        let caught = std::panic::catch_unwind(|| {
            history_of(8, seed, || Sim::without_subscription(RetryPolicy::HPCA_NO_RETRY)).0
        });
        caught.is_err() || caught.is_ok_and(|checked| checked.is_err())
    });
    assert!(is_noticed);
}

#[test]
fn an_abort_at_any_access_of_a_simulated_region_changes_nothing() {
    run(&Machine::HSW1S.with_seed(1), || {
        let tree = BPlusTree::new(Sim::new(RetryPolicy::DBX), 4_000).unwrap();
        let mut model = BTreeMap::new();
        let mut tried = 0;
        for key in 0..700 {
            for change in 0..if key % 29 == 0 { 3 } else { 1 } {
                let mut access = 1;
                loop {
                    let is_tried = key % 29 == 0;
                    if is_tried {
                        tree.htm().abort_at(access);
                    }
                    match change {
                        0 => {
                            assert_eq!(tree.insert(key, key), Ok(model.get(&key).copied()));
                            model.entry(key).or_insert(key);
                        }
                        1 => assert_eq!(tree.remove(key), model.remove(&key)),
                        _ => assert_eq!(tree.upsert(key, access), Ok(model.insert(key, access))),
                    }
                    if !is_tried || tree.htm().disarm() {
                        break;
                    }
                    if change == 1 {
                        tree.upsert(key, 5).unwrap();
                        model.insert(key, 5);
                    }
                    (access, tried) = (access + 1, tried + 1);
                }
            }
        }
        assert_eq!(tree.check(), Ok(model.into_iter().collect()));
        assert!(tried > 1_000, "{tried}");
    })
    .unwrap();
}

#[test]
fn threads_that_insert_the_same_values_are_given_the_same_numbers() {
    for (name, switches) in Switches::NAMED {
        for seed in 1..=2 {
            run(&machine(8, seed), move || {
                let htm = Sim::new(RetryPolicy::HPCA_R);
                let index = Arc::new(DeltaIndex::new(htm, switches, 4_000, 1_024).unwrap());
                let start = |_| {
                    let index = Arc::clone(&index);
                    let insert = move || {
                        (0..300).map(|n| index.insert(n * 7 % 299).unwrap()).collect::<Vec<_>>()
                    };
                    thread::spawn_named("adder", insert).unwrap()
                };
                let threads: Vec<_> = (0..8).map(start).collect();
                let given: Vec<_> = threads.into_iter().map(|t| t.join().unwrap()).collect();
                let new = given.iter().flatten().filter(|(_, is_new)| *is_new).count();
                assert_eq!((new, index.len()), (299, 299), "{name}, seed {seed}");
                for other in &given {
                    assert!(other.iter().map(|g| g.0).eq(given[0].iter().map(|g| g.0)));
                }
            })
            .unwrap();
        }
    }
}
