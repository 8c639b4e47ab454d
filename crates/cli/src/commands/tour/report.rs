//! What the tour prints: a line for each step as it ends, and what it all came to.

use crate::args::Format;
use crate::failure::Failure;
use crate::output::Out;
use crate::size::{show_bytes, show_count, show_rate};
use serde_json::{Map, Value as Json, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Collects steps; prints each at once for people, or all at the end as JSON.
pub struct Report {
    format: Format,
    out: Out,
    store: PathBuf,
    started: Instant,
    steps: Vec<Json>,
    /// Figures of the tour as a whole, in order.
    facts: Map<String, Json>,
}

impl Report {
    /// An empty report on a store at `store`.
    pub fn new(format: Format, store: &Path) -> Report {
        let out = Out::new();
        let (steps, facts) = (Vec::new(), Map::new());
        Report { format, out, store: store.to_owned(), started: Instant::now(), steps, facts }
    }

    /// Prints a line for people.
    pub fn line(&mut self, text: &str) -> Result<(), Failure> {
        if self.format == Format::Human {
            self.out.line(text)?;
            self.out.flush()?;
        }
        Ok(())
    }

    /// Notes a figure for programs.
    pub fn fact(&mut self, name: &str, value: impl Into<Json>) {
        self.facts.insert(name.to_owned(), value.into());
    }

    /// Prints the names of the columns.
    pub fn columns(&mut self) -> Result<(), Failure> {
        let (file, memory) = ("file", "process");
        self.line(&format!(
            "\n{:<15} {:>9} {:>9} {:>10} {memory:>10} {file:>10}  how",
            "step", "records", "time", "rate"
        ))
    }

    /// Runs a step and adds what it did: the records it touched, and how it went about it.
    pub fn step(
        &mut self,
        name: &'static str,
        work: impl FnOnce() -> Result<(u64, String), Failure>,
    ) -> Result<(), Failure> {
        let started = Instant::now();
        let (count, how) = work()?;
        let seconds = started.elapsed().as_secs_f64();
        let file_bytes = file_bytes(&self.store);
        let memory = process_memory("VmRSS:");
        self.steps.push(json!({
            "step": name,
            "count": count,
            "seconds": seconds,
            "process_bytes": memory,
            "file_bytes": file_bytes,
            "how": how,
        }));
        let shown = |bytes: Option<u64>| bytes.map_or_else(|| "-".to_owned(), show_bytes);
        let (records, rate) = match count {
            0 => ("-".to_owned(), "-".to_owned()),
            _ => (show_count(count), show_rate(count, seconds)),
        };
        let (memory, file) = (shown(memory), shown(file_bytes));
        let time = show_time(seconds);
        self.line(&format!(
            "{name:<15} {records:>9} {time:>9} {rate:>10} {memory:>10} {file:>10}  {how}"
        ))
    }

    /// Prints what the tour came to.
    pub fn finish(mut self) -> Result<(), Failure> {
        let seconds = self.started.elapsed().as_secs_f64();
        let peak = process_memory("VmHWM:");
        let took = format!("\nall answers were right; {seconds:.1} s in total");
        match peak {
            Some(bytes) => {
                self.line(&format!("{took}, at most {} in memory", show_bytes(bytes)))?;
            }
            None => self.line(&took)?,
        }
        if cfg!(debug_assertions) {
            self.line("this is a debug build; run `cargo run --release -- tour` for real speed")?;
        }
        if self.format == Format::Json {
            self.facts.insert("seconds".to_owned(), json!(seconds));
            self.facts.insert("peak_process_bytes".to_owned(), json!(peak));
            self.facts.insert("steps".to_owned(), Json::Array(self.steps));
            self.out.json(&Json::Object(self.facts))?;
        }
        self.out.finish()
    }
}

fn show_time(seconds: f64) -> String {
    if seconds >= 1.0 { format!("{seconds:.2} s") } else { format!("{:.1} ms", seconds * 1e3) }
}

/// What the file takes on disk: holes do not count where the system tells about them.
pub fn file_bytes(path: &Path) -> Option<u64> {
    let metadata = fs::metadata(path).ok()?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        Some(metadata.blocks() * 512)
    }
    #[cfg(not(unix))]
    {
        Some(metadata.len())
    }
}

/// A size in the system's account of this process (`VmRSS:` now, `VmHWM:` at most); Linux only.
fn process_memory(field: &str) -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with(field))?;
    let kibibytes: u64 = line[field.len()..].trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}
