//! The backend of a simulated machine: see `hedgerow_sim::transaction`. Under `--cfg hedgerow_sim`, in a run; outside
//! of one, bodies run under the lock and are not counted.
//!
//! A region subscribes to the lock first. `Send + Sync`; regions are those of the run.

use super::label::{self, Label};
use super::policy::run;
use super::{
    Abort, Counters, ElidableLock, Faults, Htm, Outcome, RetryPolicy, Site, TCell, Tx, Word,
};
use hedgerow_sim::transaction::{self, Cause, Region};
use hedgerow_sync::primitive::atomic::Ordering::Relaxed;
use hedgerow_sync::primitive::figure::Figure as Fault;

/// Codes of bodies are smaller.
const LOCK_IS_HELD: u8 = u8::MAX;

/// The transactional memory of a simulated machine.
#[derive(Debug)]
pub struct Sim {
    policy: RetryPolicy,
    counters: Counters,
    leaves_subscription_out: bool,
    /// Accesses before one aborts; zero: none does.
    fault: Fault,
}

impl Faults for Sim {
    fn abort_at(&self, access: u64) {
        self.fault.store(access, Relaxed);
    }

    fn disarm(&self) -> bool {
        self.fault.swap(0, Relaxed) != 0
    }
}

impl Sim {
    /// A backend that retries in this way.
    #[must_use]
    pub fn new(policy: RetryPolicy) -> Sim {
        let (counters, fault) = (Counters::default(), Fault::new(0));
        Sim { policy, counters, leaves_subscription_out: false, fault }
    }

    /// A backend with a bug that tests have to notice: regions do not look at the lock.
    #[doc(hidden)]
    #[must_use]
    pub fn without_subscription(policy: RetryPolicy) -> Sim {
        Sim { leaves_subscription_out: true, ..Sim::new(policy) }
    }
}

impl Sim {
    fn subscribe<'a>(
        &self,
        lock: &'a ElidableLock,
        region: &mut Region<'a>,
    ) -> Result<(), transaction::Abort> {
        if !self.leaves_subscription_out && region.load(lock.word().atomic())? & 1 == 1 {
            return Tx::abort(region, LOCK_IS_HELD);
        }
        Ok(())
    }
}

fn named(abort: transaction::Abort) -> Abort {
    match abort.cause {
        Cause::Conflict { .. } => Abort::Conflict,
        Cause::Capacity => Abort::Capacity,
        Cause::Explicit(LOCK_IS_HELD) => Abort::Locked,
        Cause::Explicit(code) => Abort::Explicit(code),
        _ => Abort::Other,
    }
}

impl<'a> Tx<'a> for Region<'a> {
    type E = transaction::Abort;

    #[inline]
    fn load<T: Word>(&mut self, cell: &'a TCell<T>) -> Result<T, Self::E> {
        Region::load(self, cell.atomic())
    }

    #[inline]
    fn store<T: Word>(&mut self, cell: &'a TCell<T>, value: T) -> Result<(), Self::E> {
        Region::store(self, cell.atomic(), value)
    }

    #[inline]
    fn fetch_or<T: Word>(&mut self, cell: &'a TCell<T>, mask: T) -> Result<T, Self::E> {
        self.change(cell.atomic(), |old| old | mask)
    }

    #[inline]
    fn fetch_and<T: Word>(&mut self, cell: &'a TCell<T>, mask: T) -> Result<T, Self::E> {
        self.change(cell.atomic(), |old| old & mask)
    }

    fn abort(&mut self, code: u8) -> Result<(), Self::E> {
        if self.is_plain() { Ok(()) } else { Err(Region::abort(self, code)) }
    }

    fn is_speculative(&self) -> bool {
        !self.is_plain()
    }
}

impl Htm for Sim {
    type E = transaction::Abort;
    type Tx<'a> = Region<'a>;

    fn atomic_counted<'a, R, B>(
        &self,
        lock: &'a ElidableLock,
        site: Site,
        mut body: B,
    ) -> (R, Outcome)
    where
        B: FnMut(&mut Region<'a>) -> Result<R, Self::E>,
    {
        if !hedgerow_sim::is_running() {
            // Data are loaded outside of runs.
            let _held = lock.lock();
            let result = transaction::plainly(|region| body(region).expect("a plain access"));
            return (result, Outcome { aborts: 0, took_lock: true });
        }
        label::lines(lock, Label::Lock);
        let attempt = |body: &mut B| {
            let fault = self.fault.load(Relaxed);
            let mut accesses = 0;
            let result = transaction::attempt((fault != 0).then_some(fault), |region| {
                let result = self.subscribe(lock, region).and_then(|()| body(region));
                accesses = region.accesses();
                result
            });
            if fault != 0 {
                self.fault.store(fault.saturating_sub(accesses), Relaxed);
            }
            result.map_err(named)
        };
        let under_lock = |body: &mut B| {
            // An access outside of a region is never undone, so the body does not fail.
            transaction::plainly(|region| body(region).expect("a plain access"))
        };
        run(&self.policy, &self.counters, lock, site, &mut body, attempt, under_lock)
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn policy(&self) -> &RetryPolicy {
        &self.policy
    }
}
