//! `get`: the value, bytes and all, or exit code 3.

use crate::harness::{Scratch, run};

#[test]
fn the_value_is_printed_in_each_form() {
    let (_scratch, store) = Scratch::loaded("get", "apple\tred\npear\tgreen\n");
    run(&["get", &store, "pear"]).code(0).stdout("green\n").silent();
    run(&["get", &store, "pear", "--raw"]).code(0).stdout("green").silent();
    let json = run(&["get", &store, "pear", "--format", "json"]).code(0).json();
    assert_eq!(json, serde_json::json!({ "key": "pear", "value": "green" }));
}

#[test]
fn an_absent_key_is_exit_code_3_and_nothing_on_standard_output() {
    let (_scratch, store) = Scratch::loaded("get-absent", "apple\tred\n");
    let words = "key not found in keyspace `default`\n";
    run(&["get", &store, "appl"]).code(3).stdout("").stderr_has(words);
    run(&["get", &store, "appl", "--raw"]).code(3).stdout("").stderr_has(words);
    run(&["get", &store, ""]).code(3).stdout("");
    run(&["get", &store, "apple", "--keyspace", "fruit"]).code(1).stderr_has("`default`");
}

#[test]
fn binary_keys_and_values_go_both_ways() {
    let scratch = Scratch::new("get-binary");
    let store = scratch.store();
    run(&["put", &store, r"\x00\xff\\a\tb", r"\x80\n"]).code(0).silent();
    run(&["get", &store, r"\x00\xFF\\a\x09b"]).code(0).stdout("\\x80\\n\n");
    run(&["get", &store, r"\x00\xff\\a\tb", "--raw"]).code(0).stdout(b"\x80\n");
    run(&["get", &store, r"\q"]).code(2).stderr_has("unknown escape `\\q`");
}

#[test]
fn a_long_value_has_the_text_of_its_bytes_in_each_form() {
    let scratch = Scratch::new("get-long");
    let store = scratch.store();
    // Every character with two bytes lies across an even place, and so across the end of each piece.
    let song = format!("a{}\\", "\u{f6}".repeat(100_000));
    let text = format!("a{}\\\\", "\u{f6}".repeat(100_000));
    let key = "k".repeat(3_000);
    for key in ["wren", &key] {
        run(&["put", &store, key, "--file", &scratch.file("song", &song)]).code(0);
        run(&["get", &store, key]).code(0).stdout(format!("{text}\n")).silent();
        run(&["get", &store, key, "--raw"]).code(0).stdout(&song).silent();
        let json = run(&["get", &store, key, "--format", "json"]).code(0).silent();
        assert_eq!(json.json(), serde_json::json!({ "key": key, "value": text }));
        assert!(json.text().ends_with("\"}\n"));
    }
    let both = format!("{key}\t{text}\nwren\t{text}\n");
    run(&["scan", &store]).code(0).stdout(&both).silent();
    run(&["scan", &store, "--limit", "1"]).code(0).stdout(format!("{key}\t{text}\n"));
    let reversed = format!("wren\t{text}\n{key}\t{text}\n");
    run(&["scan", &store, "--reverse"]).code(0).stdout(reversed).silent();
    let json = run(&["scan", &store, "--prefix", "w", "--format", "json"]).code(0).json();
    assert_eq!(json, serde_json::json!({ "key": "wren", "value": text }));
}

/// It was read whole, and became a text of four times its length.
#[cfg(target_os = "linux")]
#[test]
fn a_value_may_be_larger_than_memory() {
    let scratch = Scratch::new("get-memory");
    let store = scratch.store();
    let song = scratch.file("song", vec![1; 48 << 20]);
    run(&["put", &store, "song", "--file", &song]).code(0);
    for how in [&["get", &store, "song"][..], &["scan", &store], &["scan", &store, "--reverse"]] {
        for format in ["human", "json"] {
            let script = "ulimit -v 200000; exec \"$0\" \"$@\" >/dev/null";
            let output = std::process::Command::new("sh")
                .args(["-c", script, env!("CARGO_BIN_EXE_hedgerow")])
                .args(how)
                .args(["--memory-limit", "8MiB", "--format", format])
                .output()
                .unwrap();
            let words = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{how:?} {format}: {} {words}", output.status);
        }
    }
}
