//! What a cursor copies first of a fully dense leaf: all that tells where records are, and few values.
//!
//! Such a leaf has hundreds of records in a page, of which a short scan wants a few, and to copy the page is
//! half of such a scan. So a cursor that is sent to a key copies the header, the presence bits, the fences, and the
//! values of [`WINDOW_SLOTS`] slots in its direction. When it leaves these, in either direction, it copies the whole leaf, if that is
//! still the version that it was; else it goes to its place anew, from the root, as if the leaf had ended there.
//!
//! Invariants: all that was copied was there at one moment; while there is a window the cursor's `first..end` lie
//! in it, so that no value is looked at that was not copied. Thread-safety: that of [`Cursor`](super::Cursor).

use super::Tree;
use super::descend::Target;
use super::descend::Trail;
use crate::error::Result;
use crate::node::Leaf;
use crate::page::{OptimisticPage, PageMark, Pages, Restart};
use hedgerow_sync::optimistic::PageBytes;
use std::ops::Range;

/// Slots whose values are copied at first: with values of eight bytes eight cache lines.
const WINDOW_SLOTS: usize = 64;

/// Of which leaf there is a part alone, and which.
pub(super) struct Window {
    pub(super) leaf: PageMark,
    pub(super) slots: Range<usize>,
    /// The places of the leaf that are in the cursor's bounds.
    pub(super) within: Range<usize>,
}

impl<P: Pages> Tree<P> {
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
            _ => Ok((self.copy_leaf(target, true, to)?, None)),
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
        // Where a scan begins; the leaves behind it are not kept in memory for it.
        page.note_use();
        let window = match (target, Leaf::new(page.bytes())) {
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
    pub(super) fn copy_rest(&self, leaf: PageMark, to: &mut [u8]) -> Result<(), Restart> {
        let page = OptimisticPage::resume(&*self.pool, leaf)?;
        page.bytes().copy(0, to);
        page.validate()
    }
}
