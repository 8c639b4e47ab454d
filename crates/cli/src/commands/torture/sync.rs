//! `hedgerow torture sync DIR`: how long the disk takes to make something durable, and whether it does.
//!
//! Whether a disk keeps its word only a power cut tells, and only somebody else can keep what it has said. So with
//! `--cut` numbered records are written, each durable before the next, and their numbers go to standard output, which
//! belongs on another machine:
//!
//! ```text
//! ssh patient hedgerow torture sync --cut /data | tee numbers     (then pull the plug)
//! ssh patient hedgerow torture sync --check $(tail -1 numbers) /data
//! ```
//!
//! Each number is written twice: into a plain file, with nothing of the engine between it and the disk, and into a store.
//! So what is missing afterwards says whose fault it is.
//!
//! Invariants: a number is printed when both copies are durable; `--check` writes nothing before it has found everything.
//! Single-threaded.

use super::latency::{BLOCK_BYTES, Latency, Where};
use super::{Place, unexpected, verify_pages};
use crate::args::{Common, Format};
use crate::failure::Failure;
use crate::output::{Out, sync_new};
use crate::size::show_count;
use crate::{interrupt, store};
use clap::Args;
use hedgerow::{Database, Durability, Keyspace, log_path};
use serde_json::json;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Arguments of `torture sync`.
#[derive(Debug, Args)]
pub struct SyncArgs {
    /// Directory on the disk to test
    directory: PathBuf,
    /// Write numbered records, wait until each is durable, and print its number, until you cut the power. Run this through ssh,
    /// so that another machine has the numbers. The files stay for --check
    #[arg(long, conflicts_with = "check")]
    cut: bool,
    /// After the power cut: check that everything up to this number, the last one printed, is there. If it is, the files are
    /// removed
    #[arg(long, value_name = "LAST")]
    check: Option<u64>,
}

/// Numbers that the plain file has at a time, a block each.
const SLOTS: u64 = 256;
/// Numbers that the store has at a time.
const RECORDS: u64 = 10_000;
const KEYSPACE: &str = "torture/sync";

/// Measures, writes or checks.
pub fn run(common: &Common, args: &SyncArgs) -> Result<(), Failure> {
    let files = Files::of(&args.directory);
    match args.check {
        Some(last) => files.check(common, last),
        None if args.cut => files.cut(common),
        None => measure(common, &args.directory),
    }
}

fn measure(common: &Common, directory: &Path) -> Result<(), Failure> {
    let place = Place::new(directory, "sync")?;
    let same = Latency::measure(place.path(), Where::Same)?;
    let behind = Latency::measure(place.path(), Where::Behind)?;
    let mut out = Out::new();
    match common.format {
        Format::Human => {
            out.line(&format!("overwriting a block: {}", same.sentence()))?;
            out.line(&format!("appending:           {}", behind.sentence()))?;
            if let Some(warning) = same.warning() {
                out.line(&warning)?;
            }
        }
        Format::Json => {
            out.json(&json!({ "same_block": same.as_json(), "behind_end": behind.as_json() }))?;
        }
    }
    out.finish()
}

/// What stays over a power cut.
struct Files {
    plain: PathBuf,
    store: PathBuf,
}

impl Files {
    fn of(directory: &Path) -> Files {
        Files {
            plain: directory.join("hedgerow-torture-cut.plain"),
            store: directory.join("hedgerow-torture-cut.hrow"),
        }
    }

    /// Writes until the power is cut.
    fn cut(&self, common: &Common) -> Result<(), Failure> {
        for path in [&self.plain, &self.store] {
            if path.exists() {
                return Err(Failure::Other(format!(
                    "{} exists from an earlier run; check it with --check, or remove it",
                    path.display()
                )));
            }
        }
        let cannot = |error| Failure::Io(format!("cannot write {}", self.plain.display()), error);
        let mut plain = self.make_plain().map_err(cannot)?;
        let db = store::options(common)
            .create(&self.store)
            .map_err(store::failed("create", &self.store))?;
        let keyspace = db.keyspace(KEYSPACE).map_err(store::failed("write to", &self.store))?;
        let keyspace = keyspace.with_durability(Durability::Sync);
        tell!("hedgerow: cut the power at any time; keep the last number on another machine");
        let mut out = Out::new();
        for n in 1_u64.. {
            write_plain(&mut plain, n).map_err(cannot)?;
            let put = keyspace.put(&key(n), &value(n));
            put.map_err(store::failed("write to", &self.store))?;
            out.line(&n.to_string())?;
            out.flush()?;
            if interrupt::requested() {
                let done = format!("check the files with `--check {n}`, which also removes them");
                return Err(Failure::Interrupted(done));
            }
        }
        Ok(())
    }

    /// The plain file, of its whole length, durably.
    fn make_plain(&self) -> io::Result<File> {
        let mut file = File::options().write(true).create_new(true).open(&self.plain)?;
        file.write_all(&vec![0; BLOCK_BYTES * SLOTS as usize])?;
        sync_new(&file, &self.plain)?;
        Ok(file)
    }

    /// Errors: there is nothing to check, as in a wrong directory, or after a check that has found everything.
    fn must_be_there(&self) -> Result<(), Failure> {
        let is_gone = |path: &Path| matches!(path.try_exists(), Ok(false));
        let files = [&self.plain, &self.store, &log_path(&self.store)];
        if !files.into_iter().all(|path| is_gone(path)) {
            return Ok(());
        }
        Err(Failure::Other(format!(
            "no run of --cut here: {} and the files beside it are not there. A --check that finds everything removes them; if none did, \
             and the directory is right, the disk has lost them",
            self.plain.display()
        )))
    }

    /// Whether everything up to `last` is there.
    fn check(&self, common: &Common, last: u64) -> Result<(), Failure> {
        self.must_be_there()?;
        let plain = self.check_plain(last);
        if let Err(failure @ Failure::Io(..)) = plain {
            return Err(failure);
        }
        let found = self.check_store(common, last);
        let kept = format!("see {} and {}", self.plain.display(), self.store.display());
        match (plain, found) {
            (Ok(()), Ok(newest)) => {
                let mut out = Out::new();
                match common.format {
                    Format::Human => out.line(&format!(
                        "all {} acknowledged numbers are there, and {} later ones",
                        show_count(last),
                        show_count(newest - last)
                    ))?,
                    Format::Json => out.json(&json!({ "last": last, "newest": newest }))?,
                }
                self.remove();
                out.finish()
            }
            (Err(Failure::Found(lost)), Err(Failure::Found(also))) => Err(Failure::Found(format!(
                "the disk acknowledged an fsync and lost the data: {lost}; {also}; {kept}"
            ))),
            (Err(Failure::Found(lost)), _) => Err(Failure::Found(format!(
                "the disk acknowledged an fsync and lost the data: {lost}; {kept}"
            ))),
            (Ok(()), Err(Failure::Found(lost))) => Err(Failure::Found(format!(
                "the plain file is complete but the store is not, which is a bug of Hedgerow: {lost}; {kept}"
            ))),
            (_, Err(other)) | (Err(other), _) => Err(other),
        }
    }

    fn check_plain(&self, last: u64) -> Result<(), Failure> {
        let read = || {
            let mut bytes = Vec::new();
            File::open(&self.plain)?.read_to_end(&mut bytes).map(|_| bytes)
        };
        let bytes = match read() {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(Failure::Found(format!("{} is gone", self.plain.display())));
            }
            Err(error) => {
                return Err(Failure::Io(format!("cannot read {}", self.plain.display()), error));
            }
        };
        match lost_of_plain(&bytes, last) {
            Some(n) => Err(Failure::Found(format!("number {n} of the plain file is gone"))),
            None => Ok(()),
        }
    }

    /// The newest number that is there.
    fn check_store(&self, common: &Common, last: u64) -> Result<u64, Failure> {
        // For reading only: what is found wrong stays as it is.
        let db = store::options(common)
            .open_read_only(&self.store)
            .map_err(unexpected(format!("cannot open {}", self.store.display())))?;
        let newest = newest_of_store(&db, last)?;
        verify_pages(&db)?;
        Ok(newest)
    }

    fn remove(&self) {
        for path in [self.plain.clone(), log_path(&self.store), self.store.clone()] {
            if let Err(error) = fs::remove_file(&path)
                && error.kind() != io::ErrorKind::NotFound
            {
                tell!("hedgerow: cannot remove {}: {error}", path.display());
            }
        }
    }
}

fn write_plain(file: &mut File, n: u64) -> io::Result<()> {
    file.seek(SeekFrom::Start(n % SLOTS * BLOCK_BYTES as u64))?;
    file.write_all(&n.to_le_bytes().repeat(BLOCK_BYTES / 8))?;
    file.sync_data()
}

/// The first number that a plain file has lost of those up to `last`. Each place may have a later number, whole or in
/// part: that was being written when the power went.
fn lost_of_plain(bytes: &[u8], last: u64) -> Option<u64> {
    (last.saturating_sub(SLOTS - 1).max(1)..=last).find(|n| {
        let at = (n % SLOTS) as usize * BLOCK_BYTES;
        let Some(block) = bytes.get(at..at + BLOCK_BYTES) else { return true };
        block.chunks_exact(8).any(|word| {
            let word = word.try_into().map_or(0, u64::from_le_bytes);
            word < *n || word % SLOTS != n % SLOTS
        })
    })
}

fn key(n: u64) -> Vec<u8> {
    format!("number/{:05}", n % RECORDS).into_bytes()
}

fn value(n: u64) -> Vec<u8> {
    let mut value = n.to_le_bytes().to_vec();
    value.resize(8 + (n % 200) as usize, n as u8);
    value
}

/// The newest number in a store, which has to have exactly the numbers up to that one.
fn newest_of_store(db: &Database, last: u64) -> Result<u64, Failure> {
    let doing = || unexpected("cannot read the store");
    let keyspace: Option<Keyspace> = db.open_keyspace(KEYSPACE).map_err(doing())?;
    let mut newest = 0;
    let mut numbers = Vec::new();
    if let Some(keyspace) = keyspace {
        for record in keyspace.iter() {
            let (found, bytes) = record.map_err(doing())?;
            let number = bytes.get(..8).and_then(|word| word.try_into().ok());
            let number = number.map_or(0, u64::from_le_bytes);
            if bytes[..] != value(number)[..] || found[..] != key(number)[..] {
                let name = String::from_utf8_lossy(&found);
                return Err(Failure::Found(format!("the record {name} of the store is wrong")));
            }
            newest = newest.max(number);
            numbers.push(number);
        }
    }
    if newest < last {
        let words = format!("number {last} is missing from the store; its newest is {newest}");
        return Err(Failure::Found(words));
    }
    numbers.sort_unstable();
    let first = newest.saturating_sub(RECORDS - 1).max(1);
    let mut numbers = numbers.into_iter();
    match (first..=newest).find(|due| numbers.next() != Some(*due)) {
        Some(due) => Err(Failure::Found(format!(
            "number {due} is missing from the store; its newest is {newest}"
        ))),
        None => Ok(newest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A plain file after so many numbers.
    fn plain(last: u64) -> Vec<u8> {
        let mut bytes = vec![0; BLOCK_BYTES * SLOTS as usize];
        for n in 1..=last {
            let at = (n % SLOTS) as usize * BLOCK_BYTES;
            bytes[at..at + BLOCK_BYTES].copy_from_slice(&n.to_le_bytes().repeat(BLOCK_BYTES / 8));
        }
        bytes
    }

    #[test]
    fn a_plain_file_has_lost_what_is_older_than_it_was() {
        for last in [0, 1, 255, 256, 257, 1000] {
            assert_eq!(lost_of_plain(&plain(last), last), None, "{last}");
            assert_eq!(lost_of_plain(&plain(last + 3), last), None, "{last}, and three more");
            assert_eq!(lost_of_plain(&plain(last), last + 1), Some(last + 1), "{last}");
        }
    }

    #[test]
    fn what_was_being_written_may_be_torn() {
        let mut torn = plain(1000);
        let at = (1001 % SLOTS) as usize * BLOCK_BYTES;
        torn[at..at + 512].copy_from_slice(&1001_u64.to_le_bytes().repeat(64));
        assert_eq!(lost_of_plain(&torn, 1000), None);
        // Not with something else.
        torn[at..at + 8].fill(0);
        assert_eq!(lost_of_plain(&torn, 1000), Some(1001 - SLOTS));
    }
}
