//! What keeps changes of long keys apart: a lock of each head, and the count of moves.
//!
//! Who changes records of long keys holds the locks of all heads concerned, taken at once, so that nobody waits in a circle. The count
//! is odd while records move to other labels. Who only reads looks at the count before and after, and waits for nobody else; who removes by place, or counts,
//! keeps records from moving ([`LongKeys::keep_still`]).
//!
//! Order: heads, then moves. `keep_still` is held by those who hold no head. One mutex guards it all: it is held for looking at a set,
//! and only calls about long keys, and range removals, come here. `Send + Sync`.

use crate::checksum::block_checksum;
use crate::error::Result;
use crate::types::TreeId;
use crate::wait::Waiting;
use hedgerow_sync::primitive::atomic::AtomicU64;
use hedgerow_sync::primitive::atomic::Ordering::SeqCst;
use hedgerow_sync::primitive::{Condvar, Mutex};
use std::collections::BTreeSet;

/// See the head of the file; one for each database.
#[derive(Default)]
pub(in crate::database) struct LongKeys {
    state: Mutex<State>,
    freed: Condvar,
    /// Begins and ends of moves.
    moves: AtomicU64,
    /// Those who keep records from moving, by [`ONE_STILL`], and [`MOVING`] while somebody moves them, or waits for that.
    still: AtomicU64,
}

const MOVING: u64 = 1;
const ONE_STILL: u64 = 2;

#[derive(Default)]
struct State {
    heads: BTreeSet<Name>,
    /// Somebody moves records, or waits for that.
    is_moving: bool,
}

/// What names a head: the tree and a hash. Two with one hash exclude each other without need.
pub(super) type Name = (TreeId, u64);
/// Names all heads of a tree.
const ALL: u64 = u64::MAX;

/// The name of a head.
pub(super) fn name_of(tree: TreeId, head: &[u8]) -> Name {
    (tree, block_checksum(u64::from(tree.0), head))
}

impl LongKeys {
    /// Locks heads, each named once.
    ///
    /// Errors: the end of `waiting`.
    pub(super) fn lock(&self, names: BTreeSet<Name>, waiting: &Waiting<'_>) -> Result<Locked<'_>> {
        let mut state = self.state.lock();
        let is_locked = |state: &State, name: &Name| {
            state.heads.contains(name) || state.heads.contains(&(name.0, ALL))
        };
        while names.iter().any(|name| is_locked(&state, name)) {
            waiting.wait_on(&self.freed, &mut state)?;
        }
        state.heads.extend(&names);
        Ok(Locked { of: self, names })
    }

    /// Locks all heads of a tree. It waits for those who hold one, who wait for nobody who comes now: those wait for this.
    pub(super) fn lock_all(&self, tree: TreeId) -> Result<Locked<'_>> {
        let all = (tree, ALL);
        let locked = self.lock(BTreeSet::from([all]), &Waiting::Forever)?;
        let mut state = self.state.lock();
        while state.heads.range((tree, 0)..all).next().is_some() {
            self.freed.wait(&mut state);
        }
        drop(state);
        Ok(locked)
    }

    /// Begins and ends of moves up to now: odd while records move.
    #[inline]
    pub(in crate::database) fn moves(&self) -> u64 {
        // SeqCst: what is read after it is not older, and what was read before the second look is not newer.
        self.moves.load(SeqCst)
    }

    /// Whether no record has moved since the count was `moves`.
    #[inline]
    pub(in crate::database) fn is_still_since(&self, moves: u64) -> bool {
        moves.is_multiple_of(2) && self.moves() == moves
    }

    /// Waits until nobody moves records, and tells the count. Who still waits to move some does not count: that may take long.
    pub(super) fn settled(&self, waiting: &Waiting<'_>) -> Result<u64> {
        let mut state = self.state.lock();
        loop {
            let moves = self.moves();
            if moves.is_multiple_of(2) {
                return Ok(moves);
            }
            // It becomes even under the mutex.
            waiting.wait_on(&self.freed, &mut state)?;
        }
    }

    /// Keeps records from moving until the value is dropped.
    ///
    /// Errors: the end of `waiting`.
    #[inline]
    pub(in crate::database) fn keep_still(&self, waiting: &Waiting<'_>) -> Result<Still<'_>> {
        // SeqCst, here and below: either who moves sees this, or this sees that somebody moves.
        if self.still.fetch_add(ONE_STILL, SeqCst) & MOVING == 0 {
            return Ok(Still(self));
        }
        self.let_move();
        self.keep_still_when_settled(waiting)
    }

    #[cold]
    fn keep_still_when_settled(&self, waiting: &Waiting<'_>) -> Result<Still<'_>> {
        let mut state = self.state.lock();
        while state.is_moving {
            waiting.wait_on(&self.freed, &mut state)?;
        }
        // Nobody begins to move: that takes the mutex.
        self.still.fetch_add(ONE_STILL, SeqCst);
        Ok(Still(self))
    }

    /// One fewer keeps records from moving.
    #[inline]
    fn let_move(&self) {
        if self.still.fetch_sub(ONE_STILL, SeqCst) & MOVING != 0 {
            // Who waits has looked under the mutex, and sleeps, or will look again.
            drop(self.state.lock());
            self.freed.notify_all();
        }
    }

    /// The right to move records; the caller has the lock of their head.
    ///
    /// Errors: the end of `waiting`.
    pub(super) fn begin_moves(&self, waiting: &Waiting<'_>) -> Result<Moving<'_>> {
        let mut state = self.state.lock();
        while state.is_moving {
            waiting.wait_on(&self.freed, &mut state)?;
        }
        state.is_moving = true;
        self.still.fetch_or(MOVING, SeqCst);
        // From here on it ends when it is dropped.
        let moving = Moving { of: self, is_counted: false };
        while self.still.load(SeqCst) != MOVING {
            if let Err(error) = waiting.wait_on(&self.freed, &mut state) {
                drop(state);
                return Err(error);
            }
        }
        drop(state);
        Ok(moving.count())
    }
}

/// Locks of heads; see [`LongKeys::lock`].
#[must_use]
pub(in crate::database) struct Locked<'l> {
    of: &'l LongKeys,
    names: BTreeSet<Name>,
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let mut state = self.of.state.lock();
        for name in &self.names {
            state.heads.remove(name);
        }
        self.of.freed.notify_all();
    }
}

/// See [`LongKeys::keep_still`].
#[must_use]
pub(in crate::database) struct Still<'l>(&'l LongKeys);

impl Drop for Still<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.let_move();
    }
}

/// See [`LongKeys::begin_moves`].
#[must_use]
pub(super) struct Moving<'l> {
    of: &'l LongKeys,
    is_counted: bool,
}

impl Moving<'_> {
    fn count(mut self) -> Self {
        self.of.moves.fetch_add(1, SeqCst);
        self.is_counted = true;
        self
    }
}

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        let mut state = self.of.state.lock();
        state.is_moving = false;
        self.of.still.fetch_and(!MOVING, SeqCst);
        if self.is_counted {
            self.of.moves.fetch_add(1, SeqCst);
        }
        self.of.freed.notify_all();
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::wait::Wait;
    use hedgerow_sync::primitive::thread::{sleep, spawn_named};
    use std::time::Duration;

    /// A removal of a range keeps records still for as long as it takes. Who wants to move some waits for it, and whoever looked for a place waited for him.
    #[test]
    fn a_scan_from_a_long_key_does_not_wait_for_who_waits_to_move_records() {
        let db = crate::Options::new().in_memory().unwrap();
        let keyspace = db.keyspace("urls").unwrap();
        let key = vec![b'k'; 5_000];
        keyspace.put(&key, b"there").unwrap();
        let long = &keyspace.inner().long;
        let still = long.keep_still(&Waiting::Forever).unwrap();
        let moves = {
            let keyspace = keyspace.clone();
            let moves =
                move || keyspace.inner().long.begin_moves(&Waiting::Forever).map(drop).unwrap();
            spawn_named("moves", moves).unwrap()
        };
        while long.still.load(SeqCst) & MOVING == 0 {
            sleep(Duration::from_millis(1));
        }
        let bounded = keyspace.clone().with_wait(Wait::For(Duration::from_millis(100)));
        let (first, value) = bounded.range(&key[..]..).next().unwrap().unwrap();
        assert_eq!((&*first, &*value), (&key[..], &b"there"[..]));
        assert_eq!(long.moves(), 0, "nobody has moved anything");
        drop(still);
        moves.join().unwrap();
        assert_eq!(long.moves(), 2);
    }
}
