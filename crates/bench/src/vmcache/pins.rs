//! Which pages running operations still need.
//!
//! A pin is a count in one of a fixed number of buckets, chosen by the page's id. Two pages may share a
//! bucket: then a pin on one keeps both in memory, which does no harm, because pins are few (six for each
//! operation that has faulted) and buckets many. A count for each page would cost memory for all of the
//! data. `Send + Sync`.

use hedgerow::internals::types::PageId;
use hedgerow_sync::primitive::atomic::AtomicU16;
use hedgerow_sync::primitive::atomic::Ordering::{AcqRel, Acquire, Release};

/// Buckets: a power of two.
const BUCKETS: usize = 4096;

/// The counts.
pub struct Pins {
    buckets: Box<[AtomicU16]>,
}

impl Pins {
    /// Nothing is pinned.
    pub fn new() -> Pins {
        Pins { buckets: (0..BUCKETS).map(|_| AtomicU16::new(0)).collect() }
    }

    /// Bytes of all counts.
    pub const BYTES: u64 = (BUCKETS * size_of::<AtomicU16>()) as u64;

    fn bucket(&self, id: PageId) -> &AtomicU16 {
        let mixed = u64::from(id.0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.buckets[(mixed >> (64 - BUCKETS.trailing_zeros())) as usize]
    }

    /// Keeps the page from eviction until [`Self::unpin`]. Unless the caller holds the page's exclusive
    /// latch, it looks afterwards whether the page is still there: the pin may have come too late.
    pub fn pin(&self, id: PageId) {
        let before = self.bucket(id).fetch_add(1, AcqRel);
        assert!(before < u16::MAX, "operations pin six pages each");
    }

    /// Takes one pin back.
    pub fn unpin(&self, id: PageId) {
        let before = self.bucket(id).fetch_sub(1, Release);
        debug_assert!(before > 0, "a pin is taken back once");
    }

    /// Whether the page must stay.
    pub fn is_pinned(&self, id: PageId) -> bool {
        self.bucket(id).load(Acquire) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_pinned_until_the_last_pin_has_gone() {
        let pins = Pins::new();
        pins.pin(PageId(9));
        pins.pin(PageId(9));
        pins.unpin(PageId(9));
        assert!(pins.is_pinned(PageId(9)));
        pins.unpin(PageId(9));
        assert!(!pins.is_pinned(PageId(9)));
    }

    #[test]
    fn few_pages_share_a_bucket() {
        let pins = Pins::new();
        for id in 0..48 {
            pins.pin(PageId(id * 512 + 4));
        }
        let others = (0..10_000).filter(|&id| pins.is_pinned(PageId(id * 7 + 1))).count();
        assert!(others < 400, "{others} of 10,000 pages are kept by the pins of 48");
    }
}
