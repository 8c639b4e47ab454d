//! `pages`: every layout drawn, one page by its id, the picture, and damage.

use crate::harness::{Scratch, run};
use std::fs;

/// A store with inner nodes and leaves of one layout.
fn with_leaves(name: &str, layout: &str) -> (Scratch, String) {
    let scratch = Scratch::new(name);
    let store = scratch.store();
    // Numbers in two bytes; values of one length.
    let text: String = (0..6_000)
        .map(|n| format!("num\\x{:02x}\\x{:02x}\tvalue of {n:04}\n", n / 256, n % 256))
        .collect();
    let file = scratch.file("numbers.txt", text);
    run(&["load", &store, &file, "--escaped", "--leaves", layout]).code(0);
    (scratch, store)
}

#[test]
fn every_layout_is_drawn_byte_by_byte() {
    for (layout, kind, words) in [
        ("comparison", "comparison leaf", &["h heads", "s slots", "of that: keys"][..]),
        ("fingerprint", "fingerprint leaf", &["f fingerprints", "sorted records"]),
        ("semi-dense", "semi-dense leaf", &["p presence bits", "of that: lengths", "base"]),
        ("fully-dense", "fully dense leaf", &["p presence bits", "values by slot", "value bytes"]),
    ] {
        let (_scratch, store) = with_leaves(&format!("pages-{layout}"), layout);
        let done = run(&["pages", &store, "--records", "3"]).code(0).silent();
        let text = done.text();
        assert!(text.contains(": inner node, level 1, 4,096 bytes\n"), "{text}");
        assert!(text.contains(&format!(": {kind}, level 0, 4,096 bytes\n")), "{text}");
        for word in words.iter().chain(&["H header", "upper fence", "value of "]) {
            assert!(text.contains(word), "{word:?} is not in:\n{text}");
        }
        // Sixteen lines of map a page.
        let map = text.lines().filter(|line| line.trim_start().split(' ').count() == 2);
        let letters = map.filter(|line| line.trim_start().split(' ').nth(1).unwrap().len() == 64);
        assert_eq!(letters.count(), 16 * text.matches("one letter for").count(), "{text}");

        let json = run(&["pages", &store, "--format", "json"]).code(0);
        let mut kinds = Vec::new();
        for line in json.text().lines() {
            let page: serde_json::Value = serde_json::from_str(line).unwrap();
            let regions = page["regions"].as_array().unwrap();
            let sum: u64 = regions.iter().map(|region| region["bytes"].as_u64().unwrap()).sum();
            assert_eq!(page["page_bytes"], sum);
            assert_eq!(page["defects"], serde_json::json!([]));
            kinds.push(page["kind"].as_str().unwrap().to_owned());
        }
        assert!(kinds.contains(&kind.to_owned()) && kinds[0] == "inner node", "{kinds:?}");
    }
}

#[test]
fn references_to_values_in_extents_are_drawn_as_what_they_are() {
    let (scratch, store) = Scratch::loaded("pages-extents", "robin\tshort\n");
    let file = scratch.file("value", vec![b'x'; 200_000]);
    run(&["put", &store, "wren", "--file", &file]).code(0);
    let done = run(&["pages", &store]).code(0).silent();
    let text = done.text();
    let words = "wren -> 200,000 bytes in an extent: 1 run from byte ";
    for words in [words, "robin -> short", "r   of that: references to values"] {
        assert!(text.contains(words), "{words:?} is not in:\n{text}");
    }
    let json = run(&["pages", &store, "--format", "json"]).code(0).json();
    let records = json["records"].as_array().unwrap();
    assert_eq!(records[0]["value"], "short");
    let extent = &records[1]["extent"];
    assert_eq!(extent["value_bytes"], 200_000);
    let runs = extent["runs"].as_array().unwrap();
    assert_eq!((runs.len(), runs[0]["bytes"].as_u64()), (1, Some(200_192)));
    // It is there.
    let bytes = fs::read(&store).unwrap();
    let from = runs[0]["offset"].as_u64().unwrap() as usize;
    assert_eq!(bytes[from + 8..from + 1000], [b'x'; 992]);
}

#[test]
fn the_help_says_how_much_is_read() {
    let help = run(&["pages", "--help"]).code(0);
    assert!(help.text().contains("Reads the whole tree of the keyspace"), "{}", help.text());
}

#[test]
fn a_page_is_found_by_its_id() {
    let (scratch, store) = with_leaves("pages-id", "comparison");
    let root = run(&["pages", &store, "--records", "1000", "--format", "json"]).code(0);
    let root: serde_json::Value =
        serde_json::from_str(root.text().lines().next().unwrap()).unwrap();
    let child = root["records"][3]["child"].to_string();
    let upper = root["records"][3]["key"].clone();
    let page = run(&["pages", &store, "--page", &child, "--format", "json"]).code(0).json();
    assert_eq!(page["page"].to_string(), child);
    assert_eq!(page["kind"], "comparison leaf");
    assert_eq!(page["upper_fence"], upper);
    run(&["pages", &store, "--page", "999999"]).code(1).stderr_has("no page 999999");
    run(&["pages", &store, "--page", "0"]).code(1).stderr_has("no page 0");
    let picture = scratch.path("tree.svg");
    run(&["pages", &store, "--page", "4", "--svg", &picture]).code(2);
    run(&["pages", &store, "--page", "x"]).code(2);
}

#[test]
fn the_tree_is_drawn_and_the_store_is_never_drawn_over() {
    let (scratch, store) = with_leaves("pages-svg", "fully-dense");
    let before = fs::read(&store).unwrap();
    let picture = scratch.path("tree.svg");
    run(&["pages", &store, "--svg", &picture]).code(0).stdout("").stderr_has("nodes into");
    let svg = fs::read_to_string(&picture).unwrap();
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    let stat = run(&["stat", &store, "--format", "json"]).code(0).json();
    let pages: u64 =
        stat["levels"].as_array().unwrap().iter().map(|l| l["pages"].as_u64().unwrap()).sum();
    assert_eq!(svg.matches("<title>page ").count() as u64, pages, "{stat:#}");
    assert!(svg.contains("fully dense leaf: "), "{svg}");
    run(&["pages", &store, "--svg", &store]).code(1).stderr_has("is the store");
    assert_eq!(fs::read(&store).unwrap(), before);
    // Nor over its log, which is there only before it is closed.
    let log = format!("{store}-log");
    run(&["pages", &store, "--svg", &log]).code(1).stderr_has("is the log of the store");
    assert!(!fs::exists(&log).unwrap());
    fs::write(&log, "a log").unwrap();
    #[cfg(unix)]
    for (file, words) in [(&store, "is the store"), (&log, "is the log of the store")] {
        let (hard, soft) = (scratch.path("hard.svg"), scratch.path("soft.svg"));
        fs::hard_link(file, &hard).unwrap();
        std::os::unix::fs::symlink(file, &soft).unwrap();
        for link in [hard, soft] {
            run(&["pages", &store, "--svg", &link]).code(1).stderr_has(words);
            fs::remove_file(link).unwrap();
        }
    }
    run(&["pages", &store, "--svg", &log]).code(1).stderr_has("is the log of the store");
    assert_eq!(fs::read(&log).unwrap(), b"a log");
    assert_eq!(fs::read(&store).unwrap(), before);
    fs::remove_file(log).unwrap();
    // Nor over any other file.
    let letter = scratch.file("letter.txt", "a letter");
    let words = "exists; give a new file to --svg";
    for there in [&letter, &picture] {
        run(&["pages", &store, "--svg", there]).code(1).stderr_has(words);
    }
    assert_eq!(fs::read(letter).unwrap(), b"a letter");
    assert_eq!(fs::read_to_string(&picture).unwrap(), svg);
    let nowhere = scratch.path("no/such/directory.svg");
    run(&["pages", &store, "--svg", &nowhere]).code(1).stderr_has("cannot write");
}

#[test]
fn damaged_pages_are_shown_as_such() {
    let (scratch, store) = with_leaves("pages-damage", "comparison");
    let mut bytes = fs::read(&store).unwrap();
    let wanted = b"value of 3000";
    let places: Vec<_> = bytes
        .windows(wanted.len())
        .enumerate()
        .filter_map(|(at, window)| (window == wanted).then_some(at))
        .collect();
    assert!(!places.is_empty());
    places.into_iter().for_each(|at| bytes[at] ^= 1);
    let copy = scratch.file("damaged.hrow", &bytes);
    let done = run(&["pages", &copy]).code(4).stderr_has("found");
    assert!(done.text().contains("DAMAGED: the page cannot be read"), "{}", done.text());
    let sound = done.text().lines().filter(|line| line.contains(" leaf, level 0")).count();
    assert_eq!(sound, 1, "the others are drawn all the same");
    let picture = scratch.path("tree.svg");
    run(&["pages", &copy, "--svg", &picture]).code(4);
    let svg = fs::read_to_string(&picture).unwrap();
    assert!(svg.contains(": damaged</title>") && svg.contains("damaged page: 1<"), "{svg}");
}
