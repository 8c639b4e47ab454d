//! `hedgerow torture`: what goes wrong on machines is made to go wrong on this one, and what is left is checked.
//!
//! - `kill`: a process that writes is killed, again and again.
//! - `full-disk`: a disk is filled to the last byte.
//! - `sync`: how long the disk takes to make something durable, and whether a real power cut finds it there.
//!
//! What holds for all: everything random follows from a seed that is printed, and refused with exit code 8 if it is one of
//! another version; what the user's directory gets is in one
//! of its own, which goes away, on failures and on Ctrl-C too, unless something was found: then it is kept and named,
//! and the exit code is 7. What the machine cannot do is an error like any other, and no finding.

mod full_disk;
mod kill;
mod latency;
mod left;
mod script;
mod seed;
mod sync;
mod writer;

use crate::args::Common;
use crate::failure::Failure;
use clap::{Args, Subcommand};
use hedgerow::{Database, Error, ErrorKind};
use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// Arguments of `torture`.
#[derive(Debug, Args)]
pub struct TortureArgs {
    /// What to do.
    #[command(subcommand)]
    how: How,
}

/// How long a checkpoint may go on after the last change.
const AT_REST: Duration = Duration::from_secs(10);

#[derive(Debug, Subcommand)]
enum How {
    /// Kill a writing process again and again, and check the store after each kill
    #[command(after_help = "\
Exit code 7 if a fault was found.

Examples:
  hedgerow torture kill /var/lib --cycles 1000
  hedgerow torture kill /var/lib --seed 1.12345")]
    Kill(kill::KillArgs),
    /// Fill a disk, and check that no record is lost and that removals free space
    #[command(after_help = "\
Exit code 7 if a fault was found.

Examples:
  mount -t tmpfs -o size=64m none /mnt && hedgerow torture full-disk /mnt
  hedgerow torture full-disk /var/lib --limit-bytes 200M")]
    FullDisk(full_disk::FullDiskArgs),
    /// Measure the time of an fsync, and test whether the disk keeps what it acknowledges
    #[command(after_help = "\
Exit code 7 if --check misses something.

Examples, the last two from another machine, before and after the power of the first one is cut:
  hedgerow torture sync /var/lib
  ssh patient hedgerow torture sync --cut /var/lib | tee numbers
  ssh patient hedgerow torture sync --check $(tail -1 numbers) /var/lib")]
    Sync(sync::SyncArgs),
    /// Report what is wrong with a store that `torture kill` kept
    #[command(after_help = "\
Example, with the store and the seed of the message of `torture kill`:
  hedgerow torture look /var/lib/hedgerow-torture-kill-4711-0/tortured.hrow 1.12345")]
    Look(left::LookArgs),
    /// What `torture kill` starts in order to kill it
    #[command(hide = true)]
    Writer(writer::WriterArgs),
    /// Check what a writer has left, once
    #[command(hide = true)]
    Check(left::CheckArgs),
}

/// Runs the one that was asked for.
pub fn run(common: &Common, args: &TortureArgs) -> Result<(), Failure> {
    match &args.how {
        How::Kill(args) => kill::run(common, args),
        How::FullDisk(args) => full_disk::run(common, args),
        How::Sync(args) => sync::run(common, args),
        How::Look(args) => left::look(common, args),
        How::Writer(args) => writer::run(common, args),
        How::Check(args) => left::check(common, args),
    }
}

/// A directory of our own in one of the user's; it goes with this value, unless something was found.
struct Place {
    path: PathBuf,
    is_kept: bool,
}

/// Names that are tried: earlier runs that were killed themselves may have left some.
const MOST_PLACES: u32 = 1000;

impl Place {
    fn new(within: &Path, what: &str) -> Result<Place, Failure> {
        let own = std::process::id();
        for n in 0..MOST_PLACES {
            let path = within.join(format!("hedgerow-torture-{what}-{own}-{n}"));
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Place { path, is_kept: false }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    let doing = format!("cannot create a directory in {}", within.display());
                    return Err(Failure::Io(doing, error));
                }
            }
        }
        let within = within.display();
        Err(Failure::Other(format!(
            "{within} has too many directories of earlier runs; remove them"
        )))
    }

    fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps everything if something was found, and adds to the words where the store is.
    fn judge<T>(&mut self, store: &Path, outcome: Result<T, Failure>) -> Result<T, Failure> {
        outcome.map_err(|failure| match failure {
            Failure::Found(words) => {
                self.is_kept = true;
                Failure::Found(format!("{words}; see {}", store.display()))
            }
            other => other,
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.is_kept
            && let Err(error) = fs::remove_dir_all(&self.path)
        {
            tell!("hedgerow: cannot remove {}: {error}", self.path.display());
        }
    }
}

/// For an error of the engine where there should be none: a finding, unless it is the machine that says no.
fn unexpected(doing: impl Into<String>) -> impl FnOnce(Error) -> Failure {
    let doing = doing.into();
    move |error| match error.kind() {
        ErrorKind::Io
        | ErrorKind::DiskFull
        | ErrorKind::MemoryLimit
        | ErrorKind::InvalidOption
        | ErrorKind::Locked { .. } => Failure::Engine(doing, error),
        _ => Failure::Found(format!("{doing}: {error}")),
    }
}

/// Finds everything sound in a store, and every byte of its file accounted for.
fn verify(db: &Database) -> Result<(), Failure> {
    verify_pages(db)?;
    let space = db.space_report().map_err(unexpected("cannot read the store's space"))?;
    if space.accounted_bytes() != space.file_bytes {
        return Err(Failure::Found(format!(
            "the space report does not add up to the file: {space:?}"
        )));
    }
    Ok(())
}

/// Finds everything sound in a store that nobody changes, and in the file at `path` exactly the bytes that it accounts for.
fn verify_to_the_byte(db: &Database, path: &Path) -> Result<(), Failure> {
    verify(db)?;
    let asked = Instant::now();
    loop {
        let space = db.space_report().map_err(unexpected("cannot read the store's space"))?;
        let len_bytes = fs::metadata(path)
            .map_err(|error| {
                Failure::Io(format!("cannot read the metadata of {}", path.display()), error)
            })?
            .len();
        if space.file_bytes == len_bytes {
            return Ok(());
        }
        // A checkpoint may have come in between.
        if asked.elapsed() > AT_REST {
            return Err(Failure::Found(format!(
                "the file has {len_bytes} bytes, but the space report says: {space:?}"
            )));
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Finds everything sound in a store.
fn verify_pages(db: &Database) -> Result<(), Failure> {
    let report =
        db.verify(|_| ControlFlow::Continue(())).map_err(unexpected("cannot verify the store"))?;
    match report.findings.first() {
        Some(first) => {
            let count = report.count();
            Err(Failure::Found(format!("the store has {count} defects, the first: {first}")))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_is_kept_and_the_words_name_the_store() {
        let mut place = Place::new(&std::env::temp_dir(), "kept").unwrap();
        let (path, store) = (place.path().to_owned(), place.path().join("kept.hrow"));
        let outcome = place.judge(&store, Err::<(), _>(Failure::Found("a record is gone".into())));
        let words = outcome.unwrap_err().words().unwrap();
        assert_eq!(words, format!("a record is gone; see {}", store.display()));
        drop(place);
        fs::remove_dir(path).unwrap();
    }
}
