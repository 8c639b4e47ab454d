//! Spreads the records of neighbouring leaves evenly over another number of leaves: the plan of an XMerge.
//!
//! "Contention and Space Management in B-Trees" (CIDR 2021), section 4. The leaves have one layout, comparison or
//! fingerprint, and stand side by side under one parent. The result is pages beside them; nothing is changed. So the
//! caller makes a plan from copies, with nothing latched, and copies the pages in when the latches have proved that the
//! leaves are what they were.
//!
//! Pure, total over any pages that have passed the check at page-in.

use super::convert::{build, records_of};
use super::{LeafLayout, plain_leaf};
use crate::node::dense::Growth;
use crate::node::ladder::Ladder;
use crate::node::layout::{LEAF_SLOT_BYTES, common_prefix, lower_fence, rest_len, upper_fence};
use crate::node::merge::newest_lsn;
use crate::node::records::Records;
use crate::node::separator;
use crate::node::suffix::Suffix;
use crate::page::header::NEWEST_LSN;

/// A cut is moved by one record in so many of a leaf at most, to where the separator is short.
const NEAR_PART: usize = 16;

/// Records on either side of a cut of which the separators are compared at most.
const NEAR_MOST: usize = 8;

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
pub fn spread_leaves<L: Ladder>(
    leaves: &[&[u8]],
    into: usize,
    most_bytes: usize,
) -> Option<Spread> {
    let (first, last) = (leaves.first()?, leaves.last()?);
    let layout = LeafLayout::of(first);
    let is_alike = |leaf: &&[u8]| leaf.len() == first.len() && LeafLayout::of(leaf) == layout;
    let meet = |pair: &[&[u8]]| {
        upper_fence(pair[0]).is_some() && upper_fence(pair[0]) == lower_fence(pair[1])
    };
    if layout.is_dense() || !leaves.iter().all(is_alike) || !leaves.windows(2).all(meet) {
        return None;
    }
    let mut records = Records::default();
    for leaf in leaves {
        records_of::<L>(leaf).move_end(0, &mut records);
    }
    // Each of several leaves has a record at least, so that there is a separator behind it.
    if into == 0 || into > 1 && records.len() < into {
        return None;
    }
    let fences = (lower_fence(first), upper_fence(last));
    let costs = Costs::of::<L>(&records, layout, fences);
    let newest = leaves.iter().map(|leaf| newest_lsn(leaf)).max()?;
    let near = (records.len() / into / NEAR_PART).min(NEAR_MOST);
    let tries = [Some(near), Some(0).filter(|_| near > 0)];
    tries.into_iter().flatten().find_map(|near| {
        let cuts = costs.cuts(&records, into, near)?;
        let mut spread = build_all::<L>(&records, &cuts, fences, layout, first.len(), most_bytes)?;
        for page in &mut spread.pages {
            page[NEWEST_LSN..NEWEST_LSN + 8].copy_from_slice(&newest.to_le_bytes());
        }
        Some(spread)
    })
}

/// About how many bytes the records take, from the first one on: entry `i` is the sum of the first `i`.
struct Costs(Vec<usize>);

impl Costs {
    fn of<L: Ladder>(
        records: &Records,
        layout: LeafLayout,
        (lower, upper): (Option<&[u8]>, Option<&[u8]>),
    ) -> Costs {
        let shared = match (lower, upper) {
            (Some(lower), Some(upper)) if L::PREFIX => common_prefix(lower, upper),
            _ => 0,
        };
        let cost = |(key_len, value_len): (usize, usize)| {
            let suffix_len = key_len.saturating_sub(shared);
            value_len
                + match layout {
                    LeafLayout::Fingerprint => suffix_len + 5,
                    _ => rest_len::<L>(suffix_len) + LEAF_SLOT_BYTES + L::HEAD_BYTES,
                }
        };
        let mut sums = Vec::with_capacity(records.len() + 1);
        sums.push(0);
        let mut sum = 0;
        for lens in records.lens(records.len()) {
            sum += cost(lens);
            sums.push(sum);
        }
        Costs(sums)
    }

    /// How many records lie before each of `into - 1` cuts that make parts of about the same size, each moved by `near`
    /// records at most to where the separator is shortest. `None`: some part would be empty.
    fn cuts(&self, records: &Records, into: usize, near: usize) -> Option<Vec<usize>> {
        let total = *self.0.last()?;
        let count = records.len();
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
            let key = |index| Suffix::undivided(records.key(index));
            let cut = around.min_by_key(|&cut| {
                (separator::shortest_len(key(cut - 1), key(cut)), cut.abs_diff(middle))
            })?;
            cuts.push(cut);
            before = cut;
        }
        Some(cuts)
    }
}

/// Builds the leaves between the cuts. `None`: one of them does not fit, or the keys are not in order.
fn build_all<L: Ladder>(
    records: &Records,
    cuts: &[usize],
    (lower, upper): (Option<&[u8]>, Option<&[u8]>),
    layout: LeafLayout,
    page_bytes: usize,
    most_bytes: usize,
) -> Option<Spread> {
    let mut spread = Spread { pages: Vec::new(), separators: Vec::new() };
    for &cut in cuts {
        let [last, next] = [cut - 1, cut].map(|index| Suffix::undivided(records.key(index)));
        let separator = separator::shortest(last, next);
        let behind = spread.separators.last().map(Vec::as_slice).or(lower);
        // Only damage can be otherwise; it is not spread over more pages.
        let is_between = behind.is_none_or(|behind| *behind < *separator)
            && upper.is_none_or(|upper| *separator < *upper)
            && records.key(cut - 1) <= separator.as_slice()
            && separator.as_slice() < records.key(cut);
        if !is_between {
            return None;
        }
        spread.separators.push(separator);
    }
    let most_bytes = most_bytes.min(page_bytes);
    let ends = cuts.iter().copied().chain([records.len()]);
    let mut from = 0;
    for (index, end) in ends.enumerate() {
        let part = records.part(from..end);
        let lower = if index == 0 { lower } else { Some(spread.separators[index - 1].as_slice()) };
        let upper = spread.separators.get(index).map(Vec::as_slice).or(upper);
        let mut page = vec![0; page_bytes].into_boxed_slice();
        build::<L>(&mut page, layout, (lower, upper), &part, Growth::Up).ok()?;
        if plain_leaf::<L>(&page).used_bytes() > most_bytes {
            return None;
        }
        spread.pages.push(page);
        from = end;
    }
    Some(spread)
}
