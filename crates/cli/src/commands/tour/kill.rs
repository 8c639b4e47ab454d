//! A process that writes until it is killed, and what it leaves: the tour's proof that nothing is lost that was
//! acknowledged.
//!
//! The tour starts itself once more, as a process that puts records, waits for every 64th to be durable, and says so
//! on its standard output. When it has said so often enough it is killed, in the middle of whatever it is doing. What
//! the next opening finds must be all that was acknowledged, and of the rest a first part.
//!
//! Invariant: the process does not outlive the call that started it, whatever that call ends with. One thread on each
//! side.

use crate::args::{Common, LeafArgs};
use crate::failure::Failure;
use crate::interrupt;
use crate::store;
use hedgerow::{Database, Durability};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Where that process writes: a keyspace of its own, which the tour drops when it has looked at it.
const KEYSPACE: &str = "tour/killed";
/// One record in so many is waited for.
const SYNC_EVERY: u64 = 64;
/// How long the process may write.
const LONGEST: Duration = Duration::from_secs(3);

fn key(n: u64) -> String {
    format!("hedge/{:016x}/{n}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn value(n: u64) -> Vec<u8> {
    let mut value = n.to_le_bytes().to_vec();
    value.resize(40 + (n % 60) as usize, n as u8);
    value
}

/// The process that is killed: puts records for ever, and prints the number of each that is durable.
pub fn write_until_killed(common: &Common, leaves: LeafArgs, path: &Path) -> Result<(), Failure> {
    let db = store::open(common, leaves, path)?;
    let buffered = db.keyspace(KEYSPACE).map_err(store::failed("write to", path))?;
    let synced = buffered.clone().with_durability(Durability::Sync);
    for n in 0.. {
        let is_synced = n % SYNC_EVERY == SYNC_EVERY - 1;
        let keyspace = if is_synced { &synced } else { &buffered };
        keyspace.put(key(n).as_bytes(), &value(n)).map_err(store::failed("write to", path))?;
        if is_synced {
            if interrupt::requested() {
                // Ctrl-C is for the tour as well, which says so.
                return Ok(());
            }
            let mut out = std::io::stdout().lock();
            let said = writeln!(out, "{n}").and_then(|()| out.flush());
            said.map_err(|error| {
                Failure::Other(format!("cannot write to the parent process: {error}"))
            })?;
        }
    }
    Ok(())
}

/// Kills the process when this is dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It may be gone already; and there is nobody to tell.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the process, kills it when about `records` records are durable, and tells how many were acknowledged.
pub fn kill(common: &Common, path: &Path, records: u64) -> Result<u64, Failure> {
    let failed =
        |error: std::io::Error| Failure::Other(format!("cannot start a second process: {error}"));
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    command.arg("tour").arg("--write-until-killed").arg(path);
    if let Some(bytes) = common.memory_limit {
        command.arg("--memory-limit").arg(bytes.to_string());
    }
    let mut child = Killed(command.stdout(Stdio::piped()).spawn().map_err(failed)?);
    let lines = BufReader::new(child.0.stdout.take().expect("it was asked for")).lines();
    let (begun, mut acknowledged, mut is_killed) = (Instant::now(), 0, false);
    for line in lines {
        // What the pipe still holds when the process is dead counts, too.
        let line = line.map_err(|error| Failure::Other(format!("cannot read: {error}")))?;
        let Ok(number) = line.parse::<u64>() else { break };
        acknowledged = number + 1;
        if !is_killed && (acknowledged >= records || begun.elapsed() > LONGEST) {
            // Not where it has just said so, but somewhere behind.
            std::thread::sleep(Duration::from_millis(3));
            child
                .0
                .kill()
                .map_err(|e| Failure::Other(format!("cannot kill the second process: {e}")))?;
            is_killed = true;
        }
        interrupt::check()?;
    }
    if !is_killed {
        interrupt::check()?;
        return Err(Failure::Other("the process ended before it was killed".into()));
    }
    Ok(acknowledged)
}

/// Checks what the process has left, and drops it; tells how many records there are.
pub fn check(db: &Database, path: &Path, acknowledged: u64) -> Result<u64, Failure> {
    let lost = |what: String| Failure::Other(format!("lost by the kill: {what}"));
    let keyspace = db.open_keyspace(KEYSPACE).map_err(store::failed("read", path))?;
    let keyspace = keyspace.ok_or_else(|| lost("the keyspace".into()))?;
    let count = keyspace.count().map_err(store::failed("read", path))?;
    if count < acknowledged {
        return Err(lost(format!("{acknowledged} records were durable, {count} were found")));
    }
    for n in 0..count {
        let found = keyspace.get(key(n).as_bytes()).map_err(store::failed("read", path))?;
        if found.as_deref() != Some(&value(n)) {
            return Err(lost(format!("record {n} of the {count} found")));
        }
    }
    db.drop_keyspace(KEYSPACE).map_err(store::failed("write to", path))?;
    Ok(count)
}
