//! `scan`: order, bounds, prefixes, limits, forms, and a way back through `load --escaped`.

use crate::harness::{Scratch, run, run_with_input};

const FRUIT: &str = "apple\tred\nbanana\tyellow\nblueberry\tblue\ncherry\tred\n";

#[test]
fn records_come_in_key_order_both_ways() {
    let shuffled = "cherry\tred\napple\tred\nblueberry\tblue\nbanana\tyellow\n";
    let (_scratch, store) = Scratch::loaded("scan", shuffled);
    run(&["scan", &store]).code(0).stdout(FRUIT).silent();
    let reversed: String = FRUIT.lines().rev().map(|line| format!("{line}\n")).collect();
    run(&["scan", &store, "--reverse"]).code(0).stdout(reversed);
    run(&["scan", &store, "--reverse", "--limit", "1"]).code(0).stdout("cherry\tred\n");
    run(&["scan", &store, "--limit", "0"]).code(0).stdout("");
}

#[test]
fn bounds_and_prefixes_select() {
    let (_scratch, store) = Scratch::loaded("scan-bounds", FRUIT);
    let keys = |args: &[&str]| {
        let args = [&["scan", &store, "--keys-only"], args].concat();
        run(&args).code(0).text().lines().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(keys(&["--from", "banana", "--to", "cherry"]), "banana blueberry");
    assert_eq!(keys(&["--from", "b"]), "banana blueberry cherry");
    assert_eq!(keys(&["--to", "b"]), "apple");
    assert_eq!(keys(&["--prefix", "b"]), "banana blueberry");
    assert_eq!(keys(&["--prefix", "b", "--from", "bb"]), "blueberry");
    assert_eq!(keys(&["--prefix", "b", "--to", "bb", "--reverse"]), "banana");
    assert_eq!(keys(&["--prefix", "b", "--from", "a", "--to", "z"]), "banana blueberry");
    assert_eq!(keys(&["--prefix", ""]), "apple banana blueberry cherry");
    assert_eq!(keys(&["--prefix", "bananas"]), "");
    assert_eq!(keys(&["--from", "z", "--to", "a"]), "");
    assert_eq!(keys(&["--from", "b", "--to", "b"]), "");
}

#[test]
fn json_is_one_object_a_line() {
    let (_scratch, store) = Scratch::loaded("scan-json", FRUIT);
    let done = run(&["scan", &store, "--format", "json", "--limit", "1"]).code(0);
    assert_eq!(done.text(), "{\"key\":\"apple\",\"value\":\"red\"}\n");
    let done = run(&["scan", &store, "--format", "json", "--limit", "1", "--keys-only"]).code(0);
    assert_eq!(done.text(), "{\"key\":\"apple\"}\n");
}

#[test]
fn what_scan_prints_load_reads_back() {
    let scratch = Scratch::new("scan-back");
    let store = scratch.store();
    for (key, value) in [(r"\x00\xff", r"\n\t\\"), ("J\u{f6}rg", r"\r"), (r"a\tb", "")] {
        run(&["put", &store, key, value]).code(0);
    }
    let scanned = run(&["scan", &store]).code(0);
    assert_eq!(scanned.text().lines().count(), 3);
    let copy = scratch.path("copy.hrow");
    run_with_input(&["load", &copy, "-", "--escaped"], scanned.text().as_bytes()).code(0);
    run(&["scan", &copy]).code(0).stdout(scanned.text());
}

#[test]
fn a_line_that_is_too_long_to_read_back_says_what_does_it() {
    let scratch = Scratch::new("scan-long-line");
    let (store, copy) = (scratch.store(), scratch.path("copy.hrow"));
    run(&["put", &store, "song", "--file", &scratch.file("song", vec![b'x'; 2 << 20])]).code(0);
    let scanned = run(&["scan", &store]).code(0);
    run_with_input(&["load", &copy, "-", "--escaped"], scanned.text().as_bytes())
        .code(1)
        .stderr_has("line 1 of standard input is longer than 1 MiB; put a long value with `hedgerow put --file`")
        .stderr_has("`hedgerow dump`");
    let dumped = run(&["dump", &store]).code(0);
    run_with_input(&["load", &copy, "-"], dumped.text().as_bytes()).code(0);
    assert_eq!(run(&["scan", &copy]).code(0).text(), scanned.text());
}

#[test]
fn an_empty_key_can_be_seen_and_is_read_back() {
    let scratch = Scratch::new("scan-empty-key");
    let (store, copy) = (scratch.store(), scratch.path("copy.hrow"));
    run(&["put", &store, "", "of nothing"]).code(0);
    run(&["put", &store, "\\\\e", "of a backslash and an e"]).code(0);
    let scanned = "\\e\tof nothing\n\\\\e\tof a backslash and an e\n";
    run(&["scan", &store]).code(0).stdout(scanned);
    run_with_input(&["load", &copy, "-", "--escaped"], scanned.as_bytes()).code(0);
    run(&["scan", &copy]).code(0).stdout(scanned);
    run(&["get", &store, "\\e"]).code(0).stdout("of nothing\n");
}

#[test]
fn names_of_keyspaces_reach_no_terminal_as_they_are() {
    let scratch = Scratch::new("scan-names");
    let store = scratch.store();
    run(&["put", &store, "--keyspace", "red\u{1b}[31m", "k", "v"]).code(0);
    let shown = "red\\x1b[31m";
    run(&["scan", &store, "--keyspace", "\u{1b}"]).code(1).stderr_has(shown).stderr_has("`\\x1b`");
    let stat = run(&["stat", &store]).code(0);
    assert!(stat.text().contains(shown) && !stat.text().contains('\u{1b}'), "{}", stat.text());
}
