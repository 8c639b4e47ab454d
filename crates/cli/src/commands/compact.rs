//! `hedgerow compact STORE`: merges leaves whose records fit into fewer pages, and makes the file as short as it gets.
//!
//! Ctrl-C ends it between two groups of leaves: what was merged stays merged, and the store is closed as usual.

use super::backup::go_on;
use crate::args::{Common, Format, LeafArgs};
use crate::failure::Failure;
use crate::output::Out;
use crate::{progress, size, store};
use clap::Args;
use hedgerow::{Database, ErrorKind, ShrinkReport};
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};

/// Arguments of `compact`.
#[derive(Debug, Args)]
pub struct CompactArgs {
    /// Store file
    store: PathBuf,
}

/// Compacts the store and says what that has gained.
pub fn run(common: &Common, args: &CompactArgs) -> Result<(), Failure> {
    let path = &args.store;
    let before_bytes = file_bytes(path);
    let db = store::open(common, LeafArgs::default(), path)?;
    let shrunk = shrink(&db, path);
    let outcome = shrunk.as_ref().map(|_| ());
    // Words about the first failure; the store is closed whatever it was.
    let closed = store::close(db, path, Ok(()));
    if outcome.is_ok() {
        closed?;
    }
    print(common, &shrunk?, before_bytes, file_bytes(path))
}

fn shrink(db: &Database, path: &Path) -> Result<ShrinkReport, Failure> {
    let bar = progress::counter("compacting");
    let shrunk = db.shrink(|leaves| {
        bar.set_position(leaves);
        go_on()
    });
    bar.finish_and_clear();
    let failed = store::failed("compact", path);
    shrunk.map_err(|error| match error.kind() {
        ErrorKind::Cancelled => Failure::Interrupted("the store stays as far compacted".to_owned()),
        _ => failed(error),
    })
}

/// Zero if that cannot be told: whoever opens the store says why.
fn file_bytes(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |found| found.len())
}

fn print(
    common: &Common,
    shrunk: &ShrinkReport,
    before_bytes: u64,
    after_bytes: u64,
) -> Result<(), Failure> {
    let merged = &shrunk.compacted;
    let mut out = Out::new();
    match common.format {
        Format::Human => {
            let [leaves, freed] = [merged.leaves, merged.pages_freed].map(size::show_count);
            let [before, after] = [before_bytes, after_bytes].map(size::show_bytes);
            out.line(&format!("compacted: {freed} of {leaves} leaves freed, {before} -> {after}"))?;
        }
        Format::Json => out.json(&json!({
            "keyspaces": shrunk.keyspaces,
            "leaves": merged.leaves,
            "groups": merged.groups,
            "leaves_freed": merged.pages_freed,
            "leaves_written": merged.pages_written,
            "passed_over": merged.passed_over,
            "before_bytes": before_bytes,
            "after_bytes": after_bytes,
        }))?,
    }
    out.finish()
}
