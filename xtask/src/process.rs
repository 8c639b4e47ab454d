//! Processes that are waited for, but not for ever, and what they cost.
//!
//! What a process says goes into a file, so that no pipe fills up while nobody reads. Several may run at a time, each with a
//! file of its own; processor time is that of all that have ended. A process that is killed takes none of its children with
//! it: what is started here either has none, or they end by themselves.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How a process ended.
pub struct Ended {
    /// `None`: it took too long, and was killed.
    pub status: Option<ExitStatus>,
    /// What it has said on standard output and standard error, in the order of time.
    pub said: String,
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
    let status = loop {
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
    Ok(Ended { status, said: String::from_utf8_lossy(&said).into_owned() })
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

/// Processor time of all processes that this one has started and waited for; zero where the system does not tell.
pub fn children_seconds() -> f64 {
    /// Of the clock that the system counts with; the same on all of Linux that can run this.
    const TICKS_PER_SECOND: f64 = 100.0;
    let Ok(stat) = fs::read_to_string("/proc/self/stat") else { return 0.0 };
    // Behind the name, which may have spaces: `cutime` and `cstime` are fields 16 and 17, counted from 1.
    let Some((_, rest)) = stat.rsplit_once(')') else { return 0.0 };
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ticks =
        |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(13) + ticks(14)) / TICKS_PER_SECOND
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
