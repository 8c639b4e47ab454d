//! The catalogue: which keyspaces there are, and where their trees begin.
//!
//! Rank 6. It is a tree like any other, with a fixed id and a fixed root, in the same pool. A record's
//! key is the keyspace's name (UTF-8, 1 to 255 bytes), its value 10 bytes, little-endian:
//!
//! ```text
//! version u8 (1) | state u8 (0 live, 1 being dropped, 2 being bulk-loaded) | tree id u32 | root page id u32
//! ```
//!
//! A load whose keyspace is dropped meanwhile leaves pages that only their headers tell of, until it notices: a second
//! record, in the state *being bulk-loaded* and with the root that was, is there as long as that may be. Its key is not a
//! name: 0xff, which no UTF-8 has, and the tree's id (u32, big-endian).
//!
//! Creating a keyspace changes two trees. It holds a lock that a checkpoint takes as well, so that no
//! checkpoint falls between the two halves, and a crash leaves no page that nothing refers to;
//! meanwhile writers do not wait for a checkpoint, which could not begin. A drop first says *being
//! dropped*, then frees pages, then removes the record; it goes on at the next open if it was cut
//! short, in the background if there is one. Tree ids are never reused. Both are logged, the creation under the lock that keeps checkpoints
//! away. `rename.rs` gives keyspaces other names, in one step for whoever looks a name up.
//! `Send + Sync`. Lock order: `dropping`, then `creating`, then `names`.

mod history;
mod rename;

use super::PoolTree;
use super::open_trees::OpenTrees;
use crate::buffer::BufferPool;
use crate::error::{Error, ErrorKind, Result};
use crate::node::LeafPolicy;
use crate::page::MemoryPressure;
use crate::tree::Tree;
use crate::types::{Lsn, PageId, TreeId};
use crate::wait::{Wait, is_end_of_wait};
use crate::wal::{Log, Promised, RECORD_HEADER_BYTES, Record as LogRecord};
use hedgerow_sync::primitive::atomic::Ordering::{Acquire, Release};
use hedgerow_sync::primitive::atomic::{AtomicU32, AtomicU64};
use hedgerow_sync::primitive::{Arc, Mutex, MutexGuard, RwLock};
use history::History;
use std::collections::BTreeMap;

/// Longest name of a keyspace, in bytes, where pages allow.
pub const MAX_NAME_BYTES: usize = 255;
const RECORD_BYTES: usize = 10;
const RECORD_VERSION: u8 = 1;
/// Leaves that are freed while names are locked, where a drop goes on behind an opening.
const DROPPED_AT_ONCE: usize = 64;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Live,
    Dropping,
    Loading,
}

#[derive(Clone, Copy, Debug)]
struct Record {
    state: State,
    tree: TreeId,
    root: PageId,
}

impl Record {
    fn encode(self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        bytes[0] = RECORD_VERSION;
        bytes[1] = match self.state {
            State::Live => 0,
            State::Dropping => 1,
            State::Loading => 2,
        };
        bytes[2..6].copy_from_slice(&self.tree.0.to_le_bytes());
        bytes[6..10].copy_from_slice(&self.root.0.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<Record> {
        let damage = || {
            Error::corrupted_page(PageId::CATALOGUE_ROOT, "a record of the catalogue is damaged")
        };
        let &[version, state, a, b, c, d, e, f, g, h] = bytes else { return Err(damage()) };
        let state = match (version, state) {
            (RECORD_VERSION, 0) => State::Live,
            (RECORD_VERSION, 1) => State::Dropping,
            (RECORD_VERSION, 2) => State::Loading,
            _ => return Err(damage()),
        };
        let tree = TreeId(u32::from_le_bytes([a, b, c, d]));
        let root = PageId(u32::from_le_bytes([e, f, g, h]));
        if tree <= TreeId::CATALOGUE || !root.is_usable() || root == PageId::CATALOGUE_ROOT {
            return Err(damage());
        }
        Ok(Record { state, tree, root })
    }
}

/// First byte of the key of a record that has no name.
const NAMELESS: u8 = 0xff;

/// The key of the record of a load whose keyspace was dropped.
fn leftover_key(tree: TreeId) -> [u8; 5] {
    let [a, b, c, d] = tree.0.to_be_bytes();
    [NAMELESS, a, b, c, d]
}

/// Whether the key of a record of the catalogue says that it is of a load whose keyspace was dropped.
pub(super) fn is_leftover(key: &[u8]) -> bool {
    key.first() == Some(&NAMELESS)
}

/// A keyspace into which a bulk load is under way, or was when the store was last used.
pub struct Load {
    /// `None`: it was dropped meanwhile.
    pub name: Option<String>,
    /// Its tree; of one that was dropped nothing but the id can be used.
    pub tree: PoolTree,
}

/// What a record of the catalogue says of a keyspace's tree, for whoever reads the catalogue's pages by himself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) tree: TreeId,
    pub(super) root: PageId,
    /// Its pages are being freed.
    pub(super) is_dropping: bool,
    /// Its pages may be there before its root refers to them.
    pub(super) is_loading: bool,
}

/// Reads a record of the catalogue. Errors: `Corrupted`.
pub(super) fn decode_entry(record: &[u8]) -> Result<Entry> {
    let Record { state, tree, root } = Record::decode(record)?;
    let (is_dropping, is_loading) = (state == State::Dropping, state == State::Loading);
    Ok(Entry { tree, root, is_dropping, is_loading })
}

/// Room in the log for one record.
struct Room<'l> {
    log: &'l Log,
    bytes: u64,
}

impl Room<'_> {
    /// The end of the record.
    fn append(mut self, record: &LogRecord<'_>) -> Lsn {
        assert_eq!(record.len_bytes() as u64, self.bytes, "what was promised is what is appended");
        self.bytes = 0;
        self.log.append(record).end
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.log.take_back(self.bytes, Promised::Freely);
        }
    }
}

/// A keyspace that is dropped and has a damaged page stays half-dropped, for a verification to name: it is nobody else's
/// trouble, and no reason to refuse the store.
pub(super) fn unless_damaged(outcome: Result<()>) -> Result<()> {
    match outcome {
        Err(error) if matches!(error.kind(), ErrorKind::Corrupted { .. }) => Ok(()),
        other => other,
    }
}

/// What cannot be read is no reason to refuse the store either: the note of what ends stays, and the next opening tries again.
pub(super) fn unless_lost(outcome: Result<()>) -> Result<()> {
    outcome.or_else(|error| if error.is_loss() { Ok(()) } else { Err(error) })
}

/// See the head of the file.
pub struct Catalogue {
    pool: Arc<BufferPool>,
    tree: PoolTree,
    next_tree: AtomicU32,
    /// End of the last rename in the log that was done again.
    renames_end: AtomicU64,
    leaves: LeafPolicy,
    creating: Mutex<()>,
    dropping: Mutex<Loads>,
    /// Drops that were cut short, for the checkpoint thread to go on with. `None`: there is no such thread, and each ends where it is found.
    postponed: Mutex<Option<Vec<(String, Record)>>>,
    /// Held by who looks names up, and alone by who changes what they mean.
    names: RwLock<History>,
    open: Arc<OpenTrees>,
}

/// How many loads are under way, by their trees.
type Loads = BTreeMap<TreeId, u32>;

impl Catalogue {
    /// The catalogue of a store that has one.
    pub fn open(pool: Arc<BufferPool>, next_tree: TreeId, leaves: LeafPolicy) -> Catalogue {
        let tree = Tree::open(pool.clone(), TreeId::CATALOGUE, PageId::CATALOGUE_ROOT);
        let open = Arc::new(OpenTrees::new(&pool));
        Catalogue {
            open,
            pool,
            tree,
            next_tree: AtomicU32::new(next_tree.0),
            renames_end: AtomicU64::new(0),
            leaves,
            creating: Mutex::new(()),
            dropping: Mutex::new(Loads::new()),
            postponed: Mutex::new(None),
            names: RwLock::new(History::default()),
        }
    }

    /// From now on leaves of open keyspaces are merged, where they fit into fewer, before they are written to make room.
    pub fn merge_before_writing(&self) {
        let open: Arc<dyn MemoryPressure> = self.open.clone();
        self.pool.set_memory_pressure(Arc::downgrade(&open));
    }

    /// Makes the catalogue of a new store.
    pub fn create(pool: Arc<BufferPool>, leaves: LeafPolicy) -> Result<Catalogue> {
        let tree: PoolTree = Tree::create(pool.clone(), TreeId::CATALOGUE)?;
        assert_eq!(tree.root(), PageId::CATALOGUE_ROOT, "the first page of a store");
        Ok(Catalogue::open(pool, TreeId(TreeId::CATALOGUE.0 + 1), leaves))
    }

    /// Keeps keyspaces from being created while a checkpoint decides what belongs to it.
    pub fn freeze(&self) -> MutexGuard<'_, ()> {
        self.creating.lock()
    }

    /// The next tree id that will be given out.
    pub fn next_tree(&self) -> TreeId {
        TreeId(self.next_tree.load(Acquire))
    }

    /// End of the last rename in the log that was done again: zero if none was.
    pub(super) fn renames_end(&self) -> Lsn {
        Lsn(self.renames_end.load(Acquire))
    }

    fn check_name(&self, name: &str) -> Result<()> {
        let max = MAX_NAME_BYTES.min(self.tree.max_short_key_bytes());
        if name.is_empty() || name.len() > max {
            return Err(Error::new(
                ErrorKind::InvalidName,
                format!("the name of a keyspace has 1 to {max} bytes, this one {}", name.len()),
            ));
        }
        Ok(())
    }

    fn find(&self, name: &str) -> Result<Option<Record>> {
        self.check_name(name)?;
        self.tree.get(name.as_bytes())?.map(|bytes| Record::decode(&bytes)).transpose()
    }

    fn handle(&self, record: Record) -> PoolTree {
        let tree = Tree::open(self.pool.clone(), record.tree, record.root);
        let tree = tree.with_policy(self.leaves).with_log();
        if record.state == State::Dropping { tree.to_free() } else { tree }
    }

    /// A handle to the tree of a keyspace whose record says so.
    pub(super) fn open_tree(&self, tree: TreeId, root: PageId) -> PoolTree {
        self.handle(Record { state: State::Live, tree, root })
    }

    /// The keyspace `name`, if there is one.
    pub fn get(&self, name: &str) -> Result<Option<PoolTree>> {
        let _names = self.names.read();
        let record = self.find(name)?.filter(|record| record.state != State::Dropping);
        let tree = record.map(|record| self.handle(record));
        tree.iter().for_each(|tree| self.open.note(tree));
        Ok(tree)
    }

    /// Creates the keyspace `name`. Errors: `KeyspaceExists`.
    pub fn create_keyspace(&self, name: &str) -> Result<PoolTree> {
        self.check_name(name)?;
        // The second, in case that the keyspace cannot be entered after it was logged.
        let room = self.promise(name)?.zip(self.promise(name)?);
        let _dropping = self.dropping.lock();
        self.vacate(name)?;
        self.create_as(name, None, room)
    }

    /// Creates a keyspace again as the log says, with the id that it had. Errors: `KeyspaceExists`, which no log leads to.
    pub fn create_again(&self, name: &str, id: TreeId) -> Result<PoolTree> {
        self.check_name(name)?;
        let _dropping = self.dropping.lock();
        self.vacate(name)?;
        self.create_as(name, Some(id), None)
    }

    /// Ends what is left of a keyspace of that name. The caller holds the lock of drops. Errors: `KeyspaceExists`.
    fn vacate(&self, name: &str) -> Result<()> {
        match self.find(name)? {
            None => Ok(()),
            Some(ends) if ends.state == State::Dropping => self.make_way(name, ends),
            Some(_) => {
                let what = format!("there is a keyspace `{}` already", name.escape_debug());
                Err(Error::new(ErrorKind::KeyspaceExists, what))
            }
        }
    }

    fn create_as(
        &self,
        name: &str,
        id: Option<TreeId>,
        room: Option<(Room<'_>, Room<'_>)>,
    ) -> Result<PoolTree> {
        // The record of the log as well: it lies behind the checkpoint exactly if the id does.
        let _creating = self.creating.lock();
        let _hindered = self.pool.slots().map(|slots| slots.checkpoints().hinder());
        // Those who are inside may wait for a checkpoint, which this keeps out.
        let _ahead = self.pool.go_ahead();
        let id = id.map_or(self.next_tree.load(Acquire), |id| id.0);
        let next = id.checked_add(1).ok_or_else(|| {
            Error::new(ErrorKind::TooManyKeyspaces, "all ids of keyspaces have been used")
        })?;
        self.next_tree.store(next, Release);
        let tree: PoolTree = Tree::create_with(self.pool.clone(), TreeId(id), self.leaves)?;
        let record = Record { state: State::Live, tree: tree.id(), root: tree.root() };
        let mut names = self.names.write();
        // Before anybody can find the keyspace: what is put into it is behind this in the log.
        let (lsn, undo) = match room {
            Some((room, undo)) => {
                let record = LogRecord::Create { tree: tree.id(), name: name.as_bytes() };
                (room.append(&record), Some(undo))
            }
            None => (self.pool.own_lsn(), None),
        };
        if let Err(error) = self.tree.put(name.as_bytes(), &record.encode()) {
            if let Some(undo) = undo {
                undo.append(&LogRecord::Drop { tree: tree.id(), name: name.as_bytes() });
            }
            // Nobody knows the tree: its one page goes back. If it cannot, that is not why the creation failed.
            tree.drop_pages().ok();
            return Err(error);
        }
        names.note(&self.pool, lsn, name, None);
        drop(names);
        let tree = tree.with_log();
        self.open.note(&tree);
        Ok(tree)
    }

    /// Drops the keyspace `name`; tells whether there was one. `go_over` is called when snapshots that begin do not see the keyspace any more,
    /// and all its pages are there yet: it has those before go over to a checkpoint, and tells whether there are any, and all have.
    pub fn drop_keyspace(&self, name: &str, go_over: &dyn Fn() -> bool) -> Result<bool> {
        self.check_name(name)?;
        let (room, again) = (self.promise(name)?, self.promise(name)?);
        let _dropping = self.dropping.lock();
        let Some(record) = self.find(name)? else { return Ok(false) };
        let (dropping, lsn) = self.begin_drop(name, record, room)?;
        // The cuts of their checkpoints may be above the LSN, and have all pages: these go behind another one.
        let lsn = if lsn.is_some() && go_over() {
            Some(self.log_drop(name, record.tree, again))
        } else {
            lsn
        };
        if let Some((versions, lsn)) = self.pool.versions().zip(lsn) {
            versions.note_drop(record.tree, lsn);
        }
        let finished = unless_damaged(self.finish_drop(name, dropping));
        self.names.write().note_end(None);
        finished?;
        Ok(record.state != State::Dropping)
    }

    /// Drops a keyspace again as the log says.
    pub fn drop_again(&self, name: &str, id: TreeId) -> Result<()> {
        let _dropping = self.dropping.lock();
        match self.find(name)?.filter(|record| record.tree == id) {
            Some(record) => {
                let (dropping, _) = self.begin_drop(name, record, None)?;
                // A load that it has ended is swept behind it.
                if record.state != State::Loading
                    && let Some(postponed) = &mut *self.postponed.lock()
                {
                    postponed.push((name.to_owned(), dropping));
                    return Ok(());
                }
                unless_lost(self.finish_drop(name, dropping))
            }
            None => Ok(()),
        }
    }

    /// From now on the keyspace is not there any more. Its record, and the LSN of its end if it was there before.
    fn begin_drop(
        &self,
        name: &str,
        record: Record,
        room: Option<Room<'_>>,
    ) -> Result<(Record, Option<Lsn>)> {
        let dropping = Record { state: State::Dropping, ..record };
        if record.state == State::Dropping {
            return Ok((dropping, None));
        }
        let leftover = leftover_key(record.tree);
        if record.state == State::Loading {
            self.tree.put_to_free(&leftover, &record.encode())?;
        }
        let mut names = self.names.write();
        if let Err(error) = self.tree.put_to_free(name.as_bytes(), &dropping.encode()) {
            // Of a live tree it says nothing; what is left of it the next opening removes.
            self.tree.remove(&leftover).ok();
            return Err(error);
        }
        // After the change: a checkpoint between the two has the change, and replaying the record
        // then finds nothing to drop.
        let lsn = self.log_drop(name, record.tree, room);
        names.note(&self.pool, lsn, name, Some(record));
        names.note_end(Some((record.tree, lsn)));
        Ok((dropping, Some(lsn)))
    }

    /// Says in the log that a keyspace has ended. The end of the record.
    fn log_drop(&self, name: &str, tree: TreeId, room: Option<Room<'_>>) -> Lsn {
        match room {
            Some(room) => room.append(&LogRecord::Drop { tree, name: name.as_bytes() }),
            None => self.pool.own_lsn(),
        }
    }

    /// Room in the log for a record about the keyspace `name`; the caller holds nothing. `None`: there is no log.
    fn promise(&self, name: &str) -> Result<Option<Room<'_>>> {
        let Some(log) = self.pool.log() else { return Ok(None) };
        let bytes = (RECORD_HEADER_BYTES + name.len()) as u64;
        self.pool.make_log_room(log, bytes, Promised::Freely)?;
        Ok(Some(Room { log, bytes }))
    }

    fn finish_drop(&self, name: &str, record: Record) -> Result<()> {
        self.open.forget(record.tree);
        self.handle(record).drop_pages()?;
        self.tree.remove(name.as_bytes())?;
        Ok(())
    }

    /// Lets another keyspace have the name of one that ends. If that one is damaged, what is left of it goes on under no
    /// name, and each opening sweeps of it what it can.
    fn make_way(&self, name: &str, record: Record) -> Result<()> {
        self.open.forget(record.tree);
        match self.handle(record).drop_pages() {
            Err(error) if error.is_loss() => {
                let left = Record { state: State::Loading, ..record };
                self.tree.put_to_free(&leftover_key(record.tree), &left.encode())?;
            }
            dropped => dropped?,
        }
        self.tree.remove(name.as_bytes()).map(drop)
    }

    /// Goes on with drops that were cut short.
    pub fn finish_drops(&self) -> Result<()> {
        self.finish_or_postpone(false)
    }

    /// Leaves them to [`Self::go_on_with_drops`], and those that a replay finds, but for such as a load is swept behind.
    pub fn postpone_drops(&self) -> Result<()> {
        self.finish_or_postpone(true)
    }

    fn finish_or_postpone(&self, postpones: bool) -> Result<()> {
        let _dropping = self.dropping.lock();
        let (mut dropping, mut loads) = (Vec::new(), Vec::new());
        self.for_each(&mut |name, record| match name {
            Some(name) if record.state == State::Dropping => {
                dropping.push((name.to_owned(), record));
            }
            Some(_) => {}
            None => loads.push(record.tree),
        })?;
        if postpones {
            let is_alone = |(_, record): &mut (String, Record)| !loads.contains(&record.tree);
            *self.postponed.lock() = Some(dropping.extract_if(.., is_alone).collect());
        }
        for (name, record) in dropping {
            unless_lost(self.finish_drop(&name, record))?;
        }
        Ok(())
    }

    /// Whether there is anything to do for [`Self::go_on_with_drops`].
    pub fn has_postponed_drops(&self) -> bool {
        self.postponed.lock().as_ref().is_some_and(|postponed| !postponed.is_empty())
    }

    /// Frees some pages of a keyspace whose drop was cut short. Waits for nobody, for it is the thread that takes the checkpoints that does
    /// this: who drops or creates keyspaces may wait for one meanwhile. What cannot be read the next opening tries again.
    ///
    /// Errors: `WouldBlock`, and those of freeing pages. Then it is there yet.
    pub fn go_on_with_drops(&self) -> Result<()> {
        let Some(_dropping) = self.dropping.try_lock() else { return Ok(()) };
        let next = self.postponed.lock().as_ref().and_then(|postponed| postponed.last().cloned());
        let Some((name, record)) = next else { return Ok(()) };
        let is_over = match self.drop_some(&name, record) {
            Err(error) if !error.is_loss() || is_end_of_wait(&error) => return Err(error),
            Ok(is_over) => is_over,
            Err(_) => true,
        };
        if is_over && let Some(postponed) = &mut *self.postponed.lock() {
            postponed.pop();
        }
        Ok(())
    }

    /// True: the keyspace has gone, or another one has its name.
    fn drop_some(&self, name: &str, record: Record) -> Result<bool> {
        let names = self.tree.clone().with_wait(Wait::Never);
        let found = names.get(name.as_bytes())?.map(|found| Record::decode(&found)).transpose()?;
        let is_there =
            found.is_some_and(|found| (found.tree, found.state) == (record.tree, State::Dropping));
        if !is_there {
            return Ok(true);
        }
        self.open.forget(record.tree);
        let is_over = self.handle(record).drop_some_pages(DROPPED_AT_ONCE, &Wait::Never.begin())?;
        if is_over {
            names.remove(name.as_bytes())?;
        }
        Ok(is_over)
    }

    /// Notes that pages of the keyspace's tree are being written which nothing refers to yet.
    ///
    /// Errors: `KeyspaceDropped` if the name means another tree by now.
    pub fn begin_load(&self, name: &str, tree: &PoolTree) -> Result<()> {
        let mut loads = self.dropping.lock();
        let Some(was_loading) = self.set_loading(name, tree, true)? else {
            let what = "the keyspace of this handle was dropped; get a new handle with `Database::keyspace`";
            return Err(Error::new(ErrorKind::KeyspaceDropped, what));
        };
        // One that another run has left counts as well, and does not end before an opening has swept its pages.
        *loads.entry(tree.id()).or_insert(u32::from(was_loading)) += 1;
        Ok(())
    }

    /// Notes that a load has ended, one way or the other.
    pub fn end_load(&self, name: &str, tree: &PoolTree) -> Result<()> {
        let mut loads = self.dropping.lock();
        if let Some(count) = loads.get_mut(&tree.id()) {
            *count -= 1;
            if *count > 0 {
                return Ok(());
            }
        }
        // If it was dropped meanwhile the load has found out by itself; if a drop has failed half-way, this is left of it.
        self.set_loading(name, tree, false)?;
        // Not before: what could not be ended a later load ends.
        loads.remove(&tree.id());
        self.end_leftover(tree.id())
    }

    /// The caller holds the lock of drops. Whether it was loading; `None`: the keyspace was dropped.
    fn set_loading(&self, name: &str, tree: &PoolTree, loading: bool) -> Result<Option<bool>> {
        let Some((name, record)) = self.find_tree(tree.id(), name)? else { return Ok(None) };
        let was_loading = record.state == State::Loading;
        let state = if loading { State::Loading } else { State::Live };
        let record = Record { state, ..record }.encode();
        match loading {
            true => self.tree.put(name.as_bytes(), &record)?,
            // Of a load that came to nothing, too: on a full disk as well.
            false => self.tree.put_to_free(name.as_bytes(), &record)?,
        };
        Ok(Some(was_loading))
    }

    /// Notes that nothing is left of a load whose keyspace was dropped.
    pub fn end_leftover(&self, tree: TreeId) -> Result<()> {
        self.tree.remove(&leftover_key(tree)).map(drop)
    }

    /// Loads that are under way, or were when the store was last used.
    pub fn loading(&self) -> Result<Vec<Load>> {
        self.loading_within(&Wait::Default)
    }

    /// [`Self::loading`], and waits for others as `wait` says.
    pub(super) fn loading_within(&self, wait: &Wait) -> Result<Vec<Load>> {
        let mut loads = Vec::new();
        self.for_each_within(wait, &mut |name, record| {
            if record.state == State::Loading {
                let name = name.map(str::to_owned);
                loads.push(Load { name, tree: self.handle(record) });
            }
        })?;
        Ok(loads)
    }

    /// Shows tree and root of every keyspace that is not being dropped, in the order of their names.
    pub(super) fn for_each_live(&self, each: &mut dyn FnMut(TreeId, PageId)) -> Result<()> {
        self.for_each(&mut |name, record| {
            if name.is_some() && record.state != State::Dropping {
                each(record.tree, record.root);
            }
        })
    }

    /// Whether the keyspace that has this tree is being dropped; `None` if there is none.
    pub(super) fn is_dropping(&self, tree: TreeId) -> Result<Option<bool>> {
        let mut found = None;
        self.for_each(&mut |name, record| {
            if name.is_some() && record.tree == tree {
                found = Some(record.state == State::Dropping);
            }
        })?;
        Ok(found)
    }

    /// Those of keyspaces.
    fn records(&self) -> Result<Vec<(String, Record)>> {
        self.records_within(&Wait::Default)
    }

    fn records_within(&self, wait: &Wait) -> Result<Vec<(String, Record)>> {
        let mut records = Vec::new();
        self.for_each_within(wait, &mut |name, record| {
            if let Some(name) = name {
                records.push((name.to_owned(), record));
            }
        })?;
        Ok(records)
    }

    /// Shows every record and the name of its keyspace, if that was not dropped.
    fn for_each(&self, each: &mut dyn FnMut(Option<&str>, Record)) -> Result<()> {
        self.for_each_within(&Wait::Default, each)
    }

    fn for_each_within(
        &self,
        wait: &Wait,
        each: &mut dyn FnMut(Option<&str>, Record),
    ) -> Result<()> {
        let tree = self.tree.clone().with_wait(wait.clone());
        let mut cursor = tree.scan();
        while let Some((key, record)) = cursor.next_record()? {
            let record = Record::decode(record)?;
            if is_leftover(key) {
                if key != leftover_key(record.tree) || record.state != State::Loading {
                    let what = "the record of an interrupted bulk load is damaged";
                    return Err(Error::corrupted_page(PageId::CATALOGUE_ROOT, what));
                }
                each(None, record);
                continue;
            }
            let name = str::from_utf8(key).map_err(|_| {
                Error::corrupted_page(PageId::CATALOGUE_ROOT, "a keyspace's name is not UTF-8")
            })?;
            each(Some(name), record);
        }
        Ok(())
    }

    /// The names of all keyspaces, in order.
    pub fn names(&self) -> Result<Vec<String>> {
        let _names = self.names.read();
        let live =
            self.records()?.into_iter().filter(|(_, record)| record.state != State::Dropping);
        Ok(live.map(|(name, _)| name).collect())
    }

    /// All trees but the catalogue's own, in the order of their keyspaces' names, and whether each is
    /// being dropped: its pages are in use all the same.
    pub fn trees(&self) -> Result<Vec<(String, PoolTree, bool)>> {
        self.trees_within(&Wait::Default)
    }

    /// [`Self::trees`], and waits for others as `wait` says.
    pub(super) fn trees_within(&self, wait: &Wait) -> Result<Vec<(String, PoolTree, bool)>> {
        let records = self.records_within(wait)?.into_iter();
        let tree = |(name, record): (String, Record)| {
            (name, self.handle(record), record.state == State::Dropping)
        };
        Ok(records.map(tree).collect())
    }

    /// The catalogue's own tree.
    pub fn tree(&self) -> &PoolTree {
        &self.tree
    }
}
