//! What all commands do alike: wrong arguments, stores that are not there or not stores, locks,
//! pipes that close early, Ctrl-C, and that reading changes nothing.

use crate::harness::{Scratch, command, run, wait};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

const READERS: [&[&str]; 8] = [
    &["dump", "STORE"],
    &["get", "STORE", "k"],
    &["scan", "STORE"],
    &["count", "STORE"],
    &["keyspaces", "STORE"],
    &["stat", "STORE"],
    &["pages", "STORE"],
    &["verify", "STORE"],
];

/// The command with the store's path in its place.
fn on<'a>(store: &'a str, args: &[&'a str]) -> Vec<&'a str> {
    args.iter().map(|&arg| if arg == "STORE" { store } else { arg }).collect()
}

#[test]
fn wrong_arguments_are_exit_code_2_and_touch_nothing() {
    let scratch = Scratch::new("wrong");
    let store = scratch.store();
    for args in [
        &["frobnicate"][..],
        &[],
        &["get", &store],
        &["put", &store, "k"],
        &["put", &store, "k", "v", "w"],
        &["put", &store, "k", "v", "--memory-limit", "64 furlongs"],
        &["put", &store, "k", "v", "--format", "xml"],
        &["put", &store, "k", "\\"],
        &["scan", &store, "--limit", "-1"],
        &["backup", &store],
        &["compact"],
        &["recover"],
        &["compact", &store, &store],
        &["restore", &store],
        &["repair", &store],
        &["scan", &store, "--no-such-option"],
        &["torture"],
        &["torture", "kill"],
        &["torture", "kill", &store, "--cycles", "0"],
        &["torture", "sync", &store, "--cut", "--check", "7"],
    ] {
        let done = run(args).code(2).stdout("");
        assert!(!done.text().contains("panicked"), "{args:?}");
        assert!(!Path::new(&store).exists(), "{args:?}");
    }
}

#[test]
fn help_and_version_are_data() {
    let help = run(&["--help"]).code(0).silent();
    for word in ["tour", "load", "verify", "Exit codes", "\\xNN", "powers of 1024"] {
        assert!(help.text().contains(word), "{word}");
    }
    for name in [
        "tour",
        "load",
        "get",
        "put",
        "del",
        "scan",
        "count",
        "stat",
        "dump",
        "pages",
        "verify",
        "compact",
        "recover",
        "rename",
        "backup",
        "restore",
        "repair",
        "torture",
        "hot",
        "keyspaces",
        "drop",
        "completions",
        "man",
    ] {
        let help = run(&[name, "--help"]).code(0).silent();
        assert!(help.text().contains("--memory-limit"), "{name}");
        let example = format!("\n  hedgerow {name} ");
        assert!(help.text().contains(&example), "{name} has no example: {}", help.text());
    }
    for name in ["kill", "full-disk", "sync", "look"] {
        let help = run(&["torture", name, "--help"]).code(0).silent();
        let example = format!("\n  hedgerow torture {name} ");
        assert!(help.text().contains(&example), "{name} has no example: {}", help.text());
    }
}

#[test]
fn the_version_names_the_format_of_stores() {
    let (_scratch, store) = Scratch::loaded("version", "wren\n");
    // Where docs/format.md puts it in a superblock.
    let format = fs::read(&store).unwrap()[16..20].try_into().map(u32::from_le_bytes).unwrap();
    let words = format!("hedgerow {} (format {format})\n", env!("CARGO_PKG_VERSION"));
    run(&["--version"]).code(0).stdout(words).silent();
}

#[test]
fn a_store_that_is_not_there_is_not_made_by_reading() {
    let scratch = Scratch::new("missing");
    let store = scratch.store();
    for args in READERS {
        let done = run(&on(&store, args)).code(1).stdout("");
        let words = format!("hedgerow: cannot open {store}: there is no such file\n");
        assert_eq!(done.stderr(), words, "{args:?}");
        assert!(!Path::new(&store).exists(), "{args:?}");
    }
}

#[test]
fn a_store_in_a_directory_that_is_not_there_is_not_made() {
    let scratch = Scratch::new("no-directory");
    let store = scratch.path(&Path::new("missing").join("store.hrow").display().to_string());
    let done = run(&["put", &store, "k", "v"]).code(1).stdout("");
    let words = done.stderr();
    assert!(
        words.ends_with(": there is no such directory\n") || words.contains("no such file"),
        "{words}"
    );
    assert_eq!(words.matches("cannot").count(), 1, "{words}");
}

#[test]
fn what_is_no_store_is_refused_and_left_alone() {
    let scratch = Scratch::new("no-store");
    let text = scratch.file("text.txt", "just a text, but a long one\n".repeat(1_000));
    let zeros = scratch.file("zeros.bin", vec![0; 64 << 10]);
    let short = scratch.file("short.bin", b"x");
    for path in [text, zeros, short, scratch.path("")] {
        for args in READERS {
            let done = run(&on(&path, args));
            assert!(matches!(done.exit_code(), Some(1 | 4)), "{args:?} {path}: {}", done.stderr());
            assert!(!done.stderr().contains("panicked"), "{args:?} {path}: {}", done.stderr());
        }
        let before = fs::read(&path).ok();
        run(&["put", &path, "k", "v"]).code(1).stdout("");
        assert_eq!(fs::read(&path).ok(), before, "{path}");
    }
}

#[test]
fn reading_changes_no_byte() {
    let (_scratch, store) = Scratch::loaded("read-only", "k\tv\nl\tw\n");
    let before = fs::read(&store).unwrap();
    for args in READERS {
        run(&on(&store, args)).code(0);
        assert!(fs::read(&store).unwrap() == before, "{args:?}");
    }
}

#[test]
fn a_locked_store_is_exit_code_5() {
    let (_scratch, store) = Scratch::loaded("locked", "k\tv\n");
    let (load, stdin) = holder(&store);
    run(&["put", &store, "k", "w"]).code(5).stdout("").stderr_has("cannot open");
    drop(stdin);
    wait(&["load"], load).code(0);
    run(&["get", &store, "new"]).code(0).stdout("100000\n");
}

/// A load that holds the store until its input ends.
fn holder(store: &str) -> (Child, ChildStdin) {
    let mut holder = command(&["load", store, "-"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = holder.stdin.take().unwrap();
    // More than a pipe holds: once it is written, the load reads, and it opens the store first.
    stdin.write_all("new\n".repeat(100_000).as_bytes()).unwrap();
    (holder, stdin)
}

/// Starts a command that waits for the store, and returns when it has found that it must.
fn waiting(mut command: Command) -> Child {
    let mut child = command.spawn().unwrap();
    let mut words = String::new();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    while !words.contains("trying again") {
        assert!(stderr.read_line(&mut words).unwrap() > 0, "it did not wait: {words}");
    }
    // It has more to say, perhaps.
    std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
    child
}

#[test]
fn a_locked_store_is_waited_for_as_long_as_that_is_asked_for() {
    let (scratch, store) = Scratch::loaded("waiting", "k\tv\n");
    let new = scratch.path("new.hrow");
    for args in [
        &["put", &store, "k", "w"][..],
        &["scan", &store, "--keys-only"],
        &["backup", &store, &scratch.path("birds.backup")],
        &["repair", &store, &new],
    ] {
        let (load, stdin) = holder(&store);
        let begun = std::time::Instant::now();
        run(&[args, &["--wait", "0.4"]].concat()).code(5).stdout("").stderr_has("--wait SECONDS");
        assert!(begun.elapsed() >= std::time::Duration::from_millis(400), "{args:?}");
        let args = [args, &["--wait", "600", "--verbose"]].concat();
        let child = waiting(command(&args));
        drop(stdin);
        wait(&["load"], load).code(0);
        wait(&args, child).code(0);
    }
    run(&["get", &store, "k"]).code(0).stdout("w\n");
    for wrong in ["-1", "soon", "inf", "NaN", ""] {
        run(&["get", &store, "k", "--wait", wrong]).code(2).stdout("");
    }
    // What is no lock is not waited for.
    run(&["get", &scratch.path("nothing"), "k", "--wait", "600"]).code(1);
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_a_command_that_waits_for_a_store() {
    let (_scratch, store) = Scratch::loaded("waiting-ends", "k\tv\n");
    let (load, stdin) = holder(&store);
    for args in [["count", &store], ["stat", &store]] {
        let args = [&args[..], &["--wait", "600", "--verbose"]].concat();
        let mut child = waiting(crate::harness::interruptible(&args));
        assert_eq!(end_by("-INT", &mut child), Some(130), "{args:?}");
    }
    drop(stdin);
    wait(&["load"], load).code(0);
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let text: String = (0..50_000).map(|n| format!("key {n:06}\n")).collect();
    let (_scratch, store) = Scratch::loaded("pipe", text);
    for format in ["human", "json"] {
        let args = ["scan", &store, "--format", format];
        let mut scan = command(&args).spawn().unwrap();
        let mut first = String::new();
        // Dropping the reader closes the pipe, as `head -1` does.
        BufReader::new(scan.stdout.take().unwrap()).read_line(&mut first).unwrap();
        assert!(first.contains("key 000000"), "{first}");
        wait(&args, scan).code(0).silent();
    }
}

#[cfg(unix)]
#[test]
fn ctrl_c_stops_a_load_and_leaves_a_valid_store() {
    let scratch = Scratch::new("interrupt");
    let store = scratch.store();
    let args = ["load", &store, "-"];
    let mut load = crate::harness::interruptible(&args).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = load.stdin.take().unwrap();
    let text: String = (0..50_000).map(|n| format!("key {n:06}\n")).collect();
    stdin.write_all(text.as_bytes()).unwrap();
    let pid = load.id().to_string();
    // The load now waits for more input, which never comes: only the signal can end it.
    let killed = std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap();
    assert!(killed.success());
    wait(&args, load).code(130).stderr_has("interrupted");
    drop(stdin);
    run(&["verify", &store]).code(0);
    let count: u64 = run(&["count", &store]).code(0).text().trim().parse().unwrap();
    assert!(count <= 50_000);
}

#[test]
fn commands_that_tell_people_nothing_say_in_json_what_they_did() {
    let scratch = Scratch::new("json-done");
    let store = scratch.store();
    for (args, code, said) in [
        (&["put", &store, "wren", "1"][..], 0, "{\"replaced\":false}\n"),
        (&["put", &store, "wren", "2"], 0, "{\"replaced\":true}\n"),
        (&["del", &store, "wren"], 0, "{\"deleted\":true}\n"),
        (&["del", &store, "wren"], 3, "{\"deleted\":false}\n"),
        (&["rename", &store, "default", "birds"], 0, "{\"renamed\":true}\n"),
        (&["drop", &store, "birds"], 0, "{\"dropped\":true}\n"),
        (&["drop", &store, "birds"], 1, ""),
    ] {
        run(&[args, &["--format", "json"]].concat()).code(code).stdout(said);
    }
}

/// Sends a signal, and waits for the end with nobody reading.
#[cfg(unix)]
fn end_by(signal: &str, child: &mut std::process::Child) -> Option<i32> {
    let pid = child.id().to_string();
    assert!(std::process::Command::new("kill").args([signal, &pid]).status().unwrap().success());
    let begun = std::time::Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        if begun.elapsed() > std::time::Duration::from_secs(60) {
            child.kill().unwrap();
            panic!("it goes on after {signal}");
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// They looked at the flag of the signals nowhere, and the first signal did nothing else than to set it.
#[cfg(unix)]
#[test]
fn a_signal_ends_a_command_that_does_not_look() {
    let scratch = Scratch::new("signals");
    let (store, new) = (scratch.store(), scratch.path("new.hrow"));
    // More than a pipe holds.
    let song = "chaffinch, wren, robin. ".repeat(100_000);
    run(&["put", &store, "song", "--file", &scratch.file("song", &song)]).code(0);
    for signal in ["-INT", "-TERM"] {
        let args = ["get", &store, "song", "--raw"];
        let mut get = crate::harness::interruptible(&args).spawn().unwrap();
        let mut reader = get.stdout.take().unwrap();
        let mut first = [0];
        std::io::Read::read_exact(&mut reader, &mut first).unwrap();
        assert_eq!(end_by(signal, &mut get), Some(130), "{signal}");
        drop(reader);
        for args in [
            &["put", &store, "other", "--file", "-"][..],
            &["put", &new, "other", "--file", "-"],
            &["hot", &store, "--keys", "-"],
        ] {
            let mut child =
                crate::harness::interruptible(args).stdin(Stdio::piped()).spawn().unwrap();
            let mut stdin = child.stdin.take().unwrap();
            // Once that is written it reads.
            stdin.write_all(song.as_bytes()).unwrap();
            assert_eq!(end_by(signal, &mut child), Some(130), "{args:?} {signal}");
        }
    }
    assert!(!Path::new(&new).exists());
    run(&["scan", &store, "--keys-only"]).code(0).stdout("song\n").silent();
}

#[test]
fn who_names_no_keyspace_gets_the_only_one_or_hears_which_there_are() {
    let scratch = Scratch::new("only-keyspace");
    let store = scratch.store();
    run(&["put", &store, "wren", "Troglodytes", "--keyspace", "birds"]).code(0);
    run(&["get", &store, "wren"]).code(0).stdout("Troglodytes\n").silent();
    let stat = run(&["stat", &store, "--format", "json"]).code(0).json();
    assert_eq!(stat["keyspace"], "birds");
    run(&["put", &store, "newt", "Triturus", "--keyspace", "amphibians"]).code(0);
    let which =
        "has the keyspaces `amphibians`, `birds` and no `default`; choose one with --keyspace NAME";
    let file = scratch.file("lines.txt", "robin\tErithacus\n");
    for args in [
        &["get", &store, "wren"][..],
        &["put", &store, "robin", "Erithacus"],
        &["load", &store, &file],
        &["del", &store, "wren"],
        &["scan", &store],
    ] {
        run(args).code(1).stdout("").stderr_has(which);
    }
    run(&["keyspaces", &store]).code(0).stdout("amphibians\nbirds\n");
    run(&["get", &store, "wren", "--keyspace", "reptiles"])
        .code(1)
        .stderr_has("has no keyspace `reptiles`; its keyspaces: `amphibians`, `birds`\n");
    run(&["get", &store, "wren", "--keyspace", "birds"]).code(0).stdout("Troglodytes\n");
    // What knows nothing of keyspaces does not take one and do everything.
    let copy = scratch.path("copy.hrow");
    for whole in [&["verify", &store][..], &["backup", &store, &copy], &["repair", &store, &copy]] {
        let args = [whole, &["--keyspace", "birds"]].concat();
        run(&args).code(2).stdout("").stderr_has("does not take --keyspace");
        assert!(!std::path::Path::new(&copy).exists());
    }
}

/// A put made `default` beside the only keyspace, and the same get as before found nothing any more.
#[test]
fn who_names_no_keyspace_writes_to_the_one_that_is_read() {
    let scratch = Scratch::new("same-keyspace");
    let store = scratch.store();
    run(&["put", &store, "wren", "Troglodytes", "--keyspace", "birds"]).code(0);
    run(&["put", &store, "finch", "Fringilla"]).code(0);
    run(&["load", &store, &scratch.file("lines.txt", "robin\tErithacus\n")]).code(0);
    run(&["keyspaces", &store]).code(0).stdout("birds\n");
    run(&["scan", &store, "--keys-only"]).code(0).stdout("finch\nrobin\nwren\n");
    run(&["get", &store, "wren"]).code(0).stdout("Troglodytes\n");
    run(&["put", &store, "newt", "Triturus", "--keyspace", "default"]).code(0);
    // There is a `default` now, by the user's own word.
    run(&["put", &store, "toad", "Bufo"]).code(0);
    run(&["scan", &store, "--keys-only"]).code(0).stdout("newt\ntoad\n");
    run(&["drop", &store, "default"]).code(0);
    run(&["drop", &store, "birds"]).code(0);
    run(&["get", &store, "wren"]).code(1).stderr_has("its keyspaces: none");
    run(&["put", &store, "wren", "Troglodytes"]).code(0);
    run(&["keyspaces", &store]).code(0).stdout("default\n");
}

/// Runs words of the shell with the tool as `$0`; its exit code and what it wrote to standard error.
#[cfg(unix)]
fn shell(script: &str, args: &[&str]) -> (Option<i32>, String) {
    let mut command = std::process::Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_hedgerow")]).args(args).stdin(Stdio::null());
    let output = command.output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[cfg(target_os = "linux")]
#[test]
fn output_that_is_lost_is_an_error() {
    let (_scratch, store) = Scratch::loaded("lost-output", "robin\tErithacus rubecula\n");
    let commands: [&[&str]; 10] = [
        &["--help"],
        &["--version"],
        &["scan", "--help"],
        &["help", "load"],
        &["dump", &store],
        &["scan", &store],
        &["get", &store, "robin"],
        &["get", &store, "robin", "--raw"],
        &["count", &store],
        &["stat", &store, "--format", "json"],
    ];
    for args in commands {
        for redirection in [">/dev/full", ">&-"] {
            let (code, words) = shell(&format!("\"$0\" \"$@\" {redirection}"), args);
            assert_eq!(code, Some(1), "{args:?} {redirection}: {words}");
            assert!(words.contains("cannot write to standard output"), "{args:?}: {words}");
        }
        let (code, words) = shell("\"$0\" \"$@\" >/dev/null", args);
        assert_eq!((code, &*words), (Some(0), ""), "{args:?}");
    }
}

/// A message that could not be written was a panic, and the command ended with exit code 101.
#[cfg(target_os = "linux")]
#[test]
fn a_message_that_is_lost_changes_no_exit_code() {
    let (scratch, store) = Scratch::loaded("lost-messages", "robin\t1\nreed\t2\nwren\t3\n");
    let lines = scratch.file("lines.txt", "dunnock\nrook\n");
    let wrong = scratch.file("wrong.txt", "tit\\q\n");
    let damaged = scratch.file("damaged.dump", "hedgerow-dump 1\nkeyspace a\n");
    let (none, dump) = (scratch.path("none.hrow"), scratch.path("birds.dump"));
    let commands: [(&[&str], i32); 9] = [
        (&["load", &store, &lines], 0),
        (&["del", &store, "--prefix", "r"], 0),
        (&["dump", &store, "--out", &dump], 0),
        (&["put", &store, "tit", "4", "--verbose"], 0),
        (&["get", &store, "robin"], 3),
        (&["get", &none, "robin"], 1),
        (&["load", &store, &wrong, "--escaped"], 1),
        (&["load", &store, &damaged], 4),
        (&["get", &store], 2),
    ];
    for (args, code) in commands {
        for redirection in ["2>/dev/full", "2>&-"] {
            let _ = fs::remove_file(&dump);
            let (ended, _) = shell(&format!("\"$0\" \"$@\" {redirection}"), args);
            assert_eq!(ended, Some(code), "{args:?} {redirection}");
        }
    }
    run(&["scan", &store, "--keys-only"]).code(0).stdout("dunnock\ntit\nwren\n");
}

#[test]
fn keys_and_values_may_begin_with_a_hyphen() {
    let scratch = Scratch::new("hyphens");
    let store = scratch.store();
    for (key, value) in [("k", "-5"), ("-5", "-v"), ("-k", "-"), ("-1.5e3", "-h5")] {
        run(&["put", &store, key, value]).code(0);
        run(&["get", &store, key]).code(0).stdout(format!("{value}\n"));
        run(&["put", &store, key, value, "--format", "json"]).code(0);
        run(&["get", &store, key, "--raw"]).code(0).stdout(value);
    }
    run(&["put", &store, "--", "--key", "--value"]).code(0);
    run(&["get", &store, "--", "--key"]).code(0).stdout("--value\n");
    run(&["scan", &store, "--from", "-5", "--to", "-6", "--keys-only"]).code(0).stdout("-5\n");
    run(&["count", &store, "--prefix", "-1"]).code(0).stdout("1\n");
    run(&["count", &store, "--prefix=--k"]).code(0).stdout("1\n");
    run(&["del", &store, "-k"]).code(0);
    run(&["get", &store, "-k"]).code(3);
    // A mistake in an option is one still.
    run(&["get", &store, "k", "--row"]).code(2);
    run(&["put", &store, "k", "--valeu"]).code(2).stderr_has("unknown option");
    run(&["scan", &store, "--limmit", "3"]).code(2);
    for option in ["--prefix", "--from", "--to"] {
        run(&["scan", &store, option, "--keys-only"])
            .code(2)
            .stderr_has(&format!("'{option} <"))
            .stderr_has("lacks a value")
            .stderr_has("--prefix=--x");
    }
    run(&["del", &store, "--prefix", "--all"]).code(2).stderr_has("lacks a value");
}

/// `nohup` has the program ignore `SIGHUP`, and a shell has what it starts in the background ignore `SIGINT`.
#[cfg(target_os = "linux")]
#[test]
fn a_signal_that_was_ignored_at_the_start_stays_ignored() {
    let scratch = Scratch::new("ignored-signals");
    for (signal, bit) in [("HUP", 1), ("INT", 2), ("TERM", 15)] {
        let store = scratch.path(signal);
        let script = format!("trap '' {signal}; exec \"$0\" load '{store}' -");
        let mut load = std::process::Command::new("sh")
            .args(["-c", &script, env!("CARGO_BIN_EXE_hedgerow")])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = load.stdin.take().unwrap();
        // More than a pipe holds: once it is written, the load reads.
        let text: String = (0..50_000).map(|n| format!("key {n:06}\n")).collect();
        stdin.write_all(text.as_bytes()).unwrap();
        let status = std::fs::read_to_string(format!("/proc/{}/status", load.id())).unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
        let mask = u64::from_str_radix(mask.trim(), 16).unwrap();
        assert_eq!(mask >> (bit - 1) & 1, 1, "SIG{signal}");
        let pid = load.id().to_string();
        let kill = |signal: &str| {
            std::process::Command::new("kill").args([&format!("-{signal}"), &pid]).status().unwrap()
        };
        assert!(kill(signal).success());
        stdin.write_all(b"last\n").unwrap();
        drop(stdin);
        assert!(load.wait().unwrap().success(), "SIG{signal}");
        run(&["count", &store]).code(0).stdout("50001\n");
    }
}

#[test]
fn verbose_shows_events_on_standard_error_and_no_data() {
    let (_scratch, store) = Scratch::loaded("verbose", "robin\tErithacus\n");
    let done = run(&["put", &store, "wren", "Troglodytes", "--verbose"]).code(0).stdout("");
    let shown = done.stderr();
    assert!(shown.contains("hedgerow: open: store opened path="), "{shown}");
    assert!(shown.contains("hedgerow: checkpoint: checkpoint taken number="), "{shown}");
    assert!(!shown.contains("wren") && !shown.contains("Troglodytes"), "{shown}");
    run(&["get", &store, "wren"]).code(0).stdout("Troglodytes\n").silent();
}
