//! One operation's account with a page pool: what it has faulted in, and the fresh pages that it may take.
//!
//! *Nothing is waited for while a page is latched.* [`PoolSession::fault`], [`PoolSession::hold_up_to`] and [`PoolSession::reserve`]
//! wait, so the caller holds no latch, and no epoch. A session belongs to one thread.

use crate::error::Result;
use crate::page::frames::{FrameId, Frames};
use crate::page::guard::ExclusivePage;
use crate::types::{Epoch, PageId, TreeId};

/// Why a page is wanted: what a scan faults in enters as already marked for eviction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// A look-up or a change: the page is likely to be wanted again.
    Point,
    /// A scan: the page is likely not to be wanted again soon.
    Scan,
}

/// Whoever wants a stream of pages.
pub trait PageSource {
    /// The next page that is wanted; `None` if there is none now. After each page that was handed over
    /// the source is asked again. A page is asked for once until it is handed over.
    fn next_page(&mut self) -> Option<PageId>;

    /// The page is in memory, and stays for a moment; or cannot be had.
    fn page_ready(&mut self, id: PageId, outcome: Result<()>);
}

/// One operation's account with the pool: what it faulted in stays in memory until the session is
/// dropped (or a bounded number of clock turns has passed), so that fault and restart cannot chase
/// each other on a tiny pool. Not shared between threads. Dropping releases everything.
pub trait PoolSession<'p, P: Frames> {
    /// Brings a page into memory; returns at once if it is there already. Waits for I/O.
    ///
    /// Errors: the read failed, the page is damaged or the id out of range (`Corrupted`), the id is
    /// free (`PageFreed`: it may have been freed after the caller had read it, so this is a restart
    /// rather than damage), no frame became free in time (`MemoryLimit`), poisoned or closed pool.
    fn fault(&mut self, id: PageId, access: Access) -> Result<()>;

    /// Lets go of everything, and of the operation's place in the pool, in order to wait for long.
    fn let_go(&mut self) {}

    /// Makes ready to keep up to `pages` pages at a time by [`Self::hold`]: waits until the pool has frames for them beside what
    /// others keep. Nothing may be latched, and no epoch be entered. What was faulted before may be evicted again.
    ///
    /// Errors: those of waiting; closed pool.
    fn hold_up_to(&mut self, _pages: usize) -> Result<()> {
        Ok(())
    }

    /// As [`Self::fault`]; and the page stays in memory, if it is not freed, for as long as the session lives and no more are
    /// held than [`Self::hold_up_to`] has said. Holding a page again costs a look.
    fn hold(&mut self, id: PageId) -> Result<()> {
        self.fault(id, Access::Point)
    }

    /// Asks for several pages with one submission and waits for them. Pages that cannot be had
    /// (no frames, failed reads) are left out: a later [`Self::fault`] says why.
    fn prefetch(&mut self, ids: &[PageId], access: Access) -> Result<()>;

    /// Brings in the pages that `pages` asks for, many at a time, and hands each over as it arrives,
    /// until nothing more is asked for. A page that is in memory already is handed over at once.
    /// `pages` must not wait for anything, a page or a latch least of all.
    ///
    /// Errors: closed pool; those of single pages are handed over, and are those of [`Self::fault`].
    fn fault_stream(&mut self, pages: &mut dyn PageSource, access: Access) -> Result<()> {
        /// Pages that are read with one submission.
        const BATCH_PAGES: usize = 64;
        loop {
            let ids: Vec<PageId> =
                std::iter::from_fn(|| pages.next_page()).take(BATCH_PAGES).collect();
            if ids.is_empty() {
                return Ok(());
            }
            self.prefetch(&ids, access)?;
            for id in ids {
                let outcome = self.fault(id, access);
                pages.page_ready(id, outcome);
            }
        }
    }

    /// Makes sure that `count` fresh pages are at hand for [`Self::take`]. Waits for frames; nothing
    /// may be latched, and no epoch be entered.
    fn reserve(&mut self, count: usize) -> Result<()>;

    /// Takes a fresh page out of the reservation: zeroed, with its id in place and exclusively
    /// latched. `None` if the reservation is used up. What is not taken goes back with the session.
    fn take(&mut self, tree: TreeId, epoch: Epoch) -> Option<ExclusivePage<'p, P>>;

    /// [`Self::take`] of a page whose latch is not on a cache line with one of these frames' latches: threads that are to
    /// be kept apart will use them. `None` if no reserved page is like that: where there are more of them than frames in `from`,
    /// one is.
    fn take_apart(
        &mut self,
        tree: TreeId,
        epoch: Epoch,
        _from: &[FrameId],
    ) -> Option<ExclusivePage<'p, P>> {
        self.take(tree, epoch)
    }
}
