//! `count`: of everything, of a part, of nothing.

use crate::harness::{Scratch, run, run_with_input};

#[test]
fn the_count_is_exact() {
    let text: String = (0..5_000).map(|n| format!("{n:05}\n")).collect();
    let (_scratch, store) = Scratch::loaded("count", text);
    run(&["count", &store]).code(0).stdout("5000\n").silent();
    run(&["count", &store, "--prefix", "012"]).code(0).stdout("100\n");
    run(&["count", &store, "--from", "04990"]).code(0).stdout("10\n");
    run(&["count", &store, "--from", "2", "--to", "1"]).code(0).stdout("0\n");
    let json = run(&["count", &store, "--format", "json"]).code(0).json();
    assert_eq!(json, serde_json::json!({ "count": 5000 }));
}

/// What is in the file of a large value is of no matter to who asks for keys.
#[test]
fn large_values_are_neither_read_for_a_count_nor_for_keys() {
    let scratch = Scratch::new("count-large");
    let store = scratch.store();
    run(&["put", &store, "before", "short"]).code(0);
    let large = vec![b'x'; 1 << 20];
    run_with_input(&["put", &store, "large", "--file", "-"], &large).code(0);
    let mut bytes = std::fs::read(&store).unwrap();
    let at = bytes.windows(4096).rposition(|window| window.iter().all(|&byte| byte == b'x'));
    bytes[at.unwrap()] = b'y';
    std::fs::write(&store, bytes).unwrap();
    run(&["get", &store, "large"]).code(4);
    run(&["count", &store]).code(0).stdout("2\n").silent();
    run(&["scan", &store, "--keys-only"]).code(0).stdout("before\nlarge\n").silent();
    run(&["scan", &store, "--keys-only", "--reverse"]).code(0).stdout("large\nbefore\n").silent();
    // Of its value comes what was read; that this is not all `load` can see.
    let cut = run(&["scan", &store]).code(4);
    assert!(cut.text().starts_with("before\tshort\nlarge\txxx") && cut.text().ends_with("x\\\n"));
    let copy = scratch.path("copy.hrow");
    run_with_input(&["load", &copy, "-", "--escaped"], cut.text().as_bytes())
        .code(1)
        .stderr_has("line 2: a single backslash at the end");
    let json = run(&["get", &store, "large", "--format", "json"]).code(4);
    assert!(
        json.text().starts_with("{\"key\":\"large\",\"value\":\"xxx") && json.text().ends_with('x')
    );
}
