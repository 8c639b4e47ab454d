//! Figures of "Improving In-Memory Database Index Performance with Intel Transactional Synchronization Extensions" (HPCA 2014): the B+tree and the Delta Storage
//! Index of `hedgerow-htm-index` under locks, with elision, and without any control.
//!
//! An index is loaded at native speed for each point, whose runs it serves one after the other: even keys, nodes as full as random inserts
//! leave them. Look-ups are of even keys and find them; inserts are of odd ones (section 2.1.2). The paper has 20 million keys; there
//! are one million here in the Delta Storage Index, and two in the B+tree. As theirs did not fit in the last-level cache, a line that no
//! core has comes from memory.

use crate::figure::{Budget, Figure, Point, Sample, Series};
use hedgerow_htm_index::bplus::BPlusTree;
use hedgerow_htm_index::delta::{DeltaIndex, Switches};
use hedgerow_htm_index::footprint::overflow;
use hedgerow_htm_index::htm::{
    Adaptive, Counts, Htm, Lock, RetryPolicy, RwSpin, Sim, Uncontrolled,
};
use hedgerow_sim::{Machine, cycles, run, work, work_until};
use hedgerow_sync::primitive::random::SplitMix64;
use hedgerow_sync::primitive::{Arc, thread};

/// When all threads are there, in cycles.
const READY: u64 = 500_000;
const WARM: u64 = 500_000;
const COUNTED: u64 = 2_000_000;
/// What a thread does between two operations, in cycles.
const BETWEEN: u64 = 20;

/// An index of a figure.
trait Index: Send + Sync + 'static {
    fn look_up(&self, key: u64) -> bool;
    fn insert(&self, key: u64);
    /// Changes a record that is there.
    fn update(&self, key: u64);
    fn counts(&self) -> Counts;
}

impl<H: Htm + 'static> Index for BPlusTree<H> {
    fn look_up(&self, key: u64) -> bool {
        self.get(key).is_some()
    }

    fn insert(&self, key: u64) {
        BPlusTree::insert(self, key, key).expect("there is memory for it");
    }

    fn update(&self, key: u64) {
        self.upsert(key, !key).expect("there is memory for it");
    }

    fn counts(&self) -> Counts {
        self.htm().counters().sum()
    }
}

impl<H: Htm + 'static> Index for DeltaIndex<H> {
    fn look_up(&self, key: u64) -> bool {
        self.id_of(key).is_some()
    }

    fn insert(&self, key: u64) {
        DeltaIndex::insert(self, key).expect("there is memory for it");
    }

    fn update(&self, key: u64) {
        // Values are never changed.
        Index::insert(self, key);
    }

    fn counts(&self) -> Counts {
        self.htm().counters().sum()
    }
}

/// How threads keep out of each other's way.
#[derive(Clone, Copy, PartialEq)]
enum Control {
    None,
    Spin,
    ReadWrite,
    Elided(RetryPolicy),
}

const R: Control = Control::Elided(RetryPolicy::HPCA_R);
const NO_RETRY: Control = Control::Elided(RetryPolicy::HPCA_NO_RETRY);

/// Which index.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    BPlus,
    Delta(Switches),
}

#[derive(Clone, Copy)]
struct Setting {
    kind: Kind,
    control: Control,
    /// Of 100 operations.
    inserts: u64,
    /// Inserts are updates instead.
    updates: bool,
    keys: u64,
    /// Of keys that are looked up or inserted: a part of all, from the first on.
    within: u64,
}

fn made<H: Htm + 'static>(setting: &Setting, htm: H) -> Arc<dyn Index> {
    let values = || (0..setting.keys).map(|key| 2 * key);
    let room = "there is memory for it";
    match setting.kind {
        Kind::BPlus => {
            let tree = BPlusTree::new(htm, setting.keys as u32 + 200_000).expect(room);
            tree.load(values().map(|key| (key, key)), 1).expect(room);
            Arc::new(tree)
        }
        Kind::Delta(switches) => {
            let room_for = setting.keys as u32 + 200_000;
            let index = DeltaIndex::new(htm, switches, room_for, 16_384).expect(room);
            index.load(&values().collect::<Vec<_>>(), 1).expect(room);
            Arc::new(index)
        }
    }
}

fn index(setting: &Setting) -> Arc<dyn Index> {
    match setting.control {
        Control::None => made(setting, Uncontrolled::new()),
        Control::Spin => made(setting, Lock::new()),
        Control::ReadWrite => made(setting, RwSpin::new()),
        Control::Elided(policy) => made(setting, Sim::new(policy)),
    }
}

/// Operations in the counted span, in millions a second, and what became of their regions.
fn measured(machine: &Machine, index: Arc<dyn Index>, setting: Setting) -> (Sample, Counts) {
    let threads = machine.contexts;
    let seed = machine.seed;
    let (from, to) = (READY + WARM, READY + WARM + COUNTED);
    let ((done, counts), record) = run(machine, move || {
        let start = |thread: u32| {
            let index = Arc::clone(&index);
            thread::spawn_named("client", move || {
                let mut random = SplitMix64::new(seed << 8 | u64::from(thread));
                work_until(READY);
                let mut done = 0_u64;
                loop {
                    let now = cycles().unwrap_or(u64::MAX);
                    if now >= to {
                        return done;
                    }
                    let key = 2 * random.below(setting.within);
                    if random.below(100) < setting.inserts {
                        if setting.updates { index.update(key) } else { index.insert(key + 1) }
                    } else {
                        // Without control it may not find what it looks for.
                        let _is_there = index.look_up(key);
                    }
                    done += u64::from(now >= from);
                    work(BETWEEN);
                }
            })
            .expect("a virtual thread")
        };
        let clients: Vec<_> = (0..threads).map(start).collect();
        work_until(from);
        let before = index.counts();
        let joined = clients.into_iter().map(|client| client.join().expect("it does not panic"));
        let done: u64 = joined.sum();
        (done, index.counts() - before)
    })
    .unwrap_or_else(|failure| panic!("{failure}"));
    let seconds = COUNTED as f64 / f64::from(machine.mhz) / 1e6;
    let sample = Sample::new(machine.seed, done as f64 / seconds / 1e6, &record);
    (sample, counts)
}

fn keys(budget: &Budget, kind: Kind) -> u64 {
    match kind {
        _ if budget.is_smoke => 30_000,
        Kind::BPlus => 2_000_000,
        Kind::Delta(_) => 1_000_000,
    }
}

/// A machine whose last-level cache is small beside the index.
fn on(machine: Machine, threads: u32) -> Machine {
    Machine { llc: machine.memory, contexts: threads, ..machine }
}

fn setting(budget: &Budget, kind: Kind, control: Control, inserts: u64) -> Setting {
    let keys = keys(budget, kind);
    Setting { kind, control, inserts, updates: false, keys, within: keys }
}

/// What is drawn of each run.
#[derive(Clone, Copy)]
enum Value {
    Throughput,
    /// The share of operations that took the lock, in percent.
    Locked,
}

fn series(
    budget: &Budget,
    name: String,
    value: Value,
    at: impl IntoIterator<Item = (f64, Machine, Setting)>,
) -> Series {
    let point = |(x, machine, setting): (f64, Machine, Setting)| {
        let index = index(&setting);
        Point::measure(x, budget, |seed| {
            let machine = machine.clone().with_seed(seed);
            let (sample, counts) = measured(&machine, Arc::clone(&index), setting);
            match value {
                Value::Throughput => sample,
                Value::Locked => Sample { value: 100.0 * counts.share_locked(), ..sample },
            }
        })
    };
    Series { name, points: at.into_iter().map(point).collect() }
}

/// Of 100 operations, those that insert.
const SHARES: &[u64] = &[0, 5, 20, 100];
/// With those between which a lock of readers and writers and elision meet.
const CLOSE_SHARES: &[u64] = &[0, 1, 2, 3, 5, 20, 100];

fn over_inserts(
    budget: &Budget,
    shares: &[u64],
    lines: &[(&str, Kind, Control)],
    threads: &[u32],
    value: Value,
) -> Vec<Series> {
    let shares: &[u64] = if budget.is_smoke { &[20] } else { shares };
    let mut all = Vec::new();
    for &threads in &budget.cores(threads) {
        for &(name, kind, control) in lines {
            let machine = on(Machine::HSW1S, threads);
            let at = shares.iter().map(|&inserts| {
                (inserts as f64, machine.clone(), setting(budget, kind, control, inserts))
            });
            all.push(series(budget, format!("{name}, {threads} threads"), value, at));
        }
    }
    all
}

fn figure(
    machine: &'static str,
    x: &'static str,
    value: Value,
    series: Vec<Series>,
    note: &'static str,
) -> Figure {
    let unit = match value {
        Value::Throughput => "million operations a second",
        Value::Locked => "% of operations that took the lock",
    };
    Figure { machine, x, unit, is_logarithmic: x == "threads", series, note }
}

/// Figures 3 and 4: locks of readers and writers over two sockets.
pub fn hpca3(budget: &Budget) -> Figure {
    let delta = Kind::Delta(Switches::UNTUNED);
    let lines = [
        ("delta, no control, 0 % inserts", delta, Control::None, 0),
        ("delta, RW, 0 %", delta, Control::ReadWrite, 0),
        ("delta, RW, 5 %", delta, Control::ReadWrite, 5),
        ("delta, RW, 20 %", delta, Control::ReadWrite, 20),
        ("delta, RW, 100 %", delta, Control::ReadWrite, 100),
        ("delta, spin, 0 %", delta, Control::Spin, 0),
        ("B+tree, no control, 0 %", Kind::BPlus, Control::None, 0),
        ("B+tree, RW, 0 %", Kind::BPlus, Control::ReadWrite, 0),
        ("B+tree, RW, 5 %", Kind::BPlus, Control::ReadWrite, 5),
        ("B+tree, spin, 0 %", Kind::BPlus, Control::Spin, 0),
    ];
    let line = |(name, kind, control, inserts): (&str, Kind, Control, u64)| {
        let at = budget.cores(&[1, 2, 4, 8, 16, 32]).into_iter().map(|threads| {
            let machine = on(Machine::SNB2S, threads);
            (f64::from(threads), machine, setting(budget, kind, control, inserts))
        });
        series(budget, name.to_owned(), Value::Throughput, at)
    };
    figure(
        "snb2s",
        "threads",
        Value::Throughput,
        lines.into_iter().map(line).collect(),
        "The paper: reads under the RW lock scale to 8 threads and fall across sockets; 5 % inserts already hurt; spin is flat.",
    )
}

/// Figure 5: the elided B+tree.
pub fn hpca5(budget: &Budget) -> Figure {
    let lines = [
        ("no control", Kind::BPlus, Control::None),
        ("TSX-R", Kind::BPlus, R),
        ("TSX-H", Kind::BPlus, NO_RETRY),
        ("RW", Kind::BPlus, Control::ReadWrite),
        ("spin", Kind::BPlus, Control::Spin),
    ];
    figure(
        "hsw1s",
        "% inserts",
        Value::Throughput,
        over_inserts(budget, SHARES, &lines, &[4, 8], Value::Throughput),
        "The paper: elision is close to no control and above the RW lock everywhere; TSX-H is below TSX-R with 8 threads.",
    )
}

const UNTUNED: Kind = Kind::Delta(Switches::UNTUNED);

/// Figure 6: the Delta Storage Index as it was.
pub fn hpca6(budget: &Budget) -> Figure {
    let lines = [
        ("no control", UNTUNED, Control::None),
        ("TSX-R", UNTUNED, R),
        ("no retries", UNTUNED, NO_RETRY),
        ("RW", UNTUNED, Control::ReadWrite),
        ("spin", UNTUNED, Control::Spin),
    ];
    figure(
        "hsw1s",
        "% inserts",
        Value::Throughput,
        over_inserts(budget, CLOSE_SHARES, &lines, &[4, 8], Value::Throughput),
        "The paper: with 8 threads TSX-R is below the RW lock at 0 % inserts and meets it at about 2 %.",
    )
}

/// Section 5.1.1: the probability that lines overflow a cache, computed.
pub fn hpca7(budget: &Budget) -> Figure {
    let step = if budget.is_smoke { 80 } else { 10 };
    let mut lines: Vec<u32> = (0..=400).step_by(step).chain([20, 47, 53, 93, 213]).collect();
    lines.sort_unstable();
    lines.dedup();
    let of = |ways: u32| {
        let point = |&lines: &u32| {
            let value = 100.0 * overflow(lines, 64, ways);
            let sample = Sample::computed(value);
            Point { x: f64::from(lines), samples: vec![sample] }
        };
        Series { name: format!("{ways} ways"), points: lines.iter().map(point).collect() }
    };
    Figure {
        machine: "computed",
        x: "lines",
        unit: "% overflow",
        is_logarithmic: false,
        series: vec![of(4), of(8)],
        note: "Computed, not simulated. The paper: with 4 ways about 60 % at 93 lines, below 10 % at 47 and 53.",
    }
}

/// Figure 9: the tuned Delta Storage Index, and each transformation alone.
pub fn hpca9(budget: &Budget) -> Figure {
    let mut lines = vec![
        ("no control, untuned", UNTUNED, Control::None),
        ("RW, untuned", UNTUNED, Control::ReadWrite),
        ("RW, tuned", Kind::Delta(Switches::TUNED), Control::ReadWrite),
    ];
    lines.extend(Switches::NAMED.map(|(name, switches)| (name, Kind::Delta(switches), R)));
    figure(
        "hsw1s",
        "% inserts",
        Value::Throughput,
        over_inserts(budget, SHARES, &lines, &[4, 8], Value::Throughput),
        "Lines without a lock's name are TSX-R. The paper: tuned is 4.6x the best RW lock with 8 threads at 100 % inserts.",
    )
}

/// The lock in figures 6 and 9: which share of operations ended in it.
pub fn hpca9_lock(budget: &Budget) -> Figure {
    let lines = Switches::NAMED.map(|(name, switches)| (name, Kind::Delta(switches), R));
    figure(
        "hsw1s",
        "% inserts",
        Value::Locked,
        over_inserts(budget, SHARES, &lines, &[4, 8], Value::Locked),
        "TSX-R. The paper, 100 % inserts: untuned 3.6 % with 4 threads and nearly 75 % with 8, tuned 1.7 and 1.3 %; untuned, 0 %, 8: 2.5 %.",
    )
}

/// Figure 10: how the tuned index scales.
pub fn hpca10(budget: &Budget) -> Figure {
    let tuned = Kind::Delta(Switches::TUNED);
    let mut all = Vec::new();
    for (name, control) in [("TSX-R", R), ("RW", Control::ReadWrite)] {
        for inserts in [0, 100] {
            let at = budget.cores(&[1, 2, 4, 8]).into_iter().map(|threads| {
                let machine = on(Machine::HSW1S, threads);
                (f64::from(threads), machine, setting(budget, tuned, control, inserts))
            });
            let name = format!("{name}, {inserts} % inserts");
            all.push(series(budget, name, Value::Throughput, at));
        }
    }
    figure(
        "hsw1s",
        "threads",
        Value::Throughput,
        all,
        "The paper: TSX-R is slightly below the RW lock when all only read, and far above when all insert.",
    )
}

/// Section 3.3.2: retries once the lock is free, and at once.
pub fn hpca_lemming(budget: &Budget) -> Figure {
    let policy = |tries: u32, waits: bool| RetryPolicy {
        conflict: tries,
        capacity: tries,
        other: tries,
        explicit: tries,
        // Who waits does not count the look at which the lock was held.
        locked: if waits { u32::MAX } else { tries },
        all: if waits { u32::MAX } else { tries },
        waits,
        blames_lock: false,
        adaptive: None,
    };
    let tries = if budget.is_smoke { vec![4] } else { vec![1, 2, 4, 8, 16] };
    let threads = *budget.cores(&[8]).first().unwrap_or(&8);
    let line = |waits: bool| {
        let at = tries.iter().map(|&tries| {
            let control = Control::Elided(policy(tries, waits));
            // Few leaves: they conflict, and somebody takes the lock.
            let setting = setting(budget, Kind::BPlus, control, 100);
            let setting = Setting { within: 400, updates: true, ..setting };
            (f64::from(tries), on(Machine::HSW1S, threads), setting)
        });
        let name = if waits { "waits until the lock is free" } else { "retries at once" };
        series(budget, name.to_owned(), Value::Throughput, at)
    };
    figure(
        "hsw1s",
        "tries",
        Value::Throughput,
        vec![line(true), line(false)],
        "All operations update some 20 leaves of the B+tree. The paper: without the wait all threads follow the first one into the lock.",
    )
}

/// Section 3.3.3: where all insert next to each other, elision is better left for a time.
pub fn hpca_adaptive(budget: &Budget) -> Figure {
    let line = |(name, adaptive): (&str, Option<Adaptive>)| {
        let control = Control::Elided(RetryPolicy { adaptive, ..RetryPolicy::HPCA_R });
        let at = budget.cores(&[1, 2, 4, 8]).into_iter().map(|threads| {
            let setting = setting(budget, Kind::BPlus, control, 100);
            let setting = Setting { within: 8, updates: true, ..setting };
            (f64::from(threads), on(Machine::HSW1S, threads), setting)
        });
        series(budget, name.to_owned(), Value::Throughput, at)
    };
    let lines = [
        ("never disabled", None),
        ("disabled after 3 failures, for 100", Some(Adaptive { failures: 3, skips: 100 })),
    ];
    figure(
        "hsw1s",
        "threads",
        Value::Throughput,
        lines.into_iter().map(line).collect(),
        "All operations update 8 keys of one leaf. In the experiments of the paper adaptivity did not trigger.",
    )
}
