//! Repair: what is whole in a damaged store, put into a new one.
//!
//! The damaged file is only read. Every page that its page map names is read and checked, and the records of each whole
//! leaf are put into the new store, whatever became of the nodes above it: a leaf names its tree, and all leaves that the
//! map of a checkpoint names are in use. So a damaged page costs its own records, and a damaged inner node none. What a
//! damaged page held is told by the separators of its parent, if that is whole.
//!
//! Where a part of the map is damaged, the pages that it named are looked for in all units of the file: a page that
//! names an id of that part, whose checksum is right, no newer than the checkpoint; of several the newest. Such a
//! page may have been freed since, so that what was removed may come back; the report says so.
//!
//! Then the log is replayed, as far as it can be read. The new store is written like any (`create.rs`): after a failure or a
//! crash there is nothing at its path. Memory: some 50 bytes for each page beside the limit of the new store. One thread.

use super::backup::{Progress, cancelled, refuse_what_is_there};
use super::catalogue::{self, PoolTree, decode_entry};
use super::journal::Journal;
use super::open::{StoreOptions, check_blocks, check_page, lock, read_superblocks};
use super::replay::{Keyspaces, Replay};
use super::superblock::Superblock;
use super::{Store, create};
use crate::checksum::page_checksum;
use crate::error::{Error, ErrorKind, Result};
use crate::node::{self, Hints, plain_leaf};
use crate::page::header::{self, PageKind};
use crate::space::geometry::PART_CONTENT_WORDS;
use crate::space::map::{MapRoot, MapView};
use crate::space::part;
use crate::space::slot_store::{PartFile, SlotStore, SpaceState};
use crate::space::{Deltas, Zones};
use crate::storage::{AlignedBuffer, Disk, File, OpenMode, ReadRequest};
use crate::types::{Epoch, PART_HEADER_WORDS, PART_WORDS, PageId, Slot, TreeId};
use crate::wal::{ScanFrom, scan};
use hedgerow_sync::primitive::Arc;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// A page that could not be salvaged.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DamagedPage {
    /// The page.
    pub page: PageId,
    /// Where its image lies in the file.
    pub offset_bytes: u64,
    /// What is wrong with it.
    pub what: String,
    /// The keyspace that it belonged to, if its parent is whole; `None` as well in the catalogue of keyspaces.
    pub keyspace: Option<String>,
    /// The keys that it held, if its parent is whole.
    pub keys: Option<LostKeys>,
}

/// A range of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LostKeys {
    /// Above this one; `None`: from the first on.
    pub above: Option<Vec<u8>>,
    /// Up to this one, which belongs to the range; `None`: to the last.
    pub up_to: Option<Vec<u8>>,
    /// The page was an inner node: its leaves were found by themselves, and nothing is lost but what damaged leaves
    /// among them held.
    pub is_inner: bool,
}

/// What a repair found, and what it made.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RepairReport {
    /// Pages that were read.
    pub pages: u64,
    /// Records of whole leaves that were put into the new store.
    pub records: u64,
    /// Keyspaces of the new store.
    pub keyspaces: u64,
    /// Changes of the log that were made on top of that.
    pub replayed: u64,
    /// The pages that are lost.
    pub damaged: Vec<DamagedPage>,
    /// Everything else that is wrong: parts of the page map, the log, keyspaces whose names are lost.
    pub defects: Vec<String>,
}

impl RepairReport {
    /// Whether nothing was wrong.
    pub fn is_clean(&self) -> bool {
        self.damaged.is_empty() && self.defects.is_empty()
    }
}

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
    refuse_what_is_there(disk, to)?;
    let file = disk.open(from, OpenMode::ReadOnly, options.direct())?;
    lock(&*file, false)?;
    let superblock = read_superblocks(&*file)?.superblock;
    check_blocks(&*file, superblock.geometry)?;
    let page_bytes = superblock.geometry.page_bytes() as usize;
    let options = StoreOptions { page_bytes: Some(page_bytes), log: false, ..options.clone() };
    let mut repair = Repair::new(file, superblock, progress)?;
    repair.find_pages()?;
    repair.examine()?;
    let (store, report) = create::file_at(options.direct(), disk, to, |file| {
        let store = Store::create_in(&options, file.clone())?;
        let trees = repair.salvage(&store)?;
        repair.replay(&options, disk, from, &store, trees)?;
        repair.report.keyspaces = store.keyspaces()?.len() as u64;
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
    /// All pages that are in use.
    pages: BTreeMap<PageId, Slot>,
    /// Leaves that are whole, by the epochs of their last changes: of two that have a key the newer one is right.
    leaves: Vec<(Epoch, PageId, Slot)>,
    /// Trees that have any.
    with_leaves: BTreeSet<TreeId>,
    /// Inner nodes that are whole.
    inner: Vec<(PageId, Slot)>,
    /// Keyspaces by their trees.
    names: BTreeMap<TreeId, (String, catalogue::Entry)>,
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
        let state = SpaceState {
            zones: Zones::create(geometry),
            deltas: Deltas::new(0),
            owed: Arc::default(),
            map: MapRoot::EMPTY,
            checkpoint: Epoch(0),
        };
        let slots = SlotStore::new(file, geometry.page_bytes() as usize, check_page, state);
        let report = RepairReport::default();
        let (pages, names) = (BTreeMap::new(), BTreeMap::new());
        Ok(Repair {
            slots,
            superblock,
            pages,
            leaves: Vec::new(),
            with_leaves: BTreeSet::new(),
            inner: Vec::new(),
            names,
            report,
            progress,
            done: 0,
        })
    }

    /// Finds all pages that are in use: by the map, and where that is damaged in the whole file.
    fn find_pages(&mut self) -> Result<()> {
        let view = MapView {
            root: self.superblock.map,
            checkpoint: self.superblock.checkpoint,
            geometry: self.superblock.geometry,
            zones: self.superblock.table.zones,
        };
        let (pages, mut lost) = (&mut self.pages, Vec::new());
        view.for_each_sound_part(
            &mut PartFile::new(&self.slots)?,
            &mut |level, index, _, bytes| {
                let first = u64::from(index) * PART_WORDS as u64 + PART_HEADER_WORDS as u64;
                for word in 0..if level == 0 { PART_WORDS - PART_HEADER_WORDS } else { 0 } {
                    let slot = Slot::from_word(part::word(bytes, word));
                    if let Ok(id) = u32::try_from(first + word as u64)
                        && !slot.is_none()
                    {
                        pages.insert(PageId(id), slot);
                    }
                }
                Ok(())
            },
            &mut |level, index, error| {
                let ErrorKind::Corrupted { .. } = error.kind() else { return Err(error) };
                let span = (PART_CONTENT_WORDS as u64).pow(u32::from(level)) * PART_WORDS as u64;
                lost.push((u64::from(index) * span, span, error.to_string()));
                Ok(())
            },
        )?;
        if lost.is_empty() {
            return Ok(());
        }
        for (first, span, what) in &lost {
            self.report.defects.push(format!(
                "{what}; pages {first} to {} were looked for in the whole file, and may be older than \
                 the last checkpoint",
                first + span - 1
            ));
        }
        self.look_everywhere(&|id| {
            lost.iter().any(|(first, span, _)| (*first..first + span).contains(&u64::from(id.0)))
        })
    }

    /// Finds the newest image of each page whose id is wanted, in all units of the file.
    fn look_everywhere(&mut self, wanted: &dyn Fn(PageId) -> bool) -> Result<()> {
        let geometry = self.superblock.geometry;
        let page_bytes = u64::from(geometry.page_bytes());
        let unit_bytes = u64::from(geometry.unit_bytes());
        let file_bytes = self.slots.file().len_bytes()?;
        let mut buffer = AlignedBuffer::zeroed(geometry.page_bytes().max(4096) as usize)?;
        let mut newest: BTreeMap<PageId, Epoch> = BTreeMap::new();
        for zone in 0..geometry.zones_in(file_bytes) {
            let zone_offset = geometry.zone_offset(zone);
            for unit in 0..u64::from(geometry.units_per_zone()) {
                let offset = zone_offset + unit * unit_bytes;
                if offset + page_bytes > zone_offset + u64::from(geometry.zone_bytes()) {
                    continue;
                }
                let image = &mut buffer[..page_bytes as usize];
                self.slots.file().read_at(offset, image)?;
                let (id, epoch) = (header::page_id(image), header::epoch(image));
                let checksum = checksum_in(image);
                let is_one = id.is_usable()
                    && wanted(id)
                    && epoch <= self.superblock.checkpoint
                    && checksum == page_checksum(id, image)
                    && newest.get(&id).is_none_or(|found| *found < epoch);
                if let Some(slot) = Slot::new(offset, page_bytes, checksum).filter(|_| is_one) {
                    newest.insert(id, epoch);
                    self.pages.insert(id, slot);
                }
            }
            self.go_on(0)?;
        }
        Ok(())
    }

    /// Reads the images of some pages and shows each, with what is wrong with it.
    fn read(&mut self, pages: &[(PageId, Slot)], each: &mut EachPage<'_, 'p>) -> Result<()> {
        let page_bytes = self.slots.page_bytes();
        let mut buffer = AlignedBuffer::zeroed(BATCH * page_bytes)?;
        for batch in pages.chunks(BATCH) {
            let mut requests: Vec<ReadRequest<'_>> = buffer
                .chunks_exact_mut(page_bytes)
                .zip(batch)
                .map(|(image, (_, slot))| ReadRequest::new(slot.offset_bytes(), image))
                .collect();
            self.slots.file().read_batch(&mut requests);
            let results: Vec<Result<()>> = requests.into_iter().map(|read| read.result).collect();
            for ((&(id, slot), image), read) in
                batch.iter().zip(buffer.chunks_exact(page_bytes)).zip(results)
            {
                let checked = read.and_then(|()| self.slots.check_image(id, slot, image));
                let whole = checked.and_then(|()| match node::check(image).first() {
                    Some(defect) => Err(Error::corrupted_page(id, defect.to_string())),
                    None => Ok(()),
                });
                match whole {
                    Err(error) if !matches!(error.kind(), ErrorKind::Corrupted { .. }) => {
                        return Err(error);
                    }
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
        let pages: Vec<(PageId, Slot)> = std::mem::take(&mut self.pages).into_iter().collect();
        self.report.pages = pages.len() as u64;
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
                        return this.read_catalogue(image);
                    }
                }
            }
            Ok(())
        })?;
        if !self.report.damaged.is_empty() {
            let inner = std::mem::take(&mut self.inner);
            self.read(&inner, &mut |this, _, _, image, _| {
                this.name_children(image);
                Ok(())
            })?;
            self.name_roots();
        }
        Ok(())
    }

    fn read_catalogue(&mut self, leaf: &[u8]) -> Result<()> {
        for_each_record(leaf, &mut |name, record| {
            match (str::from_utf8(name), decode_entry(record)) {
                (Ok(name), Ok(entry)) => {
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

    fn name_of(&self, tree: TreeId) -> Option<String> {
        self.names.get(&tree).map(|(name, _)| name.clone())
    }

    /// Notes what damaged children of an inner node held.
    fn name_children(&mut self, image: &[u8]) {
        let node = plain_leaf::<Hints>(image).as_node();
        let keyspace = self.name_of(header::tree_id(image));
        let key = |index: usize| {
            let mut key = Vec::new();
            node.append_key(index, &mut key);
            key
        };
        for lost in &mut self.report.damaged {
            let Some(index) = (0..=node.count()).find(|&at| node.child_at(at) == lost.page) else {
                continue;
            };
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

    /// A damaged root held everything, or led to everything.
    fn name_roots(&mut self) {
        for lost in &mut self.report.damaged {
            let root = self.names.values().find(|(_, entry)| entry.root == lost.page);
            if let Some((name, entry)) = root {
                lost.keyspace = Some(name.clone());
                // A root that is a leaf is the only one.
                let is_inner = self.with_leaves.contains(&entry.tree);
                lost.keys = Some(LostKeys { above: None, up_to: None, is_inner });
            }
        }
    }

    /// Puts the records of all whole leaves into the new store. Gives its keyspaces by the old trees.
    fn salvage(&mut self, store: &Store) -> Result<BTreeMap<TreeId, PoolTree>> {
        let mut trees = BTreeMap::new();
        for (&tree, (name, entry)) in &self.names {
            if !entry.is_dropping {
                trees.insert(tree, store.keyspace(name)?);
            }
        }
        let cut_short = self.loads_cut_short()?;
        let mut leaves = std::mem::take(&mut self.leaves);
        leaves.sort_unstable_by_key(|&(epoch, page, _)| (epoch, page));
        let leaves: Vec<_> = leaves.into_iter().map(|(_, page, slot)| (page, slot)).collect();
        self.read(&leaves, &mut |this, page, _, image, defect| {
            let tree = header::tree_id(image);
            let passed_over = tree == TreeId::CATALOGUE
                || cut_short.contains(&tree)
                || this.names.get(&tree).is_some_and(|(_, entry)| entry.is_dropping);
            if let Some(defect) = defect {
                // It was whole a moment ago.
                return Err(defect);
            }
            if passed_over {
                return Ok(());
            }
            if let Entry::Vacant(vacant) = trees.entry(tree) {
                let name = format!("recovered-{}", tree.0);
                let what = format!("the name of a keyspace is lost ({page}): it is {name} now");
                this.report.defects.push(what);
                vacant.insert(store.keyspace(&name)?);
            }
            let to = &trees[&tree];
            for_each_record(image, &mut |key, value| {
                to.put(key, value)?;
                this.report.records += 1;
                Ok(())
            })
        })?;
        Ok(trees)
    }

    /// Trees whose bulk load was cut short: nobody was told that their leaves are there.
    fn loads_cut_short(&mut self) -> Result<Vec<TreeId>> {
        let loading: Vec<PageId> = self
            .names
            .values()
            .filter(|(_, entry)| entry.is_loading)
            .map(|(_, entry)| entry.root)
            .collect();
        let roots: Vec<(PageId, Slot)> = self
            .leaves
            .iter()
            .map(|&(_, page, slot)| (page, slot))
            .filter(|(page, _)| loading.contains(page))
            .collect();
        let mut cut_short = Vec::new();
        self.read(&roots, &mut |_, _, _, image, _| {
            if plain_leaf::<Hints>(image).count() == 0 {
                cut_short.push(header::tree_id(image));
            }
            Ok(())
        })?;
        Ok(cut_short)
    }

    /// Makes the changes that the log has beyond the checkpoint, as far as it can be read.
    fn replay(
        &mut self,
        options: &StoreOptions,
        disk: &dyn Disk,
        path: &Path,
        store: &Store,
        trees: BTreeMap<TreeId, PoolTree>,
    ) -> Result<()> {
        let Superblock { replay_start, log_end, checkpoint, .. } = self.superblock;
        let from = ScanFrom { replay_start, log_end, checkpoint };
        let path = disk.resolve(path)?;
        let found = Journal::find(options, disk, &path, &self.superblock, OpenMode::ReadOnly);
        let keyspaces = Salvaged { store, next_tree: self.superblock.next_tree };
        let mut replay = Replay::new(&keyspaces, trees, log_end);
        let outcome = found.and_then(|found| {
            let Some((file, header)) = found else { return Ok(log_end) };
            scan(&*file, &header, &from, &mut |record, place| replay.take(&record, place.start))
                .map(|scanned| scanned.end)
        });
        // Whatever is wrong with the rest: what was begun before it is done.
        replay.finish(*outcome.as_ref().unwrap_or(&log_end))?;
        let replayed = replay.made;
        self.report.replayed = replayed;
        match outcome {
            Err(error)
                if matches!(error.kind(), ErrorKind::Corrupted { .. } | ErrorKind::NotFound) =>
            {
                let what = format!("of the log {replayed} changes could be replayed: {error}");
                self.report.defects.push(what);
                Ok(())
            }
            other => other.map(drop),
        }
    }
}

/// The keyspaces of the new store, where trees have other ids.
struct Salvaged<'s> {
    store: &'s Store,
    /// The first id that the damaged store had not given out.
    next_tree: TreeId,
}

impl Keyspaces for Salvaged<'_> {
    fn begin(&self, tree: TreeId, name: &str) -> Result<Option<PoolTree>> {
        // Those below are in the checkpoint, or were dropped before it.
        (tree >= self.next_tree).then(|| self.store.keyspace(name)).transpose()
    }

    fn end(&self, _tree: TreeId, name: &str) -> Result<()> {
        self.store.drop_keyspace(name).map(drop)
    }
}

/// Hands over the records of a leaf that was checked.
fn for_each_record(image: &[u8], each: &mut EachRecord<'_>) -> Result<()> {
    let leaf = plain_leaf::<Hints>(image);
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
