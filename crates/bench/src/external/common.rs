//! What the adapters of foreign programs share: the keys they are given, the time they have, and the tables that the
//! programs of the papers print: fields with commas between, filled up with blanks, the names in a line of their own,
//! and other lines in between.
//!
//! The texts come from foreign programs: whatever is not as expected is an error value, never a panic. Plain data,
//! `Send + Sync`.

use super::process::{self, Output};
use crate::cell::{Cell, CellError, CellResult, KeyKind, Operation, PROTOCOL, Phase, PhaseResult};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// Name of the copy of the keys in the directory of a cell.
const KEY_FILE: &str = "keys";

/// Which figure of a result a program's row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    /// Loading.
    Load,
    /// The phase of this number.
    Phase(usize),
}

impl Slot {
    /// The place in `result`. Panics if the result has no such phase.
    pub(crate) fn of(self, result: &mut CellResult) -> &mut PhaseResult {
        match self {
            Slot::Load => &mut result.load,
            Slot::Phase(at) => &mut result.phases[at],
        }
    }

    /// How many operations `cell` wants here. Panics if the cell has no such phase.
    pub(crate) fn operations(self, cell: &Cell) -> u64 {
        match self {
            Slot::Load => cell.load_count as u64,
            Slot::Phase(at) => cell.phases[at].operations as u64,
        }
    }
}

/// A result with a place for each phase of `cell` and no figures.
pub(crate) fn empty_result(cell: &Cell) -> CellResult {
    CellResult {
        protocol: PROTOCOL,
        load: PhaseResult::default(),
        phases: vec![PhaseResult::default(); cell.phases.len()],
        records: cell.keys.count as u64,
        store_bytes: None,
        tree: None,
        facts: BTreeMap::new(),
    }
}

/// Phases that a program cannot do, and why. They have no figures; the others do.
#[derive(Debug, Default)]
pub(crate) struct LeftOut {
    names: Vec<String>,
    why: String,
}

impl LeftOut {
    /// Leaves out `phase`, because of `why`.
    ///
    /// Errors: `Unsupported` if later phases would find other records then.
    pub(crate) fn add(&mut self, phase: &Phase, why: &str) -> Result<(), CellError> {
        self.why = format!("phase `{}`: {why}", phase.name);
        if phase.operation.inserts() || matches!(phase.operation, Operation::Delete { .. }) {
            return Err(CellError::Unsupported(self.why.clone()));
        }
        self.names.push(phase.name.clone());
        Ok(())
    }

    /// Says in `facts` what was left out.
    ///
    /// Errors: `Unsupported` if that is all there was in `cell`.
    pub(crate) fn tell(
        self,
        cell: &Cell,
        facts: &mut BTreeMap<String, String>,
    ) -> Result<(), CellError> {
        if !self.names.is_empty() && self.names.len() == cell.phases.len() {
            return Err(CellError::Unsupported(self.why));
        }
        if !self.names.is_empty() {
            facts.insert("left_out".into(), self.names.join(", "));
        }
        Ok(())
    }
}

/// When a cell's time is over, however many programs it starts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    started: Instant,
    seconds_limit: u64,
}

impl Deadline {
    /// The time of `cell`, from now on.
    pub(crate) fn of(cell: &Cell) -> Deadline {
        Deadline { started: Instant::now(), seconds_limit: cell.seconds_limit }
    }

    /// Seconds that are left. Errors: `TimedOut` if none are.
    fn seconds_left(&self) -> Result<u64, CellError> {
        let left = self.seconds_limit.saturating_sub(self.started.elapsed().as_secs());
        if left == 0 { Err(CellError::TimedOut(self.seconds_limit)) } else { Ok(left) }
    }
}

/// Runs `program` in the directory of `cell` with `environment` beside the own one, within what is left of the time.
///
/// Errors: those of [`process::run`], `TimedOut` with the limit of the whole cell; `Failed` if the program fails.
pub(crate) fn start(
    program: &Path,
    arguments: &[String],
    environment: &[(&str, String)],
    cell: &Cell,
    deadline: &Deadline,
) -> Result<Output, CellError> {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(&cell.directory);
    for (name, value) in environment {
        command.env(name, value);
    }
    let output = match process::run(&mut command, deadline.seconds_left()?) {
        Err(CellError::TimedOut(_)) => return Err(CellError::TimedOut(deadline.seconds_limit)),
        outcome => outcome?,
    };
    if output.status.success() {
        return Ok(output);
    }
    let words = process::last_words(&output.stderr);
    Err(CellError::Failed(format!("{}: {words}", process::ending(output.status))))
}

/// Makes a file of `bytes` bytes at `path`, or empties the one that is there; it takes no space before it is written.
///
/// Errors: `Failed` if that cannot be done.
pub(crate) fn sparse_file(path: &Path, bytes: u64) -> Result<(), CellError> {
    File::create(path)
        .and_then(|file| file.set_len(bytes))
        .map_err(|error| CellError::Failed(format!("cannot make {}: {error}", path.display())))
}

/// The keys of a file as a file of exactly the keys of `cell`, in its directory: programs read a file to its end
/// before they choose. Gives its name relative to the directory; a path with a comma would break their tables.
///
/// Errors: `Failed` if the keys are no file, cannot be copied, or are too few.
pub(crate) fn copy_keys(cell: &Cell) -> Result<&'static str, CellError> {
    let keys = &cell.keys;
    let source = match &keys.path {
        Some(path) if keys.kind == KeyKind::File => path,
        _ => return Err(CellError::Failed(format!("the keys {} are no file", keys.name))),
    };
    let copied = copy_lines(source, &cell.directory.join(KEY_FILE), keys.count)
        .map_err(|error| CellError::Failed(format!("cannot copy {}: {error}", source.display())))?;
    if copied < keys.count {
        let why = format!("{} has {copied} keys, not {}", source.display(), keys.count);
        return Err(CellError::Failed(why));
    }
    Ok(KEY_FILE)
}

/// Copies the first `count` lines and says how many there were.
fn copy_lines(source: &Path, target: &Path, count: usize) -> std::io::Result<usize> {
    let mut reader = BufReader::with_capacity(1 << 20, File::open(source)?);
    let mut writer = BufWriter::with_capacity(1 << 20, File::create(target)?);
    let mut line = Vec::new();
    for copied in 0..count {
        line.clear();
        if reader.read_until(b'\n', &mut line)? == 0 {
            return Ok(copied);
        }
        writer.write_all(line.strip_suffix(b"\n").unwrap_or(&line))?;
        writer.write_all(b"\n")?;
    }
    writer.flush()?;
    Ok(count)
}

/// One line of figures, by the names above it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row(BTreeMap<String, String>);

impl Row {
    /// The field `name` as text, if the table has it.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// The field `name` as a number.
    ///
    /// Errors: `Failed` if there is no such field, or it is no finite number of zero or more.
    pub(crate) fn number(&self, name: &str) -> Result<f64, CellError> {
        let text = self
            .text(name)
            .ok_or_else(|| CellError::Failed(format!("its table has no field `{name}`")))?;
        let number = text.parse::<f64>().ok().filter(|n| n.is_finite() && *n >= 0.0);
        number.ok_or_else(|| CellError::Failed(format!("its field `{name}` is `{text}`")))
    }

    /// All fields whose names begin with `prefix`: the rest of the name, and the number.
    ///
    /// Errors: as of [`Row::number`].
    pub(crate) fn numbers(&self, prefix: &str) -> Result<Vec<(&str, f64)>, CellError> {
        let names = self.0.keys().filter_map(|name| Some((name, name.strip_prefix(prefix)?)));
        names.map(|(name, rest)| Ok((rest, self.number(name)?))).collect()
    }
}

/// The rows of the table whose head has the field `key`. Lines before the head, and lines with another number of
/// fields than it, are no rows.
///
/// Errors: `Failed` if there is no such head.
pub(crate) fn rows(text: &str, key: &str) -> Result<Vec<Row>, CellError> {
    let fields =
        |line: &str| line.split(',').map(|field| field.trim().to_owned()).collect::<Vec<String>>();
    let mut lines = text.lines().map(fields);
    let head = lines
        .find(|line| line.iter().any(|field| field == key))
        .ok_or_else(|| CellError::Failed(format!("it printed no table with a field `{key}`")))?;
    let is_row = |line: &Vec<String>| line.len() == head.len() && *line != head;
    let row = |line: Vec<String>| Row(head.iter().cloned().zip(line).collect());
    Ok(lines.filter(is_row).map(row).collect())
}

/// The row whose field `key` is `value`.
///
/// Errors: `Failed` if there is none.
pub(crate) fn find<'a>(rows: &'a [Row], key: &str, value: &str) -> Result<&'a Row, CellError> {
    rows.iter()
        .find(|row| row.text(key) == Some(value))
        .ok_or_else(|| CellError::Failed(format!("its table has no row with {key} `{value}`")))
}

/// Cells for the tests of the adapters.
#[cfg(test)]
pub(crate) mod test_cells {
    use crate::cell::{
        Cell, Distribution, Durability, KeyKind, KeySet, LoadOrder, Operation, PROTOCOL, Phase,
        Place,
    };

    /// One phase on one thread.
    pub(crate) fn phase(
        operation: Operation,
        distribution: Distribution,
        operations: usize,
    ) -> Phase {
        let name = format!("{operation:?} {distribution:?}");
        Phase {
            name,
            operation,
            distribution,
            operations,
            threads: 1,
            seed: 5,
            latency: false,
            seconds: None,
        }
    }

    /// A cell in memory that loads all of `count` dense keys, in random order.
    pub(crate) fn cell(count: usize, phases: Vec<Phase>) -> Cell {
        let name = "dense".to_owned();
        Cell {
            protocol: PROTOCOL,
            competitor: String::new(),
            keys: KeySet { name, kind: KeyKind::Dense4, count, path: None },
            value_bytes: 8,
            spread: None,
            load_order: LoadOrder::Shuffled,
            load_count: count,
            phases,
            place: Place::Memory,
            memory_limit_bytes: None,
            durability: Durability::None,
            memory_group: None,
            directory: std::env::temp_dir(),
            page_bytes: None,
            seconds_limit: 60,
        }
    }

    /// As [`cell`], inserting the last tenth first of all.
    pub(crate) fn last_tenth(count: usize, mut phases: Vec<Phase>) -> Cell {
        let tenth = count / 10;
        phases.insert(0, phase(Operation::InsertLast {}, Distribution::Uniform {}, tenth));
        Cell { load_count: count - tenth, ..cell(count, phases) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "\
a line of words, with a comma
   name,      op,  time, nodeCount_Leaf, nodeCount_Inner,
  hints, insert90, 0.089,         10917,             132,
  hints,   ycsb_c,   nan,         10917,             132,
__mem_size,hints,1,2
";

    #[test]
    fn rows_are_found_between_other_lines() {
        let rows = rows(PRINTED, "op").unwrap();
        assert_eq!(rows.len(), 2);
        let insert = find(&rows, "op", "insert90").unwrap();
        assert_eq!(insert.number("time"), Ok(0.089));
        assert_eq!(insert.text("name"), Some("hints"));
        let nodes = insert.numbers("nodeCount_").unwrap();
        assert_eq!(nodes, [("Inner", 132.0), ("Leaf", 10_917.0)]);
    }

    #[test]
    fn what_is_missing_is_named() {
        assert!(rows("words", "op").unwrap_err().to_string().contains("`op`"));
        let rows = rows(PRINTED, "op").unwrap();
        assert!(find(&rows, "op", "scan").unwrap_err().to_string().contains("`scan`"));
        let lookup = find(&rows, "op", "ycsb_c").unwrap();
        assert!(lookup.number("time").unwrap_err().to_string().contains("`nan`"));
        assert!(lookup.number("speed").unwrap_err().to_string().contains("no field `speed`"));
    }

    #[test]
    fn only_the_keys_of_the_cell_are_copied() {
        let directory = tempfile::tempdir().unwrap();
        let source = directory.path().join("all");
        std::fs::write(&source, "b\na\nc").unwrap();
        let mut cell = test_cells::cell(2, Vec::new());
        cell.directory = directory.path().to_owned();
        assert!(copy_keys(&cell).unwrap_err().to_string().contains("no file"));
        cell.keys.kind = KeyKind::File;
        cell.keys.path = Some(source);
        let copy = directory.path().join(copy_keys(&cell).unwrap());
        assert_eq!(std::fs::read_to_string(&copy).unwrap(), "b\na\n");
        cell.keys.count = 3;
        copy_keys(&cell).unwrap();
        assert_eq!(std::fs::read_to_string(&copy).unwrap(), "b\na\nc\n");
        cell.keys.count = 4;
        assert!(copy_keys(&cell).unwrap_err().to_string().contains("has 3 keys, not 4"));
    }

    #[test]
    fn a_cell_has_its_time_for_all_that_it_starts() {
        let cell = Cell { seconds_limit: 1, ..test_cells::cell(1, Vec::new()) };
        let deadline = Deadline::of(&cell);
        let sleep =
            |seconds: &str| start(Path::new("sleep"), &[seconds.to_owned()], &[], &cell, &deadline);
        sleep("0.01").unwrap();
        assert_eq!(sleep("60").unwrap_err(), CellError::TimedOut(1));
        assert_eq!(sleep("0").unwrap_err(), CellError::TimedOut(1));
    }

    #[test]
    fn a_program_is_told_its_environment_and_its_failure_is_told() {
        let cell = test_cells::cell(1, Vec::new());
        let sh = |script: &str| {
            let arguments = ["-c".to_owned(), script.to_owned()];
            let environment = [("WORD", "robin".to_owned())];
            start(Path::new("sh"), &arguments, &environment, &cell, &Deadline::of(&cell))
        };
        assert_eq!(sh("echo $WORD").unwrap().stdout, "robin\n");
        let error = sh("echo no room >&2; exit 4").unwrap_err().to_string();
        assert!(error.contains("exit code 4") && error.contains("no room"), "{error}");
    }
}
