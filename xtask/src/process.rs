//! Processes that are waited for, but not for ever, and what they cost.
//!
//! What a process says goes into a file, so that no pipe fills up while nobody reads. Several may run at a time, each with a
//! file of its own. A process that is killed takes none of its children with it: what is started here either has none, or
//! they end by themselves, or it is told to end before.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How a process ended.
pub struct Ended {
    /// `None`: it took too long, and was killed.
    pub status: Option<ExitStatus>,
    /// What it has said on standard output and standard error, in the order of time.
    pub said: String,
    /// Its processor time, and that of its children that it waited for; zero where the system does not tell.
    pub cpu_seconds: f64,
}

/// Runs a process until it ends, or until it has taken too long. What it says is in the file `log`.
///
/// Errors: in words, if it could not be run at all.
pub fn run(command: &mut Command, log: &Path, limit: Duration) -> Result<Ended, String> {
    let file = fs::File::create(log)
        .map_err(|error| format!("cannot write {}: {error}", log.display()))?;
    let errors = file.try_clone().map_err(|error| error.to_string())?;
    let started = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(file)
        .stderr(errors)
        .spawn()
        .map_err(|error| format!("cannot start {}: {error}", program_of(command)))?;
    let mut cpu_seconds = 0.0;
    let status = loop {
        // Before it is waited for: what has ended is there until then, with its last figures.
        if let Some(times) = times_of(&child.id().to_string()) {
            cpu_seconds = times.iter().sum();
        }
        match child.try_wait().map_err(|error| error.to_string())? {
            Some(status) => break Some(status),
            None if started.elapsed() > limit => {
                child.kill().and_then(|()| child.wait()).map_err(|error| error.to_string())?;
                break None;
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    let said = fs::read(log).map_err(|error| format!("cannot read {}: {error}", log.display()))?;
    Ok(Ended { status, said: String::from_utf8_lossy(&said).into_owned(), cpu_seconds })
}

fn program_of(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}

/// A command as a shell would take it, with the environment that it is given, so that a person can do it again.
pub fn show(command: &Command) -> String {
    let mut words = Vec::new();
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            words.push(format!("{}={}", name.to_string_lossy(), quote(&value.to_string_lossy())));
        }
    }
    words.push(quote(&program_of(command)));
    words.extend(command.get_args().map(|word| quote(&word.to_string_lossy())));
    words.join(" ")
}

fn quote(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// How many processes at a time keep all processors busy: half as many again, since each waits for its disk and its threads
/// now and then (a fifth to a third of the time, of the suites of a proof).
pub fn workers() -> usize {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    processors + processors.div_ceil(2)
}

/// Does something with each of these, on [`workers`] threads, as [`each_on`] does.
///
/// Errors: the first of theirs.
pub fn each_in_parallel<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(&T, usize) -> Result<R, String> + Sync,
) -> Result<Vec<R>, String> {
    each_on(workers(), items, work)
}

/// Does something with each of these, on so many threads, each of which has a number from 0. What came of them is in their
/// order; after an error nothing is begun.
///
/// Errors: the first of theirs.
pub fn each_on<T: Sync, R: Send>(
    threads: usize,
    items: &[T],
    work: impl Fn(&T, usize) -> Result<R, String> + Sync,
) -> Result<Vec<R>, String> {
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(items.iter().map(|_| None).collect::<Vec<_>>());
    std::thread::scope(|scope| {
        for worker in 0..threads {
            let (next, outcomes, work) = (&next, &outcomes, &work);
            scope.spawn(move || {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(at) else { break };
                    let outcome = work(item, worker);
                    if outcome.is_err() {
                        next.store(items.len(), Ordering::Relaxed);
                    }
                    outcomes.lock().unwrap_or_else(PoisonError::into_inner)[at] = Some(outcome);
                }
            });
        }
    });
    // Without an error each has one.
    outcomes.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().flatten().collect()
}

/// Processor time of all processes that this one has started and waited for; zero where the system does not tell.
pub fn children_seconds() -> f64 {
    times_of("self").map_or(0.0, |[_, _, user, system]| user + system)
}

/// Seconds that a process has taken: itself in its own code and in the system's, and its children.
fn times_of(process: &str) -> Option<[f64; 4]> {
    /// Of the clock that the system counts with; the same on all of Linux that can run this.
    const TICKS_PER_SECOND: f64 = 100.0;
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // Behind the name, which may have spaces: `utime`, `stime`, `cutime`, `cstime` are fields 14 to 17, counted from 1.
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let seconds = |at: usize| Some(fields.get(at)?.parse::<f64>().ok()? / TICKS_PER_SECOND);
    Some([seconds(11)?, seconds(12)?, seconds(13)?, seconds(14)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_of_children_is_counted() {
        if fs::exists("/proc/self/stat").unwrap_or(false) {
            assert!(children_seconds() >= 0.0);
        }
    }

    #[test]
    fn all_are_done_in_their_order_or_the_first_error_is_told() {
        let numbers: Vec<u32> = (0..100).collect();
        let doubled = each_in_parallel(&numbers, |number, _| Ok(number * 2)).unwrap();
        assert_eq!(doubled, (0..100).map(|number| number * 2).collect::<Vec<_>>());
        let failed = each_in_parallel(&numbers, |number, _| match number {
            3 => Err("three".to_owned()),
            _ => Ok(()),
        });
        assert_eq!(failed, Err("three".to_owned()));
        assert_eq!(each_in_parallel(&[] as &[u8], |_, _| Ok(())), Ok(Vec::new()));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn processor_time_is_that_of_the_process_and_its_children() {
        let log = std::env::temp_dir().join(format!("xtask-cpu-{}", std::process::id()));
        let spin = "i=0; while [ $i -lt 1000000 ]; do i=$((i+1)); done";
        let seconds_of = |script: &str| {
            let limit = Duration::from_secs(120);
            run(Command::new("sh").args(["-c", script]), &log, limit).unwrap().cpu_seconds
        };
        let asleep = seconds_of("sleep 0.1");
        for busy in [spin.to_owned(), format!("sh -c '{spin}'; true")] {
            assert!(seconds_of(&busy) > asleep, "{busy}");
        }
        fs::remove_file(&log).unwrap();
    }

    #[test]
    fn a_command_is_shown_as_a_shell_takes_it() {
        let mut command = Command::new("/a/program");
        command.env("SEED", "7").env_remove("PART").args(["--exact", "a::test", "it's two"]);
        assert_eq!(show(&command), r"SEED=7 /a/program --exact a::test 'it'\''s two'");
    }

    #[cfg(unix)]
    #[test]
    fn what_takes_too_long_is_killed_and_what_it_said_is_kept() {
        let log = std::env::temp_dir().join(format!("xtask-process-{}", std::process::id()));
        let shell = |script: &str, limit: u64| {
            let limit = Duration::from_millis(limit);
            run(Command::new("sh").args(["-c", script]), &log, limit).unwrap()
        };
        let ended = shell("echo here; echo there >&2; exit 3", 60_000);
        assert_eq!(ended.status.and_then(|status| status.code()), Some(3));
        assert_eq!(ended.said, "here\nthere\n");
        let hung = shell("echo begun; exec sleep 60", 300);
        assert!(hung.status.is_none());
        assert_eq!(hung.said, "begun\n");
        fs::remove_file(&log).unwrap();
        let none = run(&mut Command::new("/no/such/program"), &log, Duration::ZERO);
        assert!(none.is_err_and(|words| words.contains("/no/such/program")));
        fs::remove_file(&log).unwrap();
    }
}
