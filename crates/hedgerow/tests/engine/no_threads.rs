//! A system that starts no threads any more: the one that makes room in the pool is started when it is first wanted, and
//! whoever waits for it is told. The child is this very test binary, whose threads want more stack than there can be.
#![allow(clippy::disallowed_methods, reason = "a test that starts processes")]
#![cfg(target_os = "linux")]

use crate::common::key;
use hedgerow::internals::store::OpenHow;
use hedgerow::{ErrorKind, Options, Result};
use hedgerow_testing::SimDisk;
use std::path::Path;
use std::process::Command;

const CHILD: &str = "HEDGEROW_NO_THREADS_CHILD";
/// Twice as many as the pool holds.
const RECORDS: u64 = 40_000;
/// Far more frames than a thread that needs one looks at by itself.
const MEMORY_BYTES: u64 = 4 << 20;

#[test]
#[ignore = "runs in a process of its own"]
fn child_changes_and_reads_without_threads() {
    assert!(std::env::var_os(CHILD).is_some(), "without threads, which only its parent sees to");
    std::thread::Builder::new().spawn(|| ()).expect_err("a thread, which there is not to be");
    let options = Options::new()
        .page_bytes(4096)
        .memory_limit_bytes(hedgerow::smallest_memory_limit_bytes(4096) + MEMORY_BYTES)
        .checkpoint_bytes(1 << 30)
        .background_checkpoints(false)
        .log(false);
    let disk = SimDisk::new(1);
    let path = Path::new("/data/lonely.hrow");
    let db = options.on_disk(&disk, path, OpenHow::New).unwrap();
    let keyspace = db.keyspace("larks").unwrap();
    let put = |n: u64| -> Result<bool> { keyspace.put(&key(n), &[n as u8; 200]) };
    // Pages that are dirty only that thread writes, when there are too many. A checkpoint makes them clean, and what is clean
    // is anybody's to evict.
    let mut refused = 0;
    for n in 0..RECORDS {
        let Err(error) = put(n) else { continue };
        assert_eq!(error.kind(), ErrorKind::MemoryLimit, "{error:?}");
        assert!(error.to_string().contains("eviction thread"), "{error}");
        assert!(n > 1_000, "refused after {n}");
        refused += 1;
        db.checkpoint().unwrap();
        put(n).unwrap();
    }
    assert!((1..10).contains(&refused), "{refused} were refused");
    // The second time all that is in the pool was used.
    for n in (0..RECORDS).chain(0..RECORDS) {
        let found = keyspace.get(&key(n)).unwrap();
        assert_eq!(found.as_deref(), Some(&[n as u8; 200][..]), "{n}");
    }
    db.close().unwrap();
}

#[test]
fn without_threads_a_store_opens_and_reads_and_says_why_it_holds_no_more() {
    let name = format!("{}::child_changes_and_reads_without_threads", module_path!());
    let name = name.split_once("::").expect("the program's name comes first").1;
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--ignored", "--nocapture"])
        .env("RUST_MIN_STACK", (1_u64 << 60).to_string())
        .env(CHILD, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}\n{errors}");
}
