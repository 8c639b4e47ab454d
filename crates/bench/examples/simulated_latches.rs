//! Table 3 of "Scalable and Robust Latches for Database Systems" (DaMoN 2020) on the simulated machine, beside what is printed there.
//!
//! `RUSTFLAGS="--cfg hedgerow_sim" cargo run --release -p hedgerow-bench --example simulated_latches -- [SEEDS [MACHINE]]`
//!
//! Some threads take one latch over and over, to read or to write. What counts is cycles of all processors per acquisition, where
//! a thread that sleeps has none, and lines that had to be fetched. Medians of seeds, and the spread. The
//! figures are simulated: shapes, and no predictions.

#[cfg(not(hedgerow_sim))]
fn main() {
    eprintln!("build this with RUSTFLAGS=\"--cfg hedgerow_sim\"");
    std::process::exit(2);
}

#[cfg(hedgerow_sim)]
fn main() {
    let mut arguments = std::env::args().skip(1);
    let seeds = arguments.next().map_or(Some(5), |seeds| seeds.parse().ok());
    let seeds = seeds.filter(|&seeds| (1..=99).contains(&seeds));
    let machine = hedgerow_sim::Machine::preset(arguments.next().as_deref().unwrap_or("ivb2s"));
    let (Some(seeds), Some(machine), None) = (seeds, machine, arguments.next()) else {
        eprintln!("simulated_latches [SEEDS from 1 to 99 [ivb2s|hsw2s|hsw1s|snb2s|rome1s]]");
        std::process::exit(2);
    };
    laboratory::table(&machine, seeds);
}

#[cfg(hedgerow_sim)]
mod laboratory {
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

    /// Cycles and lines fetched per acquisition.
    type Cost = (f64, f64);

    fn measure<L: Latch>(machine: &Machine, is_write: bool) -> Cost {
        let contexts = machine.contexts;
        let ((cpu, acquired), record) = run(machine, move || {
            let latch = Arc::new(Alone(L::default()));
            let body = move |latch: &Alone<L>| {
                work_until(BEGIN);
                let (before, mut acquired) = (cpu_cycles().unwrap_or(0), 0);
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
        let acquired = f64::from(acquired);
        (cpu as f64 / acquired, record.counts.misses() as f64 / acquired)
    }

    type Measure = fn(&Machine, bool) -> Cost;

    /// What the paper prints for a latch: cycles to read at 1 and 40 threads, and to write.
    const PAPER: [(&str, [&str; 4]); 6] = [
        ("optimistic", ["8", "12", "97", "8636"]),
        ("hybrid, spinning", ["11", "17", "69", "4082"]),
        ("hybrid, parked", ["11", "17", "82", "421"]),
        ("RW spin", ["57", "4531", "60", "52215"]),
        ("queuing RW", ["141", "77584", "70", "79928"]),
        ("futex RW", ["81", "9583", "95", "29201"]),
    ];

    /// The name of each latch, and how it is measured.
    #[derive(Default)]
    struct Latches(Vec<(&'static str, Measure)>);

    impl Visitor for Latches {
        fn visit<L: Latch>(&mut self, name: &'static str, _shared: bool) {
            self.0.push((name, measure::<L>));
        }
    }

    /// The median cost, and half of the distance from the cheapest to the dearest as a share of it.
    fn of_seeds(seeds: u64, machine: &Machine, measure: Measure, is_write: bool) -> (Cost, f64) {
        let cost = |seed| measure(&machine.clone().with_seed(seed), is_write);
        let mut costs: Vec<Cost> = (1..=seeds).map(cost).collect();
        costs.sort_by(|a, b| a.0.total_cmp(&b.0));
        let median = costs[costs.len() / 2];
        (median, (costs[costs.len() - 1].0 - costs[0].0) / 2.0 / median.0)
    }

    pub fn table(machine: &Machine, seeds: u64) {
        println!(
            "SIMULATED: cycles of all processors per acquisition; medians of {seeds} seeds, ± half of the spread;"
        );
        println!(
            "lines fetched per acquisition at 40 threads; beside it DaMoN'20, table 3, at 1 and 40 threads"
        );
        let mut latches = Latches::default();
        visit_all(&mut latches);
        for is_write in [false, true] {
            println!("\n{}", if is_write { "to write" } else { "to read" });
            println!(
                "{:>21} {:>9} {:>15} {:>15} {:>15} {:>7} | {:>7} {:>7}",
                "threads", 1, 10, 20, 40, "lines", "1", "40"
            );
            for &(name, measure) in &latches.0 {
                let paper =
                    PAPER.iter().find(|(of, _)| *of == name).map_or([""; 4], |(_, paper)| *paper);
                print!("{name:>21}");
                let mut lines = 0.0;
                for contexts in [1, 10, 20, 40] {
                    let machine = machine.clone().with_contexts(contexts);
                    let (cost, spread) = of_seeds(seeds, &machine, measure, is_write);
                    lines = cost.1;
                    match contexts {
                        1 => print!(" {:>9.1}", cost.0),
                        _ => print!(" {:>9.1} ±{:>3.0}%", cost.0, 100.0 * spread),
                    }
                }
                let [one, forty] =
                    if is_write { [paper[2], paper[3]] } else { [paper[0], paper[1]] };
                println!(" {lines:>7.1} | {one:>7} {forty:>7}");
            }
        }
    }
}
