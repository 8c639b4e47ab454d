//! Reads by a bounded number of threads, for systems without io_uring.
//!
//! Rank 1. Threads are made when reads wait for one, up to [`MAX_READERS`], and end after a second
//! without work, or when the [`Readers`] are dropped. Each makes one `pread`; what was short,
//! interrupted or refused is reported to the caller, who makes the plain call. `Send + Sync`.
//!
//! Invariant: a job's buffer is touched only until its slot is reported, for which whoever queued it
//! waits ([`crate::storage::stream`]).

use crate::storage::stream::{Outcome, Reader};
use hedgerow_sync::primitive::{Arc, Condvar, Mutex, thread};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

/// Threads that read at a time, at most.
const MAX_READERS: usize = 32;
/// Time without work after which a thread ends.
const IDLE: Duration = Duration::from_secs(1);

/// The threads of a disk.
pub(super) struct Readers {
    queue: Arc<Queue>,
}

struct Queue {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    closed: bool,
}

/// A read, and where to report it.
struct Job {
    fd: RawFd,
    slot: usize,
    offset_bytes: u64,
    buffer: *mut u8,
    len: usize,
    reports: Arc<Reports>,
}

// SAFETY: the buffer is the job's alone until it is reported (`Reader::begin`), wherever it is.
unsafe impl Send for Job {}

#[derive(Default)]
struct Reports {
    ended: Mutex<Vec<(usize, Outcome)>>,
    wake: Condvar,
}

impl std::fmt::Debug for Readers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Readers({} threads)", self.queue.state.lock().threads)
    }
}

impl Readers {
    /// No threads yet.
    pub(super) fn new() -> Readers {
        Readers {
            queue: Arc::new(Queue { state: Mutex::new(State::default()), wake: Condvar::new() }),
        }
    }

    /// What reads a stream of this file.
    pub(super) fn stream<'f>(&'f self, file: &'f OwnedFd) -> ThreadedReader<'f> {
        ThreadedReader { queue: &self.queue, file, reports: Arc::default() }
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.queue.state.lock().closed = true;
        self.queue.wake.notify_all();
    }
}

/// The reads of one stream.
pub(super) struct ThreadedReader<'f> {
    queue: &'f Arc<Queue>,
    file: &'f OwnedFd,
    reports: Arc<Reports>,
}

impl Reader for ThreadedReader<'_> {
    unsafe fn begin(
        &mut self,
        slot: usize,
        offset_bytes: u64,
        buffer: *mut u8,
        len: usize,
    ) -> bool {
        let mut state = self.queue.state.lock();
        // As many idle threads as jobs wait: this one needs another.
        if state.idle <= state.jobs.len() && state.threads < MAX_READERS {
            let queue = Arc::clone(self.queue);
            if thread::spawn_named("hedgerow-read", move || queue.work()).is_ok() {
                state.threads += 1;
            }
        }
        if state.threads == 0 {
            return false;
        }
        let fd = self.file.as_fd().as_raw_fd();
        let reports = Arc::clone(&self.reports);
        state.jobs.push_back(Job { fd, slot, offset_bytes, buffer, len, reports });
        drop(state);
        self.queue.wake.notify_one();
        true
    }

    fn wait(&mut self, enough: usize, ended: &mut Vec<(usize, Outcome)>) {
        let mut reports = self.reports.ended.lock();
        while reports.len() < enough {
            self.reports.wake.wait(&mut reports);
        }
        ended.append(&mut reports);
    }
}

impl Queue {
    /// The life of a thread.
    fn work(&self) {
        let mut state = self.state.lock();
        loop {
            while let Some(job) = state.jobs.pop_front() {
                drop(state);
                job.run();
                state = self.state.lock();
            }
            if state.closed {
                break;
            }
            state.idle += 1;
            let is_late = self.wake.wait_for(&mut state, IDLE);
            state.idle -= 1;
            // Under the lock: a job is either seen here, or finds one thread less.
            if is_late && state.jobs.is_empty() {
                break;
            }
        }
        state.threads -= 1;
    }
}

impl Job {
    fn run(self) {
        // SAFETY: `borrow_raw` asks for a descriptor that stays open: the stream borrows the file
        // until each of its reads is reported.
        let file = unsafe { BorrowedFd::borrow_raw(self.fd) };
        // SAFETY: valid, initialised memory that is ours alone until the report (`Reader::begin`).
        let buffer = unsafe { std::slice::from_raw_parts_mut(self.buffer, self.len) };
        let outcome: Result<usize, Errno> = rustix::io::pread(file, buffer, self.offset_bytes);
        self.reports.ended.lock().push((self.slot, outcome));
        self.reports.wake.notify_one();
    }
}
