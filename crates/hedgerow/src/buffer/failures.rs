//! Errors of page reads, kept for those who waited for the same read.
//!
//! A failed read leaves the page evicted. Whoever waited for it wakes up, finds the page evicted, and
//! would read it once more; instead each waiter looks here for the error of the very fault that it
//! waited for (page, frame, and the frame's fault number). Only failed reads cost anything. A few
//! errors are kept; a waiter that comes after its entry was dropped reads the page itself, which
//! gives the same answer a moment later. `Send + Sync`.

use crate::error::Error;
use crate::page::FrameId;
use crate::types::PageId;
use hedgerow_sync::primitive::Mutex;
use std::collections::VecDeque;

/// Entries kept.
const KEPT: usize = 64;

struct Failure {
    id: PageId,
    frame: FrameId,
    fault: u32,
    error: Error,
}

/// The latest errors of page reads.
pub struct Failures(Mutex<VecDeque<Failure>>);

impl Failures {
    /// None so far.
    pub fn new() -> Failures {
        Failures(Mutex::new(VecDeque::new()))
    }

    /// Keeps the error of a fault, before its waiters are woken.
    pub fn record(&self, id: PageId, frame: FrameId, fault: u32, error: &Error) {
        let mut failures = self.0.lock();
        if failures.len() == KEPT {
            failures.pop_front();
        }
        failures.push_back(Failure { id, frame, fault, error: error.duplicate() });
    }

    /// The error of the fault that a waiter waited for.
    pub fn find(&self, id: PageId, frame: FrameId, fault: u32) -> Option<Error> {
        let failures = self.0.lock();
        let failure =
            failures.iter().find(|f| f.id == id && f.frame == frame && f.fault == fault)?;
        Some(failure.error.duplicate())
    }
}
