//! Splits of fingerprint leaves. Both sides come out sorted, and with fingerprints for their new
//! prefixes. Where to cut is chosen by [`super::super::cut`]. Same conditions as [`super::write`].

use super::super::cut::{Cut, Divisible, Incoming};
use super::super::cut::{Split, SplitHint};
use super::super::fields::{count, lower_fence, prefix, upper_fence};
use super::super::suffix::Suffix;
use super::super::write::hand_run_on;
use super::layout::{Measure, is_wide, slot_width, slots, suffix};
use super::write::FingerprintLeafMut;
use crate::page::header::NEWEST_LSN;
use std::ops::Range;

/// A sorted fingerprint leaf under the knife.
struct Sorted<'p>(&'p [u8]);

impl<'p> Divisible<'p> for Sorted<'p> {
    const PREFIX: bool = true;

    fn page(&self) -> &'p [u8] {
        self.0
    }

    fn count(&self) -> usize {
        count(self.0)
    }

    fn suffix(&self, index: usize) -> Suffix<'p> {
        Suffix::undivided(suffix(self.0, index))
    }

    fn foreign_suffix<'k>(&self, bytes: &'k [u8]) -> Suffix<'k> {
        Suffix::undivided(bytes)
    }

    fn costs(&self) -> impl Iterator<Item = usize> {
        let each = slot_width(is_wide(self.0)) + 1;
        slots(self.0, 0..count(self.0)).map(move |slot| slot.record_bytes() + each)
    }

    fn cost_of(&self, record: Incoming) -> usize {
        record.suffix_len + record.value_len + slot_width(is_wide(self.0)) + 1
    }

    fn space(
        &self,
        range: Range<usize>,
        more: Option<Incoming>,
        longer: usize,
        fences: usize,
    ) -> usize {
        let more = more.map(|record| {
            Measure::record(record.suffix_len.saturating_sub(longer), record.value_len)
        });
        (Measure::of(self.0, range, longer, 0) + more.unwrap_or_default()).space(fences)
    }
}

impl FingerprintLeafMut<'_> {
    /// Sorts the leaf and chooses where to split it. Of a hint the key is looked at; where it goes
    /// is found out here.
    ///
    /// After the split an insertion that found no space may, with records near the limit or with
    /// one that makes slots wide, find none again: then the side that it goes to is split again. A
    /// leaf without records always has space for one.
    ///
    /// # Panics
    /// If the leaf has no record, or only one and the hint is [`SplitHint::Middle`]; such a leaf never lacks space for a
    /// record of at most [`max_record_bytes`](super::super::max_record_bytes).
    pub fn choose_split(&mut self, hint: SplitHint<'_>) -> Split {
        self.sort();
        let hint = match hint {
            SplitHint::Insert { key, value_bytes, .. } => {
                let index = self.as_leaf().search(key).index;
                SplitHint::Insert { index, key, value_bytes }
            }
            SplitHint::Middle => SplitHint::Middle,
        };
        Cut::new(Sorted(self.page)).choose(hint)
    }

    /// Sorts the leaf and chooses where to split it so that two keys, which have records in it, come to different sides.
    /// `None` if that is not possible.
    pub fn choose_split_between(&mut self, low: &[u8], high: &[u8]) -> Option<Split> {
        self.sort();
        let [low, high] = [low, high].map(|key| self.as_leaf().search(key).index);
        Cut::new(Sorted(self.page)).between(low, high)
    }

    /// Whether both sides of a cut with any separator, not only one of [`Self::choose_split`], fit
    /// into a page. The leaf is sorted, as [`Self::choose_split`] leaves it.
    pub fn fits_split(&self, split: &Split) -> bool {
        Cut::new(Sorted(self.page)).fits_with(split.index, &split.separator)
    }

    /// Splits this leaf: it keeps the keys up to the separator, and `right`, a fresh page, becomes
    /// the leaf for those above it, with the same newest LSN. Both get their fences and the prefix
    /// that follows from them.
    ///
    /// # Panics
    /// If `split` was not chosen for this leaf as it is, or the pages differ in size.
    pub fn split_into(&mut self, split: &Split, right: &mut [u8]) {
        assert_eq!(self.page.len(), right.len(), "pages of one tree have one size");
        self.sort();
        let old = self.page.to_vec();
        let separator = Some(split.separator.as_slice());
        let upper = FingerprintLeafMut::format(right, separator, upper_fence(&old));
        upper.take(&old, split.index..count(&old));
        let lower = FingerprintLeafMut::format(self.page, lower_fence(&old), separator);
        lower.take(&old, 0..split.index);
    }

    /// Fills an empty leaf, whose prefix is at least as long, with records of a sorted one.
    fn take(mut self, source: &[u8], range: Range<usize>) {
        self.page[NEWEST_LSN..NEWEST_LSN + 8].copy_from_slice(&source[NEWEST_LSN..NEWEST_LSN + 8]);
        let longer = prefix(self.page).len().saturating_sub(prefix(source).len());
        self.reserve(Measure::of(source, range.clone(), longer, 0));
        let start = range.start;
        self.append_from(source, range);
        hand_run_on(source, self.page, start);
        self.set_sorted();
    }
}
