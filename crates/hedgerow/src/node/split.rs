//! Splits: where to cut a node, which separator to cut at, and the cut itself.
//!
//! As in "B-Trees Are Back" section 2 the cut is near the middle, at the shortest separator that a range
//! of a sixteenth of the keys offers; unlike there the middle is that of the bytes, so that both sides
//! are sure to fit, and a node that has been filled in ascending (or descending) order is cut where the
//! next key goes, so that such loads leave full pages behind. Same conditions as [`super::write`].

use super::ladder::Ladder;
use super::layout::{
    RUN, UPPER_CHILD, common_prefix, count, is_inner, level, lower_fence, max_record_bytes, prefix,
    set_u32, slot, slot_bytes, space_needed, u16_at, u32_at, upper_fence,
};
use super::separator;
use super::suffix::Suffix;
use super::write::NodeMut;
use crate::page::header::{NEWEST_LSN, PageKind};
use std::marker::PhantomData;
use std::ops::Range;

/// What a split is for.
#[derive(Clone, Copy, Debug)]
pub enum SplitHint<'k> {
    /// Nothing is known of what comes: cut in the middle.
    Middle,
    /// A key (in an inner node: a separator) is to be inserted at `index`, and there was no space.
    Insert {
        /// Where it goes.
        index: usize,
        /// The key, prefix included.
        key: &'k [u8],
    },
}

/// A cut that has been chosen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Split {
    /// A leaf's records (an inner node's separators) below this index stay in the left node. In an
    /// inner node the separator *at* this index moves up, and its child becomes the left upper child.
    pub index: usize,
    /// Upper fence of the left node, lower fence of the right one, and what the parent gets.
    pub separator: Vec<u8>,
}

/// Insertions in one direction from which on a node counts as filled in that direction.
const SEQUENTIAL_RUN: usize = 8;

impl<L: Ladder> NodeMut<'_, L> {
    /// Chooses where to split.
    ///
    /// After the split an insertion that found no space may, with records near the limit, find none
    /// again: then the side that it goes to is split again. A node with one record always has space for
    /// one more.
    ///
    /// # Panics
    /// If a leaf has fewer than two records, or an inner node no separator; such a node never lacks
    /// space for a record of at most [`max_record_bytes`].
    pub fn choose_split(&self, hint: SplitHint<'_>) -> Split {
        let cut = Cut::<L>::new(self.page);
        assert!(cut.first <= cut.last, "a node with so few keys has space and is not split");
        if let SplitHint::Insert { index, key } = hint
            && let Some(split) = cut.sequential(index, key)
        {
            return split;
        }
        cut.middle()
    }

    /// Whether both sides of a cut with any separator, not only one of [`Self::choose_split`], fit into a
    /// page.
    pub fn fits_split(&self, split: &Split) -> bool {
        Cut::<L>::new(self.page).fits_with(split.index, &split.separator)
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

        let mut upper =
            NodeMut::<L>::format(right, kind, level(&old), separator, upper_fence(&old));
        upper.page[NEWEST_LSN..NEWEST_LSN + 8].copy_from_slice(&old[NEWEST_LSN..NEWEST_LSN + 8]);
        upper.reserve_heads(count - upper_start);
        upper.append_from(&old, upper_start..count);
        upper.refresh_hints(0, 0);

        let mut lower =
            NodeMut::<L>::format(self.page, kind, level(&old), lower_fence(&old), separator);
        lower.page[NEWEST_LSN..NEWEST_LSN + 8].copy_from_slice(&old[NEWEST_LSN..NEWEST_LSN + 8]);
        lower.reserve_heads(index);
        lower.append_from(&old, 0..index);
        lower.refresh_hints(0, 0);

        if inner {
            set_u32(upper.page, UPPER_CHILD, u32_at(&old, UPPER_CHILD));
            set_u32(lower.page, UPPER_CHILD, slot(&old, index).child);
        }
    }
}

/// The node under the knife. Cut `i` leaves the keys below index `i` on the left; in an inner node
/// separator `i` itself moves up.
struct Cut<'p, L> {
    page: &'p [u8],
    prefix: &'p [u8],
    inner: bool,
    count: usize,
    /// First and last cut that leaves something on either side.
    first: usize,
    last: usize,
    ladder: PhantomData<L>,
}

impl<'p, L: Ladder> Cut<'p, L> {
    fn new(page: &'p [u8]) -> Self {
        let (count, inner) = (count(page), is_inner(page));
        Cut {
            page,
            prefix: prefix(page),
            inner,
            count,
            first: usize::from(!inner),
            last: count.saturating_sub(1),
            ladder: PhantomData,
        }
    }

    /// Bytes of record `index` with its slot.
    fn cost(&self, index: usize) -> usize {
        slot(self.page, index).record_bytes::<L>() + slot_bytes(self.page) + 4
    }

    /// Whether both sides of a cut with a separator of so many bytes fit into a page, whatever it is. The
    /// prefixes can only grow, so the records take at most what they take now.
    fn fits(&self, index: usize, separator_bytes: usize) -> bool {
        self.fits_longer(index, separator_bytes, [0; 2])
    }

    /// Whether both sides of a cut with this separator fit into a page.
    fn fits_with(&self, index: usize, separator: &[u8]) -> bool {
        let longer = |fence: Option<&[u8]>| match fence {
            Some(fence) if L::PREFIX => {
                common_prefix(fence, separator).saturating_sub(self.prefix.len())
            }
            _ => 0,
        };
        let longer = [longer(lower_fence(self.page)), longer(upper_fence(self.page))];
        self.fits_longer(index, separator.len(), longer)
    }

    /// [`Self::fits`] where the prefixes of the two sides get longer by so many bytes.
    fn fits_longer(&self, index: usize, separator_bytes: usize, longer: [usize; 2]) -> bool {
        let bytes = |range: Range<usize>, longer| -> usize {
            let slots = range.map(|index| slot(self.page, index));
            slots.map(|slot| slot.shortened(longer).record_bytes::<L>()).sum()
        };
        let page = self.page.len();
        let width = slot_bytes(self.page);
        let lower = lower_fence(self.page).map_or(0, <[u8]>::len) + separator_bytes;
        let upper = upper_fence(self.page).map_or(0, <[u8]>::len) + separator_bytes;
        let from = index + usize::from(self.inner);
        space_needed::<L>(width, index, bytes(0..index, longer[0]), lower) <= page
            && space_needed::<L>(
                width,
                self.count - from,
                bytes(from..self.count, longer[1]),
                upper,
            ) <= page
    }

    fn suffix(&self, index: usize) -> Suffix<'p> {
        Suffix::read::<L>(self.page, index)
    }

    fn separator_bytes(&self, index: usize) -> usize {
        let len = if self.inner {
            slot(self.page, index).suffix_len
        } else {
            separator::shortest_len(self.suffix(index - 1), self.suffix(index))
        };
        self.prefix.len() + len
    }

    fn separator(&self, index: usize) -> Vec<u8> {
        let rest = if self.inner {
            let suffix = self.suffix(index);
            suffix.first_bytes(suffix.len())
        } else {
            separator::shortest(self.suffix(index - 1), self.suffix(index))
        };
        [self.prefix, rest.as_slice()].concat()
    }

    fn middle(&self) -> Split {
        let total: usize = (0..self.count).map(|index| self.cost(index)).sum();
        let mut below = 0;
        let mut middle = self.last;
        for index in 0..self.count {
            let cost = self.cost(index);
            if 2 * below + cost >= total {
                middle = index;
                break;
            }
            below += cost;
        }
        let middle = middle.clamp(self.first, self.last);
        let reach = self.count / 32;
        let best = (0..=reach)
            .flat_map(|distance| [middle.saturating_sub(distance), middle + distance])
            .filter(|index| (self.first..=self.last).contains(index))
            .min_by_key(|&index| self.separator_bytes(index))
            .unwrap_or(middle);
        // Of large records a few make the difference: then the cut is the nearest one that fits. By the
        // arithmetic of `max_record_bytes` there is one.
        let fits = |index: &usize| self.fits(*index, self.separator_bytes(*index));
        let index = Some(best)
            .filter(fits)
            .or_else(|| {
                (self.first..=self.last).filter(fits).min_by_key(|index| index.abs_diff(middle))
            })
            .unwrap_or(middle);
        Split { index, separator: self.separator(index) }
    }

    /// The cut for a node that was filled in one direction: where the next key goes, so that one side is
    /// full and stays so, and the keys to follow find space on the other.
    ///
    /// Ascending keys that go to the node's end leave it whole and begin a new one. Where others
    /// follow (those of the next partition, with composite keys) these are cut off instead, and make
    /// space for more of the same; but a few of them are taken along. Descending keys the other way.
    fn sequential(&self, index: usize, key: &[u8]) -> Option<Split> {
        let run = u16_at(self.page, RUN) as u16 as i16;
        if usize::from(run.unsigned_abs()) < SEQUENTIAL_RUN.min(self.count / 2).max(1) {
            return None;
        }
        let index = index.min(self.count);
        let ascending = run > 0;
        let others = if ascending { self.count - index } else { index };
        let goes_right = ascending == (8 * others < self.count.max(1));
        if self.inner {
            // The separator next to the one that comes moves up.
            return self.cut_at(if goes_right { index.checked_sub(1)? } else { index });
        }
        let key = Suffix::of::<L>(key.get(self.prefix.len()..).unwrap_or(&[]));
        let rest = if goes_right {
            separator::shortest(self.suffix(index.checked_sub(1)?), key)
        } else if index < self.count {
            separator::shortest(key, self.suffix(index))
        } else {
            return None;
        };
        let separator = [self.prefix, rest.as_slice()].concat();
        if separator.len() <= max_record_bytes(self.page.len()) && self.fits_with(index, &separator)
        {
            return Some(Split { index, separator });
        }
        // The new fence is what does not fit: leave one record less behind.
        self.cut_at(if goes_right { index - 1 } else { index + 1 })
    }

    /// The cut at `index`, if it leaves something on both sides and both fit.
    fn cut_at(&self, index: usize) -> Option<Split> {
        let fits = (self.first..=self.last).contains(&index)
            && self.fits(index, self.separator_bytes(index));
        fits.then(|| Split { index, separator: self.separator(index) })
    }
}
