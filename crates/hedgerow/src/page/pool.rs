//! A page pool: all that the tree needs of whatever holds its pages, under one name.
//!
//! The parts are traits of their own, so that a function says by its bounds what it does: [`Frames`](crate::page::Frames), as far as a
//! page can be held; [`Pages`], to read; [`Journal`] and [`Values`], to change. The buffer pool implements them; so do a heap of pages
//! for tests, and another translation that it is compared with.

use crate::page::journal::Journal;
use crate::page::pages::Pages;
use crate::page::values::Values;

/// Holds pages that can be changed. Every type that has the three has this.
pub trait PagePool: Pages + Journal + Values {}

impl<P: Pages + Journal + Values> PagePool for P {}
