//! The index against a map of values to numbers, with all switches.

use super::*;
use crate::bplus::with_each_abort;
use crate::htm::{Lock, NOrec, RetryPolicy};
use std::collections::BTreeMap;

fn values_in_order<H: Htm>(index: &DeltaIndex<H>) -> Vec<u64> {
    index.in_order().into_iter().map(|id| index.value_of(id)).collect()
}

fn at_random<H: Htm>(htm: H, switches: Switches, seed: u64) {
    let index = DeltaIndex::new(htm, switches, 8_000, 8_000).unwrap();
    let mut model = BTreeMap::new();
    let mut random = SplitMix64::new(seed);
    for _ in 0..6_000 {
        let value = random.below(8_000);
        if random.below(3) == 0 {
            assert_eq!(index.id_of(value), model.get(&value).copied(), "seed {seed}");
            continue;
        }
        let (id, is_new) = index.insert(value).unwrap();
        assert_eq!(is_new, !model.contains_key(&value), "seed {seed}");
        assert_eq!(*model.entry(value).or_insert(id), id, "seed {seed}");
    }
    assert!(values_in_order(&index).iter().eq(model.keys()), "seed {seed}");
    assert_eq!((index.len(), index.height()), (model.len(), 3));
}

#[test]
fn numbers_stay_what_they_are_with_all_switches() {
    let seed = hedgerow_sync::primitive::random::seed();
    eprintln!("seed {seed}");
    for (_, switches) in Switches::NAMED {
        at_random(Lock::new(), switches, seed);
        at_random(NOrec::new(RetryPolicy::HPCA_R), switches, seed);
    }
}

#[test]
fn an_abort_at_any_access_changes_nothing() {
    for (name, switches) in Switches::NAMED {
        let mut model = BTreeMap::new();
        let htm = NOrec::new(RetryPolicy::DBX);
        let index = DeltaIndex::new(htm, switches, 12_000, 12_000).unwrap();
        for value in 0..1_000 {
            if value % 97 == 0 || value > 997 {
                let mut tried = value * 1_000;
                with_each_abort(index.htm(), || {
                    // A new value each time: nothing is ever removed.
                    tried += 1;
                    let (id, is_new) = index.insert(tried).unwrap();
                    assert!(is_new && model.insert(tried, id).is_none(), "{name} {tried}");
                });
                with_each_abort(index.htm(), || {
                    assert_eq!(index.id_of(tried), model.get(&tried).copied(), "{name}");
                });
            }
            let (id, _) = index.insert(value * 1_000).unwrap();
            model.insert(value * 1_000, id);
        }
        assert!(values_in_order(&index).iter().eq(model.keys()), "{name}");
        assert_eq!(index.len(), model.len());
    }
}

#[test]
fn a_full_dictionary_and_a_full_arena_leave_the_index_as_it_was() {
    let index = DeltaIndex::new(Lock::new(), Switches::UNTUNED, 512, 0).unwrap();
    for value in 0..512 {
        assert!(index.insert(value * 7).unwrap().1);
    }
    assert_eq!(index.insert(1), Err(DeltaError::DictionaryFull));
    assert_eq!(index.insert(7).map(|(_, is_new)| is_new), Ok(false));
    assert_eq!((index.id_of(1), index.len()), (None, 512));
}

#[test]
fn a_loaded_index_is_one_that_goes_on() {
    for many in [0_u64, 1, 31, 900, 20_000] {
        let index = DeltaIndex::new(Lock::new(), Switches::TUNED, 60_000, 1_000).unwrap();
        let values: Vec<u64> = (0..many).map(|value| 2 * value).collect();
        index.load(&values, 1).unwrap();
        assert_eq!(values_in_order(&index), values);
        for value in (0..many).step_by(97) {
            assert!(index.id_of(2 * value).is_some_and(|id| index.value_of(id) == 2 * value));
            assert_eq!(index.insert(2 * value + 1).map(|(_, is_new)| is_new), Ok(true));
        }
        assert!(values_in_order(&index).is_sorted());
    }
}

#[test]
fn threads_that_insert_the_same_values_are_given_the_same_numbers() {
    use hedgerow_sync::primitive::{Arc, thread};
    for (_, switches) in Switches::NAMED {
        let htm = NOrec::new(RetryPolicy::HPCA_R);
        let index = Arc::new(DeltaIndex::new(htm, switches, 4_000, 4_000).unwrap());
        let work = || {
            let index = Arc::clone(&index);
            move || (0..1_500).map(|n| index.insert(n * 7 % 1_499).unwrap()).collect::<Vec<_>>()
        };
        let threads: Vec<_> =
            (0..3).map(|_| thread::spawn_named("adder", work()).unwrap()).collect();
        let given: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        let new = given.iter().flatten().filter(|(_, is_new)| *is_new).count();
        assert_eq!((new, index.len()), (1_499, 1_499));
        let ids = |given: &[(u32, bool)]| given.iter().map(|(id, _)| *id).collect::<Vec<_>>();
        assert!(given.iter().all(|other| ids(other) == ids(&given[0])));
    }
}
