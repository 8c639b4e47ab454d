//! Gets of a store that has just been opened: how fast the page table fills while threads read at random.
//!
//! `cold_gets FILE [GIB [THREADS [SECONDS]]]` makes a store of so many GiB (4) in FILE if there is none, by a bulk load of records of 1,000 bytes. Then it
//! opens it with a limit of a sixteenth of that, and prints the gets that so many threads (32) have made after each fifth of a second. Nothing is in memory at the start: a get
//! reads parts of the page map before it reads its page. The file is read with direct I/O, and is left where it is.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "clocks and threads of an example"
)]

use hedgerow::{Options, Result};
use hedgerow_sync::primitive::random::SplitMix64;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

const RECORD_BYTES: u64 = 1_008;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, usual| {
        arguments.get(at).map_or(usual, |text| text.parse().expect("a whole number"))
    };
    let Some(path) = arguments.first().map(Path::new) else {
        panic!("usage: cold_gets FILE [GIB [THREADS [SECONDS]]]");
    };
    let bytes = number(1, 4_u64) << 30;
    let (threads, seconds) = (number(2, 32), number(3, 4));
    let (records, limit) = (bytes / RECORD_BYTES, bytes / 16);
    if !path.exists() {
        let db = Options::new().memory_limit_bytes(limit).log(false).create(path)?;
        let value = [7; 1_000];
        let records = (0..records).map(|number| (number.to_be_bytes(), value));
        db.create_keyspace("k")?.bulk_load(records, 100)?;
        db.close()?;
    }
    let since = Instant::now();
    let db = Options::new().memory_limit_bytes(limit).log(false).open(path)?;
    println!("opened in {:?}", since.elapsed());
    let keyspace = db.keyspace("k")?;
    let done = AtomicU64::new(0);
    let until = Instant::now() + Duration::from_secs(seconds);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (keyspace, done) = (&keyspace, &done);
            scope.spawn(move || {
                let mut random = SplitMix64::new(thread);
                while Instant::now() < until {
                    let found = keyspace.get(&random.below(records).to_be_bytes());
                    assert!(found.is_ok_and(|found| found.is_some()), "every record was loaded");
                    done.fetch_add(1, Relaxed);
                }
            });
        }
        let mut before = 0;
        while Instant::now() < until {
            std::thread::sleep(Duration::from_millis(200));
            let now = done.load(Relaxed);
            print!("{} ", now - before);
            before = now;
        }
    });
    println!("\n{:.0} gets a second", done.into_inner() as f64 / seconds as f64);
    Ok(())
}
