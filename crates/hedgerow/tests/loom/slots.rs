//! When a slot may be written again: images, checkpoints, the quarantine and the allocator.

use crate::check;
use crate::paper::Paper;
use hedgerow::ErrorKind;
use hedgerow::internals::space::image::PageForm;
use hedgerow::internals::space::map::{self, Change, MapRoot};
use hedgerow::internals::space::part_file::PartFile;
use hedgerow::internals::space::slot_store::{SlotStore, SpaceState};
use hedgerow::internals::space::{Deltas, Geometry, HEADER_REGION_BYTES, PartBytes, Zones};
use hedgerow::internals::types::{Epoch, PART_BYTES, PageId, Slot};
use loom::thread;
use std::sync::Arc;

const PAGE_BYTES: u32 = 4096;
/// Two pages: so small that what is free is soon used again.
const ZONE_BYTES: u32 = 2 * PAGE_BYTES;
/// The file cannot grow beyond so many.
const ZONES: u64 = 8;
/// Leaves room for the parts of two checkpoints, and no more.
const MORE_PAGES: u32 = 3;
const P: PageId = PageId(4);

fn store(paper: &Arc<Paper>) -> SlotStore {
    paper.limit(HEADER_REGION_BYTES + ZONES * u64::from(ZONE_BYTES));
    let state = SpaceState {
        zones: Zones::create(Geometry::from_sizes(PAGE_BYTES, PAGE_BYTES, ZONE_BYTES).unwrap()),
        deltas: Deltas::new(96 << 10),
        owed: Arc::default(),
        map: MapRoot::EMPTY,
        checkpoint: Epoch(0),
    };
    SlotStore::new(paper.clone(), PAGE_BYTES as usize, PageForm::whole(|_| Ok(())), state)
}

/// Writes an image, as write-back does. `None`: the disk is full.
fn try_write(slots: &SlotStore, id: PageId, epoch: u64, old: (Slot, u64)) -> Option<Slot> {
    let offset = match slots.allocate(1, u64::from(PAGE_BYTES)) {
        Ok(offsets) => offsets[0],
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::DiskFull);
            return None;
        }
    };
    let slot = Slot::new(offset, u64::from(PAGE_BYTES), epoch).unwrap();
    slots.file().write_at(offset, &[epoch as u8; PAGE_BYTES as usize]).unwrap();
    slots.image_written(id, Epoch(epoch), slot, old.0, Epoch(old.1), || ()).unwrap();
    Some(slot)
}

fn write(slots: &SlotStore, id: PageId, epoch: u64, old: (Slot, u64)) -> Slot {
    try_write(slots, id, epoch, old).expect("there is room")
}

/// Takes a checkpoint of what was written up to `epoch`, in which `pages` are what lies in the file. As that of a
/// store, but for the superblock: `before` and `pages` are what a crash may need while it is written.
fn checkpoint(slots: &SlotStore, paper: &Paper, epoch: u64, before: &[Slot], pages: &[Slot]) {
    let offsets = |slots: &[Slot]| slots.iter().map(|slot| slot.offset_bytes()).collect();
    let delta = slots.take_delta(Epoch(epoch));
    slots.state().zones.begin_checkpoint(Epoch(epoch));
    let view = slots.state().map_view();
    let mut parts = PartFile::new(slots).unwrap();
    let changes = delta.changes.iter().map(|(&id, &slot)| Change::Set(id, slot));
    let map = map::apply(&view, Epoch(epoch), changes, &mut parts).unwrap();
    let count = slots.state().zones.plan_table();
    let places = slots.allocate(count, PART_BYTES as u64).unwrap();
    slots.state().zones.place_table(&places);
    let mut bytes: Box<PartBytes> = hedgerow::internals::space::part::new_bytes();
    loop {
        let offset = slots.state().zones.next_table_part(&mut bytes);
        let Some(offset) = offset else { break };
        slots.file().write_at(offset, &bytes[..]).unwrap();
    }
    paper.keep(offsets(&[before, pages].concat()));
    slots.file().sync_data().unwrap();
    paper.keep(offsets(pages));
    let mut state = slots.state();
    state.map = map;
    state.checkpoint = Epoch(epoch);
    state.zones.checkpoint_durable().unwrap();
    state.deltas.done(&delta);
    drop(state);
    while slots.state().zones.free_ripe(1) {}
}

#[test]
fn a_slot_that_a_checkpoint_needs_is_not_written_again() {
    check(3, || {
        let paper = Arc::new(Paper::default());
        let slots = Arc::new(store(&paper));
        let first = write(&slots, P, 1, (Slot::NONE, 0));
        checkpoint(&slots, &paper, 1, &[], &[first]);
        let second = write(&slots, P, 2, (first, 1));
        // Its epoch ends, as that of a store does, before anybody changes anything in the next one.
        slots.owe(Epoch(2), || 0);
        // Writes images of the next epoch, as many as there is room for, while the checkpoint of this one is taken.
        let writer = {
            let slots = Arc::clone(&slots);
            thread::spawn(move || {
                let mut slots_used = vec![write(&slots, P, 3, (second, 2))];
                for id in 0..MORE_PAGES {
                    slots_used.push(write(&slots, PageId(P.0 + 1 + id), 3, (Slot::NONE, 0)));
                }
                slots_used
            })
        };
        checkpoint(&slots, &paper, 2, &[first], &[second]);
        let mut used = writer.join().unwrap();
        // All that is free, now that there is another checkpoint: the slot that only the older one needed, too.
        let free = || try_write(&slots, PageId(99), 3, (Slot::NONE, 0));
        used.extend(std::iter::from_fn(free));
        assert!(used.iter().any(|slot| slot.offset_bytes() == first.offset_bytes()));
    });
}
