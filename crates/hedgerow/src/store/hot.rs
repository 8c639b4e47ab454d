//! Which leaves threads contend for.
//!
//! Rank 6. What is known of that stands beside the frames of leaves that are in memory; the leaves themselves say to which
//! keyspace they belong, and what their keys begin with. The figures are those of one moment, each by itself.
//! Any number of threads.

use super::Store;
use crate::error::Result;
use crate::node::plain_leaf;
use crate::page::{Period, header};
use std::collections::BTreeMap;
use std::fmt;

/// A leaf that threads contend for, or have contended for: [`Database::hot_leaves`](crate::Database::hot_leaves).
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HotLeaf {
    /// The keyspace.
    pub keyspace: String,
    /// What all keys of the leaf begin with. If it has one record, its key.
    pub prefix: Vec<u8>,
    /// Records in the leaf.
    pub records: u64,
    /// Writes in the sample of the current period.
    pub samples: u64,
    /// Of these, the ones that met another thread at the leaf.
    pub contended: u64,
    /// How many contention splits the leaf has come from since its page was read; at most 255.
    pub splits: u64,
    /// It was split because of contention not long ago, so that no merge touches it.
    pub is_hot: bool,
}

impl HotLeaf {
    /// The share of the sampled writes that met another thread: 0 to 1, and 0 if none was sampled.
    #[must_use]
    pub fn share(&self) -> f64 {
        if self.samples == 0 { 0.0 } else { self.contended as f64 / self.samples as f64 }
    }
}

/// Shows the length of the prefix and not its bytes, which may be secrets.
impl fmt::Debug for HotLeaf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HotLeaf")
            .field("keyspace", &self.keyspace)
            .field("prefix_bytes", &self.prefix.len())
            .field("records", &self.records)
            .field("samples", &self.samples)
            .field("contended", &self.contended)
            .field("splits", &self.splits)
            .field("is_hot", &self.is_hot)
            .finish()
    }
}

impl Store {
    /// At most `most` leaves that threads contend for, or have contended for. Errors: those of reading the catalogue.
    pub fn hot_leaves(&self, most: usize) -> Result<Vec<HotLeaf>> {
        let trees = self.shared.catalogue.trees()?.into_iter();
        let names: BTreeMap<u32, String> =
            trees.map(|(name, tree, _)| (tree.id().0, name)).collect();
        let pool = &self.shared.pool;
        let mut leaves = Vec::new();
        // The catalogue's own leaves are among them, and those of trees that are being dropped.
        for (id, period) in pool.contended(usize::MAX) {
            if leaves.len() >= most {
                break;
            }
            let Some(page) = pool.resident_copy(id) else { continue };
            if let Some(name) = names.get(&header::tree_id(&page).0)
                && header::level(&page) == 0
            {
                leaves.push(hot_leaf(name, &page, period));
            }
        }
        Ok(leaves)
    }
}

fn hot_leaf(keyspace: &str, page: &[u8], period: Period) -> HotLeaf {
    let leaf = plain_leaf(page);
    let (mut prefix, mut key): (Option<Vec<u8>>, _) = (None, Vec::new());
    let mut place = leaf.next_place(0);
    while place < leaf.end() {
        key.clear();
        leaf.append_key(place, &mut key);
        match &mut prefix {
            None => prefix = Some(key.clone()),
            Some(prefix) => {
                prefix.truncate(prefix.iter().zip(&key).take_while(|(a, b)| a == b).count());
            }
        }
        place = leaf.next_place(place + 1);
    }
    HotLeaf {
        keyspace: keyspace.to_owned(),
        prefix: prefix.unwrap_or_default(),
        records: leaf.count() as u64,
        samples: period.samples().into(),
        contended: period.contended().into(),
        splits: period.splits().into(),
        is_hot: period.is_hot(),
    }
}
