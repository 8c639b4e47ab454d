//! What the bytes of dense leaves are for. Of a page that has passed [`super::load_check`].

use super::fields::{HEAP_START, VALUE_LEN, array_start, base, capacity, tail_start};
use super::fields::{key_len, stored_stem_len};
use super::layout::DenseLayout;
use super::read::DenseNode;
use super::{Full, Semi};
use crate::node::anatomy::{Content, Entry, FieldPlace, Mark, Part, Sketch, sketch_value};
use crate::node::fields::{PREFIX_LEN, fences_start, u16_at};
use hedgerow_sync::optimistic::PlainBytes;

/// The fields that other nodes do not have, or not here.
pub(in crate::node) const FIELDS: [FieldPlace; 8] = [
    ("slots", 44, 2),
    ("heap start", 48, 2),
    ("live heap bytes", 50, 2),
    ("key bytes", 52, 2),
    ("value bytes", 54, 2),
    ("base", 56, 4),
    ("last insertion", 60, 2),
    ("run", 62, 2),
];

/// Bytes of a slot of a semi-dense leaf.
const SLOT_BYTES: usize = 2;

/// Draws everything of a semi-dense leaf between fixed fields and fences.
pub(in crate::node) fn sketch_semi(sketch: &mut Sketch<'_>) {
    let page = sketch.page;
    let slots = array_start(capacity(page));
    sketch.region(Part::Presence, slots);
    sketch.region(Part::Slots, slots + SLOT_BYTES * capacity(page));
    sketch.region(Part::Gap, u16_at(page, HEAP_START));
    sketch.heap(Part::Heap, tail_start(page), Part::Dead);
    records::<Semi>(sketch, |place| u16_at(page, slots + SLOT_BYTES * place));
    stem(sketch);
}

/// Draws everything of a fully dense leaf between fixed fields and fences.
pub(in crate::node) fn sketch_full(sketch: &mut Sketch<'_>) {
    let page = sketch.page;
    let (values, each) = (array_start(capacity(page)), u16_at(page, VALUE_LEN));
    sketch.region(Part::Presence, values);
    sketch.heap(Part::Values, values + each * capacity(page), Part::Absent);
    sketch.region(Part::Gap, tail_start(page));
    records::<Full>(sketch, |place| values + each * place);
    stem(sketch);
}

/// Draws the records, of which `start` tells the first bytes.
fn records<V: DenseLayout>(sketch: &mut Sketch<'_>, start: impl Fn(usize) -> usize) {
    let page = sketch.page;
    let leaf = DenseNode::<_, V>::new(PlainBytes::new(page));
    for place in leaf.places() {
        let at = start(place);
        let (value_at, len) = V::value_place(PlainBytes::new(page), place);
        sketch.paint(at, value_at.saturating_sub(at), Part::Length);
        sketch.value(place, value_at, len);
        sketch.entry(|| {
            let mut key = Vec::new();
            leaf.append_key(place, &mut key);
            Entry {
                place,
                at,
                len: value_at.saturating_sub(at) + len,
                mark: Mark::Number(base(page).wrapping_add(place as u32)),
                key,
                content: Content::Value(sketch_value(page, value_at, len)),
            }
        });
    }
}

/// Draws the stem, if it is stored, and the room before it.
fn stem(sketch: &mut Sketch<'_>) {
    let page = sketch.page;
    let fences = fences_start(page);
    let stored = stored_stem_len(key_len(page), u16_at(page, PREFIX_LEN));
    sketch.region(Part::Spare, fences.saturating_sub(stored));
    sketch.region(Part::Stem, fences);
}
