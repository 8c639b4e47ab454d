//! `hedgerow scan STORE`: records in key order, one a line.
//!
//! In human format a line is key, tab, value, with escapes: `load --escaped` reads it back. Records
//! that change during the scan may or may not show; each leaf is seen at one moment. A value that no leaf holds is read and printed
//! a piece at a time, and for keys alone not at all.

use crate::args::{Common, RangeArgs};
use crate::failure::Failure;
use crate::records::Printer;
use crate::{interrupt, store};
use clap::Args;
use hedgerow::Keyspace;
use std::ops::{Bound, ControlFlow};
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
    let (limit, path) = (args.limit.unwrap_or(u64::MAX), &args.store);
    let mut printer = Printer::new(common.format, path);
    let keys = || store::range(&keyspace, &args.range).keys();
    let scanned = if args.keys_only {
        store::for_each(keys(), args.reverse, limit, path, |key| printer.key(&key))
    } else if args.reverse {
        store::for_each(keys(), true, limit, path, |key| printer.record_of(&keyspace, &key))
    } else {
        scan(&keyspace, args, limit, &mut printer)
    };
    // What was read before a failure is still worth having.
    scanned.and(printer.finish())
}

/// Prints records in ascending order. Those whose values lie in leaves cost no look-up.
fn scan(
    keyspace: &Keyspace,
    args: &ScanArgs,
    limit: u64,
    printer: &mut Printer<'_>,
) -> Result<(), Failure> {
    let (from, to) = store::bounds(&args.range);
    let mut cursor = keyspace.cursor();
    if let Bound::Included(from) = &from {
        cursor.seek(from);
    }
    let mut left = limit;
    if left == 0 {
        return Ok(());
    }
    let visited = cursor.visit_short(|key, value| {
        if matches!(&to, Bound::Excluded(to) if key >= &to[..]) {
            return ControlFlow::Break(Ok(()));
        }
        let printed = match value {
            Some(value) => printer.record(key, value),
            None => printer.record_of(keyspace, key),
        };
        left -= 1;
        match printed.and_then(|()| interrupt::check()) {
            Ok(()) if left > 0 => ControlFlow::Continue(()),
            ended => ControlFlow::Break(ended),
        }
    });
    match visited.map_err(store::failed("read", &args.store))? {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(ended) => ended,
    }
}
