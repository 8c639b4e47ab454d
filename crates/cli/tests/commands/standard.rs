//! `-` in the place of a file: standard input or output, or refused; never a file of that name.

use crate::harness::{Scratch, command, run, run_with_input, wait};
use std::path::Path;

const BIRDS: &str = "robin\tErithacus rubecula\nwren\tTroglodytes troglodytes\n";

/// Runs in the directory of a test, where a file called `-` would be.
fn run_in(scratch: &Scratch, args: &[&str]) -> crate::harness::Done {
    let done = wait(args, command(args).current_dir(scratch.path("")).spawn().unwrap());
    assert!(!Path::new(&scratch.path("-")).exists(), "{args:?}");
    done
}

#[test]
fn a_dump_and_a_picture_go_to_standard_output() {
    let (scratch, store) = Scratch::loaded("standard-out", BIRDS);
    let dump = run(&["dump", &store]).code(0).text().to_owned();
    run_in(&scratch, &["dump", &store, "--out", "-"]).code(0).stdout(dump).silent();
    let picture = run_in(&scratch, &["pages", &store, "--svg", "-"]).code(0).silent();
    assert!(picture.text().starts_with("<svg ") && picture.text().ends_with("</svg>\n"));
    // The report would go there, too.
    for how in [&["dump", &store, "--out", "-"][..], &["pages", &store, "--svg", "-"]] {
        run_in(&scratch, &[how, &["--format", "json"]].concat()).code(2).stdout("");
    }
}

#[test]
fn keys_come_from_standard_input() {
    let (_scratch, store) = Scratch::loaded("standard-in", BIRDS);
    let hot = ["hot", &store, "--keys", "-", "--seconds", "1", "--format", "json"];
    let json = run_with_input(&hot, b"robin\nwren\tof no matter\n").code(0).silent().json();
    assert!(json["updates"].as_u64().unwrap() > 0, "{json}");
    run_with_input(&hot, b"").code(1).stderr_has("standard input has no keys");
}

#[test]
fn no_store_is_made_in_the_place_of_standard_output() {
    let (scratch, store) = Scratch::loaded("standard-stores", BIRDS);
    for how in ["backup", "restore", "repair"] {
        let words = "a store cannot be written to standard output";
        run_in(&scratch, &[how, &store, "-"]).code(2).stdout("").stderr_has(words);
    }
    run(&["backup", &store, &scratch.path("./-")]).code(0);
}
