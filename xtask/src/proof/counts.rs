//! What suites say that they have done, and whether that is as much as a row asks for.
//!
//! Tests say it in lines of one form, `counted: 1008 histories` (`hedgerow_testing::count`), the tool in the one line of JSON
//! that it prints. Both become [`Counts`], sums by name. Invariant: what cannot be read is an error and never a zero, and
//! what nobody has counted is not there. Plain values.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Begins what a test says that it has counted; the harness may have begun the line.
const COUNTED: &str = "counted: ";

/// Sums by the name of what was counted.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Counts(BTreeMap<String, u64>);

impl Counts {
    /// Adds to one of them.
    pub fn add(&mut self, what: &str, number: u64) {
        let sum = self.0.entry(what.to_owned()).or_default();
        *sum = sum.saturating_add(number);
    }

    /// Adds all of another's.
    pub fn add_all(&mut self, other: &Counts) {
        for (what, number) in &other.0 {
            self.add(what, *number);
        }
    }

    /// Whether one of these was counted, be it that there was none.
    pub fn has(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.0.contains_key(*name))
    }

    /// All of these together.
    pub fn sum(&self, names: &[&str]) -> u64 {
        names.iter().filter_map(|name| self.0.get(*name)).sum()
    }

    /// Whether nothing at all was counted.
    pub fn is_nothing(&self) -> bool {
        self.0.values().all(|number| *number == 0)
    }

    /// Those of them that are wanted.
    pub fn only(&self, wanted: impl Fn(&str) -> bool) -> Counts {
        let kept = self.0.iter().filter(|(what, _)| wanted(what));
        Counts(kept.map(|(what, number)| (what.clone(), *number)).collect())
    }

    /// Names and sums, in the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(what, number)| (what.as_str(), *number))
    }
}

/// What a script says that it has counted.
///
/// Errors: a line is not as it should be, or there is none.
pub fn of_lines(said: &str) -> Result<Counts, String> {
    let mut counts = Counts::default();
    for line in said.lines() {
        let Some(at) = line.find(COUNTED) else { continue };
        let rest = &line[at + COUNTED.len()..];
        let parts = rest.split_once(' ').and_then(|(number, what)| {
            Some((number.parse::<u64>().ok()?, what.trim())).filter(|parts| !parts.1.is_empty())
        });
        let (number, what) = parts.ok_or_else(|| format!("`{line}` counts nothing"))?;
        counts.add(what, number);
    }
    match counts.is_nothing() {
        true => Err("it has counted nothing".into()),
        false => Ok(counts),
    }
}

/// What tests have counted in the file that `HEDGEROW_COUNTED` named.
///
/// Errors: as [`of_lines`], or it cannot be read.
pub fn of_file(path: &Path) -> Result<Counts, String> {
    let text = fs::read_to_string(path).map_err(|error| error.to_string());
    text.and_then(|text| of_lines(&text)).map_err(|words| format!("{}: {words}", path.display()))
}

/// What one test that was run by itself says that it has counted.
///
/// Errors: as [`of_lines`], or the program has no such test.
pub fn of_test(said: &str) -> Result<Counts, String> {
    match said.contains("running 1 test\n") {
        true => of_lines(said),
        false => Err("the program has no test of this name".into()),
    }
}

/// What `torture simulate --format json` says: power cuts and kills, those during a recovery apart.
pub fn of_simulation(said: &str) -> Result<Counts, String> {
    let number = |name: &str| number_of(said, name).ok_or_else(|| format!("it says no {name}"));
    let (all, nested) = (number("power_cuts")? + number("kills")?, number("during_recovery")?);
    let apart = all.checked_sub(nested);
    let apart = apart.ok_or_else(|| format!("{nested} of {all} were during a recovery"))?;
    let mut counts = Counts::default();
    counts.add("crash states", apart);
    counts.add("nested crash states", nested);
    counts.add("failing calls on the simulated disk", number("failing_calls")?);
    Ok(counts)
}

/// What `torture kill --format json` says.
pub fn of_kills(said: &str) -> Result<Counts, String> {
    let mut counts = Counts::default();
    for (name, what) in [("kills", "kills"), ("acknowledged", "acknowledged changes")] {
        counts.add(what, number_of(said, name).ok_or_else(|| format!("it says no {name}"))?);
    }
    Ok(counts)
}

/// What `power-cuts --format json` says of all file systems together: a cycle cuts off one writer.
pub fn of_power_cuts(said: &str) -> Result<Counts, String> {
    let mut counts = Counts::default();
    for (name, what) in [
        ("cycles", "power cuts under a writer"),
        ("power_cuts", "power cuts in all"),
        ("failed_calls", "failing calls under a file system"),
        ("acknowledged", "acknowledged changes"),
        ("lost_writes", "writes that a cut has lost"),
        ("torn_writes", "writes that a cut has torn"),
    ] {
        counts.add(what, number_of(said, name).ok_or_else(|| format!("it says no {name}"))?);
    }
    Ok(counts)
}

/// A whole number of a line of JSON, by its name.
pub fn number_of(json: &str, name: &str) -> Option<u64> {
    let (_, rest) = json.split_once(&format!("\"{name}\":"))?;
    let rest = rest.trim_start();
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

/// So much of something is asked for, under a name for tables.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Goal {
    /// What it is called.
    pub name: &'static str,
    /// The counts that add to it.
    pub of: &'static [&'static str],
    /// How much is asked for.
    pub asked: u64,
}

impl Goal {
    /// How much of it was done.
    pub fn done(&self, counts: &Counts) -> u64 {
        counts.sum(self.of)
    }

    /// Whether that is enough.
    pub fn is_reached(&self, counts: &Counts) -> bool {
        self.done(counts) >= self.asked
    }
}

/// The words for goals that were not reached; `None` if all were.
pub fn refusal(goals: &[Goal], counts: &Counts) -> Option<String> {
    let missing = goals.iter().filter(|goal| !goal.is_reached(counts)).map(|goal| {
        format!("{} {} of {} that are asked for", goal.done(counts), goal.name, goal.asked)
    });
    let missing: Vec<String> = missing.collect();
    (!missing.is_empty()).then(|| missing.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tests_have_counted_is_read_whole_or_not_at_all() {
        let path = std::env::temp_dir().join(format!("xtask-counted-{}", std::process::id()));
        fs::write(&path, "counted: 3 eggs\ncounted: 4 birds\ncounted: 5 eggs\n").unwrap();
        let counts = of_file(&path).unwrap();
        let eggs = counts.only(|what| what == "eggs");
        assert_eq!((counts.sum(&["eggs", "birds"]), eggs.sum(&["eggs", "birds"])), (12, 8));
        fs::write(&path, "counted: 3 eggs\ncounted: many birds\n").unwrap();
        assert!(of_file(&path).unwrap_err().ends_with("`counted: many birds` counts nothing"));
        fs::remove_file(&path).unwrap();
        assert!(of_file(&path).unwrap_err().starts_with(&path.display().to_string()));
    }

    const GOAL: Goal =
        Goal { name: "crash states", of: &["crash states", "nested crash states"], asked: 100 };

    #[test]
    fn lines_are_found_and_summed_whoever_has_begun_them() {
        let said = "\nrunning 1 test\nseed 7\ntest a::b ... counted: 60 crash states\n\
                    counted: 30 nested crash states\ncounted: 9 crash states\nok\n";
        let counts = of_test(said).unwrap();
        assert_eq!(counts.sum(&["crash states"]), 69);
        assert_eq!(counts.sum(&["crash states", "nested crash states"]), 99);
        assert_eq!(counts.sum(&["states"]), 0);
        let all: Vec<_> = counts.iter().collect();
        assert_eq!(all, [("crash states", 69), ("nested crash states", 30)]);
    }

    #[test]
    fn what_counts_nothing_is_refused() {
        for said in ["", "running 1 test\nok\n", "counted: 0 histories\n"] {
            assert!(of_lines(said).is_err(), "{said}");
        }
        for line in ["counted: many histories", "counted: 7", "counted: 7 ", "counted: -1 words"] {
            let said = format!("counted: 5 words\n{line}\n");
            assert!(of_lines(&said).is_err_and(|words| words.contains(line.trim())), "{line}");
        }
        assert!(of_test("running 0 tests\ncounted: 5 words\n").is_err());
    }

    #[test]
    fn what_the_tool_says_is_counted() {
        let said = "{\"seed\":7,\"stores\":2,\"changes\":90,\"failing_calls\":1,\"power_cuts\":30,\
                    \"kills\":4,\"during_recovery\":10}\n";
        let counts = of_simulation(said).unwrap();
        assert_eq!(counts.sum(&["crash states"]), 24);
        assert_eq!(counts.sum(&["nested crash states"]), 10);
        assert!(of_simulation("{\"power_cuts\":30,\"kills\":4}").is_err());
        assert!(
            of_simulation(&said.replace(":10}", ":40}")).is_err(),
            "more nested ones than there are"
        );
        let counts = of_kills("{\"seed\":7,\"kills\":200,\"acknowledged\":9}").unwrap();
        assert_eq!(counts.sum(&["kills"]), 200);
        assert!(of_kills("killed\n").is_err());
        let said = "{\"cycles\":5,\"power_cuts\":8,\"faulty\":1,\"failed_calls\":0,\"acknowledged\":9,\
                    \"flushes\":3,\"lost_writes\":70,\"torn_writes\":6,\"file_systems\":{\"ext4\":{}}}";
        let counts = of_power_cuts(said).unwrap();
        assert_eq!(counts.sum(&["power cuts under a writer"]), 5);
        assert_eq!(counts.sum(&["writes that a cut has lost"]), 70);
        let failing = ["failing calls under a file system"];
        assert!(counts.has(&failing) && counts.sum(&failing) == 0);
        assert!(!counts.has(&["kills"]));
        assert!(of_power_cuts(&said.replace("torn", "worn")).is_err());
    }

    #[test]
    fn a_goal_that_is_not_reached_is_named_with_what_is_missing() {
        let mut counts = Counts::default();
        assert!(counts.is_nothing());
        counts.add("crash states", 70);
        counts.add("words", 1_000);
        let words = refusal(&[GOAL], &counts).unwrap();
        assert_eq!(words, "70 crash states of 100 that are asked for");
        let mut more = Counts::default();
        more.add("nested crash states", 30);
        counts.add_all(&more);
        assert!(GOAL.is_reached(&counts));
        assert_eq!(refusal(&[GOAL], &counts), None);
    }
}
