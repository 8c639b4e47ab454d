//! What threads ask the trees for: `ycsb`, `ae` and the inserts of HPCA'14.
//!
//! - [`Ycsb`]: keys are loaded, every operation is drawn by itself, and the distribution is over all keys, in their order or scrambled.
//! - [`Ae`]: what the artifact of the Eunomia paper runs. There are 20 entities. A batch of puts draws an entity, and puts its next
//!   20 keys, by a count that the thread has of that entity; each key is put twice, and counts once. So all threads append the
//!   same keys, and whoever is late finds them there. Gets look for keys that nobody has put.
//! - [`EvenOdd`]: even keys are loaded, and inserts put odd ones (HPCA'14, section 4).
//!
//! `ycsb` and `ae` measure different things, and never stand in one table.
//!
//! Invariant: a stream is a function of its workload, its thread's number and a seed. Thread-safety: a stream belongs to one
//! thread; what several share is plain data.

mod distribution;

pub use distribution::{Distribution, Shape};

use hedgerow_sync::primitive::Arc;
use hedgerow_sync::primitive::random::SplitMix64;

/// One call of a tree, and how many operations it counts as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Looks a key up. One operation.
    Get(u64),
    /// Puts a value, over an earlier one if there is one. One operation.
    Put(u64, u64),
    /// Puts a value if there is none, twice. One operation.
    InsertTwice(u64, u64),
}

/// What one thread asks for, without end.
pub trait Stream {
    /// The next call.
    fn next_step(&mut self) -> Step;
}

/// Where the n-th most popular key lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Popular keys are neighbours.
    Clustered,
    /// Popular keys are anywhere.
    Scrambled,
}

/// Loaded keys, a true mix, and a distribution over all keys.
#[derive(Clone, Debug)]
pub struct Ycsb {
    distribution: Arc<Distribution>,
    order: Order,
    puts_percent: u64,
}

/// The distance of two loaded keys.
const YCSB_STRIDE: u64 = 16;
/// A prime that is greater than any number of keys here.
const SCRAMBLE: u64 = 0x9e37_79b1;

impl Ycsb {
    /// Over so many keys.
    #[must_use]
    pub fn new(shape: Shape, keys: u64, order: Order, puts_percent: u64) -> Ycsb {
        Ycsb { distribution: Arc::new(Distribution::new(shape, keys)), order, puts_percent }
    }

    /// The keys that are loaded, in order.
    pub fn loaded(&self) -> impl Iterator<Item = u64> + use<> {
        (0..self.distribution.items()).map(|item| item * YCSB_STRIDE)
    }

    /// The key of an item.
    #[must_use]
    pub fn key(&self, item: u64) -> u64 {
        let items = self.distribution.items();
        let place = match self.order {
            Order::Clustered => item,
            // A bijection, as `SCRAMBLE` has no factor in common with the number of items.
            Order::Scrambled => {
                (u128::from(item) * u128::from(SCRAMBLE) % u128::from(items)) as u64
            }
        };
        place * YCSB_STRIDE
    }

    /// What a thread asks for.
    #[must_use]
    pub fn stream(&self, thread: u64, seed: u64) -> YcsbStream {
        YcsbStream { workload: self.clone(), random: generator(thread, seed) }
    }
}

/// One thread's part of [`Ycsb`].
#[derive(Debug)]
pub struct YcsbStream {
    workload: Ycsb,
    random: SplitMix64,
}

impl Stream for YcsbStream {
    fn next_step(&mut self) -> Step {
        let key = self.workload.key(self.workload.distribution.draw(&mut self.random));
        if self.random.below(100) < self.workload.puts_percent {
            Step::Put(key, self.random.next_u64())
        } else {
            Step::Get(key)
        }
    }
}

/// What the artifact of the Eunomia paper runs.
#[derive(Clone, Debug)]
pub struct Ae {
    entities: Arc<Distribution>,
    puts_percent: u64,
}

impl Ae {
    /// Entities of the artifact.
    pub const ENTITIES: u64 = 20;
    /// Keys of one batch.
    pub const BATCH: u64 = 20;
    /// Gets are uniform below this, where nobody has put anything.
    pub const GETS_BELOW: u64 = 100_000;
    /// Keys of an entity begin at a multiple of this.
    const ENTITY_STRIDE: u64 = 1 << 32;

    /// `puts_percent` of the choices are batches of puts, others are one get.
    #[must_use]
    pub fn new(shape: Shape, puts_percent: u64) -> Ae {
        let entities = Arc::new(Distribution::new(shape, Ae::ENTITIES));
        Ae { entities, puts_percent }
    }

    /// The n-th key of an entity.
    #[must_use]
    pub fn key(entity: u64, n: u64) -> u64 {
        (entity + 1) * Ae::ENTITY_STRIDE + n
    }

    /// What a thread asks for.
    #[must_use]
    pub fn stream(&self, thread: u64, seed: u64) -> AeStream {
        AeStream {
            workload: self.clone(),
            random: generator(thread, seed),
            next: [0; Ae::ENTITIES as usize],
            entity: 0,
            left: 0,
        }
    }
}

/// One thread's part of [`Ae`].
#[derive(Debug)]
pub struct AeStream {
    workload: Ae,
    random: SplitMix64,
    /// Per entity, the thread's own count.
    next: [u64; Ae::ENTITIES as usize],
    entity: u64,
    /// Of the batch.
    left: u64,
}

impl Stream for AeStream {
    fn next_step(&mut self) -> Step {
        if self.left == 0 {
            if self.random.below(100) >= self.workload.puts_percent {
                return Step::Get(self.random.below(Ae::GETS_BELOW));
            }
            self.entity = self.workload.entities.draw(&mut self.random);
            self.left = Ae::BATCH;
        }
        self.left -= 1;
        let next = &mut self.next[self.entity as usize];
        let key = Ae::key(self.entity, *next);
        *next += 1;
        Step::InsertTwice(key, self.random.next_u64())
    }
}

/// Even keys are loaded; gets look for them, and inserts put odd ones, all uniform.
#[derive(Clone, Copy, Debug)]
pub struct EvenOdd {
    /// Keys that are loaded.
    pub keys: u64,
    /// Inserts among a hundred operations.
    pub inserts_percent: u64,
}

impl EvenOdd {
    /// The keys that are loaded, in order.
    pub fn loaded(self) -> impl Iterator<Item = u64> {
        (0..self.keys).map(|item| item * 2)
    }

    /// What a thread asks for.
    #[must_use]
    pub fn stream(self, thread: u64, seed: u64) -> EvenOddStream {
        EvenOddStream { workload: self, random: generator(thread, seed) }
    }
}

/// One thread's part of [`EvenOdd`].
#[derive(Debug)]
pub struct EvenOddStream {
    workload: EvenOdd,
    random: SplitMix64,
}

impl Stream for EvenOddStream {
    fn next_step(&mut self) -> Step {
        let key = 2 * self.random.below(self.workload.keys);
        if self.random.below(100) < self.workload.inserts_percent {
            Step::Put(key + 1, self.random.next_u64())
        } else {
            Step::Get(key)
        }
    }
}

fn generator(thread: u64, seed: u64) -> SplitMix64 {
    // Sequences of neighbouring seeds have nothing in common once they are drawn from another one.
    let mut mixed = SplitMix64::new(seed << 16 ^ thread);
    SplitMix64::new(mixed.next_u64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn scrambled_keys_are_the_loaded_ones_each_once() {
        for items in [1, 2, 1_000, 65_536, 99_991] {
            let ycsb = Ycsb::new(Shape::Uniform, items, Order::Scrambled, 50);
            let keys: BTreeSet<u64> = (0..items).map(|item| ycsb.key(item)).collect();
            assert!(keys.iter().copied().eq(ycsb.loaded()), "{items} items");
        }
    }

    #[test]
    fn ycsb_has_the_mix_that_it_is_told() {
        let ycsb = Ycsb::new(Shape::Zipf { theta: 0.9 }, 1_000, Order::Clustered, 30);
        let mut stream = ycsb.stream(3, 11);
        let steps: Vec<Step> = (0..10_000).map(|_| stream.next_step()).collect();
        let puts = steps.iter().filter(|step| matches!(step, Step::Put(..))).count();
        assert!((2_800..3_200).contains(&puts), "{puts}");
        let mut again = ycsb.stream(3, 11);
        assert!(steps.iter().all(|step| *step == again.next_step()));
        assert_ne!(ycsb.stream(4, 11).next_step(), steps[0]);
    }

    #[test]
    fn ae_appends_batches_of_twenty_and_all_threads_walk_the_same_keys() {
        let ae = Ae::new(Shape::Zipf { theta: 0.9 }, 100);
        let mut keys = [BTreeMap::<u64, u64>::new(), BTreeMap::new()];
        for (thread, keys) in keys.iter_mut().enumerate() {
            let mut stream = ae.stream(thread as u64, 1);
            for _ in 0..500 {
                let batch: Vec<Step> = (0..Ae::BATCH).map(|_| stream.next_step()).collect();
                let key = |step: &Step| match step {
                    Step::InsertTwice(key, _) => *key,
                    other => panic!("{other:?}"),
                };
                let first = key(&batch[0]);
                assert!(batch.iter().map(key).eq(first..first + Ae::BATCH));
                let entity = first / Ae::ENTITY_STRIDE;
                let expected = keys.entry(entity).or_default();
                assert_eq!(first, Ae::key(entity - 1, *expected));
                *expected += Ae::BATCH;
            }
        }
        assert!(keys[0].contains_key(&1) && keys[1].contains_key(&1));
    }

    #[test]
    fn ae_looks_for_keys_that_nobody_puts() {
        let mut stream = Ae::new(Shape::Uniform, 0).stream(0, 1);
        for _ in 0..100 {
            assert!(matches!(stream.next_step(), Step::Get(key) if key < Ae::key(0, 0)));
        }
    }

    #[test]
    fn inserts_are_odd_and_gets_are_even() {
        let workload = EvenOdd { keys: 100, inserts_percent: 20 };
        let mut stream = workload.stream(0, 5);
        for _ in 0..1_000 {
            match stream.next_step() {
                Step::Get(key) => assert!(key % 2 == 0 && key < 200),
                Step::Put(key, _) => assert!(key % 2 == 1 && key < 201),
                other @ Step::InsertTwice(..) => panic!("{other:?}"),
            }
        }
    }
}
