//! The dictionary of the Delta Storage Index: values in the order in which they came. They are never changed or removed.
//!
//! # Invariants
//! - A number is a core and a place: place `n` of core `c` was taken by the `n`-th value that was added there.
//! - With one dictionary for all, all values are in that of core 0, and all threads that add write its size (HPCA 2014, section 5.2.1).
//!   With one per core a thread adds to that of its own number.
//!
//! `Send + Sync`.

use crate::htm::label::{self, Label};
use crate::htm::{TCell, Tx};
use hedgerow_sync::primitive::thread;

/// Bits of a number that say the place.
const PLACE_BITS: u32 = 25;
/// Values of a cache line.
const PER_LINE: usize = 8;
/// Lines of a page.
const LINES: usize = 64;

#[derive(Default)]
#[repr(align(64))]
struct Line([TCell<u64>; PER_LINE]);

/// Which L1 set a line is in does not depend on where the system puts memory.
#[repr(align(4096))]
struct Page([Line; LINES]);

#[repr(align(64))]
struct Size(TCell<u32>);

struct OfCore {
    size: Size,
    pages: Box<[Page]>,
}

impl OfCore {
    fn new(capacity: usize) -> OfCore {
        let page = |_| Page(std::array::from_fn(|_| Line::default()));
        let pages = (0..capacity.div_ceil(LINES * PER_LINE)).map(page).collect();
        OfCore { size: Size(TCell::new(0)), pages }
    }

    fn capacity(&self) -> usize {
        self.pages.len() * LINES * PER_LINE
    }

    #[inline(always)]
    fn cell(&self, place: usize) -> &TCell<u64> {
        let line = place / PER_LINE;
        &self.pages[line / LINES].0[line % LINES].0[place % PER_LINE]
    }
}

pub(super) struct Dictionary {
    cores: Box<[OfCore]>,
}

impl Dictionary {
    /// With room for `first` values in the first dictionary, and `others` in each of the other ones.
    pub fn new(cores: usize, first: usize, others: usize) -> Dictionary {
        let of = |core| OfCore::new(if core == 0 { first } else { others });
        Dictionary { cores: (0..cores).map(of).collect() }
    }

    #[inline(always)]
    pub fn value<'a, X: Tx<'a>>(&'a self, tx: &mut X, id: u32) -> Result<u64, X::E> {
        let core = &self.cores[(id >> PLACE_BITS) as usize];
        tx.load(core.cell((id & ((1 << PLACE_BITS) - 1)) as usize))
    }

    /// The value of a number that was given out; by whoever is alone.
    pub fn get(&self, id: u32) -> u64 {
        let core = &self.cores[(id >> PLACE_BITS) as usize];
        core.cell((id & ((1 << PLACE_BITS) - 1)) as usize).get()
    }

    /// The dictionary of the calling thread, and its number.
    fn own(&self) -> (usize, &OfCore) {
        let core = thread::id() % self.cores.len();
        (core, &self.cores[core])
    }

    /// Whether the calling thread can add a value.
    #[inline]
    pub fn has_room<'a, X: Tx<'a>>(&'a self, tx: &mut X) -> Result<bool, X::E> {
        let (_, own) = self.own();
        Ok((tx.load(&own.size.0)? as usize) < own.capacity())
    }

    /// Adds a value, for which there is room. Its number.
    #[inline]
    pub fn add<'a, X: Tx<'a>>(&'a self, tx: &mut X, value: u64) -> Result<u32, X::E> {
        let (core, own) = self.own();
        // Without any control it may be one too many.
        let place = tx.load(&own.size.0)?.min(own.capacity() as u32 - 1);
        tx.store(own.cell(place as usize), value)?;
        tx.store(&own.size.0, place + 1)?;
        Ok((core as u32) << PLACE_BITS | place)
    }

    /// Adds values to the first dictionary, by whoever is alone. Whether there was room.
    pub fn load(&self, values: &[u64]) -> bool {
        let first = &self.cores[0];
        let size = first.size.0.get() as usize;
        if size + values.len() > first.capacity() {
            return false;
        }
        for (at, &value) in values.iter().enumerate() {
            first.cell(size + at).set(value);
        }
        first.size.0.set((size + values.len()) as u32);
        true
    }

    pub fn label(&self) {
        for core in &self.cores {
            label::lines(&core.size, Label::Dictionary);
            let used = (core.size.0.get() as usize).div_ceil(LINES * PER_LINE);
            core.pages[..used.min(core.pages.len())]
                .iter()
                .for_each(|page| label::lines(page, Label::Dictionary));
        }
    }

    /// Values in all dictionaries.
    pub fn len(&self) -> usize {
        self.cores.iter().map(|core| core.size.0.get() as usize).sum()
    }
}
