//! `count`: of everything, of a part, of nothing.

use crate::harness::{Scratch, run};

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
