//! `repair`: what is lost is named by its keys, and the rest is in a new store.

use crate::harness::{Scratch, run};
use std::fs;
use std::path::Path;

fn loaded(name: &str) -> (Scratch, String) {
    let text: String = (0..5_000).map(|n| format!("key {n:05}\\tx\tvalue of {n}\n")).collect();
    Scratch::loaded(name, text)
}

#[test]
fn a_sound_store_is_copied() {
    let (scratch, store) = loaded("repair-sound");
    let new = scratch.path("new.hrow");
    let done = run(&["repair", &store, &new]).code(0).silent();
    assert!(done.text().starts_with("salvaged: 5,000 records"), "{}", done.text());
    let all = run(&["scan", &store]).code(0).text().to_owned();
    run(&["scan", &new]).code(0).stdout(all);
    run(&["repair", &store, &new]).code(1).stdout("").stderr_has("exists already");
}

#[test]
fn a_damaged_page_is_named_with_its_keys_and_the_rest_is_there() {
    let (scratch, store) = loaded("repair-damage");
    let mut bytes = fs::read(&store).unwrap();
    let wanted = b"value of 2500";
    let places: Vec<usize> =
        (0..bytes.len() - 13).filter(|&at| &bytes[at..at + 13] == wanted).collect();
    assert!(!places.is_empty());
    places.into_iter().for_each(|at| bytes[at] ^= 1);
    let damaged = scratch.file("damaged.hrow", &bytes);
    let new = scratch.path("new.hrow");
    // A neighbour that was split off may have the same bytes where nothing is any more: then it is damaged, too.
    let done = run(&["repair", &damaged, &new]).code(4).stderr_has("found");
    for line in done.text().lines().filter(|line| line.starts_with("keyspace")) {
        assert!(line.starts_with("keyspace default: ") && line.contains("page "), "{line}");
        assert!(line.contains("it held keys above `key 02"), "{line}");
    }
    run(&["verify", &new]).code(0);
    run(&["get", &new, "key 02500\\\\tx"]).code(3);
    run(&["get", &new, "key 00001\\\\tx"]).code(0).stdout("value of 1\n");
    let again = scratch.path("again.hrow");
    let json = run(&["repair", &damaged, &again, "--format", "json"]).code(4).json();
    let left: u64 = run(&["count", &new]).code(0).text().trim().parse().unwrap();
    assert_eq!(json["records"], left);
    assert!((4_000..5_000).contains(&left), "{left}");
    let damaged = json["damaged"].as_array().unwrap();
    let end = |lost: &serde_json::Value, end: &str| lost["keys"][end].as_str().unwrap().to_owned();
    let holds = |lost: &&serde_json::Value| {
        end(lost, "above").as_str() < "key 02500\\tx" && end(lost, "up_to").as_str() >= "key 02500"
    };
    let lost = damaged.iter().find(holds).unwrap_or_else(|| panic!("{damaged:#?}"));
    assert_eq!(
        (&lost["keyspace"], &lost["keys"]["inner_node"]),
        (&"default".into(), &false.into())
    );
}

#[test]
fn what_is_no_store_is_not_repaired() {
    let scratch = Scratch::new("repair-text");
    let (text, new) =
        (scratch.file("a.txt", "just a text\n".repeat(9_000)), scratch.path("new.hrow"));
    run(&["repair", &text, &new]).code(1).stdout("").stderr_has("cannot repair");
    run(&["repair", &scratch.store(), &new]).code(1).stdout("").stderr_has("no such file");
    assert!(!Path::new(&new).exists());
}
