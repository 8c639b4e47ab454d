//! `hedgerow backup STORE FILE`: copies a store to a file that is a store as well, without free space in it.
//!
//! Every page is checked on the way. A store that was not closed is opened for writing first, which replays its log.

use crate::args::{Common, Format, LeafArgs};
use crate::failure::Failure;
use crate::output::{Out, is_same_file, refuse_standard};
use crate::{interrupt, progress, size, store};
use clap::Args;
use hedgerow::{BackupReport, Database, ErrorKind};
use serde_json::json;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// Arguments of `backup`.
#[derive(Debug, Args)]
pub struct BackupArgs {
    /// Store file
    store: PathBuf,
    /// File to create; it must not exist
    backup: PathBuf,
}

/// Copies the store and says how much that was.
pub fn run(common: &Common, args: &BackupArgs) -> Result<(), Failure> {
    refuse_standard(&args.backup)?;
    if is_same_file(&args.store, &args.backup) {
        let words = "the backup's file is the store itself; give another name";
        return Err(Failure::Usage(words.to_owned()));
    }
    let copied = match store::open_read_only(common, &args.store) {
        // What is replayed stays in memory there.
        Err(Failure::Engine(_, error)) if error.kind() == ErrorKind::MemoryLimit => None,
        db => Some(copy(&db?, &args.backup)),
    };
    let copied = match copied {
        Some(Err(error)) if error.kind() != ErrorKind::NotClosed => Err(error),
        Some(Ok(report)) => Ok(report),
        _ => {
            let db = store::open_quietly(common, LeafArgs::default(), &args.store)?;
            let copied = copy(&db, &args.backup);
            store::close(db, &args.store, Ok(()))?;
            copied
        }
    };
    let report = copied.map_err(store::copying("back up", &args.store))?;
    print(common, "backed up", &args.backup, &report)
}

fn copy(db: &Database, backup: &Path) -> hedgerow::Result<BackupReport> {
    let bar = progress::of_pages(db, "copying");
    let copied = db.backup(backup, |pages| {
        bar.set_position(pages);
        go_on()
    });
    bar.finish_and_clear();
    copied
}

/// Whether Ctrl-C says to stop.
pub fn go_on() -> ControlFlow<()> {
    if interrupt::requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

/// Says what was made.
pub fn print(
    common: &Common,
    done: &str,
    path: &Path,
    report: &BackupReport,
) -> Result<(), Failure> {
    let mut out = Out::new();
    match common.format {
        Format::Human => {
            let (pages, bytes) = (report.pages, report.file_bytes);
            let (pages, bytes) = (size::show_count(pages), size::show_bytes(bytes));
            out.line(&format!("{done}: {pages} pages, {bytes}, to {}", path.display()))?;
        }
        Format::Json => out.json(&json!({
            "pages": report.pages,
            "file_bytes": report.file_bytes,
            "checkpoint": report.checkpoint,
        }))?,
    }
    out.finish()
}
