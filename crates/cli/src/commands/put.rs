//! `hedgerow put STORE KEY VALUE`, or `--file FILE`: writes one record, durable when the command returns.

use crate::args::{Common, CreateArgs, LeafArgs};
use crate::escape::{self, Bytes};
use crate::failure::Failure;
use crate::output::{self, is_same_file};
use crate::{interrupt, store};
use clap::{ArgGroup, Args};
use hedgerow::{ErrorKind, Keyspace};
use serde_json::json;
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
    // A store or a keyspace that is made for the record must not stay without it.
    interrupt::look();
    let db = store::open_or_create(common, args.leaves, args.created, &args.store)?;
    let written = interrupt::check().and_then(|()| {
        store::write_to(&db, common, &args.store, |keyspace| put(keyspace, args, source))
    });
    let replaced = store::close(db, &args.store, written)?;
    output::done(common, &json!({ "replaced": replaced }))
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
    if is_same_file(&args.store, path) {
        let words =
            "the value's file is the store itself; make a copy of it first: hedgerow backup";
        return Err(Failure::Usage(words.to_owned()));
    }
    let about = file.metadata().map_err(cannot)?;
    // Of some files the system tells no length.
    if about.is_file() && about.len() > 0 {
        return Ok(Source::Stream(file, about.len()));
    }
    file.read_to_end(&mut value).map_err(cannot)?;
    Ok(Source::Bytes(value))
}

/// A file that cannot be read any more once the command was asked to stop.
struct Stoppable(File);

impl Read for Stoppable {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match interrupt::requested() {
            true => Err(io::Error::other("interrupted")),
            false => self.0.read(bytes),
        }
    }
}

/// Whether there was a record.
fn put(keyspace: &Keyspace, args: &PutArgs, source: Source) -> Result<bool, Failure> {
    let key = &args.key.0;
    let stored = match source {
        Source::Bytes(value) => keyspace.put(key, &value),
        Source::Stream(file, len_bytes) => {
            match keyspace.put_stream(key, len_bytes, Stoppable(file)) {
                Err(error) if error.kind() == ErrorKind::Io && interrupt::requested() => {
                    return Err(Failure::Interrupted("nothing was stored".to_owned()));
                }
                stored => stored,
            }
        }
    };
    stored.map_err(store::failed_with_key("write to", &args.store))
}
