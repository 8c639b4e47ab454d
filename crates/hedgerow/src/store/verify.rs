//! Verification: reads everything there is and says all that is wrong with it.
//!
//! Of a store that is open for writing a checkpoint is taken and pinned, and checked as the file has it, while
//! writers, checkpoints and shrinking go on. It is opened beside the store, with a pool of its own of the smallest
//! size, and goes through six passes:
//! 1. the parts of the page map and of the zone table, by their checksums and their names;
//! 2. the image of every page in the file, read past the pool: checksum, name, content;
//! 3. every tree from its root, through the pool: order, fences, links, levels;
//! 4. large values, in the trees that pass 3 has walked: where they lie, and each chunk;
//! 5. the books: no two images overlap, what is referred to and what is held are the same bytes, every
//!    page that is in use is reached from a root exactly once, header + used + free + quarantined = file;
//! 6. long keys, whose order the trees alone do not show.
//!
//! Then the four blocks of the superblocks, as the file has them now.
//! And what only memory has: each page in the store's own pool (its name and its content), the figures of the
//! allocator against its bitmaps, and, if nothing was changed meanwhile, whether it holds just what the checkpoint
//! refers to.
//!
//! A store that is open for reading is checked by the six passes through its own pool, which has what the log
//! has changed. So is one in memory, while its writers are kept out.
//!
//! Damage is a finding, and so is a place that cannot be read, and the check goes on; an error is only what keeps it from
//! going on. Memory: a bit for each unit of the file and two for each page id, and that of the second pool: the least that
//! works, and eight bytes for each page id.

use super::backup::{Progress, cancelled};
use super::open::read_all_superblocks;
use super::pin::Pin;
use super::{PoolTree, Shared};
use crate::error::{Error, ErrorKind, Result, Signal};
use crate::node;
use crate::page::Values;
use crate::page::header::{self, PageKind};
use crate::space::geometry::Geometry;
use crate::space::map::PartIo;
use crate::space::part;
use crate::space::part_file::PartFile;
use crate::space::slot_store::SlotStore;
use crate::storage::AlignedBuffer;
use crate::tree::TreeDefect;
use crate::types::{PART_BYTES, PageId, Slot};
use hedgerow_sync::primitive::thread;
use hedgerow_sync::primitive::time::Moment;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::ControlFlow;
use std::time::Duration;

/// One defect that [`Database::verify`](crate::Database::verify) found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifyFinding {
    /// The page that is damaged, if the defect is about one page.
    pub page: Option<PageId>,
    /// Where the damage is in the file, in bytes, if that is known.
    pub offset_bytes: Option<u64>,
    /// The keyspace that the page belongs to, if it was found through one.
    pub keyspace: Option<String>,
    /// What is wrong, as a sentence for people. It holds no keys or values.
    pub what: String,
}

impl fmt::Display for VerifyFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(keyspace) = &self.keyspace {
            write!(f, "keyspace {keyspace:?}: ")?;
        }
        if let Some(page) = self.page {
            write!(f, "{page}: ")?;
        }
        if let Some(offset) = self.offset_bytes {
            write!(f, "at byte {offset}: ")?;
        }
        f.write_str(&self.what)
    }
}

/// What [`Database::verify`](crate::Database::verify) has read, and what is wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "damage is listed in the report, and is no error"]
#[non_exhaustive]
pub struct VerifyReport {
    /// Pages that were read from the file and checked.
    pub pages: u64,
    /// Keyspaces whose trees were checked.
    pub keyspaces: u64,
    /// Pages that were reached from the root of a tree.
    pub reached: u64,
    /// Large values that were read and checked.
    pub large_values: u64,
    /// Their length in bytes.
    pub large_value_bytes: u64,
    /// The defects, at most [`VerifyReport::MOST_FINDINGS`] of them. Empty for a sound store.
    pub findings: Vec<VerifyFinding>,
    /// Number of further defects that `findings` does not list.
    pub more_findings: u64,
}

impl VerifyReport {
    /// The most findings that a report lists. Further ones are only counted, so that a damaged file cannot make the report take
    /// any amount of memory.
    pub const MOST_FINDINGS: usize = 10_000;

    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }

    /// Number of all defects, whether they are listed or not.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.findings.len() as u64 + self.more_findings
    }

    pub(super) fn add(
        &mut self,
        page: Option<PageId>,
        offset_bytes: Option<u64>,
        what: impl Into<String>,
    ) {
        if self.findings.len() == Self::MOST_FINDINGS {
            self.more_findings += 1;
            return;
        }
        let what = what.into();
        self.findings.push(VerifyFinding { page, offset_bytes, keyspace: None, what });
    }

    /// An error that is damage becomes a finding, and so does one of a place that cannot be read; any other ends the check.
    /// `page` and `at`: what was being read.
    pub(super) fn take(
        &mut self,
        error: Error,
        page: Option<PageId>,
        at: Option<u64>,
    ) -> Result<()> {
        let (named, offset_bytes) = match error.kind() {
            ErrorKind::Corrupted { page, offset_bytes } => (page, offset_bytes),
            ErrorKind::Io if page.is_some() || at.is_some() || error.names_place() => (None, None),
            _ => return Err(error),
        };
        self.add(named.or(page), offset_bytes.or(at), error.message());
        Ok(())
    }

    /// [`Self::take`], of a pass that reads again what an earlier one has read: damage is a finding of that one, but what the disk
    /// does not give now it may have given then.
    pub(super) fn take_later(&mut self, error: Error, page: Option<PageId>) -> Result<()> {
        if is_damage(&error) { Ok(()) } else { self.take(error, page, None) }
    }
}

/// A set of numbers, most of them below a limit. What a damaged page names may be far beyond it, and must not make the
/// set as large as that.
pub(super) struct BitSet {
    words: Vec<u64>,
    limit: u64,
    beyond: BTreeSet<u64>,
}

impl BitSet {
    pub(super) fn new(limit: u64) -> BitSet {
        BitSet { words: Vec::new(), limit, beyond: BTreeSet::new() }
    }

    /// Adds a number; false if it was there.
    fn insert(&mut self, at: u64) -> bool {
        if at >= self.limit {
            return self.beyond.insert(at);
        }
        let word = (at / 64) as usize;
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        let fresh = self.words[word] >> (at % 64) & 1 == 0;
        self.words[word] |= 1 << (at % 64);
        fresh
    }

    /// Its numbers that are not in the other set, which has the same limit.
    fn without<'s>(&'s self, other: &'s BitSet) -> impl Iterator<Item = u64> + 's {
        let below = self.words.iter().enumerate().flat_map(|(index, word)| {
            let mut left = word & !other.words.get(index).copied().unwrap_or(0);
            std::iter::from_fn(move || {
                let lowest = (left != 0).then(|| left.trailing_zeros())?;
                left &= left - 1;
                Some(index as u64 * 64 + u64::from(lowest))
            })
        });
        below.chain(self.beyond.difference(&other.beyond).copied())
    }

    fn len(&self) -> u64 {
        let below: u64 = self.words.iter().map(|word| u64::from(word.count_ones())).sum();
        below + self.beyond.len() as u64
    }
}

/// Up to where a bit is kept of each page id below `end`, in a file of so many units: a byte a unit at most, because `end`
/// is what a superblock says.
fn dense_up_to(end: u64, units: Option<u64>) -> u64 {
    units.map_or(end, |units| end.min(units.saturating_mul(8)))
}

/// How long evictions may take to end, and how often they are looked at.
const LONGEST_EVICTION: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(1);
/// Pages read with one submission.
const BATCH: usize = 64;
/// Steps between two calls of the progress function.
const PROGRESS_STEPS: u64 = 256;

/// Counts the pages that were read, tells the caller, and learns whether to go on.
pub(super) struct Steps<'p> {
    /// None while writers are kept out: a progress function that writes would wait for itself.
    progress: Option<Progress<'p>>,
    steps: u64,
    pages: u64,
}

impl<'p> Steps<'p> {
    pub(super) fn new(progress: Option<Progress<'p>>) -> Steps<'p> {
        Steps { progress, steps: 0, pages: 0 }
    }

    /// A page was read. `Cancelled` if the caller wants no more.
    fn page(&mut self) -> Result<()> {
        self.pages += 1;
        self.piece()
    }

    /// A piece of a large value was read. `Cancelled` if the caller wants no more.
    pub(super) fn piece(&mut self) -> Result<()> {
        self.steps += 1;
        if !self.steps.is_multiple_of(PROGRESS_STEPS) {
            return Ok(());
        }
        match self.progress.as_mut().map(|progress| progress(self.pages)) {
            Some(ControlFlow::Break(())) => Err(cancelled()),
            Some(ControlFlow::Continue(())) | None => Ok(()),
        }
    }
}

/// Whether an error is a finding of an earlier pass.
fn is_damage(error: &Error) -> bool {
    use ErrorKind::{Corrupted, KeyspaceDropped};
    matches!(error.kind(), Corrupted { .. } | KeyspaceDropped)
        || error.signal() == Some(Signal::PageFreed)
}

impl Shared {
    /// What the catalogue names, for a pass that comes after the one that has verified it.
    pub(super) fn trees_to_verify(
        &self,
        report: &mut VerifyReport,
    ) -> Result<Vec<(String, PoolTree)>> {
        match self.catalogue.trees() {
            Ok(trees) => Ok(trees.into_iter().map(|(name, tree, _)| (name, tree)).collect()),
            Err(error) => report.take_later(error, None).map(|()| Vec::new()),
        }
    }

    /// See the head of the file.
    pub(super) fn verify(&self, progress: Progress<'_>) -> Result<VerifyReport> {
        if self.slots.is_none() || self.read_only {
            let mut report = self.verify_at_rest(progress)?;
            self.verify_superblocks(&mut report)?;
            return Ok(report);
        }
        let pin = self.pin()?;
        let verified = self.verify_pinned(&pin, progress);
        drop(pin);
        // Whoever closes unlocks the file, and somebody else may have written to it meanwhile.
        self.pool.check_open()?;
        verified
    }

    fn verify_pinned(&self, pin: &Pin, progress: Progress<'_>) -> Result<VerifyReport> {
        let mut report = VerifyReport::default();
        match pin.view() {
            Ok(view) => {
                report = view.shared.verify_at_rest(progress)?;
                // Nothing of what the store shares is looked at if `progress` has forked.
                self.check_process()?;
                self.verify_held(pin, view.space_report()?.used_bytes, &mut report);
            }
            Err(error) => report.take(error, None, None)?,
        }
        self.verify_resident(&mut report);
        let sound = pin.slots().state().zones.verify();
        sound.or_else(|error| report.take(error, None, None))?;
        self.verify_superblocks(&mut report)?;
        Ok(report)
    }

    /// Opening needs one sound block, so a damaged one beside it is noticed here or never.
    fn verify_superblocks(&self, report: &mut VerifyReport) -> Result<()> {
        let Some(slots) = &self.slots else { return Ok(()) };
        // `progress` may have forked.
        self.check_process()?;
        // No checkpoint is writing one of them.
        let _newest = self.checkpointing.lock();
        match read_all_superblocks(&**slots.file()) {
            Ok((chosen, unread)) => {
                for (offset, error) in &unread {
                    report.add(None, Some(*offset), format!("a copy of the superblock: {error}"));
                }
                let is_read = |offset: &u64| unread.iter().all(|(at, _)| at != offset);
                for offset in chosen.damaged.into_iter().filter(is_read) {
                    let what = "this copy of the superblock is damaged; the other one is sound, and an opening for \
                                writing or a checkpoint writes this one again";
                    report.add(None, Some(offset), what);
                }
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::Io => report.take(error, None, None),
            Err(error) => report.take(error, None, None).or_else(|error| {
                report.add(None, Some(0), error.message());
                Ok(())
            }),
        }
    }

    /// Whether the allocator holds as much as the checkpoint refers to, unless somebody has changed anything since.
    fn verify_held(&self, pin: &Pin, used_bytes: u64, report: &mut VerifyReport) {
        // No checkpoint is under way: those hold what nobody refers to yet.
        let newest = self.checkpointing.lock();
        // Evictions may be writing what the checkpoint has written as well, and give the slots back soon.
        let since = Moment::now();
        let under_way = || self.pool.images_under_way();
        while self.pool.dirty_pages() == 0 && under_way() > 0 && since.elapsed() < LONGEST_EVICTION
        {
            thread::sleep(PAUSE);
        }
        let state = pin.slots().state();
        // A page stays dirty until its image is recorded, under this lock: slots taken for images are seen here or
        // there, or under way.
        let unchanged = newest.superblock.checkpoint == pin.superblock().checkpoint
            && state.deltas.is_empty_to(self.pool.epochs().current())
            && self.pool.dirty_pages() == 0
            && under_way() == 0
            && state.zones.writing_units() == 0;
        let held_bytes = state.zones.report().used_bytes;
        drop(state);
        if report.is_clean() && unchanged && held_bytes != used_bytes {
            let what = format!(
                "{used_bytes} bytes of the file are in use, and the allocator holds {held_bytes}"
            );
            report.add(None, None, what);
        }
    }

    /// Checks the pages that are in memory, each by itself.
    fn verify_resident(&self, report: &mut VerifyReport) {
        self.pool.for_each_resident(&mut |id, page| {
            // One that was taken and has no content yet.
            if header::kind(page) == Some(PageKind::Free) {
                return;
            }
            let named = header::page_id(page);
            if named != id {
                report.add(Some(id), None, format!("in memory its header says {named}"));
            }
            for defect in node::check(page) {
                report.add(Some(id), None, format!("in memory: {defect}"));
            }
        });
    }

    /// The six passes, while nobody changes anything.
    fn verify_at_rest(&self, progress: Progress<'_>) -> Result<VerifyReport> {
        let mut report = VerifyReport::default();
        let mut steps = Steps::new(self.slots.is_some().then_some(progress));
        let _checkpointing = self.checkpointing.lock();
        self.pool.check_open()?;
        let _frozen = self.catalogue.freeze();
        // Writers that are kept out keep their places: the walk must not wait for one of those.
        let _ahead = self.pool.go_ahead();
        let _stopped = (!self.read_only).then(|| self.pool.epochs().stop());
        let units = self.slots.as_ref().map(|slots| {
            let state = slots.state();
            state.zones.report().file_bytes / u64::from(state.zones.geometry().unit_bytes())
        });
        let end = self.pool.ids().lock().next_id().map_or(1 << 32, |id| u64::from(id.0));
        let end = dense_up_to(end, units);
        let (mut used, mut in_use) = (BitSet::new(units.unwrap_or(0)), BitSet::new(end));
        if let Some(slots) = &self.slots {
            self.verify_parts(slots, &mut used, &mut report)?;
            self.verify_images(slots, &mut used, &mut in_use, &mut report, &mut steps)?;
        }
        let reached = self.verify_trees(BitSet::new(end), &mut report, &mut steps)?;
        if let Some(slots) = &self.slots {
            self.verify_extents(slots, &mut used, &mut report, &mut steps)?;
            self.verify_books(slots, &used, &in_use, &reached, &mut report)?;
        }
        if self.pool.has_stored_forms() {
            self.verify_long_keys(&mut report, &mut steps)?;
        }
        Ok(report)
    }

    /// Pass 1.
    fn verify_parts(
        &self,
        slots: &SlotStore,
        used: &mut BitSet,
        report: &mut VerifyReport,
    ) -> Result<()> {
        let view = slots.state().map_view();
        let mut parts = PartFile::new(slots)?;
        let mut seen = Vec::new();
        let mut see = |_, _, slot, _: &part::PartBytes| {
            seen.push(slot);
            Ok(())
        };
        view.for_each_sound_part(&mut parts, &mut see, &mut |_, _, slot, error| {
            report.take(error, None, Some(slot.offset_bytes()))
        })?;
        let groups = slots.state().zones.groups_to_load();
        for group in groups {
            let at = group.slot.offset_bytes();
            if let Err(error) = slots.load_group(group) {
                report.take(error, None, Some(at))?;
            }
        }
        seen.extend(slots.state().zones.table_slots());
        let mut bytes = part::new_bytes();
        let geometry = slots.state().zones.geometry();
        for slot in seen {
            if let Err(error) = parts.read(slot, &mut bytes) {
                report.take(error, None, Some(slot.offset_bytes()))?;
            }
            let units = u64::from(geometry.units_for(PART_BYTES as u32));
            occupy(geometry, slot.offset_bytes(), units, used, None, report);
        }
        Ok(())
    }

    /// Pass 2.
    fn verify_images(
        &self,
        slots: &SlotStore,
        used: &mut BitSet,
        in_use: &mut BitSet,
        report: &mut VerifyReport,
        steps: &mut Steps<'_>,
    ) -> Result<()> {
        let page_bytes = slots.page_bytes();
        let geometry = slots.state().zones.geometry();
        let end = self.pool.ids().lock().next_id();
        let mut buffer = AlignedBuffer::zeroed(BATCH * page_bytes)?;
        let mut batch: Vec<(PageId, Slot)> = Vec::with_capacity(BATCH);
        let mut next = Some(PageId::CATALOGUE_ROOT);
        while let Some(id) = next.filter(|id| end.is_none_or(|end| *id < end)) {
            match self.pool.slot_of(id) {
                Ok(Some(slot)) => {
                    in_use.insert(u64::from(id.0));
                    let units = u64::from(geometry.units_for(slot.len_bytes() as u32));
                    occupy(geometry, slot.offset_bytes(), units, used, Some(id), report);
                    batch.push((id, slot));
                }
                Ok(None) => {}
                Err(error) => {
                    // The part of the map is damaged, as pass 1 has said: none of its ids is known.
                    report.take(error, Some(id), None)?;
                    let last = PageId(id.0 | (crate::types::PART_WORDS as u32 - 1));
                    next = last.next();
                    continue;
                }
            }
            next = id.next();
            if batch.len() == BATCH {
                check_batch(slots, &mut batch, &mut buffer, report, steps)?;
            }
        }
        check_batch(slots, &mut batch, &mut buffer, report, steps)
    }

    /// Pass 3.
    fn verify_trees(
        &self,
        mut reached: BitSet,
        report: &mut VerifyReport,
        steps: &mut Steps<'_>,
    ) -> Result<BitSet> {
        let catalogue = self.catalogue.tree().clone();
        let mut trees = vec![(None, catalogue, false)];
        match self.catalogue.trees() {
            Ok(named) => trees.extend(
                named.into_iter().map(|(name, tree, dropping)| (Some(name), tree, dropping)),
            ),
            Err(error) => report.take(error, None, None)?,
        }
        for (name, tree, dropping) in trees {
            report.keyspaces += u64::from(name.is_some());
            let before = report.findings.len();
            let mut stopped = None;
            let mut visit = |page: PageId, defects: &[TreeDefect]| {
                report.reached += 1;
                let is_first = reached.insert(u64::from(page.0));
                let twice =
                    (!is_first).then(|| TreeDefect::Unreadable("it is reached twice".into()));
                // As they come: all those of a tree together might take any amount of memory.
                for defect in defects.iter().chain(&twice) {
                    report.add(Some(page), None, defect.to_string());
                }
                match steps.page() {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(error) => {
                        stopped = Some(error);
                        ControlFlow::Break(())
                    }
                }
            };
            let walked = if dropping {
                tree.verify_half_dropped(&mut visit)
            } else {
                tree.verify_with(&mut visit)
            };
            if let Some(error) = stopped {
                return Err(error);
            }
            if let Err(error) = walked {
                match error.kind() {
                    // A keyspace that is being dropped has lost its root already.
                    ErrorKind::KeyspaceDropped if dropping => {}
                    ErrorKind::KeyspaceDropped => {
                        report.add(Some(tree.root()), None, "the root is not in use");
                    }
                    _ => report.take(error, Some(tree.root()), None)?,
                }
            }
            for finding in &mut report.findings[before..] {
                finding.keyspace.clone_from(&name);
            }
        }
        Ok(reached)
    }

    /// Pass 5.
    fn verify_books(
        &self,
        slots: &SlotStore,
        used: &BitSet,
        in_use: &BitSet,
        reached: &BitSet,
        report: &mut VerifyReport,
    ) -> Result<()> {
        let intact = report.is_clean();
        // A bulk load under way has pages that nothing refers to yet; so has one that a crash cut
        // short, until the store is opened for writing.
        let complete = intact
            && match self.catalogue.loading() {
                Ok(loads) => loads.is_empty(),
                Err(error) => {
                    report.take(error, None, None)?;
                    false
                }
            };
        // What hangs below a damaged page is lost with it, which was said already.
        if complete {
            for id in in_use.without(reached) {
                report.add(Some(PageId(id as u32)), None, "it is in use, but no tree reaches it");
            }
        }
        let state = slots.state();
        if let Err(error) = state.zones.verify() {
            drop(state);
            return report.take(error, None, None);
        }
        let space = state.zones.report();
        let unit_bytes = u64::from(state.zones.geometry().unit_bytes());
        let writing = state.zones.writing_units();
        drop(state);
        let referred = used.len() * unit_bytes;
        // What pages of such a load refer to nobody reaches either.
        let known = referred + writing * unit_bytes;
        let is_wrong = if complete { known != space.used_bytes } else { known > space.used_bytes };
        if intact && is_wrong {
            let what = format!(
                "{referred} bytes of the file are referred to, {} are being written, {} are held",
                writing * unit_bytes,
                space.used_bytes
            );
            report.add(None, None, what);
        }
        let sum = space.accounted_bytes();
        if sum != space.file_bytes {
            let what = format!("{sum} bytes accounted for in a file of {}", space.file_bytes);
            report.add(None, None, what);
        }
        Ok(())
    }
}

/// Notes that units are in use; a finding if something else is there.
pub(super) fn occupy(
    geometry: Geometry,
    offset_bytes: u64,
    units: u64,
    used: &mut BitSet,
    page: Option<PageId>,
    report: &mut VerifyReport,
) {
    let Some(first) = geometry.unit_at(offset_bytes) else {
        return report.add(page, Some(offset_bytes), "its slot is outside of the file");
    };
    let mut overlaps = false;
    for unit in first..first + units {
        overlaps |= !used.insert(unit);
    }
    if overlaps {
        report.add(page, Some(offset_bytes), "its slot overlaps another one");
    }
}

/// Reads the images of a batch together and checks each.
fn check_batch(
    slots: &SlotStore,
    batch: &mut Vec<(PageId, Slot)>,
    buffer: &mut AlignedBuffer,
    report: &mut VerifyReport,
    steps: &mut Steps<'_>,
) -> Result<()> {
    batch.sort_unstable_by_key(|(_, slot)| slot.offset_bytes());
    let results = slots.read_pages(batch, buffer);
    for ((id, slot), read) in batch.drain(..).zip(results) {
        report.pages += 1;
        if let Err(error) = read {
            report.take(error, Some(id), Some(slot.offset_bytes()))?;
        }
        steps.page()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A forged child made a verification take 512 MiB, and a forged slot could have made it take any amount.
    #[test]
    fn a_set_is_not_as_large_as_the_numbers_that_damage_names() {
        let mut set = BitSet::new(1000);
        for at in [5, 999, 1000, 1 << 31] {
            assert!(set.insert(at) && !set.insert(at), "{at}");
        }
        assert_eq!((set.len(), set.words.len()), (4, 16));
    }

    /// A superblock that was forged with its checksum would have made it as large as all ids that there can be.
    #[test]
    fn of_as_many_ids_as_the_file_has_room_for_a_bit_is_kept_and_the_others_are_known_as_well() {
        assert_eq!(dense_up_to(1 << 32, Some(100)), 800);
        assert_eq!(dense_up_to(70, Some(100)), 70);
        assert_eq!(dense_up_to(70, None), 70);
        let [mut some, mut others] = [(); 2].map(|()| BitSet::new(800));
        for at in [0, 63, 64, 799, 800, 1 << 31] {
            some.insert(at);
        }
        for at in [5, 63, 800, 3000] {
            others.insert(at);
        }
        assert_eq!(some.without(&others).collect::<Vec<_>>(), [0, 64, 799, 1 << 31]);
        assert_eq!(others.without(&some).collect::<Vec<_>>(), [5, 3000]);
    }

    #[test]
    fn findings_beyond_the_most_are_counted_and_not_kept() {
        let mut report = VerifyReport::default();
        assert!(report.is_clean());
        for page in 1..=VerifyReport::MOST_FINDINGS as u32 + 3 {
            report.add(Some(PageId(page)), None, "damaged");
        }
        assert!(!report.is_clean());
        assert_eq!(report.findings.len(), VerifyReport::MOST_FINDINGS);
        assert_eq!(
            (report.more_findings, report.count()),
            (3, VerifyReport::MOST_FINDINGS as u64 + 3)
        );
        assert_eq!(report.findings.last().and_then(|last| last.page), Some(PageId(10_000)));
    }
}
