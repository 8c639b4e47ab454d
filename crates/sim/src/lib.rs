//! A deterministic simulator of a many-core machine.
//!
//! Programs that use the atomics, locks and threads of this crate run on the machine as with the standard library. Inside of [`run`]
//! their threads are virtual: coroutines of one system thread, which take their turns in the order of simulated clocks. Each
//! access to a cache line costs what the [`Machine`] says: little if the core holds the line, more if it has to come from
//! another core, and the more, the more others want it. Threads sleep, are woken, and lose their processor at the end of a
//! slice. The same program on an equal machine gives the same [`Record`], whatever the addresses.
//!
//! The crate knows nothing of Hedgerow: it lies below rank 0, as loom does. `docs/simulation.md` says what is
//! modelled, and what is not.
//!
//! ```
//! use hedgerow_sim::atomic::{AtomicU64, Ordering::Relaxed};
//! use hedgerow_sim::{Machine, run, thread};
//!
//! static COUNT: AtomicU64 = AtomicU64::new(0);
//! let machine = Machine::ROME1S.with_contexts(64).with_seed(7);
//! let (count, record) = run(&machine, || {
//!     let add = || for _ in 0..100 { COUNT.fetch_add(1, Relaxed); };
//!     let threads: Vec<_> = (0..64).map(|_| thread::spawn(add)).collect();
//!     threads.into_iter().for_each(|thread| thread.join().unwrap());
//!     COUNT.load(Relaxed)
//! })
//! .unwrap();
//! assert_eq!(count, 6_400);
//! assert!(record.counts.misses() > 100);
//! ```
//!
//! Thread-safety: a run belongs to the system thread that began it. A process has one at a time.

mod abort;
pub mod atomic;
mod coherence;
mod kernel;
mod lines;
mod local;
pub mod lock;
mod machine;
mod marks;
mod random;
mod record;
mod regions;

mod switch;
pub mod thread;
pub mod transaction;
mod turns;
mod undo;

pub use atomic::spin_loop;
pub use local::LocalKey;
pub use machine::{Arbitration, Capacity, MAX_CONTEXTS, Machine, ParameterError, Transactions};
pub use record::{Counts, Failure, Record, ThreadRecord, Waiting};
pub use turns::{
    barrier, cpu_cycles, cycles, is_running, line_of, now, run, run_number, seed, touch_load,
    touch_store, work, work_until,
};
