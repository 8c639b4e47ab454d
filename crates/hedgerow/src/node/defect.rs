//! What can be wrong with the bytes of a node: one value for each finding of the checks.

use std::fmt;

/// One thing that is wrong with a page. The text says which value is wrong and what it should be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Defect {
    /// The page's size is no power of two between 512 bytes and 64 KiB.
    PageSize(usize),
    /// The kind byte names no node.
    Kind(u8),
    /// The level does not go with the kind.
    Level(u8),
    /// Flags of the header or of the node have bits that this version does not know.
    Flags(u16),
    /// The array of heads has a wrong size for the number of keys.
    HeadsCapacity {
        /// Places in the array.
        capacity: usize,
        /// Keys of the node.
        count: usize,
    },
    /// A fence is too long, or is long although it is infinite, or the two reach out of the page.
    FenceLength {
        /// Bytes of the lower fence.
        lower: usize,
        /// Bytes of the upper fence.
        upper: usize,
    },
    /// The lower fence is not below the upper one.
    FenceOrder,
    /// The prefix is not the common prefix of the fences.
    PrefixLength {
        /// The field.
        stored: usize,
        /// What the fences share.
        expected: usize,
    },
    /// The heap does not lie between slots and fences.
    HeapStart(usize),
    /// The slots reach into the fences.
    Slots(usize),
    /// The count of live bytes is not the sum of the records.
    HeapLive {
        /// The field.
        stored: usize,
        /// The sum.
        counted: usize,
    },
    /// A record lies outside of the heap.
    RecordPlace(usize),
    /// A record is longer than a page of this size may hold.
    RecordLength(usize),
    /// Two records share bytes.
    RecordsOverlap(usize, usize),
    /// Reserved bits of a slot are set.
    SlotBits(usize),
    /// A key is not above the one before it.
    Order(usize),
    /// A key lies outside of the fences.
    OutsideFences(usize),
    /// A head goes on behind the end of its key with something else than zeros.
    Head(usize),
    /// A hint is not the head that it should be.
    Hint(usize),
    /// A child (the count for the upper one) has an id that is never given out.
    Child(usize),
    /// A field that a leaf does not use is not zero.
    UpperChild(u32),
    /// The count of neighbouring insertions is out of its range.
    Run(i16),
    /// The array of fingerprints has a wrong size for the number of records.
    FingerprintsCapacity {
        /// Places in the array.
        capacity: usize,
        /// Records of the leaf.
        count: usize,
    },
    /// The fingerprints are of a function that this version does not know.
    FingerprintFunction(usize),
    /// More records are said to be sorted than there are.
    SortedCount(usize),
    /// A fingerprint is not that of its key.
    Fingerprint(usize),
    /// The record of an unsorted tail has the key of another record of the leaf.
    Duplicate(usize),
    /// The keys of a dense leaf cannot have this length.
    KeyLength(usize),
    /// The values of a dense leaf cannot have this length, or the layout has no such field.
    ValueLength(usize),
    /// The count is not the number of slots with records, or there are some behind the last slot.
    Presence {
        /// The field.
        stored: usize,
        /// Bits that are set.
        counted: usize,
    },
    /// The numbers of the slots do not lie between the fences.
    Base {
        /// The number of the first slot.
        base: u32,
        /// Number of slots.
        capacity: usize,
    },
    /// Used, free and dead bytes do not add up to the page.
    Space {
        /// The sum.
        counted: usize,
    },
}

impl fmt::Display for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Defect::PageSize(bytes) => write!(f, "a page of {bytes} bytes"),
            Defect::Kind(kind) => write!(f, "kind {kind} is not a node"),
            Defect::Level(level) => write!(f, "level {level} is impossible for its kind"),
            Defect::Flags(flags) => write!(f, "unknown flags {flags:#x}"),
            Defect::HeadsCapacity { capacity, count } => {
                write!(f, "{capacity} places for the heads of {count} keys")
            }
            Defect::FenceLength { lower, upper } => {
                write!(f, "fences of {lower} and {upper} bytes")
            }
            Defect::FenceOrder => f.write_str("the lower fence is not below the upper one"),
            Defect::PrefixLength { stored, expected } => {
                write!(f, "a prefix of {stored} bytes, but the fences share {expected}")
            }
            Defect::HeapStart(at) => write!(f, "the heap begins at byte {at}"),
            Defect::Slots(end) => write!(f, "the slots end at byte {end}"),
            Defect::HeapLive { stored, counted } => {
                write!(f, "{stored} live bytes, but the records have {counted}")
            }
            Defect::RecordPlace(index) => write!(f, "record {index} lies outside of the heap"),
            Defect::RecordLength(index) => write!(f, "record {index} is too long"),
            Defect::RecordsOverlap(a, b) => write!(f, "records {a} and {b} overlap"),
            Defect::SlotBits(index) => write!(f, "slot {index} has reserved bits set"),
            Defect::Order(index) => write!(f, "key {index} is not above the one before it"),
            Defect::OutsideFences(index) => write!(f, "key {index} is outside of the fences"),
            Defect::Head(index) => write!(f, "head {index} is longer than its key"),
            Defect::Hint(index) => write!(f, "hint {index} differs from its head"),
            Defect::Child(index) => write!(f, "child {index} has an impossible id"),
            Defect::UpperChild(child) => write!(f, "a leaf with upper child {child}"),
            Defect::Run(run) => write!(f, "a run of {run} insertions"),
            Defect::FingerprintsCapacity { capacity, count } => {
                write!(f, "{capacity} places for the fingerprints of {count} records")
            }
            Defect::FingerprintFunction(number) => {
                write!(f, "fingerprints of function {number}, which is unknown")
            }
            Defect::SortedCount(sorted) => write!(f, "{sorted} sorted records, more than all"),
            Defect::Fingerprint(place) => write!(f, "fingerprint {place} is not that of its key"),
            Defect::Duplicate(place) => write!(f, "the key of record {place} is there twice"),
            Defect::KeyLength(bytes) => write!(f, "keys of {bytes} bytes"),
            Defect::ValueLength(bytes) => write!(f, "values of {bytes} bytes"),
            Defect::Presence { stored, counted } => {
                write!(f, "{stored} records, but {counted} slots have one")
            }
            Defect::Base { base, capacity } => {
                write!(f, "{capacity} slots from {base} on, beyond the fences")
            }
            Defect::Space { counted } => write!(f, "space adds up to {counted} bytes"),
        }
    }
}
