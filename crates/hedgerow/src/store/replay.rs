//! Replay: what the log has beyond a checkpoint is done again.
//!
//! Rank 6. Changes go through the tree like any other, with logging off. They come in groups: first all leaves of a
//! group are asked for together, many reads at a time, then the changes are made in the order of their keys, those of
//! one key in the order of the log.
//!
//! The log is read from where the oldest batch began that was under way at the checkpoint's cut. Before the cut only
//! batches matter: everything else is in the checkpoint, and doing it again could undo what came later. A batch's
//! changes are made where the log says that they were made; what is left of it when the log ends is made then, because
//! whoever did it had come no further. They are read from the log again when they are made (`unfinished.rs`).
//!
//! Idempotent: writes nothing but to slots that the checkpoint does not need. Memory: a group, places in the log of
//! the batches that are not finished, and twelve bytes a keyspace. One caller, before anybody else uses the store.

use super::PoolTree;
use super::Shared;
use super::catalogue::Catalogue;
use super::superblock::Superblock;
use super::unfinished::{Change, Noted, Unfinished, damage};
use crate::error::{Error, ErrorKind, Result};
use crate::large::is_stored_form;
use crate::storage::File;
use crate::types::{Lsn, PageId, TreeId};
use crate::wal::{Appended, BatchId, FileHeader, Record, ScanEnd, scan};
use std::collections::BTreeSet;
use std::ops::{Bound, Range};

/// What opening has replayed from the log. See [`Database::replayed`](crate::Database::replayed).
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct RecoveryReport {
    /// Number of changes that were applied again.
    pub records: u64,
    /// Bytes of log that were read.
    pub log_bytes: u64,
}

/// Changes made together, and what they may take.
const GROUP_CHANGES: usize = 256;
const GROUP_BYTES: usize = 256 << 10;

impl Shared {
    /// Applies what the log has beyond the newest checkpoint. The caller takes a checkpoint afterwards. `is_loaded`: all
    /// pages are in memory. `expected`: what the log was found to have before, of which its large values are held.
    ///
    /// Errors: `Corrupted` if the log is damaged where it was durable, or is not what it was; those of changes.
    pub(super) fn replay(
        &self,
        file: &dyn File,
        header: &FileHeader,
        expected: ScanEnd,
        is_loaded: bool,
    ) -> Result<RecoveryReport> {
        let checkpoint = self.checkpointing.lock().superblock;
        let from = checkpoint.scan_from();
        let mut trees = Trees::default();
        // Those that are being dropped have lost pages already.
        self.catalogue.for_each_live(&mut |tree, root| {
            trees.insert_unsorted(tree, Home { tree, root });
        })?;
        trees.sort();
        let mut replay =
            Replay::new(&self.catalogue, trees, &checkpoint, Unfinished::new(file, header));
        replay.group.is_loaded = is_loaded;
        let differs = || {
            let what = format!("the log was read twice, and ended at {} once", expected.end.0);
            Error::corrupted_at(expected.place_bytes, what)
        };
        let found = scan(file, header, &from, &mut |record, place| {
            if place.end > expected.end {
                return Err(differs());
            }
            replay.take(&record, place)
        })?;
        let end = found.end;
        if expected != found {
            return Err(differs());
        }
        replay.finish(end)?;
        let records = replay.made;
        let mut newest = self.checkpointing.lock();
        newest.superblock.replay_start = end;
        newest.superblock.log_end = end;
        Ok(RecoveryReport { records, log_bytes: end.0 - from.replay_start.0 })
    }
}

/// Where the tree of a keyspace is in the store that the log is replayed into.
#[derive(Clone, Copy, Debug)]
pub(super) struct Home {
    pub(super) tree: TreeId,
    pub(super) root: PageId,
}

impl Home {
    pub(super) fn of(tree: &PoolTree) -> Home {
        Home { tree: tree.id(), root: tree.root() }
    }
}

/// Where trees are, by what the log calls them. Handles are made when they are needed: there may be very many keyspaces.
#[derive(Default)]
pub(super) struct Trees(Vec<(TreeId, Home)>);

impl Trees {
    /// To be followed by [`Self::sort`].
    pub(super) fn insert_unsorted(&mut self, name: TreeId, home: Home) {
        self.0.push((name, home));
    }

    pub(super) fn sort(&mut self) {
        self.0.sort_unstable_by_key(|(name, _)| *name);
    }

    fn find(&self, name: TreeId) -> std::result::Result<usize, usize> {
        // What was created last is asked for most.
        match self.0.last() {
            Some((last, _)) if *last < name => Err(self.0.len()),
            _ => self.0.binary_search_by_key(&name, |(name, _)| *name),
        }
    }

    fn get(&self, name: TreeId) -> Option<Home> {
        self.find(name).ok().map(|at| self.0[at].1)
    }

    pub(super) fn insert(&mut self, name: TreeId, home: Home) {
        match self.find(name) {
            Ok(at) => self.0[at].1 = home,
            Err(at) => self.0.insert(at, (name, home)),
        }
    }

    /// Whether it was there.
    fn remove(&mut self, name: TreeId) -> bool {
        self.find(name).map(|at| self.0.remove(at)).is_ok()
    }
}

/// What keyspaces of the log are in the store that it is replayed into.
pub(super) trait Keyspaces {
    /// A handle to a tree.
    fn open(&self, home: Home) -> PoolTree;

    /// A keyspace begins. `None`: the store knows it already, or it has ended since.
    fn begin(&self, tree: TreeId, name: &str) -> Result<Option<PoolTree>>;

    /// A keyspace ends.
    fn end(&self, tree: TreeId, name: &str) -> Result<()>;

    /// A keyspace gets another name, and who has that gets its own, as a [`Record::Rename`] says that ends at `end`. A tree that is
    /// not in the store, or has another name, is left alone.
    fn rename(&self, tree: TreeId, from: &str, to: &str, end: Lsn) -> Result<()>;

    /// The log puts or removes all keys from one to another of the tree that it calls `name`.
    fn replaces(&self, _name: TreeId, _from: &[u8], _to: Bound<&[u8]>) {}

    /// Puts a record whose value is in a stored form, as the log has it, into the tree that the log calls `name`.
    fn put_stored(&self, _name: TreeId, tree: &PoolTree, key: &[u8], value: &[u8]) -> Result<()> {
        tree.put(key, value).map(drop)
    }

    /// The log has changes of a tree that is not known. `None`: it was dropped.
    fn unknown(&self, _tree: TreeId) -> Result<Option<PoolTree>> {
        Ok(None)
    }

    /// Whether a tree that is not known was dropped, so that [`Self::unknown`] would say so.
    fn is_gone(&self, _tree: TreeId) -> bool {
        true
    }
}

impl Keyspaces for Catalogue {
    fn open(&self, home: Home) -> PoolTree {
        self.open_tree(home.tree, home.root)
    }

    fn begin(&self, tree: TreeId, name: &str) -> Result<Option<PoolTree>> {
        // Those below are in the checkpoint, or were dropped before it.
        let is_new = tree >= self.next_tree();
        is_new.then(|| self.create_again(name, tree)).transpose()
    }

    fn end(&self, tree: TreeId, name: &str) -> Result<()> {
        self.drop_again(name, tree)
    }

    fn rename(&self, tree: TreeId, from: &str, to: &str, end: Lsn) -> Result<()> {
        self.rename_again(tree, from, to, end)
    }
}

/// A replay under way.
pub(super) struct Replay<'s> {
    keyspaces: &'s dyn Keyspaces,
    trees: Trees,
    /// What was done before is in the checkpoint.
    cut: Lsn,
    /// Renames before are in the checkpoint, too. All else may be done again: what a record says of a key or a tree's end does not
    /// depend on what was there, and ids of trees are used once.
    renames_end: Lsn,
    batches: Unfinished<'s>,
    group: Group,
    /// Changes that were made.
    pub(super) made: u64,
}

impl<'s> Replay<'s> {
    /// Into `trees`, over a checkpoint. `batches`: none yet, of the log that is replayed.
    pub(super) fn new(
        keyspaces: &'s dyn Keyspaces,
        trees: Trees,
        checkpoint: &Superblock,
        batches: Unfinished<'s>,
    ) -> Replay<'s> {
        let Superblock { log_end: cut, renames_end, .. } = *checkpoint;
        let group = Group::default();
        Replay { keyspaces, trees, cut, renames_end, batches, group, made: 0 }
    }

    /// The next record.
    pub(super) fn take(&mut self, record: &Record<'_>, place: Appended) -> Result<()> {
        let at = place.start;
        let is_in_checkpoint = at < self.cut;
        match *record {
            Record::Batch { batch, changes, records } => {
                self.batches.note(batch, changes, records, place, &mut |_| Ok(()))?;
                let (trees, keyspaces) = (&self.trees, self.keyspaces);
                return self.batches.collect(&mut |tree| is_gone(trees, keyspaces, tree));
            }
            Record::Commit { .. } if is_in_checkpoint => return Ok(()),
            Record::Commit { commit, changes, records } => {
                // All its pieces lie behind the cut: they were appended in one stay.
                let is_whole =
                    self.batches.note(commit, changes, records, place, &mut |_| Ok(()))?;
                if is_whole {
                    self.make_whole(commit, at)?;
                }
            }
            Record::Made { batch, change } => self.part(batch, change, at, is_in_checkpoint)?,
            _ if is_in_checkpoint => return Ok(()),
            Record::Put { tree, key, value } | Record::Extent { tree, key, value, .. } => {
                self.group.push((tree, key, Some(value)), at);
            }
            Record::Remove { tree, key } => self.group.push((tree, key, None), at),
            Record::RemoveRange { tree, from, to } => {
                self.make_group()?;
                if let Some(home) = self.trees.get(tree) {
                    self.made += 1;
                    let to = Some(to).filter(|to| !to.is_empty());
                    let end = to.map_or(Bound::Unbounded, Bound::Excluded);
                    self.keyspaces.replaces(tree, from, end);
                    let tree = self.keyspaces.open(home);
                    tree.remove_range(from, to).map_err(|error| unfit(error, at))?;
                }
            }
            // A load that has ended is in a checkpoint, and one that has not never was.
            Record::Load { .. } | Record::Time(_) => {}
            Record::Create { tree, name } => {
                self.make_group()?;
                self.create(tree, name).map_err(|error| unfit(error, at))?;
            }
            Record::Drop { tree, name } => {
                self.make_group()?;
                self.drop(tree, name).map_err(|error| unfit(error, at))?;
            }
            Record::Rename { .. } if at < self.renames_end => {}
            Record::Rename { tree, from, to } => {
                self.make_group()?;
                let renamed = name_of(from).and_then(|from| {
                    self.made += 1;
                    self.keyspaces.rename(tree, from, name_of(to)?, place.end)
                });
                renamed.map_err(|error| unfit(error, at))?;
            }
        }
        if self.group.is_full() { self.make_group() } else { Ok(()) }
    }

    /// A change of a batch was made.
    fn part(&mut self, batch: BatchId, change: u32, at: Lsn, is_in_checkpoint: bool) -> Result<()> {
        let (trees, keyspaces) = (&self.trees, self.keyspaces);
        let noted =
            self.batches.made(batch, change, &mut |tree| is_gone(trees, keyspaces, tree))?;
        match noted {
            // Finished before the cut; or else the log would have begun earlier.
            Noted::Unknown if is_in_checkpoint => return Ok(()),
            Noted::Unknown => {
                return Err(damage(at, "it belongs to a batch that the log does not have"));
            }
            // It began before the oldest that was not finished at the cut, and so was finished there itself.
            Noted::Part if is_in_checkpoint => {
                return Ok(());
            }
            Noted::Part | Noted::Impossible => {
                return Err(damage(at, "it is not one of its batch, or was made before"));
            }
            Noted::Made => {}
        }
        if !is_in_checkpoint {
            self.group.push(self.batches.change(batch, change)?, at);
        }
        if self.batches.is_finished(batch) {
            self.batches.forget(batch);
        }
        Ok(())
    }

    fn create(&mut self, tree: TreeId, name: &[u8]) -> Result<()> {
        self.made += 1;
        if let Some(created) = self.keyspaces.begin(tree, name_of(name)?)? {
            self.trees.insert(tree, Home::of(&created));
        }
        Ok(())
    }

    fn drop(&mut self, tree: TreeId, name: &[u8]) -> Result<()> {
        self.made += 1;
        if self.trees.remove(tree) {
            self.keyspaces.end(tree, name_of(name)?)?;
        }
        Ok(())
    }

    fn make_group(&mut self) -> Result<()> {
        for tree in self.group.trees() {
            if self.trees.get(tree).is_none()
                && let Some(adopted) = self.keyspaces.unknown(tree)?
            {
                self.trees.insert(tree, Home::of(&adopted));
            }
        }
        self.made += self.group.make(&self.trees, self.keyspaces)?;
        Ok(())
    }

    /// The log has ended: what was begun is done. In any order, since all of them were under way.
    pub(super) fn finish(&mut self, end: Lsn) -> Result<()> {
        let mut last = None;
        // One whose last record did not reach the disk had not begun to change anything.
        while let Some(batch) = self.batches.whole_after(last) {
            last = Some(batch);
            self.make_whole(batch, end)?;
        }
        self.make_group()
    }

    /// Makes what is left of a batch, or a commit.
    fn make_whole(&mut self, batch: BatchId, at: Lsn) -> Result<()> {
        let mut from = 0;
        while let Some(change) = self.batches.next_left(batch, from) {
            self.group.push(self.batches.change(batch, change)?, at);
            if self.group.is_full() {
                self.make_group()?;
            }
            from = change + 1;
        }
        self.batches.forget(batch);
        Ok(())
    }
}

fn is_gone(trees: &Trees, keyspaces: &dyn Keyspaces, tree: TreeId) -> bool {
    trees.get(tree).is_none() && keyspaces.is_gone(tree)
}

/// Changes that wait to be made.
#[derive(Default)]
struct Group {
    /// Keys and values.
    bytes: Vec<u8>,
    waiting: Vec<Waiting>,
    /// The leaves are in memory.
    is_loaded: bool,
}

struct Waiting {
    tree: TreeId,
    key: Range<usize>,
    value: Option<Range<usize>>,
    at: Lsn,
}

impl Group {
    fn push(&mut self, (tree, key, value): Change<'_>, at: Lsn) {
        let mut copy = |part: &[u8]| {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(part);
            start..self.bytes.len()
        };
        let (key, value) = (copy(key), value.map(copy));
        self.waiting.push(Waiting { tree, key, value, at });
    }

    fn is_full(&self) -> bool {
        self.waiting.len() >= GROUP_CHANGES || self.bytes.len() >= GROUP_BYTES
    }

    /// The trees that are to be changed.
    fn trees(&self) -> BTreeSet<TreeId> {
        self.waiting.iter().map(|one| one.tree).collect()
    }

    /// Makes all of them but those of trees that are not there; tells how many it made.
    fn make(&mut self, trees: &Trees, keyspaces: &dyn Keyspaces) -> Result<u64> {
        let Group { bytes, waiting, is_loaded } = self;
        let mut count = 0;
        // Stable: changes of one key stay in their order.
        waiting
            .sort_by(|a, b| (a.tree, &bytes[a.key.clone()]).cmp(&(b.tree, &bytes[b.key.clone()])));
        for of_tree in waiting.chunk_by(|a, b| a.tree == b.tree) {
            // A tree that is not there was dropped later on.
            let Some(home) = trees.get(of_tree[0].tree) else { continue };
            let tree = &keyspaces.open(home);
            let keys: Vec<&[u8]> = of_tree.iter().map(|one| &bytes[one.key.clone()]).collect();
            if !*is_loaded {
                tree.get_many(&keys)?;
            }
            for (one, key) in of_tree.iter().zip(keys) {
                keyspaces.replaces(one.tree, key, Bound::Included(key));
                let made = match one.value.as_ref().map(|value| &bytes[value.clone()]) {
                    Some(value) if is_stored_form(value) => {
                        keyspaces.put_stored(one.tree, tree, key, value)
                    }
                    Some(value) => tree.put(key, value).map(drop),
                    None => tree.remove(key).map(drop),
                };
                made.map_err(|error| unfit(error, one.at))?;
                count += 1;
            }
        }
        waiting.clear();
        bytes.clear();
        Ok(count)
    }
}

/// A record that the engine would never have written is damage.
fn unfit(error: Error, at: Lsn) -> Error {
    match error.kind() {
        ErrorKind::KeyTooLong { .. }
        | ErrorKind::RecordTooLarge { .. }
        | ErrorKind::InvalidName
        | ErrorKind::TooManyKeyspaces
        | ErrorKind::KeyspaceExists => damage(at, &error.to_string()),
        _ => error,
    }
}

fn name_of(name: &[u8]) -> Result<&str> {
    str::from_utf8(name).map_err(|_| {
        Error::new(
            ErrorKind::Corrupted { page: None, offset_bytes: None },
            "the log names a keyspace in bytes that are not UTF-8",
        )
    })
}

#[cfg(test)]
mod tests;
