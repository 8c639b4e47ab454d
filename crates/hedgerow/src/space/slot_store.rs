//! The file's slots as the buffer pool uses them: write, record, read.
//!
//! Rank 2. A [`SlotStore`] joins the data structures of this module ([`Zones`], [`Deltas`], the map's
//! root) with the file. One mutex, which comes last in the latch order, guards all of them; no I/O is done
//! under it. Beside them it has parts with locks of their own, which do not know it: [`Checkpoints`], [`Staging`] (which frees units with its own lock held) and the like.
//! What takes several steps stands in files above this one: getting slots ([`super::extend`]), making room ([`super::make_room`]),
//! parts of the map ([`super::part_file`]), extents (`large/store.rs`). `Send + Sync`.
//!
//! Invariants: what is recorded for a page (its image's slot) is already written, though not synced; the
//! delta of an epoch, the quarantine and the bitmaps change together.

use super::checkpoints::Checkpoints;
use super::file_sync::FileSync;
use super::image::{self, PageForm};
use super::image_counts::ImageCounts;
use super::large::{Door, Loans, Staging};
use super::owed::Owed;
use super::room::Room;
use crate::checksum::page_checksum;
use crate::error::{Error, ErrorKind, Result};
use crate::large::Run;
use crate::page::header;
use crate::space::audit::SpaceReport;
use crate::space::delta::{Deltas, TakenDelta};
use crate::space::geometry::{Geometry, is_image_len};
use crate::space::map::{MapRoot, MapView};
use crate::space::part;
use crate::space::table_part::LoadGroup;
use crate::space::zones::Zones;
use crate::storage::{AlignedBuffer, File, ReadRequest};
use crate::types::{Epoch, PART_BYTES, PageId, Slot};
use hedgerow_sync::primitive::atomic::AtomicBool;
use hedgerow_sync::primitive::{Arc, Mutex, MutexGuard};
use std::fmt;

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

/// Slots that are freed with the state locked.
pub const FREED_AT_ONCE: usize = 512;

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
    syncs: FileSync,
    page_bytes: usize,
    /// How the file is cut up; it never changes.
    geometry: Geometry,
    form: PageForm,
    state: Arc<Mutex<SpaceState>>,
    /// Held by who makes the file longer, with nothing else.
    pub(super) extending: Mutex<()>,
    pub(super) room: Room,
    pub(super) images: ImageCounts,
    checkpoints: Checkpoints,
    /// There may be records in a stored form. Set before the first is put, and never cleared.
    pub(super) stored_forms: AtomicBool,
    /// Whether keys in leaves may have labels.
    pub(super) long_keys: AtomicBool,
    pub(super) door: Arc<Door>,
    pub(super) loans: Arc<Loans>,
    staging: Arc<Staging>,
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
        let geometry = state.zones.geometry();
        let (door, loans) = (Arc::new(Door::default()), Arc::new(Loans::default()));
        let room = Room::new(&state.zones, page_bytes);
        let state = Arc::new(Mutex::new(state));
        let of = state.clone();
        let free = Box::new(move |runs: &[Run]| of.lock().zones.discard_extent(runs));
        let staging = Staging::new(file.clone(), geometry, door.clone(), loans.clone(), free);
        SlotStore {
            file,
            syncs: FileSync::default(),
            page_bytes,
            geometry,
            form,
            room,
            state,
            extending: Mutex::new(()),
            images: ImageCounts::new(),
            checkpoints: Checkpoints::default(),
            stored_forms: AtomicBool::new(false),
            long_keys: AtomicBool::new(false),
            door,
            loans,
            staging: Arc::new(staging),
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

    /// Its checkpoints, for those who want one, and for the thread that takes them.
    #[inline]
    pub fn checkpoints(&self) -> &Checkpoints {
        &self.checkpoints
    }

    /// Large values on their way to the file.
    pub fn staging(&self) -> &Arc<Staging> {
        &self.staging
    }

    /// From now on there are threads: one that takes the checkpoints that are asked for, and one that writes what is staged.
    pub fn attend(&self) {
        self.checkpoints.attend();
        self.staging.allow_thread(true);
    }

    /// The store closes: nobody takes checkpoints any more.
    pub fn close(&self) {
        self.staging.allow_thread(false);
        self.checkpoints.close();
    }

    /// Makes what is written to the file durable, and what it takes to read it again.
    ///
    /// Errors: those of the sync, or of an earlier one that has failed: nothing more can be made durable then.
    pub fn sync_data(&self) -> Result<()> {
        self.syncs.run(|| self.file.sync_data())
    }

    /// The same, with all that is known of the file.
    pub fn sync_all(&self) -> Result<()> {
        self.syncs.run(|| self.file.sync_all())
    }

    /// What the checkpoint under way is owed.
    pub fn owed(&self) -> Arc<Owed> {
        self.state.lock().owed.clone()
    }

    /// Allocator, deltas and map, locked. No I/O under it.
    pub fn state(&self) -> MutexGuard<'_, SpaceState> {
        self.state.lock()
    }

    /// Reads one group's bitmaps.
    pub fn load_group(&self, group: LoadGroup) -> Result<()> {
        let (mut buffer, mut bytes) = (AlignedBuffer::zeroed(PART_BYTES)?, part::new_bytes());
        let read = self.file.read_at(group.slot.offset_bytes(), &mut buffer);
        let mut state = self.state.lock();
        match read {
            Ok(()) => {
                bytes.copy_from_slice(&buffer);
                state.zones.load_group(group, &bytes)
            }
            // A checkpoint has moved the part meanwhile, and the file was cut there.
            Err(_) if !state.zones.is_wanted(group) => Ok(()),
            Err(error) => Err(error),
        }
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
            self.images.record_later();
        }
        count();
        self.images.record();
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
        self.images.record();
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
            self.checkpoints.set_delta_full(true);
        }
        if state.deltas.is_due() {
            self.checkpoints.request_unless_running();
        }
    }

    /// Images recorded since the last checkpoint took those before.
    #[inline]
    pub fn images_since_checkpoint(&self) -> u64 {
        self.images.since_checkpoint()
    }

    /// The same, and those that are in no durable checkpoint yet.
    pub fn images_not_durable(&self) -> u64 {
        self.images.not_durable()
    }

    /// Images recorded since the last checkpoint began, or the one under way: those that the next one will take.
    #[inline]
    pub fn images_for_next(&self) -> u64 {
        self.images.for_next()
    }

    /// From now on all pages that are dirty are owed to the checkpoint that has ended `epoch`. Nobody changes
    /// any meanwhile.
    pub fn owe(&self, epoch: Epoch, dirty: impl FnOnce() -> usize) {
        let mut state = self.state.lock();
        state.zones.quarantine.checkpoint_begun(epoch);
        state.owed.begin(epoch, dirty());
        self.images.cut();
    }

    /// Takes the changes of all epochs up to `epoch`.
    pub fn take_delta(&self, epoch: Epoch) -> TakenDelta {
        let mut state = self.state.lock();
        self.images.take();
        state.zones.extents.left_until_now();
        state.deltas.take(epoch)
    }

    /// The checkpoint that was begun failed before anything of its superblock was written: the next one takes what it has taken, if
    /// it came to that.
    pub fn abandon_checkpoint(&self, taken: Option<TakenDelta>) {
        let mut state = self.state.lock();
        state.zones.abort_checkpoint();
        if let Some(taken) = taken {
            state.deltas.put_back(taken);
        }
        drop(state);
        while self.state.lock().zones.free_ripe(FREED_AT_ONCE) {}
    }

    /// Tells how a checkpoint ended to those who wait for it.
    pub fn checkpoint_ended(&self, outcome: Result<(), &Error>) {
        self.checkpoints.ended(outcome, || {
            self.images.ended(outcome.is_ok());
            if outcome.is_ok() {
                // Under the lock that changes are recorded under: one that fills the delta again comes
                // before this look at it, or sets the flag after it.
                let state = self.state.lock();
                self.checkpoints.set_delta_full(state.deltas.is_full());
            }
        });
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

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::storage::{DirectIo, Disk, OpenMode};
    use crate::testing::RamDisk;
    use crate::wait::Waiting;
    use hedgerow_sync::primitive::thread;
    use std::path::Path;
    use std::time::Duration;

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
            assert!(other.checkpoints().wait_until_wanted());
            checkpoint(&other);
        });
        // Asked for when the change was recorded, and again by whoever waits.
        let waited = slots.checkpoints().wait_for_delta_room(&Waiting::Forever);
        taken.unwrap().join().unwrap();
        waited
    }

    #[test]
    fn a_writer_is_told_of_a_new_failure_and_not_of_one_that_was_put_right() {
        let slots = full();
        assert!(slots.checkpoints().wait_until_wanted());
        fails(&slots);
        let again = wait_while(&slots, fails).unwrap_err();
        assert_eq!(again.kind(), ErrorKind::DiskFull);
        wait_while(&slots, goes_well).unwrap();
        slots.checkpoints().wait_for_delta_room(&Waiting::Forever).unwrap();
    }

    #[test]
    fn an_old_failure_is_the_answer_where_nobody_takes_checkpoints() {
        let slots = full();
        fails(&slots);
        assert_eq!(
            slots.checkpoints().wait_for_delta_room(&Waiting::Forever).unwrap_err().kind(),
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
        let writer = start("writer", |slots| {
            slots.checkpoints().wait_for_delta_room(&Waiting::Forever).unwrap()
        });
        let allocator = start("allocator", |slots| drop(slots.allocate(1, 4096).unwrap()));
        thread::sleep(Duration::from_millis(50));
        slots.file().set_len(crate::space::geometry::HEADER_REGION_BYTES).unwrap();
        slots.state().zones.end_truncate(true);
        allocator.join().unwrap();
        goes_well(&slots);
        writer.join().unwrap();
    }
}
