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
