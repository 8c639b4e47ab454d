//! The first keys that a transaction asks for or changes, one by one: what most transactions have, and all they have.
//!
//! Keys and values lie one behind the other, in here as long as they are short and else in one vector, and a short list in the order of trees
//! and keys says where. So a transaction of one key with a short value allocates nothing for it, and a small one twice for all. What is no
//! single key, or would be more than [`MOST_KEYS`] or [`MOST_BYTES`], is refused: the transaction moves all to the maps of `writes` and
//! `reads` then, which take any number, and this stays empty.
//!
//! Invariants: a key has one place; nothing is taken any more once it was emptied. Plain data.

use super::reads::Reads;
use super::writes::{Writes, bytes_of};
use crate::types::TreeId;
use std::cmp::Ordering;
use std::ops::Range;

/// Keys that are kept here at most: a new one moves those behind it.
const MOST_KEYS: usize = 32;
/// Bytes of keys and values, those that were replaced included.
const MOST_BYTES: usize = 8 << 10;
/// Bytes that are kept without an allocation.
const NEAR_BYTES: usize = 128;
/// Room that is made at first where that is too little.
const FIRST_KEYS: usize = 12;
const FIRST_BYTES: usize = 512;

/// What is known of one key.
#[derive(Clone)]
struct Place {
    tree: TreeId,
    /// The first bytes of the key, as [`head_of`] has them.
    head: u64,
    key: Range<u32>,
    /// `None`: it is not changed. `Some(None)`: its record goes.
    value: Option<Option<Range<u32>>>,
    /// Nobody else may have changed it by the commit.
    was_asked: bool,
}

impl Place {
    /// What it says of the key, which lies in `all`.
    #[inline]
    fn shown<'f>(&self, all: &'f [u8]) -> FewKey<'f> {
        let value = |range: &Option<Range<u32>>| range.as_ref().map(|range| part_of(all, range));
        FewKey {
            tree: self.tree,
            key: part_of(all, &self.key),
            change: self.value.as_ref().map(value),
            was_asked: self.was_asked,
        }
    }
}

/// A number for the first bytes of a key. Of keys with different ones the order is that of the numbers.
#[inline]
fn head_of(key: &[u8]) -> u64 {
    match key.first_chunk() {
        Some(head) => u64::from_be_bytes(*head),
        None => {
            // A key that ends here comes before those that go on.
            let mut head = [0; 8];
            head[..key.len()].copy_from_slice(key);
            u64::from_be_bytes(head)
        }
    }
}

/// A key of a transaction, and what is known of it.
#[derive(Clone, Copy)]
pub(super) struct FewKey<'f> {
    pub(super) tree: TreeId,
    pub(super) key: &'f [u8],
    /// The change; `Some(None)` removes the record.
    pub(super) change: Option<Option<&'f [u8]>>,
    /// Nobody else may have changed it by the commit.
    pub(super) was_asked: bool,
}

/// Places in the order of trees and keys.
#[derive(Default)]
enum Places {
    #[default]
    None,
    One(Place),
    Several(Vec<Place>),
}

impl Places {
    #[inline]
    fn all(&self) -> &[Place] {
        match self {
            Places::None => &[],
            Places::One(place) => std::slice::from_ref(place),
            Places::Several(places) => places,
        }
    }

    #[inline]
    fn all_mut(&mut self) -> &mut [Place] {
        match self {
            Places::None => &mut [],
            Places::One(place) => std::slice::from_mut(place),
            Places::Several(places) => places,
        }
    }

    #[inline]
    fn insert(&mut self, at: usize, place: Place) {
        match self {
            Places::None => *self = Places::One(place),
            Places::One(first) => {
                let mut places = Vec::with_capacity(FIRST_KEYS);
                places.push(first.clone());
                places.insert(at, place);
                *self = Places::Several(places);
            }
            Places::Several(places) => places.insert(at, place),
        }
    }
}

/// Keys and values, one behind the other.
struct Bytes {
    near: [u8; NEAR_BYTES],
    len: usize,
    /// All of them, once they are too many for `near`; empty until then.
    far: Vec<u8>,
}

impl Default for Bytes {
    fn default() -> Bytes {
        Bytes { near: [0; NEAR_BYTES], len: 0, far: Vec::new() }
    }
}

impl Bytes {
    #[inline]
    fn all(&self) -> &[u8] {
        if self.far.is_empty() { &self.near } else { &self.far }
    }

    #[inline]
    fn append(&mut self, part: &[u8]) -> Range<u32> {
        let (start, end) = (self.len, self.len + part.len());
        self.len = end;
        if self.far.is_empty() {
            match self.near.get_mut(start..end) {
                Some(to) => to.copy_from_slice(part),
                None => self.move_far(start, part),
            }
        } else {
            self.far.extend_from_slice(part);
        }
        start as u32..end as u32
    }

    #[cold]
    fn move_far(&mut self, len: usize, part: &[u8]) {
        self.far.reserve(FIRST_BYTES.max(len + part.len()));
        self.far.extend_from_slice(&self.near[..len]);
        self.far.extend_from_slice(part);
    }
}

#[inline]
fn part_of<'b>(all: &'b [u8], range: &Range<u32>) -> &'b [u8] {
    &all[range.start as usize..range.end as usize]
}

/// See the head of the file.
#[derive(Default)]
pub(super) struct Few {
    places: Places,
    bytes: Bytes,
    /// Of the changes, as [`bytes_of`] counts them.
    len_bytes: u64,
    changes: usize,
    is_closed: bool,
}

impl Few {
    #[inline]
    fn shown(&self, place: &Place) -> FewKey<'_> {
        place.shown(self.bytes.all())
    }

    #[inline]
    fn find(&self, tree: TreeId, key: &[u8]) -> Result<usize, usize> {
        let places = self.places.all();
        let mark = (tree, head_of(key));
        // Many come in their order, and many are asked for and changed then.
        let Some((last, before)) = places.split_last() else { return Err(0) };
        let mut at = match (last.tree, last.head).cmp(&mark) {
            Ordering::Less => return Err(places.len()),
            Ordering::Equal if self.shown(last).key == key => return Ok(before.len()),
            _ => before.partition_point(|place| (place.tree, place.head) < mark),
        };
        // Most heads are one key's.
        while let Some(place) = places.get(at).filter(|place| (place.tree, place.head) == mark) {
            match self.shown(place).key.cmp(key) {
                Ordering::Less => at += 1,
                Ordering::Equal => return Ok(at),
                Ordering::Greater => break,
            }
        }
        Err(at)
    }

    /// Whether there is room for so many bytes more, of which a new key has `new` places.
    #[inline]
    fn has_room(&self, new: usize, bytes: usize) -> bool {
        !self.is_closed
            && self.places.all().len() + new <= MOST_KEYS
            && self.bytes.len.saturating_add(bytes) <= MOST_BYTES
    }

    /// Gives a new key its place.
    #[inline]
    fn insert(&mut self, at: usize, tree: TreeId, key: &[u8]) {
        let (head, key) = (head_of(key), self.bytes.append(key));
        self.places.insert(at, Place { tree, head, key, value: None, was_asked: false });
    }

    /// The change of a key.
    #[inline]
    pub(super) fn get(&self, tree: TreeId, key: &[u8]) -> Option<Option<&[u8]>> {
        if self.changes == 0 {
            return None;
        }
        let at = self.find(tree, key).ok()?;
        self.shown(&self.places.all()[at]).change
    }

    /// Notes that a key was asked for. False: there is no room.
    #[inline]
    pub(super) fn ask(&mut self, tree: TreeId, key: &[u8]) -> bool {
        let at = match self.find(tree, key) {
            Ok(at) => at,
            Err(_) if !self.has_room(1, key.len()) => return false,
            Err(at) => {
                self.insert(at, tree, key);
                at
            }
        };
        self.places.all_mut()[at].was_asked = true;
        true
    }

    /// Notes a change. False: there is no room, and nothing has changed.
    ///
    /// Errors: the bytes that all changes would be, if these are more than `most_bytes`; nothing has changed.
    #[inline]
    pub(super) fn put(
        &mut self,
        tree: TreeId,
        key: &[u8],
        value: Option<&[u8]>,
        most_bytes: u64,
    ) -> Result<bool, u64> {
        let value_bytes = value.map_or(0, <[u8]>::len);
        let found = self.find(tree, key);
        // Most keys are changed once.
        let old = match found {
            Ok(at) => self.shown(&self.places.all()[at]).change,
            Err(_) => None,
        };
        let (is_new, old_bytes) = (old.is_none(), old.map_or(0, |old| bytes_of(key, old)));
        let new_bytes = if found.is_ok() { 0 } else { key.len() };
        if !self.has_room(usize::from(found.is_err()), new_bytes.saturating_add(value_bytes)) {
            return Ok(false);
        }
        let len_bytes = self.len_bytes - old_bytes + bytes_of(key, value);
        if len_bytes > most_bytes {
            return Err(len_bytes);
        }
        let at = match found {
            Ok(at) => at,
            Err(at) => {
                self.insert(at, tree, key);
                at
            }
        };
        self.len_bytes = len_bytes;
        self.changes += usize::from(is_new);
        let value = value.map(|value| self.bytes.append(value));
        self.places.all_mut()[at].value = Some(value);
        Ok(true)
    }

    /// All keys, in the order of trees and keys.
    pub(super) fn all(&self) -> impl Iterator<Item = FewKey<'_>> {
        let all = self.bytes.all();
        self.places.all().iter().map(move |place| place.shown(all))
    }

    /// The only key; `None` if there are several, or none.
    pub(super) fn only(&self) -> Option<FewKey<'_>> {
        match self.places.all() {
            [place] => Some(self.shown(place)),
            _ => None,
        }
    }

    /// How many keys are changed.
    pub(super) fn changes(&self) -> usize {
        self.changes
    }

    /// Bytes of the changes, as [`bytes_of`] counts them.
    pub(super) fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Whether there is no key, as it is from the end on.
    pub(super) fn is_empty(&self) -> bool {
        self.places.all().is_empty()
    }

    /// Lets go of everything. Nothing is asked for or changed any more.
    pub(super) fn clear(&mut self) {
        self.places = Places::None;
        self.bytes.len = 0;
        self.bytes.far = Vec::new();
        (self.len_bytes, self.changes) = (0, 0);
    }

    /// Moves everything to the maps, which take any number.
    #[cold]
    pub(super) fn move_to(&mut self, writes: &mut Writes, reads: &mut Reads) {
        for FewKey { tree, key, change, was_asked } in self.all() {
            if was_asked {
                reads.key(tree, key);
            }
            if let Some(value) = change {
                writes.put(tree, key, value);
            }
        }
        *self = Few { is_closed: true, ..Few::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hedgerow_sync::primitive::random::SplitMix64;
    use std::collections::BTreeMap;

    /// As the maps have it, whatever is put and asked for in whatever order; and what is refused has changed nothing.
    #[test]
    fn the_first_keys_are_kept_as_the_maps_keep_them() {
        let seed = crate::testing::environment::fresh_seed();
        let mut random = SplitMix64::new(seed);
        for _ in 0..200 {
            let mut few = Few::default();
            let (mut writes, mut asked) = (Writes::default(), BTreeMap::new());
            let longest = [8, 600][random.below(2) as usize];
            for _ in 0..random.below(100) {
                let tree = TreeId(3 + random.below(2) as u32);
                // Of many lengths with one head, and with different ones.
                let mut key = vec![b'a'; random.below(20) as usize];
                if let Some(byte) = key.get_mut(random.below(20) as usize) {
                    *byte = [0, b'b', 255][random.below(3) as usize];
                }
                let value = vec![b'v'; random.below(longest) as usize];
                let value = (random.below(4) > 0).then_some(value.as_slice());
                let is_put = random.below(3) > 0;
                let is_known = few.find(tree, &key).is_ok();
                let bytes = if is_known { 0 } else { key.len() }
                    + value.filter(|_| is_put).map_or(0, <[u8]>::len);
                let has_room = few.bytes.len + bytes <= MOST_BYTES
                    && (is_known || few.places.all().len() < MOST_KEYS);
                let is_taken = match is_put {
                    true => {
                        let with = writes.len_bytes_with(tree, &key, value);
                        if has_room {
                            assert_eq!(few.put(tree, &key, value, with - 1), Err(with));
                        }
                        few.put(tree, &key, value, with).unwrap()
                    }
                    false => is_known || has_room,
                };
                if !is_put {
                    assert_eq!(few.ask(tree, &key), is_taken, "seed {seed}");
                }
                assert_eq!(is_taken, has_room || !is_put && is_known, "seed {seed}");
                if is_taken && is_put {
                    writes.put(tree, &key, value);
                } else if is_taken {
                    asked.insert((tree, key.clone()), ());
                }
                let known = writes.get(tree, &key).map(Option::as_deref);
                assert_eq!(few.get(tree, &key), known, "seed {seed}");
            }
            assert_eq!(few.len_bytes(), writes.len_bytes(), "seed {seed}");
            assert_eq!(few.changes(), writes.len(), "seed {seed}");
            let asked_of = |few: &Few| -> Vec<(TreeId, Vec<u8>)> {
                let of = few.all().filter(|of| of.was_asked);
                of.map(|of| (of.tree, of.key.to_vec())).collect()
            };
            assert_eq!(asked_of(&few), asked.into_keys().collect::<Vec<_>>(), "seed {seed}");
            let changed = few.all().filter_map(|of| Some((of.tree, of.key, of.change?)));
            assert!(changed.eq(writes.all()), "seed {seed}");
            let (mut moved, mut reads) = (Writes::default(), Reads::default());
            let asked = asked_of(&few).len();
            few.move_to(&mut moved, &mut reads);
            assert!(moved.all().eq(writes.all()), "seed {seed}");
            assert_eq!(reads.all().len(), asked, "seed {seed}");
            assert!(
                few.is_empty()
                    && few.put(TreeId(3), b"a", None, 1000) == Ok(false)
                    && !few.ask(TreeId(3), b"a")
            );
        }
    }
}
