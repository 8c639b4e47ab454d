//! Trees of "Eunomia: Scaling Concurrent Search Trees under Contention Using HTM" (PPoPP 2017) on simulated transactional memory.
//!
//! Each run has a tree of its own, which `ycsb` loads at native speed. A span that is not counted comes first. Threads are on two
//! sockets, half of them on each. `ae` and `ycsb` measure different things and never stand in one figure.

use crate::figure::{Budget, Figure, Point, Sample, Series};
use hedgerow_htm_index::arena::ArenaError;
use hedgerow_htm_index::eunomia::{self, Eunomia, Steps};
use hedgerow_htm_index::htm::label::Label;
use hedgerow_htm_index::htm::{RetryPolicy, Sim};
use hedgerow_htm_index::optimistic::{
    HtmMasstreeStandIn, LockCoupling, LockCouplingSession, MasstreeSession, MasstreeStandIn,
};
use hedgerow_htm_index::workload::{Ae, Order, Shape, Step, Stream, Ycsb};
use hedgerow_sim::transaction::{Tally, tally};
use hedgerow_sim::{Machine, cycles, run, work, work_until};
use hedgerow_sync::primitive::{Arc, OnceLock, thread};

/// When all threads are there, in cycles.
const READY: u64 = 500_000;
/// Work of a thread between two operations, in cycles: the choice of a key and the call.
const THINKING: u64 = 60;
/// Keys that `ycsb` loads: five levels.
const LOADED: u64 = 100_000;
const LEAVES: u32 = 40_000;

/// A tree.
#[derive(Clone, Copy, PartialEq)]
enum Tree {
    Eunomia(Steps),
    LockCoupling,
    Masstree,
    HtmMasstree,
}

impl Tree {
    const COMPLETE: Tree = Tree::Eunomia(Steps::COMPLETE);
    const MONOLITHIC: Tree = Tree::Eunomia(Steps::MONOLITHIC);
    /// All that are compared in the figures of throughput.
    const ALL: [(&'static str, Tree); 5] = [
        ("Eunomia", Tree::COMPLETE),
        ("HTM B+tree", Tree::MONOLITHIC),
        ("Masstree, stand-in", Tree::Masstree),
        ("HTM-Masstree, stand-in", Tree::HtmMasstree),
        ("lock coupling", Tree::LockCoupling),
    ];
}

/// A workload.
#[derive(Clone)]
enum Load {
    Ycsb(Ycsb),
    Ae(Ae),
}

impl Load {
    fn ae(shape: Shape, puts_percent: u64) -> Load {
        Load::Ae(Ae::new(shape, puts_percent))
    }

    fn ycsb(shape: Shape, puts_percent: u64) -> Load {
        Load::Ycsb(Ycsb::new(shape, LOADED, Order::Clustered, puts_percent))
    }

    fn stream(&self, thread: u64, seed: u64) -> Box<dyn Stream + Send> {
        match self {
            Load::Ycsb(load) => Box::new(load.stream(thread, seed)),
            Load::Ae(load) => Box::new(load.stream(thread, seed)),
        }
    }
}

/// What a thread calls.
trait Client {
    fn get(&mut self, key: u64) -> Option<u64>;
    fn put(&mut self, key: u64, value: u64) -> Result<Option<u64>, ArenaError>;
    fn insert(&mut self, key: u64, value: u64) -> Result<Option<u64>, ArenaError>;

    fn step(&mut self, step: Step) {
        let done = match step {
            Step::Get(key) => Ok(self.get(key)),
            Step::Put(key, value) => self.put(key, value),
            Step::InsertTwice(key, value) => {
                self.insert(key, value).and_then(|_| self.insert(key, value))
            }
        };
        done.expect("an arena with room");
    }
}

macro_rules! client {
    ($($session:ty),*) => {$(
        impl Client for $session {
            fn get(&mut self, key: u64) -> Option<u64> {
                Self::get(self, key)
            }

            fn put(&mut self, key: u64, value: u64) -> Result<Option<u64>, ArenaError> {
                Self::put(self, key, value)
            }

            fn insert(&mut self, key: u64, value: u64) -> Result<Option<u64>, ArenaError> {
                Self::insert(self, key, value)
            }
        }
    )*};
}

client!(eunomia::Session<'_, Sim>, LockCouplingSession<'_>, MasstreeSession<'_>);

impl Client for &HtmMasstreeStandIn<Sim> {
    fn get(&mut self, key: u64) -> Option<u64> {
        HtmMasstreeStandIn::get(self, key)
    }

    fn put(&mut self, key: u64, value: u64) -> Result<Option<u64>, ArenaError> {
        HtmMasstreeStandIn::put(self, key, value)
    }

    fn insert(&mut self, key: u64, value: u64) -> Result<Option<u64>, ArenaError> {
        HtmMasstreeStandIn::insert(self, key, value)
    }
}

/// A tree that was made.
enum Made {
    Eunomia(Eunomia<Sim>),
    LockCoupling(LockCoupling),
    Masstree(MasstreeStandIn),
    HtmMasstree(HtmMasstreeStandIn<Sim>),
}

impl Made {
    fn new(tree: Tree) -> Made {
        let htm = || Sim::new(RetryPolicy::DBX);
        match tree {
            Tree::Eunomia(steps) => {
                Made::Eunomia(Eunomia::new(htm(), steps, LEAVES).expect("steps that can be"))
            }
            Tree::LockCoupling => Made::LockCoupling(LockCoupling::new(LEAVES).expect("room")),
            Tree::Masstree => Made::Masstree(MasstreeStandIn::new(LEAVES).expect("room")),
            Tree::HtmMasstree => {
                Made::HtmMasstree(HtmMasstreeStandIn::new(htm(), LEAVES).expect("room"))
            }
        }
    }

    fn label(&self) {
        match self {
            Made::Eunomia(tree) => tree.label(),
            Made::LockCoupling(tree) => tree.label(),
            Made::Masstree(tree) => tree.label(),
            Made::HtmMasstree(tree) => tree.label(),
        }
    }

    fn client(&self) -> Box<dyn Client + '_> {
        match self {
            Made::Eunomia(tree) => Box::new(tree.session()),
            Made::LockCoupling(tree) => Box::new(tree.session()),
            Made::Masstree(tree) => Box::new(tree.session()),
            Made::HtmMasstree(tree) => Box::new(tree),
        }
    }
}

/// What a run gave in the counted span.
struct Outcome {
    million_per_second: f64,
    operations: u64,
    tally: Tally,
    /// Of all cycles, those in regions that aborted.
    share_wasted: f64,
    sample: Sample,
}

impl Outcome {
    fn of(&self, value: f64) -> Sample {
        Sample { value, ..self.sample }
    }

    fn throughput(&self) -> Sample {
        self.of(self.million_per_second)
    }

    fn aborts_per_operation(&self) -> f64 {
        self.tally.aborts() as f64 / self.operations.max(1) as f64
    }
}

#[derive(Clone, Copy)]
struct Spans {
    /// Before what is counted.
    warm: u64,
    counted: u64,
}

fn spans(budget: &Budget) -> Spans {
    match budget.is_smoke {
        true => Spans { warm: 150_000, counted: 250_000 },
        false => Spans { warm: 4_000_000, counted: 1_000_000 },
    }
}

/// What a tree is counted over in figures over theta with `ae`. Threads in the tree of one region march in step or not, and stay so for
/// up to several milliseconds: over a short span a run is of one of the two states. So it is counted for longer, and so is the Eunomia
/// tree, with which it is compared. Other trees have one state.
fn spans_of(budget: &Budget, tree: Tree) -> Spans {
    let short = spans(budget);
    match matches!(tree, Tree::Eunomia(_)) && !budget.is_smoke {
        true => Spans { counted: 10_000_000, ..short },
        false => short,
    }
}

/// The Eunomia paper's machine with so many threads, half of them on each socket.
fn machine(threads: u32, seed: u64) -> Machine {
    let half = threads.div_ceil(2).max(1);
    Machine { cores: threads, cores_per_group: half, cores_per_socket: half, ..Machine::HSW2S }
        .with_contexts(threads)
        .with_seed(seed)
}

/// Runs a workload on a tree.
fn measure(machine: &Machine, tree: Tree, load: &Load, spans: Spans) -> Outcome {
    let made = Arc::new(Made::new(tree));
    if let Load::Ycsb(ycsb) = load {
        let mut client = made.client();
        ycsb.loaded().for_each(|key| client.step(Step::Put(key, 1)));
    }
    let (from, to) = (READY + spans.warm, READY + spans.warm + spans.counted);
    let (threads, seed) = (machine.contexts, machine.seed);
    let (theirs, load) = (Arc::clone(&made), load.clone());
    let (results, record) = run(machine, move || {
        theirs.label();
        // What had become of regions when the first thread came to the counted span, and when the first one came to its end. Threads that
        // abort all the time come to either far too late.
        let marks = Arc::new([const { OnceLock::<(u64, Tally)>::new() }; 2]);
        let start = |number: u32| {
            let (made, marks) = (Arc::clone(&theirs), Arc::clone(&marks));
            let mut stream = load.stream(u64::from(number), seed);
            thread::spawn_named("client", move || {
                let mut client = made.client();
                work_until(READY);
                let mut done = 0_u64;
                loop {
                    let now = cycles().unwrap_or(u64::MAX);
                    let look = || (now, tally().unwrap_or_default());
                    if now >= from {
                        marks[0].get_or_init(look);
                    }
                    if now >= to {
                        marks[1].get_or_init(look);
                        return done;
                    }
                    let step = stream.next_step();
                    client.step(step);
                    done += u64::from(now >= from);
                    work(THINKING);
                }
            })
            .expect("a virtual thread")
        };
        let clients: Vec<_> = (0..threads).map(start).collect();
        let done = clients.into_iter().map(|client| client.join().expect("it does not panic"));
        let done: Vec<u64> = done.collect();
        let (first, last) = (marks[0].get().copied(), marks[1].get().copied());
        (done, first.unwrap_or_default(), last.unwrap_or_default())
    })
    .unwrap_or_else(|failure| panic!("{failure}"));
    let (done, first, last): (Vec<u64>, (u64, Tally), (u64, Tally)) = results;
    let tally = last.1.since(&first.1);
    let span = (last.0 - first.0).max(1) * u64::from(threads);
    let operations = done.iter().sum::<u64>();
    let seconds = spans.counted as f64 / f64::from(machine.mhz) / 1e6;
    let million_per_second = operations as f64 / seconds / 1e6;
    Outcome {
        million_per_second,
        operations,
        share_wasted: tally.aborted_cycles as f64 / span as f64,
        tally,
        sample: Sample::new(seed, million_per_second, &record),
    }
}

const MILLIONS: &str = "million operations a second";
/// Threads of the figures of contention.
const THREADS: u32 = 16;
const THETAS: [f64; 8] = [0.0, 0.2, 0.5, 0.6, 0.7, 0.8, 0.9, 0.99];
/// Threads of the figures of scaling.
const SCALE: [u32; 7] = [1, 2, 4, 8, 12, 16, 20];
const FEWER: [u32; 4] = [1, 4, 8, 16];

fn zipf(theta: f64) -> Shape {
    Shape::Zipf { theta }
}

fn figure(x: &'static str, unit: &'static str, series: Vec<Series>, note: &'static str) -> Figure {
    Figure { machine: "hsw2s", x, unit, is_logarithmic: false, series, note }
}

fn thetas(budget: &Budget) -> Vec<f64> {
    if budget.is_smoke { vec![0.2, 0.9] } else { THETAS.to_vec() }
}

/// The figures' own threads, or those of the command line: one number.
fn threads(budget: &Budget, own: u32) -> u32 {
    budget.cores.first().copied().unwrap_or(if budget.is_smoke { 4 } else { own })
}

/// A line of a figure over theta.
fn over_theta(
    budget: &Budget,
    (name, tree): (&str, Tree),
    spans: Spans,
    load: impl Fn(f64) -> Load,
    value: impl Fn(&Outcome) -> f64,
) -> Series {
    let threads = threads(budget, THREADS);
    let point = |&theta: &f64| {
        Point::measure(theta, budget, |seed| {
            let outcome = measure(&machine(threads, seed), tree, &load(theta), spans);
            outcome.of(value(&outcome))
        })
    };
    Series { name: name.to_owned(), points: thetas(budget).iter().map(point).collect() }
}

/// A line of a figure over threads.
fn over_threads(budget: &Budget, own: &[u32], name: String, tree: Tree, load: &Load) -> Series {
    let point = |&threads: &u32| {
        Point::measure(f64::from(threads), budget, |seed| {
            measure(&machine(threads, seed), tree, load, spans(budget)).throughput()
        })
    };
    let own = if budget.is_smoke { &[4] } else { own };
    Series { name, points: budget.cores(own).iter().map(point).collect() }
}

fn throughput(outcome: &Outcome) -> f64 {
    outcome.million_per_second
}

/// The tree of one region, over theta.
pub fn euno1(budget: &Budget) -> Figure {
    let load = |theta| Load::ae(zipf(theta), 50);
    let tree = ("HTM B+tree", Tree::MONOLITHIC);
    let series = over_theta(budget, tree, spans_of(budget, tree.1), load, throughput);
    figure("theta", MILLIONS, vec![series], "`ae`, 16 threads. The paper: below 3 at 0.9.")
}

/// Why its regions abort: counted by what the line holds, and by whether both threads were about the same key.
pub fn euno2(budget: &Budget) -> Figure {
    const LEAF: usize = Label::LeafMetadata as usize;
    const RECORD: usize = Label::Record as usize;
    const INNER: usize = Label::Inner as usize;
    type Count = fn(&Tally) -> u64;
    let causes: [(&str, Count); 7] = [
        ("records, same key", |tally| tally.same_key[RECORD]),
        ("records, other keys", |tally| tally.other_key[RECORD]),
        ("leaf metadata, same key", |tally| tally.same_key[LEAF]),
        ("leaf metadata, other keys", |tally| tally.other_key[LEAF]),
        ("inner nodes", |tally| tally.same_key[INNER] + tally.other_key[INNER]),
        ("the lock, and no conflict", |tally| {
            let leaf_and_inner = [LEAF, RECORD, INNER];
            let known = leaf_and_inner.map(|at| tally.same_key[at] + tally.other_key[at]);
            tally.aborts() - known.iter().sum::<u64>()
        }),
        ("% of cycles in regions that aborted", |_| 0),
    ];
    let threads = threads(budget, THREADS);
    let mut series: Vec<Series> = causes
        .iter()
        .map(|(name, _)| Series { name: (*name).to_owned(), points: Vec::new() })
        .collect();
    for theta in thetas(budget) {
        let mut samples: Vec<Vec<Sample>> = causes.iter().map(|_| Vec::new()).collect();
        for seed in 1..=budget.seeds {
            let machine = machine(threads, seed);
            let load = Load::ae(zipf(theta), 50);
            let spans = spans_of(budget, Tree::MONOLITHIC);
            let outcome = measure(&machine, Tree::MONOLITHIC, &load, spans);
            for ((_, count), samples) in causes.iter().zip(&mut samples) {
                let of_operation = count(&outcome.tally) as f64 / outcome.operations.max(1) as f64;
                samples.push(outcome.of(of_operation));
            }
            if let Some(last) = samples.last_mut().and_then(|samples| samples.last_mut()) {
                last.value = 100.0 * outcome.share_wasted;
            }
        }
        for (series, mut samples) in series.iter_mut().zip(samples) {
            samples.sort_by(|a, b| a.value.total_cmp(&b.value));
            series.points.push(Point { x: theta, samples });
        }
    }
    let note = "`ae`, 16 threads, the tree of one region. The last line has a unit of its own.";
    figure("theta", "aborts of an operation", series, note)
}

/// All trees, over theta.
pub fn euno8(budget: &Budget) -> Figure {
    let load = |theta| Load::ae(zipf(theta), 50);
    let line =
        |(name, tree)| over_theta(budget, (name, tree), spans_of(budget, tree), load, throughput);
    let note = "`ae`, 16 threads; 4.3 ms of the trees of regions but for HTM-Masstree, 0.4 ms of the others. The paper: 18.6 against 1.7 at 0.99.";
    figure("theta", MILLIONS, Tree::ALL.map(line).into(), note)
}

/// All trees over theta, with loaded keys and a true mix.
pub fn euno8_ycsb(budget: &Budget) -> Figure {
    let load = |theta| Load::ycsb(zipf(theta), 50);
    let line = |tree| over_theta(budget, tree, spans(budget), load, throughput);
    let note = "`ycsb`: 100,000 loaded keys, half of the operations are updates, 16 threads.";
    figure("theta", MILLIONS, Tree::ALL.map(line).into(), note)
}

/// Aborts of an operation, over theta.
pub fn euno9(budget: &Budget) -> Figure {
    let value = Outcome::aborts_per_operation;
    let load = |theta| Load::ae(zipf(theta), 50);
    let line = |(name, tree)| over_theta(budget, (name, tree), spans_of(budget, tree), load, value);
    let series = [Tree::ALL[0], Tree::ALL[1], Tree::ALL[3]].map(line);
    let note = "`ae`, 16 threads. The paper: 60.3 and 1.9 at 0.99.";
    figure("theta", "aborts of an operation", series.into(), note)
}

/// Threads, at four levels of contention.
pub fn euno10(budget: &Budget) -> Figure {
    let mut series = Vec::new();
    for theta in if budget.is_smoke { vec![0.9] } else { vec![0.2, 0.6, 0.9, 0.99] } {
        for (name, tree) in [Tree::ALL[0], Tree::ALL[1], Tree::ALL[2], Tree::ALL[4]] {
            let name = format!("{name}, {theta}");
            let load = Load::ae(zipf(theta), 50);
            series.push(over_threads(budget, &SCALE, name, tree, &load));
        }
    }
    figure("threads", MILLIONS, series, "`ae`; the number after the tree is theta.")
}

/// Threads, by the share of gets.
pub fn euno11(budget: &Budget) -> Figure {
    let mut series = Vec::new();
    for puts in if budget.is_smoke { vec![100] } else { vec![100, 80, 50, 30] } {
        for (name, tree) in [Tree::ALL[0], Tree::ALL[1], Tree::ALL[2]] {
            let name = format!("{name}, {} % gets", 100 - puts);
            series.push(over_threads(budget, &FEWER, name, tree, &Load::ae(zipf(0.9), puts)));
        }
    }
    figure("threads", MILLIONS, series, "`ae`, theta 0.9; a batch of puts is one choice.")
}

/// Threads, by distribution.
pub fn euno12(budget: &Budget) -> Figure {
    let shapes = [
        ("Poisson", Shape::Poisson),
        ("normal", Shape::Normal),
        ("self-similar", Shape::SelfSimilar),
        ("Zipf 0.9", zipf(0.9)),
    ];
    let mut series = Vec::new();
    for (shape_name, shape) in shapes {
        for (name, tree) in [Tree::ALL[0], Tree::ALL[1], Tree::ALL[2]] {
            let name = format!("{name}, {shape_name}");
            series.push(over_threads(budget, &FEWER, name, tree, &Load::ae(shape, 50)));
        }
    }
    figure("threads", MILLIONS, series, "`ae`, distributions over its 20 entities.")
}

/// The steps one after the other, at high and low contention.
fn ladder(budget: &Budget, load: impl Fn(f64) -> Load, note: &'static str) -> Figure {
    let threads = threads(budget, 20);
    let line = |theta: f64| {
        let point = |(at, &(_, steps)): (usize, &(&str, Steps))| {
            Point::measure(at as f64, budget, |seed| {
                let machine = machine(threads, seed);
                measure(&machine, Tree::Eunomia(steps), &load(theta), spans(budget)).throughput()
            })
        };
        let points = Steps::LADDER.iter().enumerate().map(point).collect();
        Series { name: format!("theta {theta}"), points }
    };
    figure("steps", MILLIONS, [0.9, 0.2].map(line).into(), note)
}

/// The steps one after the other.
pub fn euno13(budget: &Budget) -> Figure {
    let note = "`ae`, 20 threads. 0: one region; 1: split regions; 2: partitioned leaves; 3: lock bits; 4: mark bits; 5: adaptivity.";
    ladder(budget, |theta| Load::ae(zipf(theta), 50), note)
}

/// The steps one after the other, with loaded keys and a true mix.
pub fn euno13_ycsb(budget: &Budget) -> Figure {
    let note = "`ycsb`, 20 threads; the steps are those of `euno13`.";
    ladder(budget, |theta| Load::ycsb(zipf(theta), 50), note)
}
