//! Long keys that are not what they should be: verification finds each, and the feature that a file with any of them has.

use super::*;
use crate::large::escape;
use crate::node::max_short_key_bytes;
use crate::store::labels::{payload_start, with_label};

const HEAD: [u8; max_short_key_bytes(512)] = [b'k'; max_short_key_bytes(512)];

fn payload(rest: &[u8]) -> Vec<u8> {
    escape(&[&payload_start(rest), &b"value"[..]].concat())
}

/// What verification says of a store with these records.
fn verified(records: &[(Vec<u8>, Vec<u8>)]) -> Vec<String> {
    let (_disk, store) = new_store();
    let tree = store.create_keyspace("urls").unwrap();
    store.expect_stored_forms();
    for (key, value) in records {
        tree.put(key, value).unwrap();
    }
    let report = store.verify(|_| ControlFlow::Continue(())).unwrap();
    assert!(report.findings.iter().all(|finding| finding.keyspace.as_deref() == Some("urls")));
    report.findings.into_iter().map(|finding| finding.what).collect()
}

#[test]
fn long_keys_out_of_order_or_without_their_parts_are_found() {
    let key = |label| with_label(&HEAD, label);
    let sound = [(key(5), payload(b"a")), (key(9), payload(b"ab")), (key(10), payload(b"b"))];
    assert!(verified(&sound).is_empty());
    let cases = [
        ("is not greater", [(key(5), payload(b"b")), (key(9), payload(b"a"))]),
        ("is not greater", [(key(5), payload(b"a")), (key(9), payload(b"a"))]),
        ("has no label", [(key(0), payload(b"a")), (key(9), payload(b"b"))]),
        (
            "has no label",
            [(key(9)[..HEAD.len() + 5].to_vec(), payload(b"a")), (key(9), payload(b"b"))],
        ),
        ("in no stored form", [(key(5), b"value".to_vec()), (key(9), payload(b"b"))]),
        ("does not have the rest", [(key(5), escape(b"\0\0value")), (key(9), payload(b"b"))]),
        ("does not have the rest", [(key(5), escape(b"\x09\0rest")), (key(9), payload(b"b"))]),
    ];
    for (what, records) in cases {
        let found = verified(&records);
        assert!(found.len() == 1 && found[0].contains(what), "{what}: {found:?}");
    }
}

#[test]
fn a_file_says_from_its_first_long_key_on_that_it_has_some() {
    let (disk, store) = new_store();
    let tree = store.create_keyspace("urls").unwrap();
    tree.put(&HEAD, b"short").unwrap();
    store.checkpoint().unwrap();
    let incompat = || {
        let file = disk.open(path(), OpenMode::ReadOnly, DirectIo::Never).unwrap();
        read_superblocks(&*file).unwrap().superblock.incompat
    };
    assert_eq!(incompat() & superblock::LONG_KEYS, 0);
    store.expect_stored_forms();
    tree.put(&with_label(&HEAD, 7), &payload(b"rest")).unwrap();
    tree.remove(&with_label(&HEAD, 7)).unwrap();
    store.checkpoint().unwrap();
    assert_eq!(incompat() & superblock::LONG_KEYS, superblock::LONG_KEYS);
}
