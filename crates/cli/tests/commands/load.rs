//! `load`: what a line means, threads, bad lines, and standard input.

use crate::harness::{Scratch, run, run_with_input};
use std::path::Path;

#[test]
fn a_line_is_a_key_with_a_value_or_with_its_number() {
    let (_scratch, store) = Scratch::loaded("load", "b\tvalue\nc\na\t\nd\tx\ty\n\\q");
    run(&["scan", &store]).code(0).stdout("\\\\q\t5\na\t\nb\tvalue\nc\t2\nd\tx\\ty\n");
}

/// An empty line at the end of a file was a record of the empty key, and a file with spaces for tabs was loaded without a word.
#[test]
fn blank_lines_are_skipped_and_lines_without_a_tab_are_counted() {
    let scratch = Scratch::new("load-blank");
    let store = scratch.store();
    let file = scratch.file("lines.txt", "\nb\tvalue\n\nc d\n\tof the empty key\n\n");
    run(&["load", &store, &file])
        .code(0)
        .stderr_has("loaded 3 records in ")
        .stderr_has("\n1 line had no tab; its value is the line number\n");
    run(&["scan", &store]).code(0).stdout("\\e\tof the empty key\nb\tvalue\nc d\t4\n");
    let done = run_with_input(&["load", &store, "-", "--format", "json"], b"a\n\nb\nc\td\n");
    let json = done.code(0).silent().json();
    assert_eq!((&json["records"], &json["without_tab"]), (&3.into(), &2.into()));
    let all = scratch.file("tabs.txt", "a\tb\n");
    let done = run(&["load", &store, &all]).code(0);
    assert!(!done.stderr().contains("tab"), "{}", done.stderr());
}

#[test]
fn every_number_of_threads_gives_the_same_store() {
    let scratch = Scratch::new("load-threads");
    // Each key comes four times; the last time counts.
    let text: String =
        (0..20_000u32).map(|n| format!("{}\n", n.wrapping_mul(7919) % 5_000)).collect();
    let file = scratch.file("keys.txt", &text);
    let mut expected: Vec<(String, usize)> = Vec::new();
    for (line, key) in text.lines().enumerate() {
        expected.push((key.to_owned(), line + 1));
    }
    let last: std::collections::BTreeMap<_, _> = expected.into_iter().collect();
    let expected: String = last.iter().map(|(key, line)| format!("{key}\t{line}\n")).collect();
    for threads in ["1", "2", "8"] {
        let store = scratch.path(&format!("{threads}.hrow"));
        run(&["load", &store, &file, "--threads", threads, "--memory-limit", "16MiB"])
            .code(0)
            .stdout("")
            .stderr_has("loaded 20,000 records");
        run(&["scan", &store]).code(0).stdout(&expected);
    }
}

#[test]
fn standard_input_is_a_dash_and_may_be_empty_or_closed() {
    let scratch = Scratch::new("load-stdin");
    let store = scratch.store();
    run_with_input(&["load", &store, "-"], b"one\ntwo").code(0).stderr_has("loaded 2 records");
    run_with_input(&["load", &store, "-"], b"").code(0).stderr_has("loaded 0 records");
    run(&["load", &store, "-"]).code(0).stderr_has("loaded 0 records");
    run(&["scan", &store, "--keys-only"]).code(0).stdout("one\ntwo\n");
    let empty = scratch.path("empty.hrow");
    run_with_input(&["load", &empty, "-"], b"").code(0);
    run(&["count", &empty]).code(0).stdout("0\n");
}

#[test]
fn a_bad_line_is_named_and_what_was_written_stays() {
    let scratch = Scratch::new("load-bad");
    let store = scratch.store();
    let input = format!("first\n{}\nlast\n", "x".repeat(100_000));
    let file = scratch.file("long.txt", input);
    run(&["load", &store, &file, "--threads", "1"])
        .code(1)
        .stderr_has("cannot write line 2")
        .stderr_has("stored 1 record before");
    run(&["scan", &store]).code(0).stdout("first\t1\n");
    let escapes = scratch.file("escapes.txt", "good\t\\x41\nbad\\q\n");
    run(&["load", &store, &escapes, "--escaped", "--threads", "1"])
        .code(1)
        .stderr_has("line 2: unknown escape");
    run(&["get", &store, "good"]).code(0).stdout("A\n");
}

#[test]
fn an_input_that_cannot_be_read_leaves_no_store_behind() {
    let scratch = Scratch::new("load-missing");
    let store = scratch.store();
    let missing = scratch.path("missing.txt");
    run(&["load", &store, &missing]).code(1).stderr_has("missing.txt: there is no such file");
    assert!(!Path::new(&store).exists());
    run(&["load", &store, &missing, "--threads", "0"]).code(2).stderr_has("--threads");
}

#[test]
fn the_layout_of_leaves_is_the_one_that_was_asked_for() {
    let scratch = Scratch::new("load-leaves");
    // Values of several lengths: no fully dense leaf takes them.
    let numbers: String = (0..4_000_usize)
        .map(|n| format!("n\\x{:02x}\\x{:02x}\t{}\n", n / 256, n % 256, "v".repeat(n % 7)))
        .collect();
    let file = scratch.file("numbers.txt", &numbers);
    for (asked, found) in [
        ("comparison", "comparison"),
        ("fingerprint", "fingerprint"),
        ("semi-dense", "semi-dense"),
        ("fully-dense", "comparison"),
    ] {
        let store = scratch.path(&format!("{asked}.hrow"));
        run(&["load", &store, &file, "--escaped", "--leaves", asked]).code(0);
        let layouts = run(&["stat", &store, "--format", "json"]).code(0).json();
        // A tree begins with a leaf of another layout, which is converted when it is full.
        let records = layouts["layouts"][found]["records"].as_u64().unwrap();
        assert!(records > 3_000, "{asked}: {:#}", layouts["layouts"]);
        let sound = run(&["verify", &store]).code(0);
        assert!(sound.text().starts_with("sound"));
    }
    let store = scratch.path("none.hrow");
    run(&["load", &store, &file, "--leaves", "oak"]).code(2).stderr_has("fully-dense");
    assert!(!Path::new(&store).exists());
}

#[test]
fn json_tells_the_count() {
    let scratch = Scratch::new("load-json");
    let store = scratch.store();
    let done = run_with_input(&["load", &store, "-", "--format", "json"], b"a\nb\n");
    assert_eq!(done.code(0).silent().json()["records"], 2);
}

/// Lines of one key go to one thread, however the key is written: the last one wins.
#[test]
fn of_one_key_in_two_spellings_the_last_line_wins() {
    let scratch = Scratch::new("load-spellings");
    let mut text = String::new();
    for n in 0..2000 {
        // The same key: `A` is `\x41`.
        text.push_str(&format!("A{n}\tfirst\n\\x41{n}\tlast\n"));
    }
    let file = scratch.file("lines.txt", text);
    for threads in ["2", "8"] {
        let store = scratch.path(threads);
        run(&["load", &store, &file, "--escaped", "--threads", threads]).code(0);
        run(&["count", &store]).code(0).stdout("2000\n");
        let expected: String = {
            let mut keys: Vec<String> = (0..2000).map(|n| format!("A{n}\tlast\n")).collect();
            keys.sort();
            keys.concat()
        };
        run(&["scan", &store]).code(0).stdout(expected);
    }
}

#[test]
fn a_byte_order_mark_is_no_part_of_a_dump_or_of_the_first_key() {
    let (scratch, store) = Scratch::loaded("load-mark", "robin\tErithacus\nwren\tTroglodytes\n");
    let dump = scratch.path("birds.dump");
    run(&["dump", &store, "--out", &dump]).code(0);
    let mut marked = b"\xef\xbb\xbf".to_vec();
    marked.extend(std::fs::read(&dump).unwrap());
    let (again, lines) = (scratch.path("again.hrow"), scratch.path("lines.hrow"));
    run(&["load", &again, &scratch.file("marked.dump", marked)]).code(0);
    run(&["scan", &again]).code(0).stdout("robin\tErithacus\nwren\tTroglodytes\n");
    run(&["load", &lines, &scratch.file("marked.txt", "\u{feff}robin\t1\nwren\t2\n")]).code(0);
    run(&["scan", &lines]).code(0).stdout("robin\t1\nwren\t2\n");
    let wide = scratch.file("wide.txt", b"\xff\xfer\0\n\0");
    let none = scratch.path("none.hrow");
    run(&["load", &none, &wide]).code(1).stderr_has("UTF-16");
    assert!(!std::path::Path::new(&none).exists());
}

/// No thread has room for a stack as large as that.
#[cfg(target_os = "linux")]
#[test]
fn a_thread_that_cannot_be_started_is_an_error_and_no_panic() {
    let scratch = Scratch::new("load-no-threads");
    let (file, store) = (scratch.file("lines.txt", "robin\nwren\n"), scratch.store());
    let args = ["load", &store, &file, "--threads", "4"];
    let child = crate::harness::command(&args)
        .env("RUST_MIN_STACK", (1_u64 << 46).to_string())
        .spawn()
        .unwrap();
    crate::harness::wait(&args, child).code(1).stderr_has("ing thread: ");
    assert!(!std::path::Path::new(&store).exists());
    run(&args).code(0);
    run(&["count", &store]).code(0).stdout("2\n");
}

#[test]
fn a_store_that_is_created_has_the_pages_that_were_asked_for_and_keeps_them() {
    let scratch = Scratch::new("page-bytes");
    let (store, other) = (scratch.path("birds.hrow"), scratch.path("other.hrow"));
    run_with_input(&["load", "--page-bytes", "16KiB", &store, "-"], b"wren\tT. troglodytes\n")
        .code(0);
    run(&["put", "--page-bytes", "8KiB", &other, "wren", "T. troglodytes"]).code(0);
    for (store, size) in [(&store, "16.0 KiB"), (&other, "8.0 KiB")] {
        let shown = run(&["stat", store]).code(0);
        assert!(shown.text().contains(&format!("page size  {size}")), "{}", shown.text());
    }
    run(&["put", &store, "robin", "E. rubecula"]).code(0);
    for (bytes, store) in [("8KiB", &store), ("5000", &scratch.path("none.hrow"))] {
        run(&["put", "--page-bytes", bytes, store, "tit", "P. major"]).code(2);
    }
    run(&["get", &store, "tit"]).code(3);
}

/// Its pages became keys, and the load ended with exit code 0.
#[test]
fn a_store_is_no_text_to_load() {
    let (scratch, store) = Scratch::loaded("load-store", "robin\tErithacus\nwren\tTroglodytes\n");
    let (new, backup) = (scratch.path("new.hrow"), scratch.path("birds.backup"));
    run(&["backup", &store, &backup]).code(0);
    let bytes = std::fs::read(&store).unwrap();
    for options in [&[][..], &["--lines"], &["--escaped"]] {
        for file in [&store, &backup] {
            run(&[&["load", &new, file], options].concat())
                .code(1)
                .stderr_has("is a store, and load takes text or a dump")
                .stderr_has("hedgerow dump");
        }
        run_with_input(&[&["load", &new, "-"], options].concat(), &bytes)
            .code(1)
            .stderr_has("standard input is a store");
        assert!(!Path::new(&new).exists());
        run(&[&["load", &store, &store], options].concat()).code(2).stderr_has("the store");
    }
    assert!(std::fs::read(&store).unwrap() == bytes);
    run(&["count", &store]).code(0).stdout("2\n");
}

/// Text of Windows had `\r` at the end of each value, and a blank line was the key `\r`.
#[test]
fn of_lines_that_end_in_cr_lf_the_cr_is_left_off() {
    let scratch = Scratch::new("load-crlf");
    let store = scratch.store();
    let text = "robin\tErithacus\r\n\r\nwren\r\nrook\tCorvus\\r\r\n";
    let file = scratch.file("lines.txt", text);
    run(&["load", &store, &file, "--escaped"])
        .code(0)
        .stderr_has("loaded 3 records")
        .stderr_has("\nthe lines ended in CR LF; the CR is no part of keys and values\n");
    run(&["scan", &store]).code(0).stdout("robin\tErithacus\nrook\tCorvus\\r\nwren\t3\n");
    let plain = scratch.path("plain.hrow");
    let json = run(&["load", &plain, &file, "--format", "json"]).code(0).silent().json();
    assert_eq!((&json["records"], &json["crlf"]), (&3.into(), &true.into()));
    run(&["scan", &plain]).code(0).stdout("robin\tErithacus\nrook\tCorvus\\\\r\nwren\t3\n");
    // The first line decides.
    let mixed = scratch.path("mixed.hrow");
    let done = run_with_input(&["load", &mixed, "-"], b"robin\t1\nwren\t2\r\n").code(0);
    assert!(!done.stderr().contains("CR LF"), "{}", done.stderr());
    run(&["scan", &mixed]).code(0).stdout("robin\t1\nwren\t2\\r\n");
}
