//! Figures of the papers on a simulated many-core machine: `cargo xtask simulate`.
//!
//! The latches and trees are the very same code that runs natively; the machine under them is `hedgerow-sim`'s. Figures are
//! shapes and no predictions, and every table and picture says that it is simulated. One thread. Exit code 2 for wrong arguments, 1 if
//! something could not be written.

#[cfg(not(hedgerow_sim))]
fn main() -> std::process::ExitCode {
    eprintln!("build this with RUSTFLAGS=\"--cfg hedgerow_sim\", or run `cargo xtask simulate`");
    std::process::ExitCode::from(2)
}

#[cfg(hedgerow_sim)]
mod chart;
#[cfg(hedgerow_sim)]
mod eunomia;
#[cfg(hedgerow_sim)]
mod figure;
#[cfg(hedgerow_sim)]
mod heap;
#[cfg(hedgerow_sim)]
mod hpca;
#[cfg(hedgerow_sim)]
mod latches;
#[cfg(hedgerow_sim)]
mod tpcc;
#[cfg(hedgerow_sim)]
mod trees;
#[cfg(hedgerow_sim)]
mod validate;

#[cfg(hedgerow_sim)]
#[global_allocator]
static HEAP: heap::Lines = heap::Lines::new();

#[cfg(hedgerow_sim)]
fn main() -> std::process::ExitCode {
    command::main()
}

#[cfg(hedgerow_sim)]
mod command {
    use crate::figure::{Budget, Figure};
    use crate::{chart, eunomia, hpca, latches, tpcc, trees, validate};
    use std::path::{Path, PathBuf};
    use std::process::ExitCode;

    const USAGE: &str = "\
usage: cargo xtask simulate --all | --figure NAME[,NAME...] [--seeds N] [--cores N[,N...]] [--smoke] [--to DIR]
       cargo xtask simulate validate

Runs latches and trees on a simulated machine, prints tables, and writes a record (JSON lines) and a picture (SVG) of each figure
to DIR, or else to target/simulated/figures. `validate` measures loads, read-modify-writes, a line between two threads and look-ups on
this machine, makes a simulated one of it, and runs the same there; exit code 1 if one of the first three differs by more than a factor
of two.

  --seeds N     runs of each point, 1 to 99; the figure is the median [default: 5]
  --cores N,..  hardware threads of the machine, 1 to 128 each, instead of a figure's own
  --smoke       a part of each figure, with one seed

figures:";

    /// What draws a figure.
    type Draw = fn(&Budget) -> Figure;

    /// All figures, and what they show.
    const FIGURES: &[(&str, &str, Draw)] = &[
        ("table3", "DaMoN'20, table 3: what an acquisition costs", latches::table3),
        ("fig8", "DaMoN'20, figure 8: one lock, many threads", latches::fig8),
        ("c1", "CIDR'21, figure 3: TPC-C with and without Contention Split", tpcc::c1),
        ("hot-leaf", "updates of 16 keys that one leaf holds", trees::hot_leaf),
        ("one-key", "updates of one key", trees::one_key),
        ("c3", "CIDR'21, figure 8: the period of Contention Split", trees::c3),
        ("c9", "CIDR'21, figure 6: a hot spot that moves", trees::c9),
        ("c10", "CIDR'21, figure 7: the choice of the latch", latches::c10),
        ("c11", "CIDR'21, table 1: who gets to update", trees::c11),
        ("fig22", "SIGMOD'25, figure 22: Contention Split and the size of pages", trees::fig22),
        ("hpca3", "HPCA'14, figures 3 and 4: locks over two sockets", hpca::hpca3),
        ("hpca5", "HPCA'14, figure 5: the elided B+tree", hpca::hpca5),
        ("hpca6", "HPCA'14, figure 6: the Delta Storage Index", hpca::hpca6),
        ("hpca7", "HPCA'14, figure 7: lines that overflow a cache", hpca::hpca7),
        ("hpca9", "HPCA'14, figure 9: the tuned index", hpca::hpca9),
        ("hpca9-lock", "HPCA'14, sections 4.3 and 5.3: the lock", hpca::hpca9_lock),
        ("hpca10", "HPCA'14, figure 10: how the tuned index scales", hpca::hpca10),
        ("lemming", "HPCA'14, section 3.3.2: the lemming effect", hpca::hpca_lemming),
        ("adaptive", "HPCA'14, section 3.3.3: elision that is disabled", hpca::hpca_adaptive),
        ("euno1", "PPoPP'17, figure 1: one region an operation", eunomia::euno1),
        ("euno2", "PPoPP'17, figure 2: why its regions abort", eunomia::euno2),
        ("euno8", "PPoPP'17, figure 8: throughput over contention", eunomia::euno8),
        ("euno8-ycsb", "the same, with loaded keys", eunomia::euno8_ycsb),
        ("euno9", "PPoPP'17, figure 9: aborts over contention", eunomia::euno9),
        ("euno10", "PPoPP'17, figure 10: throughput over threads", eunomia::euno10),
        ("euno11", "PPoPP'17, figure 11: shares of gets", eunomia::euno11),
        ("euno12", "PPoPP'17, figure 12: distributions", eunomia::euno12),
        ("euno13", "PPoPP'17, figure 13: step by step", eunomia::euno13),
        ("euno13-ycsb", "the same, with loaded keys", eunomia::euno13_ycsb),
    ];

    struct Arguments {
        figures: Vec<&'static (&'static str, &'static str, Draw)>,
        budget: Budget,
        to: PathBuf,
    }

    /// A number of a range, or the reason why not.
    fn number(word: &str, what: &str, most: u32) -> Result<u32, String> {
        let number = word.parse().ok().filter(|number| (1..=most).contains(number));
        number.ok_or_else(|| format!("{what} is a number from 1 to {most}, not `{word}`"))
    }

    fn parse(words: &[String]) -> Result<Arguments, String> {
        let mut figures = Vec::new();
        let mut budget = Budget { seeds: 5, cores: Vec::new(), is_smoke: false };
        let mut to = PathBuf::from("target/simulated/figures");
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("`{word}` wants a value"));
            match word.as_str() {
                "--all" => figures.extend(FIGURES),
                "--figure" => {
                    for name in value()?.split(',') {
                        let known = FIGURES.iter().find(|(known, ..)| *known == name);
                        figures.push(known.ok_or_else(|| format!("there is no figure `{name}`"))?);
                    }
                }
                "--seeds" => budget.seeds = u64::from(number(value()?, "--seeds", 99)?),
                "--cores" => {
                    let most = hedgerow_sim::MAX_CONTEXTS;
                    let all = value()?.split(',').map(|word| number(word, "--cores", most));
                    budget.cores = all.collect::<Result<_, _>>()?;
                }
                "--smoke" => (budget.is_smoke, budget.seeds) = (true, 1),
                "--to" => to = PathBuf::from(value()?),
                other => return Err(format!("`{other}` is no argument of this command")),
            }
        }
        if figures.is_empty() {
            return Err("name a figure, or --all".to_owned());
        }
        Ok(Arguments { figures, budget, to })
    }

    pub(super) fn main() -> ExitCode {
        let words: Vec<String> = std::env::args().skip(1).collect();
        let usage = || {
            let lines = FIGURES.iter().map(|(name, what, _)| format!("\n  {name:<12}  {what}"));
            format!("{USAGE}{}", lines.collect::<String>())
        };
        if words.iter().any(|word| word == "--help" || word == "-h") {
            println!("{}", usage());
            return ExitCode::SUCCESS;
        }
        if words == ["validate"] {
            let (machine, rows) = validate::validate();
            println!("{}", validate::table(&machine, &rows));
            let all_hold = rows.iter().all(validate::Row::holds);
            return if all_hold { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        }
        match parse(&words) {
            Err(error) => {
                eprintln!("error: {error}\n\n{}", usage());
                ExitCode::from(2)
            }
            Ok(arguments) => match run(&arguments) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    eprintln!("error: {error}");
                    ExitCode::FAILURE
                }
            },
        }
    }

    fn run(arguments: &Arguments) -> Result<(), String> {
        let failed = |path: &Path, error: &dyn std::fmt::Display| {
            format!("cannot write {}: {error}", path.display())
        };
        std::fs::create_dir_all(&arguments.to).map_err(|error| failed(&arguments.to, &error))?;
        for (name, what, draw) in &arguments.figures {
            let began = std::time::Instant::now();
            let figure = draw(&arguments.budget);
            println!("{}", figure.table(name, what));
            eprintln!("{name}: {:.1} s", began.elapsed().as_secs_f64());
            let record = arguments.to.join(format!("{name}.jsonl"));
            std::fs::write(&record, figure.record(name))
                .map_err(|error| failed(&record, &error))?;
            let picture = arguments.to.join(format!("{name}.svg"));
            let svg = chart::draw(&figure, what).map_err(|error| failed(&picture, &error))?;
            std::fs::write(&picture, svg).map_err(|error| failed(&picture, &error))?;
        }
        Ok(())
    }
}
