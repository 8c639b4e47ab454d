//! A figure: series of points, each of several runs with seeds of their own.
//!
//! Plain data.

use hedgerow_sim::{Counts, Record};
use serde::Serialize;
use std::fmt::Write;

/// How much is to be run.
pub struct Budget {
    /// Runs of each point.
    pub seeds: u64,
    /// Hardware threads, instead of a figure's own; empty for these.
    pub cores: Vec<u32>,
    /// A part of the figure, to see that it works.
    pub is_smoke: bool,
}

impl Budget {
    /// Hardware threads of a figure which has these.
    pub fn cores(&self, own: &[u32]) -> Vec<u32> {
        match (self.cores.is_empty(), self.is_smoke) {
            (false, _) => self.cores.clone(),
            (true, false) => own.to_vec(),
            (true, true) => {
                let few = own.iter().copied().filter(|&cores| cores <= 16);
                vec![few.max().unwrap_or(16)]
            }
        }
    }
}

/// What one run gave.
#[derive(Clone, Copy, Serialize)]
pub struct Sample {
    /// The seed of the machine.
    pub seed: u64,
    /// In the figure's unit.
    pub value: f64,
    /// Leaves that Contention Split has split.
    pub splits: u64,
    /// Accesses that were simulated.
    pub events: u64,
    /// Of these: lines that another core had last.
    pub moved: u64,
    /// Times that a thread went to sleep.
    pub sleeps: u64,
    /// Times that a thread was woken by another.
    pub wakes: u64,
    /// Of every access: equal if the runs were.
    pub digest: u64,
}

/// All runs of one machine.
pub struct Point {
    /// Where it is on the horizontal axis.
    pub x: f64,
    /// By their values.
    pub samples: Vec<Sample>,
}

impl Sample {
    /// Of no run.
    pub fn computed(value: f64) -> Sample {
        Sample { seed: 0, value, splits: 0, events: 0, moved: 0, sleeps: 0, wakes: 0, digest: 0 }
    }

    /// Of a run, whose splits are not counted here.
    pub fn new(seed: u64, value: f64, record: &Record) -> Sample {
        let Counts { events, near, same, cross, sleeps, wakes, .. } = record.counts;
        let moved = near + same + cross;
        Sample { seed, value, splits: 0, events, moved, sleeps, wakes, digest: record.digest }
    }
}

impl Point {
    /// Runs a point with each seed.
    pub fn measure(x: f64, budget: &Budget, mut run: impl FnMut(u64) -> Sample) -> Point {
        let mut samples: Vec<Sample> = (1..=budget.seeds).map(&mut run).collect();
        samples.sort_by(|a, b| a.value.total_cmp(&b.value));
        Point { x, samples }
    }

    /// The median.
    pub fn median(&self) -> f64 {
        self.samples[self.samples.len() / 2].value
    }

    /// The least and the greatest.
    pub fn range(&self) -> (f64, f64) {
        (self.samples[0].value, self.samples[self.samples.len() - 1].value)
    }

    /// Half of the distance from the least to the greatest, as a share of the median.
    fn spread(&self) -> f64 {
        let (least, greatest) = self.range();
        if self.median() == 0.0 { 0.0 } else { (greatest - least) / 2.0 / self.median() }
    }
}

/// Points that are one line of the picture.
pub struct Series {
    /// What it is called.
    pub name: String,
    /// From left to right.
    pub points: Vec<Point>,
}

/// A figure.
pub struct Figure {
    /// Of the preset.
    pub machine: &'static str,
    /// Of the horizontal axis.
    pub x: &'static str,
    /// Of the values.
    pub unit: &'static str,
    /// The horizontal axis doubles at each step.
    pub is_logarithmic: bool,
    /// Its lines.
    pub series: Vec<Series>,
    /// What the paper says, or how to read it.
    pub note: &'static str,
}

impl Figure {
    /// A table in Markdown.
    pub fn table(&self, name: &str, what: &str) -> String {
        let mut text = format!("\n## {name}: {what}\n\n");
        let Figure { machine, unit, note, x, .. } = self;
        let seeds = self.series.iter().flat_map(|s| &s.points).map(|p| p.samples.len()).max();
        let _never_fails = writeln!(
            text,
            "SIMULATED ({machine}): {unit}; medians of {} seeds, ± half of the spread. {note}\n",
            seeds.unwrap_or(0)
        );
        let mut columns: Vec<f64> =
            self.series.iter().flat_map(|series| &series.points).map(|point| point.x).collect();
        columns.sort_by(f64::total_cmp);
        columns.dedup();
        let head: String = columns.iter().map(|column| format!(" {column} |")).collect();
        text += &format!("| {x} |{head}\n|---|{}\n", "---|".repeat(columns.len()));
        for series in &self.series {
            let cell = |column: &f64| match series.points.iter().find(|p| p.x == *column) {
                Some(point) => {
                    format!(" {:.4} ± {:.0} % |", point.median(), 100.0 * point.spread())
                }
                None => " |".to_owned(),
            };
            let cells: String = columns.iter().map(cell).collect();
            text += &format!("| {} |{cells}\n", series.name);
        }
        text
    }

    /// A line of JSON for each run.
    pub fn record(&self, name: &str) -> String {
        #[derive(Serialize)]
        struct Line<'a> {
            simulated: bool,
            figure: &'a str,
            machine: &'a str,
            unit: &'a str,
            series: &'a str,
            x: f64,
            #[serde(flatten)]
            sample: Sample,
        }
        let mut text = String::new();
        for series in &self.series {
            for point in &series.points {
                for &sample in &point.samples {
                    let line = Line {
                        simulated: true,
                        figure: name,
                        machine: self.machine,
                        unit: self.unit,
                        series: &series.name,
                        x: point.x,
                        sample,
                    };
                    text += &serde_json::to_string(&line).expect("numbers and names");
                    text.push('\n');
                }
            }
        }
        text
    }
}
