//! `hedgerow hot STORE --keys FILE`: which leaves threads contend for, found out by a load of updates.
//!
//! What is known of contention lives in the process that uses a store and not in its file, so the command makes a load itself: its
//! threads update records of the given keys at random, each with the value that it has. No record changes. Leaves may be split:
//! this is what the command shows. Threads stop at the end of the time, on the first error, or on Ctrl-C. The names of the JSON
//! fields are stable; new ones may come.

use crate::args::{Common, Format, LeafArgs};
use crate::failure::Failure;
use crate::output::{Out, is_standard};
use crate::size::{show_count, show_rate};
use crate::{escape, interrupt, store};
use clap::Args;
use hedgerow::{ContentionStats, Database, HotLeaf, Keyspace};
use serde_json::{Map, json};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Arguments of `hot`.
#[derive(Debug, Args)]
pub struct HotArgs {
    /// Store file
    store: PathBuf,
    /// Text file with one key per line, each of which has a record; what is behind a tab is not read. `-` for standard input
    #[arg(long, value_name = "FILE")]
    keys: PathBuf,
    /// Read escapes in the lines, as `scan` prints them
    #[arg(long)]
    escaped: bool,
    /// Number of threads that update records
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,
    /// How long they do so
    #[arg(long, value_name = "S", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    seconds: u32,
    /// Most leaves to print
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
}

/// Updates between two looks at the clock.
const ROUND: u32 = 256;

/// What a run has found.
struct Found {
    updates: u64,
    seconds: f64,
    contention: ContentionStats,
    leaves: Vec<HotLeaf>,
}

/// Makes the load, prints what came of it, and closes the store.
pub fn run(common: &Common, args: &HotArgs) -> Result<(), Failure> {
    let keys = read_keys(args)?;
    // Until then a signal ends it: standard input may never come.
    interrupt::look();
    let db = store::open(common, LeafArgs::default(), &args.store)?;
    let found = store::keyspace(&db, common, &args.store)
        .and_then(|keyspace| load(&db, &keyspace, &keys, args))
        .and_then(|found| print(common, &found));
    store::close(db, &args.store, found)
}

/// The keys of the file, in their order.
fn read_keys(args: &HotArgs) -> Result<Vec<Vec<u8>>, Failure> {
    let is_file = !is_standard(&args.keys);
    let path = if is_file { args.keys.display().to_string() } else { "standard input".to_owned() };
    let mut text = Vec::new();
    let read = match is_file {
        true => File::open(&args.keys).and_then(|mut file| file.read_to_end(&mut text)),
        false => io::stdin().lock().read_to_end(&mut text),
    };
    read.map_err(|error| Failure::Io(format!("cannot read {path}"), error))?;
    let lines = text.split(|&byte| byte == b'\n').zip(1_u64..);
    let mut keys = Vec::new();
    for (line, number) in lines.filter(|(line, _)| !line.is_empty()) {
        let key = line.split(|&byte| byte == b'\t').next().unwrap_or(line);
        keys.push(match args.escaped {
            true => escape::unescape(key)
                .map_err(|words| Failure::Other(format!("{path}, line {number}: {words}")))?,
            false => key.to_vec(),
        });
    }
    match keys.is_empty() {
        true => Err(Failure::Other(format!("{path} has no keys"))),
        false => Ok(keys),
    }
}

/// Refuses keys whose records cannot be updated in their leaves, before any is.
fn check(keyspace: &Keyspace, keys: &[Vec<u8>], path: &Path) -> Result<(), Failure> {
    for key in keys {
        interrupt::check()?;
        let shown = escape::escape(key);
        let value = keyspace.get(key).map_err(store::failed("read", path))?;
        match value {
            None => {
                return Err(Failure::Other(format!(
                    "the keyspace has no record of the key {shown}"
                )));
            }
            Some(value) if key.len() + value.len() > keyspace.max_record_bytes() => {
                let words = format!(
                    "the value of the key {shown} is not in a leaf: choose keys with shorter values"
                );
                return Err(Failure::Other(words));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

fn load(
    db: &Database,
    keyspace: &Keyspace,
    keys: &[Vec<u8>],
    args: &HotArgs,
) -> Result<Found, Failure> {
    check(keyspace, keys, &args.store)?;
    let (started, time) = (Instant::now(), Duration::from_secs(args.seconds.into()));
    let stops = AtomicBool::new(false);
    let work = |thread: u64| {
        let (mut updates, mut state) = (0_u64, thread);
        while !stops.load(Ordering::Relaxed) && started.elapsed() < time && !interrupt::requested()
        {
            for _ in 0..ROUND {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                let key = &keys[(((state >> 32) * keys.len() as u64) >> 32) as usize];
                let updated = keyspace.get(key).and_then(|value| match value {
                    Some(value) => keyspace.update(key, &value),
                    None => Ok(false),
                });
                if let Err(error) = updated {
                    stops.store(true, Ordering::Relaxed);
                    return Err(store::failed("write to", &args.store)(error));
                }
                updates += 1;
            }
        }
        Ok(updates)
    };
    let work = &work;
    let updates = thread::scope(|scope| {
        let mut threads = Vec::new();
        for number in 0..u64::from(args.threads) {
            match thread::Builder::new().spawn_scoped(scope, move || work(number)) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    stops.store(true, Ordering::Relaxed);
                    return Err(Failure::Io("cannot start a thread".to_owned(), error));
                }
            }
        }
        let ended = threads.into_iter().map(|thread| match thread.join() {
            Ok(updates) => updates,
            Err(panicked) => std::panic::resume_unwind(panicked),
        });
        ended.sum::<Result<u64, Failure>>()
    })?;
    let seconds = started.elapsed().as_secs_f64();
    interrupt::check()?;
    let gather = || Ok((db.stats()?.contention, db.hot_leaves(args.limit as usize)?));
    let gathered: hedgerow::Result<_> = gather();
    let (contention, leaves) = gathered.map_err(store::failed("read", &args.store))?;
    Ok(Found { updates, seconds, contention, leaves })
}

/// What became of leaves that were contended, in words.
fn counters(values: &ContentionStats) -> [(&'static str, &'static str, u64); 7] {
    [
        ("splits", "split", values.splits),
        ("refused_one_key", "left alone: one key", values.refused_one_key),
        ("refused_no_update", "left alone: no update", values.refused_no_update),
        ("refused_sequential", "left alone: keys in order", values.refused_sequential),
        ("gave_up_busy", "given up: busy", values.gave_up_busy),
        ("gave_up_changed", "given up: changed", values.gave_up_changed),
        ("gave_up_full", "given up: no room", values.gave_up_full),
    ]
}

fn print(common: &Common, found: &Found) -> Result<(), Failure> {
    let mut out = Out::new();
    match common.format {
        Format::Human => in_words(&mut out, found)?,
        Format::Json => {
            let counted = counters(&found.contention).into_iter();
            let contention: Map<_, _> =
                counted.map(|(name, _, count)| (name.to_owned(), json!(count))).collect();
            let leaf = |leaf: &HotLeaf| {
                json!({
                    "keyspace": leaf.keyspace,
                    "prefix": escape::escape(&leaf.prefix),
                    "records": leaf.records,
                    "samples": leaf.samples,
                    "contended": leaf.contended,
                    "splits": leaf.splits,
                    "hot": leaf.is_hot,
                })
            };
            out.json(&json!({
                "updates": found.updates,
                "seconds": found.seconds,
                "contention": contention,
                "leaves": found.leaves.iter().map(leaf).collect::<Vec<_>>(),
            }))?;
        }
    }
    out.finish()
}

fn in_words(out: &mut Out, found: &Found) -> Result<(), Failure> {
    let rate = show_rate(found.updates, found.seconds);
    out.line(&format!("updates    {} ({rate})", show_count(found.updates)))?;
    for (_, words, count) in counters(&found.contention) {
        if count > 0 {
            out.line(&format!("  {words:<26} {:>12}", show_count(count)))?;
        }
    }
    if found.leaves.is_empty() {
        return out.line("no leaf is contended");
    }
    out.line("\ncontended  splits  hot  records  keyspace  prefix of the keys")?;
    for leaf in &found.leaves {
        out.line(&format!(
            "{:>8.1}%  {:>6}  {:<3}  {:>7}  {:<8}  {}",
            leaf.share() * 100.0,
            leaf.splits,
            if leaf.is_hot { "yes" } else { "no" },
            leaf.records,
            escape::escape(leaf.keyspace.as_bytes()),
            escape::escape(&leaf.prefix),
        ))?;
    }
    Ok(())
}
