//! How a writer comes in: with room for the versions that its changes end, if any are kept.
//!
//! 1. Outside: [`Versions::admit`] reserves room, if the switch is not off. If the gate is closed, or there is no room, it says so, and the writer
//!    waits for that ([`Versions::wait_at_gate`]) when it holds nothing at all: a place in the pool that it has may be what keeps a frame from being lent.
//! 2. Inside of its epoch: [`Admission::is_good`] looks again. If it is not good, the writer leaves and begins anew.
//! 3. After each append, with the leaf latched: [`Admission::keep`]. If no snapshot is open by then, nothing is kept: the switch stays on for
//!    a while after the last one. Nothing is waited for there but a mutex that is held for the look at one bucket, and nothing is allocated.
//! 4. Dropping the [`Admission`] gives back what was not used.
//!
//! A writer is never refused. If a quarter of all room is in use, a checkpoint is asked for, which takes snapshots over. If three quarters are,
//! versions that nobody needs are dropped, and then a checkpoint is waited for that may take a snapshot over, for a moment: what a snapshot
//! needs when it goes over stays, so there has to be room left. If all of it is in use, the oldest snapshot is given up, those that are
//! not pinned first. What is left then are frames that are not lent while operations have places in the pool. What other writers are promised and
//! have not used is no reason for either: it comes back by itself, and giving a snapshot up would free none of it.

use crate::error::Result;
use crate::versions::begin::Change;
use crate::versions::memory::{Memory, Surroundings};
use crate::versions::state::{GROWTH_PART, Versions};
use crate::wait::Waiting;
use hedgerow_sync::primitive::atomic::{Ordering::*, fence};
use hedgerow_sync::primitive::thread;
use std::cell::Cell;
use std::time::Duration;

/// Of so many one looks whether anything can be collected, or the switch be turned off.
const TENDED_EACH: u64 = 64;
/// How many checkpoints who finds little room waits for. The one under way when he comes may be too old.
const CHECKPOINT_WAITS: usize = 2;
/// How long who finds nothing but reservations sleeps before it looks again.
const RESERVED_NAP: Duration = Duration::from_millis(1);

/// Room for the versions of one stay. See the head of the file.
#[must_use]
pub struct Admission<'v, M: Memory, P> {
    versions: &'v Versions<M, P>,
    /// `None`: the switch was off.
    cells: Option<Cell<u32>>,
    links: bool,
}

impl<M: Memory, P> Versions<M, P> {
    /// Lets a writer in whose changes need `cells` at most, as `cells_of_change` counts them: no more than
    /// [half](Self::most_cells_at_once) of all memory, or what any single change needs. The caller is inside of no epoch. `None`: the gate
    /// is closed, or there is no room.
    ///
    /// # Errors
    /// Those of `waiting`; of the memory.
    ///
    /// # Panics
    /// If they need more than all memory.
    #[inline]
    pub fn admit(
        &self,
        around: &impl Surroundings,
        cells: impl FnOnce() -> u32,
        waiting: &Waiting<'_>,
    ) -> Result<Option<Admission<'_, M, P>>> {
        let look = self.door.look();
        if look.is_plain() {
            return Ok(Some(Admission { versions: self, cells: None, links: false }));
        }
        self.admit_with_room(around, cells(), waiting)
    }

    /// Waits until the gate is open; if it is, for room. The caller holds nothing that who runs alone, or a frame that is to be lent, may need: he would
    /// wait for it for ever.
    ///
    /// # Errors
    /// Those of `waiting`; `Poisoned` behind the gate of who has failed; of the memory.
    #[cold]
    pub fn wait_at_gate(&self, waiting: &Waiting<'_>) -> Result<()> {
        if self.door.look().is_closed() {
            return self.door.wait_until_open(waiting);
        }
        waiting.check()?;
        if !self.lend()? {
            thread::sleep(RESERVED_NAP);
        }
        Ok(())
    }

    /// Whether a writer who came now would keep versions, or wait at the gate.
    #[inline]
    pub fn are_kept(&self) -> bool {
        !self.door.look().is_plain()
    }

    /// What changes that are made together may need: half of all memory.
    pub fn most_cells_at_once(&self) -> u32 {
        (self.most_cells() / 2).max(self.least_cells())
    }

    /// To be called by whoever comes or goes while versions are kept, with nothing held: one of many [tends](Self::tend) them.
    pub fn tend_now_and_then(&self, around: &impl Surroundings) {
        if self.visits.fetch_add(1, Relaxed) % TENDED_EACH == TENDED_EACH - 1 {
            // If there is no memory for that, somebody comes by again.
            self.tend(around).ok();
        }
    }

    #[cold]
    fn admit_with_room(
        &self,
        around: &impl Surroundings,
        cells: u32,
        waiting: &Waiting<'_>,
    ) -> Result<Option<Admission<'_, M, P>>> {
        self.tend_now_and_then(around);
        let look = self.door.look();
        if look.is_closed() {
            return Ok(None);
        }
        let cells = match look.keeps_versions() {
            true => {
                let Some(is_due) = self.reserve(around, cells, waiting)? else { return Ok(None) };
                if is_due && self.wants_checkpoint() {
                    around.request_checkpoint();
                }
                Some(Cell::new(cells))
            }
            false => None,
        };
        Ok(Some(Admission { versions: self, cells, links: false }))
    }

    /// Promises so many cells, if there are any. `patient`: not if little is left then.
    fn try_reserve(&self, cells: u32, patient: bool) -> Reserved {
        let (most, used) = (self.most_cells(), self.room.used());
        let has_grown = used >= self.room.kept() + most / GROWTH_PART;
        let crowded = most / 4 * 3;
        if patient && used >= crowded && self.room.has(cells) && self.in_use() >= crowded {
            return Reserved::Crowded { has_grown };
        }
        match self.room.promise(cells, 0) {
            true => Reserved::Done { is_due: used >= most / 4 && has_grown },
            false => Reserved::Full,
        }
    }

    /// Whether nothing is in the way of so many cells but what others are promised. A few more have to be free: he who needs many might never find a
    /// moment at which nobody else is promised any.
    fn are_promised(&self, cells: u32) -> bool {
        // Indexed: what recent versions are promised for their places does not come back by itself.
        self.indexed().cells.free() >= cells.saturating_add(self.most_cells() / GROWTH_PART)
    }

    /// Promises so many cells; whether so much is in use that a checkpoint may help. `None`: there are too few, and nothing helps but to
    /// wait with nothing held.
    fn reserve(
        &self,
        around: &impl Surroundings,
        cells: u32,
        waiting: &Waiting<'_>,
    ) -> Result<Option<bool>> {
        let most = self.most_cells();
        assert!(cells <= most, "{cells} cells of {most}: larger changes are made another way");
        let mut waits_left = CHECKPOINT_WAITS;
        // Why a wait for more than is needed has ended: who has none to wait for gives up no snapshot for that.
        let mut ended = None;
        // Once: what others are promised counts as growth, and no collection takes it.
        let mut may_collect = true;
        loop {
            match self.try_reserve(cells, waits_left > 0) {
                Reserved::Done { is_due } => return Ok(Some(is_due)),
                Reserved::Crowded { has_grown: true }
                    if std::mem::take(&mut may_collect) && self.collect(around)? =>
                {
                    continue;
                }
                Reserved::Crowded { .. } => {
                    // There is room: who may not wait for more has it.
                    let waited = match self.wants_checkpoint() {
                        true => around.wait_for_checkpoint(waiting),
                        false => Ok(false),
                    };
                    waits_left = if matches!(waited, Ok(true)) { waits_left - 1 } else { 0 };
                    ended = waited.err();
                    continue;
                }
                Reserved::Full => {}
            }
            if self.is_collection_due()
                && self.collect(around)?
                && let Reserved::Done { is_due } = self.try_reserve(cells, false)
            {
                return Ok(Some(is_due));
            }
            if self.lend()? {
                continue;
            }
            if self.are_promised(cells) {
                return Ok(match self.try_reserve(cells, false) {
                    Reserved::Done { is_due } => Some(is_due),
                    _ => None,
                });
            }
            if !self.collect(around)? {
                // Whoever begins a snapshot just now waits for writers, of which this is none.
                waiting.check()?;
                thread::yield_now();
                continue;
            }
            if let Reserved::Done { is_due } = self.try_reserve(cells, false) {
                return Ok(Some(is_due));
            }
            if self.are_promised(cells) {
                return Ok(None);
            }
            if waits_left > 0 && self.wants_checkpoint() {
                waits_left -= 1;
                if around.wait_for_checkpoint(waiting)? {
                    continue;
                }
            }
            if let Some(error) = ended {
                return Err(error);
            }
            if self.give_up_oldest() {
                // The versions that only it needed.
                self.collect(around)?;
                continue;
            }
            return Ok(None);
        }
    }
}

/// How asking for cells has ended.
enum Reserved {
    /// They are promised; `is_due`: a checkpoint may help those who come later.
    Done { is_due: bool },
    /// There are some, but it is time to see that there are more.
    Crowded { has_grown: bool },
    /// There are too few.
    Full,
}

impl<M: Memory, P> Admission<'_, M, P> {
    /// To be asked inside of the epoch, before anything is changed: whether the writer may go on. If not, it leaves, drops this, and begins
    /// anew. What it says holds for the stay.
    #[inline]
    pub fn is_good(&mut self) -> bool {
        let look = self.versions.door.look();
        self.links = look.keeps_versions();
        !look.is_closed() && (!self.links || self.cells.is_some())
    }

    /// Whether the writer keeps versions: [`Self::keep`] does something.
    #[inline]
    pub fn keeps(&self) -> bool {
        self.links
    }

    /// Cells that are left of those that were asked for, as `cells_of_change` counts them; 0 if no versions are kept.
    pub fn cells_left(&self) -> u32 {
        self.cells.as_ref().map_or(0, Cell::get)
    }

    /// Keeps the version that a change has ended, if that is needed: after the change's record was appended, and before its leaf is
    /// unlatched.
    ///
    /// # Panics
    /// If the change is larger than what was asked for.
    #[inline]
    pub fn keep(&self, change: &Change<'_>) {
        if self.links {
            self.link(change);
        }
    }

    #[cold]
    fn link(&self, change: &Change<'_>) {
        // Behind the append: who begins a snapshot below the change has raised the horizon before it has read the log's end.
        fence(SeqCst);
        // Who begins a snapshot that is not counted yet reads the log's end later, and sees the change.
        if self.versions.slots.taken() <= change.own_snapshots {
            return;
        }
        let cells = self.cells.as_ref().expect("who keeps versions has room");
        let mut table = self.versions.table.lock();
        let used = table.keep(change);
        self.versions.room.set_recent(table.recent.cells());
        drop(table);
        let left = cells.get().checked_sub(used).expect("a change is no larger than was said");
        cells.set(left);
    }
}

impl<M: Memory, P> Drop for Admission<'_, M, P> {
    #[inline]
    fn drop(&mut self) {
        if let Some(cells) = self.cells.as_ref().map(Cell::get).filter(|cells| *cells > 0) {
            self.versions.room.give(cells);
        }
    }
}
