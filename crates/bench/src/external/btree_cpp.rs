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
//! random integers: over as many others), so there is no checksum. Scans with insertions between them it does over dense
//! integers of which as many are missing as there are operations. Keys cost both the same ([`crate::keys`]).
//!
//! Plain functions and data, `Send + Sync`.

use super::common::{self, Deadline, LeftOut, Row, Slot};
use super::{Adapter, Programs};
use crate::cell::{
    Cell, CellError, CellResult, Distribution, KeyKind, LeafCounts, LoadOrder, Operation, Place,
    TreeShape,
};
use crate::keys;
use std::ops::RangeInclusive;

/// One program a configuration, each of this name. From `baseline` to `hints` each adds a technique to the one
/// before; `hash` has fingerprint leaves, `dense1` fully dense ones, `dense2` semi-dense ones, `dense3` fully dense ones
/// that split for sequences; `adapt2` is the adaptive tree of the paper. The rest are the in-memory structures that the
/// paper compares with: ART, HOT, Wormhole, the B-tree of TLX, LITS. Their nodes are not counted.
const PROGRAMS: [&str; 14] = [
    "btree-cpp-baseline",
    "btree-cpp-prefix",
    "btree-cpp-heads",
    "btree-cpp-hints",
    "btree-cpp-hash",
    "btree-cpp-dense1",
    "btree-cpp-dense2",
    "btree-cpp-dense3",
    "btree-cpp-adapt2",
    "btree-cpp-art",
    HOT,
    "btree-cpp-wh",
    "btree-cpp-tlx",
    "btree-cpp-lits",
];

/// With longer keys than [`HOT_KEY_BYTES`] it never ends.
const HOT: &str = "btree-cpp-hot";
const HOT_KEY_BYTES: usize = 255;

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
    /// Keys that it is told to have.
    key_count: usize,
    /// Skew of look-ups and scans; 0 is uniform. `None`: no phase has said.
    theta: Option<f64>,
    /// How many look-ups, and how many scans. `None`: no phase has said.
    operations: Option<usize>,
    /// Scans read 1 to this many records; of partitioned keys, which it does not scan, the number of
    /// partitions.
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
    /// Loads so many less than all as it inserts on average, half of that, then scans and inserts every twentieth time.
    ScanAndInsert = 5,
    /// Loads 90 % off the clock, inserts, looks up, scans.
    Multi = 6,
    /// Loads in ascending order.
    SortedLoad = 401,
    /// Loads in the order in which the keys are made.
    LoadInOrder = 402,
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
            KeyKind::File => {
                check_lengths(cell)?;
                common::copy_keys(cell)?
            }
            KeyKind::Dense4 | KeyKind::Drawn4 { .. } => "int",
            KeyKind::Partitioned8 { .. } => "partitioned_id",
            KeyKind::Sparse4 => "rng4",
            KeyKind::Random8 => "rng8",
            KeyKind::Long { .. } => {
                return Err(CellError::Unsupported("the program makes no long keys".into()));
            }
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
    let scan_inserts = scan_inserts(cell);
    let loads_all = cell.load_count == cell.keys.count || scan_inserts.is_some();
    let key_count = if loads_all { cell.load_count } else { cell.keys.count };
    if let KeyKind::Partitioned8 { records_each } = cell.keys.kind {
        return Ok((vec![load_partitions(cell, records_each)?], left_out));
    }
    if cell.load_order != LoadOrder::Shuffled {
        if !loads_all || !cell.phases.is_empty() {
            return unsupported("after loading in ascending order it does nothing");
        }
        let rows = vec![("sorted_insert", Slot::Load)];
        let launch = Launch { rows, ..Launch::new(Variant::SortedLoad, key_count, 0) };
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
            Operation::ScanInsert { max_records, .. } if scan_inserts == Some(at) => {
                let spare = cell.keys.count - cell.load_count;
                if cell.keys.kind == KeyKind::File && phase.operations / 10 > spare {
                    return unsupported("it wants twice as many keys as it inserts");
                }
                (Variant::ScanAndInsert, "ycsb_e", max_records)
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
            let more = if variant == Variant::ScanAndInsert { phase.operations / 40 } else { 0 };
            launches.push(Launch::new(variant, key_count + more, phase.seed));
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
            launches.push(Launch::new(Variant::LoadAndLookUp, key_count, 0));
        }
        let row = match launches[0].variant {
            Variant::WarmScan => "sorted_scan_init",
            Variant::ScanAndInsert => "ycsb_e_init",
            _ => "ycsb_c_init",
        };
        launches[0].rows.push((row, Slot::Load));
    }
    Ok((launches, left_out))
}

/// The phase that scans and inserts, if it is the last: what is left of the keys is more than it inserts.
fn scan_inserts(cell: &Cell) -> Option<usize> {
    match cell.phases.last().map(|phase| phase.operation) {
        Some(Operation::ScanInsert { insert_percent: 5, .. }) => Some(cell.phases.len() - 1),
        _ => None,
    }
}

/// The launch that loads keys of partitions.
fn load_partitions(cell: &Cell, records_each: u32) -> Result<Launch, CellError> {
    let count = cell.keys.count;
    let loads_all = cell.load_order == LoadOrder::Shuffled && cell.load_count == count;
    if !loads_all || !cell.phases.is_empty() {
        return unsupported("it loads keys of partitions, and does nothing after that");
    }
    let rows = vec![("sorted_insert", Slot::Load)];
    let scan_records = keys::partitions(count, records_each);
    Ok(Launch { rows, scan_records, ..Launch::new(Variant::LoadInOrder, count, 0) })
}

impl Launch {
    fn new(variant: Variant, key_count: usize, seed: u64) -> Launch {
        let rows = Vec::new();
        Launch { variant, key_count, theta: None, operations: None, scan_records: 1, seed, rows }
    }

    /// Records at the end. How many it inserts between scans, it draws.
    fn records(&self) -> RangeInclusive<usize> {
        let about = match self.variant {
            Variant::ScanAndInsert => self.operations.unwrap_or(FEW_OPERATIONS) / 40,
            _ => 0,
        };
        self.key_count - about..=self.key_count + 3 * about
    }

    /// The last row that is wanted.
    fn last_row(&self) -> Option<&'static str> {
        let order = |slot: &Slot| match slot {
            Slot::Load => 0,
            Slot::Phase(at) => at + 1,
        };
        self.rows.iter().max_by_key(|(_, slot)| order(slot)).map(|(name, _)| *name)
    }
}

/// Refuses keys that are too long for HOT.
fn check_lengths(cell: &Cell) -> Result<(), CellError> {
    let Some(path) = cell.keys.path.as_ref().filter(|_| cell.competitor == HOT) else {
        return Ok(());
    };
    let text = std::fs::read(path).map_err(CellError::failed)?;
    let mut keys = text.split(|&byte| byte == b'\n').take(cell.keys.count);
    if keys.any(|key| key.len() > HOT_KEY_BYTES) {
        return unsupported(format!("its keys have at most {HOT_KEY_BYTES} bytes"));
    }
    Ok(())
}

/// What tells a program to do `launch` with the keys `data`.
fn environment(cell: &Cell, launch: &Launch, data: &str) -> Vec<(&'static str, String)> {
    let density = match cell.keys.kind {
        KeyKind::Drawn4 { percent } => f64::from(percent) / 100.0,
        _ => 1.0,
    };
    vec![
        ("YCSB_VARIANT", (launch.variant as u32).to_string()),
        ("DATA", data.to_owned()),
        ("KEY_COUNT", launch.key_count.to_string()),
        ("OP_COUNT", launch.operations.unwrap_or(FEW_OPERATIONS).to_string()),
        ("SCAN_LENGTH", launch.scan_records.to_string()),
        ("PAYLOAD_SIZE", cell.value_bytes.to_string()),
        ("ZIPF", launch.theta.unwrap_or(0.0).to_string()),
        ("DENSITY", density.to_string()),
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
    // LITS needs more bytes for some characters, and 255 are the most.
    if stderr.contains("overlong keys") {
        return unsupported("some key is too long for it");
    }
    let rows = common::rows(stdout, "op")?;
    for &(name, slot) in &launch.rows {
        let row = common::find(&rows, "op", name)?;
        let phase = slot.of(result);
        phase.operations = slot.operations(cell);
        phase.seconds = row.number("time")?;
    }
    // It may go on after what is wanted of it, and does so with other leaves.
    let last = match launch.last_row() {
        Some(name) => common::find(&rows, "op", name)?,
        None => return Err(CellError::failed("nothing is wanted of it")),
    };
    let tree = tree(last)?;
    if tree.leaves > 0 {
        let records = last.number("counted_final_key_count")?;
        // Of records in semi-dense leaves its count is wrong.
        let is_whole = tree.layouts.is_some_and(|layouts| layouts.semi_dense == 0);
        if is_whole && !launch.records().contains(&(records as usize)) {
            return Err(CellError::Failed(format!("it has {records} records at the end")));
        }
        result.records = if is_whole { records as u64 } else { launch.key_count as u64 };
        let inner_bytes = last.number("const_pageSizeInner")?;
        let leaf_bytes = last.number("const_pageSizeLeaf")?;
        let bytes = tree.inner_nodes as f64 * inner_bytes + tree.leaves as f64 * leaf_bytes;
        result.store_bytes = Some(bytes as u64);
        result.tree = Some(tree);
    }
    // Growth of the address space, which is all that the program looks at.
    let grown = stdout.lines().find(|line| line.starts_with("__mem_size"));
    let grown = grown.and_then(|line| line.rsplit(',').next()?.trim().parse().ok());
    let inserts = cell.phases.iter().rposition(|phase| phase.operation.inserts());
    let slot = inserts.or(cell.phases.len().checked_sub(1)).map(Slot::Phase);
    if let (Some(slot), Some(bytes)) = (slot, grown) {
        slot.of(result).memory_bytes = Some(bytes);
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
    use crate::cell::KeySet;
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
    fn scans_between_insertions_and_partitions_are_launches_of_their_own() {
        let mixed = Operation::ScanInsert { insert_percent: 5, max_records: 50 };
        let theta = 0.99;
        let phases = vec![phase(SCAN, Zipf { theta }, 1_000), phase(mixed, Zipf { theta }, 1_000)];
        let cell = Cell { load_count: 4_800, ..cell(5_000, phases) };
        let told = launches(&cell);
        let asked: Vec<_> = told.iter().map(|l| (l.variant as u32, l.key_count)).collect();
        assert_eq!(asked, [(501, 4_800), (5, 4_825)]);
        assert_eq!(told[1].rows, [("ycsb_e", Slot::Phase(1))]);
        assert_eq!(told[1].records(), 4_800..=4_900);
        assert_eq!(told[0].records(), 4_800..=4_800);

        let keys = KeySet { kind: KeyKind::Partitioned8 { records_each: 100 }, ..cell.keys };
        let mut cell = Cell { keys, load_count: 5_000, phases: Vec::new(), ..cell };
        let told = launches(&cell);
        assert_eq!((told[0].variant as u32, told[0].scan_records), (402, 50));
        cell.phases.push(phase(GET, Uniform {}, 100));
        assert!(matches!(plan(&cell), Err(CellError::Unsupported(_))));
    }

    #[test]
    fn keys_too_long_for_hot_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys");
        std::fs::write(&path, format!("a\n{}\n", "b".repeat(256))).unwrap();
        let mut cell = cell(1, Vec::new());
        cell.competitor = HOT.into();
        cell.keys = KeySet { kind: KeyKind::File, path: Some(path), ..cell.keys };
        check_lengths(&cell).unwrap();
        cell.keys.count = 2;
        assert!(matches!(check_lengths(&cell), Err(CellError::Unsupported(_))));
        cell.competitor = PROGRAMS[0].into();
        check_lengths(&cell).unwrap();
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
        assert_eq!(result.phases[0].memory_bytes, Some(46_260_224), "when all are inserted");
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
        // With semi-dense leaves the number says nothing.
        let semi_dense = PRINTED.replace("nodeCount_Dense,", "nodeCount_Dense2,");
        let semi_dense = semi_dense.replace("132, 0, 0, 500000", "132, 7, 0, 500000");
        assert_eq!(read(&semi_dense, ""), Ok(()));
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
