//! `hedgerow del STORE KEY`: deletes one key; exit code 3 if it is not there. With a range in place of the key: all records in it, page by
//! page, so that an end in the middle leaves a last part. A bound that is empty may be a variable of a shell that has no value: that
//! all records are meant `--all` has to say.

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
    group(ArgGroup::new("what").required(true).multiple(true).args(["key", "prefix", "from", "to", "all"])),
    override_usage = "hedgerow del [OPTIONS] <STORE> <KEY|--prefix <PREFIX>|--from <KEY>|--to <KEY>|--all>"
)]
pub struct DelArgs {
    /// Store file
    store: PathBuf,
    /// Key; escapes are read
    #[arg(
        value_parser = escape::parse_operand, allow_hyphen_values = true,
        conflicts_with_all = ["prefix", "from", "to", "all"]
    )]
    key: Option<Bytes>,
    /// Which keys in place of the one.
    #[command(flatten)]
    range: RangeArgs,
    /// All records of the keyspace. An empty --prefix, or an empty --from without --to, needs it, too
    #[arg(long)]
    all: bool,
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
    refuse_empty(args)?;
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

/// Errors: a bound is empty, so that it bounds nothing, and nobody has said that this is meant.
fn refuse_empty(args: &DelArgs) -> Result<(), Failure> {
    let is_empty = |bound: &Option<Bytes>| bound.as_ref().is_some_and(|bytes| bytes.0.is_empty());
    let RangeArgs { prefix, from, to } = &args.range;
    let option = match args.all {
        false if is_empty(prefix) => "--prefix",
        false if is_empty(from) && to.is_none() => "--from",
        _ => return Ok(()),
    };
    let words =
        format!("an empty {option} leaves no record out; say --all if all are to be deleted");
    Err(Failure::Usage(words))
}

fn delete(keyspace: &Keyspace, args: &DelArgs) -> hedgerow::Result<Deleted> {
    Ok(match &args.key {
        Some(key) => Deleted::Key(keyspace.remove(&key.0)?, keyspace.name().to_owned()),
        None => Deleted::Records(keyspace.remove_range(store::bounds(&args.range))?),
    })
}
