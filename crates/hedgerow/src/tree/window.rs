//! What a cursor copies first of a fully dense leaf: all that tells where records are, and few values.
//!
//! Such a leaf has hundreds of records in a page, of which a short scan wants a few, and to copy the page is
//! half of such a scan. So a cursor that is sent to a key copies the header, the presence bits, the fences, and the
//! values of [`WINDOW_SLOTS`] slots in its direction. When it leaves these, in either direction, it copies the whole leaf, if that is
//! still the version that it was; else it goes to its place anew, from the root, as if the leaf had ended there.
//!
//! Invariants: all that was copied was there at one moment; while there is a window the cursor's `first..end` lie
//! in it, so that no value is looked at that was not copied. Thread-safety: that of [`Cursor`].

use super::cursor::Place;
use super::descend::Target;
use super::leaf_copy::Trail;
use super::{Cursor, Tree};
use crate::error::Result;
use crate::node::{Ladder, Leaf, plain_leaf};
use crate::page::{OptimisticPage, PageMark, Pages, Restart};
use hedgerow_sync::optimistic::PageBytes;
use std::ops::Range;

/// Slots whose values are copied at first: with values of eight bytes eight cache lines.
const WINDOW_SLOTS: usize = 64;

/// Of which leaf there is a part alone, and which.
pub(super) struct Window {
    leaf: PageMark,
    slots: Range<usize>,
    /// The places of the leaf that are in the cursor's bounds.
    within: Range<usize>,
}

impl<P: Pages, L: Ladder> Tree<P, L> {
    /// Copies the leaf for `target` into `to`, which has the size of a page, or of a fully dense one what lies near that
    /// key, in a direction.
    pub(super) fn copy_near(
        &self,
        target: Target<'_>,
        forward: bool,
        to: &mut [u8],
    ) -> Result<(Option<Trail>, Option<Window>)> {
        let turns = self.pool.alone_turns();
        match self.try_copy_near(target, forward, to) {
            Ok(copied) if self.nobody_alone_since(turns).is_ok() => Ok(copied),
            _ => Ok((self.copy_leaf(target, to)?, None)),
        }
    }

    fn try_copy_near(
        &self,
        target: Target<'_>,
        forward: bool,
        to: &mut [u8],
    ) -> Result<(Option<Trail>, Option<Window>), Restart> {
        let reached = self.reach(target, 0)?;
        let page = reached.page;
        let window = match (target, Leaf::<_, L>::new(page.bytes())) {
            (Target::Key(key), Leaf::FullyDense(leaf)) => {
                let slots = leaf.copy_near(key, WINDOW_SLOTS, forward, to);
                page.validate()?;
                Some(Window { leaf: page.mark(), slots, within: 0..0 })
            }
            _ => None,
        };
        // Behind all slots there is nothing to be near to, and large values are not worth two copies.
        let window = window.filter(|window| !window.slots.is_empty());
        if window.is_none() {
            self.copy_out(&page, to)?;
        }
        let trail =
            reached.parent.map(|parent| Trail { parent: parent.page.mark(), index: parent.index });
        Ok((trail, window))
    }

    /// Copies the leaf whole, if it has not changed.
    fn copy_rest(&self, leaf: PageMark, to: &mut [u8]) -> Result<(), Restart> {
        let page = OptimisticPage::resume(&*self.pool, leaf)?;
        page.bytes().copy(0, to);
        page.validate()
    }
}

impl<P: Pages, L: Ladder> Cursor<P, L> {
    /// Keeps the cursor, which has just taken up a leaf, within the part of it that was copied.
    pub(super) fn stay_within(&mut self, window: Option<Window>) {
        self.window = window.map(|window| {
            let within = self.first..self.end;
            // The gap is before the slot of the key that was sought, or behind it.
            debug_assert!(window.slots.start <= self.gap && self.gap <= window.slots.end);
            self.first = self.first.max(window.slots.start).min(self.gap);
            self.end = self.end.min(window.slots.end).max(self.gap);
            Window { within, ..window }
        });
    }

    /// If a part of the leaf was copied alone, and there is more in this direction: takes up all of the leaf. False
    /// if there is not.
    pub(super) fn widen(&mut self, forward: bool) -> Result<bool> {
        let has_more = |window: &Window| match forward {
            true => self.end < window.within.end,
            false => self.first > window.within.start,
        };
        let Some(window) = self.window.take_if(|window| has_more(window)) else {
            return Ok(false);
        };
        // Before the buffer is written to: what the leaf has become may not be what the place was in.
        let (leaf, place) =
            (plain_leaf::<L>(&self.leaf), if forward { self.end } else { self.first });
        debug_assert!(place < leaf.end(), "a window has a slot at its edge");
        let (end, _) = leaf.record(place, &mut self.key, self.prefix_len);
        self.sought.clear();
        self.sought.extend_from_slice(&self.key[..end]);
        let copied = self.tree.copy_rest(window.leaf, &mut self.leaf);
        if copied.is_ok() {
            (self.first, self.end) = (window.within.start, window.within.end);
        } else {
            self.go(Place::Sought);
            self.step_to_place(forward)?;
        }
        Ok(true)
    }
}
