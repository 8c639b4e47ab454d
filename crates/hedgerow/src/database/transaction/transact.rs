//! How transactions begin, and running a function in one, and again after a conflict.
//!
//! No state of its own. Who has a conflict waits a little before it runs again, longer each time and for no time that others would guess, so that
//! several threads that are in each other's way get out of it.

use super::{Body, Isolation, State, Transaction};
use crate::database::{Database, Durability};
use crate::error::{Error, ErrorKind, Result};
use crate::wait::{Wait, Waiting};
use hedgerow_sync::primitive::atomic::{AtomicBool, Ordering::Relaxed};
use hedgerow_sync::primitive::{Arc, Brief, random, thread};
use std::time::Duration;

/// How [`Database::transact_with`] runs a function, and how [`Database::transaction_with`] begins a transaction. Plain data.
///
/// ```
/// use hedgerow::{Isolation, TransactOptions};
///
/// let how = TransactOptions::new().isolation(Isolation::Snapshot).retries(3);
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct TransactOptions {
    isolation: Isolation,
    durability: Option<Durability>,
    retries: u32,
    wait: Option<Wait>,
}

impl Default for TransactOptions {
    fn default() -> TransactOptions {
        TransactOptions {
            isolation: Isolation::default(),
            durability: None,
            retries: 16,
            wait: None,
        }
    }
}

impl TransactOptions {
    /// Serializable, durable as the keyspaces' handles say, and up to 16 retries.
    pub fn new() -> TransactOptions {
        TransactOptions::default()
    }

    /// What the transaction may be mixed with. Default: [`Isolation::Serializable`].
    pub fn isolation(mut self, isolation: Isolation) -> TransactOptions {
        self.isolation = isolation;
        self
    }

    /// When the changes are durable. Default: as [`Transaction::commit`] has it.
    pub fn durability(mut self, durability: Durability) -> TransactOptions {
        self.durability = Some(durability);
        self
    }

    /// How often the function is run again after a conflict. Default: 16.
    pub fn retries(mut self, retries: u32) -> TransactOptions {
        self.retries = retries;
        self
    }

    /// How long all runs wait together, for latches, for room, for durability, and between the runs; [`Wait::For`] begins with the first of them. When that is over a
    /// conflict is returned as it is, and what would have to wait says so. Default: as the handles to the keyspaces have it, each call for itself; the first
    /// one's for the commit.
    pub fn wait(mut self, wait: Wait) -> TransactOptions {
        self.wait = Some(wait);
        self
    }
}

/// The pause before the first retry is shorter than this, by a half at most; before each later one this is twice as long, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_micros(100);
const LONGEST_PAUSE: Duration = Duration::from_millis(10);

impl Database {
    /// Begins a transaction. Costs nothing yet; its snapshot begins with its first read.
    ///
    /// ```
    /// use hedgerow::Isolation;
    ///
    /// let db = hedgerow::Options::new().in_memory()?;
    /// let stock = db.keyspace("stock")?;
    /// stock.put(b"apples", b"7")?;
    /// let transaction = db.transaction(Isolation::Serializable);
    /// let in_it = transaction.keyspace(&stock)?;
    /// assert_eq!(in_it.get(b"apples")?.unwrap(), b"7");
    /// in_it.put(b"apples", b"6")?;
    /// in_it.put(b"pears", b"1")?;
    /// transaction.commit()?;
    /// assert_eq!(stock.get(b"pears")?.unwrap(), b"1");
    /// # Ok::<(), hedgerow::Error>(())
    /// ```
    pub fn transaction(&self, isolation: Isolation) -> Transaction {
        self.begin(isolation, None, None)
    }

    /// [`Database::transaction`], as `how` says, but for its retries: nothing is run again. [`TransactOptions::durability`] counts at
    /// [`Transaction::commit`], and the time of [`TransactOptions::wait`] begins with this call.
    ///
    /// ```
    /// use hedgerow::{Durability, TransactOptions};
    ///
    /// # let directory = tempfile::tempdir().map_err(|error| hedgerow::Error::io("no directory", error))?;
    /// # let path = directory.path().join("stock.hrow");
    /// let db = hedgerow::Options::new().memory_limit_bytes(16 << 20).create(path)?;
    /// let stock = db.keyspace("stock")?;
    /// let transaction = db.transaction_with(&TransactOptions::new().durability(Durability::Sync));
    /// transaction.keyspace(&stock)?.put(b"apples", b"6")?;
    /// transaction.commit()?; // durable when it returns
    /// # Ok::<(), hedgerow::Error>(())
    /// ```
    pub fn transaction_with(&self, how: &TransactOptions) -> Transaction {
        self.begin(how.isolation, how.durability, how.wait.as_ref().map(Wait::for_one_call))
    }

    fn begin(
        &self,
        isolation: Isolation,
        durability: Option<Durability>,
        wait: Option<Wait>,
    ) -> Transaction {
        let state = State {
            hold: self.holds.own().clone(),
            isolation,
            durability,
            wait,
            body: Brief::new(Body::default()),
            has_ended: AtomicBool::new(false),
            has_handle: AtomicBool::new(false),
            through_sync: AtomicBool::new(false),
            was_too_old: AtomicBool::new(false),
            has_long_keys: AtomicBool::new(false),
        };
        Transaction { state: Arc::new(state) }
    }

    /// Runs `work` in a serializable transaction and commits it. After a conflict it runs `work` again, in a new transaction, up to 16 times, with
    /// pauses of 50 us to 10 ms in between. So `work` should have no other effect. If it returns an error, or panics, nothing has changed.
    ///
    /// The changes are durable as those of the keyspaces' handles are: by default within 100 ms. To wait for that, give
    /// [`TransactOptions::durability`] to [`Database::transact_with`], or call [`Database::sync`] or await [`Database::durable`] afterwards.
    ///
    /// If the compiler asks for type annotations, give the closure its return type: `|transaction| -> hedgerow::Result<()> { ... }`.
    ///
    /// ```
    /// use hedgerow::{Error, ErrorKind};
    ///
    /// let db = hedgerow::Options::new().in_memory()?;
    /// let accounts = db.keyspace("accounts")?;
    /// accounts.put(b"a", &100_u64.to_be_bytes())?;
    /// accounts.put(b"b", &0_u64.to_be_bytes())?;
    /// db.transact(|transaction| {
    ///     let accounts = transaction.keyspace(&accounts)?;
    ///     let balance = |name: &[u8]| -> Result<u64, Error> {
    ///         let value = accounts.get(name)?.unwrap_or_default();
    ///         Ok(u64::from_be_bytes(value[..].try_into().unwrap_or_default()))
    ///     };
    ///     accounts.put(b"a", &(balance(b"a")? - 30).to_be_bytes())?;
    ///     accounts.put(b"b", &(balance(b"b")? + 30).to_be_bytes())
    /// })?;
    /// assert_eq!(accounts.get(b"b")?.unwrap(), 30_u64.to_be_bytes());
    /// # Ok::<(), hedgerow::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of `work`; those of [`Transaction::commit`], of which [`Conflict`](ErrorKind::Conflict) and [`SnapshotTooOld`](ErrorKind::SnapshotTooOld) only
    /// after the last retry.
    pub fn transact<R, E: From<Error>>(
        &self,
        work: impl FnMut(&Transaction) -> Result<R, E>,
    ) -> Result<R, E> {
        self.transact_with(&TransactOptions::new(), work)
    }

    /// [`Database::transact`], as `how` says.
    ///
    /// # Errors
    /// Those of [`Database::transact`].
    pub fn transact_with<R, E: From<Error>>(
        &self,
        how: &TransactOptions,
        mut work: impl FnMut(&Transaction) -> Result<R, E>,
    ) -> Result<R, E> {
        let mut pause = FIRST_PAUSE;
        let wait = how.wait.as_ref().map(Wait::for_one_call);
        let waiting = wait.as_ref().map_or(Waiting::Forever, Wait::begin);
        for left in (0..=how.retries).rev() {
            let transaction = self.begin(how.isolation, how.durability, wait.clone());
            let (error, is_worth_it) = match work(&transaction) {
                Ok(made) => match transaction.commit_as(None) {
                    Ok(_) => return Ok(made),
                    Err(error) => {
                        let kind = error.kind();
                        (
                            error.into(),
                            matches!(kind, ErrorKind::Conflict | ErrorKind::SnapshotTooOld),
                        )
                    }
                },
                // What `work` makes of the error nobody knows.
                Err(error) => (error, transaction.state.was_too_old.load(Relaxed)),
            };
            drop(transaction);
            if left == 0 || !is_worth_it {
                return Err(error);
            }
            let jitter = random::seed() % (pause.as_micros() as u64 / 2);
            let Ok(nap) = waiting.nap_of(pause / 2 + Duration::from_micros(jitter)) else {
                return Err(error);
            };
            thread::sleep(nap);
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
        unreachable!("the last run returns")
    }
}
