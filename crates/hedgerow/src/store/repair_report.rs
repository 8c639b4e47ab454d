//! What a repair tells of a damaged store. Plain data.
//!
//! Rank 6. The rest is in `repair.rs`.

use crate::types::PageId;

/// A page that could not be salvaged.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DamagedPage {
    /// The page.
    pub page: PageId,
    /// Where its image lies in the file.
    pub offset_bytes: u64,
    /// What is wrong with it.
    pub what: String,
    /// The keyspace that it belonged to, if its parent is whole; `None` as well in the catalogue of keyspaces.
    pub keyspace: Option<String>,
    /// The keys that it held, if its parent is whole.
    pub keys: Option<LostKeys>,
}

/// A range of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LostKeys {
    /// Above this one; `None`: from the first on.
    pub above: Option<Vec<u8>>,
    /// Up to this one, which belongs to the range; `None`: to the last.
    pub up_to: Option<Vec<u8>>,
    /// The page was an inner node: its leaves were found by themselves, and nothing is lost but what damaged leaves
    /// among them held.
    pub is_inner: bool,
}

/// What a repair found, and what it made.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RepairReport {
    /// Pages that were read.
    pub pages: u64,
    /// Records of whole leaves that were put into the new store.
    pub records: u64,
    /// Keyspaces of the new store.
    pub keyspaces: u64,
    /// Changes of the log that were made on top of that.
    pub replayed: u64,
    /// The pages that are lost.
    pub damaged: Vec<DamagedPage>,
    /// Everything else that is wrong: parts of the page map, the log, keyspaces whose names are lost, large values whose
    /// bytes are.
    pub defects: Vec<String>,
}

impl RepairReport {
    /// Whether nothing was wrong.
    pub fn is_clean(&self) -> bool {
        self.damaged.is_empty() && self.defects.is_empty()
    }
}
