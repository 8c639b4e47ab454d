//! What the log has promised: when something is durable at the latest, and what a batch has reserved.

use super::*;
use hedgerow_sync::primitive::atomic::AtomicU64;
use hedgerow_sync::primitive::atomic::Ordering::{Relaxed, SeqCst};
use hedgerow_sync::primitive::{Mutex, OnceLock, Weak};

/// Segments that are never used up here.
const LARGE: SegmentSize = SegmentSize { blocks: 64 };

/// Appends more than half of a ring of eight blocks, as far as there is room. Waits for nothing.
fn fill_half(log: &Log) {
    let value = [7; 900];
    let record = Record::Put { tree: TreeId(2), key: b"key", value: &value };
    let len = record.len_bytes() as u64;
    for _ in 0..5 * PAYLOAD_BYTES / len + 1 {
        if log.ring.promise(len) {
            log.append(&record);
        }
    }
}

/// The ring is half full whenever the log's thread looks, so that it writes each time; and each write takes more than a
/// third of the interval. The test needs no more of the clock than that a sleep is not shorter than it says.
#[test]
fn writes_without_a_sync_do_not_put_off_the_sync_that_is_due() {
    let interval = Duration::from_millis(240);
    let a_third = Duration::from_millis(81);
    let disk = SimDisk::new(60);
    let log: Arc<OnceLock<Weak<Log>>> = Arc::default();
    // Of each write, how many syncs came before it.
    let syncs: Arc<Mutex<Vec<u64>>> = Arc::default();
    let (most, looks) = (50, AtomicU64::new(0));
    let on_growth = {
        let log = log.clone();
        Box::new(move |_: Growth| {
            if let Some(log) = log.get().and_then(Weak::upgrade)
                && looks.fetch_add(1, Relaxed) < most
            {
                fill_half(&log);
            }
            Pace::default()
        })
    };
    let before_write = {
        let (disk, syncs, begun) = (disk.clone(), syncs.clone(), disk.calls(CallKind::SyncData));
        Box::new(move || {
            syncs.lock().push(disk.calls(CallKind::SyncData) - begun);
            thread::sleep(a_third);
            Ok(())
        })
    };
    let header = FileHeader { segment: LARGE, ..header() };
    let options = LogOptions {
        segment: LARGE,
        interval,
        threaded: true,
        on_growth,
        before_write,
        ..options()
    };
    let running = {
        let begun = begin_as(&disk, &header, options);
        log.set(Arc::downgrade(&begun)).unwrap();
        run(&begun)
    };
    while syncs.lock().len() < 5 {
        thread::sleep(Duration::from_millis(1));
    }
    log.get().and_then(Weak::upgrade).expect("the thread has it").stop();
    running.join().unwrap();
    // What the first write wrote was there before it, and the interval ended with the third.
    let syncs = syncs.lock();
    assert!(syncs[4] > 0, "syncs before each write: {syncs:?}");
}

#[test]
fn what_a_batch_takes_back_is_reserved_as_before() {
    let disk = SimDisk::new(61);
    // A ring so long that the room in the file is what promises end at.
    let log = begin_as(&disk, &header(), LogOptions { ring_blocks: 64, ..options() });
    let reservation = log.reserve(10_000, &crate::wait::Waiting::Forever).unwrap();
    let (reserved, limit) = (log.reserved.load(SeqCst), log.ring.limit());
    assert!(reserved >= 10_000);
    for len in [1, 999, 10_000] {
        log.promise(len, Promised::OfReserved).unwrap();
        assert_eq!(log.reserved.load(SeqCst), reserved - len);
        log.take_back(len, Promised::OfReserved);
        assert_eq!(log.reserved.load(SeqCst), reserved, "{len} bytes");
        log.widen();
        assert_eq!(log.ring.limit(), limit, "nobody else is promised what the batch may need");
    }
    log.promise(500, Promised::Freely).unwrap();
    log.take_back(500, Promised::Freely);
    assert_eq!(log.reserved.load(SeqCst), reserved, "nobody had reserved it");
    drop(reservation);
    assert_eq!(log.reserved.load(SeqCst), 0);
    assert!(log.ring.limit() > limit);
}
