//! Slots that nothing refers to any more but an older checkpoint: when may they be written again?
//!
//! The rule: a slot with an image of epoch `e`, superseded by one of epoch `e'`, is free at once if
//! `e = e'`. Otherwise it is free when a checkpoint of at least `e'` is durable and no checkpoint
//! `c` with `e <= c < e'` is pinned. Why: checkpoint `c` refers to the newest image of an epoch up
//! to `c`, so it refers to this one exactly if `e <= c < e'`. Until a checkpoint of at least `e'`
//! is durable a crash goes back to one before `e'`, which may be such a `c`. With `e = e'` there
//! is no such `c`: no checkpoint falls within an epoch.
//!
//! Only the newest durable checkpoint can be pinned (of older ones the slots are gone), so that a
//! slot that was released stays released. The pins that hold a slot back are neighbours in the
//! order of pins; such slots are kept by (first pin, last pin) as bits, not as records, because a
//! backup may hold a pin for days. Before that a slot is a record of 16 bytes, and there are no more
//! of those than deltas in memory. What the end of a pin makes free leaves in pieces, like what a checkpoint
//! makes ripe, but neighbours leave together: where they lie in several zones, the caller divides them. Invariant: `units` counts every unit in here once. Not shared.

use super::unit_set::UnitSet;
use crate::error::{Error, ErrorKind, Result};
use crate::types::Epoch;
use std::collections::BTreeMap;

/// A run of units, and the epoch of the image in it.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    /// First unit (low 40 bits) and number of units.
    run: u64,
    born: Epoch,
}

const RUN_SHIFT: u32 = 40;

/// No checkpoint has this number: a run that was born and superseded in it is in none.
const NEEDED_BY_NONE: Epoch = Epoch(0);

/// First unit and number of units.
fn parts_of(run: u64) -> (u64, u32) {
    (run & ((1 << RUN_SHIFT) - 1), (run >> RUN_SHIFT) as u32)
}

/// See the file's header.
#[derive(Debug)]
pub struct Quarantine {
    durable: Epoch,
    /// The epoch that the checkpoint under way has ended. It stays when nobody knows whether it was published.
    under_way: Option<Epoch>,
    /// By the epoch of the superseding image, or by [`NEEDED_BY_NONE`]. Those up to `durable` are ripe: [`Self::release_ripe`].
    waiting: BTreeMap<Epoch, Vec<Waiting>>,
    pins: BTreeMap<Epoch, u32>,
    /// By the first and the last pin that needs them.
    pinned: BTreeMap<(Epoch, Epoch), UnitSet>,
    /// Needed by nobody any more: [`Self::release_ripe`] gives them free.
    unpinned: UnitSet,
    units: u64,
}

impl Quarantine {
    /// An empty quarantine over a durable checkpoint (epoch 0 before the first).
    pub fn new(durable: Epoch) -> Quarantine {
        Quarantine {
            durable,
            under_way: None,
            waiting: BTreeMap::new(),
            pins: BTreeMap::new(),
            pinned: BTreeMap::new(),
            unpinned: UnitSet::default(),
            units: 0,
        }
    }

    /// The newest durable checkpoint.
    pub fn durable(&self) -> Epoch {
        self.durable
    }

    /// Units held back.
    pub fn units(&self) -> u64 {
        self.units
    }

    /// Takes in a run whose image of epoch `born` was superseded in epoch `superseding`. Returns
    /// whether it is free at once instead.
    pub fn supersede(&mut self, start: u64, len: u32, born: Epoch, superseding: Epoch) -> bool {
        assert!(born <= superseding, "an image was superseded by an older one");
        assert!(superseding > self.durable, "a slot was superseded in an epoch that is closed");
        if born == superseding || !self.may_be_in_a_checkpoint(born, superseding) {
            return true;
        }
        debug_assert!(start < 1 << RUN_SHIFT && len < 1 << (64 - RUN_SHIFT));
        let run = start | u64::from(len) << RUN_SHIFT;
        self.waiting.entry(superseding).or_default().push(Waiting { run, born });
        self.units += u64::from(len);
        false
    }

    /// Whether a checkpoint that is durable, or may become so, refers to an image of `born` that was superseded in `superseding`.
    fn may_be_in_a_checkpoint(&self, born: Epoch, superseding: Epoch) -> bool {
        let is_in = |checkpoint: Epoch| (born..superseding).contains(&checkpoint);
        // No pin is above `durable`.
        born <= self.durable || self.under_way.is_some_and(is_in)
    }

    /// Notes that a checkpoint is under way that has ended `epoch`, before anybody changes anything in the next one.
    pub fn checkpoint_begun(&mut self, epoch: Epoch) {
        self.under_way = Some(epoch);
    }

    /// Notes that it will never be published. What waited for it alone, [`Self::release_ripe`] gives free.
    pub fn checkpoint_failed(&mut self) {
        self.under_way = None;
        let durable = self.durable;
        let mut free = self.waiting.remove(&NEEDED_BY_NONE).unwrap_or_default();
        for runs in self.waiting.values_mut() {
            free.extend(runs.extract_if(.., |waiting| waiting.born > durable));
        }
        if !free.is_empty() {
            free.iter_mut().for_each(|waiting| waiting.born = NEEDED_BY_NONE);
            self.waiting.insert(NEEDED_BY_NONE, free);
        }
    }

    /// Notes that checkpoint `checkpoint` is durable. What that makes ripe, [`Self::release_ripe`] gives free.
    pub fn checkpoint_durable(&mut self, checkpoint: Epoch) {
        assert!(checkpoint > self.durable, "checkpoints become durable in order");
        (self.durable, self.under_way) = (checkpoint, None);
    }

    /// Takes up to `most` ripe runs out, or units that a pin held, and calls `release` for each of them that no pin
    /// needs. False: there are no more. In pieces, so that others get at the lock around it in between.
    pub fn release_ripe(&mut self, most: usize, mut release: impl FnMut(u64, u32)) -> bool {
        let mut left = most;
        self.unpinned.take_some(most, |start, len| {
            self.units -= u64::from(len);
            left -= 1;
            release(start, len);
        });
        if left == 0 {
            return true;
        }
        while let Some(mut ripe) = self.waiting.first_entry()
            && *ripe.key() <= self.durable
        {
            let superseding = *ripe.key();
            let Some(Waiting { run, born }) = ripe.get_mut().pop() else {
                ripe.remove();
                continue;
            };
            let (start, len) = parts_of(run);
            let mut needed = self.pins.range(born..superseding).map(|(&pin, _)| pin);
            let first = needed.next();
            if let Some(first) = first {
                let last = needed.next_back().unwrap_or(first);
                let set = self.pinned.entry((first, last)).or_default();
                let before = set.len();
                set.insert(start, len);
                // A crafted file may have two pages in one slot: count what went in.
                self.units -= u64::from(len) - (set.len() - before);
            } else {
                self.units -= u64::from(len);
                release(start, len);
            }
            left -= 1;
            if left == 0 {
                return true;
            }
        }
        false
    }

    /// Pins the newest durable checkpoint: its slots stay as they are until [`Self::unpin`]. Pins
    /// of the same checkpoint are counted. Returns the checkpoint; epoch 0 if there is none yet.
    pub fn pin(&mut self) -> Epoch {
        *self.pins.entry(self.durable).or_insert(0) += 1;
        self.durable
    }

    /// Checkpoints that are pinned.
    pub fn pinned_checkpoints(&self) -> usize {
        self.pins.len()
    }

    /// Units that are held back for a pinned checkpoint, and perhaps for others beside it.
    pub fn units_held_for(&self, checkpoint: Epoch) -> u64 {
        let is_held = |(first, last): &(Epoch, Epoch)| (*first..=*last).contains(&checkpoint);
        self.pinned.iter().filter(|(pins, _)| is_held(pins)).map(|(_, set)| set.len()).sum()
    }

    /// The oldest checkpoint that is pinned.
    pub fn oldest_pin(&self) -> Option<Epoch> {
        self.pins.keys().next().copied()
    }

    /// Whether a checkpoint from `born` up to, and without, `superseding` is pinned.
    pub fn is_pinned_within(&self, born: Epoch, superseding: Epoch) -> bool {
        born < superseding && self.pins.range(born..superseding).next().is_some()
    }

    /// Whether a checkpoint before `superseding` is pinned.
    pub fn is_pinned_before(&self, superseding: Epoch) -> bool {
        self.pins.range(..superseding).next().is_some()
    }

    /// Whether the same pins hold back what was superseded in two epochs, the lower one first.
    pub(super) fn is_pinned_alike(&self, lower: Epoch, higher: Epoch) -> bool {
        self.pins.range(lower..higher).next().is_none()
    }

    /// Takes back one pin. What nobody needs any more [`Self::release_ripe`] gives free.
    ///
    /// Errors: `InvalidArgument` if the checkpoint is not pinned.
    pub fn unpin(&mut self, checkpoint: Epoch) -> Result<()> {
        let Some(count) = self.pins.get_mut(&checkpoint) else {
            let what = format!("checkpoint {} is not pinned", checkpoint.0);
            return Err(Error::new(ErrorKind::InvalidArgument, what));
        };
        *count -= 1;
        if *count > 0 {
            return Ok(());
        }
        self.pins.remove(&checkpoint);
        // Where it was the last of several pins, the first still holds the slot back.
        let keys: Vec<_> =
            self.pinned.keys().copied().filter(|&(first, _)| first == checkpoint).collect();
        for key in keys {
            let Some(set) = self.pinned.remove(&key) else { continue };
            let mut left = self.pins.range(key.0..=key.1).map(|(&pin, _)| pin);
            let others = match left.next() {
                Some(first) => {
                    let last = left.next_back().unwrap_or(first);
                    self.pinned.entry((first, last)).or_default()
                }
                None => &mut self.unpinned,
            };
            let sum = others.len() + set.len();
            others.merge(set);
            self.units -= sum - others.len();
        }
        Ok(())
    }

    /// Calls `each` for every run or unit held back between two units.
    pub fn for_each_in(&self, from: u64, to: u64, mut each: impl FnMut(u64, u32)) {
        for &Waiting { run, .. } in self.waiting.values().flatten() {
            let (start, len) = parts_of(run);
            if start >= from && start < to {
                each(start, len);
            }
        }
        for set in self.pinned.values() {
            set.for_each_in(from, to, |unit| each(unit, 1));
        }
        self.unpinned.for_each_in(from, to, |unit| each(unit, 1));
    }

    /// Memory held, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let waiting: usize = self.waiting.values().map(|runs| runs.capacity() * 16 + 64).sum();
        let pinned: usize = self.pinned.values().map(|set| set.memory_bytes() + 64).sum();
        waiting + pinned + self.unpinned.memory_bytes()
    }
}

const _: () = assert!(size_of::<Waiting>() == 16);

#[cfg(test)]
mod tests {
    use super::*;
    use hedgerow_sync::primitive::random::SplitMix64;

    fn release_into(out: &mut Vec<u64>) -> impl FnMut(u64, u32) {
        |start, len| out.extend(start..start + u64::from(len))
    }

    fn durable(q: &mut Quarantine, checkpoint: Epoch, mut release: impl FnMut(u64, u32)) {
        q.checkpoint_durable(checkpoint);
        // One at a time is what no caller does, and all the same as all at once.
        while q.release_ripe(1, &mut release) {}
    }

    fn unpin(q: &mut Quarantine, checkpoint: Epoch, free: &mut Vec<u64>) {
        q.unpin(checkpoint).unwrap();
        let held = q.units();
        let mut listed = 0;
        q.for_each_in(0, u64::MAX, |_, units| listed += u64::from(units));
        assert_eq!(listed, held, "what is on its way out is still held");
        while q.release_ripe(1, release_into(free)) {}
    }

    #[test]
    fn a_slot_waits_for_the_checkpoint_that_supersedes_it() {
        let mut q = Quarantine::new(Epoch(3));
        assert!(q.supersede(10, 2, Epoch(5), Epoch(5)), "same epoch");
        q.checkpoint_begun(Epoch(4));
        assert!(!q.supersede(20, 2, Epoch(3), Epoch(5)));
        assert!(!q.supersede(30, 1, Epoch(4), Epoch(6)));
        assert_eq!(q.units(), 3);
        let mut free = Vec::new();
        durable(&mut q, Epoch(4), release_into(&mut free));
        assert_eq!(free, []);
        durable(&mut q, Epoch(5), release_into(&mut free));
        assert_eq!(free, [20, 21]);
        durable(&mut q, Epoch(7), release_into(&mut free));
        assert_eq!(free, [20, 21, 30]);
        assert_eq!(q.units(), 0);
    }

    #[test]
    fn a_pin_holds_what_its_checkpoint_refers_to_and_nothing_else() {
        let mut q = Quarantine::new(Epoch(2));
        assert_eq!(q.pin(), Epoch(2));
        q.supersede(1, 1, Epoch(1), Epoch(3));
        q.supersede(2, 1, Epoch(2), Epoch(4));
        q.checkpoint_begun(Epoch(3));
        q.supersede(3, 1, Epoch(3), Epoch(4));
        let mut free = Vec::new();
        durable(&mut q, Epoch(3), release_into(&mut free));
        assert_eq!(free, []);
        assert_eq!(q.pin(), Epoch(3));
        durable(&mut q, Epoch(4), release_into(&mut free));
        assert_eq!(free, [], "3 is in checkpoint 3, 1 and 2 in checkpoint 2");
        unpin(&mut q, Epoch(3), &mut free);
        assert_eq!(free, [3]);
        assert_eq!(q.pin(), Epoch(4));
        q.supersede(4, 1, Epoch(3), Epoch(5));
        q.supersede(5, 1, Epoch(1), Epoch(5));
        durable(&mut q, Epoch(5), release_into(&mut free));
        unpin(&mut q, Epoch(2), &mut free);
        assert_eq!(free, [3, 1, 2], "5 passed on to the pin of checkpoint 4");
        unpin(&mut q, Epoch(4), &mut free);
        assert_eq!(free, [3, 1, 2, 4, 5]);
        assert_eq!(q.units(), 0);
        assert!(q.unpin(Epoch(4)).is_err());
    }

    #[test]
    fn pins_end_in_any_order() {
        // Of each order of ends: what several pins hold goes with the last of them, and no sooner.
        for order in [[2, 3, 4], [2, 4, 3], [3, 2, 4], [3, 4, 2], [4, 2, 3], [4, 3, 2]] {
            let mut q = Quarantine::new(Epoch(2));
            let mut free = Vec::new();
            for epoch in 2..5 {
                assert_eq!(q.pin(), Epoch(epoch));
                durable(&mut q, Epoch(epoch + 1), release_into(&mut free));
            }
            // Images of 1, 2, 3 and 4, all superseded in 6, and one that nothing pinned has.
            for born in 1..6 {
                q.supersede(born, 1, Epoch(born), Epoch(6));
            }
            durable(&mut q, Epoch(6), release_into(&mut free));
            assert_eq!(free, [5]);
            let mut pins = vec![2, 3, 4];
            for ended in order {
                unpin(&mut q, Epoch(ended), &mut free);
                pins.retain(|&pin| pin != ended);
                let mut expected: Vec<u64> =
                    (1..6).filter(|&born| pins.iter().all(|&pin| pin < born)).collect();
                expected.sort_unstable();
                let mut found = free.clone();
                found.sort_unstable();
                assert_eq!(found, expected, "{order:?} {pins:?}");
            }
            assert_eq!(q.units(), 0);
        }
    }

    #[test]
    fn a_slot_that_only_failed_checkpoints_could_have_is_free() {
        let mut q = Quarantine::new(Epoch(3));
        let mut free = Vec::new();
        q.checkpoint_begun(Epoch(4));
        assert!(!q.supersede(1, 2, Epoch(3), Epoch(4)), "the durable one has it");
        assert!(!q.supersede(10, 2, Epoch(4), Epoch(5)), "the one under way has it");
        assert!(!q.supersede(20, 1, Epoch(3), Epoch(5)));
        assert_eq!(q.units(), 5);
        q.checkpoint_failed();
        assert_eq!(q.units(), 5, "what is on its way out is still held");
        while q.release_ripe(1, release_into(&mut free)) {}
        assert_eq!((&free[..], q.units()), (&[10, 11][..], 3));
        assert!(q.supersede(30, 1, Epoch(4), Epoch(5)), "no checkpoint is under way");
        assert!(!q.supersede(40, 1, Epoch(2), Epoch(5)));
        q.checkpoint_begun(Epoch(5));
        assert!(q.supersede(50, 1, Epoch(4), Epoch(5)), "only the failed one could have it");
        assert!(!q.supersede(60, 1, Epoch(4), Epoch(6)), "the one under way has it");
        assert!(!q.supersede(70, 1, Epoch(5), Epoch(6)));
        durable(&mut q, Epoch(5), release_into(&mut free));
        free.sort_unstable();
        assert_eq!(free, [1, 2, 10, 11, 20, 40]);
        // Both are in the one that is durable now, whatever becomes of the next.
        q.checkpoint_begun(Epoch(6));
        q.checkpoint_failed();
        while q.release_ripe(1, release_into(&mut free)) {}
        assert_eq!((free.len(), q.units()), (6, 2));
        durable(&mut q, Epoch(7), release_into(&mut free));
        assert_eq!((free.len(), q.units()), (8, 0));
    }

    /// What is held back, held against all checkpoints that there were, were pinned, or may come.
    #[test]
    fn a_slot_is_held_back_exactly_while_a_checkpoint_may_need_it() {
        let seed = crate::testing::environment::fresh_seed();
        println!("seed {seed}");
        let mut dice = SplitMix64::new(seed);
        let (mut q, mut now, mut under_way, mut newest) = (Quarantine::new(Epoch(2)), 3, None, 2);
        let (mut pins, mut held, mut free) = (Vec::new(), Vec::new(), Vec::new());
        for unit in 0..5_000 {
            match dice.below(12) {
                0 if under_way.is_none() => {
                    under_way = Some(now);
                    q.checkpoint_begun(Epoch(now));
                    now += 1;
                }
                1 | 2 if under_way.is_some() => {
                    under_way = None;
                    q.checkpoint_failed();
                }
                3 if dice.below(3) == 0 => {
                    if let Some(epoch) = under_way.take() {
                        newest = epoch;
                        q.checkpoint_durable(Epoch(epoch));
                    }
                }
                4 if pins.len() < 4 => pins.push(q.pin().0),
                5 if !pins.is_empty() => {
                    let pin = pins.swap_remove(dice.below(pins.len() as u64) as usize);
                    q.unpin(Epoch(pin)).unwrap();
                }
                _ => {
                    let superseding = now - dice.below((now - newest).min(3));
                    let born = superseding - dice.below(superseding.min(5) + 1);
                    held.push((unit, born, superseding));
                    if q.supersede(unit, 1, Epoch(born), Epoch(superseding)) {
                        free.push(unit);
                    }
                }
            }
            while q.release_ripe(3, release_into(&mut free)) {}
            for unit in free.drain(..) {
                let at = held.iter().position(|held| held.0 == unit).unwrap();
                let (_, born, superseding) = held.swap_remove(at);
                let needs = |checkpoint: &u64| (born..superseding).contains(checkpoint);
                let is_needed = pins.iter().chain(&under_way).chain([&newest]).any(needs);
                assert!(!is_needed, "{unit} of {born}, superseded in {superseding}");
            }
            for (unit, born, superseding) in &held {
                let needs = |checkpoint: &u64| (*born..*superseding).contains(checkpoint);
                let is_needed = pins.iter().chain(&under_way).chain([&newest]).any(needs);
                assert!(
                    is_needed,
                    "{unit} of {born}, superseded in {superseding}, is kept in vain"
                );
            }
            assert_eq!(q.units(), held.len() as u64);
        }
    }

    #[test]
    fn what_is_held_back_is_listed_by_where_it_begins() {
        let mut q = Quarantine::new(Epoch(1));
        q.pin();
        for (unit, units) in [(8, 3), (11, 2), (18, 2), (20, 1)] {
            q.supersede(unit, units, Epoch(1), Epoch(2));
        }
        let listed = |q: &Quarantine| {
            let mut listed = Vec::new();
            q.for_each_in(10, 20, |unit, units| listed.push((unit, units)));
            listed.sort_unstable();
            listed
        };
        assert_eq!(listed(&q), [(11, 2), (18, 2)], "runs that wait");
        let mut free = Vec::new();
        durable(&mut q, Epoch(2), release_into(&mut free));
        assert_eq!(
            listed(&q),
            [10, 11, 12, 18, 19].map(|unit| (unit, 1)),
            "units that a pin holds"
        );
    }

    #[test]
    fn memory_is_that_of_runs_that_wait_and_of_units_that_pins_hold() {
        let mut q = Quarantine::new(Epoch(1));
        assert_eq!(q.memory_bytes(), 0);
        q.pin();
        for unit in 0..10 {
            q.supersede(unit, 1, Epoch(1), Epoch(2));
        }
        q.checkpoint_begun(Epoch(2));
        q.supersede(10, 1, Epoch(2), Epoch(3));
        let runs = |q: &Quarantine| q.waiting.values().map(Vec::capacity).collect::<Vec<_>>();
        let waiting = runs(&q);
        assert!(waiting[0] >= 10 && waiting[1] >= 1);
        assert_eq!(q.memory_bytes(), (waiting[0] + waiting[1]) * 16 + 2 * 64);
        let mut free = Vec::new();
        durable(&mut q, Epoch(2), release_into(&mut free));
        assert_eq!(free, []);
        let mut one = UnitSet::default();
        one.insert(0, 1);
        let waiting = runs(&q)[0] * 16 + 64;
        assert_eq!(q.memory_bytes(), waiting + one.memory_bytes() + 64);
        q.unpin(Epoch(1)).unwrap();
        assert_eq!(q.memory_bytes(), waiting + one.memory_bytes());
    }

    /// Each was freed by itself, in the thread of whoever ended a snapshot.
    #[test]
    fn neighbours_that_a_pin_has_held_leave_together() {
        let mut q = Quarantine::new(Epoch(1));
        q.pin();
        for unit in 0..500 {
            q.supersede(3_000 + 2 * unit, 2, Epoch(1), Epoch(2));
        }
        q.supersede(9_000, 1, Epoch(1), Epoch(2));
        durable(&mut q, Epoch(2), |_, _| panic!("it is pinned"));
        q.unpin(Epoch(1)).unwrap();
        let mut released = Vec::new();
        while q.release_ripe(512, |start, len| released.push((start, len))) {}
        assert_eq!(released, [(3_000, 1_000), (9_000, 1)]);
        assert_eq!(q.units(), 0);
    }

    #[test]
    fn pins_of_one_checkpoint_are_counted() {
        let mut q = Quarantine::new(Epoch(1));
        q.pin();
        q.pin();
        q.supersede(1, 1, Epoch(1), Epoch(2));
        let mut free = Vec::new();
        durable(&mut q, Epoch(2), release_into(&mut free));
        unpin(&mut q, Epoch(1), &mut free);
        assert_eq!(free, []);
        unpin(&mut q, Epoch(1), &mut free);
        assert_eq!(free, [1]);
    }
}
