//! Records of a leaf, laid out in one of two ways.
//!
//! - [`Layout::Sorted`]: 16 keys in order, then 16 values, and a count in the header. Neighbours share lines, as in the B+tree of DBX.
//! - [`Layout::Parts`]: four segments of four records (section 4.1). A segment has 128 bytes: a count and its keys, in order, on one line, values
//!   on the other. Inserts pick a segment at random. Reserved records, in a node of their own, are there after a scan and until the
//!   next split or merge.
//!
//! A leaf has at most 16 records, wherever they lie; so one that is not full has room in a segment. All of this runs in regions.
//! Thread-safety: that of the region.

use super::node::{FANOUT, Leaf, NONE, Reserved};
use crate::arena::Arena;
use crate::htm::{TCell, Tx};

/// Segments of a leaf, and records of a segment.
pub(crate) const SEGMENTS: usize = 4;
const OF_SEGMENT: usize = FANOUT / SEGMENTS;
/// Words of a segment, of its first line, and in front of its keys.
const SEGMENT_WORDS: usize = 16;
const LINE_WORDS: usize = 8;
const KEYS_AT: usize = 1;

/// How records lie in leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layout {
    /// In order, next to each other.
    Sorted,
    /// In segments.
    Parts,
}

/// Where a record is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    Sorted(usize),
    /// The segment, and the place in it.
    Segment(usize, usize),
    Reserved(u32, usize),
}

/// Records in order of their keys, taken out of a leaf.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Records {
    pub(crate) pairs: [(u64, u64); 2 * FANOUT],
    pub(crate) count: usize,
}

impl Records {
    pub(crate) const EMPTY: Records = Records { pairs: [(0, 0); 2 * FANOUT], count: 0 };

    fn push(&mut self, key: u64, value: u64) {
        self.pairs[self.count] = (key, value);
        self.count += 1;
    }

    pub(crate) fn all(&self) -> &[(u64, u64)] {
        &self.pairs[..self.count]
    }

    /// Puts a record where it belongs. It is not there.
    pub(crate) fn insert(&mut self, key: u64, value: u64) {
        let at = self.all().partition_point(|&(other, _)| other < key);
        self.pairs.copy_within(at..self.count, at + 1);
        self.pairs[at] = (key, value);
        self.count += 1;
    }
}

impl Leaf {
    #[inline(always)]
    fn segment_count(&self, segment: usize) -> &TCell<u64> {
        &self.words[segment * SEGMENT_WORDS]
    }

    #[inline(always)]
    fn segment_key(&self, segment: usize, at: usize) -> &TCell<u64> {
        &self.words[segment * SEGMENT_WORDS + KEYS_AT + at]
    }

    #[inline(always)]
    fn segment_value(&self, segment: usize, at: usize) -> &TCell<u64> {
        &self.words[segment * SEGMENT_WORDS + LINE_WORDS + at]
    }

    #[inline(always)]
    fn sorted_key(&self, at: usize) -> &TCell<u64> {
        &self.words[at]
    }

    #[inline(always)]
    fn sorted_value(&self, at: usize) -> &TCell<u64> {
        &self.words[FANOUT + at]
    }
}

/// The leaves of a tree, as a region sees them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leaves<'a> {
    pub(crate) reserved: &'a Arena<Reserved>,
    pub(crate) layout: Layout,
}

impl<'a> Leaves<'a> {
    /// Where a key is, if it is there.
    #[inline(always)]
    pub(crate) fn find<X: Tx<'a>>(
        self,
        tx: &mut X,
        leaf: &'a Leaf,
        key: u64,
    ) -> Result<Option<Place>, X::E> {
        if self.layout == Layout::Sorted {
            let count = tx.load(&leaf.head.count)? as usize;
            let at = lower_bound(tx, &leaf.words, count, key)?;
            let is_there = at < count && tx.load(leaf.sorted_key(at))? == key;
            return Ok(is_there.then_some(Place::Sorted(at)));
        }
        for segment in 0..SEGMENTS {
            let count = tx.load(leaf.segment_count(segment))? as usize;
            if count == 0
                || tx.load(leaf.segment_key(segment, 0))? > key
                || tx.load(leaf.segment_key(segment, count - 1))? < key
            {
                continue;
            }
            for at in 0..count {
                if tx.load(leaf.segment_key(segment, at))? == key {
                    return Ok(Some(Place::Segment(segment, at)));
                }
            }
        }
        let number = tx.load(&leaf.head.reserved)?;
        if number != NONE {
            let reserved = self.reserved.node(number);
            let count = tx.load(&reserved.count)? as usize;
            let at = lower_bound(tx, &reserved.keys, count, key)?;
            if at < count && tx.load(&reserved.keys[at])? == key {
                return Ok(Some(Place::Reserved(number, at)));
            }
        }
        Ok(None)
    }

    #[inline(always)]
    pub(crate) fn value(self, leaf: &'a Leaf, place: Place) -> &'a TCell<u64> {
        match place {
            Place::Sorted(at) => leaf.sorted_value(at),
            Place::Segment(segment, at) => leaf.segment_value(segment, at),
            Place::Reserved(number, at) => &self.reserved.node(number).values[at],
        }
    }

    /// How many records a leaf has.
    pub(crate) fn count<X: Tx<'a>>(self, tx: &mut X, leaf: &'a Leaf) -> Result<usize, X::E> {
        if self.layout == Layout::Sorted {
            return Ok(tx.load(&leaf.head.count)? as usize);
        }
        let mut count = 0;
        for segment in 0..SEGMENTS {
            count += tx.load(leaf.segment_count(segment))? as usize;
        }
        let number = tx.load(&leaf.head.reserved)?;
        if number != NONE {
            count += tx.load(&self.reserved.node(number).count)? as usize;
        }
        Ok(count)
    }

    /// Puts a record that is not there, into one of the segments that `scheduler` picks if there are segments. Whether there was
    /// room: not if the leaf is full, nor if all those segments are.
    #[inline(always)]
    pub(crate) fn insert<X: Tx<'a>>(
        self,
        tx: &mut X,
        leaf: &'a Leaf,
        (key, value): (u64, u64),
        mut scheduler: impl Iterator<Item = usize>,
    ) -> Result<bool, X::E> {
        if self.layout == Layout::Sorted {
            let count = tx.load(&leaf.head.count)? as usize;
            if count == FANOUT {
                return Ok(false);
            }
            let (keys, values) = leaf.words.split_at(FANOUT);
            insert_sorted(tx, keys, values, count, (key, value))?;
            tx.store(&leaf.head.count, count as u32 + 1)?;
            return Ok(true);
        }
        // Records after a scan lie elsewhere, and segments may have room though the leaf is full.
        if tx.load(&leaf.head.reserved)? != NONE && self.count(tx, leaf)? >= FANOUT {
            return Ok(false);
        }
        let fits = loop {
            let Some(segment) = scheduler.next() else { return Ok(false) };
            let count = tx.load(leaf.segment_count(segment))? as usize;
            if count < OF_SEGMENT {
                break (segment, count);
            }
        };
        let (segment, count) = fits;
        let first = segment * SEGMENT_WORDS;
        let (keys, values) = leaf.words[first + KEYS_AT..].split_at(LINE_WORDS - KEYS_AT);
        insert_sorted(tx, keys, values, count, (key, value))?;
        tx.store(leaf.segment_count(segment), count as u64 + 1)?;
        Ok(true)
    }

    /// Takes a record out.
    pub(crate) fn remove<X: Tx<'a>>(
        self,
        tx: &mut X,
        leaf: &'a Leaf,
        place: Place,
    ) -> Result<(), X::E> {
        match place {
            Place::Sorted(at) => {
                let count = tx.load(&leaf.head.count)? as usize;
                let (keys, values) = leaf.words.split_at(FANOUT);
                remove_sorted(tx, keys, values, count, at)?;
                tx.store(&leaf.head.count, count as u32 - 1)
            }
            Place::Segment(segment, at) => {
                let count = tx.load(leaf.segment_count(segment))? as usize;
                let first = segment * SEGMENT_WORDS;
                let (keys, values) = leaf.words[first + KEYS_AT..].split_at(LINE_WORDS - KEYS_AT);
                remove_sorted(tx, keys, values, count, at)?;
                tx.store(leaf.segment_count(segment), count as u64 - 1)
            }
            Place::Reserved(number, at) => {
                let reserved = self.reserved.node(number);
                let count = tx.load(&reserved.count)? as usize;
                remove_sorted(tx, &reserved.keys, &reserved.values, count, at)?;
                tx.store(&reserved.count, count as u32 - 1)
            }
        }
    }

    /// All records, in order.
    pub(crate) fn records<X: Tx<'a>>(self, tx: &mut X, leaf: &'a Leaf) -> Result<Records, X::E> {
        let mut records = Records::EMPTY;
        if self.layout == Layout::Sorted {
            for at in 0..tx.load(&leaf.head.count)? as usize {
                records.push(tx.load(leaf.sorted_key(at))?, tx.load(leaf.sorted_value(at))?);
            }
            return Ok(records);
        }
        for segment in 0..SEGMENTS {
            for at in 0..tx.load(leaf.segment_count(segment))? as usize {
                let key = tx.load(leaf.segment_key(segment, at))?;
                records.push(key, tx.load(leaf.segment_value(segment, at))?);
            }
        }
        let number = tx.load(&leaf.head.reserved)?;
        if number != NONE {
            let reserved = self.reserved.node(number);
            for at in 0..tx.load(&reserved.count)? as usize {
                records.push(tx.load(&reserved.keys[at])?, tx.load(&reserved.values[at])?);
            }
        }
        let count = records.count;
        records.pairs[..count].sort_unstable_by_key(|&(key, _)| key);
        Ok(records)
    }

    /// Has a leaf have these records, at most 16, and no reserved ones. They are dealt out to all segments alike.
    pub(crate) fn fill<X: Tx<'a>>(
        self,
        tx: &mut X,
        leaf: &'a Leaf,
        records: &[(u64, u64)],
    ) -> Result<(), X::E> {
        if self.layout == Layout::Sorted {
            for (at, &(key, value)) in records.iter().enumerate() {
                tx.store(leaf.sorted_key(at), key)?;
                tx.store(leaf.sorted_value(at), value)?;
            }
            return tx.store(&leaf.head.count, records.len() as u32);
        }
        for segment in 0..SEGMENTS {
            let mut count = 0;
            for &(key, value) in records.iter().skip(segment).step_by(SEGMENTS) {
                tx.store(leaf.segment_key(segment, count), key)?;
                tx.store(leaf.segment_value(segment, count), value)?;
                count += 1;
            }
            tx.store(leaf.segment_count(segment), count as u64)?;
        }
        let number = tx.load(&leaf.head.reserved)?;
        if number != NONE {
            self.reserved.give(tx, number)?;
            tx.store(&leaf.head.reserved, NONE)?;
        }
        Ok(())
    }

    /// Moves all records to reserved ones, in order (section 4.2.4). Another scan finds them there. The spare node is there.
    pub(crate) fn reserve<X: Tx<'a>>(
        self,
        tx: &mut X,
        leaf: &'a Leaf,
        records: &Records,
    ) -> Result<(), X::E> {
        let mut number = tx.load(&leaf.head.reserved)?;
        if number == NONE {
            number = self.reserved.take(tx)?;
            tx.store(&leaf.head.reserved, number)?;
        }
        let reserved = self.reserved.node(number);
        for (at, &(key, value)) in records.all().iter().enumerate() {
            tx.store(&reserved.keys[at], key)?;
            tx.store(&reserved.values[at], value)?;
        }
        tx.store(&reserved.count, records.count as u32)?;
        for segment in 0..SEGMENTS {
            tx.store(leaf.segment_count(segment), 0)?;
        }
        Ok(())
    }

    /// Whether no record lies in a segment: a scan has been here, and nobody has put anything since.
    pub(crate) fn is_reserved<X: Tx<'a>>(self, tx: &mut X, leaf: &'a Leaf) -> Result<bool, X::E> {
        for segment in 0..SEGMENTS {
            if tx.load(leaf.segment_count(segment))? != 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

#[inline(always)]
fn lower_bound<'a, X: Tx<'a>>(
    tx: &mut X,
    keys: &'a [TCell<u64>],
    count: usize,
    key: u64,
) -> Result<usize, X::E> {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = usize::midpoint(low, high);
        if tx.load(&keys[middle])? < key {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Ok(low)
}

#[inline(always)]
fn insert_sorted<'a, X: Tx<'a>>(
    tx: &mut X,
    keys: &'a [TCell<u64>],
    values: &'a [TCell<u64>],
    count: usize,
    (key, value): (u64, u64),
) -> Result<(), X::E> {
    let mut at = count;
    while at > 0 {
        let before = tx.load(&keys[at - 1])?;
        if before < key {
            break;
        }
        tx.store(&keys[at], before)?;
        let moved = tx.load(&values[at - 1])?;
        tx.store(&values[at], moved)?;
        at -= 1;
    }
    tx.store(&keys[at], key)?;
    tx.store(&values[at], value)
}

fn remove_sorted<'a, X: Tx<'a>>(
    tx: &mut X,
    keys: &'a [TCell<u64>],
    values: &'a [TCell<u64>],
    count: usize,
    at: usize,
) -> Result<(), X::E> {
    for at in at + 1..count {
        let moved = tx.load(&keys[at])?;
        tx.store(&keys[at - 1], moved)?;
        let moved = tx.load(&values[at])?;
        tx.store(&values[at - 1], moved)?;
    }
    Ok(())
}
