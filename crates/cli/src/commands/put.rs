//! `hedgerow put STORE KEY VALUE`, or `--file FILE`: writes one record, durable when the command returns.

use crate::args::{Common, CreateArgs, LeafArgs};
use crate::escape::{self, Bytes};
use crate::failure::Failure;
use crate::store;
use clap::{ArgGroup, Args};
use hedgerow::Keyspace;
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;

/// Arguments of `put`.
#[derive(Debug, Args)]
#[command(
    group(ArgGroup::new("what").required(true).args(["value", "file"])),
    override_usage = "hedgerow put [OPTIONS] <STORE> <KEY> <VALUE|--file <FILE>>"
)]
pub struct PutArgs {
    /// Store file; created if it does not exist
    store: PathBuf,
    /// Key; escapes are read
    #[arg(value_parser = escape::parse_operand, allow_hyphen_values = true)]
    key: Bytes,
    /// Value; escapes are read
    #[arg(value_parser = escape::parse_operand, allow_hyphen_values = true)]
    value: Option<Bytes>,
    /// Read the value from this file, up to 4 GiB, without escapes; `-` for standard input. The content of a pipe must fit into
    /// memory
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Their layouts.
    #[command(flatten)]
    leaves: LeafArgs,
    /// The store's pages.
    #[command(flatten)]
    created: CreateArgs,
}

/// Where the value comes from, opened before the store: what cannot be read leaves no store behind.
enum Source {
    /// It is in memory.
    Bytes(Vec<u8>),
    /// A file of this length, which need not fit into memory.
    Stream(File, u64),
}

/// Writes the record and closes the store.
pub fn run(common: &Common, args: &PutArgs) -> Result<(), Failure> {
    let source = source(args)?;
    let db = store::open_or_create(common, args.leaves, args.created, &args.store)?;
    let written = store::write_to(&db, common, &args.store, |keyspace| {
        put(keyspace, &args.key.0, source).map_err(store::failed("write to", &args.store))
    });
    store::close(db, &args.store, written)
}

fn source(args: &PutArgs) -> Result<Source, Failure> {
    let Some(path) = &args.file else {
        return Ok(Source::Bytes(args.value.as_ref().map_or(Vec::new(), |value| value.0.clone())));
    };
    let cannot = |error| Failure::Io(format!("cannot read {}", path.display()), error);
    let mut value = Vec::new();
    // How long a pipe is only its end tells.
    if path.as_os_str() == "-" {
        io::stdin().lock().read_to_end(&mut value).map_err(cannot)?;
        return Ok(Source::Bytes(value));
    }
    let mut file = File::open(path).map_err(cannot)?;
    let about = file.metadata().map_err(cannot)?;
    // Of some files the system tells no length.
    if about.is_file() && about.len() > 0 {
        return Ok(Source::Stream(file, about.len()));
    }
    file.read_to_end(&mut value).map_err(cannot)?;
    Ok(Source::Bytes(value))
}

fn put(keyspace: &Keyspace, key: &[u8], source: Source) -> hedgerow::Result<()> {
    match source {
        Source::Bytes(value) => keyspace.put(key, &value),
        Source::Stream(mut file, len_bytes) => keyspace.put_stream(key, len_bytes, &mut file),
    }
    .map(drop)
}
