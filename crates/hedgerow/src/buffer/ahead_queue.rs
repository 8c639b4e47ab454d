//! Pages that scans will want, and the threads that wait for such pages.
//!
//! What the threads do is in `read_ahead.rs`. Invariant: at most [`THREADS`] run, and none is started after the end. `Send + Sync`.

use crate::types::PageId;
use hedgerow_sync::primitive::{Condvar, Mutex, thread};
use std::collections::VecDeque;

/// Two, so that one reads while the other checks what it has read.
const THREADS: usize = 2;
/// Pages that may wait for a thread.
pub(super) const MAX_WANTED: usize = 256;
/// Pages read with one submission.
const BATCH_PAGES: usize = 64;

/// The threads, and what they are to do.
pub(super) struct AheadQueue {
    shared: Mutex<Shared>,
    wake: Condvar,
}

#[derive(Default)]
struct Shared {
    wanted: VecDeque<PageId>,
    running: Vec<thread::JoinHandle<()>>,
    idle: usize,
    shutdown: bool,
}

impl AheadQueue {
    pub(super) fn new() -> AheadQueue {
        AheadQueue { shared: Mutex::new(Shared::default()), wake: Condvar::new() }
    }

    /// Ends the threads and waits for them. Idempotent.
    pub(super) fn stop(&self) {
        let running = {
            let mut shared = self.shared.lock();
            shared.shutdown = true;
            shared.wanted.clear();
            self.wake.notify_all();
            std::mem::take(&mut shared.running)
        };
        for thread in running {
            let ended = thread.join();
            assert!(ended.is_ok(), "a thread that reads ahead does not panic");
        }
    }

    /// Hands pages to the threads, unless they have enough to do. `start` starts another one, if it can.
    pub(super) fn ask(
        &self,
        ids: &[PageId],
        most: usize,
        start: impl FnOnce() -> Option<thread::JoinHandle<()>>,
    ) -> bool {
        let mut shared = self.shared.lock();
        if shared.shutdown || shared.wanted.len() + ids.len() > most {
            return false;
        }
        if shared.idle == 0
            && shared.running.len() < THREADS
            && let Some(thread) = start()
        {
            shared.running.push(thread);
        }
        if shared.running.is_empty() {
            return false;
        }
        shared.wanted.extend(ids);
        self.wake.notify_one();
        true
    }

    /// The next batch; `None` at the end.
    pub(super) fn next(&self) -> Option<Vec<PageId>> {
        let mut shared = self.shared.lock();
        while shared.wanted.is_empty() && !shared.shutdown {
            shared.idle += 1;
            self.wake.wait(&mut shared);
            shared.idle -= 1;
        }
        let count = shared.wanted.len().min(BATCH_PAGES);
        (count > 0).then(|| shared.wanted.drain(..count).collect())
    }
}
