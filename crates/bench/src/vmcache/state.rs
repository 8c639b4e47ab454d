//! What is known of every page there can be: its latch, and a byte of flags.
//!
//! In vmcache one word of 8 bytes holds state and version of a page. Here the word is the engine's own
//! latch, which has no room for a state, so a byte goes with it: seven latches and their seven bytes
//! fill a cache line, and a translation looks at one line, as there. That is 64 bytes for seven pages of
//! *data*, in memory or not.
//!
//! Invariants: [`RESIDENT`] and [`ALLOCATED`] change under the page's exclusive latch; [`DIRTY`] is set
//! under it, and cleared under it after the image was written. [`USED`] is advice.
//! `Send + Sync`.

use hedgerow::internals::page::{FrameHead, FrameId};
use hedgerow::internals::types::PageId;
use hedgerow_sync::latch::HybridLatch;
use hedgerow_sync::primitive::atomic::AtomicU8;
use hedgerow_sync::primitive::atomic::Ordering::{AcqRel, Acquire, Relaxed};

/// The page is given out.
pub const ALLOCATED: u8 = 1;
/// The page's bytes are at its address.
pub const RESIDENT: u8 = 2;
/// The page is newer than its place in the file.
pub const DIRTY: u8 = 4;
/// The page was used since the clock passed.
pub const USED: u8 = 8;

/// Pages to a cache line.
const PER_LINE: usize = 7;

#[repr(C, align(64))]
struct Line {
    latches: [HybridLatch; PER_LINE],
    flags: [AtomicU8; PER_LINE + 1],
}

const _: () = assert!(size_of::<Line>() == 64);

/// The states of all pages; see the head of this file.
pub struct PageStates {
    lines: Box<[Line]>,
}

impl PageStates {
    /// States of `ids` pages, none of them given out.
    pub fn new(ids: usize) -> PageStates {
        let line = |_| Line {
            latches: std::array::from_fn(|_| HybridLatch::new()),
            flags: std::array::from_fn(|_| AtomicU8::new(0)),
        };
        PageStates { lines: (0..ids.div_ceil(PER_LINE)).map(line).collect() }
    }

    /// Bytes of the states of `ids` pages.
    pub fn bytes_for(ids: usize) -> u64 {
        (ids.div_ceil(PER_LINE) * size_of::<Line>()) as u64
    }

    /// The page's latch.
    ///
    /// # Panics
    /// If there is no such page.
    #[inline(always)]
    pub fn latch(&self, frame: FrameId) -> &HybridLatch {
        let at = frame.0 as usize;
        &self.lines[at / PER_LINE].latches[at % PER_LINE]
    }

    #[inline(always)]
    fn flags(&self, frame: FrameId) -> &AtomicU8 {
        let at = frame.0 as usize;
        &self.lines[at / PER_LINE].flags[at % PER_LINE]
    }

    /// Whether the page is at its address. False if there is no such page.
    #[inline(always)]
    pub fn is_resident(&self, id: PageId) -> bool {
        let at = id.0 as usize;
        let Some(line) = self.lines.get(at / PER_LINE) else { return false };
        line.flags[at % PER_LINE].load(Acquire) & RESIDENT != 0
    }

    /// All flags of the page.
    #[inline(always)]
    pub fn get(&self, frame: FrameId) -> u8 {
        self.flags(frame).load(Acquire)
    }

    /// Sets flags; gives what was there before.
    pub fn set(&self, frame: FrameId, flags: u8) -> u8 {
        self.flags(frame).fetch_or(flags, AcqRel)
    }

    /// Clears flags.
    pub fn clear(&self, frame: FrameId, flags: u8) {
        self.flags(frame).fetch_and(!flags, AcqRel);
    }

    /// Latch and flags of a page, to be at hand.
    ///
    /// # Panics
    /// If there is no such page.
    #[inline(always)]
    pub fn head(&self, frame: FrameId) -> PageHead<'_> {
        let at = frame.0 as usize;
        let line = &self.lines[at / PER_LINE];
        PageHead { latch: &line.latches[at % PER_LINE], flags: &line.flags[at % PER_LINE], frame }
    }
}

/// What stands beside a page.
#[derive(Clone, Copy)]
pub struct PageHead<'p> {
    latch: &'p HybridLatch,
    flags: &'p AtomicU8,
    frame: FrameId,
}

impl<'p> FrameHead<'p> for PageHead<'p> {
    #[inline(always)]
    fn latch(self) -> &'p HybridLatch {
        self.latch
    }

    /// A page is at its own address or nowhere.
    #[inline(always)]
    fn page_id(self) -> PageId {
        let resident = self.flags.load(Acquire) & RESIDENT != 0;
        if resident { PageId(self.frame.0) } else { PageId::NONE }
    }

    /// The look before the store keeps the line shared between cores while a page is hot.
    #[inline(always)]
    fn note_use(self) {
        if self.flags.load(Relaxed) & USED == 0 {
            self.flags.fetch_or(USED, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_states_of_their_own() {
        let states = PageStates::new(30);
        for number in (0..30).step_by(2) {
            states.set(FrameId(number), RESIDENT | DIRTY);
        }
        states.clear(FrameId(4), DIRTY);
        let held = states.latch(FrameId(13)).try_exclusive();
        assert!(held.is_some());
        for number in 0..30 {
            assert_eq!(states.is_resident(PageId(number)), number % 2 == 0, "{number}");
            assert_eq!(states.get(FrameId(number)) & DIRTY != 0, number % 2 == 0 && number != 4);
            assert_eq!(states.latch(FrameId(number)).try_shared().is_none(), number == 13);
        }
        assert!(!states.is_resident(PageId(35)) && !states.is_resident(PageId(u32::MAX)));
    }

    #[test]
    fn a_use_leaves_the_other_flags() {
        let states = PageStates::new(1);
        states.set(FrameId(0), ALLOCATED | DIRTY);
        states.head(FrameId(0)).note_use();
        assert_eq!(states.get(FrameId(0)), ALLOCATED | DIRTY | USED);
    }
}
