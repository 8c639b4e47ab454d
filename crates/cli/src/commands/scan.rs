//! `hedgerow scan STORE`: records in key order, one a line.
//!
//! In human format a line is key, tab, value, with escapes: `load --escaped` reads it back. Records
//! that change during the scan may or may not show; each leaf is seen at one moment. For keys alone large values are
//! not read.

use crate::args::{Common, Format, RangeArgs};
use crate::escape;
use crate::failure::Failure;
use crate::output::Out;
use crate::store;
use clap::Args;
use serde_json::json;
use std::path::PathBuf;

/// Arguments of `scan`.
#[derive(Debug, Args)]
pub struct ScanArgs {
    /// Store file
    store: PathBuf,
    /// Which keys.
    #[command(flatten)]
    range: RangeArgs,
    /// Print in descending order
    #[arg(long)]
    reverse: bool,
    /// Stop after this many records
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Print keys without values
    #[arg(long)]
    keys_only: bool,
}

/// Prints the records.
pub fn run(common: &Common, args: &ScanArgs) -> Result<(), Failure> {
    let db = store::open_read_only(common, &args.store)?;
    let keyspace = store::keyspace(&db, common, &args.store)?;
    let range = store::range(&keyspace, &args.range);
    let limit = args.limit.unwrap_or(u64::MAX);
    let mut out = Out::new();
    let mut line = String::new();
    let mut print = |key: &[u8], value: Option<&[u8]>| match common.format {
        Format::Human => {
            line.clear();
            match key.is_empty() {
                true => line.push_str(escape::EMPTY),
                false => escape::escape_into(key, &mut line),
            }
            if let Some(value) = value {
                line.push('\t');
                escape::escape_into(value, &mut line);
            }
            out.line(&line)
        }
        Format::Json => {
            let mut record = json!({ "key": escape::escape(key) });
            if let Some(value) = value {
                record["value"] = escape::escape(value).into();
            }
            out.json(&record)
        }
    };
    let (reverse, path) = (args.reverse, &args.store);
    let scanned = match args.keys_only {
        true => store::for_each(range.keys(), reverse, limit, path, |key| print(&key, None)),
        false => {
            store::for_each(range, reverse, limit, path, |(key, value)| print(&key, Some(&value)))
        }
    };
    // What was read before a failure is still worth having.
    scanned.and(out.finish())
}
