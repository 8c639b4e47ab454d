//! The writer: opens the store, says so, and changes it from several threads until it is killed.
//!
//! What it acknowledges as durable it writes to standard output, a line a change, after it was told so. Whatever goes
//! wrong in one thread ends the process at once: the others would go on for ever, and the kill would hide it.
//! Thread-safety: each thread has its own keys; lines are written under the lock of standard output.

use super::script::{Clock, KEYSPACE, THREADS, change, options, value};
use super::unexpected;
use crate::args::Common;
use crate::failure::Failure;
use clap::Args;
use hedgerow::{Database, Durability, Error, ErrorKind, Keyspace, WriteBatch};
use std::convert::Infallible;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

/// Arguments of the writer, which the kill loop gives it.
#[derive(Debug, Args)]
pub struct WriterArgs {
    /// Store file
    store: PathBuf,
    /// Of what is written
    seed: u64,
    /// Changes of each thread that are there
    #[arg(num_args = THREADS, required = true)]
    begins: Vec<u64>,
    /// The disk is made to fail: that nothing may be written any more is no finding then
    #[arg(long)]
    disk_fails: bool,
}

/// What the threads have in common.
struct Writer<'a> {
    db: &'a Database,
    keyspace: &'a Keyspace,
    seed: u64,
    disk_fails: bool,
    begins: Clock,
    done: [AtomicU64; THREADS],
}

/// Writes for ever.
pub fn run(common: &Common, args: &WriterArgs) -> Result<(), Failure> {
    let begins = Clock::try_from(args.begins.as_slice())
        .map_err(|_| Failure::Usage("give one number for each thread".into()))?;
    let failed = || refused(args.disk_fails);
    let db = options(common.memory_limit).open_or_create(&args.store).map_err(failed())?;
    let keyspace = db.keyspace(KEYSPACE).map_err(failed())?;
    say("open")?;
    let done = begins.map(AtomicU64::new);
    let writer = Writer {
        db: &db,
        keyspace: &keyspace,
        seed: args.seed,
        disk_fails: args.disk_fails,
        begins,
        done,
    };
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let writer = &writer;
            let work = move || {
                let ended = catch_unwind(AssertUnwindSafe(|| writer.write(thread)));
                let failure = match ended {
                    Ok(Err(failure)) => failure,
                    Err(_) => Failure::Found("a thread of the writer has panicked".into()),
                };
                if let Some(words) = failure.words() {
                    tell!("hedgerow: {words}");
                }
                std::process::exit(i32::from(failure.exit_code()));
            };
            if let Err(error) = std::thread::Builder::new().spawn_scoped(scope, work) {
                // The others write for ever.
                tell!("hedgerow: cannot start a writing thread: {error}");
                std::process::exit(1);
            }
        }
    });
    Ok(())
}

impl Writer<'_> {
    /// The changes of one thread, one after the other.
    fn write(&self, thread: usize) -> Result<Infallible, Failure> {
        let failed = || refused(self.disk_fails);
        let mut number = self.begins[thread];
        loop {
            number += 1;
            let change = change(self.seed, thread, number);
            let durability = if change.sync { Durability::Sync } else { Durability::Buffered };
            let handle = self.keyspace.clone().with_durability(durability);
            let clock = std::array::from_fn(|other| self.done[other].load(Ordering::SeqCst));
            let value = change.value_bytes.map(|len| value(number, &clock, len));
            match (&change.keys[..], &value) {
                ([key], Some(value)) => handle.put(key, value).map(drop),
                ([key], None) => handle.remove(key).map(drop),
                (keys, value) => {
                    let batch = self.batch(keys, value.as_deref(), durability)?;
                    self.db.write(&batch).map(drop)
                }
            }
            .map_err(failed())?;
            self.done[thread].store(number, Ordering::SeqCst);
            if change.sync {
                say(&format!("{thread} {number}"))?;
            }
            // Now and then: with the memory as small as it is the background takes most of them.
            if number.is_multiple_of(20_000) {
                self.db.checkpoint().map_err(failed())?;
            }
        }
    }

    fn batch(
        &self,
        keys: &[Vec<u8>],
        value: Option<&[u8]>,
        durability: Durability,
    ) -> Result<WriteBatch, Failure> {
        let mut batch = WriteBatch::new();
        batch.set_durability(durability);
        for key in keys {
            match value {
                Some(value) => batch.put(self.keyspace, key, value),
                None => batch.remove(self.keyspace, key),
            }
            .map_err(refused(self.disk_fails))?;
        }
        Ok(batch)
    }
}

/// For an error of the engine: a finding, unless it is the machine that says no, as a thread also learns from what another
/// one has met.
fn refused(disk_fails: bool) -> impl FnOnce(Error) -> Failure {
    move |error| match error.kind() {
        ErrorKind::Poisoned | ErrorKind::DurabilityUnknown | ErrorKind::BatchUnfinished
            if disk_fails =>
        {
            Failure::Engine("the writer".into(), error)
        }
        _ => unexpected("the writer")(error),
    }
}

fn say(line: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let said = writeln!(out, "{line}").and_then(|()| out.flush());
    // Whoever was to kill this process is dead itself.
    said.map_err(|_| Failure::PipeClosed)
}
