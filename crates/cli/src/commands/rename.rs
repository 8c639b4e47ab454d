//! `hedgerow rename STORE FROM TO`: gives a keyspace another name; `--swap` exchanges two names.

use crate::args::{Common, LeafArgs};
use crate::failure::Failure;
use crate::{output, store};
use clap::Args;
use hedgerow::Database;
use serde_json::json;
use std::path::PathBuf;

/// Arguments of `rename`.
#[derive(Debug, Args)]
pub struct RenameArgs {
    /// Store file
    store: PathBuf,
    /// Name of the keyspace; escapes are read
    #[arg(value_parser = crate::escape::parse_name)]
    from: String,
    /// Its new name, which no keyspace may have; escapes are read
    #[arg(value_parser = crate::escape::parse_name)]
    to: String,
    /// Exchange the names of two keyspaces
    #[arg(long)]
    swap: bool,
}

/// Changes the names and closes the store.
pub fn run(common: &Common, args: &RenameArgs) -> Result<(), Failure> {
    let path = &args.store;
    let db = store::open(common, LeafArgs::default(), path)?;
    let renamed = rename(&db, args);
    store::close(db, path, renamed)?;
    output::done(common, &json!({ "renamed": true }))
}

fn rename(db: &Database, args: &RenameArgs) -> Result<(), Failure> {
    let RenameArgs { store: path, from, to, swap } = args;
    store::keyspace_named(db, from, path)?;
    let renamed = match swap {
        true => {
            store::keyspace_named(db, to, path)?;
            db.swap_keyspaces(from, to)
        }
        false => db.rename_keyspace(from, to),
    };
    renamed.map_err(store::failed("rename keyspaces of", path))
}
