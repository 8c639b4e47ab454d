//! Changes that everybody sees all at once, without old versions of them: whoever makes them runs alone.
//!
//! 1. The gate is closed, and those who change records are waited for ([`Versions::close_gate`]).
//! 2. A checkpoint is taken and pinned. Its cut `A` becomes known ([`Alone::begin`]): from then on who reads a leaf with a stamp above
//!    `A` reads it in that checkpoint, and no snapshot has a moment above `A`. No later checkpoint takes snapshots over.
//! 3. The changes are made; readers go on.
//! 4. [`Alone::end`]: no snapshot begins, pending ones are waited for, those with moments before the first change go over to the checkpoint, `A` is
//!    forgotten, the gate is opened. So everybody has read the state before, and then everybody reads the state after.
//!
//! **Readers without a snapshot** look at the leaf, and then whether somebody runs alone ([`Versions::turns`]). If so, a leaf with a stamp
//! above `A` is not what they see: they read the checkpoint ([`Versions::before_alone`]).
//!
//! A failure between 2 and 4 leaves it so: dropping an [`Alone`] that has begun keeps the gate closed, and who waits there gets an
//! error. One runs alone at a time; the store sees to that. `Send`.

use crate::types::Lsn;
use crate::versions::memory::{Memory, Surroundings};
use crate::versions::slots::State;
use crate::versions::state::{NOBODY, Pinned, Versions};
use hedgerow_sync::primitive::Arc;
use hedgerow_sync::primitive::atomic::Ordering::*;
use hedgerow_sync::primitive::thread;

/// The right to change records while nobody else does. See the head of the file.
#[must_use]
pub struct Alone<'v, M: Memory, P> {
    versions: &'v Versions<M, P>,
    cut: Option<Lsn>,
    /// The log's end before the first change.
    before: Lsn,
}

impl<M: Memory, P> Versions<M, P> {
    /// Step 1. The caller is inside of no epoch, and holds no lock that who waits at the gate or is inside may want.
    ///
    /// # Panics
    /// If somebody runs alone already.
    pub fn close_gate(&self, around: &impl Surroundings) -> Alone<'_, M, P> {
        self.door.close(around);
        Alone { versions: self, cut: None, before: Lsn(0) }
    }
}

impl<M: Memory, P> Alone<'_, M, P> {
    /// Step 2: a checkpoint with this cut is durable, and `pin` keeps it. No record was changed behind the cut; what changes none may have been appended, and
    /// snapshots have moments behind that.
    pub fn begin(&mut self, around: &impl Surroundings, cut: Lsn, pin: P) {
        self.before = around.tail();
        let pin = Arc::new(pin);
        {
            let mut pins = self.versions.pins.lock();
            let entry = pins.entry(cut);
            entry.or_insert_with(|| Pinned { pin: pin.clone(), users: 0 }).users += 1;
            // With the pins locked: who takes a checkpoint's snapshots over looks with them locked.
            self.versions.alone.store(cut.0, Release);
        }
        // Before the first change: who sees one of them sees this.
        self.versions.turns.fetch_add(1, AcqRel);
        self.cut = Some(cut);
    }

    /// Step 4: all changes are made. Waits for snapshots that are about to begin. Returns what was pinned, if nobody needs it, to be
    /// dropped where nothing is held.
    ///
    /// # Panics
    /// If it has not begun.
    pub fn end(self) -> Option<Arc<P>> {
        let (versions, cut) = (self.versions, self.cut.expect("it has begun"));
        versions.door.begin_to_end();
        for slot in versions.slots.all() {
            while slot.state() == State::Pending {
                thread::yield_now();
            }
        }
        {
            let mut pins = versions.pins.lock();
            let users = versions.pin_slots(cut, self.before);
            pins.get_mut(&cut).expect("it is pinned").users += users;
            versions.alone.store(NOBODY, Release);
        }
        versions.turns.fetch_add(1, AcqRel);
        std::mem::forget(self);
        versions.door.open();
        versions.unpin(cut)
    }

    /// Instead of an [end](Self::end), when nothing was changed. Returns what was pinned, as that does.
    pub fn cancel(self) -> Option<Arc<P>> {
        let (versions, cut) = (self.versions, self.cut);
        if cut.is_some() {
            versions.alone.store(NOBODY, Release);
            versions.turns.fetch_add(1, AcqRel);
        }
        std::mem::forget(self);
        versions.door.open();
        versions.unpin(cut?)
    }
}

impl<M: Memory, P> Versions<M, P> {
    /// How often somebody has begun or ended to change records alone: odd while somebody does. To be asked after a look at leaves. Who has
    /// asked before as well, and got the same even number, has seen nothing of what is not to be seen yet.
    #[inline]
    pub fn turns(&self) -> u64 {
        self.turns.load(Acquire)
    }

    /// The checkpoint that has what readers see of a leaf with this stamp, if somebody who runs alone may have changed it. To be asked after
    /// the look at the leaf.
    pub fn before_alone(&self, stamp: Lsn) -> Option<Arc<P>> {
        loop {
            let cut = self.alone.load(Acquire);
            if stamp.0 <= cut {
                return None;
            }
            // If there is none, who ran alone has ended just now.
            if let Some(pinned) = self.pins.lock().get(&Lsn(cut)) {
                return Some(pinned.pin.clone());
            }
        }
    }
}

impl<M: Memory, P> Drop for Alone<'_, M, P> {
    fn drop(&mut self) {
        match self.cut {
            Some(_) => self.versions.door.fail(),
            None => self.versions.door.open(),
        }
    }
}
