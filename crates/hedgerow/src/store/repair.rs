//! Repair: what is whole in a damaged store, put into a new one.
//!
//! The damaged file is only read. Every page that its page map names is read and checked, and the records of each whole
//! leaf are put into the new store, whatever became of the nodes above it: a leaf names its tree, and all leaves that the
//! map of a checkpoint names are in use. So a damaged page costs its own records, and a damaged inner node none. What a
//! damaged page held is told by the separators of its parent, if that is whole.
//!
//! Where a part of the map is damaged, the pages that it named are looked for in the whole file (`search.rs`). A place that
//! cannot be read is damage.
//!
//! Then the log, which is opened before all that, is replayed, as far as it can be read. The new store is written like any
//! (`create.rs`): after a failure or a crash there is nothing at its path. Memory: some 50 bytes for each page beside the limit of
//! the new store. One thread.

mod salvaged;
mod search;
#[cfg(all(test, not(shuttle)))]
mod tests;

use super::PoolTree;
use super::backup::{Progress, cancelled, refuse_what_is_there};
use super::catalogue::{self, MAX_NAME_BYTES, decode_entry, is_leftover};
use super::large::LargeCopy;
use super::lock::lock;
use super::log_file::LogFile;
use super::open::{PAGE_FORM, fit_blocks, hidden, read_all_superblocks};
use super::options::StoreOptions;
use super::repair_report::{DamagedPage, LostKeys, RepairReport};
use super::replay::{Home, Replay, Trees};
use super::superblock::Superblock;
use super::unfinished::Unfinished;
use super::{Store, create};
use crate::error::{Error, ErrorKind, Result};
use crate::large::is_stored_form;
use crate::node::{self, max_short_key_bytes, plain_leaf};
use crate::page::header::{self, PageKind};
use crate::space::map::MapRoot;
use crate::space::part;
use crate::space::slot_store::{SlotStore, SpaceState};
use crate::space::{Deltas, Zones};
use crate::storage::{AlignedBuffer, Disk, File, OpenMode};
use crate::types::{Epoch, PageId, Slot, TreeId};
use crate::wal::{FileHeader, scan};
use hedgerow_sync::primitive::Arc;
use salvaged::{LostValues, Salvaged, nameless};
use std::cell::RefCell;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Takes a page, where its image lies, and what is wrong with it.
type EachPage<'e, 'p> =
    dyn FnMut(&mut Repair<'p>, PageId, Slot, &[u8], Option<Error>) -> Result<()> + 'e;
/// Takes a key and a value.
type EachRecord<'e> = dyn FnMut(&[u8], &[u8]) -> Result<()> + 'e;

/// Pages read together.
const BATCH: usize = 64;

/// Salvages what is whole in the store at `from` into a new one at `to`. See [`crate::Options::repair`].
pub fn repair(
    options: &StoreOptions,
    disk: &dyn Disk,
    from: &Path,
    to: &Path,
    progress: Progress<'_>,
) -> Result<RepairReport> {
    let (from, to) = (&disk.locate(from), &disk.locate(to));
    refuse_what_is_there(disk, to)?;
    let file = disk.open(from, OpenMode::ReadOnly, options.direct())?;
    lock(&*file, false)?;
    let (chosen, unread) = read_all_superblocks(&*file)?;
    let superblock = chosen.superblock;
    fit_blocks(&*file, superblock.geometry)?;
    let page_bytes = superblock.geometry.page_bytes() as usize;
    let options = StoreOptions { page_bytes: Some(page_bytes), log: false, ..options.clone() };
    // Before hours of reading, whatever has to be moved away.
    let log = LogFile::find(&options, disk, &disk.resolve(from)?, &superblock, OpenMode::ReadOnly);
    let log = match log {
        Err(error) if !is_end_of_replay(&error) => return Err(error),
        found => found,
    };
    let mut repair = Repair::new(file, superblock, progress)?;
    let later = hidden(&chosen, unread);
    repair
        .report
        .defects
        .extend(later.map(|error| format!("a later checkpoint may be lost: {error}")));
    repair.find_pages()?;
    repair.examine()?;
    let (store, report) = create::file_at(options.direct(), disk, to, |file| {
        let store = Store::create_in(&options, file.clone())?;
        store.attend_new(&options)?;
        let trees = repair.salvage(&store)?;
        repair.replay(log, &store, trees)?;
        repair.report.keyspaces = store.keyspaces()?.len() as u64;
        // Nobody writes to it any more, so it needs no room for that.
        store.shared.pool.set_closed();
        store.shared.settle()?;
        Ok((store, repair.report))
    })?;
    // Only now, for it has the lock of the file.
    drop(store);
    Ok(report)
}

/// A repair under way.
struct Repair<'p> {
    slots: SlotStore,
    superblock: Superblock,
    /// The zone table could be opened; groups of zones of which its part is lost.
    has_table: bool,
    lost_groups: BTreeSet<u32>,
    /// All pages that are in use.
    pages: BTreeMap<PageId, Slot>,
    /// Those among them that may be a user's, who has put the image of a page into a value. And whether the zone table says that
    /// they are in use: else they are older images more often than that, and as good as others.
    unsure: BTreeMap<PageId, bool>,
    /// Leaves that are whole, by the epochs of their last changes: of two that have a key the newer one is right.
    leaves: Vec<(Epoch, PageId, Slot)>,
    /// Trees that have any.
    with_leaves: BTreeSet<TreeId>,
    /// Trees that were dropped while they were loaded.
    leftovers: BTreeSet<TreeId>,
    /// Inner nodes that are whole.
    inner: Vec<(PageId, Slot)>,
    /// Keyspaces by their trees.
    names: BTreeMap<TreeId, (String, catalogue::Entry)>,
    /// What the keyspaces of trees are called in the new store.
    now: BTreeMap<TreeId, String>,
    /// What is said of those whose names are lost.
    nameless: BTreeMap<TreeId, String>,
    lost_values: LostValues,
    large: LargeCopy,
    report: RepairReport,
    progress: Progress<'p>,
    done: u64,
}

impl<'p> Repair<'p> {
    fn new(
        file: Arc<dyn File>,
        superblock: Superblock,
        progress: Progress<'p>,
    ) -> Result<Repair<'p>> {
        let geometry = superblock.geometry;
        let mut report = RepairReport::default();
        let mut buffer = AlignedBuffer::zeroed(part::new_bytes().len())?;
        let mut read = |slot: Slot, out: &mut part::PartBytes| {
            file.read_at(slot.offset_bytes(), &mut buffer)?;
            out.copy_from_slice(&buffer);
            Ok(())
        };
        let (root, newest) = (&superblock.table, superblock.checkpoint);
        let zones = match Zones::open(geometry, root, newest, file.len_bytes()?, &mut read) {
            Err(error) if error.is_loss() => {
                report.defects.push(format!("the zone table cannot be read: {error}"));
                Zones::create(geometry)
            }
            other => other?,
        };
        let state = SpaceState {
            zones,
            deltas: Deltas::new(0),
            owed: Arc::default(),
            map: MapRoot::EMPTY,
            checkpoint: Epoch(0),
        };
        let slots = SlotStore::new(file, geometry.page_bytes() as usize, PAGE_FORM, state);
        // Of nothing else anybody was told.
        let has_table = report.is_clean();
        let (pages, names) = (BTreeMap::new(), BTreeMap::new());
        Ok(Repair {
            slots,
            superblock,
            has_table,
            lost_groups: BTreeSet::new(),
            pages,
            unsure: BTreeMap::new(),
            leaves: Vec::new(),
            with_leaves: BTreeSet::new(),
            leftovers: BTreeSet::new(),
            inner: Vec::new(),
            names,
            now: BTreeMap::new(),
            nameless: BTreeMap::new(),
            lost_values: BTreeMap::new(),
            large: LargeCopy::default(),
            report,
            progress,
            done: 0,
        })
    }

    /// Reads the images of some pages and shows each, with what is wrong with it.
    fn read(&mut self, pages: &[(PageId, Slot)], each: &mut EachPage<'_, 'p>) -> Result<()> {
        let page_bytes = self.slots.page_bytes();
        let mut buffer = AlignedBuffer::zeroed(BATCH * page_bytes)?;
        for batch in pages.chunks(BATCH) {
            let results = self.slots.read_pages(batch, &mut buffer);
            for ((&(id, slot), image), checked) in
                batch.iter().zip(buffer.chunks_exact(page_bytes)).zip(results)
            {
                let whole = checked.and_then(|()| match node::check(image).first() {
                    Some(defect) => Err(Error::corrupted_page(id, defect.to_string())),
                    None => Ok(()),
                });
                match whole {
                    Err(error) if !error.is_loss() => return Err(error),
                    whole => each(self, id, slot, image, whole.err())?,
                }
            }
            self.go_on(batch.len() as u64)?;
        }
        Ok(())
    }

    fn go_on(&mut self, pages: u64) -> Result<()> {
        self.done += pages;
        if (self.progress)(self.done).is_break() { Err(cancelled()) } else { Ok(()) }
    }

    /// Reads every page: which are damaged, which are inner nodes, and what the catalogue says.
    fn examine(&mut self) -> Result<()> {
        let mut pages: Vec<(PageId, Slot)> = std::mem::take(&mut self.pages).into_iter().collect();
        self.report.pages = pages.len() as u64;
        // What a sure page says is there when one that is not sure says something else.
        pages.sort_by_key(|(page, _)| self.unsure.contains_key(page));
        self.read(&pages, &mut |this, page, slot, image, defect| {
            if let Some(defect) = defect {
                let (offset_bytes, what) = (slot.offset_bytes(), defect.to_string());
                let lost = DamagedPage { page, offset_bytes, what, keyspace: None, keys: None };
                this.report.damaged.push(lost);
                return Ok(());
            }
            match header::kind(image) {
                Some(PageKind::Inner) => this.inner.push((page, slot)),
                Some(PageKind::Free) | None => {}
                Some(_) => {
                    this.with_leaves.insert(header::tree_id(image));
                    this.leaves.push((header::epoch(image), page, slot));
                    if header::tree_id(image) == TreeId::CATALOGUE {
                        return match this.unsure.contains_key(&page) {
                            true => this.read_unsure_catalogue(image),
                            false => this.read_catalogue(image),
                        };
                    }
                }
            }
            Ok(())
        })?;
        if self.report.damaged.is_empty() { Ok(()) } else { self.name_lost() }
    }

    /// Notes what damaged pages held.
    fn name_lost(&mut self) -> Result<()> {
        let damaged = self.report.damaged.iter().enumerate();
        let damaged: BTreeMap<PageId, usize> = damaged.map(|(at, lost)| (lost.page, at)).collect();
        let mut inner = self.inner.clone();
        // The last one that names a page is right.
        inner.sort_by_key(|(page, _)| !self.unsure.contains_key(page));
        self.read(&inner, &mut |this, _, _, image, _| {
            this.name_children(image, &damaged);
            Ok(())
        })?;
        // A damaged root held everything, or led to everything.
        for (name, entry) in self.names.values() {
            let Some(&at) = damaged.get(&entry.root) else { continue };
            let lost = &mut self.report.damaged[at];
            lost.keyspace = Some(name.clone());
            // A root that is a leaf is the only one.
            let is_inner = self.with_leaves.contains(&entry.tree);
            lost.keys = Some(LostKeys { above: None, up_to: None, is_inner });
        }
        Ok(())
    }

    fn read_catalogue(&mut self, leaf: &[u8]) -> Result<()> {
        for_each_record(leaf, &mut |name, record| {
            if is_leftover(name)
                && let Ok(entry) = decode_entry(record)
            {
                self.leftovers.insert(entry.tree);
                return Ok(());
            }
            match (name_of(name, self.slots.page_bytes()), decode_entry(record)) {
                (Some(name), Ok(entry)) => {
                    self.names.insert(entry.tree, (name.to_owned(), entry));
                }
                _ => {
                    let name = name.escape_ascii();
                    let what = format!("the catalogue's record of keyspace {name} is damaged");
                    self.report.defects.push(what);
                }
            }
            Ok(())
        })
    }

    /// Takes names from a leaf that may be a user's. It can neither rename a keyspace nor say that one is being dropped.
    fn read_unsure_catalogue(&mut self, leaf: &[u8]) -> Result<()> {
        for_each_record(leaf, &mut |name, record| {
            if let Some(name) = name_of(name, self.slots.page_bytes())
                && let Ok(entry) = decode_entry(record)
                && !(entry.is_dropping || entry.is_loading)
                && !self.names.contains_key(&entry.tree)
                && self.names.values().all(|(taken, _)| taken != name)
            {
                self.names.insert(entry.tree, (name.to_owned(), entry));
            }
            Ok(())
        })
    }

    /// Reports a leaf that may be a user's, and which records came from it.
    fn note_unsure(&mut self, page: PageId, slot: Slot, leaf: &[u8]) -> Result<()> {
        let mut keys: Option<(Vec<u8>, Vec<u8>)> = None;
        for_each_record(leaf, &mut |key, _| {
            match &mut keys {
                Some((_, last)) => key.clone_into(last),
                none => *none = Some((key.to_vec(), key.to_vec())),
            }
            Ok(())
        })?;
        let Some((first, last)) = keys else { return Ok(()) };
        let keyspace = self.now.get(&header::tree_id(leaf)).map_or("the catalogue", String::as_str);
        let at = slot.offset_bytes();
        let (first, last) = (first.escape_ascii().to_string(), last.escape_ascii().to_string());
        self.report.defects.push(format!(
            "{page} at {at} was found beside damage and may be part of a value: its records in {keyspace} are uncertain, \
             from {first:?} to {last:?}"
        ));
        Ok(())
    }

    fn name_of(&self, tree: TreeId) -> Option<String> {
        self.names.get(&tree).map(|(name, _)| name.clone())
    }

    /// Notes what damaged children of an inner node held.
    fn name_children(&mut self, image: &[u8], damaged: &BTreeMap<PageId, usize>) {
        let node = plain_leaf(image).as_node();
        let keyspace = self.name_of(header::tree_id(image));
        let key = |index: usize| {
            let mut key = Vec::new();
            node.append_key(index, &mut key);
            key
        };
        for index in 0..=node.count() {
            let Some(&at) = damaged.get(&node.child_at(index)) else { continue };
            let lost = &mut self.report.damaged[at];
            let fence = |append: &dyn Fn(&mut Vec<u8>) -> bool| {
                let mut fence = Vec::new();
                append(&mut fence).then_some(fence)
            };
            let above = match index {
                0 => fence(&|to| node.append_lower_fence(to)),
                _ => Some(key(index - 1)),
            };
            let up_to = match index == node.count() {
                true => fence(&|to| node.append_upper_fence(to)),
                false => Some(key(index)),
            };
            lost.keyspace.clone_from(&keyspace);
            lost.keys = Some(LostKeys { above, up_to, is_inner: header::level(image) > 1 });
        }
    }

    /// Puts the records of all whole leaves into the new store. Gives its keyspaces by the old trees.
    fn salvage(&mut self, store: &Store) -> Result<BTreeMap<TreeId, PoolTree>> {
        let mut trees = BTreeMap::new();
        for (&tree, (name, entry)) in &self.names {
            if !entry.is_dropping {
                trees.insert(tree, store.keyspace(name)?);
                self.now.insert(tree, name.clone());
            }
        }
        let cut_short = self.loads_cut_short()?;
        let mut leaves = std::mem::take(&mut self.leaves);
        // What may be a user's comes first, so that the records of all others replace its own.
        leaves.sort_unstable_by_key(|&(epoch, page, _)| {
            (self.unsure.get(&page) != Some(&true), epoch, page)
        });
        let leaves: Vec<_> = leaves.into_iter().map(|(_, page, slot)| (page, slot)).collect();
        self.read(&leaves, &mut |this, page, slot, image, defect| {
            let tree = header::tree_id(image);
            let passed_over = tree == TreeId::CATALOGUE
                || this.leftovers.contains(&tree) && !this.names.contains_key(&tree)
                || cut_short.get(&tree).is_some_and(|reached| !reached.contains(&page))
                || this.names.get(&tree).is_some_and(|(_, entry)| entry.is_dropping);
            if let Some(defect) = defect {
                // It was whole a moment ago.
                let (offset_bytes, what) = (slot.offset_bytes(), defect.to_string());
                let lost = DamagedPage { page, offset_bytes, what, keyspace: None, keys: None };
                this.report.damaged.push(lost);
                return Ok(());
            }
            if tree == TreeId::CATALOGUE && this.unsure.contains_key(&page) {
                this.note_unsure(page, slot, image)?;
            }
            if passed_over {
                return Ok(());
            }
            if let Entry::Vacant(vacant) = trees.entry(tree) {
                let (name, to) = nameless(store, tree)?;
                let what = format!(
                    "the name of a keyspace is lost ({page}): the new store calls it {name}"
                );
                this.nameless.insert(tree, what);
                this.now.insert(tree, name);
                vacant.insert(to);
            }
            if this.unsure.contains_key(&page) {
                this.note_unsure(page, slot, image)?;
            }
            let to = &trees[&tree];
            for_each_record(image, &mut |key, value| {
                let lost = if is_stored_form(value) {
                    this.large.put_into(&this.slots, value, store, to, key)?.err()
                } else {
                    to.put(key, value)?;
                    None
                };
                if let Some(error) = lost {
                    // One that an older leaf has is not the value either.
                    to.remove(key)?;
                    this.lost_values.insert((tree, key.to_vec()), error.to_string());
                } else {
                    this.report.records += 1;
                    // That was an older leaf's.
                    if !this.lost_values.is_empty() {
                        this.lost_values.remove(&(tree, key.to_vec()));
                    }
                }
                Ok(())
            })
        })?;
        Ok(trees)
    }

    /// Trees whose bulk load was cut short, and the leaves to which their roots lead: nobody was told of the others. A tree of
    /// which an inner node is lost is not among them.
    fn loads_cut_short(&mut self) -> Result<BTreeMap<TreeId, BTreeSet<PageId>>> {
        let loading = self.names.values().map(|(_, entry)| entry).filter(|entry| entry.is_loading);
        let mut reached: BTreeMap<TreeId, BTreeSet<PageId>> =
            loading.map(|entry| (entry.tree, [entry.root].into())).collect();
        let roots: BTreeSet<PageId> = reached.values().flatten().copied().collect();
        let is_sure = |page: &PageId| !self.unsure.contains_key(page);
        let leaves = self.leaves.iter().map(|(_, page, _)| page).filter(|page| is_sure(page));
        let leaves: BTreeSet<PageId> =
            leaves.filter(|page| roots.contains(page)).copied().collect();
        let inner = self.inner.iter().filter(|(page, _)| is_sure(page) && !reached.is_empty());
        let mut inner: BTreeMap<PageId, Slot> = inner.copied().collect();
        // A root that is neither is lost.
        reached.retain(|_, root| {
            root.iter().all(|root| leaves.contains(root) || inner.contains_key(root))
        });
        let mut level: Vec<_> = roots.iter().filter_map(|root| inner.remove_entry(root)).collect();
        while !level.is_empty() {
            let mut below = Vec::new();
            self.read(&level, &mut |_, _, _, image, defect| {
                if defect.is_some() {
                    // It was whole a moment ago.
                    reached.clear();
                    return Ok(());
                }
                let (node, tree) = (plain_leaf(image).as_node(), header::tree_id(image));
                let Some(pages) = reached.get_mut(&tree) else { return Ok(()) };
                let children = (0..=node.count()).map(|at| node.child_at(at));
                if header::level(image) == 1 {
                    pages.extend(children);
                    return Ok(());
                }
                for child in children {
                    match inner.remove_entry(&child) {
                        Some(child) => below.push(child),
                        None => drop(reached.remove(&tree)),
                    }
                }
                Ok(())
            })?;
            level = below;
        }
        Ok(reached)
    }

    /// Makes the changes that the log has beyond the checkpoint, as far as it can be read.
    fn replay(
        &mut self,
        found: Result<Option<(Arc<dyn File>, FileHeader)>>,
        store: &Store,
        trees: BTreeMap<TreeId, PoolTree>,
    ) -> Result<()> {
        let (from, log_end) = (self.superblock.scan_from(), self.superblock.log_end);
        let dropping = self.names.values().filter(|(_, entry)| entry.is_dropping);
        let dropping = dropping.map(|(_, entry)| entry.tree);
        let keyspaces = Salvaged {
            store,
            slots: &self.slots,
            large: RefCell::new(std::mem::take(&mut self.large)),
            lost_values: RefCell::new(std::mem::take(&mut self.lost_values)),
            next_tree: self.superblock.next_tree,
            // Where nothing is lost a tree that is not known was dropped.
            may_be_nameless: !(self.report.is_clean() && self.nameless.is_empty()),
            names: RefCell::new(std::mem::take(&mut self.now)),
            nameless: RefCell::new(std::mem::take(&mut self.nameless)),
            ended: RefCell::new(self.leftovers.iter().copied().chain(dropping).collect()),
        };
        let mut homes = Trees::default();
        for (name, tree) in &trees {
            homes.insert(*name, Home::of(tree));
        }
        let mut replayed = 0;
        let outcome = found.and_then(|found| {
            let Some((file, header)) = found else { return Ok(()) };
            let batches = Unfinished::new(&*file, &header);
            let mut replay = Replay::new(&keyspaces, homes, &self.superblock, batches);
            let scanned =
                scan(&*file, &header, &from, &mut |record, place| replay.take(&record, place));
            // Whatever is wrong with the rest: what was begun before it is done.
            let finished = replay.finish(scanned.as_ref().map_or(log_end, |scanned| scanned.end));
            replayed = replay.made;
            match finished {
                // A batch whose changes cannot be read again is a part of what is lost.
                Err(error) if !error.is_loss() => Err(error),
                finished => scanned.and(finished),
            }
        });
        self.report.replayed = replayed;
        self.report.defects.extend(keyspaces.defects());
        match outcome {
            Err(error) if is_end_of_replay(&error) => {
                let what = format!("only {replayed} changes of the log could be replayed: {error}");
                self.report.defects.push(what);
                Ok(())
            }
            other => other,
        }
    }
}

/// Whether an error means that what the log has, or the rest of it, is lost, and not that there is no repair.
fn is_end_of_replay(error: &Error) -> bool {
    error.is_loss() || matches!(error.kind(), ErrorKind::LogMissing | ErrorKind::InvalidName)
}

/// The name of a keyspace, unless no build gives such a one.
fn name_of(key: &[u8], page_bytes: usize) -> Option<&str> {
    let most = MAX_NAME_BYTES.min(max_short_key_bytes(page_bytes));
    str::from_utf8(key).ok().filter(|name| (1..=most).contains(&name.len()))
}

/// Hands over the records of a leaf that was checked.
fn for_each_record(image: &[u8], each: &mut EachRecord<'_>) -> Result<()> {
    let leaf = plain_leaf(image);
    let mut key = vec![0; image.len()];
    let prefix = leaf.copy_prefix(&mut key);
    let mut place = leaf.next_place(0);
    while place < leaf.end() {
        let (end, value) = leaf.record(place, &mut key, prefix);
        each(&key[..end], value)?;
        place = leaf.next_place(place + 1);
    }
    Ok(())
}

fn checksum_in(image: &[u8]) -> u64 {
    image.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}
