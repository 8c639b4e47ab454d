//! Batches: several changes of which a crash leaves all or none.
//!
//! Rank 6. A batch that is small enough is made at one stroke, and is seen whole or not at all (`tree/commit.rs`,
//! `docs/transactions.md`). A larger one is made by whoever runs alone (`alone.rs`), which nobody sees half of either; here is how that is
//! logged and made. In a store without a log there is neither checkpoint nor log to rely on: a batch that is too large for one stroke is
//! made change by change, and others may see a part of it.
//!
//! What a batch is going to do is logged first, whole ([`Record::Batch`]); then each change is made like any
//! other, and [`Record::Made`] says so under the latch of its leaf. A crash in between leaves a log that has the rest,
//! and replay does it (`replay.rs`). So nothing is ever undone, no latch is held from one change to the next, and no
//! checkpoint waits for a batch.
//!
//! # Invariants
//! - A checkpoint that cuts a batch in two needs the log from where the batch began: [`Batches::cut`]. What lies
//!   before the cut is in the checkpoint, and is not made again.
//! - A batch that is logged whole is finished, or else the log stays needed and nothing is changed any more.
//! - It waits for nothing that waits for it: its room in the log is reserved before it is logged.
//!
//! `Send + Sync`. The lock here is held for nothing but looking at the table.

use super::superblock::Superblock;
use super::{Shared, Store};
use crate::buffer::BufferPool;
use crate::error::{Error, ErrorKind, Result};
use crate::page::{Frames, Journal};
use crate::space::SetAside;
use crate::tree::{Part, ReadSet, Stroke, Write, encode, fit_piece, piece_bytes, purpose_of};
use crate::types::{Lsn, Purpose};
use crate::wait::Waiting;
use crate::wal::{BatchId, Log, MADE_BYTES, Record, Reservation, commit_id};
use hedgerow_sync::primitive::atomic::AtomicU64;
use hedgerow_sync::primitive::atomic::Ordering::Relaxed;
use hedgerow_sync::primitive::time::Moment;
use hedgerow_sync::primitive::{Condvar, Mutex, thread};
use std::collections::BTreeMap;
use std::time::Duration;

/// One change of a batch.
pub type BatchChange<'b> = Write<'b, BufferPool>;

/// What a transaction has read.
pub type BatchReads<'b> = ReadSet<'b, BufferPool>;

/// The batches that are under way.
#[derive(Default)]
pub(super) struct Batches {
    table: Mutex<Table>,
    ended: Condvar,
    /// Commits at one stroke that were numbered in this session, by thread.
    commits: [Numbered; NUMBERED],
}

/// Commits of one thread, or of several; in a line of its own.
#[derive(Default)]
#[repr(align(128))]
struct Numbered(AtomicU64);

const NUMBERED: usize = 16;

#[derive(Default)]
struct Table {
    /// Those that have begun.
    begun: u64,
    closed: bool,
    /// Those who keep new ones from beginning.
    held_off: usize,
    underway: BTreeMap<BatchId, Begun>,
}

#[derive(Default)]
struct Begun {
    /// All its records lie behind it. `None`: it has none yet.
    start: Option<Lsn>,
    /// Nobody goes on with it.
    is_stuck: bool,
}

impl Table {
    fn oldest(&self) -> Option<Lsn> {
        self.underway.values().filter_map(|begun| begun.start).min()
    }
}

impl Batches {
    /// Where replay has to start for a checkpoint that is cut now, and where the cut is. While nobody is inside of an
    /// epoch.
    pub(super) fn cut(&self, log: &Log) -> (Lsn, Lsn) {
        let table = self.table.lock();
        let end = log.tail();
        // Whoever starts later starts behind the cut.
        (table.oldest().map_or(end, |start| start.min(end)), end)
    }

    /// The number of a new commit at one stroke.
    fn number_commit(&self) -> BatchId {
        let at = thread::id() % NUMBERED;
        // Relaxed: no two commits get the same number.
        let before = self.commits[at].0.fetch_add(1, Relaxed);
        commit_id(before * NUMBERED as u64 + at as u64)
    }

    /// How many have begun in this session, and commits.
    pub(super) fn begun(&self) -> u64 {
        self.begun_of(&self.table.lock())
    }

    fn begun_of(&self, table: &Table) -> u64 {
        table.begun + self.commits.iter().map(|of| of.0.load(Relaxed)).sum::<u64>()
    }

    /// Whether a checkpoint would shorten the log: there have been batches since the newest, whatever they have changed,
    /// or those that it keeps the log for have ended.
    pub(super) fn want_cut(&self, begun: u64, newest: &Superblock) -> bool {
        let table = self.table.lock();
        let is_pinned = newest.replay_start < newest.log_end;
        self.begun_of(&table) != begun
            || is_pinned && table.oldest().is_none_or(|start| start > newest.replay_start)
    }

    /// Waits for those under way, and keeps new ones from beginning until the value is dropped. A checkpoint that is cut
    /// meanwhile has every batch whole or not at all.
    pub(super) fn hold_off(&self) -> HeldOff<'_> {
        let mut table = self.table.lock();
        table.held_off += 1;
        while table.underway.values().any(|begun| !begun.is_stuck) {
            self.ended.wait(&mut table);
        }
        HeldOff(self)
    }

    /// Refuses new ones, and waits for those under way.
    pub(super) fn close(&self) {
        let mut table = self.table.lock();
        table.closed = true;
        while table.underway.values().any(|begun| !begun.is_stuck) {
            self.ended.wait(&mut table);
        }
    }

    /// Whether some were logged and not finished, and will not be before the log is replayed.
    pub(super) fn need_log(&self) -> bool {
        self.table.lock().underway.values().any(|begun| begun.is_stuck)
    }
}

/// No batch begins while this lives.
#[must_use]
pub(super) struct HeldOff<'b>(&'b Batches);

impl Drop for HeldOff<'_> {
    fn drop(&mut self) {
        self.0.table.lock().held_off -= 1;
        self.0.ended.notify_all();
    }
}

/// A batch that has begun. Dropped before it is logged whole it never was; dropped after that, without having been
/// finished, it keeps the log needed, and nothing is changed any more: what came later would be overtaken when it is
/// finished.
pub(super) struct Underway<'s> {
    shared: &'s Shared,
    id: BatchId,
    is_logged: bool,
}

impl<'s> Underway<'s> {
    pub(super) fn begin(shared: &'s Shared, waiting: &Waiting<'_>) -> Result<Underway<'s>> {
        let mut table = shared.batches.table.lock();
        while table.held_off > 0 && !table.closed {
            waiting.wait_on(&shared.batches.ended, &mut table)?;
        }
        if table.closed {
            return Err(Error::new(ErrorKind::Closed, "the database was closed"));
        }
        table.begun += 1;
        let id = BatchId::new(table.begun);
        table.underway.insert(id, Begun::default());
        Ok(Underway { shared, id, is_logged: false })
    }

    /// From here on its records may be in the log.
    fn start(&self, log: &Log) {
        let mut table = self.shared.batches.table.lock();
        table.underway.entry(self.id).or_default().start = Some(log.tail());
    }

    pub(super) fn finish(mut self) {
        self.is_logged = false;
    }
}

impl Drop for Underway<'_> {
    fn drop(&mut self) {
        if self.is_logged {
            let what = "a batch of changes was not finished; opening the store again finishes it";
            self.shared.pool.set_poisoned(&Error::new(ErrorKind::BatchUnfinished, what));
        }
        let mut table = self.shared.batches.table.lock();
        if self.is_logged {
            table.underway.entry(self.id).or_default().is_stuck = true;
        } else {
            table.underway.remove(&self.id);
        }
        self.shared.batches.ended.notify_all();
    }
}

/// How long a change is tried again for want of memory, time or room, and the pause in between.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(10);

/// Room for a batch that is logged whole; what is not used goes back with this.
pub(super) struct BatchRoom<'l> {
    in_log: Reservation<'l>,
    _aside: Option<SetAside<'l>>,
}

/// Bytes that a batch takes in the log.
pub(super) fn log_bytes(changes: &[BatchChange<'_>]) -> u64 {
    changes.len() as u64 * MADE_BYTES as u64 + piece_bytes(changes)
}

impl Store {
    /// Makes all changes, which are of different keys, in the order (tree, key). They are not durable yet. Everybody sees all of them or
    /// none, and after a crash all of them are there or none: at one stroke (`tree/commit.rs`) if they are few enough, and else alone
    /// (`alone.rs`). Without a log, if they are too many for one stroke, they are made one after the other.
    ///
    /// Errors: `BatchTooLarge`, `KeyspaceDropped`, those of reads and of entering: nothing has changed; `BatchUnfinished`: the
    /// batch could not be finished, everybody sees what was there before, and nothing can be changed until the store is opened again,
    /// which finishes it; those of `waiting`, before the last of the batch's records is logged: nothing has changed. Without a log, those
    /// of all changes, and some of them are made.
    ///
    /// `made` is set to how many of the changes may have been made, or will be: the first ones. Returns an LSN that none of theirs is
    /// above; of a commit at one stroke its own.
    pub fn write_batch(
        &self,
        changes: &[BatchChange<'_>],
        made: &mut usize,
        waiting: &Waiting<'_>,
    ) -> Result<Lsn> {
        if let Some(lsn) = self.shared.commit(changes, None, waiting)? {
            *made = changes.len();
            return Ok(lsn);
        }
        if let Some(log) = self.shared.pool.log() {
            return self.shared.commit_alone(log, changes, None, made, waiting);
        }
        self.shared.read_before(changes)?;
        write_unlogged(changes, made)?;
        Ok(self.shared.pool.last_lsn())
    }

    /// Makes the changes of a transaction as [`Self::write_batch`] does, if what it has read is unchanged. `None`, and nothing is done, if
    /// they are too many for the store, or were read from too many leaves in a store without a log.
    ///
    /// Errors: `Conflict`; as for [`Self::write_batch`]. `made` as there.
    pub fn commit(
        &self,
        changes: &[BatchChange<'_>],
        read_set: Option<&BatchReads<'_>>,
        made: &mut usize,
        waiting: &Waiting<'_>,
    ) -> Result<Option<Lsn>> {
        if let Some(lsn) = self.shared.commit(changes, read_set, waiting)? {
            *made = changes.len();
            return Ok(Some(lsn));
        }
        let log = self.shared.pool.log();
        let Some(log) = log.filter(|log| log.check_batch(log_bytes(changes)).is_ok()) else {
            return Ok(None);
        };
        self.shared.commit_alone(log, changes, read_set, made, waiting).map(Some)
    }

    /// The most bytes that the changes of a transaction may have: keys and values, and 32 for each.
    pub fn most_commit_bytes(&self) -> u64 {
        match self.shared.pool.log() {
            // Each piece of the log's records has a head.
            Some(log) => {
                let most = log.most_batch_bytes();
                most - most / HEADS_SHARE - HEADS_SHARE
            }
            None => self.shared.pool.budget().limit_bytes() / UNLOGGED_SHARE,
        }
    }

    /// How many commits were made alone since the store was opened.
    pub fn commits_alone(&self) -> u64 {
        self.shared.turn.ended()
    }
}

/// Makes the changes one after the other; see [`Store::write_batch`] for `made`.
pub(super) fn write_unlogged(changes: &[BatchChange<'_>], made: &mut usize) -> Result<()> {
    changes.iter().try_for_each(|change| {
        match change.value {
            Some(value) => change.tree.put(change.key, value)?,
            None => change.tree.remove(change.key)?,
        };
        *made += 1;
        Ok(())
    })
}

/// Heads of pieces take less than one part in so many of the log, and of a single piece less than so many bytes.
const HEADS_SHARE: u64 = 128;
/// The part of the memory limit that the changes of a commit may have that no log has.
const UNLOGGED_SHARE: u64 = 16;
/// The part of the pool's frames that a commit at one stroke may have as leaves.
const STROKE_FRAMES_SHARE: usize = 8;

impl Shared {
    /// Makes the changes at one stroke; `None`, and nothing is done, if they are too many for that.
    fn commit(
        &self,
        changes: &[BatchChange<'_>],
        read_set: Option<&BatchReads<'_>>,
        waiting: &Waiting<'_>,
    ) -> Result<Option<Lsn>> {
        // One change is its own stroke, and its record says all.
        if let ([one], None) = (changes, read_set) {
            match one.value {
                Some(value) => one.tree.put(one.key, value)?,
                None => one.tree.remove(one.key)?,
            };
            return Ok(Some(self.pool.last_lsn()));
        }
        let log = self.pool.log();
        let bytes = log.map_or(0, |_| piece_bytes(changes));
        if log.is_some_and(|log| !log.is_one_stroke(bytes)) {
            return Ok(None);
        }
        let most_leaves = self.pool.frames() as usize / STROKE_FRAMES_SHARE;
        let (most, purpose) = (changes.len().min(most_leaves), purpose_of(changes));
        let _aside = self.pool.admit_batch(most, 0, purpose, waiting)?;
        let id = self.batches.number_commit();
        let stroke = Stroke { id, log_bytes: bytes, most_leaves };
        stroke.make(changes, read_set, waiting)
    }

    /// Reads all leaves: many at a time, and so that damage is met before anything is done.
    pub(super) fn read_before(&self, changes: &[BatchChange<'_>]) -> Result<()> {
        const AT_ONCE: usize = 256;
        for group in changes.chunk_by(|a, b| a.tree.id() == b.tree.id()) {
            for some in group.chunks(AT_ONCE) {
                let keys: Vec<&[u8]> = some.iter().map(|change| change.key).collect();
                group[0].tree.get_many(&keys)?;
            }
        }
        Ok(())
    }

    /// Room for a batch that is logged whole: on the disk and in the log.
    pub(super) fn room_for_batch<'l>(
        &'l self,
        log: &'l Log,
        changes: &[BatchChange<'_>],
        bytes: u64,
        waiting: &Waiting<'_>,
    ) -> Result<BatchRoom<'l>> {
        // Pages are half full at least.
        let new = bytes as usize / self.pool.page_bytes() * 2;
        let there = self.pool.ids().lock().next_id().map_or(u32::MAX, |id| id.0) as usize;
        // Each change makes a leaf dirty, of which there are no more than pages.
        let most = changes.len().min(there.saturating_add(new));
        let aside = self.pool.admit_batch(most, new, purpose_of(changes), waiting)?;
        let in_log = self.pool.reserve_log(log, bytes, waiting)?;
        Ok(BatchRoom { in_log, _aside: aside })
    }

    /// Logs what a batch is going to do. After an error it never was.
    pub(super) fn log_batch(
        &self,
        log: &Log,
        changes: &[BatchChange<'_>],
        underway: &mut Underway<'_>,
        room: &BatchRoom<'_>,
        waiting: &Waiting<'_>,
    ) -> Result<()> {
        let batch = underway.id;
        underway.start(log);
        let mut left = changes;
        let mut records = Vec::new();
        while !left.is_empty() {
            let (count, _) = fit_piece(left);
            records.clear();
            encode(&left[..count], &mut records);
            left = &left[count..];
            let record = Record::Batch { batch, changes: changes.len() as u32, records: &records };
            let len = record.len_bytes() as u64;
            // Before the last record the batch can still be given up.
            let stay = self.pool.enter_to_append(len, Purpose::Finish, waiting)?;
            // The last one says that all of it is there.
            underway.is_logged = left.is_empty();
            self.pool.append(&stay, &record);
            room.in_log.used(len);
        }
        Ok(())
    }

    /// Makes the changes of a batch that is logged.
    pub(super) fn make_logged(
        &self,
        changes: &[BatchChange<'_>],
        underway: &Underway<'_>,
        room: &BatchRoom<'_>,
    ) -> Result<()> {
        for (at, change) in changes.iter().enumerate() {
            let part = Part { batch: underway.id, change: at as u32, value: change.value };
            match self.make_part(change, &part) {
                Ok(()) => room.in_log.used(MADE_BYTES as u64),
                // Dropped meanwhile, with what the batch has put into it. A large value stays where it is until the store
                // is opened again: the log has a change that names it.
                Err(error) if error.kind() == ErrorKind::KeyspaceDropped => {}
                Err(error) => return Err(self.unfinished(&error)),
            }
        }
        Ok(())
    }

    fn make_part(&self, change: &BatchChange<'_>, part: &Part<'_>) -> Result<()> {
        let since = Moment::now();
        loop {
            match change.tree.make_part(change.key, part) {
                Err(error)
                    if since.elapsed() < LONGEST_WAIT
                        && matches!(
                            error.kind(),
                            ErrorKind::DiskFull | ErrorKind::MemoryLimit | ErrorKind::Timeout
                        ) =>
                {
                    thread::sleep(PAUSE);
                    // There may be nobody else who takes one, and what is in the way goes with it. What is wrong with
                    // it the next try finds out.
                    self.checkpoint(false).ok();
                }
                other => return other,
            }
        }
    }

    /// Nothing is changed any more: what is there is not what was asked for.
    #[cold]
    fn unfinished(&self, cause: &Error) -> Error {
        let what = format!(
            "a batch of changes could not be finished; opening the store again finishes it: {cause}"
        );
        let error = Error::new(ErrorKind::BatchUnfinished, what);
        self.pool.set_poisoned(&error);
        error
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::super::PoolTree;
    use super::super::{OpenHow, Store, StoreOptions};
    use super::*;
    use crate::storage::{DirectIo, Disk, OpenMode};
    use crate::testing::{RamDisk, SimDisk};
    use hedgerow_sync::primitive::Arc;
    use std::ops::ControlFlow;
    use std::path::Path;
    use std::sync::mpsc::channel;

    fn shared() -> Arc<Shared> {
        let disk = RamDisk::new();
        let file = disk.open(Path::new("s"), OpenMode::CreateNew, DirectIo::Never).unwrap();
        let options = StoreOptions { background: false, ..StoreOptions::without_log(16 << 20) };
        Store::create_in(&options, file).unwrap().shared.clone()
    }

    fn refused(shared: &Shared) -> ErrorKind {
        Underway::begin(shared, &Waiting::Forever).map(Underway::finish).unwrap_err().kind()
    }

    #[test]
    fn closing_waits_for_the_batch_under_way_and_no_other_begins() {
        let shared = shared();
        let underway = Underway::begin(&shared, &Waiting::Forever).unwrap();
        let (closed, closes) = channel();
        let closing = {
            let shared = shared.clone();
            let close = move || {
                shared.batches.close();
                closed.send(()).unwrap();
            };
            thread::spawn_named("closing", close).unwrap()
        };
        assert!(closes.recv_timeout(Duration::from_millis(30)).is_err(), "a batch is under way");
        assert_eq!(refused(&shared), ErrorKind::Closed);
        underway.finish();
        closes.recv().unwrap();
        closing.join().unwrap();
        assert_eq!(shared.batches.begun(), 1);
        assert!(!shared.batches.need_log());
    }

    #[test]
    fn a_batch_that_is_held_off_is_refused_by_the_end_of_the_store_and_else_goes_on() {
        let shared = shared();
        for is_closed in [false, true] {
            let held = shared.batches.hold_off();
            let (asks, asking) = channel();
            let (begun, begins) = channel();
            let beginning = {
                let shared = shared.clone();
                let begin = move || {
                    asks.send(()).unwrap();
                    let outcome = Underway::begin(&shared, &Waiting::Forever).map(Underway::finish);
                    begun.send(outcome.map_err(|error| error.kind())).unwrap();
                };
                thread::spawn_named("beginning", begin).unwrap()
            };
            asking.recv().unwrap();
            assert!(begins.recv_timeout(Duration::from_millis(30)).is_err(), "it is held off");
            if is_closed {
                shared.batches.close();
                // Who comes now does not wait for that.
                assert_eq!(refused(&shared), ErrorKind::Closed);
            }
            drop(held);
            let expected = if is_closed { Err(ErrorKind::Closed) } else { Ok(()) };
            assert_eq!(begins.recv().unwrap(), expected);
            beginning.join().unwrap();
        }
        assert_eq!(shared.batches.begun(), 1);
    }

    #[test]
    fn a_batch_that_is_logged_and_left_keeps_the_log_needed_and_is_waited_for_by_nobody() {
        let shared = shared();
        let not_logged = Underway::begin(&shared, &Waiting::Forever).unwrap();
        drop(not_logged);
        assert!(!shared.batches.need_log(), "it never was");
        shared.pool.check_poison().unwrap();
        let mut underway = Underway::begin(&shared, &Waiting::Forever).unwrap();
        underway.is_logged = true;
        drop(underway);
        assert!(shared.batches.need_log());
        assert!(shared.pool.check_poison().is_err(), "it would be overtaken");
        drop(shared.batches.hold_off());
        shared.batches.close();
    }

    /// What [`Shared::write_logged`] does, a step at a time.
    struct Steps<'s> {
        store: &'s Store,
        log: &'s Log,
        underway: Underway<'s>,
        changes: Vec<BatchChange<'s>>,
    }

    impl<'s> Steps<'s> {
        fn begin(store: &'s Store, tree: &'s PoolTree, keys: &'s [&'s [u8]]) -> Steps<'s> {
            let log = store.log().unwrap();
            let change = |key: &&'s [u8]| BatchChange { tree, key, value: Some(b"sings") };
            let underway = Underway::begin(&store.shared, &Waiting::Forever).unwrap();
            underway.start(log);
            Steps { store, log, underway, changes: keys.iter().map(change).collect() }
        }

        /// Logs some of its changes in one record.
        fn log(&mut self, some: std::ops::Range<usize>) {
            let mut records = Vec::new();
            encode(&self.changes[some.clone()], &mut records);
            let (batch, changes) = (self.underway.id, self.changes.len() as u32);
            let record = Record::Batch { batch, changes, records: &records };
            let (pool, len) = (&self.store.shared.pool, record.len_bytes() as u64);
            let reservation = pool.reserve_log(self.log, len, &Waiting::Forever).unwrap();
            let stay = pool.enter_to_append(len, Purpose::Finish, &Waiting::Forever).unwrap();
            self.underway.is_logged = some.end == self.changes.len();
            pool.append(&stay, &record);
            reservation.used(len);
        }

        fn make(&self, at: usize) {
            let bytes = MADE_BYTES as u64;
            let reservation =
                self.store.shared.pool.reserve_log(self.log, bytes, &Waiting::Forever).unwrap();
            let (change, batch) = (&self.changes[at], self.underway.id);
            let part = Part { batch, change: at as u32, value: change.value };
            self.store.shared.make_part(change, &part).unwrap();
            reservation.used(bytes);
        }
    }

    /// A checkpoint may be cut as soon as the first record is in the log, and it keeps the log from where the batch says that it
    /// began. The log's end after that record would be too late.
    #[test]
    fn a_batch_has_noted_where_it_begins_before_its_first_record_is_in_the_log() {
        let (disk, path) = (SimDisk::new(1), Path::new("birds.hrow"));
        let options =
            StoreOptions { background: false, log: true, ..StoreOptions::without_log(16 << 20) };
        let store = Store::open(&options, &disk, path, OpenHow::New).unwrap();
        let wrens = store.keyspace("wrens").unwrap();
        let value = vec![b'x'; 600];
        let keys: Vec<Vec<u8>> =
            (0..41).map(|n| vec![n; if n == 0 { 5000 } else { 300 }]).collect();
        let change = |key| BatchChange { tree: &wrens, key, value: Some(&value[..]) };
        let changes: Vec<BatchChange<'_>> = keys.iter().map(|key| change(&key[..])).collect();
        let (count, _) = fit_piece(&changes);
        assert!(count < changes.len(), "the batch has more than one record");
        // A key that no page has room for ends the batch after it was logged, so that it stays under way.
        let (log, mut made) = (store.log().unwrap(), 0);
        let begin = log.tail();
        let left = store
            .shared
            .commit_alone(log, &changes, None, &mut made, &Waiting::Forever)
            .unwrap_err();
        assert_eq!(left.kind(), ErrorKind::BatchUnfinished, "{left}");
        assert!(store.shared.batches.need_log());
        assert!(log.tail() > begin);
        let (start, end) = store.shared.batches.cut(log);
        assert_eq!((start, end), (begin, log.tail()));
    }

    /// The log is needed from where the later batch began, behind the first record of the earlier one: of that one a part is
    /// found, which is in the checkpoint whole.
    #[test]
    fn of_two_batches_at_a_cut_one_is_in_the_checkpoint_and_the_other_is_finished() {
        for ends in [false, true] {
            let (disk, path) = (SimDisk::new(1), Path::new("birds.hrow"));
            let options = StoreOptions {
                background: false,
                log: true,
                ..StoreOptions::without_log(16 << 20)
            };
            let store = Store::open(&options, &disk, path, OpenHow::New).unwrap();
            let wrens = store.create_keyspace("wrens").unwrap();
            let mut earlier = Steps::begin(&store, &wrens, &[b"a", b"b"]);
            earlier.log(0..1);
            let mut later = Steps::begin(&store, &wrens, &[b"c", b"d"]);
            later.log(0..2);
            earlier.log(1..2);
            later.make(0);
            (0..2).for_each(|at| earlier.make(at));
            earlier.underway.finish();
            store.checkpoint().unwrap();
            if ends {
                later.make(1);
            }
            store.flush_log().unwrap();
            let left = disk.crash(1);
            later.underway.finish();
            let again = Store::open(&options, &left, path, OpenHow::Existing).unwrap();
            let wrens = again.keyspace("wrens").unwrap();
            for key in [b"a", b"b", b"c", b"d"] {
                let found = wrens.get(key).unwrap();
                assert_eq!(found.as_deref(), Some(&b"sings"[..]), "{key:?}, {ends}");
            }
            assert!(again.verify(|_| ControlFlow::Continue(())).unwrap().is_clean());
        }
    }

    #[test]
    fn a_keyspace_that_is_dropped_after_the_batch_was_logged_takes_its_own_changes_with_it_only() {
        let (disk, path) = (RamDisk::new(), Path::new("birds.hrow"));
        let options =
            StoreOptions { background: false, log: true, ..StoreOptions::without_log(16 << 20) };
        let store = Store::open(&options, &disk, path, OpenHow::New).unwrap();
        let (robins, wrens) = (store.keyspace("robins").unwrap(), store.keyspace("wrens").unwrap());
        let change = |tree, key| BatchChange { tree, key, value: Some(&b"sings"[..]) };
        let changes = [
            change(&wrens, b"a"),
            change(&robins, b"a"),
            change(&wrens, b"b"),
            change(&robins, b"b"),
        ];
        // As if it happened between the look at the leaves and the first change.
        store.drop_keyspace("wrens").unwrap();
        let (log, forever) = (store.log().unwrap(), &Waiting::Forever);
        let mut underway = Underway::begin(&store.shared, forever).unwrap();
        let bytes = log_bytes(&changes);
        let room = store.shared.room_for_batch(log, &changes, bytes, forever).unwrap();
        store.shared.log_batch(log, &changes, &mut underway, &room, forever).unwrap();
        store.shared.make_logged(&changes, &underway, &room).unwrap();
        underway.finish();
        drop(room);
        assert!(!store.shared.batches.need_log());
        store.shared.pool.check_poison().unwrap();
        store.flush_log().unwrap();
        drop((robins, wrens));
        drop(store);
        let store = Store::open(&options, &disk, path, OpenHow::Existing).unwrap();
        assert_eq!(store.keyspaces().unwrap(), ["robins"]);
        let robins = store.keyspace("robins").unwrap();
        for key in [b"a", b"b"] {
            assert_eq!(robins.get(key).unwrap().as_deref(), Some(&b"sings"[..]));
        }
        assert!(store.verify(|_| ControlFlow::Continue(())).unwrap().findings.is_empty());
    }
}
