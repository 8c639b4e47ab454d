//! Checks of a node's bytes: the whole one, which finds every defect, and the one at page-in.
//!
//! [`load_check`] looks at what could lead a writer out of the page: sizes, counts and places. A page
//! that passes it makes no function of [`NodeMut`](super::NodeMut) panic, however wrong its keys are;
//! and `check` passing implies `load_check` passing. Both are total over arbitrary bytes and change
//! nothing.

use super::defect::Defect;
use super::dense;
use super::dispatch::LeafLayout;
use super::fields::{
    HEADS_CAPACITY, HEADS_STEP, LOWER_INFINITE, LOWER_LEN, MAX_LEVEL, NODE_FLAGS, PREFIX_LEN, RUN,
    UPPER_INFINITE, UPPER_LEN, common_prefix, count, fences_start, heap_live, heap_start,
    lower_fence, max_key_bytes, max_record_bytes, prefix, u16_at, u32_at, upper_fence,
};
use super::fingerprint;
use super::layout::{
    Comparison, HINT_COUNT, HINTS, INNER_SLOT_BYTES, LEAF_SLOT_BYTES, Slot, UPPER_CHILD,
    VALUE_LEN_MASK, expected_hint, heads_needed, is_inner, slots_end, slots_start,
};
use super::rung;
use super::slotted::{self, Slotted};
use super::suffix::Suffix;
use super::write::MAX_RUN;
use crate::page::header::{
    BEING_FREED, FLAGS, KIND, LEVEL, MAX_PAGE_BYTES, MIN_PAGE_BYTES, PageKind,
};
use crate::types::PageId;
use std::cmp::Ordering;

/// The layout that a page says it has; pages of other kinds are checked with comparison leaves.
fn layout(page: &[u8]) -> LeafLayout {
    match page.get(KIND) {
        Some(kind) if rung::HINTS => LeafLayout::of_kind(*kind),
        _ => LeafLayout::Comparison,
    }
}

/// Checks, as far as memory safety of later changes needs it, a page that comes from outside. Costs
/// little more than a pass over the slots.
///
/// # Errors
/// The first defect found.
pub fn load_check(page: &[u8]) -> Result<(), Defect> {
    match layout(page) {
        LeafLayout::Comparison => {}
        LeafLayout::Fingerprint => return fingerprint::load_check(page),
        LeafLayout::SemiDense | LeafLayout::FullyDense => return dense::load_check(page),
    }
    let mut first = None;
    fixed_fields(page, &mut |defect| first = first.or(Some(defect)));
    if let Some(defect) = first {
        return Err(defect);
    }
    let slots = &page[slots_start(page)..slots_end(page)];
    let slot = |s: &[u8], value_len: u16| {
        let field = |at| usize::from(u16::from_le_bytes([s[at], s[at + 1]]));
        Slot { offset: field(0), suffix_len: field(2), value_len: usize::from(value_len), child: 0 }
    };
    if is_inner(page) {
        let (slots, _) = slots.as_chunks::<INNER_SLOT_BYTES>();
        records_fit::<_, Comparison>(page, slots.iter().map(|s| slot(s, 0)))
    } else {
        let (slots, _) = slots.as_chunks::<LEAF_SLOT_BYTES>();
        let value_len = |s: &[u8; LEAF_SLOT_BYTES]| u16::from_le_bytes([s[4], s[5]]);
        let slots = slots.iter().map(|s| slot(s, value_len(s) & VALUE_LEN_MASK));
        records_fit::<_, Comparison>(page, slots)
    }
}

/// Whether each record lies on the heap and is not too long, and all together are as long as the page says.
///
/// # Errors
/// The first defect found.
#[inline(always)]
pub(super) fn records_fit<const N: usize, L: Slotted<N>>(
    page: &[u8],
    slots: impl Iterator<Item = slotted::Slot<N>>,
) -> Result<(), Defect> {
    let (heap, end) = (heap_start(page), fences_start(page));
    let beyond_prefix = |bytes: usize| bytes.saturating_sub(u16_at(page, PREFIX_LEN));
    let longest_key = beyond_prefix(max_key_bytes(page.len()));
    let longest = beyond_prefix(max_record_bytes(page.len()));
    let mut live = 0;
    for slot in slots {
        let len = slot.record_bytes();
        let misplaced = slot.offset < heap || slot.offset + len > end;
        let too_long = slot.suffix_len > longest_key || slot.suffix_len + slot.value_len > longest;
        if too_long || misplaced && (len, slot.offset) != (0, 0) {
            return Err(first_bad_record::<N, L>(page));
        }
        live += len;
    }
    match live == heap_live(page) {
        true => Ok(()),
        false => Err(Defect::HeapLive { stored: heap_live(page), counted: live }),
    }
}

#[cold]
fn first_bad_record<const N: usize, L: Slotted<N>>(page: &[u8]) -> Defect {
    let mut defects = Vec::new();
    slots_and_heap::<N, L>(page, &mut defects);
    let place =
        |defect: &Defect| matches!(defect, Defect::RecordPlace(_) | Defect::RecordLength(_));
    defects.into_iter().find(place).unwrap_or(Defect::RecordPlace(0))
}

/// Reports every defect of a node; an empty list is a clean page.
pub fn check(page: &[u8]) -> Vec<Defect> {
    match layout(page) {
        LeafLayout::Comparison => {}
        LeafLayout::Fingerprint => return fingerprint::check(page),
        LeafLayout::SemiDense | LeafLayout::FullyDense => return dense::check(page),
    }
    let mut defects = Vec::new();
    if fixed_fields(page, &mut |defect| defects.push(defect)) {
        small_fields(page, &mut defects);
        if slots_and_heap::<_, Comparison>(page, &mut defects) {
            keys(page, &mut defects);
        }
        heads_and_hints(page, &mut defects);
    }
    defects
}

/// Checks sizes, counts and places; reports to `found`. False if they are so wrong that slots and
/// fences cannot be read.
fn fixed_fields(page: &[u8], found: &mut dyn FnMut(Defect)) -> bool {
    if !is_page_size(page.len()) {
        found(Defect::PageSize(page.len()));
        return false;
    }
    let level = page[LEVEL];
    match PageKind::from_byte(page[KIND]) {
        Some(PageKind::Inner) if (1..=MAX_LEVEL).contains(&level) => {}
        Some(PageKind::ComparisonLeaf) if level == 0 => {}
        Some(PageKind::Inner | PageKind::ComparisonLeaf) => found(Defect::Level(level)),
        _ => {
            found(Defect::Kind(page[KIND]));
            return false;
        }
    }
    if !flags_and_fences(page, LOWER_INFINITE | UPPER_INFINITE, found) {
        return false;
    }
    let (capacity, count) = (u16_at(page, HEADS_CAPACITY), count(page));
    let fitting = if rung::HEADS { capacity >= count } else { capacity == 0 };
    if !fitting || capacity % HEADS_STEP != 0 {
        found(Defect::HeadsCapacity { capacity, count });
        return false;
    }
    slots_and_heap_bounds(page, slots_end(page), found)
}

/// Whether a page may have so many bytes.
pub(super) fn is_page_size(bytes: usize) -> bool {
    bytes.is_power_of_two() && (MIN_PAGE_BYTES..=MAX_PAGE_BYTES).contains(&bytes)
}

/// Checks that slots, heap and fences lie one behind the other, in a node of any layout. False if
/// the slots cannot be read.
pub(super) fn slots_and_heap_bounds(
    page: &[u8],
    slots_end: usize,
    found: &mut dyn FnMut(Defect),
) -> bool {
    let (heap, end) = (heap_start(page), fences_start(page));
    if slots_end > end {
        found(Defect::Slots(slots_end));
        return false;
    }
    if heap < slots_end || heap > end {
        found(Defect::HeapStart(heap));
    } else if heap_live(page) > end - heap {
        found(Defect::HeapLive { stored: heap_live(page), counted: end - heap });
    }
    true
}

/// Checks flags, fences and prefix of a node of any layout, which may have the flags `known`. False
/// if the fences cannot be read.
pub(super) fn flags_and_fences(page: &[u8], known: u16, found: &mut dyn FnMut(Defect)) -> bool {
    let flags = u16_at(page, NODE_FLAGS) as u16;
    if flags & !known != 0 {
        found(Defect::Flags(flags));
    }
    let longest = max_key_bytes(page.len());
    let (lower, upper) = (u16_at(page, LOWER_LEN), u16_at(page, UPPER_LEN));
    let allowed = |infinite| if flags & infinite != 0 { 0 } else { longest };
    if lower > allowed(LOWER_INFINITE) || upper > allowed(UPPER_INFINITE) {
        found(Defect::FenceLength { lower, upper });
        return false;
    }
    let shared = u16_at(page, PREFIX_LEN);
    let both = |len| match (lower_fence(page), upper_fence(page)) {
        (Some(lower), Some(upper)) => lower.get(..len).is_some_and(|p| upper.starts_with(p)),
        _ => len == 0,
    };
    if !both(shared) || (!rung::PREFIX && shared != 0) {
        found(Defect::PrefixLength { stored: shared, expected: expected_prefix(page) });
        return false;
    }
    true
}

pub(super) fn expected_prefix(page: &[u8]) -> usize {
    match (lower_fence(page), upper_fence(page)) {
        (Some(lower), Some(upper)) if rung::PREFIX => common_prefix(lower, upper),
        _ => 0,
    }
}

/// Flags of the page and the run of insertions, in a node of any layout that has the latter.
pub(super) fn flags_and_run(page: &[u8], defects: &mut Vec<Defect>) {
    let flags = u16_at(page, FLAGS) as u16;
    if flags & !BEING_FREED != 0 {
        defects.push(Defect::Flags(flags));
    }
    let run = u16_at(page, RUN) as u16 as i16;
    if !(-MAX_RUN..=MAX_RUN).contains(&run) {
        defects.push(Defect::Run(run));
    }
}

/// Fields whose value endangers nobody.
fn small_fields(page: &[u8], defects: &mut Vec<Defect>) {
    flags_and_run(page, defects);
    let upper_child = u32_at(page, UPPER_CHILD);
    if !is_inner(page) {
        if upper_child != 0 {
            defects.push(Defect::UpperChild(upper_child));
        }
        return;
    }
    if !PageId(upper_child).is_usable() {
        defects.push(Defect::Child(count(page)));
    }
    for index in 0..count(page) {
        let at = slots_start(page) + INNER_SLOT_BYTES * index + 4;
        if !PageId(u32_at(page, at)).is_usable() {
            defects.push(Defect::Child(index));
        }
    }
}

/// Checks each slot and the sum of the records. False if some record cannot be read.
pub(super) fn slots_and_heap<const N: usize, L: Slotted<N>>(
    page: &[u8],
    defects: &mut Vec<Defect>,
) -> bool {
    let longest = max_record_bytes(page.len());
    let shared = u16_at(page, PREFIX_LEN);
    let slot_bytes = L::slot_bytes(page);
    let mut records = Records::of(page);
    for index in 0..count(page) {
        let slot = L::slot(page, index);
        records.add(index, slot.offset, slot.record_bytes(), defects);
        if shared + slot.suffix_len + slot.value_len > longest {
            defects.push(Defect::RecordLength(index));
        }
        let third = slotted::slots_start::<N, L>(page) + slot_bytes * index + 4;
        // Slots of other lengths have no bits to spare.
        if slot_bytes == LEAF_SLOT_BYTES && u16_at(page, third) as u16 & !VALUE_LEN_MASK != 0 {
            defects.push(Defect::SlotBits(index));
        }
    }
    let (live, readable) = records.finish(page, defects);
    space::<N, L>(page, live, defects);
    readable
}

/// The places of a page's records, as its slots have them.
pub(super) struct Records {
    heap: usize,
    end: usize,
    /// Offset, length and slot of each that can be read and is not empty.
    places: Vec<(usize, usize, usize)>,
    live: usize,
    readable: bool,
}

impl Records {
    pub(super) fn of(page: &[u8]) -> Records {
        Records {
            heap: heap_start(page),
            end: fences_start(page),
            places: Vec::with_capacity(count(page)),
            live: 0,
            readable: true,
        }
    }

    /// The record of slot `index`, which lies within the heap; an empty one is nowhere.
    pub(super) fn add(&mut self, index: usize, at: usize, bytes: usize, defects: &mut Vec<Defect>) {
        self.live += bytes;
        let inside = if bytes == 0 { at == 0 } else { at >= self.heap };
        if !inside || at + bytes > self.end {
            defects.push(Defect::RecordPlace(index));
            self.readable = false;
        } else if bytes != 0 {
            self.places.push((at, bytes, index));
        }
    }

    /// Behind the last: no two share a byte, and together they are as long as the page says. Returns their bytes, and whether all can
    /// be read.
    pub(super) fn finish(mut self, page: &[u8], defects: &mut Vec<Defect>) -> (usize, bool) {
        self.places.sort_unstable();
        for pair in self.places.windows(2) {
            if pair[0].0 + pair[0].1 > pair[1].0 {
                defects.push(Defect::RecordsOverlap(pair[0].2, pair[1].2));
            }
        }
        let live = self.live;
        if live != heap_live(page) {
            defects.push(Defect::HeapLive { stored: heap_live(page), counted: live });
        }
        (live, self.readable)
    }
}

/// The space equation, counted from both ends.
fn space<const N: usize, L: Slotted<N>>(page: &[u8], live: usize, defects: &mut Vec<Defect>) {
    let fences = u16_at(page, LOWER_LEN) + u16_at(page, UPPER_LEN);
    let (slots_end, heap) = (slotted::slots_end::<N, L>(page), heap_start(page));
    let gap = heap.saturating_sub(slots_end);
    let dead = page.len().saturating_sub(fences + heap).saturating_sub(live);
    let counted = slots_end + gap + dead + live + fences;
    if counted != page.len() {
        defects.push(Defect::Space { counted });
    }
}

/// Checks the order of the fences and the prefix; gives what the fences have behind it.
pub(super) fn fence_suffixes<'p>(
    page: &'p [u8],
    defects: &mut Vec<Defect>,
) -> [Option<&'p [u8]>; 2] {
    if let (Some(lower), Some(upper)) = (lower_fence(page), upper_fence(page))
        && lower >= upper
    {
        defects.push(Defect::FenceOrder);
    }
    let (stored, expected) = (prefix(page).len(), expected_prefix(page));
    if stored != expected {
        defects.push(Defect::PrefixLength { stored, expected });
    }
    [lower_fence(page), upper_fence(page)].map(|fence| fence.map(|fence| &fence[stored..]))
}

/// Order, fences and prefix. The records can be read.
fn keys(page: &[u8], defects: &mut Vec<Defect>) {
    // Of the fences only what follows the prefix is compared, as of the keys.
    let [lower, upper] = fence_suffixes(page, defects).map(|fence| fence.map(Suffix::of));
    for index in 0..count(page) {
        let key = Suffix::read(page, index);
        if index > 0 && Suffix::read(page, index - 1) >= key {
            defects.push(Defect::Order(index));
        }
        // A separator equal to the upper fence would leave its right child no keys.
        let highest = if is_inner(page) { Ordering::Less } else { Ordering::Equal };
        if lower.is_some_and(|lower| lower >= key)
            || upper.is_some_and(|upper| key.cmp(&upper) > highest)
        {
            defects.push(Defect::OutsideFences(index));
        }
        if !key.is_padded_with_zeros() {
            defects.push(Defect::Head(index));
        }
    }
}

fn heads_and_hints(page: &[u8], defects: &mut Vec<Defect>) {
    let count = count(page);
    debug_assert!(u16_at(page, HEADS_CAPACITY) >= heads_needed(count));
    for hint in 0..HINT_COUNT {
        let expected = if rung::HINTS { expected_hint(page, hint) } else { 0 };
        if u32_at(page, HINTS + 4 * hint) as i32 != expected {
            defects.push(Defect::Hint(hint));
        }
    }
}
