//! The three ways of holding a page, over any [`Frames`].
//!
//! - [`OptimisticPage`]: a frame and the version that its latch had; nothing is held. What was read
//!   through it may be used only after [`OptimisticPage::validate`].
//! - [`SharedPage`]: readers keep writers out.
//! - [`ExclusivePage`]: the one writer. Dropping it unlatches with a new version;
//!   [`ExclusivePage::release_unchanged`] without.
//!
//! Invariants: the bytes of a frame are reached as `&[u8]` or `&mut [u8]` only through the latter two; frame and
//! latch of these are of one another, which their constructors see to, and [`Frames`] promises that the latch
//! protects the frame's bytes.
//! Optimistic readers race with the writer by design; they read through
//! [`hedgerow_sync::optimistic`], in which every load is one that the compiler may not assume to be
//! free of races. Where those loads are Rust atomics rather than inline assembly (other processors
//! than x86-64, and ThreadSanitizer), the writer changes a private copy and publishes it with atomic
//! stores, so that no plain store races with an atomic load.

use crate::page::frames::{FrameHead, FrameId, Frames};
use crate::types::{Epoch, PageId};
use hedgerow_sync::latch::{ExclusiveGuard, SharedGuard, Version};
use hedgerow_sync::optimistic::{self, RacingBytes};
use hedgerow_sync::primitive::buggify::{Point, buggify};
use hedgerow_sync::primitive::linger::linger;

/// Why an operation has to start over. A value, never an unwinding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Restart {
    /// Somebody changed, or is changing, what was being read.
    Conflict,
    /// The page has to be brought into memory first.
    Absent(PageId),
    /// A validated read found what no correct engine writes.
    Corrupt(PageId),
    /// A validated read found the page in other hands: freed, or given to another tree.
    Foreign(PageId),
    /// A checkpoint has to have the page as it is, and there is no room for a copy: [`Pages::wait_to_change`](crate::page::Pages::wait_to_change).
    Owed,
    /// Somebody else changes records alone, or there is no room for old versions: [`Pages::wait_at_gate`](crate::page::Pages::wait_at_gate).
    Gated,
}

/// What is left of an [`OptimisticPage`] when its borrow of the pool has to end: a place and a
/// version. [`OptimisticPage::resume`] goes on if nothing has changed meanwhile.
#[derive(Clone, Copy, Debug)]
pub struct PageMark {
    frame: FrameId,
    id: PageId,
    version: Version,
}

/// What is said of a page that somebody wants to hold by the latch of another.
const OTHER_LATCH: &str = "a page is held by the latch of its own frame";

/// Whether writers change a private copy and publish it (see the head of this file).
const PUBLISH: bool = optimistic::WRITERS_PUBLISH;

/// A page as an optimistic reader sees it. `Copy`: it holds nothing.
///
/// Head and bytes of the frame are looked up once: an acquiring load in between would make the
/// compiler fetch the pool's tables anew for each use.
pub struct OptimisticPage<'p, P: Frames> {
    pool: &'p P,
    head: P::Head<'p>,
    bytes: RacingBytes<'p>,
    frame: FrameId,
    id: PageId,
    version: Version,
}

impl<P: Frames> Clone for OptimisticPage<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Frames> Copy for OptimisticPage<'_, P> {}

impl<'p, P: Frames> OptimisticPage<'p, P> {
    /// Begins to read page `id`, whose id was read in `parent` (none for a root).
    ///
    /// The order is what makes it right: the frame's version first, then that the frame holds the
    /// page, and last that the parent has not changed meanwhile, so that `id` was its child at a
    /// moment at which the version was already taken.
    #[inline(always)]
    pub fn open(
        pool: &'p P,
        id: PageId,
        parent: Option<&OptimisticPage<'p, P>>,
    ) -> Result<Self, Restart> {
        linger();
        let Some(frame) = pool.translate(id) else {
            return Err(Self::absent(pool, id, parent));
        };
        let (head, bytes) = (pool.head(frame), pool.bytes(frame));
        let Some(version) = head.latch().optimistic() else {
            return Err(Restart::Conflict);
        };
        if head.page_id() != id {
            return Err(Restart::Conflict);
        }
        if let Some(parent) = parent {
            parent.validate()?;
        }
        Ok(OptimisticPage { pool, head, bytes, frame, id, version })
    }

    #[cold]
    fn absent(pool: &P, id: PageId, parent: Option<&OptimisticPage<'p, P>>) -> Restart {
        if let Some(parent) = parent {
            if let Err(restart) = parent.validate() {
                return restart;
            }
            if !pool.in_range(id) {
                return Restart::Corrupt(parent.id);
            }
        }
        Restart::Absent(id)
    }

    /// What to keep in order to go on later without holding the pool.
    pub fn mark(&self) -> PageMark {
        PageMark { frame: self.frame, id: self.id, version: self.version }
    }

    /// Goes on with a page that was marked earlier, if it has not changed since. The mark must come
    /// from the same pool.
    ///
    /// An unchanged version says that the frame still holds the same page: eviction moves it on.
    pub fn resume(pool: &'p P, mark: PageMark) -> Result<Self, Restart> {
        let page = OptimisticPage {
            pool,
            head: pool.head(mark.frame),
            bytes: pool.bytes(mark.frame),
            frame: mark.frame,
            id: mark.id,
            version: mark.version,
        };
        page.validate()?;
        Ok(page)
    }

    /// The page's id.
    #[inline]
    pub fn id(&self) -> PageId {
        self.id
    }

    /// The frame that it was found in.
    #[inline]
    pub fn frame(&self) -> FrameId {
        self.frame
    }

    /// The bytes, which may change while they are read.
    #[inline(always)]
    pub fn bytes(&self) -> RacingBytes<'p> {
        // What happens between a look at the version and one at them matters.
        linger();
        self.bytes
    }

    /// Confirms that nothing read through this value so far was changed meanwhile.
    #[inline(always)]
    pub fn validate(&self) -> Result<(), Restart> {
        if self.head.latch().validate(self.version) && !buggify(Point::Restart) {
            Ok(())
        } else {
            Err(Restart::Conflict)
        }
    }

    /// Latches the page exclusively, to change it, if it has not changed since; never waits. The caller is
    /// inside of an epoch.
    #[inline(always)]
    pub fn upgrade(self) -> Result<ExclusivePage<'p, P>, Restart> {
        Ok(self.held(self.latch_to_change()?))
    }

    /// The first half of [`Self::upgrade`]: the latch alone, which goes through a result in registers. A page would go
    /// through memory, and be read there in other pieces than it was written in, which waits for the stores.
    #[inline(always)]
    pub fn latch_to_change(&self) -> Result<ExclusiveGuard<'p>, Restart> {
        let guard = self.head.latch().try_upgrade(self.version).ok_or(Restart::Conflict)?;
        // SAFETY: the guard is of the frame's latch: head and frame were looked up together.
        unsafe { let_change(self.pool, self.frame, guard) }
    }

    /// The page under its latch, which [`Self::latch_to_change`] has taken.
    ///
    /// # Panics
    /// If it is the latch of another frame.
    #[inline(always)]
    pub fn held(&self, guard: ExclusiveGuard<'p>) -> ExclusivePage<'p, P> {
        assert!(std::ptr::eq(guard.latch(), self.head.latch()), "{OTHER_LATCH}");
        // SAFETY: the guard is of the frame's latch.
        unsafe { ExclusivePage::new(self.pool, self.frame, self.id, guard) }
    }

    /// Latches the page exclusively, if it has not changed since, in order to change its layout or the order of
    /// its records, and nothing that a checkpoint would have to know; never waits.
    #[inline(always)]
    pub fn upgrade_to_rearrange(self) -> Result<ExclusivePage<'p, P>, Restart> {
        match self.head.latch().try_upgrade(self.version) {
            // SAFETY: the guard is of the frame's latch: head and frame were looked up together.
            Some(guard) => Ok(unsafe { ExclusivePage::new(self.pool, self.frame, self.id, guard) }),
            None => Err(Restart::Conflict),
        }
    }

    /// Latches the page shared if it has not changed since; never waits.
    pub fn share(self) -> Result<SharedPage<'p, P>, Restart> {
        let Some(guard) = self.head.latch().try_shared() else {
            return Err(Restart::Conflict);
        };
        let page = SharedPage { pool: self.pool, frame: self.frame, id: self.id, _guard: guard };
        self.validate()?;
        Ok(page)
    }

    /// Notes the use of the page for eviction.
    #[inline(always)]
    pub fn note_use(&self) {
        self.head.note_use();
    }
}

/// The latch of a page, if that may be changed now; else it is released.
///
/// # Safety
/// The guard is of the frame's latch.
#[inline(always)]
unsafe fn let_change<'p, P: Frames>(
    pool: &P,
    frame: FrameId,
    guard: ExclusiveGuard<'p>,
) -> Result<ExclusiveGuard<'p>, Restart> {
    // SAFETY: the frame's latch is held exclusively (caller).
    if unsafe { pool.let_change(frame) } {
        return Ok(guard);
    }
    guard.release_unchanged();
    Err(Restart::Owed)
}

/// A page under a shared latch.
pub struct SharedPage<'p, P: Frames> {
    pool: &'p P,
    frame: FrameId,
    id: PageId,
    _guard: SharedGuard<'p>,
}

impl<'p, P: Frames> SharedPage<'p, P> {
    /// Latches page `id` shared, waiting (bounded by `keep_waiting`) for a writer to leave. Gives up
    /// when the frame no longer holds the page: who holds its latch then may do so for long.
    pub fn wait(
        pool: &'p P,
        id: PageId,
        keep_waiting: &mut dyn FnMut() -> bool,
    ) -> Result<Self, Restart> {
        let frame = pool.translate(id).ok_or(Restart::Absent(id))?;
        let mut here = || pool.translate(id) == Some(frame) && keep_waiting();
        let guard = pool.head(frame).latch().shared_while(&mut here).ok_or(Restart::Conflict)?;
        if pool.head(frame).page_id() != id {
            return Err(Restart::Conflict);
        }
        Ok(SharedPage { pool, frame, id, _guard: guard })
    }

    /// The page's id.
    pub fn id(&self) -> PageId {
        self.id
    }

    /// The frame that holds it.
    #[cfg(hedgerow_internals)]
    pub fn frame(&self) -> FrameId {
        self.frame
    }

    /// The bytes; nobody changes them while this value lives.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `RacingBytes::as_slice` asks that no writer be active for the life of the slice:
        // the guard is of the frame's latch, whose holder alone writes (contract of the pool), and
        // the slice borrows `self`.
        unsafe { self.pool.bytes(self.frame).as_slice() }
    }
}

/// A page under its exclusive latch, which is that of its frame: whoever has taken it says so to
/// [`ExclusivePage::latched`], which looks.
///
/// ```compile_fail,E0624
/// # use hedgerow::internals::{page::*, types::PageId};
/// # use hedgerow_testing::MemoryPool;
/// # use hedgerow_sync::latch::HybridLatch;
/// fn lent_twice(pool: &MemoryPool, frame: FrameId, id: PageId, any: &HybridLatch, other: &HybridLatch) {
///     let mut one = ExclusivePage::new(pool, frame, id, any.exclusive()); // private
///     let mut two = ExclusivePage::new(pool, frame, id, other.exclusive());
///     one.bytes_mut()[0] = two.bytes_mut()[0];
/// }
/// ```
pub struct ExclusivePage<'p, P: Frames> {
    pool: &'p P,
    frame: FrameId,
    id: PageId,
    guard: Option<ExclusiveGuard<'p>>,
    copy: Option<Box<[u8]>>,
}

impl<'p, P: Frames> ExclusivePage<'p, P> {
    /// Wraps a latch that was taken on the frame that holds `id`.
    ///
    /// # Safety
    /// The guard is of the frame's latch.
    #[inline(always)]
    unsafe fn new(pool: &'p P, frame: FrameId, id: PageId, guard: ExclusiveGuard<'p>) -> Self {
        ExclusivePage { pool, frame, id, guard: Some(guard), copy: None }
    }

    /// The page `id` in a frame whose latch the caller, a pool, has taken.
    ///
    /// # Panics
    /// If the guard is not of the frame's latch.
    pub fn latched(pool: &'p P, frame: FrameId, id: PageId, guard: ExclusiveGuard<'p>) -> Self {
        assert!(std::ptr::eq(guard.latch(), pool.head(frame).latch()), "{OTHER_LATCH}");
        // SAFETY: the guard is of the frame's latch.
        unsafe { ExclusivePage::new(pool, frame, id, guard) }
    }

    /// Latches page `id` exclusively, to change it, waiting (bounded by `keep_waiting`) for others to leave. The
    /// caller is inside of an epoch. Gives up when the frame no longer holds the page: it may be part of a
    /// reservation by then, whose owner waits for a checkpoint that waits for this thread to leave its epoch.
    pub fn wait(
        pool: &'p P,
        id: PageId,
        keep_waiting: &mut dyn FnMut() -> bool,
    ) -> Result<Self, Restart> {
        let frame = pool.translate(id).ok_or(Restart::Absent(id))?;
        let mut here = || pool.translate(id) == Some(frame) && keep_waiting();
        let guard = pool.head(frame).latch().exclusive_while(&mut here).ok_or(Restart::Conflict)?;
        if pool.head(frame).page_id() != id {
            guard.release_unchanged();
            return Err(Restart::Conflict);
        }
        // SAFETY: the guard is of the frame's latch.
        unsafe { Ok(ExclusivePage::new(pool, frame, id, let_change(pool, frame, guard)?)) }
    }

    /// The page's id.
    pub fn id(&self) -> PageId {
        self.id
    }

    /// The frame that holds it.
    pub fn frame(&self) -> FrameId {
        self.frame
    }

    /// The bytes, to read.
    pub fn bytes(&self) -> &[u8] {
        if let Some(copy) = &self.copy {
            return copy;
        }
        // SAFETY: `RacingBytes::as_slice` asks that no writer be active for the life of the slice:
        // this value, which holds the frame's latch, is the one writer, and the slice borrows it.
        unsafe { self.pool.bytes(self.frame).as_slice() }
    }

    /// The bytes, to change: the page is marked dirty and stamped with `epoch` first.
    pub fn write(&mut self, epoch: Epoch) -> &mut [u8] {
        // SAFETY: this value holds the frame's latch exclusively.
        unsafe { self.pool.mark_dirty(self.frame, epoch) };
        let bytes = self.bytes_mut();
        crate::page::header::set_epoch(bytes, epoch);
        bytes
    }

    /// The bytes, to change, for the pool, and for changes that are none logically (another layout, or
    /// another order, of the same records), which any image may have or not: nothing is marked or stamped.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        if PUBLISH {
            if self.copy.is_none() {
                self.copy = Some(self.bytes().into());
            }
            if let Some(copy) = &mut self.copy {
                return copy;
            }
        }
        // SAFETY: `RacingBytes::as_mut_slice` asks that the caller be the one writer for the life of
        // the slice, and that concurrent readers read as `optimistic` does: the exclusive latch, which
        // is the frame's, and the borrow of `self` give the first, the head of this file the second.
        unsafe { self.pool.bytes(self.frame).as_mut_slice() }
    }

    /// Unlatches without a new version: nothing was changed.
    pub fn release_unchanged(mut self) {
        // A private copy may have been made to look at; there is nothing in it to publish.
        self.copy = None;
        if let Some(guard) = self.guard.take() {
            guard.release_unchanged();
        }
    }

    /// Takes the latch out: the caller goes on with it.
    pub fn into_guard(mut self) -> (FrameId, PageId, ExclusiveGuard<'p>) {
        self.publish();
        let guard = self.guard.take().expect("the guard is there until it is taken or dropped");
        (self.frame, self.id, guard)
    }

    fn publish(&mut self) {
        if let Some(copy) = self.copy.take() {
            // SAFETY: `publish` asks for the one writer, without a slice of the bytes: the exclusive latch
            // is held until `guard` is taken or dropped, and slices of the bytes borrow `self`.
            unsafe { self.pool.bytes(self.frame).publish(&copy) };
        }
    }
}

impl<P: Frames> Drop for ExclusivePage<'_, P> {
    #[inline(always)]
    fn drop(&mut self) {
        self.publish();
    }
}
