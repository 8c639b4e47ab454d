//! The B-tree of "B-Trees Are Back" (SIGMOD 2025) in the buffer manager vmcache: the programs of m-mueller678/btree24,
//! one a configuration, with threads, in memory or with a limited pool.
//!
//! In memory a program loads 90 % of its keys off the clock, inserts the rest, and then looks keys up and scans, each
//! for some seconds instead of a number of operations. With a limited pool it loads all keys on the clock, which are
//! numbers that it makes, before it looks up and scans. Either way one launch has one number of threads, one skew, one
//! phase of gets and one of scans. Its pages have 4 KiB unless it was built otherwise.
//!
//! What differs from a store that is measured by [`crate::harness`]: it looks at no value; the threads of a phase go on
//! until its seconds are over; it draws its accesses itself, of the same distribution over the same keys (of random
//! integers: over as many others), so there is no checksum. As published it prints how many operations it did only if
//! it can open hardware counters, and takes its pool in whole GiB: a build that is to be of use on a virtual machine
//! prints a field `ops`, and takes MiB from `PHYSMB`. What a build cannot do is noticed.
//!
//! Plain functions and data, `Send + Sync`.

use super::common::{self, Deadline, LeftOut, Row, Slot};
use super::vmcache::check_pool;
use super::{Adapter, Programs};
use crate::cell::{
    Cell, CellError, CellResult, Distribution, KeyKind, LoadOrder, Operation, Place,
};

/// One program a configuration, each of this name; see `btree_cpp` for what they are.
const PROGRAMS: [&str; 3] = ["btree24-baseline", "btree24-hints", "btree24-adapt"];

/// Bytes of a page of a usual build.
const PAGE_BYTES: usize = 4096;
/// Said with every result.
const ACCESSES: &str = "drawn by the program, of the same distribution";
/// Name of the file of pages in the directory of a cell.
const PAGE_FILE: &str = "pages";
/// Seconds of a phase, and of a phase of few operations.
const SECONDS: u64 = 3;
const FEW_SECONDS: u64 = 1;
/// Fewer operations than this are few.
const FEW_OPERATIONS: usize = 100_000;
/// Bytes that a record takes at most beside key and value, in full pages.
const SPARE_RECORD_BYTES: u64 = 32;

/// The programs of this family.
pub struct Btree24;

/// One start of a program.
#[derive(Clone, Debug, PartialEq)]
struct Launch {
    variant: Variant,
    /// Skew of look-ups and scans; 0 is uniform. `None`: no phase has said.
    theta: Option<f64>,
    threads: usize,
    /// Scans read 1 to this many records.
    scan_records: usize,
    seconds: u64,
    seed: u64,
    /// The rows that are wanted, by their field `op`.
    rows: Vec<(&'static str, Slot)>,
}

/// What a program does, by the numbers that it knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    /// Loads 90 % off the clock, inserts, looks up, scans.
    LastTenth = 602,
    /// Loads all, looks up, scans, in memory.
    All = 6,
    /// Loads all, looks up, scans, beyond memory.
    Large = 8,
}

impl Adapter for Btree24 {
    fn competitors(&self) -> &'static [&'static str] {
        &PROGRAMS
    }

    fn run(&self, cell: &Cell, programs: &Programs) -> Result<CellResult, CellError> {
        let (launches, left_out) = plan(cell)?;
        let program = programs.find(&cell.competitor)?;
        let (data, key_bytes) = data(cell)?;
        // Pages may be half full.
        let value_bytes = cell.value_bytes as u64 + SPARE_RECORD_BYTES;
        let most_bytes = 2 * (key_bytes + cell.keys.count as u64 * value_bytes);
        let file_gib = most_bytes.div_ceil(1 << 30) + 1;
        let pool_bytes = cell.memory_limit_bytes.unwrap_or(file_gib << 30);
        let deadline = Deadline::of(cell);
        let mut result = common::empty_result(cell);
        result.facts.insert("accesses".into(), ACCESSES.into());
        left_out.tell(cell, &mut result.facts)?;
        for launch in &launches {
            common::sparse_file(&cell.directory.join(PAGE_FILE), file_gib << 30)?;
            let mut environment = environment(cell, launch, &data);
            environment.extend([
                ("BLOCK", PAGE_FILE.to_owned()),
                ("VIRTGB", file_gib.to_string()),
                ("PHYSGB", pool_bytes.div_ceil(1 << 30).to_string()),
                ("PHYSMB", (pool_bytes >> 20).to_string()),
            ]);
            let output = common::start(&program, &[], &environment, cell, &deadline)?;
            check_pool(&output.stderr, pool_bytes)?;
            read_output(&output.stdout, cell, launch, &mut result)?;
        }
        Ok(result)
    }
}

fn unsupported<T>(what: impl Into<String>) -> Result<T, CellError> {
    Err(CellError::Unsupported(what.into()))
}

/// The launches that a cell needs, and the phases that are in none.
fn plan(cell: &Cell) -> Result<(Vec<Launch>, LeftOut), CellError> {
    let mut left_out = LeftOut::default();
    if cell.page_bytes.is_some_and(|bytes| bytes != PAGE_BYTES) {
        return unsupported(format!("its pages have {PAGE_BYTES} bytes"));
    }
    if cell.load_order != LoadOrder::Shuffled {
        return unsupported("it loads in random order");
    }
    if cell.phases.is_empty() {
        return unsupported("it does not load alone");
    }
    let variant = variant(cell)?;
    let mut launches: Vec<Launch> = Vec::new();
    for (at, phase) in cell.phases.iter().enumerate() {
        let (row, records) = match phase.operation {
            Operation::InsertLast {} if at == 0 && variant == Variant::LastTenth => ("insert90", 0),
            Operation::Get {} => ("ycsb_c", 0),
            Operation::Scan { min_records: 1, max_records } => ("ycsb_e", max_records),
            _ => {
                left_out.add(phase, "it cannot do that")?;
                continue;
            }
        };
        let theta = match phase.distribution {
            _ if row == "insert90" => None,
            Distribution::Zipf { theta } => Some(theta),
            Distribution::Uniform {} if variant != Variant::Large => Some(0.0),
            _ => {
                left_out.add(phase, "it cannot draw so")?;
                continue;
            }
        };
        let fits = |launch: &Launch| {
            launch.threads == phase.threads
                && (launch.theta.is_none() || launch.theta == theta)
                && launch.rows.iter().all(|(taken, _)| *taken != row)
        };
        let found = launches.iter().position(fits).unwrap_or_else(|| {
            launches.push(Launch {
                variant,
                theta: None,
                threads: phase.threads,
                scan_records: 1,
                seconds: FEW_SECONDS,
                seed: phase.seed,
                rows: Vec::new(),
            });
            launches.len() - 1
        });
        let launch = &mut launches[found];
        launch.theta = launch.theta.or(theta);
        launch.scan_records = launch.scan_records.max(records);
        if row != "insert90" && phase.operations >= FEW_OPERATIONS {
            launch.seconds = SECONDS;
        }
        launch.rows.push((row, Slot::Phase(at)));
    }
    if let Some(launch) = launches.first_mut().filter(|_| variant != Variant::LastTenth) {
        launch.rows.push(("insert0", Slot::Load));
    }
    Ok((launches, left_out))
}

/// What the program is to do, by place and keys.
fn variant(cell: &Cell) -> Result<Variant, CellError> {
    let loads_all = cell.load_count == cell.keys.count;
    let last_tenth = cell.keys.count / 10;
    let inserts_last_tenth = cell.load_count == cell.keys.count - last_tenth
        && cell.phases.first().is_some_and(|phase| {
            phase.operation == (Operation::InsertLast {}) && phase.operations == last_tenth
        });
    match (cell.place, cell.memory_limit_bytes) {
        (Place::File, Some(bytes)) if bytes >= 1 << 20 && loads_all => match cell.keys.kind {
            KeyKind::Random8 => Ok(Variant::Large),
            _ => unsupported("beyond memory its keys are numbers of 8 bytes"),
        },
        (Place::Memory, None) if cell.keys.kind == KeyKind::Random8 => {
            unsupported("in memory its numbers have 4 bytes")
        }
        (Place::Memory, None) if inserts_last_tenth => Ok(Variant::LastTenth),
        (Place::Memory, None) if loads_all => Ok(Variant::All),
        _ => unsupported("it inserts the last tenth or loads all, in memory or with a limit"),
    }
}

/// What `DATA` is to be, and bytes of all keys.
fn data(cell: &Cell) -> Result<(String, u64), CellError> {
    let count = cell.keys.count as u64;
    Ok(match cell.keys.kind {
        KeyKind::Dense4 => ("int".to_owned(), 4 * count),
        KeyKind::Sparse4 => ("rng4".to_owned(), 4 * count),
        KeyKind::Random8 => ("rng8".to_owned(), 8 * count),
        KeyKind::Drawn4 { .. } | KeyKind::Partitioned8 { .. } | KeyKind::Long { .. } => {
            return unsupported("it has no such keys");
        }
        KeyKind::File => {
            let name = common::copy_keys(cell)?;
            let metadata = std::fs::metadata(cell.directory.join(name));
            (format!("file:{name}"), metadata.map_err(CellError::failed)?.len())
        }
    })
}

/// What tells a program to do `launch` with the keys `data`.
fn environment(cell: &Cell, launch: &Launch, data: &str) -> Vec<(&'static str, String)> {
    vec![
        ("YCSB_VARIANT", (launch.variant as u32).to_string()),
        ("DATA", data.to_owned()),
        ("KEY_COUNT", cell.keys.count.to_string()),
        ("DURATION", launch.seconds.to_string()),
        ("SCAN_DURATION", launch.seconds.to_string()),
        ("THREADS", launch.threads.to_string()),
        ("SCAN_LENGTH", launch.scan_records.to_string()),
        ("PAYLOAD_SIZE", cell.value_bytes.to_string()),
        ("ZIPF", launch.theta.unwrap_or(0.0).to_string()),
        ("DENSITY", "1".to_owned()),
        ("PARTITION_COUNT", "1".to_owned()),
        ("SEED", launch.seed.to_string()),
        ("RUN_ID", "0".to_owned()),
        // Counting nodes reads every page.
        ("SKIP_NODE_COUNT", "1".to_owned()),
    ]
}

/// Takes the figures of `launch` out of what a program printed.
fn read_output(
    stdout: &str,
    cell: &Cell,
    launch: &Launch,
    result: &mut CellResult,
) -> Result<(), CellError> {
    let rows = common::rows(stdout, "op")?;
    for &(name, slot) in &launch.rows {
        let row = common::find(&rows, "op", name)?;
        let figures = slot.of(result);
        figures.seconds = row.number("time")?;
        figures.operations = match name {
            "insert90" | "insert0" => slot.operations(cell),
            _ => counted_operations(row)?,
        };
    }
    let last = rows.last().ok_or_else(|| CellError::failed("its table is empty"))?;
    let bytes = last.number("vmCacheAllocCount")? * last.number("page_size")?;
    result.store_bytes = Some(bytes as u64);
    Ok(())
}

/// Operations of a phase of so many seconds: `ops` of a build that prints them always, `scale` beside counters.
fn counted_operations(row: &Row) -> Result<u64, CellError> {
    let operations = row.number("ops").or_else(|_| row.number("scale"));
    operations.map(|operations| operations as u64).map_err(|_| {
        let why = "this build prints no number of operations where it cannot open counters";
        CellError::Unsupported(why.into())
    })
}

#[cfg(test)]
mod tests {
    use super::common::test_cells::{cell, last_tenth, phase};
    use super::*;
    use Distribution::{Uniform, Zipf};

    const GET: Operation = Operation::Get {};
    const SCAN: Operation = Operation::Scan { min_records: 1, max_records: 50 };

    /// As the programs print it, some columns left out.
    const PRINTED: &str = "\
 bin_name, config_name, data_name, op, page_size,  time,     ops, vmCacheAllocCount, 
  btree24,       adapt,       int, insert90, 4096, 0.007,   50000, 1760, 
  btree24,       adapt,       int,   ycsb_c, 4096, 1.005, 4471629, 1769, 
  btree24,       adapt,       int,   ycsb_e, 4096, 1.000, 2135284, 1769, 
";

    fn with_threads(mut cell: Cell, threads: usize) -> Cell {
        cell.phases.iter_mut().for_each(|phase| phase.threads = threads);
        cell
    }

    fn beyond_memory(phases: Vec<crate::cell::Phase>) -> Cell {
        let mut cell = cell(5_000, phases);
        cell.keys.kind = KeyKind::Random8;
        Cell { place: Place::File, memory_limit_bytes: Some(96 << 20), ..cell }
    }

    #[test]
    fn a_launch_has_one_skew_and_number_of_threads() {
        let zipf = Zipf { theta: 0.99 };
        let mut cell = last_tenth(
            5_000_000,
            vec![phase(GET, zipf, 10), phase(GET, Uniform {}, 10), phase(SCAN, zipf, 10)],
        );
        cell.phases.push(crate::cell::Phase { threads: 2, ..phase(GET, zipf, 1_000_000) });
        let (launches, _) = plan(&cell).unwrap();
        let told: Vec<_> = launches
            .iter()
            .map(|launch| (launch.theta, launch.threads, launch.seconds, launch.rows.len()))
            .collect();
        let first = (Some(0.99), 1, FEW_SECONDS, 3);
        let expected = [first, (Some(0.0), 1, FEW_SECONDS, 1), (Some(0.99), 2, SECONDS, 1)];
        assert_eq!(told, expected);
        assert!(launches.iter().all(|launch| launch.variant == Variant::LastTenth));
    }

    #[test]
    fn loading_all_is_measured() {
        let (in_memory, _) = plan(&cell(5_000, vec![phase(GET, Uniform {}, 10)])).unwrap();
        assert_eq!(in_memory[0].variant as u32, 6);
        let (beyond, _) = plan(&beyond_memory(vec![phase(GET, Zipf { theta: 0.5 }, 10)])).unwrap();
        assert_eq!(beyond[0].variant as u32, 8);
        for launch in [&in_memory[0], &beyond[0]] {
            assert_eq!(launch.rows, [("ycsb_c", Slot::Phase(0)), ("insert0", Slot::Load)]);
        }
    }

    #[test]
    fn what_the_program_cannot_do_is_refused() {
        let gets = || vec![phase(GET, Uniform {}, 100)];
        let mut text = beyond_memory(vec![phase(GET, Zipf { theta: 0.5 }, 10)]);
        text.keys.kind = KeyKind::File;
        let mut random = cell(5_000, gets());
        random.keys.kind = KeyKind::Random8;
        for cell in [
            text,
            random,
            cell(5_000, Vec::new()),
            cell(5_000, vec![phase(Operation::Delete { percent: 1 }, Uniform {}, 0)]),
            Cell { page_bytes: Some(8192), ..cell(5_000, gets()) },
            Cell { load_order: LoadOrder::Ascending, ..cell(5_000, gets()) },
            Cell { load_count: 4_500, ..cell(5_000, gets()) },
        ] {
            let refused = matches!(plan(&cell), Err(CellError::Unsupported(_)));
            assert!(refused, "{cell:?}");
        }
    }

    #[test]
    fn phases_that_the_program_cannot_do_are_left_out() {
        let zipf = phase(GET, Zipf { theta: 0.5 }, 100);
        let many = phase(Operation::GetMany { group: 16 }, Zipf { theta: 0.5 }, 100);
        let cell = beyond_memory(vec![phase(GET, Uniform {}, 100), zipf, many]);
        let (launches, left_out) = plan(&cell).unwrap();
        assert_eq!(launches[0].rows, [("ycsb_c", Slot::Phase(1)), ("insert0", Slot::Load)]);
        let mut facts = Default::default();
        left_out.tell(&cell, &mut facts).unwrap();
        assert!(facts["left_out"].contains("Uniform") && facts["left_out"].contains("GetMany"));
        let cell = beyond_memory(vec![phase(GET, Uniform {}, 100)]);
        let (_, left_out) = plan(&cell).unwrap();
        assert!(left_out.tell(&cell, &mut facts).unwrap_err().is_absence());
    }

    #[test]
    fn figures_are_read() {
        let phases = vec![phase(GET, Uniform {}, 10), phase(SCAN, Uniform {}, 10)];
        let cell = with_threads(last_tenth(500_000, phases), 2);
        let launch = &plan(&cell).unwrap().0[0];
        let mut result = common::empty_result(&cell);
        read_output(PRINTED, &cell, launch, &mut result).unwrap();
        let read: Vec<_> =
            result.phases.iter().map(|phase| (phase.operations, phase.seconds)).collect();
        assert_eq!(read, [(50_000, 0.007), (4_471_629, 1.005), (2_135_284, 1.0)]);
        assert_eq!(result.store_bytes, Some(1_769 * 4096));
    }

    #[test]
    fn a_build_without_numbers_of_operations_is_noticed() {
        let cell = cell(500_000, vec![phase(GET, Uniform {}, 10)]);
        let launch = &plan(&cell).unwrap().0[0];
        let mut result = common::empty_result(&cell);
        let printed = PRINTED.replace("  ops,", "  other,").replace("insert90", "insert0");
        let error = read_output(&printed, &cell, launch, &mut result).unwrap_err();
        assert!(error.is_absence() && error.to_string().contains("counters"), "{error}");
    }
}
