//! Layouts that follow use: sampled counters, conversions without waiting, and lazy sorting.
//!
//! "B-Trees Are Back" section 5.1, made safe for many threads: an operation is sampled when a countdown
//! of its thread runs out, on average one look-up or change in twenty, and two scanned leaves in
//! thirteen; a sample moves the tally of the leaf's frame by one. A tally at the end of its range converts
//! the leaf: by an upgrade of the latch from the version that was seen. What is busy, or does not fit, is
//! left as it is. So nobody ever waits for a conversion, and a reader has its answer before.
//!
//! Converting and sorting are no logical changes: they log nothing, belong to no epoch, and leave a clean page
//! clean, whose bytes then differ from its slot's, and whose records do not. A page that is being written meanwhile
//! stays dirty, because its version has changed.

use super::Tree;
use crate::node::{Adapted, Leaf, LeafLayout, convert, holds_strings, rung};
use crate::page::header::KIND;
use crate::page::{FrameId, OptimisticPage, Pages, Tally};
use hedgerow_sync::optimistic::PageBytes;
use hedgerow_sync::primitive::atomic::Ordering::Relaxed;
use hedgerow_sync::primitive::buggify::{Point, buggify};
use hedgerow_sync::primitive::sample::{Event, two_in};

/// Look-ups and changes of which two are sampled, on average: 5 %.
const POINTS_TO_TWO_SAMPLES: u32 = 40;
/// Leaves that are scanned of which two are sampled, on average: 15 %.
const SCANS_TO_TWO_SAMPLES: u32 = 13;

/// What came of a conversion.
#[derive(PartialEq, Eq)]
enum Converted {
    Done,
    /// Others use the leaf, or a checkpoint is under way.
    Busy,
    /// The records do not fit.
    Full,
}

impl<P: Pages> Tree<P> {
    /// Notes a look-up or a change in a leaf, of which this is the version that was read.
    #[inline(always)]
    pub(super) fn note_point(&self, leaf: &OptimisticPage<'_, P>) {
        if rung::HINTS && (two_in(POINTS_TO_TWO_SAMPLES, Event::Point) || buggify(Point::Convert)) {
            self.note_sample(leaf, false);
        }
    }

    /// Notes that a leaf was scanned, of which this is the version that was read. Whether the leaf has got another
    /// layout by that, and with it another version.
    #[inline(always)]
    pub(super) fn note_scan(&self, leaf: &OptimisticPage<'_, P>) -> bool {
        rung::HINTS
            && (two_in(SCANS_TO_TWO_SAMPLES, Event::Scan) || buggify(Point::Convert))
            && self.note_sample(leaf, true)
    }

    /// Whether the leaf was converted.
    #[cold]
    #[inline(never)]
    fn note_sample(&self, leaf: &OptimisticPage<'_, P>, scan: bool) -> bool {
        if !self.policy.heeds_operations() {
            return false;
        }
        let layout = LeafLayout::of_kind(leaf.bytes().field_u8::<{ KIND }>());
        let Some(tally) = self.pool.scan_tally(leaf.frame()) else { return false };
        let before = match tally.get() {
            Tally::Unheeded => return false,
            _ if layout.is_dense() => return false,
            Tally::Unknown => match self.first_tally(leaf, layout) {
                Some(first) => first,
                None => return false,
            },
            known => known,
        };
        let now = match (buggify(Point::Convert), scan) {
            (false, _) => before.after(scan),
            (true, true) => Tally::MOST,
            (true, false) => Tally::LEAST,
        };
        tally.set(now);
        let wanted = match (now, layout) {
            (Tally::MOST, LeafLayout::Fingerprint) => LeafLayout::Comparison,
            (Tally::LEAST, LeafLayout::Comparison) => LeafLayout::Fingerprint,
            _ => return false,
        };
        // The keys may have changed since it was found that scans matter.
        if wanted == LeafLayout::Fingerprint
            && self.first_tally(leaf, layout).is_none_or(|tally| tally == Tally::Unheeded)
        {
            tally.forget();
            return false;
        }
        let converted = self.convert_leaf(leaf, wanted);
        match converted {
            Converted::Done => {}
            Converted::Busy => tally.set(before),
            // Nor will it at the next sample: the next split makes room.
            Converted::Full => tally.set(Tally::Unheeded),
        }
        converted == Converted::Done
    }

    /// What is said of a leaf of which nothing is known: whether scans matter, and that they are as
    /// common as its layout is good for. `None` if it is being changed.
    fn first_tally(&self, leaf: &OptimisticPage<'_, P>, layout: LeafLayout) -> Option<Tally> {
        let mut copy = vec![0; self.pool.page_bytes()];
        leaf.bytes().copy(0, &mut copy);
        leaf.validate().ok()?;
        Some(match (holds_strings(&mut copy), layout) {
            (false, _) => Tally::Unheeded,
            (true, LeafLayout::Comparison) => Tally::At(2),
            (true, _) => Tally::At(1),
        })
    }

    /// Gives a leaf another layout if nobody uses it and the records fit.
    fn convert_leaf(&self, leaf: &OptimisticPage<'_, P>, to: LeafLayout) -> Converted {
        let converted = self.try_convert(leaf, to);
        if let Some(done) = self.pool.adaptation() {
            let counter = match (&converted, to) {
                (Converted::Busy, _) => &done.gave_up_busy,
                (Converted::Full, _) => &done.gave_up_full,
                (Converted::Done, LeafLayout::Comparison) => &done.for_scans,
                (Converted::Done, _) => &done.for_points,
            };
            counter.fetch_add(1, Relaxed);
        }
        converted
    }

    fn try_convert(&self, leaf: &OptimisticPage<'_, P>, to: LeafLayout) -> Converted {
        let Ok(mut page) = leaf.upgrade_to_rearrange() else { return Converted::Busy };
        if convert(page.bytes_mut(), to).is_ok() {
            return Converted::Done;
        }
        page.release_unchanged();
        Converted::Full
    }

    /// Puts the records of a private copy of a leaf in order, and those of the leaf too, if nobody uses
    /// it and nothing has changed since the copy was taken: then the next scan finds them so.
    #[inline(always)]
    pub(super) fn put_in_order(&self, leaf: &OptimisticPage<'_, P>, copy: &mut [u8]) {
        if rung::HINTS && !crate::node::plain_leaf(copy).is_in_order() {
            self.sort_leaf(leaf, copy);
        }
    }

    #[inline(never)]
    fn sort_leaf(&self, leaf: &OptimisticPage<'_, P>, copy: &mut [u8]) {
        Leaf::put_in_order(copy);
        let done = self.pool.adaptation();
        let sorted = if let Ok(mut page) = leaf.upgrade_to_rearrange() {
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
    pub(super) fn are_scans_common(&self, frame: FrameId) -> bool {
        self.pool.scan_tally(frame).is_some_and(|tally| tally.get().is_common())
    }

    /// Notes that two leaves became one in `frame`, and whether its layout is another one now.
    pub(super) fn note_merge(&self, frame: FrameId, adapted: bool) {
        if let Some(tally) = self.pool.scan_tally(frame) {
            tally.forget();
        }
        if adapted && let Some(done) = self.pool.adaptation() {
            done.by_merges.fetch_add(1, Relaxed);
        }
    }

    /// Counts leaves that got another layout when they were full or split.
    pub(super) fn count_adapted(&self, leaves: usize) {
        if leaves > 0
            && let Some(done) = self.pool.adaptation()
        {
            done.by_splits.fetch_add(leaves as u64, Relaxed);
        }
    }

    /// Notes that the leaf in `frame` went to another one.
    pub(super) fn keep_tally(&self, frame: FrameId, to: FrameId) {
        if let (Some(from), Some(to)) = (self.pool.scan_tally(frame), self.pool.scan_tally(to)) {
            to.set(from.get());
            from.forget();
        }
    }

    /// Notes that the leaf in the first of these frames was split, what was on the right went to the second,
    /// and what was found out about the two sides meanwhile: so no sample has to look at their keys again.
    pub(super) fn hand_tally_on(&self, frames: [FrameId; 2], sides: [Adapted; 2]) {
        let [Some(left), Some(right)] = frames.map(|frame| self.pool.scan_tally(frame)) else {
            return;
        };
        let before = left.get();
        for (tally, side) in [left, right].into_iter().zip(sides) {
            tally.set(match (side.strings, before) {
                (Some(false), _) => Tally::Unheeded,
                // Whether scans matter depends on the keys, and each side has fewer of them now.
                (_, Tally::Unheeded) => Tally::Unknown,
                (_, known) => known,
            });
        }
    }
}
