//! The pool: its memory, and what the limit is divided into.
//!
//! A *place* is the right to have one page in memory: there are as many as the limit has room for. The
//! clock's array has an entry for each place, with the page that took it. A page that becomes resident has
//! put its id into an entry of its own before; an entry is emptied under the exclusive latch of the page
//! in it, after that page has been found, or made, absent. So there are never more resident pages than
//! places. A page that was freed leaves its entry behind until the clock comes by; if its id is given out
//! again meanwhile it has two, which does no harm.
//!
//! Invariants: a resident page is at `id * stride`; an absent page that is given out is in the file at
//! `id * page_bytes`; nothing is waited for while a page is latched, but the read into the page that
//! is latched for it. `Send + Sync`.

use super::pins::Pins;
use super::state::PageStates;
use hedgerow::internals::buffer::{Admission, PageMemory};
use hedgerow::internals::error::{Error, ErrorKind, Result};
use hedgerow::internals::storage::{AlignedBuffer, File};
use hedgerow::internals::types::PageId;
use hedgerow_sync::primitive::atomic::Ordering::Relaxed;
use hedgerow_sync::primitive::atomic::{AtomicU32, AtomicU64};
use hedgerow_sync::primitive::{Arc, Mutex};

/// Pages of a batch of eviction.
pub(super) const BATCH_PAGES: usize = 64;
/// A pool has at least so many places.
const MIN_PLACES: u64 = 64;

/// How a pool is made.
#[derive(Clone, Copy, Debug)]
pub struct VmcacheOptions {
    /// Bytes that resident pages and all that is known of pages may take together, the system's page
    /// tables included.
    pub memory_limit_bytes: u64,
    /// Bytes of a page.
    pub page_bytes: usize,
    /// Pages that there can be at most, in memory or not. Each costs some 17 bytes of the limit.
    pub max_pages: usize,
}

/// What the memory limit is spent on besides pages, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Latches and flags of all pages there can be.
    pub state_bytes: u64,
    /// The system's page tables for their addresses: 8 bytes for each page of the system's, which stay
    /// when the memory is given back.
    pub page_table_bytes: u64,
    /// The clock's entries and the list of free places.
    pub clock_bytes: u64,
    /// The write buffer, and the counts of pins.
    pub buffer_bytes: u64,
}

impl Metadata {
    /// All of it.
    pub fn total_bytes(&self) -> u64 {
        self.state_bytes + self.page_table_bytes + self.clock_bytes + self.buffer_bytes
    }
}

impl VmcacheOptions {
    /// Ids that are needed to have `max_pages` usable ones.
    fn ids(&self) -> usize {
        self.max_pages + self.max_pages / 64 + 16
    }

    /// Divides the limit: what is not for pages, and how many pages may be in memory.
    ///
    /// Errors: `InvalidOption` if the limit has room for fewer than 64.
    pub fn divide(&self) -> Result<(Metadata, u32)> {
        let ids = self.ids();
        let stride = PageMemory::stride_bytes(self.page_bytes) as u64;
        let state_bytes = PageStates::bytes_for(ids);
        let page_table_bytes = ids as u64 * (stride / rustix::param::page_size() as u64) * 8;
        let buffer_bytes = (BATCH_PAGES * self.page_bytes) as u64 + Pins::BYTES;
        let fixed = state_bytes + page_table_bytes + buffer_bytes;
        // An entry of the clock, and one of the list of free places.
        let per_place = 2 * size_of::<u32>() as u64;
        let places = self.memory_limit_bytes.saturating_sub(fixed) / (stride + per_place);
        if places < MIN_PLACES {
            let limit = self.memory_limit_bytes;
            let message = format!(
                "a memory limit of {limit} bytes is too small: {fixed} bytes are needed for what is \
                 known of {} pages, and {MIN_PLACES} of them must fit into the rest",
                self.max_pages
            );
            return Err(Error::new(ErrorKind::InvalidOption, message));
        }
        let places = places.min(ids as u64) as u32;
        let clock_bytes = u64::from(places) * per_place;
        Ok((Metadata { state_bytes, page_table_bytes, clock_bytes, buffer_bytes }, places))
    }
}

/// What a pool has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Pages read into memory.
    pub faults: u64,
    /// Pages whose memory was given back.
    pub evictions: u64,
    /// Pages written.
    pub pages_written: u64,
    /// Calls of `madvise` that gave memory back.
    pub discard_calls: u64,
}

#[derive(Default)]
pub(super) struct Counters {
    pub(super) faults: AtomicU64,
    pub(super) evictions: AtomicU64,
    pub(super) pages_written: AtomicU64,
    pub(super) discard_calls: AtomicU64,
}

/// Page ids that may be given out.
struct Ids {
    free: Vec<PageId>,
    next: PageId,
}

/// The pool; see the head of this file.
pub struct VmcachePool {
    pub(super) memory: PageMemory,
    pub(super) states: PageStates,
    pub(super) page_bytes: usize,
    /// The page in each place, or [`PageId::NONE`].
    pub(super) clock: Box<[AtomicU32]>,
    pub(super) hand: AtomicU32,
    pub(super) free_places: Mutex<Vec<u32>>,
    pub(super) pins: Pins,
    pub(super) admission: Admission,
    ids: Mutex<Ids>,
    /// Ids below this one were given out at some time.
    pub(super) next_id: AtomicU32,
    pub(super) max_id: u32,
    pub(super) pages: AtomicU64,
    pub(super) counters: Counters,
    pub(super) write_buffer: Mutex<AlignedBuffer>,
    pub(super) file: Arc<dyn File>,
    metadata: Metadata,
}

impl VmcachePool {
    /// A pool without pages, which keeps those that are not in memory in `file`, from its start on.
    /// What is in the file does not matter, and is worth nothing afterwards.
    ///
    /// Errors: `InvalidOption` if the limit is too small for so many pages, or the file's block is
    /// larger than a page; `MemoryLimit` if the system refuses the address space.
    pub fn new(options: &VmcacheOptions, file: Arc<dyn File>) -> Result<VmcachePool> {
        let page_bytes = options.page_bytes;
        if !page_bytes.is_multiple_of(file.block_bytes()) {
            let message = format!("pages of {page_bytes} bytes are no blocks of the file");
            return Err(Error::new(ErrorKind::InvalidOption, message));
        }
        let (metadata, places) = options.divide()?;
        let ids = options.ids();
        let max_id = u32::try_from(ids).map_err(|_| {
            Error::new(ErrorKind::InvalidOption, "there are more pages than page ids")
        })?;
        Ok(VmcachePool {
            memory: PageMemory::reserve(page_bytes, ids)?,
            states: PageStates::new(ids),
            page_bytes,
            clock: (0..places).map(|_| AtomicU32::new(PageId::NONE.0)).collect(),
            hand: AtomicU32::new(0),
            free_places: Mutex::new((0..places).rev().collect()),
            pins: Pins::new(),
            admission: Admission::new(),
            ids: Mutex::new(Ids { free: Vec::new(), next: PageId::CATALOGUE_ROOT }),
            next_id: AtomicU32::new(PageId::CATALOGUE_ROOT.0),
            max_id,
            pages: AtomicU64::new(0),
            counters: Counters::default(),
            write_buffer: Mutex::new(AlignedBuffer::zeroed(BATCH_PAGES * page_bytes)?),
            file,
            metadata,
        })
    }

    /// Pages that can be in memory at a time.
    pub fn places(&self) -> u32 {
        self.clock.len() as u32
    }

    /// What the limit is spent on besides pages.
    pub fn metadata(&self) -> Metadata {
        self.metadata
    }

    /// Pages that are given out and not freed.
    pub fn pages(&self) -> u64 {
        self.pages.load(Relaxed)
    }

    /// What has happened so far; the counts belong to slightly different moments.
    pub fn counts(&self) -> Counts {
        let counters = &self.counters;
        Counts {
            faults: counters.faults.load(Relaxed),
            evictions: counters.evictions.load(Relaxed),
            pages_written: counters.pages_written.load(Relaxed),
            discard_calls: counters.discard_calls.load(Relaxed),
        }
    }

    /// Where the page lies in the file.
    pub(super) fn offset_bytes(&self, id: PageId) -> u64 {
        u64::from(id.0) * self.page_bytes as u64
    }

    /// An id for a new page. Errors: `DiskFull` if all are in use.
    pub(super) fn allocate_id(&self) -> Result<PageId> {
        let mut ids = self.ids.lock();
        if let Some(id) = ids.free.pop() {
            return Ok(id);
        }
        let id = ids.next;
        let next = id.next().filter(|next| next.0 <= self.max_id).ok_or_else(|| {
            Error::new(ErrorKind::DiskFull, "as many pages are in use as there can be")
        })?;
        ids.next = next;
        self.next_id.store(next.0, Relaxed);
        Ok(id)
    }

    /// Takes back ids that no page has.
    pub(super) fn release_ids(&self, unused: impl Iterator<Item = PageId>) {
        self.ids.lock().free.extend(unused);
    }

    /// Counts a page that was given out.
    pub(super) fn count_page(&self) {
        self.pages.fetch_add(1, Relaxed);
    }
}

impl std::fmt::Debug for VmcachePool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VmcachePool")
            .field("page_bytes", &self.page_bytes)
            .field("places", &self.places())
            .field("pages", &self.pages())
            .field("counts", &self.counts())
            .finish_non_exhaustive()
    }
}
