//! Gets of values of several lengths, data eight times the memory, beside `fio` at the same block size and depth.
//!
//! `values_beside_fio [SECONDS [TURNS [PAYLOAD_MIB [THREADS [LENGTH]]]]]` prints a line of JSON for the machine and one for each length, or for that one. In each turn a store is
//! made in the directory for temporary files, loaded in random order, and left to settle. Then it is read at random by `THREADS` for `SECONDS`, and
//! `fio` reads a file of the same length, in the same directory, with as many jobs, for as long. Both read with direct I/O. The block of `fio` is a
//! page where the leaf holds the value, and else what the value takes in the file. `fio` has to be installed.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "clocks of an example")]

use hedgerow::{Options, Result};
use hedgerow_bench::machine;
use hedgerow_sync::primitive::random::SplitMix64;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const LENGTHS: [usize; 9] = [100, 1_000, 1_900, 2_000, 4_000, 8_000, 16_000, 64_000, 200_000];
const PAGE_BYTES: usize = 4096;
/// The longest value that leaves hold.
const INLINE_BYTES: usize = 1_952;
/// Of each part of a value with a header in the file.
const CHUNK_BYTES: usize = 32 << 10;
const CHUNK_HEADER_BYTES: usize = 8;

/// What was measured of one length, in one turn.
struct Turn {
    gets: f64,
    reads: f64,
    /// Reads of pages that a get took.
    pages_a_get: f64,
}

/// What `fio` reads at once for a value of such a length.
fn block_bytes(len: usize) -> usize {
    if len <= INLINE_BYTES {
        return PAGE_BYTES;
    }
    let chunks = len.div_ceil(CHUNK_BYTES - CHUNK_HEADER_BYTES);
    (len + chunks * CHUNK_HEADER_BYTES).next_multiple_of(512)
}

/// Gets a second of uniformly chosen records, and how many pages each read.
fn gets(path: &Path, payload: u64, len: usize, seconds: u64, threads: u64) -> Result<(f64, f64)> {
    let (limit, records) = (payload / 8, payload / len as u64);
    let db = Options::new().memory_limit_bytes(limit).create(path)?;
    let keyspace = db.keyspace("k")?;
    let value = vec![7; len];
    // Every number below `records` once, far from its neighbours.
    let step = (records * 5 / 8) | 1;
    let step =
        (step..).find(|step| gcd(*step, records) == 1).expect("a number without common factor");
    for place in 0..records {
        keyspace.put(&(place * step % records).to_be_bytes(), &value)?;
    }
    // Until it rests: sparse leaves are merged, and the file gets shorter, for some seconds.
    let mut written = u64::MAX;
    while written != db.stats()?.pool.pages_written {
        db.checkpoint()?;
        written = db.stats()?.pool.pages_written;
        std::thread::sleep(Duration::from_secs(2));
    }
    let before = db.stats()?.pool.faults;
    let most = Duration::from_secs(seconds);
    let count: Result<u64> = std::thread::scope(|scope| {
        let read = |thread: u64| {
            let keyspace = keyspace.clone();
            move || {
                let (mut random, mut count, begun) =
                    (SplitMix64::new(thread), 0_u64, Instant::now());
                while begun.elapsed() < most {
                    let key = random.below(records).to_be_bytes();
                    let is_whole = keyspace.get_with(&key, |found| found.len() == len)?;
                    assert_eq!(is_whole, Some(true), "each record is there");
                    count += 1;
                }
                Ok(count)
            }
        };
        let all: Vec<_> = (0..threads).map(|thread| scope.spawn(read(thread))).collect();
        all.into_iter().map(|thread| thread.join().expect("a reader")).sum()
    });
    let count = count?;
    let pages = db.stats()?.pool.faults - before;
    drop(keyspace);
    db.close()?;
    Ok((count as f64 / seconds as f64, pages as f64 / count as f64))
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Reads a second of `fio`.
fn fio(path: &Path, payload: u64, block: usize, seconds: u64, threads: u64) -> Result<f64> {
    let words = [
        "--name=reads".to_owned(),
        format!("--filename={}", path.display()),
        format!("--size={payload}"),
        format!("--bs={block}"),
        format!("--runtime={seconds}"),
        format!("--numjobs={threads}"),
    ];
    let fixed = [
        "--rw=randread",
        "--direct=1",
        "--ioengine=psync",
        "--time_based",
        "--group_reporting",
        "--output-format=json",
    ];
    let said = Command::new("fio").args(words).args(fixed).output();
    let said = said.unwrap_or_else(|error| give_up(&format!("cannot start fio: {error}")));
    let read: Option<Value> = serde_json::from_slice(&said.stdout).ok();
    let rate = read.and_then(|read| read["jobs"][0]["read"]["iops"].as_f64());
    Ok(rate.unwrap_or_else(|| {
        give_up(&format!("fio gave no rate: {}", String::from_utf8_lossy(&said.stderr)))
    }))
}

fn give_up(why: &str) -> ! {
    eprintln!("{why}");
    std::process::exit(2);
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn main() -> Result<()> {
    let number = |at: usize, default: u64| {
        std::env::args().nth(at).map_or(default, |word| {
            let usage =
                "usage: values_beside_fio [SECONDS [TURNS [PAYLOAD_MIB [THREADS [LENGTH]]]]]";
            word.parse().unwrap_or_else(|_| give_up(usage))
        })
    };
    let (seconds, turns, payload, threads) =
        (number(1, 3), number(2, 3), number(3, 256) << 20, number(4, 1));
    let (machine, revision) = (machine::Machine::this(), machine::revision());
    let command = machine::command();
    println!("{}", json!({"machine": machine, "revision": revision, "command": command}));
    let file = |name: &str| -> PathBuf {
        std::env::temp_dir().join(format!("values-beside-fio-{}.{name}", std::process::id()))
    };
    let (store, plain) = (file("hrow"), file("fio"));
    let lengths = match number(5, 0) as usize {
        0 => LENGTHS.to_vec(),
        len => vec![len],
    };
    for len in lengths {
        let block = block_bytes(len);
        let mut all = Vec::new();
        for _ in 0..turns {
            let (gets, pages_a_get) = gets(&store, payload, len, seconds, threads)?;
            std::fs::remove_file(&store).ok();
            all.push(Turn {
                gets,
                reads: fio(&plain, payload, block, seconds, threads)?,
                pages_a_get,
            });
        }
        let of = |take: fn(&Turn) -> f64| median(all.iter().map(take).collect());
        println!(
            "{}",
            json!({
                "value_bytes": len, "payload_bytes": payload, "threads": threads, "block_bytes": block, "turns": turns,
                "gets_a_second": of(|turn| turn.gets), "fio_reads_a_second": of(|turn| turn.reads),
                "ratio": of(|turn| turn.gets / turn.reads), "pages_a_get": of(|turn| turn.pages_a_get),
            })
        );
    }
    std::fs::remove_file(&plain).ok();
    Ok(())
}
