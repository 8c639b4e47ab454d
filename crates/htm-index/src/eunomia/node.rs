//! Nodes of the Eunomia tree and of those that it is compared with, and the search in inner nodes.
//!
//! | node | lines | what it holds |
//! | --- | --- | --- |
//! | [`Inner`] | 4 | a count, up to 15 keys in order, 16 children |
//! | [`Leaf`] | 2 + 8 | the header; records, as [`super::leaf`] lays them out |
//! | [`Ccm`] | 1 | 32 lock bytes, 64 mark bits, and how contended the leaf is |
//! | [`Reserved`] | 1 + 4 | a count, 16 keys in order, 16 values |
//!
//! Child `i` of an inner node has the keys from key `i - 1` on and below key `i`. An inner node may have one child and no key: inner
//! nodes are never merged. Thread-safety: cells, which regions reach.

use crate::arena::{Arena, Node};
use crate::htm::{TCell, Tx};
use std::array::from_fn;

/// Records of a leaf, and children of an inner node, at most.
pub const FANOUT: usize = 16;
/// Keys of an inner node.
pub(crate) const KEYS: usize = FANOUT - 1;
/// No node.
pub(crate) const NONE: u32 = u32::MAX;
/// Words of a leaf's records.
pub(crate) const WORDS: usize = 64;
/// Lock bytes of a CCM: twice the records of a leaf.
pub(crate) const LOCKS: usize = 2 * FANOUT;

/// An inner node.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Inner {
    pub(crate) count: TCell<u32>,
    sequence: TCell<u64>,
    pub(crate) keys: [TCell<u64>; KEYS],
    pub(crate) children: [TCell<u32>; FANOUT],
}

/// A leaf.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Leaf {
    pub(crate) head: Head,
    pub(crate) words: [TCell<u64>; WORDS],
}

/// The header of a leaf. The split lock has a line of its own: lower regions do not read it, so that taking it ends none of them.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Head {
    /// Rises when the leaf is split, merged, freed and taken.
    pub(crate) sequence: TCell<u64>,
    /// How the leaf's CCM is used; see [`super::ccm::Use`].
    pub(crate) ccm: TCell<u64>,
    /// The leaf to the right.
    pub(crate) next: TCell<u32>,
    /// The leaf's reserved records.
    pub(crate) reserved: TCell<u32>,
    /// Records, where they are not in segments.
    pub(crate) count: TCell<u32>,
    pub(crate) split_lock: SplitWord,
}

/// 1 while somebody splits or scans the leaf. Never reset.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct SplitWord(pub(crate) TCell<u32>);

/// A conflict control module.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Ccm {
    pub(crate) locks: [TCell<u8>; LOCKS],
    pub(crate) marks: TCell<u64>,
    pub(crate) heat: TCell<u32>,
    sequence: TCell<u64>,
}

/// Reserved records of a leaf, in order.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Reserved {
    pub(crate) count: TCell<u32>,
    sequence: TCell<u64>,
    _rest_of_the_line: [TCell<u64>; 6],
    pub(crate) keys: [TCell<u64>; FANOUT],
    pub(crate) values: [TCell<u64>; FANOUT],
}

#[cfg(not(loom))]
const _: () = assert!(
    size_of::<Inner>() == 4 * 64
        && size_of::<Leaf>() == 10 * 64
        && size_of::<Ccm>() == 64
        && size_of::<Reserved>() == 5 * 64
);

impl Default for Inner {
    fn default() -> Inner {
        Inner {
            count: TCell::new(0),
            sequence: TCell::new(0),
            keys: from_fn(|_| TCell::new(0)),
            children: from_fn(|_| TCell::new(0)),
        }
    }
}

impl Default for Leaf {
    fn default() -> Leaf {
        let head = Head {
            sequence: TCell::new(0),
            ccm: TCell::new(u64::from(NONE)),
            next: TCell::new(NONE),
            reserved: TCell::new(NONE),
            count: TCell::new(0),
            split_lock: SplitWord(TCell::new(0)),
        };
        Leaf { head, words: from_fn(|_| TCell::new(0)) }
    }
}

impl Default for Ccm {
    fn default() -> Ccm {
        Ccm {
            locks: from_fn(|_| TCell::new(0)),
            marks: TCell::new(0),
            heat: TCell::new(0),
            sequence: TCell::new(0),
        }
    }
}

impl Default for Reserved {
    fn default() -> Reserved {
        Reserved {
            count: TCell::new(0),
            sequence: TCell::new(0),
            _rest_of_the_line: from_fn(|_| TCell::new(0)),
            keys: from_fn(|_| TCell::new(0)),
            values: from_fn(|_| TCell::new(0)),
        }
    }
}

impl Node for Inner {
    fn sequence(&self) -> &TCell<u64> {
        &self.sequence
    }
}

impl Node for Leaf {
    fn sequence(&self) -> &TCell<u64> {
        &self.head.sequence
    }
}

impl Node for Ccm {
    fn sequence(&self) -> &TCell<u64> {
        &self.sequence
    }
}

impl Node for Reserved {
    fn sequence(&self) -> &TCell<u64> {
        &self.sequence
    }
}

impl Inner {
    /// Which child has a key.
    #[inline(always)]
    pub(crate) fn slot<'a, X: Tx<'a>>(&'a self, tx: &mut X, key: u64) -> Result<usize, X::E> {
        let (mut low, mut high) = (0, (tx.load(&self.count)? as usize).min(KEYS));
        while low < high {
            let middle = usize::midpoint(low, high);
            if tx.load(&self.keys[middle])? <= key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// Puts a key and the child to its right behind child `slot`. There is room.
    pub(crate) fn insert<'a, X: Tx<'a>>(
        &'a self,
        tx: &mut X,
        slot: usize,
        key: u64,
        child: u32,
    ) -> Result<(), X::E> {
        let count = tx.load(&self.count)? as usize;
        for at in (slot..count).rev() {
            let moved = tx.load(&self.keys[at])?;
            tx.store(&self.keys[at + 1], moved)?;
            let moved = tx.load(&self.children[at + 1])?;
            tx.store(&self.children[at + 2], moved)?;
        }
        tx.store(&self.keys[slot], key)?;
        tx.store(&self.children[slot + 1], child)?;
        tx.store(&self.count, count as u32 + 1)
    }

    /// Takes out key `slot` and the child to its right.
    pub(crate) fn remove<'a, X: Tx<'a>>(&'a self, tx: &mut X, slot: usize) -> Result<(), X::E> {
        let count = tx.load(&self.count)? as usize;
        for at in slot + 1..count {
            let moved = tx.load(&self.keys[at])?;
            tx.store(&self.keys[at - 1], moved)?;
            let moved = tx.load(&self.children[at + 1])?;
            tx.store(&self.children[at], moved)?;
        }
        tx.store(&self.count, count as u32 - 1)
    }

    /// Moves the upper half of a full node to an empty one. The key between both.
    pub(crate) fn split<'a, X: Tx<'a>>(
        &'a self,
        tx: &mut X,
        right: &'a Inner,
    ) -> Result<u64, X::E> {
        const LEFT: usize = KEYS / 2;
        let between = tx.load(&self.keys[LEFT])?;
        for at in LEFT + 1..KEYS {
            let moved = tx.load(&self.keys[at])?;
            tx.store(&right.keys[at - LEFT - 1], moved)?;
        }
        for at in LEFT + 1..=KEYS {
            let moved = tx.load(&self.children[at])?;
            tx.store(&right.children[at - LEFT - 1], moved)?;
        }
        tx.store(&self.count, LEFT as u32)?;
        tx.store(&right.count, (KEYS - LEFT - 1) as u32)?;
        Ok(between)
    }
}

/// Inner nodes on a way from the root.
pub(crate) const MOST_LEVELS: usize = 12;

/// The root of a tree, and how high it is.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Root(pub(crate) TCell<u64>);

/// The height and the number of the root.
#[inline(always)]
pub(crate) fn unpack_root(word: u64) -> (usize, u32) {
    ((word >> 32) as usize, word as u32)
}

pub(crate) fn pack_root(height: usize, number: u32) -> u64 {
    (height as u64) << 32 | u64::from(number)
}

/// Inner nodes on the way to a leaf, from the root on, and which child was taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    pub(crate) nodes: [(u32, usize); MOST_LEVELS],
    pub(crate) height: usize,
}

/// The leaf that has a key.
#[inline(always)]
pub(crate) fn leaf_of<'a, X: Tx<'a>>(
    tx: &mut X,
    root: &'a Root,
    inners: &'a Arena<Inner>,
    key: u64,
) -> Result<u32, X::E> {
    let (height, mut number) = unpack_root(tx.load(&root.0)?);
    for _ in 0..height {
        let inner = inners.node(number);
        let slot = inner.slot(tx, key)?;
        number = tx.load(&inner.children[slot])?;
    }
    Ok(number)
}

/// The leaf that has a key, and the way there.
#[inline(always)]
pub(crate) fn path_to<'a, X: Tx<'a>>(
    tx: &mut X,
    root: &'a Root,
    inners: &'a Arena<Inner>,
    key: u64,
) -> Result<(u32, Path), X::E> {
    let (height, mut number) = unpack_root(tx.load(&root.0)?);
    let mut path = Path { nodes: [(0, 0); MOST_LEVELS], height };
    for place in &mut path.nodes[..height] {
        let inner = inners.node(number);
        let slot = inner.slot(tx, key)?;
        *place = (number, slot);
        number = tx.load(&inner.children[slot])?;
    }
    Ok((number, path))
}

/// Inner nodes that a split of the leaf at the end of the way takes.
pub(crate) fn inners_wanted<'a, X: Tx<'a>>(
    tx: &mut X,
    inners: &'a Arena<Inner>,
    path: &Path,
) -> Result<u32, X::E> {
    let mut wanted = 0;
    for &(number, _) in path.nodes[..path.height].iter().rev() {
        if (tx.load(&inners.node(number).count)? as usize) < KEYS {
            return Ok(wanted);
        }
        wanted += 1;
    }
    Ok(wanted + 1)
}

/// Enters a new leaf, or inner node, into the nodes above. The spare nodes are there ([`inners_wanted`]).
pub(crate) fn enter<'a, X: Tx<'a>>(
    tx: &mut X,
    root: &'a Root,
    inners: &'a Arena<Inner>,
    path: &Path,
    mut key: u64,
    mut child: u32,
) -> Result<(), X::E> {
    for &(number, slot) in path.nodes[..path.height].iter().rev() {
        let inner = inners.node(number);
        if (tx.load(&inner.count)? as usize) < KEYS {
            return inner.insert(tx, slot, key, child);
        }
        let right_number = inners.take(tx)?;
        let right = inners.node(right_number);
        label_inner(right);
        let between = inner.split(tx, right)?;
        let left_children = tx.load(&inner.count)? as usize + 1;
        if slot < left_children {
            inner.insert(tx, slot, key, child)?;
        } else {
            right.insert(tx, slot - left_children, key, child)?;
        }
        (key, child) = (between, right_number);
    }
    let (height, old) = unpack_root(tx.load(&root.0)?);
    let top_number = inners.take(tx)?;
    let top = inners.node(top_number);
    label_inner(top);
    tx.store(&top.children[0], old)?;
    tx.store(&top.children[1], child)?;
    tx.store(&top.keys[0], key)?;
    tx.store(&top.count, 1)?;
    tx.store(&root.0, pack_root(height + 1, top_number))
}

fn label_inner(inner: &Inner) {
    crate::htm::label::lines(inner, crate::htm::label::Label::Inner);
}
