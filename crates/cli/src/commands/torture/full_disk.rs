//! `hedgerow torture full-disk DIR`: a store that fills a disk, and what it is worth then.
//!
//! Records are put until the disk is full. Then: the error says so, and the change that got it is not there; everything
//! that was taken can be read; checkpoints and removals go through; the store is sound; what was removed makes room
//! for as much again; and all of that is still so after it was closed and opened.
//!
//! A limit on the size of files is no full disk, so none is set: a small disk is a small file system, such as
//! `mount -t tmpfs -o size=64m none DIR`. With a limit of its own the test stops writing there, and does the rest without
//! a full disk. A disk with much room is not filled unasked: everybody who writes to it would find it full.
//!
//! Invariant: the records are a function of their numbers, and `there` has the numbers of those that are there.
//! Single-threaded.

use super::latency::show_time;
use super::seed::mix;
use super::{Place, unexpected, verify};
use crate::args::{Common, Format};
use crate::failure::Failure;
use crate::output::Out;
use crate::size::{self, show_bytes, show_count};
use crate::{interrupt, progress};
use clap::Args;
use hedgerow::{Database, ErrorKind, Keyspace, Options};
use serde_json::{Map, Value as Json, json};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Arguments of `torture full-disk`.
#[derive(Debug, Args)]
pub struct FullDiskArgs {
    /// Directory on the disk to fill; use a small file system made for the test
    directory: PathBuf,
    /// Stop writing when the store has this size, such as 200MiB, even if the disk is not full
    #[arg(long, value_name = "SIZE", value_parser = size::parse_bytes)]
    limit_bytes: Option<u64>,
    /// Fill the disk even if more than 1 GiB is free
    #[arg(long)]
    yes: bool,
}

/// More than this is not filled unasked.
const MOST_BYTES: u64 = 1 << 30;
/// Memory, unless it is given: far less than the disk has.
const MEMORY_BYTES: u64 = 8 << 20;
const LOG_BYTES: u64 = 16 << 20;
const STORE: &str = "full.hrow";
const KEYSPACE: &str = "torture/full";
/// One record in so many has a value that no leaf holds.
const LARGE_EVERY: u64 = 256;
const LARGE_BYTES: usize = 40_000;
/// Changes that are tried on the full disk one by one.
const TRIED: u64 = 16;
/// How often a removal may ask for a checkpoint before it goes through.
const MOST_CHECKPOINTS: usize = 8;

/// The store that fills the disk.
struct Filler {
    options: Options,
    path: PathBuf,
    db: Database,
    keyspace: Keyspace,
    /// Numbers of the records that are there, in order.
    there: Vec<Range<u64>>,
}

/// Fills the disk, checks, and reports.
pub fn run(common: &Common, args: &FullDiskArgs) -> Result<(), Failure> {
    refuse_a_large_disk(args)?;
    let mut place = Place::new(&args.directory, "full-disk")?;
    let mut facts = Map::new();
    let mut out = Out::new();
    let outcome = test(common, args, place.path(), &mut |name: &str, value, words: String| {
        facts.insert(name.to_owned(), value);
        if common.format == Format::Human {
            out.line(&words)?;
            out.flush()?;
        }
        Ok(())
    });
    place.judge(&place.path().join(STORE), outcome)?;
    match common.format {
        Format::Human => out.line("nothing was lost")?,
        Format::Json => out.json(&Json::Object(facts))?,
    }
    out.finish()
}

/// Takes a figure, its name, and a line for people.
type Tell<'a> = &'a mut dyn FnMut(&str, Json, String) -> Result<(), Failure>;

fn refuse_a_large_disk(args: &FullDiskArgs) -> Result<(), Failure> {
    let directory = args.directory.display();
    if args.yes || args.limit_bytes.is_some_and(|limit| limit <= MOST_BYTES) {
        return Ok(());
    }
    let room = match free_bytes(&args.directory)? {
        Some(free) if free <= MOST_BYTES => return Ok(()),
        Some(free) => format!("{directory} has {} free", show_bytes(free)),
        None => format!("the free space of {directory} is not known"),
    };
    Err(Failure::Usage(format!(
        "{room}, and whoever else writes there would find it full: take a small file system (mount -t tmpfs -o \
         size=64m none DIR), stop early (--limit-bytes 200MiB), or say --yes"
    )))
}

/// Bytes that may still be written in a directory; `None` where the system does not tell.
fn free_bytes(directory: &Path) -> Result<Option<u64>, Failure> {
    #[cfg(unix)]
    {
        let found = rustix::fs::statvfs(directory).map_err(|error| {
            Failure::Io(
                format!("cannot read the free space of {}", directory.display()),
                error.into(),
            )
        })?;
        Ok(Some(found.f_bavail.saturating_mul(found.f_frsize)))
    }
    #[cfg(not(unix))]
    {
        let _ = directory;
        Ok(None)
    }
}

fn test(
    common: &Common,
    args: &FullDiskArgs,
    directory: &Path,
    tell: Tell<'_>,
) -> Result<(), Failure> {
    let mut filler = Filler::create(common, directory)?;
    let started = Instant::now();
    let is_full = filler.fill(args.limit_bytes)?;
    let (count, bytes) = (filler.count(), filler.bytes()?);
    let how = if is_full { "the disk is full" } else { "the limit is reached" };
    let (took, shown) = (show_time(started.elapsed()), show_bytes(bytes));
    tell("full", json!(is_full), format!("{how}, after {took}"))?;
    tell("records", json!(count), format!("{} records in {shown}", show_count(count)))?;
    filler.check_all()?;
    tell("bytes", json!(bytes), "all records can be read".into())?;
    if is_full {
        let refused = filler.try_more()?;
        let words =
            format!("{refused} of {TRIED} further changes were refused; checkpoints succeed");
        tell("refused", json!(refused), words)?;
    }
    let removed = filler.remove_half()?;
    tell("removed", json!(removed), format!("{} records removed", show_count(removed)))?;
    filler.check_all()?;
    verify(&filler.db)?;
    let shrunk = filler.shrink()?;
    let words = format!("the store is sound; it now takes {}", show_bytes(shrunk));
    tell("shrunk_bytes", json!(shrunk), words)?;
    let again = filler.put_again(removed / 2)?;
    tell("again", json!(again), format!("{} records could be written again", show_count(again)))?;
    filler.check_all()?;
    filler.close_and_open()?.check_end()
}

impl Filler {
    fn create(common: &Common, directory: &Path) -> Result<Filler, Failure> {
        let options = Options::new()
            .memory_limit_bytes(common.memory_limit.unwrap_or(MEMORY_BYTES))
            .checkpoint_bytes(MEMORY_BYTES / 2)
            .log_limit_bytes(LOG_BYTES);
        let path = directory.join(STORE);
        let db = options.create(&path).map_err(unexpected("cannot create the store"))?;
        let keyspace = db.keyspace(KEYSPACE).map_err(unexpected("cannot write to the store"))?;
        Ok(Filler { options, path, db, keyspace, there: std::iter::once(0..0).collect() })
    }

    fn count(&self) -> u64 {
        self.there.iter().map(|range| range.end - range.start).sum()
    }

    /// Bytes of store and log.
    fn bytes(&self) -> Result<u64, Failure> {
        let stats = self.db.stats().map_err(unexpected("cannot read the store"))?;
        Ok(stats.file_bytes + stats.log_file_bytes)
    }

    /// The number of the next record.
    fn next(&self) -> u64 {
        self.there.last().map_or(0, |range| range.end)
    }

    /// Puts the next record; false if there is no room for it.
    fn put_next(&mut self) -> Result<bool, Failure> {
        let n = self.next();
        match self.keyspace.put(&key(n), &value(n)) {
            Ok(_) => {
                if let Some(last) = self.there.last_mut() {
                    last.end += 1;
                }
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::DiskFull => Ok(false),
            Err(error) => Err(unexpected("cannot write to the store")(error)),
        }
    }

    /// Puts records until the disk is full; false if the limit came before.
    fn fill(&mut self, limit_bytes: Option<u64>) -> Result<bool, Failure> {
        let bar = progress::counter("filling");
        let outcome = loop {
            match self.put_next() {
                Ok(true) => {}
                Ok(false) => break Ok(true),
                Err(failure) => break Err(failure),
            }
            let n = self.next();
            if n.is_multiple_of(256) {
                bar.set_position(n);
                if let Err(failure) = interrupt::check() {
                    break Err(failure);
                }
                match (limit_bytes, self.bytes()) {
                    (Some(limit), Ok(bytes)) if bytes >= limit => break Ok(false),
                    (_, Err(failure)) => break Err(failure),
                    _ => {}
                }
            }
        };
        bar.finish_and_clear();
        outcome
    }

    /// All that is there, by a scan, and some of it one by one; and nothing else.
    fn check_all(&self) -> Result<(), Failure> {
        let mut due = self.there.iter().cloned().flatten();
        for record in self.keyspace.iter() {
            let (found, bytes) = record.map_err(unexpected("cannot read the store"))?;
            let name = || String::from_utf8_lossy(&found).into_owned();
            let Some(n) = due.next() else {
                let words = format!("{} is there although it was refused or removed", name());
                return Err(Failure::Found(words));
            };
            if found[..] != key(n)[..] {
                return Err(Failure::Found(format!("expected record {n}, found {}", name())));
            }
            if bytes[..] != value(n)[..] {
                return Err(Failure::Found(format!("the value of record {n} is wrong")));
            }
            interrupt::check()?;
        }
        if let Some(n) = due.next() {
            return Err(Failure::Found(format!("record {n} is missing")));
        }
        let end = self.next();
        for n in (0..TRIED).map(|n| mix(n) % end.max(1)) {
            let found = self.keyspace.get(&key(n)).map_err(unexpected("cannot read the store"))?;
            let is_there = self.there.iter().any(|range| range.contains(&n));
            let is_right = match &found {
                Some(found) => is_there && found[..] == value(n)[..],
                None => !is_there,
            };
            if !is_right {
                return Err(Failure::Found(format!("a get of record {n} gave a wrong value")));
            }
        }
        Ok(())
    }

    /// A checkpoint, for which there is room on any disk.
    fn checkpoint(&self) -> Result<(), Failure> {
        self.db
            .checkpoint()
            .map_err(|error| Failure::Found(format!("a checkpoint failed on a full disk: {error}")))
    }

    /// Tries some changes more; tells how many were refused. Room for what was let in is set aside.
    fn try_more(&mut self) -> Result<u64, Failure> {
        let mut refused = 0;
        for _ in 0..TRIED {
            refused += u64::from(!self.put_next()?);
            self.checkpoint()?;
        }
        self.check_all()?;
        Ok(refused)
    }

    /// Carries out a removal, which may need a checkpoint or two first: what a full disk has no room for it has then.
    fn give_back<T>(&self, remove: impl Fn() -> hedgerow::Result<T>) -> Result<T, Failure> {
        let mut refused = None;
        for _ in 0..MOST_CHECKPOINTS {
            match remove() {
                Ok(done) => return Ok(done),
                Err(error) if error.kind() == ErrorKind::DiskFull => refused = Some(error),
                Err(error) => return Err(unexpected("cannot remove records")(error)),
            }
            self.checkpoint()?;
        }
        let why = refused.map_or_else(String::new, |error| format!(": {error}"));
        Err(Failure::Found(format!("removals failed on a full disk{why}")))
    }

    /// Removes the first half, some of it one by one; tells how many records that were.
    fn remove_half(&mut self) -> Result<u64, Failure> {
        let end = self.next();
        let half = end / 2;
        let single = TRIED.min(half);
        for n in 0..single {
            self.give_back(|| self.keyspace.remove(&key(n)))?;
        }
        self.give_back(|| self.keyspace.remove_range(key(0)..key(half)))?;
        self.there = [0..0, half..end].into_iter().collect();
        self.checkpoint()?;
        Ok(half)
    }

    /// Takes checkpoints until none makes the file shorter; tells how long it is.
    fn shrink(&self) -> Result<u64, Failure> {
        let mut before = u64::MAX;
        loop {
            self.checkpoint()?;
            let bytes = self.bytes()?;
            if bytes >= before {
                return Ok(bytes);
            }
            before = bytes;
        }
    }

    /// Puts some of what was removed again, for which there has to be room; tells how many.
    fn put_again(&mut self, count: u64) -> Result<u64, Failure> {
        for n in 0..count {
            let put = || self.keyspace.put(&key(n), &value(n));
            if let Err(error) = put() {
                if error.kind() != ErrorKind::DiskFull {
                    return Err(unexpected("cannot write to the store")(error));
                }
                // The slots that the first sets free are given out after it, those of the second's parts as well.
                self.checkpoint()?;
                self.checkpoint()?;
                put().map_err(|error| {
                    Failure::Found(format!("removals freed no space, at record {n}: {error}"))
                })?;
            }
            if let Some(first) = self.there.first_mut() {
                first.end = n + 1;
            }
            interrupt::check()?;
        }
        Ok(count)
    }

    fn close_and_open(self) -> Result<Filler, Failure> {
        let Filler { options, path, db, keyspace, there } = self;
        drop(keyspace);
        db.close().map_err(unexpected("cannot close the store"))?;
        let db = options.open(&path).map_err(unexpected("cannot open the store again"))?;
        let keyspace = db.keyspace(KEYSPACE).map_err(unexpected("cannot read the store"))?;
        Ok(Filler { options, path, db, keyspace, there })
    }

    /// What a store that was closed and opened has to have.
    fn check_end(self) -> Result<(), Failure> {
        self.check_all()?;
        verify(&self.db)?;
        self.db.close().map_err(unexpected("cannot close the store"))
    }
}

fn key(n: u64) -> Vec<u8> {
    format!("full/{n:012}").into_bytes()
}

fn value(n: u64) -> Vec<u8> {
    let dice = mix(n ^ 0x5eed);
    let len = match n % LARGE_EVERY {
        7 => LARGE_BYTES,
        _ => 8 + (dice % 700) as usize,
    };
    let mut value = n.to_le_bytes().to_vec();
    value.resize(len, dice as u8);
    value
}
