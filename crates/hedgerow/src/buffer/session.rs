//! One operation's account with the pool: faults, prefetches, and reservations of fresh pages.
//!
//! Invariants: a session that has faulted or reserved is admitted (`admission.rs`) until it is dropped;
//! it keeps at most [`FRAMES_EACH`] pages pinned, the latest ones, and those that it holds, for which it has the places of
//! more operations. The frames of a reservation are
//! latched exclusively and hold no page; a thread that had begun to wait for a page which was there
//! before sees that it has gone, and stops waiting. Whoever calls a method here holds
//! no latch and no epoch, for all of them may wait. Not shared between threads.

use crate::buffer::admission::FRAMES_EACH;
use crate::buffer::frame::header_line;
use crate::buffer::pool::BufferPool;
use crate::buffer::table::Place;
use crate::error::{Error, ErrorKind, Result, Signal};
use crate::page::header;
use crate::page::{Access, ExclusivePage, FrameHead, FrameId, Frames, PageSource, PoolSession};
use crate::storage::{AlignedBuffer, ReadRequest};
use crate::types::{Epoch, PageId, Slot, TreeId};
use crate::wait::Waiting;
use hedgerow_sync::latch::ExclusiveGuard;
use hedgerow_sync::optimistic;
use std::collections::BTreeMap;

/// Rounds of finding a page elsewhere before a fault gives up; each but the first few follows a wait.
const FAULT_ROUNDS: usize = 10_000;
/// Pages read with one submission at most.
const PREFETCH_PAGES: usize = 64;
/// Parts of the map that are read for free page ids before a page gets a new one.
const PARTS_SEARCHED: usize = 4;
/// Bytes of private copies that pages are read into at a time, where readers may look at a frame only while words are stored in it.
const COPIES_BYTES: usize = 256 << 10;

struct Reserved<'p> {
    id: PageId,
    frame: FrameId,
    guard: ExclusiveGuard<'p>,
}

/// A page that is being read: its frame is latched, its word says *faulting*. The guard is of the frame's latch.
pub(super) struct Faulting<'p> {
    pub(super) id: PageId,
    pub(super) slot: Slot,
    pub(super) frame: FrameId,
    guard: ExclusiveGuard<'p>,
    fault: u32,
}

/// See the head of the file.
pub struct Session<'p> {
    pub(super) pool: &'p BufferPool,
    /// How it waits for all but reads.
    waiting: &'p Waiting<'p>,
    /// Of how many operations it has the place; none: it was not admitted.
    admitted: usize,
    pins: [Option<FrameId>; FRAMES_EACH],
    next_pin: usize,
    /// Pages that it holds, pinned beside the latest ones.
    held: BTreeMap<PageId, FrameId>,
    held_most: usize,
    reserved: Vec<Reserved<'p>>,
}

impl<'p> Session<'p> {
    pub(super) fn new(pool: &'p BufferPool, waiting: &'p Waiting<'p>) -> Session<'p> {
        Session {
            pool,
            waiting,
            admitted: 0,
            pins: [None; FRAMES_EACH],
            next_pin: 0,
            held: BTreeMap::new(),
            held_most: 0,
            reserved: Vec::new(),
        }
    }

    fn admit(&mut self) -> Result<()> {
        self.pool.check_open()?;
        if self.admitted == 0 {
            self.pool.admission.enter(|| self.pool.frames_for_pages(), 1, self.waiting)?;
            self.admitted = 1;
        }
        Ok(())
    }

    /// Lets go of all pages, and of its place.
    fn let_go(&mut self) {
        let pins = self.pins.iter_mut().filter_map(Option::take);
        for frame in pins.chain(std::mem::take(&mut self.held).into_values()) {
            self.pool.side(frame).unpin();
        }
        for id in self.release_reserved() {
            self.pool.ids.lock().free(id);
        }
        if self.admitted > 0 {
            self.pool.admission.leave(std::mem::take(&mut self.admitted));
        }
    }

    /// As [`BufferPool::ensure_part`]. A new part may have to empty the very frames that this session
    /// has reserved, or wait for another thread's part, which may: so they go back meanwhile.
    pub(super) fn ensure_part(&mut self, id: PageId) -> Result<()> {
        if self.pool.table.is_loaded(id.part()) {
            return Ok(());
        }
        let ids = self.release_reserved();
        let ensured = self.pool.ensure_part(id);
        self.reserve_frames(ids)?;
        ensured
    }

    /// Gives the frames of the reservation back; the ids are the caller's.
    fn release_reserved(&mut self) -> Vec<PageId> {
        let pool = self.pool;
        let release = |Reserved { id, frame, guard }| {
            pool.release_frame(frame, guard);
            id
        };
        self.reserved.drain(..).map(release).collect()
    }

    /// Reserves a frame for each of these ids, whose parts are loaded. After an error those that got
    /// none are free again.
    fn reserve_frames(&mut self, ids: Vec<PageId>) -> Result<()> {
        let mut outcome = Ok(());
        for id in ids {
            match outcome.and_then(|()| self.pool.obtain_frame(id, self.waiting)) {
                Ok((frame, guard)) => {
                    self.reserved.push(Reserved { id, frame, guard });
                    outcome = Ok(());
                }
                Err(error) => {
                    self.pool.ids.lock().free(id);
                    outcome = Err(error);
                }
            }
        }
        outcome
    }

    /// Pins a page that is said to be in `frame`; false if it is not (any more).
    pub(super) fn keep(&mut self, id: PageId, frame: FrameId) -> bool {
        self.pool.side(frame).pin();
        if self.pool.header(frame).page() != id {
            self.pool.side(frame).unpin();
            return false;
        }
        let slot = &mut self.pins[self.next_pin];
        if let Some(oldest) = slot.replace(frame) {
            self.pool.side(oldest).unpin();
        }
        self.next_pin = (self.next_pin + 1) % FRAMES_EACH;
        true
    }

    /// Waits for the thread that reads the page in. An error is that thread's.
    fn wait_for(&self, id: PageId, frame: FrameId) -> Result<()> {
        let fault = self.pool.side(frame).fault();
        if self.pool.table.place(id) != Some(Place::Faulting(frame)) {
            return Ok(());
        }
        let mut waits = 0;
        let latched = self.pool.header(frame).latch.shared_while(&mut || {
            waits += 1;
            waits < super::evict::FRAME_WAITS
                && self.pool.table.place(id) == Some(Place::Faulting(frame))
        });
        drop(latched);
        match self.pool.failures.find(id, frame, fault) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Takes a frame and the right to read the page into it; `None` if somebody else was first.
    pub(super) fn begin(&self, id: PageId, slot: Slot, wait: bool) -> Result<Option<Faulting<'p>>> {
        let taken = match wait {
            true => Some(self.pool.obtain_frame(id, self.waiting)?),
            false => self.pool.try_obtain_frame(id),
        };
        let Some((frame, guard)) = taken else { return Ok(None) };
        let fault = self.pool.side(frame).begin_fault();
        if self.pool.table.exchange(id, Place::Evicted(slot), Place::Faulting(frame)) {
            return Ok(Some(Faulting { id, slot, frame, guard, fault }));
        }
        self.pool.release_frame(frame, guard);
        Ok(None)
    }

    /// Makes the page visible, or puts it back where it was.
    pub(super) fn finish(
        &mut self,
        page: Faulting<'p>,
        read: Result<()>,
        access: Access,
    ) -> Result<()> {
        let pool = self.pool;
        let read = read.map_err(|error| error.at_place(Some(page.id), page.slot.offset_bytes()));
        let checked = read.and_then(|()| pool.unfold(&page));
        let Faulting { id, slot, frame, guard, fault } = page;
        let epoch = || {
            // SAFETY: `as_slice` asks that nobody writes meanwhile: `guard` is of the frame's latch.
            let epoch = header::epoch(unsafe { pool.bytes(frame).as_slice() });
            match epoch <= pool.epochs().current() {
                true => Ok(epoch),
                false => Err(Error::corrupted_page(id, "its epoch has not begun yet")),
            }
        };
        let epoch = match checked.and_then(|()| epoch()) {
            Ok(epoch) => epoch,
            Err(error) => {
                // Who has closed the file may have given it to somebody else, whose bytes these are.
                let error = pool.check_open().err().unwrap_or(error);
                pool.failures.record(id, frame, fault, &error);
                pool.table.set(id, Place::Evicted(slot));
                pool.release_frame(frame, guard);
                return Err(error);
            }
        };
        let header = pool.header(frame);
        header.set_page(id);
        header.set_clean(slot, epoch);
        pool.side(frame).forget_use();
        if access == Access::Point {
            header.note_use();
        }
        pool.counters.faulted(frame == pool.preferred(id));
        pool.table.set(id, Place::Resident(frame));
        drop(guard);
        Ok(())
    }
}

impl BufferPool {
    /// Whether a slot has the length of an image.
    pub(super) fn is_image_slot(&self, slot: Slot) -> bool {
        self.slots.as_ref().is_some_and(|slots| slots.is_image_slot(slot))
    }

    /// A page id for a new page, the lowest that is known to be free; reads a few parts of the map to find
    /// free ones where that is worthwhile.
    fn allocate_id(&self) -> Result<PageId> {
        for read in 0.. {
            let scan = {
                let mut ids = self.ids.lock();
                // The search goes on with the next page. Only without other ids it goes on now.
                let goes_on = read < PARTS_SEARCHED || ids.next_id().is_none();
                match ids.wants_scan().filter(|_| goes_on) {
                    Some(part) => part,
                    None => match ids.allocate() {
                        Some(id) => return Ok(id),
                        None => break,
                    },
                }
            };
            let words = match &self.slots {
                Some(slots) => slots.read_map_part(scan)?,
                None => None,
            };
            let is_free = |word: usize| words.as_ref().is_none_or(|words| words[word] == 0);
            self.ids.lock().scanned(scan, is_free);
        }
        Err(Error::new(ErrorKind::DiskFull, "all page ids are in use"))
    }

    /// Reads the image of one page into a latched frame.
    fn read_image(&self, page: &Faulting<'_>) -> Result<()> {
        let slots = self.slots.as_ref().expect("a page without a file is never evicted");
        if optimistic::WRITERS_PUBLISH {
            let mut copy = AlignedBuffer::zeroed(self.page_bytes)?;
            let image = &mut copy[..page.slot.len_bytes() as usize];
            slots.file().read_at(page.slot.offset_bytes(), image)?;
            // SAFETY: `publish` asks for the one writer, without a slice of the bytes: the frame's exclusive
            // latch lies in `page`.
            unsafe { self.bytes(page.frame).publish(&copy) };
            return Ok(());
        }
        // SAFETY: `as_mut_slice` asks for the one writer: the frame's exclusive latch is held, and the
        // guard lies in `page`, which outlives the slice.
        let bytes = unsafe { self.bytes(page.frame).as_mut_slice() };
        slots.file().read_at(page.slot.offset_bytes(), &mut bytes[..page.slot.len_bytes() as usize])
    }

    /// Makes a sound page of the frame's bytes, if they are the image that the slot was made for.
    fn unfold(&self, page: &Faulting<'_>) -> Result<()> {
        let slots = self.slots.as_ref().expect("a page without a file is never evicted");
        if optimistic::WRITERS_PUBLISH {
            // SAFETY: `as_slice` asks that nobody writes meanwhile: the frame's exclusive latch lies in `page`.
            let mut copy = unsafe { self.bytes(page.frame).as_slice() }.to_vec();
            slots.unfold(page.id, page.slot, &mut copy)?;
            // SAFETY: `publish` asks for the one writer, without a slice of the bytes: the latch lies in `page`.
            unsafe { self.bytes(page.frame).publish(&copy) };
            return Ok(());
        }
        // SAFETY: `as_mut_slice` asks for the one writer: the frame's exclusive latch lies in `page`, which outlives the
        // slice.
        slots.unfold(page.id, page.slot, unsafe { self.bytes(page.frame).as_mut_slice() })
    }
}

impl<'p> PoolSession<'p, BufferPool> for Session<'p> {
    fn fault(&mut self, id: PageId, access: Access) -> Result<()> {
        self.admit()?;
        self.ensure_part(id)?;
        for _ in 0..FAULT_ROUNDS {
            match self.pool.table.place(id) {
                Some(Place::Resident(frame)) => {
                    if self.keep(id, frame) {
                        return Ok(());
                    }
                }
                Some(Place::Faulting(frame)) => self.wait_for(id, frame)?,
                Some(Place::Evicted(slot)) => {
                    if !self.pool.is_image_slot(slot) {
                        return Err(Error::corrupted_page(id, "its slot has a wrong length"));
                    }
                    let Some(page) = self.begin(id, slot, true)? else { continue };
                    let frame = page.frame;
                    let read = self.pool.read_image(&page);
                    self.finish(page, read, access)?;
                    if self.keep(id, frame) {
                        return Ok(());
                    }
                }
                Some(Place::Free) | None => {
                    if !self.pool.in_range(id) {
                        return Err(Error::corrupted_page(id, "no such page was ever given out"));
                    }
                    // Freed since the operation read its id, or the tree is damaged: the operation
                    // knows whether it reads the same id again.
                    return Err(Error::signalling(Signal::PageFreed, format!("{id} is free")));
                }
            }
        }
        let what =
            "a page left memory as often as it was read; try again, or raise the memory limit";
        Err(Error::new(ErrorKind::Timeout, what))
    }

    fn let_go(&mut self) {
        Session::let_go(self);
    }

    fn hold_up_to(&mut self, pages: usize) -> Result<()> {
        self.let_go();
        self.pool.check_open()?;
        let places = 1 + pages.div_ceil(FRAMES_EACH);
        self.pool.admission.enter(|| self.pool.frames_for_pages(), places, self.waiting)?;
        (self.admitted, self.held_most) = (places, pages);
        Ok(())
    }

    fn hold(&mut self, id: PageId) -> Result<()> {
        if self.held.get(&id).is_some_and(|frame| self.pool.header(*frame).page() == id) {
            return Ok(());
        }
        // What it held was split or merged away.
        if self.held.len() >= self.held_most {
            for frame in std::mem::take(&mut self.held).into_values() {
                self.pool.side(frame).unpin();
            }
        }
        self.fault(id, Access::Point)?;
        let latest = (self.next_pin + FRAMES_EACH - 1) % FRAMES_EACH;
        let pinned = self.pins[latest].take();
        if let Some(stale) = pinned.and_then(|frame| self.held.insert(id, frame)) {
            self.pool.side(stale).unpin();
        }
        Ok(())
    }

    fn prefetch(&mut self, ids: &[PageId], access: Access) -> Result<()> {
        self.admit()?;
        let ids = &ids[..ids.len().min(self.pool.pages_ahead(PREFETCH_PAGES))];
        let mut begun = Vec::new();
        for id in ids {
            // A page whose part cannot be had is left out below; its own fault says why.
            if self.pool.in_range(*id) && self.ensure_part(*id).is_err() {
                continue;
            }
        }
        for id in ids {
            if let Some(Place::Evicted(slot)) = self.pool.table.place(*id) {
                if !self.pool.is_image_slot(slot) {
                    continue;
                }
                // What was begun is read in any case: others may wait for it.
                match self.begin(*id, slot, false) {
                    Ok(Some(page)) => begun.push(page),
                    Ok(None) => {}
                    Err(_) => break,
                }
            }
        }
        // Neighbours in the file are read with one call.
        begun.sort_unstable_by_key(|page: &Faulting<'_>| page.slot.offset_bytes());
        if optimistic::WRITERS_PUBLISH {
            self.read_copies(begun, access);
            return Ok(());
        }
        if begun.len() <= 1 {
            for page in begun {
                let read = self.pool.read_image(&page);
                // A page that cannot be read says so when it is faulted in.
                drop(self.finish(page, read, access));
            }
            return Ok(());
        }
        let slots = self.pool.slots.as_ref().expect("a page without a file is never evicted");
        let mut requests: Vec<ReadRequest<'_>> = begun
            .iter()
            .map(|page| {
                // SAFETY: `as_mut_slice` asks for the one writer: each frame's exclusive latch lies in
                // `begun`, which outlives the requests, and the frames differ.
                let bytes = unsafe { self.pool.bytes(page.frame).as_mut_slice() };
                let image = &mut bytes[..page.slot.len_bytes() as usize];
                ReadRequest::new(page.slot.offset_bytes(), image)
            })
            .collect();
        slots.file().read_batch(&mut requests);
        let results: Vec<Result<()>> = requests.into_iter().map(|r| r.result).collect();
        for (page, read) in begun.into_iter().zip(results) {
            if self.finish(page, read, access).is_err() {
                continue;
            }
        }
        Ok(())
    }

    fn fault_stream(&mut self, pages: &mut dyn PageSource, access: Access) -> Result<()> {
        self.admit()?;
        if self.pool.slots.is_some() && !optimistic::WRITERS_PUBLISH {
            self.stream(pages, access);
            return Ok(());
        }
        // Through private copies, some at a time.
        loop {
            let ids: Vec<PageId> =
                std::iter::from_fn(|| pages.next_page()).take(PREFETCH_PAGES).collect();
            if ids.is_empty() {
                return Ok(());
            }
            if self.pool.slots.is_some() {
                // Whatever it cannot have says so below.
                drop(self.prefetch(&ids, access));
            }
            for id in ids {
                let outcome = self.fault(id, access);
                pages.page_ready(id, outcome);
            }
        }
    }

    fn reserve(&mut self, count: usize) -> Result<()> {
        assert!(count <= FRAMES_EACH, "an operation reserves a few pages at most");
        self.admit()?;
        self.pool.check_poison()?;
        if self.reserved.is_empty()
            && let Some(slots) = &self.pool.slots
            && !self.pool.read_only
        {
            // Better now than in `enter`, with frames latched.
            slots.checkpoints().wait_for_delta_room(self.waiting)?;
        }
        while self.reserved.len() < count {
            let id = self.pool.allocate_id()?;
            if let Err(error) = self.ensure_part(id) {
                self.pool.ids.lock().free(id);
                return Err(error);
            }
            self.reserve_frames(vec![id])?;
        }
        Ok(())
    }

    fn take(&mut self, tree: TreeId, epoch: Epoch) -> Option<ExclusivePage<'p, BufferPool>> {
        let reserved = self.reserved.pop()?;
        Some(self.make_page(reserved, tree, epoch))
    }

    fn take_apart(
        &mut self,
        tree: TreeId,
        epoch: Epoch,
        from: &[FrameId],
    ) -> Option<ExclusivePage<'p, BufferPool>> {
        let nearest = |frame: FrameId| from.iter().map(|other| frame.0.abs_diff(other.0)).min();
        let is_apart =
            |frame: FrameId| from.iter().all(|other| header_line(frame) != header_line(*other));
        let frames = self.reserved.iter().map(|reserved| reserved.frame).enumerate();
        // The farthest: the entries that sampled writes change are neighbours as well.
        let (at, _) = frames
            .filter(|(_, frame)| is_apart(*frame))
            .max_by_key(|(_, frame)| nearest(*frame))?;
        let reserved = self.reserved.swap_remove(at);
        Some(self.make_page(reserved, tree, epoch))
    }
}

impl<'p> Session<'p> {
    /// Reads pages into private copies, many with one call, and publishes these in their frames. One that cannot be read says so when it is
    /// faulted in.
    fn read_copies(&mut self, begun: Vec<Faulting<'p>>, access: Access) {
        let slots = self.pool.slots.as_ref().expect("a page without a file is never evicted");
        let page_bytes = self.pool.page_bytes;
        let mut begun = begun.into_iter();
        loop {
            let pages: Vec<Faulting<'p>> =
                begun.by_ref().take((COPIES_BYTES / page_bytes).max(1)).collect();
            if pages.is_empty() {
                return;
            }
            let mut copies = match AlignedBuffer::zeroed(pages.len() * page_bytes) {
                Ok(copies) => copies,
                Err(error) => {
                    for page in pages {
                        drop(self.finish(page, Err(error.duplicate()), access));
                    }
                    continue;
                }
            };
            let mut requests: Vec<ReadRequest<'_>> = pages
                .iter()
                .zip(copies.chunks_exact_mut(page_bytes))
                .map(|(page, copy)| {
                    let image = &mut copy[..page.slot.len_bytes() as usize];
                    ReadRequest::new(page.slot.offset_bytes(), image)
                })
                .collect();
            slots.file().read_batch(&mut requests);
            let results: Vec<Result<()>> = requests.into_iter().map(|r| r.result).collect();
            let copies = copies.chunks_exact(page_bytes);
            for ((page, copy), read) in pages.into_iter().zip(copies).zip(results) {
                // SAFETY: `publish` asks for the one writer, without a slice of the bytes: the frame's exclusive latch lies in `page`.
                unsafe { self.pool.bytes(page.frame).publish(copy) };
                drop(self.finish(page, read, access));
            }
        }
    }

    /// Makes a fresh page of a reservation.
    fn make_page(
        &self,
        reserved: Reserved<'p>,
        tree: TreeId,
        epoch: Epoch,
    ) -> ExclusivePage<'p, BufferPool> {
        let Reserved { id, frame, guard } = reserved;
        let pool = self.pool;
        pool.header(frame).clear();
        pool.header(frame).set_page(id);
        pool.side(frame).forget_use();
        // SAFETY: `guard` is of the frame's latch.
        unsafe { pool.mark_dirty(frame, epoch) };
        let mut page = ExclusivePage::latched(pool, frame, id, guard);
        let bytes = page.bytes_mut();
        bytes.fill(0);
        header::initialise(bytes, id, tree);
        header::set_epoch(bytes, epoch);
        pool.table.set(id, Place::Resident(frame));
        page
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        self.let_go();
    }
}
