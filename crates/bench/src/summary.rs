//! Medians and spread of records: what tables and pictures are made of.
//!
//! A figure of a competitor is the median over the pairs; its spread is the smallest and the
//! largest. Ratios are taken within each pair, so that a slow minute that hit both does not show.

use crate::calls::{self, Call, Curve};
use crate::cell::{CellResult, Durability, Phase, PhaseResult, Place};
use crate::experiments::Figure;
use crate::memory_group::group_bytes;
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
    /// The figure over that of the competitor before it, pair by pair; `None` for the first.
    pub step: Option<Spread>,
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
    /// Its name; `load` for loading. In [`Table::tree`] what of the tree it is.
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
    /// What single calls took and wrote, in phases whose calls were timed.
    pub calls: Vec<Row>,
    /// How long all calls took: the phase, and a curve for each competitor.
    pub curves: Vec<(String, Vec<Curve>)>,
    /// What stores and their trees look like at the end, as far as somebody tells.
    pub tree: Vec<Row>,
    /// Bytes of memory a record after loading, and bytes of pages a record at the end, by competitor.
    pub bytes_a_record: Vec<(String, Option<Spread>, Option<Spread>)>,
    /// What did not give figures: who, and why.
    pub missing: Vec<String>,
}

/// Where a figure comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source<'a> {
    /// Loading.
    Load,
    /// The phase of this name.
    Phase(&'a str),
    /// Single calls of the phase of this name.
    Call(&'a str, Call),
    /// Bytes of pages a record at the end.
    Bytes,
    /// Bytes of memory a record when the last one had been inserted.
    Memory,
    /// Records a leaf.
    Leaf,
    /// Children an inner node.
    FanOut,
    /// Levels.
    Height,
    /// How many of a hundred leaves have the layout of this name.
    Share(&'static str),
}

impl Source<'_> {
    const OF_TREES: [Source<'static>; 9] = [
        Source::Bytes,
        Source::Memory,
        Source::Leaf,
        Source::FanOut,
        Source::Height,
        Source::Share("comparison leaves"),
        Source::Share("fingerprint leaves"),
        Source::Share("semi-dense leaves"),
        Source::Share("fully dense leaves"),
    ];

    fn name(&self) -> String {
        match self {
            Source::Load => "load",
            Source::Phase(name) => name,
            Source::Call(name, call) => return format!("{name}: {}", call.name()),
            Source::Bytes => "bytes a record",
            Source::Memory => "memory a record",
            Source::Leaf => "records a leaf",
            Source::FanOut => "fan-out",
            Source::Height => "height",
            Source::Share(layout) => layout,
        }
        .to_owned()
    }
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
        let counts = first.figure == Figure::Space || !phase.operation.is_upkeep();
        if counts && !phases.iter().any(|known| known.name == phase.name) {
            phases.push(phase);
        }
    }
    let calls =
        phases.iter().flat_map(|phase| Call::ALL.map(|call| Source::Call(&phase.name, call)));
    let curves = phases.iter().filter_map(|phase| {
        let curves = calls::curves(group, &competitors, &phase.name);
        (!curves.is_empty()).then(|| (phase.name.clone(), curves))
    });
    let (calls, curves): (Vec<_>, Vec<_>) = (calls.collect(), curves.collect());
    let phases = phases.iter().map(|phase| Source::Phase(&phase.name));
    let row = |source: Source<'_>| Row {
        phase: source.name(),
        entries: entries(group, &competitors, first.figure, source),
    };
    let is_known = |row: &Row| row.entries.iter().any(|entry| entry.figure.is_some());
    Table {
        experiment: first.experiment.clone(),
        case: first.case.clone(),
        figure: first.figure,
        setting: setting(group),
        rows: std::iter::once(Source::Load).chain(phases).map(row).collect(),
        calls: calls.into_iter().map(row).filter(is_known).collect(),
        curves,
        tree: Source::OF_TREES.into_iter().map(row).filter(is_known).collect(),
        bytes_a_record: bytes_a_record(group, &competitors),
        missing: group.iter().filter_map(|measurement| missing(measurement)).collect(),
    }
}

fn setting(group: &[&Measurement]) -> String {
    let cell = &group[0].cell;
    let range = |number: fn(&Measurement) -> usize| {
        let numbers = || group.iter().map(|measurement| number(measurement));
        let (min, max) = (numbers().min().unwrap_or(0), numbers().max().unwrap_or(0));
        if min == max { max.to_string() } else { format!("{min} to {max}") }
    };
    let limit = cell.memory_limit_bytes.map_or("no memory limit".to_owned(), |bytes| {
        format!("a memory limit of {:.1} MiB", bytes as f64 / f64::from(1 << 20))
    });
    let durability = match cell.durability {
        Durability::None => "",
        Durability::Buffered => ", changes logged",
        Durability::Sync => ", changes synced one by one",
    };
    let grouped =
        group.iter().filter(|measurement| measurement.cell.memory_group.is_some()).count();
    let group_mib = cell.memory_limit_bytes.map_or(0, |bytes| group_bytes(bytes) >> 20);
    let enclosed = match grouped {
        0 => String::new(),
        all if all == group.len() => format!(", in a memory group of {group_mib} MiB"),
        some => format!(", {some} of {} in a memory group of {group_mib} MiB", group.len()),
    };
    format!(
        "{} keys ({}), {} of them loaded, values of {} bytes, {limit}{durability}{enclosed}",
        range(|measurement| measurement.cell.keys.count),
        cell.keys.name,
        range(|measurement| measurement.cell.load_count),
        cell.value_bytes
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
    source: Source<'_>,
) -> Vec<Entry> {
    let all: Vec<Figures> =
        competitors.iter().map(|competitor| figures(group, competitor, figure, source)).collect();
    let entry = |(at, competitor): (usize, &&str)| {
        let own = &all[at];
        let over = |other: &Figures| {
            let ratio = |(pair, figure)| {
                other.get(pair).filter(|other| **other > 0.0).map(|other| figure / other)
            };
            Spread::of(own.iter().filter_map(ratio).collect())
        };
        let each = |part: &dyn Fn(&PhaseResult) -> Option<f64>| {
            let results = of(group, competitor).filter_map(|m| phase_result(m, source));
            Spread::of(results.filter(|r| r.operations > 0).filter_map(part).collect())
        };
        Entry {
            competitor: (*competitor).to_owned(),
            figure: Spread::of(own.values().copied().collect()),
            ratio: over(&all[0]),
            step: at.checked_sub(1).and_then(|before| over(&all[before])),
            reads: each(&|result| Some(result.page_reads? as f64 / result.operations as f64)),
            cpu_us: each(&|result| Some(result.cpu_seconds? * 1e6 / result.operations as f64)),
            disk_mib: each(&|result| {
                let bytes = result.device_read_bytes? + result.device_written_bytes?;
                (result.seconds > 0.0).then(|| bytes as f64 / f64::from(1 << 20) / result.seconds)
            }),
        }
    };
    competitors.iter().enumerate().map(entry).collect()
}

fn of<'a>(
    group: &'a [&'a Measurement],
    competitor: &'a str,
) -> impl Iterator<Item = &'a Measurement> {
    group.iter().copied().filter(move |measurement| measurement.competitor == competitor)
}

/// What `measurement` gave in a phase.
fn phase_result<'a>(measurement: &'a Measurement, source: Source<'_>) -> Option<&'a PhaseResult> {
    let result = measurement.result()?;
    let name = match source {
        Source::Load => return Some(&result.load),
        Source::Phase(name) | Source::Call(name, _) => name,
        _ => return None,
    };
    let at = measurement.cell.phases.iter().position(|phase| phase.name == name)?;
    result.phases.get(at)
}

/// A competitor's figures by run and pair.
type Figures = BTreeMap<(usize, usize), f64>;

fn figures(
    group: &[&Measurement],
    competitor: &str,
    figure: Figure,
    source: Source<'_>,
) -> Figures {
    let mut figures = BTreeMap::new();
    for measurement in of(group, competitor) {
        if let Some(value) = value(measurement, figure, source) {
            figures.insert((measurement.run, measurement.pair), value);
        }
    }
    figures
}

fn value(measurement: &Measurement, figure: Figure, source: Source<'_>) -> Option<f64> {
    let all = measurement.result()?;
    match source {
        Source::Bytes => bytes_of_pages(all),
        Source::Memory => memory(measurement, all),
        Source::Leaf => all.tree?.records_a_leaf(all.records),
        Source::FanOut => all.tree?.fan_out(),
        Source::Height => all.tree?.height.map(f64::from),
        Source::Call(_, call) => call.of(phase_result(measurement, source)?),
        Source::Share(layout) => {
            let shares = all.tree?.layouts?.shares()?;
            shares.into_iter().find_map(|(name, share)| (name == layout).then_some(share))
        }
        Source::Load | Source::Phase(_) => {
            phase_figure(measurement, figure, phase_result(measurement, source)?)
        }
    }
}

/// The figure of a phase of `measurement`, if it has one.
pub fn phase_figure(
    measurement: &Measurement,
    figure: Figure,
    result: &PhaseResult,
) -> Option<f64> {
    match figure {
        Figure::Rate => (result.seconds > 0.0).then(|| result.rate()),
        Figure::Instructions => {
            let counted = result.instructions.filter(|_| result.operations > 0);
            counted.map(|count| count as f64 / result.operations as f64)
        }
        Figure::Space => {
            let loaded = measurement.loaded_bytes as f64;
            result.file_bytes.filter(|_| loaded > 0.0).map(|bytes| bytes as f64 / loaded)
        }
    }
}

/// Bytes of pages a record.
fn bytes_of_pages(result: &CellResult) -> Option<f64> {
    let bytes = result.store_bytes.filter(|_| result.records > 0)?;
    Some(bytes as f64 / result.records as f64)
}

/// Bytes of memory a record when the last one had been inserted: later, what phases have of their own
/// is in it. `None` in files, where memory is a cache.
fn memory(measurement: &Measurement, result: &CellResult) -> Option<f64> {
    if measurement.cell.place == Place::File || result.records == 0 {
        return None;
    }
    let phases = measurement.cell.phases.iter().zip(&result.phases);
    let last = phases.rev().find(|(phase, _)| phase.operation.inserts());
    let last = last.map_or(&result.load, |(_, of_phase)| of_phase);
    Some(last.memory_bytes? as f64 / result.records as f64)
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
        let pages = results().filter_map(bytes_of_pages);
        ((*competitor).to_owned(), Spread::of(memory.collect()), Spread::of(pages.collect()))
    };
    competitors.iter().map(each).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::cell::{
        Cell, Durability, KeyKind, KeySet, LeafCounts, LoadOrder, PROTOCOL, Place, TreeShape,
    };
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
                spread: None,
                load_order: LoadOrder::Shuffled,
                load_count: 10,
                phases: phases.to_vec(),
                place: Place::Memory,
                memory_limit_bytes: None,
                durability: Durability::None,
                memory_group: None,
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
                tree: None,
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
            measurements: vec![
                // A slow hour hits the second pair, and `b` is twice as fast in each.
                measurement("a", (1, 1), &both, &[1.0, 1.0]),
                measurement("b", (1, 1), &only_get, &[0.5]),
                measurement("b", (1, 2), &only_get, &[5.0]),
                measurement("a", (1, 2), &both, &[10.0, 10.0]),
                // Alone in a run of its own, it has nobody to be compared with.
                measurement("b", (2, 1), &only_get, &[100.0]),
            ],
            ..Records::default()
        };
        let tables = tables(&records);
        let [table] = tables.as_slice() else { panic!("{tables:?}") };
        assert_eq!(median(table, &get.name, "a"), (Some(5.5), Some(1.0)));
        assert_eq!(median(table, &get.name, "b"), (Some(2.0), Some(2.0)));
        assert_eq!(median(table, &insert.name, "a"), (Some(5.5), Some(1.0)));
        assert_eq!(median(table, &insert.name, "b"), (None, None), "not asked");
    }

    #[test]
    fn trees_are_compared_with_the_first_and_with_the_one_before() {
        let case = &experiments::find("ladder", Size::Smoke).unwrap().cases[0];
        let phases = &case.phases[1..2];
        let with = |name: &str, leaves: u64, seconds: f64| {
            let mut measurement = measurement(name, (1, 1), phases, &[seconds]);
            if let Outcome::Measured(result) = &mut measurement.outcome {
                let fingerprint = leaves / 2;
                let layouts = LeafCounts {
                    comparison: leaves - fingerprint,
                    fingerprint,
                    ..Default::default()
                };
                let tree =
                    TreeShape { height: Some(2), leaves, inner_nodes: 1, layouts: Some(layouts) };
                result.tree = Some(tree);
                result.store_bytes = Some((leaves + 1) * 100);
            }
            measurement
        };
        let measurements = vec![with("a", 5, 1.0), with("b", 2, 0.5), with("c", 4, 0.125)];
        let records = Records { measurements, ..Records::default() };
        let table = &tables(&records)[0];
        let names: Vec<&str> = table.tree.iter().map(|row| row.phase.as_str()).collect();
        let shares = ["comparison", "fingerprint", "semi-dense", "fully dense"];
        let shares = shares.map(|layout| format!("{layout} leaves"));
        let shares = shares.each_ref().map(String::as_str);
        assert_eq!(names[..4], ["bytes a record", "records a leaf", "fan-out", "height"]);
        assert_eq!(names[4..], shares);
        let figures = |row: &Row, part: fn(&Entry) -> Option<Spread>| -> Vec<Option<f64>> {
            row.entries.iter().map(|entry| part(entry).map(|spread| spread.median)).collect()
        };
        let [bytes, leaf, fan_out, height, comparison, fingerprint, ..] = table.tree.as_slice()
        else {
            panic!("{table:?}")
        };
        assert_eq!(figures(comparison, |e| e.figure), [Some(60.0), Some(50.0), Some(50.0)]);
        assert_eq!(figures(fingerprint, |e| e.figure), [Some(40.0), Some(50.0), Some(50.0)]);
        assert_eq!(figures(bytes, |e| e.figure), [Some(60.0), Some(30.0), Some(50.0)]);
        assert_eq!(figures(bytes, |e| e.step), [None, Some(0.5), Some(50.0 / 30.0)]);
        assert_eq!(figures(leaf, |e| e.figure), [Some(2.0), Some(5.0), Some(2.5)]);
        assert_eq!(figures(fan_out, |e| e.ratio), [Some(1.0), Some(0.4), Some(0.8)]);
        assert_eq!(figures(height, |e| e.figure), [Some(2.0); 3]);
        let phase = &table.rows[1];
        assert_eq!(figures(phase, |e| e.ratio), [Some(1.0), Some(2.0), Some(8.0)]);
        assert_eq!(figures(phase, |e| e.step), [None, Some(2.0), Some(4.0)]);
    }

    #[test]
    fn single_calls_are_summed_up_where_they_were_timed() {
        let case = &experiments::find("put-latency", Size::Smoke).unwrap().cases[0];
        let with = |name: &str, pair: usize, p50_us: f64| {
            let mut measurement = measurement(name, (1, pair), &case.phases, &[1.0, 1.0]);
            if let Outcome::Measured(result) = &mut measurement.outcome {
                let histogram = vec![(p50_us, 9), (100.0, 1)];
                result.phases[1].latency = Some(crate::cell::Latency {
                    p50_us,
                    max_us: 100.0,
                    histogram,
                    ..Default::default()
                });
            }
            measurement
        };
        let measurements =
            vec![with("a", 1, 1.0), with("b", 1, 3.0), with("b", 2, 5.0), with("a", 2, 1.0)];
        let records = Records { measurements, ..Records::default() };
        let table = &tables(&records)[0];
        let row = table.calls.iter().find(|row| row.phase == "overwrite: median us").unwrap();
        assert_eq!(row.entries[0].figure.map(|spread| spread.median), Some(1.0));
        assert_eq!(row.entries[1].figure.map(|spread| spread.median), Some(4.0));
        assert_eq!(row.entries[1].ratio.map(|spread| spread.median), Some(4.0));
        assert!(!table.calls.iter().any(|row| row.phase.contains("written")), "nobody tells");
        let [(phase, curves)] = table.curves.as_slice() else { panic!("{:?}", table.curves) };
        assert_eq!(phase, "overwrite");
        assert_eq!(curves[1].slower, [(3.0, 550_000.0), (5.0, 100_000.0), (100.0, 0.0)]);
    }

    #[test]
    fn work_that_differs_does_not_count() {
        let case = &experiments::find("against-btreemap", Size::Smoke).unwrap().cases[0];
        let phases = &case.phases[1..2];
        let mut wrong = measurement("b", (1, 1), phases, &[0.1]);
        wrong.mismatch = Some("other records".into());
        let records = Records {
            measurements: vec![measurement("a", (1, 1), phases, &[1.0]), wrong],
            ..Records::default()
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
