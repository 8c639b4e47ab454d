//! `hedgerow verify STORE`: reads every page, checks checksums, structure and space accounting.
//!
//! Damage is data: each defect is a line on standard output, and the exit code is 4. A store so
//! damaged that it cannot be opened is damage as well.

use crate::args::{Common, Format};
use crate::failure::Failure;
use crate::output::Out;
use crate::{interrupt, progress, size, store};
use clap::Args;
use hedgerow::ErrorKind;
use serde_json::json;
use std::path::PathBuf;

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
    defects: Vec<String>,
}

/// Checks the store and prints the findings.
pub fn run(common: &Common, args: &VerifyArgs) -> Result<(), Failure> {
    let findings = examine(common, args)?;
    let Findings { pages, keyspaces, defects } = &findings;
    let mut out = Out::new();
    match common.format {
        Format::Human => {
            for defect in defects {
                out.line(defect)?;
            }
            if defects.is_empty() {
                let pages = size::show_count(*pages);
                out.line(&format!("sound: {pages} pages, {keyspaces} keyspaces"))?;
            }
        }
        Format::Json => out.json(&json!({
            "sound": defects.is_empty(),
            "pages": pages,
            "keyspaces": keyspaces,
            "defects": defects,
        }))?,
    }
    out.finish()?;
    if defects.is_empty() { Ok(()) } else { Err(Failure::Damage(defects.len() as u64)) }
}

fn examine(common: &Common, args: &VerifyArgs) -> Result<Findings, Failure> {
    let db = match store::open_read_only(common, &args.store) {
        Ok(db) => db,
        Err(Failure::Engine(doing, error)) if is_damage(error.kind()) => {
            let defects = vec![format!("{doing}: {error}")];
            return Ok(Findings { pages: 0, keyspaces: 0, defects });
        }
        Err(failure) => return Err(failure),
    };
    let bar = progress::counter("verifying");
    let report = db.verify(|pages| bar.set_position(pages));
    bar.finish_and_clear();
    interrupt::check()?;
    let report = report.map_err(store::failed("verify", &args.store))?;
    let defects = report.findings.iter().map(ToString::to_string).collect();
    Ok(Findings { pages: report.pages, keyspaces: report.keyspaces, defects })
}

fn is_damage(kind: &ErrorKind) -> bool {
    matches!(kind, ErrorKind::Corrupted { .. })
}
