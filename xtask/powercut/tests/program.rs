//! The program as it is started: a few cycles, a disk that lies, Ctrl-C, wrong arguments.
//!
//! Where this machine cannot mount what is needed, which the program says by its exit code, a test says loudly that it
//! was not run, and passes.

#![cfg(target_os = "linux")]

use serde_json::Value as Json;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

const CANNOT: i32 = 3;

/// The program, with the tool beside it. That is of another package: tests of the whole workspace have built it, and for
/// this one alone it is built here.
fn program() -> Command {
    static TOOL: OnceLock<PathBuf> = OnceLock::new();
    let program = Path::new(env!("CARGO_BIN_EXE_hedgerow-powercut"));
    let tool = TOOL.get_or_init(|| {
        let tool = program.with_file_name("hedgerow");
        if tool.is_file() {
            return tool;
        }
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--package", "hedgerow-cli", "--manifest-path"]);
        build.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"));
        if !cfg!(debug_assertions) {
            build.arg("--release");
        }
        assert!(build.status().unwrap().success(), "the tool cannot be built");
        tool
    });
    let mut command = Command::new(program);
    command.arg("--tool").arg(tool);
    command
}

/// Says on the real standard error, which nobody catches, that nothing was tested.
fn was_run(name: &str, output: &Output) -> bool {
    if output.status.code() != Some(CANNOT) {
        return true;
    }
    let why = String::from_utf8_lossy(&output.stderr);
    let words = format!("\nNOT RUN: {name}: {}\n", why.trim());
    std::io::stderr().write_all(words.as_bytes()).unwrap();
    false
}

/// What a run that is over has left in the table of mounts and among temporary files.
fn leftovers(pid: u32) -> Vec<String> {
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    let mut found: Vec<String> = mounts
        .lines()
        .filter(|line| line.contains("hedgerow-power-cuts") && line.contains(&format!("-{pid} ")))
        .map(str::to_owned)
        .collect();
    for entry in fs::read_dir("/sys/block").unwrap().map(Result::unwrap) {
        let file = fs::read_to_string(entry.path().join("loop/backing_file")).unwrap_or_default();
        found.extend(file.contains(&format!("hedgerow-power-cuts-images-{pid}/")).then_some(file));
    }
    for what in ["images", "mounted"] {
        let path = std::env::temp_dir().join(format!("hedgerow-power-cuts-{what}-{pid}"));
        found.extend(path.exists().then(|| path.display().to_string()));
    }
    found
}

#[test]
fn what_was_acknowledged_outlives_power_cuts_and_nothing_stays_behind() {
    let mut command = program();
    command.args(["--cycles", "3", "--seed", "5", "--format", "json"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    let output = child.wait_with_output().unwrap();
    if !was_run("power cuts", &output) {
        return;
    }
    let words = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{words}");
    let json: Json = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&json["seed"], &json["cycles"]), (&5.into(), &3.into()), "{json}");
    assert!(json["power_cuts"].as_u64().unwrap() >= 3, "{json}");
    assert!(json["faulty"].is_u64() && json["acknowledged"].as_u64().unwrap() > 0, "{json}");
    assert_eq!(json["file_systems"]["ext4"]["power_cuts"], json["power_cuts"]);
    assert!(leftovers(pid).is_empty(), "{:?}", leftovers(pid));
}

#[test]
fn a_disk_that_forgets_its_flushes_is_found_out() {
    let output =
        program().args(["--cycles", "60", "--lying-flush", "--seed", "5"]).output().unwrap();
    if was_run("a disk that lies", &output) {
        let words = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{words}");
        assert!(words.contains("seed 5, cycle "), "{words}");
        // By the store's own check, and by no file system that fails to come up.
        assert!(words.contains("acknowledged as durable"), "{words}");
    }
}

#[test]
fn ctrl_c_ends_a_run_and_nothing_stays_behind() {
    let mut command = program();
    command.args(["--cycles", "1000"]).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let pid = child.id();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    // A run that cannot begin ends by itself.
    if first.starts_with("power-cuts: seed ") {
        let kill = Command::new("kill").args(["-INT", &pid.to_string()]).status().unwrap();
        assert!(kill.success());
    }
    let rest: Vec<String> = lines.map_while(Result::ok).collect();
    let status = child.wait().unwrap();
    let stderr = rest.join("\n").into_bytes();
    if was_run("Ctrl-C", &Output { status, stdout: Vec::new(), stderr }) {
        assert_eq!(status.code(), Some(130), "{first} {rest:?}");
        assert!(leftovers(pid).is_empty(), "{:?}", leftovers(pid));
    }
}

#[test]
fn wrong_arguments_are_named() {
    let output = program().args(["--moons", "7"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--moons"));
}
