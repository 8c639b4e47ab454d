//! Histories of the Eunomia tree and of those that it is compared with: what threads were told can have happened in an order.
//!
//! By real threads over the lock and over software transactions; under `--cfg hedgerow_sim` by 2 to 16 threads of a simulated machine,
//! whose regions also abort at random. Records come and go beside the keys that are looked at, so that leaves split and
//! merge. The last operation of a history is a scan of everything. `HEDGEROW_SEED` repeats the choices of a run.
#![cfg(not(loom))]
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests use real threads")]

use hedgerow_htm_index::eunomia::{Eunomia, Session, Steps};
use hedgerow_htm_index::htm::Htm;
use hedgerow_sync::primitive::random::SplitMix64;
use hedgerow_testing::linear::{Call, Clock, History, Recorder};
use std::collections::BTreeMap;

/// Keys that operations meet on, in the middle of those that come and go.
const HOT: std::ops::Range<u64> = 300..312;
/// All keys.
const KEYS: u64 = 600;
const LEAVES: u32 = 4_096;

/// The first records: every second key.
fn first() -> BTreeMap<u64, u64> {
    (0..KEYS).step_by(2).map(|key| (key, key | 1 << 62)).collect()
}

fn made<H: Htm>(htm: H, steps: Steps) -> Eunomia<H> {
    let tree = Eunomia::new(htm, steps, LEAVES).unwrap();
    first().iter().for_each(|(&key, &value)| {
        tree.session().put(key, value).unwrap();
    });
    tree
}

/// One operation, and what it was answered.
fn step<H: Htm>(
    session: &mut Session<'_, H>,
    recorder: &mut Recorder,
    random: &mut SplitMix64,
    new: u64,
) {
    if random.below(24) == 0 {
        let low = HOT.start - random.below(40);
        return recorder.scan((low, HOT.end), true, 30, || scan(session, low, HOT.end, 30));
    }
    // Two thirds of the operations are on hot keys, others near them: these grow and shrink the same leaves.
    let key = match random.below(3) {
        0 => HOT.start - 30 + random.below(72),
        _ => HOT.start + random.below(HOT.end - HOT.start),
    };
    let kind = random.below(5);
    let ask = || match kind {
        0 => Call::Put { new, was_there: Some(session.put(key, new).unwrap().is_some()) },
        1 => Call::InsertIfAbsent { new, inserted: session.insert(key, new).unwrap().is_none() },
        2 | 3 => Call::Remove { was_there: Some(session.remove(key).is_some()) },
        _ => Call::Get { found: session.get(key) },
    };
    recorder.operation(key, ask, |call| *call);
}

fn scan<H: Htm>(
    session: &mut Session<'_, H>,
    low: u64,
    high: u64,
    limit: usize,
) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    session.scan(low, |key, value| {
        let is_inside = key <= high && found.len() < limit;
        if is_inside {
            found.push((key, value));
        }
        is_inside && found.len() < limit
    });
    found
}

/// What one thread does.
fn client<H: Htm>(tree: &Eunomia<H>, clock: &Clock, number: u32, seed: u64, steps: u64) -> History {
    let mut recorder = Recorder::new(number, clock);
    let mut session = tree.session();
    let mut random = SplitMix64::new(seed << 8 | u64::from(number));
    for at in 0..steps {
        step(&mut session, &mut recorder, &mut random, u64::from(number) << 32 | at | 1 << 61);
    }
    recorder.into_history()
}

/// Ends a history with a look at everything, and checks it.
fn check<H: Htm>(tree: &Eunomia<H>, clock: &Clock, mut history: History) -> Result<(), String> {
    let mut recorder = Recorder::new(99, clock);
    let all = usize::MAX;
    recorder.scan((0, KEYS), true, all, || scan(&mut tree.session(), 0, u64::MAX, all));
    history.extend(recorder.into_history());
    history.check(&first()).map(drop).map_err(|violation| violation.to_string())
}

#[cfg(not(hedgerow_sim))]
mod native {
    use super::*;
    use hedgerow_htm_index::htm::{Lock, NOrec, RetryPolicy};

    fn seed() -> u64 {
        let given = std::env::var("HEDGEROW_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = given.unwrap_or_else(hedgerow_sync::primitive::random::seed) >> 8;
        println!("HEDGEROW_SEED={seed}");
        seed
    }

    fn run<H: Htm>(htm: impl Fn() -> H, seed: u64, name: &str) {
        // Under Miri each operation takes a thousand times as long.
        let (rounds, operations) = if cfg!(miri) { (1, 15) } else { (4, 600) };
        for (step, steps) in Steps::LADDER {
            for round in 0..rounds {
                let tree = made(htm(), steps);
                let clock = Clock::default();
                let threads = if cfg!(miri) { 2 } else { 2 + round as u32 % 3 };
                let mut history = History::default();
                std::thread::scope(|scope| {
                    let (tree, clock) = (&tree, &clock);
                    let start = |number: u32| {
                        scope.spawn(move || client(tree, clock, number, seed + round, operations))
                    };
                    let clients: Vec<_> = (0..threads).map(start).collect();
                    clients.into_iter().for_each(|client| history.extend(client.join().unwrap()));
                });
                let checked = check(&tree, &clock, history);
                assert_eq!(checked, Ok(()), "{name}, {step}, seed {}", seed + round);
            }
        }
    }

    #[test]
    fn histories_over_the_lock_can_have_happened_in_an_order() {
        run(Lock::new, seed(), "lock");
    }

    #[test]
    fn histories_in_software_regions_can_have_happened_in_an_order() {
        let seed = seed();
        run(|| NOrec::new(RetryPolicy::DBX), seed, "NOrec");
        if !cfg!(miri) {
            run(|| NOrec::new(RetryPolicy::HPCA_NO_RETRY), seed, "NOrec, no retry");
        }
    }
}

#[cfg(hedgerow_sim)]
mod simulated {
    use super::*;
    use hedgerow_htm_index::htm::{RetryPolicy, Sim};
    use hedgerow_sim::{Machine, Record};
    use hedgerow_sync::primitive::{Arc, thread};

    fn history(
        threads: u32,
        seed: u64,
        steps: Steps,
        policy: RetryPolicy,
    ) -> (Result<(), String>, Record) {
        let mut machine = Machine::HSW2S.with_contexts(threads).with_seed(seed);
        machine.transactions.spurious = 0.002;
        machine.transactions.interrupt_every = 200_000;
        let tree = Arc::new(made(Sim::new(policy), steps));
        hedgerow_sim::run(&machine, move || {
            let clock = Clock::default();
            let start = |number: u32| {
                let (tree, clock) = (Arc::clone(&tree), clock.clone());
                thread::spawn_named("client", move || client(&tree, &clock, number, seed, 150))
                    .unwrap()
            };
            let clients: Vec<_> = (0..threads).map(start).collect();
            let mut history = History::default();
            clients.into_iter().for_each(|client| history.extend(client.join().unwrap()));
            check(&tree, &clock, history)
        })
        .unwrap()
    }

    #[test]
    fn histories_of_many_threads_can_have_happened_in_an_order() {
        for threads in [2, 3, 4, 8, 16] {
            for (name, steps) in Steps::LADDER {
                for seed in 1..=2 {
                    let policy =
                        if seed % 2 == 0 { RetryPolicy::DBX } else { RetryPolicy::HPCA_NO_RETRY };
                    let (checked, _) = history(threads, seed, steps, policy);
                    assert_eq!(checked, Ok(()), "{threads} threads, seed {seed}, {name}");
                }
            }
        }
    }

    #[test]
    fn a_history_is_the_same_twice() {
        let run = || history(8, 3, Steps::COMPLETE, RetryPolicy::DBX).1;
        assert_eq!(run(), run());
    }
}
