//! Which test comes to which mutants, and how long it takes: each test is run once, alone, without a mutant.
//!
//! A test that fails so, or takes too long, is left out, and named: of a mutant it could not tell anything. What was found of
//! the others is remembered for as long as the programs are the same. Two tests run at a time.

use super::build::Program;
use super::copy::{self, Mutant};
use super::one_test::{self, AT_A_TIME, End, Test};
use crate::process::each_on;
use crate::workspace;
use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::time::Duration;

/// A test may take so long without a mutant.
const LIMIT: Duration = Duration::from_secs(30);

/// The tests, and which mutants they come to.
pub struct Reach {
    /// Those that pass, each with its seconds.
    pub tests: Vec<(Test, f64)>,
    /// Of each mutant, by its number, the tests that come to it, as indices of `tests`.
    of: Vec<Vec<u32>>,
    /// Of each program the folder of the crate whose models it has, if it has any.
    models_of: Vec<Option<&'static str>>,
}

impl Reach {
    /// Runs every test of the programs, but for those of which that was done.
    ///
    /// Errors: in words.
    pub fn find(place: &Path, programs: &[Program], mutants: &[Mutant]) -> Result<Reach, String> {
        let memory = place.join("reach.txt");
        let mark = mark(programs)?;
        let known = fs::read_to_string(&memory).ok().and_then(|text| read(&text, mark));
        let mut passed = known.unwrap_or_default();
        let known: HashSet<(usize, String)> =
            passed.iter().map(|(test, ..)| (test.program, test.name.clone())).collect();
        let mut tests = Vec::new();
        for (program, built) in programs.iter().enumerate() {
            let names = one_test::list(built)?.into_iter();
            let names = names.filter(|name| !known.contains(&(program, name.clone())));
            tests.extend(names.map(|name| Test { program, name }));
        }
        println!("{} tests are run without a mutant", tests.len());
        let found = each_on(AT_A_TIME, &tests, |test, worker| {
            let file = place.join(format!("reached-{worker}"));
            workspace::write(&file, &[])?;
            let folder = place.join(format!("files-{worker}"));
            let environment = (copy::REACHED, &*file);
            let (end, seconds) = one_test::run(programs, test, environment, &folder, LIMIT)?;
            let bytes = fs::read(&file)
                .map_err(|error| format!("cannot read {}: {error}", file.display()))?;
            Ok((end, seconds, numbers(&bytes)))
        })?;
        for (test, (end, seconds, numbers)) in tests.into_iter().zip(found) {
            match end {
                End::Passed => passed.push((test, seconds, numbers)),
                End::Failed => {
                    println!("left out, because it fails without a mutant: {}", test.name)
                }
                End::Hung => println!("left out, because it takes too long: {}", test.name),
            }
        }
        workspace::write(&memory, write(&passed, mark).as_bytes())?;
        let models_of = programs.iter().map(|program| program.models_of).collect();
        Ok(Reach::of(passed, mutants.len(), models_of))
    }

    fn of(
        found: Vec<(Test, f64, Vec<u32>)>,
        mutants: usize,
        models_of: Vec<Option<&'static str>>,
    ) -> Reach {
        let mut reach = Reach { tests: Vec::new(), of: vec![Vec::new(); mutants], models_of };
        for (test, seconds, numbers) in found {
            let index = u32::try_from(reach.tests.len()).unwrap_or(u32::MAX);
            for number in numbers {
                if let Some(of) = reach.of.get_mut(number as usize) {
                    of.push(index);
                }
            }
            reach.tests.push((test, seconds));
        }
        reach
    }

    /// The tests that come to a mutant, those first that are likely to notice it soon: fast ones, and before them those of the
    /// module that it is in and the models of its crate, unless they take ten times as long, or those of its folder, unless three
    /// times.
    pub fn to(&self, mutant: &Mutant) -> Vec<&(Test, f64)> {
        let module = module_of(&mutant.path);
        let reached = self.of.get(mutant.number as usize);
        let indices = reached.into_iter().flatten();
        let mut tests: Vec<&(Test, f64)> = indices.map(|&at| &self.tests[at as usize]).collect();
        let folder = module.rsplit_once("::").and_then(|(own, _)| own.rsplit_once("::"));
        let cost = |of: &(Test, f64)| match &of.0.name {
            name if name.starts_with(&module) => of.1 / 10.0,
            _ if self.is_model_of(&of.0, mutant) => of.1 / 10.0,
            name if folder.is_some_and(|(folder, _)| name.starts_with(folder)) => of.1 / 3.0,
            _ => of.1,
        };
        tests.sort_by(|a, b| cost(a).total_cmp(&cost(b)));
        tests
    }

    fn is_model_of(&self, test: &Test, mutant: &Mutant) -> bool {
        let folder = self.models_of.get(test.program).copied().flatten();
        folder.is_some_and(|folder| mutant.path.starts_with(folder))
    }
}

/// The module of a file, as the names of tests begin.
fn module_of(path: &str) -> String {
    let (_, within) = path.split_once("/src/").unwrap_or_default();
    within.trim_end_matches(".rs").trim_end_matches("/mod").replace('/', "::") + "::"
}

/// The numbers that the switch has written.
fn numbers(bytes: &[u8]) -> Vec<u32> {
    let (numbers, _) = bytes.as_chunks::<4>();
    let mut numbers: Vec<u32> = numbers.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect();
    // A test that starts processes has what those have come to as well.
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

/// Stands for the programs: cargo writes them anew when anything of them has changed.
fn mark(programs: &[Program]) -> Result<u64, String> {
    let mut hasher = DefaultHasher::new();
    for program in programs {
        let cannot = |error| format!("cannot look at {}: {error}", program.path.display());
        let there = fs::metadata(&program.path).map_err(cannot)?;
        let changed = there.modified().map_err(cannot)?;
        (&program.path, there.len(), changed).hash(&mut hasher);
    }
    Ok(hasher.finish())
}

fn write(found: &[(Test, f64, Vec<u32>)], mark: u64) -> String {
    let mut text = format!("{mark}\n");
    for (test, seconds, numbers) in found {
        let numbers: Vec<String> = numbers.iter().map(u32::to_string).collect();
        // Writing to a string cannot fail.
        let _ =
            writeln!(text, "{}\t{}\t{seconds:.3}\t{}", test.program, test.name, numbers.join(" "));
    }
    text
}

/// What [`write()`] has written, if it is of these programs.
fn read(text: &str, mark: u64) -> Option<Vec<(Test, f64, Vec<u32>)>> {
    let mut lines = text.lines();
    if lines.next()? != mark.to_string() {
        return None;
    }
    let parse = |line: &str| {
        let mut fields = line.split('\t');
        let program = fields.next()?.parse().ok()?;
        let name = fields.next()?.to_owned();
        let seconds = fields.next()?.parse().ok()?;
        let numbers = fields.next()?.split_whitespace().map(|number| number.parse().ok());
        Some((Test { program, name }, seconds, numbers.collect::<Option<Vec<u32>>>()?))
    };
    lines.map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found() -> Vec<(Test, f64, Vec<u32>)> {
        let test = |name: &str| Test { program: 1, name: name.into() };
        vec![
            (test("tree::slow"), 2.0, vec![0]),
            (test("wal::ring::tests::a"), 0.9, vec![0, 2]),
            (test("tree::fast"), 0.1, vec![0]),
            (test("none"), 0.1, vec![]),
            (Test { program: 0, name: "a_model".into() }, 0.95, vec![0]),
        ]
    }

    #[test]
    fn fast_tests_those_of_the_module_and_models_of_the_crate_come_first() {
        let reach = |models_of| Reach::of(found(), 3, vec![Some(models_of), None]);
        let mutant = |number: u32| Mutant {
            number,
            path: "crates/hedgerow/src/wal/ring.rs".into(),
            line: 1,
            part: 1,
            words: String::new(),
        };
        let names = |reach: &Reach, number: u32| {
            let tests = reach.to(&mutant(number));
            tests.iter().map(|of| of.0.name.clone()).collect::<Vec<_>>()
        };
        let own = reach("crates/hedgerow/");
        assert_eq!(names(&own, 0), ["wal::ring::tests::a", "a_model", "tree::fast", "tree::slow"]);
        assert_eq!(names(&own, 1), [""; 0]);
        assert_eq!(names(&own, 2), ["wal::ring::tests::a"]);
        let another = reach("crates/sync/");
        assert_eq!(
            names(&another, 0),
            ["wal::ring::tests::a", "tree::fast", "a_model", "tree::slow"]
        );
        assert_eq!(module_of("crates/sync/src/latch/mod.rs"), "latch::");
    }

    #[test]
    fn what_was_found_is_remembered_of_the_same_programs() {
        let text = write(&found(), 5);
        let again = read(&text, 5).unwrap();
        assert_eq!(write(&again, 5), text);
        assert!(read(&text, 6).is_none());
        assert_eq!(numbers(&[2, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 9]), [1, 2]);
    }
}
