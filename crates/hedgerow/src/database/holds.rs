//! References to a database that transactions share, so that they begin and end without a count that all threads raise and lower.
//!
//! A transaction and each keyspace in it are owned handles, so they keep the database open. Each [`Hold`] is one reference to the database, and a
//! transaction has a share in that of its thread. There is one for each of the first threads, each with a line of the cache to itself; threads
//! beyond those share them. All holds are the [`Database`](super::Database)'s, and go with its last handle and the last transaction. `Send + Sync`.

use super::inner::Inner;
use super::stats::{TransactionCounters, TransactionStats};
use hedgerow_sync::primitive::{Arc, thread};

/// How many holds a database has.
const HOLDS: usize = if cfg!(any(loom, shuttle)) { 2 } else { 32 };

/// One reference to the database, of which many transactions have a share.
#[repr(align(128))]
pub(super) struct Hold {
    pub(super) inner: Arc<Inner>,
    pub(super) transactions: TransactionCounters,
}

/// All holds of a database.
pub(super) struct Holds(Box<[Arc<Hold>]>);

impl Holds {
    pub(super) fn of(inner: &Arc<Inner>) -> Holds {
        let hold = |_| {
            let transactions = TransactionCounters::default();
            Arc::new(Hold { inner: inner.clone(), transactions })
        };
        Holds((0..HOLDS).map(hold).collect())
    }

    /// That of this thread.
    #[inline]
    pub(super) fn own(&self) -> &Arc<Hold> {
        &self.0[thread::id() % HOLDS]
    }

    /// How the transactions of all of them have ended.
    pub(super) fn transactions(&self) -> TransactionStats {
        let mut sum = TransactionStats::default();
        self.0.iter().for_each(|hold| hold.transactions.add_to(&mut sum));
        sum
    }
}
