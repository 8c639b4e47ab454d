//! Splits of inner nodes and comparison leaves. Where to cut is chosen by [`super::cut`]. Same
//! conditions as [`super::write`].

use super::cut::{Cut, Divisible, Incoming, Split, SplitHint};
use super::fields::{count, level, lower_fence, set_u32, u32_at, upper_fence};
use super::layout::{UPPER_CHILD, is_inner, rest_len, slot, slot_bytes, slots, space_needed};
use super::rung;
use super::suffix::Suffix;
use super::write::{NodeMut, hand_run_on};
use crate::page::header::{NEWEST_LSN, PageKind};
use std::ops::Range;

/// An inner node or a comparison leaf under the knife.
struct Whole<'p> {
    page: &'p [u8],
}

impl<'p> Whole<'p> {
    fn cut(page: &'p [u8]) -> Cut<'p, Self> {
        Cut::new(Whole { page })
    }
}

impl<'p> Divisible<'p> for Whole<'p> {
    const PREFIX: bool = rung::PREFIX;

    fn page(&self) -> &'p [u8] {
        self.page
    }

    fn count(&self) -> usize {
        count(self.page)
    }

    fn suffix(&self, index: usize) -> Suffix<'p> {
        Suffix::read(self.page, index)
    }

    fn foreign_suffix<'k>(&self, bytes: &'k [u8]) -> Suffix<'k> {
        Suffix::of(bytes)
    }

    fn costs(&self) -> impl Iterator<Item = usize> {
        let each = slot_bytes(self.page) + 4;
        slots(self.page, 0..count(self.page)).map(move |slot| slot.record_bytes() + each)
    }

    fn cost_of(&self, record: Incoming) -> usize {
        rest_len(record.suffix_len) + record.value_len + slot_bytes(self.page) + 4
    }

    fn space(
        &self,
        range: Range<usize>,
        more: Option<Incoming>,
        longer: usize,
        fences: usize,
    ) -> usize {
        let slots = slots(self.page, range.clone());
        let live: usize = slots.map(|slot| slot.shortened(longer).record_bytes()).sum();
        let more = more
            .map(|record| rest_len(record.suffix_len.saturating_sub(longer)) + record.value_len);
        let count = range.len() + usize::from(more.is_some());
        space_needed(slot_bytes(self.page), count, live + more.unwrap_or(0), fences)
    }
}

impl NodeMut<'_> {
    /// Chooses where to split.
    ///
    /// After the split an insertion that found no space may, with records near the limit, find none
    /// again: then the side that it goes to is split again. A leaf without records always has space for one.
    ///
    /// # Panics
    /// If a leaf has no record, or only one and the hint is [`SplitHint::Middle`], or an inner node has no separator; such a
    /// node never lacks space for a record of at most [`max_record_bytes`](super::max_record_bytes).
    pub fn choose_split(&self, hint: SplitHint<'_>) -> Split {
        Whole::cut(self.page).choose(hint)
    }

    /// Chooses where to split a leaf so that the records at these indices come to different sides. `None` if that is not
    /// possible.
    pub fn choose_split_between(&self, low: usize, high: usize) -> Option<Split> {
        Whole::cut(self.page).between(low, high)
    }

    /// Whether both sides of a cut with any separator, not only one of [`Self::choose_split`], fit into a
    /// page.
    pub fn fits_split(&self, split: &Split) -> bool {
        Whole::cut(self.page).fits_with(split.index, &split.separator)
    }

    /// Splits this node: it keeps the keys up to the separator, and `right`, a fresh page, becomes the
    /// node for those above it, on the same level and with the same newest LSN. Both get their fences
    /// and the prefix that follows from them.
    ///
    /// # Panics
    /// If `split` was not chosen for this node as it is, or the pages differ in size.
    pub fn split_into(&mut self, split: &Split, right: &mut [u8]) {
        assert_eq!(self.page.len(), right.len(), "pages of one tree have one size");
        let old = self.page.to_vec();
        let (count, index, inner) = (count(&old), split.index, is_inner(&old));
        let kind = if inner { PageKind::Inner } else { PageKind::ComparisonLeaf };
        let separator = Some(split.separator.as_slice());
        let upper_start = index + usize::from(inner);

        let mut upper = NodeMut::format(right, kind, level(&old), separator, upper_fence(&old));
        upper.page[NEWEST_LSN..NEWEST_LSN + 8].copy_from_slice(&old[NEWEST_LSN..NEWEST_LSN + 8]);
        upper.reserve_heads(count - upper_start);
        upper.append_from(&old, upper_start..count);
        upper.refresh_hints(0, 0);
        hand_run_on(&old, upper.page, upper_start);

        let mut lower = NodeMut::format(self.page, kind, level(&old), lower_fence(&old), separator);
        lower.page[NEWEST_LSN..NEWEST_LSN + 8].copy_from_slice(&old[NEWEST_LSN..NEWEST_LSN + 8]);
        lower.reserve_heads(index);
        lower.append_from(&old, 0..index);
        lower.refresh_hints(0, 0);
        hand_run_on(&old, lower.page, 0);

        if inner {
            set_u32(upper.page, UPPER_CHILD, u32_at(&old, UPPER_CHILD));
            set_u32(lower.page, UPPER_CHILD, slot(&old, index).child);
        }
    }
}
