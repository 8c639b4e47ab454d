//! Verification beside as many writers as a tiny pool admits: neither keeps the other out for ever. (When it kept
//! writers out while it read, those that had been admitted before kept it out in turn, a deadlock.)
#![allow(clippy::disallowed_methods, reason = "tests use real threads")]

use hedgerow::Options;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

const WRITERS: u64 = 6;
const RECORDS: u64 = 4_000;
const VERIFICATIONS: u64 = 20;
/// A watchdog against waiting for ever, far above what the work takes.
const PATIENCE: Duration = Duration::from_secs(300);

fn key(n: u64) -> [u8; 8] {
    (n % RECORDS).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

#[test]
fn verification_ends_beside_as_many_writers_as_a_tiny_pool_admits() {
    let dir = tempfile::tempdir().unwrap();
    let limit = hedgerow::smallest_memory_limit_bytes(512);
    let options = Options::new().page_bytes(512).memory_limit_bytes(limit);
    let db = crate::common::create_small(options, Some(&dir.path().join("small.hrow")));
    let ks = db.keyspace("records").unwrap();
    for n in 0..RECORDS {
        ks.put(&key(n), &n.to_be_bytes()).unwrap();
    }
    let (done, puts, verified) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (ks, done, puts) = (&ks, &done, &puts);
            scope.spawn(move || {
                let mut n = writer;
                while !done.load(SeqCst) {
                    ks.put(&key(n), &n.to_be_bytes()).unwrap();
                    puts.fetch_add(1, SeqCst);
                    n += 7 * WRITERS;
                }
            });
        }
        let (done, verified) = (&done, &verified);
        scope.spawn(move || {
            let begun = Instant::now();
            while !done.load(SeqCst) {
                if begun.elapsed() > PATIENCE {
                    // A panic would wait for the threads of the scope, which is what does not end.
                    eprintln!("{} verifications, and no more", verified.load(SeqCst));
                    std::process::abort();
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        for _ in 0..VERIFICATIONS {
            let report = db.verify(|_| ControlFlow::Continue(())).unwrap();
            assert!(report.is_clean(), "{:#?}", report.findings);
            verified.fetch_add(1, SeqCst);
        }
        done.store(true, SeqCst);
    });
    assert!(puts.load(SeqCst) > 0);
}
