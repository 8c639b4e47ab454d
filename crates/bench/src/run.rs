//! Runs experiments: one process a cell, competitors in turns, a line for each as soon as it is
//! known.
//!
//! In a pair each competitor runs a case once; in the next pair in the opposite order, so that
//! neither a slow minute of the machine nor what the one leaves behind hits always the same.
//! Competitors with equal work must have equal checksums.
//!
//! One thread; cells run one after the other. The work directory is removed at the end, whatever
//! happens.

use crate::cell::{
    Cell, CellError, CellResult, Durability, EXIT_UNSUPPORTED, Operation, PROTOCOL, Phase,
    PhaseResult,
};
use crate::checksum::Values;
use crate::engines;
use crate::experiments::{Case, Experiment, Figure, Size};
use crate::external::{self, Programs, process};
use crate::instructions::{self, Counts};
use crate::key_files::KeyFiles;
use crate::machine::{self, Machine};
use crate::memory_group::MemoryGroup;
use crate::numbers::show_number;
use crate::record::{Header, Line, Measurement, Outcome, Sink};
use crate::summary::phase_figure;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds that a program may take to say which competitors it has.
const LISTING_SECONDS: u64 = 30;

/// How many times the records' bytes of memory are touched: what a store takes, and the system's page cache beside it.
const TOUCHED_TIMES: u64 = 3;

/// What is to be run, and by what.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Experiments, in a size.
    pub experiments: Vec<Experiment>,
    /// How much.
    pub size: Size,
    /// Only these competitors, in this order; without any, those of each experiment.
    pub competitors: Vec<String>,
    /// Only cases of these names; without any, all.
    pub cases: Vec<String>,
    /// How many times each competitor runs each case.
    pub pairs: usize,
    /// Count instructions, instead of what each experiment is about.
    pub instructions: bool,
    /// This program, which runs the competitors of [`engines`].
    pub program: PathBuf,
    /// Other builds of it by their labels: they take turns, in its place.
    pub builds: Vec<(String, PathBuf)>,
    /// Programs with more competitors.
    pub peers: Vec<PathBuf>,
    /// Where foreign programs are.
    pub programs: Programs,
    /// Key files by the names of their sets.
    pub keys: BTreeMap<String, PathBuf>,
    /// Where stores and shuffled keys are put, into a directory of their own.
    pub directory: PathBuf,
    /// The limit of each cell in seconds, instead of the case's.
    pub seconds_limit: Option<u64>,
}

impl Plan {
    /// Whether memory is touched before each process: it takes a second or more, and changes no count of instructions.
    fn touches_memory(&self) -> bool {
        self.size == Size::Full && !self.instructions
    }
}

/// How a run went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Processes that gave figures.
    pub measured: usize,
    /// Competitors that are not there or cannot do it.
    pub absent: usize,
    /// Processes that failed or were killed.
    pub failed: usize,
    /// Processes whose work differs from that of the others.
    pub mismatched: usize,
}

/// Somebody who takes part.
struct Contestant {
    /// Its name in records.
    name: String,
    /// Its name in cells.
    competitor: String,
    how: How,
}

enum How {
    Program(PathBuf),
    Adapter(&'static dyn external::Adapter),
    Nobody(CellError),
}

/// A directory that goes away with all that is in it.
pub struct WorkDirectory(PathBuf);

impl WorkDirectory {
    /// Makes one. Errors: in words.
    pub fn new(above: &Path) -> Result<WorkDirectory, String> {
        let path = above.join(format!("hedgerow-bench-{}", std::process::id()));
        std::fs::create_dir_all(&path)
            .map_err(|error| format!("cannot create {}: {error}", path.display()))?;
        Ok(WorkDirectory(path))
    }
}

impl AsRef<Path> for WorkDirectory {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Drop for WorkDirectory {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("cannot remove {}: {error}", self.0.display());
        }
    }
}

/// Runs the plan; `say` is told what happens, a line at a time.
///
/// What can be wrong with the plan is looked for before anything runs. A competitor that is absent,
/// fails or hangs is recorded as that, and the others go on.
///
/// Errors: a sentence, if the plan cannot be run, or a record not be written.
pub fn run(plan: &Plan, sink: &mut Sink, mut say: impl FnMut(&str)) -> Result<Tally, String> {
    let work = WorkDirectory::new(&plan.directory)?;
    let mut keys = KeyFiles::new(&work.0, plan.keys.clone(), plan.size);
    check_cases(plan, &keys)?;
    let peers = peers(plan)?;
    sink.write(&Line::Run(Header { memory_touched: plan.touches_memory(), ..header(plan.size)? }))?;
    let mut tally = Tally::default();
    for experiment in &plan.experiments {
        let contestants = contestants(plan, experiment, &peers);
        for case in experiment.cases.iter().filter(|case| is_wanted(plan, case)) {
            say(&format!("{}, {}", experiment.name, case.name));
            let bout = Bout { plan, experiment, case, contestants: &contestants, work: &work.0 };
            bout.run(&mut keys, sink, &mut tally, &mut say)?;
        }
    }
    Ok(tally)
}

fn is_wanted(plan: &Plan, case: &Case) -> bool {
    plan.cases.is_empty() || plan.cases.contains(&case.name)
}

fn check_cases(plan: &Plan, keys: &KeyFiles) -> Result<(), String> {
    let cases = || plan.experiments.iter().flat_map(|experiment| &experiment.cases);
    if let Some(unknown) = plan.cases.iter().find(|name| !cases().any(|case| case.name == **name)) {
        let known: BTreeSet<&str> = cases().map(|case| case.name.as_str()).collect();
        let known = Vec::from_iter(known).join(", ");
        return Err(format!("there is no case `{unknown}`; there are {known}"));
    }
    cases().filter(|case| is_wanted(plan, case)).try_for_each(|case| keys.check(case))
}

/// What all lines of a run have in common that begins now.
///
/// Errors: the system's clock is before 1970.
pub fn header(size: Size) -> Result<Header, String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_err(|error| error.to_string())?;
    Ok(Header {
        machine: Machine::this(),
        revision: machine::revision(),
        command: machine::command(),
        size,
        started_unix_seconds: now.as_secs(),
        memory_touched: false,
    })
}

/// Competitors of the programs that the user gave, with their programs.
fn peers(plan: &Plan) -> Result<BTreeMap<String, &Path>, String> {
    let mut peers = BTreeMap::new();
    for program in &plan.peers {
        let names = process::run(Command::new(program).arg("competitors"), LISTING_SECONDS)
            .and_then(process::Output::success)
            .map_err(|error| format!("{} tells no competitors: {error}", program.display()))?;
        for name in names.lines() {
            peers.entry(name.to_owned()).or_insert(program.as_path());
        }
    }
    Ok(peers)
}

fn contestants(
    plan: &Plan,
    experiment: &Experiment,
    peers: &BTreeMap<String, &Path>,
) -> Vec<Contestant> {
    let mut names: Vec<&str> = plan.competitors.iter().map(String::as_str).collect();
    if names.is_empty() && plan.builds.is_empty() {
        names = experiment.competitors.to_vec();
    } else if names.is_empty() {
        names = vec![engines::NAMES[0]];
    }
    let mut contestants = Vec::new();
    for name in names {
        let one = |label: &str, how| Contestant {
            name: if label.is_empty() { name.to_owned() } else { format!("{name}@{label}") },
            competitor: name.to_owned(),
            how,
        };
        if let Some(adapter) = external::adapter(name) {
            contestants.push(one("", How::Adapter(adapter)));
        } else if let Some(program) = peers.get(name) {
            contestants.push(one("", How::Program((*program).to_owned())));
        } else if !engines::NAMES.contains(&name) {
            let words = format!("no program that was given has the competitor `{name}`");
            contestants.push(one("", How::Nobody(CellError::NotInstalled(words))));
        } else if plan.builds.is_empty() {
            contestants.push(one("", How::Program(plan.program.clone())));
        } else {
            for (label, program) in &plan.builds {
                contestants.push(one(label, How::Program(program.clone())));
            }
        }
    }
    contestants
}

/// A case and those who take part in it.
struct Bout<'a> {
    plan: &'a Plan,
    experiment: &'a Experiment,
    case: &'a Case,
    contestants: &'a [Contestant],
    work: &'a Path,
}

impl Bout<'_> {
    fn run(
        &self,
        keys: &mut KeyFiles,
        sink: &mut Sink,
        tally: &mut Tally,
        say: &mut impl FnMut(&str),
    ) -> Result<(), String> {
        let mut judge = Judge::default();
        let mut out = BTreeSet::new();
        let group = self.memory_group(say);
        for pair in 1..=self.plan.pairs {
            let mut order: Vec<&Contestant> = self.contestants.iter().collect();
            if pair.is_multiple_of(2) {
                order.reverse();
            }
            for contestant in order {
                if out.contains(&contestant.name) {
                    continue;
                }
                if process::is_interrupted() {
                    return Err("interrupted; the records until now are kept".into());
                }
                let mut cell =
                    self.cell(contestant, pair, keys).map_err(|error| error.to_string())?;
                cell.memory_group = group.as_ref().map(|group| group.path().to_owned());
                let runs = !matches!(contestant.how, How::Nobody(_));
                if runs && self.plan.touches_memory() {
                    machine::touch_memory(TOUCHED_TIMES * loaded_bytes(&cell, keys));
                }
                let outcome = self.one(contestant, &cell)?;
                if process::is_interrupted() {
                    return Err("interrupted; the records until now are kept".into());
                }
                let measurement = self.judged(contestant, pair, cell, outcome, keys, &mut judge);
                say(&format!("  {pair}. {}: {}", contestant.name, words(&measurement)));
                tally.count(&measurement);
                // What is not there, or takes too long, is not tried again.
                if let Outcome::Missing(error) = &measurement.outcome
                    && !matches!(error, CellError::Failed(_))
                {
                    out.insert(contestant.name.clone());
                }
                sink.write(&Line::Cell(Box::new(measurement)))?;
            }
        }
        Ok(())
    }

    /// The memory group of the case, if it wants one and it can be made.
    fn memory_group(&self, say: &mut impl FnMut(&str)) -> Option<MemoryGroup> {
        let limit = self.case.memory_limit_bytes.filter(|_| self.case.in_memory_group)?;
        MemoryGroup::new(limit)
            .map_err(|why| {
                say(&format!("  WITHOUT A MEMORY GROUP, so the page cache is not limited: {why}"))
            })
            .ok()
    }

    fn cell(
        &self,
        contestant: &Contestant,
        pair: usize,
        keys: &mut KeyFiles,
    ) -> Result<Cell, CellError> {
        let case = self.case;
        let mut keys = keys.key_set(case)?;
        keys.count = case.count_in(pair, keys.count);
        let load_count = case.load_count(keys.count);
        let asked = |phase: &&Phase| self.experiment.asks(&contestant.competitor, phase);
        let mut phases: Vec<Phase> = case.phases.iter().filter(asked).cloned().collect();
        let inserts = |phase: &Phase| phase.operation == (Operation::InsertLast {});
        let shares = phases.iter().filter(|phase| inserts(phase)).count().max(1);
        for phase in phases.iter_mut().filter(|phase| inserts(phase)) {
            phase.operations = (keys.count - load_count) / shares;
        }
        Ok(Cell {
            protocol: PROTOCOL,
            competitor: contestant.competitor.clone(),
            keys,
            value_bytes: case.value_bytes,
            spread: case.spread,
            load_order: case.load_order,
            load_count,
            phases,
            place: case.place,
            memory_limit_bytes: case.memory_limit_bytes,
            durability: case.durability,
            memory_group: None,
            directory: self.work.join("store"),
            page_bytes: None,
            seconds_limit: self.plan.seconds_limit.unwrap_or(case.seconds_limit),
        })
    }

    /// Runs one process in a fresh directory. The outer error ends the run.
    fn one(
        &self,
        contestant: &Contestant,
        cell: &Cell,
    ) -> Result<Result<CellResult, CellError>, String> {
        if let How::Nobody(why) = &contestant.how {
            return Ok(Err(why.clone()));
        }
        let store = &cell.directory;
        let failed = |error| format!("cannot prepare {}: {error}", store.display());
        std::fs::create_dir_all(store).map_err(failed)?;
        let outcome = match &contestant.how {
            How::Program(program) if self.plan.instructions => self.count(program, cell),
            How::Program(program) => run_program(program, cell, &self.work.join("cell.json")),
            How::Adapter(_) if self.plan.instructions => {
                let words = "instructions are counted of programs that follow the cell protocol";
                Err(CellError::Unsupported(words.into()))
            }
            How::Adapter(_) if is_for_stores(cell) => {
                let words = "the program has no durable changes, and no phases of some seconds";
                Err(CellError::Unsupported(words.into()))
            }
            How::Adapter(adapter) => adapter.run(cell, &self.plan.programs),
            How::Nobody(why) => Err(why.clone()),
        };
        std::fs::remove_dir_all(store).map_err(failed)?;
        Ok(outcome.and_then(|result| fits(cell, result)))
    }

    /// Runs one process under callgrind.
    fn count(&self, program: &Path, cell: &Cell) -> Result<CellResult, CellError> {
        instructions::check(cell)?;
        let counts = Counts::new(self.work)?;
        let (mut command, seconds_limit) = counts.command(program, cell.seconds_limit);
        let path = self.work.join("cell.json");
        let result = run_command(&mut command, seconds_limit, cell, &path)?;
        let mut result = fits(cell, result)?;
        counts.fill_in(cell, &mut result)?;
        Ok(result)
    }

    fn judged(
        &self,
        contestant: &Contestant,
        pair: usize,
        mut cell: Cell,
        outcome: Result<CellResult, CellError>,
        keys: &KeyFiles,
        judge: &mut Judge,
    ) -> Measurement {
        let mismatch = outcome
            .as_ref()
            .ok()
            .and_then(|result| judge.mismatch(&contestant.name, &cell, result));
        let loaded_bytes = loaded_bytes(&cell, keys);
        cell.directory = last_part(&cell.directory);
        cell.keys.path = cell.keys.path.as_deref().map(last_part);
        cell.memory_group = cell.memory_group.as_deref().map(last_part);
        Measurement {
            experiment: self.experiment.name.to_owned(),
            case: self.case.name.clone(),
            figure: match self.plan.instructions {
                true => Figure::Instructions,
                false => self.experiment.figure,
            },
            competitor: contestant.name.clone(),
            pair,
            cell,
            loaded_bytes,
            outcome: match outcome {
                Ok(result) => Outcome::Measured(Box::new(result)),
                Err(error) => Outcome::Missing(error),
            },
            mismatch,
            run: 0,
        }
    }
}

/// Bytes of the keys and values that a cell loads.
fn loaded_bytes(cell: &Cell, keys: &KeyFiles) -> u64 {
    let values = Values::new(cell.value_bytes, cell.spread).total_bytes(cell.load_count);
    keys.key_bytes(&cell.keys, cell.load_count) + values
}

/// Runs `PROGRAM cell CELL.json` and reads its answer, as the protocol says.
fn run_program(program: &Path, cell: &Cell, path: &Path) -> Result<CellResult, CellError> {
    run_command(&mut Command::new(program), cell.seconds_limit, cell, path)
}

/// The same of a command that ends in `PROGRAM`.
fn run_command(
    command: &mut Command,
    seconds_limit: u64,
    cell: &Cell,
    path: &Path,
) -> Result<CellResult, CellError> {
    cell.write(path)?;
    let output = process::run(command.arg("cell").arg(path), seconds_limit)?;
    if output.status.code() == Some(i32::from(EXIT_UNSUPPORTED)) {
        return Err(CellError::Unsupported(process::last_words(&output.stderr)));
    }
    let text = output.success()?;
    serde_json::from_str(text.trim()).map_err(|error| {
        let words = process::last_words(&text);
        CellError::Failed(format!("its answer is no result of a cell ({error}): {words}"))
    })
}

/// Whether foreign programs know nothing of what is asked.
fn is_for_stores(cell: &Cell) -> bool {
    cell.durability != Durability::None || cell.phases.iter().any(|phase| phase.seconds.is_some())
}

/// A path without its directories, which say nothing on another machine.
fn last_part(path: &Path) -> PathBuf {
    PathBuf::from(path.file_name().unwrap_or_default())
}

/// Whether the result is one of this cell.
fn fits(cell: &Cell, result: CellResult) -> Result<CellResult, CellError> {
    if result.protocol != PROTOCOL || result.phases.len() != cell.phases.len() {
        return Err(CellError::Failed(format!(
            "its answer has protocol {} and {} phases, the cell has {PROTOCOL} and {}",
            result.protocol,
            result.phases.len(),
            cell.phases.len()
        )));
    }
    Ok(result)
}

/// Knows what the first competitor's work came to, by the number of keys and by phase.
#[derive(Default)]
struct Judge {
    first: BTreeMap<(usize, String), (String, String)>,
}

impl Judge {
    /// How the work of `name` differs from that of whoever came first.
    fn mismatch(&mut self, name: &str, cell: &Cell, result: &CellResult) -> Option<String> {
        let mut sums: Vec<(String, String)> = Vec::new();
        for (phase, of_phase) in cell.phases.iter().zip(&result.phases) {
            if let Some(checksum) = of_phase.checksum {
                let sum = format!("{} operations, checksum {checksum}", of_phase.operations);
                sums.push((format!("phase `{}`", phase.name), sum));
            }
        }
        if !sums.is_empty() {
            sums.push(("end".into(), format!("{} records", result.records)));
        }
        let mut mismatch = None;
        for (what, sum) in sums {
            let place = (cell.keys.count, what);
            match self.first.get(&place) {
                Some((first, expected)) if *expected != sum && mismatch.is_none() => {
                    let what = &place.1;
                    mismatch = Some(format!("{what}: {sum}, but {first} has {expected}"));
                }
                Some(_) => {}
                None => {
                    self.first.insert(place, (name.to_owned(), sum));
                }
            }
        }
        mismatch
    }
}

impl Tally {
    fn count(&mut self, measurement: &Measurement) {
        match &measurement.outcome {
            _ if measurement.mismatch.is_some() => self.mismatched += 1,
            Outcome::Measured(_) => self.measured += 1,
            Outcome::Missing(error) if error.is_absence() => self.absent += 1,
            Outcome::Missing(_) => self.failed += 1,
        }
    }

    /// Whether everything that ran gave figures that count.
    pub fn is_clean(&self) -> bool {
        self.failed == 0 && self.mismatched == 0
    }
}

/// What came of a process, in a line.
fn words(measurement: &Measurement) -> String {
    if let Some(mismatch) = &measurement.mismatch {
        return format!("DIFFERENT WORK: {mismatch}");
    }
    match &measurement.outcome {
        Outcome::Missing(error) => error.to_string(),
        Outcome::Measured(result) => {
            let phases = measurement.cell.phases.iter().zip(&result.phases);
            let phase = |(phase, result): (&Phase, &PhaseResult)| {
                let figure = phase_figure(measurement, measurement.figure, result);
                let figure = figure.map_or("without figures".to_owned(), |figure| {
                    show_number(figure) + measurement.figure.short_unit()
                });
                format!("{} {figure}", phase.name)
            };
            let mut said: Vec<String> = phases.map(phase).collect();
            if let Some(tree) = &result.tree {
                let number = |figure: Option<f64>| figure.map_or("unknown".into(), show_number);
                said.push(format!(
                    "records a leaf {}",
                    number(tree.records_a_leaf(result.records))
                ));
                said.push(format!("fan-out {}", number(tree.fan_out())));
                let height = tree.height.map_or("unknown".into(), |levels| levels.to_string());
                said.push(format!("height {height}"));
            }
            said.join(", ")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::{KeyKind, KeySet, LoadOrder, Place};
    use crate::checksum::Checksum;

    fn cell() -> Cell {
        let experiment = crate::experiments::find("against-btreemap", Size::Smoke).unwrap();
        Cell {
            protocol: PROTOCOL,
            competitor: "hedgerow".into(),
            keys: KeySet { name: "k".into(), kind: KeyKind::Random8, count: 10, path: None },
            value_bytes: 8,
            spread: None,
            load_order: LoadOrder::Shuffled,
            load_count: 10,
            phases: experiment.cases[0].phases[1..2].to_vec(),
            place: Place::Memory,
            memory_limit_bytes: None,
            durability: Durability::None,
            memory_group: None,
            directory: "store".into(),
            page_bytes: None,
            seconds_limit: 1,
        }
    }

    fn result(checksum: Option<u64>, records: u64) -> CellResult {
        let phase = PhaseResult {
            operations: 10,
            checksum: checksum.map(Checksum),
            ..PhaseResult::default()
        };
        CellResult {
            protocol: PROTOCOL,
            load: PhaseResult::default(),
            phases: vec![phase],
            records,
            store_bytes: None,
            tree: None,
            facts: BTreeMap::new(),
        }
    }

    #[test]
    fn different_work_is_noticed() {
        let (cell, mut judge) = (cell(), Judge::default());
        assert_eq!(judge.mismatch("a", &cell, &result(Some(1), 10)), None);
        assert_eq!(judge.mismatch("b", &cell, &result(Some(1), 10)), None);
        let words = judge.mismatch("c", &cell, &result(Some(2), 10)).unwrap();
        assert!(words.contains("phase `get`") && words.contains("but a has"), "{words}");
        let words = judge.mismatch("d", &cell, &result(Some(1), 9)).unwrap();
        assert!(words.contains("9 records"), "{words}");
        assert_eq!(judge.mismatch("e", &cell, &result(None, 7)), None, "other work");
        let mut fewer = cell.clone();
        fewer.keys.count = 9;
        assert_eq!(
            judge.mismatch("a", &fewer, &result(Some(2), 9)),
            None,
            "a pair of its own size"
        );
        assert!(judge.mismatch("b", &fewer, &result(Some(1), 9)).is_some());
    }

    #[test]
    fn an_answer_to_another_cell_is_refused() {
        let cell = cell();
        assert!(fits(&cell, result(None, 10)).is_ok());
        let mut short = result(None, 10);
        short.phases.clear();
        assert!(fits(&cell, short).is_err());
    }
}
