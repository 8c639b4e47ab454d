//! `hedgerow put STORE KEY VALUE`, or `--file FILE`: writes one record, durable when the command returns.

use crate::args::{Common, LeafArgs};
use crate::escape::{self, Bytes};
use crate::failure::Failure;
use crate::store;
use clap::Args;
use hedgerow::Keyspace;
use std::fs::File;
use std::io::{self, Read};
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
    #[arg(value_parser = escape::parse, required_unless_present = "file")]
    value: Option<Bytes>,
    /// Take the value from this file as it is, up to 4 GiB; `-` is standard input. A pipe must fit into memory
    #[arg(long, value_name = "FILE", conflicts_with = "value")]
    file: Option<PathBuf>,
    /// Their layouts.
    #[command(flatten)]
    leaves: LeafArgs,
}

/// Writes the record and closes the store.
pub fn run(common: &Common, args: &PutArgs) -> Result<(), Failure> {
    let db = store::open_or_create(common, args.leaves, &args.store)?;
    let written = db
        .keyspace(common.keyspace())
        .map_err(store::failed("write to", &args.store))
        .and_then(|keyspace| put(&keyspace, args));
    store::close(db, &args.store, written)
}

fn put(keyspace: &Keyspace, args: &PutArgs) -> Result<(), Failure> {
    let failed = store::failed("write to", &args.store);
    let value = args.value.as_ref().map_or(&[][..], |value| &value.0);
    let Some(path) = &args.file else {
        return keyspace.put(&args.key.0, value).map(drop).map_err(failed);
    };
    let cannot = |error| Failure::Io(format!("cannot read {}", path.display()), error);
    let mut value = Vec::new();
    // How long a pipe is only its end tells.
    if path.as_os_str() == "-" {
        io::stdin().lock().read_to_end(&mut value).map_err(cannot)?;
    } else {
        let mut file = File::open(path).map_err(cannot)?;
        let about = file.metadata().map_err(cannot)?;
        // Of some files the system tells no length.
        if about.is_file() && about.len() > 0 {
            let put = keyspace.put_stream(&args.key.0, about.len(), &mut file);
            return put.map(drop).map_err(failed);
        }
        file.read_to_end(&mut value).map_err(cannot)?;
    }
    keyspace.put(&args.key.0, &value).map(drop).map_err(failed)
}
