//! Pages: what whoever reads the tree needs of a page pool, and whoever changes it as well.
//!
//! A function that asks for [`Pages`] alone changes no record and writes no log: it descends, copies, and at most gives a leaf another
//! layout. What changes records asks for a [`PagePool`](crate::page::PagePool).
//!
//! *Nothing is waited for while a page is latched.* [`Pages::wait_to_change`] and [`Pages::wait_at_gate`] wait, so the caller holds no
//! latch, and no epoch. `Send + Sync`: every method may be called by any number of threads.

use crate::error::Result;
use crate::page::contention::{Contention, ContentionCounters};
use crate::page::frames::{FrameId, Frames};
use crate::page::frozen::FrozenPages;
use crate::page::guard::ExclusivePage;
use crate::page::merging::Merging;
use crate::page::session::PoolSession;
use crate::page::tally::{Adaptation, ScanTally};
use crate::types::{Epoch, Lsn, PageId};
use crate::wait::Waiting;

/// Brings pages into memory, gives out and takes back their ids, and keeps count of their use.
pub trait Pages: Frames {
    /// One operation's account with the pool; see [`PoolSession`].
    type Session<'p>: PoolSession<'p, Self>
    where
        Self: 'p;

    /// The frame that page `id` is most likely in, if it is in memory: a guess that is worth a prefetch,
    /// and no more. Costs no memory access where translation is predicted.
    fn expect_frame(&self, id: PageId) -> Option<FrameId> {
        self.translate(id)
    }

    /// Asks the memory for what a later [`Frames::translate`] and [`Frames::head`] of the page will read.
    fn prefetch(&self, _id: PageId) {}

    /// Asks for pages that a scan will come to soon to be read by somebody else meanwhile; never waits.
    /// `false`: nobody does. Which of them come to be in memory, only a look tells.
    fn read_ahead(&self, _ids: &[PageId]) -> bool {
        false
    }

    /// Begins an operation. Costs nothing until the operation faults or reserves.
    fn session(&self) -> Self::Session<'_> {
        self.session_within(&Waiting::Forever)
    }

    /// [`Self::session`] of a call that waits as `waiting` says, if the pool asks it.
    fn session_within<'p>(&'p self, waiting: &'p Waiting<'p>) -> Self::Session<'p>;

    /// Waits until there may be room for what [`Frames::let_change`] had none for. The caller has latched nothing and
    /// is not inside of an epoch. Errors: those of `waiting`.
    fn wait_to_change(&self, _waiting: &Waiting<'_>) -> Result<()> {
        Ok(())
    }

    /// Waits for what a change was refused for as `Gated`; it may be again. The caller holds nothing that who runs alone, or a frame that is to be lent, may
    /// need: no latch, no page, no place in the pool. Errors: those of `waiting`; `Poisoned` if nobody will be let in any more.
    fn wait_at_gate(&self, _waiting: &Waiting<'_>) -> Result<()> {
        Ok(())
    }

    /// How often somebody has begun or ended to change records alone: odd while somebody does. Who reads it, looks at leaves, and reads it
    /// again as the same even number has seen nothing of what is not to be seen yet.
    #[inline(always)]
    fn alone_turns(&self) -> u64 {
        0
    }

    /// Lets `read` look at the pages as they were before somebody began to change records alone. `None`, and it is not called: nobody
    /// does, or a leaf with this stamp has nothing of it. To be asked after the look at the leaf.
    ///
    /// Errors: those of `read`.
    fn read_before_alone<R>(
        &self,
        _stamp: Lsn,
        _read: impl FnOnce(&dyn FrozenPages) -> Result<R>,
    ) -> Result<Option<R>> {
        Ok(None)
    }

    /// Frees a page under its exclusive latch: its bytes become a page of kind `Free`, its id may be
    /// given out again, and the latch is released with a new version.
    fn free(&self, page: ExclusivePage<'_, Self>, epoch: Epoch);

    /// How common scans are in the leaf of a frame, if the pool keeps count.
    fn scan_tally(&self, _frame: FrameId) -> Option<&ScanTally> {
        None
    }

    /// What is known of the contention on the leaf in a frame, if the pool keeps count.
    #[inline(always)]
    fn contention(&self, _frame: FrameId) -> Option<&Contention> {
        None
    }

    /// Whether the leaf in a frame was split because of contention not long ago, so that no merge may touch it.
    fn is_hot(&self, frame: FrameId) -> bool {
        self.contention(frame).is_some_and(|contention| contention.get().is_hot())
    }

    /// Where to count what Contention Split does, if the pool keeps count.
    fn contention_counters(&self) -> Option<&ContentionCounters> {
        None
    }

    /// Where to count what adaptation does, if the pool keeps count.
    fn adaptation(&self) -> Option<&Adaptation> {
        None
    }

    /// Where to count what redistributions of leaves do, if the pool keeps count.
    fn merging(&self) -> Option<&Merging> {
        None
    }
}
