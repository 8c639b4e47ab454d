//! What a tree consists of, by a walk over all of it.
//!
//! Thread-safety: as for [`Tree`]. The figures are those of each page at one moment; under writers
//! they need not add up.

use super::Tree;
use super::walk::Go;
use crate::error::Result;
use crate::node::{Ladder, LeafLayout, plain_leaf};
use crate::page::PagePool;
use crate::page::header;

/// Classes of the histogram of fills: tenths of a page.
pub const FILL_CLASSES: usize = 10;

/// The pages of one level.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LevelStats {
    /// Number of pages.
    pub pages: u64,
    /// Records of leaves, separators of inner nodes.
    pub keys: u64,
    /// Bytes in use: fixed fields, heads, slots, records, fences.
    pub used_bytes: u64,
    /// Bytes of records as stored: values, and of each key what is neither in its page's prefix nor in
    /// its head of four bytes.
    pub payload_bytes: u64,
    /// Pages by fill: class `i` counts those from `i` to `i + 1` tenths.
    pub fill: [u64; FILL_CLASSES],
}

/// A tree in figures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TreeStats {
    /// Bytes of a page.
    pub page_bytes: usize,
    /// By level, leaves first. Its length is the tree's height.
    pub levels: Vec<LevelStats>,
    /// Leaves by layout, in the order of [`LeafLayout::ALL`].
    pub leaves: [LayoutStats; LeafLayout::ALL.len()],
}

/// The leaves of one layout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LayoutStats {
    /// Number of leaves.
    pub pages: u64,
    /// Records in them.
    pub records: u64,
}

impl TreeStats {
    /// The leaves of one layout.
    pub fn leaves_of(&self, layout: LeafLayout) -> LayoutStats {
        self.leaves[layout as usize]
    }

    /// Number of pages.
    pub fn pages(&self) -> u64 {
        self.levels.iter().map(|level| level.pages).sum()
    }

    /// Number of records.
    pub fn records(&self) -> u64 {
        self.levels.first().map_or(0, |leaves| leaves.keys)
    }

    /// Share of the leaves' bytes that is in use, from 0 to 1.
    pub fn leaf_fill(&self) -> f64 {
        let Some(leaves) = self.levels.first().filter(|leaves| leaves.pages > 0) else {
            return 0.0;
        };
        leaves.used_bytes as f64 / (leaves.pages as f64 * self.page_bytes as f64)
    }
}

impl<P: PagePool, L: Ladder> Tree<P, L> {
    /// Counts pages, keys and bytes by level. Reads every page. Errors: those of reading a page.
    pub fn stats(&self) -> Result<TreeStats> {
        let mut stats = TreeStats { page_bytes: self.pool.page_bytes(), ..TreeStats::default() };
        self.walk(
            &mut |visit| {
                if visit.again {
                    return Go::Down;
                }
                let level = usize::from(header::level(visit.bytes));
                if stats.levels.len() <= level {
                    stats.levels.resize(level + 1, LevelStats::default());
                }
                let node = plain_leaf::<L>(visit.bytes);
                let used = node.used_bytes().min(visit.bytes.len());
                let class = (used * FILL_CLASSES / visit.bytes.len()).min(FILL_CLASSES - 1);
                let level = &mut stats.levels[level];
                level.pages += 1;
                level.keys += node.count() as u64;
                level.used_bytes += used as u64;
                level.payload_bytes += node.payload_bytes() as u64;
                level.fill[class] += 1;
                if header::level(visit.bytes) == 0 {
                    let leaves = &mut stats.leaves[node.layout() as usize];
                    leaves.pages += 1;
                    leaves.records += node.count() as u64;
                }
                Go::Down
            },
            &mut |_, error| Err(error),
        )?;
        Ok(stats)
    }

    /// Counts the records. Reads every page. Errors: those of reading a page.
    pub fn count(&self) -> Result<u64> {
        Ok(self.stats()?.records())
    }
}
