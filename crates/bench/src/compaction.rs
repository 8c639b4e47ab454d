//! What XMerge gains: bytes of leaves and of files over the bytes of the records, before and after a compaction, and what
//! the compaction costs beside the inserts.
//!
//! "Contention and Space Management in B-Trees" (CIDR 2021), section 5.2: keys of eight bytes and values of a hundred in
//! random order; URLs in sorted and in random order; a store that has lost most of its records. Each run makes a store,
//! takes checkpoints until the file is settled, measures, shrinks it, and measures again. The paper's competitor, a B*-tree, has runs
//! of its own.
//!
//! One run at a time, by one thread. Instructions are counted by a process of its own under callgrind, which runs one setting: those of
//! the calls, and of a store with little memory, by another process, those of all threads, as its background merges and writes.

use crate::cell::CellError;
use crate::checksum::mix;
use crate::experiments::Size;
use crate::external::process::is_interrupted;
use crate::instructions::{Counts, under_the_clock};
use crate::keys::shuffle;
use hedgerow::{Database, Error, Options};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

const KEYSPACE: &str = "bench";
/// Checkpoints after which a file is settled: the first writes, the others give space back.
const SETTLING: usize = 3;
/// A memory limit that all records fit into.
const AMPLE_BYTES: u64 = 1 << 30;
/// URLs of a full run.
const URLS: usize = 1_000_000;

/// Which keys, and in which order they are put.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Keys {
    /// Random numbers of eight bytes.
    Random8,
    /// URLs of a file, shuffled.
    UrlsShuffled,
    /// The same, sorted.
    UrlsSorted,
}

/// What is to be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// See [`Keys`].
    pub keys: Keys,
    /// Records that are put.
    pub records: usize,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Bytes of a page.
    pub page_bytes: usize,
    /// Of a hundred records so many are removed again, spread over all of them.
    pub remove_percent: usize,
    /// What [`Options::memory_limit_bytes`] is told.
    pub memory_limit_bytes: u64,
    /// What [`Options::merge_before_writing`] is told.
    #[serde(default)]
    pub merge_before_writing: bool,
    /// Leaves get room as in a B*-tree: from a neighbour, or of two full ones become three.
    #[serde(default)]
    pub is_b_star: bool,
}

/// How large a store is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sizes {
    /// Leaves.
    pub leaves: u64,
    /// Pages, with inner nodes.
    pub pages: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Of these, in use by pages and the page map.
    pub used_bytes: u64,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Compaction {
    /// What was run.
    pub setting: Setting,
    /// Number of the round, from 1.
    pub round: usize,
    /// Bytes of keys and values that are there in the end.
    pub payload_bytes: u64,
    /// Before.
    pub before: Sizes,
    /// After.
    pub after: Sizes,
    /// How long the puts took.
    pub put_seconds: f64,
    /// Pages that were written during the puts.
    #[serde(default)]
    pub pages_written: u64,
    /// Groups of leaves that were merged during the puts, before they were written.
    #[serde(default)]
    pub groups_under_pressure: u64,
    /// Instructions of the puts, if they were counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub put_instructions: Option<u64>,
    /// Of the puts and of all other threads until the puts were done, if the store had little memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub put_instructions_of_all_threads: Option<u64>,
    /// And of merging the leaves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compact_instructions: Option<u64>,
    /// How long merging the leaves took, without checkpoints.
    pub compact_seconds: f64,
    /// How long shrinking took after that: checkpoints.
    pub shrink_seconds: f64,
    /// Leaves that the merged records went to.
    pub leaves_written: u64,
}

impl Compaction {
    /// Bytes of the leaves over the bytes of the records: before and after.
    pub fn leaves_over_payload(&self) -> (f64, f64) {
        let bytes = |sizes: Sizes| sizes.leaves as f64 * self.setting.page_bytes as f64;
        let over = |sizes| bytes(sizes) / self.payload_bytes as f64;
        (over(self.before), over(self.after))
    }

    /// Two cells of a table: instructions of a put, and what merging adds to that.
    fn instructions(&self) -> String {
        match (self.put_instructions, self.compact_instructions) {
            (Some(put), Some(compact)) => {
                let a_key = put as f64 / self.setting.records as f64;
                format!("{a_key:.0} | {:.1} %", 100.0 * compact as f64 / put as f64)
            }
            _ => "| ".to_owned(),
        }
    }

    /// Bytes of the file over the bytes of the records: before and after.
    pub fn file_over_payload(&self) -> (f64, f64) {
        let over = |sizes: Sizes| sizes.file_bytes as f64 / self.payload_bytes as f64;
        (over(self.before), over(self.after))
    }
}

/// The runs of a round; those of URLs only if there are any.
pub fn settings(size: Size, urls: usize) -> Vec<Setting> {
    let (records, most_urls) = match size {
        Size::Full => (1_000_000, URLS),
        Size::Small => (50_000, URLS / 20),
        Size::Smoke => (3_000, 3_000),
    };
    let random = |page_bytes, remove_percent| Setting {
        keys: Keys::Random8,
        records,
        value_bytes: 100,
        page_bytes,
        remove_percent,
        memory_limit_bytes: AMPLE_BYTES,
        merge_before_writing: true,
        is_b_star: false,
    };
    let b_star = |setting: Setting| Setting { is_b_star: true, ..setting };
    // A quarter of what the records take, and the least that such a store works with.
    let little = (records as u64 / 4 * 108 / 4).max(hedgerow::smallest_memory_limit_bytes(4096));
    let pressed = |merge_before_writing| Setting {
        memory_limit_bytes: little,
        merge_before_writing,
        records: records / 4,
        ..random(4096, 0)
    };
    let of_urls =
        |keys| Setting { keys, records: urls.min(most_urls), value_bytes: 8, ..random(4096, 0) };
    let mut all = vec![random(4096, 0), random(16 << 10, 0), random(4096, 80)];
    all.extend([random(4096, 0), random(16 << 10, 0)].map(b_star));
    all.extend([false, true].map(pressed));
    if urls > 0 {
        all.extend([Keys::UrlsShuffled, Keys::UrlsSorted].map(of_urls));
        all.push(b_star(of_urls(Keys::UrlsShuffled)));
    }
    all
}

fn failed(error: Error) -> CellError {
    CellError::failed(error)
}

impl Setting {
    /// What reports call it.
    fn name(&self) -> String {
        let keys = match self.keys {
            Keys::Random8 => "random, 8 + 100 bytes",
            Keys::UrlsShuffled => "URLs shuffled, + 8 bytes",
            Keys::UrlsSorted => "URLs sorted, + 8 bytes",
        };
        let switch = if self.merge_before_writing { "" } else { ", not merged before writes" };
        let b_star = if self.is_b_star { ", B*-tree" } else { "" };
        format!("{keys}{switch}{b_star}")
    }

    /// Runs it, with a store in `directory`, which is empty, and is so again afterwards. `urls` are different from each other.
    ///
    /// Errors: `Failed`.
    pub fn run(
        &self,
        round: usize,
        directory: &Path,
        urls: &[Vec<u8>],
    ) -> Result<Compaction, CellError> {
        let store = directory.join("compaction.hrow");
        let options = Options::new()
            .page_bytes(self.page_bytes)
            .memory_limit_bytes(self.memory_limit_bytes)
            .merge_before_writing(self.merge_before_writing);
        let outcome = options.create(&store).map_err(failed).and_then(|db| {
            let outcome = self.run_on(round, &db, urls);
            let closed = db.close().map_err(failed);
            outcome.and_then(|found| closed.map(|()| found))
        });
        for file in [&store, &store.with_extension("hrow-log")] {
            if file.exists() {
                std::fs::remove_file(file).map_err(CellError::failed)?;
            }
        }
        outcome
    }

    /// Runs it as [`Self::run`] does, in a process of its own that counts instructions: `program`, which is this one, with `arguments`
    /// and the setting behind them.
    ///
    /// Errors: `Failed`, also if there is no callgrind.
    pub fn run_counted(
        &self,
        program: &Path,
        arguments: &[&OsStr],
        directory: &Path,
    ) -> Result<Compaction, CellError> {
        let all_threads = match self.memory_limit_bytes < AMPLE_BYTES {
            true => {
                let counts = Counts::new(directory)?;
                let (command, _) = counts.command_with_threads(program, 1);
                self.run_as(command, arguments)?;
                Some(counts.of(1)?)
            }
            false => None,
        };
        let counts = Counts::new(directory)?;
        let (command, _) = counts.command(program, 1);
        let mut found = self.run_as(command, arguments)?;
        found.put_instructions = Some(counts.of(1)?);
        found.put_instructions_of_all_threads = all_threads;
        found.compact_instructions = Some(counts.of(2)?);
        Ok(found)
    }

    /// Runs a command that ends with the setting, and reads what it prints.
    fn run_as(&self, mut command: Command, arguments: &[&OsStr]) -> Result<Compaction, CellError> {
        let setting = serde_json::to_string(self).map_err(CellError::failed)?;
        let ran = command.args(arguments).arg(setting).stderr(Stdio::inherit()).output();
        let ran =
            ran.map_err(|error| CellError::Failed(format!("cannot run valgrind: {error}")))?;
        if !ran.status.success() {
            return Err(CellError::Failed(format!(
                "the counted process ended with {}",
                ran.status
            )));
        }
        serde_json::from_slice(&ran.stdout).map_err(CellError::failed)
    }

    /// The keys, in the order in which they are put.
    fn keys(&self, urls: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let mut keys: Vec<Vec<u8>> = match self.keys {
            Keys::Random8 => {
                (0..self.records as u64).map(|n| mix(n + 1).to_be_bytes().to_vec()).collect()
            }
            Keys::UrlsShuffled | Keys::UrlsSorted => {
                urls.iter().take(self.records).cloned().collect()
            }
        };
        match self.keys {
            Keys::Random8 => {}
            Keys::UrlsShuffled => shuffle(&mut keys),
            Keys::UrlsSorted => keys.sort_unstable(),
        }
        keys
    }

    fn run_on(
        &self,
        round: usize,
        db: &Database,
        urls: &[Vec<u8>],
    ) -> Result<Compaction, CellError> {
        let keyspace = db.keyspace(KEYSPACE).map_err(failed)?.with_b_star(self.is_b_star);
        let keys = self.keys(urls);
        let value = vec![7; self.value_bytes];
        let started = Instant::now();
        under_the_clock(|| keys.iter().try_for_each(|key| keyspace.put(key, &value).map(drop)))
            .map_err(failed)?;
        let put_seconds = started.elapsed().as_secs_f64();
        let stats = db.stats().map_err(failed)?;
        let is_removed = |index: usize| index % 100 < self.remove_percent;
        let mut payload_bytes = 0;
        for (index, key) in keys.iter().enumerate() {
            if is_removed(index) {
                keyspace.remove(key).map_err(failed)?;
            } else {
                payload_bytes += (key.len() + self.value_bytes) as u64;
            }
        }
        for _ in 0..SETTLING {
            db.checkpoint().map_err(failed)?;
        }
        let sizes = || -> hedgerow::Result<Sizes> {
            let (stats, report) = (keyspace.stats()?, db.space_report()?);
            let leaves = stats.levels.first().map_or(0, |level| level.pages);
            let (file_bytes, used_bytes) = (report.file_bytes, report.used_bytes);
            Ok(Sizes { leaves, pages: stats.pages(), file_bytes, used_bytes })
        };
        let go_on =
            |_| if is_interrupted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        let before = sizes().map_err(failed)?;
        let started = Instant::now();
        let everything = hedgerow::CompactBudget::unlimited();
        let done = under_the_clock(|| keyspace.compact(&everything, go_on)).map_err(failed)?;
        let compact_seconds = started.elapsed().as_secs_f64();
        let started = Instant::now();
        db.shrink(go_on).map_err(failed)?;
        let shrink_seconds = started.elapsed().as_secs_f64();
        let after = sizes().map_err(failed)?;
        let left = keys.iter().enumerate().filter(|(index, _)| !is_removed(*index)).count() as u64;
        if keyspace.count().map_err(failed)? != left {
            return Err(CellError::failed("records are missing after the compaction"));
        }
        Ok(Compaction {
            setting: *self,
            round,
            payload_bytes,
            before,
            after,
            put_seconds,
            pages_written: stats.pool.pages_written,
            groups_under_pressure: stats.merging.under_pressure,
            put_instructions: None,
            put_instructions_of_all_threads: None,
            compact_instructions: None,
            compact_seconds,
            shrink_seconds,
            leaves_written: done.pages_written,
        })
    }
}

/// A table of all runs, in Markdown; of several rounds the last one, since bytes hardly differ.
pub fn table(runs: &[Compaction]) -> String {
    let mut last: Vec<&Compaction> = Vec::new();
    for run in runs {
        last.retain(|other| other.setting != run.setting);
        last.push(run);
    }
    let mut lines = vec![
        "\n## compaction\n".to_owned(),
        "| keys | records | page | memory, MiB | removed | leaves / payload | after | file / payload | after | merging / puts |"
            .to_owned(),
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|".to_owned(),
    ];
    for run in &last {
        let Setting { records, page_bytes, remove_percent, memory_limit_bytes, .. } = run.setting;
        let ((leaves, leaves_after), (file, file_after)) =
            (run.leaves_over_payload(), run.file_over_payload());
        lines.push(format!(
            "| {} | {records} | {page_bytes} | {} | {remove_percent} % | {leaves:.3} | {leaves_after:.3} \
             | {file:.3} | {file_after:.3} | {:.1} % |",
            run.setting.name(),
            memory_limit_bytes >> 20,
            100.0 * run.compact_seconds / run.put_seconds
        ));
    }
    lines.push(
        "\n| puts of | page | memory, MiB | seconds | pages written | groups merged under pressure | instructions a key | merging, more |"
            .to_owned(),
    );
    lines.push("|---|---:|---:|---:|---:|---:|---:|---:|".to_owned());
    for run in &last {
        lines.push(format!(
            "| {} | {} | {} | {:.1} | {} | {} | {} |",
            run.setting.name(),
            run.setting.page_bytes,
            run.setting.memory_limit_bytes >> 20,
            run.put_seconds,
            run.pages_written,
            run.groups_under_pressure,
            run.instructions(),
        ));
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_runs_and_is_reported() {
        let directory = tempfile::tempdir().unwrap();
        let urls: Vec<Vec<u8>> =
            (0..3_000).map(|n| format!("https://example.org/page/{n:05}").into_bytes()).collect();
        let settings = settings(Size::Smoke, urls.len());
        let runs: Vec<Compaction> = settings
            .iter()
            .map(|setting| setting.run(1, directory.path(), &urls).unwrap())
            .collect();
        assert!(std::fs::read_dir(directory.path()).unwrap().next().is_none());
        for run in &runs {
            assert!(run.after.leaves <= run.before.leaves, "{run:?}");
        }
        let table = table(&runs);
        assert_eq!(table.lines().count(), 8 + 2 * settings.len());
        assert!(table.contains("| 80 % |"));
    }
}
