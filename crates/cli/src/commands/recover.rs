//! `hedgerow recover STORE`: opens a store for writing, which replays its log, and closes it.
//!
//! Every command that reads a store which was not closed replays its log in memory, each time anew. After this none has to.

use crate::args::{Common, Format, LeafArgs};
use crate::failure::Failure;
use crate::output::Out;
use crate::size::{show_bytes, show_number_of};
use crate::store;
use clap::Args;
use hedgerow::log_path;
use serde_json::json;
use std::path::PathBuf;

/// Arguments of `recover`.
#[derive(Debug, Args)]
pub struct RecoverArgs {
    /// Store file
    store: PathBuf,
}

/// Recovers the store and says what was replayed.
pub fn run(common: &Common, args: &RecoverArgs) -> Result<(), Failure> {
    let has_log = !matches!(log_path(&args.store).try_exists(), Ok(false));
    let report = match has_log {
        true => {
            let db = store::open_quietly(common, LeafArgs::default(), &args.store)?;
            let report = db.replayed();
            store::close(db, &args.store, Ok(()))?;
            report
        }
        // It was closed, or the log is gone, which opening says. For writing a log would be made.
        false => store::open_read_only(common, &args.store)?.replayed(),
    };
    let mut out = Out::new();
    match common.format {
        Format::Human if report.log_bytes == 0 => {
            out.line("closed: there was nothing to replay")?
        }
        Format::Human => {
            let (changes, bytes) = (show_number_of(report.records, "change"), report.log_bytes);
            let log = show_bytes(bytes);
            out.line(&format!("recovered and closed: {changes} replayed from {log} of log"))?;
        }
        Format::Json => {
            let object = json!({ "replayed": report.records, "log_bytes": report.log_bytes });
            out.json(&object)?;
        }
    }
    out.finish()
}
