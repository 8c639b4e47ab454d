//! `recover`: what a log has is in the store afterwards, and nobody replays it again.

use crate::backup;
use crate::harness::{Scratch, run};
use std::fs;
use std::path::Path;

/// A store whose load was killed, when its log had the last record.
fn killed(name: &str) -> (Scratch, String) {
    backup::killed(name, &backup::text(), b"value of 4000")
}

#[test]
fn a_log_is_replayed_once() {
    let (scratch, store) = killed("recover");
    let words = ", in memory alone; `hedgerow recover` does so for good\n";
    let count = run(&["count", &store]).code(0).stderr_has(words).text().to_owned();
    run(&["count", &store]).code(0).stderr_has("was not closed; replayed ");
    run(&["count", &store, "--quiet"]).code(0).silent();
    let copy = scratch.path("copy.hrow");
    for file in ["", "-log"] {
        fs::copy(format!("{store}{file}"), format!("{copy}{file}")).unwrap();
    }
    // Another file cannot be made of what is only in memory.
    run(&["restore", &copy, &scratch.path("new.hrow")])
        .code(1)
        .stderr_has("open it for writing once and close it; `hedgerow recover` does both\n");
    let done = run(&["recover", &store]).code(0).silent();
    let said = done.text();
    assert!(said.starts_with("recovered and closed: "), "{said}");
    assert!(said.contains(" changes replayed from ") && said.ends_with(" of log\n"), "{said}");
    assert!(!Path::new(&format!("{store}-log")).exists());
    run(&["count", &store]).code(0).stdout(&count).silent();
    run(&["verify", &store]).code(0);
    let json = run(&["recover", &copy, "--format", "json"]).code(0).silent().json();
    assert!(json["replayed"].as_u64().unwrap() > 0, "{json}");
    assert!(json["log_bytes"].as_u64().unwrap() > 0, "{json}");
    run(&["count", &copy]).code(0).stdout(&count).silent();
}

#[test]
fn a_store_that_was_closed_stays_as_it_is() {
    let (scratch, store) = Scratch::loaded("recover-closed", "wren\tTroglodytes\n");
    let before = fs::read(&store).unwrap();
    let words = "closed: there was nothing to replay\n";
    run(&["recover", &store]).code(0).stdout(words).silent();
    assert!(fs::read(&store).unwrap() == before);
    let none = scratch.path("none.hrow");
    run(&["recover", &none]).code(1).stdout("").stderr_has("there is no such file");
    assert!(!Path::new(&none).exists());
    run(&["recover", &store, "--keyspace", "birds"]).code(2).stderr_has("whole stores");
}
