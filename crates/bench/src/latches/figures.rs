//! Tables 2 and 3 and figures 7 and 8 of the paper, on this machine: what is run, what came of it, and the tables of it.
//!
//! All latches take turns in each round, and medians are over rounds. A cycle of the paper is processor time here, and instructions and
//! misses are not counted. Figure 6, whole databases with other latches, is left out: the engine has one. Plain functions.

use super::native::{self, Cost};
use super::{Latch, Nothing, Visitor, visit_all};
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::time::Duration;

/// A figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// One latch, alone and contended, read and written.
    Table3,
    /// Scans and updates of a table under latches of so many tuples.
    Figure7,
    /// One latch, written by more and more threads.
    Figure8,
}

/// What is to be run.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// Which figures.
    pub figures: Vec<Figure>,
    /// Only latches whose names contain this.
    pub only: Option<String>,
    /// Threads of the contended cells of table 3, and of figure 7.
    pub threads: u32,
    /// The numbers of threads of figure 8.
    pub crowds: Vec<u32>,
    /// For how long each cell runs.
    pub span: Duration,
    /// Tuples of the table of figure 7.
    pub tuples: usize,
    /// How often.
    pub rounds: u32,
}

/// A cell that was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Of which figure.
    pub figure: Figure,
    /// The latch.
    pub latch: String,
    /// Bytes of the latch.
    pub bytes: usize,
    /// Number of the round, from 1.
    pub round: u32,
    /// Threads.
    pub threads: u32,
    /// Of a hundred operations so many write.
    pub writes_percent: u32,
    /// Tuples under each latch; of figure 7 alone.
    pub tuples_each: Option<usize>,
    /// Acquisitions of table 3 and figure 8; scans, or [`UPDATES`](native::UPDATES) updates, of figure 7.
    pub operations: u64,
    /// How long it took.
    pub seconds: f64,
    /// Processor time of all threads.
    pub cpu_seconds: f64,
}

impl Measured {
    fn nanoseconds(&self) -> f64 {
        1e9 * self.cpu_seconds / self.operations.max(1) as f64
    }

    fn per_second(&self) -> f64 {
        self.operations as f64 / self.seconds.max(1e-9)
    }
}

/// Runs it. Each cell is handed to `done` when it is known; what that returns ends the run if it is an error.
pub fn run(
    setting: &Setting,
    done: &mut dyn FnMut(Measured) -> Result<(), String>,
) -> Result<(), String> {
    for round in 1..=setting.rounds {
        for &figure in &setting.figures {
            let mut run = Run { setting, figure, round, done, outcome: Ok(()) };
            run.visit::<Nothing>("no latch", true);
            visit_all(&mut run);
            run.outcome?;
        }
    }
    Ok(())
}

struct Run<'a> {
    setting: &'a Setting,
    figure: Figure,
    round: u32,
    done: &'a mut dyn FnMut(Measured) -> Result<(), String>,
    outcome: Result<(), String>,
}

impl Visitor for Run<'_> {
    fn visit<L: Latch>(&mut self, name: &'static str, _shared: bool) {
        let setting = self.setting;
        if setting.only.as_ref().is_some_and(|only| !name.contains(only.as_str())) {
            return;
        }
        let span = setting.span;
        match self.figure {
            Figure::Table3 => {
                for (is_write, threads) in
                    [false, true].into_iter().flat_map(|to| [1, setting.threads].map(|n| (to, n)))
                {
                    let percent = if is_write { 100 } else { 0 };
                    self.measure::<L>(name, threads, percent, None, || {
                        native::smash::<L>(threads, is_write, span)
                    });
                }
            }
            Figure::Figure7 => {
                let each = [1, 10, 100, 1_000, 10_000, 100_000];
                for each in each.into_iter().filter(|each| *each <= setting.tuples) {
                    for percent in [0, 1, 10, 50] {
                        let (threads, tuples) = (setting.threads, setting.tuples);
                        self.measure::<L>(name, threads, percent, Some(each), || {
                            native::scan_and_update::<L>(threads, tuples, each, percent, span)
                        });
                    }
                }
            }
            Figure::Figure8 => {
                for &threads in &setting.crowds {
                    self.measure::<L>(name, threads, 100, None, || {
                        native::smash::<L>(threads, true, span)
                    });
                }
            }
        }
    }
}

impl Run<'_> {
    fn measure<L: Latch>(
        &mut self,
        name: &str,
        threads: u32,
        writes_percent: u32,
        tuples_each: Option<usize>,
        cell: impl FnOnce() -> Cost,
    ) {
        if self.outcome.is_err() {
            return;
        }
        let Cost { operations, seconds, cpu_seconds } = cell();
        self.outcome = (self.done)(Measured {
            figure: self.figure,
            latch: name.to_owned(),
            bytes: size_of::<L>(),
            round: self.round,
            threads,
            writes_percent,
            tuples_each,
            operations,
            seconds,
            cpu_seconds,
        });
    }
}

/// The tables of all cells, in Markdown: medians over the rounds.
pub fn tables(all: &[Measured]) -> String {
    let mut text = String::from("\n## latches\n");
    for (figure, title, unit) in [
        (
            Figure::Table3,
            "Table 2, bytes of a latch, and table 3, processor time of all threads per acquisition",
            "ns",
        ),
        (Figure::Figure8, "Figure 8, one latch that is written", "millions of acquisitions/s"),
        (Figure::Figure7, "Figure 7, scans of a table, or as many updates", "operations/s"),
    ] {
        let of: Vec<&Measured> = all.iter().filter(|one| one.figure == figure).collect();
        if !of.is_empty() {
            write!(text, "\n{title}; {unit}:\n\n").expect("a string takes everything");
            table(&mut text, figure, &of).expect("a string takes everything");
        }
    }
    text
}

/// A line for each latch and a column for each kind of cell, in the order in which they came.
fn table(text: &mut String, figure: Figure, of: &[&Measured]) -> std::fmt::Result {
    type Column = (u32, u32, Option<usize>);
    let column = |one: &Measured| (one.threads, one.writes_percent, one.tuples_each);
    let (mut latches, mut columns): (Vec<&str>, Vec<Column>) = (Vec::new(), Vec::new());
    for one in of {
        if !latches.contains(&one.latch.as_str()) {
            latches.push(&one.latch);
        }
        if !columns.contains(&column(one)) {
            columns.push(column(one));
        }
    }
    write!(text, "| latch | bytes |")?;
    for (threads, writes, each) in &columns {
        let threads = if *threads == 1 { "1 thread".into() } else { format!("{threads} threads") };
        match (figure, each) {
            (Figure::Table3, _) if *writes == 0 => write!(text, " read, {threads} |")?,
            (Figure::Table3, _) => write!(text, " write, {threads} |")?,
            (_, Some(each)) => write!(text, " {each} tuples, {writes} % writes |")?,
            _ => write!(text, " {threads} |")?,
        }
    }
    writeln!(text, "\n|---|{}", "---:|".repeat(columns.len() + 1))?;
    for latch in latches {
        let mine = || of.iter().filter(|one| one.latch == latch);
        write!(text, "| {latch} | {} |", mine().next().map_or(0, |one| one.bytes))?;
        for place in &columns {
            let cells = mine().filter(|one| column(one) == *place);
            let figures = cells.map(|one| match figure {
                Figure::Table3 => one.nanoseconds(),
                Figure::Figure7 => one.per_second(),
                Figure::Figure8 => one.per_second() / 1e6,
            });
            match median(figures.collect()) {
                Some(median) => write!(text, " {} |", crate::numbers::show_number(median))?,
                None => write!(text, " |")?,
            }
        }
        writeln!(text)?;
    }
    Ok(())
}

fn median(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_unstable_by(f64::total_cmp);
    let half = figures.len() / 2;
    match figures.len() % 2 {
        0 if figures.is_empty() => None,
        0 => Some((figures[half - 1] + figures[half]) / 2.0),
        _ => Some(figures[half]),
    }
}
