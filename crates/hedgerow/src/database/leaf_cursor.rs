//! A cursor over the leaves of a keyspace as they are now, which resolves large values.
//!
//! Rank 7. What users see is [`super::cursor::Cursor`]. It copies one leaf at a time. Where records have long keys it goes by [`Walk`]. After an error it stays failed. `Send`; used by one thread at a
//! time.

use crate::buffer::BufferPool;
use crate::database::inner::Inner;
use crate::database::long::{Seen, Walk, is_long};
use crate::database::stretch::StretchCursor;
use crate::database::values::Resolved;
use crate::error::Result;
use crate::large::{Stored, is_stored_form, read_stored};
use crate::store::PoolTree;
use crate::tree::{self, Passed};
use hedgerow_sync::primitive::Arc;
use std::ops::ControlFlow;

/// Values that are asked for together at most.
const MOST_AHEAD: usize = 64;

/// How many values a scan asks for ahead: after a value that was not in memory one, then 3, 9, 27 and 64, so that a short
/// scan reads little that it does not need.
#[derive(Default)]
pub(super) struct ValuesAhead(usize);

impl ValuesAhead {
    /// A value was not in memory: asks for those of the leaf that come next.
    pub(super) fn missed(
        &mut self,
        inner: &Inner,
        cursor: &tree::Cursor<BufferPool>,
        forward: bool,
    ) {
        self.0 = (3 * self.0).clamp(1, MOST_AHEAD);
        let mut next = cursor.upcoming_values(forward, self.0);
        next.retain(|value| is_stored_form(value));
        if !next.is_empty() {
            inner.store.read_values_ahead(next.iter().map(Vec::as_slice));
        }
    }

    /// The same, of what a snapshot or a transaction sees.
    pub(super) fn missed_in_view(&mut self, inner: &Inner, cursor: &StretchCursor, forward: bool) {
        self.0 = (3 * self.0).clamp(1, MOST_AHEAD);
        inner.store.read_values_ahead(cursor.upcoming_stored(forward, self.0));
    }
}

/// See the head of the file.
pub(super) struct LeafCursor {
    inner: Arc<Inner>,
    tree: PoolTree,
    walk: Walk,
    /// The value that was lent last, if it did not lie in its leaf.
    large: Vec<u8>,
    ahead: ValuesAhead,
}

impl LeafCursor {
    pub(super) fn new(inner: Arc<Inner>, tree: PoolTree) -> LeafCursor {
        let walk = Walk::new((&inner, &tree), tree.scan());
        LeafCursor { inner, tree, walk, large: Vec::new(), ahead: ValuesAhead::default() }
    }

    /// The record behind the cursor, which moves over it; `None` at the end. Key and value are lent until the cursor is used again.
    #[inline]
    pub(super) fn next_record(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        self.inner.check_open()?;
        let Some(passed) = self.walk.cursor.advance()? else { return self.lend_end(true) };
        if self.has_to_look() {
            self.lend(passed, true)
        } else {
            Ok(Some(self.walk.cursor.lend(passed)))
        }
    }

    /// The record before the cursor, which moves over it; `None` at the start. Key and value are lent until the cursor is used again.
    #[inline]
    pub(super) fn previous_record(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        self.inner.check_open()?;
        let Some(passed) = self.walk.cursor.go_back()? else { return self.lend_end(false) };
        if self.has_to_look() {
            self.lend(passed, false)
        } else {
            Ok(Some(self.walk.cursor.lend(passed)))
        }
    }

    /// Whether a record may be another than the one that the tree's cursor has come to: the store may have values elsewhere than in leaves, or
    /// the cursor was sent to a long key, and stands in its head until it has come to a short one.
    #[inline]
    fn has_to_look(&self) -> bool {
        self.inner.store.has_stored_forms() || self.walk.is_in_head()
    }

    /// Lends a record of such a store, or of a cursor that stands in a head.
    fn lend(&mut self, passed: Passed, forward: bool) -> Result<Option<(&[u8], &[u8])>> {
        let LeafCursor { inner, tree, walk, large, ahead } = self;
        if !walk.is_in_head() && !is_stored_form(walk.cursor.lend(passed).1) {
            return Ok(Some(walk.cursor.lend(passed)));
        }
        lend_stored((inner, tree), walk, (large, ahead), Some(passed), forward)
    }

    /// The tree has no more records; that may be because some have moved, or may have.
    #[cold]
    fn lend_end(&mut self, forward: bool) -> Result<Option<(&[u8], &[u8])>> {
        let LeafCursor { inner, tree, walk, large, ahead } = self;
        let at = (&**inner, &*tree);
        let passed = if walk.goes_on(at, forward)? { walk.step(at, forward)? } else { None };
        lend_stored(at, walk, (large, ahead), passed, forward)
    }

    /// See [`super::cursor::Cursor::visit`].
    #[inline]
    pub(super) fn visit<B>(
        &mut self,
        mut each: impl FnMut(&[u8], &[u8]) -> ControlFlow<B>,
    ) -> Result<ControlFlow<B>> {
        self.inner.check_open()?;
        let (inner, tree, large) = (&self.inner, &self.tree, &mut self.large);
        let mut each = |key: &[u8], value: &[u8]| {
            let step = each(key, value).map_break(|with| Stop::With(Ok(with)));
            inner
                .check_process()
                .map_or_else(|forked| ControlFlow::Break(Stop::With(Err(forked))), |()| step)
        };
        let mut is_single = self.walk.is_in_head();
        let ended = loop {
            if is_single {
                // A record at a time, until no head is left.
                let (at, to) = ((&**inner, tree), (&mut *large, &mut self.ahead));
                let passed = self.walk.step(at, true)?;
                match lend_stored(at, &mut self.walk, to, passed, true)? {
                    None => break ControlFlow::Continue(()),
                    Some((key, value)) => {
                        if let ControlFlow::Break(Stop::With(with)) = each(key, value) {
                            break ControlFlow::Break(with);
                        }
                    }
                }
                is_single = self.walk.is_in_head();
                continue;
            }
            let mut step = |key: &[u8], value: &[u8]| {
                if !inner.store.has_stored_forms() || !is_stored_form(value) {
                    return each(key, value);
                }
                visit_stored(inner, tree, large, key, value, &mut each)
            };
            let ended = match inner.store.has_stored_forms() {
                false => self.walk.cursor.visit(step)?,
                true => {
                    let ahead = |value: &[u8], is_near| inner.store.prefetch_kept(value, is_near);
                    self.walk.cursor.visit_ahead(&mut step, ahead)?
                }
            };
            match ended {
                ControlFlow::Continue(()) if self.walk.goes_on((inner, tree), true)? => {}
                ControlFlow::Continue(()) => break ControlFlow::Continue(()),
                ControlFlow::Break(Stop::With(with)) => break ControlFlow::Break(with),
                ControlFlow::Break(Stop::Missed) => {
                    self.ahead.missed(inner, &self.walk.cursor, true);
                }
                ControlFlow::Break(Stop::Long) => {
                    // It was not handed over.
                    self.walk.step((inner, tree), false)?;
                    is_single = true;
                }
            }
        };
        self.visited(ended)
    }

    /// What a visit has come to: after an error the cursor stays failed.
    fn visited<B>(&mut self, ended: ControlFlow<Result<B>>) -> Result<ControlFlow<B>> {
        match ended {
            ControlFlow::Continue(()) => Ok(ControlFlow::Continue(())),
            ControlFlow::Break(with) => {
                with.inspect_err(|error| self.walk.cursor.fail(error)).map(ControlFlow::Break)
            }
        }
    }

    /// [`Self::visit`] without reading large values: for those `each` gets `None`, and may read them with
    /// [`Keyspace::value_reader`](crate::Keyspace::value_reader).
    pub(super) fn visit_short<B>(
        &mut self,
        mut each: impl FnMut(&[u8], Option<&[u8]>) -> ControlFlow<B>,
    ) -> Result<ControlFlow<B>> {
        self.inner.check_open()?;
        let (inner, tree) = (&self.inner, &self.tree);
        let mut each = |key: &[u8], value: Option<&[u8]>| {
            let step = each(key, value).map_break(|with| Stop::With(Ok(with)));
            inner
                .check_process()
                .map_or_else(|forked| ControlFlow::Break(Stop::With(Err(forked))), |()| step)
        };
        let mut is_single = self.walk.is_in_head();
        let ended = loop {
            let ended = if is_single {
                let passed = self.walk.step((inner, tree), true)?;
                let taken =
                    self.walk.take((inner, tree), passed, (true, false), &mut self.large)?;
                let ended = match taken {
                    None => break ControlFlow::Continue(()),
                    Some(Seen::Long { from, .. }) => {
                        each(self.walk.key(), from.map(|from| &self.large[from..]))
                    }
                    Some(Seen::Short(short)) => {
                        let (key, value) = self.walk.cursor.lend(short);
                        each(key, plain(value))
                    }
                };
                is_single = self.walk.is_in_head();
                ended
            } else {
                let visited = self.walk.cursor.visit(|key, value| {
                    if !inner.store.has_stored_forms() {
                        return each(key, Some(value));
                    }
                    match is_stored_form(value) && is_long(tree, key) {
                        true => ControlFlow::Break(Stop::Long),
                        false => each(key, plain(value)),
                    }
                })?;
                match visited {
                    ControlFlow::Continue(()) if self.walk.goes_on((inner, tree), true)? => {
                        continue;
                    }
                    ControlFlow::Continue(()) => break ControlFlow::Continue(()),
                    stopped => stopped,
                }
            };
            match ended {
                ControlFlow::Break(Stop::With(with)) => break ControlFlow::Break(with),
                ControlFlow::Break(Stop::Long) => {
                    self.walk.step((inner, tree), false)?;
                    is_single = true;
                }
                ControlFlow::Break(Stop::Missed) | ControlFlow::Continue(()) => {}
            }
        };
        self.visited(ended)
    }

    /// Moves to before the first record whose key is `key` or greater. This call reads nothing.
    pub(super) fn seek(&mut self, key: &[u8]) {
        if is_long(&self.tree, key) || self.walk.is_in_head() {
            self.walk.seek(&self.inner, &self.tree, key, false);
        } else {
            self.walk.cursor.seek(key);
        }
    }

    /// Moves to before the first record. This call reads nothing.
    pub(super) fn seek_to_start(&mut self) {
        self.walk.leave_head();
        self.walk.cursor.seek_to_start();
    }

    /// Moves to behind the last record. This call reads nothing.
    pub(super) fn seek_to_end(&mut self) {
        self.walk.leave_head();
        self.walk.cursor.seek_to_end();
    }
}

/// The value of a record out of a leaf, if it is there.
fn plain(value: &[u8]) -> Option<&[u8]> {
    match read_stored(value) {
        Stored::Plain(value) => Some(value),
        // What is wrong with a damaged one whoever reads it is told.
        Stored::Extent(_) | Stored::Damaged => None,
    }
}

/// Lends the record that the cursor has just moved over, or the next one that is there: with its whole key and value.
#[inline(never)]
fn lend_stored<'w>(
    (inner, tree): (&Inner, &PoolTree),
    walk: &'w mut Walk,
    (large, ahead): (&'w mut Vec<u8>, &mut ValuesAhead),
    mut passed: Option<Passed>,
    forward: bool,
) -> Result<Option<(&'w [u8], &'w [u8])>> {
    loop {
        let (short, was_read) = match walk.take((inner, tree), passed, (forward, true), large)? {
            None => return Ok(None),
            Some(Seen::Long { from, was_read }) => {
                if was_read {
                    ahead.missed(inner, &walk.cursor, forward);
                }
                return Ok(Some((walk.key(), &large[from.unwrap_or(0)..])));
            }
            Some(Seen::Short(short)) => {
                let (key, value) = walk.cursor.lend(short);
                if !is_stored_form(value) {
                    return Ok(Some(walk.cursor.lend(short)));
                }
                match inner.resolve_into(tree, key, value, large) {
                    Ok(Resolved::Gone) => {
                        passed = walk.step((inner, tree), forward)?;
                        continue;
                    }
                    Ok(resolved) => (short, resolved == Resolved::Read),
                    Err(error) => {
                        walk.cursor.fail(&error);
                        return Err(error);
                    }
                }
            }
        };
        if was_read {
            ahead.missed(inner, &walk.cursor, forward);
        }
        return Ok(Some((walk.cursor.lend(short).0, large)));
    }
}

/// Hands over a record whose value is in a stored form. Apart, so that short values do not pay for its frame.
#[inline(never)]
fn visit_stored<B>(
    inner: &Inner,
    tree: &PoolTree,
    large: &mut Vec<u8>,
    key: &[u8],
    value: &[u8],
    each: &mut impl FnMut(&[u8], &[u8]) -> ControlFlow<Stop<B>>,
) -> ControlFlow<Stop<B>> {
    if is_long(tree, key) {
        return ControlFlow::Break(Stop::Long);
    }
    if let Ok(step) = inner.lend_to(value, large, |value| each(key, value)) {
        return step;
    }
    match inner.resolve_into(tree, key, value, large) {
        Ok(Resolved::InMemory) => each(key, large),
        Ok(Resolved::Read) => {
            each(key, large)?;
            ControlFlow::Break(Stop::Missed)
        }
        Ok(Resolved::Gone) => ControlFlow::Continue(()),
        Err(error) => ControlFlow::Break(Stop::With(Err(error))),
    }
}

/// Why a visit stops.
enum Stop<B> {
    /// It was told to, or there is an error.
    With(Result<B>),
    /// A value was read that was not in memory: it is worth a look ahead.
    Missed,
    /// The record has a long key, and was not handed over.
    Long,
}
