//! The cell protocol: one measurement is one process, told by one JSON file, answering with one
//! JSON object.
//!
//! A program that takes part is started as `PROGRAM cell CELL.json` and prints one [`CellResult`]
//! on standard output. Words go to standard error. Its exit code says how it went:
//!
//! | code | meaning | standard output |
//! |---|---|---|
//! | 0 | measured | a [`CellResult`] |
//! | [`EXIT_UNSUPPORTED`] | this competitor cannot do such a cell, which is no failure; standard error says why | nothing |
//! | other | failed; standard error says why | nothing |
//!
//! `PROGRAM competitors` prints the names of the competitors that it has, one a line.
//!
//! What a program does with a cell:
//!
//! 1. takes the first [`KeySet::count`] keys in their order in the file (or makes them, see
//!    [`KeyKind`]), and holds them as one array of separately allocated byte strings, so that
//!    looking at a key costs one cache miss everywhere;
//! 2. creates the store in [`Cell::directory`], which exists and is empty, or in memory;
//! 3. loads the first [`Cell::load_count`] keys in the order of [`LoadOrder`]: this is
//!    [`CellResult::load`];
//! 4. runs the phases one after the other. The accesses of a phase are drawn before its clock
//!    starts. Its clock runs from the moment when all its threads are let go to the moment when the
//!    last one has ended.
//!
//! Every value that a phase asks for is read to its end, and is summed into the phase's checksum
//! ([`crate::checksum`]); the sum does not depend on the order, so competitors that did the same
//! work have the same one. `hedgerow_bench::harness::run` does all of this for a store that runs in
//! the program's own process.
//!
//! Plain data: `Send + Sync`. Unknown fields are refused, so that a program never measures
//! something else than it was asked to; a cell gets more fields that are always there only together with a new
//! [`PROTOCOL`], optional ones and more kinds of keys and operations without: an older program refuses them. An answer may get optional ones, left out where nothing is known: a runner understands
//! programs older than itself, but refuses a newer one that fills in what it does not know.

use crate::checksum::{Checksum, Spread};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Version of the protocol. A program refuses a cell of another one.
pub const PROTOCOL: u32 = 1;

/// Exit code of a program whose competitor cannot do such a cell.
pub const EXIT_UNSUPPORTED: u8 = 3;

/// The longest that a phase may go on for.
const MOST_SECONDS: f64 = 86_400.0;

/// One measurement: a store, how it is loaded, and what is done with it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cell {
    /// [`PROTOCOL`] of whoever wrote the cell.
    pub protocol: u32,
    /// Which competitor of the program is to run.
    pub competitor: String,
    /// The keys.
    pub keys: KeySet,
    /// Bytes of every value, or on average if there is a spread; see [`crate::checksum::Values`].
    pub value_bytes: usize,
    /// Lengths of values that differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<Spread>,
    /// How the store is filled before the phases.
    pub load_order: LoadOrder,
    /// How many of the keys are loaded; the rest is for [`Operation::InsertLast`].
    pub load_count: usize,
    /// What is done, in this order.
    pub phases: Vec<Phase>,
    /// Where the records live.
    pub place: Place,
    /// Bytes of memory that the store may keep. Without it: as much as the records need.
    pub memory_limit_bytes: Option<u64>,
    /// What a crash may undo of the changes of the phases. Loading is at most `Buffered`.
    #[serde(default, skip_serializing_if = "Durability::is_none")]
    pub durability: Durability,
    /// A memory cgroup, which the program joins when it has the keys, before it makes the store: the system's page
    /// cache of the store's files counts there, too. Whoever wrote the cell removes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_group: Option<PathBuf>,
    /// An empty directory for the store's files. Whoever wrote the cell removes it.
    pub directory: PathBuf,
    /// Bytes of a page; without it the competitor's default. Competitors without such a choice
    /// ignore it.
    pub page_bytes: Option<usize>,
    /// Seconds after which whoever started the program kills it.
    pub seconds_limit: u64,
}

/// What a crash may undo.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// Everything since the store last wrote its files of its own accord; no log is kept where it can be left out.
    #[default]
    None,
    /// The last changes: the store logs or writes them as it does when nobody waits for the disk.
    Buffered,
    /// Nothing that was done: a change is on the disk when its call returns.
    Sync,
}

impl Durability {
    fn is_none(&self) -> bool {
        *self == Durability::None
    }
}

/// Where keys come from, and how many there are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeySet {
    /// The set's name in reports: `urls`, `dense`.
    pub name: String,
    /// What the keys are.
    pub kind: KeyKind,
    /// Number of keys.
    pub count: usize,
    /// The shuffled keys of [`KeyKind::File`], one a line, at least `count` of them.
    pub path: Option<PathBuf>,
}

/// What keys are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyKind {
    /// Lines of a file, without the newline.
    File,
    /// The numbers `0..count`, shuffled, as 4 bytes, the most significant first.
    Dense4,
    /// Different random numbers of 32 bits, as 4 bytes, the most significant first.
    Sparse4,
    /// Different random numbers of 64 bits, as 8 bytes, the most significant first.
    Random8,
    /// Different numbers drawn from `0..count * 100 / percent`, as 4 bytes, the most significant first.
    Drawn4 {
        /// The density of the keys: how many of a hundred numbers are one.
        percent: u32,
    },
    /// Numbers of 64 bits, as 8 bytes, the most significant first: 32 bits of a partition, drawn anew for
    /// each key, and how many keys it had before. They stay in this order.
    Partitioned8 {
        /// Records a partition, on average; at least one partition there is.
        records_each: u32,
    },
    /// Different random numbers of 64 bits, the most significant byte first, and a filler that all have.
    Long {
        /// Bytes of a key, at least 8.
        bytes: u32,
        /// Whether the filler comes first, so that keys differ in their last bytes alone.
        alike: bool,
    },
}

impl KeyKind {
    /// Bytes of a key, if all have as many.
    pub fn key_bytes(self) -> Option<u64> {
        match self {
            KeyKind::File => None,
            KeyKind::Dense4 | KeyKind::Sparse4 | KeyKind::Drawn4 { .. } => Some(4),
            KeyKind::Random8 | KeyKind::Partitioned8 { .. } => Some(8),
            KeyKind::Long { bytes, .. } => Some(u64::from(bytes)),
        }
    }

    /// Says what in the kind makes no sense for `count` keys.
    fn check(self, count: usize) -> Result<(), String> {
        match self {
            KeyKind::Drawn4 { percent } if !(1..=100).contains(&percent) => {
                Err(format!("a density of {percent} percent"))
            }
            KeyKind::Drawn4 { percent }
                if count as u64 * 100 / u64::from(percent) > u64::from(u32::MAX) =>
            {
                Err(format!(
                    "{count} keys of a density of {percent} percent need more than 32 bits"
                ))
            }
            KeyKind::Partitioned8 { records_each: 0 } => Err("partitions without records".into()),
            KeyKind::Long { bytes: 0..8, .. } => Err("keys shorter than their numbers".into()),
            _ => Ok(()),
        }
    }
}

/// How a store is filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoadOrder {
    /// Inserted one by one in the order of the keys, which is random but for
    /// [`KeyKind::Partitioned8`].
    Shuffled,
    /// Inserted one by one in ascending order.
    Ascending,
    /// Handed over in ascending order all at once, where the competitor has such a call; else as
    /// `Ascending`. In files it should be durable at the end.
    Bulk,
}

/// Where records live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// In memory alone. A competitor that has only files may use one, with a cache that holds
    /// everything.
    Memory,
    /// In files in [`Cell::directory`].
    File,
}

/// One kind of work, timed as a whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    /// The phase's name in reports, unique in its cell: `get zipf`.
    pub name: String,
    /// What is done.
    pub operation: Operation,
    /// Which records it is done to. Operations that have an order of their own say so and ignore
    /// it.
    pub distribution: Distribution,
    /// How many operations, all threads together. Operations that know their number say so and
    /// ignore it.
    pub operations: usize,
    /// Threads that share the operations.
    pub threads: usize,
    /// What the accesses are drawn from.
    pub seed: u64,
    /// Whether each call is timed by itself, which costs some 50 ns a call.
    pub latency: bool,
    /// If set, each thread does its accesses over and over until so many seconds are over, instead of once. Calls
    /// are timed then, and there is no checksum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
}

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Operation {
    /// Puts the next keys that are not loaded yet, in the order of the keys. Ignores the
    /// distribution.
    InsertLast {},
    /// Gets one record.
    Get {},
    /// Gets `group` records in one call, where the competitor has such a call. One record is one
    /// operation.
    GetMany {
        /// Records a call.
        group: usize,
    },
    /// Reads records in ascending order from a key on, it included. One scan is one operation.
    Scan {
        /// The number of records is drawn from here..
        min_records: usize,
        /// ..to here, both included.
        max_records: usize,
    },
    /// Reads all records in order, once. One record is one operation; ignores distribution,
    /// operations and threads.
    ScanAll {},
    /// Puts a new value of the same length to a record that is there.
    Overwrite {},
    /// As `Overwrite`, over and over for as long as a checkpoint takes that begins with the phase. Calls are timed.
    OverwriteBesideCheckpoint {},
    /// Removes records: of each hundred keys, in the order of the keys, the first `percent`.
    /// Ignores distribution and operations.
    Delete {
        /// From 1 to 100.
        percent: usize,
    },
    /// Gets a record or overwrites it.
    Mixed {
        /// How many of a hundred operations are gets, on average.
        get_percent: usize,
    },
    /// Scans of 1 to `max_records` records, each of them as [`Operation::Scan`], and between them puts of
    /// the next keys that are not loaded yet. Scans begin at records that were there before the phase.
    ScanInsert {
        /// How many of a hundred operations are puts, rounded down.
        insert_percent: usize,
        /// Most records of a scan.
        max_records: usize,
    },
    /// Gets records, and puts between them the next keys that are not loaded yet. With `Latest`, what the same thread has put
    /// since counts as well; what other threads put does not.
    GetInsert {
        /// How many of a hundred operations are puts, rounded down.
        insert_percent: usize,
    },
    /// Gets a record, and in a part of the operations then overwrites it. Others may change it between the two.
    ReadModifyWrite {
        /// How many of a hundred operations are gets alone, on average.
        get_percent: usize,
    },
    /// Adds 1 to the integer of a record, in one step; values have 8 bytes. No addition may be lost: the sum of all integers is
    /// compared with the one before.
    FetchAdd {},
    /// Brings the file up to date and gives back what space it can (checkpoint, compaction,
    /// vacuum); one operation. Ignores distribution, operations and threads.
    Settle {},
    /// Asks for nothing for so long: what a store does by itself goes on. One operation. Ignores the rest, too.
    Rest {
        /// How long, in seconds.
        seconds: u64,
    },
}

impl Operation {
    /// Whether it is what becomes of the store that counts, and not how fast it is.
    pub fn is_upkeep(self) -> bool {
        matches!(self, Operation::Settle {} | Operation::Rest { .. })
    }
}

/// How the record of an access is chosen among those that have been loaded or inserted so far, `n`
/// of them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Distribution {
    /// All alike.
    Uniform {},
    /// The k-th key of the set with a probability proportional to `1 / k^theta`. The order of the
    /// keys is random, so frequent keys are no neighbours.
    Zipf {
        /// Larger is more skewed; 0.99 as in YCSB.
        theta: f64,
    },
    /// A part of the records gets most of the accesses.
    HotSet {
        /// The hot part, in percent of the records: the first keys of the set.
        records_percent: f64,
        /// Its accesses, in percent.
        accesses_percent: f64,
    },
    /// As `Zipf`, counted from the last key that was inserted.
    Latest {
        /// See `Zipf`.
        theta: f64,
    },
    /// One after the other in the order of the keys; each thread has a part of its own.
    Sequential {},
}

/// What a cell gave.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellResult {
    /// [`PROTOCOL`] of the program.
    pub protocol: u32,
    /// Loading. Its checksum is `None`.
    pub load: PhaseResult,
    /// One for each phase of the cell, in their order.
    pub phases: Vec<PhaseResult>,
    /// Records at the end: counted by reading them, or as many as were loaded if they are in files and
    /// no phase inserts or deletes.
    pub records: u64,
    /// Bytes of pages or nodes at the end, by the competitor's own count; divided by `records` the
    /// bytes a record.
    pub store_bytes: Option<u64>,
    /// What the tree looks like at the end, from a competitor that is one and counts its nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<TreeShape>,
    /// Versions and settings that a reader of the figures wants to know.
    #[serde(default)]
    pub facts: BTreeMap<String, String>,
}

/// Nodes of a tree with all records in its leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TreeShape {
    /// Levels, that of the leaves included, where the competitor tells.
    pub height: Option<u32>,
    /// Nodes that hold records.
    pub leaves: u64,
    /// Nodes that hold children.
    pub inner_nodes: u64,
    /// The leaves by layout, where the competitor has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layouts: Option<LeafCounts>,
}

/// Leaves of a tree by the layouts of "B-Trees Are Back".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeafCounts {
    /// Sorted, searched by heads and hints.
    pub comparison: u64,
    /// Unsorted, searched by one-byte hashes.
    pub fingerprint: u64,
    /// A slot for each number, values of any size.
    pub semi_dense: u64,
    /// An array of values of one size.
    pub fully_dense: u64,
}

impl LeafCounts {
    /// Each layout's share of all leaves in percent, by its name in reports; `None` without leaves.
    pub fn shares(&self) -> Option<[(&'static str, f64); 4]> {
        let counts = [
            ("comparison leaves", self.comparison),
            ("fingerprint leaves", self.fingerprint),
            ("semi-dense leaves", self.semi_dense),
            ("fully dense leaves", self.fully_dense),
        ];
        let all: u64 = counts.iter().map(|(_, count)| count).sum();
        (all > 0).then(|| counts.map(|(name, count)| (name, 100.0 * count as f64 / all as f64)))
    }
}

impl TreeShape {
    /// Children an inner node, on average; `None` if there is no inner node.
    pub fn fan_out(&self) -> Option<f64> {
        // Every node but the root is the child of one other.
        let children = (self.leaves + self.inner_nodes).checked_sub(1)?;
        (self.inner_nodes > 0).then(|| children as f64 / self.inner_nodes as f64)
    }

    /// Records a leaf, on average, if there are `records`; `None` if there is no leaf.
    pub fn records_a_leaf(&self, records: u64) -> Option<f64> {
        (self.leaves > 0).then(|| records as f64 / self.leaves as f64)
    }
}

/// What a phase gave. What is not known is `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhaseResult {
    /// Operations that were done.
    pub operations: u64,
    /// Seconds from the start of the first to the end of the last.
    pub seconds: f64,
    /// Sum of all values that were read; competitors with equal work have equal ones. `None` from a
    /// program that does other work (it draws its own accesses), and where it is a matter of luck.
    pub checksum: Option<Checksum>,
    /// Records that were found, of gets and scans.
    pub found: Option<u64>,
    /// Seconds of processor time that the process used meanwhile, its background threads included.
    pub cpu_seconds: Option<f64>,
    /// Instructions of the calls alone, where they were counted ([`crate::instructions`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<u64>,
    /// How long single calls took, if the phase asked for it.
    pub latency: Option<Latency>,
    /// Memory of the process at the end of the phase beyond what it had before the store was made. At
    /// the end of loading that is the store; later the harness's accesses may be in it, some bytes each.
    pub memory_bytes: Option<u64>,
    /// Space that the files take on disk at the end of the phase, holes not counted.
    pub file_bytes: Option<u64>,
    /// Bytes that the process read from the disk meanwhile.
    pub device_read_bytes: Option<u64>,
    /// Bytes that the process wrote to the disk meanwhile, without those that it took back by deleting or
    /// shortening files before the system had written them.
    pub device_written_bytes: Option<u64>,
    /// Pages that the competitor read meanwhile, by its own count.
    pub page_reads: Option<u64>,
    /// Pages that the competitor wrote meanwhile, by its own count.
    pub page_writes: Option<u64>,
}

/// How long single calls took, in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Latency {
    /// Half of them took at most this.
    pub p50_us: f64,
    /// 99 of a hundred.
    pub p99_us: f64,
    /// 999 of a thousand.
    pub p999_us: f64,
    /// The longest.
    pub max_us: f64,
    /// All of them: in ascending order how long calls took, the upper end of a step of a twelfth, and how many calls
    /// were in that step and none below.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub histogram: Vec<(f64, u64)>,
}

/// Why there is no result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "kind", content = "why", rename_all = "snake_case")]
pub enum CellError {
    /// The competitor is not on this machine, or nobody said where it is.
    #[error("not installed: {0}")]
    NotInstalled(String),
    /// The competitor has no such operation or place. Not a failure.
    #[error("unsupported: {0}")]
    Unsupported(String),
    /// It took longer than the cell allows, and was killed with all that it had started.
    #[error("killed after {0} s")]
    TimedOut(u64),
    /// It failed.
    #[error("{0}")]
    Failed(String),
}

impl CellError {
    /// A failure, from anything that has words.
    pub fn failed(words: impl std::fmt::Display) -> CellError {
        CellError::Failed(words.to_string())
    }

    /// Whether this is the competitor's limit or absence, not something gone wrong.
    pub fn is_absence(&self) -> bool {
        matches!(self, CellError::NotInstalled(_) | CellError::Unsupported(_))
    }
}

impl Cell {
    /// Reads a cell from its file and checks what can be checked without a store.
    ///
    /// Errors: `Failed` if the file cannot be read, is no cell, is of another [`PROTOCOL`], or asks
    /// for what cannot be (no threads, more loaded keys than there are, ...).
    pub fn read(path: &Path) -> Result<Cell, CellError> {
        let what = |error: &dyn std::fmt::Display| {
            CellError::Failed(format!("cannot read the cell {}: {error}", path.display()))
        };
        let text = std::fs::read_to_string(path).map_err(|error| what(&error))?;
        let protocol = serde_json::from_str::<serde_json::Value>(&text)
            .map_err(|error| what(&error))?
            .get("protocol")
            .and_then(serde_json::Value::as_u64);
        if protocol != Some(u64::from(PROTOCOL)) {
            let found = protocol.map_or("none".to_owned(), |found| found.to_string());
            return Err(what(&format!("its protocol is {found}, this program's is {PROTOCOL}")));
        }
        let cell: Cell = serde_json::from_str(&text).map_err(|error| what(&error))?;
        cell.check().map_err(|error| what(&error))?;
        Ok(cell)
    }

    /// Writes the cell to a file that [`Cell::read`] reads. Errors: `Failed` if that cannot be
    /// done.
    pub fn write(&self, path: &Path) -> Result<(), CellError> {
        let text = serde_json::to_string_pretty(self).map_err(CellError::failed)?;
        std::fs::write(path, text).map_err(|error| {
            CellError::Failed(format!("cannot write the cell {}: {error}", path.display()))
        })
    }

    /// Says what in the cell contradicts itself.
    pub fn check(&self) -> Result<(), String> {
        if self.keys.count == 0 || self.load_count == 0 {
            return Err("there are no keys to load".into());
        }
        if self.load_count > self.keys.count {
            return Err(format!("{} of {} keys to load", self.load_count, self.keys.count));
        }
        if u32::try_from(self.keys.count).is_err() {
            return Err(format!("{} keys are more than 2^32 - 1", self.keys.count));
        }
        if self.keys.kind == KeyKind::File && self.keys.path.is_none() {
            return Err(format!("the key set {} has no file", self.keys.name));
        }
        self.keys.kind.check(self.keys.count)?;
        self.spread.map_or(Ok(()), |spread| spread.check())?;
        let mut present = self.load_count;
        for phase in &self.phases {
            let wrong = |what: &str| Err(format!("phase `{}`: {what}", phase.name));
            if phase.threads == 0 {
                return wrong("no threads");
            }
            present += phase.insertions();
            if present > self.keys.count {
                return wrong("more records to insert than keys are left");
            }
            phase.check_seconds().or_else(&wrong)?;
            if phase.operation == (Operation::OverwriteBesideCheckpoint {}) && !phase.latency {
                return wrong("calls beside a checkpoint are timed");
            }
            match phase.operation {
                Operation::GetMany { group: 0 } => return wrong("groups of none"),
                Operation::Scan { min_records, max_records }
                    if min_records == 0 || min_records > max_records =>
                {
                    return wrong("the number of records of a scan has no range");
                }
                Operation::ScanInsert { max_records: 0, .. } => {
                    return wrong("scans of no records");
                }
                Operation::ScanInsert { insert_percent, .. }
                | Operation::GetInsert { insert_percent }
                    if insert_percent > 100 =>
                {
                    return wrong("more than a hundred percent of insertions");
                }
                Operation::Delete { percent } if !(1..=100).contains(&percent) => {
                    return wrong("the share to delete is not from 1 to 100 percent");
                }
                Operation::Mixed { get_percent } | Operation::ReadModifyWrite { get_percent }
                    if get_percent > 100 =>
                {
                    return wrong("more than a hundred percent of gets");
                }
                _ => {}
            }
            phase.distribution.check().or_else(|what| wrong(&what))?;
        }
        Ok(())
    }
}

impl Operation {
    /// Whether it adds records.
    pub fn inserts(&self) -> bool {
        use Operation::{GetInsert, InsertLast, ScanInsert};
        matches!(self, InsertLast {} | ScanInsert { .. } | GetInsert { .. })
    }
}

impl Phase {
    /// Says what about going on for some time makes no sense.
    fn check_seconds(&self) -> Result<(), &'static str> {
        if self.operation == (Operation::OverwriteBesideCheckpoint {})
            && self.operations < self.threads
        {
            return Err("a thread has nothing to do over and over");
        }
        let Some(seconds) = self.seconds else { return Ok(()) };
        if !matches!(self.operation, Operation::Get {} | Operation::Overwrite {}) {
            return Err("only gets and overwrites can go on for some time");
        }
        if !(seconds > 0.0 && seconds <= MOST_SECONDS) {
            return Err("some time is more than none, and at most a day");
        }
        if !self.latency {
            return Err("calls that go on for some time are timed");
        }
        if self.operations < self.threads {
            return Err("a thread has nothing to do over and over");
        }
        Ok(())
    }

    /// How many records it adds.
    pub fn insertions(&self) -> usize {
        match self.operation {
            Operation::InsertLast {} => self.operations,
            Operation::ScanInsert { insert_percent, .. }
            | Operation::GetInsert { insert_percent } => self.operations * insert_percent / 100,
            _ => 0,
        }
    }
}

impl Distribution {
    /// Says what in the distribution makes no sense.
    fn check(&self) -> Result<(), String> {
        let is_share = |percent: f64| percent > 0.0 && percent <= 100.0;
        match *self {
            Distribution::Zipf { theta } | Distribution::Latest { theta }
                if !(theta > 0.0 && theta <= 5.0) =>
            {
                Err(format!("theta is {theta}, not in 0 to 5; 0 is the uniform distribution"))
            }
            Distribution::HotSet { records_percent, accesses_percent }
                if !is_share(records_percent) || !is_share(accesses_percent) =>
            {
                Err("a share of the hot set is not above 0 and up to 100 percent".into())
            }
            _ => Ok(()),
        }
    }
}

impl PhaseResult {
    /// Operations a second; zero if no time was taken.
    pub fn rate(&self) -> f64 {
        if self.seconds > 0.0 { self.operations as f64 / self.seconds } else { 0.0 }
    }
}
