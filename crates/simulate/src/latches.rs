//! One latch that all threads take over and over: table 3 and figure 8 of "Scalable and Robust Latches for Database Systems" (DaMoN 2020).

use crate::figure::{Budget, Figure, Point, Sample, Series};
use hedgerow_bench::latches::{Latch, Visitor, visit_all};
use hedgerow_sim::{Machine, cpu_cycles, cycles, run, work, work_until};
use hedgerow_sync::primitive::{Arc, thread};

/// When all threads are there, and for how long they are looked at, in cycles.
const BEGIN: u64 = 1_000_000;
const SPAN: u64 = 1_000_000;
/// The loop around an acquisition.
const LOOP: u64 = 4;

/// Nothing else is in its lines.
#[derive(Default)]
#[repr(align(4096))]
struct Alone<L>(L);

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
    let (events, digest) = (record.counts.events, record.digest);
    Sample { seed: machine.seed, value, splits: 0, events, digest }
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
