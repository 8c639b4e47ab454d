//! Layouts that follow use: sampled counters, conversions without waiting, and lazy sorting.
//!
//! "B-Trees Are Back" section 5.1, made safe for many threads: an operation is sampled when a countdown
//! of its thread runs out, on average one look-up or change in twenty, and two scanned leaves in
//! thirteen; a sample moves the tally of the leaf's frame by one. A tally at the end of its range converts
//! the leaf: by an upgrade of the latch from the version that was seen, within an epoch that is entered
//! without waiting. What is busy, or does not fit, is left as it is. So nobody ever waits for a
//! conversion, and a reader has its answer before.
//!
//! Converting and sorting are no logical changes: they log nothing and leave a clean page clean, whose
//! bytes then differ from its slot's, and whose records do not. Within an epoch, so that a checkpoint
//! that copies the page does not find another version when it has written it.

use super::Tree;
use crate::node::{Ladder, Leaf, LeafLayout, convert, holds_strings};
use crate::page::header::KIND;
use crate::page::{OptimisticPage, PagePool, Tally};
use hedgerow_sync::optimistic::PageBytes;
use hedgerow_sync::primitive::atomic::AtomicU64;
use hedgerow_sync::primitive::atomic::Ordering::Relaxed;
use hedgerow_sync::primitive::random::SplitMix64;
use std::cell::Cell;

/// Look-ups and changes to a sample: one in so many, on average.
const POINTS_TO_A_SAMPLE: u32 = 20;
/// Leaves that are scanned to a sample, in halves: two in thirteen.
const SCANS_TO_A_SAMPLE_HALVES: u32 = 13;

thread_local! {
    static POINTS_LEFT: Cell<u32> = const { Cell::new(1) };
    static SCANS_LEFT: Cell<u32> = const { Cell::new(1) };
    static DRAWS: Cell<u64> = const { Cell::new(0) };
}

/// A number from 1 to `twice_mean - 1`, so that samples do not fall into step with the operations.
#[cold]
fn draw(twice_mean: u32) -> u32 {
    let draws = DRAWS.with(|draws| draws.replace(draws.get() + 1));
    1 + SplitMix64::new(draws).below(u64::from(twice_mean) - 1) as u32
}

#[inline(always)]
fn runs_out(left: &Cell<u32>) -> bool {
    let now = left.get() - 1;
    left.set(now);
    now == 0
}

impl<P: PagePool, L: Ladder> Tree<P, L> {
    /// Notes a look-up or a change in a leaf, of which this is the version that was read.
    #[inline(always)]
    pub(super) fn note_point(&self, leaf: &OptimisticPage<'_, P>) {
        if L::HINTS && POINTS_LEFT.with(runs_out) {
            POINTS_LEFT.set(draw(2 * POINTS_TO_A_SAMPLE));
            self.note_sample(leaf, false);
        }
    }

    /// Notes that a leaf was scanned, of which this is the version that was read.
    #[inline(always)]
    pub(super) fn note_scan(&self, leaf: &OptimisticPage<'_, P>) {
        if L::HINTS && SCANS_LEFT.with(runs_out) {
            SCANS_LEFT.set(draw(SCANS_TO_A_SAMPLE_HALVES));
            self.note_sample(leaf, true);
        }
    }

    #[cold]
    #[inline(never)]
    fn note_sample(&self, leaf: &OptimisticPage<'_, P>, scan: bool) {
        if !self.policy.heeds_operations() {
            return;
        }
        let layout = LeafLayout::of_kind(leaf.bytes().field_u8::<{ KIND }>());
        let Some(tally) = self.pool.scan_tally(leaf.frame()) else { return };
        let before = match tally.get() {
            Tally::Unheeded => return,
            _ if layout.is_dense() => return,
            Tally::Unknown => match self.first_tally(leaf, layout) {
                Some(first) => first,
                None => return,
            },
            known => known,
        };
        let now = before.after(scan);
        tally.set(now);
        let wanted = match (now, layout) {
            (Tally::MOST, LeafLayout::Fingerprint) => LeafLayout::Comparison,
            (Tally::LEAST, LeafLayout::Comparison) => LeafLayout::Fingerprint,
            _ => return,
        };
        self.convert_leaf(leaf, wanted);
        // If it was not done, that is not tried again at once.
        if LeafLayout::of_kind(leaf.bytes().field_u8::<{ KIND }>()) != wanted {
            tally.set(before);
        }
    }

    /// What is said of a leaf of which nothing is known: whether scans matter, and that they are as
    /// common as its layout is good for. `None` if it is being changed.
    fn first_tally(&self, leaf: &OptimisticPage<'_, P>, layout: LeafLayout) -> Option<Tally> {
        let mut copy = vec![0; self.pool.page_bytes()];
        leaf.bytes().copy(0, &mut copy);
        leaf.validate().ok()?;
        Some(match (holds_strings::<L>(&mut copy), layout) {
            (false, _) => Tally::Unheeded,
            (true, LeafLayout::Comparison) => Tally::At(2),
            (true, _) => Tally::At(1),
        })
    }

    /// Gives a leaf another layout if nobody uses it and the records fit.
    fn convert_leaf(&self, leaf: &OptimisticPage<'_, P>, to: LeafLayout) {
        let done = self.pool.adaptation();
        let count = |counter: fn(&crate::page::Adaptation) -> &AtomicU64| {
            if let Some(done) = done {
                counter(done).fetch_add(1, Relaxed);
            }
        };
        let Some(_stay) = self.pool.try_enter() else { return count(|a| &a.gave_up_busy) };
        let Ok(mut page) = leaf.upgrade() else { return count(|a| &a.gave_up_busy) };
        if convert::<L>(page.bytes_mut(), to).is_err() {
            page.release_unchanged();
            return count(|a| &a.gave_up_full);
        }
        match to {
            LeafLayout::Comparison => count(|a| &a.for_scans),
            _ => count(|a| &a.for_points),
        }
    }

    /// Puts the records of a private copy of a leaf in order, and those of the leaf too, if nobody uses
    /// it and nothing has changed since the copy was taken: then the next scan finds them so.
    #[inline(always)]
    pub(super) fn put_in_order(&self, leaf: &OptimisticPage<'_, P>, copy: &mut [u8]) {
        if L::HINTS && !crate::node::plain_leaf::<L>(copy).is_in_order() {
            self.sort_leaf(leaf, copy);
        }
    }

    #[inline(never)]
    fn sort_leaf(&self, leaf: &OptimisticPage<'_, P>, copy: &mut [u8]) {
        Leaf::<_, L>::put_in_order(copy);
        let done = self.pool.adaptation();
        let upgraded = self.pool.try_enter().map(|stay| (stay, leaf.upgrade()));
        let sorted = if let Some((_stay, Ok(mut page))) = upgraded {
            page.bytes_mut().copy_from_slice(copy);
            true
        } else {
            false
        };
        if let Some(done) = done {
            let counter = if sorted { &done.sorted } else { &done.gave_up_busy };
            counter.fetch_add(1, Relaxed);
        }
    }

    /// Whether scans of the leaf in a frame are common, as far as that is known.
    pub(super) fn are_scans_common(&self, frame: crate::page::FrameId) -> bool {
        self.pool.scan_tally(frame).is_some_and(|tally| tally.get().is_common())
    }

    /// Counts leaves that got another layout when they were full or split.
    pub(super) fn count_adapted(&self, leaves: usize) {
        if leaves > 0
            && let Some(done) = self.pool.adaptation()
        {
            done.by_splits.fetch_add(leaves as u64, Relaxed);
        }
    }

    /// Notes that the leaf in `frame` was split, and what was on the right went to `right`.
    pub(super) fn hand_tally_on(&self, frame: crate::page::FrameId, right: crate::page::FrameId) {
        let (from, to) = (self.pool.scan_tally(frame), self.pool.scan_tally(right));
        if let (Some(from), Some(to)) = (from, to) {
            // Whether scans matter depends on the keys, and each side has fewer of them now.
            if from.get() == Tally::Unheeded {
                from.forget();
            }
            to.set(from.get());
        }
    }
}
