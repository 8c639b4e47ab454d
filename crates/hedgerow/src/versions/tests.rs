//! Snapshots and versions against a model: what each snapshot's moment was like, as a sorted map.
//!
//! The tree is a sorted map of records and a stamp for each leaf; a leaf is all keys of one first letter. A pinned checkpoint is a copy of
//! the map at its cut.

mod frozen;
mod threads;

use super::*;
use crate::error::Result;
use crate::testing::{PlainFreezer, PlainMemory};
use crate::types::{Lsn, TreeId};
use crate::wait::{Wait, Waiting};
use hedgerow_sync::primitive::Arc;
use hedgerow_sync::primitive::random::{self, SplitMix64};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;
type Kept = Versions<PlainMemory, Contents>;

const TREE: TreeId = TreeId(7);
const OTHER: TreeId = TreeId(8);
const OPTIONS: VersionsOptions = VersionsOptions { longest_key: 40, longest_value: 200 };

/// The log of one thread, which is inside of nothing when it waits.
#[derive(Default)]
struct Log(Cell<u64>);

impl Surroundings for Log {
    fn tail(&self) -> Lsn {
        Lsn(self.0.get())
    }

    fn wait_for_stays(&self) {}
}

struct Life {
    kept: Kept,
    log: Log,
    now: Contents,
    stamps: BTreeMap<u8, Lsn>,
    step: u64,
    parts: std::sync::Arc<std::sync::atomic::AtomicU32>,
}

struct Held {
    snapshot: Snapshot,
    then: Contents,
    is_too_old: bool,
}

impl Life {
    fn new(block_bytes: usize, most_blocks: u32, step: u64) -> Life {
        let kept = Versions::new(PlainMemory::new(block_bytes, most_blocks), OPTIONS);
        let log = Log(Cell::new(1000));
        let (now, stamps) = (Contents::new(), BTreeMap::new());
        Life { kept, log, now, stamps, step, parts: Default::default() }
    }

    /// When all versions were looked at that nobody can need.
    fn figures(&self) -> Figures {
        drop(self.kept.indexed());
        self.kept.figures()
    }

    /// What a checkpoint does, if this is the time; in so much room.
    fn freeze(&self, room: usize, freezer: PlainFreezer) -> Result<bool> {
        let Some(plan) = self.kept.plan_to_freeze()? else { return Ok(false) };
        self.kept.freeze(&plan, &mut vec![0; room], freezer)
    }

    fn change(&mut self, key: &[u8], new: Option<&[u8]>) {
        self.change_with(key, new, 0);
    }

    /// By a commit, of which so many of the open snapshots are.
    fn change_with(&mut self, key: &[u8], new: Option<&[u8]>, own_snapshots: u64) {
        let around = &self.log;
        let cells = || cells_of_change(key.len(), 200);
        let mut admission = self.kept.admit(around, cells, &Waiting::Forever).unwrap().unwrap();
        assert!(admission.is_good());
        self.log.0.set(self.log.0.get() + self.step);
        let lsn = self.log.tail();
        let old = self.now.get(key).cloned();
        if old.is_none() && new.is_none() {
            return;
        }
        let removes = new.is_none();
        admission.keep(&Change {
            tree: TREE,
            key,
            lsn,
            old: old.as_deref(),
            removes,
            own_snapshots,
        });
        match new {
            Some(value) => self.now.insert(key.to_vec(), value.to_vec()),
            None => self.now.remove(key),
        };
        self.stamps.insert(key[0], lsn);
    }

    fn begin(&self) -> Held {
        let snapshot = self.kept.begin(&self.log, &Waiting::Forever).unwrap();
        assert_eq!(snapshot.lsn(), self.log.tail());
        Held { snapshot, then: self.now.clone(), is_too_old: false }
    }

    fn stamp(&self, key: &[u8]) -> Lsn {
        self.stamps.get(&key[0]).copied().unwrap_or_default()
    }

    /// What a snapshot sees of a key; `Err`: it is too old.
    fn get(&self, snapshot: &Snapshot, key: &[u8]) -> std::result::Result<Option<Vec<u8>>, ()> {
        let mut value = b"before".to_vec();
        let look = || -> Result<Lsn> { Ok(self.stamp(key)) };
        let seen = self.kept.read(snapshot, TREE, key, look, &mut value).unwrap();
        let appended = value.split_off(6);
        assert_eq!(value, b"before");
        assert!(matches!(seen, Seen::Version) || appended.is_empty());
        match seen {
            Seen::Leaf => Ok(self.now.get(key).cloned()),
            Seen::Version => Ok(Some(appended)),
            Seen::Absent => Ok(None),
            Seen::Checkpoint(pinned) => Ok(pinned.get(key).cloned()),
            Seen::TooOld => Err(()),
        }
    }

    /// All that a snapshot sees of a leaf, upwards or downwards, as a scan finds it.
    fn scan(
        &self,
        held: &Held,
        letter: u8,
        upwards: bool,
    ) -> std::result::Result<Vec<Vec<u8>>, ()> {
        let (low, high) = (vec![letter], vec![letter + 1]);
        let range = low.clone()..high.clone();
        let keys = |of: &Contents| of.range(range.clone()).map(|(key, _)| key.clone()).collect();
        let mut keys: BTreeSet<Vec<u8>> =
            match self.kept.source(&held.snapshot, TREE, self.stamp(&low)) {
                Seen::Leaf => keys(&self.now),
                Seen::Checkpoint(pinned) => keys(&pinned),
                Seen::TooOld => return Err(()),
                other => panic!("{other:?} is no source"),
            };
        let stretch =
            Stretch { tree: TREE, lower: Bound::Included(&low), upper: Bound::Excluded(&high) };
        let mut key = Vec::new();
        let mut frozen = Vec::new();
        let mut bound = match upwards {
            true => Bound::Included(low.clone()),
            false => Bound::Excluded(high.clone()),
        };
        let mut last: Option<Vec<u8>> = None;
        loop {
            let from = bound.as_ref().map(Vec::as_slice);
            let found = match upwards {
                true => self.kept.removed_from(TREE, from, &mut key),
                false => self.kept.removed_up_to(TREE, from, &mut key),
            };
            if !found.unwrap() || key[0] != letter {
                break;
            }
            let is_next = |last: &Vec<u8>| if upwards { *last < key } else { *last > key };
            assert!(last.as_ref().is_none_or(is_next), "removed keys come in order");
            last = Some(key.clone());
            keys.insert(key.clone());
            bound = Bound::Excluded(key.clone());
        }
        let mut note = |record: Record<'_>| {
            if record.is_listed {
                frozen.push(record.key.to_vec());
            }
        };
        self.kept.for_each_frozen(&held.snapshot, stretch, &mut note).unwrap();
        keys.extend(frozen);
        let mut seen = Vec::new();
        for key in keys {
            if self.get(&held.snapshot, &key)?.is_some() {
                seen.push(key);
            }
        }
        if !upwards {
            seen.reverse();
        }
        Ok(seen)
    }

    /// Compares all that a snapshot sees with what there was.
    fn check(&self, held: &mut Held, letters: std::ops::Range<u8>) {
        let all: BTreeSet<_> = held.then.keys().chain(self.now.keys()).cloned().collect();
        for key in all {
            match self.get(&held.snapshot, &key) {
                Ok(value) => assert_eq!(value.as_ref(), held.then.get(&key), "{key:?}"),
                Err(()) => held.is_too_old = true,
            }
        }
        for letter in letters {
            for upwards in [true, false] {
                let Ok(seen) = self.scan(held, letter, upwards) else { continue };
                let then = held.then.range(vec![letter]..vec![letter + 1]);
                let mut then: Vec<_> = then.map(|(key, _)| key.clone()).collect();
                if !upwards {
                    then.reverse();
                }
                assert_eq!(seen, then, "a scan of {letter}, upwards: {upwards}");
            }
        }
    }
}

fn random_key(rng: &mut SplitMix64, letters: u8) -> Vec<u8> {
    let mut key = vec![b'a' + rng.below(u64::from(letters)) as u8];
    let name = rng.below(6);
    key.extend(std::iter::repeat_n(b'x', name as usize * 7));
    key
}

fn random_life(seed: u64, block_bytes: usize, most_blocks: u32, steps: u32) -> Figures {
    let mut rng = SplitMix64::new(seed);
    // Near ones are below the horizon, far ones are above it at once.
    let step = [1, 900, 40_000][rng.below(3) as usize];
    let mut life = Life::new(block_bytes, most_blocks, step);
    let mut held: Vec<Held> = Vec::new();
    let mut cuts: Vec<(Lsn, Contents)> = Vec::new();
    const LETTERS: u8 = 4;
    for _ in 0..steps {
        match rng.below(100) {
            0..60 => {
                let key = random_key(&mut rng, LETTERS);
                let value = vec![b'v'; rng.below(150) as usize];
                let mut value = [&life.log.0.get().to_le_bytes()[..], &value].concat();
                value.truncate(200);
                let new = (rng.below(3) > 0).then_some(&value[..]);
                life.change(&key, new);
            }
            60..70 => held.push(life.begin()),
            70..78 if !held.is_empty() => {
                let gone = held.swap_remove(rng.below(held.len() as u64) as usize);
                life.kept.end(gone.snapshot);
            }
            78..84 => cuts.push((life.log.tail(), life.now.clone())),
            84..88 if !cuts.is_empty() => {
                let (cut, then) = cuts.swap_remove(rng.below(cuts.len() as u64) as usize);
                life.kept.pin(&life.log, cut, then).unwrap();
            }
            88..90 => assert!(life.kept.collect(&life.log).unwrap()),
            91..93 => {
                let room = 1200 + rng.below(4) as usize * 3000;
                let fails_after = if rng.below(4) == 0 { rng.below(2) as u32 } else { u32::MAX };
                let freezer = PlainFreezer::that_fails_after(fails_after, &life.parts);
                life.freeze(room, freezer).ok();
            }
            90 if held.is_empty() => {
                life.kept.turn_off();
                life.kept.tend(&life.log).unwrap();
            }
            _ if !held.is_empty() => {
                let at = rng.below(held.len() as u64) as usize;
                life.check(&mut held[at], b'a'..b'a' + LETTERS);
            }
            _ => {}
        }
    }
    for one in &mut held {
        life.check(one, b'a'..b'a' + LETTERS);
    }
    let before = life.figures();
    for one in held {
        life.kept.end(one.snapshot);
    }
    assert!(life.kept.collect(&life.log).unwrap());
    let figures = life.figures();
    assert_eq!((figures.versions, figures.used_bytes), (0, 0), "nobody needs anything any more");
    assert!(life.kept.pins.lock().is_empty(), "nothing is pinned for nobody");
    assert_eq!(life.parts.load(std::sync::atomic::Ordering::Relaxed), 0, "no part is left");
    let free = life.kept.table.lock().cells.free();
    assert!(life.kept.room.has(free) && !life.kept.room.has(free + 1), "nobody is promised any");
    before
}

#[test]
fn snapshots_of_random_lives_see_their_moments() {
    let seed = crate::testing::environment::seed(random::seed());
    let (mut pinned, mut given_up, mut frozen) = (0, 0, 0);
    for life in 0..30 {
        let (bytes, most) = [(256, 33), (512, 8), (4096, 60)][life as usize % 3];
        println!("HEDGEROW_SEED={seed}, life {life}");
        let figures = random_life(seed.wrapping_add(life), bytes, most, 1500);
        pinned += figures.pinned;
        given_up += figures.given_up;
        frozen += figures.frozen;
    }
    assert!(pinned > 0 && given_up > 0, "{pinned} were pinned, {given_up} given up");
    assert!(frozen > 0);
}

#[test]
fn a_key_that_came_after_a_snapshot_and_went_is_found_by_a_scan_at_neither_end() {
    // A change above the horizon keeps no second version, but the key has to be found all the same.
    let mut life = Life::new(4096, 60, 100_000);
    life.change(b"a1", Some(b"one"));
    let mut held = life.begin();
    life.change(b"a1", Some(b"two"));
    life.change(b"a1", None);
    assert_eq!(life.figures().versions, 1);
    life.check(&mut held, b'a'..b'b');
    assert!(!held.is_too_old);
    life.change(b"a2", Some(b"new"));
    life.change(b"a2", None);
    life.check(&mut held, b'a'..b'b');
    life.kept.end(held.snapshot);
}

#[test]
fn changes_of_half_of_all_memory_are_made_at_once_twice_at_a_time() {
    let life = Life::new(256, 33, 1);
    let held = life.begin();
    // Four cells for the version, and two for the longest node of the key.
    let cells = |count| count * cells_of_change(8, 190);
    assert_eq!(cells(1), 6);
    let largest = life.kept.most_cells_at_once() / cells(1);
    assert_eq!(life.kept.most_cells_at_once(), life.kept.most_cells() / 2);
    let forever = &Waiting::Forever;
    let first = life.kept.admit(&life.log, || cells(largest), forever).unwrap().unwrap();
    let second = life.kept.admit(&life.log, || cells(largest), forever).unwrap().unwrap();
    drop((first, second));
    life.kept.end(held.snapshot);
}

/// Surroundings that count who waits for a checkpoint.
#[derive(Default)]
struct Counting(Log, Cell<u32>);

impl Surroundings for Counting {
    fn tail(&self) -> Lsn {
        self.0.tail()
    }

    fn wait_for_stays(&self) {}

    fn wait_for_checkpoint(&self, _: &Waiting<'_>) -> Result<bool> {
        self.1.set(self.1.get() + 1);
        Ok(false)
    }
}

/// It comes back by itself: two large batches at a time gave up every snapshot, with hardly a version in memory.
#[test]
fn what_others_are_promised_is_waited_for_and_gives_no_snapshot_up() {
    let mut life = Life::new(256, 33, 1);
    life.change(b"a", Some(b"old"));
    let mut held = life.begin();
    life.change(b"a", Some(b"new"));
    let around = Counting(Log(Cell::new(life.log.0.get())), Cell::new(0));
    let admit = |cells| life.kept.admit(&around, || cells, &Waiting::Forever).unwrap();
    let most = life.kept.most_cells_at_once();
    let first = admit(most).unwrap();
    assert!(admit(most).is_none(), "there is room when the first is done");
    // Little is left that nobody is promised, and versions take hardly any.
    let second = admit(most / 2 + most / 4).unwrap();
    drop(admit(2).unwrap());
    assert_eq!((life.figures().given_up, around.1.get()), (0, 0));
    drop(second);
    drop(first);
    drop(admit(most).unwrap());
    life.check(&mut held, b'a'..b'b');
    assert!(!held.is_too_old);
    life.kept.end(held.snapshot);
}

/// A quarter is free, and it failed all the same.
#[test]
fn who_may_not_wait_is_let_in_while_there_is_room() {
    let mut life = Life::new(256, 33, 1);
    let mut held = life.begin();
    let mut number = 0u32;
    while life.kept.in_use() < life.kept.most_cells() / 5 * 4 {
        number += 1;
        life.change(&[&b"b"[..], &number.to_le_bytes()].concat(), Some(b"new"));
    }
    for wait in [Wait::Never, Wait::For(std::time::Duration::ZERO)] {
        let waiting = wait.begin();
        drop(life.kept.admit(&life.log, || 2, &waiting).unwrap().unwrap());
    }
    life.check(&mut held, b'b'..b'c');
    assert!(!held.is_too_old);
    life.kept.end(held.snapshot);
}

/// It took the lock of all pins once for each open snapshot.
#[test]
fn who_looks_for_old_snapshots_locks_nothing_for_young_ones() {
    use hedgerow_sync::primitive::thread;
    use std::time::Duration;
    let life = Life::new(256, 33, 1);
    let (gone, young) = (life.begin(), life.begin());
    assert!(life.kept.give_up(&gone.snapshot).is_none());
    let kept = Arc::new(life.kept);
    let pins = kept.pins.lock();
    let (tells, told) = std::sync::mpsc::channel();
    let looks = {
        let kept = kept.clone();
        let look = move || {
            kept.give_up_older(Duration::from_secs(3600));
            tells.send(()).unwrap();
        };
        thread::spawn_named("looks", look).unwrap()
    };
    told.recv_timeout(Duration::from_secs(10)).unwrap();
    drop(pins);
    looks.join().unwrap();
    kept.give_up_older(Duration::ZERO);
    assert_eq!(kept.figures().given_up, 2);
    for held in [gone, young] {
        kept.end(held.snapshot);
    }
}

#[test]
fn trees_and_bounds_are_kept_apart_among_removed_keys() {
    let mut life = Life::new(4096, 60, 1);
    for key in [&b"a"[..], b"b", b"bb", b"c"] {
        life.change(key, Some(b"1"));
    }
    let held = life.begin();
    for key in [&b"a"[..], b"bb", b"b"] {
        life.change(key, None);
    }
    let next = |tree, from| {
        let mut key = Vec::new();
        life.kept.removed_from(tree, from, &mut key).unwrap().then_some(key)
    };
    let previous = |tree, up_to| {
        let mut key = Vec::new();
        life.kept.removed_up_to(tree, up_to, &mut key).unwrap().then_some(key)
    };
    let some = |key: &[u8]| Some(key.to_vec());
    assert_eq!(next(TREE, Bound::Unbounded), some(b"a"));
    assert_eq!(next(TREE, Bound::Excluded(b"a")), some(b"b"));
    assert_eq!(next(TREE, Bound::Included(b"ba")), some(b"bb"));
    assert_eq!(next(TREE, Bound::Excluded(b"bb")), None);
    assert_eq!(previous(TREE, Bound::Unbounded), some(b"bb"));
    assert_eq!(previous(TREE, Bound::Excluded(b"bb")), some(b"b"));
    assert_eq!(previous(TREE, Bound::Included(b"b")), some(b"b"));
    assert_eq!(previous(TREE, Bound::Excluded(b"a")), None);
    for tree in [OTHER, TreeId(6)] {
        assert_eq!(next(tree, Bound::Unbounded), None);
        assert_eq!(previous(tree, Bound::Unbounded), None);
    }
    life.kept.end(held.snapshot);
}

#[test]
fn a_full_memory_takes_the_oldest_snapshot_and_never_a_writer() {
    let mut life = Life::new(256, 33, 1);
    life.change(b"a0", Some(b"0"));
    let mut oldest = life.begin();
    for number in 0..10u8 {
        life.change(&[b'a', number], Some(&[b'v'; 100]));
        life.change(&[b'a', number], Some(&[b'w'; 100]));
    }
    let mut newest = life.begin();
    let mut number = 0u32;
    while life.figures().given_up == 0 {
        number += 1;
        let key = [&b"b"[..], &number.to_le_bytes()].concat();
        life.change(&key, Some(&[b'v'; 100]));
        life.change(&key, None);
        assert!(number < 10_000);
    }
    assert_eq!(life.figures().given_up, 1);
    life.check(&mut oldest, b'a'..b'c');
    assert!(oldest.is_too_old);
    life.check(&mut newest, b'a'..b'c');
    assert!(!newest.is_too_old);
    while life.figures().given_up == 1 {
        number += 1;
        let key = [&b"c"[..], &number.to_le_bytes()].concat();
        life.change(&key, Some(&[b'v'; 100]));
    }
    life.check(&mut newest, b'a'..b'd');
    assert!(newest.is_too_old);
    life.kept.end(oldest.snapshot);
    life.kept.end(newest.snapshot);
}

#[test]
fn a_pinned_snapshot_costs_nothing_more_and_is_never_given_up() {
    let mut life = Life::new(256, 33, 1);
    for number in 0..50u8 {
        life.change(&[b'a', number], Some(b"old"));
    }
    let mut held = life.begin();
    for number in 0..20u8 {
        life.change(&[b'a', number], Some(b"newer"));
    }
    let before = life.figures().versions;
    assert!(life.kept.pin(&life.log, life.log.tail(), life.now.clone()).unwrap().is_none());
    assert_eq!(life.figures().versions, before, "those up to the cut are needed");
    for round in 0..2000u32 {
        let key = [b'a', (round % 50) as u8];
        life.change(&key, (round % 3 > 0).then_some(&b"newest"[..]));
    }
    life.check(&mut held, b'a'..b'b');
    assert!(!held.is_too_old && life.figures().given_up == 0);
    assert!(life.kept.collect(&life.log).unwrap());
    assert_eq!(life.figures().versions, before);
    let pin = life.kept.end(held.snapshot).expect("nobody else has it");
    assert_eq!(Arc::strong_count(&pin), 1);
}

#[test]
fn versions_of_many_sizes_come_and_go_and_their_memory_goes_back() {
    let mut life = Life::new(512, 200, 1);
    let held = life.begin();
    for number in 0..400u32 {
        let key = [&b"a"[..], &number.to_be_bytes()].concat();
        life.change(&key, Some(&vec![b'v'; number as usize % 200]));
        life.change(&key, (number % 2 == 0).then_some(&b"w"[..]));
    }
    let figures = life.figures();
    assert!(figures.versions >= 400 && figures.used_bytes <= figures.lent_bytes);
    life.kept.end(held.snapshot);
    assert!(life.kept.turn_off());
    life.kept.tend(&life.log).unwrap();
    let figures = life.figures();
    assert_eq!((figures.versions, figures.used_bytes), (0, 0));
    assert!(figures.lent_bytes <= 3 * 512, "{figures:?}");
    // And it is borrowed again.
    let mut again = life.begin();
    life.change(b"a1", Some(b"1"));
    life.change(b"a1", None);
    life.check(&mut again, b'a'..b'b');
    life.kept.end(again.snapshot);
}

#[test]
fn who_runs_alone_is_seen_all_at_once() {
    let mut life = Life::new(4096, 60, 1);
    life.change(b"a", Some(b"1"));
    life.change(b"b", Some(b"1"));
    let mut before = life.begin();
    let mut alone = life.kept.close_gate(&life.log);
    let cut = life.log.tail();
    // What changes no record may be in the log behind the cut, and a snapshot behind that.
    life.log.0.set(cut.0 + 1);
    let behind = life.kept.begin(&life.log, &Waiting::Forever).unwrap();
    assert!(behind.lsn() > cut);
    alone.begin(&life.log, cut, life.now.clone());
    let during = life.kept.begin(&life.log, &Waiting::Forever).unwrap();
    for key in [b"a", b"b"] {
        life.log.0.set(life.log.0.get() + 1);
        life.now.insert(key.to_vec(), b"2".to_vec());
        life.stamps.insert(key[0], life.log.tail());
        for held in [&before.snapshot, &behind, &during] {
            assert_eq!(life.get(held, b"a"), Ok(Some(b"1".to_vec())));
        }
    }
    // A checkpoint in the middle takes nobody over.
    let cut = life.log.tail();
    assert!(life.kept.pin(&life.log, cut, life.now.clone()).unwrap().is_some());
    assert!(alone.end().is_none(), "snapshots need it");
    let mut after = life.begin();
    life.check(&mut before, b'a'..b'c');
    life.check(&mut after, b'a'..b'c');
    assert_eq!(life.get(&behind, b"a"), Ok(Some(b"1".to_vec())));
    life.change(b"a", None);
    life.check(&mut before, b'a'..b'c');
    life.check(&mut after, b'a'..b'c');
    assert_eq!(life.get(&behind, b"a"), Ok(Some(b"1".to_vec())));
    assert!(life.kept.end(before.snapshot).is_none());
    assert!(life.kept.end(behind).is_none());
    assert!(life.kept.end(during).is_some());
    assert!(life.kept.end(after.snapshot).is_none());
}

#[test]
fn behind_who_failed_alone_everybody_gets_an_error_and_who_gave_up_in_time_lets_others_in() {
    use crate::error::ErrorKind;
    let mut life = Life::new(4096, 60, 1);
    drop(life.kept.close_gate(&life.log));
    life.change(b"a", Some(b"1"));
    let mut alone = life.kept.close_gate(&life.log);
    alone.begin(&life.log, life.log.tail(), life.now.clone());
    assert!(alone.cancel().is_some());
    life.change(b"a", Some(b"2"));
    let mut alone = life.kept.close_gate(&life.log);
    alone.begin(&life.log, life.log.tail(), life.now.clone());
    drop(alone);
    assert!(life.kept.admit(&life.log, || 1, &Waiting::Forever).unwrap().is_none());
    let refused = life.kept.wait_at_gate(&Waiting::Forever).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Poisoned);
}

#[test]
fn nothing_is_kept_while_no_snapshot_is_open_but_the_commits_own() {
    let mut life = Life::new(1024, 16, 100);
    let versions = |life: &Life| life.figures().versions;
    life.change(b"a", Some(b"1"));
    let first = life.begin();
    life.kept.end(first.snapshot);
    assert!(life.kept.are_kept(), "the switch stays on for a while");
    life.change(b"a", Some(b"2"));
    assert_eq!(versions(&life), 0);
    let own = life.begin();
    life.change_with(b"a", Some(b"3"), 1);
    assert_eq!(versions(&life), 0);
    // Somebody else's.
    let other = life.begin();
    life.change_with(b"a", Some(b"4"), 1);
    assert_eq!(versions(&life), 1);
    life.change(b"b", Some(b"1"));
    assert_eq!(versions(&life), 2);
    assert_eq!(life.get(&other.snapshot, b"a"), Ok(Some(b"3".to_vec())));
    assert_eq!(life.get(&other.snapshot, b"b"), Ok(None));
    life.kept.end(own.snapshot);
    // What one sees alone is kept as long as it is open.
    life.change(b"a", Some(b"5"));
    assert_eq!(life.get(&other.snapshot, b"a"), Ok(Some(b"3".to_vec())));
    life.kept.end(other.snapshot);
}

#[test]
fn the_queue_stays_short_beside_a_snapshot_that_never_reads_and_writers_that_are_inside() {
    let mut life = Life::new(4096, 400, 1);
    life.change(b"a", Some(b"0"));
    let held = life.begin();
    // What they are promised is in use, and no collection takes it.
    let forever = &Waiting::Forever;
    let cells = || life.kept.most_cells() / 40;
    let inside: Vec<_> = (0..10)
        .map(|_| life.kept.admit(&life.log, cells, forever).unwrap().unwrap())
        .map(std::mem::ManuallyDrop::new)
        .collect();
    let promised: u32 = inside.iter().map(|admission| admission.cells_left()).sum();
    drop(inside);
    let most = life.kept.most_cells() / 8;
    for number in 0..20_000u32 {
        life.change(b"a", Some(&number.to_le_bytes()));
        // One in 64 looks.
        assert!(life.kept.room.recent() <= most + 64 * 2, "{number}: {}", life.kept.room.recent());
    }
    assert!(life.kept.room.used() < promised + most + 200);
    assert_eq!(life.get(&held.snapshot, b"a"), Ok(Some(b"0".to_vec())));
    life.kept.end(held.snapshot);
}
