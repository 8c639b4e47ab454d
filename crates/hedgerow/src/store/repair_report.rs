//! What a repair tells of a damaged store. Plain data.
//!
//! Rank 6. The rest is in `repair.rs`.

use crate::types::PageId;
use std::fmt;

/// A page that could not be salvaged.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DamagedPage {
    /// The page.
    pub page: PageId,
    /// Where it is in the file, in bytes.
    pub offset_bytes: u64,
    /// What is wrong with it.
    pub what: String,
    /// The keyspace that it belonged to, if its parent is intact. `None` for pages of the catalogue of keyspaces, too.
    pub keyspace: Option<String>,
    /// The range of the keys that it held, if its parent is intact.
    pub keys: Option<LostKeys>,
}

/// A range of keys that a damaged page held. `Debug` shows their lengths and not the keys.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LostKeys {
    /// The range begins above this key, which does not belong to it. `None`: it begins with the first key.
    pub above: Option<Vec<u8>>,
    /// The range ends with this key, which belongs to it. `None`: it ends with the last key.
    pub up_to: Option<Vec<u8>>,
    /// The page was an inner node. Its leaves were found without it, so only records of damaged leaves are lost.
    pub is_inner: bool,
}

impl fmt::Debug for LostKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LostKeys")
            .field("above_bytes", &self.above.as_ref().map(Vec::len))
            .field("up_to_bytes", &self.up_to.as_ref().map(Vec::len))
            .field("is_inner", &self.is_inner)
            .finish()
    }
}

/// What [`Options::repair`](crate::Options::repair) found and copied. The texts of `defects` may name keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "what was lost is listed in the report, and is no error"]
#[non_exhaustive]
pub struct RepairReport {
    /// Pages that were read.
    pub pages: u64,
    /// Records of intact leaves that were put into the new store.
    pub records: u64,
    /// Keyspaces of the new store.
    pub keyspaces: u64,
    /// Changes that were replayed from the log after that.
    pub replayed: u64,
    /// The pages that are lost.
    pub damaged: Vec<DamagedPage>,
    /// Everything else that is wrong: parts of the page map, the log, keyspaces whose names are lost, and large values whose
    /// bytes are damaged.
    pub defects: Vec<String>,
}

impl RepairReport {
    /// Whether nothing was wrong, so that the new store has everything.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.damaged.is_empty() && self.defects.is_empty()
    }
}
