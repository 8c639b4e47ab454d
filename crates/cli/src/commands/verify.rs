//! `hedgerow verify STORE`: reads every page, checks checksums, structure and space accounting.
//!
//! Damage is data: each defect is a line on standard output, and the exit code is 4. A store so
//! damaged that it cannot be opened is damage as well: a file without a store's head, or whose log is gone.

use super::backup::go_on;
use crate::args::{Common, Format};
use crate::failure::Failure;
use crate::output::Out;
use crate::{progress, size, store};
use clap::Args;
use hedgerow::ErrorKind;
use serde_json::json;
use std::path::{Path, PathBuf};

/// Arguments of `verify`.
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// Store file
    store: PathBuf,
}

/// What was looked at, and what is wrong with it.
struct Findings {
    /// Page images read.
    pages: u64,
    keyspaces: u64,
    large_values: u64,
    large_value_bytes: u64,
    defects: Vec<String>,
    more_defects: u64,
}

/// Checks the store and prints the findings.
pub fn run(common: &Common, args: &VerifyArgs) -> Result<(), Failure> {
    let findings = examine(common, args)?;
    let defects = findings.defects.len() as u64 + findings.more_defects;
    Failure::damage(print(common, &findings), defects)
}

fn print(common: &Common, findings: &Findings) -> Result<(), Failure> {
    let Findings { pages, keyspaces, large_values, large_value_bytes, defects, more_defects } =
        findings;
    let mut out = Out::new();
    match common.format {
        Format::Human => {
            for defect in defects {
                out.line(defect)?;
            }
            if *more_defects > 0 {
                out.line(&format!("and {} more", size::show_count(*more_defects)))?;
            }
            if defects.is_empty() {
                let pages = size::show_number_of(*pages, "page");
                let keyspaces = size::show_number_of(*keyspaces, "keyspace");
                let mut line = format!("sound: {pages}, {keyspaces}");
                if *large_values > 0 {
                    let values = size::show_number_of(*large_values, "large value");
                    let bytes = size::show_bytes(*large_value_bytes);
                    line += &format!(", {values} of {bytes}");
                }
                out.line(&line)?;
            }
        }
        Format::Json => out.json(&json!({
            "sound": defects.is_empty(),
            "pages": pages,
            "keyspaces": keyspaces,
            "large_values": large_values,
            "large_value_bytes": large_value_bytes,
            "defects": defects,
            "more_defects": more_defects,
        }))?,
    }
    out.finish()
}

fn examine(common: &Common, args: &VerifyArgs) -> Result<Findings, Failure> {
    let db = match store::open_read_only(common, &args.store) {
        Ok(db) => db,
        Err(Failure::Engine(doing, error)) if is_damage(error.kind(), &args.store) => {
            let said = if doing.is_empty() { doing } else { doing + ": " };
            let defects = vec![format!("{said}{error}")];
            return Ok(Findings {
                pages: 0,
                keyspaces: 0,
                large_values: 0,
                large_value_bytes: 0,
                defects,
                more_defects: 0,
            });
        }
        Err(failure) => return Err(failure),
    };
    let bar = progress::counter("verifying");
    let report = db.verify(|pages| {
        bar.set_position(pages);
        go_on()
    });
    bar.finish_and_clear();
    let report = report.map_err(store::stoppable("verify", &args.store))?;
    let defects = report.findings.iter().map(ToString::to_string).collect();
    Ok(Findings {
        pages: report.pages,
        keyspaces: report.keyspaces,
        large_values: report.large_values,
        large_value_bytes: report.large_value_bytes,
        defects,
        more_defects: report.more_findings,
    })
}

/// Whether a store cannot be opened because something is wrong with its files.
fn is_damage(kind: ErrorKind, store: &Path) -> bool {
    match kind {
        ErrorKind::Corrupted { .. } | ErrorKind::LogMissing => true,
        // Of a store whose head is zeros, or cut off, nothing says that it was one.
        ErrorKind::NotAStore => store.is_file(),
        _ => false,
    }
}
