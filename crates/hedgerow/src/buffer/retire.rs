//! Frames that become page table.
//!
//! A part of the page table (512 words, 4 KiB) is loaded when the first of its pages is asked for. Its
//! memory comes out of the pool: the topmost frames are emptied and given up, one for each part (or
//! several where pages are smaller than a part, one for several parts where they are larger). So the
//! table is inside of the memory limit without a share of its own, and a store that uses few of its
//! pages pays for few parts. At data of 64 times the pool, an eighth of the frames goes this way.
//!
//! Whoever is lent a value (`lent.rs`) holds the frames of it for as long as he likes, and whoever has reserved a frame waits for a
//! checkpoint with it. A topmost frame that somebody has for longer than a moment stays, and so does one with a page that cannot be written,
//! on a full disk or after a failure, for reads go on then. The part gets the memory of another frame, from among those below `top`, which is
//! given up in its place. (Where pages are smaller than a part, and a part takes several neighbours, there is no other way than to wait.)
//!
//! Invariants: frames below `top` that are not retired hold pages, the others never again: the latches of retired ones stay locked exclusively for
//! good, so that nobody can hold one as a page; a part is read by one thread (`part_reads`), and one is made at a
//! time (`part_space`, taken with the other in hand) by a thread that holds no page and no latch but that of the frame it is emptying, while it writes
//! the page that lies there if that is changed all the time, and whose waits are bounded. `Send + Sync`.

use crate::buffer::admission::FRAMES_EACH;
use crate::buffer::evict::FRAME_WAITS;
use crate::buffer::pool::BufferPool;
use crate::buffer::table::{PART_READS, PartSpace};
use crate::error::{Error, ErrorKind, RAISE_LIMIT, Result};
use crate::page::FrameId;
use crate::types::{PART_BYTES, PART_HEADER_WORDS, PART_WORDS, PageId};
use crate::versions::LEAST_BLOCKS;
use crate::wait::Waiting;
use hedgerow_sync::latch::ExclusiveGuard;
use hedgerow_sync::primitive::atomic::Ordering::{Relaxed, Release};

/// Frames that are never given up.
const FRAMES_KEPT: u32 = 32;
/// Waits of ten milliseconds for whoever has a frame, where another one will do.
const HELD_WAITS: usize = 3;
/// Clean frames that are left to readers while dirty pages cannot be written: those of one operation, and a few for everybody.
const CLEAN_KEPT: usize = FRAMES_EACH + 2;
/// How often a page that keeps being changed is written before nobody may change it meanwhile.
const VACATE_ATTEMPTS: usize = 4;

impl BufferPool {
    /// Makes sure that the table part of `id` is loaded. Waits for I/O; the caller holds nothing.
    ///
    /// Errors: the map part cannot be read or is damaged; `MemoryLimit` if no frame can be given up.
    pub(super) fn ensure_part(&self, id: PageId) -> Result<()> {
        let part = id.part();
        if self.table.is_loaded(part) {
            return Ok(());
        }
        if !self.table.has_room_for(part) || !id.is_usable() {
            return Err(Error::corrupted_page(id, "no such page id can exist"));
        }
        // Different parts are read at the same time, each by one thread. Nothing of a part that is not loaded changes meanwhile.
        let _reading = self.part_reads[part % PART_READS].lock();
        if self.table.is_loaded(part) {
            return Ok(());
        }
        let durable = match &self.slots {
            // After the read, as in `Session::finish`.
            Some(slots) => {
                let read = slots.read_map_part(part);
                read.map_err(|error| self.check_open().err().unwrap_or(error))?
            }
            None => None,
        };
        let durable = durable.unwrap_or_else(|| Box::new([0; PART_WORDS]));
        let mut space = self.part_space.lock();
        self.table.make_entry(part)?;
        let memory = self.part_memory(&mut space)?;
        // SAFETY: what `install` asks for, in its order. `part_memory` gives `PART_BYTES`, which are 4,096, of retired frames that lie
        // side by side. They are aligned to 8: frames are multiples of 512 bytes from the start of a page of the system, and parts
        // follow each other from a frame's start on. They are valid as long as the table: they are a part of the arena, which the
        // pool has beside the table and never gives back before. Nobody else accesses them: each place is given once, under the
        // lock of `part_space`; the frames were emptied under their exclusive latches, which are never released, so no page gets
        // them, and an optimistic reader has an old version and does not validate. Or they were set aside before anybody used the
        // pool, and no page was ever in them.
        unsafe { self.table.install(part, memory, &durable) };
        space.parts += 1;
        Ok(())
    }

    /// Waits for whoever is emptying frames; once the pool is closed nobody writes a page for that any more.
    pub(super) fn wait_for_parts(&self) {
        self.part_reads.iter().for_each(|reading| drop(reading.lock()));
        drop(self.part_space.lock());
    }

    /// Number of table parts loaded.
    pub fn table_parts(&self) -> usize {
        self.part_space.lock().parts
    }

    /// Whether the table may grow by so many pages, and by a part more.
    ///
    /// Errors: `MemoryLimit`.
    pub(super) fn check_table_room(&self, pages: usize) -> Result<()> {
        let parts = pages / (PART_WORDS - PART_HEADER_WORDS) + 2;
        let frames = parts * PART_BYTES.div_ceil(self.page_bytes);
        let left = self.top.load(Relaxed).saturating_sub(self.not_for_pages()) as usize;
        if left < FRAMES_KEPT as usize + frames { Err(self.table_is_full()) } else { Ok(()) }
    }

    /// Frames below the top that no page can have, beside those that the smallest pool lends.
    fn not_for_pages(&self) -> u32 {
        // These leave enough of the frames that are never given up: one operation needs them, and there are a few for everybody.
        self.retired_below() + self.lent_frames().saturating_sub(LEAST_BLOCKS)
    }

    /// Frames below the top that were given up in the place of lent ones.
    pub(super) fn retired_below(&self) -> u32 {
        self.pieces.as_ref().map_or(0, |index| index.retired_below.load(Relaxed))
    }

    #[cold]
    fn table_is_full(&self) -> Error {
        Error::new(
            ErrorKind::MemoryLimit,
            format!(
                "the page table needs more of the memory limit of {} bytes than it leaves for pages; \
                 {RAISE_LIMIT}",
                self.budget().limit_bytes()
            ),
        )
    }

    /// In a store without a file no page can make room later, so the frames for all the parts that
    /// its pages can need are set aside at once, while they are empty. They are not touched before a part needs them.
    ///
    /// Errors: `MemoryLimit`. Only before anybody uses the pool.
    pub(super) fn set_aside_for_memory_store(&self) -> Result<()> {
        let per_part = PART_WORDS - PART_HEADER_WORDS;
        let mut space = self.part_space.lock();
        let parts = self.frames() as usize / per_part + 1;
        let count = (parts * PART_BYTES).div_ceil(self.page_bytes) as u32;
        let top = self.top.load(Relaxed);
        if top < FRAMES_KEPT + count {
            return Err(self.table_is_full());
        }
        self.free.count_down_by(count as usize);
        self.top.store(top - count, Release);
        space.next = self.memory(FrameId(top - count));
        space.left_bytes = count as usize * self.page_bytes;
        Ok(())
    }

    fn part_memory(&self, space: &mut PartSpace) -> Result<*mut u8> {
        if space.left_bytes < PART_BYTES {
            let first = self.give_up_frames(&mut space.held)?;
            space.next = self.memory(first);
            space.left_bytes = PART_BYTES.max(self.page_bytes);
        }
        let memory = space.next;
        // SAFETY: `left_bytes` counts what is left of the retired frames from `next` on, and a part fits.
        space.next = unsafe { memory.add(PART_BYTES) };
        space.left_bytes -= PART_BYTES;
        Ok(memory)
    }

    /// Gives up as many neighbouring frames as a part needs, and tells the first of them. `held`: the topmost one, if it was not to be had.
    fn give_up_frames(&self, held: &mut Option<FrameId>) -> Result<FrameId> {
        let count = PART_BYTES.div_ceil(self.page_bytes) as u32;
        let mut top = self.top.load(Relaxed);
        // Some of the topmost ones may be given up already.
        while let Some(last) = top.checked_sub(1)
            && self.header(FrameId(last)).is_retired()
            && let Some(index) = &self.pieces
        {
            top = last;
            self.top.store(top, Release);
            index.retired_below.fetch_sub(1, Relaxed);
        }
        if top < FRAMES_KEPT + count + self.not_for_pages() {
            return Err(self.table_is_full());
        }
        let most_waits = if count == 1 { HELD_WAITS } else { FRAME_WAITS };
        // From the top down, each given up when it is empty: an error leaves a smaller pool, whose
        // last frames are retired without a use, and nothing lost.
        for frame in (top - count..top).rev() {
            let frame = FrameId(frame);
            // Who keeps it keeps it for long: one part after the other would wait for him.
            let most_waits = if *held == Some(frame) { 1 } else { most_waits };
            let guard = match self.vacate(frame, most_waits) {
                Ok(Some(guard)) => guard,
                vacated if count == 1 => {
                    *held = Some(frame);
                    return self.give_up_another(frame, vacated.err());
                }
                vacated => return Err(vacated.err().unwrap_or_else(|| self.nothing_emptied())),
            };
            self.free.count_down();
            self.retire_for_good(frame, guard, Some(frame));
        }
        Ok(FrameId(top - count))
    }

    /// Retires a frame, below the top or as the new top.
    fn retire_for_good(&self, frame: FrameId, guard: ExclusiveGuard<'_>, top: Option<FrameId>) {
        self.header(frame).retire();
        if let Some(top) = top {
            self.top.store(top.0, Release);
        }
        // Its bytes are the table's from now on, and no page's.
        std::mem::forget(guard);
    }

    #[cold]
    fn nothing_emptied(&self) -> Error {
        Error::new(
            ErrorKind::MemoryLimit,
            format!(
                "no frame could be emptied in time for the page table: the memory limit is too small \
                 for the number of threads; {RAISE_LIMIT}"
            ),
        )
    }

    /// Gives up a frame in the place of the topmost one, which somebody has for longer than anybody waits for, or whose page cannot be
    /// written because of `refused`.
    #[cold]
    fn give_up_another(&self, top: FrameId, refused: Option<Error>) -> Result<FrameId> {
        self.check_open()?;
        let Some(index) = &self.pieces else {
            return Err(refused.unwrap_or_else(|| self.nothing_emptied()));
        };
        // Each part takes a clean frame for good then: whoever needs none goes on reading with the last ones.
        let clean = (self.frames_for_pages() as usize).saturating_sub(self.dirty_pages());
        if let Some(refused) = refused.filter(|_| clean <= CLEAN_KEPT) {
            return Err(refused);
        }
        let (frame, guard) = self.obtain_frame(PageId(top.0), &Waiting::Forever)?;
        index.retired_below.fetch_add(1, Relaxed);
        self.retire_for_good(frame, guard, None);
        Ok(frame)
    }

    /// Empties a frame and returns its latch; it counts as free. `None`: somebody has it for longer than so many waits.
    fn vacate(&self, frame: FrameId, most_waits: usize) -> Result<Option<ExclusiveGuard<'_>>> {
        let header = self.header(frame);
        for attempt in 0..=VACATE_ATTEMPTS {
            let mut waits = 0;
            let guard = loop {
                // Whoever has it may give it back, and somebody else borrow it, also while this waits.
                if header.is_lent() {
                    self.move_lent(frame, PageId(waits as u32))?;
                }
                let before = waits;
                let guard = header.latch.exclusive_while(&mut || {
                    waits += 1;
                    waits < most_waits && (waits == before + 1 || !header.is_lent())
                });
                if guard.is_some() || waits >= most_waits {
                    break guard;
                }
            };
            let Some(guard) = guard else { return Ok(None) };
            if header.is_free() {
                return Ok(Some(guard));
            }
            if header.is_dirty() {
                // Whoever closes takes the lock of `part_space` before the file is unlocked and somebody else's.
                self.check_open()?;
                if attempt == VACATE_ATTEMPTS {
                    self.write_back_held(frame, &guard)?;
                }
            }
            if !header.is_dirty() {
                self.evict_latched(frame);
                self.free.count_up();
                return Ok(Some(guard));
            }
            guard.release_unchanged();
            self.write_back_now(frame)?;
        }
        Ok(None)
    }
}
