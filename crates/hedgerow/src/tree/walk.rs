//! A walk over all pages of a tree, in key order, while others read and write it.
//!
//! Each page is copied out under validation, or after conflicts under its shared latch, and shown to a visitor together with what its parent says
//! about it. Inner nodes are shown before their children. When a parent changes during the walk, it
//! starts over at the root and passes over all that lies at or below the last finished leaf; inner
//! nodes on the way are then shown again, marked as such.
//!
//! Invariants: nothing is latched, and no place in the pool taken, while the visitor runs; the walk holds one private page for each
//! level. Every leaf moves the finished fence up, or the walk ends: no damage makes it endless.

use super::descend::plain;
use super::retry::Retry;
use super::{MAX_LEVELS, Tree};
use crate::error::{Error, Result};
use crate::page::header::{self, PageKind};
use crate::page::{Access, OptimisticPage, PageMark, Pages, PoolSession, Restart, SharedPage};
use crate::types::PageId;
use hedgerow_sync::optimistic::PageBytes;
use std::collections::{BTreeMap, BTreeSet};

/// A page as a walk shows it.
pub(super) struct Visit<'v> {
    /// The page's id, as its parent names it.
    pub(super) id: PageId,
    /// A validated copy of its bytes.
    pub(super) bytes: &'v [u8],
    /// The level that it must have; `None` for the root, which sets it.
    pub(super) level: Option<u8>,
    /// The fences that it must have, by its parent.
    pub(super) lower: Option<&'v [u8]>,
    /// As above.
    pub(super) upper: Option<&'v [u8]>,
    /// Whether the page was shown before.
    pub(super) again: bool,
}

/// Whether a walk goes on into a page.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Go {
    /// Its children are shown next.
    Down,
    /// It is passed over.
    Past,
    /// Nothing more is shown.
    End,
}

/// One level of the path: a page, and the fences that its parent gives it.
struct Step {
    mark: PageMark,
    bytes: Box<[u8]>,
    lower: Option<Vec<u8>>,
    upper: Option<Vec<u8>>,
}

/// How far a walk has come.
#[derive(Default)]
struct Done {
    /// All keys up to this one are finished; `None` before the first leaf.
    through: Option<Vec<u8>>,
    /// Pages that are needed next and not in memory.
    ahead: Vec<PageId>,
    /// Whether nothing more is to be shown.
    ended: bool,
    /// Pages that are passed over: in a tree that has lost its leaves, all of them.
    unreadable: BTreeSet<PageId>,
    /// A child that was found impossible when it was opened.
    impossible: Option<PageId>,
    /// The page that was shown last on each level: after a restart it is on the way again.
    shown: BTreeMap<u8, PageId>,
}

impl Done {
    /// Notes that a page is shown; true if it was before.
    fn shows(&mut self, id: PageId, level: u8) -> bool {
        self.shown.insert(level, id) == Some(id)
    }
}

/// Most pages that a walk asks for together.
const AHEAD_MAX: usize = 32;

impl<P: Pages> Tree<P> {
    /// Shows every page to `visit`. A page that cannot be read is given to `unreadable` with the error,
    /// which ends the walk by returning one, or lets it pass over the page.
    pub(super) fn walk(
        &self,
        visit: &mut dyn FnMut(Visit<'_>) -> Go,
        unreadable: &mut dyn FnMut(PageId, Error) -> Result<()>,
    ) -> Result<()> {
        let waiting = self.wait.begin();
        let mut retry = Retry::new(&*self.pool, self.root, Access::Scan, &waiting);
        let mut done = Done::default();
        loop {
            let before = done.through.clone();
            let Err(restart) = self.walk_from_root(&mut done, &mut retry, visit) else {
                return Ok(());
            };
            if done.through != before {
                // There was progress: interference is no reason to give up, and what was faulted for
                // the leaves behind need not stay.
                retry = Retry::new(&*self.pool, self.root, Access::Scan, &waiting);
            }
            if !done.ahead.is_empty() {
                retry.session.prefetch(&done.ahead, Access::Scan)?;
                done.ahead.clear();
            }
            match (retry.after(restart), restart) {
                (Ok(()), _) => {}
                (Err(error), Restart::Absent(id)) => {
                    retry.session.let_go();
                    unreadable(id, error)?;
                    done.unreadable.insert(id);
                }
                (Err(error), _) => {
                    let Some(id) = done.impossible.take() else { return Err(error) };
                    retry.session.let_go();
                    unreadable(id, error)?;
                    done.unreadable.insert(id);
                }
            }
        }
    }

    fn walk_from_root(
        &self,
        done: &mut Done,
        retry: &mut Retry<'_, P>,
        visit: &mut dyn FnMut(Visit<'_>) -> Go,
    ) -> Result<(), Restart> {
        let (root, bytes) = self.copy_at(self.root, retry, &|| Ok(self.open_root()?.0))?;
        let level = plain(&bytes).level();
        let again = done.shows(self.root, level);
        let_go_unless(again, retry);
        let go = visit(Visit {
            id: self.root,
            bytes: &bytes,
            level: None,
            lower: None,
            upper: None,
            again,
        });
        if go != Go::Down || level == 0 || !fits(&bytes, level) {
            return Ok(());
        }
        let step = Step { mark: root.mark(), bytes, lower: None, upper: None };
        self.walk_children(&step, level, done, retry, visit)
    }

    fn walk_children(
        &self,
        parent: &Step,
        level: u8,
        done: &mut Done,
        retry: &mut Retry<'_, P>,
        visit: &mut dyn FnMut(Visit<'_>) -> Go,
    ) -> Result<(), Restart> {
        debug_assert!(level > 0 && level < MAX_LEVELS);
        let node = plain(&parent.bytes);
        let count = node.count();
        // Children that end at or below the finished fence are passed over.
        let first = done.through.as_deref().map_or(0, |fence| {
            (0..count).take_while(|&i| key_of(&parent.bytes, i).as_slice() <= fence).count()
        });
        for index in first..=count {
            let id = node.child_at(index);
            let lower = if index == 0 {
                parent.lower.clone()
            } else {
                Some(key_of(&parent.bytes, index - 1))
            };
            let upper = if index == count {
                parent.upper.clone()
            } else {
                Some(key_of(&parent.bytes, index))
            };
            if done.unreadable.contains(&id) {
                finish(done, upper);
                continue;
            }
            let open = || {
                let parent = OptimisticPage::resume(&*self.pool, parent.mark)?;
                OptimisticPage::open(&*self.pool, id, Some(&parent))
            };
            let (page, bytes) =
                self.copy_at(id, retry, &open).inspect_err(|restart| match restart {
                    Restart::Absent(_) => {
                        // The neighbours of one that cannot be read were asked for with it, and may be like it.
                        let before = index.checked_sub(1).map(|i| node.child_at(i));
                        let is_alike = before.is_some_and(|id| done.unreadable.contains(&id));
                        let most = if is_alike { 0 } else { AHEAD_MAX };
                        let next = (index..=count).take(most).map(|i| node.child_at(i));
                        done.ahead.extend(next.filter(|&id| self.pool.translate(id).is_none()));
                    }
                    Restart::Corrupt(_) => done.impossible = Some(id),
                    Restart::Conflict | Restart::Foreign(_) | Restart::Owed | Restart::Gated => {}
                })?;
            let again = done.shows(id, level - 1);
            let_go_unless(again, retry);
            let go = visit(Visit {
                id,
                bytes: &bytes,
                level: Some(level - 1),
                lower: lower.as_deref(),
                upper: upper.as_deref(),
                again,
            });
            done.ended = go == Go::End;
            // A page that is not what its parent says is never taken for an inner node.
            if go == Go::Down && level > 1 && fits(&bytes, level - 1) {
                let step = Step { mark: page.mark(), bytes, lower, upper: upper.clone() };
                self.walk_children(&step, level - 1, done, retry, visit)?;
            }
            if done.ended {
                return Ok(());
            }
            finish(done, upper);
        }
        Ok(())
    }

    /// A page that `open` opens, and a validated copy of it. After conflicts nobody changes it meanwhile: writers would not let a copy of a hot leaf
    /// come to its end.
    fn copy_at<'p>(
        &'p self,
        id: PageId,
        retry: &mut Retry<'_, P>,
        open: &dyn Fn() -> Result<OptimisticPage<'p, P>, Restart>,
    ) -> Result<(OptimisticPage<'p, P>, Box<[u8]>), Restart> {
        let copy = || {
            let page = open()?;
            Ok((page, self.copy_page(&page)?))
        };
        match copy() {
            Err(Restart::Conflict) if retry.is_latched() => {
                let patience = retry.patience();
                // What is found is only believed if the parent still names it, which `open` looks at.
                let _latched = SharedPage::wait(&*self.pool, id, &mut || patience.is_left())?;
                copy()
            }
            copied => copied,
        }
    }

    /// A validated copy of a page.
    pub(super) fn copy_page(&self, page: &OptimisticPage<'_, P>) -> Result<Box<[u8]>, Restart> {
        let page_bytes = self.pool.page_bytes();
        let mut bytes = Vec::with_capacity(page_bytes);
        page.bytes().append_to(0, page_bytes, &mut bytes);
        page.validate()?;
        Ok(bytes.into_boxed_slice())
    }
}

/// Gives up the place in the pool: the visitor may be a user, who reads other pages, and might wait for one that others wait for, and for
/// himself. What was shown before is on the way to what was faulted, which stays.
fn let_go_unless<P: Pages>(again: bool, retry: &mut Retry<'_, P>) {
    if !again {
        retry.session.let_go();
    }
}

/// Notes that all keys up to a fence are finished.
fn finish(done: &mut Done, upper: Option<Vec<u8>>) {
    match upper {
        Some(fence) if done.through.as_ref().is_none_or(|through| *through < fence) => {
            done.through = Some(fence);
        }
        _ => {}
    }
}

/// The fences of a page.
pub(super) fn fences(page: &[u8]) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
    let node = plain(page);
    let (mut lower, mut upper) = (Vec::new(), Vec::new());
    let has_lower = node.append_lower_fence(&mut lower);
    let has_upper = node.append_upper_fence(&mut upper);
    (has_lower.then_some(lower), has_upper.then_some(upper))
}

fn fits(page: &[u8], level: u8) -> bool {
    let kind = if level == 0 { PageKind::ComparisonLeaf } else { PageKind::Inner };
    header::level(page) == level && header::kind(page) == Some(kind)
}

fn key_of(bytes: &[u8], index: usize) -> Vec<u8> {
    let mut key = Vec::new();
    plain(bytes).append_key(index, &mut key);
    key
}
