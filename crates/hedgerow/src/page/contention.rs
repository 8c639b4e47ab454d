//! What is known of the contention on a leaf: one word beside its frame.
//!
//! "Contention and Space Management in B-Trees" section 3 counts, over a sample of the writes to a leaf, how many had to wait
//! for another thread. The counts of the current period, the place of the last sampled write and the *hot* mark stand beside
//! the frame and not in the page: nothing of this is ever written to a file, and eviction loses it.
//!
//! Invariants: zero means that nothing is known; only the holder of the frame's exclusive latch changes the word, so a load and
//! a store suffice; readers without a latch get some value that it had. `Send + Sync`, relaxed.

use hedgerow_sync::primitive::atomic::AtomicU64;
use hedgerow_sync::primitive::atomic::Ordering::Relaxed;

/// A leaf that was split because of contention is hot for so many quiet periods, or turns of the clock without use.
const HOTTEST: u64 = 3;

/// Samples that end a period in any case: half of what their 16 bits hold.
pub const MOST_SAMPLES: u16 = 1 << 15;

/// Where the fields of the word begin, in bits. The counts and the place have 16 bits each.
const CONTENDED: u32 = 16;
const PLACE: u32 = 32;
const HOT: u32 = 48;
const RUN: u32 = 50;
const SPLITS: u32 = 56;

const HOT_BITS: u64 = 0b11 << HOT;
const RUN_BITS: u64 = 0x3f << RUN;
const PLACE_BITS: u64 = 0xffff << PLACE;
/// What a period begins with from the one before: the mark and the number of splits.
const KEPT: u64 = HOT_BITS | 0xff << SPLITS;

/// What a frame knows of the contention on its leaf.
#[derive(Debug)]
pub struct Contention(AtomicU64);

/// The word of a [`Contention`] as it was at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Period(u64);

/// The place of a record in its leaf, or none, as it stands in the word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place(u64);

impl Place {
    /// No record was updated.
    pub const NONE: Place = Place(0);

    /// The place of this index, which has 16 bits like all counts of a page. The largest counts as none.
    #[inline(always)]
    pub fn new(index: Option<usize>) -> Place {
        index.map_or(Place::NONE, |index| Place(u64::from((index as u16).wrapping_add(1)) << PLACE))
    }

    /// Its index.
    pub fn index(self) -> Option<usize> {
        ((self.0 >> PLACE) as usize).checked_sub(1)
    }
}

impl Contention {
    /// Nothing is known.
    pub fn new() -> Contention {
        Contention(AtomicU64::new(0))
    }

    /// What is known.
    #[inline(always)]
    pub fn get(&self) -> Period {
        Period(self.0.load(Relaxed))
    }

    /// Sets it. The caller holds the frame's exclusive latch.
    #[inline(always)]
    pub fn set(&self, period: Period) {
        self.0.store(period.0, Relaxed);
    }

    /// Another page comes into the frame. The caller holds the frame's exclusive latch.
    pub fn forget(&self) {
        self.set(Period::default());
    }
}

impl Default for Contention {
    fn default() -> Contention {
        Contention::new()
    }
}

impl Period {
    /// Writes of this period that were sampled.
    #[inline(always)]
    pub fn samples(self) -> u16 {
        self.0 as u16
    }

    /// Of these, the ones that met another thread.
    #[inline(always)]
    pub fn contended(self) -> u16 {
        (self.0 >> CONTENDED) as u16
    }

    /// Place of the record that the last sampled write of this period has updated.
    #[inline(always)]
    pub fn place(self) -> Place {
        Place(self.0 & PLACE_BITS)
    }

    /// How many contention splits the leaf has come from: the count stays at 255.
    pub fn splits(self) -> u8 {
        (self.0 >> SPLITS) as u8
    }

    /// Whether the period before this one was contended while insertions went in one direction, and the leaf looks as it did
    /// then, by the number that [`Self::with_run`] was given.
    pub fn has_run(self, number: usize) -> bool {
        self.0 & RUN_BITS == run_bits(number)
    }

    /// Notes at the beginning of a period that insertions went in one direction in the one before.
    #[must_use]
    pub fn with_run(self, number: usize) -> Period {
        Period(self.0 & !RUN_BITS | run_bits(number))
    }

    /// Whether the leaf was split because of contention, not long ago. No merge touches it then.
    #[inline(always)]
    pub fn is_hot(self) -> bool {
        self.0 & HOT_BITS != 0
    }

    /// After one more sampled write, which has updated the record at `place`, and was contended or not. Only if
    /// [`Self::is_full`] is false.
    #[inline(always)]
    #[must_use]
    pub fn after_sample(self, place: Place, contended: bool) -> Period {
        let counted = (self.0 & !PLACE_BITS) + 1 + (u64::from(contended) << CONTENDED);
        Period(counted | place.0)
    }

    /// There are [`MOST_SAMPLES`] at least: the period is to end.
    #[inline(always)]
    pub fn is_full(self) -> bool {
        self.0 & u64::from(MOST_SAMPLES) != 0
    }

    /// The period that follows this one.
    #[must_use]
    pub fn next(self) -> Period {
        Period(self.0 & KEPT)
    }

    /// The same with another place.
    #[must_use]
    pub fn with_place(self, place: Place) -> Period {
        Period(self.0 & !PLACE_BITS | place.0)
    }

    /// The same for a leaf that has come from a contention split.
    #[must_use]
    pub fn heated(self) -> Period {
        let splits = u64::from(self.splits().saturating_add(1));
        Period(HOTTEST << HOT | splits << SPLITS)
    }

    /// The same a little less hot.
    #[must_use]
    pub fn cooled(self) -> Period {
        if self.is_hot() { Period(self.0 - (1 << HOT)) } else { self }
    }
}

/// A number modulo 63, and one more: zero stands for none.
fn run_bits(number: usize) -> u64 {
    (number as u64 % 63 + 1) << RUN
}

/// What Contention Split has done to the leaves of a pool; see [`ContentionStats`].
#[derive(Debug, Default)]
pub struct ContentionCounters {
    /// See [`ContentionStats::splits`].
    pub splits: AtomicU64,
    /// See [`ContentionStats::refused_one_key`].
    pub refused_one_key: AtomicU64,
    /// See [`ContentionStats::refused_no_update`].
    pub refused_no_update: AtomicU64,
    /// See [`ContentionStats::refused_sequential`].
    pub refused_sequential: AtomicU64,
    /// See [`ContentionStats::gave_up_busy`].
    pub gave_up_busy: AtomicU64,
    /// See [`ContentionStats::gave_up_changed`].
    pub gave_up_changed: AtomicU64,
    /// See [`ContentionStats::gave_up_full`].
    pub gave_up_full: AtomicU64,
}

/// What came of leaves for which threads contended, since the database was opened: counts, a part of [`Stats`](crate::Stats).
/// [`ContentionSplit`](crate::ContentionSplit) says when a leaf counts as contended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ContentionStats {
    /// Leaves that were split, so that two keys which threads contended for are in different leaves.
    pub splits: u64,
    /// Contended leaves that were left alone because no second key was seen: a split would not help.
    pub refused_one_key: u64,
    /// Contended leaves that were left alone because the last write did not update a record.
    pub refused_no_update: u64,
    /// Contended leaves that were left alone because keys are being inserted in order: they split by themselves.
    pub refused_sequential: u64,
    /// Splits that were given up because other threads used the pages. A later period tries again.
    pub gave_up_busy: u64,
    /// Splits that were given up because the leaf had changed meanwhile.
    pub gave_up_changed: u64,
    /// Splits that were given up because there was no room: no page, or no cut whose two sides fit into a page.
    pub gave_up_full: u64,
}

impl ContentionCounters {
    /// Reads all counters; they belong to slightly different moments.
    pub fn values(&self) -> ContentionStats {
        ContentionStats {
            splits: self.splits.load(Relaxed),
            refused_one_key: self.refused_one_key.load(Relaxed),
            refused_no_update: self.refused_no_update.load(Relaxed),
            refused_sequential: self.refused_sequential.load(Relaxed),
            gave_up_busy: self.gave_up_busy.load(Relaxed),
            gave_up_changed: self.gave_up_changed.load(Relaxed),
            gave_up_full: self.gave_up_full.load(Relaxed),
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn samples_are_counted_until_the_counts_are_full() {
        let mut period = Period::default();
        for n in 1..=MOST_SAMPLES {
            assert!(!period.is_full());
            period = period.after_sample(Place::new(Some(usize::from(n))), n % 3 == 0);
            assert_eq!((period.samples(), period.contended()), (n, n / 3));
            assert_eq!(period.place().index(), Some(usize::from(n)));
        }
        assert!(period.is_full() && !period.is_hot());
        assert_eq!(period.next(), Period::default());
        let first = Period::default().after_sample(Place::new(Some(0)), true);
        assert_eq!((first.place().index(), first.contended()), (Some(0), 1));
        assert_eq!(first.after_sample(Place::NONE, false).place(), Place::NONE);
        assert_eq!(Place::new(Some(0xfffe)).index(), Some(0xfffe));
        assert_eq!(Place::new(Some(0xffff)), Place::NONE);
    }

    #[test]
    fn a_hot_leaf_cools_in_three_steps_and_keeps_its_number_of_splits() {
        let contention = Contention::new();
        contention.set(contention.get().after_sample(Place::new(Some(7)), true).heated());
        for _ in 0..3 {
            assert!(contention.get().is_hot());
            let sampled = contention.get().after_sample(Place::new(Some(1)), true);
            contention.set(sampled.next().cooled());
            assert_eq!((contention.get().samples(), contention.get().place()), (0, Place::NONE));
        }
        assert!(!contention.get().is_hot());
        assert_eq!(contention.get().cooled(), contention.get());
        assert_eq!(contention.get().splits(), 1);
        let mut period = Period::default();
        for _ in 0..300 {
            period = period.heated();
        }
        assert_eq!(period.splits(), 255);
        contention.forget();
        assert_eq!(contention.get(), Period::default());
    }

    #[test]
    fn a_run_is_remembered_for_one_period() {
        for number in [0, 1, 62, 63, 100_000] {
            let period = Period::default().heated();
            assert!(!period.has_run(number));
            let place = Place::new(Some(3));
            let period = period.with_run(number).after_sample(place, true);
            assert!(period.has_run(number) && !period.has_run(number + 1));
            assert_eq!((period.splits(), period.place(), period.is_hot()), (1, place, true));
            assert!(!period.next().has_run(number));
        }
    }
}
