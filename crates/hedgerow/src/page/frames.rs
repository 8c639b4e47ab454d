//! Frames: where pages are in memory, as the ways to hold one ([`crate::page::guard`]) need it.
//!
//! - A translation is a guess until the frame's latch word was read and the frame still names the
//!   page; [`crate::page::OptimisticPage::open`] does this in the right order.
//! - A page is changed only under its exclusive latch, and its records only after [`Frames::let_change`], which
//!   latching it to change does, and [`Frames::mark_dirty`].
//!
//! `Send + Sync`: every method may be called by any number of threads.

use crate::types::{Epoch, PageId};
use hedgerow_sync::latch::HybridLatch;
use hedgerow_sync::optimistic::RacingBytes;

/// A place in memory that holds a page at a time. Frames live as long as their pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct FrameId(pub u32);

/// What stands beside a page in its frame, found once and then at hand: a reference, or little more.
pub trait FrameHead<'p>: Copy {
    /// The frame's latch.
    fn latch(self) -> &'p HybridLatch;

    /// The page that the frame holds now (relaxed; only a validated or latched reader may trust it).
    fn page_id(self) -> PageId;

    /// Notes that the page was used (second chance). A relaxed store at most, none if already noted.
    fn note_use(self);
}

/// Holds pages by id.
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
/// # use hedgerow::internals::{page::{FrameId, Frames}, types::{Epoch, PageId}};
/// # use hedgerow_testing::MemoryPool;
/// # use hedgerow_sync::optimistic::RacingBytes;
/// # struct MyPool(MemoryPool);
/// impl Frames for MyPool {
/// #     type Head<'p> = <MemoryPool as Frames>::Head<'p>;
/// #     fn page_bytes(&self) -> usize { self.0.page_bytes() }
/// #     fn translate(&self, id: PageId) -> Option<FrameId> { self.0.translate(id) }
/// #     fn in_range(&self, id: PageId) -> bool { self.0.in_range(id) }
///     fn head(&self, _: FrameId) -> Self::Head<'_> {
///         self.0.head(FrameId(2)) // one latch for all frames
///     }
/// #     fn bytes(&self, frame: FrameId) -> RacingBytes<'_> { self.0.bytes(frame) }
/// #     fn mark_dirty(&self, _: FrameId, _: Epoch) {}
/// }
/// ```
pub unsafe trait Frames: Send + Sync + Sized + 'static {
    /// What stands beside a page in its frame.
    type Head<'p>: FrameHead<'p>
    where
        Self: 'p;

    /// Bytes of a page: a power of two from `MIN_PAGE_BYTES` to `MAX_PAGE_BYTES`.
    fn page_bytes(&self) -> usize;

    /// The frame that is said to hold page `id`; `None` if it is not in memory (or is being read,
    /// or is out of range). Never waits.
    fn translate(&self, id: PageId) -> Option<FrameId>;

    /// Whether an id lies in the range that was ever given out. An id out of range that was read
    /// from a validated page is corruption.
    fn in_range(&self, id: PageId) -> bool;

    /// What stands beside the page: latch, page id, mark of use. Only the pool changes more than the mark.
    ///
    /// ```compile_fail,E0624
    /// # use hedgerow::internals::page::{FrameId, Frames};
    /// fn back_from_the_page_table(pool: &hedgerow::internals::buffer::BufferPool, frame: FrameId) {
    ///     pool.head(frame).clear() // private
    /// }
    /// ```
    fn head(&self, frame: FrameId) -> Self::Head<'_>;

    /// The frame's bytes.
    fn bytes(&self, frame: FrameId) -> RacingBytes<'_>;

    /// Whether the page in a frame may be changed, under its exclusive latch and inside of an epoch: a checkpoint
    /// that has to have it as it is gets a copy. False: there is no room for one. Never waits.
    ///
    /// # Safety
    /// The caller holds the frame's latch exclusively: the copy is made from a slice.
    ///
    /// ```compile_fail,E0133
    /// # use hedgerow::internals::page::{FrameId, Frames};
    /// fn without_the_latch(pool: &hedgerow::internals::buffer::BufferPool) -> bool {
    ///     pool.let_change(FrameId(0)) // needs `unsafe`
    /// }
    /// ```
    #[inline(always)]
    unsafe fn let_change(&self, _frame: FrameId) -> bool {
        true
    }

    /// Notes under the page's exclusive latch that it is about to change in `epoch`.
    ///
    /// # Safety
    /// The caller holds the frame's latch exclusively: what stands beside the page changes as the page does.
    ///
    /// ```compile_fail,E0133
    /// # use hedgerow::internals::{page::{FrameId, Frames}, types::Epoch};
    /// fn without_the_latch(pool: &hedgerow::internals::buffer::BufferPool) {
    ///     pool.mark_dirty(FrameId(0), Epoch(1)) // needs `unsafe`
    /// }
    /// ```
    unsafe fn mark_dirty(&self, frame: FrameId, epoch: Epoch);
}
