//! The semi-dense layout: a bit and two bytes for each slot, and values of any size on a heap.
//!
//! A slot holds the offset of its record, zero if there is none; the record is the value behind its
//! length, which takes one byte below 128 and two above. Unlike the paper's, a leaf has slots up to
//! its largest number only: the array grows into the gap as larger ones come, in whole words of
//! presence bits while there is room, and gives slots back before the page is compacted. So
//! ascending loads fill these leaves as they do the others, and a range that is never used costs
//! nothing.
//!
//! Invariants: `array end <= heap_start <= tail`; records do not overlap; `heap_live` is their sum.

use super::fields::{
    HEAP_LIVE, HEAP_START, VALUE_LEN, WORD_BYTES, WORD_SLOTS, array_start, base, capacity, key_len,
    numbers_end, slots_in, tail_start,
};
use super::layout::{Contents, DenseLayout, Frame, Growth, Refused, base_for};
use super::presence::{self, Slots};
use crate::node::defect::Defect;
use crate::node::fields::{max_record_bytes, set_u16, u16_at};
use crate::page::header::PageKind;
use hedgerow_sync::optimistic::{PageBytes, PlainBytes};
use std::ops::Range;

/// The semi-dense layout.
#[derive(Clone, Copy, Default, Debug)]
pub struct Semi;

/// Bytes of a slot in the array.
const SLOT_BYTES: usize = 2;
/// Values from this length on have two bytes of length before them.
const LONG: usize = 128;

/// Bytes of a record with a value of so many bytes.
pub(super) const fn record_bytes(value_len: usize) -> usize {
    value_len + if value_len < LONG { 1 } else { 2 }
}

/// Bytes of presence bits and slots.
const fn array_bytes(slots: usize) -> usize {
    slots.div_ceil(WORD_SLOTS) * WORD_BYTES + SLOT_BYTES * slots
}

fn array_end(slots: usize) -> usize {
    array_start(slots) + SLOT_BYTES * slots
}

/// Between the array and the heap.
pub(in super::super) fn gap(page: &[u8]) -> Range<usize> {
    array_end(capacity(page))..u16_at(page, HEAP_START)
}

fn slot_at(page: &[u8], slot: usize) -> usize {
    array_start(capacity(page)) + SLOT_BYTES * slot
}

/// Place and size of the record of a slot that has one; the page has passed its check.
fn record(page: &[u8], slot: usize) -> (usize, usize) {
    let (_, len) = Semi::value_place(PlainBytes::new(page), slot);
    (u16_at(page, slot_at(page, slot)), record_bytes(len))
}

/// Writes a record and refers to it from its slot.
fn put(page: &mut [u8], slot: usize, offset: usize, value: &[u8]) {
    let at = offset + record_bytes(value.len()) - value.len();
    if value.len() < LONG {
        page[offset] = value.len() as u8;
    } else {
        page[offset] = (value.len() >> 8) as u8 | LONG as u8;
        page[offset + 1] = value.len() as u8;
    }
    page[at..at + value.len()].copy_from_slice(value);
    let slot_at = slot_at(page, slot);
    set_u16(page, slot_at, offset);
}

fn add_live(page: &mut [u8], more: usize, less: usize) {
    let live = u16_at(page, HEAP_LIVE) + more - less;
    set_u16(page, HEAP_LIVE, live);
}

/// Slots that are needed for those that have records, and for one more.
fn slots_needed(page: &[u8], slot: usize) -> usize {
    let last = presence::previous(PlainBytes::new(page), usize::MAX, capacity(page));
    last.map_or(0, |last| last + 1).max(slot + 1)
}

/// Compacts the leaf if removed records have at least so many bytes.
pub(in super::super) fn pack(page: &mut [u8], least_bytes: usize) {
    let heap = tail_start(page).saturating_sub(u16_at(page, HEAP_START));
    if heap.saturating_sub(u16_at(page, HEAP_LIVE)) >= least_bytes {
        compact(page, None);
    }
}

/// Packs the records at the end of the heap, ascending from its end, without that of `except`.
fn compact(page: &mut [u8], except: Option<usize>) {
    let old = page.to_vec();
    let mut top = tail_start(&old);
    for slot in Slots::new(&old, 0..capacity(&old)).filter(|slot| Some(*slot) != except) {
        let (at, bytes) = record(&old, slot);
        top -= bytes;
        page[top..top + bytes].copy_from_slice(&old[at..at + bytes]);
        let slot_at = slot_at(page, slot);
        set_u16(page, slot_at, top);
    }
    set_u16(page, HEAP_START, top);
}

/// Slots that so many bytes hold if each has a record of so many bytes.
const fn slots_of_full(room: usize, record_bytes: usize) -> usize {
    8 * room / (8 * SLOT_BYTES + 1 + 8 * record_bytes)
}

/// Where the slots of an empty leaf begin: at the reference key, if the first record is near it; if
/// that is near the other end, as far before as slots can be used; else with that record.
fn base_of_empty(room: usize, contents: &Contents, allowed: &Range<u64>) -> Option<u32> {
    let first = u64::from(contents.numbers.0);
    if !allowed.contains(&first) {
        return None;
    }
    let slots = slots_of_full(room, record_bytes(contents.value_len.unwrap_or(0))) as u64;
    let base = if first - allowed.start <= (room / (4 * SLOT_BYTES)) as u64 {
        allowed.start
    } else if allowed.end - first <= slots {
        allowed.end.saturating_sub(slots).max(allowed.start)
    } else {
        first
    };
    u32::try_from(base).ok()
}

/// Whether every record lies on the heap, is of a length that it may have, and shares no byte with
/// another, and whether the heap's sum is right: what [`Semi::check`] finds out by sorting, in
/// three fifths of the instructions, but without saying what is wrong. Records that overlap would
/// be as bad as those outside of the heap, because lengths stand there, too.
fn is_sound(page: &[u8]) -> bool {
    let (heap, tail) = (u16_at(page, HEAP_START), tail_start(page));
    let longest = max_record_bytes(page.len()) - key_len(page);
    let slots = array_start(capacity(page));
    // A bit for each byte of the page that belongs to a record, and a word behind the last one.
    let mut taken = vec![0; page.len() / 64 + 1];
    let mut live = 0;
    for slot in Slots::new(page, 0..capacity(page)) {
        let at = u16_at(page, slots + SLOT_BYTES * slot);
        // Behind the tail's start there is room for two fences: two bytes can be read.
        if at < heap || at >= tail {
            return false;
        }
        let (first, second) = (usize::from(page[at]), usize::from(page[at + 1]));
        let (len, prefix) = match first < LONG {
            true => (first, 1),
            false => ((first - LONG) << 8 | second, 2),
        };
        let bytes = len + prefix;
        if bytes != record_bytes(len) || len > longest || at + bytes > tail {
            return false;
        }
        if !take(&mut taken, at, bytes) {
            return false;
        }
        live += bytes;
    }
    live == u16_at(page, HEAP_LIVE)
}

/// Sets so many bits from `at` on; false if one of them was set.
#[inline(always)]
fn take(taken: &mut [u64], mut at: usize, bits: usize) -> bool {
    let (mut left, mut clashes) = (bits, 0);
    while left > 0 {
        let step = left.min(64);
        let mask = u128::from(u64::MAX >> (64 - step)) << (at % 64);
        let words = [mask as u64, (mask >> 64) as u64];
        for (word, mask) in taken[at / 64..at / 64 + 2].iter_mut().zip(words) {
            clashes |= *word & mask;
            *word |= mask;
        }
        at += step;
        left -= step;
    }
    clashes == 0
}

impl DenseLayout for Semi {
    const KIND: PageKind = PageKind::SemiDenseLeaf;
    #[cfg(hedgerow_internals)]
    const NAME: &'static str = "semi-dense";
    const ONE_SIZE: bool = false;

    fn bits(records: usize, slots: usize, value_bytes: usize) -> usize {
        let long = value_bytes / records.max(1) >= LONG;
        slots * (8 * SLOT_BYTES + 1) + 8 * (value_bytes + records * (1 + usize::from(long)))
    }

    fn frame(
        room: usize,
        contents: &Contents,
        allowed: Range<u64>,
        growth: Growth,
    ) -> Option<Frame> {
        if contents.count == 0 {
            return base_of_empty(room, contents, &allowed).map(|base| Frame { base, capacity: 0 });
        }
        let fits = |slots: u64| {
            slots <= room as u64 && array_bytes(slots as usize) + contents.heap_bytes <= room
        };
        let (first, last) = (u64::from(contents.numbers.0), u64::from(contents.numbers.1));
        let span = last.checked_sub(first)? + 1;
        if !fits(span) || !allowed.contains(&first) || !allowed.contains(&last) {
            return None;
        }
        let whole = last - allowed.start + 1;
        // Of a range that is largely empty below, only as much as there are records.
        let from_start = whole <= 2 * span && fits(whole);
        let spare = match growth {
            Growth::Up => 0,
            // As many as the leaf can use if each number comes.
            Growth::Down => (Self::unit(room, contents) as u64).saturating_sub(span),
            Growth::Unknown => (contents.count as u64).min(room as u64),
        };
        let most = if from_start { whole } else { span + spare };
        let most = if fits(most) { most } else { span };
        let base = base_for(contents.numbers, most as usize, &allowed, Growth::Down)?;
        Some(Frame { base, capacity: (last + 1 - u64::from(base)) as usize })
    }

    fn unit(room: usize, contents: &Contents) -> usize {
        let records = contents.count.max(1);
        slots_of_full(room, contents.heap_bytes.div_ceil(records))
    }

    fn most_slots(room: usize, contents: &Contents) -> usize {
        slots_in(room.saturating_sub(contents.heap_bytes), SLOT_BYTES)
    }

    #[inline(always)]
    fn value_place<B: PageBytes>(bytes: B, slot: usize) -> (usize, usize) {
        let capacity = usize::from(bytes.field_u16::<{ super::fields::CAPACITY }>());
        let at = array_start(capacity).saturating_add(slot.saturating_mul(SLOT_BYTES));
        let offset = usize::from(bytes.u16_at(at));
        let len = usize::from(bytes.u16_at(offset));
        if len & LONG == 0 {
            (offset + 1, len & (LONG - 1))
        } else {
            (offset + 2, (len & (LONG - 1)) << 8 | len >> 8)
        }
    }

    fn value_field(_: &Contents) -> usize {
        0
    }

    fn clear(page: &mut [u8]) {
        let (start, end) = (array_start(capacity(page)), array_end(capacity(page)));
        page[start..end].fill(0);
        let tail = tail_start(page);
        set_u16(page, HEAP_START, tail);
        set_u16(page, HEAP_LIVE, 0);
    }

    fn reserve(page: &mut [u8], slot: usize, value_len: usize) -> Result<(), Refused> {
        let (slots, record) = (capacity(page), record_bytes(value_len));
        let heap = u16_at(page, HEAP_START);
        if slot < slots && array_end(slots) + record <= heap {
            return Ok(());
        }
        let most = usize::try_from(numbers_end(page).saturating_sub(base(page).into()))
            .unwrap_or(usize::MAX);
        let needed = slots_needed(page, slot);
        if needed > most.min(super::fields::MAX_SLOTS) {
            return Err(Refused::Beyond);
        }
        let live = u16_at(page, HEAP_LIVE);
        if array_end(needed) + live + record > tail_start(page) {
            return Err(Refused::NoSpace);
        }
        // Whole words of presence bits while there is room; else no more than is needed.
        let ample = needed.next_multiple_of(WORD_SLOTS).min(most).max(slots);
        let new = [ample, needed.max(slots), needed]
            .into_iter()
            .find(|slots| array_end(*slots) + record <= heap)
            .unwrap_or(needed);
        if array_end(new) + record > heap {
            // The array may take the place of records only after they have moved.
            compact(page, None);
        }
        presence::resize(page, new, SLOT_BYTES);
        Ok(())
    }

    fn store(page: &mut [u8], slot: usize, value: &[u8]) {
        let bytes = record_bytes(value.len());
        let offset = u16_at(page, HEAP_START) - bytes;
        put(page, slot, offset, value);
        set_u16(page, HEAP_START, offset);
        add_live(page, bytes, 0);
    }

    fn replace(page: &mut [u8], slot: usize, value: &[u8]) -> Result<(), Refused> {
        let (at, old) = record(page, slot);
        let new = record_bytes(value.len());
        let (live, end) = (u16_at(page, HEAP_LIVE), array_end(capacity(page)));
        if new <= old {
            put(page, slot, at, value);
            add_live(page, new, old);
            return Ok(());
        }
        if end + new > u16_at(page, HEAP_START) {
            let needed = slots_needed(page, slot);
            if array_end(needed) + live - old + new > tail_start(page) {
                return Err(Refused::NoSpace);
            }
            compact(page, Some(slot));
            presence::resize(page, needed, SLOT_BYTES);
        }
        let offset = u16_at(page, HEAP_START) - new;
        put(page, slot, offset, value);
        set_u16(page, HEAP_START, offset);
        add_live(page, new, old);
        Ok(())
    }

    fn discard(page: &mut [u8], slot: usize) {
        let (at, bytes) = record(page, slot);
        if at == u16_at(page, HEAP_START) {
            set_u16(page, HEAP_START, at + bytes);
        }
        add_live(page, 0, bytes);
        let slot_at = slot_at(page, slot);
        set_u16(page, slot_at, 0);
    }

    fn trim(page: &mut [u8], slots: usize) {
        presence::resize(page, slots, SLOT_BYTES);
    }

    fn payload_bytes<B: PageBytes>(bytes: B, _: usize) -> usize {
        usize::from(bytes.field_u16::<{ HEAP_LIVE }>())
    }

    fn fixed_bytes(slots: usize) -> usize {
        slots * SLOT_BYTES
    }

    fn check(page: &[u8], all: bool, found: &mut dyn FnMut(Defect)) {
        let (heap, tail) = (u16_at(page, HEAP_START), tail_start(page));
        let end = array_end(capacity(page));
        if end > tail {
            return found(Defect::Slots(end));
        }
        if heap < end || heap > tail {
            return found(Defect::HeapStart(heap));
        }
        if !all && is_sound(page) {
            return;
        }
        if all && u16_at(page, VALUE_LEN) != 0 {
            found(Defect::ValueLength(u16_at(page, VALUE_LEN)));
        }
        let longest = max_record_bytes(page.len()) - key_len(page);
        let mut places = Vec::with_capacity(capacity(page));
        let mut live = 0;
        for slot in Slots::new(page, 0..capacity(page)) {
            let (at, bytes) = record(page, slot);
            live += bytes;
            if at < heap || at + bytes > tail {
                found(Defect::RecordPlace(slot));
            }
            let (value_at, len) = Semi::value_place(PlainBytes::new(page), slot);
            if value_at + len != at + bytes || len > longest {
                found(Defect::RecordLength(slot));
            }
            places.push((at, bytes, slot));
        }
        places.sort_unstable();
        for pair in places.windows(2) {
            if pair[0].0 + pair[0].1 > pair[1].0 {
                found(Defect::RecordsOverlap(pair[0].2, pair[1].2));
            }
        }
        if live != u16_at(page, HEAP_LIVE) {
            found(Defect::HeapLive { stored: u16_at(page, HEAP_LIVE), counted: live });
        }
        let stray = |slot: &usize| {
            !presence::is_present(PlainBytes::new(page), *slot) && {
                u16_at(page, slot_at(page, *slot)) != 0
            }
        };
        if all && let Some(slot) = (0..capacity(page)).find(stray) {
            found(Defect::SlotBits(slot));
        }
    }
}
