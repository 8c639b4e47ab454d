//! Tests of the optimistic trees by themselves and by threads.

use super::{HtmMasstreeStandIn, LockCoupling, MasstreeStandIn};
use crate::htm::Lock;
use hedgerow_sync::primitive::random::SplitMix64;
use std::collections::BTreeMap;

fn seed() -> u64 {
    let given = std::env::var("HEDGEROW_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(hedgerow_sync::primitive::random::seed);
    println!("HEDGEROW_SEED={seed}");
    seed
}

macro_rules! compare {
    ($session:expr, $seed:expr) => {{
        #[allow(unused_mut, reason = "one of them needs it not")]
        let mut session = $session;
        let mut random = SplitMix64::new($seed);
        let mut map = BTreeMap::new();
        for number in 0..30_000 {
            let key = random.below(3_000);
            match random.below(10) {
                0..3 => assert_eq!(session.remove(key), map.remove(&key)),
                3..5 => assert_eq!(session.get(key), map.get(&key).copied()),
                5 => {
                    let before = map.get(&key).copied();
                    map.entry(key).or_insert(number);
                    assert_eq!(session.insert(key, number), Ok(before));
                }
                _ => assert_eq!(session.put(key, number), Ok(map.insert(key, number))),
            }
        }
        for key in 0..3_000 {
            assert_eq!(session.get(key), map.get(&key).copied());
        }
    }};
}

#[test]
fn each_tree_does_what_a_map_does() {
    let seed = seed();
    let coupling = LockCoupling::new(4_096).unwrap();
    compare!(coupling.session(), seed);
    let masstree = MasstreeStandIn::new(4_096).unwrap();
    compare!(masstree.session(), seed);
    let in_regions = HtmMasstreeStandIn::new(Lock::new(), 4_096).unwrap();
    compare!(&in_regions, seed);
}

#[test]
fn threads_that_put_into_the_same_leaves_lose_nothing() {
    const KEYS: u64 = 4_000;
    let tree = LockCoupling::new(4_096).unwrap();
    let other = MasstreeStandIn::new(4_096).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (tree, other) = (&tree, &other);
            scope.spawn(move || {
                for key in (thread..KEYS).step_by(3) {
                    tree.session().put(key, key).unwrap();
                    other.session().put(key, key).unwrap();
                    assert_eq!(tree.session().get(key), Some(key));
                    assert_eq!(other.session().get(key), Some(key));
                }
            });
        }
    });
    for key in 0..KEYS {
        assert_eq!(tree.session().get(key), Some(key));
        assert_eq!(other.session().get(key), Some(key));
    }
}

#[test]
fn a_reader_beside_writers_of_its_leaves_sees_values_of_its_keys() {
    const KEYS: u64 = 100;
    let tree = MasstreeStandIn::new(4_096).unwrap();
    let seed = seed();
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let tree = &tree;
            scope.spawn(move || {
                let mut random = SplitMix64::new(seed ^ thread);
                for number in 0..20_000 {
                    let key = random.below(KEYS);
                    match random.below(3) {
                        0 => drop(tree.session().remove(key)),
                        1 => drop(tree.session().insert(key, number * KEYS + key).unwrap()),
                        _ => drop(tree.session().put(key, number * KEYS + key).unwrap()),
                    }
                }
            });
        }
        let mut random = SplitMix64::new(seed ^ 77);
        for _ in 0..40_000 {
            let key = random.below(KEYS);
            let found = tree.session().get(key);
            assert!(found.is_none_or(|value| value % KEYS == key), "{key}: {found:?}");
        }
    });
}

#[test]
fn a_put_of_the_stand_in_looks_at_versions_three_times_a_level() {
    let tree = MasstreeStandIn::new(16_384).unwrap();
    let mut session = tree.session();
    for key in 0..50_000 {
        session.put(key, key).unwrap();
    }
    session.checks = 0;
    session.put(77, 0).unwrap();
    // Root, inner nodes and leaf; the last look is the one that takes the latch.
    assert!((13..=19).contains(&session.checks), "{}", session.checks);
}
