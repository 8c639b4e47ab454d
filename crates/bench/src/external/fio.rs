//! What the disk can do, by the program `fio`: the ceiling for a store on this file system. It is no store.
//!
//! | cell | fio | one operation |
//! |---|---|---|
//! | loading | writes a file of as many bytes as all keys and values, in order, and syncs it | a record's share |
//! | `ScanAll` | reads that file in order | a record's share |
//! | `Get`, uniform | reads 4 KiB at random for some seconds, each thread one at a time | a read |
//! | `GetMany`, uniform | the same, each thread with `group` reads under way | a read |
//!
//! All of it without the system's page cache (direct I/O), in blocks of 1 MiB and eight of them under way where it goes
//! in order. A get of a store that has part of its records in memory may be faster than a read. There is no checksum.
//!
//! Plain functions and data, `Send + Sync`.

use super::common::{self, Deadline, LeftOut};
use super::{Adapter, Programs};
use crate::cell::{
    Cell, CellError, CellResult, Distribution, Latency, Operation, PhaseResult, Place,
};
use serde_json::Value;
use std::path::Path;

/// Name of the program, and of the competitor.
const PROGRAM: &str = "fio";
/// Name of the file in the directory of a cell.
const FILE: &str = "data";
/// Bytes of a random read.
const PAGE_BYTES: usize = 4096;
/// Bytes of a block where it goes in order.
const BLOCK_BYTES: u64 = 1 << 20;
/// Blocks under way where it goes in order.
const BLOCKS_UNDER_WAY: usize = 8;
/// Seconds of random reads, and of a phase of few operations.
const SECONDS: u64 = 8;
const FEW_SECONDS: u64 = 1;
/// Fewer operations than this are few.
const FEW_OPERATIONS: usize = 100_000;

/// The program.
pub struct Fio;

/// What fio is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Job {
    Write,
    Read,
    /// Reads at random.
    Random {
        threads: usize,
        /// Reads under way in each thread; `None`: one, by a plain system call.
        under_way: Option<usize>,
        seconds: u64,
        seed: u64,
    },
}

impl Adapter for Fio {
    fn competitors(&self) -> &'static [&'static str] {
        &[PROGRAM]
    }

    fn run(&self, cell: &Cell, programs: &Programs) -> Result<CellResult, CellError> {
        let (jobs, left_out) = jobs(cell)?;
        let program = programs.find(PROGRAM).or_else(|_| programs.find_in_path(PROGRAM))?;
        let file_bytes = file_bytes(cell)?;
        let deadline = Deadline::of(cell);
        let mut result = common::empty_result(cell);
        result.facts.insert("file".into(), "as many bytes as all keys and values".into());
        left_out.tell(cell, &mut result.facts)?;
        let run = |job| run_job(&program, job, file_bytes, cell, &deadline);
        result.load = run(Job::Write)?;
        for (phase, job) in result.phases.iter_mut().zip(jobs) {
            if let Some(job) = job {
                *phase = run(job)?;
            }
        }
        result.store_bytes = Some(file_bytes);
        Ok(result)
    }
}

/// The job of each phase, and the phases without one.
fn jobs(cell: &Cell) -> Result<(Vec<Option<Job>>, LeftOut), CellError> {
    if cell.place != Place::File {
        return Err(CellError::Unsupported("it measures files".into()));
    }
    if cell.page_bytes.is_some_and(|bytes| bytes != PAGE_BYTES) {
        return Err(CellError::Unsupported(format!("it reads {PAGE_BYTES} bytes at a time")));
    }
    let mut left_out = LeftOut::default();
    let mut jobs = Vec::with_capacity(cell.phases.len());
    for phase in &cell.phases {
        let under_way = match phase.operation {
            Operation::Get {} => Some(None),
            Operation::GetMany { group } => Some(Some(group)),
            _ => None,
        };
        let is_uniform = phase.distribution == (Distribution::Uniform {});
        jobs.push(match (phase.operation, under_way.filter(|_| is_uniform)) {
            (Operation::ScanAll {}, _) => Some(Job::Read),
            (_, Some(under_way)) => {
                let few = phase.operations < FEW_OPERATIONS;
                let seconds = if few { FEW_SECONDS } else { SECONDS };
                Some(Job::Random { threads: phase.threads, under_way, seconds, seed: phase.seed })
            }
            (_, None) => {
                left_out.add(phase, "it reads all in order, or uniformly")?;
                None
            }
        });
    }
    Ok((jobs, left_out))
}

/// Bytes of all keys and values, in whole blocks.
fn file_bytes(cell: &Cell) -> Result<u64, CellError> {
    let count = cell.keys.count as u64;
    let key_bytes = match cell.keys.kind.key_bytes() {
        Some(bytes) => bytes * count,
        None => {
            let copy = cell.directory.join(common::copy_keys(cell)?);
            let bytes = std::fs::metadata(&copy).map_err(CellError::failed)?.len();
            std::fs::remove_file(&copy).map_err(CellError::failed)?;
            // Each line has a newline.
            bytes - count
        }
    };
    let bytes = key_bytes + count * cell.value_bytes as u64;
    Ok(bytes.next_multiple_of(BLOCK_BYTES))
}

/// What tells fio to do `job`.
fn arguments(job: Job, file_bytes: u64) -> Vec<String> {
    let mut arguments: Vec<String> =
        ["--name=job", "--direct=1", "--thread", "--group_reporting", "--output-format=json"]
            .map(String::from)
            .into();
    arguments.push(format!("--filename={FILE}"));
    arguments.push(format!("--size={file_bytes}"));
    match job {
        Job::Write | Job::Read => {
            let rw = if job == Job::Write { "write" } else { "read" };
            arguments.push(format!("--rw={rw}"));
            arguments.push(format!("--bs={BLOCK_BYTES}"));
            arguments.push("--ioengine=libaio".into());
            arguments.push(format!("--iodepth={BLOCKS_UNDER_WAY}"));
            if job == Job::Write {
                arguments.push("--end_fsync=1".into());
            }
        }
        Job::Random { threads, under_way, seconds, seed } => {
            arguments.push("--rw=randread".into());
            arguments.push(format!("--bs={PAGE_BYTES}"));
            arguments.push(format!("--numjobs={threads}"));
            arguments.push(format!("--runtime={seconds}"));
            arguments.push("--time_based".into());
            arguments.push("--norandommap".into());
            arguments.push(format!("--randseed={seed}"));
            match under_way {
                None => arguments.push("--ioengine=psync".into()),
                Some(group) => {
                    arguments.push("--ioengine=libaio".into());
                    arguments.push(format!("--iodepth={group}"));
                }
            }
        }
    }
    arguments
}

fn run_job(
    program: &Path,
    job: Job,
    file_bytes: u64,
    cell: &Cell,
    deadline: &Deadline,
) -> Result<PhaseResult, CellError> {
    let output = common::start(program, &arguments(job, file_bytes), &[], cell, deadline)?;
    let mut result = read_output(&output.stdout, job)?;
    if !matches!(job, Job::Random { .. }) {
        result.operations = cell.keys.count as u64;
    }
    result.file_bytes = Some(file_bytes);
    Ok(result)
}

/// The figures of a job; an operation is an input or output here.
fn read_output(stdout: &str, job: Job) -> Result<PhaseResult, CellError> {
    let strange = |what: &str| CellError::Failed(format!("its output is strange: {what}"));
    // Notes may come first.
    let at = stdout.find('{').ok_or_else(|| strange("no JSON"))?;
    let all: Value = serde_json::from_str(&stdout[at..]).map_err(|e| strange(&e.to_string()))?;
    let figures = &all["jobs"][0];
    let error = figures["error"].as_i64().ok_or_else(|| strange("no job"))?;
    if error != 0 {
        return Err(CellError::Failed(format!("fio's error {error}")));
    }
    let side = &figures[if job == Job::Write { "write" } else { "read" }];
    let number = |of: &Value, name: &str| {
        of[name].as_f64().ok_or_else(|| strange(&format!("no number `{name}`")))
    };
    let bytes = number(side, "io_bytes")? as u64;
    let operations = number(side, "total_ios")? as u64;
    let cpu_percent = number(figures, "usr_cpu")? + number(figures, "sys_cpu")?;
    // Summed over the threads, as the percentages are meant.
    let job_seconds = number(figures, "job_runtime")? / 1e3;
    let is_write = job == Job::Write;
    let is_random = matches!(job, Job::Random { .. });
    Ok(PhaseResult {
        operations,
        seconds: number(side, "runtime")? / 1e3,
        cpu_seconds: Some(cpu_percent / 100.0 * job_seconds),
        latency: if is_random { latency(&side["clat_ns"]) } else { None },
        device_read_bytes: Some(if is_write { 0 } else { bytes }),
        device_written_bytes: Some(if is_write { bytes } else { 0 }),
        page_reads: is_random.then_some(operations),
        ..PhaseResult::default()
    })
}

/// How long single reads took, from nanoseconds.
fn latency(nanoseconds: &Value) -> Option<Latency> {
    let us = |value: &Value| Some(value.as_f64()? / 1e3);
    let percentile = |name: &str| us(&nanoseconds["percentile"][name]);
    Some(Latency {
        p50_us: percentile("50.000000")?,
        p99_us: percentile("99.000000")?,
        p999_us: percentile("99.900000")?,
        max_us: us(&nanoseconds["max"])?,
        histogram: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::common::test_cells::{cell, phase};
    use super::*;
    use crate::cell::KeyKind;

    const UNIFORM: Distribution = Distribution::Uniform {};

    /// As fio prints it, with a note before, most fields left out.
    const PRINTED: &str = r#"fio: a note
{ "fio version": "fio-3.33", "jobs": [ { "error": 0, "job_runtime": 4000,
  "usr_cpu": 1.0, "sys_cpu": 11.5,
  "read": { "io_bytes": 181080064, "runtime": 1001, "total_ios": 44209, "clat_ns": {
    "max": 9769648, "percentile": { "50.000000": 82432, "99.000000": 171008, "99.900000": 2703360 } } },
  "write": { "io_bytes": 0, "runtime": 0, "total_ios": 0 } } ] }"#;

    fn in_file(phases: Vec<crate::cell::Phase>) -> Cell {
        Cell { place: Place::File, ..cell(10_000, phases) }
    }

    fn random(threads: usize, under_way: Option<usize>) -> Job {
        Job::Random { threads, under_way, seconds: FEW_SECONDS, seed: 5 }
    }

    #[test]
    fn phases_become_jobs() {
        let mut cell = in_file(vec![
            phase(Operation::Get {}, UNIFORM, 10),
            phase(Operation::GetMany { group: 16 }, UNIFORM, 10),
            phase(Operation::ScanAll {}, UNIFORM, 10),
            phase(Operation::Settle {}, UNIFORM, 1),
            phase(Operation::Get {}, Distribution::Zipf { theta: 0.9 }, 10),
        ]);
        cell.phases[0].threads = 32;
        let expected = [random(32, None), random(1, Some(16)), Job::Read];
        let (jobs, left_out) = jobs(&cell).unwrap();
        let told: Vec<Job> = jobs.iter().copied().flatten().collect();
        assert_eq!((told, jobs.len()), (expected.to_vec(), 5));
        let mut facts = Default::default();
        left_out.tell(&cell, &mut facts).unwrap();
        assert!(facts["left_out"].contains("Settle") && facts["left_out"].contains("Zipf"));
        let has = |job, word: &str| arguments(job, 1 << 20).iter().any(|argument| argument == word);
        assert!(has(expected[0], "--ioengine=psync") && has(expected[0], "--numjobs=32"));
        assert!(has(expected[1], "--iodepth=16") && has(expected[1], "--direct=1"));
        assert!(has(Job::Write, "--end_fsync=1") && has(Job::Write, "--size=1048576"));
    }

    #[test]
    fn what_is_no_plain_reading_is_refused() {
        for cell in [
            cell(10_000, Vec::new()),
            in_file(vec![phase(Operation::Delete { percent: 1 }, UNIFORM, 0)]),
            Cell { page_bytes: Some(8192), ..in_file(Vec::new()) },
        ] {
            assert!(matches!(jobs(&cell), Err(CellError::Unsupported(_))), "{cell:?}");
        }
    }

    #[test]
    fn the_file_holds_all_keys_and_values() {
        let mut cell = in_file(Vec::new());
        cell.keys.count = 1 << 20;
        assert_eq!(file_bytes(&cell), Ok(12 << 20));
        cell.keys.kind = KeyKind::Random8;
        assert_eq!(file_bytes(&cell), Ok(16 << 20));
        cell.keys.count += 1;
        assert_eq!(file_bytes(&cell), Ok(17 << 20));
    }

    #[test]
    fn figures_are_read() {
        let figures = read_output(PRINTED, random(4, None)).unwrap();
        assert_eq!((figures.operations, figures.seconds), (44_209, 1.001));
        assert_eq!(figures.cpu_seconds, Some(0.5));
        assert_eq!(figures.device_read_bytes, Some(181_080_064));
        let latency = figures.latency.unwrap();
        assert_eq!((latency.p50_us, latency.p999_us, latency.max_us), (82.432, 2703.36, 9769.648));
        assert!(read_output(PRINTED, Job::Read).unwrap().latency.is_none());
        let failed = PRINTED.replace("\"error\": 0", "\"error\": 22");
        assert!(read_output(&failed, Job::Read).unwrap_err().to_string().contains("22"));
        for strange in ["", "{}", "{ \"jobs\": [] }", &PRINTED.replace("total_ios", "ios")] {
            assert!(matches!(read_output(strange, Job::Read), Err(CellError::Failed(_))));
        }
    }
}
