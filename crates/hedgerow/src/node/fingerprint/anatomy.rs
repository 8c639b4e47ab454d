//! What the bytes of a fingerprint leaf are for. Of a page that has passed [`super::load_check`].

use super::layout::{FINGERPRINTS, WIDE, slot, slots_end, slots_start};
use super::read::FingerprintLeaf;
use crate::node::anatomy::{Content, Entry, FieldPlace, Mark, Part, Sketch, sketch_value};
use crate::node::fields::{count, fences_start, heap_start};
use hedgerow_sync::optimistic::PlainBytes;

/// The fields that other nodes do not have, or not here.
pub(in crate::node) const FIELDS: [FieldPlace; 7] = [
    ("places for fingerprints", 44, 2),
    ("heap start", 48, 4),
    ("live heap bytes", 52, 4),
    ("sorted records", 56, 2),
    ("fingerprint function", 58, 2),
    ("last insertion", 60, 2),
    ("run", 62, 2),
];

/// The node flag of wide slots.
pub(in crate::node) const WIDE_SLOTS: u16 = WIDE;

/// Draws everything between fixed fields and fences.
pub(in crate::node) fn sketch(sketch: &mut Sketch<'_>) {
    let page = sketch.page;
    let leaf = FingerprintLeaf::new(PlainBytes::new(page));
    sketch.region(Part::Fingerprints, slots_start(page));
    sketch.region(Part::Slots, slots_end(page));
    sketch.region(Part::Gap, heap_start(page));
    sketch.heap(Part::Heap, fences_start(page), Part::Dead);
    for place in 0..count(page) {
        let slot = slot(page, place);
        sketch.paint(slot.offset, slot.suffix_len, Part::Key);
        sketch.value(place, slot.value_at(), slot.value_len);
        sketch.entry(|| {
            let mut key = Vec::new();
            leaf.append_key(place, &mut key);
            Entry {
                place,
                at: slot.offset,
                len: slot.record_bytes(),
                mark: Mark::Fingerprint(page[FINGERPRINTS + place]),
                key,
                content: Content::Value(sketch_value(page, slot.value_at(), slot.value_len)),
            }
        });
    }
}
