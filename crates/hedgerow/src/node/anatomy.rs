//! What every byte of a page is for: the fields decoded, the regions, the first records.
//!
//! For tools that draw pages, which get them from [`Keyspace::show_pages`](crate::Keyspace::show_pages). [`anatomy()`] is total: it takes any bytes, and of a page whose places cannot
//! be trusted ([`super::load_check`]) it tells the defects, the fields at fixed places and nothing else.
//! The layouts describe themselves: inner nodes and comparison leaves here, the others in
//! `fingerprint/anatomy.rs` and `dense/anatomy.rs`, all by a `Sketch`.
//!
//! Invariants: the regions follow each other without gap or overlap from the first byte to the last,
//! whatever the bytes say; [`Anatomy::parts`] has an entry for each byte. Pure functions over a private copy; nothing is latched.

use super::check::{check, load_check};
use super::defect::Defect;
use super::fields::{
    COUNT, HEADS, LOWER_INFINITE, LOWER_LEN, NODE_FLAGS, PREFIX_LEN, UPPER_INFINITE, UPPER_LEN,
    count, fences_start, heap_start, u16_at,
};
use super::layout::{HINTS, head, is_inner, slot, slots_end, slots_start};
use super::read::Node;
use super::{dense, fingerprint};
use crate::large::{Extent, Stored, read_stored};
use crate::page::header::{HEADER_BYTES, MIN_PAGE_BYTES, PageKind, kind};
use crate::types::PageId;
use hedgerow_sync::optimistic::PlainBytes;

/// What a byte, or a region, is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum Part {
    /// The header that all pages have.
    Header,
    /// The fixed fields of the layout.
    Fields,
    /// Heads at equal distances.
    Hints,
    /// The first four bytes of each key.
    Heads,
    /// A hash of one byte for each key.
    Fingerprints,
    /// A bit for each slot of a dense leaf.
    Presence,
    /// Where records are; of a semi-dense leaf, where values are.
    Slots,
    /// Values of a fully dense leaf, by slot.
    Values,
    /// Room for more records.
    Gap,
    /// Records in any order.
    Heap,
    /// In heap or values: bytes of a key.
    Key,
    /// In the heap of a semi-dense leaf: the length of a value.
    Length,
    /// In heap or values: bytes of a value.
    Value,
    /// In heap or values: where the value of a record is that no leaf holds.
    Reference,
    /// In the heap: bytes that belong to no record.
    Dead,
    /// In the values of a fully dense leaf: slots without a record.
    Absent,
    /// Room that is kept for longer fences.
    Spare,
    /// What the keys of a dense leaf begin with, if the fences do not.
    Stem,
    /// The upper fence.
    UpperFence,
    /// The lower fence.
    LowerFence,
    /// Bytes of a damaged page, of which nothing can be said.
    Unknown,
}

impl Part {
    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Part::Header => "header",
            Part::Fields => "fields",
            Part::Hints => "hints",
            Part::Heads => "heads",
            Part::Fingerprints => "fingerprints",
            Part::Presence => "presence bits",
            Part::Slots => "slots",
            Part::Values => "values by slot",
            Part::Gap => "gap",
            Part::Heap => "heap",
            Part::Key => "keys",
            Part::Length => "lengths",
            Part::Value => "values",
            Part::Reference => "references to values",
            Part::Dead => "dead",
            Part::Absent => "no record",
            Part::Spare => "kept for fences",
            Part::Stem => "stem",
            Part::UpperFence => "upper fence",
            Part::LowerFence => "lower fence",
            Part::Unknown => "unknown",
        }
    }
}

/// A run of bytes for one purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Region {
    /// What for; never one of those that lie inside of heap or values.
    pub part: Part,
    /// First byte.
    pub at: usize,
    /// Bytes; never zero.
    pub len: usize,
}

/// A field at a fixed place.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Field {
    /// What it is.
    pub name: &'static str,
    /// First byte.
    pub at: usize,
    /// Bytes: 1, 2, 4 or 8.
    pub len: usize,
    /// Its bytes as a little-endian number.
    pub value: u64,
    /// What that means, where the number does not say it.
    pub meaning: String,
}

/// What a search looks at before it looks at the key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mark {
    /// The first four bytes of the key behind the prefix, zero-padded.
    Head([u8; 4]),
    /// A hash of the key behind the prefix.
    Fingerprint(u8),
    /// The last bytes of the key as a number.
    Number(u32),
}

/// What belongs to a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Content {
    /// In a leaf: its value, or what the leaf has instead; see [`Anatomy::references`].
    Value(Vec<u8>),
    /// In an inner node: the child with keys up to this one.
    Child(PageId),
}

/// What a leaf has instead of a value.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Reference {
    /// Index of the record's slot.
    pub place: usize,
    pub(crate) extent: Option<Extent>,
}

impl Reference {
    /// Length of the value in bytes; `None` if the reference is damaged. See [`Keyspace::extent_places`](crate::Keyspace::extent_places).
    #[must_use]
    pub fn len_bytes(&self) -> Option<u64> {
        self.extent.as_ref().map(|extent| extent.len_bytes)
    }
}

/// A record or a separator.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Entry {
    /// Index of its slot.
    pub place: usize,
    /// First byte of what is stored besides slot and mark.
    pub at: usize,
    /// Bytes of it.
    pub len: usize,
    /// See [`Mark`].
    pub mark: Mark,
    /// The whole key.
    pub key: Vec<u8>,
    /// What belongs to it.
    pub content: Content,
}

/// See the head of the file.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Anatomy {
    /// What the page says that it is; `None` if this build knows no such kind.
    pub kind: Option<PageKind>,
    /// The fields at fixed places, by place.
    pub fields: Vec<Field>,
    /// From the first byte to the last.
    pub regions: Vec<Region>,
    /// For each byte what it is for; inside of heap and values more exactly than the regions.
    pub parts: Vec<Part>,
    /// The first records or separators, by place.
    pub entries: Vec<Entry>,
    /// All references to values that are not in the leaf, by place; damaged ones, too.
    pub references: Vec<Reference>,
    /// In an inner node: the child above the last separator.
    pub upper_child: Option<PageId>,
    /// The lower fence; `None` for minus infinity, and in a page that cannot be trusted.
    pub lower: Option<Vec<u8>>,
    /// The upper fence; likewise.
    pub upper: Option<Vec<u8>>,
    /// Everything that is wrong, a sentence each.
    pub defects: Vec<String>,
    /// Whether places and lengths can be trusted; else regions, entries and fences say next to nothing.
    pub readable: bool,
}

impl Anatomy {
    /// How many bytes of the page are for this.
    #[must_use]
    pub fn bytes_of(&self, part: Part) -> usize {
        self.parts.iter().filter(|&&of| of == part).count()
    }
}

/// Describes a page, with its first `most` records. It takes any bytes, and time in proportion to their number.
#[must_use]
pub fn anatomy(page: &[u8], most: usize) -> Anatomy {
    let mut sketch = Sketch::new(page, most);
    if page.len() < MIN_PAGE_BYTES {
        return sketch.finish(vec![Defect::PageSize(page.len())], false);
    }
    let kind = kind(page);
    sketch.fields(&HEADER_FIELDS);
    sketch.region(Part::Header, HEADER_BYTES);
    match kind {
        None | Some(PageKind::Free) => {}
        Some(PageKind::Inner | PageKind::ComparisonLeaf) => {
            sketch.fields(&NODE_FIELDS);
            sketch.fields(&SLOTTED_FIELDS);
        }
        Some(PageKind::FingerprintLeaf) => {
            sketch.fields(&NODE_FIELDS);
            sketch.fields(&fingerprint::FIELDS);
        }
        Some(PageKind::SemiDenseLeaf | PageKind::FullyDenseLeaf) => {
            sketch.fields(&NODE_FIELDS);
            sketch.fields(&dense::FIELDS);
        }
    }
    let defects = check(page);
    if load_check(page).is_err() {
        return sketch.finish(defects, false);
    }
    sketch.region(Part::Fields, HINTS);
    match kind {
        Some(PageKind::FingerprintLeaf) => fingerprint::sketch(&mut sketch),
        Some(PageKind::SemiDenseLeaf) => dense::sketch_semi(&mut sketch),
        Some(PageKind::FullyDenseLeaf) => dense::sketch_full(&mut sketch),
        _ => sketch_slotted(&mut sketch),
    }
    let (upper, lower) = (u16_at(page, UPPER_LEN), u16_at(page, LOWER_LEN));
    sketch.region(Part::Spare, page.len().saturating_sub(upper + lower));
    sketch.region(Part::UpperFence, page.len().saturating_sub(lower));
    sketch.region(Part::LowerFence, page.len());
    sketch.finish(defects, true)
}

/// Name, place and length of a field.
pub(super) type FieldPlace = (&'static str, usize, usize);

const HEADER_FIELDS: [FieldPlace; 8] = [
    ("checksum", 0, 8),
    ("page id", 8, 4),
    ("tree id", 12, 4),
    ("epoch", 16, 8),
    ("newest LSN", 24, 8),
    ("kind", 32, 1),
    ("level", 33, 1),
    ("flags", 34, 2),
];

/// Fields that all nodes have at the same places.
const NODE_FIELDS: [FieldPlace; 5] = [
    ("count", COUNT, 2),
    ("prefix bytes", PREFIX_LEN, 2),
    ("lower fence bytes", LOWER_LEN, 2),
    ("upper fence bytes", UPPER_LEN, 2),
    ("node flags", NODE_FLAGS, 2),
];

const SLOTTED_FIELDS: [FieldPlace; 6] = [
    ("places for heads", 44, 2),
    ("heap start", 48, 4),
    ("live heap bytes", 52, 4),
    ("upper child", 56, 4),
    ("last insertion", 60, 2),
    ("run", 62, 2),
];

fn sketch_slotted(sketch: &mut Sketch<'_>) {
    let page = sketch.page;
    let node = Node::new(PlainBytes::new(page));
    sketch.region(Part::Hints, HEADS);
    sketch.region(Part::Heads, slots_start(page));
    sketch.region(Part::Slots, slots_end(page));
    sketch.region(Part::Gap, heap_start(page));
    sketch.heap(Part::Heap, fences_start(page), Part::Dead);
    for place in 0..count(page) {
        let slot = slot(page, place);
        let rest = slot.rest_len();
        sketch.paint(slot.offset, rest, Part::Key);
        if !is_inner(page) {
            sketch.value(place, slot.offset + rest, slot.value_len);
        }
        sketch.entry(|| {
            let mut key = Vec::new();
            node.append_key(place, &mut key);
            let content = if is_inner(page) {
                Content::Child(PageId(slot.child))
            } else {
                Content::Value(sketch_value(page, slot.offset + rest, slot.value_len))
            };
            let first = (head(page, place) ^ i32::MIN) as u32;
            Entry {
                place,
                at: slot.offset,
                len: rest + slot.value_len,
                mark: Mark::Head(first.to_be_bytes()),
                key,
                content,
            }
        });
    }
    if is_inner(page) {
        sketch.upper_child = Some(node.child_at(count(page)));
    }
}

/// Some bytes of a page; none if they are not all there.
pub(super) fn sketch_value(page: &[u8], at: usize, len: usize) -> Vec<u8> {
    let bytes = page.get(at..at.saturating_add(len)).unwrap_or(&[]);
    match read_stored(bytes) {
        // Without what keeps it apart from a reference.
        Stored::Plain(value) => value.to_vec(),
        Stored::Extent(_) | Stored::Damaged => bytes.to_vec(),
    }
}

/// An [`Anatomy`] in the making.
pub(super) struct Sketch<'p> {
    pub(super) page: &'p [u8],
    most: usize,
    end: usize,
    fields: Vec<Field>,
    regions: Vec<Region>,
    parts: Vec<Part>,
    entries: Vec<Entry>,
    references: Vec<Reference>,
    upper_child: Option<PageId>,
}

impl<'p> Sketch<'p> {
    fn new(page: &'p [u8], most: usize) -> Self {
        Sketch {
            page,
            most,
            end: 0,
            fields: Vec::new(),
            regions: Vec::new(),
            parts: vec![Part::Unknown; page.len()],
            entries: Vec::new(),
            references: Vec::new(),
            upper_child: None,
        }
    }

    fn fields(&mut self, places: &[FieldPlace]) {
        for &(name, at, len) in places {
            let Some(bytes) = self.page.get(at..at + len) else { continue };
            let value = bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte));
            let meaning = meaning(name, value, self.page);
            self.fields.push(Field { name, at, len, value, meaning });
        }
        self.fields.sort_by_key(|field| field.at);
    }

    /// What follows the last region, up to `end`.
    pub(super) fn region(&mut self, part: Part, end: usize) {
        let at = self.end;
        let end = end.min(self.page.len());
        if end > at {
            self.regions.push(Region { part, at, len: end - at });
            self.parts[at..end].fill(part);
            self.end = end;
        }
    }

    /// A region up to `end` of which it is not known yet what is where.
    pub(super) fn heap(&mut self, part: Part, end: usize, inside: Part) {
        let at = self.end;
        self.region(part, end);
        self.parts[at..self.end].fill(inside);
    }

    /// Says more exactly what some bytes are for.
    pub(super) fn paint(&mut self, at: usize, len: usize, part: Part) {
        let end = at.saturating_add(len).min(self.page.len());
        if let Some(parts) = self.parts.get_mut(at..end) {
            parts.fill(part);
        }
    }

    /// Says where the value of a record is, and what it is.
    pub(super) fn value(&mut self, place: usize, at: usize, len: usize) {
        let end = at.saturating_add(len).min(self.page.len());
        let bytes = self.page.get(at..end).unwrap_or(&[]);
        let extent = match read_stored(bytes) {
            Stored::Plain(_) => return self.paint(at, len, Part::Value),
            Stored::Extent(extent) => Some(extent),
            Stored::Damaged => None,
        };
        self.references.push(Reference { place, extent });
        self.paint(at, len, Part::Reference);
    }

    /// Adds a record, unless there are enough.
    pub(super) fn entry(&mut self, entry: impl FnOnce() -> Entry) {
        if self.entries.len() < self.most {
            self.entries.push(entry());
        }
    }

    fn finish(mut self, defects: Vec<Defect>, readable: bool) -> Anatomy {
        self.region(Part::Unknown, self.page.len());
        let (mut lower, mut upper) = (None, None);
        if readable {
            let node = Node::new(PlainBytes::new(self.page));
            let (mut below, mut above) = (Vec::new(), Vec::new());
            lower = node.append_lower_fence(&mut below).then_some(below);
            upper = node.append_upper_fence(&mut above).then_some(above);
        }
        Anatomy {
            kind: (self.page.len() >= MIN_PAGE_BYTES).then(|| kind(self.page)).flatten(),
            fields: self.fields,
            regions: self.regions,
            parts: self.parts,
            entries: self.entries,
            references: self.references,
            upper_child: self.upper_child,
            lower,
            upper,
            defects: defects.iter().map(ToString::to_string).collect(),
            readable,
        }
    }
}

fn meaning(name: &str, value: u64, page: &[u8]) -> String {
    match name {
        "checksum" => format!("{value:016x}"),
        "kind" => kind(page).map_or("unknown", PageKind::name).to_owned(),
        "node flags" => {
            let flags = [
                (u64::from(LOWER_INFINITE), "no lower fence"),
                (u64::from(UPPER_INFINITE), "no upper fence"),
                (u64::from(fingerprint::WIDE_SLOTS), "wide slots"),
            ];
            let set = flags.iter().filter(|(bit, _)| value & bit != 0).map(|&(_, name)| name);
            set.collect::<Vec<_>>().join(", ")
        }
        "run" => (value as u16 as i16).to_string(),
        _ => String::new(),
    }
}
