//! The experiments, as data: one file a group, one value an experiment.
//!
//! An experiment makes a claim and lists cases; a case is a store, how it is loaded, and phases.
//! What runs it knows nothing of any one of them. Counts are those of the full size, scaled down
//! for the others; figures of the smoke size say that everything works, and nothing about speed.

mod beyond_memory;
mod counters;
mod durability;
mod in_memory;
mod ladder;
mod leaves;
mod long_keys;
mod pools;
mod products;
mod space;
mod structures;
mod values;
mod ycsb;

use crate::cell::{Distribution, Durability, KeyKind, LoadOrder, Operation, Phase, Place};
use crate::checksum::Spread;

/// How much of everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Size {
    /// Milliseconds a cell, for tests.
    Smoke,
    /// A twentieth: a first impression.
    Small,
    /// What the figures are taken with.
    Full,
}

/// What a report shows of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// Operations a second.
    Rate,
    /// Bytes of the files, over the bytes of the keys and values that were loaded.
    Space,
    /// Instructions an operation, whatever the experiment is about.
    Instructions,
}

impl Figure {
    /// Its unit, in words.
    pub fn unit(self) -> &'static str {
        match self {
            Figure::Rate => "operations/s",
            Figure::Space => "file over records",
            Figure::Instructions => "instructions an operation",
        }
    }

    /// What stands behind a number of it.
    pub fn short_unit(self) -> &'static str {
        match self {
            Figure::Rate => "/s",
            Figure::Space => " x",
            Figure::Instructions => "",
        }
    }
}

/// A question, and how it is answered.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is to show.
    pub claim: &'static str,
    /// What its reports show.
    pub figure: Figure,
    /// Competitors in their order; the others are compared with the first.
    pub competitors: &'static [&'static str],
    /// Phases that a competitor is not asked for because it has no such operation, by the beginnings of
    /// both names. They change no record, so the others are the same work with and without them.
    pub skips: &'static [(&'static str, &'static str)],
    /// Stores and what is done with them.
    pub cases: Vec<Case>,
}

/// One store, loaded and worked on.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its name in reports, unique in its experiment.
    pub name: String,
    /// Name of the key set.
    pub keys: &'static str,
    /// What the keys are.
    pub kind: KeyKind,
    /// Keys that are wanted; a file may have fewer.
    pub count: usize,
    /// Bytes of a value, or on average if there is a spread.
    pub value_bytes: usize,
    /// Lengths of values that differ.
    pub spread: Option<Spread>,
    /// How the store is filled.
    pub load_order: LoadOrder,
    /// How much of the keys is loaded, in percent; the rest is for a phase that inserts it.
    pub load_percent: usize,
    /// What is done. Phases that insert have no number of operations yet: it is the rest of the
    /// keys.
    pub phases: Vec<Phase>,
    /// Where the records live.
    pub place: Place,
    /// Bytes of memory that the store may keep.
    pub memory_limit_bytes: Option<u64>,
    /// What a crash may undo.
    pub durability: Durability,
    /// Whether the process is put into a memory cgroup that follows from the limit, where that is possible: the
    /// system's page cache counts then.
    pub in_memory_group: bool,
    /// If set, each pair has a number of keys of its own; see [`Case::count_in`].
    pub shrink_by: Option<f64>,
    /// Seconds that a process may take.
    pub seconds_limit: u64,
}

/// All experiments in a size.
pub fn all(size: Size) -> Vec<Experiment> {
    vec![
        in_memory::one_thread(size),
        in_memory::against_btreemap(size),
        in_memory::two_threads(size),
        in_memory::two_threads_insert(size),
        beyond_memory::cached(size),
        beyond_memory::out_of_memory(size),
        beyond_memory::bulk_and_scan(size),
        space::space(size),
        pools::in_memory(size),
        pools::ratios(size),
        pools::bake_off(size),
        ladder::ladder(size),
        ladder::fan_out(size),
        leaves::fingerprint(size),
        leaves::density(size),
        leaves::partitions(size),
        leaves::distribution(size),
        leaves::adaptive(size),
        leaves::beyond_memory(size),
        leaves::ycsb_e(size),
        structures::structures(size),
        structures::skew(size),
        products::cached(size),
        products::durable_commits(size),
        products::space(size),
        products::put_latency(size),
        products::large_values(size),
        values::rates(size),
        values::space(size),
        long_keys::rates(size),
        long_keys::space(size),
        counters::one_counter(size),
        ycsb::core_workloads(size),
        durability::log_cost(size),
        durability::beside_a_checkpoint(size),
        products::updates_beyond_memory(size),
    ]
}

/// The experiment `name` in a size. Errors: a sentence that lists the known ones.
pub fn find(name: &str, size: Size) -> Result<Experiment, String> {
    let experiments = all(size);
    let known: Vec<&str> = experiments.iter().map(|experiment| experiment.name).collect();
    let words = format!("there is no experiment `{name}`; there are {}", known.join(", "));
    experiments.into_iter().find(|experiment| experiment.name == name).ok_or(words)
}

impl Experiment {
    /// Whether `competitor` is asked for `phase`.
    pub fn asks(&self, competitor: &str, phase: &Phase) -> bool {
        let is_skipped = |(who, what): &(&str, &str)| {
            competitor.starts_with(who) && phase.name.starts_with(what)
        };
        !self.skips.iter().any(is_skipped)
    }
}

impl Case {
    /// How many of `count` keys the given pair has, from 1 on: all of them, or, if the case shrinks by
    /// `b`, `count * b^-R`, where the `R` of however many pairs lie evenly in [0, 1).
    pub fn count_in(&self, pair: usize, count: usize) -> usize {
        let Some(base) = self.shrink_by else { return count };
        // The binary digits of the pair's number behind the point, the last one first (van der Corput).
        let reversed = (pair as u32).wrapping_sub(1).reverse_bits();
        let share = base.powf(-f64::from(reversed) / 2f64.powi(32));
        ((count as f64 * share) as usize).max(1)
    }

    /// How many of `count` keys are loaded.
    pub fn load_count(&self, count: usize) -> usize {
        count - count * (100 - self.load_percent) / 100
    }
}

impl Size {
    /// A number of records or operations of the full size, in this one.
    pub fn scale(self, full: usize) -> usize {
        match self {
            Size::Smoke => (full / 1000).max(500),
            Size::Small => (full / 20).max(500),
            Size::Full => full,
        }
    }

    /// A memory limit of the full size, in this one; large enough to open a store with.
    fn limit(self, full_bytes: u64) -> u64 {
        let smallest = hedgerow::smallest_memory_limit_bytes(hedgerow::DEFAULT_PAGE_BYTES);
        match self {
            // Some frames more than the fewest.
            Size::Smoke => smallest + (64 << 10),
            Size::Small => (full_bytes / 20).max(2 * smallest),
            Size::Full => full_bytes,
        }
    }

    /// The time that a cell may take, which covers loading.
    fn seconds(self, full: u64) -> u64 {
        if self == Size::Full { full } else { 120 }
    }
}

/// A phase of one thread; the methods below change it.
fn phase(name: &str, operation: Operation, operations: usize) -> Phase {
    Phase {
        name: name.to_owned(),
        operation,
        distribution: Distribution::Uniform {},
        operations,
        threads: 1,
        seed: 1,
        latency: false,
        seconds: None,
    }
}

impl Phase {
    fn zipf(self) -> Phase {
        self.skewed(0.99)
    }

    fn skewed(mut self, theta: f64) -> Phase {
        self.distribution = Distribution::Zipf { theta };
        self
    }

    fn sequential(mut self) -> Phase {
        self.distribution = Distribution::Sequential {};
        self
    }

    /// Goes on for so many seconds of the full size, whatever the number of operations, and times each call.
    fn going_on(mut self, size: Size, full_seconds: f64) -> Phase {
        self.latency = true;
        self.seconds = Some(match size {
            Size::Smoke => 0.05,
            Size::Small => full_seconds / 5.0,
            Size::Full => full_seconds,
        });
        self
    }

    /// More threads, which the name tells.
    fn threads(mut self, threads: usize) -> Phase {
        self.name = format!("{} @{threads}", self.name);
        self.threads = threads;
        self
    }
}

const GET: Operation = Operation::Get {};
const INSERT: Operation = Operation::InsertLast {};
const SETTLE: Operation = Operation::Settle {};
const SCAN_1_50: Operation = Operation::Scan { min_records: 1, max_records: 50 };
const SCAN_100: Operation = Operation::Scan { min_records: 100, max_records: 100 };

/// The key sets of "B-Trees Are Back", with numbers of keys that fit into a gigabyte.
const PAPER_SETS: [(&str, KeyKind, usize); 4] = [
    ("dense", KeyKind::Dense4, 5_000_000),
    ("sparse", KeyKind::Sparse4, 5_000_000),
    ("urls", KeyKind::File, 2_000_000),
    ("wiki", KeyKind::File, 2_000_000),
];

/// What a key of each of them has on average.
const MEAN_KEY_BYTES: [u64; 4] = [4, 4, 65, 18];

/// A case of the paper's: in memory, 8-byte values.
fn paper_case(
    size: Size,
    (keys, kind, count): (&'static str, KeyKind, usize),
    load_percent: usize,
    phases: Vec<Phase>,
) -> Case {
    Case {
        name: keys.to_owned(),
        keys,
        kind,
        count: size.scale(count),
        value_bytes: 8,
        spread: None,
        load_order: LoadOrder::Shuffled,
        load_percent,
        phases,
        place: Place::Memory,
        memory_limit_bytes: None,
        durability: Durability::None,
        in_memory_group: false,
        shrink_by: None,
        seconds_limit: size.seconds(180),
    }
}

/// The paper's operations, on nine tenths of the keys.
fn paper_phases(size: Size) -> Vec<Phase> {
    let operations = size.scale(1_000_000);
    vec![
        phase("insert last 10 %", INSERT, 0),
        phase("get zipf", GET, operations).zipf(),
        phase("scan 1-50 zipf", SCAN_1_50, operations).zipf(),
    ]
}

/// The key sets that are read from files.
pub const KEY_FILES: [&str; 2] = ["urls", "wiki"];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique() {
        for size in [Size::Smoke, Size::Small, Size::Full] {
            let experiments = all(size);
            let names: BTreeSet<_> = experiments.iter().map(|e| e.name).collect();
            assert_eq!(names.len(), experiments.len());
            for experiment in &experiments {
                let cases: BTreeSet<_> = experiment.cases.iter().map(|c| &c.name).collect();
                assert_eq!(cases.len(), experiment.cases.len(), "{}", experiment.name);
                for case in &experiment.cases {
                    let phases: BTreeSet<_> = case.phases.iter().map(|p| &p.name).collect();
                    let what = format!("{} {}", experiment.name, case.name);
                    assert_eq!(phases.len(), case.phases.len(), "{what}");
                    for (who, skipped) in experiment.skips {
                        let skips = case.phases.iter().filter(|p| p.name.starts_with(skipped));
                        assert!(skips.clone().count() > 0, "{what}: {who} skips nothing");
                        assert!(skips.clone().all(|p| !experiment.asks(who, p)), "{what}");
                        assert!(experiment.asks("hedgerow", &case.phases[0]), "{what}");
                    }
                    let is_file = case.kind == KeyKind::File;
                    assert_eq!(is_file, KEY_FILES.contains(&case.keys), "{what}");
                }
            }
        }
    }

    #[test]
    fn sizes_of_pairs_lie_evenly() {
        let mut case = find("fan-out", Size::Smoke).unwrap().cases[0].clone();
        let counts: Vec<usize> = (1..=8).map(|pair| case.count_in(pair, 1 << 16)).collect();
        // 16^-(k/8) is 2^-(k/2).
        let sizes = [65_536, 16_384, 32_768, 8_192, 46_340, 11_585, 23_170, 5_792];
        assert_eq!(counts, sizes);
        assert_eq!(case.count_in(2, 1), 1, "never none");
        case.shrink_by = None;
        assert!((1..=8).all(|pair| case.count_in(pair, 1 << 16) == 1 << 16));
    }

    #[test]
    fn an_unknown_name_is_told_the_known_ones() {
        let words = find("speed", Size::Smoke).unwrap_err();
        assert!(words.contains("`speed`"), "{words}");
        for experiment in all(Size::Smoke) {
            assert!(words.contains(experiment.name), "{words}");
        }
    }
}
