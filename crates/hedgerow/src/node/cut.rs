//! Where to cut a sorted node in two, and at which separator: the same for every slotted layout.
//!
//! As in "B-Trees Are Back" section 2 the cut is near the middle, at the shortest separator that a
//! range of a sixteenth of the keys offers; unlike there the middle is that of the bytes, so that
//! both sides are sure to fit, and a node that has been filled in ascending (or descending) order
//! is cut where the next key goes, so that such loads leave full pages behind. Total over any page
//! that has passed its check at page-in; reads, and changes nothing; as thread-safe as the bytes.

use super::layout::{
    common_prefix, is_inner, lower_fence, max_record_bytes, prefix, u16_at, upper_fence,
};
use super::separator;
use super::split::{Split, SplitHint};
use super::suffix::Suffix;
use std::ops::Range;

/// Insertions in one direction from which on a node counts as filled in that direction.
pub(super) const SEQUENTIAL_RUN: usize = 8;

/// A node with sorted keys, as far as the choice of a cut depends on its layout.
pub(super) trait Divisible<'p> {
    /// Whether the prefix of the fences is cut off the keys.
    const PREFIX: bool;

    /// The bytes: fences, prefix and the run of insertions are where every layout has them.
    fn page(&self) -> &'p [u8];

    /// Records, or separators.
    fn count(&self) -> usize;

    /// The key at `index`, without the prefix.
    fn suffix(&self, index: usize) -> Suffix<'p>;

    /// Another key without the prefix, divided as those of [`Self::suffix`] are.
    fn foreign_suffix<'k>(&self, bytes: &'k [u8]) -> Suffix<'k>;

    /// Bytes of each record with all that belongs to it, in order.
    fn costs(&self) -> impl Iterator<Item = usize>;

    /// Bytes that a node takes which holds the records of `range`, with a prefix that is longer by
    /// so many bytes, and so many bytes of fences.
    fn space(&self, range: Range<usize>, longer: usize, fences: usize) -> usize;

    /// How steadily insertions went up, or down if negative.
    fn run(&self) -> i16 {
        u16_at(self.page(), super::layout::RUN) as u16 as i16
    }
}

/// The node under the knife. Cut `i` leaves the keys below index `i` on the left; in an inner node
/// separator `i` itself moves up.
pub(super) struct Cut<'p, N> {
    node: N,
    page: &'p [u8],
    prefix: &'p [u8],
    inner: bool,
    count: usize,
    /// First and last cut that leaves something on either side.
    first: usize,
    last: usize,
}

impl<'p, N: Divisible<'p>> Cut<'p, N> {
    pub(super) fn new(node: N) -> Self {
        let (page, count) = (node.page(), node.count());
        let inner = is_inner(page);
        Cut {
            node,
            page,
            prefix: prefix(page),
            inner,
            count,
            first: usize::from(!inner),
            last: count.saturating_sub(1),
        }
    }

    /// The best cut for what comes.
    ///
    /// # Panics
    /// If there is no cut that leaves something on either side.
    pub(super) fn choose(&self, hint: SplitHint<'_>) -> Split {
        assert!(self.first <= self.last, "a node with so few keys has space and is not split");
        if let SplitHint::Insert { index, key } = hint
            && let Some(split) = self.sequential(index, key)
        {
            return split;
        }
        self.middle()
    }

    /// Whether both sides of a cut with a separator of so many bytes fit into a page, whatever it
    /// is. The prefixes can only grow, so the records take at most what they take now.
    fn fits(&self, index: usize, separator_bytes: usize) -> bool {
        self.fits_longer(index, separator_bytes, [0; 2])
    }

    /// Whether both sides of a cut with this separator fit into a page.
    pub(super) fn fits_with(&self, index: usize, separator: &[u8]) -> bool {
        let longer = |fence: Option<&[u8]>| match fence {
            Some(fence) if N::PREFIX => {
                common_prefix(fence, separator).saturating_sub(self.prefix.len())
            }
            _ => 0,
        };
        let longer = [longer(lower_fence(self.page)), longer(upper_fence(self.page))];
        self.fits_longer(index, separator.len(), longer)
    }

    /// [`Self::fits`] where the prefixes of the two sides get longer by so many bytes.
    fn fits_longer(&self, index: usize, separator_bytes: usize, longer: [usize; 2]) -> bool {
        let page = self.page.len();
        let lower = lower_fence(self.page).map_or(0, <[u8]>::len) + separator_bytes;
        let upper = upper_fence(self.page).map_or(0, <[u8]>::len) + separator_bytes;
        let from = index + usize::from(self.inner);
        self.node.space(0..index, longer[0], lower) <= page
            && self.node.space(from..self.count, longer[1], upper) <= page
    }

    fn separator_bytes(&self, index: usize) -> usize {
        let len = if self.inner {
            self.node.suffix(index).len()
        } else {
            separator::shortest_len(self.node.suffix(index - 1), self.node.suffix(index))
        };
        self.prefix.len() + len
    }

    fn separator(&self, index: usize) -> Vec<u8> {
        let rest = if self.inner {
            let suffix = self.node.suffix(index);
            suffix.first_bytes(suffix.len())
        } else {
            separator::shortest(self.node.suffix(index - 1), self.node.suffix(index))
        };
        [self.prefix, rest.as_slice()].concat()
    }

    fn middle(&self) -> Split {
        let total: usize = self.node.costs().sum();
        let mut below = 0;
        let mut middle = self.last;
        for (index, cost) in self.node.costs().enumerate() {
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
        // Of large records a few make the difference: then the cut is the nearest one that fits. By
        // the arithmetic of `max_record_bytes` there is one.
        let fits = |index: &usize| self.fits(*index, self.separator_bytes(*index));
        let index = Some(best)
            .filter(fits)
            .or_else(|| {
                (self.first..=self.last).filter(fits).min_by_key(|index| index.abs_diff(middle))
            })
            .unwrap_or(middle);
        Split { index, separator: self.separator(index) }
    }

    /// The cut for a node that was filled in one direction: where the next key goes, so that one
    /// side is full and stays so, and the keys to follow find space on the other.
    ///
    /// Ascending keys that go to the node's end leave it whole and begin a new one. Where others
    /// follow (those of the next partition, with composite keys) these are cut off instead, and
    /// make space for more of the same; but a few of them are taken along. Descending keys the
    /// other way.
    fn sequential(&self, index: usize, key: &[u8]) -> Option<Split> {
        let run = self.node.run();
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
        let key = self.node.foreign_suffix(key.get(self.prefix.len()..).unwrap_or(&[]));
        let rest = if goes_right {
            separator::shortest(self.node.suffix(index.checked_sub(1)?), key)
        } else if index < self.count {
            separator::shortest(key, self.node.suffix(index))
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
