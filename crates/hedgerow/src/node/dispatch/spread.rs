//! Spreads the records of neighbouring leaves evenly over another number of leaves: the plan of an XMerge.
//!
//! "Contention and Space Management in B-Trees" (CIDR 2021), section 4. The leaves have one layout, comparison or
//! fingerprint, and stand side by side under one parent. The result is pages beside them; nothing is changed. So the
//! caller makes a plan from copies, with nothing latched, and copies the pages in when the latches have proved that the
//! leaves are what they were. Records of comparison leaves go from page to page; those of fingerprint leaves, which are in no
//! order there, are taken out and sorted first.
//!
//! Pure, total over any pages that have passed the check at page-in.

use super::convert::{build, records_of};
use super::{LeafLayout, plain_leaf};
use crate::node::dense::Growth;
use crate::node::fields::{common_prefix, count, lower_fence, prefix, upper_fence};
use crate::node::layout::{LEAF_SLOT_BYTES, rest_len, slots, space_needed};
use crate::node::merge::newest_lsn;
use crate::node::read::Node;
use crate::node::records::Records;
use crate::node::rung;
use crate::node::separator;
use crate::node::suffix::Suffix;
use crate::node::write::NodeMut;
use crate::page::header::{NEWEST_LSN, PageKind};
use hedgerow_sync::optimistic::PlainBytes;
use std::borrow::Cow;
use std::ops::Range;

/// A cut is moved by one record in so many of a leaf at most, to where the separator is short.
const NEAR_PART: usize = 16;

/// Records on either side of a cut of which the separators are compared at most.
const NEAR_MOST: usize = 8;

/// Bytes of a record of a fingerprint leaf beside its key and value.
const FINGERPRINT_BYTES: usize = 5;

/// Leaves that hold together what other leaves hold.
pub struct Spread {
    /// From left to right, each a whole page of which header and ids are not set.
    pub pages: Vec<Box<[u8]>>,
    /// Between each two of them; one fewer.
    pub separators: Vec<Vec<u8>>,
}

/// Spreads what `leaves` hold, in the order of their keys, evenly over `into` leaves of the same layout. Each uses
/// `most_bytes` of its page at most. The newest LSN of each becomes the largest of all, for any record may come from
/// any leaf.
///
/// `None`: it does not fit, or the leaves are not of one slotted layout, or not side by side.
pub fn spread_leaves(leaves: &[&[u8]], into: usize, most_bytes: usize) -> Option<Spread> {
    let (first, last) = (leaves.first()?, leaves.last()?);
    let layout = LeafLayout::of(first);
    let is_alike = |leaf: &&[u8]| leaf.len() == first.len() && LeafLayout::of(leaf) == layout;
    let meet = |pair: &[&[u8]]| {
        upper_fence(pair[0]).is_some() && upper_fence(pair[0]) == lower_fence(pair[1])
    };
    if layout.is_dense() || !leaves.iter().all(is_alike) || !leaves.windows(2).all(meet) {
        return None;
    }
    let newest = leaves.iter().map(|leaf| newest_lsn(leaf)).max()?;
    let shape = Shape {
        fences: (lower_fence(first), upper_fence(last)),
        page_bytes: first.len(),
        most_bytes: most_bytes.min(first.len()),
        newest,
    };
    match layout {
        LeafLayout::Comparison => spread(&InPages::of(leaves), into, &shape),
        _ => {
            let mut records = Records::default();
            for leaf in leaves {
                records_of(leaf).move_end(0, &mut records);
            }
            spread(&TakenOut { records, layout }, into, &shape)
        }
    }
}

/// What the leaves have to be.
struct Shape<'p> {
    /// Of the first and of the last.
    fences: Fences<'p>,
    page_bytes: usize,
    /// Of which each may use so many.
    most_bytes: usize,
    /// The newest LSN of each.
    newest: u64,
}

/// A lower and an upper fence.
type Fences<'f> = (Option<&'f [u8]>, Option<&'f [u8]>);

/// Records in the order of their keys, from which leaves can be made.
trait Source {
    /// How many there are.
    fn len(&self) -> usize;

    /// The key of the record at `index`, which there is.
    fn key(&self, index: usize) -> Cow<'_, [u8]>;

    /// About how many bytes each takes in a leaf whose keys share so many bytes.
    fn costs(&self, shared: usize) -> impl Iterator<Item = usize>;

    /// Makes a leaf of some of them. `None`: it would use more than `most_bytes`.
    fn build(
        &self,
        page: &mut [u8],
        fences: Fences<'_>,
        range: Range<usize>,
        most_bytes: usize,
    ) -> Option<()>;
}

fn spread(source: &impl Source, into: usize, shape: &Shape<'_>) -> Option<Spread> {
    // Each of several leaves has a record at least, so that there is a separator behind it.
    if into == 0 || into > 1 && source.len() < into {
        return None;
    }
    let costs = Costs::of(source, shared_bytes(shape.fences));
    let near = (source.len() / into / NEAR_PART).min(NEAR_MOST);
    let tries = [Some(near), Some(0).filter(|_| near > 0)];
    tries.into_iter().flatten().find_map(|near| {
        let cuts = costs.cuts(source, into, near)?;
        build_all(source, &cuts, shape)
    })
}

/// Bytes that all keys between two fences share.
fn shared_bytes((lower, upper): Fences<'_>) -> usize {
    match (lower, upper) {
        (Some(lower), Some(upper)) if rung::PREFIX => common_prefix(lower, upper),
        _ => 0,
    }
}

/// Records of neighbouring comparison leaves, where they lie.
struct InPages<'p> {
    leaves: &'p [&'p [u8]],
    /// Number of records before each leaf, and of all.
    before: Vec<usize>,
}

impl<'p> InPages<'p> {
    fn of(leaves: &'p [&'p [u8]]) -> Self {
        let mut before = Vec::with_capacity(leaves.len() + 1);
        let mut sum = 0;
        before.push(sum);
        before.extend(leaves.iter().map(|leaf| {
            sum += count(leaf);
            sum
        }));
        InPages { leaves, before }
    }

    /// The parts of leaves that some of the records are.
    fn parts(&self, range: Range<usize>) -> impl Iterator<Item = (&'p [u8], Range<usize>)> {
        let bounds = self.before.windows(2).zip(self.leaves);
        bounds.filter_map(move |(bounds, leaf)| {
            let (from, end) = (range.start.max(bounds[0]), range.end.min(bounds[1]));
            (from < end).then(|| (*leaf, from - bounds[0]..end - bounds[0]))
        })
    }
}

impl Source for InPages<'_> {
    fn len(&self) -> usize {
        self.before.last().copied().unwrap_or(0)
    }

    fn key(&self, index: usize) -> Cow<'_, [u8]> {
        let leaf = self.before.partition_point(|before| *before <= index) - 1;
        let mut key = Vec::new();
        Node::new(PlainBytes::new(self.leaves[leaf]))
            .append_key(index - self.before[leaf], &mut key);
        key.into()
    }

    fn costs(&self, shared: usize) -> impl Iterator<Item = usize> {
        self.leaves.iter().flat_map(move |leaf| {
            let prefix_len = prefix(leaf).len();
            slots(leaf, 0..count(leaf)).map(move |slot| {
                let suffix_len = (prefix_len + slot.suffix_len).saturating_sub(shared);
                rest_len(suffix_len) + slot.value_len + LEAF_SLOT_BYTES + rung::HEAD_BYTES
            })
        })
    }

    fn build(
        &self,
        page: &mut [u8],
        fences: Fences<'_>,
        range: Range<usize>,
        most_bytes: usize,
    ) -> Option<()> {
        let shared = shared_bytes(fences);
        let mut live = 0;
        for (leaf, part) in self.parts(range.clone()) {
            let prefix_len = prefix(leaf).len();
            for slot in slots(leaf, part) {
                let suffix_len = (prefix_len + slot.suffix_len).saturating_sub(shared);
                live += rest_len(suffix_len) + slot.value_len;
            }
        }
        let (lower, upper) = fences;
        let fence_bytes = lower.map_or(0, <[u8]>::len) + upper.map_or(0, <[u8]>::len);
        if space_needed(LEAF_SLOT_BYTES, range.len(), live, fence_bytes) > most_bytes {
            return None;
        }
        let mut leaf = NodeMut::format(page, PageKind::ComparisonLeaf, 0, lower, upper);
        leaf.reserve_heads(range.len());
        for (from, part) in self.parts(range) {
            leaf.append_from(from, part);
        }
        leaf.refresh_hints(0, 0);
        Some(())
    }
}

/// Copies of the records of leaves of another layout.
struct TakenOut {
    records: Records,
    layout: LeafLayout,
}

impl Source for TakenOut {
    fn len(&self) -> usize {
        self.records.len()
    }

    fn key(&self, index: usize) -> Cow<'_, [u8]> {
        self.records.key(index).into()
    }

    fn costs(&self, shared: usize) -> impl Iterator<Item = usize> {
        let cost = move |(key_len, value_len): (usize, usize)| {
            key_len.saturating_sub(shared) + value_len + FINGERPRINT_BYTES
        };
        self.records.lens(self.records.len()).map(cost)
    }

    fn build(
        &self,
        page: &mut [u8],
        fences: Fences<'_>,
        range: Range<usize>,
        most_bytes: usize,
    ) -> Option<()> {
        let part = self.records.part(range);
        build(page, self.layout, fences, &part, Growth::Up).ok()?;
        (plain_leaf(page).used_bytes() <= most_bytes).then_some(())
    }
}

/// About how many bytes the records take, from the first one on: entry `i` is the sum of the first `i`.
struct Costs(Vec<usize>);

impl Costs {
    fn of(source: &impl Source, shared: usize) -> Costs {
        let mut sums = Vec::with_capacity(source.len() + 1);
        sums.push(0);
        let mut sum = 0;
        for cost in source.costs(shared) {
            sum += cost;
            sums.push(sum);
        }
        Costs(sums)
    }

    /// How many records lie before each of `into - 1` cuts that make parts of about the same size, each moved by `near`
    /// records at most to where the separator is shortest. `None`: some part would be empty.
    fn cuts(&self, source: &impl Source, into: usize, near: usize) -> Option<Vec<usize>> {
        let total = *self.0.last()?;
        let count = source.len();
        let mut cuts = Vec::with_capacity(into.saturating_sub(1));
        let mut before = 0;
        for part in 1..into {
            let wanted = total * part / into;
            let above = self.0.partition_point(|sum| *sum < wanted).min(count);
            // The one of the two neighbours that is nearer.
            let is_below_nearer =
                above > 0 && wanted - self.0[above - 1] < self.0[above].saturating_sub(wanted);
            let middle = above - usize::from(is_below_nearer);
            // The parts behind have a record each.
            let (least, most) = (before + 1, count - (into - part));
            let middle = middle.clamp(least, most);
            let around = middle.saturating_sub(near).max(least)..=(middle + near).min(most);
            let cut = match around.end() > around.start() {
                false => middle,
                true => around.min_by_key(|&cut| {
                    let (last, next) = (source.key(cut - 1), source.key(cut));
                    let [last, next] = [&last, &next].map(|key| Suffix::undivided(key));
                    (separator::shortest_len(last, next), cut.abs_diff(middle))
                })?,
            };
            cuts.push(cut);
            before = cut;
        }
        Some(cuts)
    }
}

/// Builds the leaves between the cuts. `None`: one of them does not fit, or the keys are not in order.
fn build_all(source: &impl Source, cuts: &[usize], shape: &Shape<'_>) -> Option<Spread> {
    let (lower, upper) = shape.fences;
    let mut spread = Spread {
        pages: Vec::with_capacity(cuts.len() + 1),
        separators: Vec::with_capacity(cuts.len()),
    };
    for &cut in cuts {
        let (last, next) = (source.key(cut - 1), source.key(cut));
        let separator = separator::shortest(Suffix::undivided(&last), Suffix::undivided(&next));
        let behind = spread.separators.last().map(Vec::as_slice).or(lower);
        // Only damage can be otherwise; it is not spread over more pages.
        let is_between = behind.is_none_or(|behind| *behind < *separator)
            && upper.is_none_or(|upper| *separator < *upper)
            && *last <= *separator
            && *separator < *next;
        if !is_between {
            return None;
        }
        spread.separators.push(separator);
    }
    let ends = cuts.iter().copied().chain([source.len()]);
    let mut from = 0;
    for (index, end) in ends.enumerate() {
        let lower = if index == 0 { lower } else { Some(spread.separators[index - 1].as_slice()) };
        let upper = spread.separators.get(index).map(Vec::as_slice).or(upper);
        let mut page = vec![0; shape.page_bytes].into_boxed_slice();
        source.build(&mut page, (lower, upper), from..end, shape.most_bytes)?;
        page[NEWEST_LSN..NEWEST_LSN + 8].copy_from_slice(&shape.newest.to_le_bytes());
        spread.pages.push(page);
        from = end;
    }
    Some(spread)
}
