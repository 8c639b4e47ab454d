//! The B-tree of "B-Trees Are Back" (SIGMOD 2025) without synchronisation: the programs of m-mueller678/btree-cpp,
//! one a configuration, in memory and on one thread.
//!
//! A program loads 90 % of its keys off the clock, inserts the rest, looks keys up, and scans; what it does and how
//! often is told by environment variables, and it prints one row of figures for each. Its accesses share a number and
//! a skew, so a cell may need several launches, each of which loads anew. It prints whole milliseconds.
//!
//! What differs from a store that is measured by [`crate::harness`]. In the program's favour: a look-up gives a pointer
//! to the value and looks at its first byte, a scan looks at no value. Against it: it takes its accesses out of a block
//! of 2^18 that is refilled off the clock. It draws its accesses itself, of the same distribution over the same keys (of
//! random integers: over as many others), so there is no checksum. Keys cost both the same ([`crate::keys`]).
//!
//! Plain functions and data, `Send + Sync`.

use super::common::{self, Deadline, LeftOut, Row, Slot};
use super::{Adapter, Programs};
use crate::cell::{
    Cell, CellError, CellResult, Distribution, KeyKind, LeafCounts, LoadOrder, Operation, Place,
    TreeShape,
};

/// One program a configuration, each of this name. From `baseline` to `hints` each adds a technique to the one
/// before; `hash` has fingerprint leaves, `adapt2` is the adaptive tree of the paper.
const PROGRAMS: [&str; 6] = [
    "btree-cpp-baseline",
    "btree-cpp-prefix",
    "btree-cpp-heads",
    "btree-cpp-hints",
    "btree-cpp-hash",
    "btree-cpp-adapt2",
];

/// Said with every result.
const ACCESSES: &str = "drawn by the program, of the same distribution";
/// Bytes of a page, fixed when the programs are built.
const PAGE_BYTES: usize = 4096;

/// Operations of a launch of which only loading or inserting is wanted.
const FEW_OPERATIONS: usize = 1000;

/// One start of a program.
#[derive(Clone, Debug, PartialEq)]
struct Launch {
    variant: Variant,
    /// Skew of look-ups and scans; 0 is uniform. `None`: no phase has said.
    theta: Option<f64>,
    /// How many look-ups, and how many scans. `None`: no phase has said.
    operations: Option<usize>,
    /// Scans read 1 to this many records.
    scan_records: usize,
    seed: u64,
    /// The rows that are wanted, by their field `op`.
    rows: Vec<(&'static str, Slot)>,
}

/// What a program does, by the numbers that it knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    /// Loads all, looks up.
    LoadAndLookUp = 3,
    /// Loads 90 % off the clock, inserts, looks up, scans.
    Multi = 6,
    /// Loads in ascending order.
    SortedLoad = 401,
    /// Loads all, reads everything once off the clock, scans.
    WarmScan = 501,
}

/// The programs of this family.
pub struct BtreeCpp;

impl Adapter for BtreeCpp {
    fn competitors(&self) -> &'static [&'static str] {
        &PROGRAMS
    }

    fn run(&self, cell: &Cell, programs: &Programs) -> Result<CellResult, CellError> {
        let (launches, left_out) = plan(cell)?;
        let program = programs.find(&cell.competitor)?;
        let data = match cell.keys.kind {
            KeyKind::File => common::copy_keys(cell)?,
            KeyKind::Dense4 => "int",
            KeyKind::Sparse4 => "rng4",
            KeyKind::Random8 => "rng8",
        };
        let mut result = common::empty_result(cell);
        result.facts.insert("accesses".into(), ACCESSES.into());
        left_out.tell(cell, &mut result.facts)?;
        let deadline = Deadline::of(cell);
        for launch in &launches {
            let environment = environment(cell, launch, data);
            let output = common::start(&program, &[], &environment, cell, &deadline)?;
            read_output(&output.stdout, &output.stderr, cell, launch, &mut result)?;
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
    if cell.place != Place::Memory || cell.memory_limit_bytes.is_some() {
        return unsupported("it has neither files nor a memory limit");
    }
    if cell.page_bytes.is_some_and(|bytes| bytes != PAGE_BYTES) {
        return unsupported(format!("its pages have {PAGE_BYTES} bytes"));
    }
    let loads_all = cell.load_count == cell.keys.count;
    if cell.load_order != LoadOrder::Shuffled {
        if !loads_all || !cell.phases.is_empty() {
            return unsupported("after loading in ascending order it does nothing");
        }
        let rows = vec![("sorted_insert", Slot::Load)];
        let launch = Launch { rows, ..Launch::new(Variant::SortedLoad, 0) };
        return Ok((vec![launch], left_out));
    }
    let last_tenth = cell.keys.count / 10;
    if !loads_all && cell.load_count != cell.keys.count - last_tenth {
        return unsupported("it loads 90 % and inserts the rest, or loads all");
    }
    let mut launches: Vec<Launch> = Vec::new();
    for (at, phase) in cell.phases.iter().enumerate() {
        if phase.threads != 1 {
            left_out.add(phase, "it has no synchronisation")?;
            continue;
        }
        let (variant, row, records) = match phase.operation {
            Operation::InsertLast {} if at == 0 && phase.operations == last_tenth => {
                (Variant::Multi, "insert90", 0)
            }
            Operation::Get {} if loads_all => (Variant::LoadAndLookUp, "ycsb_c", 0),
            Operation::Get {} => (Variant::Multi, "ycsb_c", 0),
            Operation::Scan { min_records: 1, max_records } if loads_all => {
                (Variant::WarmScan, "sorted_scan", max_records)
            }
            Operation::Scan { min_records: 1, max_records } => {
                (Variant::Multi, "scan", max_records)
            }
            _ => {
                left_out.add(phase, "it cannot do that")?;
                continue;
            }
        };
        let (theta, operations) = match phase.distribution {
            _ if row == "insert90" => (None, None),
            Distribution::Uniform {} => (Some(0.0), Some(phase.operations)),
            Distribution::Zipf { theta } => (Some(theta), Some(phase.operations)),
            _ => {
                left_out.add(phase, "it cannot draw so")?;
                continue;
            }
        };
        let fits = |launch: &Launch| {
            launch.variant == variant
                && (launch.theta.is_none() || launch.theta == theta)
                && (launch.operations.is_none() || launch.operations == operations)
                && launch.rows.iter().all(|(taken, _)| *taken != row)
        };
        let found = launches.iter().position(fits).unwrap_or_else(|| {
            launches.push(Launch::new(variant, phase.seed));
            launches.len() - 1
        });
        let launch = &mut launches[found];
        launch.theta = launch.theta.or(theta);
        launch.operations = launch.operations.or(operations);
        launch.scan_records = launch.scan_records.max(records);
        launch.rows.push((row, Slot::Phase(at)));
    }
    if !loads_all && !launches.iter().any(|launch| launch.rows[0].0 == "insert90") {
        return unsupported("it inserts what it has not loaded, before all else");
    }
    if loads_all {
        if launches.is_empty() {
            launches.push(Launch::new(Variant::LoadAndLookUp, 0));
        }
        let row = match launches[0].variant {
            Variant::WarmScan => "sorted_scan_init",
            _ => "ycsb_c_init",
        };
        launches[0].rows.push((row, Slot::Load));
    }
    Ok((launches, left_out))
}

impl Launch {
    fn new(variant: Variant, seed: u64) -> Launch {
        Launch { variant, theta: None, operations: None, scan_records: 1, seed, rows: Vec::new() }
    }
}

/// What tells a program to do `launch` with the keys `data`.
fn environment(cell: &Cell, launch: &Launch, data: &str) -> Vec<(&'static str, String)> {
    vec![
        ("YCSB_VARIANT", (launch.variant as u32).to_string()),
        ("DATA", data.to_owned()),
        ("KEY_COUNT", cell.keys.count.to_string()),
        ("OP_COUNT", launch.operations.unwrap_or(FEW_OPERATIONS).to_string()),
        ("SCAN_LENGTH", launch.scan_records.to_string()),
        ("PAYLOAD_SIZE", cell.value_bytes.to_string()),
        ("ZIPF", launch.theta.unwrap_or(0.0).to_string()),
        ("DENSITY", "1".to_owned()),
        // It keeps 32 bits.
        ("SEED", (launch.seed as u32).to_string()),
        ("RUN_ID", "0".to_owned()),
        ("MEM_SIZE", "1".to_owned()),
    ]
}

/// Takes the figures of `launch` out of what a program printed.
fn read_output(
    stdout: &str,
    stderr: &str,
    cell: &Cell,
    launch: &Launch,
    result: &mut CellResult,
) -> Result<(), CellError> {
    if stderr.contains("key too long") || stderr.contains("UNACCEPTABLE") {
        return unsupported("some key is too long for its pages");
    }
    let rows = common::rows(stdout, "op")?;
    for &(name, slot) in &launch.rows {
        let row = common::find(&rows, "op", name)?;
        let phase = slot.of(result);
        phase.operations = slot.operations(cell);
        phase.seconds = row.number("time")?;
    }
    let last = rows.last().ok_or_else(|| CellError::failed("its table is empty"))?;
    let records = last.number("counted_final_key_count")?;
    if records != cell.keys.count as f64 {
        return Err(CellError::Failed(format!("it has {records} records at the end")));
    }
    let inner_bytes = last.number("const_pageSizeInner")?;
    let leaf_bytes = last.number("const_pageSizeLeaf")?;
    let tree = tree(last)?;
    let bytes = tree.inner_nodes as f64 * inner_bytes + tree.leaves as f64 * leaf_bytes;
    result.store_bytes = Some(bytes as u64);
    result.tree = Some(tree);
    // Growth of the address space, which is all that the program looks at.
    let grown = stdout.lines().find(|line| line.starts_with("__mem_size"));
    let grown = grown.and_then(|line| line.rsplit(',').next()?.trim().parse().ok());
    if let (Some(phase), Some(bytes)) = (result.phases.last_mut(), grown) {
        phase.memory_bytes = Some(bytes);
    }
    Ok(())
}

/// The nodes that a row counts. Their levels it does not tell.
fn tree(row: &Row) -> Result<TreeShape, CellError> {
    let (mut inner_nodes, mut layouts) = (0, LeafCounts::default());
    for (name, count) in row.numbers("nodeCount_")? {
        let sort = match name {
            "Leaf" => &mut layouts.comparison,
            "Hash" => &mut layouts.fingerprint,
            "Dense2" => &mut layouts.semi_dense,
            "Dense" => &mut layouts.fully_dense,
            "Inner" | "Head4" | "Head8" => &mut inner_nodes,
            _ => return Err(CellError::Failed(format!("its nodes `{name}` are of no known kind"))),
        };
        *sort += count as u64;
    }
    let LeafCounts { comparison, fingerprint, semi_dense, fully_dense } = layouts;
    let leaves = comparison + fingerprint + semi_dense + fully_dense;
    Ok(TreeShape { height: None, leaves, inner_nodes, layouts: Some(layouts) })
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
      bin_name, config_name, const_pageSizeInner, const_pageSizeLeaf, data_name, op,  time, \
nodeCount_Leaf, nodeCount_Inner, nodeCount_Dense, nodeCount_Head4, counted_final_key_count, 
hints-n3-ycsb,       hints, 4096, 4096, keys, insert90, 0.089, 10910, 132, 0, 0, 500000, 
hints-n3-ycsb,       hints, 4096, 4096, keys,   ycsb_c, 0.229, 10917, 132, 0, 0, 500000, 
hints-n3-ycsb,       hints, 4096, 4096, keys,     scan, 0.465, 10917, 132, 0, 0, 500000, 
__mem_size_79fbae263695,hints,keys,69226496,115486720,46260224
";

    fn launches(cell: &Cell) -> Vec<Launch> {
        plan(cell).unwrap().0
    }

    #[test]
    fn phases_of_one_skew_share_a_launch() {
        let cell = last_tenth(
            5_000,
            vec![
                phase(GET, Zipf { theta: 0.99 }, 1_000),
                phase(GET, Uniform {}, 1_000),
                phase(SCAN, Zipf { theta: 0.99 }, 1_000),
            ],
        );
        let told = launches(&cell);
        assert_eq!(told.len(), 2);
        let rows =
            [("insert90", Slot::Phase(0)), ("ycsb_c", Slot::Phase(1)), ("scan", Slot::Phase(3))];
        assert_eq!(told[0].rows, rows);
        assert_eq!(told[1].rows, [("ycsb_c", Slot::Phase(2))]);
        let environment = environment(&cell, &told[0], "int");
        for (name, value) in [
            ("YCSB_VARIANT", "6"),
            ("KEY_COUNT", "5000"),
            ("OP_COUNT", "1000"),
            ("SCAN_LENGTH", "50"),
            ("ZIPF", "0.99"),
            ("DATA", "int"),
        ] {
            assert!(environment.contains(&(name, value.to_owned())), "{name}: {environment:?}");
        }
    }

    #[test]
    fn loading_is_measured_where_the_program_does() {
        let told = launches(&cell(5_000, vec![phase(SCAN, Uniform {}, 100)]));
        assert_eq!(told.len(), 1);
        let rows = [("sorted_scan", Slot::Phase(0)), ("sorted_scan_init", Slot::Load)];
        assert_eq!((told[0].variant, &told[0].rows[..]), (Variant::WarmScan, &rows[..]));
        let told = launches(&cell(5_000, Vec::new()));
        assert_eq!(told[0].rows, [("ycsb_c_init", Slot::Load)]);
        let ascending = Cell { load_order: LoadOrder::Bulk, ..cell(5_000, Vec::new()) };
        let told = launches(&ascending);
        assert_eq!(told[0].variant as u32, 401);
        assert_eq!(told[0].rows, [("sorted_insert", Slot::Load)]);
    }

    #[test]
    fn what_the_program_cannot_do_is_refused() {
        let gets = || vec![phase(GET, Uniform {}, 100)];
        let limited = Cell { memory_limit_bytes: Some(1 << 20), ..cell(5_000, gets()) };
        let half = Cell { load_count: 2_500, ..cell(5_000, gets()) };
        let no_insert = Cell { load_count: 4_500, ..cell(5_000, gets()) };
        let pages = Cell { page_bytes: Some(8192), ..cell(5_000, gets()) };
        let delete = cell(5_000, vec![phase(Operation::Delete { percent: 1 }, Uniform {}, 0)]);
        for cell in [limited, half, no_insert, pages, delete] {
            let refused = matches!(plan(&cell), Err(CellError::Unsupported(_)));
            assert!(refused, "{cell:?}");
        }
    }

    #[test]
    fn phases_that_the_program_cannot_do_are_left_out() {
        let hot = Distribution::HotSet { records_percent: 1.0, accesses_percent: 90.0 };
        let put = phase(Operation::Overwrite {}, Uniform {}, 100);
        let mut cell = cell(5_000, vec![phase(GET, Uniform {}, 100), phase(GET, hot, 100), put]);
        cell.phases.push(crate::cell::Phase { threads: 2, ..phase(GET, Uniform {}, 100) });
        let (launches, left_out) = plan(&cell).unwrap();
        assert_eq!(launches.len(), 1);
        assert_eq!(launches[0].rows[0], ("ycsb_c", Slot::Phase(0)));
        let mut facts = Default::default();
        left_out.tell(&cell, &mut facts).unwrap();
        assert!(facts["left_out"].contains("HotSet") && facts["left_out"].contains("Overwrite"));
        cell.phases.remove(0);
        let (_, left_out) = plan(&cell).unwrap();
        let nothing = left_out.tell(&cell, &mut facts).unwrap_err();
        assert!(nothing.is_absence(), "{nothing}");
    }

    #[test]
    fn figures_are_read() {
        let phases = vec![
            phase(GET, Zipf { theta: 0.99 }, 200_000),
            phase(SCAN, Zipf { theta: 0.99 }, 200_000),
        ];
        let cell = last_tenth(500_000, phases);
        let told = launches(&cell);
        let mut result = common::empty_result(&cell);
        read_output(PRINTED, "", &cell, &told[0], &mut result).unwrap();
        let read: Vec<_> =
            result.phases.iter().map(|phase| (phase.operations, phase.seconds)).collect();
        assert_eq!(read, [(50_000, 0.089), (200_000, 0.229), (200_000, 0.465)]);
        assert_eq!(result.store_bytes, Some((10_917 + 132) * 4096));
        let layouts = LeafCounts { comparison: 10_917, ..LeafCounts::default() };
        let tree =
            TreeShape { height: None, leaves: 10_917, inner_nodes: 132, layouts: Some(layouts) };
        assert_eq!(result.tree, Some(tree));
        assert_eq!(tree.fan_out(), Some((10_917.0 + 131.0) / 132.0));
        assert_eq!(result.phases[2].memory_bytes, Some(46_260_224));
        assert!(result.phases.iter().all(|phase| phase.checksum.is_none()));
    }

    #[test]
    fn strange_output_is_an_error() {
        let cell = last_tenth(400_000, vec![phase(GET, Uniform {}, 100)]);
        let launch = &launches(&cell)[0];
        let mut result = common::empty_result(&cell);
        let mut read =
            |stdout: &str, stderr: &str| read_output(stdout, stderr, &cell, launch, &mut result);
        let error = read(PRINTED, "").unwrap_err();
        assert!(error.to_string().contains("500000 records"), "{error}");
        assert!(matches!(read("", ""), Err(CellError::Failed(_))));
        let too_long = read(PRINTED, "key too long for page size");
        assert!(matches!(too_long, Err(CellError::Unsupported(_))));
        let cut = &PRINTED[..PRINTED.find("ycsb_c").unwrap()];
        assert!(read(cut, "").unwrap_err().to_string().contains("ycsb_c"));
    }

    #[test]
    fn a_missing_program_is_reported() {
        let cell = Cell { competitor: PROGRAMS[0].into(), ..cell(100, Vec::new()) };
        let nowhere = Programs::new(Some("no such directory".into()));
        let error = BtreeCpp.run(&cell, &nowhere).unwrap_err();
        assert!(matches!(error, CellError::NotInstalled(_)), "{error}");
    }
}
