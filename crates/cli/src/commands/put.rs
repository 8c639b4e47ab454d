//! `hedgerow put STORE KEY VALUE`: writes one record, durable when the command returns.

use crate::args::{Common, LeafArgs};
use crate::escape::{self, Bytes};
use crate::failure::Failure;
use crate::store;
use clap::Args;
use std::path::PathBuf;

/// Arguments of `put`.
#[derive(Debug, Args)]
pub struct PutArgs {
    /// Store file; created if there is none
    store: PathBuf,
    /// Key, with escapes
    #[arg(value_parser = escape::parse)]
    key: Bytes,
    /// Value, with escapes
    #[arg(value_parser = escape::parse)]
    value: Bytes,
    /// Their layouts.
    #[command(flatten)]
    leaves: LeafArgs,
}

/// Writes the record and closes the store.
pub fn run(common: &Common, args: &PutArgs) -> Result<(), Failure> {
    let db = store::open_or_create(common, args.leaves, &args.store)?;
    let written = db
        .keyspace(common.keyspace())
        .and_then(|keyspace| keyspace.put(&args.key.0, &args.value.0))
        .map(drop)
        .map_err(store::failed("write to", &args.store));
    store::close(db, &args.store, written)
}
