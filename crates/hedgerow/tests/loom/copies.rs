//! Copy on first write: a checkpoint that gets two pages as they were when its epoch ended, beside a writer that
//! changes both.
//!
//! Frames, headers, latches, epochs, slabs and slots are the pool's own. The pages' bytes are plain memory to loom;
//! what orders them is the latch, which has models of its own.

use crate::check;
use crate::paper::Paper;
use hedgerow::internals::buffer::{BufferPool, PoolOptions, smallest_limit_without_log_bytes};
use hedgerow::internals::page::header::{self, HEADER_BYTES};
use hedgerow::internals::page::{
    EpochStay as _, Journal as _, OptimisticPage, Pages as _, PoolSession as _, Restart,
};
use hedgerow::internals::space::image::PageForm;
use hedgerow::internals::space::map::MapRoot;
use hedgerow::internals::space::slot_store::{SlotStore, SpaceState};
use hedgerow::internals::space::{Deltas, Geometry, PageIds, Zones};
use hedgerow::internals::types::{Epoch, PageId, TreeId};
use loom::thread;
use std::sync::Arc;

const PAGE_BYTES: usize = 512;

struct Rig {
    paper: Arc<Paper>,
    slots: Arc<SlotStore>,
    pool: BufferPool,
}

impl Rig {
    fn new() -> Rig {
        let paper = Arc::new(Paper::default());
        let state = SpaceState {
            zones: Zones::create(Geometry::for_new_store(PAGE_BYTES as u32, 1).unwrap()),
            deltas: Deltas::new(96 << 10),
            owed: Arc::default(),
            map: MapRoot::EMPTY,
            checkpoint: Epoch(0),
        };
        let slots =
            Arc::new(SlotStore::new(paper.clone(), PAGE_BYTES, PageForm::whole(|_| Ok(())), state));
        let options = PoolOptions {
            memory_limit_bytes: smallest_limit_without_log_bytes(PAGE_BYTES),
            page_bytes: PAGE_BYTES,
            first_epoch: Epoch(1),
            checkpoint_bytes: 1 << 30,
            read_only: false,
            logged: false,
            first_lsn: hedgerow::internals::types::Lsn(0),
        };
        let pool = BufferPool::new(&options, Some(slots.clone()), PageIds::create()).unwrap();
        Rig { paper, slots, pool }
    }

    /// A fresh page with this content.
    fn fresh(&self, content: u8) -> PageId {
        let mut session = self.pool.session();
        session.reserve(1).unwrap();
        let stay = self.pool.enter().unwrap();
        let mut page = session.take(TreeId(7), stay.epoch()).unwrap();
        page.write(stay.epoch())[HEADER_BYTES] = content;
        page.id()
    }

    /// Changes all of the pages in one epoch.
    fn change(&self, ids: &[PageId], content: u8) {
        loop {
            let stay = self.pool.enter().unwrap();
            let latch = |id: &PageId| OptimisticPage::open(&self.pool, *id, None)?.upgrade();
            let pages: Result<Vec<_>, Restart> = ids.iter().map(latch).collect();
            match pages {
                Ok(mut pages) => {
                    for page in &mut pages {
                        page.write(stay.epoch())[HEADER_BYTES] = content;
                    }
                    return;
                }
                Err(Restart::Owed) => {
                    drop(stay);
                    self.pool.wait_to_change(&hedgerow::internals::wait::Waiting::Forever).unwrap();
                }
                Err(_) => {
                    drop(stay);
                    thread::yield_now();
                }
            }
        }
    }

    /// Takes a checkpoint; returns the contents of the pages that are in it.
    fn checkpoint(&self) -> Vec<(PageId, u8)> {
        let stopped = self.pool.epochs().stop();
        let epoch = stopped.ended();
        self.pool.owe(&self.slots, epoch);
        drop(stopped);
        self.pool.settle_owed(&self.slots).unwrap();
        let delta = self.slots.take_delta(epoch);
        let image = |(&id, slot): (&PageId, &hedgerow::internals::types::Slot)| {
            let mut image = self.paper.read(slot.offset_bytes(), PAGE_BYTES);
            self.slots.unfold(id, *slot, &mut image).unwrap();
            assert!(
                header::epoch(&image) <= epoch,
                "a change that came later is in the checkpoint"
            );
            (id, image[HEADER_BYTES])
        };
        let images = delta.changes.iter().map(image).collect();
        self.slots.state().deltas.done(&delta);
        images
    }
}

/// Of the thread that makes and checkpoints a pool, in words. Without optimisation a pool is moved through three frames,
/// and loom's own threads have 32 KiB.
const STACK_WORDS: usize = 64 << 10;

/// A checkpoint beside a writer that changes `PAGES` pages in one epoch.
fn beside_a_writer<const PAGES: usize>(preemptions: usize) {
    check(preemptions, || {
        let model = thread::Builder::new().stack_size(STACK_WORDS);
        model.spawn(checkpoint_beside_a_writer::<PAGES>).unwrap().join().unwrap();
    });
}

fn checkpoint_beside_a_writer<const PAGES: usize>() {
    let rig = Arc::new(Rig::new());
    let ids: [PageId; PAGES] = std::array::from_fn(|_| rig.fresh(1));
    let writer = {
        let rig = Arc::clone(&rig);
        thread::spawn(move || rig.change(&ids, 2))
    };
    let images = rig.checkpoint();
    let old = ids.map(|id| (id, 1));
    let new = ids.map(|id| (id, 2));
    assert!(images == old || images == new, "{images:?} is no moment");
    writer.join().unwrap();
    // And the change, if it is not in that one, is in the next.
    let later = rig.checkpoint();
    assert_eq!(later, if images == old { new.to_vec() } else { Vec::new() });
    assert_eq!(rig.pool.images_to_write(), 0);
}

#[test]
fn a_checkpoint_gets_a_page_as_it_was_when_its_epoch_ended() {
    beside_a_writer::<1>(2);
}

#[test]
fn a_checkpoint_gets_a_change_of_two_pages_whole_or_not_at_all() {
    beside_a_writer::<2>(1);
}
