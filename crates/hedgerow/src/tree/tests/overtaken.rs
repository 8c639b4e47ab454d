//! Readers that are overtaken between two of their steps: by a change that a key of theirs makes when it is looked at.

use super::*;
use crate::node::LeafPolicy;
use std::cell::Cell;

/// A key that does something when it is looked at for the `when`-th time.
struct Overtaken<'t> {
    key: &'t [u8],
    looks: Cell<u32>,
    when: u32,
    what: &'t dyn Fn(),
}

impl AsRef<[u8]> for Overtaken<'_> {
    fn as_ref(&self) -> &[u8] {
        self.looks.set(self.looks.get() + 1);
        if self.looks.get() == self.when {
            (self.what)();
        }
        self.key
    }
}

fn key(number: u32) -> Vec<u8> {
    format!("key/{number:05}").into_bytes()
}

/// A miss is what the leaf says that the key was in. While one look-up of many was between two steps the leaf was split,
/// or merged with another, and the key, which was there all the time, in another leaf.
#[test]
fn of_many_keys_none_is_missed_that_moves_while_it_is_looked_up() {
    let layouts = LAYOUTS.iter().copied().filter(|layout| !layout.is_dense());
    let mut overtaken = 0;
    for (layout, target) in layouts.clone().flat_map(|l| (50..70).map(move |n| (l, n))) {
        for when in 1..=4 {
            for absences in [0, 2] {
                let tree = match absences {
                    0 => tiny(),
                    one_in => absent(one_in, u64::from(when)),
                };
                let tree = tree.with_policy(LeafPolicy::Fixed(layout));
                for number in 0..100 {
                    tree.put(&key(number), b"a value of some bytes").unwrap();
                }
                let stats = tree.stats().unwrap();
                assert_eq!(stats.leaves_of(layout).pages, stats.levels[0].pages, "{layout:?}");
                let happened = Cell::new(false);
                let what = || {
                    happened.set(true);
                    for between in 0..40_u32 {
                        let below = [&key(target - 1)[..], &between.to_be_bytes()].concat();
                        tree.put(&below, b"another value").unwrap();
                    }
                };
                let target = key(target);
                let keys = [Overtaken { key: &target, looks: Cell::new(0), when, what: &what }];
                let found = tree.get_many(&keys).unwrap();
                let context = format!("{layout:?}, {} at {when}", target.escape_ascii());
                assert_eq!(found[0].as_deref(), Some(&b"a value of some bytes"[..]), "{context}");
                overtaken += usize::from(happened.get());
            }
        }
    }
    assert!(overtaken > 50 * layouts.count(), "{overtaken} look-ups were overtaken");
}
