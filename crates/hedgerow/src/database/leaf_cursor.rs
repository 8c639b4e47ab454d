//! A cursor over the leaves of a keyspace as they are now, which resolves large values.
//!
//! Rank 7. What users see is [`super::cursor::Cursor`]. It copies one leaf at a time. After an error it stays failed. `Send`; used by one thread at a
//! time.

use crate::buffer::BufferPool;
use crate::database::database::Inner;
use crate::database::large::Resolved;
use crate::error::Result;
use crate::space::extent::{Stored, is_stored_form, read_stored};
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
            inner.store.read_values_ahead(&next, &cursor.wait().to_tidy_up());
        }
    }
}

/// See the head of the file.
pub(super) struct LeafCursor {
    inner: Arc<Inner>,
    tree: PoolTree,
    cursor: tree::Cursor<BufferPool>,
    /// The value that was lent last, if it did not lie in its leaf.
    large: Vec<u8>,
    ahead: ValuesAhead,
}

impl LeafCursor {
    pub(super) fn new(inner: Arc<Inner>, tree: PoolTree) -> LeafCursor {
        let cursor = tree.scan();
        LeafCursor { inner, tree, cursor, large: Vec::new(), ahead: ValuesAhead::default() }
    }

    /// The record behind the cursor, which moves over it; `None` at the end. Key and value are lent until the cursor is used again.
    #[inline]
    pub(super) fn next_record(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        self.inner.check_open()?;
        let Some(passed) = self.cursor.advance()? else { return Ok(None) };
        if self.inner.store.has_stored_forms() {
            self.lend(passed, true)
        } else {
            Ok(Some(self.cursor.lend(passed)))
        }
    }

    /// The record before the cursor, which moves over it; `None` at the start. Key and value are lent until the cursor is used again.
    #[inline]
    pub(super) fn previous_record(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        self.inner.check_open()?;
        let Some(passed) = self.cursor.go_back()? else { return Ok(None) };
        if self.inner.store.has_stored_forms() {
            self.lend(passed, false)
        } else {
            Ok(Some(self.cursor.lend(passed)))
        }
    }

    /// Lends a record of a store that may have values elsewhere than in leaves. One that has gone meanwhile is passed
    /// over.
    fn lend(&mut self, passed: Passed, forward: bool) -> Result<Option<(&[u8], &[u8])>> {
        let mut passed = passed;
        loop {
            let (key, value) = self.cursor.lend(passed);
            if !is_stored_form(value) {
                return Ok(Some(self.cursor.lend(passed)));
            }
            match self.inner.resolve_into(&self.tree, key, value, &mut self.large) {
                Ok(Resolved::InMemory) => {
                    return Ok(Some((self.cursor.lend(passed).0, &self.large)));
                }
                Ok(Resolved::Read) => {
                    self.ahead.missed(&self.inner, &self.cursor, forward);
                    return Ok(Some((self.cursor.lend(passed).0, &self.large)));
                }
                Ok(Resolved::Gone) => {}
                Err(error) => {
                    self.cursor.fail(&error);
                    return Err(error);
                }
            }
            let next = if forward { self.cursor.advance()? } else { self.cursor.go_back()? };
            match next {
                Some(next) => passed = next,
                None => return Ok(None),
            }
        }
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
        let ended = loop {
            let mut step = |key: &[u8], value: &[u8]| {
                if !inner.store.has_stored_forms() || !is_stored_form(value) {
                    return each(key, value);
                }
                visit_stored(inner, tree, large, key, value, &mut each)
            };
            let ended = match inner.store.has_stored_forms() {
                false => self.cursor.visit(step)?,
                true => {
                    let ahead = |value: &[u8], is_near| inner.store.prefetch_kept(value, is_near);
                    self.cursor.visit_ahead(&mut step, ahead)?
                }
            };
            match ended {
                ControlFlow::Continue(()) => break ControlFlow::Continue(()),
                ControlFlow::Break(Stop::With(with)) => break ControlFlow::Break(with),
                ControlFlow::Break(Stop::Missed) => self.ahead.missed(inner, &self.cursor, true),
            }
        };
        self.visited(ended)
    }

    /// What a visit has come to: after an error the cursor stays failed.
    fn visited<B>(&mut self, ended: ControlFlow<Result<B>>) -> Result<ControlFlow<B>> {
        match ended {
            ControlFlow::Continue(()) => Ok(ControlFlow::Continue(())),
            ControlFlow::Break(with) => {
                with.inspect_err(|error| self.cursor.fail(error)).map(ControlFlow::Break)
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
        let inner = &self.inner;
        let mut each = |key: &[u8], value: Option<&[u8]>| {
            let step = each(key, value).map_break(Ok);
            inner.check_process().map_or_else(|forked| ControlFlow::Break(Err(forked)), |()| step)
        };
        let ended = self.cursor.visit(|key, value| {
            if !inner.store.has_stored_forms() {
                return each(key, Some(value));
            }
            match read_stored(value) {
                Stored::Plain(value) => each(key, Some(value)),
                // What is wrong with a damaged one whoever reads it is told.
                Stored::Extent(_) | Stored::Damaged => each(key, None),
            }
        })?;
        self.visited(ended)
    }

    /// Moves to before the first record whose key is `key` or greater. This call reads nothing.
    pub(super) fn seek(&mut self, key: &[u8]) {
        self.cursor.seek(key);
    }

    /// Moves to before the first record. This call reads nothing.
    pub(super) fn seek_to_start(&mut self) {
        self.cursor.seek_to_start();
    }

    /// Moves to behind the last record. This call reads nothing.
    pub(super) fn seek_to_end(&mut self) {
        self.cursor.seek_to_end();
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
}
