//! `hedgerow drop STORE KEYSPACE`: removes a keyspace with all its records.

use crate::args::{Common, LeafArgs};
use crate::failure::Failure;
use crate::{output, store};
use clap::Args;
use serde_json::json;
use std::path::PathBuf;

/// Arguments of `drop`.
#[derive(Debug, Args)]
pub struct DropArgs {
    /// Store file
    store: PathBuf,
    /// Name of the keyspace, which must exist; escapes are read
    #[arg(value_parser = crate::escape::parse_name)]
    name: String,
}

/// Drops the keyspace and closes the store.
pub fn run(common: &Common, args: &DropArgs) -> Result<(), Failure> {
    let path = &args.store;
    let db = store::open(common, LeafArgs::default(), path)?;
    let dropped = store::keyspace_named(&db, &args.name, path).and_then(|_| {
        db.drop_keyspace(&args.name).map_err(store::failed("drop a keyspace of", path))
    });
    let dropped = store::close(db, path, dropped)?;
    output::done(common, &json!({ "dropped": dropped }))
}
