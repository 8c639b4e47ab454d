//! Keys that a leaf may not have any more, in their order: a skip list in cells.
//!
//! A scan as of a snapshot takes the keys of a leaf, and looks for an old version of each. A key that was removed since is not in
//! the leaf: it is found here. A key that came back is in both, which does no harm.
//!
//! A node is a chain: tree, length of the key, number of levels, the links, the key. Levels are drawn from the key's hash, so
//! whoever reserves memory for a node knows how long it will be. Invariant: level `n` has the nodes of more than `n` levels, in the order
//! (tree, key), each once. A plain value, as [`Cells`] are.

use crate::types::TreeId;
use crate::versions::cells::{CellId, Cells};
use crate::versions::memory::Block;
use std::cmp::Ordering;
use std::ops::Bound;

/// Links of a node at most: enough for sixteen million nodes, and all of them are in the node's first cell.
const LEVELS: usize = 12;
const TREE_AT: usize = 0;
const LENGTH_AT: usize = 4;
const LINKS_AT: usize = 8;

/// See the head of the file.
pub(super) struct Removed {
    heads: [CellId; LEVELS],
}

/// Where a key is to be: the last node before it, on each level.
type Path = [CellId; LEVELS];

/// How many links a key of this hash has: one, and a quarter of those of `n` links have one more.
#[inline]
fn levels_of(hash: u64) -> usize {
    let drawn = (hash >> 40) as u32 | 1 << (2 * (LEVELS - 1));
    1 + drawn.trailing_zeros() as usize / 2
}

/// Bytes of the node of a key.
#[inline]
pub(super) fn node_bytes(hash: u64, key_len: usize) -> usize {
    LINKS_AT + 4 * levels_of(hash) + key_len
}

/// The same of a key of any hash.
#[inline]
pub(super) fn longest_node_bytes(key_len: usize) -> usize {
    LINKS_AT + 4 * LEVELS + key_len
}

impl Removed {
    pub(super) fn new() -> Removed {
        Removed { heads: [CellId::NONE; LEVELS] }
    }

    #[inline]
    fn link<B: Block>(&self, cells: &Cells<B>, node: CellId, level: usize) -> CellId {
        match node.is_none() {
            true => self.heads[level],
            false => CellId(cells.u32_at(node, LINKS_AT + 4 * level)),
        }
    }

    fn set_link<B: Block>(&mut self, cells: &mut Cells<B>, node: CellId, level: usize, to: CellId) {
        match node.is_none() {
            true => self.heads[level] = to,
            false => cells.set_u32(node, LINKS_AT + 4 * level, to.0),
        }
    }

    fn levels<B: Block>(cells: &Cells<B>, node: CellId) -> usize {
        (cells.u32_at(node, LENGTH_AT) >> 16) as usize
    }

    fn key<B: Block>(cells: &Cells<B>, node: CellId) -> impl Iterator<Item = &[u8]> {
        let len_bytes = cells.u32_at(node, LENGTH_AT) & 0xffff;
        cells.parts(node, LINKS_AT + 4 * Self::levels(cells, node), len_bytes as usize)
    }

    /// A node against a key.
    fn compare<B: Block>(cells: &Cells<B>, node: CellId, tree: TreeId, key: &[u8]) -> Ordering {
        let trees = TreeId(cells.u32_at(node, TREE_AT)).cmp(&tree);
        if trees.is_ne() {
            return trees;
        }
        let mut rest = key;
        for part in Self::key(cells, node) {
            let (begin, behind) = rest.split_at(part.len().min(rest.len()));
            match part.cmp(begin) {
                Ordering::Equal => rest = behind,
                order => return order,
            }
        }
        if rest.is_empty() { Ordering::Equal } else { Ordering::Less }
    }

    /// The last nodes of which `is_before` is true, as it is of the first ones.
    fn path<B: Block>(&self, cells: &Cells<B>, is_before: impl Fn(CellId) -> bool) -> Path {
        let mut path = [CellId::NONE; LEVELS];
        let mut node = CellId::NONE;
        for level in (0..LEVELS).rev() {
            loop {
                let next = self.link(cells, node, level);
                if next.is_none() || !is_before(next) {
                    break;
                }
                node = next;
            }
            path[level] = node;
        }
        path
    }

    /// Adds a key, if it is not there. There are cells for [`node_bytes`].
    pub(super) fn insert<B: Block>(
        &mut self,
        cells: &mut Cells<B>,
        hash: u64,
        tree: TreeId,
        key: &[u8],
    ) {
        let path = self.path(cells, |node| Self::compare(cells, node, tree, key).is_lt());
        let behind = self.link(cells, path[0], 0);
        if !behind.is_none() && Self::compare(cells, behind, tree, key).is_eq() {
            return;
        }
        let levels = levels_of(hash);
        let node = cells.allocate(node_bytes(hash, key.len()));
        cells.set_u32(node, TREE_AT, tree.0);
        cells.set_u32(node, LENGTH_AT, key.len() as u32 | (levels as u32) << 16);
        cells.write(node, LINKS_AT + 4 * levels, [key]);
        for (level, before) in path.into_iter().enumerate().take(levels) {
            let behind = self.link(cells, before, level);
            cells.set_u32(node, LINKS_AT + 4 * level, behind.0);
            self.set_link(cells, before, level, node);
        }
    }

    /// Takes a key away, if it is there.
    pub(super) fn remove<B: Block>(&mut self, cells: &mut Cells<B>, tree: TreeId, key: &[u8]) {
        let path = self.path(cells, |node| Self::compare(cells, node, tree, key).is_lt());
        let node = self.link(cells, path[0], 0);
        if node.is_none() || Self::compare(cells, node, tree, key).is_ne() {
            return;
        }
        for (level, before) in path.into_iter().enumerate().take(Self::levels(cells, node)) {
            let behind = self.link(cells, node, level);
            self.set_link(cells, before, level, behind);
        }
        cells.release(node);
    }

    /// The first key of a tree at or above a bound, appended to `to` as far as that has room without growing. `None`: there is none.
    /// Otherwise the key's length.
    pub(super) fn first_from<B: Block>(
        &self,
        cells: &Cells<B>,
        tree: TreeId,
        from: Bound<&[u8]>,
        to: &mut Vec<u8>,
    ) -> Option<usize> {
        let is_before = |node| match from {
            Bound::Included(key) => Self::compare(cells, node, tree, key).is_lt(),
            Bound::Excluded(key) => Self::compare(cells, node, tree, key).is_le(),
            Bound::Unbounded => TreeId(cells.u32_at(node, TREE_AT)) < tree,
        };
        let before = self.path(cells, is_before)[0];
        Self::copy_key(cells, self.link(cells, before, 0), tree, to)
    }

    /// The last key of a tree at or below a bound, as [`Self::first_from`].
    #[cfg(hedgerow_internals)]
    pub(super) fn last_up_to<B: Block>(
        &self,
        cells: &Cells<B>,
        tree: TreeId,
        up_to: Bound<&[u8]>,
        to: &mut Vec<u8>,
    ) -> Option<usize> {
        let is_before = |node| match up_to {
            Bound::Included(key) => Self::compare(cells, node, tree, key).is_le(),
            Bound::Excluded(key) => Self::compare(cells, node, tree, key).is_lt(),
            Bound::Unbounded => TreeId(cells.u32_at(node, TREE_AT)) <= tree,
        };
        Self::copy_key(cells, self.path(cells, is_before)[0], tree, to)
    }

    fn copy_key<B: Block>(
        cells: &Cells<B>,
        node: CellId,
        tree: TreeId,
        to: &mut Vec<u8>,
    ) -> Option<usize> {
        if node.is_none() || TreeId(cells.u32_at(node, TREE_AT)) != tree {
            return None;
        }
        let len_bytes = (cells.u32_at(node, LENGTH_AT) & 0xffff) as usize;
        if to.capacity() - to.len() >= len_bytes {
            Self::key(cells, node).for_each(|part| to.extend_from_slice(part));
        }
        Some(len_bytes)
    }
}
