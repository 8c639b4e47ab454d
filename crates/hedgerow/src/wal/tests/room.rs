//! Room for what is appended: on full and failing disks, beside batches, and in a log that grows too long.

use super::*;
use crate::wait::Wait;
use hedgerow_sync::primitive::Mutex;
use hedgerow_sync::primitive::atomic::AtomicBool;
use hedgerow_sync::primitive::atomic::Ordering::SeqCst;
use std::sync::mpsc::channel;

/// Segments large enough that the ring is full before what is prepared.
fn large_segments() -> FileHeader {
    FileHeader { segment: SegmentSize { blocks: 6 }, ..header() }
}

fn from_start_of(header: &FileHeader) -> ScanFrom {
    let start = start_of(header.segment.first_block(header.first_segment));
    ScanFrom { replay_start: start, log_end: start, checkpoint: CHECKPOINT }
}

fn key_of(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

#[test]
fn a_full_disk_refuses_nobody_who_only_waits_for_a_flush() {
    let disk = SimDisk::new(50);
    let header = large_segments();
    let log = begin_as(&disk, &header, options());
    disk.set_capacity(Some(disk.state().allocated_bytes()));
    assert_eq!(log.memory_bytes(), 8 * BLOCK_BYTES as u64);
    let written = log.written().1;
    let mut count = 0;
    while log.written().1 == written {
        put(&log, count, 900).unwrap();
        count += 1;
    }
    assert!(count > 25, "{count} records in a ring of eight blocks");
    let refused = loop {
        match put(&log, count, 900) {
            Ok(_) => count += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(refused.kind(), ErrorKind::DiskFull, "{refused}");
    assert!(log.failure().is_none(), "nothing that was begun has failed");
    log.flush().unwrap();
    let expected: Vec<u64> = (0..count).collect();
    assert_eq!(read_as(&disk.crash(1), &header, &from_start_of(&header)).unwrap(), expected);
    disk.set_capacity(None);
    put(&log, count, 900).unwrap();
}

#[test]
fn a_segment_that_cannot_be_prepared_for_another_reason_than_room_ends_the_log() {
    for kind in [CallKind::Allocate, CallKind::Write] {
        let disk = SimDisk::new(51);
        let log = begin(&disk, false);
        disk.inject(Fault::once(kind, 0, Fault::EIO));
        let mut count = 0;
        let refused = loop {
            match put(&log, count, 900) {
                Ok(_) => count += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(refused.kind(), ErrorKind::Poisoned, "{kind:?}: {refused}");
        assert_eq!(log.flush().unwrap_err().kind(), ErrorKind::DurabilityUnknown);
        assert_eq!(log.durable(), start(), "{kind:?}");
    }
}

#[test]
fn the_thread_that_cannot_prepare_ahead_for_another_reason_than_room_ends_the_log() {
    let disk = SimDisk::new(52);
    let interval = Duration::from_secs(100_000);
    let told = Arc::new(AtomicBool::new(false));
    let on_failure = {
        let told = told.clone();
        Box::new(move |_: &Error| told.store(true, SeqCst))
    };
    let options = LogOptions { interval, threaded: true, on_failure, ..options() };
    let log = begin_as(&disk, &header(), options);
    let mut end = start();
    for n in 0..3 {
        end = put(&log, n, 3900).unwrap();
    }
    while !log.wants_ahead() {
        end = put(&log, 3, 10).unwrap();
    }
    assert!(!log.wants_segment(), "nobody needs it yet");
    disk.inject(Fault::once(CallKind::Allocate, 0, Fault::EIO));
    log.run();
    assert!(told.load(SeqCst));
    assert_eq!(log.failure().unwrap().kind(), ErrorKind::Poisoned);
    assert_eq!(log.wait_durable(end).unwrap_err().kind(), ErrorKind::DurabilityUnknown);
}

/// Who was promised room before others flush block after block needs more blocks than it was promised.
#[test]
fn flushes_that_skip_all_that_was_prepared_find_new_segments() {
    let disk = SimDisk::new(53);
    let log = begin(&disk, false);
    let values = [7; 10];
    let len = Record::Put { tree: TreeId(2), key: &key_of(0), value: &values }.len_bytes() as u64;
    let count = 30;
    for _ in 0..count {
        log.promise(len, Promised::Freely).unwrap();
    }
    let prepared = log.file_bytes();
    for n in 0..count {
        let value = [n as u8; 10];
        log.append(&Record::Put { tree: TreeId(2), key: &key_of(n), value: &value });
        log.flush().unwrap();
        assert_eq!(read(&disk.crash(n), &from()).unwrap(), (0..=n).collect::<Vec<_>>());
    }
    assert!(log.file_bytes() > prepared);
}

#[test]
fn who_needs_room_while_another_flushes_waits_for_that_flush() {
    let disk = SimDisk::new(54);
    let (begun, begins) = channel();
    let (goes_on, go_on) = channel();
    let go_on = Mutex::new(go_on);
    let is_first = AtomicBool::new(true);
    let before_write = Box::new(move || {
        if is_first.swap(false, SeqCst) {
            begun.send(()).unwrap();
            go_on.lock().recv().unwrap();
        }
        Ok(())
    });
    let header = large_segments();
    let log = begin_as(&disk, &header, LogOptions { before_write, ..options() });
    let end = put(&log, 0, 900).unwrap();
    let flusher = {
        let log = log.clone();
        thread::spawn_named("flusher", move || log.wait_durable(end)).unwrap()
    };
    begins.recv().unwrap();
    let (appended, appends) = channel();
    let writer = {
        let log = log.clone();
        let write = move || {
            for n in 1..100 {
                put(&log, n, 900).unwrap();
                appended.send(n).unwrap();
            }
        };
        thread::spawn_named("writer", write).unwrap()
    };
    let mut last = 0;
    while let Ok(n) = appends.recv_timeout(Duration::from_millis(50)) {
        last = n;
    }
    assert!(last < 40, "{last} records in a ring of eight blocks");
    goes_on.send(()).unwrap();
    writer.join().unwrap();
    flusher.join().unwrap().unwrap();
    log.flush().unwrap();
    let expected: Vec<u64> = (0..100).collect();
    assert_eq!(read_as(&disk.crash(1), &header, &from_start_of(&header)).unwrap(), expected);
}

/// Else those who run take all the room that a flush makes before those who sleep have woken.
#[test]
fn who_waits_for_room_is_not_overtaken_by_who_comes_later() {
    const MUCH: u64 = 2000;
    let disk = SimDisk::new(58);
    let log = begin_as(&disk, &large_segments(), LogOptions { threaded: true, ..options() });
    while log.ring.promise(MUCH) {}
    let wait = |len| {
        let log = log.clone();
        let (served, serves) = channel();
        let waits = move || {
            log.promise(len, Promised::Freely).unwrap();
            served.send(()).unwrap();
        };
        (thread::spawn_named("waits", waits).unwrap(), serves)
    };
    let (first, first_served) = wait(MUCH);
    while !log.pressed.load(SeqCst) {
        thread::yield_now();
    }
    // There would be room for as little as this.
    let (second, second_served) = wait(1);
    assert!(second_served.recv_timeout(Duration::from_millis(300)).is_err(), "it has overtaken");
    assert!(first_served.try_recv().is_err(), "there is no room");
    log.ring.take_back(MUCH);
    log.tell_of_room(log.state.lock());
    first.join().unwrap();
    second.join().unwrap();
    // Nobody waits any more: as before.
    log.promise(1, Promised::Freely).unwrap();
}

/// Nobody flushes and no thread runs the log, so room comes only from this test.
#[test]
fn room_goes_to_waiters_one_by_one_in_the_order_in_which_they_came() {
    const MUCH: u64 = 2000;
    const WAITERS: usize = 5;
    let disk = SimDisk::new(59);
    let log = begin_as(&disk, &large_segments(), LogOptions { threaded: true, ..options() });
    while log.ring.promise(MUCH) {}
    let (served, serves) = channel();
    let mut waiters = Vec::new();
    for number in 0..WAITERS {
        let (log_of_waiter, served) = (log.clone(), served.clone());
        let waits = move || {
            log_of_waiter.promise(MUCH, Promised::Freely).unwrap();
            served.send(number).unwrap();
        };
        waiters.push(thread::spawn_named("waits", waits).unwrap());
        while log.state.lock().queue.len() <= number {
            thread::yield_now();
        }
    }
    for number in 0..WAITERS {
        log.take_back(MUCH, Promised::Freely);
        assert_eq!(log.state.lock().queue.len(), WAITERS - number - 1, "one has the room at once");
        assert_eq!(serves.recv().unwrap(), number, "the one who has waited longest");
        assert!(serves.try_recv().is_err());
    }
    waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
}

/// The log's thread sleeps for the interval, and commits that flush for themselves wake nobody for it.
#[test]
fn what_commits_use_up_is_prepared_again_before_the_interval_ends() {
    let header = FileHeader { segment: SegmentSize { blocks: 62 }, ..header() };
    let interval = Duration::from_secs(100_000);
    let options = LogOptions { ring_blocks: 512, threaded: true, interval, ..options() };
    let log = begin_as(&SimDisk::new(63), &header, options);
    let runs = run(&log);
    let commit = || {
        put(&log, 1, 100).unwrap();
        log.flush().unwrap();
    };
    for n in 0..2000 {
        commit();
        let mut looks = 0;
        while log.runs_short() {
            looks += 1;
            assert!(looks < 4000, "nothing was prepared after {n} commits");
            thread::sleep(Duration::from_millis(1));
            if looks % 100 == 0 {
                commit();
            }
        }
    }
    log.stop();
    runs.join().unwrap();
}

#[test]
fn a_flush_does_not_wait_for_who_prepares_another_segment() {
    let header = large_segments();
    let log = begin_as(&SimDisk::new(65), &header, options());
    put(&log, 1, 100).unwrap();
    log.flush().unwrap();
    let preparing = log.places_to_write();
    let (tell, told) = channel();
    let flusher = {
        let log = log.clone();
        let flush = move || {
            put(&log, 2, 100).unwrap();
            tell.send(log.flush().map(drop)).unwrap();
        };
        thread::spawn_named("flusher", flush).unwrap()
    };
    let flushed = told.recv_timeout(Duration::from_secs(20));
    drop(preparing);
    flushed.expect("it waits").unwrap();
    flusher.join().unwrap();
}

#[test]
fn a_longer_change_is_slowed_down_for_longer() {
    // A thousandth of a millisecond for a short change.
    let on_growth = Box::new(|_| Pace { pressure: 0.1, ..Pace::default() });
    let header = FileHeader { segment: SegmentSize { blocks: 62 }, ..header() };
    let options = LogOptions { ring_blocks: 64, on_growth, ..options() };
    let log = begin_as(&SimDisk::new(64), &header, options);
    log.look();
    for _ in 0..50 {
        log.promise(100, Promised::Freely).unwrap();
    }
    assert_eq!(log.held_up(), 0, "too little for a sleep");
    log.promise(16 << 10, Promised::Freely).unwrap();
    assert_eq!(log.held_up(), 1, "as long as sixty short ones");
}

/// Most of all where nothing was appended lately, after a checkpoint: then as little is prepared ahead as ever.
#[test]
fn a_commit_that_is_longer_than_what_is_prepared_gets_its_room_at_once() {
    for threaded in [true, false] {
        let header = FileHeader { segment: SegmentSize { blocks: 62 }, ..header() };
        let limit_bytes = 8 << 20;
        let options = LogOptions { ring_blocks: 512, threaded, limit_bytes, ..options() };
        let log = begin_as(&SimDisk::new(60), &header, options);
        let runs = threaded.then(|| run(&log));
        let most = log.most_stroke_bytes();
        assert_eq!(most, 128 * PAYLOAD_BYTES);
        // Who does not wait finds room when it tries again.
        let wait_never = |len| log.promise_within(len, Promised::Freely, &Wait::Never.begin());
        assert_eq!(wait_never(most).unwrap_err().kind(), ErrorKind::WouldBlock);
        let mut tries = 0;
        while threaded && wait_never(most).is_err() {
            tries += 1;
            assert!(tries < 1000, "nobody makes room for who has gone away");
            thread::sleep(Duration::from_millis(5));
        }
        log.take_back(if threaded { most } else { 0 }, Promised::Freely);
        for n in 0..40 {
            // The more was used of the last segment, the less is left of it.
            put(&log, n, 3000).unwrap();
            let end = log.flush().unwrap();
            log.checkpointed(CHECKPOINT, end, end);
            let len = most / 8 * (n % 8 + 1);
            let wait = Wait::For(Duration::from_secs(5));
            log.promise_within(len, Promised::Freely, &wait.begin()).unwrap();
            log.take_back(len, Promised::Freely);
        }
        log.stop();
        runs.into_iter().for_each(|runs| runs.join().unwrap());
    }
}

#[test]
fn batches_take_half_of_the_log_together_and_the_next_waits_until_one_has_ended() {
    let disk = SimDisk::new(55);
    let limit_bytes = 800 << 10;
    let header = FileHeader { segment: SegmentSize { blocks: 40 }, ..header() };
    let log = begin_as(&disk, &header, LogOptions { limit_bytes, ..options() });
    let len = limit_bytes / 8;
    log.check_batch(len).unwrap();
    let refused = log.check_batch(len + 1).unwrap_err();
    let too_large = ErrorKind::BatchTooLarge { len_bytes: len + 1, max_bytes: len };
    assert_eq!(refused.kind(), too_large);
    let mut held = Vec::new();
    while log.reserved.load(SeqCst) + len <= limit_bytes / 2 {
        held.push(log.reserve(len, &crate::wait::Waiting::Forever).unwrap());
    }
    assert!(!held.is_empty());
    let (reserved, reserves) = channel();
    let next = {
        let log = log.clone();
        let reserve = move || {
            let reservation = log.reserve(len, &crate::wait::Waiting::Forever).unwrap();
            reserved.send(log.reserved.load(SeqCst)).unwrap();
            drop(reservation);
        };
        thread::spawn_named("next", reserve).unwrap()
    };
    assert!(reserves.recv_timeout(Duration::from_millis(30)).is_err(), "there is no room for it");
    drop(held.pop());
    assert!(reserves.recv().unwrap() >= len);
    next.join().unwrap();
    held.clear();
    assert_eq!(log.reserved.load(SeqCst), 0);
}

#[test]
fn changes_are_slowed_down_while_opening_would_take_too_long_and_batches_under_way_are_not() {
    let disk = SimDisk::new(56);
    let presses = Arc::new(AtomicBool::new(true));
    let on_growth = {
        let presses = presses.clone();
        Box::new(move |_| {
            let pressure = if presses.load(SeqCst) { 2.0 } else { -1.0 };
            Pace { pressure, bound_bytes: 0 }
        })
    };
    let header = FileHeader { segment: SegmentSize { blocks: 40 }, ..header() };
    let options = LogOptions { on_growth, threaded: true, ring_blocks: 64, ..options() };
    let log = begin_as(&disk, &header, options);
    let reservation = log.reserve(1000, &crate::wait::Waiting::Forever).unwrap();
    assert_eq!(log.held_up(), 0, "the first change finds out");
    put(&log, 0, 10).unwrap();
    let after_one = log.held_up();
    assert_eq!(after_one, 1);
    for n in 1..5 {
        put(&log, n, 10).unwrap();
    }
    assert_eq!(log.held_up(), 5);
    let record = Record::Put { tree: TreeId(2), key: &key_of(5), value: &[5; 10] };
    for _ in 0..5 {
        let len = record.len_bytes() as u64;
        log.promise(len, Promised::OfReserved).unwrap();
        reservation.used(len);
        log.append(&record);
    }
    assert_eq!(log.held_up(), 5, "a batch holds others up: the sooner it ends the better");
    drop(reservation);
    presses.store(false, SeqCst);
    log.checkpointed(Epoch(4), log.tail(), log.tail());
    for n in 6..20 {
        put(&log, n, 10).unwrap();
    }
    assert_eq!(log.held_up(), 5);
}

#[test]
fn a_log_that_is_nearly_full_asks_for_a_checkpoint_though_the_last_one_has_all_of_it() {
    let disk = SimDisk::new(57);
    let limit_bytes = 64 * PAYLOAD_BYTES;
    let log = begin_as(&disk, &header(), LogOptions { limit_bytes, ..options() });
    let mut cut = start();
    for n in 0.. {
        put(&log, n, 900).unwrap();
        let (kept, fresh) = (log.tail().0 - start().0, log.tail().0 - cut.0);
        if kept > limit_bytes / 4 * 3 {
            break;
        }
        let growth = log.growth();
        assert_eq!((growth.fresh_bytes, growth.kept_bytes), (fresh, kept));
        // A batch that is under way keeps the log from its beginning on.
        cut = log.tail();
        log.checkpointed(CHECKPOINT, start(), cut);
        assert_eq!(log.growth().fresh_bytes, 0);
    }
    log.checkpointed(CHECKPOINT, start(), log.tail());
    let growth = log.growth();
    assert_eq!((growth.fresh_bytes, growth.kept_bytes), (log.fill().0, log.fill().0));
    log.checkpointed(CHECKPOINT, log.tail(), log.tail());
    assert_eq!(log.growth().fresh_bytes, 0);
}

/// What was left would have been paid by changes that nothing slows down any more.
#[test]
fn a_change_that_waits_pays_all_that_is_owed() {
    let disk = SimDisk::new(58);
    let header = FileHeader { segment: SegmentSize { blocks: 40 }, ..header() };
    let options = LogOptions {
        on_growth: Box::new(|_| Pace { pressure: 2.0, bound_bytes: 0 }),
        ring_blocks: 64,
        ..options()
    };
    let log = begin_as(&disk, &header, options);
    log.look();
    for n in 0..5 {
        put(&log, n, 10).unwrap();
        assert_eq!(log.owed_ns.load(SeqCst), 0, "change {n}");
    }
    assert_eq!(log.held_up(), 5);
}

/// After a page could not be written there are no checkpoints any more, and nobody empties the log.
#[test]
fn who_waits_for_room_that_no_checkpoint_will_make_is_told() {
    let disk = SimDisk::new(58);
    let limit_bytes = 8 * BLOCK_BYTES as u64;
    let log = begin_as(&disk, &header(), LogOptions { limit_bytes, threaded: true, ..options() });
    let flusher = run(&log);
    let (tell, told) = channel();
    let writer = {
        let log = log.clone();
        let write = move || {
            let refused = (0..).find_map(|n| put(&log, n, 900).err()).unwrap();
            tell.send(refused.kind()).unwrap();
        };
        thread::spawn_named("writer", write).unwrap()
    };
    while !log.pressed.load(SeqCst) {
        thread::yield_now();
    }
    log.refuse_to_wait(&Error::new(ErrorKind::Poisoned, "the disk has failed"));
    // It would wait for a minute.
    let refused = told.recv_timeout(Duration::from_secs(20)).expect("it is told at once");
    assert_eq!(refused, ErrorKind::Poisoned);
    // The log's thread may have made room since, up to the limit.
    let refused = (0..).find_map(|n| put(&log, n, 900).err()).unwrap();
    assert_eq!(refused.kind(), ErrorKind::Poisoned);
    log.flush().unwrap();
    assert_eq!(log.durable(), log.tail(), "what was appended is written all the same");
    log.stop();
    flusher.join().unwrap();
    writer.join().unwrap();
}

#[cfg(feature = "tracing")]
#[test]
fn a_batch_that_waits_long_for_the_room_of_another_is_a_stall() {
    use crate::testing::events::events_of;
    let limit_bytes = 64 * BLOCK_BYTES as u64;
    let log = begin_as(&SimDisk::new(57), &header(), LogOptions { limit_bytes, ..options() });
    let len = limit_bytes / 8;
    let held: Vec<_> =
        (0..2).map(|_| log.reserve(len, &crate::wait::Waiting::Forever).unwrap()).collect();
    let waiting = log.clone();
    let waits = thread::spawn_named("batch", move || {
        events_of(|| drop(waiting.reserve(len, &crate::wait::Waiting::Forever).unwrap()))
    });
    // Until it waits, and for longer than a stall takes.
    thread::sleep(Duration::from_millis(300));
    drop(held);
    let events = waits.unwrap().join().unwrap();
    let [stall] = &events[..] else { panic!("{events:?}") };
    assert_eq!(stall.names(), ["message", "waited_ms", "waits_for"]);
    assert_eq!((stall.target, stall.level), ("hedgerow::stall", tracing::Level::WARN));
    assert!(stall.number("waited_ms") >= 100 && stall.fields["waits_for"].contains("log"));
}
