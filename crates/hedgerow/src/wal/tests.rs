//! The log over a disk that forgets: what was said to be durable is read back, in order, after any crash, and
//! damage of it is named.

use super::block::{BLOCK_BYTES, PAYLOAD_BYTES, SegmentSize, start_of};
use super::*;
use crate::error::{Error, ErrorKind, Result};
use crate::storage::{AlignedBuffer, DirectIo, Disk, File, OpenMode};
use crate::testing::SimDisk;
use crate::testing::sim::{CallKind, Deceit, Fault, Lie};
use crate::types::{Epoch, Lsn, TreeId};
use hedgerow_sync::primitive::random::SplitMix64;
use hedgerow_sync::primitive::{Arc, thread};
use std::path::Path;
use std::time::Duration;

mod limits;
mod promises;
mod room;
mod stopping;
mod tail;
mod waiting;

const SEGMENT: SegmentSize = SegmentSize { blocks: 4 };
const CHECKPOINT: Epoch = Epoch(3);

fn header() -> FileHeader {
    FileHeader {
        identity: LogIdentity { store_id: [5; 16], incarnation: 2 },
        segment: SEGMENT,
        first_segment: 7,
        follows: CHECKPOINT,
    }
}

fn begin(disk: &SimDisk, threaded: bool) -> Arc<Log> {
    begin_with(disk, threaded, Box::new(|_| {}))
}

fn begin_with(
    disk: &SimDisk,
    threaded: bool,
    on_failure: Box<dyn Fn(&Error) + Send + Sync>,
) -> Arc<Log> {
    begin_as(disk, &header(), LogOptions { on_failure, threaded, ..options() })
}

fn options() -> LogOptions {
    LogOptions {
        identity: header().identity,
        segment: SEGMENT,
        first_segment: header().first_segment,
        checkpoint: CHECKPOINT,
        ring_blocks: 8,
        interval: Duration::from_millis(2),
        limit_bytes: u64::MAX,
        on_failure: Box::new(|_| {}),
        before_write: Box::new(|| Ok(())),
        threaded: false,
        on_growth: Box::new(|_| Pace::default()),
    }
}

fn begin_as(disk: &SimDisk, header: &FileHeader, options: LogOptions) -> Arc<Log> {
    let file = disk.open(Path::new("log"), OpenMode::CreateNew, DirectIo::WherePossible).unwrap();
    let mut block = AlignedBuffer::zeroed(BLOCK_BYTES).unwrap();
    block.copy_from_slice(&*header.encode());
    file.write_at(0, &block).unwrap();
    let options = LogOptions { segment: header.segment, ..options };
    let log = Log::begin(options, file).unwrap();
    log.file().sync_all().unwrap();
    disk.sync_dir(Path::new(".")).unwrap();
    Arc::new(log)
}

/// The kernel tells of a failed sync once; a second one may succeed although what the first lost is gone.
#[test]
fn a_failed_sync_is_not_tried_again_while_it_is_told_of() {
    let disk = SimDisk::new(8);
    let (tell, told) = std::sync::mpsc::channel();
    let on_failure = Box::new(move |_: &Error| {
        tell.send(()).unwrap();
        // Time for the other to flush, if nothing kept it from that.
        thread::sleep(Duration::from_millis(50));
    });
    let log = begin_with(&disk, false, on_failure);
    let end = put(&log, 1, 100).unwrap();
    disk.inject(Fault::once(CallKind::SyncData, 0, Fault::EIO));
    let other = {
        let log = log.clone();
        let commit = move || {
            told.recv().unwrap();
            log.wait_durable(end).map_err(|error| error.kind())
        };
        thread::spawn_named("other", commit).unwrap()
    };
    assert_eq!(log.wait_durable(end).unwrap_err().kind(), ErrorKind::DurabilityUnknown);
    assert_eq!(other.join().unwrap(), Err(ErrorKind::DurabilityUnknown));
    assert_eq!(log.durable(), start());
}

#[test]
fn a_log_that_was_stopped_writes_nothing_any_more_and_says_so() {
    let disk = SimDisk::new(9);
    let log = begin(&disk, false);
    let end = put(&log, 1, 100).unwrap();
    log.stop();
    let writes = disk.calls(CallKind::Write);
    assert_eq!(log.wait_durable(end).unwrap_err().kind(), ErrorKind::DurabilityUnknown);
    assert!((2..100).any(|n| put(&log, n, 3000).is_err()), "nobody makes room");
    assert_eq!(disk.calls(CallKind::Write), writes);
}

/// Starts the log's thread.
fn run(log: &Arc<Log>) -> thread::JoinHandle<()> {
    let log = log.clone();
    thread::spawn_named("log", move || log.run()).unwrap()
}

fn put(log: &Log, n: u64, value_bytes: usize) -> Result<Lsn> {
    let value = vec![n as u8; value_bytes];
    let key = n.to_be_bytes();
    let record = Record::Put { tree: TreeId(2), key: &key, value: &value };
    log.promise(record.len_bytes() as u64, Promised::Freely)?;
    Ok(log.append(&record).end)
}

fn start() -> Lsn {
    start_of(SEGMENT.first_block(header().first_segment))
}

fn from() -> ScanFrom {
    ScanFrom { replay_start: start(), log_end: start(), checkpoint: CHECKPOINT }
}

fn read(disk: &SimDisk, from: &ScanFrom) -> Result<Vec<u64>> {
    read_as(disk, &header(), from)
}

fn read_as(disk: &SimDisk, header: &FileHeader, from: &ScanFrom) -> Result<Vec<u64>> {
    let file: Arc<dyn File> =
        disk.open(Path::new("log"), OpenMode::ReadOnly, DirectIo::WherePossible)?;
    let found = read_header(&*file)?;
    assert_eq!(found, *header);
    let mut keys = Vec::new();
    let mut last = from.replay_start;
    let end = scan(&*file, &found, from, &mut |record, place| {
        assert!(place.start >= last && place.end > place.start);
        last = place.end;
        let Record::Put { key, value, .. } = record else { panic!("{record:?}") };
        let n = u64::from_be_bytes(key.try_into().unwrap());
        assert!(value.iter().all(|&byte| byte == n as u8));
        keys.push(n);
        Ok(())
    })?;
    assert_eq!(end.records, keys.len() as u64);
    assert!(end.end >= last);
    Ok(keys)
}

#[test]
fn after_any_crash_a_prefix_is_there_with_all_that_was_durable() {
    let mut random = SplitMix64::new(11);
    for seed in 0..60 {
        let disk = SimDisk::new(seed);
        let log = begin(&disk, false);
        let mut ends = Vec::new();
        for n in 0..120_u64 {
            ends.push(put(&log, n, random.next_u64() as usize % 900).unwrap());
            if random.next_u64().is_multiple_of(9) {
                log.flush().unwrap();
            }
            let durable = log.durable();
            let acknowledged = ends.iter().filter(|end| **end <= durable).count();
            let found = read(&disk.crash(seed * 1000 + n), &from()).unwrap();
            assert!(found.len() >= acknowledged, "{} of {acknowledged}, seed {seed}", found.len());
            assert_eq!(found, (0..found.len() as u64).collect::<Vec<_>>(), "seed {seed}");
        }
    }
}

#[test]
fn the_log_can_be_read_from_any_record_and_segments_are_used_again() {
    let disk = SimDisk::new(1);
    let log = begin(&disk, false);
    let mut ends = vec![start()];
    for n in 0..400_u64 {
        ends.push(put(&log, n, 500).unwrap());
        if n % 7 == 0 {
            log.flush().unwrap();
        }
        if n % 50 == 49 {
            // A checkpoint with everything that lies more than thirty records back.
            let end = ends[n as usize - 30];
            log.checkpointed(CHECKPOINT, end, end);
        }
    }
    log.flush().unwrap();
    for skipped in (370..=400).rev() {
        let from = ScanFrom { replay_start: ends[skipped], ..from() };
        let expected: Vec<u64> = (skipped as u64..400).collect();
        assert_eq!(read(&disk, &from).unwrap(), expected);
    }
    assert!(log.file_bytes() < 8 * SEGMENT.file_bytes(), "{} bytes", log.file_bytes());
}

/// A place that is used again says what it was before, if a disk has lost the write of its name: what is in it is not lost
/// for that.
#[test]
fn a_segment_whose_name_was_never_written_is_found_by_its_blocks() {
    for place in 0..2 {
        let disk = SimDisk::new(1);
        let log = begin(&disk, false);
        let name = SEGMENT.place_offset_bytes(place);
        disk.inject_lie(Lie::once(Deceit::WriteLost, 0).within(name..name + 1));
        let mut ends = vec![start()];
        let mut kept = 0;
        for n in 0..60_u64 {
            ends.push(put(&log, n, 700).unwrap());
            log.flush().unwrap();
            if n % 10 == 9 {
                kept = n as usize - 3;
                log.checkpointed(CHECKPOINT, ends[kept], ends[kept]);
            }
            let from = ScanFrom { replay_start: ends[kept], log_end: ends[kept], ..from() };
            let expected: Vec<u64> = (kept as u64..=n).collect();
            assert_eq!(read(&disk, &from).unwrap(), expected, "place {place}, after {n}");
        }
        assert_eq!(disk.lies_told().len(), 1, "place {place}");
    }
}

#[test]
fn damage_of_what_was_durable_is_named_and_a_torn_end_is_not_damage() {
    let disk = SimDisk::new(1);
    let log = begin(&disk, false);
    for n in 0..40 {
        put(&log, n, 700).unwrap();
        log.flush().unwrap();
    }
    assert_eq!(read(&disk, &from()).unwrap().len(), 40);
    let file = disk.open(Path::new("log"), OpenMode::ReadWrite, DirectIo::Never).unwrap();
    let len = file.len_bytes().unwrap();
    let (mut refused, mut shorter) = (0, 0);
    for at in (BLOCK_BYTES as u64..len).step_by(512) {
        let mut byte = [0];
        file.read_unaligned(at, &mut byte).unwrap();
        file.write_at(at, &[byte[0] ^ 1]).unwrap();
        match read(&disk, &from()) {
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::Corrupted { .. }), "{error:?}");
                refused += 1;
            }
            // The last block is the end: nobody says that it was durable. Beyond it nothing is read.
            Ok(keys) if keys.len() == 39 => shorter += 1,
            Ok(keys) => assert_eq!(keys.len(), 40, "byte {at}"),
        }
        file.write_at(at, &byte).unwrap();
    }
    assert!(refused >= 39 * 8, "{refused}");
    assert_eq!(shorter, 8, "the sectors of the last block");
    // A checkpoint knows better.
    let later = ScanFrom { log_end: log.tail(), ..from() };
    assert_eq!(read(&disk, &later).unwrap().len(), 40);
    let torn = disk.crash(1);
    let file = torn.open(Path::new("log"), OpenMode::ReadWrite, DirectIo::Never).unwrap();
    file.set_len(len - SEGMENT.file_bytes()).unwrap();
    assert!(read(&torn, &later).is_err(), "a segment is missing");
    let older = ScanFrom { checkpoint: Epoch(CHECKPOINT.0 - 1), ..from() };
    assert!(read(&disk, &older).is_err(), "the log knows a newer checkpoint");
}

#[test]
fn a_failed_write_or_sync_is_told_to_everybody_who_waits_and_to_all_who_come() {
    for kind in [CallKind::Write, CallKind::SyncData] {
        let disk = SimDisk::new(1);
        let log = begin(&disk, false);
        put(&log, 0, 10).unwrap();
        log.flush().unwrap();
        let durable = log.durable();
        let end = put(&log, 1, 10).unwrap();
        disk.inject(Fault::once(kind, 0, Fault::EIO));
        assert_eq!(log.wait_durable(end).unwrap_err().kind(), ErrorKind::DurabilityUnknown);
        assert_eq!(log.wait_durable(end).unwrap_err().kind(), ErrorKind::DurabilityUnknown);
        assert_eq!(log.durable(), durable, "{kind:?}");
        assert_eq!(log.failure().map(|e: Error| e.kind()), Some(ErrorKind::Poisoned));
        // What was durable before stays so.
        log.wait_durable(durable).unwrap();
        let refused = (0..1000).find_map(|n| put(&log, n, 900).err()).expect("the ring is finite");
        assert_eq!(refused.kind(), ErrorKind::Poisoned);
    }
}

#[test]
fn committers_share_flushes_and_the_thread_makes_the_rest_durable() {
    let disk = SimDisk::new(1);
    let log = begin(&disk, true);
    let running = run(&log);
    let committers: Vec<_> = (0..4_u64)
        .map(|who| {
            let log = log.clone();
            thread::spawn_named("committer", move || {
                for n in 0..300 {
                    let end = put(&log, who * 1000 + n, (n % 600) as usize).unwrap();
                    if who < 2 {
                        log.wait_durable(end).unwrap();
                        assert!(log.durable() >= end);
                    }
                }
            })
            .unwrap()
        })
        .collect();
    for committer in committers {
        committer.join().unwrap();
    }
    let end = log.tail();
    while log.durable() < end {
        thread::sleep(Duration::from_millis(1));
    }
    log.stop();
    running.join().unwrap();
    let mut keys = read(&disk.crash(3), &from()).unwrap();
    keys.sort_unstable();
    let expected: Vec<u64> = (0..4).flat_map(|who| (0..300).map(move |n| who * 1000 + n)).collect();
    assert_eq!(keys, expected);
    assert!(log.tail().0 - start().0 < 1200 * PAYLOAD_BYTES, "flushes are shared");
}
