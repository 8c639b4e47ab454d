//! Medians and spread of records: what tables and pictures are made of.
//!
//! A figure of a competitor is the median over the pairs; its spread is the smallest and the
//! largest. Ratios are taken within each pair, so that a slow minute that hit both does not show.

use crate::cell::{Operation, Phase, PhaseResult};
use crate::experiments::Figure;
use crate::record::{Measurement, Outcome, Records};
use std::collections::BTreeMap;

/// A median and its spread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The middle one; of an even number the mean of the middle two.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// How many there are.
    pub count: usize,
}

impl Spread {
    /// The spread of `figures`, if there are any.
    pub fn of(mut figures: Vec<f64>) -> Option<Spread> {
        figures.sort_by(f64::total_cmp);
        let (min, max) = (*figures.first()?, *figures.last()?);
        let count = figures.len();
        let median = (figures[(count - 1) / 2] + figures[count / 2]) / 2.0;
        Some(Spread { median, min, max, count })
    }
}

/// One competitor in one phase.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Who.
    pub competitor: String,
    /// Rate or space; `None` if there is no figure.
    pub figure: Option<Spread>,
    /// The figure over that of the table's first competitor, pair by pair.
    pub ratio: Option<Spread>,
    /// Page reads an operation, by the competitor's own count.
    pub reads: Option<Spread>,
    /// Microseconds of processor time an operation.
    pub cpu_us: Option<Spread>,
    /// MiB a second that the process read from the disk and wrote to it.
    pub disk_mib: Option<Spread>,
}

/// One phase.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its name; `load` for loading.
    pub phase: String,
    /// Competitors that gave figures, in the order in which they first ran.
    pub entries: Vec<Entry>,
}

/// One case of an experiment.
#[derive(Clone, Debug)]
pub struct Table {
    /// Name of the experiment.
    pub experiment: String,
    /// Name of the case.
    pub case: String,
    /// What the figures are.
    pub figure: Figure,
    /// What was asked, in words.
    pub setting: String,
    /// Phases, loading first.
    pub rows: Vec<Row>,
    /// Bytes of memory a record after loading, and bytes of pages a record at the end, by competitor.
    pub bytes_a_record: Vec<(String, Option<Spread>, Option<Spread>)>,
    /// What did not give figures: who, and why.
    pub missing: Vec<String>,
}

/// Sums up records; cases are in the order in which they first ran.
pub fn tables(records: &Records) -> Vec<Table> {
    let mut groups: Vec<((&str, &str), Vec<&Measurement>)> = Vec::new();
    for measurement in &records.measurements {
        let name = (measurement.experiment.as_str(), measurement.case.as_str());
        match groups.iter_mut().find(|(known, _)| *known == name) {
            Some((_, group)) => group.push(measurement),
            None => groups.push((name, vec![measurement])),
        }
    }
    groups.into_iter().map(|(_, group)| table(&group)).collect()
}

fn table(group: &[&Measurement]) -> Table {
    let first = group[0];
    let mut competitors: Vec<&str> = Vec::new();
    for measurement in group.iter().filter(|measurement| measurement.result().is_some()) {
        if !competitors.contains(&measurement.competitor.as_str()) {
            competitors.push(&measurement.competitor);
        }
    }
    // Not every competitor is asked for every phase.
    let mut phases: Vec<&Phase> = Vec::new();
    for phase in group.iter().flat_map(|measurement| &measurement.cell.phases) {
        // One settling a second says nothing; what it leaves does.
        let counts = first.figure == Figure::Space || phase.operation != (Operation::Settle {});
        if counts && !phases.iter().any(|known| known.name == phase.name) {
            phases.push(phase);
        }
    }
    let phases = phases.iter().map(|phase| Some(phase.name.as_str()));
    let row = |phase: Option<&str>| Row {
        phase: phase.unwrap_or("load").to_owned(),
        entries: entries(group, &competitors, first.figure, phase),
    };
    Table {
        experiment: first.experiment.clone(),
        case: first.case.clone(),
        figure: first.figure,
        setting: setting(first),
        rows: std::iter::once(None).chain(phases).map(row).collect(),
        bytes_a_record: bytes_a_record(group, &competitors),
        missing: group.iter().filter_map(|measurement| missing(measurement)).collect(),
    }
}

fn setting(measurement: &Measurement) -> String {
    let cell = &measurement.cell;
    let limit = cell.memory_limit_bytes.map_or("no memory limit".to_owned(), |bytes| {
        format!("a memory limit of {:.1} MiB", bytes as f64 / f64::from(1 << 20))
    });
    format!(
        "{} keys ({}), {} of them loaded, values of {} bytes, {limit}",
        cell.keys.count, cell.keys.name, cell.load_count, cell.value_bytes
    )
}

fn missing(measurement: &Measurement) -> Option<String> {
    let name = &measurement.competitor;
    match (&measurement.mismatch, &measurement.outcome) {
        (Some(mismatch), _) => Some(format!("{name} did different work: {mismatch}")),
        (None, Outcome::Missing(error)) => Some(format!("{name}: {error}")),
        (None, Outcome::Measured(_)) => None,
    }
}

fn entries(
    group: &[&Measurement],
    competitors: &[&str],
    figure: Figure,
    phase: Option<&str>,
) -> Vec<Entry> {
    let figures = |competitor: &str| figures(group, competitor, figure, phase);
    let first = competitors.first().map(|first| figures(first)).unwrap_or_default();
    let entry = |competitor: &&str| {
        let own = figures(competitor);
        let ratios = own.iter().filter_map(|(pair, figure)| {
            first.get(pair).filter(|first| **first > 0.0).map(|first| figure / first)
        });
        let each = |part: &dyn Fn(&PhaseResult) -> Option<f64>| {
            let results = of(group, competitor).filter_map(|m| phase_result(m, phase));
            Spread::of(results.filter(|r| r.operations > 0).filter_map(part).collect())
        };
        Entry {
            competitor: (*competitor).to_owned(),
            figure: Spread::of(own.values().copied().collect()),
            ratio: Spread::of(ratios.collect()),
            reads: each(&|result| Some(result.page_reads? as f64 / result.operations as f64)),
            cpu_us: each(&|result| Some(result.cpu_seconds? * 1e6 / result.operations as f64)),
            disk_mib: each(&|result| {
                let bytes = result.device_read_bytes? + result.device_written_bytes?;
                (result.seconds > 0.0).then(|| bytes as f64 / f64::from(1 << 20) / result.seconds)
            }),
        }
    };
    competitors.iter().map(entry).collect()
}

fn of<'a>(
    group: &'a [&'a Measurement],
    competitor: &'a str,
) -> impl Iterator<Item = &'a Measurement> {
    group.iter().copied().filter(move |measurement| measurement.competitor == competitor)
}

/// What `measurement` gave in a phase; `None` is loading.
fn phase_result<'a>(measurement: &'a Measurement, phase: Option<&str>) -> Option<&'a PhaseResult> {
    let result = measurement.result()?;
    let Some(name) = phase else { return Some(&result.load) };
    let at = measurement.cell.phases.iter().position(|phase| phase.name == name)?;
    result.phases.get(at)
}

/// A competitor's figures by run and pair.
fn figures(
    group: &[&Measurement],
    competitor: &str,
    figure: Figure,
    phase: Option<&str>,
) -> BTreeMap<(usize, usize), f64> {
    let mut figures = BTreeMap::new();
    for measurement in of(group, competitor) {
        let Some(result) = phase_result(measurement, phase) else { continue };
        let value = match figure {
            Figure::Rate => (result.seconds > 0.0).then(|| result.rate()),
            Figure::Space => {
                let loaded = measurement.loaded_bytes as f64;
                result.file_bytes.filter(|_| loaded > 0.0).map(|bytes| bytes as f64 / loaded)
            }
        };
        if let Some(value) = value {
            figures.insert((measurement.run, measurement.pair), value);
        }
    }
    figures
}

fn bytes_a_record(
    group: &[&Measurement],
    competitors: &[&str],
) -> Vec<(String, Option<Spread>, Option<Spread>)> {
    let each = |competitor: &&str| {
        let results = || of(group, competitor).filter_map(Measurement::result);
        let results = || results().filter(|result| result.records > 0);
        let memory = results().filter(|result| result.load.operations > 0).filter_map(|result| {
            Some(result.load.memory_bytes? as f64 / result.load.operations as f64)
        });
        let pages =
            results().filter_map(|result| Some(result.store_bytes? as f64 / result.records as f64));
        ((*competitor).to_owned(), Spread::of(memory.collect()), Spread::of(pages.collect()))
    };
    competitors.iter().map(each).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::cell::{Cell, CellResult, KeyKind, KeySet, LoadOrder, PROTOCOL, Place};
    use crate::experiments::{self, Size};

    /// A process in which the k-th phase of `phases` did 10 operations in `seconds[k]`.
    fn measurement(
        competitor: &str,
        (run, pair): (usize, usize),
        phases: &[Phase],
        seconds: &[f64],
    ) -> Measurement {
        let result = |seconds| PhaseResult { operations: 10, seconds, ..PhaseResult::default() };
        Measurement {
            experiment: "experiment".into(),
            case: "case".into(),
            figure: Figure::Rate,
            competitor: competitor.into(),
            pair,
            cell: Cell {
                protocol: PROTOCOL,
                competitor: competitor.into(),
                keys: KeySet { name: "k".into(), kind: KeyKind::Random8, count: 10, path: None },
                value_bytes: 8,
                load_order: LoadOrder::Shuffled,
                load_count: 10,
                phases: phases.to_vec(),
                place: Place::Memory,
                memory_limit_bytes: None,
                directory: "store".into(),
                page_bytes: None,
                seconds_limit: 1,
            },
            loaded_bytes: 160,
            outcome: Outcome::Measured(Box::new(CellResult {
                protocol: PROTOCOL,
                load: result(1.0),
                phases: seconds.iter().copied().map(result).collect(),
                records: 10,
                store_bytes: Some(4096),
                facts: BTreeMap::new(),
            })),
            mismatch: None,
            run,
        }
    }

    fn median(table: &Table, phase: &str, competitor: &str) -> (Option<f64>, Option<f64>) {
        let row = table.rows.iter().find(|row| row.phase == phase).unwrap();
        let entry = row.entries.iter().find(|entry| entry.competitor == competitor).unwrap();
        (entry.figure.map(|spread| spread.median), entry.ratio.map(|spread| spread.median))
    }

    #[test]
    fn ratios_are_taken_within_pairs_and_phases_by_name() {
        let case = &experiments::find("against-btreemap", Size::Smoke).unwrap().cases[0];
        let [insert, get, ..] = case.phases.as_slice() else { panic!("{case:?}") };
        let both = [insert.clone(), get.clone()];
        let only_get = [get.clone()];
        let records = Records {
            headers: Vec::new(),
            measurements: vec![
                // A slow hour hits the second pair, and `b` is twice as fast in each.
                measurement("a", (1, 1), &both, &[1.0, 1.0]),
                measurement("b", (1, 1), &only_get, &[0.5]),
                measurement("b", (1, 2), &only_get, &[5.0]),
                measurement("a", (1, 2), &both, &[10.0, 10.0]),
                // Alone in a run of its own, it has nobody to be compared with.
                measurement("b", (2, 1), &only_get, &[100.0]),
            ],
            unreadable: Vec::new(),
        };
        let tables = tables(&records);
        let [table] = tables.as_slice() else { panic!("{tables:?}") };
        assert_eq!(median(table, &get.name, "a"), (Some(5.5), Some(1.0)));
        assert_eq!(median(table, &get.name, "b"), (Some(2.0), Some(2.0)));
        assert_eq!(median(table, &insert.name, "a"), (Some(5.5), Some(1.0)));
        assert_eq!(median(table, &insert.name, "b"), (None, None), "not asked");
    }

    #[test]
    fn work_that_differs_does_not_count() {
        let case = &experiments::find("against-btreemap", Size::Smoke).unwrap().cases[0];
        let phases = &case.phases[1..2];
        let mut wrong = measurement("b", (1, 1), phases, &[0.1]);
        wrong.mismatch = Some("other records".into());
        let records = Records {
            headers: Vec::new(),
            measurements: vec![measurement("a", (1, 1), phases, &[1.0]), wrong],
            unreadable: Vec::new(),
        };
        let table = &tables(&records)[0];
        assert!(table.rows.iter().all(|row| row.entries.len() == 1), "{table:?}");
        assert_eq!(table.missing, ["b did different work: other records"]);
    }

    #[test]
    fn medians_and_spread() {
        assert_eq!(Spread::of(Vec::new()), None);
        let odd = Spread::of(vec![3.0, 1.0, 2.0]).unwrap();
        assert_eq!((odd.median, odd.min, odd.max, odd.count), (2.0, 1.0, 3.0, 3));
        let even = Spread::of(vec![4.0, 1.0, 2.0, 3.0]).unwrap();
        assert_eq!(even.median, 2.5);
    }
}
