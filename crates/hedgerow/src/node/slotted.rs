//! A slotted page, whatever it holds: the core of comparison leaves, inner nodes and fingerprint leaves.
//!
//! An array with one entry for each record (its head, or its fingerprint), the slots, a gap, and a heap that grows down towards
//! them. [`Slotted`] says what is different: where the array is, how long its entries are, and how a slot is packed. What an entry
//! means, and in which order records are, is none of the core's business.
//!
//! The caller holds the page exclusively, or a private copy of it, and has seen [`super::load_check`] pass. Invariants: a call that
//! gives [`NoSpace`] has changed nothing; after every other one the space equation of [`super::layout`] holds. Pure functions over
//! bytes, compiled once for each kind of page.

use super::fields::{
    COUNT, HEADS_CAPACITY, HEADS_STEP, HEAP_LIVE, HEAP_START, PREFIX_LEN, RUN, count, fences_start,
    heap_live, heap_start, max_record_bytes, set_u16, set_u32, u16_at,
};
use std::ops::Range;

/// The array grows by so many entries while there is room, and by a step when the page is nearly full: whenever it grows, all
/// slots move.
const GROWTH: usize = 16;

/// The record does not fit into the node; nothing has been changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoSpace;

/// One slot, unpacked: where a record lies, which is what the array does not have of the suffix, and then the value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Slot<const IN_ARRAY: usize> {
    /// First byte of the record; zero if it has no bytes.
    pub offset: usize,
    /// Bytes of the key without the prefix.
    pub suffix_len: usize,
    /// Bytes of the value; zero in an inner node.
    pub value_len: usize,
    /// The child below the separator; zero in a leaf.
    pub child: u32,
}

impl<const IN_ARRAY: usize> Slot<IN_ARRAY> {
    /// Bytes of the suffix that are in the record.
    #[inline(always)]
    pub(super) fn rest_len(self) -> usize {
        self.suffix_len.saturating_sub(IN_ARRAY)
    }

    /// Bytes of the record on the heap.
    #[inline(always)]
    pub(super) fn record_bytes(self) -> usize {
        self.rest_len() + self.value_len
    }

    /// The slot of the same record in a node whose prefix is longer by so many bytes; its place aside.
    pub(super) fn shortened(self, prefix_bytes: usize) -> Self {
        Slot { suffix_len: self.suffix_len.saturating_sub(prefix_bytes), ..self }
    }

    /// First byte of the value.
    #[inline(always)]
    pub(super) fn value_at(self) -> usize {
        self.offset + self.rest_len()
    }

    /// Where the suffix lies, as much of it as is in the record.
    #[inline(always)]
    pub(super) fn rest_range(self) -> Range<usize> {
        self.offset..self.value_at()
    }

    /// Where the value lies.
    #[inline(always)]
    pub(super) fn value_range(self) -> Range<usize> {
        self.value_at()..self.value_at() + self.value_len
    }
}

/// A kind of slotted page.
pub(super) trait Slotted<const IN_ARRAY: usize> {
    /// First byte of the array, which is the end of the fixed fields.
    const ARRAY: usize;
    /// Bytes of an entry; zero if there is no array.
    const ENTRY_BYTES: usize;

    /// Bytes of a slot of this page.
    fn slot_bytes(page: &[u8]) -> usize;
    /// Bytes of a slot of this page once it has a record with these lengths, too.
    fn slot_bytes_with(page: &[u8], suffix_len: usize, value_len: usize) -> usize;
    /// Makes slots of this page count as having so many bytes.
    fn set_slot_bytes(page: &mut [u8], bytes: usize);
    /// Reads slot `index`.
    fn slot(page: &[u8], index: usize) -> Slot<IN_ARRAY>;
    /// Writes slot `index`.
    fn set_slot(page: &mut [u8], index: usize, slot: Slot<IN_ARRAY>);
}

/// Entries that the array has for `count` records at least.
#[inline(always)]
pub(super) const fn entries_needed<const N: usize, L: Slotted<N>>(count: usize) -> usize {
    if L::ENTRY_BYTES == 0 { 0 } else { count.next_multiple_of(HEADS_STEP) }
}

/// Bytes that a page needs which holds `count` records, `live` bytes on the heap and `fences` bytes of fences, with nothing dead
/// and no entry too many.
#[inline(always)]
pub(super) const fn space_needed<const N: usize, L: Slotted<N>>(
    slot_bytes: usize,
    count: usize,
    live: usize,
    fences: usize,
) -> usize {
    L::ARRAY + L::ENTRY_BYTES * entries_needed::<N, L>(count) + slot_bytes * count + live + fences
}

/// First byte of the slots.
#[inline(always)]
pub(super) fn slots_start<const N: usize, L: Slotted<N>>(page: &[u8]) -> usize {
    L::ARRAY + L::ENTRY_BYTES * u16_at(page, HEADS_CAPACITY)
}

/// First byte behind the slots.
#[inline(always)]
pub(super) fn slots_end<const N: usize, L: Slotted<N>>(page: &[u8]) -> usize {
    slots_start::<N, L>(page) + L::slot_bytes(page) * count(page)
}

/// Counts bytes of records that have come and gone.
#[inline(always)]
pub(super) fn add_live(page: &mut [u8], more: usize, less: usize) {
    let live = heap_live(page) + more - less;
    set_u32(page, HEAP_LIVE, live as u32);
}

/// Moves entries and slots of a range of records, which may overlap the target.
#[inline(always)]
pub(super) fn move_records<const N: usize, L: Slotted<N>>(
    page: &mut [u8],
    from: Range<usize>,
    to: usize,
) {
    let (start, width) = (slots_start::<N, L>(page), L::slot_bytes(page));
    page.copy_within(start + width * from.start..start + width * from.end, start + width * to);
    if L::ENTRY_BYTES > 0 {
        let at = |index: usize| L::ARRAY + L::ENTRY_BYTES * index;
        page.copy_within(at(from.start)..at(from.end), at(to));
    }
}

/// Takes room for a record from the gap, which has it. Gives its first byte.
#[inline(always)]
pub(super) fn take_heap(page: &mut [u8], record: usize) -> usize {
    let offset = heap_start(page) - record;
    set_u32(page, HEAP_START, offset as u32);
    add_live(page, record, 0);
    offset
}

/// The last slot is none any more, and the record `removed` is dead.
#[inline(always)]
pub(super) fn forget_record<const N: usize>(page: &mut [u8], removed: Slot<N>) {
    let record = removed.record_bytes();
    set_u16(page, COUNT, count(page) - 1);
    set_u16(page, RUN, 0);
    add_live(page, 0, record);
    if removed.offset == heap_start(page) {
        set_u32(page, HEAP_START, (removed.offset + record) as u32);
    }
}

/// Gives record `index` another value: where it lies, if that is not longer than the old one.
///
/// # Errors
/// [`NoSpace`] if there is no room, or key and value are longer than [`max_record_bytes`]; never if the value does not get longer.
///
/// # Panics
/// If there is no such record.
#[inline]
pub(super) fn update<const N: usize, L: Slotted<N>>(
    page: &mut [u8],
    index: usize,
    value: &[u8],
) -> Result<(), NoSpace> {
    let count = count(page);
    assert!(index < count, "no record {index} to update");
    let old = L::slot(page, index);
    if value.len() <= old.value_len {
        let at = old.value_at();
        page[at..at + value.len()].copy_from_slice(value);
        add_live(page, 0, old.value_len - value.len());
        L::set_slot(page, index, Slot { value_len: value.len(), ..old });
        return Ok(());
    }
    if u16_at(page, PREFIX_LEN) + old.suffix_len + value.len() > max_record_bytes(page.len()) {
        return Err(NoSpace);
    }
    let (rest, record) = (old.rest_len(), old.rest_len() + value.len());
    let slot_bytes = L::slot_bytes_with(page, old.suffix_len, value.len());
    let mut offset = heap_start(page);
    if slot_bytes == L::slot_bytes(page) && slots_end::<N, L>(page) + record <= offset {
        offset -= record;
        page.copy_within(old.rest_range(), offset);
    } else {
        let live = heap_live(page) - old.record_bytes() + record;
        if has_no_space::<N, L>(page, slot_bytes, count, live) {
            return Err(NoSpace);
        }
        // The old record is dropped by the compaction; its bytes are still in the copy.
        let copy = compact::<N, L>(page, entries_needed::<N, L>(count), slot_bytes, Some(index));
        offset = heap_start(page) - record;
        page[offset..offset + rest].copy_from_slice(&copy[old.rest_range()]);
    }
    page[offset + rest..offset + record].copy_from_slice(value);
    L::set_slot(page, index, Slot { offset, value_len: value.len(), ..old });
    set_u32(page, HEAP_START, offset as u32);
    add_live(page, record, old.record_bytes());
    Ok(())
}

/// Whether so much does not fit between the fences that the page has.
#[inline(always)]
fn has_no_space<const N: usize, L: Slotted<N>>(
    page: &[u8],
    slot_bytes: usize,
    count: usize,
    live: usize,
) -> bool {
    let fences = page.len() - fences_start(page);
    space_needed::<N, L>(slot_bytes, count, live, fences) > page.len()
}

/// Makes room for one more entry and slot, of so many bytes, and for a record: another size of the array, or compaction.
///
/// # Errors
/// [`NoSpace`].
#[inline]
pub(super) fn make_room<const N: usize, L: Slotted<N>>(
    page: &mut [u8],
    record: usize,
    slot_bytes: usize,
) -> Result<(), NoSpace> {
    let count = count(page) + 1;
    let needed = entries_needed::<N, L>(count);
    let others = L::ARRAY + slot_bytes * count + record;
    let heap = heap_start(page);
    if slot_bytes == L::slot_bytes(page) && others + L::ENTRY_BYTES * needed <= heap {
        let places = (heap - others).checked_div(L::ENTRY_BYTES).unwrap_or(0);
        let capacity = u16_at(page, HEADS_CAPACITY);
        if capacity < needed || capacity > places {
            let ample = needed + GROWTH - HEADS_STEP;
            move_slots::<N, L>(page, if ample <= places { ample } else { needed });
        }
        return Ok(());
    }
    if has_no_space::<N, L>(page, slot_bytes, count, heap_live(page) + record) {
        return Err(NoSpace);
    }
    compact::<N, L>(page, needed, slot_bytes, None);
    Ok(())
}

/// Gives the array so many entries, enough for the count; there is room.
fn move_slots<const N: usize, L: Slotted<N>>(page: &mut [u8], capacity: usize) {
    let slots = slots_start::<N, L>(page)..slots_end::<N, L>(page);
    page.copy_within(slots, L::ARRAY + L::ENTRY_BYTES * capacity);
    set_u16(page, HEADS_CAPACITY, capacity);
}

/// Compacts the page if removed records have at least so many bytes.
pub(super) fn pack<const N: usize, L: Slotted<N>>(page: &mut [u8], least_bytes: usize) {
    let heap = fences_start(page).saturating_sub(heap_start(page));
    if heap.saturating_sub(heap_live(page)) >= least_bytes {
        let (needed, slot_bytes) = (entries_needed::<N, L>(count(page)), L::slot_bytes(page));
        compact::<N, L>(page, needed, slot_bytes, None);
    }
}

/// Packs the records at the end of the heap, in the order of their slots, but for one that is dropped, and gives the array so many
/// entries, enough for the count, and slots so many bytes. Gives a copy of the page as it was.
fn compact<const N: usize, L: Slotted<N>>(
    page: &mut [u8],
    capacity: usize,
    slot_bytes: usize,
    dropped: Option<usize>,
) -> Vec<u8> {
    let old = page.to_vec();
    set_u16(page, HEADS_CAPACITY, capacity);
    L::set_slot_bytes(page, slot_bytes);
    let mut top = fences_start(&old);
    let mut live = 0;
    for index in (0..count(&old)).filter(|index| dropped != Some(*index)) {
        let slot = L::slot(&old, index);
        let record = slot.record_bytes();
        top -= record;
        live += record;
        page[top..top + record].copy_from_slice(&old[slot.offset..slot.offset + record]);
        L::set_slot(page, index, Slot { offset: top, ..slot });
    }
    set_u32(page, HEAP_START, top as u32);
    assert!(
        slots_end::<N, L>(page) <= top && live <= heap_live(&old),
        "compaction made space vanish"
    );
    old
}
