//! Progress on a terminal: where it is shown, where not, and that other lines do not run into it.

use crate::harness::{Scratch, run};
use std::process::Command;

/// What a command shows on a terminal that is its standard output and its standard error. `None`: there is no program that makes terminals.
fn on_a_terminal(args: &[&str], redirection: &str) -> Option<String> {
    let quoted = args.iter().map(|arg| format!("'{arg}'")).collect::<Vec<_>>().join(" ");
    let line = format!("'{}' {quoted} {redirection}", env!("CARGO_BIN_EXE_hedgerow"));
    let mut script = Command::new("script");
    script.args(["-qec", &line, "/dev/null"]).env("TERM", "xterm");
    let output = match script.stdin(std::process::Stdio::null()).output() {
        Ok(output) => output,
        Err(error) => {
            hedgerow_testing::not_run("progress on a terminal", &format!("script: {error}"));
            return None;
        }
    };
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{line}: {shown}");
    Some(shown)
}

fn loaded(name: &str) -> (Scratch, String) {
    Scratch::loaded(
        name,
        (0..30_000).map(|n| format!("key {n:06}\t{n:0>40}\n")).collect::<String>(),
    )
}

#[test]
fn a_dump_to_a_terminal_has_no_progress_in_it() {
    let (scratch, store) = loaded("progress-dump");
    let Some(shown) = on_a_terminal(&["dump", &store], "") else { return };
    assert!(shown.contains("key 029999") && !shown.contains("dumping"));
    let shown = on_a_terminal(&["dump", &store], ">/dev/null").unwrap();
    assert!(shown.contains("dumping"), "{shown}");
    let out = scratch.path("birds.dump");
    let shown = on_a_terminal(&["dump", &store, "--out", &out], "").unwrap();
    assert!(shown.contains("dumping") && shown.contains("dumped 30,000 records"), "{shown}");
    for quiet in ["--quiet", "--no-progress"] {
        std::fs::remove_file(&out).unwrap();
        assert_eq!(on_a_terminal(&["dump", &store, "--out", &out, quiet], "").unwrap(), "");
    }
}

#[test]
fn a_line_of_verbose_does_not_run_into_progress() {
    let (_scratch, store) = loaded("progress-verbose");
    let Some(shown) = on_a_terminal(&["compact", &store, "--verbose"], "") else { return };
    let events: Vec<usize> = shown.match_indices("hedgerow: ").map(|(at, _)| at).collect();
    let progress = shown.find("compacting").unwrap_or_else(|| panic!("{shown}"));
    assert!(events.iter().any(|event| *event > progress), "{shown:?}");
    for event in events {
        let before = &shown[..event];
        // Behind the end of a line, or where one was cleared.
        let is_free = before.is_empty() || before.ends_with('\n') || before.ends_with("\u{1b}[2K");
        assert!(is_free, "{shown:?}");
    }
}

#[test]
fn quiet_hides_notes_and_no_errors() {
    let (scratch, store) = loaded("progress-quiet");
    let (lines, picture) = (scratch.file("lines.txt", "robin\n"), scratch.path("birds.svg"));
    for args in [
        &["load", &store, &lines][..],
        &["del", &store, "--prefix", "rob"],
        &["dump", &store, "--out", &scratch.path("birds.dump")],
        &["pages", &store, "--svg", &picture],
    ] {
        run(&[args, &["--quiet"]].concat()).code(0).silent();
    }
    run(&["get", &store, "robin", "--quiet"]).code(3).stderr_has("key not found");
    run(&["get", &scratch.path("none"), "robin", "--quiet"]).code(1).stderr_has("cannot open");
}
