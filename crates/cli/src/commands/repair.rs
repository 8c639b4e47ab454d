//! `hedgerow repair STORE NEW`: puts what is whole in a damaged store into a new one, and says what is lost.
//!
//! Damage is data, as in `verify`: each damaged page is a line on standard output, with the keys that it held, and
//! the exit code is 4 if there is any. The new store is made all the same; the old one is only read.

use crate::args::{Common, Format};
use crate::commands::backup;
use crate::escape::escape;
use crate::failure::Failure;
use crate::output::{Out, refuse_standard};
use crate::size::show_number_of;
use crate::{progress, store};
use clap::Args;
use hedgerow::{DamagedPage, RepairReport};
use serde_json::{Value as Json, json};
use std::path::{Path, PathBuf};

/// Arguments of `repair`.
#[derive(Debug, Args)]
pub struct RepairArgs {
    /// Damaged store file; it is not changed
    store: PathBuf,
    /// Store file to create; neither it nor its log may exist
    new: PathBuf,
}

/// Makes the new store and prints what is not in it.
pub fn run(common: &Common, args: &RepairArgs) -> Result<(), Failure> {
    refuse_standard(&args.new)?;
    let bar = progress::counter("repairing");
    let options = store::options(common);
    let repaired = store::when_free(common, store::copying("repair", &args.store), || {
        options.repair(&args.store, &args.new, |pages| {
            bar.set_position(pages);
            backup::go_on()
        })
    });
    bar.finish_and_clear();
    let report = repaired?;
    let defects = report.damaged.len() + report.defects.len();
    Failure::damage(print(common, &report, &args.new), defects as u64)
}

fn print(common: &Common, report: &RepairReport, new: &Path) -> Result<(), Failure> {
    let mut out = Out::new();
    match common.format {
        Format::Human => {
            for lost in &report.damaged {
                out.line(&describe(lost))?;
            }
            for defect in &report.defects {
                out.line(defect)?;
            }
            let RepairReport { pages, records, keyspaces, replayed, .. } = report;
            let [pages, records, replayed, keyspaces] = [
                (pages, "page"),
                (records, "record"),
                (replayed, "change"),
                (keyspaces, "keyspace"),
            ]
            .map(|(count, noun)| show_number_of(*count, noun));
            out.line(&format!(
                "salvaged: {records} of {pages}, {replayed} of the log, {keyspaces}, to {}",
                new.display()
            ))?;
        }
        Format::Json => out.json(&json!({
            "pages": report.pages,
            "records": report.records,
            "keyspaces": report.keyspaces,
            "replayed": report.replayed,
            "damaged": report.damaged.iter().map(as_json).collect::<Vec<_>>(),
            "defects": report.defects,
        }))?,
    }
    out.finish()
}

fn describe(lost: &DamagedPage) -> String {
    let keyspace = lost
        .keyspace
        .as_ref()
        .map_or_else(String::new, |name| format!("keyspace {}: ", escape(name.as_bytes())));
    let held = match &lost.keys {
        None => "its keys are not known".to_owned(),
        Some(keys) => {
            let key = |key: &Option<Vec<u8>>, none: &str| {
                key.as_ref().map_or_else(|| none.to_owned(), |key| format!("`{}`", escape(key)))
            };
            let above = key(&keys.above, "the first key");
            let up_to = key(&keys.up_to, "the last key");
            let kind = if keys.is_inner { "inner keys: " } else { "" };
            let from = if keys.above.is_some() { "keys above" } else { "keys from" };
            format!("it held {kind}{from} {above} up to {up_to}")
        }
    };
    format!("{keyspace}{}; {held}", lost.what)
}

fn as_json(lost: &DamagedPage) -> Json {
    let key = |key: &Option<Vec<u8>>| key.as_ref().map(|key| escape(key));
    json!({
        "page": lost.page.0,
        "offset_bytes": lost.offset_bytes,
        "what": lost.what,
        "keyspace": lost.keyspace,
        "keys": lost.keys.as_ref().map(|keys| json!({
            "above": key(&keys.above),
            "up_to": key(&keys.up_to),
            "inner_node": keys.is_inner,
        })),
    })
}
