//! What a run of a row came to, as a line of JSON in a record, and the table that such lines make.
//!
//! A line says when, on which revision, with which seed, what was asked for, what was done and what it cost, and how it
//! ended; lines are only ever appended. The table has the last line of each row and scale, whatever it says, with the other shares of
//! the same run: nobody types a result. A line that cannot be read is an error. Plain functions; starts git.

use super::counts::{Counts, Goal, number_of};
use super::rows::{ROWS, Row, Scale, Share, grouped};
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How a row ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// As much was done as was asked for, and nothing failed.
    Passed,
    /// Something failed, or too little was done.
    Failed(String),
    /// This machine cannot run it.
    Skipped(String),
}

impl Outcome {
    /// One word.
    pub fn name(&self) -> &'static str {
        match self {
            Outcome::Passed => "passed",
            Outcome::Failed(_) => "failed",
            Outcome::Skipped(_) => "skipped",
        }
    }

    /// Why, if it did not pass.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Outcome::Passed => None,
            Outcome::Failed(words) | Outcome::Skipped(words) => Some(words),
        }
    }
}

/// What a run of a row came to.
#[derive(Clone, Debug)]
pub struct Report {
    /// The row's name.
    pub row: &'static str,
    /// How much was to be done.
    pub scale: Scale,
    /// Which part of that.
    pub share: Share,
    /// The seed of the first round.
    pub seed: u64,
    /// What was asked for.
    pub goals: Vec<Goal>,
    /// Of what was done, what `cargo test` had done before.
    pub tested: Counts,
    /// What was done.
    pub counts: Counts,
    /// Processor time of all that was run for it.
    pub cpu_seconds: f64,
    /// How long it took.
    pub elapsed: Duration,
    /// How it ended.
    pub outcome: Outcome,
}

impl Report {
    /// The line of a record.
    pub fn line(&self, date: &str, revision: &str) -> String {
        let Report { row, seed, cpu_seconds, .. } = self;
        let mut line = format!(
            "{{\"date\":\"{date}\",\"revision\":\"{revision}\",\"row\":\"{row}\",\"scale\":\"{}\",\"share\":\"{}\",\"seed\":{seed}",
            self.scale.name(),
            self.share.show()
        );
        let asked = self.goals.iter().map(|goal| (goal.name, goal.asked));
        line.push_str(&object("asked", asked));
        let done = self.goals.iter().map(|goal| (goal.name, goal.done(&self.counts)));
        line.push_str(&object("done", done));
        line.push_str(&object("counted", self.counts.iter()));
        if !self.tested.is_nothing() {
            line.push_str(&object("counted_by_cargo_test", self.tested.iter()));
        }
        let seconds = self.elapsed.as_secs_f64();
        // Writing to a string cannot fail.
        let _ = write!(line, ",\"cpu_seconds\":{cpu_seconds:.1},\"seconds\":{seconds:.1}");
        let _ = write!(line, ",\"outcome\":\"{}\"", self.outcome.name());
        if let Some(reason) = self.outcome.reason() {
            // What failed has said the rest where it ran.
            let first = reason.lines().next().unwrap_or_default();
            let _ = write!(line, ",\"reason\":\"{}\"", escape(first));
        }
        line.push('}');
        line
    }

    /// Appends the line to a record, which is made if there is none.
    ///
    /// Errors: in words.
    pub fn append(&self, path: &Path, revision: &str) -> Result<(), String> {
        let cannot = |error: std::io::Error| format!("cannot write {}: {error}", path.display());
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder).map_err(cannot)?;
        }
        let mut file =
            fs::OpenOptions::new().create(true).append(true).open(path).map_err(cannot)?;
        let line = self.line(&today(), revision);
        writeln!(file, "{line}").map_err(cannot)
    }
}

fn object<'a>(name: &str, numbers: impl Iterator<Item = (&'a str, u64)>) -> String {
    let numbers: Vec<String> =
        numbers.map(|(what, number)| format!("\"{}\":{number}", escape(what))).collect();
    format!(",\"{name}\":{{{}}}", numbers.join(","))
}

/// Text within a string of JSON; what is not plain becomes a blank.
pub fn escape(text: &str) -> String {
    let plain = |c: char| if c.is_ascii_graphic() { c } else { ' ' };
    text.chars().map(plain).collect::<String>().replace('\\', r"\\").replace('"', "\\\"")
}

/// What git calls the present state of the sources; a `+` behind it: and changes that nobody has committed.
pub fn revision(root: &Path) -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").arg("-C").arg(root).args(arguments).output().ok()?;
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        output.status.success().then_some(said)
    };
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else { return "unknown".into() };
    match git(&["status", "--porcelain", "--untracked-files=no"]) {
        Some(changes) if changes.is_empty() => commit,
        _ => format!("{commit}+"),
    }
}

/// Today's date.
pub fn today() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    date_of(since.as_secs() / (24 * 60 * 60))
}

/// The date of a day, counted from the first one of 1970.
fn date_of(day: u64) -> String {
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let (mut year, mut left) = (1970, day);
    loop {
        let days = if is_leap(year) { 366 } else { 365 };
        if left < days {
            break;
        }
        left -= days;
        year += 1;
    }
    let february = if is_leap(year) { 29 } else { 28 };
    let mut month = 1;
    for days in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if left < days {
            break;
        }
        left -= days;
        month += 1;
    }
    format!("{year}-{month:02}-{:02}", left + 1)
}

/// A line of a record, as far as the table has it.
#[derive(Clone, PartialEq, Debug)]
struct Entry {
    date: String,
    revision: String,
    row: String,
    scale: Scale,
    share: Share,
    /// How many shares it stands for.
    shares: usize,
    seed: u64,
    done: Vec<(String, u64)>,
    cpu_seconds: u64,
    outcome: String,
}

impl Entry {
    /// Reads a line that [`Report::line`] has written; `None` if it is none.
    fn parse(line: &str) -> Option<Entry> {
        let (_, done) = line.split_once("\"done\":{")?;
        let (done, _) = done.split_once('}')?;
        let pairs = done.split(',').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, number) = pair.split_once(':')?;
            Some((name.trim_matches('"').to_owned(), number.parse::<u64>().ok()?))
        });
        let outcome = text_of(line, "outcome")?;
        Some(Entry {
            date: text_of(line, "date")?,
            revision: text_of(line, "revision")?,
            row: text_of(line, "row")?,
            scale: Scale::of(&text_of(line, "scale")?)?,
            share: Share::parse(&text_of(line, "share")?)?,
            shares: 1,
            seed: number_of(line, "seed")?,
            done: pairs.collect::<Option<_>>()?,
            cpu_seconds: number_of(line, "cpu_seconds")?,
            outcome,
        })
    }

    /// This one and the last of each other share, in one: passed if all have. Their revisions may be others, and are all
    /// shown; what has counted other things is of an earlier kind of run.
    fn with_other_shares(&self, entries: &[&Entry]) -> Entry {
        let mut all = self.clone();
        for index in (0..self.share.of).filter(|index| *index != self.share.index) {
            let share = Share { index, ..self.share };
            let names = |entry: &Entry| {
                entry.done.iter().map(|(name, _)| name.clone()).collect::<Vec<String>>()
            };
            let is_of_run = |entry: &&&Entry| entry.share == share && names(entry) == names(self);
            let Some(other) = entries.iter().rev().find(is_of_run) else { continue };
            all.shares += 1;
            if !all.revision.split(", ").any(|revision| revision == other.revision) {
                all.revision = format!("{}, {}", all.revision, other.revision);
            }
            all.cpu_seconds += other.cpu_seconds;
            for ((_, sum), (_, number)) in all.done.iter_mut().zip(&other.done) {
                *sum += number;
            }
            if other.outcome != Outcome::Passed.name() {
                all.outcome.clone_from(&other.outcome);
            }
        }
        all
    }

    /// What is asked for today, and nobody counted then.
    fn show_uncounted(&self, row: &Row) -> String {
        let goals = row.goals(self.scale, self.share);
        let is_new = |goal: &&Goal| self.done.iter().all(|(what, _)| what != goal.name);
        let new: Vec<&str> = goals.iter().filter(is_new).map(|goal| goal.name).collect();
        match new.is_empty() {
            true => String::new(),
            false => format!(", not counted then: {}", new.join(", ")),
        }
    }

    /// A cell of the table.
    fn show(&self) -> String {
        let done: Vec<String> =
            self.done.iter().map(|(what, number)| format!("{} {what}", grouped(*number))).collect();
        let share = match (self.shares, self.share.of) {
            (_, 1) => String::new(),
            (1, _) => format!(", share {}", self.share.show()),
            (shares, of) if shares == of => format!(", {of} shares"),
            (shares, of) => format!(", {shares} of {of} shares"),
        };
        let Entry { date, seed, outcome, .. } = self;
        let revision = self.revision.replace(", ", "`, `");
        let seconds = grouped(self.cpu_seconds);
        format!(
            "{}{share}: {outcome}, {} ({seconds} s of processors, {date}, `{revision}`, seed {seed})",
            self.scale.name(),
            done.join(", ")
        )
    }
}

/// A text of a line of JSON, by its name; of those that have nothing to escape.
fn text_of(json: &str, name: &str) -> Option<String> {
    let (_, rest) = json.split_once(&format!("\"{name}\":\""))?;
    rest.split_once('"').map(|(text, _)| text.to_owned())
}

/// The table of these records.
///
/// Errors: in words, if one of them cannot be read.
pub fn table(files: &[PathBuf]) -> Result<String, String> {
    let mut entries = Vec::new();
    for path in files {
        let text = fs::read_to_string(path);
        let text = text.map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let entry = Entry::parse(line);
            let place = || format!("{}, line {}: no result of a row", path.display(), number + 1);
            entries.push(entry.ok_or_else(place)?);
        }
    }
    Ok(table_of(&entries))
}

fn table_of(entries: &[Entry]) -> String {
    let mut table = String::from(
        "| what | command | in CI | in a long run (`--scale long`) | last result |\n| --- | --- | --- | --- | --- |\n",
    );
    for row in ROWS {
        let last = |scale: Scale| {
            let of_row =
                entries.iter().filter(|entry| entry.row == row.name && entry.scale == scale);
            let of_row: Vec<&Entry> = of_row.collect();
            // Of one day the line that was appended last.
            let last = of_row.iter().max_by(|one, other| one.date.cmp(&other.date))?;
            let all = last.with_other_shares(&of_row);
            Some(all.show() + &all.show_uncounted(row))
        };
        let results: Vec<String> = [Scale::Ci, Scale::Long].into_iter().filter_map(last).collect();
        let results = if results.is_empty() { "none".to_owned() } else { results.join("; ") };
        let (ci, long) = (row.asked_in_words(Scale::Ci), row.asked_in_words(Scale::Long));
        // Writing to a string cannot fail.
        let _ = writeln!(
            table,
            "| {} | `cargo xtask proof {}` | {ci} | {long} | {results} |",
            row.what, row.name
        );
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(number: u64, outcome: Outcome) -> Report {
        let mut counts = Counts::default();
        counts.add("histories", number);
        counts.add("others", 3);
        let goals = vec![Goal { name: "histories", of: &["histories"], asked: 50_000 }];
        let tested = Counts::default();
        Report {
            row: "histories",
            scale: Scale::Ci,
            share: Share::ALL,
            seed: 77,
            goals,
            tested,
            counts,
            cpu_seconds: 1234.56,
            elapsed: Duration::from_millis(700_500),
            outcome,
        }
    }

    #[test]
    fn a_line_says_all_and_is_read_again() {
        let line = report(50_424, Outcome::Passed).line("2026-11-23", "0123456789ab");
        assert_eq!(
            line,
            "{\"date\":\"2026-11-23\",\"revision\":\"0123456789ab\",\"row\":\"histories\",\"scale\":\"ci\",\
             \"share\":\"1/1\",\"seed\":77,\"asked\":{\"histories\":50000},\"done\":{\"histories\":50424},\
             \"counted\":{\"histories\":50424,\"others\":3},\"cpu_seconds\":1234.6,\"seconds\":700.5,\
             \"outcome\":\"passed\"}"
        );
        let mut tested = Counts::default();
        tested.add("histories", 424);
        let after = Report { tested, ..report(50_424, Outcome::Passed) };
        let after = after.line("2026-11-23", "0123456789ab");
        assert_eq!(
            after.replace(",\"counted_by_cargo_test\":{\"histories\":424}", ""),
            line,
            "{after}"
        );
        let entry = Entry::parse(&after).unwrap();
        assert_eq!(entry.done, [("histories".to_owned(), 50_424)]);
        assert_eq!(
            entry.show(),
            "ci: passed, 50,424 histories (1,234 s of processors, 2026-11-23, `0123456789ab`, seed 77)"
        );
        let failed = Outcome::Failed("it said \"no\"\nand more".into());
        let line = report(7, failed).line("2026-11-23", "ab+");
        assert!(
            line.ends_with("\"outcome\":\"failed\",\"reason\":\"it said \\\"no\\\"\"}"),
            "{line}"
        );
        assert_eq!(Entry::parse(&line).unwrap().outcome, "failed");
        for wrong in ["", "{}", "{\"row\":\"histories\"}", &line.replace("\"ci\"", "\"big\"")] {
            assert_eq!(Entry::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_table_has_the_last_line_of_each_row_and_scale_whatever_it_says() {
        let entry = |report: &Report, date: &str| Entry::parse(&report.line(date, "ab")).unwrap();
        let passed = report(50_001, Outcome::Passed);
        let failed = report(9, Outcome::Failed("no".into()));
        let table = table_of(&[
            entry(&failed, "2026-11-24"),
            entry(&passed, "2026-11-23"),
            entry(&Report { scale: Scale::Long, ..passed.clone() }, "2026-11-20"),
        ]);
        assert_eq!(table.lines().count(), 2 + ROWS.len());
        let line = table.lines().find(|line| line.contains("proof histories`")).unwrap();
        assert!(line.contains("| ci: failed, 9 histories ("), "{line}");
        assert!(line.contains("; long: passed, 50,001 histories ("), "{line}");
        // What was asked for later is missing, and that is said.
        assert!(line.ends_with("seed 77), not counted then: transactions |"), "{line}");
        let asked = "| 50,000 histories, 50,000 transactions | 5,000,000 histories, 5,000,000 transactions |";
        assert!(line.contains(asked), "{line}");
        assert_eq!(table.matches("| none |").count(), ROWS.len() - 1, "{table}");
        let again = table_of(&[entry(&failed, "2026-11-24"), entry(&passed, "2026-11-24")]);
        assert!(again.contains("ci: passed, 50,001"), "{again}");
    }

    #[test]
    fn shares_of_one_run_are_summed() {
        let share = |index, outcome: Outcome, revision: &str| {
            let share = Share { index, of: 3 };
            let line = Report { share, ..report(60_000, outcome) }.line("2026-11-24", revision);
            Entry::parse(&line).unwrap()
        };
        let cell = |entries: &[Entry]| {
            let table = table_of(entries);
            let line = table.lines().find(|line| line.contains("proof histories`")).unwrap();
            line.rsplit("| ci").next().unwrap().to_owned()
        };
        let passed = |index| share(index, Outcome::Passed, "ab");
        let failed = |index| share(index, Outcome::Failed("no".into()), "ab");
        let one = cell(&[passed(1)]);
        assert!(one.starts_with(", share 2/3: passed, 60,000 histories (1,234 s"), "{one}");
        let two = cell(&[passed(2), passed(1)]);
        assert!(two.starts_with(", 2 of 3 shares: passed, 120,000 histories (2,468 s"), "{two}");
        assert!(two.contains(", `ab`, seed"), "{two}");
        // A run may go on at a later revision.
        let later = cell(&[share(0, Outcome::Passed, "cd"), passed(2), passed(1)]);
        assert!(later.starts_with(", 3 shares: passed, 180,000 histories (3,702 s"), "{later}");
        assert!(later.contains(", `ab`, `cd`, seed"), "{later}");
        // But not with what counted something else.
        let other = Entry { done: vec![("others".to_owned(), 7)], ..passed(0) };
        assert_eq!(cell(&[other, passed(2), passed(1)]), two);
        let all = cell(&[failed(0), passed(2), passed(0), passed(1)]);
        assert!(all.starts_with(", 3 shares: passed, 180,000 histories (3,702 s"), "{all}");
        let wrong = cell(&[passed(0), failed(2), passed(1)]);
        assert!(wrong.starts_with(", 3 shares: failed, 180,000 histories"), "{wrong}");
    }

    #[test]
    fn days_have_dates() {
        for (day, date) in [
            (0, "1970-01-01"),
            (58, "1970-02-28"),
            (59, "1970-03-01"),
            (11_016, "2000-02-29"),
            (20_453, "2025-12-31"),
            (20_454, "2026-01-01"),
        ] {
            assert_eq!(date_of(day), date);
        }
    }

    #[test]
    fn a_record_that_cannot_be_read_is_named() {
        let path = std::env::temp_dir().join(format!("xtask-record-{}.jsonl", std::process::id()));
        let files = [path.clone()];
        assert!(table(&files).is_err_and(|words| words.contains("cannot read")));
        let passed = report(60_000, Outcome::Passed);
        passed.append(&path, "ab").unwrap();
        passed.append(&path, "cd+").unwrap();
        assert!(table(&files).is_ok_and(|table| table.contains("`cd+`, seed 77)")));
        let mut text = fs::read_to_string(&path).unwrap();
        text.push_str("something else\n");
        fs::write(&path, text).unwrap();
        assert!(table(&files).is_err_and(|words| words.ends_with("line 3: no result of a row")));
        fs::remove_file(&path).unwrap();
    }
}
