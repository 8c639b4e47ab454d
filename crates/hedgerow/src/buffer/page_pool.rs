//! What trees see of the pool: the traits of a [`PagePool`](crate::page::PagePool) for [`BufferPool`].
//!
//! Each method is thin: a look at the table, a header or a counter, or a call of whoever does the work. Invariants and thread-safety are the
//! pool's (`pool.rs`).

use crate::buffer::entry::Entered;
use crate::buffer::frame::FrameHeader;
use crate::buffer::old_versions::PoolVersions;
use crate::buffer::pool::BufferPool;
use crate::buffer::session::Session;
use crate::buffer::table::Place;
use crate::error::{Error, Result};
use crate::page::header::{self, PageKind};
use crate::page::{
    Adaptation, Contention, ContentionCounters, ExclusivePage, FrameHead, FrameId, Frames,
    FrozenPages, Journal, Merging, Pages, ScanTally, Values,
};
use crate::types::{Epoch, Lsn, PageId, Purpose, TreeId};
use crate::versions::Change;
use crate::wait::Waiting;
use crate::wal::Record;
use hedgerow_sync::optimistic::{self, RacingBytes};
use hedgerow_sync::primitive::atomic::Ordering::{AcqRel, Acquire};

// SAFETY: frame `i` has the latch of header `i`, and the `i`-th page of the arena, which does not move. Bytes are
// reached as slices under that latch alone; a frame that becomes part of the table keeps its latch locked (`retire.rs`).
unsafe impl Frames for BufferPool {
    type Head<'p> = &'p FrameHeader;

    #[inline(always)]
    fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    #[inline(always)]
    fn translate(&self, id: PageId) -> Option<FrameId> {
        let guess = self.preferred(id);
        let word = self.table.word(id)?.load(Acquire);
        let frame = if word == Place::Resident(guess).word() {
            FrameId(opaque(guess.0))
        } else {
            self.resident_elsewhere(word)?
        };
        // SAFETY: a remainder of `frames` is below it; the other is checked. Said here, so that header
        // and bytes of the frame are found without a further look.
        unsafe { std::hint::assert_unchecked(frame.0 < self.frames) };
        Some(frame)
    }

    fn in_range(&self, id: PageId) -> bool {
        self.ids.lock().in_range(id)
    }

    #[inline(always)]
    fn head(&self, frame: FrameId) -> &FrameHeader {
        self.header(frame)
    }

    #[inline(always)]
    fn bytes(&self, frame: FrameId) -> RacingBytes<'_> {
        self.racing(frame)
    }

    #[inline(always)]
    unsafe fn let_change(&self, frame: FrameId) -> bool {
        // SAFETY: `hand_over` asks for the exclusive latch of the frame, as this does.
        !self.handed.owed.is_under_way() || unsafe { self.hand_over(frame) }
    }

    #[inline]
    unsafe fn mark_dirty(&self, frame: FrameId, epoch: Epoch) {
        let header = self.header(frame);
        if self.handed.owed.is_under_way() {
            self.assert_handed_over(frame);
        }
        debug_assert!(header.latch.is_exclusive(), "a page is changed under its exclusive latch");
        if header.set_dirty(epoch) {
            let dirty = self.dirty.fetch_add(1, AcqRel) + 1;
            self.request_checkpoint_at(dirty);
            if dirty == 1
                && let Some(slots) = &self.slots
            {
                slots.checkpoints().note_change();
            }
        }
        header.note_use();
    }
}

impl Pages for BufferPool {
    type Session<'p> = Session<'p>;

    #[inline(always)]
    fn expect_frame(&self, id: PageId) -> Option<FrameId> {
        Some(self.preferred(id))
    }

    #[inline(always)]
    fn prefetch(&self, id: PageId) {
        if let Some(word) = self.table.word(id) {
            optimistic::prefetch(std::ptr::from_ref(word));
        }
        optimistic::prefetch(std::ptr::from_ref(self.header(self.preferred(id))));
    }

    fn read_ahead(&self, ids: &[PageId]) -> bool {
        self.ask_ahead(ids)
    }

    fn session_within<'p>(&'p self, waiting: &'p Waiting<'p>) -> Session<'p> {
        Session::new(self, waiting)
    }

    fn wait_at_gate(&self, waiting: &Waiting<'_>) -> Result<()> {
        self.versions().map_or(Ok(()), |versions| versions.wait_at_gate(waiting))
    }

    #[inline(always)]
    fn alone_turns(&self) -> u64 {
        self.versions().map_or(0, PoolVersions::turns)
    }

    #[cold]
    fn read_before_alone<R>(
        &self,
        stamp: Lsn,
        read: impl FnOnce(&dyn FrozenPages) -> Result<R>,
    ) -> Result<Option<R>> {
        let pin = self.versions().and_then(|versions| versions.before_alone(stamp));
        pin.map(|pin| read(&pin.pages(self))).transpose()
    }

    fn scan_tally(&self, frame: FrameId) -> Option<&ScanTally> {
        Some(&self.side(frame).tally)
    }

    #[inline(always)]
    fn contention(&self, frame: FrameId) -> Option<&Contention> {
        Some(&self.side(frame).contention)
    }

    fn contention_counters(&self) -> Option<&ContentionCounters> {
        Some(&self.counters.contention)
    }

    fn adaptation(&self) -> Option<&Adaptation> {
        Some(&self.adaptation)
    }

    fn merging(&self) -> Option<&Merging> {
        Some(&self.counters.merging)
    }

    #[cold]
    fn wait_to_change(&self, waiting: &Waiting<'_>) -> Result<()> {
        self.wait_for_slab(waiting)
    }

    fn free(&self, mut page: ExclusivePage<'_, Self>, epoch: Epoch) {
        page.bytes_mut()[header::KIND] = PageKind::Free as u8;
        let (frame, id, guard) = page.into_guard();
        let header = self.header(frame);
        assert!(std::ptr::eq(guard.latch(), &header.latch), "a page is freed by its own pool");
        if header.is_dirty() {
            self.dirty.fetch_sub(1, AcqRel);
        }
        let (slot, image_epoch) = header.clean();
        self.table.set(id, Place::Free);
        if let Some(slots) = &self.slots
            && let Err(error) = slots.page_freed(id, epoch, slot, image_epoch)
        {
            self.set_poisoned(&error);
        }
        self.release_frame(frame, guard);
        // Last of all: from here on the id may name another page.
        self.ids.lock().free(id);
    }
}

impl Journal for BufferPool {
    type EpochGuard<'p> = Entered<'p>;

    #[inline]
    fn enter(&self) -> Result<Entered<'_>> {
        self.enter_with(0, Purpose::Take, &Waiting::Forever)
    }

    fn enter_to_free(&self, waiting: &Waiting<'_>) -> Result<Entered<'_>> {
        self.enter_with(0, Purpose::GiveBack, waiting)
    }

    #[inline(always)]
    fn enter_to_append(&self, log: u64, why: Purpose, how: &Waiting<'_>) -> Result<Entered<'_>> {
        self.enter_with(log, why, how)
    }

    #[inline(always)]
    fn enter_to_change(
        &self,
        log: u64,
        version_cells: impl Fn() -> u32,
        why: Purpose,
        how: &Waiting<'_>,
    ) -> Result<Entered<'_>> {
        self.enter_to_change_records(log, version_cells, why, how)
    }

    #[inline(always)]
    fn keeps_versions(&self, stay: &Entered<'_>) -> bool {
        stay.keeps_versions()
    }

    #[inline]
    fn keep_version(&self, stay: &Entered<'_>, change: &Change<'_>) {
        stay.keep_version(change);
    }

    fn note_load(&self, stay: &Entered<'_>, tree: TreeId) {
        // Whatever is changed in the tree from now on has this LSN or a later one.
        let lsn = stay.append(&Record::Load { tree }).unwrap_or_else(|| self.own_lsn());
        if let Some(versions) = self.versions() {
            versions.note_load(tree, lsn);
        }
    }

    fn version_cells(&self, stay: &Entered<'_>) -> u32 {
        stay.version_cells()
    }

    fn most_version_cells(&self) -> u32 {
        self.versions().map_or(0, PoolVersions::most_cells_at_once)
    }

    #[inline]
    fn append(&self, stay: &Entered<'_>, record: &Record<'_>) -> Lsn {
        stay.append(record).unwrap_or_else(|| stay.now(&self.order))
    }

    fn has_log(&self) -> bool {
        self.log().is_some()
    }

    fn poison(&self, error: &Error) {
        self.set_poisoned(error);
    }
}

impl Values for BufferPool {
    #[inline]
    fn has_stored_forms(&self) -> bool {
        match &self.slots {
            Some(slots) => slots.has_stored_forms(),
            None => self.holds_values.load(Acquire),
        }
    }

    fn expect_long_keys(&self) {
        if let Some(slots) = &self.slots {
            slots.expect_long_keys();
        }
    }

    fn stored_form_changed(&self, epoch: Epoch, old: &[u8], new: &[u8]) {
        self.note_stored_forms(epoch, old, new);
    }

    fn discard_stored_form(&self, value: &[u8]) {
        self.discard_large(value);
    }
}

/// Hides from the compiler that `guess` equals what it was compared with; else it would use the word
/// that was loaded, and the frame's address would wait for the load.
#[inline(always)]
fn opaque(guess: u32) -> u32 {
    #[cfg(all(target_arch = "x86_64", not(any(loom, shuttle, miri))))]
    {
        let mut guess = guess;
        // SAFETY: no instruction at all.
        unsafe {
            core::arch::asm!("/* {0:e} */", inout(reg) guess,
                options(pure, nomem, nostack, preserves_flags));
        }
        guess
    }
    #[cfg(not(all(target_arch = "x86_64", not(any(loom, shuttle, miri)))))]
    {
        core::hint::black_box(guess)
    }
}
