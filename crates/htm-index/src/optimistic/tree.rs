//! The optimistic tree, over any way of access, and what threads call.
//!
//! Thread-safety: see the [module](super).

use super::access::{Access, InRegion, Plain, VersionWord};
use crate::arena::{Arena, ArenaError, Node, Spares};
use crate::eunomia::FANOUT;
use crate::htm::label::{self, Label};
use crate::htm::{ElidableLock, Htm, LockTx, Site, TCell, Tx};
use hedgerow_sync::latch::HybridLatch;
use std::array::from_fn;
use std::fmt::Debug;

const KEYS: usize = FANOUT - 1;

/// An inner node.
#[repr(C, align(64))]
struct Inner<L> {
    latch: L,
    sequence: TCell<u64>,
    count: TCell<u32>,
    keys: [TCell<u64>; KEYS],
    children: [TCell<u32>; FANOUT],
}

/// A leaf: its records in order.
#[repr(C, align(64))]
struct Leaf<L> {
    latch: L,
    sequence: TCell<u64>,
    count: TCell<u32>,
    _rest_of_the_line: [TCell<u64>; 5],
    keys: [TCell<u64>; FANOUT],
    values: [TCell<u64>; FANOUT],
}

/// The root: its number and the height of the tree.
#[repr(align(64))]
struct Root<L> {
    latch: L,
    word: TCell<u64>,
}

impl<L: Default> Default for Inner<L> {
    fn default() -> Inner<L> {
        Inner {
            latch: L::default(),
            sequence: TCell::new(0),
            count: TCell::new(0),
            keys: from_fn(|_| TCell::new(0)),
            children: from_fn(|_| TCell::new(0)),
        }
    }
}

impl<L: Default> Default for Leaf<L> {
    fn default() -> Leaf<L> {
        Leaf {
            latch: L::default(),
            sequence: TCell::new(0),
            count: TCell::new(0),
            _rest_of_the_line: from_fn(|_| TCell::new(0)),
            keys: from_fn(|_| TCell::new(0)),
            values: from_fn(|_| TCell::new(0)),
        }
    }
}

impl<L: Default + Send + Sync + 'static> Node for Inner<L> {
    fn sequence(&self) -> &TCell<u64> {
        &self.sequence
    }
}

impl<L: Default + Send + Sync + 'static> Node for Leaf<L> {
    fn sequence(&self) -> &TCell<u64> {
        &self.sequence
    }
}

fn label_leaf<L>(leaf: &Leaf<L>) {
    label::lines(leaf, Label::LeafMetadata);
    label::lines(&leaf.keys, Label::Record);
    label::lines(&leaf.values, Label::Record);
}

struct Tree<L> {
    root: Root<L>,
    inners: Arena<Inner<L>>,
    leaves: Arena<Leaf<L>>,
}

/// What is to become of a key.
#[derive(Clone, Copy)]
enum Write {
    Put(u64),
    Insert(u64),
    Remove,
}

/// What an attempt came to.
enum Attempt<T> {
    Done(T),
    /// Somebody else was there: once more, from the root.
    Again,
    /// It needs spare nodes.
    Needs,
}

/// The node that a leaf or inner node hangs from.
enum Parent<'a, L, S> {
    Root(&'a Root<L>, S),
    Inner(&'a Inner<L>, S),
}

impl<'a, L, S: Copy> Parent<'a, L, S> {
    fn latch(&self) -> (&'a L, S) {
        match self {
            Parent::Root(root, stamp) => (&root.latch, *stamp),
            Parent::Inner(inner, stamp) => (&inner.latch, *stamp),
        }
    }
}

fn bound<'a, X: Tx<'a>>(
    tx: &mut X,
    keys: &'a [TCell<u64>],
    count: usize,
    is_before: impl Fn(u64) -> bool,
) -> Result<usize, X::E> {
    // An optimistic reader may have read a count that goes with other keys.
    let (mut low, mut high) = (0, count.min(keys.len()));
    while low < high {
        let middle = usize::midpoint(low, high);
        if is_before(tx.load(&keys[middle])?) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Ok(low)
}

impl<L: Default + Debug + Send + Sync + 'static> Tree<L> {
    fn new(leaves: u32) -> Result<Tree<L>, ArenaError> {
        let tree = Tree {
            root: Root { latch: L::default(), word: TCell::new(0) },
            inners: Arena::new(leaves / 4 + 64, Spares::PerThread),
            leaves: Arena::new(leaves, Spares::PerThread),
        };
        tree.leaves.prepare(1)?;
        let Ok(first) = tree.leaves.take(&mut LockTx::new());
        tree.root.word.set(u64::from(first));
        Ok(tree)
    }

    fn prepare(&self) -> Result<(), ArenaError> {
        self.leaves.prepare(1)?;
        self.inners.prepare(2)
    }

    fn label(&self) {
        label::lines(&self.root, Label::Inner);
        for number in 0..self.inners.ever_used() {
            label::lines(self.inners.node(number), Label::Inner);
        }
        for number in 0..self.leaves.ever_used() {
            label_leaf(self.leaves.node(number));
        }
    }

    /// The value of a key.
    fn get<'a, A: Access<'a, L>>(
        &'a self,
        access: &mut A,
        key: u64,
    ) -> Result<Attempt<Option<u64>>, A::E> {
        let root_stamp = access.begin(&self.root.latch)?;
        let word = access.tx().load(&self.root.word)?;
        let (height, mut number) = ((word >> 32) as usize, word as u32);
        let (mut parent, mut parent_stamp) = (&self.root.latch, root_stamp);
        for _ in 0..height {
            let inner = self.inners.node(number);
            let stamp = access.begin(&inner.latch)?;
            if !access.still(parent, parent_stamp)? {
                return Ok(Attempt::Again);
            }
            let count = access.tx().load(&inner.count)? as usize;
            let slot = bound(access.tx(), &inner.keys, count, |other| other <= key)?;
            number = access.tx().load(&inner.children[slot])?;
            if !access.still(&inner.latch, stamp)? {
                return Ok(Attempt::Again);
            }
            (parent, parent_stamp) = (&inner.latch, stamp);
        }
        let leaf = self.leaves.node(number);
        let stamp = access.begin(&leaf.latch)?;
        if !access.still(parent, parent_stamp)? {
            return Ok(Attempt::Again);
        }
        let count = access.tx().load(&leaf.count)? as usize;
        let at = bound(access.tx(), &leaf.keys, count, |other| other < key)?;
        let is_there = at < count.min(FANOUT) && access.tx().load(&leaf.keys[at])? == key;
        let value = if is_there { Some(access.tx().load(&leaf.values[at])?) } else { None };
        Ok(if access.still(&leaf.latch, stamp)? { Attempt::Done(value) } else { Attempt::Again })
    }

    /// Changes a record. The value before.
    fn write<'a, A: Access<'a, L>>(
        &'a self,
        access: &mut A,
        key: u64,
        write: Write,
    ) -> Result<Attempt<Option<u64>>, A::E> {
        let may_grow = !matches!(write, Write::Remove);
        let stamp = access.begin(&self.root.latch)?;
        let word = access.tx().load(&self.root.word)?;
        let (height, mut number) = ((word >> 32) as usize, word as u32);
        let mut parent = Parent::Root(&self.root, stamp);
        for level in 0..height {
            let inner = self.inners.node(number);
            let stamp = access.begin(&inner.latch)?;
            let (parent_latch, parent_stamp) = parent.latch();
            if !access.still(parent_latch, parent_stamp)? {
                return Ok(Attempt::Again);
            }
            let count = access.tx().load(&inner.count)? as usize;
            if may_grow && count >= KEYS {
                return self.split_inner(access, parent, number, stamp, height - level);
            }
            let slot = bound(access.tx(), &inner.keys, count, |other| other <= key)?;
            number = access.tx().load(&inner.children[slot])?;
            if !access.still(&inner.latch, stamp)? {
                return Ok(Attempt::Again);
            }
            parent = Parent::Inner(inner, stamp);
        }
        let leaf = self.leaves.node(number);
        let stamp = access.begin(&leaf.latch)?;
        let (parent_latch, parent_stamp) = parent.latch();
        if !access.still(parent_latch, parent_stamp)? {
            return Ok(Attempt::Again);
        }
        let Some(held) = access.lock(&leaf.latch, stamp)? else { return Ok(Attempt::Again) };
        let count = (access.tx().load(&leaf.count)? as usize).min(FANOUT);
        let at = bound(access.tx(), &leaf.keys, count, |other| other < key)?;
        let is_there = at < count && access.tx().load(&leaf.keys[at])? == key;
        if let (Write::Insert(_), true) | (Write::Remove, false) = (write, is_there) {
            let value = if is_there { Some(access.tx().load(&leaf.values[at])?) } else { None };
            let is_valid = match held {
                Some(held) => access.release_in_place(held).map(|()| true)?,
                None => access.still(&leaf.latch, stamp)?,
            };
            return Ok(if is_valid { Attempt::Done(value) } else { Attempt::Again });
        }
        if !is_there && count == FANOUT {
            // It takes the parent first, and the leaf again.
            held.map_or(Ok(()), |held| access.release_in_place(held))?;
            return self.split_leaf(access, parent, number, stamp);
        }
        let held = match held {
            Some(held) => Some(held),
            None => access.upgrade(&leaf.latch, stamp)?,
        };
        let Some(held) = held else { return Ok(Attempt::Again) };
        let before = if is_there { Some(access.tx().load(&leaf.values[at])?) } else { None };
        if let (Write::Put(value), true) = (write, is_there) {
            access.tx().store(&leaf.values[at], value)?;
            access.release_in_place(held)?;
            return Ok(Attempt::Done(before));
        }
        access.change(&held)?;
        let tx = access.tx();
        match write {
            Write::Put(value) | Write::Insert(value) => {
                for at in (at..count).rev() {
                    let moved = tx.load(&leaf.keys[at])?;
                    tx.store(&leaf.keys[at + 1], moved)?;
                    let moved = tx.load(&leaf.values[at])?;
                    tx.store(&leaf.values[at + 1], moved)?;
                }
                tx.store(&leaf.keys[at], key)?;
                tx.store(&leaf.values[at], value)?;
                tx.store(&leaf.count, count as u32 + 1)?;
            }
            Write::Remove => {
                for at in at + 1..count {
                    let moved = tx.load(&leaf.keys[at])?;
                    tx.store(&leaf.keys[at - 1], moved)?;
                    let moved = tx.load(&leaf.values[at])?;
                    tx.store(&leaf.values[at - 1], moved)?;
                }
                tx.store(&leaf.count, count as u32 - 1)?;
            }
        }
        access.release_changed(held)?;
        Ok(Attempt::Done(before))
    }

    /// Whether the nodes for a split are there.
    fn is_ready<'a, A: Access<'a, L>>(&'a self, access: &mut A) -> Result<bool, A::E> {
        let tx = access.tx();
        Ok(self.leaves.has(tx, 1)? && self.inners.has(tx, 2)?)
    }

    /// Enters a new node to the right of another one. The parent is held, and has room.
    fn enter<'a, A: Access<'a, L>>(
        &'a self,
        access: &mut A,
        parent: &Parent<'a, L, A::Stamp>,
        height: usize,
        key: u64,
        child: u32,
    ) -> Result<(), A::E> {
        let tx = access.tx();
        match parent {
            Parent::Inner(inner, _) => {
                let count = tx.load(&inner.count)? as usize;
                let slot = bound(tx, &inner.keys, count, |other| other <= key)?;
                for at in (slot..count).rev() {
                    let moved = tx.load(&inner.keys[at])?;
                    tx.store(&inner.keys[at + 1], moved)?;
                    let moved = tx.load(&inner.children[at + 1])?;
                    tx.store(&inner.children[at + 2], moved)?;
                }
                tx.store(&inner.keys[slot], key)?;
                tx.store(&inner.children[slot + 1], child)?;
                tx.store(&inner.count, count as u32 + 1)
            }
            Parent::Root(root, _) => {
                let old = tx.load(&root.word)? as u32;
                let top_number = self.inners.take(tx)?;
                let top = self.inners.node(top_number);
                label::lines(top, Label::Inner);
                tx.store(&top.children[0], old)?;
                tx.store(&top.children[1], child)?;
                tx.store(&top.keys[0], key)?;
                tx.store(&top.count, 1)?;
                tx.store(&root.word, (height as u64 + 1) << 32 | u64::from(top_number))
            }
        }
    }

    fn split_leaf<'a, A: Access<'a, L>>(
        &'a self,
        access: &mut A,
        parent: Parent<'a, L, A::Stamp>,
        number: u32,
        stamp: A::Stamp,
    ) -> Result<Attempt<Option<u64>>, A::E> {
        if !self.is_ready(access)? {
            return Ok(Attempt::Needs);
        }
        let (parent_latch, parent_stamp) = parent.latch();
        let Some(parent_held) = access.upgrade(parent_latch, parent_stamp)? else {
            return Ok(Attempt::Again);
        };
        let leaf = self.leaves.node(number);
        let Some(held) = access.upgrade(&leaf.latch, stamp)? else {
            access.release(parent_held)?;
            return Ok(Attempt::Again);
        };
        const LEFT: usize = FANOUT / 2;
        let tx = access.tx();
        let right_number = self.leaves.take(tx)?;
        let right = self.leaves.node(right_number);
        label_leaf(right);
        for at in LEFT..FANOUT {
            let moved = tx.load(&leaf.keys[at])?;
            tx.store(&right.keys[at - LEFT], moved)?;
            let moved = tx.load(&leaf.values[at])?;
            tx.store(&right.values[at - LEFT], moved)?;
        }
        let between = tx.load(&right.keys[0])?;
        tx.store(&right.count, (FANOUT - LEFT) as u32)?;
        tx.store(&leaf.count, LEFT as u32)?;
        self.enter(access, &parent, 0, between, right_number)?;
        access.release(held)?;
        access.release(parent_held)?;
        Ok(Attempt::Again)
    }

    /// `height` is that of the tree below the node, itself included.
    fn split_inner<'a, A: Access<'a, L>>(
        &'a self,
        access: &mut A,
        parent: Parent<'a, L, A::Stamp>,
        number: u32,
        stamp: A::Stamp,
        height: usize,
    ) -> Result<Attempt<Option<u64>>, A::E> {
        if !self.is_ready(access)? {
            return Ok(Attempt::Needs);
        }
        let (parent_latch, parent_stamp) = parent.latch();
        let Some(parent_held) = access.upgrade(parent_latch, parent_stamp)? else {
            return Ok(Attempt::Again);
        };
        let inner = self.inners.node(number);
        let Some(held) = access.upgrade(&inner.latch, stamp)? else {
            access.release(parent_held)?;
            return Ok(Attempt::Again);
        };
        const LEFT: usize = KEYS / 2;
        let tx = access.tx();
        let right_number = self.inners.take(tx)?;
        let right = self.inners.node(right_number);
        label::lines(right, Label::Inner);
        let between = tx.load(&inner.keys[LEFT])?;
        for at in LEFT + 1..KEYS {
            let moved = tx.load(&inner.keys[at])?;
            tx.store(&right.keys[at - LEFT - 1], moved)?;
        }
        for at in LEFT + 1..FANOUT {
            let moved = tx.load(&inner.children[at])?;
            tx.store(&right.children[at - LEFT - 1], moved)?;
        }
        tx.store(&right.count, (KEYS - LEFT - 1) as u32)?;
        tx.store(&inner.count, LEFT as u32)?;
        self.enter(access, &parent, height, between, right_number)?;
        access.release(held)?;
        access.release(parent_held)?;
        Ok(Attempt::Again)
    }
}

/// Repeats attempts until one is done.
fn until_done<T>(
    prepare: impl Fn() -> Result<(), ArenaError>,
    mut attempt: impl FnMut() -> Attempt<T>,
) -> Result<T, ArenaError> {
    loop {
        match attempt() {
            Attempt::Done(done) => return Ok(done),
            Attempt::Again => {}
            Attempt::Needs => prepare()?,
        }
    }
}

macro_rules! outside_of_regions {
    ($name:ident, $session:ident, $latch:ty, $what:literal) => {
        #[doc = $what]
        pub struct $name(Tree<$latch>);

        impl Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }

        /// A thread's part of the tree.
        #[derive(Debug)]
        pub struct $session<'t> {
            tree: &'t $name,
            /// Looks at versions.
            pub checks: u64,
        }

        impl $name {
            /// An empty tree with room for so many leaves, spare ones of each thread included.
            ///
            /// # Errors
            /// There is no room for a leaf.
            pub fn new(leaves: u32) -> Result<$name, ArenaError> {
                Tree::new(leaves).map($name)
            }

            /// What the calling thread works with.
            pub fn session(&self) -> $session<'_> {
                $session { tree: self, checks: 0 }
            }

            /// Says what cache lines hold, in a run of the simulator.
            pub fn label(&self) {
                self.0.label();
            }
        }

        impl $session<'_> {
            /// The value of a key.
            pub fn get(&mut self, key: u64) -> Option<u64> {
                label::operation(key);
                let tree = &self.tree.0;
                let mut access = Plain::new();
                let found = loop {
                    let Ok(attempt) = tree.get(&mut access, key);
                    if let Attempt::Done(found) = attempt {
                        break found;
                    }
                };
                self.checks += access.checks;
                found
            }

            fn write(&mut self, key: u64, write: Write) -> Result<Option<u64>, ArenaError> {
                label::operation(key);
                let tree = &self.tree.0;
                let mut access = Plain::new();
                let done = until_done(
                    || tree.prepare(),
                    || {
                        let Ok(attempt) = tree.write(&mut access, key, write);
                        attempt
                    },
                );
                self.checks += access.checks;
                done
            }

            /// Puts a value, over an earlier one if there is one, which is returned.
            ///
            /// # Errors
            /// No node is left.
            pub fn put(&mut self, key: u64, value: u64) -> Result<Option<u64>, ArenaError> {
                self.write(key, Write::Put(value))
            }

            /// Puts a value if there is none. The value that was there.
            ///
            /// # Errors
            /// No node is left.
            pub fn insert(&mut self, key: u64, value: u64) -> Result<Option<u64>, ArenaError> {
                self.write(key, Write::Insert(value))
            }

            /// Removes a record. Its value.
            pub fn remove(&mut self, key: u64) -> Option<u64> {
                self.write(key, Write::Remove).expect("a remove takes no node")
            }
        }
    };
}

outside_of_regions!(
    LockCoupling,
    LockCouplingSession,
    HybridLatch,
    "A tree of optimistic lock coupling with hybrid latches."
);
outside_of_regions!(
    MasstreeStandIn,
    MasstreeSession,
    VersionWord,
    "A stand-in for Masstree: versions are looked at before and after each node, and writers lock their leaf before they look into it."
);

/// A stand-in for HTM-Masstree: [`MasstreeStandIn`] in one region an operation.
pub struct HtmMasstreeStandIn<H> {
    htm: H,
    lock: ElidableLock,
    tree: Tree<VersionWord>,
}

impl<H: Debug> Debug for HtmMasstreeStandIn<H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HtmMasstreeStandIn").field("htm", &self.htm).finish_non_exhaustive()
    }
}

impl<H: Htm> HtmMasstreeStandIn<H> {
    /// An empty tree with room for so many leaves, spare ones of each thread included.
    ///
    /// # Errors
    /// There is no room for a leaf.
    pub fn new(htm: H, leaves: u32) -> Result<HtmMasstreeStandIn<H>, ArenaError> {
        Ok(HtmMasstreeStandIn { htm, lock: ElidableLock::new(), tree: Tree::new(leaves)? })
    }

    /// The backend.
    pub fn htm(&self) -> &H {
        &self.htm
    }

    /// Says what cache lines hold, in a run of the simulator.
    pub fn label(&self) {
        self.tree.label();
    }

    /// The value of a key.
    pub fn get(&self, key: u64) -> Option<u64> {
        label::operation(key);
        loop {
            let attempt = self
                .htm
                .atomic(&self.lock, Site::WHOLE, |tx| self.tree.get(&mut InRegion::new(tx), key));
            if let Attempt::Done(found) = attempt {
                return found;
            }
        }
    }

    fn write(&self, key: u64, write: Write) -> Result<Option<u64>, ArenaError> {
        label::operation(key);
        until_done(
            || self.tree.prepare(),
            || {
                self.htm.atomic(&self.lock, Site::WHOLE, |tx| {
                    self.tree.write(&mut InRegion::new(tx), key, write)
                })
            },
        )
    }

    /// Puts a value, over an earlier one if there is one, which is returned.
    ///
    /// # Errors
    /// No node is left.
    pub fn put(&self, key: u64, value: u64) -> Result<Option<u64>, ArenaError> {
        self.write(key, Write::Put(value))
    }

    /// Puts a value if there is none. The value that was there.
    ///
    /// # Errors
    /// No node is left.
    pub fn insert(&self, key: u64, value: u64) -> Result<Option<u64>, ArenaError> {
        self.write(key, Write::Insert(value))
    }

    /// Removes a record. Its value.
    #[allow(clippy::missing_panics_doc, reason = "a remove takes no node")]
    pub fn remove(&self, key: u64) -> Option<u64> {
        self.write(key, Write::Remove).expect("a remove takes no node")
    }
}
