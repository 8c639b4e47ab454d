//! Nodes that are named by 32-bit numbers, and stay nodes for as long as the arena lives.
//!
//! # Invariants
//! - A number below the capacity names a node at any time. So a number that is out of date is safe to follow.
//! - A node's sequence number rises when the node is taken and when it is freed. It starts at zero, so it is odd while the node is
//!   in use, if who changes it otherwise adds two. Whoever has noted it with the number finds out that the node is another one.
//! - Nothing else of a node changes when it is freed or taken: lock words are never reset, because somebody may be waiting for them.
//! - Nodes begin at multiples of 64 bytes, and 64 of them at a multiple of 4096: which L1 set a node is in does not depend on where
//!   the system puts memory.
//!
//! Regions take nodes from spare ones: with [`Spares::PerThread`] each thread has its own, on lines of its own; with
//! [`Spares::Shared`] all threads have the same ones, and conflict (HPCA 2014, section 5.2.2). Spare nodes are fetched outside of
//! regions ([`Arena::prepare`]), so a region neither waits nor fails for want of them: it looks first ([`Arena::has`]).
//! `Send + Sync`.

use crate::htm::label::{self, Label};
use crate::htm::{TCell, Tx};
use hedgerow_sync::primitive::{Mutex, thread};
use std::fmt;

/// Nodes that lie together.
const CHUNK: usize = 64;
/// Threads that have spare nodes of their own.
const THREADS: usize = if cfg!(loom) { 4 } else { 192 };
/// Spare nodes that a thread has at most.
const POOL: usize = 27;
/// Spare nodes that are fetched at a time.
const BATCH: usize = 16;

/// A node: the kind of data that an arena holds, aligned to 64 bytes.
pub trait Node: Default + Send + Sync + 'static {
    /// Rises when the node is taken and when it is freed.
    fn sequence(&self) -> &TCell<u64>;
}

/// Whose the spare nodes are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spares {
    /// Each thread's.
    PerThread,
    /// All threads'.
    Shared,
}

/// Why there is no spare node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ArenaError {
    /// All nodes are in use, or spare ones of other threads.
    Full {
        /// Nodes of the arena.
        capacity: u32,
    },
    /// More threads are alive than have spare nodes.
    TooManyThreads {
        /// So many may be.
        most: usize,
    },
}

impl fmt::Display for ArenaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ArenaError::Full { capacity } => {
                write!(f, "all {capacity} nodes of the arena are in use")
            }
            ArenaError::TooManyThreads { most } => {
                write!(
                    f,
                    "more than {most} threads are alive: an arena has no spare nodes for them"
                )
            }
        }
    }
}

impl std::error::Error for ArenaError {}

#[repr(align(4096))]
struct Chunk<N>([N; CHUNK]);

/// Spare nodes, in the order of taking.
#[repr(align(64))]
struct Pool {
    count: TCell<u32>,
    spares: [TCell<u32>; POOL],
}

impl Pool {
    fn new() -> Pool {
        Pool { count: TCell::new(0), spares: std::array::from_fn(|_| TCell::new(0)) }
    }
}

/// Nodes that nobody has.
struct Reserve {
    /// From this one on none was ever taken.
    unused: u32,
    freed: Vec<u32>,
}

/// An arena.
pub struct Arena<N> {
    chunks: Box<[Chunk<N>]>,
    capacity: u32,
    whose: Spares,
    pools: Box<[Pool]>,
    reserve: Mutex<Reserve>,
}

impl<N> fmt::Debug for Arena<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arena").field("capacity", &self.capacity).finish_non_exhaustive()
    }
}

impl<N: Node> Arena<N> {
    /// An arena with memory for `capacity` nodes, rounded up to a multiple of 64. None is taken. The memory is there at once.
    ///
    /// # Panics
    /// Nodes are not aligned to 64 bytes.
    #[must_use]
    pub fn new(capacity: u32, whose: Spares) -> Arena<N> {
        const { assert!(align_of::<N>() == 64) };
        let chunks = (capacity as usize).div_ceil(CHUNK).max(1);
        let pools = match whose {
            Spares::PerThread => THREADS,
            Spares::Shared => 1,
        };
        let chunk = |_| Chunk(std::array::from_fn(|_| N::default()));
        Arena {
            chunks: (0..chunks).map(chunk).collect(),
            capacity: (chunks * CHUNK) as u32,
            whose,
            pools: (0..pools).map(|_| Pool::new()).collect(),
            reserve: Mutex::new(Reserve { unused: 0, freed: Vec::new() }),
        }
    }

    /// Nodes that there are.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Nodes that were ever taken: those with a smaller number than this.
    #[must_use]
    pub fn ever_used(&self) -> u32 {
        self.reserve.lock().unused
    }

    /// The node of a number.
    ///
    /// # Panics
    /// The arena has never had so many nodes.
    #[inline(always)]
    #[must_use]
    pub fn node(&self, number: u32) -> &N {
        let number = number as usize;
        &self.chunks[number / CHUNK].0[number % CHUNK]
    }

    #[inline]
    fn pool(&self) -> Option<&Pool> {
        match self.whose {
            Spares::PerThread => self.pools.get(thread::id()),
            Spares::Shared => self.pools.first(),
        }
    }

    /// Sees to it that the calling thread has `nodes` spare nodes, and room for as many that it frees. Not in a region. With
    /// [`Spares::Shared`] the caller holds what regions elide.
    ///
    /// # Errors
    /// There are not so many.
    ///
    /// # Panics
    /// `nodes` is more than 8.
    pub fn prepare(&self, nodes: u32) -> Result<(), ArenaError> {
        assert!(nodes as usize * 3 < POOL, "{nodes} spare nodes are too many");
        let pool = self.pool().ok_or(ArenaError::TooManyThreads { most: THREADS })?;
        let mut count = pool.count.get() as usize;
        if count >= nodes as usize && count + nodes as usize <= POOL {
            return Ok(());
        }
        let mut reserve = self.reserve.lock();
        count = Self::spill(pool, count, &mut reserve);
        while count < BATCH {
            let next = reserve.freed.pop().or_else(|| {
                let next = reserve.unused;
                reserve.unused += u32::from(next < self.capacity);
                (next < self.capacity).then_some(next)
            });
            let Some(next) = next else { break };
            pool.spares[count].set(next);
            count += 1;
        }
        pool.count.set(count as u32);
        drop(reserve);
        label::lines(pool, Label::Allocator);
        if count < nodes as usize {
            Err(ArenaError::Full { capacity: self.capacity })
        } else {
            Ok(())
        }
    }

    /// Sees to it that the calling thread has room for some nodes that it frees. Not in a region. With [`Spares::Shared`] the
    /// caller holds what regions elide.
    ///
    /// # Errors
    /// There is no room for this thread.
    pub fn make_room(&self) -> Result<(), ArenaError> {
        let pool = self.pool().ok_or(ArenaError::TooManyThreads { most: THREADS })?;
        let count = Self::spill(pool, pool.count.get() as usize, &mut self.reserve.lock());
        pool.count.set(count as u32);
        Ok(())
    }

    /// Gives back all but a batch of spare nodes. How many are left.
    fn spill(pool: &Pool, mut count: usize, reserve: &mut Reserve) -> usize {
        while count > BATCH {
            count -= 1;
            reserve.freed.push(pool.spares[count].get());
        }
        count
    }

    /// Whether the calling thread has room for so many nodes that it frees. If not, leave the region and [`Arena::make_room`].
    ///
    /// # Errors
    /// The region has to begin anew.
    #[inline]
    pub fn has_room<'a, X: Tx<'a>>(&'a self, tx: &mut X, nodes: u32) -> Result<bool, X::E> {
        let Some(pool) = self.pool() else { return Ok(false) };
        Ok((tx.load(&pool.count)? + nodes) as usize <= POOL)
    }

    /// Whether the calling thread has `nodes` spare nodes, and room for as many that it frees. If not, nothing may be
    /// taken or freed in this region: leave it, and [`Arena::prepare`].
    ///
    /// # Errors
    /// The region has to begin anew.
    #[inline]
    pub fn has<'a, X: Tx<'a>>(&'a self, tx: &mut X, nodes: u32) -> Result<bool, X::E> {
        let Some(pool) = self.pool() else { return Ok(false) };
        let count = tx.load(&pool.count)?;
        Ok(count >= nodes && (count + nodes) as usize <= POOL)
    }

    /// Takes a spare node, of which there is one ([`Arena::has`]).
    ///
    /// # Errors
    /// The region has to begin anew.
    ///
    /// # Panics
    /// Nobody asked whether there is one, in a thread that has no spare nodes.
    #[inline]
    pub fn take<'a, X: Tx<'a>>(&'a self, tx: &mut X) -> Result<u32, X::E> {
        let pool = self.pool().expect("`has` has said so");
        // Whoever has no control at all may find a count that is wrong, and stays within the pool.
        let count = (tx.load(&pool.count)?.saturating_sub(1)).min(POOL as u32 - 1);
        let number = tx.load(&pool.spares[count as usize])?;
        tx.store(&pool.count, count)?;
        self.rise(tx, number)?;
        Ok(number)
    }

    /// Frees a node, for whose number the thread has room ([`Arena::has`]).
    ///
    /// # Errors
    /// The region has to begin anew.
    ///
    /// # Panics
    /// Nobody asked whether there is room, in a thread that has none.
    #[inline]
    pub fn give<'a, X: Tx<'a>>(&'a self, tx: &mut X, number: u32) -> Result<(), X::E> {
        let pool = self.pool().expect("`has` has said so");
        let count = tx.load(&pool.count)?.min(POOL as u32 - 1);
        tx.store(&pool.spares[count as usize], number)?;
        tx.store(&pool.count, count + 1)?;
        self.rise(tx, number)
    }

    #[inline]
    fn rise<'a, X: Tx<'a>>(&'a self, tx: &mut X, number: u32) -> Result<(), X::E> {
        let sequence = self.node(number).sequence();
        let old = tx.load(sequence)?;
        tx.store(sequence, old + 1)
    }
}
