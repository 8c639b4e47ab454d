//! The B-tree over any page pool: one file for each operation.
//!
//! Rank 5. A [`Tree`] is a cheap handle: a pool, the tree's id and its root page. All operations
//! take `&self` and may run in any number of threads. The protocol is optimistic lock coupling, top
//! to bottom ("B-Trees Are Back", section 2; Leis et al., "Optimistic Lock Coupling"):
//!
//! - A reader takes the version of a child's frame, validates the parent, reads, validates. It
//!   stores nothing into pages.
//! - A writer goes down like a reader and upgrades at the leaf. A structure change latches parent
//!   and children exclusively by upgrades, parent before child, left before right, and then applies:
//!   it never waits while it holds a latch.
//! - A restart is a value; the loop is at the top of each operation (`retry`). After three
//!   conflicts an operation waits for the latch of its leaf. After six it goes down with shared latches, and
//!   exclusive ones for the pages that it changes, so that it ends. All its waits together are bounded.
//! - Before a page fault everything is let go of, and the operation starts over at the root.
//!
//! Invariants: the root's page id never changes; a child's level is its parent's less one; a child's
//! fences are the separators beside it in the parent; lower fence < key <= upper fence.
//!
//! | file | operation |
//! |---|---|
//! | `create` | a new tree |
//! | `retry` | restarts, faults, the bound on waiting |
//! | `descend` | root to leaf, optimistic and latched |
//! | `get`, `get_many`, `get_many_faults`, `value` | look-ups, single and in groups |
//! | `search_by` | a look-up by an order that the records have |
//! | `ends` | the first and the last record: read, or taken out |
//! | `beside_alone` | look-ups beside a large commit |
//! | `write`, `change` | the one way to change a leaf; put, insert, update, swap, remove |
//! | `modify` | read-modify-write of one record |
//! | `remove_range` | all records of a range, leaf by leaf |
//! | `commit`, `commit_leaves`, `write_set`, `read_set` | several changes at one stroke, if what was read is unchanged |
//! | `large` | values that stand for large ones |
//! | `split`, `merge`, `redistribute`, `sparse` | structure changes; `b_star`: for measurements |
//! | `contention` | splits between keys that threads contend for |
//! | `compact`, `relieve` | fewer leaves for the same records: on request, and before leaves are written to make room |
//! | `estimate` | about how much lies between two keys |
//! | `cursor`, `leaf_copy`, `leaf_walk`, `leaf_records`, `window`, `visit`, `read_ahead` | ordered iteration, both ways, and from within |
//! | `frozen` | look-ups and scans of trees that do not change any more |
//! | `adapt` | layouts that follow use |
//! | `bulk` | loading sorted records into an empty tree |
//! | `walk`, `verify`, `stats`, `value_stats`, `show`, `drop` | whole-tree passes |

mod adapt;
#[cfg(hedgerow_internals)]
mod b_star;
mod beside_alone;
mod bulk;
mod change;
mod commit;
mod commit_leaves;
mod compact;
mod contention;
mod create;
mod cursor;
mod descend;
mod drop;
mod ends;
mod estimate;
mod frozen;
mod get;
mod get_many;
mod get_many_faults;
mod large;
mod leaf_copy;
mod leaf_records;
mod leaf_walk;
mod merge;
mod modify;
mod read_ahead;
mod read_set;
mod redistribute;
mod relieve;
mod remove_range;
mod retry;
mod search_by;
mod show;
mod sparse;
mod split;
mod stats;
#[cfg(test)]
mod tests;
mod value;
mod value_stats;
mod verify;
mod visit;
mod walk;
mod window;
mod write;
mod write_set;

pub use bulk::BulkLoad;
pub use change::{CompareAndSwap, Part};
pub use commit::Stroke;
pub use commit_leaves::Fences;
pub use compact::{CompactBudget, CompactReport};
pub use contention::ContentionSplit;
pub use cursor::{Cursor, Passed};
pub use descend::Target;
pub use ends::{End, Taken};
pub use estimate::{Estimate, Measure};
pub use frozen::{FrozenTree, FrozenWalk};
pub use leaf_records::LeafRecords;
pub use leaf_walk::{Beyond, LeafWalk};
pub use modify::{Before, Updated};
pub use read_set::{AskFile, FromFile, InFile, Judge, Read, ReadSet};
pub use remove_range::successor;
pub use retry::dropped;
pub use show::{LeafKeys, PageView};
pub use stats::{FILL_CLASSES, LayoutStats, LevelStats, TreeStats};
pub use value::{INLINE_BYTES, Value};
pub use value_stats::ValueStats;
#[cfg(hedgerow_internals)]
pub use verify::Finding;
pub use verify::TreeDefect;
pub use write_set::{Write, encode, fit_piece, piece_bytes, purpose_of};

use crate::error::{Error, ErrorKind, Result};
use crate::node::{self, LeafPolicy};
use crate::page::{PagePool, Pages};
use crate::types::{PageId, TreeId};
use crate::wait::Wait;
use hedgerow_sync::primitive::Arc;

/// No path from root to leaf is longer; a deeper one is damage.
pub const MAX_LEVELS: u8 = node::MAX_LEVEL + 1;

/// A handle to one tree of a pool. Cloning it copies a reference; `Send + Sync`.
pub struct Tree<P: Pages> {
    pool: Arc<P>,
    id: TreeId,
    root: PageId,
    policy: LeafPolicy,
    contention: ContentionSplit,
    wait: Wait,
    logged: bool,
    frees: bool,
    #[cfg(hedgerow_internals)]
    is_b_star: bool,
    short_keys: bool,
    max_short_key_bytes: usize,
}

impl<P: Pages> Clone for Tree<P> {
    fn clone(&self) -> Self {
        Tree { pool: self.pool.clone(), wait: self.wait.clone(), ..*self }
    }
}

impl<P: Pages> std::fmt::Debug for Tree<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tree").field("id", &self.id).field("root", &self.root).finish()
    }
}

impl<P: Pages> Tree<P> {
    /// A handle to the tree `id` whose root is page `root`. Nothing is read: that the page is a root
    /// of this tree is checked by each operation.
    pub fn open(pool: Arc<P>, id: TreeId, root: PageId) -> Self {
        let max_short_key_bytes = node::max_short_key_bytes(pool.page_bytes());
        Tree {
            pool,
            id,
            root,
            policy: LeafPolicy::default(),
            contention: ContentionSplit::default(),
            wait: Wait::Default,
            logged: false,
            frees: false,
            #[cfg(hedgerow_internals)]
            is_b_star: false,
            short_keys: false,
            max_short_key_bytes,
        }
    }

    /// The same tree, for which this handle and its clones choose the layouts of leaves by `policy`. Those
    /// that there are stay as they are until they are split, merged, or found to be used otherwise.
    pub fn with_policy(self, policy: LeafPolicy) -> Self {
        Tree { policy, ..self }
    }

    /// The same tree, of which this handle and its clones count contention by `split`, and split leaves; `None`: they do
    /// neither.
    pub fn with_contention_split(self, split: Option<ContentionSplit>) -> Self {
        Tree { contention: split.unwrap_or(ContentionSplit::OFF), ..self }
    }

    /// The same tree, for which this handle and its clones wait as `wait` says: look-ups, changes and scans. Loading,
    /// compacting and dropping it wait as long as they have to.
    pub fn with_wait(self, wait: Wait) -> Self {
        Tree { wait, ..self }
    }

    /// How this handle waits.
    pub fn wait(&self) -> &Wait {
        &self.wait
    }

    /// The same tree, of which what this handle and its clones change goes to the pool's log, if it has one.
    pub fn with_log(self) -> Self {
        Tree { logged: true, ..self }
    }

    /// The same tree, for whoever frees its pages or looks at what is left of them: for any other handle it is gone as soon as that has begun.
    pub fn to_free(self) -> Self {
        Tree { frees: true, ..self }
    }

    /// The same tree, whose handle and its clones refuse changes of records with a key above [`Self::max_short_key_bytes`], or take those up
    /// to [`Self::max_key_bytes`] as well. Reads and range removals go by any key.
    pub fn with_short_keys(self, short_keys: bool) -> Self {
        Tree { short_keys, ..self }
    }

    /// How the layouts of leaves are chosen.
    #[cfg(hedgerow_internals)]
    pub fn policy(&self) -> LeafPolicy {
        self.policy
    }

    /// The pool that holds the pages.
    pub fn pool(&self) -> &Arc<P> {
        &self.pool
    }

    /// The tree's id.
    pub fn id(&self) -> TreeId {
        self.id
    }

    /// The root's page id; it never changes.
    pub fn root(&self) -> PageId {
        self.root
    }

    /// The longest key, in bytes.
    pub fn max_key_bytes(&self) -> usize {
        node::max_key_bytes(self.pool.page_bytes())
    }

    /// The longest key that is a user's as it is, in bytes.
    #[inline]
    pub fn max_short_key_bytes(&self) -> usize {
        self.max_short_key_bytes
    }

    /// The largest record, in bytes of key and value together.
    pub fn max_record_bytes(&self) -> usize {
        node::max_record_bytes(self.pool.page_bytes())
    }
}

impl<P: PagePool> Tree<P> {
    /// Refuses what no leaf of this page size can hold.
    #[inline]
    pub(crate) fn check_record(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let max_key_bytes = self.max_short_key_bytes();
        let len_bytes = key.len().saturating_add(value.len());
        // Nearly all records are no longer than a key may be.
        if len_bytes <= max_key_bytes {
            return Ok(());
        }
        let max_bytes = self.max_record_bytes();
        if key.len() <= max_key_bytes && len_bytes <= max_bytes {
            Ok(())
        } else {
            self.check_long_record(key.len(), len_bytes)
        }
    }

    /// A record whose key has a label, or one that is too long.
    #[cold]
    fn check_long_record(&self, key_bytes: usize, len_bytes: usize) -> Result<()> {
        let max_bytes = self.max_record_bytes();
        let max_key_bytes =
            if self.short_keys { self.max_short_key_bytes() } else { self.max_key_bytes() };
        if key_bytes > max_key_bytes || len_bytes > max_bytes {
            return Err(record_error(key_bytes, max_key_bytes, len_bytes, max_bytes));
        }
        self.pool.expect_long_keys();
        Ok(())
    }
}

#[cold]
fn record_error(
    key_bytes: usize,
    max_key_bytes: usize,
    len_bytes: usize,
    max_bytes: usize,
) -> Error {
    if key_bytes > max_key_bytes {
        let kind = ErrorKind::KeyTooLong { len_bytes: key_bytes, max_bytes: max_key_bytes };
        Error::new(
            kind,
            format!("a key of {key_bytes} bytes; the longest that fits has {max_key_bytes}"),
        )
    } else {
        let kind = ErrorKind::RecordTooLarge { len_bytes, max_bytes };
        Error::new(
            kind,
            format!("a record of {len_bytes} bytes; the largest that fits has {max_bytes}"),
        )
    }
}
