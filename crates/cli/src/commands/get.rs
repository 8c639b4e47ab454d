//! `hedgerow get STORE KEY`: the value of one key; exit code 3 if it is not there.
//!
//! The value is printed a piece at a time, in every format: it may be larger than memory.

use crate::args::Common;
use crate::escape::{self, Bytes};
use crate::failure::Failure;
use crate::output::Out;
use crate::records::Printer;
use crate::store;
use clap::Args;
use hedgerow::ValueReader;
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
    let reader = keyspace.value_reader(&args.key.0).map_err(store::failed("read", &args.store))?;
    let not_found = || Failure::KeyNotFound(keyspace.name().to_owned());
    let mut value = reader.ok_or_else(not_found)?;
    if args.raw {
        return print_raw(&mut value, args);
    }
    let mut printer = Printer::new(common.format, &args.store);
    printer.value(&args.key.0, &mut value)?;
    printer.finish()
}

/// Prints the bytes of the value and nothing else.
fn print_raw(value: &mut ValueReader, args: &GetArgs) -> Result<(), Failure> {
    let mut out = Out::new();
    let mut piece = vec![0; PIECE_BYTES];
    let mut at = 0;
    while at < value.len_bytes() {
        let count = value.read_at(at, &mut piece).map_err(store::failed("read", &args.store))?;
        out.bytes(&piece[..count])?;
        at += count as u64;
    }
    out.finish()
}
