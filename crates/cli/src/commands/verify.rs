//! `hedgerow verify STORE`: reads every page, checks checksums, structure and space accounting.
//!
//! Damage is data: each defect is a line on standard output, and the exit code is 4. A store so
//! damaged that it cannot be opened is damage as well: a file without a store's head, or whose log is gone.

use super::backup::go_on;
use crate::args::{Common, Format};
use crate::failure::{Failure, hint};
use crate::output::Out;
use crate::{progress, size, store};
use clap::Args;
use hedgerow::{Error, ErrorKind, PageId, VerifyFinding};
use serde_json::{Value as Json, json};
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
    findings: Vec<Finding>,
    more_findings: u64,
}

/// One defect.
struct Finding {
    /// For people.
    line: String,
    json: Json,
}

impl Finding {
    /// What a walk over the store has found.
    fn of(found: &VerifyFinding) -> Finding {
        let VerifyFinding { page, offset_bytes, keyspace, what, .. } = found;
        let json = finding_json(*page, *offset_bytes, keyspace.as_deref(), what);
        Finding { line: found.to_string(), json }
    }

    /// Why the store cannot be opened.
    fn of_opening(doing: String, error: Error) -> Finding {
        // For damage the hint is this command.
        let (page, offset_bytes, next) = match error.kind() {
            ErrorKind::Corrupted { page, offset_bytes } => (page, offset_bytes, ""),
            _ => (None, None, hint(&error)),
        };
        let said = if doing.is_empty() { doing } else { doing + ": " };
        let line = format!("{said}{error}{next}");
        Finding { json: finding_json(page, offset_bytes, None, &line), line }
    }
}

fn finding_json(
    page: Option<PageId>,
    offset_bytes: Option<u64>,
    keyspace: Option<&str>,
    what: &str,
) -> Json {
    let page = page.map(|page| page.0);
    json!({ "page": page, "offset_bytes": offset_bytes, "keyspace": keyspace, "what": what })
}

/// Checks the store and prints the findings.
pub fn run(common: &Common, args: &VerifyArgs) -> Result<(), Failure> {
    let findings = examine(common, args)?;
    let defects = findings.findings.len() as u64 + findings.more_findings;
    Failure::damage(print(common, &findings), defects)
}

fn print(common: &Common, findings: &Findings) -> Result<(), Failure> {
    let Findings { pages, keyspaces, large_values, large_value_bytes, findings, more_findings } =
        findings;
    let mut out = Out::new();
    match common.format {
        Format::Human => {
            for finding in findings {
                out.line(&finding.line)?;
            }
            if *more_findings > 0 {
                out.line(&format!("and {} more", size::show_count(*more_findings)))?;
            }
            if findings.is_empty() {
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
            "sound": findings.is_empty(),
            "pages": pages,
            "keyspaces": keyspaces,
            "large_values": large_values,
            "large_value_bytes": large_value_bytes,
            "findings": findings.iter().map(|finding| &finding.json).collect::<Vec<_>>(),
            "more_findings": more_findings,
        }))?,
    }
    out.finish()
}

fn examine(common: &Common, args: &VerifyArgs) -> Result<Findings, Failure> {
    let db = match store::open_read_only(common, &args.store) {
        Ok(db) => db,
        Err(Failure::Engine(doing, error)) if is_damage(error.kind(), &args.store) => {
            return Ok(Findings {
                pages: 0,
                keyspaces: 0,
                large_values: 0,
                large_value_bytes: 0,
                findings: vec![Finding::of_opening(doing, error)],
                more_findings: 0,
            });
        }
        Err(failure) => return Err(failure),
    };
    let bar = progress::of_pages(&db, "verifying");
    let report = db.verify(|pages| {
        bar.set_position(pages);
        go_on()
    });
    bar.finish_and_clear();
    let report = report.map_err(store::stoppable("verify", &args.store))?;
    Ok(Findings {
        pages: report.pages,
        keyspaces: report.keyspaces,
        large_values: report.large_values,
        large_value_bytes: report.large_value_bytes,
        findings: report.findings.iter().map(Finding::of).collect(),
        more_findings: report.more_findings,
    })
}

/// Whether a store cannot be opened because something is wrong with its files.
fn is_damage(kind: ErrorKind, store: &Path) -> bool {
    match kind {
        ErrorKind::Corrupted { .. } | ErrorKind::LogMissing => true,
        // Of a store whose head is zeros, or cut off, nothing says that it was one. A log that was replaced by a link or a directory
        // is no damage of the store: the error says what is in the way.
        ErrorKind::NotAStore => {
            let log = std::fs::symlink_metadata(hedgerow::log_path(store));
            store.is_file() && log.map_or(true, |log| log.is_file())
        }
        _ => false,
    }
}
