//! Child processes with a time limit: killed together with all that they started.
//!
//! A child leads a process group of its own. When its time is over, when it has ended and left
//! something running, or when the user interrupts this program ([`interrupt_flag`]), the group is killed.
//! Any thread may run children.

use crate::cell::CellError;
use rustix::process::{Pid, Signal, kill_process_group};
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often a running child is looked at.
const POLL: Duration = Duration::from_millis(20);

/// Most of a child's output that is kept, in bytes: more is read and thrown away.
const MOST_OUTPUT_BYTES: usize = 64 << 20;

/// Set once the user has interrupted this program.
static IS_INTERRUPTED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// What a child left behind.
#[derive(Clone, Debug)]
pub struct Output {
    /// How it ended.
    pub status: ExitStatus,
    /// What it wrote to standard output, invalid UTF-8 replaced.
    pub stdout: String,
    /// What it wrote to standard error.
    pub stderr: String,
    /// From its start to its end.
    pub seconds: f64,
}

impl Output {
    /// Standard output if the child succeeded. Errors: `Failed` with the end of what it said.
    pub fn success(self) -> Result<String, CellError> {
        if self.status.success() {
            return Ok(self.stdout);
        }
        Err(CellError::Failed(format!("{}: {}", ending(self.status), last_words(&self.stderr))))
    }
}

/// Runs `command` to its end, at most `seconds_limit` seconds, without standard input.
///
/// Errors: `NotInstalled` if there is no such program; `TimedOut` after it was killed; `Failed` if
/// it cannot be started or watched. A child that ends with an error is an [`Output`].
pub fn run(command: &mut Command, seconds_limit: u64) -> Result<Output, CellError> {
    let name = command.get_program().to_string_lossy().into_owned();
    let started = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => CellError::NotInstalled(format!("there is no {name}")),
            _ => CellError::Failed(format!("cannot start {name}: {error}")),
        })?;
    let stdout = child.stdout.take().map(collect);
    let stderr = child.stderr.take().map(collect);
    let waited = wait(&mut child, started, Duration::from_secs(seconds_limit));
    // What it may have left running holds the pipes open.
    kill_group(&child);
    let status = match waited {
        Ok(Waited::Ended(status)) => status,
        Ok(Waited::TimeOver | Waited::Interrupted) => {
            child.wait().map_err(CellError::failed)?;
            return Err(if is_interrupted() {
                CellError::failed("interrupted")
            } else {
                CellError::TimedOut(seconds_limit)
            });
        }
        Err(error) => return Err(CellError::Failed(format!("cannot watch {name}: {error}"))),
    };
    let seconds = started.elapsed().as_secs_f64();
    Ok(Output { status, stdout: text(stdout)?, stderr: text(stderr)?, seconds })
}

/// The flag that, once it is set, ends the children that run and lets no other start: for the handler of an interrupt.
pub fn interrupt_flag() -> &'static Arc<AtomicBool> {
    &IS_INTERRUPTED
}

/// Whether [`interrupt_flag`] is set.
pub fn is_interrupted() -> bool {
    IS_INTERRUPTED.load(Ordering::SeqCst)
}

/// How a process ended, in words.
pub fn ending(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("ended by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

/// The last lines of what a program said.
pub fn last_words(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    if lines.is_empty() {
        return "it said nothing".to_owned();
    }
    lines[lines.len().saturating_sub(3)..].join("; ")
}

/// How waiting for a child ended.
enum Waited {
    Ended(ExitStatus),
    TimeOver,
    Interrupted,
}

fn wait(child: &mut Child, started: Instant, limit: Duration) -> std::io::Result<Waited> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Waited::Ended(status));
        }
        if is_interrupted() {
            return Ok(Waited::Interrupted);
        }
        if started.elapsed() >= limit {
            return Ok(Waited::TimeOver);
        }
        std::thread::sleep(POLL);
    }
}

/// Kills all processes of the group that `child` leads.
fn kill_group(child: &Child) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // Fails only if nothing of the group is left.
        kill_process_group(group, Signal::KILL).ok();
    }
}

/// Reads a pipe to its end in a thread of its own, so that the child never waits for a reader.
fn collect(mut pipe: impl Read + Send + 'static) -> JoinHandle<std::io::Result<Vec<u8>>> {
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        let mut buffer = vec![0; 64 << 10];
        loop {
            let read = pipe.read(&mut buffer)?;
            if read == 0 {
                return Ok(kept);
            }
            let room = MOST_OUTPUT_BYTES.saturating_sub(kept.len());
            kept.extend_from_slice(&buffer[..read.min(room)]);
        }
    })
}

fn text(reader: Option<JoinHandle<std::io::Result<Vec<u8>>>>) -> Result<String, CellError> {
    let Some(reader) = reader else { return Ok(String::new()) };
    let bytes = reader
        .join()
        .map_err(|_| CellError::failed("a reader of output panicked"))?
        .map_err(|error| CellError::Failed(format!("cannot read a program's output: {error}")))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
