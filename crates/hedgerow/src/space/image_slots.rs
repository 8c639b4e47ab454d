//! Slots for images of pages, which are of many lengths.
//!
//! The images of a batch go one behind the other into the gaps of a zone, front to back. For a gap that the next one is too
//! long for, the longest of some that follow is taken that fits. In a long run a batch begins with a block of 4 KiB: file
//! systems and devices write whole blocks in place without reading them, and without waiting for others.
//!
//! Each page that is dirty was let in for the room of a whole page ([`super::room`]), and room is counted in runs of that
//! length. So nothing is taken out of the middle of a run unless the batch makes up for it: a slot at a run's beginning
//! costs one run at most ([`super::runs`]).
//!
//! Not shared: the caller's lock covers each call.

use super::bits::run_from;
use super::zone::{Growth, Head, Want};
use super::zones::Zones;

/// The block of most devices, whatever their smallest one is, and of file systems.
const BLOCK_BYTES: u32 = 4096;
/// A run that is worth leaving something free at its beginning, so that a write begins with such a block.
const LONG_RUN_BYTES: u32 = 32 << 10;
/// Images that wait, of which one is looked for that fits into a gap.
const LOOKED_AHEAD: usize = 32;

impl Zones {
    /// Takes a slot for an image of each of these lengths in bytes, at most a page each. `out` gets them in the order of the
    /// file as far as it can be: the index of the length, and the slot's offset. That order is the one of the lengths, but for
    /// images that fit into a gap for which the next one is too long. All or nothing; else as [`Self::allocate`].
    pub fn allocate_images(
        &mut self,
        lens_bytes: &[u32],
        growth: Growth,
        out: &mut Vec<(usize, u64)>,
    ) -> Result<(), Want> {
        out.clear();
        let units = lens_bytes.iter().map(|&len| self.geometry.units_for(len).max(1));
        let mut pending = Pending::new(units.collect());
        while let Some(units) = pending.first() {
            match self.take_image(units, &mut pending, growth) {
                Ok((index, unit)) => out.push((index, self.geometry.unit_offset(unit))),
                Err(want) => {
                    for (index, offset) in out.drain(..) {
                        self.give_back(offset, lens_bytes[index]);
                    }
                    self.growing_for(&want);
                    return Err(want);
                }
            }
        }
        Ok(())
    }

    /// Takes a place for one of the images that wait, the first of which has `units`.
    fn take_image(
        &mut self,
        units: u32,
        pending: &mut Pending,
        growth: Growth,
    ) -> Result<(usize, u64), Want> {
        loop {
            if let Some(head) = self.heads[0] {
                if let Some((index, unit, units)) = self.find_in_zone(head, pending) {
                    return Ok((index, self.take_at(0, head.zone, unit, units)));
                }
                self.close_head(0);
            }
            self.open_head(0, units, growth)?;
        }
    }

    /// A place in the head's zone for one of the images that wait: index, unit and number of units.
    fn find_in_zone(&self, head: Head, pending: &mut Pending) -> Option<(usize, u32, u32)> {
        let per_zone = self.geometry.units_per_zone();
        let words = self.held(head.zone);
        let mut from = head.unit;
        while let Some((start, stop)) = run_from(words, per_zone, from) {
            let start = match pending.is_begun_at(start) {
                true => start,
                false => start + self.to_block(start, stop, pending),
            };
            if let Some((index, units)) = pending.take_up_to(stop - start) {
                pending.is_next_to(start + units);
                return Some((index, start, units));
            }
            from = stop;
        }
        None
    }

    /// Units to leave free so that a write begins with a block of the device. Only in a long run, and only if the images
    /// that go there take no more than so many whole pages would: each of them was let in for the room of one.
    fn to_block(&self, start: u32, stop: u32, pending: &Pending) -> u32 {
        let block = (BLOCK_BYTES / self.geometry.unit_bytes()).max(1);
        let skip = start.next_multiple_of(block) - start;
        if skip == 0 || stop - start < LONG_RUN_BYTES / self.geometry.unit_bytes() {
            return 0;
        }
        let page = self.geometry.units_for(self.geometry.page_bytes()).max(1);
        let (images, units) = pending.fitting(stop - start - skip);
        if skip + units <= images * page { skip } else { 0 }
    }
}

/// Images that wait for a place, in the order in which they should lie in the file.
struct Pending {
    units: Vec<u32>,
    /// Those that have a place.
    is_placed: Vec<bool>,
    /// Before it all have one.
    first: usize,
    /// Where the last one ends, in units of its zone.
    next: Option<u32>,
}

impl Pending {
    fn new(units: Vec<u32>) -> Pending {
        Pending { is_placed: vec![false; units.len()], units, first: 0, next: None }
    }

    /// Units of the first one that waits.
    fn first(&self) -> Option<u32> {
        self.units.get(self.first).copied()
    }

    fn is_begun_at(&self, unit: u32) -> bool {
        self.next == Some(unit)
    }

    fn is_next_to(&mut self, end: u32) {
        self.next = Some(end);
    }

    /// The next ones that wait, the first first.
    fn waiting(&self, most: usize) -> impl Iterator<Item = (usize, u32)> + '_ {
        let all = self.units.iter().copied().enumerate().skip(self.first);
        all.filter(|&(index, _)| !self.is_placed[index]).take(most)
    }

    /// Takes one for a gap: the first if it fits, else the longest of the next ones that does.
    fn take_up_to(&mut self, gap: u32) -> Option<(usize, u32)> {
        let (first, units) = (self.first, self.first()?);
        let (index, units) = match units <= gap {
            true => (first, units),
            false => {
                let fitting = self.waiting(LOOKED_AHEAD).filter(|&(_, units)| units <= gap);
                fitting.max_by_key(|&(index, units)| (units, usize::MAX - index))?
            }
        };
        self.is_placed[index] = true;
        while self.is_placed.get(self.first) == Some(&true) {
            self.first += 1;
        }
        Some((index, units))
    }

    /// How many of the next ones go into a run of so many units, and their units.
    fn fitting(&self, run: u32) -> (u32, u32) {
        let (mut images, mut units) = (0, 0);
        for (_, more) in self.waiting(LOOKED_AHEAD) {
            if units + more > run {
                break;
            }
            (images, units) = (images + 1, units + more);
        }
        (images, units)
    }
}
