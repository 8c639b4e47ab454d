//! How a writer comes in: with room for the versions that its changes end, if any are kept.
//!
//! 1. Outside, holding nothing: [`Versions::admit`] waits at the gate and reserves room, if the switch is not off.
//! 2. Inside of its epoch: [`Admission::is_good`] looks again. If it is not good, the writer leaves and begins anew.
//! 3. After each append, with the leaf latched: [`Admission::keep`]. Nothing is waited for there but a mutex that is held for the look
//!    at one bucket, and nothing is allocated.
//! 4. Dropping the [`Admission`] gives back what was not used.
//!
//! A writer is never refused. If all room is in use, versions that nobody needs are dropped, and if that does not help, the oldest
//! snapshot is given up, those that are not pinned first. What is left then are other writers' reservations, which end by themselves.

use crate::error::Result;
use crate::types::Lsn;
use crate::versions::memory::{Memory, Surroundings};
use crate::versions::state::Versions;
use crate::versions::table::{Change, cells_of_change};
use crate::wait::Waiting;
use hedgerow_sync::primitive::atomic::{Ordering::*, fence};
use hedgerow_sync::primitive::canary::leaves_out;
use hedgerow_sync::primitive::thread;
use std::time::Duration;

/// How long who finds nothing but reservations sleeps before it looks again, unless it is woken.
const RESERVED_NAP: Duration = Duration::from_millis(1);

/// Room for the versions of one stay. See the head of the file.
#[must_use]
pub struct Admission<'v, M: Memory, P> {
    versions: &'v Versions<M, P>,
    /// `None`: the switch was off.
    cells: Option<u32>,
    links: bool,
}

impl<M: Memory, P> Versions<M, P> {
    /// Lets a writer in that will change one record, of a key and an old value of at most so many bytes. The caller holds nothing, and is
    /// inside of no epoch.
    ///
    /// # Errors
    /// Those of `waiting`; `Poisoned` behind the gate of who has failed; of the memory.
    #[inline]
    pub fn admit(
        &self,
        around: &impl Surroundings,
        key_len: usize,
        value_len: usize,
        waiting: &Waiting<'_>,
    ) -> Result<Admission<'_, M, P>> {
        let look = self.door.look();
        if look.is_plain() {
            return Ok(Admission { versions: self, cells: None, links: false });
        }
        self.admit_with_room(around, cells_of_change(key_len, value_len), waiting)
    }

    /// As [`Self::admit`], for as many changes as the sizes given, which are not [too large](Self::is_too_large).
    ///
    /// # Errors
    /// As [`Self::admit`].
    ///
    /// # Panics
    /// If they need more than all memory.
    pub fn admit_many(
        &self,
        around: &impl Surroundings,
        sizes: impl Iterator<Item = (usize, usize)>,
        waiting: &Waiting<'_>,
    ) -> Result<Admission<'_, M, P>> {
        if self.door.look().is_plain() {
            return Ok(Admission { versions: self, cells: None, links: false });
        }
        let cells = sizes.map(|(key, value)| cells_of_change(key, value)).sum();
        self.admit_with_room(around, cells, waiting)
    }

    /// Whether changes of these sizes may need more than half of all memory for versions: those are made alone.
    pub fn is_too_large(&self, sizes: impl Iterator<Item = (usize, usize)>) -> bool {
        let cells = sizes.map(|(key, value)| u64::from(cells_of_change(key, value))).sum::<u64>();
        cells > u64::from(self.most_cells() / 2)
    }

    #[cold]
    fn admit_with_room(
        &self,
        around: &impl Surroundings,
        cells: u32,
        waiting: &Waiting<'_>,
    ) -> Result<Admission<'_, M, P>> {
        loop {
            let look = self.door.look();
            if look.is_closed() {
                self.door.wait_until_open(waiting)?;
                continue;
            }
            let cells = match look.keeps_versions() {
                true => {
                    self.reserve(around, cells, waiting)?;
                    Some(cells)
                }
                false => None,
            };
            return Ok(Admission { versions: self, cells, links: false });
        }
    }

    /// Whether so many cells were promised just now.
    fn try_reserve(&self, cells: u32) -> bool {
        let mut table = self.table.lock();
        let has_room = table.spare() >= cells;
        if has_room {
            table.reserved += cells;
        }
        has_room
    }

    fn reserve(&self, around: &impl Surroundings, cells: u32, waiting: &Waiting<'_>) -> Result<()> {
        let most = self.most_cells();
        assert!(cells <= most, "{cells} cells of {most}: larger changes are made another way");
        while !self.try_reserve(cells) {
            if self.is_collection_due() && self.collect(around)? && self.try_reserve(cells) {
                return Ok(());
            }
            if self.lend()? {
                continue;
            }
            if !self.collect(around)? {
                // Whoever begins a snapshot just now waits for writers, of which this is none.
                waiting.check()?;
                thread::yield_now();
                continue;
            }
            if self.try_reserve(cells) {
                return Ok(());
            }
            if self.give_up_oldest(around)? {
                continue;
            }
            waiting.check()?;
            thread::sleep(RESERVED_NAP);
        }
        Ok(())
    }
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

    /// Keeps the version that a change has ended, if that is needed: after the change's record was appended, and before its leaf is
    /// unlatched.
    ///
    /// # Panics
    /// If the change is larger than what was asked for.
    #[inline]
    pub fn keep(&mut self, change: &Change<'_>) {
        if self.links {
            self.link(change);
        }
    }

    #[cold]
    fn link(&mut self, change: &Change<'_>) {
        // Behind the append: who begins a snapshot below the change has raised the horizon before it has read the log's end.
        if !leaves_out("keep_without_barrier") {
            fence(SeqCst);
        }
        let horizon = Lsn(self.versions.horizon.load(Acquire));
        let cells = self.cells.as_mut().expect("who keeps versions has room");
        let mut table = self.versions.table.lock();
        let used = table.link(change, horizon);
        *cells = cells.checked_sub(used).expect("a change is no larger than was said");
        table.reserved -= used;
    }
}

impl<M: Memory, P> Drop for Admission<'_, M, P> {
    #[inline]
    fn drop(&mut self) {
        if let Some(cells) = self.cells.filter(|cells| *cells > 0) {
            self.versions.table.lock().reserved -= cells;
        }
    }
}
