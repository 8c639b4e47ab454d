//! The Delta Storage Index: HPCA 2014, sections 2 and 4.3 to 5.3. A dictionary holds values in the order in which they came, and a tree over it
//! holds their 32-bit numbers in the order of the values. Each comparison looks a value up in the dictionary.
//!
//! What the paper does to it is a switch each ([`Switches`]): binary search instead of linear, a dictionary per core, spare nodes per
//! core. An operation is one region.
//!
//! # Invariants
//! - The values of the numbers of a node rise strictly, and so do those of all leaves from left to right.
//! - An insert looks whether there is room in the dictionary, and whether there are nodes for all splits, before it changes anything.
//!
//! `Send + Sync`.

mod dictionary;
mod node;
#[cfg(all(test, not(loom)))]
mod tests;

use crate::arena::{Arena, ArenaError, Spares};
use crate::bplus::{as_after_random_inserts, copy, open_gap};
use crate::htm::label::{self, Label};
use crate::htm::{ElidableLock, Htm, Site, TCell, Tx};
use dictionary::Dictionary;
use hedgerow_sync::primitive::random::SplitMix64;
use node::{FANOUT, IDS, Inner, Leaf};
use std::fmt;

const LEVELS: usize = 8;
const NONE: u32 = u32::MAX;
/// Dictionaries, if there is one per core.
const CORES: usize = 128;

/// How a node is searched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Search {
    /// From the first number on: looks 15 values up in a node on average.
    Linear,
    /// Looks up to 5 values up.
    Binary,
}

/// How many there are of something that inserts change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Many {
    /// One.
    One,
    /// One for each core: threads that are alive have different numbers, by which they are told apart.
    PerCore,
}

/// The transformations of section 5, each by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Switches {
    /// How a node is searched.
    pub search: Search,
    /// Dictionaries.
    pub dictionary: Many,
    /// Allocators of nodes.
    pub allocator: Many,
}

impl Switches {
    /// As the index was.
    pub const UNTUNED: Switches =
        Switches { search: Search::Linear, dictionary: Many::One, allocator: Many::One };
    /// "Elision-friendly".
    pub const TUNED: Switches =
        Switches { search: Search::Binary, dictionary: Many::PerCore, allocator: Many::PerCore };

    /// All switches by name, each alone, and none and all.
    pub const NAMED: [(&str, Switches); 5] = [
        ("untuned", Switches::UNTUNED),
        ("binary search", Switches { search: Search::Binary, ..Switches::UNTUNED }),
        ("dictionary per core", Switches { dictionary: Many::PerCore, ..Switches::UNTUNED }),
        ("allocator per core", Switches { allocator: Many::PerCore, ..Switches::UNTUNED }),
        ("tuned", Switches::TUNED),
    ];
}

/// Why a value was not added. The index is as it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum DeltaError {
    /// There are no nodes left.
    Nodes(ArenaError),
    /// The dictionary has no room for another value of this thread.
    DictionaryFull,
}

impl fmt::Display for DeltaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeltaError::Nodes(error) => error.fmt(f),
            DeltaError::DictionaryFull => write!(f, "the dictionary has no room for another value"),
        }
    }
}

impl std::error::Error for DeltaError {}

impl From<ArenaError> for DeltaError {
    fn from(error: ArenaError) -> DeltaError {
        DeltaError::Nodes(error)
    }
}

#[repr(align(64))]
struct Root(TCell<u64>);

/// A set of values, each with a number.
pub struct DeltaIndex<H> {
    htm: H,
    switches: Switches,
    lock: ElidableLock,
    root: Root,
    dictionary: Dictionary,
    inners: Arena<Inner>,
    leaves: Arena<Leaf>,
}

impl<H> fmt::Debug for DeltaIndex<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeltaIndex").field("switches", &self.switches).finish_non_exhaustive()
    }
}

enum Step {
    /// The number of the value, and whether it is new.
    Done(u32, bool),
    Needs(u32),
    Full,
}

struct Path {
    nodes: [(u32, u8); LEVELS],
    depth: usize,
}

impl<H: Htm> DeltaIndex<H> {
    /// An empty index, with memory for so many values. With a dictionary per core each further one has room for `more` values.
    ///
    /// # Errors
    /// There is no leaf for the root.
    pub fn new(
        htm: H,
        switches: Switches,
        values: u32,
        more: u32,
    ) -> Result<DeltaIndex<H>, ArenaError> {
        let (spares, cores) = match (switches.allocator, switches.dictionary) {
            (Many::One, Many::One) => (Spares::Shared, 1),
            (Many::One, Many::PerCore) => (Spares::Shared, CORES),
            (Many::PerCore, Many::One) => (Spares::PerThread, 1),
            (Many::PerCore, Many::PerCore) => (Spares::PerThread, CORES),
        };
        let leaves = values / (IDS as u32 / 2) + 64 * 32;
        let index = DeltaIndex {
            htm,
            switches,
            lock: ElidableLock::new(),
            root: Root(TCell::new(0)),
            dictionary: Dictionary::new(cores, values as usize, more as usize),
            inners: Arena::new(leaves / (IDS as u32 / 2) + 64 * 32, spares),
            leaves: Arena::new(leaves, spares),
        };
        index.leaves.prepare(1)?;
        index.htm.atomic(&index.lock, Site::OTHER, |tx| {
            let leaf = index.leaves.take(tx)?;
            tx.store(&index.leaves.node(leaf).next, NONE)?;
            tx.store(&index.root.0, u64::from(leaf) | 1 << 32)
        });
        Ok(index)
    }

    /// The backend.
    pub fn htm(&self) -> &H {
        &self.htm
    }

    /// The lock that regions elide.
    pub fn lock(&self) -> &ElidableLock {
        &self.lock
    }

    /// Levels of the tree, leaves included.
    pub fn height(&self) -> u32 {
        (self.root.0.get() >> 32) as u32
    }

    /// Values in the index.
    pub fn len(&self) -> usize {
        self.dictionary.len()
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Says what all cache lines hold, for a simulated run that begins.
    pub fn label(&self) {
        label::lines(&self.root, Label::Inner);
        self.dictionary.label();
        (0..self.inners.ever_used()).for_each(|number| self.inners.node(number).label());
        (0..self.leaves.ever_used()).for_each(|number| self.leaves.node(number).label());
    }

    /// The number of a value, if it is there.
    pub fn id_of(&self, value: u64) -> Option<u32> {
        label::operation(value);
        self.htm.read(&self.lock, Site::WHOLE, |tx| {
            let leaf = self.leaves.node(self.descend(tx, value, None)?);
            let many = leaf.many(tx)?;
            let (at, is_there) = self.find(tx, &leaf.ids, many, value)?;
            if is_there { tx.load(&leaf.ids[at]).map(Some) } else { Ok(None) }
        })
    }

    /// Adds a value if it is not there. Its number, and whether it is new.
    ///
    /// # Errors
    /// There is no room; the index is as it was.
    pub fn insert(&self, value: u64) -> Result<(u32, bool), DeltaError> {
        label::operation(value);
        loop {
            let step = self.htm.atomic(&self.lock, Site::WHOLE, |tx| self.insert_in(tx, value));
            let inners = match step {
                Step::Done(id, is_new) => return Ok((id, is_new)),
                Step::Full => return Err(DeltaError::DictionaryFull),
                Step::Needs(inners) => inners,
            };
            // Spare nodes of all threads are changed by nobody but who holds the lock.
            let shared = (self.switches.allocator == Many::One).then(|| self.lock.lock());
            self.inners.prepare(inners)?;
            self.leaves.prepare(1)?;
            drop(shared);
        }
    }

    /// The numbers of all values in the order of these, as they all were at one moment.
    pub fn in_order(&self) -> Vec<u32> {
        let mut room = self.len() + IDS;
        loop {
            let mut ids = Vec::with_capacity(room);
            let is_all = self.htm.read(&self.lock, Site::SCAN, |tx| {
                ids.clear();
                let mut number = self.descend(tx, 0, None)?;
                while number != NONE {
                    let leaf = self.leaves.node(number);
                    let many = leaf.many(tx)?;
                    if ids.len() + many > ids.capacity() {
                        return Ok(false);
                    }
                    for id in &leaf.ids[..many] {
                        ids.push(tx.load(id)?);
                    }
                    number = tx.load(&leaf.next)?;
                }
                Ok(true)
            });
            if is_all {
                return ids;
            }
            room *= 2;
        }
    }

    /// The value of a number that was given out.
    ///
    /// # Panics
    /// It was not.
    pub fn value_of(&self, id: u32) -> u64 {
        self.dictionary.get(id)
    }

    /// The first of `many` numbers whose value is at least `value`, and whether it is that value.
    #[inline]
    fn find<'a, X: Tx<'a>>(
        &'a self,
        tx: &mut X,
        ids: &'a [TCell<u32>],
        many: usize,
        value: u64,
    ) -> Result<(usize, bool), X::E> {
        if self.switches.search == Search::Linear {
            for (at, id) in ids[..many].iter().enumerate() {
                let id = tx.load(id)?;
                let found = self.dictionary.value(tx, id)?;
                if found >= value {
                    return Ok((at, found == value));
                }
            }
            return Ok((many, false));
        }
        let (mut low, mut high) = (0, many);
        while low < high {
            let middle = (low + high) / 2;
            let id = tx.load(&ids[middle])?;
            let found = self.dictionary.value(tx, id)?;
            if found == value {
                return Ok((middle, true));
            }
            if found < value { low = middle + 1 } else { high = middle }
        }
        Ok((low, false))
    }

    #[inline]
    fn descend<'a, X: Tx<'a>>(
        &'a self,
        tx: &mut X,
        value: u64,
        mut path: Option<&mut Path>,
    ) -> Result<u32, X::E> {
        let root = tx.load(&self.root.0)?;
        let (mut number, height) = (root as u32, (root >> 32) as usize);
        for _ in 1..height {
            let inner = self.inners.node(number);
            let many = inner.many(tx)?;
            let (at, is_equal) = self.find(tx, &inner.ids, many, value)?;
            let at = at + usize::from(is_equal);
            if let Some(path) = &mut path {
                path.nodes[path.depth] = (number, at as u8);
                path.depth += 1;
            }
            number = tx.load(&inner.children[at])? as u32;
        }
        Ok(number)
    }

    fn insert_in<'a, X: Tx<'a>>(&'a self, tx: &mut X, value: u64) -> Result<Step, X::E> {
        let mut path = Path { nodes: [(0, 0); LEVELS], depth: 0 };
        let leaf = self.leaves.node(self.descend(tx, value, Some(&mut path))?);
        let many = leaf.many(tx)?;
        let (at, is_there) = self.find(tx, &leaf.ids, many, value)?;
        if is_there {
            return Ok(Step::Done(tx.load(&leaf.ids[at])?, false));
        }
        if !self.dictionary.has_room(tx)? {
            return Ok(Step::Full);
        }
        if many < IDS {
            let id = self.dictionary.add(tx, value)?;
            add(tx, leaf, many, at, id)?;
            return Ok(Step::Done(id, true));
        }
        let mut full = 0;
        while full < path.depth {
            let (number, _) = path.nodes[path.depth - 1 - full];
            if self.inners.node(number).many(tx)? < IDS {
                break;
            }
            full += 1;
        }
        let inners = (full + usize::from(full == path.depth)) as u32;
        if !self.leaves.has(tx, 1)? || !self.inners.has(tx, inners)? {
            return Ok(Step::Needs(inners));
        }
        let id = self.dictionary.add(tx, value)?;
        const LEFT: usize = IDS / 2;
        let number = self.leaves.take(tx)?;
        let right = self.leaves.node(number);
        right.label();
        copy(tx, &leaf.ids[LEFT..], &right.ids, IDS - LEFT)?;
        leaf.set_many(tx, LEFT)?;
        right.set_many(tx, IDS - LEFT)?;
        let next = tx.load(&leaf.next)?;
        tx.store(&right.next, next)?;
        tx.store(&leaf.next, number)?;
        if at <= LEFT {
            add(tx, leaf, LEFT, at, id)?;
        } else {
            add(tx, right, IDS - LEFT, at - LEFT, id)?;
        }
        let separator = tx.load(&right.ids[0])?;
        self.add_to_parents(tx, &path, separator, number)?;
        Ok(Step::Done(id, true))
    }

    fn add_to_parents<'a, X: Tx<'a>>(
        &'a self,
        tx: &mut X,
        path: &Path,
        mut id: u32,
        mut child: u32,
    ) -> Result<(), X::E> {
        const LEFT: usize = IDS / 2;
        const RIGHT: usize = IDS - LEFT - 1;
        for &(number, at) in path.nodes[..path.depth].iter().rev() {
            let (inner, at) = (self.inners.node(number), usize::from(at));
            let many = inner.many(tx)?;
            if many < IDS {
                return add_child(tx, inner, many, at, (id, child));
            }
            let right_number = self.inners.take(tx)?;
            let right = self.inners.node(right_number);
            right.label();
            let middle = tx.load(&inner.ids[LEFT])?;
            copy(tx, &inner.ids[LEFT + 1..], &right.ids, RIGHT)?;
            copy(tx, &inner.children[LEFT + 1..], &right.children, RIGHT + 1)?;
            inner.set_many(tx, LEFT)?;
            right.set_many(tx, RIGHT)?;
            if at <= LEFT {
                add_child(tx, inner, LEFT, at, (id, child))?;
            } else {
                add_child(tx, right, RIGHT, at - LEFT - 1, (id, child))?;
            }
            (id, child) = (middle, right_number);
        }
        let number = self.inners.take(tx)?;
        let top = self.inners.node(number);
        top.label();
        let root = tx.load(&self.root.0)?;
        tx.store(&top.ids[0], id)?;
        tx.store(&top.children[0], root & u64::from(u32::MAX))?;
        tx.store(&top.children[1], u64::from(child))?;
        top.set_many(tx, 1)?;
        tx.store(&self.root.0, u64::from(number) | (path.depth as u64 + 2) << 32)
    }

    /// Loads values, which must rise, into an empty index: numbers are given out at random, as if they had come in any order, and nodes are
    /// as full as random inserts leave them. Not while others use the index.
    ///
    /// # Errors
    /// There is no room; then the index holds nothing that can be relied on.
    ///
    /// # Panics
    /// The index is not empty, or values do not rise.
    pub fn load(&self, values: &[u64], seed: u64) -> Result<(), DeltaError> {
        assert!(self.is_empty() && values.is_sorted_by(|a, b| a < b), "rising values, once");
        let mut random = SplitMix64::new(seed);
        let mut order: Vec<u32> = (0..values.len() as u32).collect();
        for at in (1..order.len()).rev() {
            order.swap(at, random.below(at as u64 + 1) as usize);
        }
        let came: Vec<u64> = order.iter().map(|&at| values[at as usize]).collect();
        if !self.dictionary.load(&came) {
            return Err(DeltaError::DictionaryFull);
        }
        let mut ids = vec![0_u32; values.len()];
        for (id, &at) in order.iter().enumerate() {
            ids[at as usize] = id as u32;
        }
        let mut level: Vec<(u32, u32)> = Vec::new();
        let mut rest = &ids[..];
        let mut last: Option<&Leaf> = None;
        while !rest.is_empty() {
            let many = as_after_random_inserts(&mut random, IDS).min(rest.len());
            let number = match last {
                None => self.root.0.get() as u32,
                Some(_) => self.taken(&self.leaves)?,
            };
            let leaf = self.leaves.node(number);
            leaf.next.set(NONE);
            if let Some(last) = last.replace(leaf) {
                last.next.set(number);
            }
            leaf.ids.iter().zip(&rest[..many]).for_each(|(cell, &id)| cell.set(id));
            self.htm.atomic(&self.lock, Site::OTHER, |tx| leaf.set_many(tx, many));
            level.push((rest[0], number));
            rest = &rest[many..];
        }
        let mut height = 1;
        while level.len() > 1 {
            let mut above = Vec::new();
            let mut rest = &level[..];
            while !rest.is_empty() {
                let mut children = as_after_random_inserts(&mut random, IDS).min(rest.len());
                children += usize::from(rest.len() - children == 1 && children < FANOUT);
                let number = self.taken(&self.inners)?;
                let inner = self.inners.node(number);
                for (at, &(id, child)) in rest[..children].iter().enumerate() {
                    inner.children[at].set(u64::from(child));
                    if at > 0 {
                        inner.ids[at - 1].set(id);
                    }
                }
                self.htm.atomic(&self.lock, Site::OTHER, |tx| inner.set_many(tx, children - 1));
                above.push((rest[0].0, number));
                rest = &rest[children..];
            }
            (level, height) = (above, height + 1);
        }
        if let Some(&(_, root)) = level.first() {
            self.root.0.set(u64::from(root) | height << 32);
        }
        Ok(())
    }

    fn taken<N: crate::arena::Node>(&self, arena: &Arena<N>) -> Result<u32, ArenaError> {
        arena.prepare(1)?;
        Ok(self.htm.atomic(&self.lock, Site::OTHER, |tx| arena.take(tx)))
    }
}

fn add<'a, X: Tx<'a>>(
    tx: &mut X,
    leaf: &'a Leaf,
    many: usize,
    at: usize,
    id: u32,
) -> Result<(), X::E> {
    open_gap(tx, &leaf.ids, at, many)?;
    tx.store(&leaf.ids[at], id)?;
    leaf.set_many(tx, many + 1)
}

/// Adds a child to the right of child `at`.
fn add_child<'a, X: Tx<'a>>(
    tx: &mut X,
    inner: &'a Inner,
    many: usize,
    at: usize,
    (id, child): (u32, u32),
) -> Result<(), X::E> {
    let at = at.min(many);
    open_gap(tx, &inner.ids, at, many)?;
    open_gap(tx, &inner.children, at + 1, many + 1)?;
    tx.store(&inner.ids[at], id)?;
    tx.store(&inner.children[at + 1], u64::from(child))?;
    inner.set_many(tx, many + 1)
}
