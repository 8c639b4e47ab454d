//! The tool as processes of their own: a writer, and what checks what it has left.
//!
//! What a writer has acknowledged counts from the moment that this process has read it: whoever looks before a power cut
//! knows what must be there after it. Invariant: no process outlives its value. Thread-safety: one reader a stream, and a
//! lock round what a writer has said.

use crate::failure::Failure;
use crate::system::{self, LIMIT, listen};
use serde_json::Value as Json;
use std::io::{BufRead, BufReader};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Threads of a writer, as the tool has them; it refuses another number.
const THREADS: usize = 3;
const SIGKILL: i32 = 9;
/// How long a writer may open and recover.
const LONGEST_OPENING: Duration = Duration::from_secs(60);
/// As the tool ends where the system says no.
const EXIT_REFUSED: i32 = 1;

/// A number of changes for each thread.
pub type Clock = [u64; THREADS];

/// What was read from a writer so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Heard {
    /// Whether it has opened the store.
    pub is_open: bool,
    /// The last change of each thread that was acknowledged as durable.
    pub last: Clock,
    /// Changes that were acknowledged.
    pub acknowledged: u64,
}

impl Heard {
    fn hear(&mut self, line: &str) {
        self.is_open = true;
        let mut words = line.split(' ').map(str::parse::<u64>);
        if let (Some(Ok(thread)), Some(Ok(number))) = (words.next(), words.next())
            && let Some(last) = usize::try_from(thread).ok().and_then(|at| self.last.get_mut(at))
        {
            *last = number;
            self.acknowledged += 1;
        }
    }
}

/// The tool, and what every call of it says.
pub struct Tool {
    /// The program.
    pub file: PathBuf,
}

/// What is written where, and how much of it was there.
pub struct Script<'a> {
    pub store: &'a Path,
    pub seed: u64,
    pub there: Clock,
}

fn commas(clock: &Clock) -> String {
    clock.map(|number| number.to_string()).join(",")
}

impl Tool {
    fn check_command(&self, script: &Script<'_>, acknowledged: &Clock) -> Command {
        let mut command = Command::new(&self.file);
        command.args(["torture", "check"]).arg(script.store).arg(script.seed.to_string());
        command.args(["--there", &commas(&script.there)]);
        command.args(["--acknowledged", &commas(acknowledged)]);
        command
    }

    /// Starts a writer; whether it is told that the disk fails.
    pub fn write(&self, script: &Script<'_>, disk_fails: bool) -> Result<Process, Failure> {
        let mut command = Command::new(&self.file);
        command.args(["torture", "writer"]);
        if disk_fails {
            command.arg("--disk-fails");
        }
        command.arg(script.store).arg(script.seed.to_string());
        command.args(script.there.map(|number| number.to_string()));
        Process::start(&mut command)
    }

    /// Starts a check that is not to come to its end.
    pub fn open(&self, script: &Script<'_>) -> Result<Process, Failure> {
        Process::start(&mut self.check_command(script, &Clock::default()))
    }

    /// Checks what is left; the changes of each thread that are there.
    pub fn check(&self, script: &Script<'_>, acknowledged: &Clock) -> Result<Clock, Failure> {
        let ended = system::run_command(&mut self.check_command(script, acknowledged))
            .map_err(Failure::Found)?;
        if !ended.status.success() {
            let said = ended.errors.trim();
            return Err(Failure::Found(format!("the check: {}: {said}", ended.status)));
        }
        there(&ended.out)
            .ok_or_else(|| Failure::Found(format!("the check has said {:?}", ended.out)))
    }
}

/// The clock in the line of a check.
fn there(line: &str) -> Option<Clock> {
    let line: Json = serde_json::from_str(line).ok()?;
    let numbers: Option<Vec<u64>> = line["there"].as_array()?.iter().map(Json::as_u64).collect();
    numbers?.try_into().ok()
}

/// A process that is to be killed; dropped, it is.
pub struct Process {
    child: Child,
    heard: Arc<Mutex<Heard>>,
    reader: Option<JoinHandle<()>>,
    errors: Option<JoinHandle<String>>,
}

impl Process {
    fn start(command: &mut Command) -> Result<Process, Failure> {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|error| Failure::Cannot(format!("cannot start the tool: {error}")))?;
        let heard = Arc::new(Mutex::new(Heard::default()));
        let reader = child.stdout.take().map(|out| {
            let heard = Arc::clone(&heard);
            std::thread::spawn(move || {
                for line in BufReader::new(out).lines().map_while(Result::ok) {
                    heard.lock().unwrap_or_else(PoisonError::into_inner).hear(&line);
                }
            })
        });
        let errors = child.stderr.take().map(listen);
        Ok(Process { child, heard, reader, errors })
    }

    /// What was read from it up to here.
    pub fn heard(&self) -> Heard {
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until it has opened the store, or has ended.
    pub fn wait_for_opening(&mut self) -> Result<(), Failure> {
        let started = Instant::now();
        while !self.heard().is_open && !matches!(self.child.try_wait(), Ok(Some(_))) {
            if started.elapsed() > LONGEST_OPENING {
                let what = "the writer has not opened the store within a minute";
                return Err(Failure::Found(what.into()));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Kills it, unless it has ended by itself; how it ended, and its words.
    pub fn kill(mut self) -> Result<(ExitStatus, String), Failure> {
        let cannot = |error| Failure::Cannot(format!("cannot kill the tool: {error}"));
        self.child.kill().map_err(cannot)?;
        let started = Instant::now();
        let status = loop {
            match self.child.try_wait().map_err(cannot)? {
                Some(status) => break status,
                None if started.elapsed() > LIMIT => {
                    let seconds = LIMIT.as_secs();
                    let words =
                        format!("the tool was killed, and has not ended within {seconds} s");
                    return Err(Failure::Broken(words));
                }
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        };
        if let Some(reader) = self.reader.take() {
            // It has no more to say, and a panic of the reader loses acknowledgements only.
            let _ = reader.join();
        }
        let said = self.errors.take().and_then(|errors| errors.join().ok()).unwrap_or_default();
        Ok((status, said.trim().to_owned()))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may be gone already; and there is nobody to tell.
        let _ = self.child.kill();
        // Not for ever: it may be stuck in the kernel, whose file system goes only afterwards.
        let started = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && started.elapsed() < LIMIT {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Fails unless a writer was killed, or ended as it has to on a disk that fails.
pub fn judge((status, said): &(ExitStatus, String), disk_fails: bool) -> Result<(), Failure> {
    // Whatever the exit code says: a panic may be a thread's that the others have outlived.
    let is_sane = !said.contains("panicked at");
    let is_killed = status.signal() == Some(SIGKILL);
    let is_refused = disk_fails && status.code() == Some(EXIT_REFUSED);
    if is_sane && (is_killed || is_refused) {
        return Ok(());
    }
    Err(Failure::Found(format!("the writer has ended by itself: {status}: {said}")))
}

/// Fails unless who opened what is left was killed, or has found all of it.
pub fn judge_opening((status, said): &(ExitStatus, String)) -> Result<(), Failure> {
    let has_ended_well = status.success() || status.signal() == Some(SIGKILL);
    if has_ended_well && !said.contains("panicked at") {
        return Ok(());
    }
    Err(Failure::Found(format!("an opening has ended by itself: {status}: {said}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_of_threads_are_acknowledgements() {
        let mut heard = Heard::default();
        for line in ["open", "1 70", "2 5", "1 90", "3 1", "x 1", "2"] {
            heard.hear(line);
        }
        assert_eq!(heard, Heard { is_open: true, last: [0, 90, 5], acknowledged: 3 });
    }

    #[test]
    fn the_line_of_a_check_has_a_number_for_each_thread() {
        assert_eq!(there(r#"{"there":[1,2,3],"found":7}"#), Some([1, 2, 3]));
        assert_eq!(there(r#"{"there":[1,2]}"#), None);
        assert_eq!(there("all is there"), None);
    }

    #[test]
    fn a_writer_may_end_by_itself_only_where_the_disk_fails() {
        let ended = |raw, said: &str| (ExitStatus::from_raw(raw), said.to_owned());
        assert!(judge(&ended(SIGKILL, ""), false).is_ok());
        assert!(judge(&ended(EXIT_REFUSED << 8, "no"), true).is_ok());
        assert!(judge(&ended(EXIT_REFUSED << 8, "no"), false).is_err());
        assert!(judge(&ended(7 << 8, "found"), true).is_err());
        assert!(judge(&ended(0, ""), true).is_err());
        assert!(judge(&ended(11, ""), true).is_err());
        assert!(judge(&ended(SIGKILL, "thread 'x' panicked at y"), false).is_err());
        assert!(judge_opening(&ended(SIGKILL, "")).is_ok());
        assert!(judge_opening(&ended(0, "")).is_ok());
        assert!(judge_opening(&ended(EXIT_REFUSED << 8, "no")).is_err());
        assert!(judge_opening(&ended(11, "")).is_err());
        assert!(judge_opening(&ended(0, "thread 'x' panicked at y")).is_err());
    }
}
