//! `hedgerow get STORE KEY`: the value of one key; exit code 3 if it is not there.

use crate::args::{Common, Format};
use crate::escape::{self, Bytes};
use crate::failure::Failure;
use crate::output::Out;
use crate::store;
use clap::Args;
use serde_json::json;
use std::path::PathBuf;

/// Arguments of `get`.
#[derive(Debug, Args)]
pub struct GetArgs {
    /// Store file
    store: PathBuf,
    /// Key, with escapes
    #[arg(value_parser = escape::parse)]
    key: Bytes,
    /// Print the bytes of the value as they are, with no escapes and no newline
    #[arg(long, conflicts_with = "format")]
    raw: bool,
}

/// Prints the value.
pub fn run(common: &Common, args: &GetArgs) -> Result<(), Failure> {
    let db = store::open_read_only(common, &args.store)?;
    let keyspace = store::keyspace(&db, common, &args.store)?;
    let value = keyspace.get(&args.key.0).map_err(store::failed("read", &args.store))?;
    let value = value.ok_or(Failure::KeyNotFound)?;
    let mut out = Out::new();
    match common.format {
        _ if args.raw => out.bytes(&value)?,
        Format::Human => out.line(&escape::escape(&value))?,
        Format::Json => {
            let (key, value) = (escape::escape(&args.key.0), escape::escape(&value));
            out.json(&json!({ "key": key, "value": value }))?;
        }
    }
    out.finish()
}
