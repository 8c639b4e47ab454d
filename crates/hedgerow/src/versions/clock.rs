//! What orders changes that no log orders: a clock that goes on whenever somebody asks for a moment.
//!
//! All changes between two moments have one LSN, so writers load a word that nobody else stores to, and share no line that moves from core to
//! core with each change. What a moment promises: a change with an LSN up to it is in its leaf, or the leaf is latched, for whoever looks
//! behind the moment; a change with a later LSN is made by somebody who has loaded the clock behind it.
//!
//! The first needs a full barrier on both sides: between the latch and the load of the clock, and between the step of the clock and the look
//! at a leaf. Writers leave theirs out while nobody can have a moment beside them: whoever begins the first snapshot waits for all who
//! are inside of an epoch before it has one, and a checkpoint has its moment when nobody is inside. `Send + Sync`.

use crate::types::Lsn;
use hedgerow_sync::primitive::atomic::{AtomicU64, Ordering::*, fence};

/// See the head of the file. On a line of its own.
#[repr(align(128))]
#[derive(Debug)]
pub struct Clock(AtomicU64);

impl Clock {
    /// One whose first change has an LSN behind `last`.
    pub fn new(last: Lsn) -> Clock {
        Clock(AtomicU64::new(last.0 + 1))
    }

    /// The LSN of a change, with its leaf latched, inside of an epoch. `beside_snapshots`: versions are kept, so a snapshot may begin meanwhile.
    #[inline]
    pub fn now(&self, beside_snapshots: bool) -> Lsn {
        if beside_snapshots {
            fence(SeqCst);
        }
        // Acquire: what was done before the moment that this is behind.
        Lsn(self.0.load(Acquire))
    }

    /// The LSN of a change that has one of its own: of names, which no leaf has, and of loads, with the root latched. Later changes may have
    /// it, too.
    pub fn own(&self) -> Lsn {
        Lsn(self.0.fetch_add(1, AcqRel) + 1)
    }

    /// Ends the present moment: changes up to this LSN were made before, others come later.
    pub fn moment(&self) -> Lsn {
        let moment = self.0.fetch_add(1, AcqRel);
        fence(SeqCst);
        Lsn(moment)
    }

    /// No LSN that anybody has been given is above this.
    pub fn last(&self) -> Lsn {
        Lsn(self.0.load(Acquire))
    }
}
