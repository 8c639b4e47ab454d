//! `hedgerow del STORE KEY`: deletes one key; exit code 3 if it is not there. With a range in place of the key: all records in it, page by
//! page, so that an end in the middle leaves a last part.

use crate::args::{Common, Format, LeafArgs, RangeArgs};
use crate::escape::{self, Bytes};
use crate::failure::Failure;
use crate::size::show_number_of;
use crate::{output, store};
use clap::{ArgGroup, Args};
use hedgerow::Keyspace;
use serde_json::json;
use std::path::PathBuf;

/// Arguments of `del`.
#[derive(Debug, Args)]
#[command(
    group(ArgGroup::new("what").required(true).multiple(true).args(["key", "prefix", "from", "to"])),
    override_usage = "hedgerow del [OPTIONS] <STORE> <KEY|--prefix <PREFIX>|--from <KEY>|--to <KEY>>"
)]
pub struct DelArgs {
    /// Store file
    store: PathBuf,
    /// Key; escapes are read
    #[arg(
        value_parser = escape::parse_operand, allow_hyphen_values = true,
        conflicts_with_all = ["prefix", "from", "to"]
    )]
    key: Option<Bytes>,
    /// Which keys in place of the one.
    #[command(flatten)]
    range: RangeArgs,
}

/// What was deleted.
enum Deleted {
    /// One key, if it was there, of the keyspace of this name.
    Key(bool, String),
    /// So many records of a range.
    Records(u64),
}

/// Deletes the key, or the range, and closes the store.
pub fn run(common: &Common, args: &DelArgs) -> Result<(), Failure> {
    let db = store::open(common, LeafArgs::default(), &args.store)?;
    let deleted = store::keyspace(&db, common, &args.store).and_then(|keyspace| {
        delete(&keyspace, args).map_err(store::failed_with_key("write to", &args.store))
    });
    match store::close(db, &args.store, deleted)? {
        Deleted::Key(was_there, keyspace) => {
            output::done(common, &json!({ "deleted": was_there }))?;
            if was_there { Ok(()) } else { Err(Failure::KeyNotFound(keyspace)) }
        }
        Deleted::Records(count) => {
            if common.format == Format::Human && !common.quiet {
                tell!("deleted {}", show_number_of(count, "record"));
            }
            output::done(common, &json!({ "deleted": count > 0, "records": count }))
        }
    }
}

fn delete(keyspace: &Keyspace, args: &DelArgs) -> hedgerow::Result<Deleted> {
    Ok(match &args.key {
        Some(key) => Deleted::Key(keyspace.remove(&key.0)?, keyspace.name().to_owned()),
        None => Deleted::Records(keyspace.remove_range(store::bounds(&args.range))?),
    })
}
