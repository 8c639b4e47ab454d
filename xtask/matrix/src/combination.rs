//! One cell of the matrix: a store is loaded, read, thinned out, closed, reopened and read again, and
//! compared with a `BTreeMap` after each change. With the log, a recovery target of a second, and a checkpoint every
//! now and then while records are put and removed.
//!
//! Values follow from their keys, and have lengths of their own, so that a mix-up shows. Everything
//! random derives from [`SEED`].

use crate::keys::Keys;
use hedgerow::{Database, Keyspace, LeafLayout, LeafPolicy, Options, smallest_memory_limit_bytes};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::ops::Bound;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Orders of insertion.
pub const ORDERS: [&str; 3] = ["sorted", "reversed", "shuffled"];
/// Numbers of threads.
pub const THREADS: [usize; 3] = [1, 2, 8];
/// Memory limits as shares of the data: numerator and denominator.
pub const LIMITS: [(u64, u64); 3] = [(2, 1), (1, 4), (1, 32)];

const SEED: u64 = 0x6865_6467_6572_6f77;
/// Ranges that are compared at random places, both ways; fewer of a set with less than forty times as
/// many records.
const RANGES: usize = 100;
/// Records of each range that are compared.
const RANGE_RECORDS: usize = 200;
/// Keys that are looked up together.
const GROUP: usize = 64;

/// What a store has to agree with.
type Model<'a> = BTreeMap<&'a [u8], Vec<u8>>;

/// A cell of the matrix.
pub struct Combination<'a> {
    pub set: &'a str,
    pub keys: &'a Keys,
    pub order: &'static str,
    pub threads: usize,
    pub limit: (u64, u64),
    pub page_bytes: usize,
    pub leaves: LeafPolicy,
}

/// The policies for the layouts of leaves, by name.
pub fn policy(name: &str) -> Option<LeafPolicy> {
    match name {
        "adaptive" => Some(LeafPolicy::Adaptive),
        _ => {
            LeafLayout::ALL.into_iter().find(|layout| layout.name() == name).map(LeafPolicy::Fixed)
        }
    }
}

/// The name of a policy.
pub fn name_of(policy: LeafPolicy) -> &'static str {
    match policy {
        LeafPolicy::Fixed(layout) => layout.name(),
        _ => "adaptive",
    }
}

impl fmt::Display for Combination<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Combination { set, order, threads, .. }, (n, d)) = (self, self.limit);
        let leaves = name_of(self.leaves);
        write!(f, "{set} {order}, {threads} threads, memory {n}/{d} of the data, {leaves} leaves")
    }
}

impl Combination<'_> {
    /// Runs the cell on a store at `path`, which is removed before and after; one line for the record.
    pub fn run(&self, path: &Path) -> Json {
        let _ = fs::remove_file(path);
        let model: Model<'_> = self.keys.iter().map(|key| (&key[..], value_of(key))).collect();
        let data_bytes: usize = model.iter().map(|(key, value)| key.len() + value.len()).sum();
        // A share of a small set can be less than a store accepts at all.
        let limit_bytes = (data_bytes as u64 * self.limit.0 / self.limit.1)
            .max(smallest_memory_limit_bytes(self.page_bytes));
        let mut line = json!({
            "set": self.set,
            "order": self.order,
            "threads": self.threads,
            "leaves": name_of(self.leaves),
            "memory_limit": format!("{}/{}", self.limit.0, self.limit.1),
            "memory_limit_bytes": limit_bytes,
            "records": model.len(),
            "data_bytes": data_bytes,
        });
        let outcome = self.steps(path, model, limit_bytes, &mut line);
        let _ = fs::remove_file(path);
        line["exact"] = json!(outcome.is_ok());
        if let Err(words) = outcome {
            line["wrong"] = json!(words);
        }
        line
    }

    fn steps(
        &self,
        path: &Path,
        mut model: Model<'_>,
        limit_bytes: u64,
        line: &mut Json,
    ) -> Result<(), String> {
        let options = Options::new()
            .memory_limit_bytes(limit_bytes)
            .page_bytes(self.page_bytes)
            .leaves(self.leaves)
            .recovery_target(Duration::from_secs(1));
        let db = options.create(path).map_err(said("create"))?;
        let keyspace = db.keyspace("matrix").map_err(said("create the keyspace"))?;

        let started = Instant::now();
        let order = self.ordered();
        let mut checkpoints = beside_checkpoints(&db, || {
            in_threads(self.threads, &order, |key| {
                let was_there = keyspace.put(key, &value_of(key)).map_err(said("put"))?;
                if was_there { Err("a new key was said to be there".to_owned()) } else { Ok(()) }
            })
        })?;
        line["load_seconds"] = seconds(started);
        let started = Instant::now();
        compare(&keyspace, &model, &[], self.threads)?;
        line["compare_seconds"] = seconds(started);
        sound(&db, path)?;

        let started = Instant::now();
        let deleted: Vec<&[u8]> = model.keys().copied().skip(1).step_by(2).collect();
        checkpoints += beside_checkpoints(&db, || {
            in_threads(self.threads, &deleted, |key| {
                let was_there = keyspace.remove(key).map_err(said("remove"))?;
                if was_there { Ok(()) } else { Err("a key was not there to delete".to_owned()) }
            })
        })?;
        line["checkpoints_forced"] = json!(checkpoints);
        line["delete_seconds"] = seconds(started);
        for key in &deleted {
            model.remove(key);
        }
        compare(&keyspace, &model, &deleted, self.threads)?;
        sound(&db, path)?;

        let started = Instant::now();
        db.close().map_err(said("close"))?;
        let db = options.open(path).map_err(said("open"))?;
        line["reopen_seconds"] = seconds(started);
        let keyspace = db.keyspace("matrix").map_err(said("open the keyspace"))?;
        compare(&keyspace, &model, &deleted, self.threads)?;
        sound(&db, path)?;
        line["file_bytes"] = json!(db.space_report().map_err(said("account"))?.file_bytes);
        db.close().map_err(said("close"))
    }

    fn ordered(&self) -> Vec<&[u8]> {
        let mut keys: Vec<&[u8]> = self.keys.iter().map(|key| &key[..]).collect();
        keys.sort_unstable();
        match self.order {
            "reversed" => keys.reverse(),
            "shuffled" => {
                let mut random = Random(SEED);
                for last in (1..keys.len()).rev() {
                    keys.swap(last, random.below(last + 1));
                }
            }
            _ => {}
        }
        keys
    }
}

/// Takes checkpoints at random times while `work` is done; tells how many.
fn beside_checkpoints(
    db: &Database,
    work: impl FnOnce() -> Result<(), String>,
) -> Result<u64, String> {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let done = &done;
        let taken = scope.spawn(move || {
            let (mut random, mut taken) = (Random(SEED), 0);
            while !done.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(random.below(60) as u64));
                db.checkpoint().map_err(said("take a checkpoint"))?;
                taken += 1;
            }
            Ok(taken)
        });
        let outcome = work();
        done.store(true, Ordering::SeqCst);
        let taken = taken.join().map_err(|_| "a checkpoint has panicked".to_owned())?;
        outcome.and(taken)
    })
}

/// Every answer of the keyspace against the model: gets, misses, groups, scans and ranges both ways.
fn compare(
    keyspace: &Keyspace,
    model: &Model<'_>,
    absent: &[&[u8]],
    threads: usize,
) -> Result<(), String> {
    let keys: Vec<&[u8]> = model.keys().copied().collect();
    in_threads(threads, &keys, |key| {
        let found = keyspace.get(key).map_err(said("get"))?;
        same(found.as_deref(), model.get(key).map(Vec::as_slice), "get")?;
        // Beside the key: one that ends earlier, and one that goes on.
        for beside in [&key[..key.len() - 1], &[key, b"\0"].concat()] {
            let found = keyspace.get(beside).map_err(said("get"))?;
            same(found.as_deref(), model.get(beside).map(Vec::as_slice), "get beside a key")?;
        }
        Ok(())
    })?;
    in_threads(threads, absent, |key| {
        let found = keyspace.get(key).map_err(said("get"))?;
        same(found.as_deref(), None, "get of a deleted key")
    })?;
    for group in keys.chunks(GROUP).step_by(16) {
        let found = keyspace.get_many(group).map_err(said("get many"))?;
        for (key, value) in group.iter().zip(found) {
            same(value.as_deref(), model.get(key).map(Vec::as_slice), "get many")?;
        }
    }
    records(keyspace.iter(), model.iter(), "scan")?;
    records(keyspace.iter().rev(), model.iter().rev(), "scan backwards")?;
    let mut random = Random(SEED);
    for _ in 0..RANGES.min(keys.len() / 40) {
        let mut ends = [keys[random.below(keys.len())], keys[random.below(keys.len())]];
        ends.sort_unstable();
        let bounds = match random.below(3) {
            0 => (Bound::Included(ends[0]), Bound::Excluded(ends[1])),
            1 => (Bound::Excluded(ends[0]), Bound::Unbounded),
            _ => (Bound::Unbounded, Bound::Included(ends[1])),
        };
        let (store, model) = (|| keyspace.range(bounds), || model.range::<[u8], _>(bounds));
        records(store().take(RANGE_RECORDS), model().take(RANGE_RECORDS), "range")?;
        let (store, model) = (store().rev(), model().rev());
        records(store.take(RANGE_RECORDS), model.take(RANGE_RECORDS), "range backwards")?;
    }
    Ok(())
}

fn records<'a>(
    mut store: impl Iterator<Item = hedgerow::Result<(hedgerow::Value, hedgerow::Value)>>,
    model: impl Iterator<Item = (&'a &'a [u8], &'a Vec<u8>)>,
    what: &str,
) -> Result<(), String> {
    for (number, (key, value)) in model.enumerate() {
        let record = store.next().ok_or_else(|| format!("{what}: ends after {number} records"))?;
        let (found_key, found_value) = record.map_err(said("scan"))?;
        if *found_key != **key || *found_value != **value {
            return Err(format!("{what}: record {number} is another one"));
        }
    }
    match store.next() {
        None => Ok(()),
        Some(_) => Err(format!("{what}: goes on behind the last record")),
    }
}

fn same(found: Option<&[u8]>, expected: Option<&[u8]>, what: &str) -> Result<(), String> {
    match (found, expected) {
        _ if found == expected => Ok(()),
        (None, _) => Err(format!("{what}: a record is not found")),
        (Some(_), None) => Err(format!("{what}: a record is found that should not be")),
        (Some(_), Some(_)) => Err(format!("{what}: the value is another one")),
    }
}

/// Verifies the store, and that used, free and quarantined space add up to the file.
fn sound(db: &Database, path: &Path) -> Result<(), String> {
    let report = db.verify(|_| ControlFlow::Continue(())).map_err(said("verify"))?;
    if let Some(finding) = report.findings.first() {
        return Err(format!("verify: {finding}"));
    }
    let space = db.space_report().map_err(said("account"))?;
    let sum = space.accounted_bytes();
    let len = fs::metadata(path).map_err(|e| e.to_string())?.len();
    if sum != len || space.file_bytes != len {
        return Err(format!("space adds up to {sum} bytes, the file has {len}: {space:?}"));
    }
    Ok(())
}

/// Calls `work` on every key; thread `t` takes keys `t`, `t + threads` and so on.
fn in_threads(
    threads: usize,
    keys: &[&[u8]],
    work: impl Fn(&[u8]) -> Result<(), String> + Sync,
) -> Result<(), String> {
    let work = &work;
    thread::scope(|scope| {
        let started: Vec<_> = (0..threads)
            .map(|first| {
                scope.spawn(move || {
                    keys.iter().skip(first).step_by(threads).try_for_each(|k| work(k))
                })
            })
            .collect();
        started.into_iter().try_for_each(|thread| {
            thread.join().unwrap_or_else(|_| Err("a thread panicked".to_owned()))
        })
    })
}

/// 16 to 47 bytes that follow from the key.
fn value_of(key: &[u8]) -> Vec<u8> {
    let hash = key.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mut value = format!("{hash:016x}").into_bytes();
    value.resize(16 + (hash >> 32) as usize % 32, b'.');
    value
}

fn said(doing: &'static str) -> impl Fn(hedgerow::Error) -> String {
    move |error| format!("cannot {doing}: {error}")
}

fn seconds(started: Instant) -> Json {
    json!((started.elapsed().as_secs_f64() * 1000.0).round() / 1000.0)
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % bound as u64) as usize
    }
}
