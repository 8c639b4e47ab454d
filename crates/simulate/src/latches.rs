//! Latches without a tree: table 3 and figure 8 of "Scalable and Robust Latches for Database Systems" (DaMoN 2020), where all threads take one latch
//! over and over; and figure 7 of "Contention and Space Management in B-Trees" (CIDR 2021), where they take that of a hot leaf between
//! the other work of a transaction.

use crate::figure::{Budget, Figure, Point, Sample, Series};
use hedgerow_bench::latches::{Latch, Visitor, blocking, spinning, visit_all};
use hedgerow_sim::{Machine, cpu_cycles, cycles, run, work, work_until};
use hedgerow_sync::primitive::atomic::{AtomicU64, Ordering::Relaxed};
use hedgerow_sync::primitive::random::SplitMix64;
use hedgerow_sync::primitive::{Arc, thread};

/// When all threads are there, and for how long they are looked at, in cycles.
const BEGIN: u64 = 1_000_000;
const SPAN: u64 = 1_000_000;
/// The loop around an acquisition.
const LOOP: u64 = 4;

/// Nothing else is in its lines.
#[derive(Default)]
#[repr(align(4096))]
pub struct Alone<L>(pub L);

/// What is counted.
#[derive(Clone, Copy)]
enum Unit {
    /// Cycles of all processors per acquisition: a thread that sleeps has none.
    CpuCycles,
    /// Nanoseconds that pass per acquisition.
    Nanoseconds,
}

fn smash<L: Latch>(machine: &Machine, is_write: bool, unit: Unit) -> Sample {
    let contexts = machine.contexts;
    let ((cpu, acquired), record) = run(machine, move || {
        let latch = Arc::new(Alone(L::default()));
        let body = move |latch: &Alone<L>| {
            work_until(BEGIN);
            let (before, mut acquired) = (cpu_cycles().unwrap_or(0), 0_u64);
            while cycles().is_some_and(|now| now < BEGIN + SPAN) {
                if is_write {
                    latch.0.write(|| ());
                } else {
                    latch.0.read(|| ());
                }
                work(LOOP);
                acquired += 1;
            }
            (cpu_cycles().unwrap_or(0) - before, acquired)
        };
        let start = |_| {
            let latch = Arc::clone(&latch);
            thread::spawn_named("taker", move || body(&latch)).expect("a virtual thread")
        };
        let takers: Vec<_> = (0..contexts).map(start).collect();
        let ends = takers.into_iter().map(|taker| taker.join().expect("it does not panic"));
        ends.fold((0, 0), |sum, end| (sum.0 + end.0, sum.1 + end.1))
    })
    .unwrap_or_else(|failure| panic!("{failure}"));
    let acquired = acquired as f64;
    let value = match unit {
        Unit::CpuCycles => cpu as f64 / acquired,
        Unit::Nanoseconds => SPAN as f64 / f64::from(machine.mhz) * 1_000.0 / acquired,
    };
    Sample::new(machine.seed, value, &record)
}

struct Lines<'b> {
    budget: &'b Budget,
    machine: Machine,
    cores: Vec<u32>,
    is_write: bool,
    unit: Unit,
    series: Vec<Series>,
}

impl Visitor for Lines<'_> {
    fn visit<L: Latch>(&mut self, name: &'static str, shared: bool) {
        // Those of one byte cost the same here: the machine knows lines, and no words.
        if name.contains("1 byte") || !self.is_write && !shared {
            return;
        }
        let point = |&cores: &u32| {
            let machine = self.machine.clone().with_contexts(cores);
            Point::measure(f64::from(cores), self.budget, |seed| {
                smash::<L>(&machine.clone().with_seed(seed), self.is_write, self.unit)
            })
        };
        let points = self.cores.iter().map(point).collect();
        let name = match self.unit {
            Unit::CpuCycles if self.is_write => format!("write, {name}"),
            Unit::CpuCycles => format!("read, {name}"),
            Unit::Nanoseconds => name.to_owned(),
        };
        self.series.push(Series { name, points });
    }
}

/// What an acquisition costs all processors together, with 1 to 40 threads.
pub fn table3(budget: &Budget) -> Figure {
    let cores = budget.cores(&[1, 10, 20, 40]);
    let mut series = Vec::new();
    for is_write in [false, true] {
        let machine = Machine::IVB2S;
        let cores = cores.clone();
        let mut lines =
            Lines { budget, machine, cores, is_write, unit: Unit::CpuCycles, series: Vec::new() };
        visit_all(&mut lines);
        series.append(&mut lines.series);
    }
    Figure {
        machine: "ivb2s",
        x: "threads",
        unit: "cycles of all processors per acquisition",
        is_logarithmic: false,
        series,
        note: "The paper, 40 threads: read: RW spin 4531, RW mutex 9583, optimistic 12, hybrid 17; write: RW spin 52215, \
               RW mutex 29201, optimistic 8636, hybrid 4082, with the parking lot 421.",
    }
}

/// How long an acquisition takes, with 1 to 40 threads and more.
pub fn fig8(budget: &Budget) -> Figure {
    let cores = budget.cores(&[1, 2, 5, 10, 20, 40]);
    let machine = Machine::IVB2S;
    let mut lines = Lines {
        budget,
        machine,
        cores,
        is_write: true,
        unit: Unit::Nanoseconds,
        series: Vec::new(),
    };
    visit_all(&mut lines);
    Figure {
        machine: "ivb2s",
        x: "threads",
        unit: "ns per acquisition",
        is_logarithmic: false,
        series: lines.series,
        note: "The paper: locks of the system hardly feel the number of threads; spinning ones do.",
    }
}

/// Warehouses, whose rows are in one leaf of 16 KiB, or in one leaf each.
const WAREHOUSES: usize = 100;
/// What a transaction does beside the update of its warehouse, in cycles: no other leaf is as hot.
const PRIVATE: u64 = 25_000;
/// The same of a thread that does hardly anything else.
const THINKING: u64 = 500;
/// The look for the record in its leaf, and the change of it, in cycles.
const CHANGE: u64 = 150;
/// What is counted, in cycles.
const COUNTED: u64 = 8_000_000;

/// Transactions that update the row of a warehouse under the latch of its leaf; `leaves` of them have the rows.
fn warehouses<L: Latch>(machine: &Machine, leaves: usize) -> Sample {
    transactions::<L>(machine, leaves, PRIVATE).1
}

/// What each thread has done that updates rows of one leaf, and hardly anything else.
pub fn one_leaf<L: Latch>(machine: &Machine) -> (Vec<u64>, Sample) {
    transactions::<L>(machine, 1, THINKING)
}

/// Transactions of each thread, with `private` cycles beside the update.
fn transactions<L: Latch>(machine: &Machine, leaves: usize, private: u64) -> (Vec<u64>, Sample) {
    let contexts = machine.contexts;
    let (done, record) = run(machine, move || {
        let latches: Arc<Vec<Alone<L>>> = Arc::new((0..leaves).map(|_| Alone::default()).collect());
        let rows: Arc<Vec<Alone<AtomicU64>>> =
            Arc::new((0..WAREHOUSES).map(|_| Alone::default()).collect());
        let start = |number: u32| {
            let (latches, rows) = (Arc::clone(&latches), Arc::clone(&rows));
            let body = move || {
                let mut random = SplitMix64::new(u64::from(number) + 1);
                work_until(BEGIN);
                let mut done = 0_u64;
                while cycles().is_some_and(|now| now < BEGIN + COUNTED) {
                    work(private);
                    let row = random.below(WAREHOUSES as u64) as usize;
                    latches[row * leaves / WAREHOUSES].0.write(|| {
                        work(CHANGE);
                        rows[row].0.store(rows[row].0.load(Relaxed) + 1, Relaxed);
                    });
                    done += 1;
                }
                done
            };
            thread::spawn_named("terminal", body).expect("a virtual thread")
        };
        let terminals: Vec<_> = (0..contexts).map(start).collect();
        let ends =
            terminals.into_iter().map(|terminal| terminal.join().expect("it does not panic"));
        let done: Vec<u64> = ends.collect();
        let updated: u64 = rows.iter().map(|row| row.0.load(Relaxed)).sum();
        assert_eq!(updated, done.iter().sum::<u64>(), "an update was lost");
        done
    })
    .unwrap_or_else(|failure| panic!("{failure}"));
    let seconds = COUNTED as f64 / f64::from(machine.mhz) / 1e6;
    let value = done.iter().sum::<u64>() as f64 / seconds / 1e6;
    (done, Sample::new(machine.seed, value, &record))
}

/// Three latches, with the rows of all warehouses in one leaf and with one leaf for each.
pub fn c10(budget: &Budget) -> Figure {
    type Run = fn(&Machine, usize) -> Sample;
    let latches: [(&str, Run); 3] = [
        ("spinning", warehouses::<spinning::TestFirst<AtomicU64>>),
        ("spinning with backoff", warehouses::<spinning::Backoff<AtomicU64>>),
        ("hybrid, parked", warehouses::<blocking::Parked>),
    ];
    let mut series = Vec::new();
    for (what, leaves) in [("one leaf", 1), ("a leaf each", WAREHOUSES)] {
        for (name, transactions) in latches {
            let point = |&cores: &u32| {
                let machine = Machine::ROME1S.with_contexts(cores);
                Point::measure(f64::from(cores), budget, |seed| {
                    transactions(&machine.clone().with_seed(seed), leaves)
                })
            };
            let points = budget.cores(&[1, 8, 16, 32, 64, 96, 128]).iter().map(point).collect();
            series.push(Series { name: format!("{name}, {what}"), points });
        }
    }
    Figure {
        machine: "rome1s",
        x: "cores",
        unit: "million updates of a warehouse a second",
        is_logarithmic: false,
        series,
        note: "Latches of the laboratory and a model of TPC-C's hottest leaf, not the engine. The paper: spin locks are the best at their peak and \
               get worse; the hybrid latch stays where it is from 50 threads on; with one leaf each both scale.",
    }
}
