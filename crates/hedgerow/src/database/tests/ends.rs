//! What `pop_first` and `pop_last` do with a record that cannot be given to anybody.

use crate::database::long::tree_of;
use crate::large::escape;
use crate::tree::End;
use crate::{ErrorKind, Keyspace, Options};

#[test]
fn a_record_whose_long_key_is_damaged_is_not_removed_by_a_pop_that_returns_an_error() {
    let db = Options::new().memory_limit_bytes(8 << 20).in_memory().unwrap();
    let keyspace = db.keyspace("birds").unwrap();
    let long = vec![b'x'; keyspace.max_short_key_bytes() + 10];
    keyspace.put(&long, b"there").unwrap();
    let tree = tree_of(keyspace.tree());
    let (tree_key, _) = tree.end(End::First).unwrap().unwrap();
    tree.put(&tree_key, &escape(b"")).unwrap();
    for pop in [Keyspace::pop_first, Keyspace::pop_last] {
        let error = pop(&keyspace).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Corrupted { .. }), "{error}");
        assert_eq!(keyspace.count().unwrap(), 1);
    }
    keyspace.put(b"a", b"short").unwrap();
    assert_eq!(keyspace.pop_first().unwrap().unwrap().0, b"a");
}
