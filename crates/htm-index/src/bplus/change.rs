//! Inserts with splits, and removals with merges, in a region.

use super::node::{FANOUT, Inner, KEYS, Leaf, RECORDS, close, copy, open};
use super::{BPlusTree, LEVELS, Path, Step, root_word};
use crate::htm::{Htm, Tx};

/// A leaf with fewer records than this is merged with a neighbour.
const FEW: usize = RECORDS / 4;
/// Not to be split again at once.
const MERGED: usize = RECORDS * 3 / 4;

impl Path {
    fn new() -> Path {
        Path { nodes: [(0, 0); LEVELS], depth: 0 }
    }
}

impl<H: Htm> BPlusTree<H> {
    pub(super) fn put_in<'a, X: Tx<'a>>(
        &'a self,
        tx: &mut X,
        key: u64,
        value: u64,
        overwrites: bool,
    ) -> Result<Step<Option<u64>>, X::E> {
        let mut path = Path::new();
        let leaf = self.leaf_of(tx, key, Some(&mut path))?;
        let many = leaf.many(tx)?;
        let (at, is_there) = leaf.find(tx, many, key)?;
        if is_there {
            let old = tx.load(&leaf.values[at])?;
            if overwrites {
                tx.store(&leaf.values[at], value)?;
            }
            return Ok(Step::Done(Some(old)));
        }
        if many < RECORDS {
            add(tx, leaf, many, at, (key, value))?;
            return Ok(Step::Done(None));
        }
        let mut full = 0;
        while full < path.depth {
            let (number, _) = path.nodes[path.depth - 1 - full];
            if self.inners.node(number).many(tx)? < KEYS {
                break;
            }
            full += 1;
        }
        let inners = (full + usize::from(full == path.depth)) as u32;
        if !self.leaves.has(tx, 1)? || !self.inners.has(tx, inners)? {
            return Ok(Step::Needs { inners, leaves: 1 });
        }
        let (right_number, separator) = self.split_leaf(tx, leaf, at, (key, value))?;
        self.add_to_parents(tx, &path, separator, right_number)?;
        Ok(Step::Done(None))
    }

    /// Splits a full leaf and adds a record to one of the halves. The new leaf, and its first key.
    fn split_leaf<'a, X: Tx<'a>>(
        &'a self,
        tx: &mut X,
        leaf: &'a Leaf,
        at: usize,
        record: (u64, u64),
    ) -> Result<(u32, u64), X::E> {
        const LEFT: usize = RECORDS / 2;
        let number = self.leaves.take(tx)?;
        let right = self.leaves.node(number);
        right.label();
        copy(tx, &leaf.keys[LEFT..], &right.keys, RECORDS - LEFT)?;
        copy(tx, &leaf.values[LEFT..], &right.values, RECORDS - LEFT)?;
        leaf.set_many(tx, LEFT)?;
        right.set_many(tx, RECORDS - LEFT)?;
        let next = tx.load(&leaf.next)?;
        tx.store(&right.next, next)?;
        tx.store(&leaf.next, number)?;
        if at <= LEFT {
            add(tx, leaf, LEFT, at, record)?;
        } else {
            add(tx, right, RECORDS - LEFT, at - LEFT, record)?;
        }
        Ok((number, tx.load(&right.keys[0])?))
    }

    /// Adds a child to its parent, which may be split for it, and so on to the root.
    fn add_to_parents<'a, X: Tx<'a>>(
        &'a self,
        tx: &mut X,
        path: &Path,
        mut key: u64,
        mut child: u32,
    ) -> Result<(), X::E> {
        for &(number, at) in path.nodes[..path.depth].iter().rev() {
            let (inner, at) = (self.inners.node(number), usize::from(at));
            let many = inner.many(tx)?;
            if many < KEYS {
                return add_child(tx, inner, many, at, (key, child));
            }
            const LEFT: usize = KEYS / 2;
            const RIGHT: usize = KEYS - LEFT - 1;
            let right_number = self.inners.take(tx)?;
            let right = self.inners.node(right_number);
            right.label();
            let middle = tx.load(&inner.keys[LEFT])?;
            copy(tx, &inner.keys[LEFT + 1..], &right.keys, RIGHT)?;
            copy(tx, &inner.children[LEFT + 1..], &right.children, RIGHT + 1)?;
            inner.set_many(tx, LEFT)?;
            right.set_many(tx, RIGHT)?;
            if at <= LEFT {
                add_child(tx, inner, LEFT, at, (key, child))?;
            } else {
                add_child(tx, right, RIGHT, at - LEFT - 1, (key, child))?;
            }
            (key, child) = (middle, right_number);
        }
        let number = self.inners.take(tx)?;
        let top = self.inners.node(number);
        top.label();
        let root = tx.load(&self.root.0)?;
        tx.store(&top.keys[0], key)?;
        tx.store(&top.children[0], root as u32)?;
        tx.store(&top.children[1], child)?;
        top.set_many(tx, 1)?;
        tx.store(&self.root.0, root_word(number, path.depth + 2))
    }

    pub(super) fn remove_in<'a, X: Tx<'a>>(
        &'a self,
        tx: &mut X,
        key: u64,
        merges: bool,
    ) -> Result<Step<Option<u64>>, X::E> {
        let mut path = Path::new();
        let leaf = self.leaf_of(tx, key, Some(&mut path))?;
        let many = leaf.many(tx)?;
        let (at, is_there) = leaf.find(tx, many, key)?;
        if !is_there {
            return Ok(Step::Done(None));
        }
        let is_small = merges && many <= FEW && path.depth > 0;
        if is_small && !(self.leaves.has_room(tx, 1)? && self.inners.has_room(tx, LEVELS as u32)?) {
            return Ok(Step::Needs { inners: 0, leaves: 0 });
        }
        let old = tx.load(&leaf.values[at])?;
        close(tx, &leaf.keys, at, many)?;
        close(tx, &leaf.values, at, many)?;
        leaf.set_many(tx, many - 1)?;
        if is_small && self.merge_leaf(tx, &path)? {
            self.merge_parents(tx, &path)?;
        }
        Ok(Step::Done(Some(old)))
    }

    /// Merges the leaf at the end of a path with a neighbour of the same parent, if both fit.
    fn merge_leaf<'a, X: Tx<'a>>(&'a self, tx: &mut X, path: &Path) -> Result<bool, X::E> {
        let (number, at) = path.nodes[path.depth - 1];
        let parent = self.inners.node(number);
        let Some((left_at, left, right)) = pair(tx, parent, usize::from(at))? else {
            return Ok(false);
        };
        let right_number = right;
        let (left, right) = (self.leaves.node(left), self.leaves.node(right));
        let (of_left, of_right) = (left.many(tx)?, right.many(tx)?);
        if of_left + of_right > MERGED {
            return Ok(false);
        }
        copy(tx, &right.keys, &left.keys[of_left..], of_right)?;
        copy(tx, &right.values, &left.values[of_left..], of_right)?;
        left.set_many(tx, of_left + of_right)?;
        let next = tx.load(&right.next)?;
        tx.store(&left.next, next)?;
        self.leaves.give(tx, right_number)?;
        remove_child(tx, parent, left_at)?;
        Ok(true)
    }

    /// A child was taken from the last node of a path: merges inner nodes upwards while they are small.
    fn merge_parents<'a, X: Tx<'a>>(&'a self, tx: &mut X, path: &Path) -> Result<(), X::E> {
        let mut level = path.depth - 1;
        loop {
            let (number, _) = path.nodes[level];
            let many = self.inners.node(number).many(tx)?;
            if level == 0 {
                if many == 0 {
                    let child = tx.load(&self.inners.node(number).children[0])?;
                    tx.store(&self.root.0, root_word(child, path.depth))?;
                    self.inners.give(tx, number)?;
                }
                return Ok(());
            }
            if many >= FEW {
                return Ok(());
            }
            let (parent, at) = path.nodes[level - 1];
            let parent = self.inners.node(parent);
            let Some((left_at, left, right_number)) = pair(tx, parent, usize::from(at))? else {
                return Ok(());
            };
            let (left, right) = (self.inners.node(left), self.inners.node(right_number));
            let (of_left, of_right) = (left.many(tx)?, right.many(tx)?);
            if of_left + of_right + 1 > MERGED {
                return Ok(());
            }
            let separator = tx.load(&parent.keys[left_at])?;
            tx.store(&left.keys[of_left], separator)?;
            copy(tx, &right.keys, &left.keys[of_left + 1..], of_right)?;
            copy(tx, &right.children, &left.children[of_left + 1..], of_right + 1)?;
            left.set_many(tx, of_left + of_right + 1)?;
            self.inners.give(tx, right_number)?;
            remove_child(tx, parent, left_at)?;
            level -= 1;
        }
    }
}

/// A child and a neighbour of it: where the left one is, and both; `None` if it has none.
fn pair<'a, X: Tx<'a>>(
    tx: &mut X,
    parent: &'a Inner,
    at: usize,
) -> Result<Option<(usize, u32, u32)>, X::E> {
    let many = parent.many(tx)?;
    if many == 0 {
        return Ok(None);
    }
    let left = at.min(many - 1);
    let (first, second) = (tx.load(&parent.children[left])?, tx.load(&parent.children[left + 1])?);
    Ok(Some((left, first, second)))
}

/// Removes the child to the right of a key, and the key.
fn remove_child<'a, X: Tx<'a>>(tx: &mut X, parent: &'a Inner, key: usize) -> Result<(), X::E> {
    let many = parent.many(tx)?;
    close(tx, &parent.keys, key, many)?;
    close(tx, &parent.children, key + 1, many + 1)?;
    parent.set_many(tx, many - 1)
}

fn add<'a, X: Tx<'a>>(
    tx: &mut X,
    leaf: &'a Leaf,
    many: usize,
    at: usize,
    (key, value): (u64, u64),
) -> Result<(), X::E> {
    open(tx, &leaf.keys, at, many)?;
    open(tx, &leaf.values, at, many)?;
    tx.store(&leaf.keys[at], key)?;
    tx.store(&leaf.values[at], value)?;
    leaf.set_many(tx, many + 1)
}

/// Adds a child to the right of child `at`.
fn add_child<'a, X: Tx<'a>>(
    tx: &mut X,
    inner: &'a Inner,
    many: usize,
    at: usize,
    (key, child): (u64, u32),
) -> Result<(), X::E> {
    debug_assert!(many < KEYS && FANOUT == KEYS + 1);
    let at = at.min(many);
    open(tx, &inner.keys, at, many)?;
    open(tx, &inner.children, at + 1, many + 1)?;
    tx.store(&inner.keys[at], key)?;
    tx.store(&inner.children[at + 1], child)?;
    inner.set_many(tx, many + 1)
}
