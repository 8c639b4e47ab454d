//! What cache lines hold, and which key an operation is about: so that a simulated abort says where and between whom it was.
//!
//! All of this is nothing but under `--cfg hedgerow_sim`, in a run.

/// What a cache line holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Label {
    /// Nobody has said.
    Unknown = 0,
    /// An inner node.
    Inner = 1,
    /// Counts, sequence numbers and links of a leaf.
    LeafMetadata = 2,
    /// Keys and values of a leaf.
    Record = 3,
    /// A conflict control module.
    Ccm = 4,
    /// A lock.
    Lock = 5,
    /// A dictionary.
    Dictionary = 6,
    /// An allocator.
    Allocator = 7,
}

impl Label {
    /// All labels, in the order of their numbers.
    pub const ALL: [Label; 8] = [
        Label::Unknown,
        Label::Inner,
        Label::LeafMetadata,
        Label::Record,
        Label::Ccm,
        Label::Lock,
        Label::Dictionary,
        Label::Allocator,
    ];

    /// What it is called.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Label::Unknown => "unknown",
            Label::Inner => "inner",
            Label::LeafMetadata => "leaf metadata",
            Label::Record => "record",
            Label::Ccm => "CCM",
            Label::Lock => "lock",
            Label::Dictionary => "dictionary",
            Label::Allocator => "allocator",
        }
    }
}

/// Says what the cache lines of `data` hold. Costs no simulated time. May be said in a body as well.
#[inline(always)]
pub fn lines<D: ?Sized>(data: &D, label: Label) {
    #[cfg(hedgerow_sim)]
    hedgerow_sim::transaction::label(
        std::ptr::from_ref(data).addr(),
        size_of_val(data),
        label as u8,
    );
    #[cfg(not(hedgerow_sim))]
    let _ = (data, label);
}

/// Says which key the calling thread's operation is about, from now on.
#[inline(always)]
pub fn operation(key: u64) {
    #[cfg(hedgerow_sim)]
    hedgerow_sim::transaction::about(key);
    #[cfg(not(hedgerow_sim))]
    let _ = key;
}
