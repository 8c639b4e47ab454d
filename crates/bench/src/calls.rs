//! What single calls of a phase cost: how long they took, and what they wrote.
//!
//! A phase whose calls were timed has figures beside its rate, and a histogram of all calls; histograms of the same
//! phase and competitor are added up over the pairs. Plain data.

use crate::cell::{Latency, PhaseResult};
use crate::record::Measurement;
use std::collections::BTreeMap;

/// A figure of the single calls of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// Microseconds that half of the calls took at most.
    Median,
    /// That 99 of a hundred took at most.
    P99,
    /// That 999 of a thousand took at most.
    P999,
    /// That the longest took.
    Longest,
    /// Bytes written to the disk an operation.
    Written,
}

impl Call {
    /// All of them, in the order of reports.
    pub const ALL: [Call; 5] = [Call::Median, Call::P99, Call::P999, Call::Longest, Call::Written];

    /// Its name in reports, with the unit.
    pub fn name(self) -> &'static str {
        match self {
            Call::Median => "median us",
            Call::P99 => "99 % us",
            Call::P999 => "99.9 % us",
            Call::Longest => "longest us",
            Call::Written => "bytes written an operation",
        }
    }

    /// The figure, if the calls of the phase were timed.
    pub fn of(self, result: &PhaseResult) -> Option<f64> {
        let latency = result.latency.as_ref()?;
        match self {
            Call::Median => Some(latency.p50_us),
            Call::P99 => Some(latency.p99_us),
            Call::P999 => Some(latency.p999_us),
            Call::Longest => Some(latency.max_us),
            Call::Written => {
                let written = result.device_written_bytes.filter(|_| result.operations > 0)?;
                Some(written as f64 / result.operations as f64)
            }
        }
    }
}

/// How long all calls of a competitor took in one phase.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// Who.
    pub competitor: String,
    /// How long at most, in microseconds, in ascending order; and how many calls of a million took longer.
    pub slower: Vec<(f64, f64)>,
}

/// The curves of phase `name`, one for each of `competitors` that has histograms, in their order.
pub fn curves(group: &[&Measurement], competitors: &[&str], name: &str) -> Vec<Curve> {
    let curve = |competitor: &&str| {
        let of = group.iter().filter(|measurement| measurement.competitor == *competitor);
        let slower = slower(of.filter_map(|measurement| latency(measurement, name)));
        (!slower.is_empty()).then(|| Curve { competitor: (*competitor).to_owned(), slower })
    };
    competitors.iter().filter_map(curve).collect()
}

fn latency<'a>(measurement: &'a Measurement, name: &str) -> Option<&'a Latency> {
    let at = measurement.cell.phases.iter().position(|phase| phase.name == name)?;
    measurement.result()?.phases.get(at)?.latency.as_ref()
}

/// Adds histograms up, and turns them into what is above each step.
fn slower<'a>(all: impl Iterator<Item = &'a Latency>) -> Vec<(f64, f64)> {
    // Steps have ends in whole nanoseconds.
    let mut steps: BTreeMap<u64, u64> = BTreeMap::new();
    let mut calls = 0;
    for (end_us, count) in all.flat_map(|latency| &latency.histogram) {
        *steps.entry((end_us * 1e3).round() as u64).or_default() += count;
        calls += count;
    }
    let mut below = 0;
    let above = |(end, count)| {
        below += count;
        (end as f64 / 1e3, (calls - below) as f64 * 1e6 / calls as f64)
    };
    steps.into_iter().map(above).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_of_timed_calls_alone() {
        let untimed =
            PhaseResult { operations: 4, device_written_bytes: Some(8), ..Default::default() };
        assert!(Call::ALL.iter().all(|call| call.of(&untimed).is_none()));
        let latency =
            Latency { p50_us: 1.0, p99_us: 2.0, p999_us: 3.0, max_us: 4.0, ..Default::default() };
        let timed = PhaseResult { latency: Some(latency), ..untimed };
        let figures: Vec<_> = Call::ALL.iter().filter_map(|call| call.of(&timed)).collect();
        assert_eq!(figures, [1.0, 2.0, 3.0, 4.0, 2.0]);
    }

    #[test]
    fn histograms_of_pairs_add_up() {
        let with = |histogram: &[(f64, u64)]| Latency {
            histogram: histogram.to_vec(),
            ..Default::default()
        };
        let both = [with(&[(1.0, 6), (2.5, 1)]), with(&[(1.0, 2), (9.0, 1)])];
        let expected = [(1.0, 200_000.0), (2.5, 100_000.0), (9.0, 0.0)];
        assert_eq!(slower(both.iter()), expected);
        assert!(slower([with(&[])].iter()).is_empty());
    }
}
