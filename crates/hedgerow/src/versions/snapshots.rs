//! The life of a snapshot.
//!
//! **Begin.** (1) A slot, pending. If who runs alone is about to end, it is emptied again, and waits. (2) The switch is on. (3) The
//! horizon is 32 KiB ahead of the log's end at least, or is raised. (4) The moment is the log's end, and *then* the cut of who runs
//! alone is looked at, if anybody does: the moment is no later than that. If it is above the horizon, again from (3). (5) The slot has the moment.
//!
//! **Read.** (1) The leaf: value and stamp in one validated look. If the stamp is not above the moment, that is all. (2) The version as of
//! the moment: in memory, then in the parts that are in the file ([`frozen`](super::frozen)). (3) Only now who runs alone, and last the slot: given up, too old; pinned, then versions that were ended behind the
//! cut do not count, and without one the value is in the checkpoint; somebody alone has changed the leaf, it is in his checkpoint. Otherwise it
//! is the version, or what the leaf has.
//!
//! A scan does so for the keys of a leaf, or of its range in the checkpoint if that is where the leaf is read ([`Versions::source`]), and for
//! the removed keys of that range. A key that was removed behind a pinned snapshot's cut may have no version any more, and is in the checkpoint
//! alone. The scan asks for the source again when it has all versions: if it is another one by then, the range is read anew.
//!
//! **A bulk load** stamps nothing, and keeps no versions. Its LSN is noted by tree ([`Versions::note_load`]), and a snapshot below it sees
//! nothing of it: no leaf's value, and no version that was ended later. Before the load the tree was empty, so whatever the snapshot sees was
//! removed by then, and is a version.
//!
//! **A drop** frees pages, so there is no leaf to look at any more, or one that has lost its place. Its LSN is noted by tree, too
//! ([`Versions::note_drop`]), before the first page goes. From then on only versions count, and checkpoints with cuts below it.
//!
//! **Pinning.** A checkpoint with the cut `c` takes over the snapshots with moments up to `c`, never a later one. Their slots say so
//! before anything is dropped for it. Whoever runs alone has half of his changes in a checkpoint, so none takes snapshots over then.
//!
//! **Giving up** takes the oldest that is not pinned, or the oldest if all are, and its slot says so before anything is dropped.
//!
//! A [`Snapshot`] is a ticket for its slot; who has it ends it. `Send + Sync`.

use crate::error::{Error, ErrorKind, Result};
use crate::types::{Lsn, TreeId};
use crate::versions::frozen::Version;
use crate::versions::frozen::{FrozenPart, Part, Record, Stretch};
use crate::versions::memory::{Memory, Surroundings};
use crate::versions::slots::{Slot, SlotId, Slots, State};
use crate::versions::state::{AHEAD, Fate, LEAST_AHEAD, NOBODY, Pinned, Versions};
use crate::wait::Waiting;
use hedgerow_sync::primitive::Arc;
use hedgerow_sync::primitive::atomic::{Ordering::*, fence};
use hedgerow_sync::primitive::thread;
use hedgerow_sync::primitive::time::Moment;
use std::fmt;
use std::ops::Bound;
use std::time::Duration;

/// How long the first snapshot waits for memory for old versions, and how long before it looks again.
const PREPARE_WAIT: Duration = Duration::from_secs(1);
const PREPARE_NAP: Duration = Duration::from_millis(1);

/// A snapshot that has begun, to be given to [`Versions::end`] once. If it is lost, its versions are kept for good.
#[must_use]
#[derive(Debug)]
pub struct Snapshot {
    slot: SlotId,
    at: Lsn,
    begun_nanos: u64,
}

/// A snapshot that is open, or who runs alone, and what is kept for it.
pub struct Kept<P> {
    /// Its moment.
    pub at: Lsn,
    /// For how long; `None`: it is who runs alone.
    pub age: Option<Duration>,
    /// The checkpoint that was pinned for it.
    pub pin: Option<Arc<P>>,
    /// Bytes of the file that old versions take which it may need.
    pub frozen_bytes: u64,
}

impl<P> fmt::Debug for Kept<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kept").field("at", &self.at).field("age", &self.age).finish_non_exhaustive()
    }
}

impl Snapshot {
    /// Its moment: it sees the changes with LSNs up to this one.
    pub fn lsn(&self) -> Lsn {
        self.at
    }

    /// Its slot, which is nobody else's before its end.
    pub fn slot(&self) -> SlotId {
        self.slot
    }
}

/// Where the value is that a snapshot sees.
pub enum Seen<P> {
    /// The leaf has it, or the leaf's lack of it counts.
    Leaf,
    /// It was appended.
    Version,
    /// There was no record.
    Absent,
    /// In a pinned checkpoint.
    Checkpoint(Arc<P>),
    /// Nowhere: the snapshot was given up.
    TooOld,
}

impl<P> fmt::Debug for Seen<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Seen::Leaf => "Leaf",
            Seen::Version => "Version",
            Seen::Absent => "Absent",
            Seen::Checkpoint(_) => "Checkpoint",
            Seen::TooOld => "TooOld",
        })
    }
}

/// A slot whose moment is not known yet; dropping it empties the slot.
struct Pending<'v>(&'v Slots, SlotId);

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        self.0.end(self.1);
    }
}

impl<M: Memory, P> Versions<M, P> {
    /// Begins a snapshot of what was changed before. The caller holds nothing, and is inside of no epoch. Waits for writers that are inside
    /// if no snapshot was open, and for the end of who runs alone, if that is near.
    ///
    /// # Errors
    /// `MemoryLimit`; those of `waiting`; `Poisoned` if somebody has failed who ran alone.
    pub fn begin(&self, around: &impl Surroundings, waiting: &Waiting<'_>) -> Result<Snapshot> {
        let mut since = None;
        loop {
            let slot = self.slots.take()?;
            let pending = Pending(&self.slots, slot);
            // Behind the slot, before all that is looked at: see `slots` and `door`.
            fence(SeqCst);
            let door = self.door.look();
            if door.is_ending() {
                drop(pending);
                self.door.wait_while_ending(waiting)?;
                continue;
            }
            if !door.is_on()
                && let Err(error) = self.door.rise(around, || self.prepare())
            {
                drop(pending);
                // Operations that have places in memory now leave some, most likely.
                let since = since.get_or_insert_with(Moment::now);
                if error.kind() != ErrorKind::MemoryLimit || since.elapsed() > PREPARE_WAIT {
                    return Err(error);
                }
                thread::sleep(waiting.nap_of(PREPARE_NAP)?);
                continue;
            }
            let at = self.moment(around);
            let begun_nanos = self.nanos();
            self.slots.get(slot).set_at(at, begun_nanos);
            std::mem::forget(pending);
            self.begun.fetch_add(1, Relaxed);
            return Ok(Snapshot { slot, at, begun_nanos });
        }
    }

    /// Steps 3 and 4 of a begin.
    fn moment(&self, around: &impl Surroundings) -> Lsn {
        loop {
            let reached = around.reached();
            if self.horizon.load(Acquire) < reached.0 + LEAST_AHEAD {
                self.horizon.fetch_max(reached.0 + AHEAD, AcqRel);
            }
            // Between the horizon and the log's end: who appends above it sees the horizon.
            fence(SeqCst);
            let tail = around.tail();
            // Behind the log's end: see `alone`.
            let at = tail.min(Lsn(self.alone.load(Acquire)));
            if at.0 <= self.horizon.load(Acquire) {
                return at;
            }
        }
    }

    /// Ends a snapshot. Returns what was pinned for it, if it was the last one to need that: dropping it may take long, so it is done
    /// where nothing is held.
    pub fn end(&self, snapshot: Snapshot) -> Option<Arc<P>> {
        let cut = self.slots.end(snapshot.slot)?;
        self.unpin(cut)
    }

    /// One user less of a pinned checkpoint.
    pub(super) fn unpin(&self, cut: Lsn) -> Option<Arc<P>> {
        let mut pins = self.pins.lock();
        let pinned = pins.get_mut(&cut).expect("who refers to a checkpoint is counted");
        pinned.users -= 1;
        if pinned.users > 0 {
            drop(pins);
            self.parts.drop_unneeded(&self.slots);
            return None;
        }
        let pinned = pins.remove(&cut).map(|pinned| pinned.pin);
        drop(pins);
        self.parts.drop_unneeded(&self.slots);
        pinned
    }

    /// Whether everything in a leaf with this stamp is what a snapshot sees. Asked after the look at the leaf.
    #[inline]
    pub fn sees_all(&self, snapshot: &Snapshot, tree: TreeId, stamp: Lsn) -> bool {
        stamp <= snapshot.at && self.fate(tree, snapshot.at).is_plain()
    }

    /// Whether the snapshot of a slot was given up. To be asked after a look at what is kept for it: what it needs goes only later.
    pub fn is_given_up(&self, slot: SlotId) -> bool {
        self.slots.get(slot).state() == State::GivenUp
    }

    /// Whether a tree that is gone was dropped after a snapshot had begun; of one that was given up nobody knows that.
    pub fn is_dropped_since(&self, snapshot: &Snapshot, tree: TreeId) -> bool {
        self.fate(tree, snapshot.at).dropped.is_some() || self.is_given_up(snapshot.slot)
    }

    /// For how long a snapshot has been open.
    pub fn age(&self, snapshot: &Snapshot) -> Duration {
        Duration::from_nanos(self.nanos().saturating_sub(snapshot.begun_nanos))
    }

    /// All snapshots that are open and not given up, and who runs alone.
    pub fn kept(&self) -> Vec<Kept<P>> {
        let pins = self.pins.lock();
        let nanos = self.nanos();
        let mut kept = Vec::new();
        for slot in self.slots.all() {
            let (at, cut) = match slot.state() {
                State::At(at) => (at, None),
                State::Pinned(at, cut) => (at, Some(cut)),
                State::Empty | State::Pending | State::GivenUp => continue,
            };
            let pin = cut.and_then(|cut| pins.get(&cut)).map(|pinned| pinned.pin.clone());
            let age = Duration::from_nanos(nanos.saturating_sub(slot.begun_nanos()));
            let frozen_bytes = cut.map_or(0, |cut| self.parts.file_bytes(at, cut));
            kept.push(Kept { at, age: Some(age), pin, frozen_bytes });
        }
        let alone = Lsn(self.alone.load(Acquire));
        if let Some(pinned) = pins.get(&alone) {
            let pin = Some(pinned.pin.clone());
            kept.push(Kept { at: alone, age: None, pin, frozen_bytes: 0 });
        }
        kept
    }

    /// Gives a snapshot up: what it needed goes when versions are collected. Returns what was pinned, if nobody else needs it, to be dropped where
    /// nothing is held.
    pub fn give_up(&self, snapshot: &Snapshot) -> Option<Arc<P>> {
        self.give_up_slot(self.slots.get(snapshot.slot), |at| at == snapshot.at)
    }

    /// Gives all snapshots up that are older than `most`. A younger one may be among them that took the place of one that has ended just now.
    pub fn give_up_older(&self, most: Duration) {
        let nanos = self.nanos();
        let is_old =
            |slot: &Slot| u128::from(nanos.saturating_sub(slot.begun_nanos())) > most.as_nanos();
        // Of those that are young or given up the pins need not be locked: each beginning of a snapshot may ask this.
        let is_kept = |slot: &Slot| matches!(slot.state(), State::At(_) | State::Pinned(..));
        for slot in self.slots.all().filter(|slot| is_kept(slot) && is_old(slot)) {
            drop(self.give_up_slot(slot, |_| is_old(slot)));
        }
    }

    fn give_up_slot(&self, slot: &Slot, is_it: impl Fn(Lsn) -> bool) -> Option<Arc<P>> {
        loop {
            // So that nothing is pinned meanwhile.
            let pins = self.pins.lock();
            let (at, cut) = match slot.state() {
                State::At(at) => (at, None),
                State::Pinned(at, cut) => (at, Some(cut)),
                State::Empty | State::Pending | State::GivenUp => return None,
            };
            if !is_it(at) {
                return None;
            }
            // It may have ended just now.
            if slot.give_up(at, cut.is_some()) {
                drop(pins);
                self.given_up.fetch_add(1, Relaxed);
                return cut.and_then(|cut| self.unpin(cut));
            }
        }
    }

    /// Where a snapshot's value of a key is; a version's value is appended to `to`. `look` is the validated look at the leaf that the
    /// key belongs to, and returns the leaf's stamp.
    ///
    /// # Errors
    /// Those of `look`, and of reading the file; `MemoryLimit` if there is none for the value.
    pub fn read(
        &self,
        snapshot: &Snapshot,
        tree: TreeId,
        key: &[u8],
        look: impl FnOnce() -> Result<Lsn>,
        to: &mut Vec<u8>,
    ) -> Result<Seen<P>> {
        self.read_from(true, snapshot, tree, key, look, to)
    }

    /// [`Self::read`] that reads no file, where the stamp of the leaf is known. `Checkpoint` may be a part's version, too.
    ///
    /// # Errors
    /// `MemoryLimit`.
    pub fn read_in_memory(
        &self,
        snapshot: &Snapshot,
        tree: TreeId,
        key: &[u8],
        stamp: Lsn,
        to: &mut Vec<u8>,
    ) -> Result<Seen<P>> {
        self.read_from(false, snapshot, tree, key, || Ok(stamp), to)
    }

    fn read_from(
        &self,
        file: bool,
        snapshot: &Snapshot,
        tree: TreeId,
        key: &[u8],
        look: impl FnOnce() -> Result<Lsn>,
        to: &mut Vec<u8>,
    ) -> Result<Seen<P>> {
        let stamp = look()?;
        let fate = self.fate(tree, snapshot.at);
        if stamp <= snapshot.at && fate.is_plain() {
            return Ok(Seen::Leaf);
        }
        let slot = self.slots.get(snapshot.slot);
        let before = to.len();
        let version = self.version(snapshot.at, tree, key, to)?;
        // Behind the look at memory: what has gone from there is in a part.
        let version = match file {
            true => self.frozen_version(snapshot, tree, key, version, before, to)?,
            false => version,
        };
        // What was loaded has become a version since, and was not there before. A change behind a load may have its LSN, none before it has.
        let version = version.filter(|old| fate.loaded.is_none_or(|load| old.ended < load));
        let seen = self.judge(slot, (stamp, fate), version);
        if !matches!(seen, Seen::Version) {
            to.truncate(before);
        }
        Ok(seen)
    }

    /// Where a snapshot finds the keys of a leaf with this stamp, beside the removed ones: in the leaf, in a checkpoint, or nowhere
    /// (`Absent`). Asked after the look at the leaf.
    pub fn source(&self, snapshot: &Snapshot, tree: TreeId, stamp: Lsn) -> Seen<P> {
        let fate = self.fate(tree, snapshot.at);
        if stamp <= snapshot.at && fate.is_plain() {
            return Seen::Leaf;
        }
        self.judge(self.slots.get(snapshot.slot), (stamp, fate), None)
    }

    /// Step 3 of a read: looks at who runs alone, and then at the slot.
    fn judge(&self, slot: &Slot, (stamp, fate): (Lsn, Fate), version: Option<Version>) -> Seen<P> {
        let found = |version: Version| match version.len_bytes {
            Some(_) => Seen::Version,
            None => Seen::Absent,
        };
        loop {
            let alone = self.alone.load(Acquire);
            let cut = match (slot.state(), version) {
                (State::GivenUp, _) => return Seen::TooOld,
                (State::Pinned(_, cut), Some(version)) if version.ended <= cut => {
                    return found(version);
                }
                (State::Pinned(_, cut), _) => cut,
                (State::At(_), Some(version)) => return found(version),
                (State::At(_), None) if stamp.0 > alone => Lsn(alone),
                (State::At(_), None) if fate.loaded.is_some() => return Seen::Absent,
                (State::At(_), None) if fate.dropped.is_some() => return Seen::TooOld,
                (State::At(_), None) => return Seen::Leaf,
                (State::Empty | State::Pending, _) => unreachable!("a snapshot has its slot"),
            };
            if fate.loaded.is_some_and(|load| load <= cut) {
                // The checkpoint has what was loaded, and nothing else.
                return Seen::Absent;
            }
            if fate.dropped.is_some_and(|dropped| dropped <= cut) {
                // The checkpoint may have some pages of the tree, and not all.
                return Seen::TooOld;
            }
            // If who ran alone has ended just now, the slot says so by then.
            if let Some(pinned) = self.pins.lock().get(&cut) {
                return Seen::Checkpoint(pinned.pin.clone());
            }
        }
    }

    /// The version of a key as of a moment, whose value is appended to `to`.
    fn version(
        &self,
        at: Lsn,
        tree: TreeId,
        key: &[u8],
        to: &mut Vec<u8>,
    ) -> Result<Option<Version>> {
        let before = to.len();
        loop {
            let found = self.indexed().find(tree, key, at, to);
            match found {
                // Memory is asked for without the lock.
                Some(Version { len_bytes: Some(len_bytes), .. })
                    if to.len() - before < len_bytes =>
                {
                    reserve(to, len_bytes)?;
                }
                found => return Ok(found),
            }
        }
    }

    /// The version of a key in the part that has the one which was ended first, or else the one that was found in memory; its value replaces what `to` has
    /// behind `before`.
    #[inline]
    fn frozen_version(
        &self,
        snapshot: &Snapshot,
        tree: TreeId,
        key: &[u8],
        in_memory: Option<Version>,
        before: usize,
        to: &mut Vec<u8>,
    ) -> Result<Option<Version>> {
        let mut behind = Lsn(0);
        while let Some(part) = self.next_part(snapshot, behind) {
            if in_memory.is_some_and(|found| found.ended < part.first) {
                break;
            }
            // What was in memory may be in a part since.
            let mut value = Vec::new();
            if let Some(found) = part.frozen.find(tree, key, snapshot.at, &mut value)? {
                to.truncate(before);
                reserve(to, value.len())?;
                to.extend_from_slice(&value);
                return Ok(Some(found));
            }
            behind = part.last;
        }
        Ok(in_memory)
    }

    /// The next part behind an LSN that may have a version which a snapshot needs.
    #[inline]
    fn next_part(&self, snapshot: &Snapshot, behind: Lsn) -> Option<Arc<Part<M::Frozen>>> {
        self.parts.next(snapshot.at, || self.cut_of(snapshot), behind)
    }

    /// How far a snapshot needs versions, as far as is known by now: once it is pinned that stays so.
    fn cut_of(&self, snapshot: &Snapshot) -> Lsn {
        match self.slots.get(snapshot.slot).state() {
            State::Pinned(_, cut) => cut,
            _ => Lsn(u64::MAX),
        }
    }

    /// How many parts were written. See [`Self::for_each_frozen`].
    #[inline]
    pub fn parts_written(&self) -> u64 {
        self.parts.count()
    }

    /// Calls `each` with the versions in the file that a snapshot sees of keys of a stretch. They come in order of the keys, once for each part that has one of
    /// the key; the first counts. Together with what memory has afterwards they are all that the snapshot needs, if [`Self::parts_written`]
    /// is the same before this and after that.
    ///
    /// # Errors
    /// Those of reading the file.
    pub fn for_each_frozen(
        &self,
        snapshot: &Snapshot,
        stretch: Stretch<'_>,
        each: &mut dyn FnMut(Record<'_>),
    ) -> Result<()> {
        let mut behind = Lsn(0);
        let loaded = self.fate(stretch.tree, snapshot.at).loaded;
        while let Some(part) = self.next_part(snapshot, behind) {
            let cut = self.cut_of(snapshot);
            part.frozen.for_each(stretch, snapshot.at, &mut |record| {
                // What was ended behind the cut is in the checkpoint, and see `read_from` for loads.
                if record.ended <= cut && loaded.is_none_or(|load| record.ended < load) {
                    each(record);
                }
            })?;
            behind = part.last;
        }
        Ok(())
    }

    /// The first key at or above a bound that was removed from a tree while snapshots were open, into `to`, which is cleared. False:
    /// there is none. It may be there again, or absent as of a snapshot: [`Self::read`] says. A scan asks after its look at a leaf.
    ///
    /// # Errors
    /// `MemoryLimit` if there is none for the key.
    pub fn removed_from(&self, tree: TreeId, from: Bound<&[u8]>, to: &mut Vec<u8>) -> Result<bool> {
        self.removed_key(to, |versions, to| {
            let table = versions.indexed();
            let (removed, cells) = table.removed();
            removed.first_from(cells, tree, from, to)
        })
    }

    /// The last such key at or below a bound.
    ///
    /// # Errors
    /// As [`Self::removed_from`].
    #[cfg(hedgerow_internals)]
    pub fn removed_up_to(
        &self,
        tree: TreeId,
        up_to: Bound<&[u8]>,
        to: &mut Vec<u8>,
    ) -> Result<bool> {
        self.removed_key(to, |versions, to| {
            let table = versions.indexed();
            let (removed, cells) = table.removed();
            removed.last_up_to(cells, tree, up_to, to)
        })
    }

    fn removed_key(
        &self,
        to: &mut Vec<u8>,
        find: impl Fn(&Self, &mut Vec<u8>) -> Option<usize>,
    ) -> Result<bool> {
        loop {
            to.clear();
            match find(self, to) {
                None => return Ok(false),
                Some(len_bytes) if to.len() < len_bytes => reserve(to, len_bytes)?,
                Some(_) => return Ok(true),
            }
        }
    }

    /// Whether a checkpoint with this cut would take a snapshot over.
    pub fn wants_pin(&self, cut: Lsn) -> bool {
        self.slots.any_unpinned(cut)
    }

    /// Whether a checkpoint would make room for versions: it takes a snapshot over, or writes versions to the file that the one before could not.
    pub(super) fn wants_checkpoint(&self) -> bool {
        self.wants_pin(Lsn(u64::MAX)) || self.freezes_later.load(Relaxed)
    }

    /// Has a checkpoint take over the snapshots up to its cut, and drops the versions that only these needed above it. The
    /// checkpoint is durable, and `pin` keeps it. Returns `pin` if it is not needed. One caller at a time.
    ///
    /// # Errors
    /// As [`Self::collect`]; the snapshots have gone over then.
    pub fn pin(&self, around: &impl Surroundings, cut: Lsn, pin: P) -> Result<Option<Arc<P>>> {
        let pin = Arc::new(pin);
        {
            let mut pins = self.pins.lock();
            if self.alone.load(Acquire) != NOBODY {
                return Ok(Some(pin));
            }
            let users = self.pin_slots(cut, cut);
            if users == 0 {
                return Ok(Some(pin));
            }
            let entry = pins.entry(cut);
            entry.or_insert_with(|| Pinned { pin: pin.clone(), users: 0 }).users += users;
        }
        self.collect(around)?;
        Ok(None)
    }

    /// Marks the slots of snapshots up to a moment, which see what a checkpoint with this cut has; with the pins locked.
    pub(super) fn pin_slots(&self, cut: Lsn, up_to: Lsn) -> u64 {
        let mut count = 0;
        for slot in self.slots.all() {
            if let State::At(at) = slot.state()
                && at <= up_to
                && slot.pin(at, cut)
            {
                count += 1;
            }
        }
        self.pinned.fetch_add(count, Relaxed);
        count
    }

    /// Gives up the oldest snapshot that is not pinned, or else the oldest. False: there is none.
    pub fn give_up_oldest(&self) -> bool {
        loop {
            let unpinned = {
                // So that nothing is pinned meanwhile.
                let pins = self.pins.lock();
                let of = |slot| match Slot::state(slot) {
                    State::At(at) => Some((false, at, None, slot)),
                    State::Pinned(at, cut) => Some((true, at, Some(cut), slot)),
                    _ => None,
                };
                let oldest = self.slots.all().filter_map(of);
                let oldest = oldest.min_by_key(|&(is_pinned, at, ..)| (is_pinned, at));
                let Some((_, at, cut, slot)) = oldest else { return false };
                // It may have ended just now.
                if !slot.give_up(at, cut.is_some()) {
                    continue;
                }
                drop(pins);
                cut.and_then(|cut| self.unpin(cut))
            };
            drop(unpinned);
            self.given_up.fetch_add(1, Relaxed);
            return true;
        }
    }
}

fn reserve(to: &mut Vec<u8>, len_bytes: usize) -> Result<()> {
    let refused = |_| Error::new(ErrorKind::MemoryLimit, "no memory for what a snapshot sees");
    to.try_reserve(len_bytes).map_err(refused)
}
