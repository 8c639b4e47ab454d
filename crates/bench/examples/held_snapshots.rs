//! What long snapshots and large transactions cost everybody else, by the clock.
//!
//! `held_snapshots overwrite|long|hundred|large|scans [SECONDS [LIMIT_MIB [PART]]]` prints a line of JSON for the machine and one for what was measured:
//!
//! - `overwrite`: one thread overwrites records at random, for `SECONDS` without a snapshot and for as long with one that is held throughout, in
//!   turns of a tenth of that. Rates, the longest file and the most bytes of versions of both, and whether the snapshot still reads what it did.
//! - `long`: the same of two pairs of stores, in memory and of four times the memory (`PART` is not looked at). Of each pair one holds a snapshot for
//!   `SECONDS`, and the other none. One thread overwrites in all four, a tenth of a second each in turns, so what else the machine does meets all.
//! - `hundred`: a hundred snapshots begin a second apart (`SECONDS / 100`), and all are held while a thread overwrites. Each is read at random
//!   whenever another one begins: a wrong value is an error. How many were given up, and the longest pause of the writer.
//! - `large`: a reader gets records at random while transactions of a quarter of the limit are committed, for `SECONDS`. Quantiles of the
//!   gets' times, beside those without.
//! - `scans`: records a second that are read in order, for `SECONDS` in all: by a scan, by scans in a transaction and in a snapshot of just now, and in a
//!   snapshot that lives in a checkpoint because all records were overwritten since, forwards and backwards. Each value is checked.
//!
//! A file in the directory for temporary files, with a log. Keys of 8 bytes, values of 100 that begin with the round in which they were put, and as
//! many records as take `PART` of the limit, in percent (default: 50; 400 is four times the memory).

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "clocks of an example")]

use hedgerow::{
    Database, Error, ErrorKind, Isolation, Keyspace, Options, Records, Result, Snapshot,
};
use hedgerow_bench::machine;
use hedgerow_sync::primitive::random::SplitMix64;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

const VALUE_BYTES: usize = 100;
/// Bytes of the file that a record takes about, for how many there are to be.
const RECORD_BYTES: u64 = 170;
const SNAPSHOTS: u32 = 100;

/// A store with its records.
struct Rig {
    db: Database,
    keyspace: Keyspace,
    records: u64,
    limit_bytes: u64,
    path: PathBuf,
}

impl Rig {
    /// With as many records as take a part of the limit, in percent.
    fn new(limit_bytes: u64, part: u64, name: &str) -> Result<Rig> {
        let file = format!("held-snapshots-{}{name}.hrow", std::process::id());
        let path = std::env::temp_dir().join(file);
        let db = Options::new().memory_limit_bytes(limit_bytes).create(&path)?;
        let keyspace = db.keyspace("k")?;
        let records = limit_bytes * part / 100 / RECORD_BYTES;
        for number in 0..records {
            keyspace.put(&number.to_be_bytes(), &value(0))?;
        }
        Ok(Rig { db, keyspace, records, limit_bytes, path })
    }

    fn close(self) -> Result<()> {
        let Rig { db, keyspace, path, .. } = self;
        drop(keyspace);
        db.close()?;
        std::fs::remove_file(&path).ok();
        Ok(())
    }
}

fn value(round: u64) -> [u8; VALUE_BYTES] {
    let mut value = [7; VALUE_BYTES];
    value[..8].copy_from_slice(&round.to_be_bytes());
    value
}

fn round_of(value: &[u8]) -> u64 {
    u64::from_be_bytes(value[..8].try_into().expect("eight bytes"))
}

/// What a thread that overwrites has done: it puts the number of its change into a random record, one after the other.
struct Writer {
    random: SplitMix64,
    changes: u64,
    /// The number of the last change of each record.
    last: Vec<u64>,
    longest_pause: Duration,
}

impl Writer {
    fn new(records: u64) -> Writer {
        let last = vec![0; records as usize];
        Writer { random: SplitMix64::new(7), changes: 0, last, longest_pause: Duration::ZERO }
    }

    /// Overwrites until `ends`; the longest file, and the most bytes of versions.
    fn until(&mut self, rig: &Rig, ends: Instant) -> Result<(u64, u64)> {
        let mut most = (0, 0);
        loop {
            for _ in 0..1000 {
                let number = self.random.below(rig.records);
                self.changes += 1;
                let begun = Instant::now();
                rig.keyspace.put(&number.to_be_bytes(), &value(self.changes))?;
                self.longest_pause = self.longest_pause.max(begun.elapsed());
                self.last[number as usize] = self.changes;
            }
            let stats = rig.db.stats()?;
            most.0 = most.0.max(stats.file_bytes);
            most.1 = most.1.max(stats.snapshots.versions_bytes);
            if Instant::now() >= ends {
                return Ok(most);
            }
        }
    }
}

/// Whether a snapshot has records as they were: some at random, each of which was put in that round. False: it was given up.
///
/// Errors: a wrong value is `Corrupted`.
fn reads_right(
    rig: &Rig,
    snapshot: &Snapshot,
    expected: &[u64],
    random: &mut SplitMix64,
) -> Result<bool> {
    let as_of = snapshot.keyspace(&rig.keyspace);
    for _ in 0..100 {
        let number = random.below(rig.records);
        let read = as_of
            .as_ref()
            .map_err(Error::duplicate)
            .and_then(|as_of| as_of.get(&number.to_be_bytes()));
        match read {
            Ok(found) => {
                let round = found.map(|value| round_of(&value));
                assert_eq!(round, Some(expected[number as usize]), "record {number}");
            }
            Err(error) if error.kind() == ErrorKind::SnapshotTooOld => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

fn overwrite(rig: &Rig, seconds: u64) -> Result<Value> {
    let mut writer = Writer::new(rig.records);
    let mut random = SplitMix64::new(11);
    let turn = Duration::from_secs_f64(seconds as f64 / 10.0);
    // What the store comes to after every record was overwritten once.
    writer.until(rig, Instant::now() + turn)?;
    let mut sides = [(0, 0.0, (0, 0)); 2];
    let mut at_first = Vec::new();
    let mut held: Option<Snapshot> = None;
    let mut is_right = true;
    // Without, and then with it: it lives through all turns of the second half.
    for side in [0, 1] {
        if side == 1 {
            at_first = writer.last.clone();
            held = Some(rig.db.snapshot()?);
        }
        for _ in 0..10 {
            let (begun, before) = (Instant::now(), writer.changes);
            let most = writer.until(rig, begun + turn)?;
            let of = &mut sides[side];
            of.0 += writer.changes - before;
            of.1 += begun.elapsed().as_secs_f64();
            of.2 = (of.2.0.max(most.0), of.2.1.max(most.1));
            if let Some(snapshot) = &held {
                is_right &= reads_right(rig, snapshot, &at_first, &mut random)?;
            }
        }
    }
    let [without, with] = sides.map(|(changes, seconds, most)| {
        json!({"puts_per_second": (changes as f64 / seconds) as u64, "file_bytes": most.0, "versions_bytes": most.1})
    });
    let ratio = (sides[1].0 as f64 / sides[1].1) / (sides[0].0 as f64 / sides[0].1);
    let file = sides[1].2.0 as f64 / sides[0].2.0 as f64;
    Ok(
        json!({"without": without, "with": with, "rate_ratio": ratio, "file_ratio": file, "snapshot_read_right": is_right}),
    )
}

fn long(limit_bytes: u64, seconds: u64) -> Result<Value> {
    let mut random = SplitMix64::new(11);
    let slice = Duration::from_millis(100);
    let mut sides = Vec::new();
    for (number, part) in [50, 50, 400, 400].into_iter().enumerate() {
        let rig = Rig::new(limit_bytes, part, &format!("-{number}"))?;
        let mut writer = Writer::new(rig.records);
        // What the store comes to after every record was overwritten once.
        while writer.changes < 2 * rig.records {
            writer.until(&rig, Instant::now())?;
        }
        let at_first = writer.last.clone();
        let held = if number % 2 == 1 { Some(rig.db.snapshot()?) } else { None };
        writer.changes = 0;
        sides.push((rig, writer, held, at_first, 0.0, (0, 0)));
    }
    let ends = Instant::now() + Duration::from_secs(seconds);
    let mut is_right = true;
    for turn in 0_u32.. {
        for (rig, writer, held, at_first, spent, most) in &mut sides {
            let begun = Instant::now();
            let now = writer.until(rig, begun + slice)?;
            *spent += begun.elapsed().as_secs_f64();
            *most = (most.0.max(now.0), most.1.max(now.1));
            if let Some(snapshot) = held.as_ref().filter(|_| turn.is_multiple_of(50)) {
                is_right &= reads_right(rig, snapshot, at_first, &mut random)?;
            }
        }
        if Instant::now() >= ends {
            break;
        }
    }
    let mut found = Vec::new();
    for (pair, name) in sides.chunks(2).zip(["in memory", "four times the memory"]) {
        let rate = |of: usize| pair[of].1.changes as f64 / pair[of].4;
        let file = |of: usize| pair[of].5.0 as f64;
        found.push(json!({
            "what": name,
            "puts_per_second": [rate(0) as u64, rate(1) as u64],
            "rate_ratio": rate(1) / rate(0),
            "file_ratio": file(1) / file(0),
            "versions_bytes": pair[1].5.1,
            "records": pair[1].0.records,
        }));
    }
    for (rig, _, held, ..) in sides {
        drop(held);
        rig.close()?;
    }
    Ok(json!({"pairs": found, "snapshots_read_right": is_right}))
}

fn hundred(rig: &Rig, seconds: u64) -> Result<Value> {
    let mut writer = Writer::new(rig.records);
    let mut random = SplitMix64::new(13);
    let each = Duration::from_secs_f64(seconds as f64 / f64::from(SNAPSHOTS));
    let mut held: Vec<(Snapshot, Vec<u64>)> = Vec::new();
    let mut most = (0, 0);
    for _ in 0..SNAPSHOTS {
        held.push((rig.db.snapshot()?, writer.last.clone()));
        let now = writer.until(rig, Instant::now() + each)?;
        most = (most.0.max(now.0), most.1.max(now.1));
        for (snapshot, expected) in &held {
            reads_right(rig, snapshot, expected, &mut random)?;
        }
    }
    let mut right = 0;
    for (snapshot, expected) in &held {
        right += u32::from(reads_right(rig, snapshot, expected, &mut random)?);
    }
    Ok(json!({
        "snapshots": SNAPSHOTS,
        "right_at_the_end": right,
        "too_old": SNAPSHOTS - right,
        "puts": writer.changes,
        "longest_put_ms": writer.longest_pause.as_secs_f64() * 1e3,
        "file_bytes": most.0,
        "versions_bytes": most.1,
    }))
}

/// Milliseconds of which so many parts of a thousand of all are shorter, and the longest.
fn quantiles(mut nanos: Vec<u64>) -> Value {
    nanos.sort_unstable();
    let of = |part: usize| nanos[(nanos.len() - 1) * part / 1000] as f64 / 1e6;
    json!({"gets": nanos.len(), "p50_ms": of(500), "p99_ms": of(990), "p999_ms": of(999), "longest_ms": of(1000)})
}

fn large(rig: &Rig, seconds: u64) -> Result<Value> {
    let done = AtomicBool::new(false);
    // A record of 1 KiB each, so that keys count for little.
    let changes = rig.limit_bytes / 4 / 1024;
    let values = rig.db.keyspace("large")?;
    let read = |for_how_long: Option<Duration>| -> Result<Vec<u64>> {
        let (begun, mut random, mut nanos) = (Instant::now(), SplitMix64::new(17), Vec::new());
        while for_how_long.map_or(!done.load(Relaxed), |most| begun.elapsed() < most) {
            let number = random.below(rig.records);
            let get = Instant::now();
            assert!(rig.keyspace.get(&number.to_be_bytes())?.is_some(), "record {number}");
            nanos.push(get.elapsed().as_nanos() as u64);
        }
        Ok(nanos)
    };
    let without = read(Some(Duration::from_secs(seconds / 4)))?;
    let (with, commits) = std::thread::scope(|scope| -> Result<_> {
        let reader = scope.spawn(|| read(None));
        let ends = Instant::now() + Duration::from_secs(seconds);
        let mut commits = Vec::new();
        let committed = (0..).take_while(|_| Instant::now() < ends).try_for_each(|round: u64| {
            let transaction = rig.db.transaction(Isolation::Serializable);
            let handle = transaction.keyspace(&values)?;
            for number in 0..changes {
                handle.put(&(number * 7919).to_be_bytes(), &[round as u8; 1024 - 8])?;
            }
            let begun = Instant::now();
            transaction.commit()?;
            commits.push(begun.elapsed().as_secs_f64());
            Ok(())
        });
        done.store(true, Relaxed);
        let nanos = reader.join().expect("no panic")?;
        committed.map(|()| (nanos, commits))
    })?;
    Ok(json!({
        "bytes": changes * 1024,
        "commits": commits.len(),
        "commit_seconds": commits,
        "reads_beside": quantiles(with),
        "reads_without": quantiles(without),
    }))
}

/// Goes through records in order for a time, over and over; how many a second, each with the round that `is_right` wants.
fn scan_rate<R: Records>(records: &R, most: Duration, forward: bool, round: u64) -> Result<f64> {
    let (begun, mut count) = (Instant::now(), 0_u64);
    while begun.elapsed() < most {
        let mut all = records.iter();
        while let Some(record) = if forward { all.next() } else { all.next_back() } {
            assert_eq!(round_of(&record?.1), round, "a record is as it was");
            count += 1;
            if count.is_multiple_of(1024) && begun.elapsed() >= most {
                break;
            }
        }
    }
    Ok(count as f64 / begun.elapsed().as_secs_f64())
}

fn scans(rig: &Rig, seconds: u64) -> Result<Value> {
    let each = Duration::from_millis(seconds * 1000 / 6);
    let old = rig.db.snapshot()?;
    for number in 0..rig.records {
        rig.keyspace.put(&number.to_be_bytes(), &value(1))?;
    }
    rig.db.checkpoint()?;
    let (pinned, new) = (old.keyspace(&rig.keyspace)?, rig.db.snapshot()?);
    let new = new.keyspace(&rig.keyspace)?;
    let transaction = rig.db.transaction(Isolation::Snapshot);
    let own = transaction.keyspace(&rig.keyspace)?;
    Ok(json!({
        "records": rig.records,
        "records_a_second": {
            "scan": scan_rate(&rig.keyspace, each, true, 1)?,
            "scan, backwards": scan_rate(&rig.keyspace, each, false, 1)?,
            "transaction": scan_rate(&own, each, true, 1)?,
            "snapshot of just now": scan_rate(&new, each, true, 1)?,
            "snapshot in a checkpoint": scan_rate(&pinned, each, true, 0)?,
            "snapshot in a checkpoint, backwards": scan_rate(&pinned, each, false, 0)?,
        },
        "snapshots given up": rig.db.stats()?.snapshots.given_up,
    }))
}

fn usage() -> ! {
    eprintln!(
        "usage: held_snapshots overwrite|long|hundred|large|scans [SECONDS [LIMIT_MIB [PART]]]"
    );
    std::process::exit(2);
}

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let what = words.first().map_or("overwrite", String::as_str);
    let number_of =
        |at: usize, default: u64| words.get(at).map_or(Some(default), |word| word.parse().ok());
    // Before a store is made.
    let numbers = (number_of(1, 60), number_of(2, 256), number_of(3, 50));
    let measure: fn(&Rig, u64) -> Result<Value> = match what {
        "overwrite" => overwrite,
        "long" => |rig, seconds| long(rig.limit_bytes, seconds),
        "hundred" => hundred,
        "large" => large,
        "scans" => scans,
        _ => usage(),
    };
    let (Some(seconds), Some(limit_mib), Some(part)) = numbers else { usage() };
    let limit_bytes = limit_mib << 20;
    let rig = Rig::new(limit_bytes, part, "")?;
    let (machine, revision) = (machine::Machine::this(), machine::revision());
    let command = machine::command();
    println!("{}", json!({"machine": machine, "revision": revision, "command": command}));
    let found = measure(&rig, seconds)?;
    println!(
        "{}",
        json!({"what": what, "seconds": seconds, "limit_bytes": limit_bytes, "records": rig.records, "found": found})
    );
    rig.close()
}
