//! The slot store on a disk that fails or is full, with images and extents that lie, and beside checkpoints that end at
//! the wrong moment.

use super::forged::{assert_damage, open};
use super::image::PageForm;
use super::slot_store::{SlotStore, SpaceState};
use super::*;
use crate::checksum::page_checksum;
use crate::large::{Extent, Run};
use crate::page::header;
use crate::space::large::units_of_value;
use crate::storage::{DirectIo, Disk, File, LockOutcome, OpenMode, ReadRequest, WriteRequest};
use crate::testing::sim::{CallKind, Fault};
use crate::testing::{RamDisk, SimDisk};
use crate::types::{Purpose, TreeId};
use hedgerow_sync::primitive::{Arc, Mutex, thread, time::Moment};
use std::fmt;
use std::path::Path;
use std::time::Duration;

type Hook = Box<dyn FnOnce() -> Result<()> + Send>;

/// A file whose next read does something else first, and may fail then.
struct HookFile {
    file: Arc<dyn File>,
    next_read: Mutex<Option<Hook>>,
}

impl HookFile {
    fn before_next_read(&self, hook: impl FnOnce() -> Result<()> + Send + 'static) {
        *self.next_read.lock() = Some(Box::new(hook));
    }
}

impl fmt::Debug for HookFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HookFile")
    }
}

impl File for HookFile {
    fn read_at(&self, offset_bytes: u64, buf: &mut [u8]) -> Result<()> {
        let hook = self.next_read.lock().take();
        hook.map_or(Ok(()), |hook| hook())?;
        self.file.read_at(offset_bytes, buf)
    }

    fn write_at(&self, offset_bytes: u64, buf: &[u8]) -> Result<()> {
        self.file.write_at(offset_bytes, buf)
    }

    fn read_batch(&self, requests: &mut [ReadRequest<'_>]) {
        self.file.read_batch(requests);
    }

    fn write_batch(&self, requests: &[WriteRequest<'_>]) -> Result<()> {
        self.file.write_batch(requests)
    }

    fn len_bytes(&self) -> Result<u64> {
        self.file.len_bytes()
    }

    fn set_len(&self, len_bytes: u64) -> Result<()> {
        self.file.set_len(len_bytes)
    }

    fn allocate(&self, offset_bytes: u64, len_bytes: u64) -> Result<()> {
        self.file.allocate(offset_bytes, len_bytes)
    }

    fn punch_hole(&self, offset_bytes: u64, len_bytes: u64) -> Result<bool> {
        self.file.punch_hole(offset_bytes, len_bytes)
    }

    fn sync_data(&self) -> Result<()> {
        self.file.sync_data()
    }

    fn sync_all(&self) -> Result<()> {
        self.file.sync_all()
    }

    fn allocated_bytes(&self) -> Result<u64> {
        self.file.allocated_bytes()
    }

    fn block_bytes(&self) -> usize {
        self.file.block_bytes()
    }

    fn try_lock(&self, exclusive: bool) -> Result<LockOutcome> {
        self.file.try_lock(exclusive)
    }

    fn is_at(&self, path: &Path) -> Result<bool> {
        self.file.is_at(path)
    }

    fn unlock(&self) -> Result<()> {
        self.file.unlock()
    }

    fn read_unaligned(&self, offset_bytes: u64, buf: &mut [u8]) -> Result<()> {
        self.file.read_unaligned(offset_bytes, buf)
    }
}

fn new_file(disk: &dyn Disk) -> Arc<dyn File> {
    disk.open(Path::new("f"), OpenMode::CreateNew, DirectIo::Never).unwrap()
}

fn state(zones: Zones, delta_bytes: usize) -> SpaceState {
    SpaceState {
        zones,
        deltas: Deltas::new(delta_bytes),
        owed: Arc::default(),
        map: MapRoot::EMPTY,
        checkpoint: Epoch(0),
    }
}

fn store_over(file: Arc<dyn File>, zones: Zones, delta_bytes: usize) -> Arc<SlotStore> {
    let page_bytes = zones.geometry().page_bytes() as usize;
    let check = |image: &[u8]| if image[40] == 9 { Err("a nine".into()) } else { Ok(()) };
    Arc::new(SlotStore::new(file, page_bytes, PageForm::whole(check), state(zones, delta_bytes)))
}

fn small() -> Geometry {
    Geometry::from_sizes(4096, 4096, 64 << 10).unwrap()
}

/// Over a file of so many zones of which nobody knows whether they have blocks.
fn unfilled(zones: u32) -> (SimDisk, Arc<SlotStore>) {
    let disk = SimDisk::new(1);
    let file = new_file(&disk);
    let bytes = small().zone_offset(zones);
    file.set_len(bytes).unwrap();
    let zones = Zones::open(small(), &TableRoot::EMPTY, Epoch(0), bytes, &mut |_, _| Ok(()));
    (disk, store_over(file, zones.unwrap(), 1 << 20))
}

#[test]
fn a_disk_that_fails_to_reserve_room_fails_the_allocation_and_takes_nothing() {
    let (disk, slots) = unfilled(2);
    let before = slots.report();
    disk.inject(Fault::once(CallKind::Allocate, 0, Fault::EIO));
    let failed = slots.allocate(3, 4096).unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Io);
    assert_eq!(disk.calls(CallKind::Allocate), 1, "nothing else is tried");
    let after = slots.report();
    assert_eq!((after.used_bytes, after.out_bytes), (0, 0));
    assert_eq!(after.free_bytes, before.free_bytes);
    assert_eq!(slots.allocate(3, 4096).unwrap().len(), 3);
    slots.state().zones.verify().unwrap();
}

#[test]
fn a_full_disk_is_the_error_of_the_allocation_once_no_zone_can_be_had() {
    let (disk, slots) = unfilled(2);
    disk.inject(Fault::once(CallKind::Allocate, 0, Fault::ENOSPC).sticky());
    let full = slots.allocate(1, 4096).unwrap_err();
    assert_eq!(full.kind(), ErrorKind::DiskFull);
    assert_eq!(slots.report().used_bytes, 0);
    disk.clear_faults();
    slots.allocate(1, 4096).unwrap();
    slots.state().zones.verify().unwrap();
}

#[test]
fn an_extent_finds_no_room_below_where_holes_cannot_be_filled() {
    let (disk, slots) = unfilled(3);
    disk.inject(Fault::once(CallKind::Allocate, 0, Fault::ENOSPC).sticky());
    assert_eq!(slots.allocate_extent_below(2, 10, 8, || 0).unwrap(), None);
    assert_eq!(slots.allocate_extent_below(2, 20, 8, || 0).unwrap(), None);
    let report = slots.report();
    assert_eq!((report.used_bytes, report.out_bytes), (0, 0));
    assert_eq!(slots.state().zones.writing_units(), 0);
    disk.clear_faults();
    let runs = slots.allocate_extent_below(2, 10, 8, || 0).unwrap().unwrap();
    assert!(runs.iter().all(|run| run.unit + u64::from(run.units) <= 32), "{runs:?}");
    // A failure that is not for want of room is told.
    let (disk, slots) = unfilled(3);
    disk.inject(Fault::once(CallKind::Allocate, 0, Fault::EIO));
    let failed = slots.allocate_extent_below(2, 10, 8, || 0).unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Io);
    slots.close_file();
    let closed = slots.allocate_extent_below(2, 10, 8, || 0).unwrap_err();
    assert_eq!(closed.kind(), ErrorKind::Closed);
}

#[test]
fn an_image_is_that_of_its_page_and_slot_or_damage_there() {
    let slots = store_over(new_file(&RamDisk::new()), Zones::create(small()), 1 << 20);
    let image = |called: u32, sealed: u32, content: u8| {
        let mut image = vec![0; 4096];
        header::initialise(&mut image, PageId(called), TreeId(1));
        image[40] = content;
        let checksum = page_checksum(PageId(sealed), &image);
        image[..8].copy_from_slice(&checksum.to_le_bytes());
        (Slot::new(1 << 20, 4096, checksum).unwrap(), image)
    };
    let (slot, whole) = image(4, 4, 0);
    slots.unfold(PageId(4), slot, &mut whole.clone()).unwrap();
    let (_, another) = image(5, 5, 0);
    let (of_forged, forged) = image(5, 4, 0);
    let (of_unsound, unsound) = image(4, 4, 9);
    let (of_newer, _) = image(4, 4, 1);
    let shorter = Slot::new(1 << 20, 3584, slot.tag().into()).unwrap();
    let longer = Slot::new(1 << 20, 4608, slot.tag().into()).unwrap();
    for (slot, image, words) in [
        (slot, &another, "its checksum is wrong"),
        (shorter, &whole, "its slot has a wrong length"),
        (longer, &whole, "its slot has a wrong length"),
        (slot, &unsound[..4095].to_vec(), "its slot has a wrong length"),
        (of_forged, &forged, "its header says"),
        (of_unsound, &unsound, "a nine"),
        (of_newer, &whole, "an older image lies in its slot"),
    ] {
        let judged = slots.unfold(PageId(4), slot, &mut image.clone());
        let kind = judged.as_ref().unwrap_err().kind();
        let place = (Some(PageId(4)), Some(slot.offset_bytes()));
        assert_eq!(kind, ErrorKind::Corrupted { page: place.0, offset_bytes: place.1 });
        assert_damage(judged, words);
    }
}

/// A store of two checkpoints on a disk in memory: slots that know the first, and both roots.
fn two_checkpoints() -> (Arc<HookFile>, Arc<SlotStore>, [Root; 2], Slot) {
    let geometry = Geometry::from_sizes(512, 512, 16 << 10).unwrap();
    let mut rig = Rig::new(geometry, 1, 100);
    let mut roots = Vec::new();
    for _ in 0..2 {
        for id in [4, 600] {
            let offset = rig.allocate(512, 1).unwrap()[0];
            rig.write_page(PageId(id), offset);
        }
        rig.checkpoint(None, None).unwrap();
        roots.push(rig.durable.root);
    }
    let file = new_file(&RamDisk::new());
    file.set_len(geometry.zone_offset(rig.file_zones())).unwrap();
    rig.parts.iter().for_each(|(&at, bytes)| file.write_at(at, &bytes[..]).unwrap());
    let zones = open(geometry, &roots[0], rig.file_zones(), &rig.parts).unwrap();
    let hooked = Arc::new(HookFile { file, next_read: Mutex::new(None) });
    let slots = store_over(hooked.clone(), zones, 1 << 20);
    slots.state().map = roots[0].map;
    slots.state().checkpoint = roots[0].epoch;
    (hooked, slots, [roots[0], roots[1]], rig.live[&PageId(4)].0)
}

fn unreadable() -> Result<()> {
    Err(Error::corrupted_at(0, "as the test asked"))
}

#[test]
fn a_part_of_the_map_that_a_checkpoint_moved_while_it_was_read_is_read_from_the_new_map() {
    let (file, slots, roots, newest) = two_checkpoints();
    let word = |slots: &SlotStore| slots.read_map_part(0).map(|words| words.unwrap()[4]);
    let old = word(&slots).unwrap();
    assert_ne!(old, newest.word());
    // Where no checkpoint came between, damage is damage.
    file.before_next_read(unreadable);
    assert_damage(word(&slots), "as the test asked");
    assert_eq!(word(&slots).unwrap(), old);
    let other = slots.clone();
    file.before_next_read(move || {
        let mut state = other.state();
        (state.map, state.checkpoint) = (roots[1].map, roots[1].epoch);
        unreadable()
    });
    assert_eq!(word(&slots).unwrap(), newest.word());
}

#[test]
fn bitmaps_that_cannot_be_read_are_an_error_unless_nobody_wants_them_any_more() {
    let (file, slots, ..) = two_checkpoints();
    let wanted = slots.state().zones.groups_to_load();
    assert_eq!(wanted.len(), 1);
    file.before_next_read(unreadable);
    assert_damage(slots.load_group(wanted[0]), "as the test asked");
    assert!(slots.state().zones.is_wanted(wanted[0]));
    let other = slots.clone();
    let group = wanted[0];
    file.before_next_read(move || other.load_group(group).and_then(|()| unreadable()));
    slots.load_group(group).unwrap();
    assert!(!slots.state().zones.is_wanted(group));
    slots.state().zones.verify().unwrap();
}

#[test]
fn nobody_waits_for_checkpoints_while_somebody_keeps_them_from_beginning() {
    let slots = store_over(new_file(&RamDisk::new()), Zones::create(small()), 0);
    slots.page_freed(PageId(4), Epoch(1), Slot::NONE, Epoch(0)).unwrap();
    assert!(slots.checkpoints().is_delta_full());
    slots.attend();
    let since = Moment::now();
    let passing = slots.checkpoints().hinder();
    slots.checkpoints().wait_for_delta_room(&crate::wait::Waiting::Forever).unwrap();
    assert!(!slots.checkpoints().wait_for_next(&crate::wait::Waiting::Forever).unwrap());
    assert!(since.elapsed() < Duration::from_secs(30));
    assert!(slots.checkpoints().is_delta_full(), "there is no more room than there was");
    // Others wait for a checkpoint, which begins as soon as that is over.
    let other = slots.clone();
    let waits = thread::spawn_named("waits", move || {
        other.checkpoints().wait_for_next(&crate::wait::Waiting::Forever)
    })
    .unwrap();
    assert!(slots.checkpoints().wait_until_wanted());
    thread::sleep(Duration::from_millis(300));
    drop(passing);
    slots.checkpoint_ended(Ok(()));
    assert!(waits.join().unwrap().unwrap(), "a checkpoint has ended");
    // From then on they wait again, and learn how it ended.
    for fails in [false, true] {
        slots.checkpoints().request();
        assert!(slots.checkpoints().wait_until_wanted());
        let other = slots.clone();
        let taken = thread::spawn_named("checkpoint", move || {
            assert!(other.checkpoints().wait_until_wanted());
            let error = Error::new(ErrorKind::DiskFull, "no room");
            other.checkpoint_ended(if fails { Err(&error) } else { Ok(()) });
        });
        let waited = slots.checkpoints().wait_for_next(&crate::wait::Waiting::Forever);
        taken.unwrap().join().unwrap();
        match waited {
            Ok(ended) => assert!(ended && !fails),
            Err(error) => assert!(fails && error.kind() == ErrorKind::DiskFull),
        }
    }
}

#[test]
fn room_made_ahead_waits_for_no_truncation_and_takes_a_full_file_for_what_it_is() {
    let slots = store_over(new_file(&RamDisk::new()), Zones::create(small()), 1 << 20);
    slots.keep_for(0, 0);
    let offset = slots.allocate(1, 4096).unwrap()[0];
    slots.discard(part::slot_at(offset, 0));
    slots.state().zones.cut(0).unwrap();
    slots.make_room_ahead(2, 10).unwrap();
    assert!(!slots.has_room(12, Purpose::Take));
    assert_eq!(slots.state().zones.zone_count(), 1);
    slots.file().set_len(HEADER_REGION_BYTES).unwrap();
    slots.state().zones.end_truncate(true);
    slots.make_room_ahead(2, 10).unwrap();
    // No more ahead than an eighth of what there is.
    assert!(slots.has_room(2 + 2, Purpose::Take));
    // As long as slots can name, and in use up to the last zone.
    let geometry = Geometry::from_sizes(65536, 65536, 16 << 20).unwrap();
    let bytes = geometry.zone_offset(geometry.max_zones());
    let mut zones =
        Zones::open(geometry, &TableRoot::EMPTY, Epoch(0), bytes, &mut |_, _| Ok(())).unwrap();
    for group in &mut zones.groups {
        group.referenced_units = geometry.units_per_group();
    }
    let slots = store_over(new_file(&RamDisk::new()), zones, 1 << 20);
    slots.keep_for(0, 0);
    slots.make_room_ahead(2, 10).unwrap();
    assert!(!slots.has_room(12, Purpose::Take));
    assert_eq!(slots.file().len_bytes().unwrap(), 0);
    let full = slots.make_room(|| 2, 0, Purpose::Take).unwrap_err();
    assert_eq!(full.kind(), ErrorKind::DiskFull);
}

/// A checkpoint wants room ahead for a part of the pages in memory, whatever the file and the disk have.
#[test]
fn room_ahead_is_a_share_of_the_file_and_of_what_is_free() {
    let disk = SimDisk::new(1);
    let zones = Zones::create(Geometry::for_new_store(4096, 1).unwrap());
    let slots = store_over(new_file(&disk), zones, 1 << 20);
    slots.keep_for(0, 0);
    let bytes = || slots.report().file_bytes;
    slots.make_room(|| 1, 0, Purpose::Take).unwrap();
    let small = bytes();
    assert!(small <= 512 << 10, "{small}");
    slots.make_room_ahead(1, 100_000).unwrap();
    assert!(
        bytes() <= small + (small / 8).next_multiple_of(64 << 10),
        "{small} and then {}",
        bytes()
    );
    slots.make_room(|| 4000, 0, Purpose::Take).unwrap();
    let large = bytes();
    assert!((16 << 20..24 << 20).contains(&large), "{large}");
    disk.set_capacity(Some(disk.state().allocated_bytes() + (2 << 20)));
    slots.make_room_ahead(4000, 100_000).unwrap();
    assert!(bytes() <= large + (256 << 10) + 4096, "{large} and then {}", bytes());
}

/// The file grew zone by zone, and for each one all others were looked at.
#[test]
fn room_for_many_pages_is_made_in_one_step() {
    let disk = SimDisk::new(1);
    let slots = store_over(new_file(&disk), Zones::create(small()), 1 << 20);
    let before = disk.calls(CallKind::Allocate);
    slots.make_room(|| 16_000, 0, Purpose::Take).unwrap();
    assert!(slots.state().zones.zone_count() >= 1000);
    let calls = disk.calls(CallKind::Allocate) - before;
    assert!((1..10).contains(&calls), "{calls}");
}

/// Parts of a map of which `row` name pages, where there are ids for `most` of them, with as many above as there may be.
fn parts_of_map(mut row: u64, mut most: u64) -> u64 {
    let mut parts = row;
    while most > 1 {
        most = most.div_ceil(508);
        row = row.min(most);
        parts += row;
    }
    parts
}

#[test]
fn what_is_kept_for_the_map_is_enough_for_all_of_its_parts() {
    for page_bytes in [512_u32, 4096, 65536] {
        let geometry = Geometry::for_new_store(page_bytes, 1).unwrap();
        let slots = store_over(new_file(&RamDisk::new()), Zones::create(geometry), 1 << 20);
        let needed = |dirty| slots.needed(dirty, Purpose::Finish) * u64::from(page_bytes);
        for pages in [0, 1, 508, 508 * 200, 508 * 252, 508 * 300, 508 * 508 * 3, 1 << 32] {
            let leaves = u64::div_ceil(pages, 508);
            // As many images as ids, and pages that lie close together or far apart.
            for images in [1 << 30, leaves, leaves / 2, leaves / 300, 9, 1, 0] {
                slots.keep_for(pages, images as usize);
                let parts = parts_of_map(leaves.min(images), leaves);
                let (kept, asked) = (needed(0), parts * PART_BYTES as u64);
                assert!(kept >= asked, "{pages} {images} {page_bytes}: {kept} of {asked}");
                // And those that come with more.
                for more in [1, 7, 300] {
                    let parts = parts_of_map(leaves.min(images + more), leaves);
                    let asked = parts * PART_BYTES as u64 + more * u64::from(page_bytes);
                    let kept = needed(more as usize);
                    assert!(kept >= asked, "{pages} {images} {page_bytes}: {kept} of {asked}");
                }
            }
        }
    }
}

/// Where all pages lie close together it is what they need and little more; where a few lie anywhere, as many parts as they may need.
#[test]
fn what_is_kept_for_the_map_is_not_what_page_ids_alone_would_need() {
    let geometry = Geometry::for_new_store(4096, 1).unwrap();
    let slots = store_over(new_file(&RamDisk::new()), Zones::create(geometry), 1 << 20);
    slots.keep_for(508 * 1000, 508 * 1000);
    assert!(slots.needed(0, Purpose::Finish) < 1030);
    slots.keep_for(1 << 32, 10);
    assert!(slots.needed(0, Purpose::Finish) < 50);
    assert!(slots.needed(100, Purpose::Finish) < 50 + 600);
    // Never more than the map of all ids would take.
    for pages in [508 * 100, 508 * 10_000] {
        for dirty in [0, 10, 1_000, 100_000] {
            slots.keep_for(pages, 1 << 30);
            let most = slots.needed(dirty, Purpose::Finish);
            slots.keep_for(pages, 3);
            assert!(slots.needed(dirty, Purpose::Finish) <= most, "{pages} {dirty}");
        }
    }
}

#[test]
fn an_extent_that_cannot_be_of_this_file_is_never_noted() {
    let mut zones = Zones::create(small());
    zones.grown_to(4);
    let slots = store_over(new_file(&RamDisk::new()), zones, 1 << 20);
    let len_bytes = 40_000;
    let units = units_of_value(small(), len_bytes) as u32;
    let sound = Extent {
        len_bytes,
        seed: 1,
        runs: slots.allocate_extent(u64::from(units), 8, || 0).unwrap().into(),
    };
    slots.extent_changed(Epoch(1), None, Some(sound.clone())).unwrap();
    let noted = slots.state().deltas.memory_bytes();
    assert!(noted > 0);
    let run = |unit, units| Run { unit, units };
    for runs in [
        vec![run(63, units)],
        vec![run(1 << 39, units)],
        vec![run(0, units - 1)],
        vec![run(0, 8), run(4, units - 8)],
        vec![run(0, 3), run(8, units - 3)],
    ] {
        let forged = Extent { runs: runs.into(), ..sound };
        let words = "is outside of the file";
        assert_damage(
            slots.extent_changed(Epoch(1), Some(sound.clone()), Some(forged.clone())),
            words,
        );
        assert_damage(slots.hold_extent(&forged), words);
        // A leaf may name one all the same; the record can be replaced, and gives nothing back.
        slots.extent_changed(Epoch(1), Some(forged.clone()), None).unwrap();
        assert_eq!(slots.state().zones.left_units(), 0);
        assert_eq!(slots.state().deltas.memory_bytes(), noted);
    }
    slots.extent_changed(Epoch(1), Some(sound.clone()), None).unwrap();
    assert_eq!(slots.state().zones.left_units(), u64::from(units));
    assert_eq!(slots.state().deltas.memory_bytes(), 0);
}

#[test]
fn a_checkpoint_is_wanted_once_it_would_free_much() {
    let geometry = Geometry::for_new_store(4096, 1).unwrap();
    let mut zones = Zones::create(geometry);
    zones.grown_to(80);
    let slots = store_over(new_file(&RamDisk::new()), zones, 1 << 20);
    let mut extents = Vec::new();
    for seed in 0..3 {
        let len_bytes = 30 << 20;
        let runs = slots.allocate_extent(units_of_value(geometry, len_bytes), 8, || 0).unwrap();
        let extent = Extent { len_bytes, seed, runs: runs.into() };
        slots.extent_changed(Epoch(1), None, Some(extent.clone())).unwrap();
        extents.push(extent);
    }
    let is_wanted = Arc::new(Mutex::new(false));
    let waiter = {
        let (slots, is_wanted) = (slots.clone(), is_wanted.clone());
        let wait = move || *is_wanted.lock() = slots.checkpoints().wait_until_wanted();
        thread::spawn_named("waiter", wait).unwrap()
    };
    for extent in &extents[..2] {
        slots.extent_changed(Epoch(1), Some(extent.clone()), None).unwrap();
    }
    thread::sleep(Duration::from_millis(20));
    assert!(!waiter.is_finished(), "60 MiB are not worth a checkpoint");
    slots.extent_changed(Epoch(1), Some(extents[2].clone()), None).unwrap();
    let since = Moment::now();
    while !waiter.is_finished() && since.elapsed() < Duration::from_secs(5) {
        thread::sleep(Duration::from_millis(1));
    }
    slots.close();
    waiter.join().unwrap();
    assert!(*is_wanted.lock(), "90 MiB are");
}

#[test]
fn images_count_until_a_checkpoint_takes_them_and_again_if_it_fails() {
    let file = RamDisk::new().open(Path::new("f"), OpenMode::CreateNew, DirectIo::Never);
    let state = SpaceState {
        zones: Zones::create(Geometry::for_new_store(4096, 1).unwrap()),
        deltas: Deltas::new(1 << 20),
        owed: Arc::default(),
        map: MapRoot::EMPTY,
        checkpoint: Epoch(0),
    };
    let slots = SlotStore::new(file.unwrap(), 4096, PageForm::whole(|_| Ok(())), state);
    let write = |id: u32, epoch: u64| {
        let slot = Slot::new(u64::from(id) << 20, 4096, 0).unwrap();
        let (id, epoch) = (PageId(id), Epoch(epoch));
        slots.image_written(id, epoch, slot, Slot::NONE, Epoch(0), || {}).unwrap();
    };
    let counts = || {
        let not_durable = slots.images_not_durable();
        (slots.images_since_checkpoint(), not_durable, slots.images_for_next())
    };
    (5..8).for_each(|id| write(id, 1));
    assert_eq!(counts(), (3, 3, 3));
    slots.owe(Epoch(1), || 0);
    write(8, 2);
    assert_eq!(counts(), (4, 4, 1));
    slots.take_delta(Epoch(1));
    assert_eq!(counts(), (1, 4, 1), "three are taken");
    slots.checkpoint_ended(Err(&Error::new(ErrorKind::DiskFull, "no room")));
    assert_eq!(counts(), (4, 4, 1));
    let taken = slots.take_delta(Epoch(1));
    slots.state().deltas.done(&taken);
    slots.checkpoint_ended(Ok(()));
    assert_eq!(counts(), (1, 1, 1));
}
