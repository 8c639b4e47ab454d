//! What helps when a dense leaf refuses a record: a split, or the comparison layout.
//!
//! "B-Trees Are Back" section 3.5 (dense leaf split): a key beyond the last slot moves nothing. The
//! leaf keeps all that it has, its upper fence comes down to its last slot, and an empty leaf
//! begins behind it; so that ascending loads leave leaves of which every slot is used. The same
//! below the first slot. A leaf that holds few records becomes a comparison leaf instead, else
//! there could be a leaf for each record. Within the slots a semi-dense leaf without space is cut
//! near the middle, at a multiple of what such a leaf holds if there is one (see `criterion`).
//!
//! Separators are whole keys of the leaf's shape, which name the numbers where slots begin, or its stem, before the number 0.
//! Same conditions as [`super::write`].

use super::criterion::{Growth, growth_of, nearest_multiple};
use super::fields::{base, capacity, fences, shape};
use super::layout::{Contents, DenseLayout};
use super::presence::{self, Slots};
use super::records::comparison_space;
use super::semi::record_bytes;
use super::shape::numeric;
use super::write::{DenseMut, copy_lsn, room};
use crate::node::fields::{LOWER_LEN, count, lower_fence, u16_at, upper_fence};
use crate::node::write::NodeMut;
use crate::page::header::PageKind;
use hedgerow_sync::optimistic::PlainBytes;
use std::ops::Range;

/// What makes room for a record that was [`super::Refused`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Remedy {
    /// [`super::to_comparison`]: there is room for all records and the one to come in that layout.
    ToComparison,
    /// A split; the record then goes to the side that its key belongs to, and may be refused there
    /// for another reason, with a remedy of its own.
    Split(DenseSplit),
}

/// A split that has been chosen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DenseSplit {
    /// Upper fence of the left leaf, lower fence of the right one, and what the parent gets.
    pub separator: Vec<u8>,
    cut: Cut,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Cut {
    /// All stays on the left; the right is empty, and dense if a key is named that it is to be
    /// like.
    Above { slots: usize, like: Option<(Vec<u8>, usize)> },
    /// All goes to the right; the left is empty.
    Below { like: Option<(Vec<u8>, usize)> },
    /// Records of numbers below this one stay on the left.
    At(u64),
}

impl<V: DenseLayout> DenseMut<'_, V> {
    /// Chooses what to do about a record that was refused; `value_len` is the length of its value.
    /// What comes of it holds all records, and repeated as often as the record is refused it ends.
    pub fn choose_remedy(&self, key: &[u8], value_len: usize) -> Remedy {
        let space = comparison_space::<V>(self.page, Some((key.len(), value_len)));
        if space <= self.page.len() / 2 || count(self.page) < 2 {
            return Remedy::ToComparison;
        }
        let node = self.as_node();
        let shape = shape(self.page);
        // A fully dense leaf has one length of values, and it is not this one.
        let is_ours = shape.has(key) && (!V::ONE_SIZE || node.value_len(0) == value_len);
        let at = node.lower_bound(key);
        if node.common().covers(key) {
            let is_first = shape.has(key) && numeric(key) == node.base();
            let outside = match at {
                0 if !is_first => self.below(key, value_len, is_ours),
                _ => self.above(at, key, value_len, is_ours),
            };
            if let Some(split) = outside {
                return Remedy::Split(split);
            }
        }
        if !is_ours && space <= self.page.len() {
            return Remedy::ToComparison;
        }
        Remedy::Split(self.middle(at))
    }

    /// The split behind the last slot in use, if the key, which would be in slot `at`, belongs
    /// there.
    fn above(&self, at: usize, key: &[u8], value_len: usize, is_ours: bool) -> Option<DenseSplit> {
        let slots = if V::ONE_SIZE { capacity(self.page) } else { self.slots_in_use() };
        let end = u64::from(base(self.page)) + slots as u64;
        let number = u64::from(numeric(key));
        if at < slots || slots == 0 {
            return None;
        }
        // A semi-dense leaf without space may be so at any place: only if the next keys, too, go
        // behind all that it has, or this one goes far behind, it is left as it is.
        let far = !is_ours || number >= end + slots as u64 / 8;
        if !V::ONE_SIZE && !far && growth_of(self.page) != Growth::Up {
            return None;
        }
        let near = is_ours && (end..end + capacity(self.page) as u64).contains(&number);
        let like = near.then(|| (key.to_vec(), value_len));
        let separator = shape(self.page).key(u32::try_from(end - 1).ok()?);
        Some(DenseSplit { separator, cut: Cut::Above { slots, like } })
    }

    /// The split before the first slot, for a key below it.
    fn below(&self, key: &[u8], value_len: usize, is_ours: bool) -> Option<DenseSplit> {
        let shape = shape(self.page);
        // Before the number 0 is the stem. The left leaf's range goes up to the first slot, so that it is good for more keys.
        let before = base(self.page).checked_sub(1).map(|number| shape.key(number));
        let before = before.unwrap_or_else(|| shape.stem().to_vec());
        // Of another shape the key may be above what is before the first slot.
        let separator = if before.as_slice() >= key { before } else { key.to_vec() };
        // The slots stay where they are, so that there must be room for the fence.
        if separator.len() > shape.key_len().max(u16_at(self.page, LOWER_LEN)) {
            return None;
        }
        let near = is_ours && base(self.page) - numeric(key) <= capacity(self.page) as u32;
        let like = near.then(|| (key.to_vec(), value_len));
        Some(DenseSplit { separator, cut: Cut::Below { like } })
    }

    /// The split that leaves records on both sides, of which there are two or more: near the middle
    /// of them, or, where keys ascend or descend, beside slot `at`, where the next one goes.
    fn middle(&self, at: usize) -> DenseSplit {
        let node = self.as_node();
        let (count, base) = (node.count(), u64::from(node.base()));
        let number = |rank| node.place_of_rank(rank).map_or(0, |place| base + place as u64);
        let mut cut = number(count / 2);
        if !V::ONE_SIZE {
            let contents = self.contents(0..capacity(self.page));
            let (lower, upper) = (lower_fence(self.page), upper_fence(self.page));
            let room = room(self.page.len(), node.key_len(), lower, upper);
            let unit = V::unit(room, &contents) as u64;
            let (above, most) = (number(count / 8), number(count - 1 - count / 8));
            let (before, behind) = (node.rank(at), count - node.rank(at));
            cut = match growth_of(self.page) {
                Growth::Up if (1..=count / 8).contains(&behind) => base + at as u64,
                Growth::Down if before <= count / 8 => number(before.max(1)),
                _ => nearest_multiple(base, unit, cut, above, most).unwrap_or(cut),
            };
        }
        // There is a record below the one in the middle, so the cut is above the first slot.
        let separator = shape(self.page).key(cut.saturating_sub(1) as u32);
        DenseSplit { separator, cut: Cut::At(cut) }
    }

    /// Chooses where to split so that the records at two places come to different sides: at the record in the middle of
    /// them. `None` if `high` is not behind `low`.
    pub fn choose_split_between(&self, low: usize, high: usize) -> Option<DenseSplit> {
        let node = self.as_node();
        let (low, high) = (node.rank(low), node.rank(high));
        if low >= high {
            return None;
        }
        let place = node.place_of_rank(low + (high - low).div_ceil(2))?;
        let cut = u64::from(node.base()) + place as u64;
        // There is a record below it.
        let separator = shape(self.page).key(cut.checked_sub(1)? as u32);
        Some(DenseSplit { separator, cut: Cut::At(cut) })
    }

    /// Slots up to the last one that has a record.
    fn slots_in_use(&self) -> usize {
        self.as_node().previous_place(usize::MAX).map_or(0, |last| last + 1)
    }

    /// What a range of slots holds, which is not empty.
    fn contents(&self, slots: Range<usize>) -> Contents {
        let node = self.as_node();
        let places = Slots::new(self.page, slots.clone());
        let lens = || places.clone().map(|place| node.value_len(place));
        let number = |place: Option<usize>| node.base().wrapping_add(place.unwrap_or(0) as u32);
        Contents {
            count: presence::count_in(PlainBytes::new(self.page), slots),
            numbers: (number(places.clone().next()), number(places.clone().next_back())),
            value_bytes: lens().sum(),
            value_len: lens().next(),
            heap_bytes: lens().map(record_bytes).sum(),
        }
    }

    /// Splits this leaf: it keeps the keys up to the separator, and `right`, a fresh page, becomes
    /// the leaf for those above it, with the same newest LSN. Only if the layout is to be kept, a leaf without records
    /// gets it.
    ///
    /// # Panics
    /// If `split` was not chosen for this leaf as it is, or the pages differ in size.
    pub fn split_into(&mut self, split: &DenseSplit, right: &mut [u8], is_kept: bool) {
        assert_eq!(self.page.len(), right.len(), "pages of one tree have one size");
        let separator = Some(split.separator.as_slice());
        let (lower, upper) = fences(self.page);
        let (lower, upper) = (lower.as_deref(), upper.as_deref());
        match &split.cut {
            Cut::Above { slots, like } => {
                format_empty::<V>(right, separator, upper, like.as_ref().filter(|_| is_kept));
                V::trim(self.page, *slots);
                self.set_fences(lower, separator);
                copy_lsn(right, self.page);
            }
            Cut::Below { like } => {
                DenseMut::<V>::copy_with_lower(right, self.page, &split.separator);
                let like = like.as_ref().filter(|_| is_kept);
                format_empty::<V>(self.page, lower, separator, like);
                copy_lsn(self.page, right);
            }
            Cut::At(number) => {
                let mut old = self.page.to_vec();
                let old = DenseMut::<V>::new(&mut old);
                let cut = number.saturating_sub(base(old.page).into()) as usize;
                let end = capacity(old.page);
                old.copy_slots(cut..end, separator, upper, right);
                old.copy_slots(0..cut, lower, separator, self.page);
            }
        }
    }

    /// Makes a leaf of this layout of a range of slots that is not empty.
    fn copy_slots(
        &self,
        slots: Range<usize>,
        lower: Option<&[u8]>,
        upper: Option<&[u8]>,
        to: &mut [u8],
    ) {
        let shape = shape(self.page);
        let contents = self.contents(slots.clone());
        let room = room(to.len(), shape.key_len(), lower, upper);
        let allowed = shape.between(lower, upper);
        let frame = V::frame(room, &contents, allowed, growth_of(self.page))
            .expect("a part of a leaf fits into a page of its size");
        let field = V::value_field(&contents);
        let mut leaf = DenseMut::<V>::lay_out(to, lower, upper, shape, field, frame);
        leaf.append_from(self.page, slots);
        copy_lsn(leaf.page, self.page);
    }
}

/// Makes an empty leaf: a dense one for records like this one, or a comparison leaf.
fn format_empty<V: DenseLayout>(
    page: &mut [u8],
    lower: Option<&[u8]>,
    upper: Option<&[u8]>,
    like: Option<&(Vec<u8>, usize)>,
) {
    let dense = like.is_some_and(|(key, value_len)| {
        DenseMut::<V>::format(page, lower, upper, key, *value_len).is_ok()
    });
    if !dense {
        NodeMut::format(page, PageKind::ComparisonLeaf, 0, lower, upper);
    }
}
