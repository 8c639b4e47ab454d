//! `hedgerow dump STORE [KEYSPACE...]`: keyspaces as text, in the format of [`crate::dump_format`].
//!
//! The store is opened read-only, so that nobody changes it meanwhile: a dump is the store at one moment.
//! Records go out as they are read. A dump that was cut short, by Ctrl-C, a full disk or a reader that has gone,
//! has no line that ends it, and `load` refuses it; a file of such a dump is removed again if it still has its name.

use crate::args::{Common, Format};
use crate::dump_format::{self, Section};
use crate::failure::Failure;
use crate::output::{Out, create_new, is_standard, sync_new};
use crate::{interrupt, progress, size, store};
use clap::Args;
use hedgerow::{Database, Keyspace};
use indicatif::ProgressBar;
use serde_json::json;
use std::fs::{self, File};
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Arguments of `dump`.
#[derive(Debug, Args)]
pub struct DumpArgs {
    /// Store file
    store: PathBuf,
    /// Names of the keyspaces; escapes are read [default: all]
    #[arg(value_name = "KEYSPACE", value_parser = crate::escape::parse)]
    keyspaces: Vec<crate::escape::Bytes>,
    /// Write to this new file instead of standard output; `-` is standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// What was written.
#[derive(Default)]
struct Written {
    keyspaces: u64,
    records: u64,
}

/// Writes the dump.
pub fn run(common: &Common, args: &DumpArgs) -> Result<(), Failure> {
    let out_file = args.out.as_ref().filter(|path| !is_standard(path));
    if common.format == Format::Json && out_file.is_none() {
        let words = "a dump to standard output is always text; --format json needs --out FILE and applies to the report";
        return Err(Failure::Usage(words.to_owned()));
    }
    let db = store::open_read_only(common, &args.store)?;
    let keyspaces = chosen(&db, common, args)?;
    let started = Instant::now();
    let Some(path) = out_file else {
        let mut out = Out::new();
        let bar = progress::counter_beside_data("dumping");
        let dumped = dump(&keyspaces, &args.store, &mut out, &bar).and_then(|_| out.finish());
        return dumped.map_err(|failure| match failure {
            // Of other output a reader may have had enough; half a dump is none.
            Failure::PipeClosed => {
                let words = "the reader closed the pipe before the end of the dump";
                Failure::Other(words.to_owned())
            }
            other => other,
        });
    };
    let written = dump_to_file(&keyspaces, &args.store, path)?;
    report(common, &written, started.elapsed().as_secs_f64())
}

/// The keyspaces that were asked for, or all.
fn chosen(db: &Database, common: &Common, args: &DumpArgs) -> Result<Vec<Keyspace>, Failure> {
    let mut names = Vec::new();
    for name in &args.keyspaces {
        let name = String::from_utf8(name.0.clone());
        names.push(
            name.map_err(|_| Failure::Usage("the name of a keyspace must be UTF-8".to_owned()))?,
        );
    }
    names.extend(common.keyspace.clone());
    if names.is_empty() {
        names = db.keyspaces().map_err(store::failed("read", &args.store))?;
    }
    names.sort_unstable();
    names.dedup();
    names.iter().map(|name| store::keyspace_named(db, name, &args.store)).collect()
}

/// Writes a new file, which is whole and on the disk afterwards, or not there.
fn dump_to_file(keyspaces: &[Keyspace], store: &Path, path: &Path) -> Result<Written, Failure> {
    let name = path.display().to_string();
    let failed = |doing: &str| {
        let doing = format!("cannot {doing} {name}");
        move |error| Failure::Io(doing, error)
    };
    let file = create_new(path).map_err(failed("create"))?;
    let written = file.try_clone().map_err(failed("write to")).and_then(|writer| {
        let mut out = Out::to(writer, &name);
        let bar = progress::counter("dumping");
        let written = dump(keyspaces, store, &mut out, &bar)?;
        out.finish()?;
        sync_new(&file, path).map_err(failed("write to"))?;
        Ok(written)
    });
    if written.is_err()
        && let Err(error) = remove_own(&file, path)
    {
        tell!("hedgerow: the dump {name} is incomplete and cannot be removed: {error}");
    }
    written
}

/// Removes the file, unless its name leads elsewhere by now: then it is somebody else's to decide about.
fn remove_own(file: &File, path: &Path) -> io::Result<()> {
    match is_named(file, path) {
        Ok(true) => fs::remove_file(path),
        Ok(false) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(unix)]
fn is_named(file: &File, path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let (this, there) = (file.metadata()?, fs::symlink_metadata(path)?);
    Ok((this.dev(), this.ino()) == (there.dev(), there.ino()))
}

/// Elsewhere an open file keeps its name.
#[cfg(not(unix))]
fn is_named(_file: &File, _path: &Path) -> io::Result<bool> {
    Ok(true)
}

fn dump(
    keyspaces: &[Keyspace],
    store: &Path,
    out: &mut Out,
    bar: &ProgressBar,
) -> Result<Written, Failure> {
    let mut written = Written::default();
    out.bytes(dump_format::header().as_bytes())?;
    for keyspace in keyspaces {
        dump_keyspace(keyspace, store, out, &mut written, bar)?;
    }
    bar.finish_and_clear();
    out.bytes(dump_format::end(written.keyspaces, written.records).as_bytes())?;
    Ok(written)
}

fn dump_keyspace(
    keyspace: &Keyspace,
    store: &Path,
    out: &mut Out,
    written: &mut Written,
    bar: &ProgressBar,
) -> Result<(), Failure> {
    let mut line = dump_format::keyspace(keyspace.name());
    let mut section = Section::begin(line.as_bytes());
    out.bytes(line.as_bytes())?;
    let visited = keyspace.cursor().visit_short(|key, value| {
        line.clear();
        let dumped = match value {
            Some(value) => {
                dump_format::record_into(key, value, &mut line);
                section.add(line.as_bytes());
                out.bytes(line.as_bytes())
            }
            None => dump_long(keyspace, key, store, &mut section, out),
        };
        if section.records().is_multiple_of(4096) {
            bar.set_position(written.records + section.records());
        }
        match dumped.and_then(|()| interrupt::check()) {
            Ok(()) => ControlFlow::Continue(()),
            Err(failure) => ControlFlow::Break(failure),
        }
    });
    if let ControlFlow::Break(failure) = visited.map_err(store::failed("read", store))? {
        return Err(failure);
    }
    out.bytes(section.end().as_bytes())?;
    written.keyspaces += 1;
    written.records += section.records();
    Ok(())
}

/// Writes a record whose value is not held in memory.
fn dump_long(
    keyspace: &Keyspace,
    key: &[u8],
    store: &Path,
    section: &mut Section,
    out: &mut Out,
) -> Result<(), Failure> {
    let failed = |error| store::failed("read", store)(error);
    // The store is open for reading alone, so it is there.
    let Some(mut value) = keyspace.value_reader(key).map_err(failed)? else { return Ok(()) };
    let mut line = String::new();
    if value.len_bytes() == 0 {
        // It is the key that lies there.
        dump_format::record_into(key, &[], &mut line);
        section.add(line.as_bytes());
        return out.bytes(line.as_bytes());
    }
    dump_format::long_into(key, value.len_bytes(), &mut line);
    section.add(line.as_bytes());
    out.bytes(line.as_bytes())?;
    let mut piece = vec![0; dump_format::PIECE_BYTES];
    let mut at = 0;
    while at < value.len_bytes() {
        interrupt::check()?;
        let count = value.read_at(at, &mut piece).map_err(failed)?;
        line.clear();
        dump_format::piece_into(&piece[..count], &mut line);
        section.add_piece(line.as_bytes());
        out.bytes(line.as_bytes())?;
        at += count as u64;
    }
    Ok(())
}

fn report(common: &Common, written: &Written, seconds: f64) -> Result<(), Failure> {
    let Written { keyspaces, records } = *written;
    if common.format == Format::Json {
        let mut out = Out::new();
        out.json(&json!({ "keyspaces": keyspaces, "records": records, "seconds": seconds }))?;
        return out.finish();
    }
    if common.quiet {
        return Ok(());
    }
    let rate = size::show_rate(records, seconds);
    let records = size::show_number_of(records, "record");
    let of = size::show_number_of(keyspaces, "keyspace");
    tell!("dumped {records} of {of} in {seconds:.2} s ({rate})");
    Ok(())
}
