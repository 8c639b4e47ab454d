//! The buffer pool: a fixed number of frames, and the table that tells which page is where.
//!
//! Page `p` prefers frame `p mod frames`. A look-up *guesses* that frame and branches on the table's
//! word, so that the processor runs ahead into the frame while the word is still on its way
//! (predictive translation). An evicted frame stays mapped and its latch's version only grows: an
//! optimistic reader who is late reads bytes of another page, and fails to validate.
//!
//! Invariants:
//! - who holds a frame's exclusive latch is the only one who changes its header, its bytes and the
//!   table word of the page in it (the words' transitions: `table.rs`);
//! - a dirty page is never moved between frames, and never evicted before its image is in a slot;
//! - no latch is held across I/O but that of a frame in state *faulting* or without a page, which no traversal holds, and
//!   for a write of a page that cannot be written otherwise (`retire.rs`);
//! - frames, headers, table, write buffers and deltas together stay inside of the memory limit;
//! - nothing here is touched, looked at or built because the limit allows for it: making a pool, a flush and the end of
//!   a pool cost what is used of it.
//!
//! `Send + Sync`: the pool is shared by all threads of a database. One background thread (`evict.rs`), once
//! it is wanted, keeps frames free ahead of demand; others read for scans (`read_ahead.rs`).

use crate::buffer::admission::{Admission, Ahead};
use crate::buffer::ahead_queue::AheadQueue;
use crate::buffer::budget::Budget;
use crate::buffer::counters::Counters;
use crate::buffer::evictor::EvictorState;
use crate::buffer::failures::Failures;
use crate::buffer::frame::{FrameHeader, SideEntry};
use crate::buffer::free_list::FreeList;
use crate::buffer::large::{OldValues, PieceIndex};
use crate::buffer::old_versions::PoolVersions;
use crate::buffer::order::Order;
use crate::buffer::slabs::HandOver;
use crate::buffer::table::{PART_READS, PartSpace, Place, Table};
use crate::buffer::used::Used;
use crate::buffer::zeroed::ZeroedArray;
use crate::error::{Error, ErrorKind, RAISE_LIMIT, Result};
use crate::events;
use crate::page::epoch::Epochs;
use crate::page::header::{self};
use crate::page::{Adaptation, AdaptationStats, FrameId};
use crate::space::page_ids::PageIds;
use crate::space::slot_store::SlotStore;
use crate::storage::AlignedBuffer;
use crate::storage::arena::Arena;
use crate::types::{Epoch, Lsn, PageId, Slot};
use hedgerow_sync::latch::ExclusiveGuard;
use hedgerow_sync::optimistic::RacingBytes;
use hedgerow_sync::primitive::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use hedgerow_sync::primitive::atomic::{AtomicBool, AtomicU32, AtomicUsize};
use hedgerow_sync::primitive::buggify::{Point, buggify};
use hedgerow_sync::primitive::{Arc, Mutex, OnceLock, Weak};

/// How a pool is made.
pub struct PoolOptions {
    /// Bytes that pool, table, buffers and deltas may take together.
    pub memory_limit_bytes: u64,
    /// Bytes of a page.
    pub page_bytes: usize,
    /// The epoch in which the first change is made.
    pub first_epoch: Epoch,
    /// Bytes of changed pages that make a checkpoint due.
    pub checkpoint_bytes: u64,
    /// Nothing is written, and nothing may be changed but by [`BufferPool::change_in_memory`].
    pub read_only: bool,
    /// There will be a log.
    pub logged: bool,
    /// Changes that are not logged are counted from here on.
    pub first_lsn: Lsn,
}

/// The pool. See the head of the file.
pub struct BufferPool {
    pub(super) arena: Arena,
    headers: ZeroedArray<FrameHeader>,
    side: ZeroedArray<SideEntry>,
    pub(super) used: Used,
    pub(super) table: Table,
    pub(super) page_bytes: usize,
    page_shift: u32,
    pub(super) frames: u32,
    /// `2^64 / frames`, rounded up: the remainder by multiplication instead of division.
    reciprocal: u64,
    /// Frames from here on belong to the page table.
    pub(super) top: AtomicU32,
    pub(super) part_reads: [Mutex<()>; PART_READS],
    pub(super) part_space: Mutex<PartSpace>,
    pub(super) free: FreeList,
    pub(super) dirty: AtomicUsize,
    pub(super) images_under_way: AtomicUsize,
    pub(super) clock_hand: AtomicU32,
    pub(super) evictor: EvictorState,
    pub(super) ahead: AheadQueue,
    pub(super) failures: Failures,
    pub(super) admission: Admission,
    pub(super) counters: Counters,
    pub(super) adaptation: Adaptation,
    pub(super) handed: HandOver,
    /// Where pieces of values may be; `None` in a store that lives in memory, whose records know.
    pub(super) pieces: Option<PieceIndex>,
    /// Of a store that lives in memory: there may be values in a stored form.
    pub(super) holds_values: AtomicBool,
    pub(super) evict_buffer: Mutex<AlignedBuffer>,
    pub(super) flush_buffer: Mutex<AlignedBuffer>,
    /// Where images go; `None` in a store that lives in memory alone, whose pages stay.
    pub(super) slots: Option<Arc<SlotStore>>,
    pub(super) ids: Mutex<PageIds>,
    epochs: Epochs,
    budget: Budget,
    /// Pages changed since the last checkpoint that make the next one due.
    checkpoint_pages: u64,
    /// Nothing is written.
    pub(super) read_only: bool,
    /// Nothing may be changed.
    pub(super) frozen: AtomicBool,
    poisoned: AtomicBool,
    poison: Mutex<Option<Error>>,
    closed: AtomicBool,
    /// A log is being replayed.
    pub(super) replaying: AtomicBool,
    /// Where changes are logged, from the moment when there is a log, and what orders them without.
    pub(super) order: Order,
    /// What records were before, for snapshots.
    pub(super) versions: OnceLock<PoolVersions>,
    /// Values of a store in memory that were replaced and that snapshots may see, and when that was.
    pub(super) old_values: Mutex<OldValues>,
    /// Frames that are lent for that.
    pub(super) lent_frames: AtomicU32,
    /// The pool itself, from when its threads may be started.
    started: OnceLock<Weak<BufferPool>>,
}

/// Side entries within which neighbours are kept apart.
const SIDE_BLOCK: usize = 16;

/// Where the side entry of a frame is. Four fit into a line of the cache, and writers count contention there: those of four
/// neighbouring frames, which often hold neighbouring leaves, are in four lines.
#[inline(always)]
fn side_place(frame: FrameId) -> usize {
    let at = frame.0 as usize;
    at & !(SIDE_BLOCK - 1) | (at & 3) << 2 | at >> 2 & 3
}

impl BufferPool {
    /// Makes a pool over `slots` (or over nothing: then no page can be evicted).
    ///
    /// Errors: `InvalidOption` if the memory limit is below the smallest that works;
    /// `MemoryLimit` if the system refuses the memory.
    pub fn new(
        options: &PoolOptions,
        slots: Option<Arc<SlotStore>>,
        ids: PageIds,
    ) -> Result<BufferPool> {
        let page_bytes = options.page_bytes;
        assert!(page_bytes.is_power_of_two() && page_bytes >= header::MIN_PAGE_BYTES);
        let budget = Budget::divide(
            options.memory_limit_bytes,
            page_bytes,
            slots.is_some(),
            options.logged,
        )?;
        let frames = budget.frames();
        let arena = Arena::reserve_frames(frames, page_bytes)?;
        let buffer = |pages: usize| AlignedBuffer::untouched(pages * page_bytes);
        let pool = BufferPool {
            arena,
            headers: ZeroedArray::new(frames as usize)?,
            side: ZeroedArray::new((frames as usize).next_multiple_of(SIDE_BLOCK))?,
            used: Used::new(frames)?,
            table: Table::new(frames)?,
            page_bytes,
            page_shift: page_bytes.trailing_zeros(),
            frames,
            reciprocal: u64::MAX / u64::from(frames) + 1,
            top: AtomicU32::new(frames),
            part_reads: std::array::from_fn(|_| Mutex::new(())),
            part_space: Mutex::new(PartSpace::default()),
            free: FreeList::new(frames)?,
            dirty: AtomicUsize::new(0),
            images_under_way: AtomicUsize::new(0),
            clock_hand: AtomicU32::new(0),
            evictor: EvictorState::new(),
            ahead: AheadQueue::new(),
            failures: Failures::new(),
            admission: Admission::new(),
            counters: Counters::default(),
            adaptation: Adaptation::default(),
            handed: {
                let owed = slots.as_ref().map(|slots| slots.owed()).unwrap_or_default();
                HandOver::new(owed, budget.copy_pages(), page_bytes)?
            },
            pieces: slots.as_ref().map(|_| PieceIndex::new(frames)).transpose()?,
            holds_values: AtomicBool::new(false),
            evict_buffer: Mutex::new(buffer(budget.batch_pages())?),
            flush_buffer: Mutex::new(buffer(budget.flush_pages())?),
            slots,
            ids: Mutex::new(ids),
            epochs: Epochs::new(options.first_epoch),
            budget,
            checkpoint_pages: (options.checkpoint_bytes / page_bytes as u64).max(1),
            read_only: options.read_only,
            frozen: AtomicBool::new(options.read_only),
            poisoned: AtomicBool::new(false),
            poison: Mutex::new(None),
            closed: AtomicBool::new(false),
            replaying: AtomicBool::new(false),
            order: Order::new(options.first_lsn),
            versions: OnceLock::new(),
            old_values: Mutex::default(),
            lent_frames: AtomicU32::new(0),
            started: OnceLock::new(),
        };
        match &pool.slots {
            Some(slots) => slots.set_loan_bytes(pool.budget.loan_bytes()),
            None => pool.set_aside_for_memory_store()?,
        }
        Ok(pool)
    }

    /// From now on threads may be started for the pool. Once.
    pub(super) fn set_started(&self, this: &Arc<BufferPool>) {
        let is_first = self.started.set(Arc::downgrade(this)).is_ok();
        assert!(is_first, "a pool is started once");
    }

    /// The pool, to start a thread for it. `None`: before that, and behind the end.
    pub(super) fn started(&self) -> Option<Arc<BufferPool>> {
        self.started.get().and_then(Weak::upgrade)
    }

    /// Header of a frame.
    #[inline(always)]
    pub(super) fn header(&self, frame: FrameId) -> &FrameHeader {
        // One bound for all arrays of frames: the compiler checks it once for several of them.
        assert!(frame.0 < self.frames);
        // SAFETY: there are as many headers as frames.
        unsafe { self.headers.items().get_unchecked(frame.0 as usize) }
    }

    /// Side entry of a frame.
    #[inline(always)]
    pub(super) fn side(&self, frame: FrameId) -> &SideEntry {
        assert!(frame.0 < self.frames);
        // SAFETY: `side_place` stays within a block, and the entries are whole blocks for all frames.
        unsafe { self.side.items().get_unchecked(side_place(frame)) }
    }

    /// First byte of a frame.
    #[inline(always)]
    pub(super) fn memory(&self, frame: FrameId) -> *mut u8 {
        assert!(frame.0 < self.frames);
        // SAFETY: the arena has `frames * page_bytes` bytes, and the frame is one of them.
        unsafe { self.arena.base().add((frame.0 as usize) << self.page_shift) }
    }

    /// The frame that the page goes to when it can: `id mod frames`.
    #[inline(always)]
    pub(super) fn preferred(&self, id: PageId) -> FrameId {
        // Lemire's remainder by multiplication; exact for 32-bit operands.
        let fraction = self.reciprocal.wrapping_mul(u64::from(id.0));
        FrameId(((u128::from(fraction) * u128::from(self.frames)) >> 64) as u32)
    }

    /// Number of frames that can hold pages now.
    pub fn frames(&self) -> u32 {
        self.top.load(Relaxed)
    }

    /// The frames that may hold a page: all of those groups of which a frame was ever used, in order.
    pub(super) fn used_frames(&self) -> impl Iterator<Item = FrameId> {
        let frames = self.used.groups().flat_map(|group| group.start..group.end.min(self.frames()));
        frames.map(FrameId)
    }

    /// Pages that are newer than their slots.
    pub fn dirty_pages(&self) -> usize {
        self.dirty.load(Relaxed)
    }

    /// Images whose slots are taken, and which nothing refers to yet.
    pub fn images_under_way(&self) -> usize {
        self.images_under_way.load(Acquire)
    }

    /// Pages that one thread may have under way at a time ahead of need: `most`, and an eighth of the
    /// frames that are not dirty. When dirty pages cannot be written (a full disk), the clean ones make
    /// room for all reads, and threads that read ahead would else keep them all latched.
    pub(super) fn pages_ahead(&self, most: usize) -> usize {
        let clean = (self.frames_for_pages() as usize).saturating_sub(self.dirty_pages());
        (clean / 8).clamp(1, most)
    }

    /// Asks for a checkpoint if so much has changed that one is due.
    pub fn request_checkpoint_if_due(&self) {
        self.request_checkpoint_at(self.dirty_pages());
        if let Some(slots) = &self.slots
            && slots.state().deltas.is_due()
        {
            slots.checkpoints().request_unless_running();
        }
    }

    #[inline]
    pub(super) fn request_checkpoint_at(&self, dirty: usize) {
        if let Some(slots) = &self.slots
            && (dirty as u64 + slots.images_for_next() >= self.checkpoint_pages
                || buggify(Point::Checkpoint))
        {
            slots.checkpoints().request_unless_running();
        }
    }

    /// Frames without a page.
    pub fn free_frames(&self) -> usize {
        self.free.count()
    }

    /// Bytes of the page table's parts.
    pub fn table_bytes(&self) -> u64 {
        (self.table_parts() * crate::types::PART_BYTES) as u64
    }

    /// What the memory limit was divided into.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// What has happened so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The epochs of writers.
    pub fn epochs(&self) -> &Epochs {
        &self.epochs
    }

    /// The allocator of page ids.
    pub fn ids(&self) -> &Mutex<PageIds> {
        &self.ids
    }

    /// From now on a value in a leaf may be in a stored form. Before the first one is put.
    pub fn expect_stored_forms(&self) {
        match &self.slots {
            Some(slots) => slots.expect_stored_forms(),
            None => self.holds_values.store(true, Release),
        }
    }

    /// Where images go.
    pub fn slots(&self) -> Option<&Arc<SlotStore>> {
        self.slots.as_ref()
    }

    /// After this, nothing is written any more and every change fails; reads go on.
    pub fn set_poisoned(&self, error: &Error) {
        let mut held = self.poison.lock();
        let is_first = held.is_none();
        let poison = held.get_or_insert_with(|| {
            let what = format!("the store takes no more changes after an earlier failure: {error}");
            Error::new(ErrorKind::Poisoned, what)
        });
        self.poisoned.store(true, Release);
        if let Some(log) = self.log() {
            log.refuse_to_wait(poison);
        }
        drop(held);
        if is_first {
            events::poisoned(error);
        }
    }

    /// The error that every change gets since a write failed, if one did.
    #[inline]
    pub fn check_poison(&self) -> Result<()> {
        if self.poisoned.load(Acquire) { self.poison_error() } else { Ok(()) }
    }

    #[cold]
    fn poison_error(&self) -> Result<()> {
        self.poison.lock().as_ref().map_or(Ok(()), |error| Err(error.duplicate()))
    }

    /// While a log is replayed, what was let in before the crash is let in again.
    pub fn set_replaying(&self, replaying: bool) {
        self.replaying.store(replaying, Relaxed);
    }

    /// Lets `change` change a pool that is read only: what it changes stays in memory, for nothing is written.
    /// Before anybody else uses the pool.
    pub fn change_in_memory<R>(&self, change: impl FnOnce() -> R) -> R {
        self.frozen.store(false, SeqCst);
        let outcome = change();
        self.frozen.store(true, SeqCst);
        outcome
    }

    /// Whether images may be written.
    ///
    /// Errors: `MemoryLimit` in a pool that is read only, whose dirty pages have to stay.
    pub(super) fn check_writable(&self) -> Result<()> {
        if self.read_only {
            let words = format!(
                "the changes of the log do not fit into memory, and a store that is open for reading only is \
                 not written: open it for writing once, or {RAISE_LIMIT}"
            );
            return Err(Error::new(ErrorKind::MemoryLimit, words));
        }
        Ok(())
    }

    /// After this, every change and every fault fails with `Closed`.
    pub fn set_closed(&self) {
        self.closed.store(true, SeqCst);
    }

    /// Whether the pool was closed.
    #[inline]
    pub fn check_open(&self) -> Result<()> {
        if self.closed.load(SeqCst) { Self::closed_error() } else { Ok(()) }
    }

    #[cold]
    fn closed_error() -> Result<()> {
        Err(Error::new(ErrorKind::Closed, "the database was closed"))
    }

    /// Lets the calling thread fault without waiting for others to be done, while this is kept: see
    /// `admission.rs`.
    pub fn go_ahead(&self) -> Ahead<'_> {
        self.admission.go_ahead()
    }

    /// What adaptation has done to the leaves.
    pub fn adaptation_values(&self) -> AdaptationStats {
        self.adaptation.values()
    }

    /// Where the last image of a page lies; `None` for a page that has none, or is not in use.
    /// Reads the page's part of the table if need be, and waits for a read of the page that is under
    /// way; the caller holds no latch. The answer may be old when it arrives.
    pub fn slot_of(&self, id: PageId) -> Result<Option<Slot>> {
        self.ensure_part(id)?;
        loop {
            let slot = match self.table.place(id) {
                Some(Place::Evicted(slot)) => slot,
                Some(place @ (Place::Resident(frame) | Place::Faulting(frame))) => {
                    // The latch, and the name under it: without them the frame could be emptied, or
                    // get another page, between the look at the word and the look at the header.
                    let header = self.header(frame);
                    let there = || self.table.place(id) == Some(place);
                    let latched = header.latch.shared_while(&mut || there());
                    if latched.is_none() || header.page() != id {
                        continue;
                    }
                    header.clean().0
                }
                Some(Place::Free) | None => return Ok(None),
            };
            return Ok(Some(slot).filter(|slot| !slot.is_none()));
        }
    }

    /// Evicts the clean page, or the piece of a value, of a frame whose exclusive latch the caller holds.
    pub(super) fn evict_latched(&self, frame: FrameId) {
        let header = self.header(frame);
        if let Some(name) = header.piece() {
            self.forget_piece(frame, name);
            header.clear();
            return;
        }
        let (slot, _) = header.clean();
        assert!(!header.is_dirty() && !slot.is_none(), "only a page that has a slot is evicted");
        self.table.set(header.page(), Place::Evicted(slot));
        header.clear();
        self.counters.evicted(1);
    }

    /// Puts a frame without a page back into use, and unlatches it.
    pub(super) fn release_frame(&self, frame: FrameId, guard: ExclusiveGuard<'_>) {
        let header = self.header(frame);
        header.clear();
        header.take_use();
        // Before the frame can be had: who takes it counts down.
        self.free.count_up();
        drop(guard);
        if self.side(frame).enlist() {
            self.free.push(frame);
        }
        self.evictor.frames_freed();
    }

    /// The frame that a word of the table names.
    #[inline(always)]
    pub(super) fn resident_elsewhere(&self, word: u64) -> Option<FrameId> {
        let Place::Resident(frame) = Place::from_word(word) else { return None };
        assert!(frame.0 < self.frames, "the table names frames of the pool");
        Some(frame)
    }

    /// The racing view of a frame.
    #[inline(always)]
    pub(super) fn racing(&self, frame: FrameId) -> RacingBytes<'_> {
        // SAFETY: `RacingBytes::new` asks for memory that is aligned, valid for reads and writes as long
        // as the view lives, and written only by the rules of its module: the frame is part of the
        // arena, which lives as long as the pool, and is written under its exclusive latch alone.
        unsafe { RacingBytes::new(self.memory(frame), self.page_bytes) }
    }
}
