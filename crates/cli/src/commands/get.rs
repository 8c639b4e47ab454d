//! `hedgerow get STORE KEY`: the value of one key; exit code 3 if it is not there.

use crate::args::{Common, Format};
use crate::escape::{self, Bytes};
use crate::failure::Failure;
use crate::output::Out;
use crate::store;
use clap::Args;
use hedgerow::Keyspace;
use serde_json::json;
use std::path::PathBuf;

/// Bytes of a piece of `--raw`.
const PIECE_BYTES: usize = 1 << 20;

/// Arguments of `get`.
#[derive(Debug, Args)]
pub struct GetArgs {
    /// Store file
    store: PathBuf,
    /// Key; escapes are read
    #[arg(value_parser = escape::parse_operand, allow_hyphen_values = true)]
    key: Bytes,
    /// Print the bytes of the value without escapes and without a newline
    #[arg(long, conflicts_with = "format")]
    raw: bool,
}

/// Prints the value.
pub fn run(common: &Common, args: &GetArgs) -> Result<(), Failure> {
    let db = store::open_read_only(common, &args.store)?;
    let keyspace = store::keyspace(&db, common, &args.store)?;
    if args.raw {
        return print_raw(&keyspace, args);
    }
    let value = keyspace.get(&args.key.0).map_err(store::failed("read", &args.store))?;
    let value = value.ok_or_else(|| not_found(&keyspace))?;
    let mut out = Out::new();
    match common.format {
        Format::Human => out.line(&escape::escape(&value))?,
        Format::Json => {
            let (key, value) = (escape::escape(&args.key.0), escape::escape(&value));
            out.json(&json!({ "key": key, "value": value }))?;
        }
    }
    out.finish()
}

fn not_found(keyspace: &Keyspace) -> Failure {
    Failure::KeyNotFound(keyspace.name().to_owned())
}

/// Prints the bytes of the value a piece at a time: it may be larger than memory.
fn print_raw(keyspace: &Keyspace, args: &GetArgs) -> Result<(), Failure> {
    let reader = keyspace.value_reader(&args.key.0).map_err(store::failed("read", &args.store))?;
    let mut reader = reader.ok_or_else(|| not_found(keyspace))?;
    let mut out = Out::new();
    let mut piece = vec![0; PIECE_BYTES];
    let mut at = 0;
    while at < reader.len_bytes() {
        let count = reader.read_at(at, &mut piece).map_err(store::failed("read", &args.store))?;
        out.bytes(&piece[..count])?;
        at += count as u64;
    }
    out.finish()
}
