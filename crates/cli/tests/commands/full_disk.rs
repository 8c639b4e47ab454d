//! A disk that runs full in the middle of `load`: what is said, what is kept, and that it goes on.
//!
//! The disk is a file system in memory, mounted in namespaces of its own; where the system does not
//! allow that to everybody, the test says loudly that it was not run, and passes.

use crate::harness::{Scratch, command};
use hedgerow_testing::not_run;
use std::fmt::Write;
use std::process::Command;

/// Runs in a directory that is a file system of `$SIZE`; `$1` is the tool.
const MOUNTED: &str = r#"set -e; mount -t tmpfs -o size="$SIZE" none "$DISK"; cd "$DISK"; set +e"#;

const STEPS: &str = r#"
step() { echo "== $*"; "$TOOL" "$@" --memory-limit 2MiB 2>&1; echo "exit $?"; }
step load s.hrow "$FEW"
step load s.hrow "$MANY"
ls -A
step verify s.hrow
step count s.hrow
step get s.hrow bird-000007
step del s.hrow bird-000007
mount -o remount,size=64m "$DISK"
step load s.hrow "$MANY"
step verify s.hrow
step count s.hrow
"#;

/// A shell in user and mount namespaces of its own, as root there.
fn shell(disk: &str, script: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--mount", "sh", "-c", script]);
    command.env("DISK", disk).env("SIZE", "6m");
    command
}

#[test]
fn a_load_onto_a_full_disk_says_what_is_kept_and_goes_on_when_there_is_room() {
    let scratch = Scratch::new("full-disk");
    let disk = scratch.path("disk");
    std::fs::create_dir(&disk).unwrap();
    let probe = shell(&disk, MOUNTED).output();
    if !probe.as_ref().is_ok_and(|output| output.status.success()) {
        let why = format!("no file system can be mounted here: {probe:?}");
        return not_run("a load onto a full disk", &why);
    }
    let lines = |count: u32| {
        (0..count).fold(String::new(), |mut text, n| {
            writeln!(text, "bird-{n:06}\tthis is a bird, and its number is {n}").unwrap();
            text
        })
    };
    let output = shell(&disk, &format!("{MOUNTED}; {STEPS}"))
        .env("TOOL", command(&[]).get_program())
        .env("FEW", scratch.file("few.txt", lines(100)))
        .env("MANY", scratch.file("many.txt", lines(150_000)))
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let steps: Vec<&str> = text.split("== ").skip(1).collect();
    let [few, full, verify, count, get, del, again, verified, counted] = steps[..] else {
        panic!("{text}\n{}", String::from_utf8_lossy(&output.stderr));
    };
    assert!(few.ends_with("exit 0\n"), "{few}");
    for words in [
        "records before the load stopped",
        "cannot write line",
        "s.hrow: No space left on device (os error 28); free some space and run the command again",
        // And then the list of all files.
        "exit 1\ns.hrow\n",
    ] {
        assert!(full.contains(words), "{words:?} is missing: {full}");
    }
    assert!(!full.contains("panicked"), "{full}");
    assert!(verify.contains("sound: ") && verify.ends_with("exit 0\n"), "{verify}");
    let number = |step: &str| step.lines().nth(1).and_then(|line| line.parse::<u32>().ok());
    // All that was taken, and no more.
    let kept = number(count).unwrap_or_else(|| panic!("{count}"));
    let taken =
        full.split(" records before the load").next().and_then(|line| line.rsplit(' ').next());
    let taken = taken.map(|taken| taken.replace(',', "").parse::<u32>());
    assert_eq!(taken, Some(Ok(kept)), "{full}{count}");
    assert!((100..150_000).contains(&kept), "{count}");
    assert!(get.contains("its number is 7\n") && get.ends_with("exit 0\n"), "{get}");
    assert!(del.ends_with("exit 0\n"), "what makes room goes through: {del}");
    assert!(again.ends_with("exit 0\n"), "{again}");
    assert!(verified.contains("sound: ") && verified.ends_with("exit 0\n"), "{verified}");
    assert_eq!(number(counted), Some(150_000), "{counted}");
}
