//! The processes that a row is made of: programs that are built, arguments, environment.
//!
//! Everything that a suite takes from the environment is set here or taken away, so that what a shell happens to have does
//! not decide how much is run. Starts cargo; one caller at a time.

use super::counts::{self, Counts, Goal};
use super::pool::Job;
use super::rows::{Build, Row, Scale, Share, Size, Suite};
use crate::seeded;
use crate::test_programs;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// What suites look at, and what is not set for one of them has to be away.
const ENVIRONMENT: [&str; 12] = [
    "HEDGEROW_SEEDED_BUG",
    "HEDGEROW_COUNTED",
    "HEDGEROW_EFFORT",
    "HEDGEROW_FUZZ_KEEP",
    "HEDGEROW_FUZZ_RUNS",
    "HEDGEROW_FUZZ_SANITIZER",
    "HEDGEROW_FUZZ_SEED",
    "HEDGEROW_ONLY",
    "HEDGEROW_OOM_CHILD",
    "HEDGEROW_PART",
    "HEDGEROW_SEED",
    "HEDGEROW_SHUTTLE_ITERATIONS",
];
/// What the end of a fuzz target may take when its time is up.
const FUZZ_END_SECONDS: u64 = 30;
/// libFuzzer's seeds have so many bits; zero would be a seed of its own choice.
const FUZZ_SEEDS: u64 = u32::MAX as u64;

/// What was built.
#[derive(Clone, Default, Debug)]
pub struct Programs {
    tests: BTreeMap<(Build, &'static str), PathBuf>,
    tool: Option<PathBuf>,
    simulation: Option<PathBuf>,
    power_cuts: Option<PathBuf>,
}

/// By which `power-cuts` says that this machine cannot mount what it needs.
const POWER_CUTS_CANNOT: i32 = 3;
/// What its last cycle may take when its time is up.
const POWER_CUTS_END_SECONDS: u64 = 120;

/// A sanitizer as `.ci/fuzz` names it.
const WITHOUT: &str = "none";

/// With which sanitizers fuzz targets run, and how many tenths of the inputs with each. Without one, two to four times as many
/// run in a second, and they are built in half the time: so in CI, where `.ci/sanitizers inputs` runs those that have come to new
/// code once more, and most of the long run.
fn sanitizers(scale: Scale) -> Vec<(&'static str, u64)> {
    match scale {
        Scale::Ci => vec![(WITHOUT, 10)],
        Scale::Long => vec![("address", 1), (WITHOUT, 9)],
    }
}

/// Where everything of these runs lies, below the target directory.
pub fn place(root: &Path) -> PathBuf {
    test_programs::target_directory(root).join("proof")
}

/// Why this machine cannot run a row at all; `None` if it can.
pub fn hindrance(row: &Row) -> Option<String> {
    match row.name {
        "kills" | "power-cuts" if cfg!(not(target_os = "linux")) => {
            Some("kills and file systems are those of Linux".into())
        }
        "faults" | "hostile" | "seeded-bugs" if cfg!(not(unix)) => {
            Some("its suites need a system of the Unix kind".into())
        }
        _ => None,
    }
}

/// Builds what these rows run, but for what [`Programs::with_others_of`] does. In CI that is what is built there anyway: the programs of
/// `cargo test`, and the tool.
///
/// Errors: in words.
pub fn build(root: &Path, rows: &[&Row], scale: Scale) -> Result<Programs, String> {
    let mut targets: BTreeMap<Build, BTreeSet<&'static str>> = BTreeMap::new();
    let (mut needs_tool, mut needs_simulation, mut needs_power_cuts) = (false, false, false);
    for suite in rows.iter().flat_map(|row| row.suites).filter(|suite| suite.is_of(scale)) {
        match *suite {
            Suite::Test { build: Build::Shuttle, .. } | Suite::Fuzz(..) => {}
            Suite::Test { build, target, .. } => {
                targets.entry(build).or_default().insert(target);
            }
            Suite::Simulate(_) => needs_simulation = true,
            Suite::Kill(_) => needs_tool = true,
            Suite::PowerCuts(..) => (needs_tool, needs_power_cuts) = (true, true),
        }
    }
    let mut programs = Programs::default();
    for (build, targets) in targets {
        println!("proof: building programs of tests: {targets:?}");
        let found = match (build, scale) {
            (Build::Shuttle, _) => continue,
            (Build::Plain, Scale::Ci) => {
                let cargo = test_programs::plain_cargo(root);
                test_programs::build_tests(cargo, "hedgerow", targets, &["--workspace"])?
            }
            (Build::Plain, Scale::Long) => {
                let cargo = test_programs::cargo(root, &place(root), None);
                test_programs::build_tests(cargo, "hedgerow", targets, &["--release"])?
            }
        };
        programs.tests.extend(found.into_iter().map(|(target, path)| ((build, target), path)));
    }
    if needs_tool {
        println!("proof: building the tool");
        let cargo = test_programs::plain_cargo(root);
        programs.tool = Some(test_programs::build_program(cargo, "hedgerow-cli", "hedgerow")?);
    }
    if needs_simulation {
        println!("proof: building the simulation");
        let (cargo, name) = (test_programs::plain_cargo(root), "hedgerow-torture");
        programs.simulation = Some(test_programs::build_program(cargo, name, name)?);
    }
    if needs_power_cuts {
        let (cargo, name) = (test_programs::plain_cargo(root), "hedgerow-powercut");
        programs.power_cuts = Some(match scale {
            Scale::Ci => test_programs::build_tested_program(cargo, name, name, "program")?,
            Scale::Long => test_programs::build_program(cargo, name, name)?,
        });
    }
    Ok(programs)
}

impl Programs {
    /// These, and what a row needs that has a target directory of its own, so that it is built beside other rows: programs of
    /// schedules, which `seeded-bugs` has as well, with no bug chosen here, and fuzz targets.
    ///
    /// Errors: in words.
    pub fn with_others_of(&self, root: &Path, row: &Row, scale: Scale) -> Result<Programs, String> {
        let mut programs = self.clone();
        let mut shuttle = BTreeSet::new();
        let mut needs_fuzz = false;
        for suite in row.suites.iter().filter(|suite| suite.is_of(scale)) {
            match *suite {
                Suite::Test { build: Build::Shuttle, target, .. } => _ = shuttle.insert(target),
                Suite::Fuzz(..) => needs_fuzz = true,
                _ => {}
            }
        }
        if !shuttle.is_empty() {
            println!("proof: building programs of schedules: {shuttle:?}");
            let found = seeded::shuttle_programs(root, shuttle)?;
            let found = found.into_iter().map(|(target, path)| ((Build::Shuttle, target), path));
            programs.tests.extend(found);
        }
        if needs_fuzz {
            println!("proof: building the fuzz targets");
            for (sanitizer, _) in sanitizers(scale) {
                let mut command = Command::new(root.join(".ci/fuzz"));
                command.arg("--build").current_dir(root).env("HEDGEROW_FUZZ_SANITIZER", sanitizer);
                let status = command.status();
                let status = status.map_err(|error| format!("cannot start .ci/fuzz: {error}"))?;
                if !status.success() {
                    return Err(format!("the fuzz targets do not build: {status}"));
                }
            }
        }
        Ok(programs)
    }
}

/// What decides on the processes of a row.
pub struct Setting<'a> {
    /// The workspace.
    pub root: &'a Path,
    /// What was built for it.
    pub programs: &'a Programs,
    /// How much is done.
    pub scale: Scale,
    /// Which part of it.
    pub share: Share,
    /// Whether `cargo test` has run its tests, and has counted: those that do the same each time are not run again, and others
    /// of the same size only for what is missing.
    pub is_tested: bool,
}

impl Setting<'_> {
    /// The processes of a row's suites, in the order in which they are begun.
    ///
    /// Errors: a program was not built.
    pub fn jobs(&self, row: &Row, goals: &[Goal]) -> Result<Vec<Job>, String> {
        let mut jobs = Vec::new();
        for suite in row.suites.iter().filter(|suite| suite.is_of(self.scale)) {
            match *suite {
                Suite::Test { build: Build::Plain, is_repeated: false, .. } if self.is_tested => {}
                Suite::Test { build, target, test, size, is_repeated } => {
                    let program = self.programs.tests.get(&(build, target));
                    let program = program.ok_or_else(|| format!("{target} was not built"))?;
                    let size = self.scale.pick(size);
                    let is_tested = self.is_tested && build == Build::Plain;
                    let of_test = TestOf { root: self.root, is_tested, program, target, test };
                    let (mine, parts) = self.share.parts(size.parts);
                    jobs.extend(mine.map(|part| of_test.job(size, Some((part + 1, parts)), false)));
                    if size.parts == 0 {
                        jobs.push(of_test.job(size, None, is_repeated));
                    } else if is_repeated {
                        // A sample, as often as more is asked for than there is in all.
                        jobs.push(of_test.job(Size { effort: 1, ..size }, None, true));
                    }
                }
                Suite::Simulate(cuts) => jobs.push(self.simulation(self.scale.pick(cuts))?),
                Suite::PowerCuts(cycles, kinds) => {
                    jobs.push(self.power_cuts(self.scale.pick(cycles), self.scale.pick(kinds))?);
                }
                Suite::Kill(cycles) => jobs.push(self.kills(self.scale.pick(cycles), goals)?),
                Suite::Fuzz(target, part) => {
                    // The same seed would be the same inputs once more.
                    for ((sanitizer, tenths), later) in sanitizers(self.scale).into_iter().zip(0..)
                    {
                        jobs.push(self.fuzz(target, sanitizer, later, part * tenths, goals)?);
                    }
                }
            }
        }
        Ok(jobs)
    }

    fn tool(&self) -> Result<PathBuf, String> {
        self.programs.tool.clone().ok_or_else(|| "the tool was not built".to_owned())
    }

    fn simulation(&self, cuts: u64) -> Result<Job, String> {
        let program = self.programs.simulation.clone();
        let program = program.ok_or_else(|| "the simulation was not built".to_owned())?;
        let command = move |seed: u64, _: Duration| {
            let mut command = Command::new(&program);
            command.args(["--format", "json"]);
            command.args(["--cuts", &cuts.to_string(), "--seed", &seed.to_string()]);
            command
        };
        let mut expects = Counts::default();
        expects.add("crash states", cuts);
        Ok(Job {
            name: "torture simulate".into(),
            command: Box::new(command),
            counted: counts::of_simulation,
            expects,
            is_repeated: true,
            is_tested: false,
            cannot: None,
        })
    }

    fn kills(&self, cycles: u64, goals: &[Goal]) -> Result<Job, String> {
        let tool = self.tool()?;
        let most = goals.iter().map(|goal| goal.asked).max().unwrap_or(cycles);
        let cycles = cycles.min(most).max(1);
        let command = move |seed: u64, _: Duration| {
            let mut command = Command::new(&tool);
            command.args(["torture", "kill", "--format", "json"]);
            command.args(["--cycles", &cycles.to_string(), "--seed", &seed.to_string(), "--"]);
            command.arg(std::env::temp_dir());
            command
        };
        Ok(Job {
            name: "hedgerow torture kill".into(),
            command: Box::new(command),
            counted: counts::of_kills,
            expects: Counts::default(),
            is_repeated: true,
            is_tested: false,
            cannot: None,
        })
    }

    /// Cycles of a writer that is cut off with the disk, on these kinds of file systems in turn.
    fn power_cuts(&self, cycles: u64, kinds: &'static str) -> Result<Job, String> {
        let tool = self.tool()?;
        let program = self.programs.power_cuts.clone();
        let program = program.ok_or_else(|| "power-cuts was not built".to_owned())?;
        let command = move |seed: u64, limit: Duration| {
            let mut command = Command::new(&program);
            // It ends by itself before its time is up: killed, it would leave what it has mounted.
            let seconds = limit.as_secs().saturating_sub(POWER_CUTS_END_SECONDS).max(1);
            command.args(["--seconds", &seconds.to_string()]);
            command.args(["--format", "json", "--file-system", kinds]);
            command.args(["--cycles", &cycles.to_string(), "--seed", &seed.to_string()]);
            command.arg("--tool").arg(&tool);
            command
        };
        Ok(Job {
            name: "power cuts".into(),
            command: Box::new(command),
            counted: counts::of_power_cuts,
            expects: Counts::default(),
            is_repeated: true,
            is_tested: false,
            cannot: Some(POWER_CUTS_CANNOT),
        })
    }

    /// A target that runs so many ten-thousandths of what is asked for, and fails if it has run fewer when its time is up; with a
    /// seed so much later than that of the row.
    fn fuzz(
        &self,
        target: &'static str,
        sanitizer: &'static str,
        later: u64,
        part: u64,
        goals: &[Goal],
    ) -> Result<Job, String> {
        let name = format!("inputs of {target}");
        let goal = goals.iter().find(|goal| goal.of.contains(&name.as_str()));
        let goal = goal.ok_or_else(|| format!("nobody asks for {name}"))?;
        let inputs = (goal.asked * part).div_ceil(10_000);
        let mut expects = Counts::default();
        expects.add(&name, inputs);
        let root = self.root.to_owned();
        // Nobody wants those of a long run, in which a target may run several times at once.
        let is_kept = self.scale == Scale::Ci;
        let command = move |seed: u64, limit: Duration| {
            let seconds = limit.as_secs().saturating_sub(FUZZ_END_SECONDS).max(1);
            let mut command = Command::new(root.join(".ci/fuzz"));
            command.current_dir(&root);
            clear(&mut command);
            command.arg(seconds.to_string()).arg(target);
            command.env("HEDGEROW_FUZZ_RUNS", inputs.to_string());
            command.env("HEDGEROW_FUZZ_SANITIZER", sanitizer);
            if is_kept {
                command.env("HEDGEROW_FUZZ_KEEP", place(&root).join("inputs"));
            }
            command.env("HEDGEROW_FUZZ_SEED", ((seed + later) % FUZZ_SEEDS).max(1).to_string());
            command
        };
        Ok(Job {
            name: format!("fuzz target {target}, sanitizer {sanitizer}"),
            command: Box::new(command),
            counted: counts::of_lines,
            expects,
            is_repeated: true,
            is_tested: false,
            cannot: None,
        })
    }
}

/// A test, and the program that it is in.
struct TestOf<'a> {
    root: &'a Path,
    /// `cargo test` has run it.
    is_tested: bool,
    program: &'a Path,
    target: &'static str,
    test: &'static str,
}

impl TestOf<'_> {
    /// So much of it: all, or of its cases the part with this number, from 1, of so many.
    fn job(&self, size: Size, part: Option<(usize, usize)>, is_repeated: bool) -> Job {
        let (program, test) = (self.program.to_owned(), self.test);
        // As cargo runs it.
        let directory = self.root.join("crates/hedgerow");
        let part = part.map(|(part, parts)| format!("{part}/{parts}"));
        let mut name = format!("{} {test}", self.target);
        if let Some(part) = &part {
            name.push_str(&format!(", part {part}"));
        }
        let command = move |seed: u64, _: Duration| {
            let mut command = Command::new(&program);
            command.current_dir(&directory).args(["--exact", test, "--nocapture"]);
            clear(&mut command);
            command.env("HEDGEROW_TESTS", "all");
            command.env("HEDGEROW_SEED", seed.to_string());
            command.env("HEDGEROW_EFFORT", size.effort.to_string());
            if let Some(part) = &part {
                command.env("HEDGEROW_PART", part);
            }
            if size.schedules > 0 {
                command.env("HEDGEROW_SHUTTLE_ITERATIONS", size.schedules.to_string());
            }
            command
        };
        let command = Box::new(command);
        let (expects, counted) = (Counts::default(), counts::of_test);
        // Of another size it does something else.
        let is_tested = self.is_tested && size.effort == 1;
        Job { name, command, counted, expects, is_repeated, is_tested, cannot: None }
    }
}

fn clear(command: &mut Command) {
    for name in ENVIRONMENT {
        command.env_remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::ROWS;
    use super::*;
    use crate::process;

    /// Programs of all rows, which were never built.
    fn programs() -> Programs {
        let built = |name: &str| Some(Path::new("/built").join(name));
        let (tool, power_cuts) = (built("hedgerow"), built("hedgerow-powercut"));
        let simulation = built("hedgerow-torture");
        let mut programs = Programs { tool, simulation, power_cuts, ..Programs::default() };
        for suite in ROWS.iter().flat_map(|row| row.suites) {
            if let Suite::Test { build, target, .. } = *suite {
                programs.tests.insert((build, target), Path::new("/built").join(target));
            }
        }
        programs
    }

    fn commands_of(name: &str, scale: Scale, share: Share) -> Vec<String> {
        commands_after(false, name, scale, share)
    }

    fn commands_after(is_tested: bool, name: &str, scale: Scale, share: Share) -> Vec<String> {
        let (programs, root) = (programs(), Path::new("/root-of-it"));
        let row = ROWS.iter().find(|row| row.name == name).unwrap();
        let setting = Setting { root, programs: &programs, scale, share, is_tested };
        let jobs = setting.jobs(row, &row.goals(scale, share)).unwrap();
        let limit = Duration::from_secs(100);
        jobs.iter().map(|job| process::show(&(job.command)(7, limit))).collect()
    }

    #[test]
    fn a_test_is_run_by_itself_with_the_seed_and_its_size() {
        let histories = commands_of("histories", Scale::Ci, Share::ALL);
        let first = "HEDGEROW_EFFORT=5 HEDGEROW_SEED=7 HEDGEROW_TESTS=all /built/engine --exact \
                     linear::answers_of_a_store_in_memory_have_an_order --nocapture";
        assert_eq!((histories.len(), histories[0].as_str()), (5, first));
        let schedules = commands_of("schedules", Scale::Long, Share::ALL);
        let iterations = "HEDGEROW_SHUTTLE_ITERATIONS=2500 ";
        let (small, whole): (Vec<_>, Vec<_>) =
            schedules.iter().partition(|command| command.contains(" pool::"));
        assert!(whole.iter().all(|command| command.contains(iterations)), "{schedules:?}");
        assert_eq!(small.len(), 5);
    }

    #[test]
    fn all_cases_are_shared_out_and_then_sampled() {
        let is_of = |command: &&String| {
            command.contains(" fault_sweep::every_call_fails_under_a_store_with_a_log ")
        };
        let parts = |share: &str| {
            let all = commands_of("faults", Scale::Long, Share::parse(share).unwrap());
            let (parts, samples): (Vec<_>, Vec<_>) =
                all.iter().filter(is_of).cloned().partition(|one| one.contains("HEDGEROW_PART="));
            assert_eq!(samples.len(), 1);
            assert!(parts.iter().all(|command| command.contains("HEDGEROW_EFFORT=2 ")));
            parts
        };
        assert_eq!(parts("1/1").len(), 8);
        let second = parts("2/2");
        assert_eq!(second.len(), 8);
        assert!(second[0].contains("HEDGEROW_PART=2/16 "), "{}", second[0]);
        assert!(second[7].contains("HEDGEROW_PART=16/16 "), "{}", second[7]);
        let words = commands_of("enumeration", Scale::Ci, Share::ALL);
        assert_eq!(words.len(), 2);
        assert!(words.iter().all(|command| command.contains("HEDGEROW_PART=1/1 ")), "{words:?}");
    }

    #[test]
    fn what_cargo_test_has_run_is_run_again_if_that_is_something_else() {
        let after = |name| commands_after(true, name, Scale::Ci, Share::ALL);
        assert!(after("enumeration").is_empty());
        let faults = after("faults");
        assert_eq!(faults.len(), 3, "{faults:?}");
        assert!(faults.iter().all(|command| command.contains("HEDGEROW_SEED=7 ")), "{faults:?}");
        // Nobody else runs models under shuttle.
        let all = commands_of("schedules", Scale::Ci, Share::ALL);
        assert_eq!(after("schedules"), all);
    }

    #[test]
    fn the_tool_and_the_fuzz_targets_are_told_how_much() {
        let kills = commands_of("kills", Scale::Ci, Share::parse("1/4").unwrap());
        let told = "/built/hedgerow torture kill --format json --cycles 50 --seed 7 -- ";
        assert!(kills[0].starts_with(told), "{}", kills[0]);
        let cuts = commands_of("power-cuts", Scale::Ci, Share::ALL);
        let told = "/built/hedgerow-powercut --seconds 1 --format json --file-system ext4 \
                    --cycles 5 --seed 7 --tool /built/hedgerow";
        assert_eq!(cuts, [told]);
        let states = commands_of("crash-states", Scale::Ci, Share::ALL);
        let told = "/built/hedgerow-torture --format json --cuts 20000 --seed 7";
        assert!(states.iter().any(|command| command == told), "{states:?}");
        // Of what `cargo test` has anyway nothing else.
        assert_eq!(states.len(), 1, "{states:?}");
        let hostile = commands_of("hostile", Scale::Ci, Share::ALL);
        let keep = place(Path::new("/root-of-it")).join("inputs");
        let keep = format!("HEDGEROW_FUZZ_KEEP={} ", keep.display());
        let told = format!(
            "{keep}HEDGEROW_FUZZ_RUNS=50000 HEDGEROW_FUZZ_SANITIZER=none HEDGEROW_FUZZ_SEED=7 \
             /root-of-it/.ci/fuzz 70 log_file"
        );
        assert!(hostile.contains(&told), "{told}: {hostile:?}");
        assert!(!hostile.iter().any(|command| command.contains("=address")), "{hostile:?}");
        let hostile = commands_of("hostile", Scale::Long, Share::parse("1/10").unwrap());
        for (runs, sanitizer, seed) in [(30_000, "address", 7), (270_000, "none", 8)] {
            let told = format!(
                "HEDGEROW_FUZZ_RUNS={runs} HEDGEROW_FUZZ_SANITIZER={sanitizer} HEDGEROW_FUZZ_SEED={seed} \
                 /root-of-it/.ci/fuzz 70 log_file"
            );
            assert!(hostile.contains(&told), "{told}: {hostile:?}");
        }
    }
}
