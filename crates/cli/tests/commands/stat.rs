//! `stat`: figures that agree with what was loaded, and with each other.

use crate::harness::{Scratch, run};

#[test]
fn the_figures_add_up() {
    let text: String = (0..5_000).map(|n| format!("key {n:05}\tvalue of {n}\n")).collect();
    let (_scratch, store) = Scratch::loaded("stat", text);
    let json = run(&["stat", &store, "--format", "json"]).code(0).silent().json();
    let number = |pointer: &str| json.pointer(pointer).and_then(|n| n.as_u64()).expect(pointer);
    assert_eq!(number("/records"), 5_000);
    let levels = json["levels"].as_array().unwrap();
    assert!(levels.len() >= 2, "{json:#}");
    assert_eq!(number("/height"), levels.len() as u64);
    for level in levels {
        let by_fill: u64 =
            level["pages_by_fill"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).sum();
        assert_eq!(level["pages"], by_fill);
        let fill = level["fill"].as_f64().unwrap();
        assert!(fill > 0.0 && fill <= 1.0, "{level:#}");
    }
    assert_eq!(levels[0]["keys"], 5_000);
    assert_eq!(levels[levels.len() - 1]["pages"], 1);
    let parts = ["header", "used", "free", "quarantined", "being_returned"];
    let sum: u64 = parts.iter().map(|part| number(&format!("/space/{part}_bytes"))).sum();
    assert_eq!(sum, number("/space/file_bytes"), "{json:#}");
    assert_eq!(sum, std::fs::metadata(&store).unwrap().len());
    assert!(number("/memory/set_aside_bytes") <= number("/memory/limit_bytes"));
    assert!(number("/cache/page_reads") >= number("/levels/0/pages"));
    // A walk of a store that was just opened reads each page once, and finds none of them in memory
    // but what the look for the keyspace may have left there.
    assert!(number("/cache/pages_visited") > number("/levels/0/pages"));
    assert!(number("/cache/hits") <= 2, "{json:#}");
}

#[test]
fn leaves_are_counted_by_layout_in_every_keyspace() {
    let words: String = (0..3_000).map(|n| format!("a key of many bytes {n:04}\tv\n")).collect();
    // Escapes: eight-byte numbers, big-endian, with values of one length.
    let number = |n: u32| n.to_be_bytes().map(|byte| format!("\\x{byte:02x}")).concat();
    let numbers: String = (0..5_000).map(|n| format!("{}\tvalue{n:04}\n", number(n))).collect();
    let (scratch, store) = Scratch::loaded("stat-layouts", words);
    let file = scratch.file("numbers.txt", numbers);
    let load = ["load", &store, &file, "--escaped", "--keyspace", "numbers", "--format", "json"];
    let loaded = run(&load).code(0).json();
    assert!(loaded["adaptation"]["by_splits"].as_u64().unwrap() > 0, "{loaded:#}");

    let json = run(&["stat", &store, "--format", "json"]).code(0).json();
    let by_keyspace = json["layouts_by_keyspace"].as_object().unwrap();
    let sum = |of: &serde_json::Value, what: &str| {
        let layouts = of.as_object().unwrap().values();
        layouts.map(|layout| layout[what].as_u64().unwrap()).sum::<u64>()
    };
    assert_eq!(by_keyspace["default"], json["layouts"]);
    assert_eq!(json["layouts"]["fully-dense"]["leaves"], 0);
    assert_eq!(sum(&by_keyspace["numbers"], "records"), 5_000);
    // Leaves that were split off and are not full yet have not become dense.
    assert!(by_keyspace["numbers"]["fully-dense"]["records"].as_u64().unwrap() > 4_000);
    assert_eq!(sum(&by_keyspace["default"], "records"), 3_000);
    assert_eq!(sum(&json["layouts"], "leaves"), json["levels"][0]["pages"].as_u64().unwrap());

    let human = run(&["stat", &store]).code(0);
    let mut rows = human.text().lines().filter(|line| line.ends_with("  numbers"));
    assert!(rows.any(|row| row.starts_with("fully dense ")), "{}", human.text());
    assert!(human.text().lines().any(|line| line.ends_with("  default")), "{}", human.text());
}

#[test]
fn bytes_of_values_are_counted_by_form_in_every_keyspace() {
    let (scratch, store) = Scratch::loaded("stat-values", "wren\tshort\nrobin\tsong\n");
    let put = |key: &str, len: usize, keyspace: &str| {
        let file = scratch.file("value", vec![b'x'; len]);
        run(&["put", &store, key, "--file", &file, "--keyspace", keyspace]).code(0);
    };
    put("large", 200_000, "default");
    put("page", 5_000, "default");
    put("leaf", 1_900, "songs");
    put("song", 2_000, "songs");
    let json = run(&["stat", &store, "--format", "json"]).code(0).json();
    let by_keyspace = &json["values_by_keyspace"];
    assert_eq!(json["values"], by_keyspace["default"]);
    let number = |pointer: &str| by_keyspace.pointer(pointer).and_then(|n| n.as_u64()).unwrap();
    assert_eq!(number("/default/in_leaves/values"), 2);
    assert_eq!(number("/default/in_leaves/bytes"), 9);
    assert_eq!(number("/default/in_extents/values"), 2);
    assert_eq!(number("/default/in_extents/bytes"), 205_000);
    // Each chunk of 32 KiB has a checksum, and the last ends with a unit of 512 bytes.
    assert_eq!(number("/default/in_extents/file_bytes"), 200_192 + 5_120);
    assert_eq!(number("/songs/in_leaves/bytes"), 1_900);
    assert_eq!(number("/songs/in_extents/file_bytes"), 2_048);
    assert_eq!(number("/songs/damaged/values"), 0);
    let human = run(&["stat", &store]).code(0);
    let row = |form: &str, name: &str| {
        let is_it = |line: &&str| line.starts_with(form) && line.ends_with(name);
        let found = human.text().lines().find(is_it).map(str::to_owned);
        found.unwrap_or_else(|| panic!("no row {form} of {name}:\n{}", human.text()))
    };
    assert!(row("in extents ", "  default").contains(" 2 "));
    assert!(row("in leaves ", "  songs").contains(" 1 "));
    assert!(!human.text().contains("damaged "), "{}", human.text());
}

/// Of a store with two keyspaces and no `default`, and of one without any, it said nothing but that there is no `default`.
#[test]
fn a_store_without_default_or_without_keyspaces_has_figures_too() {
    let scratch = Scratch::new("stat-keyspaces");
    let store = scratch.store();
    for name in ["wrens", "robins"] {
        run(&["put", &store, "who", name, "--keyspace", name]).code(0);
    }
    let json = run(&["stat", &store, "--format", "json"]).code(0).silent().json();
    assert_eq!(json["keyspace"], "robins");
    assert_eq!(json["keyspaces"], serde_json::json!(["robins", "wrens"]));
    assert_eq!(json["values_by_keyspace"]["wrens"]["in_leaves"]["bytes"], 5);
    let human = run(&["stat", &store]).code(0).silent();
    assert!(human.text().starts_with("keyspace   robins (of 2: robins, wrens)\n"));
    let json = run(&["stat", &store, "--format", "json", "--keyspace", "wrens"]).code(0).json();
    assert_eq!(json["keyspace"], "wrens");
    run(&["stat", &store, "--keyspace", "terns"]).code(1).stderr_has("no keyspace `terns`");
    for name in ["wrens", "robins"] {
        run(&["drop", &store, name]).code(0);
    }
    let json = run(&["stat", &store, "--format", "json"]).code(0).silent().json();
    assert_eq!(
        (&json["keyspace"], &json["keyspaces"]),
        (&serde_json::json!(null), &serde_json::json!([]))
    );
    let bytes = std::fs::metadata(&store).unwrap().len();
    assert_eq!(json["space"]["file_bytes"], bytes);
    let human = run(&["stat", &store]).code(0).silent();
    for words in
        ["keyspace   none\n", "\nfile       ", "\nmemory of this command  in use    set aside\n"]
    {
        assert!(human.text().contains(words), "{words:?} not in:\n{}", human.text());
    }
}

#[test]
fn people_get_a_table_and_a_histogram() {
    let (_scratch, store) = Scratch::loaded("stat-human", "a\nb\nc\n");
    let human = run(&["stat", &store, "--memory-limit", "16m"]).code(0).silent();
    for words in ["records    3\n", "height     1\n", "leaves by fill\n", " of at most 16.0 MiB\n"]
    {
        assert!(human.text().contains(words), "{words:?} not in:\n{}", human.text());
    }
    // Two leaves are in memory, that of the keyspace and that of the list of keyspaces; most of the limit is set aside for more.
    let is_frames = |line: &&str| line.starts_with("  frames ");
    let frames = human.text().lines().find(is_frames).unwrap_or_default().to_owned();
    assert!(frames.contains(" 8.0 KiB ") && frames.ends_with(" MiB"), "{frames}");
}

#[test]
fn who_asks_for_one_keyspace_waits_for_no_other() {
    let (scratch, store) = Scratch::loaded("stat-one", "wren\tTroglodytes troglodytes\n");
    run(&["put", &store, "newt", "Triturus", "--keyspace", "amphibians"]).code(0);
    let mut bytes = std::fs::read(&store).unwrap();
    let wanted = b"Troglodytes troglodytes";
    let places: Vec<_> = (0..bytes.len()).filter(|&at| bytes[at..].starts_with(wanted)).collect();
    assert!(!places.is_empty());
    places.into_iter().for_each(|at| bytes[at] ^= 1);
    let copy = scratch.file("damaged.hrow", &bytes);
    let one = ["stat", &copy, "--keyspace", "amphibians"];
    run(&["stat", &copy]).code(4);
    let json = run(&[&one[..], &["--format", "json"]].concat()).code(0).silent().json();
    let names = |what: &str| json[what].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(names("layouts_by_keyspace"), ["amphibians"]);
    assert_eq!(names("values_by_keyspace"), ["amphibians"]);
    assert_eq!(json["keyspaces"], serde_json::json!(["amphibians", "default"]));
    let human = run(&one).code(0).silent();
    assert!(human.text().contains("amphibians (of 2: amphibians, default)"), "{}", human.text());
}

#[test]
fn a_quick_look_reads_few_pages() {
    let text: String = (0..50_000).map(|n| format!("key {n:05}\tvalue of {n}\n")).collect();
    let (_scratch, store) = Scratch::loaded("stat-quick", text);
    run(&["put", &store, "newt", "Triturus", "--keyspace", "amphibians"]).code(0);
    let pages = run(&["stat", &store, "--format", "json"]).code(0).json()["cache"]["page_reads"]
        .as_u64()
        .unwrap();
    let quick = ["stat", &store, "--quick"];
    let json = run(&[&quick[..], &["--format", "json"]].concat()).code(0).silent().json();
    let reads = json["cache"]["page_reads"].as_u64().unwrap();
    assert!(reads * 4 < pages, "{reads} of {pages}");
    assert_eq!(json["keyspaces"], serde_json::json!(["amphibians", "default"]));
    let about = &json["approximate_records"];
    assert_eq!(about["amphibians"], 1);
    assert!((30_000..80_000).contains(&about["default"].as_u64().unwrap()), "{json:#}");
    assert_eq!(json["page_bytes"], 4096);
    assert_eq!(json["space"]["file_bytes"], std::fs::metadata(&store).unwrap().len());
    let human = run(&quick).code(0).silent();
    let words =
        ["keyspaces  2\n", "page size  4.0 KiB\n", " 1  amphibians\n", "\nfile   ", "\nmemory "];
    for words in words {
        assert!(human.text().contains(words), "{words:?} not in:\n{}", human.text());
    }
    let one = [&quick[..], &["--keyspace", "amphibians", "--format", "json"]].concat();
    let about = &run(&one).code(0).json()["approximate_records"];
    assert_eq!(*about, serde_json::json!({ "amphibians": 1 }));
    run(&[&quick[..], &["--keyspace", "reptiles"]].concat()).code(1).stderr_has("no keyspace");
}
