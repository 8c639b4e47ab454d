//! Contention Split by the public interface: what is listed, what is counted, and that a store keeps what was split.

use hedgerow::{ContentionSplit, Database, Keyspace, Options};

/// Decides at every second write, and takes every leaf for contended.
fn often(keyspace: Keyspace) -> Keyspace {
    keyspace.with_contention_split(Some(ContentionSplit::new(1, 1, 0.0, 2).unwrap()))
}

fn fill(keyspace: &Keyspace, records: u32) {
    let records = (0..records).map(|n| (format!("bird/{n:04}"), [0; 100]));
    keyspace.bulk_load(records, 100).unwrap();
}

fn update_all(keyspace: &Keyspace, records: u32, with: u8) {
    for number in 0..records {
        assert!(keyspace.update(format!("bird/{number:04}").as_bytes(), &[with; 100]).unwrap());
    }
}

fn splits(db: &Database) -> u64 {
    db.stats().unwrap().contention.splits
}

#[test]
fn leaves_that_were_split_are_listed_with_their_keyspace_and_prefix() {
    let db = Options::new().in_memory().unwrap();
    let (birds, trees) = (often(db.keyspace("birds").unwrap()), db.keyspace("trees").unwrap());
    fill(&birds, 20);
    fill(&trees, 20);
    assert_eq!(db.hot_leaves(9).unwrap(), []);
    for key in ["bird/0003", "bird/0015"] {
        assert!(birds.update(key.as_bytes(), &[1; 100]).unwrap());
        assert!(trees.update(key.as_bytes(), &[1; 100]).unwrap());
    }
    let leaves = db.hot_leaves(9).unwrap();
    assert_eq!((leaves.len(), splits(&db)), (2, 1));
    for leaf in &leaves {
        assert_eq!((leaf.keyspace.as_str(), leaf.splits, leaf.is_hot), ("birds", 1, true));
        assert!(leaf.prefix.starts_with(b"bird/00"));
        assert!((leaf.share(), leaf.samples) == (0.0, 0));
    }
    assert_eq!(leaves.iter().map(|leaf| leaf.records).sum::<u64>(), 20);
    assert_eq!(db.hot_leaves(1).unwrap().len(), 1);
    assert_eq!(db.hot_leaves(0).unwrap(), []);
    db.drop_keyspace("birds").unwrap();
    assert_eq!(db.hot_leaves(9).unwrap(), []);
}

/// What is split is in the file like anything else, and is read with or without Contention Split.
#[test]
fn a_store_keeps_what_was_split() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.hrow");
    let records = 2_000;
    let db = Options::new().memory_limit_bytes(8 << 20).create(&path).unwrap();
    let birds = often(db.keyspace("birds").unwrap());
    fill(&birds, records);
    update_all(&birds, records, 1);
    let done = splits(&db);
    assert!(done > 100, "{done}");
    assert!(db.verify(|_| std::ops::ControlFlow::Continue(())).unwrap().findings.is_empty());
    drop((birds, db));
    let db = Options::new().memory_limit_bytes(8 << 20).open(&path).unwrap();
    let birds = db.keyspace("birds").unwrap();
    // What is known of contention is not in the file.
    assert_eq!((db.hot_leaves(9).unwrap().len(), splits(&db)), (0, 0));
    assert_eq!(birds.count().unwrap(), u64::from(records));
    assert!(birds.iter().all(|record| *record.unwrap().1 == [1; 100]));
    update_all(&birds, records, 2);
    assert_eq!(splits(&db), 0, "one thread never splits a leaf by the default parameters");
}

#[test]
fn other_handles_keep_their_own_setting() {
    let db = Options::new().in_memory().unwrap();
    let birds = db.keyspace("birds").unwrap();
    fill(&birds, 40);
    let (often, never) = (often(birds.clone()), birds.clone().with_contention_split(None));
    update_all(&never, 40, 1);
    update_all(&birds, 40, 2);
    assert_eq!(splits(&db), 0);
    update_all(&often, 40, 3);
    assert!(splits(&db) > 0);
}
