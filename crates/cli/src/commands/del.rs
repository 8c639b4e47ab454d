//! `hedgerow del STORE KEY`: deletes one key; exit code 3 if it is not there.

use crate::args::{Common, LeafArgs};
use crate::escape::{self, Bytes};
use crate::failure::Failure;
use crate::{output, store};
use clap::Args;
use serde_json::json;
use std::path::PathBuf;

/// Arguments of `del`.
#[derive(Debug, Args)]
pub struct DelArgs {
    /// Store file
    store: PathBuf,
    /// Key; escapes are read
    #[arg(value_parser = escape::parse_operand, allow_hyphen_values = true)]
    key: Bytes,
}

/// Deletes the key and closes the store.
pub fn run(common: &Common, args: &DelArgs) -> Result<(), Failure> {
    let db = store::open(common, LeafArgs::default(), &args.store)?;
    let deleted = store::keyspace(&db, common, &args.store).and_then(|keyspace| {
        let was_there = keyspace.remove(&args.key.0);
        let was_there = was_there.map_err(store::failed("write to", &args.store))?;
        Ok((was_there, keyspace.name().to_owned()))
    });
    let (deleted, keyspace) = store::close(db, &args.store, deleted)?;
    output::done(common, &json!({ "deleted": deleted }))?;
    if deleted { Ok(()) } else { Err(Failure::KeyNotFound(keyspace)) }
}
