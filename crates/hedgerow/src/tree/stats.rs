//! What a tree consists of, by a walk over all of it.
//!
//! Thread-safety: as for [`Tree`]. The figures are those of each page at one moment; under writers
//! they need not add up.

use super::Tree;
use super::value_stats::ValueStats;
use super::walk::Go;
use crate::error::Result;
use crate::node::{LeafLayout, plain_leaf};
use crate::page::Pages;
use crate::page::header;

/// Number of classes of [`LevelStats::fill`].
pub const FILL_CLASSES: usize = 10;

/// The pages of one level of a tree. A part of [`TreeStats`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LevelStats {
    /// Number of pages.
    pub pages: u64,
    /// Number of records if the level is that of the leaves, otherwise of separators.
    pub keys: u64,
    /// Bytes in use: fixed fields, heads, slots, records, fences.
    pub used_bytes: u64,
    /// Bytes of values and of stored parts of keys. The prefix that a page stores once, and the first four bytes behind it, do
    /// not count.
    pub payload_bytes: u64,
    /// Number of pages by fill: entry `i` counts those that are full from `i` to `i + 1` tenths.
    pub fill: [u64; FILL_CLASSES],
}

/// Figures of a tree. [`Keyspace::stats`](crate::Keyspace::stats) returns them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TreeStats {
    /// Bytes of a page.
    pub page_bytes: usize,
    /// By level, leaves first. Its length is the tree's height.
    pub levels: Vec<LevelStats>,
    /// Leaves by layout, in the order of [`LeafLayout::ALL`].
    pub leaves: [LayoutStats; LeafLayout::ALL.len()],
    /// Values by where they are.
    pub values: ValueStats,
}

/// Figures of the leaves of one layout. A part of [`TreeStats`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LayoutStats {
    /// Number of leaves.
    pub pages: u64,
    /// Records in them.
    pub records: u64,
}

impl TreeStats {
    /// Figures of the leaves of `layout`.
    pub fn leaves_of(&self, layout: LeafLayout) -> LayoutStats {
        self.leaves[layout as usize]
    }

    /// Number of pages of all levels.
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

impl<P: Pages> Tree<P> {
    /// Counts pages, keys and bytes by level, and no values. Reads every page. Errors: those of reading a page.
    #[cfg(hedgerow_internals)]
    pub fn stats(&self) -> Result<TreeStats> {
        self.stats_and(&mut |_, _| {})
    }

    /// [`Self::stats`], and values by where they are. `unit_bytes`: of a unit of the file, 0 in a store that lives in
    /// memory.
    pub fn stats_with_values(&self, unit_bytes: u32) -> Result<TreeStats> {
        self.stats_and(&mut |values, page| values.add_leaf(page, unit_bytes))
    }

    /// [`Self::stats`]; `each` gets every leaf, once.
    fn stats_and(&self, each: &mut dyn FnMut(&mut ValueStats, &[u8])) -> Result<TreeStats> {
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
                let node = plain_leaf(visit.bytes);
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
                    each(&mut stats.values, visit.bytes);
                }
                Go::Down
            },
            &mut |_, error| Err(error),
        )?;
        Ok(stats)
    }

    /// Counts the records. Reads every page. Errors: those of reading a page.
    #[cfg(hedgerow_internals)]
    pub fn count(&self) -> Result<u64> {
        Ok(self.stats()?.records())
    }
}
