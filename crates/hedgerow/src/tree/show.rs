//! Showing the pages of a tree to a tool that draws them, and what of a page such a tool asks for.
//!
//! Each page is shown once, as a private copy together with what is wrong with it; inner nodes before
//! their children, those in the order of their keys. Nothing is latched meanwhile, and under writers each
//! page is what it was at one moment. Thread-safety: as for [`Tree`].

use super::Tree;
use super::verify::TreeDefect;
use super::walk::Go;
use crate::error::Result;
use crate::node::anatomy::{Anatomy, anatomy};
use crate::node::dense::KeyShape;
use crate::node::{LeafLayout, key_traits, plain_leaf};
use crate::page::Pages;
use crate::page::header::{self, PageKind};
use crate::types::PageId;
use std::cell::RefCell;
use std::ops::ControlFlow;

/// A page as a tool sees it: see [`Keyspace::show_pages`](crate::Keyspace::show_pages).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct PageView<'v> {
    /// The page's id, as its parent names it.
    pub id: PageId,
    /// A copy of its bytes; `None` if it cannot be read, and then a defect says why.
    pub bytes: Option<&'v [u8]>,
    /// What lies below a damaged page is not shown.
    pub(crate) defects: &'v [TreeDefect],
}

/// The keys of a leaf, as far as the choice of its layout depends on them.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct LeafKeys {
    /// The layout that it has.
    pub layout: LeafLayout,
    /// Number of keys, never zero.
    pub count: u64,
    /// The first one.
    pub first: Vec<u8>,
    /// Bytes of all keys behind what the leaf's fences have in common. Zero in a dense leaf, as the next three.
    pub suffix_bytes: u64,
    /// How many keys have the same first four bytes, behind that, as the key before them.
    pub same_heads: u64,
    /// Whether these are so many that the leaf is hashed.
    pub are_heads_alike: bool,
    /// Whether the keys are so long that the leaf is hashed.
    pub are_long: bool,
    /// If the keys have one length and differ in their last four bytes only: how many such keys there can be from the first to the last one.
    pub numbers: Option<u64>,
}

impl PageView<'_> {
    /// What is wrong with it, a sentence each. [`Database::verify`](crate::Database::verify) finds the same.
    #[must_use]
    pub fn defects(&self) -> Vec<String> {
        self.defects.iter().map(ToString::to_string).collect()
    }

    /// What it says that it is; `None` if it cannot be read, or this version knows no such kind.
    #[must_use]
    pub fn kind(&self) -> Option<PageKind> {
        self.bytes.and_then(header::kind)
    }

    /// Its level, 0 for a leaf; `None` if it cannot be read.
    #[must_use]
    pub fn level(&self) -> Option<u8> {
        self.bytes.map(header::level)
    }

    /// Its number of records or separators; `None` if it cannot be read or is damaged.
    #[must_use]
    pub fn count(&self) -> Option<usize> {
        self.sound().map(|page| plain_leaf(page).count())
    }

    /// The bytes that are in use; `None` if it cannot be read or is damaged.
    #[must_use]
    pub fn used_bytes(&self) -> Option<usize> {
        self.sound().map(|page| plain_leaf(page).used_bytes())
    }

    /// What every byte is for, with the first `most` records; `None` if it cannot be read.
    #[must_use]
    pub fn anatomy(&self, most: usize) -> Option<Anatomy> {
        self.bytes.map(|page| anatomy(page, most))
    }

    /// Its keys, if it is a leaf that has some. Takes time and memory in proportion to them.
    #[must_use]
    pub fn leaf_keys(&self) -> Option<LeafKeys> {
        let page = self.sound().filter(|page| header::level(page) == 0)?;
        let entries = anatomy(page, usize::MAX).entries;
        let mut keys: Vec<_> = entries.into_iter().map(|entry| entry.key).collect();
        keys.sort_unstable();
        let (first, last) = (keys.first()?, keys.last()?);
        let traits = key_traits(&mut page.to_vec());
        let shape = KeyShape::of(first).filter(|shape| keys.iter().all(|key| shape.has(key)));
        Some(LeafKeys {
            layout: LeafLayout::of(page),
            count: keys.len() as u64,
            first: first.clone(),
            suffix_bytes: traits.map_or(0, |traits| traits.suffix_bytes as u64),
            same_heads: traits.map_or(0, |traits| traits.same_heads as u64),
            are_heads_alike: traits.is_some_and(|traits| traits.are_heads_alike()),
            are_long: traits.is_some_and(|traits| traits.are_long()),
            numbers: shape.map(|shape| shape.first_from(last) - shape.first_from(first) + 1),
        })
    }

    fn sound(&self) -> Option<&[u8]> {
        self.bytes.filter(|_| self.defects.is_empty())
    }
}

impl<P: Pages> Tree<P> {
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
