//! A heap of pages: the simplest [`PagePool`](hedgerow::internals::page::PagePool), without files and without eviction.
//!
//! It serves the tree's tests, and measurements as a yardstick: whatever a buffer pool costs is the
//! difference to this, but for huge pages, for which a large buffer pool asks and this does not. Page
//! `id` lives in frame `id` for good. One reservation holds all frames; the system commits their
//! memory as it is touched.
//!
//! [`MemoryPool::with_absences`] makes it *pretend* evictions: now and then a translation fails, the
//! frame's version moves on, and the page stays absent until it is faulted. What a living session
//! has faulted stays, as with a real pool.
//!
//! Invariants: a frame's header names its page exactly while the page is given out; an id is in the
//! free list, in a session's reservation, or given out, never in two of these; `given_out` counts
//! the last. Thread-safety: `Send + Sync`; bytes follow the rules of [`hedgerow::internals::page::guard`].

use hedgerow::internals::error::{Error, ErrorKind, Result, Signal};
use hedgerow::internals::node::plain_leaf;
use hedgerow::internals::page::header;
use hedgerow::internals::page::{
    Access, Adaptation, Contention, ContentionCounters, EpochStay, ExclusivePage, FrameHead,
    FrameId, Frames, Journal, Pages, PoolSession, ScanTally, Values,
};
use hedgerow::internals::storage::arena::Arena;
use hedgerow::internals::types::{Epoch, Lsn, PageId, TreeId};
use hedgerow::internals::wait::Waiting;
use hedgerow::internals::wal::Record;
use hedgerow_sync::latch::HybridLatch;
use hedgerow_sync::optimistic::RacingBytes;
use hedgerow_sync::primitive::Mutex;
use hedgerow_sync::primitive::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use hedgerow_sync::primitive::random::SplitMix64;

/// What the pool keeps beside the bytes of a frame.
pub struct Frame {
    latch: HybridLatch,
    page: AtomicU32,
    used: AtomicU8,
    tally: ScanTally,
    contention: Contention,
}

/// The pretence of evictions.
struct Absences {
    one_in: u64,
    rolls: AtomicU64,
    seed: u64,
    absent: Box<[AtomicBool]>,
    pins: Box<[AtomicU32]>,
    faults: AtomicU64,
    reads: AtomicU64,
    holds: Mutex<Vec<usize>>,
}

/// Page ids at hand.
struct Ids {
    free: Vec<PageId>,
    next: PageId,
}

/// A heap of pages; see the head of this file.
pub struct MemoryPool {
    page_bytes: usize,
    memory: Arena,
    frames: Box<[Frame]>,
    ids: Mutex<Ids>,
    given_out: AtomicU64,
    /// Records of leaves that were freed, which another one has by then.
    moved: AtomicU64,
    /// Changes that were appended to the log, which is none.
    appended: AtomicU64,
    /// Changes of pages until one panics, if any does.
    panics_in: AtomicU64,
    poisoned: AtomicBool,
    absences: Option<Absences>,
    adaptation: Adaptation,
    contention: ContentionCounters,
}

impl MemoryPool {
    /// A pool of at most `capacity_pages` pages of `page_bytes` each.
    ///
    /// # Panics
    /// If `page_bytes` is no power of two between the smallest and the largest page size, or the
    /// memory cannot be had: this is a pool for tests and measurements.
    pub fn new(page_bytes: usize, capacity_pages: usize) -> MemoryPool {
        assert!(
            page_bytes.is_power_of_two()
                && (header::MIN_PAGE_BYTES..=header::MAX_PAGE_BYTES).contains(&page_bytes),
            "a page of {page_bytes} bytes"
        );
        // Ids below the first usable word and the header words of each part stay without a page.
        let frames = capacity_pages.saturating_add(capacity_pages / 64 + 16);
        let bytes = frames.checked_mul(page_bytes).expect("memory that has addresses");
        let memory = Arena::reserve_sparse(bytes).expect("memory for the pool");
        let frame = |_| Frame {
            latch: HybridLatch::new(),
            page: AtomicU32::new(PageId::NONE.0),
            used: AtomicU8::new(0),
            tally: ScanTally::new(),
            contention: Contention::new(),
        };
        MemoryPool {
            page_bytes,
            memory,
            frames: (0..frames).map(frame).collect(),
            ids: Mutex::new(Ids { free: Vec::new(), next: PageId::CATALOGUE_ROOT }),
            given_out: AtomicU64::new(0),
            moved: AtomicU64::new(0),
            appended: AtomicU64::new(0),
            panics_in: AtomicU64::new(0),
            poisoned: AtomicBool::new(false),
            absences: None,
            adaptation: Adaptation::default(),
            contention: ContentionCounters::default(),
        }
    }

    /// The same, but about one translation in `one_in` finds its page evicted.
    pub fn with_absences(
        page_bytes: usize,
        capacity_pages: usize,
        one_in: u64,
        seed: u64,
    ) -> MemoryPool {
        let mut pool = MemoryPool::new(page_bytes, capacity_pages);
        let frames = pool.frames.len();
        pool.absences = Some(Absences {
            one_in: one_in.max(1),
            rolls: AtomicU64::new(0),
            seed,
            absent: (0..frames).map(|_| AtomicBool::new(false)).collect(),
            pins: (0..frames).map(|_| AtomicU32::new(0)).collect(),
            faults: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            holds: Mutex::new(Vec::new()),
        });
        pool
    }

    /// Pages that are given out and not freed.
    pub fn pages(&self) -> u64 {
        self.given_out.load(Ordering::Relaxed)
    }

    /// Records that leaves had which were freed: merges have moved them.
    pub fn moved(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }

    /// Changes that were appended so far: the LSN of the last one.
    pub fn appended(&self) -> Lsn {
        Lsn(self.appended.load(Ordering::Relaxed))
    }

    /// From now on the `nth` time that a page is about to change is a panic: how a test has a thread unwind in the middle.
    pub fn panic_at_change(&self, nth: u64) {
        self.panics_in.store(nth, Ordering::Relaxed);
    }

    /// Whether somebody has said that nobody may go on.
    pub fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Relaxed)
    }

    /// Pages that were pretended absent and faulted in again.
    pub fn faults(&self) -> u64 {
        self.absences.as_ref().map_or(0, |absences| absences.faults.load(Ordering::Relaxed))
    }

    /// How often such pages were asked for, one or several together.
    pub fn reads(&self) -> u64 {
        self.absences.as_ref().map_or(0, |absences| absences.reads.load(Ordering::Relaxed))
    }

    /// Translations of pages that were there, in a pool with absences.
    pub fn looks(&self) -> u64 {
        self.absences.as_ref().map_or(0, |absences| absences.rolls.load(Ordering::Relaxed))
    }

    /// How many pages sessions have asked to hold since this was called last, in a pool with absences.
    pub fn take_holds(&self) -> Vec<usize> {
        self.absences.as_ref().map_or_else(Vec::new, |of| std::mem::take(&mut of.holds.lock()))
    }

    /// Makes a page absent, in a pool with absences. `false` if somebody uses it.
    pub fn evict(&self, id: PageId) -> bool {
        self.absences.as_ref().is_some_and(|absences| self.pretend_evicted(absences, id.0 as usize))
    }

    /// Changes the bytes of a page behind the tree's back: how a test plants a defect.
    /// `false` if there is no such page.
    pub fn tamper(&self, id: PageId, change: impl FnOnce(&mut [u8])) -> bool {
        let Some(frame) = self.frames.get(id.0 as usize) else { return false };
        if frame.page.load(Ordering::Relaxed) != id.0 || id == PageId::NONE {
            return false;
        }
        let guard = frame.latch.exclusive();
        let mut page = ExclusivePage::latched(self, FrameId(id.0), id, guard);
        change(page.bytes_mut());
        true
    }

    #[cold]
    fn pretend(&self, absences: &Absences, frame: FrameId) -> bool {
        let at = frame.0 as usize;
        if absences.absent[at].load(Ordering::Acquire) {
            return true;
        }
        let roll = absences.rolls.fetch_add(1, Ordering::Relaxed);
        let mut random = SplitMix64::new(absences.seed ^ roll.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        random.below(absences.one_in) == 0 && self.pretend_evicted(absences, at)
    }

    fn pretend_evicted(&self, absences: &Absences, at: usize) -> bool {
        // An eviction takes the latch, if nobody has it, and moves the version on.
        let Some(guard) = self.frames[at].latch.try_exclusive() else { return false };
        // Looked at under the latch: the faulting session pins before it clears the mark.
        let pinned = absences.pins[at].load(Ordering::Acquire) > 0;
        if pinned {
            guard.release_unchanged();
            return false;
        }
        absences.absent[at].store(true, Ordering::Release);
        drop(guard);
        true
    }
}

impl std::fmt::Debug for MemoryPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryPool")
            .field("page_bytes", &self.page_bytes)
            .field("pages", &self.pages())
            .finish_non_exhaustive()
    }
}

/// The one epoch of a pool that never writes checkpoints.
#[derive(Debug)]
pub struct MemoryEpoch;

impl EpochStay for MemoryEpoch {
    fn epoch(&self) -> Epoch {
        Epoch(1)
    }
}

/// An operation's account with a [`MemoryPool`].
#[derive(Debug)]
pub struct MemorySession<'p> {
    pool: &'p MemoryPool,
    reserved: Vec<PageId>,
    pinned: Vec<PageId>,
}

impl<'p> FrameHead<'p> for &'p Frame {
    #[inline(always)]
    fn latch(self) -> &'p HybridLatch {
        &self.latch
    }

    #[inline(always)]
    fn page_id(self) -> PageId {
        PageId(self.page.load(Ordering::Relaxed))
    }

    #[inline(always)]
    fn note_use(self) {
        if self.used.load(Ordering::Relaxed) == 0 {
            self.used.store(1, Ordering::Relaxed);
        }
    }
}

// SAFETY: frame `i` has the latch `frames[i]`, and the `i`-th page of the reservation, which does not move; bytes are
// reached as slices through pages alone, which hold that latch.
unsafe impl Frames for MemoryPool {
    type Head<'p> = &'p Frame;

    fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    #[inline(always)]
    fn translate(&self, id: PageId) -> Option<FrameId> {
        let frame = self.frames.get(id.0 as usize)?;
        if frame.page.load(Ordering::Relaxed) != id.0 || id == PageId::NONE {
            return None;
        }
        let frame = FrameId(id.0);
        if let Some(absences) = &self.absences
            && self.pretend(absences, frame)
        {
            return None;
        }
        Some(frame)
    }

    fn in_range(&self, id: PageId) -> bool {
        id.is_usable() && id.0 < self.ids.lock().next.0
    }

    #[inline(always)]
    fn head(&self, frame: FrameId) -> &Frame {
        &self.frames[frame.0 as usize]
    }

    #[inline(always)]
    fn bytes(&self, frame: FrameId) -> RacingBytes<'_> {
        assert!((frame.0 as usize) < self.frames.len());
        // SAFETY: `add` stays inside of the reservation, which has room for all frames (checked above). What `RacingBytes::new`
        // asks for, in its order. Alignment and length: `page_bytes` is a power of two from 512 on (`new`), and frames are multiples
        // of it from the start of a page of the system. Initialised and valid: the arena's memory reads as zeros before its first
        // write, and lives as long as the pool, which the view borrows. Access: nothing else makes pointers to this memory, so
        // every access goes through such a view, and who writes through one has the frame's latch exclusively.
        unsafe {
            let start = self.memory.base().add(frame.0 as usize * self.page_bytes);
            RacingBytes::new(start, self.page_bytes)
        }
    }

    unsafe fn mark_dirty(&self, frame: FrameId, _epoch: Epoch) {
        debug_assert!(self.head(frame).latch.is_exclusive());
        if self.panics_in.load(Ordering::Relaxed) > 0
            && self.panics_in.fetch_sub(1, Ordering::Relaxed) == 1
        {
            std::panic::resume_unwind(Box::new("a test's panic"));
        }
    }
}

impl Pages for MemoryPool {
    type Session<'p> = MemorySession<'p>;

    #[inline]
    fn session_within<'p>(&'p self, _: &'p Waiting<'p>) -> MemorySession<'p> {
        MemorySession { pool: self, reserved: Vec::new(), pinned: Vec::new() }
    }

    fn scan_tally(&self, frame: FrameId) -> Option<&ScanTally> {
        self.frames.get(frame.0 as usize).map(|frame| &frame.tally)
    }

    #[inline(always)]
    fn contention(&self, frame: FrameId) -> Option<&Contention> {
        self.frames.get(frame.0 as usize).map(|frame| &frame.contention)
    }

    fn contention_counters(&self) -> Option<&ContentionCounters> {
        Some(&self.contention)
    }

    fn adaptation(&self) -> Option<&Adaptation> {
        Some(&self.adaptation)
    }

    fn free(&self, mut page: ExclusivePage<'_, Self>, epoch: Epoch) {
        let id = page.id();
        if header::level(page.bytes()) == 0 {
            let records = plain_leaf(page.bytes()).count() as u64;
            self.moved.fetch_add(records, Ordering::Relaxed);
        }
        header::initialise(page.write(epoch), id, TreeId(0));
        let (frame, id, guard) = page.into_guard();
        self.frames[frame.0 as usize].page.store(PageId::NONE.0, Ordering::Relaxed);
        drop(guard);
        self.given_out.fetch_sub(1, Ordering::Relaxed);
        self.ids.lock().free.push(id);
    }
}

impl Journal for MemoryPool {
    type EpochGuard<'p> = MemoryEpoch;

    fn enter(&self) -> Result<MemoryEpoch> {
        Ok(MemoryEpoch)
    }

    fn poison(&self, _: &Error) {
        self.poisoned.store(true, Ordering::Relaxed);
    }

    fn append(&self, _: &MemoryEpoch, _: &Record<'_>) -> Lsn {
        Lsn(self.appended.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

impl Values for MemoryPool {}

impl MemorySession<'_> {
    /// Ends a pretended absence for the life of the session. Whether it was absent; `None` if there is no such page.
    fn pin(&mut self, id: PageId) -> Option<bool> {
        let at = id.0 as usize;
        let there = |f: &Frame| id != PageId::NONE && f.page.load(Ordering::Relaxed) == id.0;
        if !self.pool.frames.get(at).is_some_and(there) {
            return None;
        }
        let Some(absences) = &self.pool.absences else { return Some(false) };
        absences.pins[at].fetch_add(1, Ordering::AcqRel);
        self.pinned.push(id);
        let was_absent = absences.absent[at].swap(false, Ordering::AcqRel);
        absences.faults.fetch_add(u64::from(was_absent), Ordering::Relaxed);
        Some(was_absent)
    }

    /// The same of several pages with one submission. Whether all of them are there.
    fn read(&mut self, ids: &[PageId]) -> bool {
        let (mut is_read, mut are_there) = (false, true);
        for &id in ids {
            let pinned = self.pin(id);
            is_read |= pinned == Some(true);
            are_there &= pinned.is_some();
        }
        if let Some(absences) = &self.pool.absences {
            absences.reads.fetch_add(u64::from(is_read), Ordering::Relaxed);
        }
        are_there
    }
}

impl<'p> PoolSession<'p, MemoryPool> for MemorySession<'p> {
    fn fault(&mut self, id: PageId, _access: Access) -> Result<()> {
        if !self.pool.in_range(id) {
            return Err(Error::new(
                ErrorKind::Corrupted { page: Some(id), offset_bytes: None },
                "a page id out of range",
            ));
        }
        if self.read(&[id]) {
            Ok(())
        } else {
            Err(Error::signalling(Signal::PageFreed, "the page was freed"))
        }
    }

    fn hold_up_to(&mut self, pages: usize) -> Result<()> {
        if let Some(absences) = &self.pool.absences {
            absences.holds.lock().push(pages);
        }
        Ok(())
    }

    fn prefetch(&mut self, ids: &[PageId], _access: Access) -> Result<()> {
        self.read(ids);
        Ok(())
    }

    fn reserve(&mut self, count: usize) -> Result<()> {
        let mut ids = self.pool.ids.lock();
        while self.reserved.len() < count {
            if let Some(id) = ids.free.pop() {
                self.reserved.push(id);
                continue;
            }
            let id = ids.next;
            if id.0 as usize >= self.pool.frames.len() {
                return Err(Error::new(ErrorKind::MemoryLimit, "the heap of pages is full"));
            }
            ids.next = id
                .next()
                .ok_or_else(|| Error::new(ErrorKind::MemoryLimit, "there are no more page ids"))?;
            self.reserved.push(id);
        }
        Ok(())
    }

    fn take(&mut self, tree: TreeId, epoch: Epoch) -> Option<ExclusivePage<'p, MemoryPool>> {
        let id = self.reserved.pop()?;
        let frame = &self.pool.frames[id.0 as usize];
        // A free frame is latched only by somebody with a stale translation, who lets go at once.
        let guard = frame.latch.exclusive();
        if let Some(absences) = &self.pool.absences {
            absences.absent[id.0 as usize].store(false, Ordering::Release);
        }
        frame.tally.forget();
        frame.contention.forget();
        frame.page.store(id.0, Ordering::Relaxed);
        self.pool.given_out.fetch_add(1, Ordering::Relaxed);
        let mut page = ExclusivePage::latched(self.pool, FrameId(id.0), id, guard);
        let bytes = page.write(epoch);
        bytes.fill(0);
        header::initialise(bytes, id, tree);
        header::set_epoch(bytes, epoch);
        Some(page)
    }
}

impl Drop for MemorySession<'_> {
    fn drop(&mut self) {
        if !self.reserved.is_empty() {
            self.pool.ids.lock().free.append(&mut self.reserved);
        }
        if let Some(absences) = &self.pool.absences {
            for id in self.pinned.drain(..) {
                absences.pins[id.0 as usize].fetch_sub(1, Ordering::AcqRel);
            }
        }
    }
}
