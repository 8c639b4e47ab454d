//! What the thread that makes room and those who wait for frames tell each other.
//!
//! What they do about it is in `evict.rs`. Invariant: `wanted` is set by whoever wants frames, and cleared by the thread at the end of a turn, under
//! the lock. `Send + Sync`.

use crate::error::Error;
use crate::page::MemoryPressure;
use hedgerow_sync::primitive::atomic::AtomicBool;
use hedgerow_sync::primitive::atomic::Ordering::Relaxed;
use hedgerow_sync::primitive::{Condvar, Mutex, OnceLock, Weak, thread};

/// The background thread's side of things.
pub struct EvictorState {
    pub(super) wanted: AtomicBool,
    pub(super) shared: Mutex<Shared>,
    pub(super) wake: Condvar,
    pub(super) freed: Condvar,
    /// Who is offered the pages that are about to be written.
    pub(super) pressure: OnceLock<Weak<dyn MemoryPressure>>,
}

#[derive(Default)]
pub(super) struct Shared {
    pub(super) shutdown: bool,
    /// The background thread found nothing to do, and looks again in a moment.
    pub(super) dozes: bool,
    pub(super) waiting: usize,
    pub(super) failures: u64,
    pub(super) last_error: Option<Error>,
    pub(super) running: Option<thread::JoinHandle<()>>,
}

impl Shared {
    pub(super) fn failed(&mut self, error: Error) {
        self.failures += 1;
        self.last_error = Some(error);
    }

    /// Why the last attempt to make room failed, if there was one since `failures` were counted.
    pub(super) fn failed_since(&self, failures: u64) -> Option<Error> {
        self.last_error.as_ref().filter(|_| self.failures != failures).map(Error::duplicate)
    }
}

impl EvictorState {
    pub(super) fn new() -> EvictorState {
        EvictorState {
            wanted: AtomicBool::new(false),
            shared: Mutex::new(Shared::default()),
            wake: Condvar::new(),
            freed: Condvar::new(),
            pressure: OnceLock::new(),
        }
    }

    /// Tells whoever waits for a frame that there is one.
    pub(super) fn frames_freed(&self) {
        // Nobody waits as long as the background keeps up, so a look at the flag is enough: whoever begins to wait
        // sets it, and is told by the background after its next turn if this one misses him.
        if self.wanted.load(Relaxed) {
            self.freed.notify_one();
        }
    }
}
