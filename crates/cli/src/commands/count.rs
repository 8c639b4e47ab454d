//! `hedgerow count STORE`: how many records a keyspace, or a part of it, has.

use crate::args::{Common, Format, RangeArgs};
use crate::failure::Failure;
use crate::output::Out;
use crate::{progress, store};
use clap::Args;
use serde_json::json;
use std::path::PathBuf;

/// Arguments of `count`.
#[derive(Debug, Args)]
pub struct CountArgs {
    /// Store file
    store: PathBuf,
    /// Which keys.
    #[command(flatten)]
    range: RangeArgs,
}

/// Counts by scanning keys, so that the answer is what a scan would print.
pub fn run(common: &Common, args: &CountArgs) -> Result<(), Failure> {
    let db = store::open_read_only(common, &args.store)?;
    let keyspace = store::keyspace(&db, common, &args.store)?;
    let keys = store::range(&keyspace, &args.range).keys();
    let bar = progress::counter("counting");
    let mut count = 0u64;
    let counted = store::for_each(keys, false, u64::MAX, &args.store, |_| {
        count += 1;
        if count.is_multiple_of(4096) {
            bar.set_position(count);
        }
        Ok(())
    });
    bar.finish_and_clear();
    counted?;
    let mut out = Out::new();
    match common.format {
        Format::Human => out.line(&count.to_string())?,
        Format::Json => out.json(&json!({ "count": count }))?,
    }
    out.finish()
}
