//! So little of everything that Miri gets through it: what others do a million times, these do a few times, so that each
//! way of holding a page is looked at for undefined behaviour (`.ci/miri`).

use super::*;
use hedgerow_sync::primitive::thread::spawn_named;

/// Of few pages, since Miri makes each.
fn tree() -> Tree<MemoryPool> {
    Tree::create(Arc::new(MemoryPool::new(TINY_PAGE, 64)), TreeId(7)).unwrap()
}

fn key(number: u32) -> [u8; 4] {
    (number * 7 % 31).to_be_bytes()
}

#[test]
fn a_few_records_are_put_found_met_and_removed() {
    let tree = tree();
    let value = [b'v'; 40];
    for number in 0..31 {
        tree.put(&key(number), &value).unwrap();
    }
    assert!(tree.stats().unwrap().pages() > 3, "leaves were split");
    assert_eq!(tree.get(&key(5)).unwrap().as_deref(), Some(&value[..]));
    let found = tree.get_many(&[key(1), key(30), [0xff; 4]]).unwrap();
    assert_eq!(found.iter().filter(|found| found.is_some()).count(), 2);
    let mut cursor = tree.scan();
    let mut met = 0;
    while let Some((_, its_value)) = cursor.next_record().unwrap() {
        assert_eq!(its_value, value);
        met += 1;
    }
    assert_eq!(met, 31);
    assert_eq!(tree.remove_range(&[0], None).unwrap(), 31);
    assert_clean(&tree);
}

#[test]
fn a_reader_beside_a_writer_sees_values_that_were_put() {
    let tree = Arc::new(tree());
    tree.put(b"key", &[0; 20]).unwrap();
    let writer = {
        let tree = tree.clone();
        let write = move || {
            for round in 1..12_u8 {
                tree.put(b"key", &[round; 20]).unwrap();
                tree.put(&[b"key", &[round][..]].concat(), &[round; 60]).unwrap();
            }
        };
        spawn_named("writer", write).unwrap()
    };
    let mut last = 0;
    for _ in 0..12 {
        let value = tree.get(b"key").unwrap().expect("it is there all the time");
        assert!(value.iter().all(|byte| *byte == value[0]) && value[0] >= last, "{value:?}");
        last = value[0];
    }
    writer.join().unwrap();
    assert_eq!(tree.get(b"key").unwrap().as_deref(), Some(&[11; 20][..]));
}
