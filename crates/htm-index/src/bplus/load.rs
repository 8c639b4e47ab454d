//! Loading of a tree that nobody else uses yet, and checks of its structure.

use super::node::{KEYS, RECORDS};
use super::{BPlusTree, NONE, root_word};
use crate::arena::ArenaError;
use crate::htm::{Htm, Site};
use hedgerow_sync::primitive::random::SplitMix64;

/// Keys of a node that random inserts leave, of `most`: at least half, and ln 2 = 0.69 on average, because nodes are longer half
/// full than full (the share of nodes that are filled to `x` is inverse to the square of `x`).
pub(crate) fn as_after_random_inserts(random: &mut SplitMix64, most: usize) -> usize {
    const STEPS: u64 = 1 << 20;
    let drawn = 2 * STEPS - random.below(STEPS);
    ((2 * most as u64 * STEPS + drawn) / (2 * drawn)) as usize
}

impl<H: Htm> BPlusTree<H> {
    /// Loads records into an empty tree; keys must rise. Nodes are as full as random inserts leave them. Not while others use
    /// the tree.
    ///
    /// # Errors
    /// There are no nodes left; then the tree holds nothing that can be relied on.
    ///
    /// # Panics
    /// The tree is not empty, or keys do not rise.
    pub fn load(
        &self,
        records: impl IntoIterator<Item = (u64, u64)>,
        seed: u64,
    ) -> Result<(), ArenaError> {
        assert!(self.height() == 1, "the tree is not empty");
        let mut random = SplitMix64::new(seed);
        let mut level: Vec<(u64, u32)> = Vec::new();
        let mut number = self.root.0.get() as u32;
        let mut first = None;
        let (mut many, mut room) = (0, as_after_random_inserts(&mut random, RECORDS));
        let mut last = None;
        for (key, value) in records {
            assert!(last.is_none_or(|last| last < key), "keys must rise");
            last = Some(key);
            if many == room {
                self.leaves.prepare(1)?;
                let next = self.htm.atomic(&self.lock, Site::OTHER, |tx| self.leaves.take(tx));
                self.leaves.node(number).next.set(next);
                level.push((first.take().unwrap_or(0), number));
                (number, many) = (next, 0);
                self.leaves.node(number).next.set(NONE);
                room = as_after_random_inserts(&mut random, RECORDS);
            }
            let leaf = self.leaves.node(number);
            first.get_or_insert(key);
            leaf.keys[many].set(key);
            leaf.values[many].set(value);
            many += 1;
            self.htm.atomic(&self.lock, Site::OTHER, |tx| leaf.set_many(tx, many));
        }
        level.push((first.unwrap_or(0), number));
        let mut height = 1;
        while level.len() > 1 {
            level = self.load_inner(&level, &mut random)?;
            height += 1;
        }
        self.root.0.set(root_word(level[0].1, height));
        Ok(())
    }

    fn load_inner(
        &self,
        below: &[(u64, u32)],
        random: &mut SplitMix64,
    ) -> Result<Vec<(u64, u32)>, ArenaError> {
        let mut level = Vec::new();
        let mut rest = below;
        while !rest.is_empty() {
            let mut children = as_after_random_inserts(random, KEYS).min(rest.len());
            // No node with one child at the end.
            if rest.len() - children == 1 {
                children += if children < KEYS { 1 } else { 0 };
            }
            let (these, others) = rest.split_at(children);
            self.inners.prepare(1)?;
            let number = self.htm.atomic(&self.lock, Site::OTHER, |tx| self.inners.take(tx));
            let inner = self.inners.node(number);
            for (at, &(key, child)) in these.iter().enumerate() {
                inner.children[at].set(child);
                if at > 0 {
                    inner.keys[at - 1].set(key);
                }
            }
            let many = these.len() - 1;
            self.htm.atomic(&self.lock, Site::OTHER, |tx| inner.set_many(tx, many));
            level.push((these[0].0, number));
            rest = others;
        }
        Ok(level)
    }

    /// All records, if the tree is what its invariants say; else what is not. Not while others use the tree.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(&self) -> Result<Vec<(u64, u64)>, String> {
        let root = self.root.0.get();
        let mut records = Vec::new();
        let mut leaves = Vec::new();
        self.check_node(root as u32, self.height(), (None, None), &mut records, &mut leaves)?;
        for pair in leaves.windows(2) {
            if self.leaves.node(pair[0]).next.get() != pair[1] {
                return Err(format!("leaf {} is not linked to {}", pair[0], pair[1]));
            }
        }
        match leaves.last() {
            Some(&last) if self.leaves.node(last).next.get() != NONE => {
                Err("the last leaf has a next one".to_owned())
            }
            _ => Ok(records),
        }
    }

    fn check_node(
        &self,
        number: u32,
        height: u32,
        (low, high): (Option<u64>, Option<u64>),
        records: &mut Vec<(u64, u64)>,
        leaves: &mut Vec<u32>,
    ) -> Result<(), String> {
        let within =
            |key: u64| low.is_none_or(|low| low <= key) && high.is_none_or(|high| key < high);
        if height == 1 {
            let leaf = self.leaves.node(number);
            let many = self.htm.atomic(&self.lock, Site::OTHER, |tx| leaf.many(tx));
            leaves.push(number);
            for at in 0..many {
                let (key, value) = (leaf.keys[at].get(), leaf.values[at].get());
                if !within(key) || records.last().is_some_and(|(last, _)| *last >= key) {
                    return Err(format!("key {key} of leaf {number} is out of order"));
                }
                records.push((key, value));
            }
            return Ok(());
        }
        let inner = self.inners.node(number);
        let many = self.htm.atomic(&self.lock, Site::OTHER, |tx| inner.many(tx));
        let mut from = low;
        for at in 0..=many {
            let to = if at < many { Some(inner.keys[at].get()) } else { high };
            if to.is_some_and(|to| {
                !within(to) && Some(to) != high || from.is_some_and(|from| from > to)
            }) {
                return Err(format!("key {to:?} of inner node {number} is out of order"));
            }
            self.check_node(inner.children[at].get(), height - 1, (from, to), records, leaves)?;
            from = to;
        }
        Ok(())
    }
}
