//! Verification of a whole tree, page by page, while others read and write it.
//!
//! Each page is checked by itself ([`crate::node::check`]: order, prefix, heads, hints, counts, space)
//! and against what its parent says: id, tree, level, fences. Every defect is reported; a damaged page
//! ends only what lies below it. Thread-safety: as for [`Tree`]; what others change meanwhile is seen
//! before or after the change, never as a defect.

use super::Tree;
use super::walk::{Go, Visit};
use crate::error::{Error, Result, Signal};
use crate::node::{self, Defect};
use crate::page::Pages;
use crate::page::header;
use crate::types::{PageId, TreeId};
use std::fmt;
use std::ops::ControlFlow;

/// Something that is wrong with a page of a tree.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum TreeDefect {
    /// Within the page.
    Node(Defect),
    /// The page names another id than the one that led to it.
    PageId(PageId),
    /// The page belongs to another tree.
    TreeId(TreeId),
    /// The page has another level than its place in the tree asks for.
    Level {
        /// What it says.
        found: u8,
        /// Its parent's less one.
        expected: u8,
    },
    /// The lower fence is not the separator in the parent.
    LowerFence,
    /// The upper fence is not the separator in the parent.
    UpperFence,
    /// The page could not be read; the error's text.
    Unreadable(String),
}

impl fmt::Display for TreeDefect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TreeDefect::Node(defect) => defect.fmt(f),
            TreeDefect::PageId(found) => write!(f, "the page says that it is {found}"),
            TreeDefect::TreeId(found) => write!(f, "the page belongs to tree {}", found.0),
            TreeDefect::Level { found, expected } => {
                write!(f, "the page is of level {found}, its place of level {expected}")
            }
            TreeDefect::LowerFence => f.write_str("the lower fence is not the parent's separator"),
            TreeDefect::UpperFence => f.write_str("the upper fence is not the parent's separator"),
            TreeDefect::Unreadable(error) => write!(f, "the page cannot be read: {error}"),
        }
    }
}

/// A page of a tree, and all that is wrong with it.
#[cfg(hedgerow_internals)]
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The page.
    pub page: PageId,
    /// What is wrong; never empty.
    pub defects: Vec<TreeDefect>,
}

/// Called once for each page with what is wrong with it; says whether to go on.
pub type Report<'r> = &'r mut dyn FnMut(PageId, &[TreeDefect]) -> ControlFlow<()>;

impl<P: Pages> Tree<P> {
    /// Checks the whole tree and gives what is wrong with it; an empty list is a clean tree.
    ///
    /// Errors: the root cannot be read; `KeyspaceDropped`; `Timeout`. Damage is no error here.
    #[cfg(hedgerow_internals)]
    pub fn verify(&self) -> Result<Vec<Finding>> {
        let mut findings = Vec::new();
        self.verify_with(&mut |page, defects| {
            if !defects.is_empty() {
                findings.push(Finding { page, defects: defects.to_vec() });
            }
            ControlFlow::Continue(())
        })?;
        Ok(findings)
    }

    /// The same, and calls `report` once for each page with what is wrong with it (nothing, if all is
    /// well), in the order of the keys, parents before children. `Break` ends the check.
    pub fn verify_with(&self, report: Report<'_>) -> Result<()> {
        self.verify_pages(false, report)
    }

    /// [`Tree::verify_with`] for a tree whose drop may have been cut short: it goes from the right, so
    /// that what is left ends before its upper fence.
    pub fn verify_half_dropped(&self, report: Report<'_>) -> Result<()> {
        self.verify_pages(true, report)
    }

    fn verify_pages(&self, half_dropped: bool, report: Report<'_>) -> Result<()> {
        // Both closures report; they run one after the other.
        let report = std::cell::RefCell::new(report);
        self.walk(
            &mut |visit| {
                let mut defects = self.defects(&visit);
                if half_dropped {
                    defects.retain(|defect| *defect != TreeDefect::UpperFence);
                }
                let sound = defects.is_empty();
                if !visit.again && (report.borrow_mut())(visit.id, &defects).is_break() {
                    return Go::End;
                }
                if sound { Go::Down } else { Go::Past }
            },
            &mut |id: PageId, error: Error| {
                let is_finding = error.is_loss() || error.signal() == Some(Signal::PageFreed);
                if id == self.root || !is_finding {
                    return Err(error);
                }
                // The walk asks again at the next page that it shows.
                let defect = TreeDefect::Unreadable(error.message());
                let _ = (report.borrow_mut())(id, &[defect]);
                Ok(())
            },
        )
    }

    pub(super) fn defects(&self, visit: &Visit<'_>) -> Vec<TreeDefect> {
        let page = visit.bytes;
        let mut defects = Vec::new();
        if header::page_id(page) != visit.id {
            defects.push(TreeDefect::PageId(header::page_id(page)));
        }
        if header::tree_id(page) != self.id {
            defects.push(TreeDefect::TreeId(header::tree_id(page)));
        }
        let found = header::level(page);
        if let Some(expected) = visit.level
            && found != expected
        {
            defects.push(TreeDefect::Level { found, expected });
        }
        let in_node = node::check(page);
        // Fences are compared only in a page whose lengths can be trusted.
        if in_node.is_empty() {
            let (lower, upper) = super::walk::fences(page);
            if lower.as_deref() != visit.lower {
                defects.push(TreeDefect::LowerFence);
            }
            if upper.as_deref() != visit.upper {
                defects.push(TreeDefect::UpperFence);
            }
        }
        defects.extend(in_node.into_iter().map(TreeDefect::Node));
        defects
    }
}
