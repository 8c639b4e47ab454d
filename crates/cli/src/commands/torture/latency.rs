//! How long a disk takes to make a block durable.
//!
//! One block of a plain file is written and synced, again and again: over the same place, which asks the file system
//! for nothing else, or behind the end, where the length has to be durable too. A device that answers faster than
//! flash can be programmed has either a memory that outlives a power cut, or does not do what it says: from here
//! the two look alike, so this is a suspicion and no finding. Plain values.

use crate::failure::Failure;
use serde_json::{Value as Json, json};
use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes that are made durable.
pub const BLOCK_BYTES: usize = 4096;
/// No disk without protected memory is as fast as that.
const SUSPICIOUS: Duration = Duration::from_micros(50);
/// Syncs that are measured, at most and at least, and how long that may take between the two.
const MOST: usize = 256;
const LEAST: usize = 8;
const LONGEST: Duration = Duration::from_secs(3);

/// Where each block goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Where {
    /// Over the one before.
    Same,
    /// Behind the one before.
    Behind,
}

/// The times of some syncs, ascending; never none.
#[derive(Debug)]
pub struct Latency(Vec<Duration>);

impl Latency {
    /// Measures with a file of its own in a directory, and removes it.
    pub fn measure(directory: &Path, place: Where) -> Result<Latency, Failure> {
        let path = directory.join("fsync");
        let cannot = |error| {
            Failure::Io(format!("cannot write and sync a file in {}", directory.display()), error)
        };
        let file = File::options().write(true).create_new(true).open(&path).map_err(cannot)?;
        let times = times(file, place);
        // If that fails it goes with the directory.
        let _ = fs::remove_file(&path);
        let mut times = times.map_err(cannot)?;
        times.sort_unstable();
        Ok(Latency(times))
    }

    /// As long as so many of a hundred take at most.
    fn percentile(&self, percent: usize) -> Duration {
        self.0[(self.0.len() - 1) * percent / 100]
    }

    /// As long as half of them take at most.
    pub fn median(&self) -> Duration {
        self.percentile(50)
    }

    /// Whether the disk is faster than it can be if it keeps its word.
    pub fn is_suspicious(&self) -> bool {
        self.median() < SUSPICIOUS
    }

    /// The figures in words.
    pub fn sentence(&self) -> String {
        format!(
            "fsync of {BLOCK_BYTES} bytes: median {}, 99 % within {}, the slowest of {} {}",
            show_time(self.median()),
            show_time(self.percentile(99)),
            self.0.len(),
            show_time(self.percentile(100)),
        )
    }

    /// What there is to be said of a disk that is too fast.
    pub fn warning(&self) -> Option<String> {
        self.is_suspicious().then(|| {
            format!(
                "an fsync of {} is suspicious: unless this is memory or a disk with a battery, the disk may acknowledge too \
                 early; `hedgerow torture sync DIR --cut` tests it",
                show_time(self.median())
            )
        })
    }

    /// The figures for programs.
    pub fn as_json(&self) -> Json {
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        json!({
            "syncs": self.0.len(),
            "median_us": micros(self.median()),
            "p99_us": micros(self.percentile(99)),
            "slowest_us": micros(self.percentile(100)),
            "suspicious": self.is_suspicious(),
        })
    }
}

fn times(mut file: File, place: Where) -> io::Result<Vec<Duration>> {
    let mut block = [0; BLOCK_BYTES];
    file.write_all(&block)?;
    file.sync_all()?;
    let begun = Instant::now();
    let mut times = Vec::with_capacity(MOST);
    while times.len() < LEAST || (times.len() < MOST && begun.elapsed() < LONGEST) {
        block.fill(times.len() as u8);
        if place == Where::Same {
            file.seek(SeekFrom::Start(0))?;
        }
        file.write_all(&block)?;
        let started = Instant::now();
        file.sync_data()?;
        times.push(started.elapsed());
    }
    Ok(times)
}

/// `812 µs`, `3.10 ms`, `1.25 s`.
pub fn show_time(time: Duration) -> String {
    match time.as_secs_f64() {
        seconds if seconds >= 1.0 => format!("{seconds:.2} s"),
        seconds if seconds >= 1e-3 => format!("{:.2} ms", seconds * 1e3),
        seconds => format!("{:.0} µs", seconds * 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(micros: &[u64]) -> Latency {
        Latency(micros.iter().copied().map(Duration::from_micros).collect())
    }

    #[test]
    fn the_median_decides_whether_a_disk_is_suspicious() {
        assert!(of(&[1, 2, 9000]).is_suspicious());
        assert!(of(&[1, 2, 9000]).warning().is_some_and(|words| words.contains("2 µs")));
        assert!(!of(&[1, 50, 60]).is_suspicious());
        assert!(of(&[1, 50, 60]).warning().is_none());
        assert_eq!(of(&[1, 2, 3]).percentile(100), Duration::from_micros(3));
    }

    #[test]
    fn times_are_shown_short() {
        assert_eq!(show_time(Duration::from_micros(812)), "812 µs");
        assert_eq!(show_time(Duration::from_micros(3100)), "3.10 ms");
        assert_eq!(show_time(Duration::from_millis(1250)), "1.25 s");
    }
}
