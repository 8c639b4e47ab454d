//! Changes of a node: format, insert, update, remove, and compaction under them.
//!
//! The caller holds the page exclusively, or a private copy of it, and has seen [`super::load_check`]
//! pass since the page came from outside; then nothing here panics, whatever else is wrong with the
//! bytes. Invariants: a call that gives [`NoSpace`] has changed nothing; after every call the space
//! equation of [`super::layout`] holds, heads and hints agree with the keys, and `heap_live` is the sum
//! of the records. Removed records stay on the heap until an insertion needs their space.

use super::cut::near;
use super::fields::{
    COUNT, HEADS, HEADS_CAPACITY, HEAP_START, LAST_INSERT, LOWER_INFINITE, LOWER_LEN, NODE_FLAGS,
    PREFIX_LEN, RUN, UPPER_INFINITE, UPPER_LEN, common_prefix, count, fences_start, heap_start,
    max_record_bytes, prefix, set_u16, set_u32, u16_at,
};
use super::layout::{
    Comparison, HINT_COUNT, HINTS, Slot, UPPER_CHILD, expected_hint, head, head_of, heads_needed,
    hint_spacing, is_inner, set_head, set_slot, slot, slot_bytes, slots, slots_end, slots_start,
    space_needed, value, write_slot,
};
use super::read::Node;
use super::rung;
use super::slotted::{self, NoSpace, add_live, take_heap};
use super::suffix::Suffix;
use crate::page::header::{FLAGS, KIND, LEVEL, NEWEST_LSN, PageKind};
use crate::types::PageId;
use hedgerow_sync::optimistic::PlainBytes;
use std::ops::Range;

/// Longest run of neighbouring insertions that is counted.
pub(super) const MAX_RUN: i16 = 64;

/// A record on its way into a node: see [`NodeMut::append_all`].
pub(super) struct Appended<'r> {
    /// The key without the node's prefix, and behind it the value.
    pub bytes: &'r [u8],
    /// Bytes of the first of the two.
    pub suffix_len: usize,
    /// The child below the separator; zero in a leaf.
    pub child: u32,
}

/// A node to change.
#[derive(Debug)]
pub struct NodeMut<'a> {
    pub(super) page: &'a mut [u8],
}

impl<'a> NodeMut<'a> {
    /// Wraps a page that has passed [`super::load_check`] or was formatted by this build.
    #[inline]
    pub fn new(page: &'a mut [u8]) -> Self {
        NodeMut { page }
    }

    /// Makes an empty node out of a page, for keys `lower < key <= upper` (`None`: without end).
    ///
    /// Of the page's header, ids, epoch and checksum stay; the newest LSN becomes zero. An inner node
    /// needs its upper child set before it is used. The fences have at most
    /// [`max_key_bytes`](super::max_key_bytes) each.
    pub fn format(
        page: &'a mut [u8],
        kind: PageKind,
        level: u8,
        lower: Option<&[u8]>,
        upper: Option<&[u8]>,
    ) -> Self {
        write_frame(page, kind, level, HEADS, [lower, upper]);
        if !rung::PREFIX {
            set_u16(page, PREFIX_LEN, 0);
        }
        let mut node = NodeMut::new(page);
        node.refresh_hints(0, 0);
        node
    }

    /// The node, to read.
    #[inline]
    pub fn as_node(&self) -> Node<PlainBytes<'_>> {
        Node::new(PlainBytes::new(self.page))
    }

    /// The bytes of the page.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.page
    }

    /// The value of record `index` of a leaf.
    ///
    /// # Panics
    /// If there is no such record.
    #[cfg(hedgerow_internals)]
    pub fn value(&self, index: usize) -> &[u8] {
        assert!(index < count(self.page), "no record {index} to read");
        value(self.page, index)
    }

    /// Inserts a record into a leaf at `index`, where [`Node::search`] has not found the key.
    ///
    /// # Errors
    /// [`NoSpace`] if the leaf must be split first, or if key and value are longer than
    /// [`max_record_bytes`] (which no split can help; the caller has checked it).
    ///
    /// # Panics
    /// If `index` is above the count.
    pub fn insert(&mut self, index: usize, key: &[u8], value: &[u8]) -> Result<(), NoSpace> {
        if key.len() + value.len() > max_record_bytes(self.page.len()) {
            return Err(NoSpace);
        }
        let suffix = key.get(u16_at(self.page, PREFIX_LEN)..).unwrap_or(&[]);
        self.insert_record(index, suffix, value, 0)
    }

    /// Gives record `index` of a leaf another value: in place if it is not longer than the old one.
    ///
    /// # Errors
    /// [`NoSpace`] as for [`Self::insert`].
    ///
    /// # Panics
    /// If there is no such record.
    pub fn update(&mut self, index: usize, value: &[u8]) -> Result<(), NoSpace> {
        slotted::update::<_, Comparison>(self.page, index, value)
    }

    /// Removes record (or separator) `index`.
    ///
    /// # Panics
    /// If there is no such record.
    pub fn remove(&mut self, index: usize) {
        let count = count(self.page);
        assert!(index < count, "no record {index} to remove");
        let removed = slot(self.page, index);
        slotted::move_records::<_, Comparison>(self.page, index + 1..count, index);
        slotted::forget_record(self.page, removed);
        self.refresh_hints(index, count);
    }

    /// Inserts a slot and its record; the suffix is the key without the node's prefix.
    pub(super) fn insert_record(
        &mut self,
        index: usize,
        suffix: &[u8],
        value: &[u8],
        child: u32,
    ) -> Result<(), NoSpace> {
        let count = count(self.page);
        assert!(index <= count, "no place {index} to insert at");
        let rest = suffix.get(rung::HEAD_BYTES..).unwrap_or(&[]);
        let record = rest.len() + value.len();
        slotted::make_room::<_, Comparison>(self.page, record, slot_bytes(self.page))?;
        slotted::move_records::<_, Comparison>(self.page, index..count, index + 1);
        if rung::HEADS {
            set_head(self.page, index, head_of(suffix));
        }
        set_u16(self.page, COUNT, count + 1);
        let offset = take_heap(self.page, record);
        let value_at = offset + rest.len();
        self.page[offset..value_at].copy_from_slice(rest);
        self.page[value_at..value_at + value.len()].copy_from_slice(value);
        let (suffix_len, value_len) = (suffix.len(), value.len());
        set_slot(self.page, index, Slot { offset, suffix_len, value_len, child });
        self.refresh_hints(index, count);
        note_insertion(self.page, index, count);
        Ok(())
    }

    /// Bytes needed for so many slots and live bytes between the fences that the node has.
    pub(super) fn space_needed(&self, count: usize, live: usize) -> usize {
        let fences = self.page.len() - fences_start(self.page);
        space_needed(slot_bytes(self.page), count, live, fences)
    }

    /// Sets the size of the array of heads of a node that has no records yet.
    pub(super) fn reserve_heads(&mut self, count: usize) {
        let capacity = heads_needed(count);
        set_u16(self.page, HEADS_CAPACITY, capacity);
    }

    /// Appends records, each with its value right behind its suffix. There is room, and a place among the
    /// heads; the caller refreshes the hints when all is appended.
    pub(super) fn append_all<'r>(&mut self, records: impl Iterator<Item = Appended<'r>>) {
        let (mut count, mut top) = (count(self.page), heap_start(self.page));
        let (mut slot_at, width) = (slots_end(self.page), slot_bytes(self.page));
        let (inner, end) = (is_inner(self.page), top);
        for Appended { bytes, suffix_len, child } in records {
            let record = &bytes[suffix_len.min(rung::HEAD_BYTES)..];
            top -= record.len();
            self.page[top..top + record.len()].copy_from_slice(record);
            if rung::HEADS {
                set_head(self.page, count, head_of(&bytes[..suffix_len]));
            }
            let value_len = bytes.len() - suffix_len;
            let offset = if record.is_empty() { 0 } else { top };
            write_slot(
                &mut self.page[slot_at..slot_at + width],
                Slot { offset, suffix_len, value_len, child },
                inner,
            );
            slot_at += width;
            count += 1;
        }
        set_u16(self.page, COUNT, count);
        set_u32(self.page, HEAP_START, top as u32);
        add_live(self.page, end - top, 0);
    }

    /// Appends a record whose suffix comes in parts. There is room, and a place among the heads;
    /// the caller refreshes the hints when all is appended.
    pub(super) fn append_record(&mut self, parts: [&[u8]; 3], value: &[u8], child: u32) {
        let suffix_len = parts.iter().map(|part| part.len()).sum();
        let mut at =
            self.append_slot(Slot { offset: 0, suffix_len, value_len: value.len(), child });
        let (mut head, mut head_len) = ([0; 4], 0);
        for part in parts {
            let (first, rest) = part.split_at(part.len().min(rung::HEAD_BYTES - head_len));
            head[head_len..head_len + first.len()].copy_from_slice(first);
            head_len += first.len();
            self.page[at..at + rest.len()].copy_from_slice(rest);
            at += rest.len();
        }
        self.page[at..at + value.len()].copy_from_slice(value);
        if rung::HEADS {
            set_head(self.page, count(self.page) - 1, head_of(&head));
        }
    }

    /// Appends a slot, takes room on the heap for its record, and gives the record's first byte. The
    /// slot's offset is not looked at.
    fn append_slot(&mut self, slot: Slot) -> usize {
        let count = count(self.page);
        let offset = take_heap(self.page, slot.record_bytes());
        set_u16(self.page, COUNT, count + 1);
        set_slot(self.page, count, Slot { offset, ..slot });
        offset
    }

    /// Appends the records `range` of another node, translating between the two prefixes.
    pub(super) fn append_from(&mut self, source: &[u8], range: Range<usize>) {
        let from = prefix(source);
        let to = u16_at(self.page, PREFIX_LEN);
        if let Some(dropped) = to.checked_sub(from.len()) {
            return self.append_shortened(source, range, dropped);
        }
        let restored = from.get(to..).unwrap_or(&[]);
        for index in range {
            let suffix = Suffix::read(source, index);
            let (head, head_len) = suffix.head();
            let parts = [restored, &head[..head_len], suffix.rest()];
            self.append_record(parts, value(source, index), slot(source, index).child);
        }
    }

    /// Appends records of another node without the first `dropped` bytes of their suffixes. What is left
    /// of the rest, and the value behind it, stay together.
    fn append_shortened(&mut self, source: &[u8], range: Range<usize>, dropped: usize) {
        let (slot_bytes, inner) = (slot_bytes(self.page), is_inner(self.page));
        let (mut to, top) = (count(self.page), heap_start(self.page));
        let (mut slot_at, mut offset) = (slots_start(self.page) + to * slot_bytes, top);
        for (index, old) in range.clone().zip(slots(source, range)) {
            let new = old.shortened(dropped);
            let (end, record) = (old.offset + old.record_bytes(), new.record_bytes());
            offset -= record;
            self.page[offset..offset + record].copy_from_slice(&source[end - record..end]);
            // As in `set_slot`: what has no bytes has no place.
            let offset = if record == 0 { 0 } else { offset };
            write_slot(&mut self.page[slot_at..], Slot { offset, ..new }, inner);
            if rung::HEADS {
                let rest = &source[old.offset..old.offset + old.rest_len()];
                set_head(self.page, to, shifted_head(head(source, index), rest, dropped));
            }
            (to, slot_at) = (to + 1, slot_at + slot_bytes);
        }
        set_u16(self.page, COUNT, to);
        set_u32(self.page, HEAP_START, offset as u32);
        add_live(self.page, top - offset, 0);
    }

    /// Brings the hints up to date after the keys from `index` on have changed and the count was
    /// `old_count` before.
    pub(super) fn refresh_hints(&mut self, index: usize, old_count: usize) {
        if !rung::HINTS {
            return;
        }
        let count = count(self.page);
        let spacing = hint_spacing(count);
        // With another spacing (or none before) all hints change; else those behind both counts are
        // unused and stay so.
        let all = old_count == 0 || spacing != hint_spacing(old_count);
        let from = if all { 0 } else { index.div_ceil(spacing).max(1) - 1 };
        for hint in from..HINT_COUNT {
            let head = expected_hint(self.page, hint);
            set_u32(self.page, HINTS + 4 * hint, head as u32);
            if !all && spacing * (hint + 1) >= count.max(old_count) {
                break;
            }
        }
    }

    /// Sets the child above the last separator of an inner node.
    pub fn set_upper_child(&mut self, child: PageId) {
        debug_assert!(is_inner(self.page));
        set_u32(self.page, UPPER_CHILD, child.0);
    }
}

/// Writes what is the same in an empty node of any layout: kind, level, newest LSN (zero), fences,
/// their common prefix, and where the heap begins. The other fields up to `fixed_end` become zero.
pub(super) fn write_frame(
    page: &mut [u8],
    kind: PageKind,
    level: u8,
    fixed_end: usize,
    fences: [Option<&[u8]>; 2],
) {
    page[NEWEST_LSN..NEWEST_LSN + 8].fill(0);
    page[KIND] = kind as u8;
    page[LEVEL] = level;
    page[FLAGS..fixed_end].fill(0);
    let end = write_fences(page, fences);
    set_u32(page, HEAP_START, end as u32);
}

/// Writes both fences, and the fields that follow from them: the other node flags become zero. Returns
/// the fences' first byte.
pub(super) fn write_fences(page: &mut [u8], [lower, upper]: [Option<&[u8]>; 2]) -> usize {
    let mut flags = 0;
    let mut end = page.len();
    for (fence, len_field, infinite) in
        [(lower, LOWER_LEN, LOWER_INFINITE), (upper, UPPER_LEN, UPPER_INFINITE)]
    {
        let bytes = fence.unwrap_or(&[]);
        if fence.is_none() {
            flags |= infinite;
        }
        set_u16(page, len_field, bytes.len());
        page[end - bytes.len()..end].copy_from_slice(bytes);
        end -= bytes.len();
    }
    set_u16(page, NODE_FLAGS, usize::from(flags));
    let shared = match (lower, upper) {
        (Some(lower), Some(upper)) => common_prefix(lower, upper),
        _ => 0,
    };
    set_u16(page, PREFIX_LEN, shared);
    end
}

/// Counts insertions that come right behind the last one (up) or right before it (down): one at
/// `index` of a node that had `old_count` keys.
#[inline]
pub(super) fn note_insertion(page: &mut [u8], index: usize, old_count: usize) {
    let last = u16_at(page, LAST_INSERT);
    let run = u16_at(page, RUN) as u16 as i16;
    // The first one has no neighbour.
    let run = if old_count == 0 { 0 } else { run_behind(run, last, index, near(old_count)) };
    set_u16(page, LAST_INSERT, index);
    set_u16(page, RUN, usize::from(run as u16));
}

/// Hands the run of insertions on to a half of a node that was split, if it has the record of the last one: what goes on in one
/// direction is still seen to, however the cut came out. The half has the records from `start` on. What was left whole
/// gets nothing, because the run goes on beside it: else whatever comes near its end later would be cut off by itself.
pub(super) fn hand_run_on(old: &[u8], half: &mut [u8], start: usize) {
    let place = u16_at(old, LAST_INSERT).checked_sub(start);
    let is_whole = 8 * count(half) > 7 * count(old);
    if let Some(place) = place.filter(|place| *place < count(half) && !is_whole) {
        set_u16(half, LAST_INSERT, place);
        set_u16(half, RUN, u16_at(old, RUN));
    }
}

/// How steadily insertions go up or down, after one more of them.
pub(super) fn run_behind(run: i16, last: usize, index: usize, near: usize) -> i16 {
    // A key that skips some places counts for as many, so that the late ones do not cancel it.
    let run = if index > last && index - last <= near {
        run.saturating_add((index - last) as i16)
    } else if index <= last && last - index < near {
        run.saturating_sub(1 + (last - index) as i16)
    } else {
        run / 2
    };
    run.clamp(-MAX_RUN, MAX_RUN)
}

/// The head of a suffix, given in its parts, of which the first `dropped` bytes are cut off.
fn shifted_head(head: i32, rest: &[u8], dropped: usize) -> i32 {
    match dropped {
        0 => head,
        1..4 => {
            let bytes = |head: i32| (head ^ i32::MIN) as u32;
            let both = u64::from(bytes(head)) << 32 | u64::from(bytes(head_of(rest)));
            (both << (8 * dropped) >> 32) as i32 ^ i32::MIN
        }
        _ => head_of(rest.get(dropped - 4..).unwrap_or(&[])),
    }
}
