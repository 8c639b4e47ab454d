//! A simulated disk: it forgets what was not synced, tears it, runs full, fails and lies on demand.
//!
//! A [`SimDisk`] is a [`SimState`] (a plain value, see [`state`]) behind one lock, with the
//! [faults](Fault) and [lies](Lie) to come, counts of calls and a log of them. Everything is a function of the seed
//! and of the order of calls; nothing here reads a clock. `Send + Sync`; clones are the same disk.
//!
//! To test a crash: take [`SimDisk::state`] at any moment (or [`SimDisk::record_states`], which takes
//! it before each change), let [`SimState::crash`] decide which unsynced changes survive, and open the
//! store on [`SimDisk::with_state`] of the result. Handles of the old disk go on undisturbed. A crash takes the system
//! down; [`SimDisk::kill`] ends the process alone, after which nothing is lost yet, but can be by a crash that follows.

pub mod fault;
pub mod lies;
pub mod state;
#[cfg(all(test, not(shuttle)))]
mod tests;

pub use fault::{CallKind, Effect, Fault, Operation};
pub use lies::{Age, Deceit, Lie, Told};
pub use state::{Change, Fate, FileNumber, SimState};

use super::ram::{Holding, LockState};
use super::sparse::BLOCK_BYTES;
use hedgerow::internals::error::{Error, ErrorKind, Result};
use hedgerow::internals::storage::{
    DirectIo, Disk, File, LockOutcome, MAX_OFFSET, OpenMode, ReadRequest, ReadSource, STREAM_DEPTH,
    WriteRequest, assert_aligned, ends_early, opened_read_only,
};
use hedgerow_sync::primitive::atomic::{AtomicUsize, Ordering::Relaxed};
use hedgerow_sync::primitive::random::SplitMix64;
use hedgerow_sync::primitive::{Arc, Mutex};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// A simulated disk. Clones are the same disk.
#[derive(Clone)]
pub struct SimDisk {
    world: Arc<Mutex<World>>,
}

struct World {
    state: SimState,
    random: SplitMix64,
    /// For the order of reads alone: when others read ahead is not to decide what becomes of writes.
    random_reads: SplitMix64,
    capacity_bytes: Option<u64>,
    block_bytes: usize,
    locks: BTreeMap<FileNumber, LockState>,
    faults: Vec<Fault>,
    lies: lies::Lies,
    counts: [u64; CallKind::COUNT],
    log: Option<Vec<Operation>>,
    states: Option<Vec<SimState>>,
}

impl SimDisk {
    /// An empty disk whose accidents follow from `seed`.
    pub fn new(seed: u64) -> SimDisk {
        SimDisk::with_state(SimState::default(), seed)
    }

    /// A disk with these contents, on which nothing is open or locked.
    pub fn with_state(state: SimState, seed: u64) -> SimDisk {
        let world = World {
            state: state.fork(),
            random: SplitMix64::new(seed),
            random_reads: SplitMix64::new(!seed),
            capacity_bytes: None,
            block_bytes: 512,
            locks: BTreeMap::new(),
            faults: Vec::new(),
            lies: lies::Lies::default(),
            counts: [0; CallKind::COUNT],
            log: None,
            states: None,
        };
        SimDisk { world: Arc::new(Mutex::new(world)) }
    }

    /// The contents at this moment, and what of them is pending.
    pub fn state(&self) -> SimState {
        self.world.lock().state.fork()
    }

    /// Changes the contents behind the engine's back.
    pub fn change_state<R>(&self, change: impl FnOnce(&mut SimState) -> R) -> R {
        change(&mut self.world.lock().state)
    }

    /// A new disk as a crash at this moment leaves it, with fates by the dice.
    pub fn crash(&self, seed: u64) -> SimDisk {
        let state = self.world.lock().state.crash_at_random(seed);
        SimDisk::with_state(state, seed)
    }

    /// A new disk as the end of the process at this moment leaves it, while the system lives on: nothing is open or
    /// locked, what was written can be read, and what of it was not synced is still pending ([`SimState::kill`]). What
    /// recovery finds there it may not rely on before it has synced it.
    pub fn kill(&self, seed: u64) -> SimDisk {
        let state = self.world.lock().state.kill();
        SimDisk::with_state(state, seed)
    }

    /// Limits the room on the disk. A write beyond it writes what fits and fails with `ENOSPC`.
    pub fn set_capacity(&self, capacity_bytes: Option<u64>) {
        self.world.lock().capacity_bytes = capacity_bytes;
    }

    /// The logical block of files opened for direct I/O from now on: a power of two, 512 at first.
    pub fn set_block_bytes(&self, block_bytes: usize) {
        assert!(block_bytes.is_power_of_two(), "a block is a power of two bytes");
        self.world.lock().block_bytes = block_bytes;
    }

    /// Arms a fault. Several may be armed; each counts on its own, and the first to strike decides.
    pub fn inject(&self, fault: Fault) {
        self.world.lock().faults.push(fault);
    }

    /// Disarms all faults.
    pub fn clear_faults(&self) {
        self.world.lock().faults.clear();
    }

    /// Arms a lie. Several may be armed; each counts on its own, and the first to strike is told.
    pub fn inject_lie(&self, lie: Lie) {
        let mut world = self.world.lock();
        let World { lies, state, .. } = &mut *world;
        lies.arm(lie, state);
    }

    /// Disarms all lies; what was told is remembered.
    pub fn clear_lies(&self) {
        self.world.lock().lies.disarm();
    }

    /// The lies that were told so far.
    pub fn lies_told(&self) -> Vec<Told> {
        self.world.lock().lies.told().to_vec()
    }

    /// Disarms all faults, and returns those that are not spent, with as many calls to go as they had.
    pub fn take_faults(&self) -> Vec<Fault> {
        std::mem::take(&mut self.world.lock().faults)
    }

    /// How many calls of a kind there were.
    pub fn calls(&self, kind: CallKind) -> u64 {
        self.world.lock().counts[kind as usize]
    }

    /// How many calls there were.
    pub fn total_calls(&self) -> u64 {
        self.world.lock().counts.iter().sum()
    }

    /// Begins or ends a log of all calls.
    pub fn record_log(&self, on: bool) {
        self.world.lock().log = on.then(Vec::new);
    }

    /// Takes the log so far.
    pub fn take_log(&self) -> Vec<Operation> {
        self.world.lock().log.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Begins or ends keeping the state before each call that changes anything.
    pub fn record_states(&self, on: bool) {
        self.world.lock().states = on.then(Vec::new);
    }

    /// Takes the states kept so far.
    pub fn take_states(&self) -> Vec<SimState> {
        self.world.lock().states.as_mut().map(std::mem::take).unwrap_or_default()
    }
}

impl std::fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let world = self.world.lock();
        f.debug_struct("SimDisk")
            .field("files", &world.state.paths())
            .field("pending", &world.state.pending().len())
            .field("faults", &world.faults)
            .field("calls", &world.counts.iter().sum::<u64>())
            .finish()
    }
}

/// A call as [`World::call`] wants it: where, and how much.
type Place = (Option<FileNumber>, u64, u64);

const NOWHERE: Place = (None, 0, 0);

impl World {
    /// Counts and logs a call, keeps the state before it, and finds out whether it is to fail.
    fn call(&mut self, kind: CallKind, place: Place) -> Option<(Error, Effect)> {
        self.counts[kind as usize] += 1;
        let mut strike = None;
        self.faults.retain_mut(|fault| match fault.meet(kind) {
            Some(found) => {
                strike = strike.or(Some(found));
                fault.sticky
            }
            None => true,
        });
        let (file, offset_bytes, len_bytes) = place;
        if let Some(log) = &mut self.log {
            let fault = strike.map(|(errno, _)| errno);
            log.push(Operation { kind, file, offset_bytes, len_bytes, fault });
        }
        if kind.is_change()
            && let Some(states) = &mut self.states
        {
            states.push(self.state.fork());
        }
        strike.map(|(errno, effect)| {
            let source = io::Error::from_raw_os_error(errno);
            (Error::io(format!("simulated failure of {kind:?}"), source), effect)
        })
    }

    /// A call that either goes well or fails, with no state in between.
    fn whole<R>(
        &mut self,
        kind: CallKind,
        place: Place,
        carry_out: impl FnOnce(&mut World) -> Result<R>,
    ) -> Result<R> {
        match self.call(kind, place) {
            None => carry_out(self),
            Some((error, Effect::Fully)) => carry_out(self).and(Err(error)),
            Some((error, _)) => Err(error),
        }
    }

    fn sync(&mut self, kind: CallKind, file: FileNumber) -> Result<()> {
        match self.call(kind, (Some(file), 0, 0)) {
            None => {
                if !self.ignores_sync(kind, Some(file)) {
                    self.state.sync(file);
                }
                Ok(())
            }
            Some((error, effect)) => {
                match effect {
                    Effect::Fully => self.state.sync(file),
                    Effect::Lost => self.state.lose(file),
                    Effect::Nothing | Effect::Partly => {}
                }
                Err(error)
            }
        }
    }

    fn read(&mut self, file: FileNumber, offset: u64, buf: &mut [u8]) -> Result<()> {
        let place = (Some(file), offset, buf.len() as u64);
        self.whole(CallKind::Read, place, |world| {
            let live = &world.state.node(file).live;
            if !live.read(offset, buf) {
                return Err(ends_early(live.len_bytes(), offset, buf.len()));
            }
            world.lie_about_read(file, offset, buf);
            Ok(())
        })
    }

    fn write(&mut self, file: FileNumber, offset: u64, buf: &[u8]) -> Result<()> {
        match self.call(CallKind::Write, (Some(file), offset, buf.len() as u64)) {
            None => self.write_or_lie(file, offset, buf),
            Some((error, effect)) => {
                match effect {
                    Effect::Fully => self.write_what_fits(file, offset, buf)?,
                    Effect::Partly => self.write_partly(file, offset, buf)?,
                    Effect::Nothing | Effect::Lost => {}
                }
                Err(error)
            }
        }
    }

    fn write_partly(&mut self, file: FileNumber, offset: u64, buf: &[u8]) -> Result<()> {
        let mut at = 0;
        while at < buf.len() {
            let sector_end = (offset + at as u64) / 512 * 512 + 512 - offset;
            let end = buf.len().min(sector_end as usize);
            if self.random.below(2) == 0 {
                self.write_what_fits(file, offset + at as u64, &buf[at..end])?;
            }
            at = end;
        }
        Ok(())
    }

    fn write_what_fits(&mut self, file: FileNumber, offset: u64, buf: &[u8]) -> Result<()> {
        if self.has_room(file, offset, buf.len() as u64) {
            return self.state.write(file, offset, buf);
        }
        let block = BLOCK_BYTES as u64;
        let mut len = 0;
        loop {
            let next = (offset + len) / block * block + block - offset;
            if !self.has_room(file, offset, next) {
                break;
            }
            len = next;
        }
        if len > 0 {
            self.state.write(file, offset, &buf[..len as usize])?;
        }
        Err(disk_full())
    }

    /// Allocates from the front, and keeps what there was room for, as real file systems do.
    fn allocate_what_fits(&mut self, file: FileNumber, offset: u64, len: u64) -> Result<()> {
        if self.has_room(file, offset, len) {
            return self.state.allocate(file, offset, len);
        }
        let (mut fits, mut too_much) = (0, len);
        while fits + 1 < too_much {
            let half = fits + (too_much - fits) / 2;
            if self.has_room(file, offset, half) { fits = half } else { too_much = half }
        }
        // Whole blocks.
        let kept =
            ((offset + fits) / BLOCK_BYTES as u64 * BLOCK_BYTES as u64).saturating_sub(offset);
        if kept > 0 {
            self.state.allocate(file, offset, kept)?;
        }
        Err(disk_full())
    }

    fn has_room(&self, file: FileNumber, offset: u64, len: u64) -> bool {
        let Some(capacity) = self.capacity_bytes else { return true };
        let room = capacity.saturating_sub(self.state.allocated_bytes());
        self.state.node(file).live.missing_bytes(offset, len) <= room
    }
}

#[cold]
fn disk_full() -> Error {
    Error::io("the simulated disk is full", io::Error::from_raw_os_error(Fault::ENOSPC))
}

#[cold]
fn exists_already(path: &Path) -> Error {
    Error::new(ErrorKind::FileExists, format!("{} exists already", path.display()))
}

fn require_some(file: Option<FileNumber>, path: &Path) -> Result<FileNumber> {
    let missing =
        || Error::new(ErrorKind::FileNotFound, format!("there is no file {}", path.display()));
    file.ok_or_else(missing)
}

impl Disk for SimDisk {
    fn share(&self) -> Arc<dyn Disk> {
        Arc::new(self.clone())
    }

    fn open(&self, path: &Path, mode: OpenMode, direct: DirectIo) -> Result<Arc<dyn File>> {
        let mut world = self.world.lock();
        let creates = mode == OpenMode::CreateNew;
        let kind = if creates { CallKind::Create } else { CallKind::Open };
        let file =
            world.whole(kind, NOWHERE, |world| match (world.state.lookup(path), creates) {
                (Some(_), true) => Err(exists_already(path)),
                (None, true) => Ok(world.state.create(path)),
                (found, false) => require_some(found, path),
            })?;
        world.state.node_mut(file).handles += 1;
        let block_bytes = match direct {
            DirectIo::Never => 1,
            DirectIo::WherePossible => world.block_bytes,
        };
        Ok(Arc::new(SimFile {
            world: Arc::clone(&self.world),
            file,
            writable: mode != OpenMode::ReadOnly,
            block_bytes: AtomicUsize::new(block_bytes),
            holding: Mutex::new(Holding::Nothing),
        }))
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        let mut world = self.world.lock();
        world.whole(CallKind::Exists, NOWHERE, |world| Ok(world.state.lookup(path).is_some()))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let mut world = self.world.lock();
        world.whole(CallKind::Rename, NOWHERE, |world| {
            require_some(world.state.lookup(from), from)?;
            world.state.rename(from, to);
            Ok(())
        })
    }

    fn rename_new(&self, from: &Path, to: &Path) -> Result<()> {
        let mut world = self.world.lock();
        world.whole(CallKind::Rename, NOWHERE, |world| {
            require_some(world.state.lookup(from), from)?;
            if world.state.lookup(to).is_some() {
                return Err(exists_already(to));
            }
            world.state.rename(from, to);
            Ok(())
        })
    }

    fn resolve(&self, path: &Path) -> Result<PathBuf> {
        let mut world = self.world.lock();
        world.whole(CallKind::Exists, NOWHERE, |world| {
            require_some(world.state.lookup(path), path).map(|_| path.to_owned())
        })
    }

    fn unlink(&self, path: &Path) -> Result<()> {
        let mut world = self.world.lock();
        world.whole(CallKind::Unlink, NOWHERE, |world| {
            require_some(world.state.lookup(path), path)?;
            world.state.unlink(path);
            Ok(())
        })
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        let mut world = self.world.lock();
        world.whole(CallKind::SyncDir, NOWHERE, |world| {
            if !world.ignores_sync(CallKind::SyncDir, None) {
                world.state.sync_dir(path);
            }
            Ok(())
        })
    }
}

struct SimFile {
    world: Arc<Mutex<World>>,
    file: FileNumber,
    writable: bool,
    /// One once the file goes through the page cache. Relaxed: the caller orders that before its calls.
    block_bytes: AtomicUsize,
    holding: Mutex<Holding>,
}

impl std::fmt::Debug for SimFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SimFile({})", self.file.0)
    }
}

impl SimFile {
    fn require_writable(&self) -> Result<()> {
        if self.writable { Ok(()) } else { Err(opened_read_only()) }
    }

    fn place(&self, offset_bytes: u64, len_bytes: u64) -> Place {
        (Some(self.file), offset_bytes, len_bytes)
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        let mut world = self.world.lock();
        world.locks.entry(self.file).or_default().release(*self.holding.lock());
        world.state.node_mut(self.file).handles -= 1;
        world.state.forget_if_unused(self.file);
    }
}

impl File for SimFile {
    fn read_at(&self, offset_bytes: u64, buf: &mut [u8]) -> Result<()> {
        assert_aligned(self.block_bytes(), offset_bytes, buf);
        self.read_unaligned(offset_bytes, buf)
    }

    fn write_at(&self, offset_bytes: u64, buf: &[u8]) -> Result<()> {
        self.write_batch(&[WriteRequest { offset_bytes, buf }])
    }

    fn read_batch(&self, requests: &mut [ReadRequest<'_>]) {
        let mut world = self.world.lock();
        for request in requests {
            assert_aligned(self.block_bytes(), request.offset_bytes, request.buf);
            request.result = world.read(self.file, request.offset_bytes, request.buf);
        }
    }

    /// Carries the reads out late and in an order of the dice, as a device does.
    fn read_stream<'a>(&self, source: &mut dyn ReadSource<'a>) {
        let mut under_way = Vec::new();
        loop {
            let wanted = 1 + self.world.lock().random_reads.below(STREAM_DEPTH as u64) as usize;
            while under_way.len() < wanted
                && let Some(read) = source.next_read()
            {
                under_way.push(read);
            }
            if under_way.is_empty() {
                return;
            }
            let at = self.world.lock().random_reads.below(under_way.len() as u64) as usize;
            let (number, mut read) = under_way.swap_remove(at);
            read.result = self.read_at(read.offset_bytes, read.buf);
            source.end_read(number, read);
        }
    }

    /// Carries the requests out in an order of the dice, as a device does.
    fn write_batch(&self, requests: &[WriteRequest<'_>]) -> Result<()> {
        self.require_writable()?;
        let mut world = self.world.lock();
        let mut order: Vec<usize> = (0..requests.len()).collect();
        for index in (1..order.len()).rev() {
            order.swap(index, world.random.below(index as u64 + 1) as usize);
        }
        let mut first_error: Option<(usize, Error)> = None;
        for index in order {
            let request = &requests[index];
            assert_aligned(self.block_bytes(), request.offset_bytes, request.buf);
            if let Err(error) = world.write(self.file, request.offset_bytes, request.buf)
                && first_error.as_ref().is_none_or(|(first, _)| index < *first)
            {
                first_error = Some((index, error));
            }
        }
        first_error.map_or(Ok(()), |(_, error)| Err(error))
    }

    fn len_bytes(&self) -> Result<u64> {
        self.world.lock().whole(CallKind::Examine, self.place(0, 0), |world| {
            Ok(world.state.node(self.file).live.len_bytes())
        })
    }

    fn set_len(&self, len_bytes: u64) -> Result<()> {
        self.require_writable()?;
        self.world.lock().whole(CallKind::SetLen, self.place(0, len_bytes), |world| {
            world.state.set_len(self.file, len_bytes)
        })
    }

    fn allocate(&self, offset_bytes: u64, len_bytes: u64) -> Result<()> {
        self.require_writable()?;
        let place = self.place(offset_bytes, len_bytes);
        self.world.lock().whole(CallKind::Allocate, place, |world| {
            let end = offset_bytes.saturating_add(len_bytes);
            if end > MAX_OFFSET {
                return Err(disk_full());
            }
            world.allocate_what_fits(self.file, offset_bytes, len_bytes)
        })
    }

    fn punch_hole(&self, offset_bytes: u64, len_bytes: u64) -> Result<bool> {
        self.require_writable()?;
        let place = self.place(offset_bytes, len_bytes);
        self.world.lock().whole(CallKind::PunchHole, place, |world| {
            world.state.punch(self.file, offset_bytes, len_bytes);
            Ok(true)
        })
    }

    fn sync_data(&self) -> Result<()> {
        self.world.lock().sync(CallKind::SyncData, self.file)
    }

    fn sync_all(&self) -> Result<()> {
        self.world.lock().sync(CallKind::SyncAll, self.file)
    }

    fn allocated_bytes(&self) -> Result<u64> {
        self.world.lock().whole(CallKind::Examine, self.place(0, 0), |world| {
            Ok(world.state.node(self.file).live.allocated_bytes())
        })
    }

    fn free_bytes(&self) -> Result<Option<u64>> {
        let world = self.world.lock();
        let free = |capacity: u64| capacity.saturating_sub(world.state.allocated_bytes());
        Ok(world.capacity_bytes.map(free))
    }

    fn block_bytes(&self) -> usize {
        self.block_bytes.load(Relaxed)
    }

    fn use_page_cache(&self) -> Result<()> {
        self.block_bytes.store(1, Relaxed);
        Ok(())
    }

    fn try_lock(&self, exclusive: bool) -> Result<LockOutcome> {
        let mut world = self.world.lock();
        world.whole(CallKind::Lock, self.place(0, 0), |world| {
            let lock = world.locks.entry(self.file).or_default();
            if lock.acquire(&mut self.holding.lock(), exclusive) {
                Ok(LockOutcome::Held)
            } else {
                Ok(LockOutcome::Busy { holder_pid: Some(std::process::id()) })
            }
        })
    }

    fn is_at(&self, path: &Path) -> Result<bool> {
        let mut world = self.world.lock();
        world.whole(CallKind::Exists, self.place(0, 0), |world| {
            Ok(world.state.lookup(path) == Some(self.file))
        })
    }

    fn unlock(&self) -> Result<()> {
        let mut world = self.world.lock();
        let mut holding = self.holding.lock();
        world.locks.entry(self.file).or_default().release(*holding);
        *holding = Holding::Nothing;
        Ok(())
    }

    fn read_unaligned(&self, offset_bytes: u64, buf: &mut [u8]) -> Result<()> {
        self.world.lock().read(self.file, offset_bytes, buf)
    }
}
