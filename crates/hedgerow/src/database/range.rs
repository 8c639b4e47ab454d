//! Ordered iteration over a keyspace: an iterator that copies, from both ends.
//!
//! Rank 7. It owns what it needs and keeps the database open. `Send`; used by one thread at a time. After an error it has ended.

use crate::database::inner::Inner;
use crate::database::leaf_cursor::ValuesAhead;
use crate::database::long::{EDGES, Seen, Walk, is_long, stretches_within, take_whole, widened};
use crate::database::stretch::StretchCursor;
use crate::database::values::Resolved;
use crate::database::view::View;
use crate::error::Result;
use crate::large::is_stored_form;
use crate::store::PoolTree;
use crate::tree::{Passed, Value};
use hedgerow_sync::primitive::Arc;
use std::borrow::Cow;
use std::fmt;
use std::ops::Bound;

/// An iterator over records in bounds, from both ends. See [`crate::Keyspace::range`].
///
/// Its items are `Result<(Value, Value)>`: copies of key and value. It owns what it needs and keeps the database open. `Send`. After an
/// error, also one of a [`Wait`](crate::Wait), it has ended. So `Iterator::count` counts an error as a record:
/// [`Keyspace::count_range`](crate::Keyspace::count_range) returns it.
#[must_use]
pub struct Range {
    inner: Arc<Inner>,
    source: Source,
    lower: Bound<Vec<u8>>,
    upper: Bound<Vec<u8>>,
    front: Option<End>,
    back: Option<End>,
    /// What a record was read into that does not lie in its leaf.
    large: Vec<u8>,
    ahead: ValuesAhead,
    ended: bool,
}

/// What is iterated over.
enum Source {
    Tree(PoolTree),
    View(Arc<dyn View>),
}

impl Source {
    fn tree(&self) -> &PoolTree {
        match self {
            Source::Tree(tree) => tree,
            Source::View(view) => view.tree(),
        }
    }
}

/// Key and value of a record, and whether the value is in a stored form.
type Record = (Value, Value, bool);

/// A place at one of the two ends.
enum End {
    Tree(Box<Walk>),
    View(Box<StretchCursor>),
}

impl fmt::Debug for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Range").finish_non_exhaustive()
    }
}

fn as_bytes(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}

/// Makes `key` the excluded bound, in the memory of the one before where that is possible.
fn exclude(bound: &mut Bound<Vec<u8>>, key: &[u8]) {
    if let Bound::Excluded(bytes) = bound {
        bytes.clear();
        bytes.extend_from_slice(key);
    } else {
        *bound = Bound::Excluded(key.to_vec());
    }
}

/// Whether a key lies behind the bound to which a step goes.
fn is_outside(
    (forward, lower, upper): (bool, &Bound<Vec<u8>>, &Bound<Vec<u8>>),
    key: &[u8],
) -> bool {
    match (forward, lower, upper) {
        (true, _, Bound::Excluded(high)) => key >= high.as_slice(),
        (true, _, Bound::Included(high)) => key > high.as_slice(),
        (false, Bound::Excluded(low), _) => key <= low.as_slice(),
        (false, Bound::Included(low), _) => key < low.as_slice(),
        _ => false,
    }
}

/// A walk over the keys of a tree in bounds, at one of its ends.
fn walk_of(inner: &Inner, tree: &PoolTree, bounds: [Bound<&[u8]>; 2], forward: bool) -> Walk {
    let [lower, upper] = bounds;
    let (low, high) = (widened(tree, lower, EDGES.0), widened(tree, upper, EDGES.1));
    let bytes = |bound| Bound::map(bound, Cow::as_ref);
    let cursor = tree.range((bytes(low.as_ref()), bytes(high.as_ref())));
    let mut walk = Walk::new((inner, tree), cursor);
    if !forward {
        walk.cursor.seek_to_end();
    }
    match if forward { lower } else { upper } {
        Bound::Included(key) if is_long(tree, key) => walk.seek(inner, tree, key, !forward),
        Bound::Excluded(key) if is_long(tree, key) => walk.seek(inner, tree, key, forward),
        _ => {}
    }
    walk
}

impl Range {
    pub(super) fn new(
        inner: Arc<Inner>,
        tree: PoolTree,
        lower: Bound<Vec<u8>>,
        upper: Bound<Vec<u8>>,
    ) -> Range {
        Range::from(inner, Source::Tree(tree), lower, upper)
    }

    /// Over what a snapshot or a transaction sees.
    pub(super) fn of(view: Arc<dyn View>, lower: Bound<Vec<u8>>, upper: Bound<Vec<u8>>) -> Range {
        Range::from(view.inner().clone(), Source::View(view), lower, upper)
    }

    fn from(
        inner: Arc<Inner>,
        source: Source,
        lower: Bound<Vec<u8>>,
        upper: Bound<Vec<u8>>,
    ) -> Range {
        Range {
            inner,
            source,
            lower,
            upper,
            front: None,
            back: None,
            large: Vec::new(),
            ahead: ValuesAhead::default(),
            ended: false,
        }
    }

    /// One step from either end. The other end's bound moves to the record that was returned, so the
    /// two ends never return the same record.
    fn step(&mut self, forward: bool) -> Result<Option<(Value, Value)>> {
        loop {
            let Some((key, value, is_stored)) = self.step_in_leaves(forward, true)? else {
                return Ok(None);
            };
            if !is_stored || !self.inner.store.has_stored_forms() {
                return Ok(Some((key, value)));
            }
            let mut resolved = Vec::new();
            let tree = match &self.source {
                Source::Tree(tree) => tree,
                Source::View(view) => {
                    let end = if forward { &self.front } else { &self.back };
                    if view.resolve_into(&value, &mut resolved)? == Resolved::Read
                        && let Some(End::View(cursor)) = end
                    {
                        self.ahead.missed_in_view(&self.inner, cursor, forward);
                    }
                    return Ok(Some((key, Value::from(resolved))));
                }
            };
            match self.inner.resolve_into(tree, &key, &value, &mut resolved)? {
                // It is passed over.
                Resolved::Gone => continue,
                Resolved::InMemory => {}
                Resolved::Read => {
                    let end = if forward { &self.front } else { &self.back };
                    if let Some(End::Tree(walk)) = end {
                        self.ahead.missed(&self.inner, &walk.cursor, forward);
                    }
                }
            }
            return Ok(Some((key, Value::from(resolved))));
        }
    }

    /// A place at an end that was not in use before.
    #[inline(never)]
    fn begin(&self, forward: bool) -> Result<End> {
        Ok(match &self.source {
            Source::Tree(tree) => {
                let bounds = [as_bytes(&self.lower), as_bytes(&self.upper)];
                End::Tree(Box::new(walk_of(&self.inner, tree, bounds, forward)))
            }
            Source::View(view) => {
                let mut cursor = stretches_within(&**view, &self.lower, &self.upper)?;
                if !forward {
                    cursor.seek_to_end();
                }
                End::View(Box::new(cursor))
            }
        })
    }

    /// [`Self::step`], with a value as its leaf has it, or the whole one of a long key.
    fn step_in_leaves(&mut self, forward: bool, with_value: bool) -> Result<Option<Record>> {
        match &self.source {
            Source::Tree(_) => self.inner.check_open()?,
            Source::View(view) => view.check()?,
        }
        if (if forward { &self.front } else { &self.back }).is_none() {
            let end = self.begin(forward)?;
            *(if forward { &mut self.front } else { &mut self.back }) = Some(end);
        }
        // Where both ends are in use, each has to stop at the other.
        let both = if forward { self.back.is_some() } else { self.front.is_some() };
        let end = if forward { &mut self.front } else { &mut self.back };
        let (key, value, is_stored) = match end {
            None => return Ok(None),
            Some(End::View(cursor)) => {
                let Some(place) = cursor.step(forward)? else { return Ok(None) };
                let (key, value) = cursor.record(place);
                if is_long(self.source.tree(), key) {
                    return self.step_in_view(place, (forward, with_value));
                }
                (key, value, cursor.is_stored(place))
            }
            Some(End::Tree(walk)) => {
                let passed = walk.step((&self.inner, self.source.tree()), forward)?;
                if walk.is_in_head() {
                    return self.step_in_head(passed, (forward, with_value));
                }
                let Some(record) = passed else { return Ok(None) };
                let (key, value) = walk.cursor.lend(record);
                if is_long(self.source.tree(), key) {
                    return self.step_in_head(passed, (forward, with_value));
                }
                (key, value, is_stored_form(value))
            }
        };
        if both && is_outside((forward, &self.lower, &self.upper), key) {
            return Ok(None);
        }
        let record = (Value::from(key), Value::from(value), is_stored);
        exclude(if forward { &mut self.lower } else { &mut self.upper }, key);
        Ok(Some(record))
    }

    /// [`Self::step_in_leaves`] where the record of the tree, or the place, is in a head.
    #[cold]
    fn step_in_head(
        &mut self,
        passed: Option<Passed>,
        (forward, with_value): (bool, bool),
    ) -> Result<Option<Record>> {
        let end = if forward { &mut self.front } else { &mut self.back };
        let Some(End::Tree(walk)) = end else { return Ok(None) };
        let at = (&*self.inner, self.source.tree());
        let seen = walk.take(at, passed, (forward, with_value), &mut self.large)?;
        let (key, value, is_stored) = match seen {
            None => return Ok(None),
            Some(Seen::Short(short)) => {
                let (key, value) = walk.cursor.lend(short);
                (key, value, is_stored_form(value))
            }
            Some(Seen::Long { from, was_read }) => {
                if was_read {
                    self.ahead.missed(&self.inner, &walk.cursor, forward);
                }
                (walk.key(), &self.large[from.unwrap_or(self.large.len())..], false)
            }
        };
        // The tree's cursor has the edges of a head as its bounds.
        if is_outside((forward, &self.lower, &self.upper), key) {
            return Ok(None);
        }
        let record = (Value::from(key), Value::from(value), is_stored);
        exclude(if forward { &mut self.lower } else { &mut self.upper }, key);
        Ok(Some(record))
    }

    /// [`Self::step_in_leaves`] where a view has come to the record of a long key.
    #[cold]
    fn step_in_view(
        &mut self,
        place: usize,
        (forward, with_value): (bool, bool),
    ) -> Result<Option<Record>> {
        let (Source::View(view), Some(End::View(cursor))) =
            (&self.source, if forward { &self.front } else { &self.back })
        else {
            return Ok(None);
        };
        let (tree_key, value) = cursor.record(place);
        let found = (tree_key, value, cursor.is_stored(place));
        let mut key = Vec::new();
        let from = take_whole(&**view, found, with_value, &mut key, &mut self.large)?;
        if is_outside((forward, &self.lower, &self.upper), &key) {
            return Ok(None);
        }
        exclude(if forward { &mut self.lower } else { &mut self.upper }, &key);
        let value = from.map_or_else(Value::default, |from| Value::from(&self.large[from..]));
        Ok(Some((Value::from(key), value, false)))
    }

    /// An iterator over the keys alone. Large values are not read, but for the part of a long key that lies in front of one.
    ///
    /// ```
    /// # let db = hedgerow::Options::new().in_memory()?;
    /// # let birds = db.keyspace("birds")?;
    /// # birds.put(b"robin", b"Erithacus rubecula")?;
    /// for key in birds.prefix(b"r").keys() {
    ///     assert_eq!(key?, b"robin");
    /// }
    /// # Ok::<(), hedgerow::Error>(())
    /// ```
    pub fn keys(self) -> Keys {
        Keys(self)
    }

    /// An iterator over the values alone.
    ///
    /// ```
    /// # let db = hedgerow::Options::new().in_memory()?;
    /// # let birds = db.keyspace("birds")?;
    /// # birds.put(b"robin", b"Erithacus rubecula")?;
    /// let latin: Vec<_> = birds.prefix(b"r").values().collect::<hedgerow::Result<_>>()?;
    /// assert_eq!(latin, [b"Erithacus rubecula"]);
    /// # Ok::<(), hedgerow::Error>(())
    /// ```
    pub fn values(self) -> Values {
        Values(self)
    }

    /// What `step` comes to, unless the iterator has ended.
    fn next_item<T>(
        &mut self,
        step: impl FnOnce(&mut Range) -> Result<Option<T>>,
    ) -> Option<Result<T>> {
        if self.ended {
            return None;
        }
        let item = step(self).transpose();
        self.ended = !matches!(item, Some(Ok(_)));
        item
    }
}

impl Iterator for Range {
    type Item = Result<(Value, Value)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_item(|range| range.step(true))
    }
}

impl DoubleEndedIterator for Range {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.next_item(|range| range.step(false))
    }
}

impl std::iter::FusedIterator for Range {}

/// An iterator over keys in bounds, from both ends. See [`Range::keys`]. Its items are `Result<Value>`. After an error it has ended.
#[derive(Debug)]
#[must_use]
pub struct Keys(Range);

impl Keys {
    fn next_key(&mut self, forward: bool) -> Option<Result<Value>> {
        let item = self.0.next_item(|range| range.step_in_leaves(forward, false));
        item.map(|record| record.map(|(key, ..)| key))
    }
}

impl Iterator for Keys {
    type Item = Result<Value>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_key(true)
    }
}

impl DoubleEndedIterator for Keys {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.next_key(false)
    }
}

impl std::iter::FusedIterator for Keys {}

/// An iterator over the values of records in bounds, from both ends. See [`Range::values`]. Its items are `Result<Value>`. After an error it has ended.
#[derive(Debug)]
#[must_use]
pub struct Values(Range);

impl Iterator for Values {
    type Item = Result<Value>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|record| record.map(|(_, value)| value))
    }
}

impl DoubleEndedIterator for Values {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.0.next_back().map(|record| record.map(|(_, value)| value))
    }
}

impl std::iter::FusedIterator for Values {}
