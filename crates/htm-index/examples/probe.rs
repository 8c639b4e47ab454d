//! What transactional memory this machine has, and which backend programs get: CPUID, trial regions, and a small tree that threads
//! change on the backend that `HTM` names.
//!
//! `HTM=off|lock|norec|rtm|rtm-forced|sim cargo run -p hedgerow-htm-index --example probe -- [--policy NAME] [--threads N]`
//!
//! Exit code 0 if the tree has the right checksum, 1 if not, 2 for arguments or a backend that there is not. Under valgrind each region
//! aborts: then `HTM=rtm-forced` goes through decoding of the status, retries, the wait for the lock, the lock, and disabled
//! elision.

use hedgerow_htm_index::bplus::BPlusTree;
use hedgerow_htm_index::htm::{
    Adaptive, Counts, Htm, RetryPolicy, WithHtm, choose, word_of_environment,
};
use hedgerow_sync::primitive::{Arc, thread};
use std::process::ExitCode;

/// Keys of a thread.
const KEYS: u64 = 300;
const USAGE: &str =
    "usage: [HTM=off|lock|norec|rtm|rtm-forced|sim] probe [--policy NAME] [--threads N]";

/// Threads that change a tree.
struct Changes {
    threads: u64,
}

/// What is said of a run.
struct Said {
    backend: &'static str,
    counts: Counts,
    checksum: u64,
}

/// Numbers that a sum of records cannot hide the loss of.
fn mixed(key: u64, value: u64) -> u64 {
    (key ^ value.rotate_left(17)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn value_of(key: u64) -> u64 {
    key * 3 + 1
}

impl WithHtm for Changes {
    type Out = Result<Said, String>;

    fn with<H: Htm + 'static>(self, backend: &'static str, htm: H) -> Result<Said, String> {
        let records = (self.threads * KEYS) as u32;
        let tree = Arc::new(BPlusTree::new(htm, records).map_err(|error| error.to_string())?);
        let start = |own: u64| {
            let (tree, threads) = (Arc::clone(&tree), self.threads);
            let changes = move || {
                for n in 0..KEYS {
                    let key = n * threads + own;
                    tree.insert(key, 0).map_err(|error| error.to_string())?;
                    tree.upsert(key, value_of(key)).map_err(|error| error.to_string())?;
                    if key.is_multiple_of(3) {
                        tree.remove(key);
                    }
                    tree.get(key);
                }
                Ok::<(), String>(())
            };
            thread::spawn_named("changer", changes).map_err(|error| error.to_string())
        };
        let threads: Vec<_> = (0..self.threads).map(start).collect::<Result<_, _>>()?;
        for thread in threads {
            thread.join().map_err(|_| "a thread has panicked".to_owned())??;
        }
        let counts = tree.htm().counters().sum();
        let records = tree.check()?;
        let checksum = records.iter().fold(0, |sum: u64, &(k, v)| sum.wrapping_add(mixed(k, v)));
        Ok(Said { backend, counts, checksum })
    }
}

struct Arguments {
    policy: RetryPolicy,
    threads: u64,
}

fn arguments() -> Result<Arguments, String> {
    let adaptive = Some(Adaptive { failures: 10, skips: 20 });
    let mut parsed =
        Arguments { policy: RetryPolicy { adaptive, ..RetryPolicy::HPCA_R }, threads: 4 };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("`{word}` wants a value"))?;
        match word.as_str() {
            "--policy" => {
                let names = RetryPolicy::PRESETS.map(|(name, _)| name).join(", ");
                parsed.policy = RetryPolicy::preset(&value)
                    .ok_or_else(|| format!("`{value}` is no policy; there are {names}"))?;
            }
            "--threads" => {
                let threads = value.parse().ok().filter(|threads| (1..=128).contains(threads));
                parsed.threads =
                    threads.ok_or_else(|| format!("threads are 1 to 128, not `{value}`"))?;
            }
            _ => return Err(format!("`{word}` is no argument of this program")),
        }
    }
    Ok(parsed)
}

#[cfg(all(target_arch = "x86_64", not(hedgerow_sim)))]
fn say_what_there_is() {
    println!("{}", hedgerow_htm_index::htm::probe());
}

#[cfg(not(all(target_arch = "x86_64", not(hedgerow_sim))))]
fn say_what_there_is() {
    println!("this build has no code for a processor's transactional memory");
}

fn main() -> ExitCode {
    let Arguments { policy, threads } = match arguments() {
        Ok(arguments) => arguments,
        Err(error) => {
            eprintln!("error: {error}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    say_what_there_is();
    let word = word_of_environment();
    let said = match choose(word.as_deref(), policy, Changes { threads }) {
        Err(error) => {
            eprintln!("error: HTM: {error}");
            return ExitCode::from(2);
        }
        Ok(Err(error)) => {
            eprintln!("error: {error}");
            return ExitCode::FAILURE;
        }
        Ok(Ok(said)) => said,
    };
    let Said { backend, counts, checksum } = said;
    println!("backend {backend}, {threads} threads: {counts:?}");
    let kept = (0..threads * KEYS).filter(|key| !key.is_multiple_of(3));
    let expected = kept.fold(0, |sum: u64, key| sum.wrapping_add(mixed(key, value_of(key))));
    if checksum == expected {
        println!("checksum {checksum:016x} is right");
        ExitCode::SUCCESS
    } else {
        eprintln!("error: checksum {checksum:016x}, which should be {expected:016x}");
        ExitCode::FAILURE
    }
}
