//! What a phase costs beside time: processor, memory, disk.
//!
//! From the system's own accounts of this process (Linux; elsewhere unknown). Read by the one
//! thread that drives the cell, outside of the phase's clock.

use super::Engine;
use crate::cell::{CellError, PhaseResult};
use rustix::time::{ClockId, clock_gettime};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Readings at the start of a phase.
#[derive(Clone, Copy)]
struct Readings {
    moment: Instant,
    cpu: Duration,
    device: Option<DeviceBytes>,
    pages: (Option<u64>, Option<u64>),
}

/// Bytes that this process made the disk read and write.
#[derive(Clone, Copy)]
struct DeviceBytes {
    read: u64,
    written: u64,
    /// Of what was written: taken back before the disk had it.
    cancelled: u64,
}

/// The meters of a cell.
pub struct Meters {
    directory: PathBuf,
    /// Memory of the process before the store was made.
    base_bytes: Option<u64>,
    started: Option<Readings>,
}

impl Meters {
    /// Meters of a store that keeps its files in `directory`; memory is counted from here on.
    pub fn new(directory: &Path) -> Meters {
        Meters {
            directory: directory.to_owned(),
            base_bytes: status_bytes("VmRSS:"),
            started: None,
        }
    }

    /// Starts a phase. The clock is set last.
    pub fn start(&mut self, engine: &impl Engine) {
        self.start_at(engine.pages_read_and_written());
    }

    /// Starts a phase of what is no engine, and counts its pages itself.
    pub fn start_without_pages(&mut self) {
        self.start_at((None, None));
    }

    fn start_at(&mut self, pages: (Option<u64>, Option<u64>)) {
        let device = device_bytes();
        let (cpu, moment) = (cpu_time(), Instant::now());
        self.started = Some(Readings { moment, cpu, device, pages });
    }

    /// Ends a phase; the clock is read first. The caller fills in what was done.
    ///
    /// Errors: `Failed` if the store's files cannot be looked at.
    pub fn stop(&mut self, engine: &impl Engine) -> Result<PhaseResult, CellError> {
        let (now, cpu) = (Instant::now(), cpu_time());
        self.stop_at(now, cpu, engine.pages_read_and_written())
    }

    /// Ends a phase of what is no engine. Errors: as [`Self::stop`].
    pub fn stop_without_pages(&mut self) -> Result<PhaseResult, CellError> {
        self.stop_at(Instant::now(), cpu_time(), (None, None))
    }

    fn stop_at(
        &mut self,
        now: Instant,
        cpu: Duration,
        pages: (Option<u64>, Option<u64>),
    ) -> Result<PhaseResult, CellError> {
        let started = self.started.take().expect("a phase was started");
        let device = device_bytes();
        let since = |now: Option<u64>, then: Option<u64>| Some(now?.saturating_sub(then?));
        Ok(PhaseResult {
            seconds: now.duration_since(started.moment).as_secs_f64(),
            cpu_seconds: Some(cpu.saturating_sub(started.cpu).as_secs_f64()),
            memory_bytes: since(status_bytes("VmRSS:"), self.base_bytes),
            file_bytes: Some(allocated_bytes(&self.directory)?),
            device_read_bytes: since(device.map(|d| d.read), started.device.map(|d| d.read)),
            device_written_bytes: device.zip(started.device).map(|(now, then)| {
                (now.written - then.written).saturating_sub(now.cancelled - then.cancelled)
            }),
            page_reads: since(pages.0, started.pages.0),
            page_writes: since(pages.1, started.pages.1),
            ..PhaseResult::default()
        })
    }
}

/// Processor time of all threads of this process.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// A field of this process's status, in bytes.
fn status_bytes(field: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// The system's account of this process's input and output.
fn device_bytes() -> Option<DeviceBytes> {
    let io = std::fs::read_to_string("/proc/self/io").ok()?;
    let field = |name: &str| {
        io.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok())
    };
    Some(DeviceBytes {
        read: field("read_bytes:")?,
        written: field("write_bytes:")?,
        cancelled: field("cancelled_write_bytes:")?,
    })
}

/// Space that the files under `directory` take on disk.
fn allocated_bytes(directory: &Path) -> Result<u64, CellError> {
    use std::os::unix::fs::MetadataExt;
    let failed =
        |error| CellError::Failed(format!("cannot look at {}: {error}", directory.display()));
    let mut bytes = 0;
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let metadata = match entry.metadata() {
            Ok(metadata) => metadata,
            // A store's background work may remove a file meanwhile.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(failed(error)),
        };
        // Blocks are counted in units of 512 bytes, whatever the file system's own are.
        bytes += if metadata.is_dir() {
            allocated_bytes(&entry.path())?
        } else {
            metadata.blocks() * 512
        };
    }
    Ok(bytes)
}
