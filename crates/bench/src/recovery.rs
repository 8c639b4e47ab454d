//! How long a store takes to open after its process was killed in the middle of puts at full speed, and what keeping that
//! short costs: one run for each size of the store and each recovery target.
//!
//! A run makes a store, loads it, and has a process of its own ([`put_until_killed`]) put random records from two
//! threads until it is killed (`SIGKILL`), at some moment between two checkpoints; then opening is timed, which
//! replays the log. Stores read and write their files past the system's page cache where that is possible, so what
//! the killed process had read before does not count.
//!
//! Linux and other systems with signals. One run at a time.

use crate::cell::CellError;
use crate::checksum::mix;
use crate::experiments::Size;
use crate::external::process::is_interrupted;
use hedgerow::{Database, Error, Options};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Bytes of a value: a record has 100 with its key.
const VALUE_BYTES: usize = 92;
/// Records of a GiB of pages.
const RECORDS_OF_GIBIBYTE: u64 = 11_200_000;
const THREADS: u64 = 2;
const KEYSPACE: &str = "bench";
/// How often the process that puts tells how many it has put.
const TELL: Duration = Duration::from_millis(5);

/// What is to be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// Records that are loaded before.
    pub records: u64,
    /// What [`Options::recovery_target`] is told.
    pub target_ms: u64,
    /// What [`Options::memory_limit_bytes`] is told.
    pub memory_limit_bytes: u64,
    /// For how long records are put before the kill.
    pub put_ms: u64,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recovered {
    /// What was run.
    pub setting: Setting,
    /// Number of the round, from 1.
    pub round: usize,
    /// Bytes of the store's file when it had been loaded.
    pub store_bytes: u64,
    /// Puts until the kill, and the seconds that they took.
    pub puts: u64,
    /// See `puts`.
    pub put_seconds: f64,
    /// Bytes that the process wrote to the disk meanwhile, log and checkpoints included.
    pub written_bytes: Option<u64>,
    /// How long opening took.
    pub open_seconds: f64,
    /// Changes that it made again.
    pub replayed_records: u64,
    /// Bytes of log that it read.
    pub replayed_bytes: u64,
}

/// The runs of a round.
pub fn settings(size: Size) -> Vec<Setting> {
    let (gibibyte, put_ms, least_limit) = match size {
        Size::Full => (RECORDS_OF_GIBIBYTE, 40_000, 256_u64 << 20),
        Size::Small => (RECORDS_OF_GIBIBYTE / 20, 3_000, 32 << 20),
        Size::Smoke => (4_000, 100, 16 << 20),
    };
    let one = |records, target_ms, limits| Setting {
        records,
        target_ms,
        memory_limit_bytes: limits * least_limit,
        put_ms,
    };
    // All of it in memory: there is more log to read than pages. Then larger than memory: it is the other way round.
    let cached = [1_000, 3_000, 10_000, 30_000].map(|target| one(gibibyte / 2, target, 4));
    let beyond = [gibibyte / 2, 2 * gibibyte, 8 * gibibyte].map(|records| one(records, 10_000, 1));
    cached.into_iter().chain(beyond).collect()
}

fn failed(error: Error) -> CellError {
    CellError::failed(error)
}

impl Setting {
    fn options(&self) -> Options {
        Options::new()
            .memory_limit_bytes(self.memory_limit_bytes)
            .recovery_target(Duration::from_millis(self.target_ms))
    }

    /// Runs it, with a store in `directory`, which is empty, and is so again afterwards. `program`: this one.
    ///
    /// Errors: `Failed`.
    pub fn run(
        &self,
        round: usize,
        directory: &Path,
        program: &Path,
    ) -> Result<Recovered, CellError> {
        let store = directory.join("recovery.hrow");
        let outcome = self.run_on(round, &store, program);
        let log = store.with_extension("hrow-log");
        for file in [&store, &log] {
            if file.exists() {
                std::fs::remove_file(file).map_err(CellError::failed)?;
            }
        }
        outcome
    }

    fn run_on(&self, round: usize, store: &Path, program: &Path) -> Result<Recovered, CellError> {
        let db = self.options().create(store).map_err(failed)?;
        let keyspace = db.keyspace(KEYSPACE).map_err(failed)?;
        // Whoever interrupts is not to wait for a load of minutes.
        let records = (0..self.records)
            .take_while(|_| !is_interrupted())
            .map(|n| (n.to_be_bytes(), [0_u8; VALUE_BYTES]));
        keyspace.bulk_load(records, 90).map_err(failed)?;
        drop(keyspace);
        db.close().map_err(failed)?;
        let store_bytes = std::fs::metadata(store).map_err(CellError::failed)?.len();
        let (puts, put_seconds, written_bytes) = self.put_and_kill(store, program)?;
        let started = Instant::now();
        let db = self.options().open(store).map_err(failed)?;
        let open_seconds = started.elapsed().as_secs_f64();
        let replayed = db.replayed();
        db.close().map_err(failed)?;
        Ok(Recovered {
            setting: *self,
            round,
            store_bytes,
            puts,
            put_seconds,
            written_bytes,
            open_seconds,
            replayed_records: replayed.records,
            replayed_bytes: replayed.log_bytes,
        })
    }

    /// Puts, seconds, bytes written.
    fn put_and_kill(
        &self,
        store: &Path,
        program: &Path,
    ) -> Result<(u64, f64, Option<u64>), CellError> {
        let mut child = Command::new(program)
            .arg("put-until-killed")
            .arg(store)
            .arg(serde_json::to_string(self).map_err(CellError::failed)?)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| {
                CellError::Failed(format!("cannot start {}: {error}", program.display()))
            })?;
        // It may have been interrupted as well, and have ended.
        let told = self.watch(&mut child);
        let written = written_bytes(child.id());
        let killed = child.kill().and_then(|()| child.wait());
        let (puts, seconds) = told?;
        killed.map_err(CellError::failed)?;
        Ok((puts, seconds, written))
    }

    /// Reads how many records were put until the time is over.
    fn watch(&self, child: &mut Child) -> Result<(u64, f64), CellError> {
        let ended = || CellError::failed("the process that puts has ended by itself");
        let mut lines = BufReader::new(child.stdout.take().ok_or_else(ended)?).lines();
        let mut started = None;
        loop {
            let line = lines.next().ok_or_else(ended)?.map_err(CellError::failed)?;
            let puts: u64 = line.parse().map_err(CellError::failed)?;
            let now = Instant::now();
            // The first line comes before the first put.
            let elapsed = now - *started.get_or_insert(now);
            if is_interrupted() {
                return Err(CellError::failed("interrupted"));
            }
            if elapsed >= Duration::from_millis(self.put_ms) {
                return Ok((puts, elapsed.as_secs_f64()));
            }
        }
    }
}

/// What a process wrote to the disk, without what it took back before that.
fn written_bytes(process: u32) -> Option<u64> {
    let io = std::fs::read_to_string(format!("/proc/{process}/io")).ok()?;
    let field = |name: &str| -> Option<u64> {
        io.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
    };
    Some(field("write_bytes:")?.saturating_sub(field("cancelled_write_bytes:")?))
}

/// The process that is killed: puts records at random, and prints now and then how many there were.
///
/// Errors: `Failed`, in words; it does not return otherwise.
pub fn put_until_killed(store: &Path, setting: &str) -> Result<(), CellError> {
    let setting: Setting = serde_json::from_str(setting).map_err(CellError::failed)?;
    let db = setting.options().open(store).map_err(failed)?;
    let puts = AtomicU64::new(0);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (db, puts, is_over) = (&db, &puts, &is_over);
        let tell = scope.spawn(move || {
            // Whoever reads them may have gone: then this is to end as well.
            while !is_over.load(Ordering::Relaxed)
                && writeln!(std::io::stdout(), "{}", puts.load(Ordering::Relaxed)).is_ok()
            {
                std::thread::sleep(TELL);
            }
            is_over.store(true, Ordering::Relaxed);
        });
        let writers: Vec<_> = (0..THREADS)
            .map(|thread| scope.spawn(move || put(db, &setting, thread << 40, puts, is_over)))
            .collect();
        for writer in writers {
            let outcome = writer.join().map_err(|_| CellError::failed("a writer panicked"));
            is_over.store(true, Ordering::Relaxed);
            outcome?.map_err(failed)?;
        }
        tell.join().map_err(|_| CellError::failed("the thread that tells panicked"))
    })
}

fn put(
    db: &Database,
    setting: &Setting,
    first: u64,
    puts: &AtomicU64,
    is_over: &AtomicBool,
) -> hedgerow::Result<()> {
    /// Told together, so that telling costs nothing.
    const TOGETHER: u64 = 64;
    let keyspace = db.keyspace(KEYSPACE)?;
    let mut n = first;
    while !is_over.load(Ordering::Relaxed) {
        for _ in 0..TOGETHER {
            n += 1;
            keyspace.put(&(mix(n) % setting.records).to_be_bytes(), &[n as u8; VALUE_BYTES])?;
        }
        puts.fetch_add(TOGETHER, Ordering::Relaxed);
    }
    Ok(())
}

/// A table of all runs, in Markdown: medians over the rounds, and the longest opening.
pub fn table(all: &[Recovered]) -> String {
    let mut settings: Vec<Setting> = Vec::new();
    for one in all {
        if !settings.contains(&one.setting) {
            settings.push(one.setting);
        }
    }
    settings.sort_unstable_by_key(|setting| {
        (setting.records, setting.memory_limit_bytes, setting.target_ms)
    });
    let mut text = String::from(
        "\n## recovery\n\n| store, GiB | memory limit, MiB | target, s | rounds | puts/s | bytes written a put | open, s | longest \
         | log replayed, MiB | changes replayed |\n|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for setting in settings {
        let of: Vec<&Recovered> = all.iter().filter(|one| one.setting == setting).collect();
        let median = |figure: &dyn Fn(&Recovered) -> f64| {
            let mut figures: Vec<f64> = of.iter().map(|one| figure(one)).collect();
            figures.sort_unstable_by(f64::total_cmp);
            let half = figures.len() / 2;
            match figures.len() % 2 {
                1 => figures[half],
                _ => (figures[half - 1] + figures[half]) / 2.0,
            }
        };
        let longest = of.iter().map(|one| one.open_seconds).fold(0.0, f64::max);
        let written = |one: &Recovered| {
            one.written_bytes.map_or(f64::NAN, |written| written as f64 / one.puts.max(1) as f64)
        };
        text += &format!(
            "| {:.2} | {} | {} | {} | {} | {:.0} | {:.2} | {longest:.2} | {:.0} | {} |\n",
            median(&|one| one.store_bytes as f64) / f64::from(1 << 30),
            setting.memory_limit_bytes >> 20,
            setting.target_ms as f64 / 1e3,
            of.len(),
            crate::numbers::show_number(median(&|one| one.puts as f64 / one.put_seconds)),
            median(&written),
            median(&|one| one.open_seconds),
            median(&|one| one.replayed_bytes as f64) / f64::from(1 << 20),
            crate::numbers::show_number(median(&|one| one.replayed_records as f64)),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_the_longest_are_told_for_each_setting() {
        let setting = settings(Size::Full)[0];
        let one = |round, open_seconds| Recovered {
            setting,
            round,
            store_bytes: 1 << 30,
            puts: 1_000,
            put_seconds: 2.0,
            written_bytes: Some(500_000),
            open_seconds,
            replayed_records: 7,
            replayed_bytes: 3 << 20,
        };
        let text = table(&[one(1, 0.5), one(2, 0.75), one(3, 0.25)]);
        assert!(
            text.ends_with("| 1.00 | 1024 | 1 | 3 | 500 | 500 | 0.50 | 0.75 | 3 | 7.00 |\n"),
            "{text}"
        );
    }
}
