//! `hedgerow keyspaces STORE`: the names of all keyspaces, one a line.

use crate::args::{Common, Format};
use crate::escape::escape;
use crate::failure::Failure;
use crate::output::Out;
use crate::store;
use clap::Args;
use serde_json::json;
use std::path::PathBuf;

/// Arguments of `keyspaces`.
#[derive(Debug, Args)]
pub struct KeyspacesArgs {
    /// Store file
    store: PathBuf,
}

/// Prints the names in their order; none for a store that has none.
pub fn run(common: &Common, args: &KeyspacesArgs) -> Result<(), Failure> {
    let db = store::open_read_only(common, &args.store)?;
    let names = db.keyspaces().map_err(store::failed("read", &args.store))?;
    let mut out = Out::new();
    for name in names {
        match common.format {
            Format::Human => out.line(&escape(name.as_bytes()))?,
            Format::Json => out.json(&json!({ "keyspace": name }))?,
        }
    }
    out.finish()
}
