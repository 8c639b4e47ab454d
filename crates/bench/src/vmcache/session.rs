//! One operation's account with the pool: faults, prefetches, and fresh pages.
//!
//! Invariants: a session that has faulted or reserved is admitted until it is dropped (the engine's own
//! rule, so that the operations inside never need more places than there are); it keeps its last six
//! faulted pages pinned. A page that is being read is latched exclusively, and only whoever faults
//! it too waits for that. Whoever calls a method here holds no latch. Not shared between threads.

use super::pool::{BATCH_PAGES, VmcachePool};
use super::state::{ALLOCATED, DIRTY, RESIDENT, USED};
use hedgerow::internals::buffer::FRAMES_EACH;
use hedgerow::internals::error::{Error, ErrorKind, Result, Signal};
use hedgerow::internals::page::{Access, ExclusivePage, FrameId, Frames, PoolSession, header};
use hedgerow::internals::storage::ReadRequest;
use hedgerow::internals::types::{Epoch, PageId, TreeId};
use hedgerow::internals::wait::Waiting;
use hedgerow_sync::latch::ExclusiveGuard;
use hedgerow_sync::primitive::atomic::Ordering::Relaxed;

/// Rounds of a fault that finds its page evicted again, or in other hands.
const FAULT_ROUNDS: usize = 10_000;
/// Batches that a prefetch evicts at most; what it has no place for then is left out.
const PREFETCH_BATCHES: usize = 4;

/// See the head of the file.
pub struct VmcacheSession<'p> {
    pool: &'p VmcachePool,
    admitted: bool,
    pinned: [Option<PageId>; FRAMES_EACH],
    next_pin: usize,
    reserved: Vec<(PageId, u32)>,
}

/// A page that is about to be read: latched, absent, with a place in the clock.
struct Faulting<'p> {
    place: u32,
    page: ExclusivePage<'p, VmcachePool>,
}

/// What came of latching a page in order to read it.
enum Latched<'p> {
    /// It is absent: the caller reads it.
    Absent(Faulting<'p>),
    /// It is in memory by now, or changes hands.
    Resident,
    /// Nobody was given this id.
    Free,
}

impl<'p> VmcacheSession<'p> {
    pub(super) fn new(pool: &'p VmcachePool) -> VmcacheSession<'p> {
        VmcacheSession {
            pool,
            admitted: false,
            pinned: [None; FRAMES_EACH],
            next_pin: 0,
            reserved: Vec::new(),
        }
    }

    fn admit(&mut self) -> Result<()> {
        if !self.admitted {
            self.pool.admission.enter(|| self.pool.places(), 1, &Waiting::Forever)?;
            self.admitted = true;
        }
        Ok(())
    }

    /// Remembers a pin that was taken, in place of the oldest.
    fn keep(&mut self, id: PageId) {
        if let Some(oldest) = self.pinned[self.next_pin].replace(id) {
            self.pool.pins.unpin(oldest);
        }
        self.next_pin = (self.next_pin + 1) % FRAMES_EACH;
    }

    /// Pins a page that is in memory; false if it is not (any more).
    fn keep_resident(&mut self, id: PageId) -> bool {
        self.pool.pins.pin(id);
        if !self.pool.states.is_resident(id) {
            self.pool.pins.unpin(id);
            return false;
        }
        self.keep(id);
        true
    }
}

impl VmcachePool {
    /// Goes on with a page whose latch was had. Unless it is absent, the place is not taken.
    fn begin_fault<'p>(&'p self, id: PageId, place: u32, guard: ExclusiveGuard<'p>) -> Latched<'p> {
        let frame = FrameId(id.0);
        let flags = self.states.get(frame);
        if flags & RESIDENT != 0 {
            guard.release_unchanged();
            return Latched::Resident;
        }
        if flags & ALLOCATED == 0 {
            guard.release_unchanged();
            return Latched::Free;
        }
        self.clock[place as usize].store(id.0, Relaxed);
        Latched::Absent(Faulting { place, page: ExclusivePage::latched(self, frame, id, guard) })
    }

    /// Makes a page that was read visible, or absent again. It is pinned if asked for.
    fn finish_fault(
        &self,
        faulting: Faulting<'_>,
        read: Result<()>,
        access: Access,
        pin: bool,
    ) -> Result<()> {
        let Faulting { place, mut page } = faulting;
        let (id, frame) = (page.id(), page.frame());
        let checked = read.and_then(|()| match header::page_id(page.bytes()) == id {
            true => Ok(()),
            false => Err(corrupted_page(id, "another page was read in its place")),
        });
        if let Err(error) = checked {
            let discarded = self.memory.discard(&mut [page.bytes_mut()]);
            self.clock[place as usize].store(PageId::NONE.0, Relaxed);
            drop(page);
            self.release_places(std::iter::once(place));
            return discarded.and(Err(error));
        }
        if pin {
            // Under the latch, so that it cannot come too late.
            self.pins.pin(id);
        }
        let used = if access == Access::Point { USED } else { 0 };
        self.states.set(frame, RESIDENT | used);
        self.counters.faults.fetch_add(1, Relaxed);
        drop(page);
        Ok(())
    }
}

fn corrupted_page(id: PageId, what: &str) -> Error {
    Error::new(ErrorKind::Corrupted { page: Some(id), offset_bytes: None }, what)
}

fn freed(id: PageId) -> Error {
    Error::signalling(Signal::PageFreed, format!("{id} is free"))
}

impl<'p> PoolSession<'p, VmcachePool> for VmcacheSession<'p> {
    fn fault(&mut self, id: PageId, access: Access) -> Result<()> {
        let pool = self.pool;
        if !pool.in_range(id) {
            return Err(corrupted_page(id, "no such page was ever given out"));
        }
        self.admit()?;
        for _ in 0..FAULT_ROUNDS {
            if pool.states.is_resident(id) {
                if self.keep_resident(id) {
                    return Ok(());
                }
                continue;
            }
            let place = pool.obtain_place()?;
            let mut absent = || !pool.states.is_resident(id);
            let latched = match pool.states.latch(FrameId(id.0)).exclusive_while(&mut absent) {
                Some(guard) => pool.begin_fault(id, place, guard),
                None => Latched::Resident,
            };
            match latched {
                Latched::Absent(mut faulting) => {
                    let offset_bytes = pool.offset_bytes(id);
                    let read = pool.file.read_at(offset_bytes, faulting.page.bytes_mut());
                    pool.finish_fault(faulting, read, access, true)?;
                    self.keep(id);
                    return Ok(());
                }
                Latched::Resident => pool.release_places(std::iter::once(place)),
                Latched::Free => {
                    pool.release_places(std::iter::once(place));
                    return Err(freed(id));
                }
            }
        }
        Err(Error::new(ErrorKind::Timeout, "a page kept being evicted while it was asked for"))
    }

    fn prefetch(&mut self, ids: &[PageId], access: Access) -> Result<()> {
        self.admit()?;
        let pool = self.pool;
        // All places before the first latch. What is asked for ahead takes a quarter of the pool at most.
        let most = BATCH_PAGES.min(pool.clock.len() / 4);
        let absent = |id: &&PageId| pool.in_range(**id) && !pool.states.is_resident(**id);
        let wanted: Vec<PageId> = ids.iter().filter(absent).take(most).copied().collect();
        let mut places: Vec<u32> = Vec::with_capacity(wanted.len());
        let mut batches = 0;
        while places.len() < wanted.len() {
            if let Some(place) = pool.try_obtain_place() {
                places.push(place);
                continue;
            }
            batches += 1;
            match pool.evict_batch() {
                Ok(freed) if freed > 0 && batches <= PREFETCH_BATCHES => {}
                Ok(_) => break,
                Err(error) => {
                    pool.release_places(places.into_iter());
                    return Err(error);
                }
            }
        }
        let mut begun: Vec<Faulting<'p>> = Vec::with_capacity(places.len());
        for id in wanted {
            let Some(place) = places.pop() else { break };
            let latched = match pool.states.latch(FrameId(id.0)).try_exclusive() {
                Some(guard) => pool.begin_fault(id, place, guard),
                None => Latched::Resident,
            };
            match latched {
                Latched::Absent(faulting) => begun.push(faulting),
                Latched::Resident | Latched::Free => places.push(place),
            }
        }
        pool.release_places(places.into_iter());
        let mut requests: Vec<ReadRequest<'_>> = begun
            .iter_mut()
            .map(|Faulting { page, .. }| {
                let offset_bytes = pool.offset_bytes(page.id());
                ReadRequest::new(offset_bytes, page.bytes_mut())
            })
            .collect();
        pool.file.read_batch(&mut requests);
        let results: Vec<Result<()>> = requests.into_iter().map(|request| request.result).collect();
        for (faulting, read) in begun.into_iter().zip(results) {
            // A page that cannot be read says so when it is faulted in.
            if pool.finish_fault(faulting, read, access, false).is_err() {
                continue;
            }
        }
        Ok(())
    }

    fn reserve(&mut self, count: usize) -> Result<()> {
        assert!(count <= FRAMES_EACH, "an operation reserves a few pages at most");
        self.admit()?;
        while self.reserved.len() < count {
            let id = self.pool.allocate_id()?;
            match self.pool.obtain_place() {
                Ok(place) => self.reserved.push((id, place)),
                Err(error) => {
                    self.pool.release_ids(std::iter::once(id));
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn take(&mut self, tree: TreeId, epoch: Epoch) -> Option<ExclusivePage<'p, VmcachePool>> {
        let (id, place) = self.reserved.pop()?;
        let (pool, frame) = (self.pool, FrameId(id.0));
        // A page that nobody has is latched for a moment only: by who looks whether it is absent, or
        // gives back the memory that it had when it was freed.
        let guard = pool.states.latch(frame).exclusive();
        pool.clock[place as usize].store(id.0, Relaxed);
        let mut page = ExclusivePage::latched(pool, frame, id, guard);
        let bytes = page.bytes_mut();
        bytes.fill(0);
        header::initialise(bytes, id, tree);
        header::set_epoch(bytes, epoch);
        pool.states.set(frame, ALLOCATED | RESIDENT | DIRTY | USED);
        pool.count_page();
        Some(page)
    }
}

impl Drop for VmcacheSession<'_> {
    fn drop(&mut self) {
        for id in self.pinned.iter().flatten() {
            self.pool.pins.unpin(*id);
        }
        if !self.reserved.is_empty() {
            self.pool.release_ids(self.reserved.iter().map(|(id, _)| *id));
            self.pool.release_places(self.reserved.iter().map(|(_, place)| *place));
        }
        if self.admitted {
            self.pool.admission.leave(1);
        }
    }
}
