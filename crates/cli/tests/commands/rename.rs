//! `rename`: names change, records do not, and what cannot be renamed is said.

use crate::harness::{Scratch, run};

#[test]
fn a_keyspace_gets_another_name_or_that_of_another() {
    let scratch = Scratch::new("rename");
    let store = scratch.store();
    for name in ["robins", "wrens"] {
        run(&["put", &store, "who", name, "--keyspace", name]).code(0);
    }
    run(&["rename", &store, "robins", "terns"]).code(0).stdout("").silent();
    run(&["get", &store, "who", "--keyspace", "terns"]).code(0).stdout("robins\n");
    run(&["rename", &store, "terns", "wrens", "--swap"]).code(0).stdout("").silent();
    run(&["get", &store, "who", "--keyspace", "terns"]).code(0).stdout("wrens\n");
    run(&["get", &store, "who", "--keyspace", "wrens"]).code(0).stdout("robins\n");
    run(&["rename", &store, "terns", "wrens"])
        .code(1)
        .stderr_has("there is a keyspace `wrens` already");
    for args in
        [&["gulls", "terns"][..], &["gulls", "terns", "--swap"], &["terns", "gulls", "--swap"]]
    {
        run(&[&["rename", &store], args].concat())
            .code(1)
            .stderr_has("has no keyspace `gulls`; its keyspaces: `terns`, `wrens`");
    }
    run(&["rename", &store, "terns", ""]).code(2).stderr_has("1 to 255 bytes");
    run(&["rename", &store, "terns", "x", "--keyspace", "y"]).code(2).stderr_has("whole stores");
    run(&["rename", &store, "terns"]).code(2);
    run(&["get", &store, "who", "--keyspace", "terns"]).code(0).stdout("wrens\n");
    run(&["verify", &store]).code(0);
    run(&["rename", &scratch.path("nothing"), "a", "b"]).code(1);
}
