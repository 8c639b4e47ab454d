//! `verify`: a sound store, and stores with damaged bytes.

use crate::harness::{Scratch, command, run, wait};
use std::fs;

fn loaded(name: &str) -> (Scratch, String) {
    let text: String = (0..5_000).map(|n| format!("key {n:05}\tvalue of {n}\n")).collect();
    Scratch::loaded(name, text)
}

#[test]
fn a_sound_store_is_said_to_be_sound() {
    let (_scratch, store) = loaded("verify");
    let done = run(&["verify", &store]).code(0).silent();
    assert!(done.text().starts_with("sound: "), "{}", done.text());
    let json = run(&["verify", &store, "--format", "json"]).code(0).json();
    assert_eq!(json["sound"], true);
    assert_eq!(json["keyspaces"], 1);
    assert!(json["pages"].as_u64().unwrap() >= 20, "{json:#}");
    assert_eq!(json["findings"], serde_json::json!([]));
}

#[test]
fn damage_is_exit_code_4_and_named() {
    let (scratch, store) = loaded("verify-damage");
    let sound = fs::read(&store).unwrap();
    // Values stand in the file as they are, and maybe once more in what a split left behind.
    let places = find(&sound, b"value of 2500");
    assert!(!places.is_empty());
    let mut damaged = sound.clone();
    places.into_iter().for_each(|at| damaged[at] ^= 1);
    let copy = scratch.file("damaged.hrow", &damaged);
    let done = run(&["verify", &copy]).code(4).stderr_has("found");
    assert!(done.text().contains("page"), "{}", done.text());
    // Each place once: behind what is wrong it stood a second time.
    for line in done.text().lines().filter(|line| line.contains("checksum")) {
        assert!(line.ends_with(": its checksum is wrong"), "{line}");
        assert!(line.matches("page ").count() <= 1 || line.contains("cannot be read"), "{line}");
    }
    let json = run(&["verify", &copy, "--format", "json"]).code(4).json();
    assert_eq!(json["sound"], false);
    let findings = json["findings"].as_array().unwrap();
    let of_page = findings.iter().find(|finding| finding["page"].is_u64()).expect("a page");
    assert!(of_page["what"].as_str().unwrap().contains("checksum"), "{of_page:#}");
    assert!(findings.iter().any(|finding| finding["offset_bytes"].is_u64()), "{json:#}");
    assert!(findings.iter().any(|finding| finding["keyspace"] == "default"), "{json:#}");
    // The damage is never given out as data.
    let next =
        "; list the damage with `hedgerow verify`, then restore a backup or run `hedgerow repair`";
    let done = run(&["get", &copy, "key 02500"]).code(4).stdout("").stderr_has("page");
    assert_eq!(done.stderr_has(next).stderr().matches("at byte").count(), 1);
}

#[test]
fn a_store_that_cannot_be_opened_for_damage_is_one_defect_with_its_path() {
    let (scratch, store) = loaded("verify-superblocks");
    let mut damaged = fs::read(&store).unwrap();
    // Behind the magic of each block of a superblock.
    for block in damaged[..64 << 10].chunks_mut(16 << 10) {
        block[64..128].fill(0xff);
    }
    let copy = scratch.file("damaged.hrow", &damaged);
    let done = run(&["verify", &copy]).code(4).stderr_has("1 defect found");
    assert!(done.text().starts_with(&format!("cannot open {copy}: ")), "{}", done.text());
    assert_eq!(done.text().matches("hedgerow verify").count(), 0, "{}", done.text());
}

/// It was told as an error of another kind, with exit code 1, so that a script took it for a wrong path.
#[test]
fn a_store_without_its_head_or_its_log_is_damaged_and_what_is_no_file_is_an_error() {
    let (scratch, store) = loaded("verify-head");
    let sound = fs::read(&store).unwrap();
    let mut zeroed = sound.clone();
    zeroed[..64 << 10].fill(0);
    for bytes in [&zeroed[..], &sound[..100], &[]] {
        let copy = scratch.file("damaged.hrow", bytes);
        let done = run(&["verify", &copy]).code(4).stderr_has("1 defect found");
        assert!(done.text().contains(&copy), "{}", done.text());
        let json = run(&["verify", &copy, "--format", "json"]).code(4).json();
        assert_eq!(json["sound"], false);
        let what = json["findings"][0]["what"].as_str().unwrap();
        assert!(what.starts_with("cannot open "), "{what}");
    }
    run(&["verify", &scratch.path("none.hrow")]).code(1);
    let directory = std::path::Path::new(&store).parent().unwrap().to_str().unwrap();
    run(&["verify", directory]).code(1);
    // Not closed: its log is beside it.
    let open = hedgerow::Database::open(&store).unwrap();
    open.keyspace("default").unwrap().put(b"key", b"value").unwrap();
    open.sync().unwrap();
    let copy = scratch.file("open.hrow", fs::read(&store).unwrap());
    open.close().unwrap();
    let done = run(&["verify", &copy]).code(4).stderr_has("1 defect found");
    assert!(done.text().contains("put the log back"), "{}", done.text());
    // A directory in the place of its log says nothing of the store.
    fs::create_dir(hedgerow::log_path(&copy)).unwrap();
    run(&["verify", &copy]).code(1).stderr_has("-log");
}

#[test]
fn damage_is_exit_code_4_although_the_reader_has_gone() {
    let (scratch, store) = loaded("verify-pipe");
    let mut damaged = fs::read(&store).unwrap();
    let places = find(&damaged, b"value of 2500");
    places.into_iter().for_each(|at| damaged[at] ^= 1);
    let copy = scratch.file("damaged.hrow", &damaged);
    let (new, picture) = (scratch.path("new.hrow"), scratch.path("tree.svg"));
    for args in [
        &["verify", &copy][..],
        &["repair", &copy, &new],
        &["pages", &copy],
        &["pages", &copy, "--svg", &picture, "--format", "json"],
    ] {
        // Nobody reads from the pipe, so every write to it fails.
        let (_, writer) = std::io::pipe().unwrap();
        let child = command(args).stdout(writer).spawn().unwrap();
        wait(args, child).code(4).stderr_has("found");
    }
    let args = ["verify", &store];
    let (_, writer) = std::io::pipe().unwrap();
    wait(&args, command(&args).stdout(writer).spawn().unwrap()).code(0).silent();
}

fn find(bytes: &[u8], wanted: &[u8]) -> Vec<usize> {
    let windows = bytes.windows(wanted.len()).enumerate();
    windows.filter(|(_, window)| *window == wanted).map(|(at, _)| at).collect()
}
