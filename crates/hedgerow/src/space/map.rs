//! The durable page map: page id to slot, a radix tree of parts rooted in the superblock.
//!
//! Leaf `i` holds the slots of the 508 page ids whose [`PageId::part`] is `i`, at the word that
//! [`PageId::word`] names; an upper part holds the slots of 508 children. A word of zero: nothing
//! there. The tree grows at the root and does not get lower (four levels hold all ids). This is never
//! a copy of the page table in memory: the map of a checkpoint is the map of the one before and the
//! delta, and [`apply`] writes just the parts on the way to what changed, each into a new slot.
//!
//! Every part is checked against its name before a word of it is used, and each word against the
//! file's bounds, so a hostile file can neither lead out of the file nor in circles: the level falls
//! by one at each step. Pure functions over [`PartIo`], which the caller implements.

use super::geometry::{Geometry, PART_CONTENT_WORDS};
use super::part::{self, PartBytes, PartKind, PartName};
use crate::error::{Error, Result};
use crate::types::{Epoch, PART_HEADER_WORDS, PART_WORDS, PageId, Slot};

pub(super) const FANOUT: u32 = PART_CONTENT_WORDS as u32;
/// Levels that hold every page id.
pub const MAX_MAP_LEVELS: u8 = 4;

const _: () = assert!(MAX_MAP_LEVELS <= part::MAX_LEVELS);
const _: () = assert!((FANOUT as u64).pow(3) * PART_WORDS as u64 > u32::MAX as u64);

/// Where the page map of a checkpoint begins, as its superblock has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MapRoot {
    /// Slot of the root part; none while the map is empty.
    pub slot: Slot,
    /// The root part's whole checksum.
    pub checksum: u64,
    /// Levels, counting the leaves: 0 to [`MAX_MAP_LEVELS`].
    pub levels: u8,
}

impl MapRoot {
    /// The map without a page.
    pub const EMPTY: MapRoot = MapRoot { slot: Slot::NONE, checksum: 0, levels: 0 };
}

/// A map to read: its root, and what its parts are checked against.
#[derive(Clone, Copy, Debug)]
pub struct MapView {
    /// The root.
    pub root: MapRoot,
    /// The checkpoint that the root belongs to.
    pub checkpoint: Epoch,
    /// The file's geometry.
    pub geometry: Geometry,
    /// Units that the file has.
    pub units: u64,
}

/// What walking and rewriting the map needs of the store.
pub trait PartIo {
    /// Fills a part from a slot: 4 KiB, unchecked.
    fn read(&mut self, slot: Slot, out: &mut PartBytes) -> Result<()>;

    /// Says which parts are read next, in this order: they may be read together.
    fn read_soon(&mut self, _slots: &[Slot]) {}

    /// Takes a slot for a part and returns its offset.
    fn allocate(&mut self) -> Result<u64>;

    /// Writes a part to an offset that [`Self::allocate`] returned. Need not be durable yet.
    fn write(&mut self, offset_bytes: u64, part: &PartBytes) -> Result<()>;

    /// The map refers to this page slot now ([`super::Zones::refer`]).
    fn entered(&mut self, slot: Slot) -> Result<()>;

    /// The map refers to this page slot no more ([`super::Zones::unrefer`]).
    fn left(&mut self, slot: Slot) -> Result<()>;

    /// The map has this part now ([`super::Zones::refer_part`]).
    fn part_entered(&mut self, slot: Slot) -> Result<()>;

    /// The map has this part no more ([`super::Zones::unrefer_part`]).
    fn part_left(&mut self, slot: Slot, born: Epoch) -> Result<()>;
}

/// A step of [`apply`]: a page and its slot (none for a freed page), or a leaf that is to be
/// rewritten where it lies too far back in the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// The page's slot.
    Set(PageId, Slot),
    /// Rewrite the leaf with this index, and every part on the way to it.
    Move(u32),
}

impl Change {
    fn leaf(self) -> u32 {
        match self {
            Change::Set(id, _) => id.part() as u32,
            Change::Move(leaf) => leaf,
        }
    }
}

impl MapView {
    /// Reads and checks one part, words included; returns its checksum.
    fn load(
        &self,
        io: &mut dyn PartIo,
        name: PartName,
        slot: Slot,
        out: &mut PartBytes,
    ) -> Result<u64> {
        io.read(slot, out)?;
        let checksum = part::decode(out, name, slot, self.checkpoint)?;
        for index in 0..PART_CONTENT_WORDS {
            let word = part::word(out, index);
            if word != 0 && !self.is_child(name.level, word) {
                let what = format!("page map: word {index} of {name:?} is no slot of this file");
                return Err(Error::corrupted_at(slot.offset_bytes(), what));
            }
        }
        Ok(checksum)
    }

    fn is_child(&self, level: u8, word: u64) -> bool {
        let slot = Slot::from_word(word);
        let right_length =
            if level == 0 { self.geometry.is_image_slot(slot) } else { part::is_part_slot(slot) };
        word & !Slot::MASK == 0
            && right_length
            && self.geometry.slot_units(slot, self.units).is_some()
    }

    fn load_root(&self, io: &mut dyn PartIo, out: &mut PartBytes) -> Result<()> {
        let root = self.root;
        if self.geometry.slot_units(root.slot, self.units).is_none()
            || !part::is_part_slot(root.slot)
        {
            return Err(Error::corrupted_at(root.slot.offset_bytes(), "page map: no such root"));
        }
        let name = PartName { kind: PartKind::Map, level: root.levels - 1, index: 0 };
        if self.load(io, name, root.slot, out)? != root.checksum {
            return Err(Error::corrupted_at(root.slot.offset_bytes(), "page map: stale root"));
        }
        Ok(())
    }

    /// Reads leaf `leaf` into `out`; `false`, and zeroes, if the map has no such part. At most four
    /// reads.
    ///
    /// Errors: those of the reads; `Corrupted` for a damaged part.
    pub fn leaf(&self, leaf: u32, io: &mut dyn PartIo, out: &mut PartBytes) -> Result<bool> {
        let levels = self.root.levels;
        if levels == 0 || u64::from(leaf) >= u64::from(FANOUT).pow(u32::from(levels - 1)) {
            out.fill(0);
            return Ok(false);
        }
        self.load_root(io, out)?;
        for level in (0..levels - 1).rev() {
            let index = leaf / FANOUT.pow(u32::from(level));
            let slot = Slot::from_word(part::word(out, (index % FANOUT) as usize));
            if slot.is_none() {
                out.fill(0);
                return Ok(false);
            }
            self.load(io, PartName { kind: PartKind::Map, level, index }, slot, out)?;
        }
        Ok(true)
    }

    /// The slot of a page; none if the map does not have the page. Goes down from the root, and asks `word` for a word of each part on
    /// the way, which [`Self::read_part`] reads.
    ///
    /// Errors: those of `word`.
    pub fn slot_of(
        &self,
        id: PageId,
        word: &mut dyn FnMut(PartName, Slot, usize) -> Result<u64>,
    ) -> Result<Slot> {
        let (leaf, levels) = (id.part() as u32, self.root.levels);
        let is_beyond =
            levels == 0 || u64::from(leaf) >= u64::from(FANOUT).pow(u32::from(levels - 1));
        if is_beyond || !id.is_usable() {
            return Ok(Slot::NONE);
        }
        let mut slot = self.root.slot;
        for level in (0..levels).rev() {
            let name =
                PartName { kind: PartKind::Map, level, index: leaf / FANOUT.pow(u32::from(level)) };
            let at = match level {
                0 => id.word() - PART_HEADER_WORDS,
                _ => (leaf / FANOUT.pow(u32::from(level) - 1) % FANOUT) as usize,
            };
            slot = Slot::from_word(word(name, slot, at)?);
            if slot.is_none() {
                break;
            }
        }
        Ok(slot)
    }

    /// Reads and checks a part; `slot` is where its parent says that it is, or the root's.
    ///
    /// Errors: those of the read; `Corrupted`.
    pub fn read_part(
        &self,
        name: PartName,
        slot: Slot,
        io: &mut dyn PartIo,
        out: &mut PartBytes,
    ) -> Result<()> {
        match name.level + 1 == self.root.levels {
            true => self.load_root(io, out),
            false => self.load(io, name, slot, out).map(drop),
        }
    }

    /// Calls `each` for every part of the map, parents first: level, index, slot and checked bytes.
    /// Reads all of it.
    ///
    /// Errors: those of the reads and of `each`; `Corrupted` for a damaged part.
    pub fn for_each_part(
        &self,
        io: &mut dyn PartIo,
        each: &mut dyn FnMut(u8, u32, Slot, &PartBytes) -> Result<()>,
    ) -> Result<()> {
        self.for_each_sound_part(io, each, &mut |_, _, _, error| Err(error))
    }

    /// The same, and hands level, index and error of each part that cannot be read to `damaged`, which says whether
    /// to go on without it and all that is below it.
    pub fn for_each_sound_part(
        &self,
        io: &mut dyn PartIo,
        each: &mut dyn FnMut(u8, u32, Slot, &PartBytes) -> Result<()>,
        damaged: &mut dyn FnMut(u8, u32, Slot, Error) -> Result<()>,
    ) -> Result<()> {
        if self.root.levels == 0 {
            return Ok(());
        }
        let mut bytes = part::new_bytes();
        let top = self.root.levels - 1;
        if let Err(error) = self.load_root(io, &mut bytes) {
            return damaged(top, 0, self.root.slot, error);
        }
        self.walk(io, top, 0, self.root.slot, bytes, each, damaged)
    }

    #[expect(clippy::too_many_arguments, reason = "one recursion, one caller")]
    fn walk(
        &self,
        io: &mut dyn PartIo,
        level: u8,
        index: u32,
        slot: Slot,
        bytes: Box<PartBytes>,
        each: &mut dyn FnMut(u8, u32, Slot, &PartBytes) -> Result<()>,
        damaged: &mut dyn FnMut(u8, u32, Slot, Error) -> Result<()>,
    ) -> Result<()> {
        each(level, index, slot, &bytes)?;
        for child in 0..if level == 0 { 0 } else { FANOUT } {
            let slot = Slot::from_word(part::word(&bytes, child as usize));
            if slot.is_none() {
                continue;
            }
            let index = index * FANOUT + child;
            let mut below = part::new_bytes();
            let level = level - 1;
            let name = PartName { kind: PartKind::Map, level, index };
            match self.load(io, name, slot, &mut below) {
                Ok(_) => self.walk(io, level, index, slot, below, each, damaged)?,
                Err(error) => damaged(level, index, slot, error)?,
            }
        }
        Ok(())
    }

    /// Leaves to move so that no part of the map is left at or beyond `offset_bytes`, at most `most`
    /// of them: such leaves, and one leaf below each such upper part. Reads upper parts only.
    ///
    /// Errors: those of the reads; `Corrupted` for a damaged part.
    pub fn parts_beyond(
        &self,
        offset_bytes: u64,
        most: usize,
        io: &mut dyn PartIo,
    ) -> Result<Vec<u32>> {
        let mut found = Vec::new();
        if self.root.levels == 0 {
            return Ok(found);
        }
        let mut bytes = part::new_bytes();
        let far = self.root.slot.offset_bytes() >= offset_bytes;
        if self.root.levels == 1 {
            found.extend(far.then_some(0));
        } else {
            self.load_root(io, &mut bytes)?;
            self.find_beyond(
                offset_bytes,
                most,
                io,
                self.root.levels - 1,
                0,
                far,
                bytes,
                &mut found,
            )?;
        }
        Ok(found)
    }

    #[expect(clippy::too_many_arguments, reason = "one recursion, one caller")]
    fn find_beyond(
        &self,
        offset_bytes: u64,
        most: usize,
        io: &mut dyn PartIo,
        level: u8,
        index: u32,
        far: bool,
        bytes: Box<PartBytes>,
        found: &mut Vec<u32>,
    ) -> Result<()> {
        let before = found.len();
        let mut any = None;
        for child in 0..FANOUT {
            let slot = Slot::from_word(part::word(&bytes, child as usize));
            if slot.is_none() || found.len() >= most {
                continue;
            }
            let index = index * FANOUT + child;
            let far = slot.offset_bytes() >= offset_bytes;
            any = any.or(Some(index));
            if level == 1 {
                found.extend(far.then_some(index));
            } else {
                let mut below = part::new_bytes();
                let name = PartName { kind: PartKind::Map, level: level - 1, index };
                self.load(io, name, slot, &mut below)?;
                self.find_beyond(offset_bytes, most, io, level - 1, index, far, below, found)?;
            }
        }
        // Rewriting any leaf rewrites the parts above it. An id below a part of level 1 is a leaf;
        // below a higher one the first leaf of that subtree stands for it, blank or not.
        if far && found.len() == before && found.len() < most {
            found.extend(any.map(|index| index * FANOUT.pow(u32::from(level - 1))));
        }
        Ok(())
    }
}

/// The part that a new one is made from.
#[derive(Clone, Copy)]
enum Old {
    /// There was none.
    Blank,
    /// This one, at the level in question.
    Part(Slot),
    /// None at this level, but the old root lies below child 0.
    Above,
}

/// Applies `changes` (by ascending leaf, each page at most once) to the map and returns the new
/// root: checkpoint `epoch`'s. Holds one part a level in memory.
///
/// Errors: those of `io`; `Corrupted` for a damaged part. After an error the new parts are garbage
/// and the old map is as it was: drop the checkpoint ([`super::Zones::abort_checkpoint`]).
pub fn apply(
    old: &MapView,
    epoch: Epoch,
    changes: impl Iterator<Item = Change>,
    io: &mut dyn PartIo,
) -> Result<MapRoot> {
    let mut changes: Vec<Change> = changes.collect();
    // A leaf that is to move and has changes as well: one rewriting does both.
    changes.sort_by_key(|change| change.leaf());
    let Some(last) = changes.last() else { return Ok(old.root) };
    let mut levels = old.root.levels.max(1);
    while u64::from(last.leaf()) >= u64::from(FANOUT).pow(u32::from(levels - 1)) {
        levels += 1;
    }
    let top = levels - 1;
    let start = match old.root.levels {
        0 => Old::Blank,
        same if same == levels => Old::Part(old.root.slot),
        _ => Old::Above,
    };
    let mut step = Step { old, epoch, io };
    Ok(match step.rewrite(top, 0, start, &changes)? {
        Some((slot, checksum)) => MapRoot { slot, checksum, levels },
        None => MapRoot::EMPTY,
    })
}

struct Step<'a> {
    old: &'a MapView,
    epoch: Epoch,
    io: &'a mut dyn PartIo,
}

impl Step<'_> {
    /// Rewrites one part and what changed below it; `None` if nothing is left in it.
    fn rewrite(
        &mut self,
        level: u8,
        index: u32,
        from: Old,
        changes: &[Change],
    ) -> Result<Option<(Slot, u64)>> {
        let name = PartName { kind: PartKind::Map, level, index };
        let mut bytes = part::new_bytes();
        let mut replaced = None;
        if let Old::Part(slot) = from {
            if slot == self.old.root.slot {
                self.old.load_root(self.io, &mut bytes)?;
            } else {
                self.old.load(self.io, name, slot, &mut bytes)?;
            }
            replaced = Some((slot, part::epoch(&bytes)));
        }
        if level == 0 {
            self.set_words(&mut bytes, changes)?;
        } else {
            self.rewrite_children(level, index, from, &mut bytes, changes)?;
        }
        if let Some((slot, born)) = replaced {
            self.io.part_left(slot, born)?;
        }
        if part::is_blank(&bytes) {
            return Ok(None);
        }
        let offset = self.io.allocate()?;
        let checksum = part::encode(&mut bytes, name, self.epoch);
        let slot = part::slot_at(offset, checksum);
        self.io.part_entered(slot)?;
        self.io.write(offset, &bytes)?;
        Ok(Some((slot, checksum)))
    }

    fn set_words(&mut self, bytes: &mut PartBytes, changes: &[Change]) -> Result<()> {
        for &change in changes {
            let Change::Set(id, new) = change else { continue };
            assert!(id.is_usable(), "an id that is never given out has changed");
            let word = id.word() - PART_HEADER_WORDS;
            let before = Slot::from_word(part::word(bytes, word));
            if before == new {
                continue;
            }
            if !before.is_none() {
                self.io.left(before)?;
            }
            if !new.is_none() {
                self.io.entered(new)?;
            }
            part::set_word(bytes, word, if new.is_none() { 0 } else { new.word() });
        }
        Ok(())
    }

    fn rewrite_children(
        &mut self,
        level: u8,
        index: u32,
        from: Old,
        bytes: &mut PartBytes,
        changes: &[Change],
    ) -> Result<()> {
        let span = FANOUT.pow(u32::from(level - 1));
        let old_top = self.old.root.levels.saturating_sub(1);
        let mut rest = changes;
        if let Old::Above = from {
            let first = rest.partition_point(|change| change.leaf() / span == 0);
            let (below, after) = rest.split_at(first);
            rest = after;
            let child =
                if level - 1 == old_top { Old::Part(self.old.root.slot) } else { Old::Above };
            let word = match child {
                Old::Part(slot) if below.is_empty() => slot.word(),
                _ => self.child_word(level, 0, child, below)?,
            };
            part::set_word(bytes, 0, word);
        }
        if level == 1 {
            let mut leaves: Vec<u32> = rest.iter().map(|change| change.leaf()).collect();
            leaves.dedup();
            let slot = |leaf| Slot::from_word(part::word(bytes, (leaf - index * FANOUT) as usize));
            let slots: Vec<Slot> = leaves.into_iter().map(slot).collect();
            self.io.read_soon(&slots);
        }
        while let Some(next) = rest.first() {
            let child = next.leaf() / span;
            let count = rest.partition_point(|change| change.leaf() / span <= child);
            let (below, after) = rest.split_at(count);
            rest = after;
            let word = (child - index * FANOUT) as usize;
            let slot = Slot::from_word(part::word(bytes, word));
            let from = if slot.is_none() { Old::Blank } else { Old::Part(slot) };
            let new = self.child_word(level, child, from, below)?;
            part::set_word(bytes, word, new);
        }
        Ok(())
    }

    fn child_word(&mut self, level: u8, child: u32, from: Old, below: &[Change]) -> Result<u64> {
        let new = self.rewrite(level - 1, child, from, below)?;
        Ok(new.map_or(0, |(slot, _)| slot.word()))
    }
}
