//! NOrec: transactional memory in software without metadata of locations (Dalessandro, Spear and Scott, PPoPP 2010).
//!
//! The only shared word is a sequence lock, and that is the lock that regions elide. So regions and whoever holds the lock agree without more.
//!
//! # Invariants
//! - A region has read `reads` all at the moment at which the lock's word was `sequence`: they are compared by value whenever the
//!   word has changed. So a body never sees two values that were not there together.
//! - What a region writes is in its log until it commits, and is written while it holds the lock.
//! - Bits that others change outside of regions are logged as bits ([`Tx::fetch_or`], [`Tx::fetch_and`]), and are changed by one
//!   read-modify-write. Otherwise a change that came between would be lost. Nothing outside of regions is ended by one, nor the
//!   other way round: this backend has no strong atomicity. What regions write is changed outside of them in that way only, or
//!   under the lock.
//!
//! `Send + Sync`.

use super::cell::Place;
use super::policy::run;
use super::{
    Abort, Counters, ElidableLock, Faults, Htm, Outcome, RetryPolicy, Site, TCell, Tx, Word,
};
use hedgerow_sync::primitive::atomic::Ordering::{Acquire, Relaxed, Release};
use hedgerow_sync::primitive::atomic::fence;
use hedgerow_sync::primitive::figure::Figure;

/// Entries for which a log has room from the beginning.
const ROOM: usize = 64;

/// Transactional memory in software.
#[derive(Debug)]
pub struct NOrec {
    policy: RetryPolicy,
    counters: Counters,
    /// Accesses before one aborts; zero: none does.
    fault: Figure,
}

impl NOrec {
    /// A backend that retries in this way.
    #[must_use]
    pub fn new(policy: RetryPolicy) -> NOrec {
        NOrec { policy, counters: Counters::default(), fault: Figure::new(0) }
    }
}

impl Faults for NOrec {
    fn abort_at(&self, access: u64) {
        self.fault.store(access, Relaxed);
    }

    fn disarm(&self) -> bool {
        self.fault.swap(0, Relaxed) != 0
    }
}

#[derive(Debug)]
struct Write<'a> {
    place: Place<'a>,
    keep: u64,
    set: u64,
}

/// What a body reads and writes with.
#[derive(Debug)]
pub struct NOrecTx<'a> {
    lock: &'a ElidableLock,
    /// The lock is held, and all is read and written in place.
    is_locked: bool,
    sequence: u64,
    reads: Vec<(Place<'a>, u64)>,
    writes: Vec<Write<'a>>,
    /// A bit for each address that is written, by a hash: most reads need not look at the log.
    written: u64,
    fault: u64,
}

fn bit(address: usize) -> u64 {
    1 << ((address >> 3) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_shr(58)
}

impl<'a> NOrecTx<'a> {
    fn begin(&mut self) -> Result<(), Abort> {
        self.reads.clear();
        self.writes.clear();
        self.written = 0;
        self.sequence = self.lock.word().load(Acquire);
        let is_held = self.sequence & 1 == 1;
        if is_held { Err(Abort::Locked) } else { Ok(()) }
    }

    /// The fault that is asked for, if it is its time.
    #[inline]
    fn step(&mut self) -> Result<(), Abort> {
        if self.fault == 0 || self.is_locked {
            return Ok(());
        }
        self.fault -= 1;
        if self.fault == 0 { Err(Abort::Other) } else { Ok(()) }
    }

    /// A moment at which all that was read is still there.
    #[cold]
    fn validate(&mut self) -> Result<(), Abort> {
        loop {
            let sequence = self.lock.wait_until_free();
            if self.reads.iter().any(|(place, value)| place.load() != *value) {
                return Err(Abort::Conflict);
            }
            fence(Acquire);
            if self.lock.word().load(Relaxed) == sequence {
                self.sequence = sequence;
                return Ok(());
            }
        }
    }

    fn write_of(&mut self, address: usize) -> Option<&mut Write<'a>> {
        if self.written & bit(address) == 0 {
            return None;
        }
        self.writes.iter_mut().find(|write| write.place.address() == address)
    }

    fn read(&mut self, place: Place<'a>) -> Result<u64, Abort> {
        let pending = self.write_of(place.address()).map(|write| (write.keep, write.set));
        if let Some((0, set)) = pending {
            return Ok(set);
        }
        let mut value = place.load();
        fence(Acquire);
        while self.lock.word().load(Relaxed) != self.sequence {
            self.validate()?;
            value = place.load();
            fence(Acquire);
        }
        self.reads.push((place, value));
        Ok(pending.map_or(value, |(keep, set)| value & keep | set))
    }

    fn write(&mut self, place: Place<'a>, keep: u64, set: u64) {
        let address = place.address();
        if let Some(write) = self.write_of(address) {
            (write.keep, write.set) = (write.keep & keep, write.set & keep | set);
        } else {
            self.written |= bit(address);
            self.writes.push(Write { place, keep, set });
        }
    }

    fn commit(&mut self) -> Result<(), Abort> {
        if self.writes.is_empty() {
            // All was there together at one moment.
            return Ok(());
        }
        let _held = loop {
            match self.lock.try_lock_at(self.sequence) {
                Some(held) => break held,
                None => self.validate()?,
            }
        };
        for write in &self.writes {
            write.place.change(write.keep, write.set);
        }
        Ok(())
    }
}

impl<'a> Tx<'a> for NOrecTx<'a> {
    type E = Abort;

    fn load<T: Word>(&mut self, cell: &'a TCell<T>) -> Result<T, Abort> {
        if self.is_locked {
            return Ok(cell.get());
        }
        self.step()?;
        self.read(cell.place()).map(T::narrow)
    }

    fn store<T: Word>(&mut self, cell: &'a TCell<T>, value: T) -> Result<(), Abort> {
        if self.is_locked {
            cell.set(value);
            return Ok(());
        }
        self.step()?;
        self.write(cell.place(), 0, value.widen());
        Ok(())
    }

    fn fetch_or<T: Word>(&mut self, cell: &'a TCell<T>, mask: T) -> Result<T, Abort> {
        if self.is_locked {
            return Ok(cell.fetch_or(mask, Release));
        }
        self.step()?;
        let old = self.read(cell.place())?;
        self.write(cell.place(), !mask.widen(), mask.widen());
        Ok(T::narrow(old))
    }

    fn fetch_and<T: Word>(&mut self, cell: &'a TCell<T>, mask: T) -> Result<T, Abort> {
        if self.is_locked {
            return Ok(cell.fetch_and(mask, Release));
        }
        self.step()?;
        let old = self.read(cell.place())?;
        self.write(cell.place(), mask.widen(), 0);
        Ok(T::narrow(old))
    }

    fn abort(&mut self, code: u8) -> Result<(), Abort> {
        if self.is_locked { Ok(()) } else { Err(Abort::Explicit(code)) }
    }

    fn is_speculative(&self) -> bool {
        !self.is_locked
    }
}

impl Htm for NOrec {
    type E = Abort;
    type Tx<'a> = NOrecTx<'a>;

    fn atomic_counted<'a, R, B>(
        &self,
        lock: &'a ElidableLock,
        site: Site,
        mut body: B,
    ) -> (R, Outcome)
    where
        B: FnMut(&mut NOrecTx<'a>) -> Result<R, Abort>,
    {
        let mut tx = NOrecTx {
            lock,
            is_locked: false,
            sequence: 0,
            reads: Vec::with_capacity(ROOM),
            writes: Vec::with_capacity(ROOM),
            written: 0,
            fault: 0,
        };
        let attempt = |(tx, body): &mut (NOrecTx<'a>, &mut B)| {
            tx.fault = self.fault.load(Relaxed);
            let is_armed = tx.fault != 0;
            let result = tx.begin().and_then(|()| body(tx)).and_then(|value| {
                tx.commit()?;
                Ok(value)
            });
            if is_armed {
                self.fault.store(tx.fault, Relaxed);
            }
            result
        };
        let under_lock = |(tx, body): &mut (NOrecTx<'a>, &mut B)| {
            tx.is_locked = true;
            // An access in place never fails.
            body(tx).expect("nothing aborts under the lock")
        };
        tx.fault = 0;
        run(&self.policy, &self.counters, lock, site, &mut (tx, &mut body), attempt, under_lock)
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn policy(&self) -> &RetryPolicy {
        &self.policy
    }
}
