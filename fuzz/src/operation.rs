//! Operations on a store as libFuzzer's bytes are read: what a user does, with keys that meet each other.
//!
//! Plain data.

use arbitrary::Arbitrary;
use hedgerow::{LeafLayout, LeafPolicy, Options, smallest_memory_limit_bytes};

/// Sizes of pages that a store may have.
const PAGE_BYTES: [usize; 4] = [512, 1024, 2048, 4096];
/// Small enough for files of several zones, and for chunks that are staged.
const SMALL_ZONE_BYTES: u32 = 8 << 10;
const ZONE_BYTES: u32 = 128 << 10;
/// Blocks of a segment of the log: few, so that it has several.
const SEGMENT_BLOCKS: u32 = 4;

/// A key.
#[derive(Arbitrary, Debug, Clone)]
pub enum Key {
    Number(u16),
    Few(u8),
    Url { site: u8, page: u8 },
    Raw(Vec<u8>),
}

impl Key {
    /// Its bytes: at most 40.
    pub fn bytes(&self) -> Vec<u8> {
        match self {
            Key::Number(number) => number.to_be_bytes().to_vec(),
            Key::Few(number) => vec![b'k', number % 16],
            Key::Url { site, page } => {
                format!("https://{}.example/page/{page}", site % 8).into_bytes()
            }
            Key::Raw(bytes) => bytes[..bytes.len().min(40)].to_vec(),
        }
    }
}

/// What a user of a store does.
#[derive(Arbitrary, Debug)]
pub enum Operation {
    Put(Key, u8),
    Fill { from: u16, count: u8, step: u8 },
    Drain { from: u16, count: u8, step: u8 },
    InsertIfAbsent(Key, u8),
    Update(Key, u8),
    Swap { key: Key, expected: Option<u8>, right: bool, new: Option<u8> },
    Remove(Key),
    Get(Key),
    GetMany(Vec<Key>),
    Range { from: Key, to: Key, forward: bool, most: u8 },
    Cursor { at: Key, moves: u16 },
    Other,
    Checkpoint,
    Reopen(Leaves),
    Crash,
    DropOther,
}

/// What needs a store with room for large values, or a log to be more than its parts.
#[derive(Arbitrary, Debug)]
pub enum Step {
    Operation(Operation),
    Large { key: Key, len: u16 },
    Batch(Vec<(Key, Option<u8>)>),
    RemoveRange { from: Key, to: Key },
    Sync,
    Verify,
    Compact { from: Key, pages: u8 },
}

/// How leaves get their layouts.
#[derive(Arbitrary, Debug, Clone, Copy)]
pub enum Leaves {
    Adaptive,
    Comparison,
    Fingerprint,
    SemiDense,
    FullyDense,
}

impl Leaves {
    fn policy(self) -> LeafPolicy {
        match self {
            Leaves::Adaptive => LeafPolicy::Adaptive,
            Leaves::Comparison => LeafPolicy::Fixed(LeafLayout::Comparison),
            Leaves::Fingerprint => LeafPolicy::Fixed(LeafLayout::Fingerprint),
            Leaves::SemiDense => LeafPolicy::Fixed(LeafLayout::SemiDense),
            Leaves::FullyDense => LeafPolicy::Fixed(LeafLayout::FullyDense),
        }
    }
}

/// How a store is made and opened.
#[derive(Arbitrary, Debug, Clone, Copy)]
pub struct Geometry {
    pub page: u8,
    pub small_zones: bool,
    pub log: bool,
    /// With as little memory as there must be for large values; else with none for them.
    pub large_values: bool,
    pub leaves: Leaves,
}

impl Geometry {
    /// The smallest store that there is, without a log.
    pub fn smallest(leaves: Leaves) -> Geometry {
        Geometry { page: 0, small_zones: false, log: false, large_values: false, leaves }
    }

    /// Bytes of a page.
    pub fn page_bytes(&self) -> usize {
        PAGE_BYTES[usize::from(self.page) % PAGE_BYTES.len()]
    }

    /// What the store is opened with.
    pub fn options(&self) -> Options {
        let page_bytes = self.page_bytes();
        let more = if self.large_values { crate::LARGE_VALUES_BYTES } else { 0 };
        Options::new()
            .leaves(self.leaves.policy())
            .page_bytes(page_bytes)
            .zone_bytes(if self.small_zones { SMALL_ZONE_BYTES } else { ZONE_BYTES })
            .memory_limit_bytes(smallest_memory_limit_bytes(page_bytes) + more)
            .background_checkpoints(false)
            .log(self.log)
            .log_segment_blocks(SEGMENT_BLOCKS)
    }
}

/// A short value that proves its length, and its key.
pub fn value(key: &[u8], length: u8) -> Vec<u8> {
    long_value(key, usize::from(length % 41), length)
}

/// A value of any length. No two places have the same bytes, so that a piece at a wrong place is noticed.
pub fn long_value(key: &[u8], len: usize, salt: u8) -> Vec<u8> {
    let seed = key
        .iter()
        .fold(0x811c_9dc5_u32, |seed, &byte| (seed ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let word = |at: usize| (at as u32 ^ seed).wrapping_mul(0x9e37_79b9);
    (0..len).map(|at| (word(at) >> 24) as u8 ^ salt).collect()
}
