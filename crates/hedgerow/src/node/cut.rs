//! Where to cut a sorted node in two, and at which separator: the same for every slotted layout.
//!
//! As in "B-Trees Are Back" section 2 the cut is near the middle, at the shortest separator that a
//! range of a sixteenth of the keys offers; unlike there the middle is that of the bytes, so that
//! both sides are sure to fit, and a node that has been filled in ascending (or descending) order
//! is cut where the next key goes, so that such loads leave full pages behind. Where a few large records fill a leaf,
//! the record to come is counted on its side, and may get a leaf of its own. Total over any page
//! that has passed its check at page-in; reads, and changes nothing; as thread-safe as the bytes.

use super::fields::{common_prefix, lower_fence, max_key_bytes, prefix, u16_at, upper_fence};
use super::layout::is_inner;
use super::separator;
use super::suffix::Suffix;
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
        /// Bytes of its value; in an inner node zero.
        value_bytes: usize,
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
pub(super) const SEQUENTIAL_RUN: usize = 8;

/// Records of a leaf below which each of them matters for the cut.
const FEW_RECORDS: usize = 16;

/// Insertions in one direction from which on a node with so many keys counts as filled in that direction. Of few
/// keys nearly all must have come so: two or three at random often do.
pub(super) fn sequential_run(count: usize) -> usize {
    match count {
        0..FEW_RECORDS => count.saturating_sub(1 + count / 8).clamp(1, SEQUENTIAL_RUN),
        _ => SEQUENTIAL_RUN,
    }
}

/// Of fewer keys any two are near to each other.
const FEW_KEYS: usize = 8;

/// How many places of so many keys are next to each other: threads that append to one place, and times with something random behind them,
/// come slightly out of order.
pub(super) fn near(count: usize) -> usize {
    if count < FEW_KEYS { 1 } else { (1 + count / 32).max(2) }
}

/// A record that is to come into a leaf.
#[derive(Clone, Copy)]
pub(super) struct Incoming {
    /// Bytes of its key without the prefix.
    pub suffix_len: usize,
    /// Bytes of its value.
    pub value_len: usize,
}

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

    /// Bytes that a record would have so.
    fn cost_of(&self, record: Incoming) -> usize;

    /// Bytes that a node takes which holds the records of `range` and perhaps another one, with a prefix that is longer by
    /// so many bytes, and so many bytes of fences.
    fn space(
        &self,
        range: Range<usize>,
        more: Option<Incoming>,
        longer: usize,
        fences: usize,
    ) -> usize;

    /// How steadily insertions went up, or down if negative.
    fn run(&self) -> i16 {
        u16_at(self.page(), super::fields::RUN) as u16 as i16
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
    /// If there is no cut that leaves something on either side, the record to come included.
    pub(super) fn choose(&self, hint: SplitHint<'_>) -> Split {
        if let SplitHint::Insert { index, key, value_bytes } = hint {
            let index = index.min(self.count);
            if let Some(split) = self.sequential(index, key, value_bytes) {
                return split;
            }
            if let Some(split) = self.beside(index, key, value_bytes) {
                return split;
            }
        }
        self.middle()
    }

    /// The cut of a leaf with few records, or for a large one, that leaves about as many bytes on either side, the record to
    /// come included. It may be all that is on its side.
    fn beside(&self, index: usize, key: &[u8], value_len: usize) -> Option<Split> {
        if self.inner || self.count == 0 {
            return None;
        }
        let suffix = self.suffix_of(key);
        let record = Incoming { suffix_len: suffix.len(), value_len };
        let come = self.node.cost_of(record);
        if self.count >= FEW_RECORDS && come * FEW_RECORDS < self.page.len() {
            return None;
        }
        let total = self.node.costs().sum::<usize>() + come;
        // The cuts, each with the side of the record to come, and how far it is from the middle.
        let mut cuts = Vec::with_capacity(self.count + 2);
        let mut below = 0;
        let costs = self.node.costs().chain([0]);
        for (cut, cost) in costs.enumerate() {
            let goes_left = [(cut > index).then_some(true), (cut < index).then_some(false)];
            let both = [Some(true), Some(false)];
            let sides = if cut == index { both } else { goes_left };
            for goes_left in sides.into_iter().flatten() {
                let left = below + if goes_left { come } else { 0 };
                if left > 0 && left < total {
                    cuts.push((total.abs_diff(2 * left), cut, goes_left));
                }
            }
            below += cost;
        }
        cuts.sort_unstable();
        cuts.into_iter().find_map(|(_, cut, goes_left)| {
            let rest = match (cut == index, goes_left) {
                (true, true) => separator::shortest(suffix, self.node.suffix(cut)),
                (true, false) => separator::shortest(self.node.suffix(cut - 1), suffix),
                _ => separator::shortest(self.node.suffix(cut - 1), self.node.suffix(cut)),
            };
            let separator = [self.prefix, rest.as_slice()].concat();
            let more = [goes_left.then_some(record), (!goes_left).then_some(record)];
            let longer = self.longer(&separator);
            let fits = self.fits_longer(cut, separator.len(), longer, more);
            fits.then_some(Split { index: cut, separator })
        })
    }

    fn suffix_of<'k>(&self, key: &'k [u8]) -> Suffix<'k> {
        self.node.foreign_suffix(key.get(self.prefix.len()..).unwrap_or(&[]))
    }

    /// Whether both sides of a cut with a separator of so many bytes fit into a page, whatever it
    /// is. The prefixes can only grow, so the records take at most what they take now.
    fn fits(&self, index: usize, separator_bytes: usize) -> bool {
        self.fits_longer(index, separator_bytes, [0; 2], [None; 2])
    }

    /// Whether both sides of a cut with this separator fit into a page.
    pub(super) fn fits_with(&self, index: usize, separator: &[u8]) -> bool {
        self.fits_longer(index, separator.len(), self.longer(separator), [None; 2])
    }

    /// By how much the prefixes of the two sides get longer with this separator.
    fn longer(&self, separator: &[u8]) -> [usize; 2] {
        let longer = |fence: Option<&[u8]>| match fence {
            Some(fence) if N::PREFIX => {
                common_prefix(fence, separator).saturating_sub(self.prefix.len())
            }
            _ => 0,
        };
        [longer(lower_fence(self.page)), longer(upper_fence(self.page))]
    }

    /// [`Self::fits`] where the prefixes of the two sides get longer by so many bytes, and a record more comes to
    /// one of them.
    fn fits_longer(
        &self,
        index: usize,
        separator_bytes: usize,
        longer: [usize; 2],
        more: [Option<Incoming>; 2],
    ) -> bool {
        let page = self.page.len();
        let lower = lower_fence(self.page).map_or(0, <[u8]>::len) + separator_bytes;
        let upper = upper_fence(self.page).map_or(0, <[u8]>::len) + separator_bytes;
        let from = index + usize::from(self.inner);
        self.node.space(0..index, more[0], longer[0], lower) <= page
            && self.node.space(from..self.count, more[1], longer[1], upper) <= page
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
        assert!(self.first <= self.last, "a node with so few keys has space and is not split");
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

    /// The cut of a leaf between the records at `low` and `high`, near the middle of them, at the shortest separator that an
    /// eighth of them on either side offers. `None` if there is no cut between them whose two sides fit into a page.
    pub(super) fn between(&self, low: usize, high: usize) -> Option<Split> {
        let (first, last) = ((low + 1).max(self.first), high.min(self.last));
        if self.inner || first > last {
            return None;
        }
        let middle = first + (last - first) / 2;
        let reach = (last - first) / 8;
        let fits = |index: &usize| self.fits(*index, self.separator_bytes(*index));
        let near = (middle - reach..=middle + reach).filter(fits);
        let index = near
            .min_by_key(|&index| (self.separator_bytes(index), index.abs_diff(middle)))
            .or_else(|| (first..=last).filter(fits).min_by_key(|index| index.abs_diff(middle)))?;
        Some(Split { index, separator: self.separator(index) })
    }

    /// The cut for a node that was filled in one direction: where the next key goes, so that one
    /// side is full and stays so, and the keys to follow find space on the other.
    ///
    /// Ascending keys that go to the node's end leave it whole and begin a new one. Where others
    /// follow (those of the next partition, with composite keys) these are cut off instead, and
    /// make space for more of the same; but a few of them are taken along. Descending keys the
    /// other way. They are not cut off while they are more than three fourths, nor if the key that comes is somewhere else than the
    /// last ones: where keys come in order between keys that are there, each cut would leave a few of them behind.
    ///
    /// At the end of the order a quarter of such a run is enough, and a key in the last quarter of the leaf: times with something
    /// random behind them come out of order by more than a run survives.
    fn sequential(&self, index: usize, key: &[u8], value_len: usize) -> Option<Split> {
        let run = self.node.run();
        let is_last = !self.inner
            && 4 * usize::try_from(run).unwrap_or(0) >= sequential_run(self.count)
            && 4 * (self.count - index) <= self.count
            && self.is_last();
        if !is_last && usize::from(run.unsigned_abs()) < sequential_run(self.count) {
            return None;
        }
        let ascending = run > 0;
        let others = if ascending { self.count - index } else { index };
        let last = u16_at(self.page, super::fields::LAST_INSERT);
        let is_apart = last.abs_diff(index) > near(self.count) || 4 * others > 3 * self.count;
        if !is_last && is_apart {
            return None;
        }
        let takes_along = is_last || 8 * others < self.count.max(1);
        let goes_right = ascending == takes_along;
        if self.inner {
            // The separator next to the one that comes moves up.
            return self.cut_at(if goes_right { index.checked_sub(1)? } else { index });
        }
        let key = self.suffix_of(key);
        let rest = if goes_right {
            separator::shortest(self.node.suffix(index.checked_sub(1)?), key)
        } else if index < self.count {
            separator::shortest(key, self.node.suffix(index))
        } else {
            return None;
        };
        let separator = [self.prefix, rest.as_slice()].concat();
        let record = Incoming { suffix_len: key.len(), value_len };
        let more = [(!goes_right).then_some(record), goes_right.then_some(record)];
        if separator.len() <= max_key_bytes(self.page.len()) {
            let longer = self.longer(&separator);
            let fits = |more| self.fits_longer(index, separator.len(), longer, more);
            match (fits(more), fits([None; 2])) {
                (true, _) => return Some(Split { index, separator }),
                // It is the record to come for which there is no room.
                (_, true) => return None,
                _ => {}
            }
        }
        // The new fence is what does not fit: leave one record less behind.
        self.cut_at(if goes_right { index - 1 } else { index + 1 })
    }

    /// Whether nothing in the tree comes behind this node, or nothing with its prefix, as far as the fence tells: one that was put ahead
    /// of the keys to follow is the prefix and the largest byte (`tree/split.rs`).
    fn is_last(&self) -> bool {
        upper_fence(self.page).is_none_or(|fence| {
            fence.strip_prefix(self.prefix).is_some_and(|rest| rest == [u8::MAX])
        })
    }

    /// The cut at `index`, if it leaves something on both sides and both fit.
    fn cut_at(&self, index: usize) -> Option<Split> {
        let fits = (self.first..=self.last).contains(&index)
            && self.fits(index, self.separator_bytes(index));
        fits.then(|| Split { index, separator: self.separator(index) })
    }
}
