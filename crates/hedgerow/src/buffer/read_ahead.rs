//! Threads that read pages which scans will want, while the scans go on with those that are there.
//!
//! A scan says which pages come next and goes on at once. Up to [`THREADS`] threads, started when first
//! needed, read them in batches; neighbours in the file are read with one call. A scan that comes to a
//! page which is still being read waits for it as for any other fault; one that was left out (no frame
//! is free, the read failed) it faults itself, and learns why.
//!
//! Invariant: the pages that wait for a thread are bounded, by [`MAX_WANTED`] and an eighth of the
//! clean frames, and so is what a thread takes at a time. `Send + Sync`.

use crate::buffer::pool::BufferPool;
use crate::page::{Access, Pages, PoolSession};
use crate::types::PageId;
use hedgerow_sync::primitive::{Arc, Condvar, Mutex, Weak, thread};
use std::collections::VecDeque;

/// Two, so that one reads while the other checks what it has read.
const THREADS: usize = 2;
/// Pages that may wait for a thread.
pub(super) const MAX_WANTED: usize = 256;
/// Pages read with one submission.
const BATCH_PAGES: usize = 64;

/// The threads, and what they are to do.
pub(super) struct ReadAhead {
    shared: Mutex<Shared>,
    wake: Condvar,
}

#[derive(Default)]
struct Shared {
    wanted: VecDeque<PageId>,
    /// Nothing before the pool was started.
    pool: Weak<BufferPool>,
    running: Vec<thread::JoinHandle<()>>,
    idle: usize,
    shutdown: bool,
}

impl ReadAhead {
    pub(super) fn new() -> ReadAhead {
        ReadAhead { shared: Mutex::new(Shared::default()), wake: Condvar::new() }
    }

    /// Allows threads to be started for `pool`, which this belongs to.
    pub(super) fn start(&self, pool: &Arc<BufferPool>) {
        self.shared.lock().pool = Arc::downgrade(pool);
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

    /// Hands pages to the threads, unless they have enough to do.
    pub(super) fn ask(&self, ids: &[PageId], most: usize) -> bool {
        let mut shared = self.shared.lock();
        if shared.shutdown || shared.wanted.len() + ids.len() > most {
            return false;
        }
        if shared.idle == 0
            && shared.running.len() < THREADS
            && let Some(pool) = shared.pool.upgrade()
            && let Ok(thread) = thread::spawn_named("hedgerow-ahead", move || pool.work_ahead())
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
    fn next(&self) -> Option<Vec<PageId>> {
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

impl BufferPool {
    fn work_ahead(&self) {
        while let Some(ids) = self.ahead.next() {
            // What cannot be read says so to the scan that comes to it.
            if self.session().prefetch(&ids, Access::Scan).is_err() {
                continue;
            }
        }
    }
}
