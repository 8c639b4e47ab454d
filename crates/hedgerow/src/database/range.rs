//! Ordered iteration over a keyspace: an iterator that copies, from both ends.
//!
//! Rank 7. It owns what it needs and keeps the database open. `Send`; used by one thread at a time. After an error it has ended.

use crate::buffer::BufferPool;
use crate::database::database::Inner;
use crate::database::large::Resolved;
use crate::database::leaf_cursor::ValuesAhead;
use crate::database::stretch::StretchCursor;
use crate::database::view::View;
use crate::error::Result;
use crate::space::extent::is_stored_form;
use crate::store::PoolTree;
use crate::tree::{self, Value};
use hedgerow_sync::primitive::Arc;
use hedgerow_sync::primitive::canary::leaves_out;
use std::fmt;
use std::ops::Bound;

/// An iterator over records in bounds, from both ends. See [`crate::Keyspace::range`].
///
/// Its items are `Result<(Value, Value)>`: copies of key and value. It owns what it needs and keeps the database open. `Send`. After an
/// error it has ended.
#[must_use]
pub struct Range {
    inner: Arc<Inner>,
    source: Source,
    lower: Bound<Vec<u8>>,
    upper: Bound<Vec<u8>>,
    front: Option<End>,
    back: Option<End>,
    ahead: ValuesAhead,
    ended: bool,
}

/// What is iterated over.
enum Source {
    Tree(PoolTree),
    View(Arc<dyn View>),
}

/// Key and value of a record, and whether the value may be in a stored form.
type Passed<'c> = (&'c [u8], &'c [u8], bool);

/// A cursor at one of the two ends.
enum End {
    Tree(Box<tree::Cursor<BufferPool>>),
    View(Box<StretchCursor>),
}

impl End {
    fn new(source: &Source, lower: &Bound<Vec<u8>>, upper: &Bound<Vec<u8>>) -> End {
        match source {
            Source::Tree(tree) => {
                End::Tree(Box::new(tree.range((as_bytes(lower), as_bytes(upper)))))
            }
            Source::View(view) => {
                let cursor = StretchCursor::new(view.stretches(), lower.clone(), upper.clone());
                End::View(Box::new(cursor))
            }
        }
    }

    fn seek_to_end(&mut self) {
        match self {
            End::Tree(cursor) => cursor.seek_to_end(),
            End::View(cursor) => cursor.seek_to_end(),
        }
    }

    /// The next record in a direction.
    fn step(&mut self, forward: bool) -> Result<Option<Passed<'_>>> {
        match self {
            End::Tree(cursor) => {
                let record =
                    if forward { cursor.next_record()? } else { cursor.previous_record()? };
                Ok(record.map(|(key, value)| (key, value, is_stored_form(value))))
            }
            End::View(cursor) => {
                let Some(place) = cursor.step(forward)? else { return Ok(None) };
                let (key, value) = cursor.record(place);
                Ok(Some((key, value, cursor.is_stored(place))))
            }
        }
    }
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
            ahead: ValuesAhead::default(),
            ended: false,
        }
    }

    /// One step from either end. The other end's bound moves to the record that was returned, so the
    /// two ends never return the same record.
    fn step(&mut self, forward: bool) -> Result<Option<(Value, Value)>> {
        loop {
            let Some((key, value, is_stored)) = self.step_in_leaves(forward)? else {
                return Ok(None);
            };
            if !is_stored || !self.inner.store.has_stored_forms() {
                return Ok(Some((key, value)));
            }
            let mut resolved = Vec::new();
            let tree = match &self.source {
                Source::Tree(tree) => tree,
                Source::View(view) => {
                    view.resolve_into(&value, &mut resolved)?;
                    return Ok(Some((key, Value::from(resolved))));
                }
            };
            match self.inner.resolve_into(tree, &key, &value, &mut resolved)? {
                // It is passed over.
                Resolved::Gone => continue,
                Resolved::InMemory => {}
                Resolved::Read => {
                    let end = if forward { &self.front } else { &self.back };
                    if let Some(End::Tree(cursor)) = end {
                        self.ahead.missed(&self.inner, cursor, forward);
                    }
                }
            }
            return Ok(Some((key, Value::from(resolved))));
        }
    }

    fn step_in_leaves(&mut self, forward: bool) -> Result<Option<(Value, Value, bool)>> {
        match &self.source {
            Source::Tree(_) => self.inner.check_open()?,
            Source::View(view) => view.check()?,
        }
        // Where both ends are in use, each has to stop at the other.
        let both = if forward { self.back.is_some() } else { self.front.is_some() };
        let end = if forward { &mut self.front } else { &mut self.back };
        let cursor = end.get_or_insert_with(|| {
            let mut cursor = End::new(&self.source, &self.lower, &self.upper);
            if !forward {
                cursor.seek_to_end();
            }
            cursor
        });
        let Some((key, value, is_stored)) = cursor.step(forward)? else { return Ok(None) };
        let passed = both
            && match (forward, &self.lower, &self.upper) {
                (true, _, Bound::Excluded(high)) => key >= high.as_slice(),
                (true, _, Bound::Included(high)) => key > high.as_slice(),
                (false, Bound::Excluded(low), _) => key <= low.as_slice(),
                (false, Bound::Included(low), _) => key < low.as_slice(),
                _ => false,
            };
        if passed {
            return Ok(None);
        }
        let record = (Value::from(key), Value::from(value), is_stored);
        exclude(if forward { &mut self.lower } else { &mut self.upper }, key);
        if leaves_out("cursor_for_all_records") {
            *end = None;
        }
        Ok(Some(record))
    }

    /// An iterator over the keys alone. Large values are not read.
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
        let item = self.0.next_item(|range| range.step_in_leaves(forward));
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
