//! Durability for who does not block: a future, and a function that is called.
//!
//! Rank 7. Who flushes and who is told stands in `wal/durable.rs`. Invariant: a future that goes takes itself out of the log's queue.
//! `Send + Sync`.

use super::database::Database;
#[cfg(doc)]
use super::options::Options;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Error, Result};
use crate::types::Lsn;
use crate::wal::{Log, Ticket};
use hedgerow_sync::primitive::process::Process;
use hedgerow_sync::primitive::{Arc, Weak};
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A future that ends when the log is durable up to a position: see [`Database::durable`].
///
/// It needs no runtime. Polled after it ends, it is pending for ever. Dropping it ends the wait. It keeps neither the database open nor its memory. `Send + Sync`.
#[must_use = "futures do nothing unless they are polled"]
pub struct Durable {
    waits: Option<Waits>,
    /// What was known at once.
    known: Option<Result<()>>,
}

struct Waits {
    ticket: Arc<Ticket>,
    log: Weak<Log>,
    process: Process,
}

impl fmt::Debug for Durable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Durable").finish_non_exhaustive()
    }
}

impl Future for Durable {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        if let Some(outcome) = self.known.take() {
            return Poll::Ready(outcome);
        }
        let Some(waits) = &self.waits else { return Poll::Pending };
        if !waits.process.is_current() {
            self.waits = None;
            return Poll::Ready(Err(Error::forked()));
        }
        let outcome = waits.ticket.poll(context);
        if outcome.is_ready() {
            self.waits = None;
        }
        outcome
    }
}

impl Waits {
    fn end(&self) {
        // The locks of a forked process are those of threads that it has not.
        if self.process.is_current()
            && let Some(log) = self.log.upgrade()
        {
            log.give_up(&self.ticket);
        }
    }
}

impl Drop for Durable {
    fn drop(&mut self) {
        if let Some(waits) = &self.waits {
            waits.end();
        }
    }
}

impl Database {
    /// [`Database::wait_durable`] as a future: it ends when the log is durable up to `position`, or cannot become so. Neither this call
    /// nor the future blocks, and no runtime is needed. The log's thread flushes at once, for all who wait together. A store
    /// without background threads flushes in this call, and blocks for that.
    ///
    /// A change itself blocks for microseconds as a rule, and for as long as a page takes to be read where memory does not hold it; the
    /// example `async_durability` leaves changes to a thread for that.
    ///
    /// ```
    /// # fn main() -> hedgerow::Result<()> {
    /// # let directory = tempfile::tempdir().map_err(|error| hedgerow::Error::io("no directory", error))?;
    /// # let path = directory.path().join("birds.hrow");
    /// let db = hedgerow::Options::new().memory_limit_bytes(16 << 20).create(path)?;
    /// let change = async {
    ///     db.keyspace("birds")?.put(b"wren", b"Troglodytes troglodytes")?;
    ///     db.durable(db.log_position()).await
    /// };
    /// # let mut change = std::pin::pin!(change);
    /// # let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    /// # while std::future::Future::poll(change.as_mut(), &mut context).is_pending() {}
    /// # assert!(db.durable_position() >= db.log_position());
    /// # db.clone().close() }
    /// ```
    ///
    /// # Errors
    /// The future has those of [`Database::wait_durable`]. If the database is closed or dropped first, it ends as they do: durable, or
    /// [`DurabilityUnknown`](ErrorKind::DurabilityUnknown).
    pub fn durable(&self, position: Lsn) -> Durable {
        let log = match self.log_up_to(position) {
            Ok(Some(log)) => log,
            Ok(None) => return Durable { waits: None, known: Some(Ok(())) },
            Err(error) => return Durable { waits: None, known: Some(Err(error)) },
        };
        let ticket = log.ticket(position);
        let waits = Waits { ticket, log: Arc::downgrade(log), process: self.inner.process() };
        Durable { waits: Some(waits), known: None }
    }

    /// Calls `told` once, when the log is durable up to `position` (`Ok`) or cannot become so. If that is known now, or without a log, this call
    /// does it. Otherwise a thread of its own does, one function after the other, so a function should be quick; it may use
    /// the database, and may end it. A panic in it is caught, unless this call calls it. The log is flushed as for [`Database::durable`].
    ///
    /// ```
    /// # fn main() -> hedgerow::Result<()> {
    /// # let directory = tempfile::tempdir().map_err(|error| hedgerow::Error::io("no directory", error))?;
    /// # let path = directory.path().join("birds.hrow");
    /// # let db = hedgerow::Options::new().memory_limit_bytes(16 << 20).create(path)?;
    /// # let (answers, answered) = std::sync::mpsc::channel();
    /// db.keyspace("birds")?.put(b"wren", b"Troglodytes troglodytes")?;
    /// db.on_durable(db.log_position(), move |outcome| {
    ///     answers.send(outcome.is_ok()).ok();
    /// })?;
    /// assert_eq!(answered.recv(), Ok(true));
    /// # db.close() }
    /// ```
    ///
    /// # Errors
    /// After these it is not called: [`InvalidArgument`](ErrorKind::InvalidArgument) for a position that the log has not reached;
    /// [`Io`](ErrorKind::Io) if the thread cannot be started. `told` gets the errors of [`Database::sync`]; a database that is closed or
    /// dropped first is [`DurabilityUnknown`](ErrorKind::DurabilityUnknown) if the end did not make it durable.
    pub fn on_durable(
        &self,
        position: Lsn,
        told: impl FnOnce(Result<()>) + Send + 'static,
    ) -> Result<()> {
        match self.log_up_to(position)? {
            Some(log) => log.tell_when_durable(position, Box::new(told)),
            None => {
                told(Ok(()));
                Ok(())
            }
        }
    }
}
