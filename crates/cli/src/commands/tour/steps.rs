//! The steps of the tour. Each does one thing to all or some records, from several threads where
//! that makes sense, and checks every answer; a wrong one ends the tour.

use super::records::{RecordId, Records, VALUE_BYTES, is_url, value_of};
use crate::failure::Failure;
use crate::interrupt;
use crate::progress;
use hedgerow::Keyspace;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// Units of work that a thread takes at a time.
const CHUNK: u64 = 64;
/// Look-ups in each of the steps that look up: most of them wait for the disk.
const MAX_LOOKUPS: u64 = 100_000;
/// Keys that are looked up together.
const GROUP: u64 = 64;
/// Seed of the look-ups' order.
const SEED: u64 = 0x4865_6467_6572_6f77;

/// What the steps work with.
pub struct Context<'a> {
    pub keyspace: &'a Keyspace,
    pub records: &'a Records,
    pub threads: usize,
}

/// The version that a record has after the overwrite.
fn version(group: u64) -> u32 {
    if group.is_multiple_of(4) { 2 } else { 1 }
}

/// The `n`-th record of a sequence of random ones.
fn nth_at_random(records: &Records, n: u64) -> RecordId {
    let chosen = random(n) % records.count();
    RecordId { group: chosen / records.copies(), copy: chosen % records.copies() }
}

/// Whether a record is still there after every second real key has gone.
fn survives(id: RecordId) -> bool {
    id.group.is_multiple_of(2)
}

/// Puts every record, the real keys in random order.
pub fn load(context: &Context<'_>) -> Result<u64, Failure> {
    let records = context.records;
    in_parallel(context, "loading", records.groups(), |n, key| {
        let group = records.shuffled(n);
        for copy in 0..records.copies() {
            records.key_into(RecordId { group, copy }, key);
            put(context, key, 1)?;
        }
        Ok(records.copies())
    })
}

/// Gets records at random.
pub fn look_up(context: &Context<'_>) -> Result<u64, Failure> {
    let records = context.records;
    let lookups = records.count().min(MAX_LOOKUPS);
    in_parallel(context, "looking up", lookups, |n, key| {
        records.key_into(nth_at_random(records, n), key);
        expect_value(context, key, Some(1))?;
        Ok(1)
    })
}

/// Gets records at random, many with one call, so that their reads overlap.
pub fn look_up_together(context: &Context<'_>) -> Result<u64, Failure> {
    let records = context.records;
    let groups = records.count().min(MAX_LOOKUPS).div_ceil(GROUP);
    in_parallel(context, "looking up", groups, |group, _| {
        let keys: Vec<Vec<u8>> = (0..GROUP)
            .map(|n| {
                let mut key = Vec::new();
                records.key_into(nth_at_random(records, group * GROUP + n), &mut key);
                key
            })
            .collect();
        let found = context.keyspace.get_many(&keys).map_err(doing("look up"))?;
        for (key, value) in keys.iter().zip(found) {
            check_value(key, value.as_deref(), Some(1))?;
        }
        Ok(GROUP)
    })
}

/// Looks for keys that are not there, each right beside one that is.
pub fn look_up_absent(context: &Context<'_>) -> Result<u64, Failure> {
    let records = context.records;
    let lookups = records.count().min(MAX_LOOKUPS);
    in_parallel(context, "looking up", lookups, |n, key| {
        records.key_into(nth_at_random(records, n), key);
        key.push(b'~');
        expect_value(context, key, None)?;
        Ok(1)
    })
}

/// Scans sites and forums by prefix, every second one backwards.
pub fn scan_prefixes(context: &Context<'_>) -> Result<(u64, usize), Failure> {
    let records = context.records;
    let mut prefixes: Vec<&[u8]> =
        (0..16u64).map(|n| site_of(records.real_key(n * records.groups() / 16))).collect();
    prefixes.dedup();
    let mut scanned = 0;
    for (number, prefix) in prefixes.iter().enumerate() {
        let range = context.keyspace.prefix(prefix);
        let count = if number % 2 == 0 {
            scan(range, |key| key.starts_with(prefix), false)?
        } else {
            scan(range.rev(), |key| key.starts_with(prefix), false)?
        };
        let expected = records.with_prefix(prefix);
        if count != expected {
            let shown = crate::escape::escape(prefix);
            return Err(wrong(&format!("`{shown}`: {count} records instead of {expected}")));
        }
        scanned += count;
    }
    Ok((scanned, prefixes.len()))
}

/// Writes new values to a quarter of the records.
pub fn overwrite(context: &Context<'_>) -> Result<u64, Failure> {
    let records = context.records;
    in_parallel(context, "writing", records.groups(), |n, key| {
        let group = records.shuffled(n);
        if version(group) == 1 {
            return Ok(0);
        }
        for copy in 0..records.copies() {
            records.key_into(RecordId { group, copy }, key);
            put(context, key, 2)?;
        }
        Ok(records.copies())
    })
}

/// Deletes the records of every second real key.
pub fn delete_half(context: &Context<'_>) -> Result<u64, Failure> {
    let records = context.records;
    in_parallel(context, "deleting", records.groups(), |n, key| {
        let group = records.shuffled(n);
        let mut deleted = 0;
        for copy in 0..records.copies() {
            let id = RecordId { group, copy };
            if survives(id) {
                break;
            }
            records.key_into(id, key);
            let was_there = context.keyspace.remove(key).map_err(doing("delete"))?;
            if !was_there {
                return Err(wrong("a loaded record is missing at its deletion"));
            }
            deleted += 1;
        }
        Ok(deleted)
    })
}

/// Number of records that are left after half have been deleted.
pub fn survivors(records: &Records) -> u64 {
    let ids = (0..records.groups())
        .flat_map(|group| (0..records.copies()).map(move |copy| RecordId { group, copy }));
    ids.filter(|&id| survives(id)).count() as u64
}

/// Scans everything that is left, checks each record, and checks that the deleted ones are gone.
pub fn check_all(context: &Context<'_>) -> Result<u64, Failure> {
    let records = context.records;
    let all = scan(context.keyspace.prefix(b""), |_| true, true)?;
    let expected = survivors(records);
    if all != expected {
        return Err(wrong(&format!("{all} records remain instead of {expected}")));
    }
    let checked = in_parallel(context, "checking", records.groups(), |group, key| {
        let id = RecordId { group, copy: group % records.copies() };
        records.key_into(id, key);
        expect_value(context, key, survives(id).then(|| version(group)))?;
        Ok(1)
    })?;
    Ok(all + checked)
}

/// The prefix up to the host of a URL, or up to the forum of a composite key.
fn site_of(key: &[u8]) -> &[u8] {
    let slashes = if is_url(key) { 3 } else { 1 };
    let ends = key.iter().enumerate().filter(|&(_, &byte)| byte == b'/').map(|(at, _)| at + 1);
    &key[..ends.take(slashes).last().unwrap_or(key.len())]
}

/// Counts records and checks that each value belongs to its key.
fn scan(
    range: impl Iterator<Item = hedgerow::Result<(hedgerow::Value, hedgerow::Value)>>,
    belongs: impl Fn(&[u8]) -> bool,
    any_version: bool,
) -> Result<u64, Failure> {
    let mut count = 0;
    for record in range {
        let (key, value) = record.map_err(doing("scan"))?;
        let is_right = value[..] == value_of(&key, 1)[..]
            || (any_version && value[..] == value_of(&key, 2)[..]);
        if !is_right || !belongs(&key) {
            return Err(wrong("a scan returned a record that was not written"));
        }
        count += 1;
        interrupt::check()?;
    }
    Ok(count)
}

fn put(context: &Context<'_>, key: &[u8], version: u32) -> Result<(), Failure> {
    context.keyspace.put(key, &value_of(key, version)).map(drop).map_err(doing("write"))
}

fn expect_value(context: &Context<'_>, key: &[u8], version: Option<u32>) -> Result<(), Failure> {
    let found = context.keyspace.get(key).map_err(doing("look up"))?;
    check_value(key, found.as_deref(), version)
}

fn check_value(key: &[u8], found: Option<&[u8]>, version: Option<u32>) -> Result<(), Failure> {
    let expected = version.map(|version| value_of(key, version));
    if found == expected.as_ref().map(<[u8; VALUE_BYTES]>::as_slice) {
        return Ok(());
    }
    let key = crate::escape::escape(key);
    Err(wrong(&match (found, version) {
        (None, _) => format!("`{key}` was written and is not found"),
        (Some(_), None) => format!("`{key}` is found and should not be"),
        (Some(_), Some(_)) => format!("`{key}` does not have its last value"),
    }))
}

pub(super) fn wrong(words: &str) -> Failure {
    Failure::Other(format!("WRONG ANSWER: {words}; please report this"))
}

pub(super) fn doing(what: &'static str) -> impl FnOnce(hedgerow::Error) -> Failure {
    move |error| Failure::Engine(format!("cannot {what}"), error)
}

/// SplitMix64: the `n`-th number of a fixed sequence.
pub(super) fn random(n: u64) -> u64 {
    let mut z = SEED.wrapping_add((n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Runs `work` on `0..units` from all threads; it gets a buffer for keys, and says how many records
/// it touched. The first failure stops all.
pub(super) fn in_parallel(
    context: &Context<'_>,
    what: &'static str,
    units: u64,
    work: impl Fn(u64, &mut Vec<u8>) -> Result<u64, Failure> + Sync,
) -> Result<u64, Failure> {
    let next = AtomicU64::new(0);
    let bar = progress::bar(units, what);
    let worker = || {
        let mut key = Vec::new();
        let mut touched = 0;
        loop {
            let first = next.fetch_add(CHUNK, Ordering::Relaxed);
            if first >= units {
                return Ok(touched);
            }
            for unit in first..units.min(first + CHUNK) {
                touched += work(unit, &mut key).inspect_err(|_| {
                    next.store(units, Ordering::Relaxed);
                })?;
            }
            bar.inc(CHUNK);
            interrupt::check()?;
        }
    };
    let outcomes: Vec<Result<u64, Failure>> = thread::scope(|scope| {
        let begin = |_| thread::Builder::new().spawn_scoped(scope, worker);
        let threads: Vec<_> = (0..context.threads).map(begin).collect();
        threads
            .into_iter()
            .map(|thread| match thread {
                Ok(thread) => {
                    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                }
                Err(error) => Err(Failure::Io("cannot start a thread".to_owned(), error)),
            })
            .collect()
    });
    bar.finish_and_clear();
    outcomes.into_iter().sum()
}
