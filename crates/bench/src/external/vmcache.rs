//! The buffer manager of "Virtual-Memory Assisted Buffer Management" (SIGMOD 2023) with its own B-tree: the program of
//! viktorleis/vmcache, in its workload of random reads, with a file and a limited pool.
//!
//! The program loads 8-byte numbers in ascending order with values of 120 bytes, all threads at once, and then looks
//! up numbers that are drawn uniformly, for some seconds; each second it prints how many. A cell's phases are gets of
//! other numbers of threads, and each is a launch, which loads anew.
//!
//! Figures are of the second half of the seconds: at first the program still writes pages that loading left dirty.
//! What differs from a store that is measured by `harness`: its keys are dense numbers in ascending order, so that
//! its pages are full, where random keys leave a third of a page free; it draws a key within the clock; the value is
//! copied out, not summed, and there is no checksum. A memory limit that is no whole number of GiB needs a build that
//! takes the size of the pool in MiB from `PHYSMB`; one that does not know it is noticed.
//!
//! Plain functions and data, `Send + Sync`.

use super::common::{self, Deadline, LeftOut};
use super::{Adapter, Programs};
use crate::cell::{
    Cell, CellError, CellResult, Distribution, Operation, Phase, PhaseResult, Place,
};

/// Name of the program, and of the competitor.
const PROGRAM: &str = "vmcache";
/// Bytes of every value, fixed in the program.
const VALUE_BYTES: usize = 120;
/// Bytes of every key, fixed in the program.
const KEY_BYTES: u64 = 8;
/// Bytes of a page, fixed in the program.
const PAGE_BYTES: usize = 4096;
/// Name of the file of pages in the directory of a cell.
const PAGE_FILE: &str = "pages";
/// Seconds of a phase, of which the second half counts, and of a phase of few operations.
const SECONDS: u64 = 20;
const FEW_SECONDS: u64 = 4;
/// Fewer operations than this are few.
const FEW_OPERATIONS: usize = 100_000;

/// The program.
pub struct Vmcache;

impl Adapter for Vmcache {
    fn competitors(&self) -> &'static [&'static str] {
        &[PROGRAM]
    }

    fn run(&self, cell: &Cell, programs: &Programs) -> Result<CellResult, CellError> {
        let pool_bytes = check(cell)?;
        let program = programs.find(PROGRAM)?;
        let deadline = Deadline::of(cell);
        let mut result = common::empty_result(cell);
        result
            .facts
            .insert("keys".into(), "dense numbers of 8 bytes, loaded in ascending order".into());
        result.facts.insert("accesses".into(), "drawn by the program within the clock".into());
        left_out(cell)?.tell(cell, &mut result.facts)?;
        for (at, phase) in cell.phases.iter().enumerate().filter(|(_, phase)| can_do(phase)) {
            let seconds = if phase.operations < FEW_OPERATIONS { FEW_SECONDS } else { SECONDS };
            let gib = create_page_file(cell)?;
            let environment = [
                ("BLOCK", PAGE_FILE.to_owned()),
                ("VIRTGB", gib.to_string()),
                ("PHYSGB", pool_bytes.div_ceil(1 << 30).to_string()),
                ("PHYSMB", (pool_bytes >> 20).to_string()),
                ("DATASIZE", cell.keys.count.to_string()),
                ("RNDREAD", "1".to_owned()),
                ("THREADS", phase.threads.to_string()),
                ("RUNFOR", seconds.to_string()),
            ];
            let output = common::start(&program, &[], &environment, cell, &deadline)?;
            check_pool(&output.stderr, pool_bytes)?;
            result.phases[at] = read_seconds(&output.stdout)?;
            result.store_bytes = space(&output.stderr);
        }
        Ok(result)
    }
}

/// Bytes of the pool for `cell`, if the program can do it at all.
fn check(cell: &Cell) -> Result<u64, CellError> {
    let unsupported = |what: &str| Err(CellError::Unsupported(what.to_owned()));
    let Some(pool_bytes) = cell.memory_limit_bytes.filter(|_| cell.place == Place::File) else {
        return unsupported("it has a file and a memory limit");
    };
    if pool_bytes < 1 << 20 {
        return unsupported("its pool has at least a MiB");
    }
    if cell.value_bytes != VALUE_BYTES || cell.load_count != cell.keys.count {
        return unsupported("its values have 120 bytes, and it loads all keys");
    }
    if cell.page_bytes.is_some_and(|bytes| bytes != PAGE_BYTES) {
        return unsupported("its pages have 4096 bytes");
    }
    Ok(pool_bytes)
}

fn can_do(phase: &Phase) -> bool {
    phase.operation == (Operation::Get {}) && phase.distribution == (Distribution::Uniform {})
}

/// The phases that the program cannot do.
fn left_out(cell: &Cell) -> Result<LeftOut, CellError> {
    let mut left_out = LeftOut::default();
    for phase in cell.phases.iter().filter(|phase| !can_do(phase)) {
        left_out.add(phase, "it does uniform gets alone")?;
    }
    Ok(left_out)
}

/// Makes an empty file that holds all records, in whole GiB, which is all that the program takes.
fn create_page_file(cell: &Cell) -> Result<u64, CellError> {
    let raw_bytes = cell.keys.count as u64 * (KEY_BYTES + VALUE_BYTES as u64);
    // Slots, heads and inner nodes are a tenth; threads leave pages half full where their parts meet.
    let gib = (raw_bytes + raw_bytes / 2).div_ceil(1 << 30) + 1;
    common::sparse_file(&cell.directory.join(PAGE_FILE), gib << 30)?;
    Ok(gib)
}

/// Whether the program took the size of the pool as it was meant, by what it says at its start.
pub(super) fn check_pool(stderr: &str, pool_bytes: u64) -> Result<(), CellError> {
    let said = stderr.split_whitespace().find_map(|word| word.strip_prefix("physgb:"));
    let said = said.and_then(|gib| gib.parse::<u64>().ok());
    match said {
        Some(gib) if gib == pool_bytes >> 30 => Ok(()),
        Some(_) => Err(CellError::Unsupported("this build takes its pool in whole GiB".into())),
        None => Err(CellError::failed("it does not say how large its pool is")),
    }
}

/// The figures of the second half of the seconds.
fn read_seconds(stdout: &str) -> Result<PhaseResult, CellError> {
    let rows = common::rows(stdout, "tx")?;
    let counted = &rows[rows.len() / 2..];
    if counted.is_empty() {
        return Err(CellError::failed("it printed no seconds"));
    }
    let sum =
        |name: &str| -> Result<f64, CellError> { counted.iter().map(|row| row.number(name)).sum() };
    let read_bytes = sum("rmb")? * f64::from(1 << 20);
    let written_bytes = sum("wmb")? * f64::from(1 << 20);
    Ok(PhaseResult {
        operations: sum("tx")? as u64,
        seconds: counted.len() as f64,
        device_read_bytes: Some(read_bytes as u64),
        device_written_bytes: Some(written_bytes as u64),
        page_reads: Some((read_bytes / PAGE_BYTES as f64).round() as u64),
        page_writes: Some((written_bytes / PAGE_BYTES as f64).round() as u64),
        ..PhaseResult::default()
    })
}

/// Bytes of all pages, which the program gives as `space: 0.276508 GB`.
fn space(stderr: &str) -> Option<u64> {
    let line = stderr.lines().find_map(|line| line.strip_prefix("space: "))?;
    let gib: f64 = line.split_whitespace().next()?.parse().ok()?;
    Some((gib * f64::from(1 << 30)) as u64)
}

#[cfg(test)]
mod tests {
    use super::common::test_cells::{cell, phase};
    use super::*;

    const PRINTED: &str = "\
ts,tx,rmb,wmb,system,threads,datasize,workload,batch
0,34658,112.5,59.875,vmcache,8,2000000,rndread,64
1,53979,167.75,0.25,vmcache,8,2000000,rndread,64
2,57000,178,0,vmcache,8,2000000,rndread,64
3,59000,184,1,vmcache,8,2000000,rndread,64
";

    fn gets() -> Cell {
        let cell = cell(5_000, vec![phase(Operation::Get {}, Distribution::Uniform {}, 10)]);
        let memory_limit_bytes = Some(256 << 20);
        Cell { place: Place::File, memory_limit_bytes, value_bytes: VALUE_BYTES, ..cell }
    }

    #[test]
    fn the_second_half_counts() {
        let figures = read_seconds(PRINTED).unwrap();
        assert_eq!((figures.operations, figures.seconds), (116_000, 2.0));
        assert_eq!(figures.device_read_bytes, Some(362 << 20));
        assert_eq!(figures.page_reads, Some(362 << 8));
        assert_eq!(figures.page_writes, Some(1 << 8));
        assert!(read_seconds("ts,tx,rmb\n").is_err());
        assert!(read_seconds("").is_err());
    }

    #[test]
    fn the_pool_must_be_as_large_as_it_was_told() {
        let says = |gib: u64| format!("vmcache blk:pages virtgb:8 physgb:{gib} exmap:0\n");
        assert_eq!(check_pool(&says(0), 256 << 20), Ok(()));
        assert_eq!(check_pool(&says(2), 2 << 30), Ok(()));
        let ignored = check_pool(&says(1), 256 << 20).unwrap_err();
        assert!(ignored.is_absence(), "{ignored}");
        assert!(check_pool("words", 1 << 30).is_err());
    }

    #[test]
    fn the_space_is_read() {
        assert_eq!(space("vmcache blk:pages\nspace: 0.25 GB \n"), Some(256 << 20));
        assert_eq!(space("space: much\n"), None);
    }

    #[test]
    fn what_the_program_cannot_do_is_refused() {
        assert_eq!(check(&gets()), Ok(256 << 20));
        for cell in [
            Cell { place: Place::Memory, ..gets() },
            Cell { memory_limit_bytes: None, ..gets() },
            Cell { memory_limit_bytes: Some(4096), ..gets() },
            Cell { value_bytes: 100, ..gets() },
            Cell { load_count: 4_500, ..gets() },
            Cell { page_bytes: Some(8192), ..gets() },
        ] {
            assert!(matches!(check(&cell), Err(CellError::Unsupported(_))), "{cell:?}");
        }
    }

    #[test]
    fn phases_that_the_program_cannot_do_are_left_out() {
        let mut cell = gets();
        cell.phases.push(phase(Operation::ScanAll {}, Distribution::Uniform {}, 1));
        cell.phases.push(phase(Operation::Get {}, Distribution::Zipf { theta: 0.9 }, 1));
        let mut facts = Default::default();
        left_out(&cell).unwrap().tell(&cell, &mut facts).unwrap();
        assert!(facts["left_out"].contains("ScanAll") && facts["left_out"].contains("Zipf"));
        cell.phases.remove(0);
        assert!(left_out(&cell).unwrap().tell(&cell, &mut facts).unwrap_err().is_absence());
        cell.phases[0].operation = Operation::Delete { percent: 1 };
        assert!(left_out(&cell).is_err());
    }
}
