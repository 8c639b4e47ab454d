//! A process without a log that loads values of all sizes and checkpoints, killed at random moments: what it had
//! acknowledged is there, and the store is sound. The child is this very test binary, told by an environment variable.
#![allow(clippy::disallowed_methods, reason = "a test that starts processes")]
#![cfg(unix)]

use crate::common::lengths::log_normal;
use crate::common::{Dice, assert_sound, key, seed};
use hedgerow::{Database, Options};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

const CHILD: &str = "HEDGEROW_CRASH_CHILD";
/// Records of one round. Every round rewrites all of them, and says in each which round it is.
const RECORDS: u64 = 600;

fn options() -> Options {
    Options::new().memory_limit_bytes(2 << 20).checkpoint_bytes(1 << 30).log(false)
}

/// Every fourth value is of any size, and of another one in each round.
fn value(n: u64, round: u64) -> Vec<u8> {
    let mut value = round.to_le_bytes().to_vec();
    value.extend_from_slice(&key(n));
    let len = match n % 4 {
        0 => log_normal(&mut Dice(n << 32 ^ round), 1_200.0, 100_000).max(value.len()),
        _ => 200,
    };
    value.resize(len, round as u8);
    value
}

/// The round of a store's contents, which must be all of one round.
fn round_of(db: &Database) -> u64 {
    let keyspace = db.keyspace("rounds").unwrap();
    let mut round = None;
    let mut count = 0;
    for (n, record) in keyspace.iter().enumerate() {
        let (found_key, found) = record.unwrap();
        let this = u64::from_le_bytes(found[..8].try_into().unwrap());
        assert_eq!(&*found_key, key(n as u64));
        assert_eq!(&*found, value(n as u64, this));
        assert_eq!(*round.get_or_insert(this), this, "two checkpoints are mixed");
        count += 1;
    }
    assert!(count == 0 || count == RECORDS, "{count} records");
    round.unwrap_or(0)
}

/// What the child does, until it is killed.
fn load_for_ever(path: &str) {
    let db = options().open_or_create(path).unwrap();
    let keyspace = db.keyspace("rounds").unwrap();
    let scratch = db.keyspace("scratch").unwrap();
    for round in round_of(&db) + 1.. {
        for n in 0..RECORDS {
            keyspace.put(&key(n), &value(n, round)).unwrap();
            if round % 2 == 0 {
                scratch.remove(&key(n)).unwrap();
            } else {
                scratch.put(&key(n), &value(n, round)).unwrap();
            }
        }
        db.checkpoint().unwrap();
        let mut out = std::io::stdout().lock();
        writeln!(out, "acknowledged {round}").unwrap();
        out.flush().unwrap();
    }
}

#[test]
fn a_killed_process_loses_nothing_that_it_had_acknowledged() {
    if let Ok(path) = std::env::var(CHILD) {
        return load_for_ever(&path);
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("killed.hrow");
    options().create(&path).unwrap().close().unwrap();
    let mut dice = Dice(seed(21));
    let mut last = 0;
    for cycle in 0..20 * crate::common::effort() {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "crash_kill::a_killed_process_loses_nothing_that_it_had_acknowledged",
                "--exact",
                "--nocapture",
            ])
            .env(CHILD, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = child.stdout.take().unwrap();
        let reader = std::thread::spawn(move || {
            let mut acknowledged = None;
            for line in BufReader::new(out).lines() {
                // The test harness prints its own words first, without an end of line.
                let line = line.unwrap();
                if let Some(at) = line.find("acknowledged ") {
                    acknowledged = line[at + "acknowledged ".len()..].parse::<u64>().ok();
                }
            }
            acknowledged
        });
        // On a machine that is busy a child may need long to come to its first checkpoint.
        let more = if last == 0 { 20 * cycle } else { 0 };
        std::thread::sleep(Duration::from_millis(5 + more + dice.below(60)));
        child.kill().unwrap();
        child.wait().unwrap();
        let acknowledged = reader.join().unwrap().unwrap_or(last);
        let db = options().open(&path).unwrap();
        let found = round_of(&db);
        assert!(found >= acknowledged.max(last), "cycle {cycle}: {found} of {acknowledged}");
        assert!(found <= acknowledged + 1, "cycle {cycle}: a round that was never finished");
        assert_sound(&db, &format!("cycle {cycle}"));
        last = found;
    }
    println!("{last} rounds in all");
    assert!(last > 0, "the child never came to a checkpoint");
}
