//! Ranges that are removed, with bounds as long as the longest key, and a little shorter and longer.

use super::*;
use std::collections::BTreeSet;

#[test]
fn a_bound_as_long_as_the_longest_key_is_that_key_and_a_longer_one_comes_behind_it() {
    let tree = tiny();
    let longest = tree.max_key_bytes();
    let of = |len: usize, last: u8| {
        let mut key = vec![b'k'; len];
        key[len - 1] = last;
        key
    };
    let keys: BTreeSet<Vec<u8>> = [longest - 1, longest]
        .into_iter()
        .flat_map(|len| [0, b'k', 0xff].map(|last| of(len, last)))
        .chain([vec![], b"a".to_vec(), b"z".to_vec(), vec![0xff; longest]])
        .collect();
    let mut bounds = keys.clone();
    for key in &keys {
        for more in [&[0][..], &[0xff; 100]] {
            bounds.insert([key, more].concat());
        }
    }
    let mut removed = 0;
    for from in &bounds {
        for to in bounds.iter().map(Some).chain([None]) {
            for key in &keys {
                tree.put(key, b"").unwrap();
            }
            let is_inside = |key: &&Vec<u8>| from <= *key && to.is_none_or(|to| *key < to);
            let inside = keys.iter().filter(is_inside).count() as u64;
            let context = || format!("from {} to {:?} bytes", from.len(), to.map(Vec::len));
            let done = tree.remove_range(from, to.map(Vec::as_slice)).unwrap();
            assert_eq!(done, inside, "{}", context());
            for key in &keys {
                let is_there = tree.get(key).unwrap().is_some();
                assert_eq!(is_there, !is_inside(&key), "{}: {}", context(), key.escape_ascii());
            }
            removed += done;
        }
    }
    assert!(removed > 500, "{removed} records");
    assert_clean(&tree);
}
