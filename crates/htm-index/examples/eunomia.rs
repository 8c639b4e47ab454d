//! Figures of the Eunomia tree that need no simulation: bytes, instructions, false positives of marks.
//!
//! ```text
//! cargo run --release -p hedgerow-htm-index --example eunomia -- space [KEYS [THETA]]
//! cargo run --release -p hedgerow-htm-index --example eunomia -- marks
//! valgrind --tool=callgrind target/release/examples/eunomia instructions TREE OPERATIONS
//! ```
//!
//! TREE is a name of the steps (`monolithic` to `complete`), `masstree` or `coupling`. Instructions of an operation are the difference of two
//! runs with different OPERATIONS, so that loading does not count. One thread, over the lock; `space` has two threads in
//! software regions. Exit code 2 for wrong arguments.
#![allow(clippy::disallowed_methods, reason = "a program of its own, with real threads")]

use hedgerow_htm_index::eunomia::ccm::mark_of;
use hedgerow_htm_index::eunomia::{Eunomia, Steps};
use hedgerow_htm_index::htm::{Lock, NOrec, RetryPolicy};
use hedgerow_htm_index::optimistic::{LockCoupling, MasstreeStandIn};
use hedgerow_htm_index::workload::{Order, Shape, Step, Stream, Ycsb};
use hedgerow_sync::primitive::random::SplitMix64;
use std::process::ExitCode;

const USAGE: &str = "usage: eunomia space [KEYS [THETA]] | marks | instructions TREE OPERATIONS";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["space"] => space("10000000", "0.99"),
        ["space", keys] => space(keys, "0.99"),
        ["space", keys, theta] => space(keys, theta),
        ["marks"] => {
            marks();
            Ok(())
        }
        ["instructions", tree, operations] => instructions(tree, operations),
        _ => Err(USAGE.to_owned()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn number<T: std::str::FromStr>(word: &str) -> Result<T, String> {
    word.parse().map_err(|_| format!("`{word}` is no number that fits\n{USAGE}"))
}

/// Loads keys in random order, has two threads get and put as many, and says what nodes take.
fn space(keys: &str, theta: &str) -> Result<(), String> {
    let keys: u64 = number(keys)?;
    let shape = Shape::Zipf { theta: number(theta)? };
    let leaves = u32::try_from(keys / 8 + 4_096).map_err(|_| "too many keys".to_owned())?;
    let tree = Eunomia::new(NOrec::new(RetryPolicy::DBX), Steps::COMPLETE, leaves);
    let tree = tree.map_err(|error| error.to_string())?;
    let load = Ycsb::new(Shape::Uniform, keys, Order::Scrambled, 100);
    let mut session = tree.session();
    for item in 0..keys {
        session.put(load.key(item), item).map_err(|error| error.to_string())?;
    }
    let work = Ycsb::new(shape, keys, Order::Clustered, 50);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (tree, mut stream) = (&tree, work.stream(thread, 1));
            scope.spawn(move || {
                let mut session = tree.session();
                for _ in 0..keys / 2 {
                    match stream.next_step() {
                        Step::Get(key) => drop(session.get(key)),
                        Step::Put(key, value) | Step::InsertTwice(key, value) => {
                            session.put(key, value).expect("an update takes no node");
                        }
                    }
                }
            });
        }
    });
    let bytes = tree.bytes();
    let plain = bytes.inner + bytes.leaves;
    let more = bytes.ccm + bytes.reserved;
    println!("{keys} keys: {bytes:?}");
    println!("CCMs and reserved records: {:.3} % more", 100.0 * more as f64 / plain as f64);
    let all = bytes.leaves / 10 + bytes.reserved;
    println!("with a CCM in each leaf: {:.2} % more", 100.0 * all as f64 / plain as f64);
    Ok(())
}

/// How often a key that is not in a leaf has a mark all the same.
fn marks() {
    let mut random = SplitMix64::new(7);
    for records in [4_i32, 8, 16] {
        let mut found = 0_u64;
        const LEAVES: u64 = 20_000;
        for _ in 0..LEAVES {
            let marks =
                (0..records).fold(0_u64, |marks, _| marks | 1 << mark_of(random.next_u64()));
            found +=
                (0..64).filter(|_| marks >> mark_of(random.next_u64()) & 1 == 1).count() as u64;
        }
        let measured = 100.0 * found as f64 / (64 * LEAVES) as f64;
        let theory = 100.0 * (1.0 - (1.0 - 1.0 / 64.0_f64).powi(records));
        println!("{records} keys: {measured:.2} % false positives; in theory {theory:.2} %");
    }
}

/// Loads 100,000 keys, and gets and puts, half and half.
fn instructions(tree: &str, operations: &str) -> Result<(), String> {
    const KEYS: u64 = 100_000;
    const LEAVES: u32 = 20_000;
    let operations: u64 = number(operations)?;
    let load = Ycsb::new(Shape::Zipf { theta: 0.5 }, KEYS, Order::Clustered, 50);
    let mut stream = load.stream(0, 1);
    let mut checksum = 0_u64;
    macro_rules! run {
        ($session:expr) => {{
            let session = &mut $session;
            for key in load.loaded() {
                session.put(key, key).map_err(|error| error.to_string())?;
            }
            for _ in 0..operations {
                let answer = match stream.next_step() {
                    Step::Get(key) => session.get(key),
                    Step::Put(key, value) | Step::InsertTwice(key, value) => {
                        session.put(key, value).map_err(|error| error.to_string())?
                    }
                };
                checksum = checksum.wrapping_add(answer.unwrap_or(0));
            }
        }};
    }
    match tree {
        "masstree" => {
            let tree = MasstreeStandIn::new(LEAVES).map_err(|error| error.to_string())?;
            let mut session = tree.session();
            run!(session);
            println!("{} looks at versions", session.checks);
        }
        "coupling" => {
            let tree = LockCoupling::new(LEAVES).map_err(|error| error.to_string())?;
            run!(tree.session());
        }
        name => {
            let steps = Steps::named(name).map_err(|error| error.to_string())?;
            let tree =
                Eunomia::new(Lock::new(), steps, LEAVES).map_err(|error| error.to_string())?;
            run!(tree.session());
        }
    }
    println!("{operations} operations, checksum {checksum:016x}");
    Ok(())
}
