//! Each wait of a handle with a [`Wait`], provoked with real threads: it ends in time, nothing has changed, and the same call
//! succeeds when the obstacle is gone.
//!
//! Time is measured, on machines that do other things as well: of a few tries the best has to be in time, and each has to end.

use super::stalled::{Of, StalledDisk};
use crate::buffer::Session;
use crate::page::{Access, FrameHead, FrameId, Frames, Pages, PoolSession, header};
use crate::store::OpenHow;
use crate::wait::Waiting;
use crate::{
    CancelToken, Database, Durability, ErrorKind, Keyspace, Options, Result, Wait, WriteBatch,
};
use hedgerow_sync::primitive::thread::{sleep, spawn_named};
use hedgerow_sync::primitive::time::{Moment, instant};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

/// How late a wait may end.
const LATE: Duration = Duration::from_millis(20);
/// How long waits are allowed for before they are ended.
const TIME: Duration = Duration::from_millis(40);
const TRIES: usize = 40;
const PAGE_BYTES: usize = 4096;

fn options() -> Options {
    let limit = crate::smallest_memory_limit_bytes(PAGE_BYTES) + (256 << 10);
    Options::new()
        .page_bytes(PAGE_BYTES)
        .memory_limit_bytes(limit)
        .recovery_target(Duration::MAX / 4)
}

fn create(disk: &StalledDisk, options: &Options) -> Database {
    options.on_disk(disk, Path::new("/birds.hrow"), OpenHow::New).unwrap()
}

fn key(n: u64) -> [u8; 8] {
    // Far apart, so that each change is of another leaf.
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

/// Calls with each kind of bound, and asserts that it ends as it should: by the error of the bound, or by `instead`.
fn assert_ends(what: &str, instead: Option<ErrorKind>, call: impl Fn(Wait) -> Result<()>) {
    let expect = |kind: ErrorKind| instead.unwrap_or(kind);
    let best = |kind: ErrorKind, once: &dyn Fn() -> (Result<()>, Duration)| {
        let mut best = Duration::MAX;
        for _ in 0..TRIES {
            let (ended, late) = once();
            let error = ended.expect_err(what);
            assert_eq!(error.kind(), expect(kind), "{what}: {error}");
            best = best.min(late);
            if best < LATE {
                break;
            }
        }
        println!("{what}, {kind}: late by {best:?}");
        assert!(best < LATE, "{what}, {kind}: it ends {best:?} late");
    };
    best(ErrorKind::WouldBlock, &|| {
        let since = Moment::now();
        (call(Wait::Never), since.elapsed())
    });
    best(ErrorKind::Timeout, &|| {
        let since = Moment::now();
        let ended = call(Wait::For(TIME));
        assert!(since.elapsed() >= TIME, "{what}: too early");
        (ended, since.elapsed() - TIME)
    });
    best(ErrorKind::Timeout, &|| {
        let (since, end) = (Moment::now(), instant() + TIME);
        (call(Wait::Until(end)), since.elapsed().saturating_sub(TIME))
    });
    best(ErrorKind::Cancelled, &|| {
        let token = CancelToken::new();
        let cancels = {
            let token = token.clone();
            spawn_named("cancels", move || {
                sleep(TIME);
                let now = Moment::now();
                token.cancel();
                now
            })
        };
        let ended = call(Wait::Cancel(token));
        let now = Moment::now();
        (ended, now.since(cancels.unwrap().join().unwrap()))
    });
}

/// Puts records with `Never` until one has to wait: the number of that one, which was not put.
fn fill(keyspace: &Keyspace, from: u64, value: &[u8]) -> u64 {
    let never = keyspace.clone().with_wait(Wait::Never);
    let mut n = from;
    // What somebody does in passing is no obstacle that stays.
    let mut in_a_row = 0;
    while in_a_row < 5 {
        match never.put(&key(n), value) {
            Ok(_) => {
                in_a_row = 0;
                n += 1;
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
                in_a_row += 1;
                sleep(Duration::from_millis(10));
            }
        }
        assert!(n < from + 1_000_000, "nobody has to wait");
    }
    n
}

/// The records are the first `count` ones.
fn assert_has(keyspace: &Keyspace, count: u64) {
    assert_eq!(keyspace.count().unwrap(), count);
    assert_eq!(keyspace.get(&key(count)).unwrap(), None, "what was not put is there");
}

fn put(keyspace: &Keyspace, wait: Wait, n: u64, value: &[u8]) -> Result<()> {
    keyspace.clone().with_wait(wait).put(&key(n), value).map(drop)
}

#[test]
fn a_wait_for_a_latch_ends() {
    let db = Options::new().page_bytes(PAGE_BYTES).memory_limit_bytes(8 << 20).in_memory().unwrap();
    let keyspace = db.create_keyspace("birds").unwrap();
    for n in 0..100 {
        keyspace.put(&key(n), b"there").unwrap();
    }
    let (pool, root) = (keyspace.tree().pool().clone(), keyspace.tree().root());
    let frame = pool.translate(root).unwrap();
    let latch = pool.head(frame).latch();
    type Call = (&'static str, fn(&Keyspace) -> Result<()>);
    let calls: [Call; 8] = [
        ("get", |k| k.get(&key(1)).map(drop)),
        ("get_many", |k| k.get_many(&[key(1), key(2)]).map(drop)),
        ("put", |k| k.put(&key(1), b"new").map(drop)),
        ("remove", |k| k.remove(&key(1)).map(drop)),
        ("swap", |k| k.compare_and_swap(&key(1), Some(b"there"), None).map(drop)),
        ("remove_range", |k| k.remove_range(..).map(drop)),
        ("scan", |k| k.iter().next().map_or(Ok(()), |record| record.map(drop))),
        ("cursor", |k| k.cursor().next_record().map(drop)),
    ];
    for (what, call) in calls {
        let held = latch.exclusive();
        assert_ends(what, None, |wait| call(&keyspace.clone().with_wait(wait)));
        held.release_unchanged();
        assert_eq!(keyspace.get(&key(1)).unwrap().as_deref(), Some(&b"there"[..]), "{what}");
        assert_eq!(keyspace.count().unwrap(), 100, "{what}");
    }
    // Nobody holds it, and nobody is counted as one who waits.
    drop(latch.try_exclusive().expect("the latch is free"));
    for (what, call) in calls {
        let never = keyspace.clone().with_wait(Wait::Never);
        call(&never).unwrap_or_else(|error| panic!("{what}: {error}"));
    }
    assert_eq!(keyspace.count().unwrap(), 0);
}

/// A batch is given up before it is logged, and leaves no part of it.
#[test]
fn a_batch_that_may_not_wait_leaves_nothing() {
    let disk = StalledDisk::default();
    let db = create(&disk, &options());
    let keyspace = db.create_keyspace("birds").unwrap();
    let write = |wait: Wait| {
        let mut batch = WriteBatch::new();
        batch.set_wait(wait);
        for n in 0..3 {
            batch.put(&keyspace, &key(1_000_000 + n), b"batch")?;
        }
        db.write(&batch).map(drop)
    };
    let stalled = disk.stall(Of::Log);
    // Where no long record has room, a short batch may have.
    let count = fill(&keyspace, 0, &[b'x'; 900]);
    let count = fill(&keyspace, count, b"short");
    assert_ends("batch, log room", None, write);
    assert_has(&keyspace, count);
    drop(stalled);
    write(Wait::Default).unwrap();
    assert_eq!(keyspace.count().unwrap(), count + 3);
    // What is behind the append is finished: without another wait for a latch than its own.
    let frame = keyspace.tree().pool().translate(keyspace.tree().root()).unwrap();
    let held = keyspace.tree().pool().head(frame).latch().exclusive();
    assert_ends("batch, latch", None, write);
    held.release_unchanged();
    write(Wait::Never).unwrap();
    db.sync().unwrap();
    db.close().unwrap();
}

#[test]
fn a_wait_for_room_in_the_log_ends() {
    let disk = StalledDisk::default();
    let db = create(&disk, &options());
    let keyspace = db.create_keyspace("birds").unwrap();
    let value = [b'x'; 900];
    let stalled = disk.stall(Of::Log);
    let count = fill(&keyspace, 0, &value);
    let used = db.stats().unwrap();
    assert_ends("log room", None, |wait| put(&keyspace, wait, count, &value));
    assert_has(&keyspace, count);
    // Others wait as before, and get the room that those who gave up would have had.
    let others: Vec<_> = (0..4)
        .map(|n| {
            let keyspace = keyspace.clone();
            spawn_named("other", move || put(&keyspace, Wait::Default, count + n, &[b'x'; 900]))
        })
        .collect();
    assert_ends("log room with others", None, |wait| put(&keyspace, wait, 1 << 40, &value));
    drop(stalled);
    for other in others {
        other.unwrap().join().unwrap().unwrap();
    }
    assert_has(&keyspace, count + 4);
    put(&keyspace, Wait::Default, 1 << 40, &value).unwrap();
    assert!(used.dirty_pages < keyspace.tree().pool().frames() as u64 * 15 / 16, "{used:?}");
    db.close().unwrap();
}

#[test]
fn a_wait_for_changed_pages_to_be_written_ends() {
    let disk = StalledDisk::default();
    // Without checkpoints, to which writers would owe copies.
    let db = create(&disk, &options().log(false).background_checkpoints(false));
    let keyspace = db.create_keyspace("birds").unwrap();
    let stalled = disk.stall(Of::Store);
    let value = [b'x'; 900];
    let count = fill(&keyspace, 0, &value);
    let frames = keyspace.tree().pool().frames() as u64;
    let dirty = db.stats().unwrap().dirty_pages;
    assert!(dirty >= frames - (frames / 16).max(16), "{dirty} of {frames} are dirty");
    assert_ends("dirty limit", None, |wait| put(&keyspace, wait, count, &value));
    // Look-ups go on.
    assert!(keyspace.clone().with_wait(Wait::Never).get(&key(0)).unwrap().is_some());
    drop(stalled);
    put(&keyspace, Wait::Default, count, &value).unwrap();
    assert_has(&keyspace, count + 1);
    db.close().unwrap();
}

/// A keyspace with more pages than frames, all of which are clean.
fn large(disk: &StalledDisk) -> (Database, Keyspace, u64) {
    let db = create(disk, &options());
    let keyspace = db.create_keyspace("birds").unwrap();
    let count = 16 * keyspace.tree().pool().frames() as u64;
    for n in 0..count {
        keyspace.put(&key(n), &[b'x'; 900]).unwrap();
    }
    db.checkpoint().unwrap();
    (db, keyspace, count)
}

/// As many operations as the pool lets in, each of which has asked for the root.
fn full_house<'p>(keyspace: &'p Keyspace, never: &'p Waiting<'p>) -> Vec<Session<'p>> {
    let mut inside = Vec::new();
    loop {
        let mut session = keyspace.tree().pool().session_within(never);
        match session.fault(keyspace.tree().root(), Access::Point) {
            Ok(()) => inside.push(session),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
                return inside;
            }
        }
    }
}

/// A record whose leaf is not in memory: whoever wants it has to be let in.
fn absent(keyspace: &Keyspace, count: u64) -> u64 {
    let never = keyspace.clone().with_wait(Wait::Never);
    let found = (0..count).find(|n| never.get(&key(*n)).is_err());
    found.expect("there are fewer frames than pages")
}

#[test]
fn a_wait_for_a_frame_ends() {
    let disk = StalledDisk::default();
    let (db, keyspace, count) = large(&disk);
    let (pool, never) = (keyspace.tree().pool().clone(), Wait::Never.begin());
    let mut inner = Vec::new();
    keyspace
        .show_pages(|page| {
            if page.bytes.is_some_and(|bytes| header::level(bytes) > 0) {
                inner.push(page.id);
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    let inside = full_house(&keyspace, &never);
    let n = absent(&keyspace, count);
    drop(inside);
    // Whoever holds a frame's latch keeps it from being evicted, and from being given out. Optimistic readers pass by who shares.
    let (mut held, mut shared) = (Vec::new(), Vec::new());
    for frame in (0..pool.frames()).map(FrameId) {
        let head = pool.head(frame);
        match inner.contains(&head.page_id()) {
            true => shared.extend(head.latch().try_shared()),
            false => held.extend(head.latch().try_exclusive()),
        }
    }
    let faults = db.stats().unwrap().pool.faults;
    let get = |wait: Wait| keyspace.clone().with_wait(wait).get(&key(n)).map(drop);
    assert_ends("frames", None, get);
    held.into_iter().for_each(|guard| guard.release_unchanged());
    drop(shared);
    get(Wait::Default).unwrap();
    assert!(db.stats().unwrap().pool.faults > faults, "the leaf was in memory");
    assert_has(&keyspace, count);
    db.close().unwrap();
}

#[test]
fn a_wait_for_admission_ends() {
    let disk = StalledDisk::default();
    let (db, keyspace, count) = large(&disk);
    let never = Wait::Never.begin();
    let mut inside = full_house(&keyspace, &never);
    assert!(inside.len() > 1);
    let n = absent(&keyspace, count);
    let get = |wait: Wait| keyspace.clone().with_wait(wait).get(&key(n)).map(drop);
    assert_ends("admission", None, get);
    // One place, for one of two who wait, of whom the other gives up.
    let waits = {
        let keyspace = keyspace.clone();
        spawn_named("waits", move || keyspace.get(&key(n)).map(drop))
    };
    get(Wait::For(TIME)).unwrap_err();
    inside.pop();
    waits.unwrap().join().unwrap().unwrap();
    drop(inside);
    get(Wait::Never).unwrap();
    db.close().unwrap();
}

#[test]
fn a_wait_for_a_large_commit_ends() {
    let db = options().in_memory().unwrap();
    let keyspace = db.create_keyspace("birds").unwrap();
    put(&keyspace, Wait::Never, 0, b"there").unwrap();
    let pool = keyspace.tree().pool().clone();
    let commit = pool.versions().unwrap().close_gate(&*pool);
    assert_ends("gate", None, |wait| put(&keyspace, wait, 1, b"new"));
    assert_has(&keyspace, 1);
    drop(commit);
    put(&keyspace, Wait::Never, 1, b"new").unwrap();
    assert_has(&keyspace, 2);
}

#[cfg(feature = "tracing")]
#[test]
fn a_writer_that_waits_long_for_a_large_commit_is_a_stall() {
    use crate::testing::events::events_of;
    let db = options().in_memory().unwrap();
    let keyspace = db.create_keyspace("birds").unwrap();
    let pool = keyspace.tree().pool().clone();
    let commit = pool.versions().unwrap().close_gate(&*pool);
    let waits = {
        let keyspace = keyspace.clone();
        spawn_named("writer", move || events_of(|| put(&keyspace, Wait::Default, 0, b"").unwrap()))
    };
    // Until it waits, and for longer than a stall takes.
    sleep(Duration::from_millis(300));
    drop(commit);
    let events = waits.unwrap().join().unwrap();
    let [stall] = &events[..] else { panic!("{events:?}") };
    assert_eq!((stall.target, stall.level), ("hedgerow::stall", tracing::Level::WARN));
    assert!(stall.number("waited_ms") >= 100 && stall.fields["waits_for"].contains("commit"));
    assert_has(&keyspace, 1);
}

#[test]
fn a_wait_for_room_in_the_map_s_delta_ends() {
    let disk = StalledDisk::default();
    let db = create(&disk, &options().log(false).background_checkpoints(false));
    let keyspace = db.create_keyspace("birds").unwrap();
    let value = [b'x'; 900];
    let slots = keyspace.tree().pool().slots().unwrap();
    let mut count = 0;
    while !slots.checkpoints().is_delta_full() {
        // Eviction comes late on a busy machine: that is not the obstacle.
        match put(&keyspace, Wait::For(TIME), count, &value) {
            Ok(()) => count += 1,
            Err(error) => assert_eq!(error.kind(), ErrorKind::Timeout, "{error}"),
        }
    }
    assert_ends("map delta", None, |wait| put(&keyspace, wait, count, &value));
    assert_has(&keyspace, count);
    db.checkpoint().unwrap();
    put(&keyspace, Wait::Never, count, &value).unwrap();
    assert_has(&keyspace, count + 1);
    db.close().unwrap();
}

/// Behind the append the change is made, whatever becomes of the wait.
#[test]
fn a_wait_for_the_log_to_be_durable_ends_and_says_that_the_change_is_made() {
    let disk = StalledDisk::default();
    let db = create(&disk, &options());
    let keyspace = db.create_keyspace("birds").unwrap().with_durability(Durability::Sync);
    let stalled = disk.stall(Of::Log);
    let not_yet = Some(ErrorKind::NotYetDurable);
    let next = std::cell::Cell::new(0);
    assert_ends("put", not_yet, |wait| {
        let n = next.replace(next.get() + 1);
        let ended = put(&keyspace, wait, n, b"made");
        assert_eq!(keyspace.get(&key(n)).unwrap().as_deref(), Some(&b"made"[..]));
        ended
    });
    assert_ends("batch", not_yet, |wait| {
        let mut batch = WriteBatch::new();
        batch.set_wait(wait);
        let n = next.replace(next.get() + 1);
        batch.put(&keyspace, &key(n), b"made")?;
        let ended = db.write(&batch);
        assert_eq!(keyspace.get(&key(n)).unwrap().as_deref(), Some(&b"made"[..]));
        ended.map(drop)
    });
    assert_ends("sync", not_yet, |wait| db.sync_within(&wait));
    let end = db.log_position();
    assert_ends("position", not_yet, |wait| db.wait_durable_within(end, &wait));
    // One who waits for as long as it takes, and flushes, and one who does not.
    let others = [Wait::Default, Wait::For(Duration::from_secs(60))].map(|wait| {
        let db = db.clone();
        spawn_named("other", move || db.sync_within(&wait))
    });
    assert_ends("sync with others", not_yet, |wait| db.sync_within(&wait));
    assert!(db.durable_position() < end);
    drop(stalled);
    for other in others {
        other.unwrap().join().unwrap().unwrap();
    }
    db.sync_within(&Wait::For(Duration::from_secs(60))).unwrap();
    assert!(db.durable_position() >= end);
    db.sync_within(&Wait::Never).unwrap();
    assert_has(&keyspace, next.get());
    db.close().unwrap();
}

/// A buffer for large values is written by another thread, and a stream keeps its memory.
#[test]
fn a_wait_for_memory_for_large_values_ends_and_poisons_nothing() {
    let disk = StalledDisk::default();
    let limit = crate::smallest_memory_limit_bytes(PAGE_BYTES) + (1 << 20);
    let db = create(&disk, &options().memory_limit_bytes(limit));
    let keyspace = db.create_keyspace("birds").unwrap();
    let value = vec![b'x'; 10_000];
    for n in 0..4 {
        keyspace.put(&key(n), &value).unwrap();
    }
    db.checkpoint().unwrap();
    let stalled = disk.stall(Of::Store);
    // Buffers are filled, the first is written by another thread.
    let count = fill(&keyspace, 4, &value);
    assert_ends("staging", None, |wait| put(&keyspace, wait, count, &value));
    assert_has(&keyspace, count);
    drop(stalled);
    put(&keyspace, Wait::Default, count, &value).unwrap();
    assert_has(&keyspace, count + 1);
    let report = db.verify(|_| ControlFlow::Continue(())).unwrap();
    assert!(report.is_clean(), "{:?}", report.findings);
    db.close().unwrap();
}

/// What is free of the memory for large values suffices, so nobody waits for those who have the rest.
#[test]
fn a_get_that_may_not_wait_does_not_write_what_others_have_staged() {
    let disk = StalledDisk::default();
    let db = create(&disk, &options().memory_limit_bytes(64 << 20));
    let keyspace = db.create_keyspace("birds").unwrap();
    // Too long to be kept in memory.
    let long = vec![b'x'; 1_200_000];
    keyspace.put(b"long", &long).unwrap();
    db.checkpoint().unwrap();
    let stalled = disk.stall(Of::Store);
    // One buffer is full, and held up, and the other one has no room.
    let count = fill(&keyspace, 0, &[b'x'; 10_000]);
    let never = keyspace.clone().with_wait(Wait::Never);
    let gets = spawn_named("gets", move || {
        let since = Moment::now();
        (never.get(b"long"), since.elapsed())
    });
    let gets = gets.unwrap();
    let since = Moment::now();
    while !gets.is_finished() && since.elapsed() < Duration::from_secs(2) {
        sleep(Duration::from_millis(1));
    }
    drop(stalled);
    let (found, took) = gets.join().unwrap();
    assert_eq!(found.unwrap().as_deref(), Some(&long[..]));
    assert!(took < Duration::from_secs(1), "it took {took:?}");
    put(&keyspace, Wait::Default, count, &[b'x'; 10_000]).unwrap();
    assert_has(&keyspace, count + 2);
    db.close().unwrap();
}

/// The reads and changes of one call share its time, and so does what it calls in between.
#[test]
fn the_steps_of_one_call_share_the_time_that_it_may_wait() {
    const TIME: Duration = Duration::from_millis(400);
    let db = Options::new().page_bytes(PAGE_BYTES).memory_limit_bytes(8 << 20).in_memory().unwrap();
    let keyspace = db.create_keyspace("birds").unwrap();
    keyspace.put(b"large", &[1; 10_000]).unwrap();
    let (pool, root) = (keyspace.tree().pool().clone(), keyspace.tree().root());
    let latch = pool.head(pool.translate(root).unwrap()).latch();
    let bounded = keyspace.clone().with_wait(Wait::For(TIME));
    for key in [&b"large"[..], b"none"] {
        for way in 0..3 {
            let is_in_time = (0..5).any(|_| {
                let mut held = None;
                let mut meets_an_obstacle = || {
                    sleep(3 * TIME / 4);
                    held.get_or_insert_with(|| latch.exclusive());
                    b"new"
                };
                let since = Moment::now();
                let ended = match way {
                    0 if key == b"large" => return true,
                    0 => bounded.get_or_insert_with(key, || &meets_an_obstacle()[..]).map(drop),
                    1 => bounded.fetch_update(key, |_| Some(meets_an_obstacle())).map(drop),
                    _ => bounded.update_and_fetch(key, |_| Some(meets_an_obstacle())).map(drop),
                };
                let took = since.elapsed();
                held.unwrap().release_unchanged();
                assert_eq!(ended.unwrap_err().kind(), ErrorKind::Timeout);
                took >= TIME && took < 3 * TIME / 2
            });
            assert!(is_in_time, "{way} of {key:?}");
        }
    }
}
