//! Making room: the clock with second chance, write-back in place, giving memory back.
//!
//! Whoever needs a place and finds none free turns the clock, as in vmcache: there is no background
//! thread. A batch is up to 64 pages. Those that were used since the hand last passed lose their mark
//! and stay. Dirty ones are copied under a shared latch, written in the order of the file with nothing
//! latched, and are clean if nobody has changed them since. Then the clean ones are latched by trying,
//! and their memory goes back to the system, neighbours with one call; until that has returned they stay
//! latched, because a page that is read anew at once must not lose its memory again.
//!
//! Invariants: latches are only tried for; one batch is written at a time (the write buffer's lock is held
//! from the copies to the end of the writes), so that an older image never overwrites a newer one; a page
//! is clean, and may be evicted, only after its image is in the file, so that no read overtakes a write.
//! Whoever finds the buffer taken goes on with clean pages if there are any. `Send + Sync`.

use super::pool::{BATCH_PAGES, VmcachePool};
use super::state::{DIRTY, RESIDENT, USED};
use hedgerow::internals::error::{Error, ErrorKind, Result};
use hedgerow::internals::page::{ExclusivePage, FrameId, SharedPage};
use hedgerow::internals::storage::WriteRequest;
use hedgerow::internals::types::PageId;
use hedgerow_sync::latch::{ExclusiveGuard, Version};
use hedgerow_sync::primitive::atomic::AtomicU32;
use hedgerow_sync::primitive::atomic::Ordering::Relaxed;
use hedgerow_sync::primitive::thread;
use hedgerow_sync::primitive::time::Moment;
use std::time::Duration;

/// How long an operation tries for a place.
const PLACE_WAIT_MAX: Duration = Duration::from_secs(10);
/// Turns in vain after which it sleeps between them: whoever holds the pages needs the processor.
const EAGER_TURNS: u32 = 16;

/// A page in its place.
#[derive(Clone, Copy)]
struct Candidate {
    place: u32,
    id: PageId,
}

/// A page whose image is in the write buffer.
struct Copied {
    candidate: Candidate,
    version: Version,
}

impl VmcachePool {
    /// A place for a page; makes room if there is none. The caller holds nothing.
    ///
    /// Errors: those of writing pages back; `MemoryLimit` if there is no place for ten seconds.
    pub(super) fn obtain_place(&self) -> Result<u32> {
        if let Some(place) = self.try_obtain_place() {
            return Ok(place);
        }
        let since = Moment::now();
        let mut vain = 0;
        while since.elapsed() < PLACE_WAIT_MAX {
            let freed = self.evict_batch()?;
            if let Some(place) = self.try_obtain_place() {
                return Ok(place);
            }
            vain = if freed > 0 { 0 } else { vain + 1 };
            if vain > EAGER_TURNS {
                thread::sleep(Duration::from_millis(1));
            }
        }
        let message = "no page could be evicted within ten seconds: the memory limit is too small for \
                       the number of threads";
        Err(Error::new(ErrorKind::MemoryLimit, message))
    }

    /// A place, if one is free.
    pub(super) fn try_obtain_place(&self) -> Option<u32> {
        self.free_places.lock().pop()
    }

    /// Gives places back that no page has taken.
    pub(super) fn release_places(&self, places: impl Iterator<Item = u32>) {
        self.free_places.lock().extend(places);
    }

    /// Evicts up to a batch of pages; tells how many places that made free.
    ///
    /// Errors: a write failed, or the system does not take memory back.
    pub(super) fn evict_batch(&self) -> Result<usize> {
        let (clean, dirty) = self.turn_clock();
        let mut victims = Vec::with_capacity(BATCH_PAGES);
        self.write_back(dirty, clean.is_empty(), &mut victims)?;
        for candidate in clean {
            if let Some(guard) = self.states.latch(FrameId(candidate.id.0)).try_exclusive() {
                self.consider(candidate, guard, &mut victims);
            }
        }
        self.give_back(victims)
    }

    /// Writes every page that is dirty now to its place in the file, and waits until the disk has them;
    /// they stay in memory. What is changed or being written meanwhile may be left out.
    ///
    /// Errors: a write or the sync failed.
    pub fn write_all(&self) -> Result<()> {
        for (number, places) in self.clock.chunks(BATCH_PAGES).enumerate() {
            let first = (number * BATCH_PAGES) as u32;
            let candidate = |(place, id): (u32, &AtomicU32)| {
                let id = PageId(id.load(Relaxed));
                let is_dirty =
                    self.states.is_resident(id) && self.states.get(FrameId(id.0)) & DIRTY != 0;
                is_dirty.then_some(Candidate { place, id })
            };
            let dirty = (first..).zip(places).filter_map(candidate).collect();
            let mut written = Vec::with_capacity(BATCH_PAGES);
            self.write_back(dirty, true, &mut written)?;
            // Clean, and not evicted: their bytes are as they were.
            written.into_iter().for_each(|(_, page)| page.release_unchanged());
        }
        self.file.sync_data()
    }

    /// Looks at places until a batch of candidates is found, or all were looked at twice: the first turn
    /// takes second chances away.
    fn turn_clock(&self) -> (Vec<Candidate>, Vec<Candidate>) {
        let places = self.clock.len() as u32;
        // In a small pool a batch is a part of it, so that threads do not take each other's pages.
        let batch = BATCH_PAGES.min(self.clock.len() / 8);
        let (mut clean, mut dirty) = (Vec::with_capacity(batch), Vec::new());
        for _ in 0..2 * places {
            let place = self.hand.fetch_add(1, Relaxed) % places;
            let id = PageId(self.clock[place as usize].load(Relaxed));
            if id == PageId::NONE {
                continue;
            }
            let frame = FrameId(id.0);
            let flags = self.states.get(frame);
            let candidate = Candidate { place, id };
            if flags & RESIDENT == 0 {
                // Freed, or just being read: its latch will tell.
                clean.push(candidate);
            } else if flags & USED != 0 {
                self.states.clear(frame, USED);
            } else if self.pins.is_pinned(id) {
                continue;
            } else if flags & DIRTY != 0 {
                dirty.push(candidate);
            } else {
                clean.push(candidate);
            }
            if clean.len() + dirty.len() == batch {
                break;
            }
        }
        (clean, dirty)
    }

    /// Writes pages to their place in the file. Those that nobody has changed meanwhile are clean then,
    /// and become victims. Unless told to `wait`, writes nothing while another batch is being written.
    fn write_back<'p>(
        &'p self,
        mut dirty: Vec<Candidate>,
        wait: bool,
        victims: &mut Vec<(u32, ExclusivePage<'p, VmcachePool>)>,
    ) -> Result<()> {
        if dirty.is_empty() {
            return Ok(());
        }
        dirty.sort_unstable_by_key(|candidate| candidate.id);
        // A page whose id came back has two places; writes of one batch must not overlap.
        dirty.dedup_by_key(|candidate| candidate.id);
        let mut buffer = match self.write_buffer.try_lock() {
            Some(buffer) => buffer,
            None if !wait => return Ok(()),
            None => self.write_buffer.lock(),
        };
        let mut copied: Vec<Copied> = Vec::with_capacity(dirty.len());
        let mut images = buffer.chunks_exact_mut(self.page_bytes);
        for candidate in dirty {
            let frame = FrameId(candidate.id.0);
            let Ok(page) = SharedPage::wait(self, candidate.id, &mut || false) else { continue };
            if self.states.get(frame) & DIRTY == 0 {
                continue;
            }
            let version = self.states.latch(frame).optimistic().expect("no writer beside a reader");
            let image = images.next().expect("the buffer holds a batch");
            image.copy_from_slice(page.bytes());
            copied.push(Copied { candidate, version });
        }
        let images = buffer.chunks_exact(self.page_bytes);
        let requests: Vec<WriteRequest<'_>> = copied
            .iter()
            .zip(images)
            .map(|(page, buf)| WriteRequest {
                offset_bytes: self.offset_bytes(page.candidate.id),
                buf,
            })
            .collect();
        let written = self.file.write_batch(&requests);
        for Copied { candidate, version } in &copied {
            let frame = FrameId(candidate.id.0);
            match self.states.latch(frame).try_upgrade(*version) {
                Some(guard) if written.is_ok() => {
                    self.states.clear(frame, DIRTY);
                    self.consider(*candidate, guard, victims);
                }
                Some(guard) => guard.release_unchanged(),
                None => {}
            }
        }
        if written.is_ok() {
            self.counters.pages_written.fetch_add(copied.len() as u64, Relaxed);
        }
        written
    }

    /// Makes a latched page a victim if it may go.
    fn consider<'p>(
        &'p self,
        candidate: Candidate,
        guard: ExclusiveGuard<'p>,
        victims: &mut Vec<(u32, ExclusivePage<'p, VmcachePool>)>,
    ) {
        let Candidate { place, id } = candidate;
        let frame = FrameId(id.0);
        let flags = self.states.get(frame);
        let may_go = flags & RESIDENT == 0 || flags & DIRTY == 0 && !self.pins.is_pinned(id);
        // The place may have changed hands since the hand passed.
        if may_go && self.clock[place as usize].load(Relaxed) == id.0 {
            victims.push((place, ExclusivePage::latched(self, frame, id, guard)));
        } else {
            guard.release_unchanged();
        }
    }

    /// Gives the memory of the victims back, unlatches them, and frees their places.
    fn give_back(&self, mut victims: Vec<(u32, ExclusivePage<'_, VmcachePool>)>) -> Result<usize> {
        if victims.is_empty() {
            return Ok(0);
        }
        let mut bytes: Vec<&mut [u8]> =
            victims.iter_mut().map(|(_, page)| page.bytes_mut()).collect();
        let discarded = self.memory.discard(&mut bytes);
        // Even if that failed: some of them may be zeros by now, and all are in the file.
        let freed = victims.len();
        let places: Vec<u32> = victims
            .into_iter()
            .map(|(place, page)| {
                self.states.clear(page.frame(), RESIDENT | USED);
                self.clock[place as usize].store(PageId::NONE.0, Relaxed);
                drop(page);
                place
            })
            .collect();
        self.release_places(places.into_iter());
        self.counters.discard_calls.fetch_add(discarded? as u64, Relaxed);
        self.counters.evictions.fetch_add(freed as u64, Relaxed);
        Ok(freed)
    }
}
