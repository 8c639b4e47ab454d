//! What is known of transactional regions: who has read and written which lines, and what there is to undo.
//!
//! Invariant: a line's marks name hardware threads whose region is under way. A region that was ended has no marks and nothing to undo.
//!
//! The kernel changes them while no virtual thread runs: see [`crate::regions`].

use crate::abort::{Abort, Tally};
use crate::lines::NOBODY;
use crate::undo::Old;

/// Who is in a region that has reached this line, by hardware threads.
#[derive(Clone)]
pub(crate) struct Mark {
    pub readers: u128,
    pub writer: u8,
    pub label: u8,
}

const UNMARKED: Mark = Mark { readers: 0, writer: NOBODY, label: 0 };

/// The region of a thread.
#[derive(Default)]
pub(crate) struct Region {
    /// Where it began; while it has marks, the thread is there.
    pub context: usize,
    pub is_active: bool,
    pub doom: Option<Abort>,
    /// Places of lines, in the order in which they were first reached.
    pub lines: Vec<usize>,
    /// Those that take up room, by set.
    pub taken: Vec<u8>,
    pub undo: Vec<Old>,
    pub began: u64,
}

pub(crate) struct Regions {
    pub marks: Vec<Mark>,
    pub of_thread: Vec<Region>,
    /// Regions with marks.
    active: usize,
    /// When the next interrupt of a hardware thread comes.
    pub interrupts: Vec<u64>,
    pub tally: Tally,
}

impl Regions {
    pub(crate) fn new(contexts: usize) -> Regions {
        Regions {
            marks: Vec::new(),
            of_thread: Vec::new(),
            active: 0,
            interrupts: vec![0; contexts],
            tally: Tally::default(),
        }
    }

    #[inline]
    pub(crate) fn is_any_active(&self) -> bool {
        self.active > 0
    }

    /// The mark of a line, of which there are so many.
    pub(crate) fn mark(&mut self, place: usize, lines: usize) -> &mut Mark {
        if place >= self.marks.len() {
            self.marks.resize(lines, UNMARKED);
        }
        &mut self.marks[place]
    }

    /// A thread begins a region on a hardware thread.
    pub(crate) fn begin(&mut self, thread: usize, context: usize, clock: u64) {
        if self.of_thread.len() <= thread {
            self.of_thread.resize_with(thread + 1, Region::default);
        }
        let region = &mut self.of_thread[thread];
        region.context = context;
        region.is_active = true;
        region.doom = None;
        region.began = clock;
        self.active += 1;
        self.tally.begun += 1;
    }

    /// The region of a thread is over: it has no marks any more.
    pub(crate) fn unmark(&mut self, thread: usize) {
        let region = &mut self.of_thread[thread];
        for place in region.lines.drain(..) {
            let mark = &mut self.marks[place];
            mark.readers &= !(1 << region.context);
            if mark.writer as usize == region.context {
                mark.writer = NOBODY;
            }
        }
        region.taken.fill(0);
        self.active -= 1;
    }

    /// The thread is out of its region, and knows what became of it.
    pub(crate) fn leave(&mut self, thread: usize) {
        let region = &mut self.of_thread[thread];
        region.is_active = false;
        region.doom = None;
    }
}
