//! One tree over three pools: what translation and eviction cost, with everything else the same.
//!
//! | competitor | where its pages are |
//! |---|---|
//! | `tree-heap` | in memory for good, page id = index; no file, no eviction |
//! | `tree-frames` | in the engine's buffer pool |
//! | `tree-vmcache` | at addresses of their own ([`crate::vmcache`]) |
//!
//! The nodes have all that "B-Trees Are Back" adds to a slotted page; with `-baseline` behind the name
//! nothing of it, with `-prefix` prefix truncation, with `-heads` heads beside that, which other builds of this
//! program have. With the name of a layout behind it all leaves have that one, else each has its own. These
//! competitors reach below the public API, into modules that no user sees; there is no transaction, no catalogue
//! and no handle between the harness and the tree.
//!
//! [`Home`] is the part that differs; `homes` has one for each pool.

pub mod homes;

use super::up_to;
use crate::cell::{Cell, CellError, Place, TreeShape};
use crate::harness::{Engine, Session, ValueBytes};
use hedgerow::internals::error::{Error, ErrorKind};
use hedgerow::internals::page::{Frames, PagePool};
use hedgerow::internals::tree::{Cursor, Tree};
use hedgerow::internals::types::TreeId;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The measured tree's id: above those that a store's own catalogue gives out.
const TREE: TreeId = TreeId(1 << 20);

/// A pool, and what else has to live as long as it is used.
pub trait Home: Sized {
    /// The pool.
    type Pool: PagePool;

    /// Makes an empty pool for the cell. `record_bytes`: bytes of all keys and values together.
    ///
    /// Errors: `Unsupported` if it cannot be in this place or within such a limit; `Failed`.
    fn create(cell: &Cell, record_bytes: u64) -> Result<Self, CellError>;

    /// The pool.
    fn pool(&self) -> &Arc<Self::Pool>;

    /// Brings the file up to date.
    fn settle(&self) -> Result<(), CellError>;

    /// Pages read and written so far, if the pool reads and writes.
    fn pages_read_and_written(&self) -> (Option<u64>, Option<u64>);

    /// What the memory is spent on.
    fn facts(&self) -> BTreeMap<String, String>;
}

/// What went wrong, as the harness wants it told.
fn failed(error: Error) -> CellError {
    match error.kind() {
        ErrorKind::InvalidOption => CellError::Unsupported(error.to_string()),
        _ => CellError::Failed(error.to_string()),
    }
}

/// A tree in its home.
pub struct TreeEngine<H: Home> {
    tree: Tree<H::Pool>,
    home: H,
    place: Place,
}

/// One thread's handles.
pub struct TreeSession<'a, P: PagePool> {
    tree: &'a Tree<P>,
    cursor: Cursor<P>,
}

impl<H: Home> Engine for TreeEngine<H> {
    type Session<'a>
        = TreeSession<'a, H::Pool>
    where
        Self: 'a;

    fn create(cell: &Cell, record_bytes: u64) -> Result<Self, CellError> {
        let home = H::create(cell, record_bytes)?;
        let policy = super::leaf_policy(&cell.competitor);
        let tree = Tree::create_with(home.pool().clone(), TREE, policy).map_err(failed)?;
        Ok(TreeEngine { tree, home, place: cell.place })
    }

    fn sessions(&mut self, threads: usize) -> Result<Vec<TreeSession<'_, H::Pool>>, CellError> {
        let tree = &self.tree;
        Ok((0..threads).map(|_| TreeSession { tree, cursor: tree.scan() }).collect())
    }

    /// In a file it is there at the end.
    fn bulk_load<'k>(
        &mut self,
        records: impl Iterator<Item = (&'k [u8], ValueBytes)>,
    ) -> Result<(), CellError> {
        let mut load = self.tree.bulk_load(100).map_err(failed)?;
        for (key, value) in records {
            load.push(key, &value).map_err(failed)?;
        }
        load.finish().map_err(failed)?;
        self.home.settle()
    }

    fn settle(&mut self) -> Result<(), CellError> {
        self.home.settle()
    }

    fn pages_read_and_written(&self) -> (Option<u64>, Option<u64>) {
        self.home.pages_read_and_written()
    }

    /// Counting the pages of a file would read all of them.
    fn store_bytes(&mut self) -> Result<Option<u64>, CellError> {
        if self.place == Place::File {
            return Ok(None);
        }
        let stats = self.tree.stats().map_err(failed)?;
        Ok(Some(stats.pages() * self.home.pool().page_bytes() as u64))
    }

    /// As for [`Self::store_bytes`].
    fn shape(&mut self) -> Result<Option<TreeShape>, CellError> {
        if self.place == Place::File {
            return Ok(None);
        }
        Ok(Some(super::shape(&self.tree.stats().map_err(failed)?)))
    }

    fn facts(&self) -> BTreeMap<String, String> {
        let mut facts = self.home.facts();
        facts.insert("page_bytes".into(), self.home.pool().page_bytes().to_string());
        facts
    }
}

impl<P: PagePool> Session for TreeSession<'_, P> {
    #[inline]
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), CellError> {
        self.tree.put(key, value).map(|_| ()).map_err(failed)
    }

    #[inline]
    fn get(&mut self, key: &[u8], mut found: impl FnMut(&[u8])) -> Result<(), CellError> {
        if let Some(value) = self.tree.get(key).map_err(failed)? {
            found(&value);
        }
        Ok(())
    }

    #[inline]
    fn get_many(&mut self, keys: &[&[u8]], mut found: impl FnMut(&[u8])) -> Result<(), CellError> {
        let values = self.tree.get_many(keys).map_err(failed)?;
        values.iter().flatten().for_each(|value| found(value));
        Ok(())
    }

    #[inline]
    fn scan(
        &mut self,
        from: &[u8],
        records: usize,
        mut found: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), CellError> {
        self.cursor.seek(from);
        self.cursor.visit(up_to(records, &mut found)).map(drop).map_err(failed)
    }

    #[inline]
    fn remove(&mut self, key: &[u8]) -> Result<(), CellError> {
        self.tree.remove(key).map(|_| ()).map_err(failed)
    }
}
