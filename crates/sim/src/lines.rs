//! Cache lines: how they are numbered, and who holds them.
//!
//! A line's name counts lines in the order in which they are first touched. So it does not depend on where the system puts memory, nor
//! on what else lies in the heap. Its place in the table is that of its page, and of itself in the page: pages are looked up, and
//! not lines. Per core there is a filter of 2^14 lines, by the low bits of the name: a line that meets another one there
//! puts it out.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

const PAGE_SHIFT: u32 = 12;
const LINE_SHIFT: u32 = 6;
const LINES_PER_PAGE: usize = 1 << (PAGE_SHIFT - LINE_SHIFT);
/// Lines that a core holds at most.
pub(crate) const FILTER: usize = 1 << 14;
/// Pages found lately, by the low bits of their address.
const RECENT: usize = 1 << 10;
pub(crate) const NOBODY: u8 = u8::MAX;

/// One line. Either one core owns it, or some share it, or nobody holds it.
#[derive(Clone)]
pub(crate) struct Line {
    /// Cores that hold it, the owner included.
    pub holders: u128,
    /// Not granted to the next one before.
    pub busy_until: u64,
    /// Who holds it alone, and may write.
    pub owner: u8,
    /// Somebody has had it.
    pub touched: bool,
    /// Counts lines from one; zero before it is first touched.
    pub name: u32,
    /// Who got it last.
    pub last: u8,
    /// Where its queue is, counted from one; zero if nobody ever had to wait for it.
    pub queue: u32,
}

const UNTOUCHED: Line = Line {
    holders: 0,
    busy_until: 0,
    owner: NOBODY,
    touched: false,
    name: 0,
    last: NOBODY,
    queue: 0,
};

#[derive(Default)]
struct Mixing(u64);

impl Hasher for Mixing {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_usize(usize::from(byte));
        }
    }

    fn write_usize(&mut self, number: usize) {
        self.0 = (self.0 ^ number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(20);
    }
}

pub(crate) struct Lines {
    pub all: Vec<Line>,
    pages: HashMap<usize, u32, BuildHasherDefault<Mixing>>,
    recent: Vec<(usize, u32)>,
    named: u32,
    /// Per core, its filter: the line's place and one, or zero.
    filters: Vec<u32>,
}

impl Lines {
    pub(crate) fn new(cores: usize) -> Lines {
        Lines {
            all: Vec::new(),
            pages: HashMap::default(),
            recent: vec![(usize::MAX, 0); RECENT],
            named: 0,
            filters: vec![0; cores * FILTER],
        }
    }

    /// The place of the line that holds an address. It has a name from now on.
    #[inline]
    pub(crate) fn place_of(&mut self, address: usize) -> usize {
        let page = address >> PAGE_SHIFT;
        let (known, number) = self.recent[page % RECENT];
        let number = if known == page { number } else { self.look_up(page) };
        let place = number as usize * LINES_PER_PAGE + (address >> LINE_SHIFT) % LINES_PER_PAGE;
        let line = &mut self.all[place];
        if line.name == 0 {
            self.named += 1;
            line.name = self.named;
        }
        place
    }

    #[cold]
    fn look_up(&mut self, page: usize) -> u32 {
        let next = (self.all.len() / LINES_PER_PAGE) as u32;
        let number = *self.pages.entry(page).or_insert(next);
        if number == next {
            self.all.resize(self.all.len() + LINES_PER_PAGE, UNTOUCHED);
        }
        self.recent[page % RECENT] = (page, number);
        number
    }

    /// The name of the line that holds an address.
    pub(crate) fn name_of(&mut self, address: usize) -> usize {
        let place = self.place_of(address);
        self.all[place].name as usize
    }

    /// Notes that a core holds a line. True if another line had to go for it.
    pub(crate) fn fill(&mut self, core: u32, number: usize) -> bool {
        let name = self.all[number].name as usize;
        let place = &mut self.filters[core as usize * FILTER + name % FILTER];
        let old = std::mem::replace(place, number as u32 + 1);
        if old == 0 || old == number as u32 + 1 {
            return false;
        }
        let line = &mut self.all[old as usize - 1];
        let had_it = line.holders & 1 << core != 0;
        line.holders &= !(1 << core);
        if u32::from(line.owner) == core {
            line.owner = NOBODY;
        }
        had_it
    }
}
