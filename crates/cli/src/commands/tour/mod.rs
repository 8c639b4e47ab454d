//! `hedgerow tour`: the engine at work on real keys, in under a minute, every answer checked.
//!
//! A million records are made from the sample keys that this tool carries; the memory limit is a
//! quarter of their bytes. The store is a temporary file that goes away, on failures and on Ctrl-C
//! too, unless `--store` names a place for it.

mod healing;
mod kill;
mod leaves;
mod records;
mod report;
mod steps;
mod values;

use super::backup::go_on;
use crate::args::{Common, DEFAULT_KEYSPACE, LeafArgs};
use crate::commands::load::default_threads;
use crate::failure::Failure;
use crate::size::{show_bytes, show_count};
use crate::{layouts, store};
use clap::Args;
use hedgerow::{AdaptationStats, Database};
use leaves::LeafTable;
use records::Records;
use report::Report;
use serde_json::json;
use std::path::{Path, PathBuf};
use steps::Context;
use values::Values;

/// Arguments of `tour`.
#[derive(Debug, Args)]
pub struct TourArgs {
    /// Create the store here and keep it [default: a temporary file]
    #[arg(long, value_name = "STORE")]
    store: Option<PathBuf>,
    /// Number of records
    #[arg(long, value_name = "N", default_value_t = 1_000_000,
          value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    records: u64,
    /// Number of threads [default: one per processor, at most 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    /// What a tour starts in order to kill it
    #[arg(long, hide = true, value_name = "STORE")]
    write_until_killed: Option<PathBuf>,
    /// Their layouts.
    #[command(flatten)]
    leaves: LeafArgs,
}

/// The smallest limit that the tour sets by itself.
const MIN_LIMIT_BYTES: u64 = 8 << 20;

/// The store's file: removed at the end unless the user asked for it.
struct Place {
    path: PathBuf,
    is_temporary: bool,
    /// Whether the file is the tour's: what was there before stays.
    is_made: bool,
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.is_temporary && self.is_made {
            // There is nobody to tell, and the system clears its temporary files.
            let _ = std::fs::remove_file(&self.path);
            let _ = std::fs::remove_file(hedgerow::log_path(&self.path));
        }
    }
}

/// Runs the tour.
pub fn run(common: &Common, args: &TourArgs) -> Result<(), Failure> {
    if let Some(path) = &args.write_until_killed {
        return kill::write_until_killed(common, args.leaves, path);
    }
    let mut place = match &args.store {
        Some(path) => Place { path: path.clone(), is_temporary: false, is_made: false },
        None => {
            let name = format!("hedgerow-tour-{}.hrow", std::process::id());
            Place { path: std::env::temp_dir().join(name), is_temporary: true, is_made: false }
        }
    };
    let path = &place.path.clone();
    let records = Records::unpack(args.records)?;
    let quarter = (records.data_bytes() / 4).max(MIN_LIMIT_BYTES);
    let limit_bytes = common.memory_limit.unwrap_or(quarter);
    let common = Common {
        keyspace: common.keyspace.clone(),
        memory_limit: Some(limit_bytes),
        wait: common.wait,
        format: common.format,
        quiet: common.quiet,
        verbose: false,
    };
    let threads = args.threads.map_or_else(default_threads, usize::from);
    let mut report = Report::new(common.format, path);
    introduce(&mut report, &records, path, limit_bytes, threads)?;

    let db = store::create(&common, args.leaves, path)?;
    place.is_made = true;
    let leaves = work(&db, &common, &records, threads, path, &mut report)?;
    let adapted = db.stats().map_err(store::failed("read", path))?.adaptation;
    report.step("close", || {
        db.close().map_err(store::failed("close", path))?;
        Ok((0, "a last checkpoint".to_owned()))
    })?;
    let mut acknowledged = 0;
    report.step("kill -9", || {
        acknowledged = kill::kill(&common, path, (args.records / 10).max(1000))?;
        Ok((acknowledged, "another process while it writes; the records that were durable".into()))
    })?;
    let mut reopened = None;
    report.step("reopen", || {
        let db = store::open_quietly(&common, args.leaves, path)?;
        let replayed = show_count(db.replayed().records);
        reopened = Some(db);
        Ok((0, format!("{replayed} changes replayed over the last checkpoint")))
    })?;
    if let Some(db) = reopened {
        report.step("check the kill", || {
            let there = kill::check(&db, path, acknowledged)?;
            let more = show_count(there - acknowledged);
            Ok((there, format!("all durable records, and {more} later ones")))
        })?;
        check(&db, &common, &records, threads, path, &mut report)?;
        db.close().map_err(store::failed("close", path))?;
    }
    tell_of_leaves(&mut report, &leaves, &adapted)?;
    report.finish()?;
    if common.quiet {
        return Ok(());
    }
    if !place.is_temporary {
        tell!("the store is kept; look at it with: hedgerow stat {}", path.display());
    }
    Ok(())
}

fn introduce(
    report: &mut Report,
    records: &Records,
    path: &Path,
    limit_bytes: u64,
    threads: usize,
) -> Result<(), Failure> {
    let (count, data_bytes) = (records.count(), records.data_bytes());
    report.fact("records", count);
    report.fact("records_left", steps::survivors(records));
    report.fact("data_bytes", data_bytes);
    report.fact("memory_limit_bytes", limit_bytes);
    report.fact("threads", threads);
    report.line(&format!(
        "{} records of {}: {} real keys (URLs, composite keys) with {} suffixes, values of {} bytes",
        show_count(count),
        show_bytes(data_bytes),
        show_count(records.groups()),
        records.copies(),
        records::VALUE_BYTES,
    ))?;
    let share = limit_bytes as f64 / data_bytes as f64;
    report.line(&format!(
        "memory limit {} ({share:.2} of the data), {threads} threads, store {}",
        show_bytes(limit_bytes),
        path.display(),
    ))?;
    report.columns()
}

/// Says which layouts the leaves have, and why.
fn tell_of_leaves(
    report: &mut Report,
    leaves: &LeafTable,
    adapted: &AdaptationStats,
) -> Result<(), Failure> {
    report.fact("leaves", leaves.as_json());
    report.fact("adaptation", layouts::adaptation_json(adapted));
    leaves.print(report, adapted)
}

/// Loads, reads and changes the records, and lets the file shrink. Gives the leaves as they were after
/// the load.
fn work(
    db: &Database,
    common: &Common,
    records: &Records,
    threads: usize,
    path: &Path,
    report: &mut Report,
) -> Result<LeafTable, Failure> {
    let name = common.keyspace.as_deref().unwrap_or(DEFAULT_KEYSPACE);
    let keyspace = db.keyspace(name).map_err(store::failed("write to", path))?;
    let context = Context { keyspace: &keyspace, records, threads };
    report.step("load", || with(steps::load(&context), "real keys in random order"))?;
    let mut leaves = None;
    report.step("walk leaves", || {
        let table = LeafTable::gather(&keyspace).map_err(store::failed("read", path))?;
        let how = format!("{} leaves, see below", show_count(table.leaves()));
        leaves = Some(table);
        Ok((0, how))
    })?;
    report.step("look up", || with(steps::look_up(&context), "at random"))?;
    report.step("look up many", || {
        with(steps::look_up_together(&context), "at random, 64 per call")
    })?;
    report.step("look up absent", || {
        with(steps::look_up_absent(&context), "keys next to existing ones")
    })?;
    report.step("scan prefixes", || {
        let (count, prefixes) = steps::scan_prefixes(&context)?;
        Ok((count, format!("{prefixes} sites and forums, half of them in descending order")))
    })?;
    report.step("overwrite", || with(steps::overwrite(&context), "a quarter of the real keys"))?;
    report.step("delete half", || with(steps::delete_half(&context), "every second real key"))?;
    report.step("values", || Values::open(db, common.memory_limit.unwrap_or(0))?.put(&context))?;
    let mut healed = None;
    report.step("heal a leaf", || {
        let done = healing::heal(db, path, threads)?;
        let (updates, how) = (done.updates, done.how());
        healed = Some(done.as_json());
        Ok((updates, how))
    })?;
    report.fact("healed", healed);
    let mut compacted = None;
    report.step("compact", || {
        let done = db.shrink(|_| go_on()).map_err(store::stoppable("shrink", path))?;
        let (freed, leaves) = (done.compacted.pages_freed, done.compacted.leaves);
        compacted = Some(json!({
            "leaves": leaves,
            "leaves_freed": freed,
            "file_bytes_before": done.before_bytes,
            "file_bytes_after": done.after_bytes,
        }));
        let shorter = show_bytes(done.before_bytes.saturating_sub(done.after_bytes));
        Ok((0, format!("{} leaves, {shorter} less", show_count(freed))))
    })?;
    report.fact("compacted", compacted);
    Ok(leaves.expect("a step that has not failed has gathered them"))
}

/// Checks everything after reopening.
fn check(
    db: &Database,
    common: &Common,
    records: &Records,
    threads: usize,
    path: &Path,
    report: &mut Report,
) -> Result<(), Failure> {
    let keyspace = store::keyspace(db, common, path)?;
    let context = Context { keyspace: &keyspace, records, threads };
    report.step("check all", || {
        Values::open(db, common.memory_limit.unwrap_or(0))?.check()?;
        let how = "every remaining record and value, and that the others are gone";
        with(steps::check_all(&context), how)
    })?;
    report.step("verify", || {
        let verified = db.verify(|_| go_on()).map_err(store::stoppable("verify", path))?;
        if let Some(defect) = verified.findings.first() {
            return Err(Failure::Other(format!("the store is damaged: {defect}")));
        }
        let how = format!("{} pages are sound", show_count(verified.pages));
        Ok((0, how))
    })
}

/// A count with the words that go with it.
fn with(count: Result<u64, Failure>, how: &str) -> Result<(u64, String), Failure> {
    count.map(|count| (count, how.to_owned()))
}
