//! Showing the pages of a tree to a tool that draws them.
//!
//! Each page is shown once, as a private copy together with what is wrong with it; inner nodes before
//! their children, those in the order of their keys. Nothing is latched meanwhile, and under writers each
//! page is what it was at one moment. Thread-safety: as for [`Tree`].

use super::Tree;
use super::verify::TreeDefect;
use super::walk::Go;
use crate::error::Result;
use crate::node::Ladder;
use crate::page::PagePool;
use crate::types::PageId;
use std::cell::RefCell;
use std::ops::ControlFlow;

/// A page as a tool sees it.
#[derive(Clone, Copy, Debug)]
pub struct PageView<'v> {
    /// The page's id, as its parent names it.
    pub id: PageId,
    /// A copy of its bytes; `None` if it cannot be read, and then a defect says why.
    pub bytes: Option<&'v [u8]>,
    /// What is wrong with it, as [`Tree::verify`] finds it. What lies below a damaged page is not shown.
    pub defects: &'v [TreeDefect],
}

impl<P: PagePool, L: Ladder> Tree<P, L> {
    /// Shows every page, until `show` breaks off. Reads every page on the way.
    ///
    /// Errors: the root cannot be read; `KeyspaceDropped`; `Timeout`. Damage is no error here.
    pub fn show_pages(&self, show: &mut dyn FnMut(PageView<'_>) -> ControlFlow<()>) -> Result<()> {
        // Both closures show; they run one after the other.
        let show = RefCell::new(show);
        let broken_off = RefCell::new(false);
        self.walk(
            &mut |visit| {
                if visit.again {
                    return Go::Down;
                }
                if *broken_off.borrow() {
                    return Go::End;
                }
                let defects = self.defects(&visit);
                let view = PageView { id: visit.id, bytes: Some(visit.bytes), defects: &defects };
                match (show.borrow_mut())(view) {
                    ControlFlow::Break(()) => Go::End,
                    ControlFlow::Continue(()) if defects.is_empty() => Go::Down,
                    ControlFlow::Continue(()) => Go::Past,
                }
            },
            &mut |id, error| {
                if id == self.root {
                    return Err(error);
                }
                let defects = [TreeDefect::Unreadable(error.to_string())];
                let view = PageView { id, bytes: None, defects: &defects };
                *broken_off.borrow_mut() |= (show.borrow_mut())(view).is_break();
                Ok(())
            },
        )
    }
}
