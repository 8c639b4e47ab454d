//! The model of a disk with a volatile cache: what is durable, and in order what was written since the last flush.
//!
//! An image is what a block device would hold. A write is in the cache when it returns; a flush makes all of them durable.
//! A cut makes a new image of what is durable and of any part of what is pending: later writes without earlier ones,
//! writes in part. The old image goes on taking writes, for those who have not noticed yet, and they go nowhere.
//!
//! What is torn: a write falls into units of `unit_bytes`, each of which is there as a whole or not at all. File systems
//! rely on that for their own blocks (the commit block of a journal, a superblock), so a unit is as large as their block.
//!
//! Invariants: `durable` with `pending` over it is all that a cut can leave; reads see the newest write, whether it can
//! survive or not. A failing write changes nothing that is read, though a cut may find it there. Thread-safety: one lock
//! round all images; nobody waits for anything while it is held.

use crate::dice::Dice;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What images are kept in.
const BLOCK_BYTES: usize = 4096;

type Block = [u8; BLOCK_BYTES];

/// Contents by number of the block; where there is none, the bytes are zero.
#[derive(Clone, Debug, Default)]
struct Blocks(BTreeMap<u64, Arc<Block>>);

impl Blocks {
    fn write(&mut self, at: u64, bytes: &[u8]) {
        for (number, within, part) in pieces(at, bytes.len()) {
            let block = self.0.entry(number).or_insert_with(|| Arc::new([0; BLOCK_BYTES]));
            let end = within + part.len();
            Arc::make_mut(block)[within..end].copy_from_slice(&bytes[part]);
        }
    }
}

/// The blocks that a range of bytes touches: number, first byte in it, and which bytes of the range.
fn pieces(at: u64, len_bytes: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len_bytes {
            return None;
        }
        let place = at + done as u64;
        let within = (place % BLOCK_BYTES as u64) as usize;
        let len = (BLOCK_BYTES - within).min(len_bytes - done);
        done += len;
        Some((place / BLOCK_BYTES as u64, within, done - len..done))
    })
}

/// A write since the last flush.
#[derive(Clone, Debug)]
struct Write {
    at: u64,
    bytes: Vec<u8>,
    /// Whoever wrote it was told that it failed: it may survive, and no flush makes it durable.
    has_failed: bool,
}

/// Whether calls of a kind fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Fails {
    /// They do not.
    #[default]
    Never,
    /// The next one does.
    Once,
    /// All do.
    Always,
}

impl Fails {
    fn take(&mut self) -> bool {
        let fails = *self != Fails::Never;
        if *self == Fails::Once {
            *self = Fails::Never;
        }
        fails
    }
}

/// Which calls to an image fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Faults {
    /// Writes.
    pub writes: Fails,
    /// Flushes.
    pub flushes: Fails,
    /// A flush that fails loses for good what is pending, though reads still see it.
    pub drops_pending: bool,
}

/// Why a call was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// It was made to fail.
    Failed,
    /// There is no such image, or it is shorter.
    Outside,
}

/// What has been asked of an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Flushes, those that failed or lied among them.
    pub flushes: u64,
    /// Calls that failed because they were made to.
    pub failed: u64,
}

/// How much of what was pending survived a cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Survived {
    /// Writes that were pending.
    pub pending: usize,
    /// Those of them that are there, as a whole or in part.
    pub there: usize,
    /// Those that are there in part.
    pub torn: usize,
}

/// One image.
#[derive(Debug)]
struct Image {
    len_bytes: u64,
    unit_bytes: u64,
    durable: Blocks,
    /// Whole blocks that were written since, over what is durable: what reads see.
    newest: Blocks,
    pending: Vec<Write>,
    /// A flush has dropped writes that are still read: `newest` is not what is durable even when nothing is pending.
    has_dropped: bool,
    is_lying: bool,
    faults: Faults,
    counts: Counts,
}

impl Image {
    fn new(len_bytes: u64, unit_bytes: u64, durable: Blocks) -> Image {
        Image {
            len_bytes,
            unit_bytes,
            durable,
            newest: Blocks::default(),
            pending: Vec::new(),
            has_dropped: false,
            is_lying: false,
            faults: Faults::default(),
            counts: Counts::default(),
        }
    }

    fn check_range(&self, at: u64, len_bytes: usize) -> Result<(), Refused> {
        let end = at.checked_add(len_bytes as u64).ok_or(Refused::Outside)?;
        if end <= self.len_bytes { Ok(()) } else { Err(Refused::Outside) }
    }

    fn read(&self, at: u64, len_bytes: usize) -> Result<Vec<u8>, Refused> {
        self.check_range(at, len_bytes)?;
        let mut bytes = vec![0; len_bytes];
        for (number, within, part) in pieces(at, len_bytes) {
            let block = self.newest.0.get(&number).or_else(|| self.durable.0.get(&number));
            if let Some(block) = block {
                let end = within + part.len();
                bytes[part].copy_from_slice(&block[within..end]);
            }
        }
        Ok(bytes)
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), Refused> {
        self.check_range(at, bytes.len())?;
        let has_failed = self.faults.writes.take();
        self.pending.push(Write { at, bytes: bytes.to_vec(), has_failed });
        if has_failed {
            self.counts.failed += 1;
            return Err(Refused::Failed);
        }
        for (number, ..) in pieces(at, bytes.len()) {
            if let (None, Some(block)) = (self.newest.0.get(&number), self.durable.0.get(&number)) {
                self.newest.0.insert(number, block.clone());
            }
        }
        self.newest.write(at, bytes);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Refused> {
        self.counts.flushes += 1;
        if self.faults.flushes.take() {
            self.counts.failed += 1;
            if self.faults.drops_pending {
                self.has_dropped |= !self.pending.is_empty();
                self.pending.clear();
            }
            return Err(Refused::Failed);
        }
        if !self.is_lying {
            self.settle();
        }
        Ok(())
    }

    fn settle(&mut self) {
        for write in self.pending.drain(..).filter(|write| !write.has_failed) {
            self.durable.write(write.at, &write.bytes);
        }
        if !self.has_dropped {
            self.newest.0.clear();
        }
    }

    /// What a power cut leaves, and how much of what was pending that is.
    fn cut(&self, dice: &mut Dice) -> (Image, Survived) {
        let pending = self.pending.len();
        let mut survived = Survived { pending, there: 0, torn: 0 };
        let mut durable = self.durable.clone();
        let (first, percent) = match dice.below(8) {
            0 => (0, 0),
            1 => (pending, 0),
            // A first part, of which the last write may be torn.
            2 | 3 => (dice.below(pending as u64 + 1) as usize, 0),
            _ => (0, [10, 50, 90][dice.below(3) as usize]),
        };
        let is_prefix = first > 0 && first < pending;
        for (n, write) in self.pending.iter().enumerate() {
            let is_last = is_prefix && n + 1 == first;
            let is_there = n < first || dice.percent(percent);
            if !is_there {
                continue;
            }
            let may_tear = is_last || n >= first;
            let units = self.units_of(write);
            let mut there = units.clone().count();
            if may_tear && there > 1 && dice.percent(40) {
                there = self.tear(write, &mut durable, dice);
            } else {
                durable.write(write.at, &write.bytes);
            }
            survived.there += usize::from(there > 0);
            survived.torn += usize::from(there > 0 && there < units.count());
        }
        (Image::new(self.len_bytes, self.unit_bytes, durable), survived)
    }

    /// The units that a write touches, by number.
    fn units_of(&self, write: &Write) -> std::ops::RangeInclusive<u64> {
        let end = write.at + write.bytes.len() as u64;
        write.at / self.unit_bytes..=(end.max(1) - 1) / self.unit_bytes
    }

    /// Writes some units of a write, or none, or all: how many.
    fn tear(&self, write: &Write, durable: &mut Blocks, dice: &mut Dice) -> usize {
        let end = write.at + write.bytes.len() as u64;
        let mut there = 0;
        for unit in self.units_of(write).filter(|_| dice.percent(50)) {
            let from = (unit * self.unit_bytes).max(write.at);
            let to = ((unit + 1) * self.unit_bytes).min(end);
            let bytes = &write.bytes[(from - write.at) as usize..(to - write.at) as usize];
            durable.write(from, bytes);
            there += 1;
        }
        there
    }
}

/// The images, by number; each has a number of its own, and none is used again.
#[derive(Debug, Default)]
pub struct Device {
    images: Mutex<Images>,
}

#[derive(Debug, Default)]
struct Images {
    by_number: BTreeMap<u64, Image>,
    next: u64,
}

impl Images {
    fn add(&mut self, image: Image) -> u64 {
        self.next += 1;
        self.by_number.insert(self.next, image);
        self.next
    }

    fn get(&mut self, number: u64) -> Result<&mut Image, Refused> {
        self.by_number.get_mut(&number).ok_or(Refused::Outside)
    }
}

impl Device {
    /// No state is left half changed where a thread can panic.
    fn lock(&self) -> MutexGuard<'_, Images> {
        self.images.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new image of zeros; its number.
    pub fn create(&self, len_bytes: u64, unit_bytes: u64) -> u64 {
        self.lock().add(Image::new(len_bytes, unit_bytes.max(1), Blocks::default()))
    }

    /// A new image of what is durable in another one; its number.
    pub fn copy(&self, number: u64) -> Result<u64, Refused> {
        let mut images = self.lock();
        let image = images.get(number)?;
        let copy = Image::new(image.len_bytes, image.unit_bytes, image.durable.clone());
        Ok(images.add(copy))
    }

    /// Forgets an image that nobody uses any more.
    pub fn remove(&self, number: u64) {
        self.lock().by_number.remove(&number);
    }

    /// Length of an image.
    ///
    /// Errors, of all these: if there is no such image, or it is shorter; if it was made to fail.
    pub fn len_bytes(&self, number: u64) -> Result<u64, Refused> {
        self.lock().get(number).map(|image| image.len_bytes)
    }

    /// What was written last.
    pub fn read(&self, number: u64, at: u64, len_bytes: usize) -> Result<Vec<u8>, Refused> {
        self.lock().get(number)?.read(at, len_bytes)
    }

    /// Writes into the cache.
    pub fn write(&self, number: u64, at: u64, bytes: &[u8]) -> Result<(), Refused> {
        self.lock().get(number)?.write(at, bytes)
    }

    /// Makes durable what was written, unless the image lies.
    pub fn flush(&self, number: u64) -> Result<(), Refused> {
        self.lock().get(number)?.flush()
    }

    /// Makes everything durable, whether or not the image lies from here on.
    pub fn settle(&self, number: u64, is_lying: bool) -> Result<(), Refused> {
        let mut images = self.lock();
        let image = images.get(number)?;
        image.settle();
        image.is_lying = is_lying;
        Ok(())
    }

    /// Calls fail from here on.
    pub fn fail(&self, number: u64, faults: Faults) -> Result<(), Refused> {
        self.lock().get(number).map(|image| image.faults = faults)
    }

    /// What was asked of an image so far.
    pub fn counts(&self, number: u64) -> Result<Counts, Refused> {
        self.lock().get(number).map(|image| image.counts)
    }

    /// Cuts the power if at least so many writes are pending: the number of the image that has what survived, and lies
    /// if the old one did. The old one takes whatever comes, without failing, so that who uses it can be got rid of.
    pub fn cut(
        &self,
        number: u64,
        least_pending: usize,
        dice: &mut Dice,
    ) -> Result<Option<(u64, Survived)>, Refused> {
        let mut images = self.lock();
        let old = images.get(number)?;
        if old.pending.len() < least_pending {
            return Ok(None);
        }
        let (mut image, survived) = old.cut(dice);
        image.is_lying = old.is_lying;
        old.faults = Faults::default();
        Ok(Some((images.add(image), survived)))
    }
}

#[cfg(test)]
mod tests;
