//! Runs the suites of a row, several at a time, again and again, until enough was counted.
//!
//! A [`Job`] is a process that can be started with a seed. Threads take jobs in turn: each once, if it was not run before, then those that add to a
//! goal that neither is reached nor will be by what runs now, each time with a new seed. While nobody knows yet what a job adds, it is
//! waited for, and not begun again. Each process needs one of the turns that all rows share. Nobody begins anything after a failure,
//! when all goals are reached, or when the time is up; a process that goes on then is killed. Invariants: a job counts only if its process has
//! ended well and has said what it counted; what failed is named with the command that does it again. All state is behind
//! one lock, which nobody holds while a process runs.

use super::counts::{Counts, Goal};
use super::turns::Turns;
use crate::process::{self, Ended};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The last lines of what a process has said, if it failed.
const SHOWN_LINES: usize = 60;
/// Runs in which a job may have counted none of something before nobody waits for it any more.
const MOST_IN_VAIN: u64 = 8;
/// Who waits for a process that may be the one that is wanted looks again after so long, at the clock above all.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// A process that proves something.
pub struct Job {
    /// What it is called.
    pub name: String,
    /// The process with a seed, and with the time after which it is killed.
    pub command: Box<dyn Fn(u64, Duration) -> Command + Send + Sync>,
    /// What it has counted, by what it has said.
    pub counted: fn(&str) -> Result<Counts, String>,
    /// What it is going to count, as far as that is known before its first run has ended.
    pub expects: Counts,
    /// Whether another seed makes it do something else; if not, it is run once.
    pub is_repeated: bool,
    /// It was run before, and what it has counted is known: it is run if it adds to what is missing.
    pub is_tested: bool,
    /// The exit code by which it says that this machine cannot run it, if it has one.
    pub cannot: Option<i32>,
}

/// How, and how long.
pub struct Terms<'a> {
    /// How many processes of the row at a time, at most.
    pub workers: usize,
    /// And how many of all rows; of those who wait the row with the lowest rank is next. No two rows have the same.
    pub turns: &'a Turns,
    /// See above.
    pub rank: usize,
    /// The seed of all that is done in a round, from 0.
    pub seed_of: &'a (dyn Fn(u64) -> u64 + Sync),
    /// Nothing goes on after it.
    pub deadline: Instant,
    /// Nor does any process for longer.
    pub longest: Duration,
    /// Where processes write what they say.
    pub place: &'a Path,
}

/// What came of it.
#[derive(Default, Debug)]
pub struct Done {
    /// What was counted.
    pub counts: Counts,
    /// Processes that were run to their end.
    pub runs: u64,
    /// Processor time of all processes.
    pub cpu_seconds: f64,
    /// What failed, in words.
    pub failures: Vec<String>,
    /// What this machine cannot run, in words.
    pub hindrances: Vec<String>,
    /// The time was up before all was done.
    pub is_late: bool,
}

struct State {
    done: Done,
    /// The next turn, of which each job has one in a round.
    turn: usize,
    /// What each job has counted so far, and in how many runs.
    gave: Vec<(Counts, u64)>,
    /// How often each job runs at the moment.
    running: Vec<u64>,
}

impl State {
    /// What will be counted when all that runs has ended, if each job counts as much as it did on average, or as it expects.
    fn foreseen(&self, jobs: &[Job]) -> Counts {
        let mut counts = self.done.counts.clone();
        for ((gave, runs), (running, job)) in self.gave.iter().zip(self.running.iter().zip(jobs)) {
            let (gave, runs) = if *runs > 0 { (gave, *runs) } else { (&job.expects, 1) };
            for (what, number) in gave.iter() {
                counts.add(what, number / runs * running);
            }
        }
        counts
    }

    /// What to do next.
    fn take(&mut self, jobs: &[Job], goals: &[Goal], is_time_up: bool) -> Next {
        let done = &self.done;
        if !done.failures.is_empty() || !done.hindrances.is_empty() || done.is_late {
            return Next::End;
        }
        let first_round = self.turn < jobs.len();
        let foreseen = self.foreseen(jobs);
        let wanted: Vec<&Goal> = goals.iter().filter(|goal| !goal.is_reached(&foreseen)).collect();
        if !first_round && wanted.is_empty() {
            return Next::End;
        }
        let adds = |turn: usize| {
            let at = turn % jobs.len();
            let (gave, runs) = &self.gave[at];
            let may_add = |goal: &&Goal| match (goal.done(gave), *runs) {
                // Nobody knows what it counts before it has run here.
                (_, 0) => {
                    goal.done(&jobs[at].expects) > 0 || jobs[at].is_tested && self.running[at] == 0
                }
                // What is rare may come with another seed.
                (0, _) => *runs < MOST_IN_VAIN && gave.has(goal.of),
                _ => true,
            };
            let is_first = turn < jobs.len() && !jobs[at].is_tested;
            is_first || (jobs[at].is_repeated && wanted.iter().any(may_add))
        };
        // As many turns as there are jobs meet each of them.
        let Some(turn) = (self.turn..self.turn + jobs.len()).find(|&turn| adds(turn)) else {
            // What has not ended once may add to what is wanted, or leave it to others.
            let is_open = self
                .running
                .iter()
                .zip(&self.gave)
                .any(|(&running, (_, runs))| running > 0 && *runs == 0);
            return if is_open && !is_time_up { Next::Wait } else { Next::End };
        };
        if is_time_up {
            self.done.is_late = true;
            return Next::End;
        }
        self.turn = turn + 1;
        let at = turn % jobs.len();
        self.running[at] += 1;
        Next::Run(at, (turn / jobs.len()) as u64)
    }

    fn put(&mut self, at: usize, (outcome, cpu_seconds): (Outcome, f64)) {
        self.running[at] -= 1;
        self.done.cpu_seconds += cpu_seconds;
        match outcome {
            Outcome::Counted(counts) => {
                self.done.runs += 1;
                self.done.counts.add_all(&counts);
                let (gave, runs) = &mut self.gave[at];
                gave.add_all(&counts);
                *runs += 1;
            }
            Outcome::Late => self.done.is_late = true,
            Outcome::Failed(words) => self.done.failures.push(words),
            Outcome::Hindered(words) => self.done.hindrances.push(words),
        }
    }
}

/// What a worker does next.
enum Next {
    /// This job, in this round.
    Run(usize, u64),
    /// Ask again when a process has ended.
    Wait,
    /// Nothing any more.
    End,
}

/// How a process ended.
#[derive(Debug)]
enum Outcome {
    Counted(Counts),
    /// It was killed, because the time for everything was up.
    Late,
    Failed(String),
    /// The machine cannot run it.
    Hindered(String),
}

/// Runs all jobs, and some again, until all goals are reached, of which so much was done before.
pub fn run(jobs: &[Job], goals: &[Goal], before: &Counts, terms: &Terms<'_>) -> Done {
    let done = Done { counts: before.clone(), ..Done::default() };
    let gave = vec![Default::default(); jobs.len()];
    let running = vec![0; jobs.len()];
    let state = Mutex::new(State { done, turn: 0, gave, running });
    let ended = Condvar::new();
    std::thread::scope(|scope| {
        for worker in 0..terms.workers.max(1) {
            let (state, ended) = (&state, &ended);
            scope.spawn(move || {
                loop {
                    let turn = terms.turns.take(terms.rank);
                    let is_time_up = Instant::now() >= terms.deadline;
                    let mut taken = lock(state);
                    match taken.take(jobs, goals, is_time_up) {
                        Next::Run(at, round) => {
                            drop(taken);
                            let outcome = run_one(&jobs[at], round, worker, terms);
                            lock(state).put(at, outcome);
                            ended.notify_all();
                        }
                        Next::Wait => {
                            // Others have the turn meanwhile.
                            drop(turn);
                            let waited = ended.wait_timeout(taken, LONGEST_WAIT);
                            drop(waited.unwrap_or_else(PoisonError::into_inner));
                        }
                        Next::End => {
                            // There is none of a worker who had nothing to do.
                            std::fs::remove_file(said(terms, worker)).ok();
                            break;
                        }
                    }
                }
            });
        }
    });
    state.into_inner().unwrap_or_else(PoisonError::into_inner).done
}

/// A thread that panicked has left sums that are whole: they are changed by nothing that can panic.
fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What came of a process, and its processor time.
fn run_one(job: &Job, round: u64, worker: usize, terms: &Terms<'_>) -> (Outcome, f64) {
    let left = terms.deadline.saturating_duration_since(Instant::now());
    let limit = left.min(terms.longest);
    let mut command = (job.command)((terms.seed_of)(round), limit);
    let log = said(terms, worker);
    let started = Instant::now();
    let ended = process::run(&mut command, &log, limit);
    let cpu_seconds = ended.as_ref().map_or(0.0, |ended| ended.cpu_seconds);
    let how = match &ended {
        Err(words) => words.clone(),
        Ok(Ended { status: None, .. }) if left <= terms.longest => {
            return (Outcome::Late, cpu_seconds);
        }
        Ok(Ended { status: None, .. }) => {
            format!("it has not ended within {} s", started.elapsed().as_secs())
        }
        Ok(Ended { status: Some(status), said, .. })
            if job.cannot.is_some() && status.code() == job.cannot =>
        {
            let why = said.lines().last().unwrap_or("it does not say why");
            return (Outcome::Hindered(format!("{}: {why}", job.name)), cpu_seconds);
        }
        Ok(Ended { status: Some(status), said, .. }) => {
            match (status.success(), (job.counted)(said)) {
                (true, Ok(counts)) => {
                    println!(
                        "  {} ({:.1} s): {}",
                        job.name,
                        started.elapsed().as_secs_f64(),
                        list(&counts)
                    );
                    return (Outcome::Counted(counts), cpu_seconds);
                }
                (true, Err(words)) => words,
                (false, _) => status.to_string(),
            }
        }
    };
    let said = ended.map(|ended| last_lines(&ended.said)).unwrap_or_default();
    let words = format!("{}: {how}\n{said}again: {}", job.name, process::show(&command));
    (Outcome::Failed(words), cpu_seconds)
}

/// Where a worker's processes write what they say: nobody else, not even another proof beside this one.
fn said(terms: &Terms<'_>, worker: usize) -> PathBuf {
    terms.place.join(format!("{}-{}-{worker}.said", std::process::id(), terms.rank))
}

/// Counts as a line has them.
pub fn list(counts: &Counts) -> String {
    let parts: Vec<String> =
        counts.iter().map(|(what, number)| format!("{number} {what}")).collect();
    parts.join(", ")
}

fn last_lines(said: &str) -> String {
    let lines: Vec<&str> = said.lines().collect();
    let first = lines.len().saturating_sub(SHOWN_LINES);
    lines[first..].iter().map(|line| format!("    {line}\n")).collect()
}

#[cfg(all(test, unix))]
mod tests {
    use super::super::counts::of_lines;
    use super::*;

    fn shell(name: &str, script: &'static str, is_repeated: bool) -> Job {
        let command = move |seed: u64, _: Duration| {
            let mut command = Command::new("sh");
            command.args(["-c", script]).env("HEDGEROW_SEED", seed.to_string());
            command
        };
        let command = Box::new(command);
        let (name, expects) = (name.into(), Counts::default());
        let (is_tested, cannot) = (false, Some(9));
        Job { name, command, counted: of_lines, expects, is_repeated, is_tested, cannot }
    }

    fn goal(of: &'static [&'static str], asked: u64) -> Goal {
        Goal { name: of[0], of, asked }
    }

    /// Runs jobs in a directory of their own, for at most so long.
    fn run_for(name: &str, jobs: &[Job], goals: &[Goal], limit: Duration) -> Done {
        run_after(&Counts::default(), name, jobs, goals, limit)
    }

    /// The same, if so much was done before.
    fn run_after(
        before: &Counts,
        name: &str,
        jobs: &[Job],
        goals: &[Goal],
        limit: Duration,
    ) -> Done {
        let place: PathBuf =
            std::env::temp_dir().join(format!("xtask-pool-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&place).unwrap();
        let deadline = Instant::now() + limit;
        let longest = Duration::from_secs(60);
        let seed_of = |round: u64| 10 + round;
        let turns = &Turns::new(2);
        let (workers, rank, seed_of, place) = (2, 0, &seed_of, &place);
        let terms = Terms { workers, turns, rank, seed_of, deadline, longest, place };
        let done = run(jobs, goals, before, &terms);
        std::fs::remove_dir_all(place).unwrap();
        done
    }

    const LONG: Duration = Duration::from_secs(120);

    #[test]
    fn what_was_done_before_is_part_of_what_is_asked_for() {
        let mut before = Counts::default();
        before.add("birds", 25);
        let jobs = [shell("birds", "echo counted: 10 birds", true)];
        let done = run_after(&before, "before", &jobs, &[goal(&["birds"], 40)], LONG);
        assert_eq!((done.runs, done.counts.sum(&["birds"])), (2, 45));
        // What was run before is run again as often as something is missing.
        let tested = |name, script| [Job { is_tested: true, ..shell(name, script, true) }];
        for (asked, runs) in [(20, 0), (25, 0), (40, 2)] {
            let jobs = tested("birds", "echo counted: 10 birds");
            let done = run_after(&before, "tested", &jobs, &[goal(&["birds"], asked)], LONG);
            assert_eq!(done.runs, runs, "{asked}");
        }
        // There is nothing that could do more.
        let done = run_after(&before, "alone", &[], &[goal(&["birds"], 40)], LONG);
        assert_eq!((done.runs, done.counts.sum(&["birds"])), (0, 25));
    }

    #[test]
    fn jobs_are_done_again_with_new_seeds_until_there_is_enough() {
        let jobs = [
            shell("birds", "echo counted: 10 birds; echo counted: $HEDGEROW_SEED seeds", true),
            shell("eggs", "echo counted: 3 eggs", true),
            shell("nests", "echo counted: 1 nests", false),
        ];
        let goals = [goal(&["birds"], 45), goal(&["eggs"], 3), goal(&["nests"], 1)];
        let done = run_for("again", &jobs, &goals, LONG);
        assert!(done.failures.is_empty() && !done.is_late, "{done:?}");
        assert!((50..=60).contains(&done.counts.sum(&["birds"])), "{done:?}");
        // Rounds 0 to 4 at least, each with a seed of its own.
        assert!(done.counts.sum(&["seeds"]) >= 10 + 11 + 12 + 13 + 14, "{done:?}");
        assert_eq!(done.counts.sum(&["nests"]), 1, "{done:?}");
    }

    #[test]
    fn nothing_is_begun_that_what_runs_makes_needless() {
        let jobs = [shell("birds", "echo counted: 10 birds; sleep 0.1", true)];
        let done = run_for("enough", &jobs, &[goal(&["birds"], 41)], LONG);
        assert_eq!((done.runs, done.counts.sum(&["birds"])), (5, 50), "{done:?}");
        // Who knows what is to come need not have ended once.
        let slow = shell("slow", "sleep 0.5; echo counted: 10 birds", true);
        let slow = Job { expects: of_lines("counted: 10 birds").unwrap(), ..slow };
        let jobs = [slow, shell("fast", "echo counted: 1 birds", true)];
        let done = run_for("expected", &jobs, &[goal(&["birds"], 11)], LONG);
        assert_eq!((done.runs, done.counts.sum(&["birds"])), (2, 11), "{done:?}");
        // Nor is what has not ended yet begun again while another is known to add.
        let unknown = shell("unknown", "sleep 2; echo counted: 1 owls", true);
        let jobs = [unknown, shell("known", "echo counted: 1 birds; sleep 0.05", true)];
        let done = run_for("unknown", &jobs, &[goal(&["birds"], 9), goal(&["owls"], 1)], LONG);
        assert_eq!((done.counts.sum(&["birds"]), done.counts.sum(&["owls"])), (9, 1), "{done:?}");
        // The first counts more than the others, of which there have to be more than was foreseen; or fewer, if it ends late.
        let fewer = r#"echo "counted: $((HEDGEROW_SEED == 10 ? 30 : 10)) birds""#;
        let done = run_for("more", &[shell("fewer", fewer, true)], &[goal(&["birds"], 70)], LONG);
        assert!((70..=90).contains(&done.counts.sum(&["birds"])), "{done:?}");
    }

    #[test]
    fn what_nobody_counts_ends_when_nobody_can_add_to_it() {
        let jobs = [shell("nests", "echo counted: 1 nests", false)];
        let done = run_for("never", &jobs, &[goal(&["nests"], 2)], LONG);
        assert!(done.failures.is_empty() && !done.is_late, "{done:?}");
        assert_eq!((done.runs, done.counts.sum(&["nests"])), (1, 1));
        let jobs = [shell("birds", "echo counted: 1 birds", true)];
        let done = run_for("others", &jobs, &[goal(&["nests"], 2)], LONG);
        assert_eq!(done.counts.sum(&["nests"]), 0, "{done:?}");
    }

    #[test]
    fn what_is_rare_is_waited_for_and_not_for_ever() {
        let goals = [goal(&["birds"], 1), goal(&["owls"], 1)];
        let rare = r#"echo counted: 1 birds; echo "counted: $((HEDGEROW_SEED > 14)) owls""#;
        let done = run_for("rare", &[shell("rare", rare, true)], &goals, LONG);
        assert!(done.failures.is_empty() && done.counts.sum(&["owls"]) > 0, "{done:?}");
        let never = "echo counted: 1 birds; echo counted: 0 owls";
        let done = run_for("vain", &[shell("vain", never, true)], &goals, LONG);
        assert!(done.failures.is_empty() && !done.is_late, "{done:?}");
        assert!((MOST_IN_VAIN..MOST_IN_VAIN + 2).contains(&done.runs), "{done:?}");
    }

    #[test]
    fn failures_are_named_with_the_command_that_does_it_again() {
        for (name, script, words) in [
            ("fails", "echo counted: 5 birds; echo wrong; exit 7", "exit status: 7"),
            ("silent", "echo nothing", "it has counted nothing"),
        ] {
            let done = run_for(name, &[shell(name, script, true)], &[goal(&["birds"], 100)], LONG);
            assert_eq!(done.counts, Counts::default(), "{name}");
            // Others may have begun before the first was known.
            assert!(!done.failures.is_empty(), "{done:?}");
            assert!(done.failures.iter().all(|failure| failure.contains(words)), "{done:?}");
            let first = "again: HEDGEROW_SEED=10 sh -c ";
            assert!(done.failures.iter().any(|failure| failure.contains(first)), "{done:?}");
        }
    }

    #[test]
    fn what_the_machine_cannot_run_is_no_failure_and_no_success() {
        let jobs = [shell("cannot", "echo no such device; exit 9", true)];
        let done = run_for("cannot", &jobs, &[goal(&["birds"], 1)], LONG);
        assert!(done.failures.is_empty() && done.counts.is_nothing(), "{done:?}");
        assert!(done.hindrances.contains(&"cannot: no such device".to_owned()), "{done:?}");
    }

    #[test]
    fn what_goes_on_when_the_time_is_up_is_killed_and_counts_nothing() {
        let jobs = [shell("slow", "echo counted: 5 birds; exec sleep 60", true)];
        let done = run_for("late", &jobs, &[goal(&["birds"], 1)], Duration::from_millis(300));
        assert!(done.is_late && done.failures.is_empty(), "{done:?}");
        assert!(done.counts.is_nothing());
    }
}
