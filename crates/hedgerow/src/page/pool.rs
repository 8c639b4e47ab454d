//! What the tree needs of whatever holds its pages.
//!
//! The buffer pool implements [`PagePool`]; so do a heap of pages for tests, and other translations
//! that it is compared with. The rules (who may wait, and holding what) are these:
//!
//! - *Nothing is waited for while a page is latched.* [`PoolSession::fault`], [`PoolSession::reserve`],
//!   [`PagePool::wait_to_change`] and [`PagePool::enter`] may wait, so the caller holds no latch, and no epoch.
//! - A translation is a guess until the frame's latch word was read and the frame still names the
//!   page; [`crate::page::OptimisticPage::open`] does this in the right order.
//! - A page is changed only under its exclusive latch, and its records only after [`PagePool::let_change`], which
//!   latching it to change does, and [`PagePool::mark_dirty`].

use crate::error::{Error, Result};
use crate::page::contention::{Contention, ContentionCounters};
use crate::page::frozen::FrozenPages;
use crate::page::guard::ExclusivePage;
use crate::page::merging::Merging;
use crate::page::tally::{Adaptation, ScanTally};
use crate::types::{Epoch, Lsn, PageId, Purpose, TreeId};
use crate::versions::Change;
use crate::wait::Waiting;
use crate::wal::Record;
use hedgerow_sync::latch::HybridLatch;
use hedgerow_sync::optimistic::RacingBytes;

/// A place in memory that holds a page at a time. Frames live as long as their pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct FrameId(pub u32);

/// Why a page is wanted: what a scan faults in enters as already marked for eviction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// A look-up or a change: the page is likely to be wanted again.
    Point,
    /// A scan: the page is likely not to be wanted again soon.
    Scan,
}

/// What stands beside a page in its frame, found once and then at hand: a reference, or little more.
pub trait FrameHead<'p>: Copy {
    /// The frame's latch.
    fn latch(self) -> &'p HybridLatch;

    /// The page that the frame holds now (relaxed; only a validated or latched reader may trust it).
    fn page_id(self) -> PageId;

    /// Notes that the page was used (second chance). A relaxed store at most, none if already noted.
    fn note_use(self);
}

/// Holds pages by id. `Send + Sync`: every method may be called by any number of threads.
///
/// # Safety
/// Pages are lent as slices on the strength of their latches ([`crate::page::guard`]), so an implementation
/// promises this of each frame, for as long as the pool is borrowed:
///
/// - [`Self::head`] gives the same latch each time, and each frame has its own;
/// - [`Self::bytes`] gives the same bytes each time, [`Self::page_bytes`] of them, and no two frames share any;
/// - whoever reads these bytes as a slice holds the frame's latch, and whoever writes them holds it exclusively. This
///   binds the implementation as well: memory of a frame that it uses for something else keeps its latch for good.
///
/// A safe implementation does not compile:
///
/// ```compile_fail,E0200
/// # use hedgerow::internals::{error::Result, page::*, types::{Epoch, PageId, TreeId}};
/// # use hedgerow_testing::MemoryPool;
/// # use hedgerow_sync::optimistic::RacingBytes;
/// # struct MyPool(MemoryPool);
/// # struct NoSession;
/// # impl<'p> PoolSession<'p, MyPool> for NoSession {
/// #     fn fault(&mut self, _: PageId, _: Access) -> Result<()> { Ok(()) }
/// #     fn prefetch(&mut self, _: &[PageId], _: Access) -> Result<()> { Ok(()) }
/// #     fn reserve(&mut self, _: usize) -> Result<()> { Ok(()) }
/// #     fn take(&mut self, _: TreeId, _: Epoch) -> Option<ExclusivePage<'p, MyPool>> { None }
/// # }
/// impl PagePool for MyPool {
/// #     type Session<'p> = NoSession;
/// #     type Head<'p> = <MemoryPool as PagePool>::Head<'p>;
/// #     type EpochGuard<'p> = <MemoryPool as PagePool>::EpochGuard<'p>;
/// #     fn page_bytes(&self) -> usize { self.0.page_bytes() }
/// #     fn translate(&self, id: PageId) -> Option<FrameId> { self.0.translate(id) }
/// #     fn in_range(&self, id: PageId) -> bool { self.0.in_range(id) }
///     fn head(&self, _: FrameId) -> Self::Head<'_> {
///         self.0.head(FrameId(2)) // one latch for all frames
///     }
/// #     fn bytes(&self, frame: FrameId) -> RacingBytes<'_> { self.0.bytes(frame) }
/// #     fn session_within<'p>(&'p self, _: &'p hedgerow::internals::wait::Waiting<'p>) -> NoSession { NoSession }
/// #     fn enter(&self) -> Result<Self::EpochGuard<'_>> { self.0.enter() }
/// #     fn mark_dirty(&self, _: FrameId, _: Epoch) {}
/// #     fn free(&self, _: ExclusivePage<'_, Self>, _: Epoch) {}
/// }
/// ```
pub unsafe trait PagePool: Send + Sync + Sized + 'static {
    /// One operation's account with the pool; see [`PoolSession`].
    type Session<'p>: PoolSession<'p, Self>
    where
        Self: 'p;
    /// What stands beside a page in its frame.
    type Head<'p>: FrameHead<'p>
    where
        Self: 'p;
    /// A writer's stay in an epoch; leaving is dropping it.
    type EpochGuard<'p>: EpochStay
    where
        Self: 'p;

    /// Bytes of a page: a power of two from `MIN_PAGE_BYTES` to `MAX_PAGE_BYTES`.
    fn page_bytes(&self) -> usize;

    /// The frame that is said to hold page `id`; `None` if it is not in memory (or is being read,
    /// or is out of range). Never waits.
    fn translate(&self, id: PageId) -> Option<FrameId>;

    /// The frame that page `id` is most likely in, if it is in memory: a guess that is worth a prefetch,
    /// and no more. Costs no memory access where translation is predicted.
    fn expect_frame(&self, id: PageId) -> Option<FrameId> {
        self.translate(id)
    }

    /// Asks the memory for what a later [`Self::translate`] and [`Self::head`] of the page will read.
    fn prefetch(&self, _id: PageId) {}

    /// Whether an id lies in the range that was ever given out. An id out of range that was read
    /// from a validated page is corruption.
    fn in_range(&self, id: PageId) -> bool;

    /// What stands beside the page: latch, page id, mark of use. Only the pool changes more than the mark.
    ///
    /// ```compile_fail,E0624
    /// # use hedgerow::internals::page::{FrameId, PagePool};
    /// fn back_from_the_page_table(pool: &hedgerow::internals::buffer::BufferPool, frame: FrameId) {
    ///     pool.head(frame).clear() // private
    /// }
    /// ```
    fn head(&self, frame: FrameId) -> Self::Head<'_>;

    /// The frame's bytes.
    fn bytes(&self, frame: FrameId) -> RacingBytes<'_>;

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

    /// Enters the current epoch in order to change pages. May wait for a checkpoint, so nothing may
    /// be latched and no other stay be open in this thread. Errors: read-only, poisoned, closed.
    fn enter(&self) -> Result<Self::EpochGuard<'_>>;

    /// [`Self::enter`], with room in the log for `log_bytes` of records to be appended during the stay; may
    /// wait for the disk to make some, as long as `waiting` says. Errors: those of it, too; then nothing is promised.
    fn enter_to_append(
        &self,
        _log_bytes: u64,
        _purpose: Purpose,
        _waiting: &Waiting<'_>,
    ) -> Result<Self::EpochGuard<'_>> {
        self.enter()
    }

    /// [`Self::enter_to_append`], in order to change records. If snapshots may need what they were before, there is room for that:
    /// `version_cells` of it, as [`crate::versions::cells_of_change`] counts, no more than [`Self::most_version_cells`]. Errors, too:
    /// `Gated` if somebody else changes records alone, or there is no such room; who is let in keeps the former waiting. Whoever runs alone enters with
    /// [`Purpose::Finish`], and keeps nothing for snapshots.
    fn enter_to_change(
        &self,
        log_bytes: u64,
        _version_cells: impl Fn() -> u32,
        purpose: Purpose,
        waiting: &Waiting<'_>,
    ) -> Result<Self::EpochGuard<'_>> {
        self.enter_to_append(log_bytes, purpose, waiting)
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

    /// Whether [`Self::keep_version`] is to be told of all changes of this stay.
    fn keeps_versions(&self, _stay: &Self::EpochGuard<'_>) -> bool {
        false
    }

    /// Keeps what a record was before a change, if a snapshot may need it: after the change was appended, and before its leaf is
    /// unlatched. Waits for nothing but a short look at a table, and allocates nothing.
    fn keep_version(&self, _stay: &Self::EpochGuard<'_>, _change: &Change<'_>) {}

    /// Appends that all records of a tree were loaded, for which the stay has room in the log; snapshots that are below that do not see
    /// them. With the root latched, and before they are there.
    fn note_load(&self, stay: &Self::EpochGuard<'_>, tree: TreeId) {
        self.append(stay, &Record::Load { tree });
    }

    /// How much of the stay's room for versions is left; 0 if none are kept.
    fn version_cells(&self, _stay: &Self::EpochGuard<'_>) -> u32 {
        0
    }

    /// How much room changes that are made together may have.
    fn most_version_cells(&self) -> u32 {
        0
    }

    /// [`Self::enter`], in order to give space back: goes on where there is no more room for others.
    fn enter_to_free(&self, _waiting: &Waiting<'_>) -> Result<Self::EpochGuard<'_>> {
        self.enter()
    }

    /// Appends to the log what has just been done to a page whose exclusive latch is still held. Waits for
    /// nothing. The LSN of the change, the end of its record, which the leaf is stamped with; where there is no log it comes from a clock,
    /// and many changes have one. LSNs of changes of one leaf never fall.
    fn append(&self, _stay: &Self::EpochGuard<'_>, _record: &Record<'_>) -> Lsn {
        Lsn(0)
    }

    /// Whether what is appended goes to a log. If not, [`Self::append`] looks at a clock.
    fn has_log(&self) -> bool {
        false
    }

    /// After this every change fails: what is in memory is not what was appended.
    fn poison(&self, _error: &Error) {}

    /// Whether values in leaves may be in a stored form ([`crate::space::extent`]). To be asked under the leaf's latch.
    #[inline(always)]
    fn has_stored_forms(&self) -> bool {
        false
    }

    /// From now on leaves may have keys with a label. Before the first one is put.
    fn expect_long_keys(&self) {}

    /// Notes that a record's value has become `new`, of `old`: stored forms, or values that are not, or nothing.
    /// Under the latch of the leaf, and within the stay in which it was changed.
    fn stored_form_changed(&self, _epoch: Epoch, _old: &[u8], _new: &[u8]) {}

    /// Gives back what a value stands for that was to be a record's and never was.
    fn discard_stored_form(&self, _value: &[u8]) {}

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

    /// Whether the page in a frame may be changed, under its exclusive latch and inside of an epoch: a checkpoint
    /// that has to have it as it is gets a copy. False: there is no room for one. Never waits.
    ///
    /// # Safety
    /// The caller holds the frame's latch exclusively: the copy is made from a slice.
    ///
    /// ```compile_fail,E0133
    /// # use hedgerow::internals::page::{FrameId, PagePool};
    /// fn without_the_latch(pool: &hedgerow::internals::buffer::BufferPool) -> bool {
    ///     pool.let_change(FrameId(0)) // needs `unsafe`
    /// }
    /// ```
    #[inline(always)]
    unsafe fn let_change(&self, _frame: FrameId) -> bool {
        true
    }

    /// Waits until there may be room for what [`Self::let_change`] had none for. The caller has latched nothing and
    /// is not inside of an epoch. Errors: those of `waiting`.
    fn wait_to_change(&self, _waiting: &Waiting<'_>) -> Result<()> {
        Ok(())
    }

    /// Notes under the page's exclusive latch that it is about to change in `epoch`.
    ///
    /// # Safety
    /// The caller holds the frame's latch exclusively: what stands beside the page changes as the page does.
    ///
    /// ```compile_fail,E0133
    /// # use hedgerow::internals::{page::{FrameId, PagePool}, types::Epoch};
    /// fn without_the_latch(pool: &hedgerow::internals::buffer::BufferPool) {
    ///     pool.mark_dirty(FrameId(0), Epoch(1)) // needs `unsafe`
    /// }
    /// ```
    unsafe fn mark_dirty(&self, frame: FrameId, epoch: Epoch);

    /// Frees a page under its exclusive latch: its bytes become a page of kind `Free`, its id may be
    /// given out again, and the latch is released with a new version.
    fn free(&self, page: ExclusivePage<'_, Self>, epoch: Epoch);
}

/// A writer's stay in an epoch.
pub trait EpochStay {
    /// The epoch that changes made during the stay are stamped with.
    fn epoch(&self) -> Epoch;
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
pub trait PoolSession<'p, P: PagePool> {
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
    fn take(&mut self, tree: crate::types::TreeId, epoch: Epoch) -> Option<ExclusivePage<'p, P>>;

    /// [`Self::take`] of a page whose latch is not on a cache line with one of these frames' latches: threads that are to
    /// be kept apart will use them. `None` if no reserved page is like that: where there are more of them than frames in `from`,
    /// one is.
    fn take_apart(
        &mut self,
        tree: crate::types::TreeId,
        epoch: Epoch,
        _from: &[FrameId],
    ) -> Option<ExclusivePage<'p, P>> {
        self.take(tree, epoch)
    }
}
