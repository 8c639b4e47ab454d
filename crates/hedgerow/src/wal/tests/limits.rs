//! How far promises go: what is prepared, less what is kept for flushes and for batches; and how often it is looked
//! at whether changes have to wait.

use super::*;
use hedgerow_sync::primitive::atomic::AtomicU64;
use hedgerow_sync::primitive::atomic::Ordering::SeqCst;

/// Payload of two segments of 40 blocks less the 20 that are kept, from the start of the log on.
const PREPARED: u64 = (2 * 40 - 20) * PAYLOAD_BYTES;

fn of_segments(blocks: u32) -> FileHeader {
    FileHeader { segment: SegmentSize { blocks }, ..header() }
}

/// A log that begins with two segments of so many blocks, and a ring that has room for more.
fn roomy(disk: &SimDisk, blocks: u32, options: LogOptions) -> Arc<Log> {
    begin_as(disk, &of_segments(blocks), LogOptions { ring_blocks: 1024, ..options })
}

/// Where a log of segments of 40 blocks begins.
fn start_of_log() -> u64 {
    start_of(SegmentSize { blocks: 40 }.first_block(header().first_segment)).0
}

#[test]
fn half_of_a_segment_is_kept_for_flushes_and_of_a_large_one_a_block_for_each_writer() {
    for (blocks, spare) in [(4, 2), (7, 3), (40, 20), (62, 45), (256, 128), (258, 128), (400, 128)]
    {
        let log = roomy(&SimDisk::new(60), blocks, options());
        assert_eq!(log.spare_blocks(), spare, "of {blocks}");
    }
}

#[test]
fn promises_end_where_what_is_kept_for_flushes_begins() {
    let log = roomy(&SimDisk::new(61), 40, options());
    assert_eq!(log.ring.limit().0 - start_of_log(), PREPARED);
    let most = PREPARED - PAYLOAD_BYTES;
    assert!(log.ring.promise(most));
    assert!(!log.ring.promise(1));
}

#[test]
fn what_batches_have_reserved_is_kept_from_others_and_no_more() {
    let log = roomy(&SimDisk::new(62), 40, options());
    let reservation = log.reserve(10 * PAYLOAD_BYTES, &crate::wait::Waiting::Forever).unwrap();
    let reserved = log.reserved.load(SeqCst);
    assert!(reserved > 10 * PAYLOAD_BYTES);
    // What others may have been promised goes to the end of what was prepared, so a segment more was.
    let prepared = PREPARED + 40 * PAYLOAD_BYTES;
    assert_eq!(log.ring.limit().0 - start_of_log(), prepared - reserved);
    log.widen();
    assert_eq!(log.ring.limit().0 - start_of_log(), prepared - reserved);
    drop(reservation);
    assert_eq!(log.ring.limit().0 - start_of_log(), prepared);
}

#[test]
fn a_batch_that_ends_gives_back_what_it_has_not_used_and_nothing_of_others() {
    let log = roomy(&SimDisk::new(70), 400, options());
    let first = log.reserve(10_000, &crate::wait::Waiting::Forever).unwrap();
    let of_one = log.reserved.load(SeqCst);
    let second = log.reserve(10_000, &crate::wait::Waiting::Forever).unwrap();
    assert_eq!(log.reserved.load(SeqCst), 2 * of_one);
    for _ in 0..3 {
        log.promise(1000, Promised::OfReserved).unwrap();
        first.used(1000);
    }
    assert_eq!(log.reserved.load(SeqCst), 2 * of_one - 3000);
    drop(first);
    assert_eq!(log.reserved.load(SeqCst), of_one);
    drop(second);
    assert_eq!(log.reserved.load(SeqCst), 0);
}

#[test]
fn what_one_batch_has_reserved_another_one_does_not_get() {
    let log = roomy(&SimDisk::new(71), 40, options());
    let segment_bytes = of_segments(40).segment.file_bytes();
    let before = log.file_bytes();
    let _first = log.reserve(10 * PAYLOAD_BYTES, &crate::wait::Waiting::Forever).unwrap();
    let of_one = log.reserved.load(SeqCst);
    assert_eq!(log.file_bytes(), before + segment_bytes);
    // Of the 100 blocks that are prepared others may have been promised all but those of the first.
    let _second = log.reserve(10 * PAYLOAD_BYTES, &crate::wait::Waiting::Forever).unwrap();
    assert_eq!(log.reserved.load(SeqCst), 2 * of_one);
    assert_eq!(log.file_bytes(), before + 2 * segment_bytes);
}

#[test]
fn a_batch_gets_half_of_what_is_kept_for_flushes_as_well() {
    let log = roomy(&SimDisk::new(63), 40, options());
    let most = PREPARED + 10 * PAYLOAD_BYTES - PAYLOAD_BYTES;
    assert!(!log.ring.promise_reserved(most + 1));
    assert!(log.ring.promise_reserved(most));
    assert!(!log.ring.promise_reserved(1));
}

#[test]
fn promises_end_at_the_limit_of_the_log_and_go_on_from_a_checkpoint() {
    let limit_bytes = 30 * PAYLOAD_BYTES;
    let log = roomy(&SimDisk::new(64), 40, LogOptions { limit_bytes, ..options() });
    let begin = start_of_log();
    assert_eq!(log.ring.limit().0 - begin, limit_bytes);
    assert_eq!(log.fill(), (0, limit_bytes));
    put(&log, 1, 8 * PAYLOAD_BYTES as usize).unwrap();
    log.flush().unwrap();
    let used = log.tail().0 - begin;
    assert_eq!(log.fill(), (used, limit_bytes));
    log.checkpointed(Epoch(4), log.tail(), log.tail());
    assert_eq!(log.fill(), (0, limit_bytes));
    assert_eq!(log.ring.limit().0 - begin, used + limit_bytes);
}

#[test]
fn a_log_with_a_thread_is_looked_at_again_whenever_so_much_was_appended() {
    let looks = Arc::new(AtomicU64::new(0));
    let on_growth = {
        let looks = looks.clone();
        Box::new(move |growth: Growth| {
            assert_eq!(growth.fresh_bytes, growth.kept_bytes);
            looks.fetch_add(1, SeqCst);
            Pace::default()
        })
    };
    let options = LogOptions { threaded: true, on_growth, ..options() };
    let log = roomy(&SimDisk::new(65), 400, options);
    let (begin, every) = (log.tail().0, 128 << 10);
    let mut seen = Vec::new();
    for n in 0..400 {
        put(&log, n, 1000).unwrap();
        if looks.load(SeqCst) as usize > seen.len() {
            seen.push(log.tail().0 - begin);
        }
    }
    assert_eq!(seen.len(), 4, "{seen:?}");
    assert!(seen[0] < 2000, "the first change is one of them");
    for pair in seen.windows(2) {
        assert!((every..every + 2000).contains(&(pair[1] - pair[0])), "{seen:?}");
    }
}

#[test]
fn a_segment_is_prepared_before_what_is_kept_for_flushes_is_needed() {
    let log = roomy(&SimDisk::new(66), 40, options());
    let mut n = 0;
    while !log.wants_segment() {
        put(&log, n, 1000).unwrap();
        n += 1;
    }
    // Of 80 blocks 20 are kept, and half a segment is to be left beside them.
    assert_eq!((log.tail().0 - start_of_log()) / PAYLOAD_BYTES, 40);
}

#[test]
fn as_much_is_prepared_ahead_as_was_appended_and_as_the_ring_holds_at_most() {
    let disk = SimDisk::new(67);
    let header = of_segments(40);
    let log = begin_as(&disk, &header, LogOptions { ring_blocks: 16, ..options() });
    let mut n = 0;
    while !log.wants_ahead() {
        put(&log, n, 1000).unwrap();
        n += 1;
    }
    // 60 blocks that are not kept, less the 16 of the ring.
    assert_eq!((log.tail().0 - start_of_log()) / PAYLOAD_BYTES, 44);
    let disk = SimDisk::new(68);
    let limit_bytes = 50 * PAYLOAD_BYTES;
    let log = begin_as(&disk, &header, LogOptions { ring_blocks: 16, limit_bytes, ..options() });
    for n in 0..180 {
        put(&log, n, 1000).unwrap();
    }
    assert!(!log.wants_ahead(), "nothing is ever appended beyond the limit");
}

#[test]
fn a_ring_has_room_for_what_was_not_written_and_a_block_more() {
    let log = begin_as(&SimDisk::new(69), &of_segments(400), options());
    let first = log.written.load(SeqCst);
    assert!(log.ring.has_blocks_for(7 * PAYLOAD_BYTES, first));
    assert!(!log.ring.has_blocks_for(7 * PAYLOAD_BYTES + 1, first));
    put(&log, 1, 100).unwrap();
    let len = log.tail().0 - start_of(first).0;
    assert!(!log.ring.has_blocks_for(7 * PAYLOAD_BYTES, first));
    assert!(log.ring.has_blocks_for(7 * PAYLOAD_BYTES - len, first));
    assert!(log.ring.has_blocks_for(8 * PAYLOAD_BYTES - len, first + 1));
}
