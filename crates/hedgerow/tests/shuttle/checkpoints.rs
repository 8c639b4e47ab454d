//! Checkpoints beside writers who change the very pages that are being written.
//!
//! What a checkpoint leaves is exact. It is what it has cut out of the histories of all threads: of each thread's
//! changes a first part; every change that had ended when the call of the checkpoint began, and none that began after
//! it had ended; and no change without one that had ended before it began. So every leaf that is changed while it is
//! owed has to be handed over as it was.

use crate::{Changed, Clock, State, after, assert_ordered, assert_sound};
use crate::{check, contents, join, open, options, path, start};
use hedgerow::internals::store::OpenHow;
use hedgerow::{Database, ErrorKind, Options};
use hedgerow_sync::primitive::thread::yield_now;
use hedgerow_testing::SimDisk;
use hedgerow_testing::sim::SimState;
use shuttle::rand::{Rng, thread_rng};
use std::sync::atomic::{AtomicU64, Ordering};

/// Keys that both writers change: two or three leaves.
const SPREAD: usize = 16;

/// The call of a checkpoint.
pub(crate) struct Checkpoint {
    pub(crate) began: u64,
    pub(crate) ended: u64,
    /// What was on the disk when the call had returned; `None` if it failed.
    pub(crate) left: Option<SimState>,
}

/// Takes `count` checkpoints, one after another.
pub(crate) fn take_checkpoints(
    db: &Database,
    disk: &SimDisk,
    clock: &Clock,
    count: usize,
    may_fail: &[ErrorKind],
) -> Vec<Checkpoint> {
    let mut taken = Vec::new();
    for _ in 0..count {
        let began = clock.tick();
        let outcome = db.checkpoint();
        let ended = clock.tick();
        let left = match outcome {
            Ok(()) => Some(disk.state()),
            Err(error) => {
                assert_ordered(&error, may_fail);
                None
            }
        };
        taken.push(Checkpoint { began, ended, left });
    }
    taken
}

/// Opens what a crash has left, checks that it is sound, and tells what is in it.
pub(crate) fn survivor(left: SimState, options: &Options) -> (Database, State) {
    let disk = SimDisk::with_state(left, thread_rng().r#gen());
    let db = options.on_disk(&disk, path(), OpenHow::Existing).unwrap();
    assert_sound(&db);
    let state = contents(&db);
    (db, state)
}

/// Whether a checkpoint whose call took from `began` to `ended` can have cut `found` out of the
/// histories of two threads.
pub(crate) fn is_cut(found: &State, histories: &[Vec<Changed>], began: u64, ended: u64) -> bool {
    let [first, second] = histories else { panic!("two workers") };
    let within = |history: &[Changed], len: usize| {
        history[..len].last().is_none_or(|last| last.began < ended)
            && history.get(len).is_none_or(|next| next.ended > began)
    };
    // What is left out of one history did not end before what is taken of the other began.
    let in_order = |of: &[Changed], taken: usize, other: &[Changed], len: usize| match of.get(taken)
    {
        Some(left_out) => other[..len].last().is_none_or(|last| last.began < left_out.ended),
        None => true,
    };
    (0..=first.len()).filter(|len| within(first, *len)).any(|a| {
        (0..=second.len()).filter(|len| within(second, *len)).any(|b| {
            in_order(first, a, second, b)
                && in_order(second, b, first, a)
                && after(first[..a].iter().chain(&second[..b])) == *found
        })
    })
}

/// Two writers on a few leaves, beside two checkpoints. Each of these has to leave a cut, and most of the leaves that
/// it writes are changed meanwhile.
#[test]
fn a_checkpoint_beside_writers_is_a_cut() {
    /// Pages that were handed over.
    static COPIES: AtomicU64 = AtomicU64::new(0);
    check(|| {
        // Nobody else takes checkpoints: it is known which ones there were.
        let options = options().background_checkpoints(false);
        let (disk, db, keyspace) = open(&options);
        let clock = Clock::default();
        let writers = start(&keyspace, 2, 120, SPREAD, &clock, &[]);
        // There has to be something to write.
        while clock.now() < 10 {
            yield_now();
        }
        let checkpoints = take_checkpoints(&db, &disk, &clock, 2, &[]);
        let histories = join(writers);
        COPIES.fetch_add(db.stats().unwrap().pool.copied_for_checkpoints, Ordering::Relaxed);
        drop((keyspace, db));
        for (index, Checkpoint { began, ended, left }) in checkpoints.iter().enumerate() {
            let left = left.as_ref().expect("no call fails").crash(&[], None);
            let (db, state) = survivor(left, &options);
            let is_cut = is_cut(&state, &histories, *began, *ended);
            assert!(is_cut, "checkpoint {index}: {state:?}");
            db.close().unwrap();
        }
    });
    let copies = COPIES.load(Ordering::Relaxed);
    println!("{copies} pages were handed over");
    assert!(copies > 0, "the schedules are too few to tell anything");
}
