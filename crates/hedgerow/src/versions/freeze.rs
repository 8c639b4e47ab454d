//! Writing old versions to a part in the file, so that their memory is free: [`frozen`](super::frozen) has what becomes of it.
//!
//! Done at the end of a checkpoint that has taken snapshots over, if what pinned snapshots need takes a quarter of the memory for versions.
//!
//! 1. *The plan* ([`Versions::plan_to_freeze`]), if it is worth it ([`Versions::is_due_to_freeze`]). `F` is the latest cut that a snapshot is pinned to. No snapshot is pending, and none that is not pinned has a
//!    moment below `F`; else this is not the time. So whoever begins later has a moment of `F` or above, by the argument of a collection, and whoever needs a version
//!    that was ended up to `F` is pinned and among those that were found. All of that holds for each moment before `F` as well: if there is more than
//!    some passes of step 2 can do, `F` is an earlier one, and the next checkpoint does the rest.
//! 2. *Gathering*. Those of them that somebody needs are copied, a few buckets at a time with the table locked, and written in order. There is less
//!    room than they take: each pass through the table takes the lowest ones that have room, above those that were written.
//! 3. *The list*. When all are written the part is listed.
//! 4. *Dropping*. Only then all versions that were ended up to `F` go from memory. No change has an LSN up to `F` any more, since it is the cut of a checkpoint:
//!    nobody was inside of an epoch there.
//!
//! A failure before 3 leaves everything as it was. Versions that a collection drops meanwhile are those that nobody needs. One caller at a time. Memory: the
//! room that the caller gives, four bytes for each record that has room there, and two keys.

use crate::error::{Error, ErrorKind, Result};
use crate::types::Lsn;
use crate::versions::cells::CELL_BYTES;
use crate::versions::frozen::{Part, Record};
use crate::versions::memory::Memory;
use crate::versions::needs::Needs;
use crate::versions::slots::{Slot, State};
use crate::versions::state::Versions;
use hedgerow_sync::primitive::atomic::{Ordering::*, fence};
use hedgerow_sync::primitive::thread;
use std::cmp::Ordering;

/// Of all memory, what pinned snapshots need before it is written.
const FROZEN_PART: u32 = 4;
/// Buckets that are looked at with the table locked.
const LOOKED_AT_ONCE: u32 = 64;
/// Of the longest records, how many there has to be room for.
const LEAST_RECORDS: usize = 4;
/// How often a snapshot that is about to begin is waited for: it is one in some microseconds.
const PENDING_TRIES: u32 = 64;
/// Passes through the table that a checkpoint makes at most, about; each writes half of the room at least.
const MOST_PASSES: u64 = 8;
/// Parts of the time up to `F` of which one is the earlier moment.
const MOMENTS: usize = 1024;

/// Takes versions in order, and makes a part of them.
pub trait Freezer {
    /// The part.
    type Part;

    /// Takes the next ones.
    ///
    /// # Errors
    /// Those of writing; the part is not made then.
    fn write(&mut self, versions: &Sorted<'_>) -> Result<()>;

    /// All are written.
    ///
    /// # Errors
    /// Those of writing.
    fn finish(self) -> Result<Self::Part>;
}

/// Versions in the order of tree, key and LSN, each once.
#[derive(Debug)]
pub struct Sorted<'s> {
    bytes: &'s [u8],
    places: &'s [u32],
}

impl<'s> Sorted<'s> {
    /// Each, with the bytes that it is decoded from.
    pub fn iter(&self) -> impl Iterator<Item = (Record<'s>, &'s [u8])> {
        self.places.iter().map(|&at| {
            let bytes = &self.bytes[at as usize..];
            let (record, len) = decoded(bytes);
            (record, &bytes[..len])
        })
    }
}

fn decoded(bytes: &[u8]) -> (Record<'_>, usize) {
    Record::decode(bytes).expect("what was gathered is a record")
}

/// What is to be written. See the head of the file.
pub struct Plan {
    needs: Needs,
    up_to: Lsn,
}

impl std::fmt::Debug for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plan").field("up_to", &self.up_to).finish_non_exhaustive()
    }
}

impl<M: Memory, P> Versions<M, P> {
    /// Step 1. `None`: this is not the time, or nobody is pinned.
    ///
    /// # Errors
    /// `MemoryLimit` if there is none to note all snapshots.
    pub fn plan_to_freeze(&self) -> Result<Option<Plan>> {
        let cut = |slot: &Slot| match slot.state() {
            State::Pinned(_, cut) => Some(cut),
            State::Empty | State::Pending | State::At(_) | State::GivenUp => None,
        };
        let Some(up_to) = self.slots.all().filter_map(cut).max() else { return Ok(None) };
        self.freezes_later.store(false, Relaxed);
        // The log's end was read before, for the cut.
        fence(SeqCst);
        for _ in 0..PENDING_TRIES {
            if let Some(needs) = self.slots.needs()? {
                return Ok((!needs.any_unpinned_below(up_to)).then_some(Plan { needs, up_to }));
            }
            thread::yield_now();
        }
        self.freezes_later.store(true, Relaxed);
        Ok(None)
    }

    /// Whether what would be written takes enough memory.
    pub fn is_due_to_freeze(&self, plan: &Plan) -> bool {
        let least = self.most_cells() / FROZEN_PART;
        if self.room.used() < least {
            return false;
        }
        // What is needed up to `F` was kept before.
        drop(self.indexed());
        let mut all = 0;
        self.for_each_needed(plan, |_, cells| all += cells);
        all >= least
    }

    /// Calls `each` with the moment that ended a version which somebody needs, and its cells. Without an order.
    fn for_each_needed(&self, plan: &Plan, mut each: impl FnMut(Lsn, u32)) {
        let mut next = 0;
        loop {
            let table = self.table.lock();
            let end = table.buckets();
            let until = end.min(next + LOOKED_AT_ONCE);
            for bucket in next..until {
                table.needed_cells(bucket, &plan.needs, plan.up_to, &mut each);
            }
            next = until;
            // The table may have become shorter meanwhile.
            if next >= end {
                return;
            }
        }
    }

    /// The latest moment up to which there is no more than some passes write in this room.
    fn bound_of_passes(&self, plan: &Plan, room_bytes: usize) -> Lsn {
        let most = MOST_PASSES * (room_bytes / 2 / CELL_BYTES) as u64;
        let (mut all, mut first) = (0, plan.up_to);
        self.for_each_needed(plan, |ended, cells| {
            all += u64::from(cells);
            first = first.min(ended);
        });
        if all <= most {
            return plan.up_to;
        }
        let step = (plan.up_to.0 - first.0) / MOMENTS as u64 + 1;
        let mut until = [0u64; MOMENTS];
        self.for_each_needed(plan, |ended, cells| {
            // Nothing older comes to it: what is kept from now on was ended later.
            let at = (ended.0.saturating_sub(first.0) / step) as usize;
            until[at.min(MOMENTS - 1)] += u64::from(cells);
        });
        let mut sum = 0;
        let fits = |cells: &&u64| {
            sum += **cells;
            sum <= most
        };
        let moments = until.iter().take_while(fits).count().max(1) as u64;
        Lsn(plan.up_to.0.min(first.0 + moments * step - 1))
    }

    /// Steps 2 to 4, in this room. False: there was nothing to write.
    ///
    /// # Errors
    /// Those of `freezer`; `MemoryLimit`, also if the room is too small. Nothing has changed then.
    pub fn freeze<Z: Freezer<Part = M::Frozen>>(
        &self,
        plan: &Plan,
        room: &mut [u8],
        mut freezer: Z,
    ) -> Result<bool> {
        let longest = self.longest_record();
        if room.len() < LEAST_RECORDS * longest {
            return Err(refused());
        }
        drop(self.indexed());
        let up_to = self.bound_of_passes(plan, room.len());
        self.freezes_later.store(up_to < plan.up_to, Relaxed);
        let mut gather = Gather::new(room);
        let (mut first, mut last, mut count) = (Lsn(u64::MAX), Lsn(0), 0);
        loop {
            self.gather((plan, up_to), &mut gather)?;
            let sorted = gather.sort()?;
            for (record, _) in sorted.iter() {
                (first, last) = (first.min(record.ended), last.max(record.ended));
                count += 1;
            }
            if !sorted.places.is_empty() {
                freezer.write(&sorted)?;
            }
            if !gather.next_pass()? {
                break;
            }
        }
        if count == 0 {
            return Ok(false);
        }
        let part = Part { first, last, frozen: freezer.finish()? };
        // Never the other way round: who misses a version in memory finds it in the part.
        self.drop_up_to(up_to, || self.parts.add(part))?;
        self.frozen.fetch_add(count, Relaxed);
        // Somebody may have ended meanwhile.
        self.parts.drop_unneeded(&self.slots);
        Ok(true)
    }

    /// One pass: copies what has room of what is left.
    fn gather(&self, (plan, up_to): (&Plan, Lsn), gather: &mut Gather<'_>) -> Result<()> {
        let mut next = 0;
        loop {
            let is_full = {
                let table = self.table.lock();
                // More may be added meanwhile, at the end, and what is copied twice is written once.
                let end = table.buckets();
                let until = end.min(next + LOOKED_AT_ONCE);
                let mut take = |head: &[u8], len, parts: &mut dyn Iterator<Item = &[u8]>| {
                    gather.push(head, len, parts)
                };
                while next < until && table.copy_needed(next, &plan.needs, up_to, &mut take) {
                    next += 1;
                }
                // Or the table has become shorter, and what is left of it was looked at.
                if next >= end {
                    return Ok(());
                }
                next < until
            };
            if is_full {
                gather.make_room()?;
            }
        }
    }
}

#[cold]
fn refused() -> Error {
    Error::new(ErrorKind::MemoryLimit, "no memory to sort old versions in")
}

/// An end of what is gathered: it is of this record, and what lies behind it.
type End = Vec<u8>;

/// Records that were copied: see the head of the file.
struct Gather<'r> {
    room: &'r mut [u8],
    used: usize,
    places: Vec<u32>,
    /// The last record that was written.
    low: Option<End>,
    /// The first that this pass leaves to another one.
    high: Option<End>,
}

impl<'r> Gather<'r> {
    fn new(room: &'r mut [u8]) -> Gather<'r> {
        // Places are numbers of 32 bits.
        let len = room.len().min(u32::MAX as usize);
        Gather { room: &mut room[..len], used: 0, places: Vec::new(), low: None, high: None }
    }

    /// Takes a record if it is one of this pass. False: it is one, perhaps, and there is no room for it. Allocates nothing.
    fn push(&mut self, head: &[u8], len: usize, parts: &mut dyn Iterator<Item = &[u8]>) -> bool {
        let Some(to) = self.room.get_mut(self.used..self.used + len) else { return false };
        to[..head.len()].copy_from_slice(head);
        let mut at = head.len();
        for part in parts {
            to[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        let is_above = |end: &End| compare(to, end).is_gt();
        if self.low.as_ref().is_none_or(is_above)
            && self.high.as_ref().is_none_or(|end| compare(to, end).is_lt())
        {
            self.used += len;
        }
        true
    }

    /// Puts what was copied in order, each once.
    fn sort(&mut self) -> Result<Sorted<'_>> {
        self.places.clear();
        let mut at = 0;
        while at < self.used {
            if self.places.len() == self.places.capacity() {
                self.places.try_reserve(1).map_err(|_| refused())?;
            }
            self.places.push(at as u32);
            at += decoded(&self.room[at..]).1;
        }
        let room = &*self.room;
        let order = |a: &u32, b: &u32| compare(&room[*a as usize..], &room[*b as usize..]);
        self.places.sort_unstable_by(order);
        self.places.dedup_by(|a, b| order(a, b).is_eq());
        Ok(Sorted { bytes: room, places: &self.places })
    }

    /// Leaves the upper half of what was copied to another pass.
    fn make_room(&mut self) -> Result<()> {
        let count = self.sort()?.places.len();
        let kept = (count / 2).max(1);
        if let Some(&first) = self.places.get(kept) {
            self.high = Some(self.own(first)?);
        }
        self.places.truncate(kept);
        self.places.sort_unstable();
        self.used = 0;
        for &at in &self.places {
            let (at, len) = (at as usize, decoded(&self.room[at as usize..]).1);
            self.room.copy_within(at..at + len, self.used);
            self.used += len;
        }
        Ok(())
    }

    /// What was gathered is written. False: that was all.
    fn next_pass(&mut self) -> Result<bool> {
        if let Some(&last) = self.places.last() {
            self.low = Some(self.own(last)?);
        }
        self.used = 0;
        Ok(self.high.take().is_some())
    }

    /// A copy of a record, without its value.
    fn own(&self, at: u32) -> Result<End> {
        let (record, _) = decoded(&self.room[at as usize..]);
        let (head, len) = Record::head(record.tree, record.ended, record.key.len(), None, false);
        let mut end = Vec::new();
        end.try_reserve_exact(len).map_err(|_| refused())?;
        end.extend_from_slice(&head);
        end.extend_from_slice(record.key);
        Ok(end)
    }
}

fn compare(bytes: &[u8], with: &[u8]) -> Ordering {
    let with = decoded(with).0;
    decoded(bytes).0.compare(with.tree, with.key, with.ended)
}
