//! `torture`: each of its tests on a small scale, that nothing stays behind, that a finding has an exit code of its own
//! and keeps what it was made on, and that a seed brings a run back.

use crate::harness::{Scratch, command, run};
use std::fs;
use std::io::{BufRead, BufReader};

/// An empty directory to test in.
fn disk(scratch: &Scratch) -> String {
    let disk = scratch.path("disk");
    fs::create_dir(&disk).unwrap();
    disk
}

/// The names of what is in a directory.
fn names(directory: &str) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn what_was_acknowledged_outlives_kills_and_nothing_stays_behind() {
    let scratch = Scratch::new("torture-kill");
    let disk = disk(&scratch);
    let done = run(&["torture", "kill", &disk, "--cycles", "6", "--seed", "5"]).code(0).silent();
    assert!(done.text().starts_with("torture: seed 1.5\n"), "{}", done.text());
    assert!(done.text().contains("fsync of 4096 bytes: median "), "{}", done.text());
    let last = done.text().lines().last().unwrap();
    assert!(
        last.starts_with("torture: 6 kills, ") && last.ends_with(": nothing was lost"),
        "{last}"
    );
    assert!(names(&disk).is_empty(), "{:?}", names(&disk));

    let args = ["torture", "kill", &disk, "--seconds", "1", "--format", "json"];
    let json = run(&args).code(0).silent().json();
    assert!(json["kills"].as_u64().unwrap() >= 1, "{json}");
    assert!(json["fsync"]["median_us"].as_f64().unwrap() > 0.0, "{json}");
    assert!(names(&disk).is_empty(), "{:?}", names(&disk));
}

#[test]
fn a_store_that_others_made_is_no_tortured_one() {
    let (_scratch, store) = Scratch::loaded("torture-look", "a\tb\n");
    run(&["torture", "look", &store, "7"]).code(1).stderr_has("has no keyspace");
}

/// It was a finding of the engine.
#[test]
fn a_look_at_a_wrong_path_is_an_error_and_no_finding() {
    let scratch = Scratch::new("torture-look-wrong");
    let text = scratch.file("text.txt", "just a text, but a long one\n".repeat(1_000));
    for (path, words) in [
        (&scratch.path("none.hrow"), "there is no such file"),
        (&text, "cannot open"),
        (&disk(&scratch), "cannot open"),
    ] {
        run(&["torture", "look", path, "7"]).code(1).stdout("").stderr_has(words);
    }
}

#[test]
fn a_look_at_a_kept_store_says_which_keys_differ() {
    let scratch = Scratch::new("torture-look-kept");
    let store = scratch.store();
    let mut writer = command(&["torture", "writer", &store, "7", "0", "0", "0"]).spawn().unwrap();
    let mut lines = BufReader::new(writer.stdout.take().unwrap()).lines();
    // That it has opened the store, and some changes that are durable.
    assert_eq!(lines.by_ref().take(10).count(), 10);
    writer.kill().unwrap();
    writer.wait().unwrap();
    run(&["del", &store, "--keyspace", "torture", "--prefix", "0/"]).code(0);
    run(&["put", &store, "--keyspace", "torture", "0/003/bird-000003", "what nobody wrote"])
        .code(0);
    let text = run(&["torture", "look", &store, "7"]).code(0).silent();
    let lines: Vec<&str> = text.text().lines().collect();
    assert_eq!(
        lines[..2],
        ["replayed 0 changes from the log", "thread 0: 1 key, the newest from change 0"]
    );
    let words = "  0/003/bird-000003: expected no record, found a value that no change wrote";
    assert_eq!(lines[2], words, "{}", text.text());
    assert!(lines[3].starts_with("thread 1: "), "{}", text.text());
    let json = run(&["torture", "look", &store, "7", "--format", "json"]).code(0).silent().json();
    let different = serde_json::json!(
        [{ "key": "0/003/bird-000003", "expected_change": null, "found_change": 0 }]
    );
    assert_eq!(json["threads"][0]["differences"], different, "{json:#}");
    assert!(json["threads"][1]["newest_change"].as_u64().unwrap() > 0, "{json:#}");
}

#[test]
fn a_check_says_what_is_there_and_finds_what_is_missing() {
    let scratch = Scratch::new("torture-check");
    let disk = disk(&scratch);
    let store = format!("{disk}/left.hrow");
    let check = |acknowledged| {
        let numbers = ["--there", "0,0,0", "--acknowledged", acknowledged];
        run(&[&["torture", "check", &store, "7"][..], &numbers].concat())
    };
    let json = check("0,0,0").code(0).silent().json();
    assert_eq!(json["there"], [0, 0, 0].into_iter().collect::<serde_json::Value>(), "{json}");
    check("0,5,0").code(7).stderr_has("thread 1: its keys do not hold a prefix");
    check("0,5").code(2).stderr_has("give one number for each of 3 threads");
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_the_kills_and_removes_the_store() {
    let scratch = Scratch::new("torture-interrupt");
    let disk = disk(&scratch);
    let args = ["torture", "kill", &disk, "--cycles", "100000"];
    let mut torture = crate::harness::interruptible(&args).spawn().unwrap();
    // It has begun when it says its seed.
    let mut first = String::new();
    let mut lines = BufReader::new(torture.stdout.take().unwrap());
    lines.read_line(&mut first).unwrap();
    assert!(first.starts_with("torture: seed "), "{first}");
    let pid = torture.id().to_string();
    let killed = std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap();
    assert!(killed.success());
    crate::harness::wait(&args, torture).code(130).stderr_has("nothing was lost");
    assert!(names(&disk).is_empty(), "{:?}", names(&disk));
}

#[test]
fn a_limit_ends_the_filling_of_a_disk() {
    let scratch = Scratch::new("torture-limit");
    let disk = disk(&scratch);
    let args = ["torture", "full-disk", &disk, "--limit-bytes", "12MiB", "--format", "json"];
    let json = run(&args).code(0).silent().json();
    assert_eq!(json["full"], false, "{json}");
    let count = |name: &str| json[name].as_u64().unwrap();
    assert!(count("bytes") >= 12 << 20 && count("removed") == count("records") / 2, "{json}");
    assert!(names(&disk).is_empty(), "{:?}", names(&disk));
}

/// A file system of `$SIZE`, in namespaces of their own.
#[cfg(target_os = "linux")]
fn mounted(disk: &str, size: &str, script: &str) -> Option<std::process::Output> {
    let shell = |script: &str| {
        let mounted =
            format!(r#"mount -t tmpfs -o size="$SIZE" none "$DISK" && cd "$DISK" && {script}"#);
        let mut shell = std::process::Command::new("unshare");
        shell.args(["--map-root-user", "--mount", "sh", "-c", &mounted]);
        shell.env("DISK", disk).env("SIZE", size);
        shell.env("TOOL", command(&[]).get_program()).output()
    };
    let probe = shell("true");
    if !probe.as_ref().is_ok_and(|output| output.status.success()) {
        let why = format!("no file system can be mounted here: {probe:?}");
        hedgerow_testing::not_run("a disk of a size of its own", &why);
        return None;
    }
    Some(shell(script).unwrap())
}

#[cfg(target_os = "linux")]
#[test]
fn a_disk_is_filled_to_the_end_and_gets_its_space_back() {
    let scratch = Scratch::new("torture-full");
    let disk = disk(&scratch);
    let script = r#""$TOOL" torture full-disk . && ls -A"#;
    let Some(output) = mounted(&disk, "48m", script) else { return };
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.starts_with("the disk is full, after "), "{text}");
    assert!(text.ends_with("\nnothing was lost\n"), "what the list shows stayed behind: {text}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_disk_with_much_room_is_not_filled_unasked() {
    let scratch = Scratch::new("torture-refused");
    let disk = disk(&scratch);
    let script = r#""$TOOL" torture full-disk .; echo "exit $?"; ls -A"#;
    let Some(output) = mounted(&disk, "3g", script) else { return };
    assert_eq!(String::from_utf8_lossy(&output.stdout), "exit 2\n");
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(words.contains("--yes") && words.contains("3.0 GiB"), "{words}");
}

#[test]
fn a_seed_of_another_version_is_refused_before_anything_is_done() {
    let scratch = Scratch::new("torture-seeds");
    let disk = disk(&scratch);
    let store = format!("{disk}/none.hrow");
    for (args, what) in [
        (&["torture", "kill", &disk, "--seed", "999.7"][..], "version 999 of the scripts"),
        (&["torture", "look", &store, "999.7"], "version 999 of the scripts"),
    ] {
        run(args).code(8).stdout("").stderr_has(what);
    }
    run(&["torture", "kill", &disk, "--seed", "v1"]).code(2).stderr_has("such as 1.12345");
    assert!(names(&disk).is_empty(), "{:?}", names(&disk));
}

#[test]
fn the_latency_of_a_disk_is_shown() {
    let scratch = Scratch::new("torture-sync");
    let disk = disk(&scratch);
    let done = run(&["torture", "sync", &disk]).code(0).silent();
    assert!(done.text().contains("overwriting a block: fsync of 4096 bytes"), "{}", done.text());
    assert!(names(&disk).is_empty(), "{:?}", names(&disk));
    let json = run(&["torture", "sync", &disk, "--format", "json"]).code(0).json();
    assert!(json["behind_end"]["slowest_us"].as_f64() >= json["behind_end"]["median_us"].as_f64());
}

/// Writes until some numbers are durable, and is killed: as near to a power cut as a test comes.
fn cut(disk: &str) -> u64 {
    let mut writer = command(&["torture", "sync", "--cut", disk]).spawn().unwrap();
    let lines = BufReader::new(writer.stdout.take().unwrap()).lines();
    let mut last = 0;
    for line in lines {
        last = line.unwrap().parse().unwrap();
        if last == 300 {
            writer.kill().unwrap();
        }
    }
    writer.wait().unwrap();
    last
}

#[test]
fn a_cut_is_checked_and_a_number_that_is_missing_is_a_finding() {
    let scratch = Scratch::new("torture-cut");
    let disk = disk(&scratch);
    let last = cut(&disk);
    assert!(last >= 300);
    let files = names(&disk);
    assert!(files.len() >= 2, "{files:?}");
    // What is there is not written over.
    run(&["torture", "sync", "--cut", &disk]).code(1).stderr_has("from an earlier run");
    // The last few may have been made and not printed.
    let later = (last + 10).to_string();
    run(&["torture", "sync", "--check", &later, &disk])
        .code(7)
        .stderr_has("the disk acknowledged an fsync and lost");
    assert_eq!(names(&disk), files, "a finding stays");
    run(&["torture", "sync", "--check", &last.to_string(), &disk]).code(0).silent();
    assert!(names(&disk).is_empty(), "{:?}", names(&disk));
    // Once more, or elsewhere: that accuses no disk.
    for directory in [&disk, &scratch.path("missing")] {
        let args = ["torture", "sync", "--check", &last.to_string(), directory];
        run(&args).code(1).stdout("").stderr_has("no run of --cut here");
    }
}

#[test]
fn a_plain_file_that_is_gone_alone_is_a_finding() {
    let scratch = Scratch::new("torture-no-plain");
    let disk = disk(&scratch);
    let last = cut(&disk).to_string();
    fs::remove_file(format!("{disk}/hedgerow-torture-cut.plain")).unwrap();
    let args = ["torture", "sync", "--check", &last, &disk];
    run(&args).code(7).stderr_has("hedgerow-torture-cut.plain is gone");
}

#[test]
fn a_store_that_has_lost_what_the_disk_has_kept_is_the_engines_fault() {
    let scratch = Scratch::new("torture-fault");
    let disk = disk(&scratch);
    let last = cut(&disk).to_string();
    let store = names(&disk).into_iter().find(|name| name.ends_with(".hrow")).unwrap();
    let store = format!("{disk}/{store}");
    run(&["del", &store, "number/00007", "--keyspace", "torture/sync"]).code(0);
    let done = run(&["torture", "sync", "--check", &last, &disk]).code(7);
    assert!(done.stderr().contains("a bug of Hedgerow: number 7 "), "{}", done.stderr());
    assert!(fs::exists(&store).unwrap());
}

#[test]
fn a_directory_that_is_not_there_is_an_error_and_no_finding() {
    let scratch = Scratch::new("torture-missing");
    let disk = scratch.path("missing");
    for how in ["kill", "sync"] {
        run(&["torture", how, &disk]).code(1).stdout("").stderr_has("cannot create a directory");
    }
    run(&["torture", "full-disk", &disk, "--yes"]).code(1).stdout("");
    assert!(!fs::exists(&disk).unwrap());
}
