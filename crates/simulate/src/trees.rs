//! Updates of the engine's own tree, in a database in memory: hot leaves, and what Contention Split makes of them.
//!
//! After "Contention and Space Management in B-Trees" (CIDR 2021), section 5 and its appendices. Each run loads a database of its own at
//! native speed, and begins with a span that is not counted, in which leaves are split.

use crate::figure::{Budget, Figure, Point, Sample, Series};
use crate::latches::one_leaf;
use hedgerow::{ContentionSplit, Database, Keyspace, Options};
use hedgerow_bench::latches::{blocking, spinning};
use hedgerow_sim::{Machine, cycles, run, work, work_until};
use hedgerow_sync::primitive::atomic::AtomicU64;
use hedgerow_sync::primitive::random::SplitMix64;
use hedgerow_sync::primitive::{Arc, thread};

/// When all threads are there, in cycles.
const READY: u64 = 500_000;
/// The work of a thread between two operations, in cycles.
const THINKING: u64 = 500;
/// Records that are loaded.
pub const RECORDS: u64 = 20_000;
/// Bytes of a value.
const VALUE_BYTES: usize = 50;
/// The first of the keys that are updated, in the middle of the tree.
const FIRST_HOT: u64 = RECORDS / 2;

/// How the engine is set.
type Split = Option<ContentionSplit>;

/// The keyspace without Contention Split, and with what is the default.
fn both() -> [(&'static str, Split); 2] {
    [("without Contention Split", None), ("with it", Some(ContentionSplit::default()))]
}

struct Spans {
    /// Before what is counted.
    warm: u64,
    counted: u64,
}

/// For a tree that has done splitting when it is counted.
const SETTLED: Spans = Spans { warm: 40_000_000, counted: 4_000_000 };
/// For a tree that goes on splitting.
const MOVING: Spans = Spans { warm: 8_000_000, counted: 8_000_000 };

/// What is loaded.
struct Contents {
    /// Bytes of a page; the engine's default if zero.
    page_bytes: usize,
    records: u64,
    /// The key of a record by its number, in ascending order.
    key: fn(u64) -> Vec<u8>,
}

const NUMBERS: Contents =
    Contents { page_bytes: 0, records: RECORDS, key: |number| number.to_be_bytes().to_vec() };

fn database(contents: &Contents, split: Split) -> (Database, Keyspace) {
    let mut options = Options::new().memory_limit_bytes(64 << 20);
    if contents.page_bytes > 0 {
        options = options.page_bytes(contents.page_bytes);
    }
    let db = options.in_memory().expect("there is memory for it");
    let keyspace = db.keyspace("hot").expect("it is new").with_contention_split(split);
    let records = (0..contents.records).map(|n| ((contents.key)(n), [1; VALUE_BYTES]));
    keyspace.bulk_load(records, 100).expect("they are in order");
    (db, keyspace)
}

/// A database in memory with numbered records, of 8 bytes and of the value's.
pub fn numbers() -> (Database, Keyspace) {
    database(&NUMBERS, None)
}

/// One operation of a thread: the key that it is on, and whether it only reads.
type Pick = dyn Fn(u32, &mut SplitMix64, u64) -> (u64, bool) + Sync;

/// What each thread has done in the counted span; events, digest, and splits.
fn updates(
    machine: &Machine,
    split: Split,
    spans: &Spans,
    pick: &'static (impl Fn(u32, &mut SplitMix64, u64) -> (u64, bool) + Sync),
) -> (Vec<u64>, Sample) {
    updates_of(&NUMBERS, machine, split, spans, pick)
}

/// The same of other records.
fn updates_of(
    contents: &Contents,
    machine: &Machine,
    split: Split,
    spans: &Spans,
    pick: &'static (impl Fn(u32, &mut SplitMix64, u64) -> (u64, bool) + Sync),
) -> (Vec<u64>, Sample) {
    let (db, keyspace) = database(contents, split);
    let key_of = contents.key;
    let (from, to) = (READY + spans.warm, READY + spans.warm + spans.counted);
    let contexts = machine.contexts;
    let (done, record) = run(machine, move || {
        let keyspace = Arc::new(keyspace);
        let start = |thread: u32| {
            let keyspace = Arc::clone(&keyspace);
            let pick: &Pick = pick;
            thread::spawn_named("updater", move || {
                let mut random = SplitMix64::new(u64::from(thread) + 1);
                work_until(READY);
                let mut done = 0_u64;
                loop {
                    let now = cycles().unwrap_or(u64::MAX);
                    if now >= to {
                        return done;
                    }
                    let (key, only_reads) = pick(thread, &mut random, now - READY);
                    let key = key_of(key);
                    if only_reads {
                        keyspace.contains_key(&key).map(drop)
                    } else {
                        keyspace.put(&key, &[2; VALUE_BYTES]).map(drop)
                    }
                    .expect("a database in memory with room");
                    done += u64::from(now >= from);
                    work(THINKING);
                }
            })
            .expect("a virtual thread")
        };
        let threads: Vec<_> = (0..contexts).map(start).collect();
        threads.into_iter().map(|thread| thread.join().expect("it does not panic")).collect()
    })
    .unwrap_or_else(|failure| panic!("{failure}"));
    let done: Vec<u64> = done;
    let seconds = spans.counted as f64 / f64::from(machine.mhz) / 1e6;
    let value = done.iter().sum::<u64>() as f64 / seconds / 1e6;
    let splits = db.stats().expect("it is open").contention.splits;
    let sample = Sample { splits, ..Sample::new(machine.seed, value, &record) };
    (done, sample)
}

fn figure(x: &'static str, series: Vec<Series>, note: &'static str) -> Figure {
    let unit = "million operations a second";
    Figure { machine: "rome1s", x, unit, is_logarithmic: true, series, note }
}

const CORES: [u32; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

fn over_cores(
    budget: &Budget,
    spans: &Spans,
    pick: &'static (impl Fn(u32, &mut SplitMix64, u64) -> (u64, bool) + Sync),
) -> Vec<Series> {
    let of = |(name, split): (&str, Split)| {
        let point = |&cores: &u32| {
            let machine = Machine::ROME1S.with_contexts(cores);
            Point::measure(f64::from(cores), budget, |seed| {
                updates(&machine.clone().with_seed(seed), split, spans, pick).1
            })
        };
        let points = budget.cores(&CORES).iter().map(point).collect();
        Series { name: name.to_owned(), points }
    };
    both().into_iter().map(of).collect()
}

/// Each thread updates one of 16 neighbouring keys: they are in one leaf, until it is split.
pub fn hot_leaf(budget: &Budget) -> Figure {
    let series =
        over_cores(budget, &SETTLED, &|thread, _, _| (FIRST_HOT + u64::from(thread % 16), false));
    figure("cores", series, "Asked: 8x at 64 cores, and without it half of the peak up to 128.")
}

/// All threads update one key: no split helps.
pub fn one_key(budget: &Budget) -> Figure {
    figure("cores", over_cores(budget, &MOVING, &|_, _, _| (FIRST_HOT, false)), "")
}

/// The period from one write in 8 to one in 65,536, at 64 cores.
pub fn c3(budget: &Budget) -> Figure {
    let exponents = if budget.is_smoke { vec![3, 9] } else { vec![3, 5, 7, 9, 11, 13, 16] };
    let cores = budget.cores(&[64]);
    let series = cores.iter().map(|&cores| {
        let machine = Machine::ROME1S.with_contexts(cores);
        let point = |&exponent: &u32| {
            let split = ContentionSplit::new(4.min(1 << exponent), 1 << exponent, 1.0 / 30.0, 1);
            let split = Some(split.expect("within bounds"));
            Point::measure(f64::from(1_u32 << exponent), budget, |seed| {
                let machine = machine.clone().with_seed(seed);
                updates(&machine, split, &SETTLED, &mostly_hot).1
            })
        };
        Series { name: format!("{cores} cores"), points: exponents.iter().map(point).collect() }
    });
    figure(
        "writes in a period",
        series.collect(),
        "The splits of each run are in the record: short periods split what need not be, long ones find nothing in time.",
    )
}

/// Half of the operations are on 16 keys of one leaf, the others anywhere.
fn mostly_hot(thread: u32, random: &mut SplitMix64, _: u64) -> (u64, bool) {
    match random.below(2) {
        0 => (FIRST_HOT + u64::from(thread % 16), false),
        _ => (random.below(RECORDS), false),
    }
}

/// Cycles for which a hot spot stays.
const STAYS: u64 = 20_000_000;
/// Of two hot spots, and one before.
const THREE_SPOTS: Spans = Spans { warm: STAYS, counted: 2 * STAYS };

/// Half of the operations read and half update, near a spot that moves on every 10 ms.
pub fn c9(budget: &Budget) -> Figure {
    let series = over_cores(budget, &THREE_SPOTS, &|_, random, now| {
        let spot = FIRST_HOT + now / STAYS * 1_000;
        // The largest of a few is near the spot more often than not.
        let distance = (0..3).map(|_| random.below(64)).min().unwrap_or(0);
        (spot + distance, random.below(2) == 0)
    });
    figure("cores", series, "The paper: more than twice as many on average.")
}

/// Who gets to update one key, by groups of eight cores: the share of each group.
pub fn c11(budget: &Budget) -> Figure {
    const GROUP: usize = 8;
    type Run = fn(&Machine) -> (Vec<u64>, Sample);
    let runs: [(&str, Run); 4] = [
        ("the engine", |machine| updates(machine, None, &MOVING, &|_, _, _| (FIRST_HOT, false))),
        ("spinning", one_leaf::<spinning::TestFirst<AtomicU64>>),
        ("spinning with backoff", one_leaf::<spinning::Backoff<AtomicU64>>),
        ("hybrid, parked", one_leaf::<blocking::Parked>),
    ];
    let machine = Machine::ROME1S.with_contexts(if budget.is_smoke { 16 } else { 64 });
    let groups = machine.contexts as usize / GROUP;
    let of = |(name, run): (&str, Run)| {
        let mut shares: Vec<Vec<Sample>> = vec![Vec::new(); groups];
        for seed in 1..=budget.seeds {
            let (done, sample) = run(&machine.clone().with_seed(seed));
            let all = done.iter().sum::<u64>().max(1) as f64;
            let mut of_group = vec![0; groups];
            for (thread, done) in done.iter().enumerate() {
                // The first thread of all is on the first core.
                of_group[(thread + 1) % (groups * GROUP) / GROUP] += done;
            }
            for (share, of_group) in shares.iter_mut().zip(of_group) {
                share.push(Sample { value: 100.0 * of_group as f64 / all, ..sample });
            }
        }
        let points = shares.into_iter().enumerate().map(|(group, mut samples)| {
            samples.sort_by(|a, b| a.value.total_cmp(&b.value));
            Point { x: group as f64 + 1.0, samples }
        });
        Series { name: name.to_owned(), points: points.collect() }
    };
    Figure {
        machine: "rome1s",
        x: "group of eight cores",
        unit: "% of the updates",
        is_logarithmic: false,
        series: runs.into_iter().map(of).collect(),
        note: "The engine, and latches of the laboratory under a model of a leaf that all threads update. The paper: hybrid 12.3 to 12.7 % of each \
               group, spin locks 0.2 to 50.9 %, with backoff 7 to 21 %.",
    }
}

/// Records of figure 22: as many as the paper has titles of pages of Wikipedia.
const TITLES: u64 = 5_000;

/// A title: three letters that make the order, and up to 30 more.
fn title(number: u64) -> Vec<u8> {
    let mut random = SplitMix64::new(number);
    let letter = |number: u64| b'a' + (number % 26) as u8;
    let spread = number * 3;
    let mut title =
        vec![letter(spread / 676).to_ascii_uppercase(), letter(spread / 26), letter(spread)];
    for _ in 0..3 + random.below(28) {
        title.push(if random.below(7) == 0 { b'_' } else { letter(random.next_u64()) });
    }
    title
}

/// The number of a title by Zipf's law with an exponent of 1: the first ones in the order are the most frequent.
fn by_zipf(random: &mut SplitMix64) -> u64 {
    static SUMS: std::sync::OnceLock<Vec<f64>> = std::sync::OnceLock::new();
    let sums = SUMS.get_or_init(|| {
        let mut sum = 0.0;
        (1..=TITLES)
            .map(|rank| {
                sum += 1.0 / rank as f64;
                sum
            })
            .collect()
    });
    let drawn = random.below(1 << 53) as f64 / (1_u64 << 53) as f64 * sums[sums.len() - 1];
    sums.partition_point(|&sum| sum <= drawn) as u64
}

/// Updates by Zipf's law in pages of 2 to 32 KiB.
pub fn fig22(budget: &Budget) -> Figure {
    let pages: &[usize] = if budget.is_smoke { &[16] } else { &[2, 4, 8, 16, 32] };
    let cores = budget.cores(&[32])[0];
    let machine = Machine::ROME1S.with_contexts(cores);
    let of = |(name, split): (&str, Split)| {
        let point = |&kibibytes: &usize| {
            let contents = Contents { page_bytes: kibibytes << 10, records: TITLES, key: title };
            Point::measure(kibibytes as f64, budget, |seed| {
                let machine = machine.clone().with_seed(seed);
                updates_of(&contents, &machine, split, &SETTLED, &|_, random, _| {
                    (by_zipf(random), false)
                })
                .1
            })
        };
        Series { name: name.to_owned(), points: pages.iter().map(point).collect() }
    };
    let series = both().into_iter().map(of).collect();
    figure(
        "KiB of a page",
        series,
        "The paper, with pages of 2 to 32 KiB: without Contention Split it falls with the page size, with it it is relatively constant.",
    )
}
