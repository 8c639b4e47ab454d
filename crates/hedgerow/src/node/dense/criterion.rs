//! The decisions: when a leaf is dense enough, and where to cut a comparison leaf so that dense
//! leaves come of it. Pure functions; what they give is a proposal that other code checks before it
//! acts.
//!
//! **Density** ("B-Trees Are Back" section 5.1: dense leaves wherever they can be used). A dense
//! layout is used if it takes at most an eighth more bits for the range of the keys than the
//! comparison layout takes for the records: with keys of four bytes and values of eight that is
//! from 40 % of the numbers on for fully dense leaves, from 20 % on for semi-dense ones. The way
//! back is hysteresis: [`super::Remedy`] asks for it below half a page of records.
//!
//! **Cuts.** The paper cuts a comparison leaf that holds the end of one sequence and the beginning
//! of the next between the two, whenever that leaves half of it; which on random insertions makes
//! leaves that are left half full. Here
//!
//! - that cut is made only where insertions are known to ascend ([`Growth::Up`]), and
//! - where they are not, a leaf of dense-looking keys is cut at a *multiple of what a dense leaf
//!   holds*, counted from its lower fence, that is nearest to its middle. Once all numbers have
//!   come, each leaf is full: random insertions end with leaves as full as ascending ones leave
//!   them, where cuts in the middle leave them between half full and full.

use super::layout::Refused;
use super::layout::{Contents, DenseLayout};
use super::semi;
use super::shape::{KeyShape, numeric};
use super::write::room;
use crate::node::cut::Split;
use crate::node::cut::sequential_run;
use crate::node::fields::{RUN, count, lower_fence, prefix, u16_at, upper_fence};
use crate::node::layout::{rest_len, slot, slots};
use crate::node::separator;
use crate::node::suffix::Suffix;
use crate::node::write::NodeMut;
use crate::page::header::{KIND, PageKind};
use std::ops::Range;

pub use super::layout::Growth;

/// Eighths of the comparison layout's bits that a dense layout may take.
const ALLOWED_EIGHTHS: usize = 9;

/// Bytes that a comparison leaf takes for a record beside its value and the rest of its key.
const COMPARISON_SLOT_BYTES: usize = 10;

/// Most dense leaves that a range may be good for to be cut at a multiple of them: beyond, keys are
/// so few that nothing is known of them yet. The last of so many leaves is not full.
const MOST_UNITS: u64 = 4096;

/// Whether a dense layout pays for `records` in a range of `slots` numbers; `value_bytes` is the
/// size of all values together, `rest_bytes` what a comparison leaf keeps of each key behind prefix
/// and head.
pub fn is_dense_enough<V: DenseLayout>(
    records: usize,
    slots: usize,
    value_bytes: usize,
    rest_bytes: usize,
) -> bool {
    let comparison = 8 * (records * (COMPARISON_SLOT_BYTES + rest_bytes) + value_bytes);
    8 * V::bits(records, slots, value_bytes) <= ALLOWED_EIGHTHS * comparison
}

/// In which direction a leaf of any of these layouts has been filled.
pub fn growth_of(page: &[u8]) -> Growth {
    let run = u16_at(page, RUN) as u16 as i16;
    if usize::from(run.unsigned_abs()) < sequential_run(count(page)) {
        Growth::Unknown
    } else if run > 0 {
        Growth::Up
    } else {
        Growth::Down
    }
}

/// The multiple of `unit` behind `start` that is nearest to `near`, above `above` and at most
/// `most`.
pub(super) fn nearest_multiple(
    start: u64,
    unit: u64,
    near: u64,
    above: u64,
    most: u64,
) -> Option<u64> {
    let steps = near.checked_sub(start)?.checked_div(unit)?;
    let cuts = [start.checked_add(steps.checked_mul(unit)?)?, start + (steps + 1) * unit];
    cuts.into_iter().filter(|cut| above < *cut && *cut <= most).min_by_key(|c| c.abs_diff(near))
}

/// Where to cut a comparison leaf that has no space for a record at `index` (and that cannot be
/// converted as it is), so that dense leaves of layout `V` come of it. `None` if its keys do not
/// look like that: then it is cut as any other.
pub fn choose_cut<V: DenseLayout>(
    node: &NodeMut<'_>,
    index: usize,
    key: &[u8],
    value_len: usize,
) -> Option<Split> {
    let leaf = Leaf::new(node.bytes(), key)?;
    let split = match growth_of(node.bytes()) {
        Growth::Up => leaf.behind_sequence::<V>(index, key, value_len),
        Growth::Down => None,
        Growth::Unknown => leaf.at_multiple::<V>(value_len),
    }?;
    node.fits_split(&split).then_some(split)
}

/// Looks at as little of a comparison leaf as tells that it cannot become dense, with a record to
/// come that has this key and a value of this length. What passes may still turn out not to fit.
pub(super) fn may_be_dense<V: DenseLayout>(
    page: &[u8],
    key: &[u8],
    value_len: usize,
) -> Result<(), Refused> {
    let leaf = Leaf::new(page, key).ok_or(Refused::Sparse)?;
    let (first, last) = leaf.outer_numbers()?;
    let same_size = |index| slot(page, index).value_len == value_len;
    if V::ONE_SIZE && !(same_size(0) && same_size(count(page) - 1)) {
        return Err(Refused::ValueLength);
    }
    let records = count(page);
    let value_bytes = leaf.contents::<V>(0..records, value_len).value_bytes;
    match is_dense_enough::<V>(records, (last - first) as usize + 1, value_bytes, leaf.rest_len()) {
        true => Ok(()),
        false => Err(Refused::Sparse),
    }
}

/// A comparison leaf, and the shape of keys that is asked for in it.
struct Leaf<'p> {
    page: &'p [u8],
    shape: KeyShape<'p>,
}

impl<'p> Leaf<'p> {
    /// `None` if the page is none, or has fewer than two records.
    fn new(page: &'p [u8], key: &'p [u8]) -> Option<Self> {
        let is_leaf = page[KIND] == PageKind::ComparisonLeaf as u8;
        let shape = KeyShape::of(key)?;
        (is_leaf && count(page) > 1).then_some(Leaf { page, shape })
    }

    fn key(&self, index: usize) -> Vec<u8> {
        let suffix = Suffix::read(self.page, index);
        [prefix(self.page), suffix.first_bytes(suffix.len()).as_slice()].concat()
    }

    /// The number of a key.
    ///
    /// # Errors
    /// If it has another shape.
    fn number(&self, index: usize) -> Result<u64, Refused> {
        if prefix(self.page).len() + slot(self.page, index).suffix_len != self.shape.key_len() {
            return Err(Refused::KeyLength);
        }
        let key = self.key(index);
        match key.starts_with(self.shape.stem()) {
            true => Ok(numeric(&key).into()),
            false => Err(Refused::Stem),
        }
    }

    /// The numbers of the first and the last key, in order.
    fn outer_numbers(&self) -> Result<(u64, u64), Refused> {
        let (first, last) = (self.number(0)?, self.number(count(self.page) - 1)?);
        if first < last { Ok((first, last)) } else { Err(Refused::Sparse) }
    }

    /// Whether all keys of a range have the length that is asked for, and the values one that goes
    /// with the layout. In order, all keys between two of one length and stem have that stem.
    fn is_uniform<V: DenseLayout>(&self, records: Range<usize>, value_len: usize) -> bool {
        let suffix = self.shape.key_len().checked_sub(prefix(self.page).len());
        slots(self.page, records).all(|slot| {
            Some(slot.suffix_len) == suffix && (!V::ONE_SIZE || slot.value_len == value_len)
        })
    }

    /// Bytes of the keys asked for that are in records.
    fn rest_len(&self) -> usize {
        rest_len(self.shape.key_len().saturating_sub(prefix(self.page).len()))
    }

    /// What some records look like to a dense leaf, their numbers aside. For a layout that has values of one
    /// size alone they count as such: whoever acts on it looks whether they are.
    fn contents<V: DenseLayout>(&self, records: Range<usize>, value_len: usize) -> Contents {
        let count = records.len();
        let (value_bytes, heap_bytes) = if V::ONE_SIZE {
            (count * value_len, count * semi::record_bytes(value_len))
        } else {
            let lens = slots(self.page, records).map(|slot| slot.value_len);
            lens.fold((0, 0), |(values, heap), len| (values + len, heap + semi::record_bytes(len)))
        };
        Contents { count, numbers: (0, 0), value_bytes, value_len: Some(value_len), heap_bytes }
    }

    /// How many numbers a dense leaf holds here, if both of its fences are keys like its own.
    fn unit<V: DenseLayout>(&self, contents: &Contents) -> u64 {
        let fence = self.shape.key(0);
        let room = room(self.page.len(), self.shape.key_len(), Some(&fence), Some(&fence));
        V::unit(room, contents) as u64
    }

    /// The cut between an ascending sequence, to which the record to come belongs, and what follows
    /// it.
    fn behind_sequence<V: DenseLayout>(
        &self,
        index: usize,
        key: &[u8],
        value_len: usize,
    ) -> Option<Split> {
        let count = count(self.page);
        if index >= count || index < (count / 2).max(1) {
            return None;
        }
        let first = self.number(0).ok()?;
        let contents = self.contents::<V>(0..index, value_len);
        let unit = self.unit::<V>(&contents);
        let span = u64::from(numeric(key)).checked_sub(first)? + 1;
        let pays = is_dense_enough::<V>(
            index,
            span.min(unit) as usize,
            contents.value_bytes,
            self.rest_len(),
        );
        if span > unit || !pays || !self.is_uniform::<V>(0..index, value_len) {
            return None;
        }
        let goes_on = |index: usize| {
            let number = self.number(index).ok().and_then(|number| number.checked_sub(first));
            number.is_some_and(|offset| offset < unit)
                && self.is_uniform::<V>(index..index + 1, value_len)
        };
        let end = (index..count).find(|index| !goes_on(*index))?;
        let last = if end > index { self.key(end - 1) } else { key.to_vec() };
        let next = self.key(end);
        let separator = separator::shortest(Suffix::undivided(&last), Suffix::undivided(&next));
        Some(Split { index: end, separator })
    }

    /// The cut at a multiple of what a dense leaf holds.
    fn at_multiple<V: DenseLayout>(&self, value_len: usize) -> Option<Split> {
        let count = count(self.page);
        // The outer keys rule out nearly every other leaf.
        let (first, last) = self.outer_numbers().ok()?;
        let unit = self.unit::<V>(&self.contents::<V>(0..count, value_len));
        if unit == 0 || (last - first) / unit > MOST_UNITS {
            return None;
        }
        if !self.is_uniform::<V>(0..count, value_len) {
            return None;
        }
        let start = self.shape.between(lower_fence(self.page), upper_fence(self.page)).start;
        let middle = self.number(count / 2).ok()?;
        let cut = nearest_multiple(start, unit, middle, first, last)?;
        let (mut index, mut end) = (1, count - 1);
        while index < end {
            let probe = (index + end) / 2;
            if self.number(probe).ok()? < cut { index = probe + 1 } else { end = probe }
        }
        Some(Split { index, separator: self.shape.key(u32::try_from(cut - 1).ok()?) })
    }
}
