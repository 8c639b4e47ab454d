//! Moments at which a thread may be held up while others do much.
//!
//! Schedulers of models change threads at random, so that one that is between two steps is hardly ever overtaken by
//! a whole split or a whole checkpoint. Where a model asks for it, a thread lingers: now and then it gives way many
//! times. In any build but shuttle's this is nothing. `Send + Sync`.

#[cfg(shuttle)]
use std::sync::atomic::{AtomicBool, Ordering};

/// One time in so many a thread is held up.
#[cfg(shuttle)]
const RARELY: u32 = 24;
/// And gives way so many times.
#[cfg(shuttle)]
const TIMES: u32 = 300;

#[cfg(shuttle)]
shuttle::lazy_static! {
    // One for each schedule: the standard library's, so that a look at it is no step.
    static ref LINGERS: AtomicBool = AtomicBool::new(false);
}

/// From now on threads of this schedule linger.
#[cfg(shuttle)]
pub fn let_threads_linger() {
    LINGERS.store(true, Ordering::Relaxed);
}

/// Holds the thread up now and then.
#[cfg(shuttle)]
pub fn linger() {
    use shuttle::rand::Rng;
    if LINGERS.load(Ordering::Relaxed) && shuttle::rand::thread_rng().gen_range(0..RARELY) == 0 {
        for _ in 0..TIMES {
            shuttle::thread::yield_now();
        }
    }
}

/// Holds the thread up now and then.
#[cfg(not(shuttle))]
#[inline(always)]
pub const fn linger() {}
