//! The loop at the top of every operation: what happens between two tries.
//!
//! A [`Retry`] is made when the first try has failed, so that the usual operation pays nothing for
//! it. It owns the pool session (what was faulted stays until the operation ends) and bounds the
//! waiting: three optimistic conflicts, then a wait at the leaf, after three more conflicts latches from the root on, and after
//! [`WAIT_MAX`] a typed error, or when the call's [`Waiting`] ends. That is looked at when a try that waits has failed: conflicts
//! before that are no waits.
//!
//! Invariant: [`Retry::after`] may wait for I/O, so nothing is latched and no epoch entered when it
//! is called. Used by one thread.

use crate::error::{Error, ErrorKind, Result, Signal};
use crate::page::{Access, Pages, PoolSession, Restart};
use crate::types::PageId;
use crate::wait::Waiting;
use hedgerow_sync::primitive::hint::spin_loop;
use hedgerow_sync::primitive::time::Moment;
use std::time::Duration;

/// Optimistic conflicts after which an operation waits for the latch of its leaf.
pub(super) const OPTIMISTIC_TRIES: u32 = 3;

/// Conflicts after which it couples latches from the root on. They make the root as hot as the leaf, so they come last.
const COUPLED_TRIES: u32 = 2 * OPTIMISTIC_TRIES;

/// All that an operation waits for latches and restarts because of others, together. Far above what
/// any honest holder takes; whoever runs into it gets an error instead of waiting for ever.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(30);

/// How often in a row a validated child may turn out to be free before that is called damage: it was
/// freed after its parent was read, and a restart reads the parent anew.
const FREED_MAX: u32 = 64;

/// How often room may be made for a record before the time that it takes is looked at.
const ROOMS_FREE: u32 = 32;

/// Why a try ended without a result.
pub(super) enum Stop {
    /// Start over.
    Restart(Restart),
    /// Give up.
    Error(Error),
}

impl From<Restart> for Stop {
    #[inline]
    fn from(restart: Restart) -> Stop {
        Stop::Restart(restart)
    }
}

impl From<Error> for Stop {
    #[cold]
    fn from(error: Error) -> Stop {
        match error.signal() {
            Some(Signal::Gated) => Stop::Restart(Restart::Gated),
            // It was freed behind the look at its parent. If the parent goes on to name it, who asks for it from there says so.
            Some(Signal::PageFreed) => Stop::Restart(Restart::Conflict),
            _ => Stop::Error(error),
        }
    }
}

/// The bound on one operation's waiting, and where it waits.
pub(super) struct Patience<'p> {
    since: Moment,
    waiting: &'p Waiting<'p>,
    /// At each node from the root on, and not at the leaf alone.
    pub(super) couples: bool,
}

impl<'p> Patience<'p> {
    pub(super) fn new(waiting: &'p Waiting<'p>) -> Patience<'p> {
        Patience { since: Moment::now(), waiting, couples: true }
    }

    /// Whether it may go on to wait for a latch.
    pub(super) fn is_left(&self) -> bool {
        !self.is_over() && self.waiting.check().is_ok()
    }

    /// Whether the operation has waited for longer than any may.
    fn is_over(&self) -> bool {
        self.since.elapsed() >= WAIT_MAX
    }
}

/// The state of an operation that has to start over; see the head of this file.
pub(super) struct Retry<'p, P: Pages> {
    pool: &'p P,
    pub(super) session: P::Session<'p>,
    access: Access,
    root: PageId,
    conflicts: u32,
    waiting: &'p Waiting<'p>,
    patience: Option<Patience<'p>>,
    freed: u32,
    rooms: u32,
}

impl<'p, P: Pages> Retry<'p, P> {
    #[cold]
    pub(super) fn new(pool: &'p P, root: PageId, access: Access, waiting: &'p Waiting<'p>) -> Self {
        Retry {
            pool,
            session: pool.session_within(waiting),
            waiting,
            access,
            root,
            conflicts: 0,
            patience: None,
            freed: 0,
            rooms: 0,
        }
    }

    /// The next page that is missing is wanted by an operation of the tree with this root.
    pub(super) fn turn_to(&mut self, root: PageId) {
        self.root = root;
    }

    /// Whether the next try should wait for latches.
    pub(super) fn is_latched(&self) -> bool {
        self.conflicts >= OPTIMISTIC_TRIES
    }

    /// How the operation waits.
    pub(super) fn waiting(&self) -> &'p Waiting<'p> {
        self.waiting
    }

    /// Whether a wait for a latch may go on, and where to wait.
    pub(super) fn patience(&mut self) -> &Patience<'p> {
        let patience = self.patience.get_or_insert_with(|| Patience::new(self.waiting));
        patience.couples = self.conflicts >= COUPLED_TRIES;
        patience
    }

    /// Makes ready for the next try, or says why there is none.
    #[cold]
    pub(super) fn after(&mut self, stop: impl Into<Stop>) -> Result<()> {
        match stop.into() {
            Stop::Error(error) => Err(error),
            Stop::Restart(Restart::Conflict) => self.after_conflict(),
            Stop::Restart(Restart::Absent(id)) => self.fault(id),
            Stop::Restart(Restart::Owed) => {
                self.pool.wait_to_change(self.waiting)?;
                // Waiting for a checkpoint is no sign of a latch that is never let go of.
                self.patience = None;
                Ok(())
            }
            Stop::Restart(Restart::Gated) => {
                // Who runs alone may need the place, and readers may.
                self.session.let_go();
                self.patience = None;
                self.pool.wait_at_gate(self.waiting)
            }
            Stop::Restart(Restart::Foreign(_)) => Err(dropped()),
            Stop::Restart(Restart::Corrupt(id)) => {
                Err(Error::corrupted_page(id, "the page does not fit into its tree"))
            }
        }
    }

    fn after_conflict(&mut self) -> Result<()> {
        if self.is_latched() {
            self.waiting.check()?;
        }
        self.conflicts = self.conflicts.saturating_add(1);
        if self.patience().is_over() {
            let what = "other threads held a page for too long; try again";
            return Err(Error::new(ErrorKind::Timeout, what));
        }
        for _ in 0..8 << self.conflicts.min(OPTIMISTIC_TRIES) {
            spin_loop();
        }
        Ok(())
    }

    /// Whether room was made for the record already, and was not enough, or somebody else took it.
    #[cfg(hedgerow_internals)]
    pub(super) fn has_made_room(&self) -> bool {
        self.rooms > 0
    }

    /// Notes that room was made for a record. Others may take it before it is used, again and again, but
    /// not for ever.
    pub(super) fn after_room(&mut self) -> Result<()> {
        self.rooms = self.rooms.saturating_add(1);
        if self.rooms <= ROOMS_FREE {
            return Ok(());
        }
        self.waiting.check()?;
        if self.patience().is_over() {
            let what = "other threads kept taking the room that was made in a page; try again";
            return Err(Error::new(ErrorKind::Timeout, what));
        }
        Ok(())
    }

    fn fault(&mut self, id: PageId) -> Result<()> {
        match self.session.fault(id, self.access) {
            Ok(()) => {
                self.freed = 0;
                // Waiting for the disk, or for a place in the pool, is no sign of a latch that is never let go of.
                self.patience = None;
                Ok(())
            }
            Err(error) if error.signal() == Some(Signal::PageFreed) => {
                if id == self.root {
                    return Err(dropped());
                }
                self.freed += 1;
                if self.freed > FREED_MAX {
                    return Err(Error::corrupted_page(id, "a node refers to a page that is free"));
                }
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

/// The error of who uses a handle of a keyspace that was dropped.
#[cold]
pub fn dropped() -> Error {
    let what =
        "the keyspace of this handle was dropped; get a new handle with `Database::keyspace`";
    Error::new(ErrorKind::KeyspaceDropped, what)
}
