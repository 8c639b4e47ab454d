//! The loop that runs virtual threads, and the doors by which their operations come to the kernel.
//!
//! Every door asks first whether a run is on in this system thread. If none is, the operation is the machine's own.

#![allow(clippy::disallowed_types, reason = "this is the seam")]

use crate::abort::Abort;
use crate::coherence::Outcome;
use crate::kernel::{Kernel, Kind, Next, Place};
use crate::machine::Machine;
use crate::record::{Failure, Record};
use crate::switch::{Fiber, Handle, give_way};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Readings of the clock in a run begin here: later than any of a process.
const BEGINNING: Duration = Duration::from_secs(1 << 40);

static RUNS: AtomicU64 = AtomicU64::new(0);
/// One run at a time: what is static in a program, all runs share, and a virtual thread cannot wait for one of another run.
static TURN: Mutex<()> = Mutex::new(());

thread_local! {
    /// The number of the run that is on; zero if none is.
    static RUN: Cell<u64> = const { Cell::new(0) };
    static KERNEL: RefCell<Option<Kernel>> = const { RefCell::new(None) };
}

/// Whether the caller is a virtual thread.
#[inline]
#[must_use]
pub fn is_running() -> bool {
    RUN.get() != 0
}

/// The number of the run that the caller is part of, which differs between all runs of a process; `None` outside.
#[inline]
#[must_use]
pub fn run_number() -> Option<u64> {
    Some(RUN.get()).filter(|&run| run != 0)
}

/// Looks at the kernel. `None` outside of a run.
#[inline]
pub(crate) fn with<T>(f: impl FnOnce(&mut Kernel) -> T) -> Option<T> {
    if !is_running() {
        return None;
    }
    KERNEL.with_borrow_mut(|kernel| kernel.as_mut().map(f))
}

/// Runs a program on a machine: `main` is the first virtual thread, and the run is over when it and all threads that
/// were made in it have ended.
///
/// All of it runs on the calling system thread. Nothing else may touch what the program touches meanwhile. A run of another system
/// thread is waited for.
///
/// # Errors
/// The machine cannot be, a run is on already, a deadlock, the limit of time, no memory for a stack, or `main` panicked. What the
/// threads of a failed run own is leaked, and locks that they have locked stay so.
pub fn run<T: 'static>(
    machine: &Machine,
    main: impl FnOnce() -> T + 'static,
) -> Result<(T, Record), Failure> {
    machine.check()?;
    if is_running() {
        return Err(Failure::Nested);
    }
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let result = Rc::new(Cell::new(None));
    let theirs = Rc::clone(&result);
    let mut kernel = Kernel::new(machine);
    let body = move || match catch_unwind(AssertUnwindSafe(main)) {
        Ok(value) => theirs.set(Some(value)),
        Err(panic) => {
            let words = words_of(&*panic);
            with(|kernel| kernel.fail(Failure::Panicked(words)));
        }
    };
    kernel.spawn("main", 0, Box::new(body));
    KERNEL.set(Some(kernel));
    RUN.set(RUNS.fetch_add(1, Ordering::Relaxed) + 1);
    let ended = turns(machine.stack);
    let record = with(|kernel| kernel.record());
    RUN.set(0);
    let kernel = KERNEL.take();
    match (ended, result.take(), record) {
        (None, Some(value), Some(record)) => Ok((value, record)),
        (failure, ..) => {
            // Values of threads that never end: their destructors belong on stacks that are gone.
            std::mem::forget(kernel);
            Err(failure.unwrap_or_else(|| Failure::Deadlock(Vec::new())))
        }
    }
}

/// Runs threads in turn until all have ended, or why they do not.
fn turns(stack: usize) -> Option<Failure> {
    let mut fibers: Vec<Option<Fiber>> = Vec::new();
    loop {
        let (next, bodies, handle) = with(|kernel| {
            let next = kernel.next();
            let handle = kernel.threads[kernel.current].handle;
            (next, std::mem::take(&mut kernel.bodies), handle)
        })?;
        for (thread, body) in bodies {
            match Fiber::new(stack, move |handle| live(thread, handle, body)) {
                Ok(fiber) => fibers.push(Some(fiber)),
                Err(_) => return Some(Failure::NoStack),
            }
        }
        let thread = match next {
            Next::Run(thread) => thread,
            Next::Over => return None,
            Next::Failed(failure) => return Some(failure),
        };
        let has_ended = fibers[thread].as_mut().is_none_or(|fiber| fiber.resume(handle));
        if has_ended && let Some(fiber) = fibers[thread].take() {
            fiber.free();
        }
    }
}

/// The life of a virtual thread. `body` does not unwind.
fn live(thread: usize, handle: Handle, body: Box<dyn FnOnce()>) {
    with(|kernel| kernel.threads[thread].handle = handle);
    body();
    // Values of the thread end in it; those that they make meanwhile are not kept.
    let locals = with(|kernel| kernel.thread().locals.take()).flatten();
    if catch_unwind(AssertUnwindSafe(move || drop(locals))).is_err() {
        let words = "a thread's own value panicked when it was dropped".to_owned();
        with(|kernel| kernel.fail(Failure::Panicked(words)));
    }
    wait_for_turn();
    with(Kernel::end);
}

/// What a panic says.
pub(crate) fn words_of(panic: &(dyn Any + Send)) -> String {
    let words = panic.downcast_ref::<&str>().map(|words| (*words).to_owned());
    words.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

/// Returns when nobody is behind the calling thread.
#[inline]
pub(crate) fn wait_for_turn() {
    while with(Kernel::is_its_turn) == Some(false) {
        give_way();
    }
}

/// Charges an access, and returns when it is the thread's turn to make it.
#[inline]
pub(crate) fn access(address: usize, kind: Kind) {
    if is_running() {
        charge(address, kind, false);
    }
}

fn charge(address: usize, kind: Kind, in_region: bool) {
    loop {
        let outcome = with(|kernel| {
            assert!(kernel.thread().in_region == in_region, "an access in a region, past it");
            kernel.access(address, kind)
        });
        match outcome {
            None | Some(Outcome::Granted) => return,
            Some(Outcome::NotYet) => give_way(),
            Some(Outcome::Queued) => {
                give_way();
                with(|kernel| kernel.arrived(address, kind));
                return;
            }
        }
    }
}

/// As [`access`], of a thread in a region.
///
/// # Errors
/// The region has ended, and the access must not be made.
#[inline]
pub(crate) fn region_access(address: usize, kind: Kind) -> Result<(), Abort> {
    let doom = || with(|kernel| kernel.doom()).flatten().map_or(Ok(()), Err);
    doom()?;
    charge(address, kind, true);
    doom()
}

/// The calling thread computes for so many cycles, and some more that are drawn. Nothing outside of a run.
#[inline]
pub fn work(cycles: u64) {
    with(|kernel| {
        let cycles = kernel.jittered(cycles);
        kernel.spend(cycles);
    });
}

/// Charges a load of the cache line that holds an address. Nothing outside of a run.
#[inline]
pub fn touch_load(address: usize) {
    access(address, Kind::Load);
}

/// Charges a store to the cache line that holds an address. Nothing outside of a run.
#[inline]
pub fn touch_store(address: usize) {
    access(address, Kind::Store);
}

/// The number of the cache line that holds an address: the same in each run of a seed. `None` outside of a run.
#[inline]
#[must_use]
pub fn line_of(address: usize) -> Option<usize> {
    with(|kernel| kernel.lines.name_of(address))
}

/// The time of the calling thread, from a beginning that is later than any reading of a real clock. `None` outside of a run.
#[must_use]
pub fn now() -> Option<Duration> {
    with(|kernel| {
        kernel.spend(u64::from(kernel.machine.rmw));
        let clock = kernel.thread().clock;
        BEGINNING + kernel.machine.duration(clock)
    })
}

/// The clock of the calling thread in cycles. Reading it costs nothing. `None` outside of a run.
#[must_use]
pub fn cycles() -> Option<u64> {
    with(|kernel| kernel.thread().clock)
}

/// Cycles for which the calling thread has had a hardware thread. `None` outside of a run.
#[must_use]
pub fn cpu_cycles() -> Option<u64> {
    with(Kernel::cpu)
}

/// The calling thread computes until its clock stands at `cycles`. Nothing if it is later, or outside of a run.
pub fn work_until(cycles: u64) {
    with(|kernel| {
        let clock = kernel.thread().clock;
        kernel.spend(cycles.saturating_sub(clock));
    });
    wait_for_turn();
}

/// A number that is drawn from the run's seed. `None` outside of a run.
#[must_use]
pub fn seed() -> Option<u64> {
    wait_for_turn();
    with(|kernel| kernel.seeds.next())
}

/// Has every core run a barrier: charges the system call. Nothing outside of a run.
pub fn barrier() {
    with(|kernel| kernel.spend(u64::from(kernel.machine.barrier_call)));
    wait_for_turn();
}

/// Sleeps at a place until somebody wakes this thread (true), or for a time at most (false). The caller has looked at what
/// it waits for in its present turn.
pub(crate) fn sleep_at(place: Place, what: &'static str, timeout: Option<Duration>) -> bool {
    with(|kernel| {
        let clock = kernel.thread().clock;
        let until = timeout.map(|timeout| clock.saturating_add(kernel.machine.cycles(timeout)));
        kernel.sleep(place, what, until);
    });
    give_way();
    with(|kernel| !kernel.has_timed_out()).unwrap_or(true)
}

/// Wakes those that have slept longest at a place, at most so many. How many there were.
pub(crate) fn wake_at(place: Place, most: usize) -> usize {
    with(|kernel| kernel.wake(place, most)).unwrap_or(0)
}
