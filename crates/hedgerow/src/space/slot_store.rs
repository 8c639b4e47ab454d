//! The file's slots as the buffer pool uses them: allocate, write, record, read.
//!
//! Rank 2. A [`SlotStore`] joins the data structures of this module ([`Zones`], [`Deltas`], the map's
//! root) with the file, and does for them what they ask for: it extends the file and reads parts with
//! nothing locked. One mutex, which comes last in the latch order, guards all of them; no I/O is done
//! under it. `Send + Sync`.
//!
//! Invariants: what is recorded for a page (its image's slot) is already written, though not synced; the
//! delta of an epoch, the quarantine and the bitmaps change together.

use super::image::{self, PageForm};
use super::{due::Due, file_sync::FileSync, large::ExtentIo, owed::Owed, room::Room};
use crate::checksum::page_checksum;
use crate::error::{Error, ErrorKind, Result};
use crate::events::{Stall, WaitsFor};
use crate::page::header;
use crate::space::audit::SpaceReport;
use crate::space::delta::{Deltas, TakenDelta};
use crate::space::geometry::{Geometry, is_image_len};
use crate::space::map::{MapRoot, MapView, PartIo};
use crate::space::part::{self, PartBytes};
use crate::space::table::LoadGroup;
use crate::space::zones::{Growth, Zones};
use crate::storage::{AlignedBuffer, File, ReadRequest};
use crate::types::{Epoch, PART_BYTES, PART_HEADER_WORDS, PART_WORDS, PageId, Slot};
use crate::wait::Waiting;
use hedgerow_sync::primitive::atomic::Ordering::{AcqRel, Acquire, Release};
use hedgerow_sync::primitive::atomic::{AtomicBool, AtomicUsize};
use hedgerow_sync::primitive::figure::Figure;
use hedgerow_sync::primitive::{Arc, Condvar, Mutex, MutexGuard};
use std::fmt;
use std::time::Duration;

/// How long a writer waits for room for deltas before it gives up, and how long before it looks again. Waits that were cut short
/// count as whole.
const LONGEST_DELTA_WAIT: Duration = Duration::from_secs(60);
const DELTA_WAIT: Duration = Duration::from_millis(100);

/// How long a writer waits for a checkpoint to end before it takes an older one's failure for the answer: nobody
/// may be there to take one.
const OLD_FAILURE_WAIT: Duration = Duration::from_secs(2);

/// What the mutex guards.
pub struct SpaceState {
    /// The allocator.
    pub zones: Zones,
    /// The page map's changes.
    pub deltas: Deltas,
    /// What the checkpoint under way waits for; shared with the buffer pool.
    pub owed: Arc<Owed>,
    /// The map of the last durable checkpoint.
    pub map: MapRoot,
    /// The last durable checkpoint.
    pub checkpoint: Epoch,
}

impl SpaceState {
    /// The durable map, to read.
    pub fn map_view(&self) -> MapView {
        MapView {
            root: self.map,
            checkpoint: self.checkpoint,
            geometry: self.zones.geometry(),
            units: self.zones.unit_count(),
        }
    }
}

/// See the head of the file.
pub struct SlotStore {
    file: Arc<dyn File>,
    pub(super) syncs: FileSync,
    page_bytes: usize,
    /// How the file is cut up; it never changes.
    geometry: Geometry,
    form: PageForm,
    state: Mutex<SpaceState>,
    /// Held by who makes the file longer, with nothing else.
    pub(super) extending: Mutex<()>,
    pub(super) room: Room,
    pub(super) extents: ExtentIo,
    full: AtomicBool,
    /// Images recorded since the last checkpoint took those before.
    images: Figure,
    /// Of these, images of the epoch after that of the checkpoint under way.
    later_images: Figure,
    /// Those that the checkpoint under way has taken.
    taken_images: Figure,
    /// How many creations of keyspaces keep checkpoints out, so that nobody may wait for one.
    unhindered: AtomicUsize,
    /// How the last checkpoint ended, for those who wait for room that it was to make.
    outcome: Mutex<Outcome>,
    ended: Condvar,
    pub(super) due: Due,
    /// A checkpoint is under way, from its cut to its end.
    pub(super) is_running: AtomicBool,
    /// There is a thread that takes checkpoints.
    pub(super) is_attended: AtomicBool,
}

/// How the last checkpoint ended.
#[derive(Default)]
struct Outcome {
    /// How many have ended.
    count: u64,
    failure: Option<Error>,
}

impl fmt::Debug for SlotStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlotStore").field("file", &self.file).finish_non_exhaustive()
    }
}

impl SlotStore {
    /// Joins a file with what is known of its space.
    pub fn new(
        file: Arc<dyn File>,
        page_bytes: usize,
        form: PageForm,
        state: SpaceState,
    ) -> SlotStore {
        SlotStore {
            file,
            syncs: FileSync::default(),
            page_bytes,
            geometry: state.zones.geometry(),
            form,
            room: Room::new(&state.zones),
            extents: ExtentIo::default(),
            state: Mutex::new(state),
            extending: Mutex::new(()),
            full: AtomicBool::new(false),
            images: Figure::new(0),
            later_images: Figure::new(0),
            taken_images: Figure::new(0),
            unhindered: AtomicUsize::new(0),
            outcome: Mutex::new(Outcome::default()),
            ended: Condvar::new(),
            due: Due::default(),
            is_running: AtomicBool::new(false),
            is_attended: AtomicBool::new(false),
        }
    }

    /// The file.
    pub fn file(&self) -> &Arc<dyn File> {
        &self.file
    }

    /// How the file is cut up.
    #[inline]
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// What the checkpoint under way is owed.
    pub fn owed(&self) -> Arc<Owed> {
        self.state.lock().owed.clone()
    }

    /// Allocator, deltas and map, locked. No I/O under it.
    pub fn state(&self) -> MutexGuard<'_, SpaceState> {
        self.state.lock()
    }

    /// Takes a slot for an image of each of these lengths: index and offset of each, in the order in which they are best
    /// written. Extends the file, and reads bitmaps, as needed.
    ///
    /// Errors: as of [`Self::allocate`].
    pub fn allocate_images(&self, lens_bytes: &[u32]) -> Result<Vec<(usize, u64)>> {
        let mut places = Vec::with_capacity(lens_bytes.len());
        let (mut growth, mut refusal) = (Growth::Allowed, None);
        loop {
            let want = self.state.lock().zones.allocate_images(lens_bytes, growth, &mut places);
            match want {
                Ok(()) => return Ok(places),
                Err(want) => self.provide(want, &mut growth, &mut refusal)?,
            }
        }
    }

    /// Takes `count` slots of `len_bytes`; extends the file, and reads bitmaps, as needed.
    ///
    /// Errors: `DiskFull`; `Io`; `Corrupted` if a part of the zone table is damaged. Nothing is taken then.
    pub fn allocate(&self, count: usize, len_bytes: u64) -> Result<Vec<u64>> {
        let mut offsets = Vec::with_capacity(count);
        let mut growth = Growth::Allowed;
        let mut refusal = None;
        let len = u32::try_from(len_bytes).expect("a slot is shorter than 4 GiB");
        loop {
            let want = self.state.lock().zones.allocate(len, count, growth, &mut offsets);
            match want {
                Ok(()) => return Ok(offsets),
                Err(want) => self.provide(want, &mut growth, &mut refusal)?,
            }
        }
    }

    /// Reads one group's bitmaps.
    pub fn load_group(&self, group: LoadGroup) -> Result<()> {
        let mut bytes = part::new_bytes();
        let read = PartFile::new(self)?.read(group.slot, &mut bytes);
        let mut state = self.state.lock();
        match read {
            Ok(()) => state.zones.load_group(group, &bytes),
            // A checkpoint has moved the part meanwhile, and the file was cut there.
            Err(_) if !state.zones.is_wanted(group) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The durable words of one part of the page table; `None` if the map has no such part.
    pub fn read_map_part(&self, index: usize) -> Result<Option<Box<[u64; PART_WORDS]>>> {
        let leaf = u32::try_from(index).expect("parts are fewer than page ids");
        let mut bytes = part::new_bytes();
        loop {
            let view = self.state.lock().map_view();
            match view.leaf(leaf, &mut PartFile::new(self)?, &mut bytes) {
                Ok(true) => break,
                Ok(false) => return Ok(None),
                // Nothing keeps a checkpoint from becoming durable meanwhile, and the slots of the map
                // that this one walks down from being written again: what looks like damage may be that.
                Err(_) if self.state.lock().checkpoint != view.checkpoint => {}
                Err(error) => return Err(error),
            }
        }
        let mut words = Box::new([0; PART_WORDS]);
        for (index, word) in words[PART_HEADER_WORDS..].iter_mut().enumerate() {
            *word = part::word(&bytes, index);
        }
        Ok(Some(words))
    }

    /// Gives back a slot whose image nobody refers to.
    pub fn discard(&self, slot: Slot) {
        let mut state = self.state.lock();
        state.zones.give_back(slot.offset_bytes(), slot.len_bytes() as u32);
    }

    /// Records that the image of `id` of `epoch` is in `slot`, in place of `old` (of `old_epoch`). `count` counts
    /// the page as clean: under the lock under which [`Owed`] is kept.
    pub fn image_written(
        &self,
        id: PageId,
        epoch: Epoch,
        slot: Slot,
        old: Slot,
        old_epoch: Epoch,
        count: impl FnOnce(),
    ) -> Result<()> {
        let mut state = self.state.lock();
        if !old.is_none() {
            state.zones.supersede(old, old_epoch, epoch)?;
        }
        state.deltas.record(epoch, id, slot);
        if !state.owed.image_written(epoch) {
            self.later_images.fetch_add(1, AcqRel);
        }
        count();
        self.images.fetch_add(1, AcqRel);
        self.after_record(&state);
        Ok(())
    }

    /// Records that a copy of `id` that was handed over to the checkpoint that has ended `epoch` is in `slot`, in
    /// place of `before`; or, if there is none, behind an image of the next epoch, or a tombstone.
    pub fn copy_written(
        &self,
        id: PageId,
        epoch: Epoch,
        slot: Slot,
        before: Option<(Slot, Epoch)>,
    ) -> Result<()> {
        let mut state = self.state.lock();
        match before {
            None => state.zones.supersede(slot, epoch, epoch.next())?,
            Some((Slot::NONE, _)) => {}
            Some((old, old_epoch)) => state.zones.supersede(old, old_epoch, epoch)?,
        }
        state.deltas.record(epoch, id, slot);
        self.images.fetch_add(1, AcqRel);
        self.after_record(&state);
        Ok(())
    }

    /// Records that `id` was freed in `epoch`; `old` was its last image.
    pub fn page_freed(&self, id: PageId, epoch: Epoch, old: Slot, old_epoch: Epoch) -> Result<()> {
        let mut state = self.state.lock();
        if !old.is_none() {
            state.zones.supersede(old, old_epoch, epoch)?;
        }
        state.deltas.record_freed(epoch, id);
        self.after_record(&state);
        Ok(())
    }

    pub(super) fn after_record(&self, state: &SpaceState) {
        if state.deltas.is_full() {
            self.full.store(true, Release);
        }
        if state.deltas.is_due() {
            self.request_unless_running();
        }
    }

    /// Whether there is no room for more changes of the map before a checkpoint.
    pub fn is_delta_full(&self) -> bool {
        self.full.load(Acquire)
    }

    /// Waits until there is room for changes of the map. The caller holds nothing. A failure of the past
    /// may have been put right (a full disk), so that only a checkpoint that ends from now on counts.
    ///
    /// Errors: why the checkpoint that was to make room failed; `Timeout` after a minute; those of `waiting`.
    #[inline]
    pub fn wait_for_delta_room(&self, waiting: &Waiting<'_>) -> Result<()> {
        if self.full.load(Acquire) { self.wait_for_checkpoint(waiting) } else { Ok(()) }
    }

    #[cold]
    fn wait_for_checkpoint(&self, waiting: &Waiting<'_>) -> Result<()> {
        let _stall = Stall::begin(WaitsFor::Checkpoint);
        let before = self.outcome.lock().count;
        let mut waited = Duration::ZERO;
        while waited < LONGEST_DELTA_WAIT {
            self.request_unless_running();
            let mut outcome = self.outcome.lock();
            if let Some(error) = &outcome.failure
                && (outcome.count != before || waited >= OLD_FAILURE_WAIT)
            {
                return Err(error.duplicate());
            }
            if !self.full.load(Acquire) || self.unhindered.load(Acquire) > 0 {
                return Ok(());
            }
            let most = waiting.nap_of(DELTA_WAIT)?;
            self.ended.wait_for(&mut outcome, most);
            waited += most;
        }
        Err(Error::new(
            ErrorKind::Timeout,
            "no checkpoint made room for changes within a minute; is checkpoint() ever called?",
        ))
    }

    /// Waits for a checkpoint to end that may give slots or segments of the log back. False: none will.
    ///
    /// Errors: why it failed; those of `waiting`.
    pub fn wait_for_next_checkpoint(&self, waiting: &Waiting<'_>) -> Result<bool> {
        self.wait_for_checkpoint_within(LONGEST_DELTA_WAIT, waiting)
    }

    /// The same, and waits for so long at most.
    pub fn wait_for_checkpoint_within(
        &self,
        longest: Duration,
        waiting: &Waiting<'_>,
    ) -> Result<bool> {
        let before = self.outcome.lock().count;
        let mut waited = Duration::ZERO;
        while waited < longest {
            if !self.is_attended.load(Acquire) || self.unhindered.load(Acquire) > 0 {
                return Ok(false);
            }
            self.request_checkpoint();
            let mut outcome = self.outcome.lock();
            if outcome.count != before {
                return outcome.failure.as_ref().map_or(Ok(true), |error| Err(error.duplicate()));
            }
            let most = waiting.nap_of(DELTA_WAIT)?;
            self.ended.wait_for(&mut outcome, most);
            waited += most;
        }
        Ok(false)
    }

    /// From now on somebody takes the checkpoints that are asked for.
    pub fn attend(&self) {
        self.is_attended.store(true, Release);
    }

    /// Lets writers pass while somebody keeps checkpoints from beginning; until the value is dropped.
    pub fn suspend_waits(&self) -> Unhindered<'_> {
        self.unhindered.fetch_add(1, AcqRel);
        Unhindered(self)
    }

    /// A checkpoint is under way until the value is dropped.
    pub fn checkpoint_begins(&self) -> Running<'_> {
        self.is_running.store(true, Release);
        Running(self)
    }

    /// Images recorded since the last checkpoint took those before.
    #[inline]
    pub fn images_since_checkpoint(&self) -> u64 {
        self.images.load(Acquire)
    }

    /// The same, and those that are in no durable checkpoint yet.
    pub fn images_not_durable(&self) -> u64 {
        self.images_since_checkpoint() + self.taken_images.load(Acquire)
    }

    /// Images recorded since the last checkpoint began, or the one under way: those that the next one will take.
    #[inline]
    pub fn images_for_next(&self) -> u64 {
        self.later_images.load(Acquire)
    }

    /// From now on all pages that are dirty are owed to the checkpoint that has ended `epoch`. Nobody changes
    /// any meanwhile.
    pub fn owe(&self, epoch: Epoch, dirty: impl FnOnce() -> usize) {
        let state = self.state.lock();
        state.owed.begin(epoch, dirty());
        self.later_images.store(0, Release);
    }

    /// Takes the changes of all epochs up to `epoch`.
    pub fn take_delta(&self, epoch: Epoch) -> TakenDelta {
        let mut state = self.state.lock();
        let later = self.later_images.load(Acquire);
        self.taken_images.store(self.images.swap(later, AcqRel).saturating_sub(later), Release);
        state.zones.left_until_now();
        state.deltas.take(epoch)
    }

    /// Tells how a checkpoint ended to those who wait for it.
    pub fn checkpoint_ended(&self, outcome: Result<(), &Error>) {
        let mut last = self.outcome.lock();
        last.count += 1;
        last.failure = outcome.err().map(Error::duplicate);
        let taken = self.taken_images.swap(0, AcqRel);
        if last.failure.is_some() {
            self.images.fetch_add(taken, AcqRel);
        }
        if last.failure.is_none() {
            // Under the lock that changes are recorded under: one that fills the delta again comes
            // before this look at it, or sets the flag after it.
            let state = self.state.lock();
            self.full.store(state.deltas.is_full(), Release);
        }
        drop(last);
        self.ended.notify_all();
    }

    /// Whether a slot has the length of an image.
    pub fn is_image_slot(&self, slot: Slot) -> bool {
        is_image_len(
            slot.len_bytes(),
            self.page_bytes as u64,
            u64::from(self.geometry.unit_bytes()),
        )
    }

    /// Makes an image of a page, but for its checksum; returns its length. See [`image::fold`].
    pub fn fold(&self, page: &mut [u8]) -> usize {
        let (unit, form) = (self.geometry.unit_bytes() as usize, self.form);
        let begun = (form.gap)(page).len() % unit;
        (form.pack)(page, unit - begun);
        image::fold(page, (form.gap)(page), unit)
    }

    /// Makes the page `id` of what was read from `slot` to the beginning of `page`, if that is the image that the slot was
    /// made for, and a sound page. Else `page` is worth nothing.
    ///
    /// Errors: `Corrupted`, with the page and the slot's place.
    pub fn unfold(&self, id: PageId, slot: Slot, page: &mut [u8]) -> Result<()> {
        let damage = |what: String| {
            let offset = Some(slot.offset_bytes());
            Error::new(ErrorKind::Corrupted { page: Some(id), offset_bytes: offset }, what)
        };
        let len = slot.len_bytes() as usize;
        if page.len() != self.page_bytes || !self.is_image_slot(slot) {
            return Err(damage("its slot has a wrong length".into()));
        }
        let image = &page[..len];
        let stored = u64::from_le_bytes(image[..8].try_into().expect("eight bytes"));
        if stored != page_checksum(id, image) {
            return Err(damage("its checksum is wrong".into()));
        }
        if !slot.tag_matches(stored) {
            return Err(damage("an older image lies in its slot".into()));
        }
        if header::page_id(image) != id {
            return Err(damage(format!("its header says {}", header::page_id(image))));
        }
        image::unfold(page, len).map_err(damage)?;
        (self.form.check)(page).map_err(damage)
    }

    /// Reads the images of some pages, each into a page's length of `buffer`, and makes pages of them. The results are in
    /// the order of the pages, as many as there is room for.
    pub fn read_pages(&self, pages: &[(PageId, Slot)], buffer: &mut [u8]) -> Vec<Result<()>> {
        let mut requests: Vec<ReadRequest<'_>> = buffer
            .chunks_exact_mut(self.page_bytes)
            .zip(pages)
            .map(|(page, (_, slot))| {
                let len = (slot.len_bytes() as usize).min(self.page_bytes);
                ReadRequest::new(slot.offset_bytes(), &mut page[..len])
            })
            .collect();
        self.file.read_batch(&mut requests);
        let read: Vec<Result<()>> = requests.into_iter().map(|request| request.result).collect();
        let pages = buffer.chunks_exact_mut(self.page_bytes).zip(pages).zip(read);
        pages
            .map(|((page, (id, slot)), read)| read.and_then(|()| self.unfold(*id, *slot, page)))
            .collect()
    }

    /// Bytes of a page.
    pub fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// Accounts for the bytes of the file.
    pub fn report(&self) -> SpaceReport {
        self.state.lock().zones.report()
    }
}

/// See [`SlotStore::checkpoint_begins`].
#[must_use]
pub struct Running<'s>(&'s SlotStore);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.is_running.store(false, Release);
    }
}

/// See [`SlotStore::suspend_waits`].
#[must_use]
pub struct Unhindered<'s>(&'s SlotStore);

impl Drop for Unhindered<'_> {
    fn drop(&mut self) {
        self.0.unhindered.fetch_sub(1, AcqRel);
    }
}

/// Parts of the map and of the zone table, read from and written to the file: what walking and
/// rewriting the map needs. Holds one aligned buffer; used by one thread.
pub struct PartFile<'s> {
    slots: &'s SlotStore,
    buffer: AlignedBuffer,
    /// A write has failed, and not for want of room.
    pub has_failed_to_write: bool,
}

impl<'s> PartFile<'s> {
    /// Over the file of `slots`.
    pub fn new(slots: &'s SlotStore) -> Result<PartFile<'s>> {
        let buffer = AlignedBuffer::zeroed(PART_BYTES)?;
        Ok(PartFile { slots, buffer, has_failed_to_write: false })
    }

    /// Makes sure that the bitmaps around a slot are in memory.
    fn load_around(&self, slot: Slot) -> Result<()> {
        let wanted = self.slots.state.lock().zones.group_to_load(slot)?;
        wanted.map_or(Ok(()), |group| self.slots.load_group(group))
    }
}

impl PartIo for PartFile<'_> {
    fn read(&mut self, slot: Slot, out: &mut PartBytes) -> Result<()> {
        self.slots.file.read_at(slot.offset_bytes(), &mut self.buffer)?;
        out.copy_from_slice(&self.buffer);
        Ok(())
    }

    fn allocate(&mut self) -> Result<u64> {
        let offsets = self.slots.allocate(1, PART_BYTES as u64)?;
        Ok(offsets[0])
    }

    fn write(&mut self, offset_bytes: u64, part: &PartBytes) -> Result<()> {
        self.buffer.copy_from_slice(part);
        self.slots.file.write_at(offset_bytes, &self.buffer).inspect_err(|error| {
            self.has_failed_to_write |= error.kind() != ErrorKind::DiskFull;
        })
    }

    fn entered(&mut self, slot: Slot) -> Result<()> {
        self.load_around(slot)?;
        self.slots.state.lock().zones.refer(slot)
    }

    fn left(&mut self, slot: Slot) -> Result<()> {
        self.load_around(slot)?;
        self.slots.state.lock().zones.unrefer(slot)
    }

    fn part_entered(&mut self, slot: Slot) -> Result<()> {
        self.load_around(slot)?;
        self.slots.state.lock().zones.refer_part(slot)
    }

    fn part_left(&mut self, slot: Slot, born: Epoch) -> Result<()> {
        self.load_around(slot)?;
        self.slots.state.lock().zones.unrefer_part(slot, born)
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::space::geometry::Geometry;
    use crate::storage::{DirectIo, Disk, OpenMode};
    use crate::testing::RamDisk;
    use hedgerow_sync::primitive::thread;
    use std::path::Path;

    /// A store whose deltas are full: there is one change, and room for none.
    fn full() -> Arc<SlotStore> {
        let file = RamDisk::new().open(Path::new("f"), OpenMode::CreateNew, DirectIo::Never);
        let state = SpaceState {
            zones: Zones::create(Geometry::for_new_store(4096, 1).unwrap()),
            deltas: Deltas::new(0),
            owed: Arc::default(),
            map: MapRoot::EMPTY,
            checkpoint: Epoch(0),
        };
        let slots =
            Arc::new(SlotStore::new(file.unwrap(), 4096, PageForm::whole(|_| Ok(())), state));
        slots.page_freed(PageId(4), Epoch(1), Slot::NONE, Epoch(0)).unwrap();
        slots
    }

    fn fails(slots: &SlotStore) {
        slots.checkpoint_ended(Err(&Error::new(ErrorKind::DiskFull, "no room")));
    }

    fn goes_well(slots: &SlotStore) {
        let taken = slots.take_delta(Epoch(1));
        slots.state().deltas.done(&taken);
        slots.checkpoint_ended(Ok(()));
    }

    /// Waits for room while another thread ends one checkpoint that was asked for.
    fn wait_while(slots: &Arc<SlotStore>, checkpoint: fn(&SlotStore)) -> Result<()> {
        let other = slots.clone();
        let taken = thread::spawn_named("checkpoint", move || {
            assert!(other.wait_until_wanted());
            checkpoint(&other);
        });
        // Asked for when the change was recorded, and again by whoever waits.
        let waited = slots.wait_for_delta_room(&Waiting::Forever);
        taken.unwrap().join().unwrap();
        waited
    }

    #[test]
    fn a_writer_is_told_of_a_new_failure_and_not_of_one_that_was_put_right() {
        let slots = full();
        assert!(slots.wait_until_wanted());
        fails(&slots);
        let again = wait_while(&slots, fails).unwrap_err();
        assert_eq!(again.kind(), ErrorKind::DiskFull);
        wait_while(&slots, goes_well).unwrap();
        slots.wait_for_delta_room(&Waiting::Forever).unwrap();
    }

    #[test]
    fn an_old_failure_is_the_answer_where_nobody_takes_checkpoints() {
        let slots = full();
        fails(&slots);
        assert_eq!(
            slots.wait_for_delta_room(&Waiting::Forever).unwrap_err().kind(),
            ErrorKind::DiskFull
        );
    }

    #[test]
    fn waiting_for_room_in_deltas_and_for_a_truncation_go_together() {
        let slots = full();
        let offset = slots.allocate(1, 4096).unwrap()[0];
        slots.discard(crate::space::part::slot_at(offset, 0));
        slots.state().zones.begin_truncate(0, 0, 0).unwrap();
        let start = |name, work: fn(&SlotStore)| {
            let slots = slots.clone();
            thread::spawn_named(name, move || work(&slots)).unwrap()
        };
        let writer = start("writer", |slots| slots.wait_for_delta_room(&Waiting::Forever).unwrap());
        let allocator = start("allocator", |slots| drop(slots.allocate(1, 4096).unwrap()));
        thread::sleep(Duration::from_millis(50));
        slots.file().set_len(crate::space::geometry::HEADER_REGION_BYTES).unwrap();
        slots.state().zones.end_truncate(true);
        allocator.join().unwrap();
        goes_well(&slots);
        writer.join().unwrap();
    }
}
