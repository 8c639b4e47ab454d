//! `keyspaces` and `drop`: which names there are, and that one is gone with its records.

use crate::harness::{Scratch, run};

#[test]
fn keyspaces_are_listed_in_order_of_their_names() {
    let scratch = Scratch::new("keyspaces");
    let store = scratch.store();
    for name in ["wrens", "a\tname", "robins"] {
        run(&["put", &store, "who", name, "--keyspace", name]).code(0);
    }
    run(&["keyspaces", &store]).code(0).stdout("a\\tname\nrobins\nwrens\n").silent();
    let json = "{\"keyspace\":\"a\\tname\"}\n{\"keyspace\":\"robins\"}\n{\"keyspace\":\"wrens\"}\n";
    run(&["keyspaces", &store, "--format", "json"]).code(0).stdout(json).silent();
    run(&["keyspaces", &store, "--keyspace", "wrens"]).code(2).stderr_has("whole stores");
    run(&["keyspaces", &scratch.path("nothing")]).code(1);
}

#[test]
fn a_keyspace_that_is_dropped_is_gone_and_the_others_stay() {
    let scratch = Scratch::new("drop");
    let store = scratch.store();
    for name in ["robins", "wrens"] {
        run(&["put", &store, "who", name, "--keyspace", name]).code(0);
    }
    run(&["drop", &store, "terns"]).code(1).stderr_has("its keyspaces: `robins`, `wrens`");
    run(&["drop", &store, "robins"]).code(0).stdout("").silent();
    run(&["keyspaces", &store]).code(0).stdout("wrens\n");
    run(&["get", &store, "who", "--keyspace", "robins"]).code(1);
    run(&["get", &store, "who"]).code(0).stdout("wrens\n");
    run(&["verify", &store]).code(0);
    run(&["drop", &store, "wrens"]).code(0);
    run(&["keyspaces", &store]).code(0).stdout("");
    run(&["drop", &store]).code(2);
    run(&["drop", &scratch.path("nothing"), "a"]).code(1);
}

/// Only `dump` read the names that `keyspaces` prints.
#[test]
fn a_name_is_read_as_it_is_printed() {
    let scratch = Scratch::new("names-escaped");
    let store = scratch.store();
    let (printed, other) = (r"a\\b\tc", r"\x01d");
    run(&["put", &store, "who", "wren", "--keyspace", printed]).code(0);
    run(&["keyspaces", &store]).code(0).stdout(format!("{printed}\n"));
    run(&["get", &store, "who", "--keyspace", printed]).code(0).stdout("wren\n");
    run(&["rename", &store, printed, other]).code(0);
    run(&["keyspaces", &store]).code(0).stdout(format!("{other}\n"));
    run(&["put", &store, "who", "robin", "--keyspace", printed]).code(0);
    run(&["rename", &store, printed, other, "--swap"]).code(0);
    run(&["get", &store, "who", "--keyspace", other]).code(0).stdout("robin\n");
    let dump = run(&["dump", &store, other]).code(0);
    assert!(dump.text().contains(&format!("\nkeyspace {other}\nwho\trobin\n")), "{}", dump.text());
    run(&["get", &store, "who", "--keyspace", r"\x02"])
        .code(1)
        .stderr_has(r"has no keyspace `\x02`; its keyspaces: `\x01d`, `a\\b\tc`");
    for wrong in [r"a\", r"\q", r"\xff"] {
        run(&["get", &store, "who", "--keyspace", wrong]).code(2);
        run(&["drop", &store, wrong]).code(2);
        run(&["rename", &store, wrong, "x"]).code(2);
        run(&["rename", &store, other, wrong]).code(2);
    }
    run(&["drop", &store, other]).code(0);
    run(&["drop", &store, printed]).code(0);
    run(&["keyspaces", &store]).code(0).stdout("");
}
