//! Reading in pinned checkpoints while the store goes on: against a model, on a disk that fails, after a crash, and in other threads.

use super::*;
use crate::buffer::{
    BufferPool, PinnedCheckpoint, smallest_limit_bytes, smallest_limit_without_log_bytes,
};
use crate::node::{LeafLayout, LeafPolicy};
use crate::testing::environment::{effort, fresh_seed};
use crate::testing::sim::{CallKind, Fault};
use crate::tree::{Beyond, CompactBudget, FrozenTree, FrozenWalk, Target};
use hedgerow_sync::primitive::random::SplitMix64;
use std::collections::BTreeMap;
use std::ops::{Bound, RangeBounds};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn pin(store: &Store) -> PinnedCheckpoint {
    store.shared.pin().unwrap().into_readable()
}

/// A tree of a pinned checkpoint.
struct Pinned<'p> {
    pin: &'p PinnedCheckpoint,
    pool: &'p BufferPool,
    tree: &'p PoolTree,
}

impl Pinned<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut value = b"before".to_vec();
        let pages = self.pin.pages(self.pool);
        let is_there =
            FrozenTree::new(&pages, self.tree.id(), self.tree.root()).get(key, &mut value)?;
        assert!(value.starts_with(b"before") && (is_there || value.len() == 6));
        Ok(is_there.then(|| value.split_off(6)))
    }

    /// Up to `most` records from a bound on.
    fn scan(
        &self,
        from: Bound<&[u8]>,
        forward: bool,
        most: usize,
    ) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let (pages, mut found) = (self.pin.pages(self.pool), Vec::new());
        let (mut leaf, mut from) = (self.tree.leaf_records(), from.map(<[u8]>::to_vec));
        let tree = FrozenTree::new(&pages, self.tree.id(), self.tree.root());
        let (mut walk, mut is_first) = (FrozenWalk::default(), true);
        loop {
            match (&from, forward) {
                (Bound::Excluded(fence) | Bound::Included(fence), _) if !is_first => {
                    let beyond = Beyond { fence, forward, bound: None };
                    tree.copy_next_records(beyond, &mut walk, &mut leaf)?;
                }
                (Bound::Unbounded, true) => tree.copy_records(Target::Key(b""), &mut leaf)?,
                (Bound::Unbounded, false) => tree.copy_records(Target::Last, &mut leaf)?,
                (Bound::Excluded(key), true) => tree.copy_records(Target::Above(key), &mut leaf)?,
                (Bound::Included(key) | Bound::Excluded(key), _) => {
                    tree.copy_records(Target::Key(key), &mut leaf)?;
                }
            }
            is_first = false;
            let mut records = Vec::new();
            leaf.for_each(|key, value| {
                records.push((key.to_vec(), value.to_vec()));
                true
            });
            let within = match forward {
                true => (from, Bound::Unbounded),
                false => (Bound::Unbounded, from),
            };
            records.retain(|(key, _)| within.contains(key));
            let mut fence = Vec::new();
            let has_fence = match forward {
                true => leaf.append_upper_fence(&mut fence),
                false => {
                    records.reverse();
                    leaf.append_lower_fence(&mut fence)
                }
            };
            found.append(&mut records);
            if !has_fence || found.len() >= most {
                found.truncate(most);
                return Ok(found);
            }
            from = if forward { Bound::Excluded(fence) } else { Bound::Included(fence) };
        }
    }
}

fn of<'p>(pin: &'p PinnedCheckpoint, tree: &'p PoolTree) -> Pinned<'p> {
    Pinned { pin, pool: tree.pool(), tree }
}

/// What a store of this test has.
struct Life {
    random: SplitMix64,
    numbers: bool,
    longest: u64,
}

impl Life {
    fn key(&mut self) -> Vec<u8> {
        let n = self.random.below(600);
        match self.numbers {
            true => (n as u32).to_be_bytes().to_vec(),
            false => {
                format!("{:03} is the song of a wren{}", n, "!".repeat(n as usize % 20)).into()
            }
        }
    }

    fn value(&mut self) -> Vec<u8> {
        let len = if self.numbers { self.longest } else { self.random.below(self.longest) };
        (0..len).map(|_| self.random.below(256) as u8).collect()
    }

    /// Looks at some records and ranges of a pin.
    fn look(&mut self, pinned: &Pinned<'_>, model: &Model, context: &str) {
        for _ in 0..10 {
            let key = self.key();
            assert_eq!(pinned.get(&key).unwrap().as_ref(), model.get(&key), "{context}");
        }
        for forward in [true, false] {
            let key = self.key();
            let bound = match self.random.below(3) {
                0 => Bound::Included(&key[..]),
                1 => Bound::Excluded(&key[..]),
                _ => Bound::Unbounded,
            };
            let most = [3, 40, usize::MAX][self.random.below(3) as usize];
            let found = pinned.scan(bound, forward, most).unwrap();
            let of_model = |range: &mut dyn Iterator<Item = (&Vec<u8>, &Vec<u8>)>| {
                range.take(most).map(|(k, v)| (k.clone(), v.clone())).collect::<Vec<_>>()
            };
            let expected = match forward {
                true => of_model(&mut model.range::<[u8], _>((bound, Bound::Unbounded))),
                false => of_model(&mut model.range::<[u8], _>((Bound::Unbounded, bound)).rev()),
            };
            assert!(found == expected, "{context}: {bound:?} {forward} {most}");
        }
    }
}

fn on(_: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// The smallest store with such pages.
fn small(page_bytes: usize, log: bool) -> StoreOptions {
    let limit = match log {
        true => smallest_limit_bytes(page_bytes),
        false => smallest_limit_without_log_bytes(page_bytes),
    };
    StoreOptions {
        page_bytes: Some(page_bytes),
        log,
        log_segment_blocks: log.then_some(6),
        ..StoreOptions { memory_limit_bytes: limit, ..options() }
    }
}

/// Lets a store live for a while with some pins, and leaves it with those that are held then.
fn live(store: &Store, life: &mut Life, context: &str) -> (Model, Vec<(Model, PinnedCheckpoint)>) {
    let wrens = store.keyspace("wrens").unwrap();
    let robins = store.keyspace("robins").unwrap();
    let (mut model, mut pins) = (Model::new(), Vec::new());
    for step in 0..1500 * effort() {
        let context = format!("{context} step {step}");
        match life.random.below(200) {
            0..3 => store.checkpoint().unwrap(),
            3..6 if pins.len() < 4 => {
                pins.push((model.clone(), pin(store)));
            }
            6..8 if !pins.is_empty() => {
                pins.swap_remove(life.random.below(pins.len() as u64) as usize);
            }
            8 => drop(wrens.compact(&CompactBudget::default(), &mut on).unwrap()),
            9 => {
                while !store.checkpoint_to_shrink().unwrap() {}
                store.repack(|| true).unwrap();
            }
            10..30 => {
                if let Some((model, pin)) = pins.get(life.random.below(4) as usize) {
                    life.look(&of(pin, &wrens), model, &context);
                }
            }
            30..32 => {
                let from = life.key();
                let gone: Vec<Vec<u8>> =
                    model.range(from..).take(90).map(|(k, _)| k.clone()).collect();
                for key in gone {
                    model.remove(&key);
                    wrens.remove(&key).unwrap();
                }
            }
            32..60 => {
                let key = life.key();
                model.remove(&key);
                wrens.remove(&key).unwrap();
            }
            60..80 => {
                robins.put(&life.key(), &life.value()).unwrap();
            }
            _ => {
                let (key, value) = (life.key(), life.value());
                wrens.put(&key, &value).unwrap();
                model.insert(key, value);
            }
        }
    }
    for (model, pin) in &pins {
        life.look(&of(pin, &wrens), model, context);
    }
    (model, pins)
}

#[test]
fn a_pin_reads_the_moment_of_its_cut_while_the_store_goes_on() {
    let seed = fresh_seed();
    let layouts = LeafLayout::ALL.map(LeafPolicy::Fixed);
    for (round, leaves) in
        (0..).zip([LeafPolicy::Adaptive, LeafPolicy::Adaptive].iter().chain(&layouts))
    {
        for (page_bytes, log) in [(512, true), (512, false), (4096, true), (4096, false)] {
            let context = format!("seed {seed} {leaves:?} pages of {page_bytes}, log: {log}");
            let numbers =
                round % 2 == 0 || matches!(leaves, LeafPolicy::Fixed(layout) if layout.is_dense());
            let random = SplitMix64::new(seed ^ round);
            let mut life = Life { random, numbers, longest: page_bytes as u64 / 20 };
            let options = StoreOptions { leaves: *leaves, ..small(page_bytes, log) };
            let disk = SimDisk::new(seed);
            let store = open(&options, &disk, OpenHow::New).unwrap();
            let (model, pins) = live(&store, &mut life, &context);
            let wrens = store.keyspace("wrens").unwrap();
            assert!(is_clean(&store), "{context}");
            // A crash forgets the pins, and leaves nothing of them.
            if log {
                store.flush_log().unwrap();
            } else {
                store.checkpoint().unwrap();
            }
            let crashed = open(&options, &disk.crash(seed), OpenHow::Existing).unwrap();
            assert!(is_clean(&crashed), "{context}");
            let again = crashed.keyspace("wrens").unwrap();
            for (key, value) in &model {
                assert_eq!(again.get(key).unwrap().as_deref(), Some(&value[..]), "{context}");
            }
            assert_eq!(again.verify().unwrap(), []);
            settle(&crashed);
            let left = crashed.space_report().unwrap();
            // The end of the last pin gives all back.
            for (model, pin) in pins {
                life.look(&of(&pin, &wrens), &model, &context);
            }
            settle(&store);
            let report = store.space_report().unwrap();
            assert_eq!(report.accounted_bytes(), report.file_bytes);
            assert_eq!((report.quarantined_bytes, left.quarantined_bytes), (0, 0), "{context}");
            assert!(is_clean(&store), "{context}");
        }
    }
}

/// Checkpoints until there is nothing more to do.
fn settle(store: &Store) {
    for _ in 0..20 {
        store.checkpoint_to_shrink().unwrap();
    }
}

#[test]
fn a_fault_of_the_disk_is_told_and_the_next_read_goes_well() {
    for page_bytes in [512, 4096] {
        let disk = SimDisk::new(3);
        let store = open(&small(page_bytes, false), &disk, OpenHow::New).unwrap();
        let wrens = store.keyspace("wrens").unwrap();
        let mut model = Model::new();
        for n in 0..600_u32 {
            let (key, value) = (n.to_be_bytes().to_vec(), vec![n as u8; page_bytes / 20]);
            wrens.put(&key, &value).unwrap();
            model.insert(key, value);
        }
        let expected: Vec<_> = model.into_iter().collect();
        store.checkpoint().unwrap();
        let mut failed = 0;
        for after in 0.. {
            let pin = pin(&store);
            let pinned = of(&pin, &wrens);
            disk.inject(Fault::once(CallKind::Read, after, Fault::EIO));
            let got = pinned.get(&expected[300].0);
            let found = pinned.scan(Bound::Unbounded, after % 2 == 0, usize::MAX);
            let is_over = !disk.take_faults().is_empty();
            disk.clear_faults();
            match (&got, &found) {
                (Ok(value), Ok(found)) => {
                    assert_eq!((value.as_ref(), found.len()), (Some(&expected[300].1), 600));
                    // Else what failed was read ahead, and read again.
                    if is_over {
                        break;
                    }
                }
                (Err(error), Ok(_)) | (Ok(_), Err(error)) => {
                    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
                    failed += 1;
                }
                (Err(first), Err(second)) => panic!("one fault, two errors: {first}, {second}"),
            }
            assert_eq!(pinned.scan(Bound::Unbounded, true, usize::MAX).unwrap(), expected);
        }
        assert!(failed > 20, "{failed}");
    }
}

#[test]
fn a_scan_reads_each_page_of_a_pin_once_also_where_it_reads_ahead() {
    for page_bytes in [512, 4096] {
        let disk = SimDisk::new(fresh_seed());
        let store = open(&small(page_bytes, false), &disk, OpenHow::New).unwrap();
        let wrens = store.keyspace("wrens").unwrap();
        for n in 0..600_u32 {
            wrens.put(&n.to_be_bytes(), &vec![n as u8; page_bytes / 20]).unwrap();
        }
        store.checkpoint().unwrap();
        let leaves = wrens.stats().unwrap().leaves.iter().map(|layout| layout.pages).sum::<u64>();
        for forward in [true, false] {
            // Under seeds of its own: nothing is in memory.
            let pin = pin(&store);
            let before = disk.calls(CallKind::Read);
            let found = of(&pin, &wrens).scan(Bound::Unbounded, forward, usize::MAX).unwrap();
            let read = disk.calls(CallKind::Read) - before;
            assert_eq!(found.len(), 600);
            // The way down, parents, and parts of the page map.
            let most = leaves + leaves / 8 + 10;
            assert!(leaves > 10 && read <= most, "{read} reads of {leaves} leaves");
        }
    }
}

#[test]
fn damage_is_found_and_nothing_else_is_read() {
    let disk = SimDisk::new(5);
    let store = open(&small(4096, false), &disk, OpenHow::New).unwrap();
    let wrens = store.keyspace("wrens").unwrap();
    let mut model = Model::new();
    for n in 0..400_u32 {
        let (key, value) = (format!("the song of {n}").into_bytes(), vec![n as u8; 200]);
        wrens.put(&key, &value).unwrap();
        model.insert(key, value);
    }
    let expected: Vec<_> = model.into_iter().collect();
    store.checkpoint().unwrap();
    let file = disk.open(path(), OpenMode::ReadWrite, DirectIo::Never).unwrap();
    let (mut damaged, len) = (0, file.len_bytes().unwrap());
    for at in (0..len).step_by(512) {
        let pin = pin(&store);
        let pinned = of(&pin, &wrens);
        let mut before = vec![0; 512];
        file.read_at(at, &mut before).unwrap();
        let mut after = before.clone();
        after[100..110].iter_mut().for_each(|byte| *byte ^= 0x55);
        file.write_at(at, &after).unwrap();
        for forward in [true, false] {
            match pinned.scan(Bound::Unbounded, forward, usize::MAX) {
                Ok(mut found) => {
                    if !forward {
                        found.reverse();
                    }
                    assert!(found == expected, "{at}");
                }
                Err(error) => {
                    assert!(is_damage(&error), "{error}");
                    damaged += 1;
                }
            }
        }
        file.write_at(at, &before).unwrap();
    }
    assert!(damaged > 100, "{damaged} of {len}");
}

#[test]
fn a_pin_has_no_tree_that_was_made_later_and_one_that_was_dropped() {
    let (_disk, store) = new_store();
    let wrens = store.keyspace("wrens").unwrap();
    for n in 0..200_u32 {
        wrens.put(&n.to_be_bytes(), b"sings").unwrap();
    }
    let pin = pin(&store);
    store.drop_keyspace("wrens").unwrap();
    store.checkpoint().unwrap();
    let robins = store.keyspace("robins").unwrap();
    for n in 0..200_u32 {
        robins.put(&n.to_be_bytes(), b"flies").unwrap();
    }
    store.checkpoint().unwrap();
    let error = of(&pin, &robins).get(b"key").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::KeyspaceDropped, "{error}");
    let found = of(&pin, &wrens).scan(Bound::Unbounded, true, usize::MAX).unwrap();
    assert_eq!(found.len(), 200);
}

#[test]
fn nothing_is_read_in_a_pin_of_a_closed_store() {
    let (_disk, store) = new_store();
    let wrens = store.keyspace("wrens").unwrap();
    wrens.put(b"key", b"sings").unwrap();
    let (warm, cold) = (pin(&store), pin(&store));
    assert!(of(&warm, &wrens).get(b"key").unwrap().is_some());
    store.close().unwrap();
    for pin in [warm, cold] {
        let error = of(&pin, &wrens).get(b"key").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    }
}

#[test]
fn one_pin_costs_the_file_what_it_keeps_and_no_more() {
    for log in [true, false] {
        let mut options = small(4096, log);
        options.memory_limit_bytes += 1 << 20;
        let disk = SimDisk::new(9);
        let store = open(&options, &disk, OpenHow::New).unwrap();
        let wrens = store.keyspace("wrens").unwrap();
        let mut random = SplitMix64::new(fresh_seed());
        let put = |n: u64, round: u64| {
            wrens.put(&n.to_be_bytes(), &[(n + round) as u8; 200]).unwrap();
        };
        (0..20_000).for_each(|n| put(n, 0));
        settle(&store);
        let before = store.file_bytes();
        let pin = pin(&store);
        // A checkpoint has about a tenth of the leaves.
        for round in 0..200 {
            (0..100).for_each(|_| put(random.below(20_000), round));
            store.checkpoint().unwrap();
        }
        let after = store.file_bytes();
        let kept = store.space_report().unwrap().quarantined_bytes;
        assert!(
            after * 10 <= before * 25,
            "{before} bytes became {after}, of which {kept} are kept"
        );
        let found = of(&pin, &wrens).scan(Bound::Unbounded, true, usize::MAX).unwrap();
        assert_eq!(found.len(), 20_000);
        for (key, value) in found {
            let n = u64::from_be_bytes(key.try_into().unwrap());
            assert_eq!(value, [n as u8; 200]);
        }
        drop(pin);
        settle(&store);
        let left = store.file_bytes();
        assert!(left * 10 <= before * 13, "{before} bytes became {left}");
        eprintln!("{before} {after} {kept} {left}");
    }
}

const KEYS: u64 = 2000;

/// Which put was the newest, and which was that of each key, if each key has had its turn.
fn puts_in(pin: &PinnedCheckpoint, wrens: &PoolTree) -> (u64, Vec<(u64, u64)>) {
    let found = of(pin, wrens).scan(Bound::Unbounded, true, usize::MAX).unwrap();
    let number = |bytes: Vec<u8>| u64::from_be_bytes(bytes.try_into().unwrap());
    let found: Vec<(u64, u64)> = found.into_iter().map(|(k, v)| (number(k), number(v))).collect();
    let newest = found.iter().map(|record| record.1).max().unwrap_or(0);
    assert_eq!(found.len() as u64, newest.min(KEYS));
    for &(key, value) in &found {
        let last = newest - (newest + KEYS - key) % KEYS;
        assert_eq!(value, last, "the last put of {key} before {newest}");
    }
    (newest, found)
}

/// One writer, so that what is there at any moment is what the first `n` puts have left; of each the log's end is known.
#[test]
fn a_pin_has_the_changes_up_to_its_cut_and_no_other() {
    for log in [true, false] {
        let options =
            StoreOptions { background: true, checkpoint_bytes: Some(64 << 10), ..small(4096, log) };
        let disk = SimDisk::new(1);
        let store = Arc::new(open(&options, &disk, OpenHow::New).unwrap());
        let wrens = store.keyspace("wrens").unwrap();
        let stops = Arc::new(AtomicBool::new(false));
        let tail = |store: &Store| store.last_lsn();
        let writer = {
            let (store, wrens, stops) = (store.clone(), wrens.clone(), stops.clone());
            let write = move || {
                let mut tails = vec![tail(&store)];
                while !stops.load(SeqCst) {
                    let n = tails.len() as u64;
                    wrens.put(&(n % KEYS).to_be_bytes(), &n.to_be_bytes()).unwrap();
                    tails.push(tail(&store));
                }
                tails
            };
            thread::spawn_named("writer", write).unwrap()
        };
        let mut pins: Vec<(Arc<PinnedCheckpoint>, _)> = Vec::new();
        for round in 0..40 * effort() {
            let pin = Arc::new(pin(&store));
            let seen = puts_in(&pin, &wrens);
            pins.push((pin, seen));
            if round % 3 == 0 {
                // Two readers at a time, of an older one.
                let (pin, seen) = pins[pins.len() / 2].clone();
                let read = || {
                    let (pin, seen, wrens) = (pin.clone(), seen.clone(), wrens.clone());
                    let read = move || assert!(puts_in(&pin, &wrens) == seen);
                    thread::spawn_named("reader", read).unwrap()
                };
                [read(), read()].into_iter().for_each(|reader| reader.join().unwrap());
            }
            if pins.len() > 5 {
                pins.remove(round as usize % 5);
            }
        }
        for (pin, seen) in &pins {
            assert!(puts_in(pin, &wrens) == *seen);
        }
        stops.store(true, SeqCst);
        let tails = writer.join().unwrap();
        for (pin, (newest, _)) in &pins {
            // The next change has its LSN behind the cut; the newest one's is above the end before it, or by a clock the same.
            let newest = *newest as usize;
            assert!(newest == 0 || tails[newest - 1] <= pin.cut());
            assert!(newest == 0 || !log || tails[newest - 1] < pin.cut());
            assert!(tails.get(newest + 1).is_none_or(|end| pin.cut() < *end));
        }
        drop(pins);
        assert!(is_clean(&store));
    }
}
