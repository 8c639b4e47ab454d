//! What is known of each frame besides its bytes: a 32-byte header and a 16-byte side entry.
//!
//! Invariants of the header (two to a cache line):
//! - every field but the latch and the mark of use changes only under the frame's exclusive latch (or
//!   before the frame is known to anybody), so the fields are atomics read and written relaxed: the
//!   latch orders them;
//! - `page` is [`PageId::NONE`] in a frame that holds no page;
//! - a frame that is not dirty holds the records that its `clean_slot` holds, or a piece of a value.
//!
//! Zeros are the header and the entry of a frame that was never used: free, unlatched, without a page. So they lie in
//! memory that nobody has to write first (`zeroed.rs`).
//!
//! The mark of use, and the counters of the side entry, readers may touch without any latch. They are
//! advice: losing an update costs nothing but a worse choice. The mark stands in the header because
//! every look-up sets it, and has the header's line at hand. `Send + Sync`.

use crate::buffer::large::PieceName;
use crate::buffer::zeroed::Zeroed;
use crate::page::{Contention, FrameHead, FrameId, ScanTally};
use crate::types::{Epoch, PageId, Slot};
use hedgerow_sync::latch::HybridLatch;
use hedgerow_sync::primitive::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use hedgerow_sync::primitive::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64};
#[cfg(any(test, loom, shuttle))]
use hedgerow_sync::primitive::buggify::{Point, buggify};

/// The page in the frame is newer than its slot.
const DIRTY: u16 = 1;
/// The frame was given to the page table and holds no pages any more.
const RETIRED: u16 = 2;
/// A copy of the page was handed over to a checkpoint, and neither the copy nor anything newer is in a slot.
const HANDED_OVER: u16 = 4;
/// The frame holds a piece of a value (`pieces.rs`) and no page. The seed stands in `clean_slot`, the number in `epoch`.
const PIECE: u16 = 8;
/// The frame is lent (`old_versions.rs`), holds no page, and its latch is held exclusively.
const LENT: u16 = 16;

/// Header of a frame. Whoever holds a pool can have one ([`Frames::head`](crate::page::Frames::head)), so what changes it
/// is the pool's alone.
#[repr(C)]
pub struct FrameHeader {
    /// Protects the header and the bytes.
    pub(super) latch: HybridLatch,
    page: AtomicU32,
    flags: AtomicU16,
    used: AtomicU8,
    clean_slot: AtomicU64,
    epoch: AtomicU32,
    clean_epoch: AtomicU32,
}

#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(size_of::<FrameHeader>() == 32);

/// Number of the cache line that has a frame's header: their array begins at a page of the system.
pub(super) fn header_line(frame: FrameId) -> u32 {
    frame.0 / 2
}

/// Epochs are kept in 32 bits here: one checkpoint a second for 136 years.
fn short(epoch: Epoch) -> u32 {
    u32::try_from(epoch.0).expect("fewer than 2^32 checkpoints")
}

// SAFETY: zero is a valid value of every atomic number, and of the latch, which is one. It means what `fresh` builds: a
// free latch of version zero, no page (`PageId::NONE`), no flag, no slot (`Slot::NONE`), epoch zero. None needs a drop.
unsafe impl Zeroed for FrameHeader {
    #[cfg(any(test, loom, shuttle))]
    fn fresh() -> FrameHeader {
        FrameHeader {
            latch: match buggify(Point::Version) {
                true => HybridLatch::with_version(u64::MAX - 1),
                false => HybridLatch::new(),
            },
            page: AtomicU32::new(PageId::NONE.0),
            flags: AtomicU16::new(0),
            used: AtomicU8::new(0),
            clean_slot: AtomicU64::new(Slot::NONE.word()),
            epoch: AtomicU32::new(0),
            clean_epoch: AtomicU32::new(0),
        }
    }
}

impl FrameHeader {
    /// The page that the frame holds.
    #[inline(always)]
    pub(super) fn page(&self) -> PageId {
        PageId(self.page.load(Relaxed))
    }

    /// Names the page that the frame holds.
    pub(super) fn set_page(&self, id: PageId) {
        self.page.store(id.0, Relaxed);
    }

    /// Whether the page is newer than its slot.
    #[inline]
    pub(super) fn is_dirty(&self) -> bool {
        self.flags.load(Relaxed) & DIRTY != 0
    }

    /// Whether the frame belongs to the page table now.
    pub(super) fn is_retired(&self) -> bool {
        self.flags.load(Relaxed) & RETIRED != 0
    }

    /// Whether the frame is lent.
    pub(super) fn is_lent(&self) -> bool {
        self.flags.load(Relaxed) & LENT != 0
    }

    /// Notes that the frame, which holds nothing, is lent from now on.
    pub(super) fn set_lent(&self) {
        self.flags.store(LENT, Relaxed);
    }

    /// Whether the frame can take a page.
    pub(super) fn is_free(&self) -> bool {
        self.page() == PageId::NONE && self.flags.load(Relaxed) & (RETIRED | PIECE | LENT) == 0
    }

    /// Whether the frame holds a piece of a value.
    #[inline]
    pub(super) fn is_piece(&self) -> bool {
        self.flags.load(Relaxed) & PIECE != 0
    }

    /// Which one; only of a frame that holds one.
    #[inline]
    pub(super) fn piece_name(&self) -> PieceName {
        PieceName { seed: self.clean_slot.load(Relaxed), number: self.epoch.load(Relaxed) }
    }

    /// The piece of a value that the frame holds.
    #[inline]
    pub(super) fn piece(&self) -> Option<PieceName> {
        self.is_piece().then(|| self.piece_name())
    }

    /// Notes that the frame, which holds nothing, holds a piece from now on.
    pub(super) fn set_piece(&self, name: PieceName) {
        self.clean_slot.store(name.seed, Relaxed);
        self.epoch.store(name.number, Relaxed);
        self.flags.store(PIECE, Relaxed);
    }

    /// Gives the frame to the page table for good.
    pub(super) fn retire(&self) {
        self.flags.store(RETIRED, Relaxed);
    }

    /// Where the page's clean image lies, and the epoch of that image.
    pub(super) fn clean(&self) -> (Slot, Epoch) {
        let slot = Slot::from_word(self.clean_slot.load(Relaxed));
        (slot, Epoch(u64::from(self.clean_epoch.load(Relaxed))))
    }

    /// Epoch of the last change of the page.
    pub(super) fn epoch(&self) -> Epoch {
        Epoch(u64::from(self.epoch.load(Relaxed)))
    }

    /// Notes that the page is dirty in `epoch`; true if it was clean before.
    #[inline]
    pub(super) fn set_dirty(&self, epoch: Epoch) -> bool {
        let flags = self.flags.load(Relaxed);
        self.epoch.store(short(epoch), Relaxed);
        self.flags.store(flags | DIRTY, Relaxed);
        flags & DIRTY == 0
    }

    /// Notes that `slot` holds the page as it is, with an image of `epoch`.
    pub(super) fn set_clean(&self, slot: Slot, epoch: Epoch) {
        self.flags.store(self.flags.load(Relaxed) & !(DIRTY | HANDED_OVER), Relaxed);
        self.clean_slot.store(slot.word(), Relaxed);
        self.clean_epoch.store(short(epoch), Relaxed);
        self.epoch.store(short(epoch), Relaxed);
    }

    /// Notes that a copy of the page was handed over to a checkpoint, and that the page, which stays dirty, is of
    /// `epoch` from now on.
    pub(super) fn set_handed_over(&self, epoch: Epoch) {
        self.flags.store(self.flags.load(Relaxed) | HANDED_OVER, Relaxed);
        self.epoch.store(short(epoch), Relaxed);
    }

    /// Whether the copy that was handed over is what comes next: nothing newer is in a slot.
    pub(super) fn is_handed_over(&self) -> bool {
        self.flags.load(Relaxed) & HANDED_OVER != 0
    }

    /// Notes that `slot` holds the copy, the page as it was in `epoch`.
    pub(super) fn set_image(&self, slot: Slot, epoch: Epoch) {
        self.flags.store(self.flags.load(Relaxed) & !HANDED_OVER, Relaxed);
        self.clean_slot.store(slot.word(), Relaxed);
        self.clean_epoch.store(short(epoch), Relaxed);
    }

    /// Takes the second chance away; true if there was one.
    pub(super) fn take_use(&self) -> bool {
        if self.used.load(Relaxed) == 0 {
            return false;
        }
        self.used.store(0, Relaxed);
        true
    }

    /// Whether the page has been used since the clock passed.
    pub(super) fn is_used(&self) -> bool {
        self.used.load(Relaxed) != 0
    }

    /// Empties the header: the frame holds no page.
    pub(super) fn clear(&self) {
        self.page.store(PageId::NONE.0, Relaxed);
        self.flags.store(0, Relaxed);
        self.clean_slot.store(Slot::NONE.word(), Relaxed);
        self.epoch.store(0, Relaxed);
        self.clean_epoch.store(0, Relaxed);
    }
}

impl<'p> FrameHead<'p> for &'p FrameHeader {
    #[inline(always)]
    fn latch(self) -> &'p HybridLatch {
        &self.latch
    }

    #[inline(always)]
    fn page_id(self) -> PageId {
        self.page()
    }

    #[inline(always)]
    fn note_use(self) {
        // The look before the store keeps the line shared between cores while a page is hot.
        if self.used.load(Relaxed) == 0 {
            self.used.store(1, Relaxed);
        }
    }
}

/// Relaxed counters of a frame, lost on eviction.
#[repr(C)]
pub struct SideEntry {
    listed: AtomicBool,
    /// How common scans are in the leaf.
    pub tally: ScanTally,
    pins: AtomicU16,
    fault: AtomicU32,
    /// How often writers of the leaf meet.
    pub contention: Contention,
}

#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(size_of::<SideEntry>() == 16);

// SAFETY: zero is a valid value of every atomic number and flag. It means what `fresh` builds: not listed, not pinned,
// no fault, and a tally and counts of contention that know nothing. None needs a drop.
unsafe impl Zeroed for SideEntry {
    #[cfg(any(test, loom, shuttle))]
    fn fresh() -> SideEntry {
        SideEntry {
            listed: AtomicBool::new(false),
            tally: ScanTally::new(),
            pins: AtomicU16::new(0),
            fault: AtomicU32::new(0),
            contention: Contention::new(),
        }
    }
}

impl SideEntry {
    /// Keeps the page from eviction until [`Self::unpin`]. The caller checks afterwards that the
    /// frame still holds its page: a pin that came too late is harmless, and of no use.
    pub fn pin(&self) {
        self.pins.fetch_add(1, AcqRel);
    }

    /// Another page comes into the frame, whose exclusive latch the caller holds.
    pub fn forget_use(&self) {
        self.tally.forget();
        self.contention.forget();
    }

    /// Takes one pin back.
    pub fn unpin(&self) {
        let before = self.pins.fetch_sub(1, Release);
        debug_assert!(before > 0, "a pin is taken back once");
    }

    /// Whether an operation still needs the page that it faulted in.
    pub fn is_pinned(&self) -> bool {
        self.pins.load(Acquire) != 0
    }

    /// Marks the frame as being in the free list; true if it was not.
    pub fn enlist(&self) -> bool {
        !self.listed.swap(true, AcqRel)
    }

    /// Notes that the frame was taken off the free list. A swap, so that it sees the frame emptied if
    /// whoever emptied it found it listed still.
    pub fn unlist(&self) {
        self.listed.swap(false, AcqRel);
    }

    /// Number of the fault that the frame serves; waiters use it to find the error that was theirs.
    pub fn fault(&self) -> u32 {
        self.fault.load(Acquire)
    }

    /// Counts a new fault, under the frame's exclusive latch and before anybody can wait for it.
    pub fn begin_fault(&self) -> u32 {
        self.fault.fetch_add(1, AcqRel).wrapping_add(1)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::buffer::zeroed::ZeroedArray;
    use crate::page::{Period, Tally};

    fn check(header: &FrameHeader, side: &SideEntry) {
        assert!(header.is_free() && !header.is_dirty() && !header.is_used());
        assert!(!header.is_retired() && !header.is_handed_over());
        assert_eq!(header.page(), PageId::NONE);
        assert_eq!(header.clean(), (Slot::NONE, Epoch(0)));
        assert_eq!(header.epoch(), Epoch(0));
        let version = header.latch.optimistic().unwrap();
        assert_eq!(version, HybridLatch::new().optimistic().unwrap());
        assert!(header.latch.try_exclusive().is_some());
        assert_eq!(side.tally.get(), Tally::Unknown);
        assert_eq!(side.contention.get(), Period::default());
        assert_eq!(side.fault(), 0);
        assert!(!side.is_pinned() && side.enlist());
    }

    #[test]
    fn zeros_are_a_frame_that_was_never_used() {
        check(&FrameHeader::fresh(), &SideEntry::fresh());
        let headers = ZeroedArray::<FrameHeader>::new(2).unwrap();
        let entries = ZeroedArray::<SideEntry>::new(2).unwrap();
        for (header, side) in headers.items().iter().zip(entries.items()) {
            check(header, side);
        }
    }
}
