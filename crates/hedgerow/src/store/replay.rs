//! Replay: what the log has beyond a checkpoint is done again.
//!
//! Rank 6. Changes go through the tree like any other, with logging off. They come in groups: first all leaves of a
//! group are asked for together, many reads at a time, then the changes are made in the order of their keys, those of
//! one key in the order of the log.
//!
//! The log is read from where the oldest batch began that was under way at the checkpoint's cut. Before the cut only
//! batches matter: everything else is in the checkpoint, and doing it again could undo what came later. A batch's
//! changes are made where the log says that they were made; what is left of it when the log ends is made then, because
//! whoever did it had come no further.
//!
//! Idempotent: writes nothing but to slots that the checkpoint does not need. Memory: a group, and the batches that
//! are not finished. One caller, before anybody else uses the store.

use super::Shared;
use super::catalogue::{Catalogue, PoolTree};
use super::superblock::Superblock;
use crate::error::{Error, ErrorKind, Result};
use crate::space::extent::is_stored_form;
use crate::storage::File;
use crate::types::{Lsn, TreeId};
use crate::wal::{BatchId, Decoded, FileHeader, Record, ScanEnd, ScanFrom, scan};
use hedgerow_sync::primitive::canary::leaves_out;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// What opening has replayed.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Replayed {
    /// Changes that were made again.
    pub records: u64,
    /// Bytes of log that were read.
    pub log_bytes: u64,
}

/// Changes made together, and what they may take.
const GROUP_CHANGES: usize = 256;
const GROUP_BYTES: usize = 256 << 10;

impl Shared {
    /// From where the log is to be read, and the cut of the checkpoint.
    pub(super) fn replay_from(&self) -> (ScanFrom, Lsn) {
        let Superblock { replay_start, log_end, checkpoint, .. } =
            self.checkpointing.lock().superblock;
        (ScanFrom { replay_start, log_end, checkpoint }, log_end)
    }

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
    ) -> Result<Replayed> {
        let (from, cut) = self.replay_from();
        let trees = self.catalogue.trees()?.into_iter();
        // Those that are being dropped have lost pages already.
        let trees = trees.filter(|(_, _, is_dropping)| !is_dropping);
        let trees = trees.map(|(_, tree, _)| (tree.id(), tree)).collect();
        let mut replay = Replay::new(&self.catalogue, trees, cut);
        replay.group.is_loaded = is_loaded;
        let differs = || {
            let what = format!("the log was read twice, and ended at {} once", expected.end.0);
            Error::corrupted_at(expected.place_bytes, what)
        };
        let found = scan(file, header, &from, &mut |record, place| {
            if place.end > expected.end && !leaves_out("end_is_read_once") {
                return Err(differs());
            }
            replay.take(&record, place.start)
        })?;
        let end = found.end;
        if expected != found && !leaves_out("end_is_read_once") {
            return Err(differs());
        }
        replay.finish(end)?;
        let records = replay.made;
        let mut newest = self.checkpointing.lock();
        newest.superblock.replay_start = end;
        newest.superblock.log_end = end;
        Ok(Replayed { records, log_bytes: end.0 - from.replay_start.0 })
    }
}

/// What keyspaces of the log are in the store that it is replayed into.
pub(super) trait Keyspaces {
    /// A keyspace begins. `None`: the store knows it already, or it has ended since.
    fn begin(&self, tree: TreeId, name: &str) -> Result<Option<PoolTree>>;

    /// A keyspace ends.
    fn end(&self, tree: TreeId, name: &str) -> Result<()>;

    /// Puts a record whose value is in a stored form, as the log has it, into the tree that the log calls `name`.
    fn put_stored(&self, _name: TreeId, tree: &PoolTree, key: &[u8], value: &[u8]) -> Result<()> {
        tree.put(key, value).map(drop)
    }

    /// The log has changes of a tree that is not known. `None`: it was dropped.
    fn unknown(&self, _tree: TreeId) -> Result<Option<PoolTree>> {
        Ok(None)
    }
}

impl Keyspaces for Catalogue {
    fn begin(&self, tree: TreeId, name: &str) -> Result<Option<PoolTree>> {
        // Those below are in the checkpoint, or were dropped before it.
        let is_new = tree >= self.next_tree();
        is_new.then(|| self.create_again(name, tree)).transpose()
    }

    fn end(&self, tree: TreeId, name: &str) -> Result<()> {
        self.drop_again(name, tree)
    }
}

/// A replay under way.
pub(super) struct Replay<'s> {
    keyspaces: &'s dyn Keyspaces,
    trees: BTreeMap<TreeId, PoolTree>,
    /// What was done before is in the checkpoint.
    cut: Lsn,
    batches: BTreeMap<BatchId, Batch>,
    group: Group,
    /// Changes that were made.
    pub(super) made: u64,
}

impl<'s> Replay<'s> {
    /// Into `trees`, over a checkpoint that has everything below `cut`.
    pub(super) fn new(
        keyspaces: &'s dyn Keyspaces,
        trees: BTreeMap<TreeId, PoolTree>,
        cut: Lsn,
    ) -> Replay<'s> {
        let (batches, group) = (BTreeMap::new(), Group::default());
        Replay { keyspaces, trees, cut, batches, group, made: 0 }
    }

    /// The next record.
    pub(super) fn take(&mut self, record: &Record<'_>, at: Lsn) -> Result<()> {
        let is_in_checkpoint = at < self.cut && !leaves_out("replay_before_the_cut");
        match *record {
            Record::Batch { batch, changes, records } => {
                let batch = self.batches.entry(batch).or_insert_with(|| Batch::new(changes));
                return batch.add(changes, records).map_err(|what| damage(at, what));
            }
            Record::Made { batch, change } => {
                let Some(found) = self.batches.get_mut(&batch) else {
                    // Finished before the cut; or else the log would have begun earlier.
                    return if is_in_checkpoint {
                        Ok(())
                    } else {
                        Err(damage(at, "it belongs to a batch that the log does not have"))
                    };
                };
                let is_part = is_in_checkpoint && !found.is_whole();
                if is_part && !leaves_out("part_before_the_cut_is_damage") {
                    // It began before the oldest that was not finished at the cut, and so was finished there itself.
                    return Ok(());
                }
                let Some(bytes) = found.made(change) else {
                    return Err(damage(at, "it is not one of its batch, or was made before"));
                };
                if !is_in_checkpoint {
                    self.group.push(change_in(&found.records[bytes]), at);
                }
                if found.left == 0 {
                    self.batches.remove(&batch);
                }
            }
            _ if is_in_checkpoint => return Ok(()),
            Record::Put { tree, key, value } | Record::Extent { tree, key, value } => {
                self.group.push((tree, key, Some(value)), at);
            }
            Record::Remove { tree, key } => self.group.push((tree, key, None), at),
            Record::RemoveRange { tree, from, to } => {
                self.make_group()?;
                if let Some(tree) = self.trees.get(&tree) {
                    self.made += 1;
                    let to = Some(to).filter(|to| !to.is_empty());
                    tree.remove_range(from, to).map_err(|error| unfit(error, at))?;
                }
            }
            Record::Create { tree, name } => {
                self.make_group()?;
                self.create(tree, name).map_err(|error| unfit(error, at))?;
            }
            Record::Drop { tree, name } => {
                self.make_group()?;
                self.drop(tree, name).map_err(|error| unfit(error, at))?;
            }
        }
        if self.group.is_full() { self.make_group() } else { Ok(()) }
    }

    fn create(&mut self, tree: TreeId, name: &[u8]) -> Result<()> {
        self.made += 1;
        if let Some(created) = self.keyspaces.begin(tree, name_of(name)?)? {
            self.trees.insert(tree, created);
        }
        Ok(())
    }

    fn drop(&mut self, tree: TreeId, name: &[u8]) -> Result<()> {
        self.made += 1;
        if self.trees.remove(&tree).is_some() {
            self.keyspaces.end(tree, name_of(name)?)?;
        }
        Ok(())
    }

    fn make_group(&mut self) -> Result<()> {
        for tree in self.group.trees() {
            if !self.trees.contains_key(&tree)
                && let Some(adopted) = self.keyspaces.unknown(tree)?
            {
                self.trees.insert(tree, adopted);
            }
        }
        self.made += self.group.make(&self.trees, self.keyspaces)?;
        Ok(())
    }

    /// The log has ended: what was begun is done. In any order, since all of them were under way.
    pub(super) fn finish(&mut self, end: Lsn) -> Result<()> {
        for (_, batch) in std::mem::take(&mut self.batches) {
            // One whose last record did not reach the disk had not begun to change anything.
            let is_half = !batch.is_whole() && !leaves_out("half_a_batch_is_made");
            if is_half || leaves_out("batches_left_unfinished") {
                continue;
            }
            for (place, is_made) in batch.changes.iter().zip(&batch.is_made) {
                if !is_made {
                    self.group.push(change_in(&batch.records[place.clone()]), end);
                }
                if self.group.is_full() {
                    self.make_group()?;
                }
            }
        }
        self.make_group()
    }
}

type Change<'r> = (TreeId, &'r [u8], Option<&'r [u8]>);

/// The change in a record of a batch, which was looked at when it was added.
fn change_in(record: &[u8]) -> Change<'_> {
    match Record::decode(record) {
        Decoded::Whole(
            Record::Put { tree, key, value } | Record::Extent { tree, key, value },
            _,
        ) => (tree, key, Some(value)),
        Decoded::Whole(Record::Remove { tree, key }, _) => (tree, key, None),
        other => unreachable!("a batch was checked when it was read: {other:?}"),
    }
}

/// Shows each change in a record of a batch, and where it lies in there.
pub(super) fn for_each_change(
    records: &[u8],
    each: &mut dyn FnMut(Range<usize>, &Record<'_>),
) -> Result<(), &'static str> {
    let mut done = 0;
    while done < records.len() {
        let (record, len) = match Record::decode(&records[done..]) {
            Decoded::Whole(
                record @ (Record::Put { .. } | Record::Extent { .. } | Record::Remove { .. }),
                len,
            ) => (record, len),
            _ => return Err("a batch has something that is not a change"),
        };
        each(done..done + len, &record);
        done += len;
    }
    Ok(())
}

/// A batch that is not finished.
struct Batch {
    /// How many changes it has.
    total: usize,
    records: Vec<u8>,
    /// Where each change lies in `records`.
    changes: Vec<Range<usize>>,
    is_made: Vec<bool>,
    /// Changes that were not made yet, or not even seen.
    left: usize,
}

impl Batch {
    fn new(total: u32) -> Batch {
        let total = total as usize;
        Batch { total, records: Vec::new(), changes: Vec::new(), is_made: Vec::new(), left: total }
    }

    fn is_whole(&self) -> bool {
        self.changes.len() == self.total
    }

    /// More of the changes. Errors: what is wrong with them; then none of them was added, because what a log has until there may
    /// be replayed all the same.
    fn add(&mut self, total: u32, records: &[u8]) -> Result<(), &'static str> {
        if total as usize != self.total {
            return Err("two records of a batch do not agree about its length");
        }
        let before = self.records.len();
        let mut changes = Vec::new();
        let noted = for_each_change(records, &mut |place, _| {
            changes.push(before + place.start..before + place.end);
        });
        if noted.is_err() && leaves_out("changes_of_a_damaged_record") {
            self.changes.append(&mut changes);
        }
        noted?;
        if self.changes.len() + changes.len() > self.total {
            return Err("a batch has more changes than it says");
        }
        self.is_made.resize(self.changes.len() + changes.len(), false);
        self.changes.append(&mut changes);
        self.records.extend_from_slice(records);
        Ok(())
    }

    /// Notes that a change was made, and says where it is; `None` if that cannot be.
    fn made(&mut self, change: u32) -> Option<Range<usize>> {
        let is_made = self.is_made.get_mut(change as usize)?;
        if *is_made || self.changes.len() != self.total {
            return None;
        }
        *is_made = true;
        self.left -= 1;
        Some(self.changes[change as usize].clone())
    }
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
    fn make(
        &mut self,
        trees: &BTreeMap<TreeId, PoolTree>,
        keyspaces: &dyn Keyspaces,
    ) -> Result<u64> {
        let Group { bytes, waiting, is_loaded } = self;
        let mut count = 0;
        if leaves_out("replay_backwards") {
            waiting.reverse();
        }
        // Stable: changes of one key stay in their order.
        waiting
            .sort_by(|a, b| (a.tree, &bytes[a.key.clone()]).cmp(&(b.tree, &bytes[b.key.clone()])));
        for of_tree in waiting.chunk_by(|a, b| a.tree == b.tree) {
            // A tree that is not there was dropped later on.
            let Some(tree) = trees.get(&of_tree[0].tree) else { continue };
            let keys: Vec<&[u8]> = of_tree.iter().map(|one| &bytes[one.key.clone()]).collect();
            if !*is_loaded {
                tree.get_many(&keys)?;
            }
            for (one, key) in of_tree.iter().zip(keys) {
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

pub(super) fn damage(at: Lsn, what: &str) -> Error {
    let what = format!("the log's record at {} cannot be one of this store: {what}", at.0);
    Error::new(ErrorKind::Corrupted { page: None, offset_bytes: None }, what)
}

/// A record that the engine would never have written is damage.
fn unfit(error: Error, at: Lsn) -> Error {
    match error.kind() {
        ErrorKind::KeyTooLong { .. }
        | ErrorKind::RecordTooLarge { .. }
        | ErrorKind::InvalidOption
        | ErrorKind::AlreadyExists => damage(at, &error.to_string()),
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
