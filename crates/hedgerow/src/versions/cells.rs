//! Memory of old versions: cells of 64 bytes in blocks that somebody lends.
//!
//! What is stored is a *chain*: a run of bytes over as many cells as it needs, each of which begins with the number of the next.
//! Cells are of one size, so freeing a chain leaves no gap that a later one does not fit into, and a version of any length has
//! room as soon as there are enough cells, wherever they are. That is what makes a reservation a number.
//!
//! Each block has a list of its own free cells, so that a block without chains can be given back. A block from which a cell
//! can be taken is *open*; open blocks are on a stack, and cells come from the topmost.
//!
//! Invariants: a cell is on a free list or in one chain; `free` counts the cells on free lists; taking and releasing cells
//! allocates nothing (the stack has room for all blocks). A plain value: whoever has it locked has it alone.

use crate::error::{Error, ErrorKind, Result};
use crate::versions::memory::Block;

/// Bytes of a cell.
pub(super) const CELL_BYTES: usize = 64;
/// Bytes of a chain that a cell holds.
pub(super) const PAYLOAD_BYTES: usize = CELL_BYTES - LINK_BYTES;
const LINK_BYTES: usize = 4;

/// The number of a cell, which names the chain that begins there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct CellId(pub u32);

impl CellId {
    /// No cell.
    pub(super) const NONE: CellId = CellId(0);

    /// Whether this is no cell.
    #[inline]
    pub(super) fn is_none(self) -> bool {
        self == CellId::NONE
    }
}

/// How many cells so many bytes take.
#[inline]
pub(super) const fn cells_for(len_bytes: usize) -> u32 {
    len_bytes.div_ceil(PAYLOAD_BYTES) as u32
}

struct Lent<B> {
    bytes: B,
    first_free: CellId,
    used: u32,
    is_open: bool,
}

/// See the head of the file.
pub(super) struct Cells<B> {
    /// `None`: it was given back, and the number is free.
    blocks: Vec<Option<Lent<B>>>,
    /// Cells of a block, as a power of two.
    cells_each_log2: u32,
    /// Blocks that are lent.
    lent: u32,
    open: Vec<u32>,
    free: u32,
}

impl<B: Block> Cells<B> {
    /// Without a block, for blocks of so many bytes: a power of two.
    pub(super) fn new(block_bytes: usize) -> Cells<B> {
        assert!(block_bytes.is_power_of_two() && block_bytes > CELL_BYTES);
        let cells_each_log2 = (block_bytes / CELL_BYTES).ilog2();
        Cells { blocks: Vec::new(), cells_each_log2, lent: 0, open: Vec::new(), free: 0 }
    }

    /// Cells on free lists.
    pub(super) fn free(&self) -> u32 {
        self.free
    }

    /// Cells of all blocks.
    pub(super) fn all(&self) -> u32 {
        self.lent << self.cells_each_log2
    }

    /// Cells of a block.
    pub(super) fn cells_each(&self) -> u32 {
        1 << self.cells_each_log2
    }

    /// Adds a block, whose content does not matter.
    ///
    /// Errors: `MemoryLimit` if there is no memory to note it; the block is dropped.
    pub(super) fn add(&mut self, bytes: B) -> Result<()> {
        let refused =
            |_| Error::new(ErrorKind::MemoryLimit, "no memory to note a block of versions");
        self.open.try_reserve(self.blocks.len() + 1 - self.open.len()).map_err(refused)?;
        let has_gap = self.blocks.len() as u32 > self.lent;
        let gap = has_gap.then(|| self.blocks.iter().position(Option::is_none)).flatten();
        let number = match gap {
            Some(number) => number,
            None => {
                self.blocks.try_reserve(1).map_err(refused)?;
                self.blocks.push(None);
                self.blocks.len() - 1
            }
        };
        let mut block = Lent { bytes, first_free: CellId::NONE, used: 0, is_open: true };
        let cells_each = self.cells_each();
        let first = number as u32 * cells_each + 1;
        for at in (0..cells_each).rev() {
            let offset = at as usize * CELL_BYTES;
            put_u32(block.bytes.as_mut(), offset, block.first_free.0);
            block.first_free = CellId(first + at);
        }
        self.blocks[number] = Some(block);
        self.open.push(number as u32);
        self.free += cells_each;
        self.lent += 1;
        Ok(())
    }

    /// Takes back blocks without a chain, as long as `may_go` says that so many free cells less are enough.
    pub(super) fn give_back(&mut self, mut may_go: impl FnMut(u32) -> bool, given: &mut Vec<B>) {
        let cells_each = self.cells_each();
        for number in 0..self.blocks.len() {
            let is_idle = self.blocks[number].as_ref().is_some_and(|block| block.used == 0);
            if is_idle && given.len() < given.capacity() && may_go(cells_each) {
                self.open.retain(|open| *open != number as u32);
                given.extend(self.blocks[number].take().map(|block| block.bytes));
                self.free -= cells_each;
                self.lent -= 1;
            }
        }
    }

    /// Puts another block in the place of the one that `is_it` means, with the same bytes. Returns that one, or the other one if there is
    /// none.
    pub(super) fn replace(
        &mut self,
        is_it: impl Fn(&B) -> bool,
        mut other: B,
    ) -> std::result::Result<B, B> {
        let mut lent = self.blocks.iter_mut().flatten().map(|lent| &mut lent.bytes);
        let Some(block) = lent.find(|block| is_it(block)) else { return Err(other) };
        other.as_mut().copy_from_slice(block.as_ref());
        Ok(std::mem::replace(block, other))
    }

    #[inline]
    fn place(&self, cell: CellId) -> (usize, usize) {
        let number = cell.0 - 1;
        let at = (number & (self.cells_each() - 1)) as usize * CELL_BYTES;
        ((number >> self.cells_each_log2) as usize, at)
    }

    #[inline]
    fn cell(&self, cell: CellId) -> &[u8] {
        let (block, at) = self.place(cell);
        let block = self.blocks[block].as_ref().expect("a cell's block is lent");
        &block.bytes.as_ref()[at..at + CELL_BYTES]
    }

    #[inline]
    fn cell_mut(&mut self, cell: CellId) -> &mut [u8] {
        let (block, at) = self.place(cell);
        let block = self.blocks[block].as_mut().expect("a cell's block is lent");
        &mut block.bytes.as_mut()[at..at + CELL_BYTES]
    }

    #[inline]
    fn next(&self, cell: CellId) -> CellId {
        CellId(get_u32(self.cell(cell), 0))
    }

    fn take_cell(&mut self, next: CellId) -> CellId {
        let number = *self.open.last().expect("cells were reserved");
        let cells_each = self.cells_each();
        let block = self.blocks[number as usize].as_mut().expect("an open block is lent");
        let taken = block.first_free;
        let at = ((taken.0 - 1) & (cells_each - 1)) as usize * CELL_BYTES;
        block.first_free = CellId(get_u32(block.bytes.as_ref(), at));
        block.used += 1;
        if block.first_free.is_none() {
            block.is_open = false;
            self.open.pop();
        }
        put_u32(block.bytes.as_mut(), at, next.0);
        self.free -= 1;
        taken
    }

    /// A chain for so many bytes, at least one. Panics if fewer cells are free: they are reserved before.
    pub(super) fn allocate(&mut self, len_bytes: usize) -> CellId {
        (0..cells_for(len_bytes.max(1))).fold(CellId::NONE, |next, _| self.take_cell(next))
    }

    /// Frees a chain.
    pub(super) fn release(&mut self, first: CellId) {
        let mut cell = first;
        while !cell.is_none() {
            let next = self.next(cell);
            let (number, at) = self.place(cell);
            let block = self.blocks[number].as_mut().expect("a cell's block is lent");
            put_u32(block.bytes.as_mut(), at, block.first_free.0);
            block.first_free = cell;
            block.used -= 1;
            if !block.is_open {
                block.is_open = true;
                self.open.push(number as u32);
            }
            self.free += 1;
            cell = next;
        }
    }

    /// What a chain begins with.
    #[inline]
    pub(super) fn begin<const BYTES: usize>(&self, first: CellId) -> [u8; BYTES] {
        const { assert!(BYTES <= PAYLOAD_BYTES) };
        let mut begin = [0; BYTES];
        begin.copy_from_slice(&self.cell(first)[LINK_BYTES..LINK_BYTES + BYTES]);
        begin
    }

    /// A number of four bytes in the first cell of a chain.
    #[inline]
    pub(super) fn u32_at(&self, first: CellId, at: usize) -> u32 {
        get_u32(self.cell(first), LINK_BYTES + at)
    }

    /// A number of eight bytes in the first cell of a chain.
    #[inline]
    pub(super) fn u64_at(&self, first: CellId, at: usize) -> u64 {
        u64::from(self.u32_at(first, at)) | u64::from(self.u32_at(first, at + 4)) << 32
    }

    /// Changes a number of four bytes in the first cell of a chain.
    #[inline]
    pub(super) fn set_u32(&mut self, first: CellId, at: usize, number: u32) {
        put_u32(self.cell_mut(first), LINK_BYTES + at, number);
    }

    /// The pieces of a part of a chain, in order.
    pub(super) fn parts(&self, first: CellId, at: usize, len_bytes: usize) -> Parts<'_, B> {
        let (mut cell, mut at) = (first, at);
        while at >= PAYLOAD_BYTES && len_bytes > 0 {
            cell = self.next(cell);
            at -= PAYLOAD_BYTES;
        }
        Parts { cells: self, cell, at, left: len_bytes }
    }

    /// Writes a part of a chain, all of which is there: pieces one behind the other.
    #[inline]
    pub(super) fn write<const PIECES: usize>(
        &mut self,
        first: CellId,
        at: usize,
        pieces: [&[u8]; PIECES],
    ) {
        let (mut cell, mut at) = (first, at);
        while at >= PAYLOAD_BYTES {
            cell = self.next(cell);
            at -= PAYLOAD_BYTES;
        }
        let mut to = &mut self.cell_mut(cell)[LINK_BYTES + at..];
        for mut rest in pieces {
            while rest.len() > to.len() {
                let (begin, behind) = rest.split_at(to.len());
                to.copy_from_slice(begin);
                rest = behind;
                cell = self.next(cell);
                to = &mut self.cell_mut(cell)[LINK_BYTES..];
            }
            to[..rest.len()].copy_from_slice(rest);
            to = &mut to[rest.len()..];
        }
    }
}

/// See [`Cells::parts`].
pub(super) struct Parts<'c, B> {
    cells: &'c Cells<B>,
    cell: CellId,
    at: usize,
    left: usize,
}

impl<'c, B: Block> Iterator for Parts<'c, B> {
    type Item = &'c [u8];

    #[inline]
    fn next(&mut self) -> Option<&'c [u8]> {
        if self.left == 0 {
            return None;
        }
        if self.at == PAYLOAD_BYTES {
            self.cell = self.cells.next(self.cell);
            self.at = 0;
        }
        let count = self.left.min(PAYLOAD_BYTES - self.at);
        let from = LINK_BYTES + self.at;
        let part = &self.cells.cell(self.cell)[from..from + count];
        (self.at, self.left) = (self.at + count, self.left - count);
        Some(part)
    }
}

#[inline]
fn get_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[inline]
fn put_u32(bytes: &mut [u8], at: usize, number: u32) {
    bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
}
