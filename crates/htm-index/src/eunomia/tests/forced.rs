//! A backend for tests by one thread: each region is aborted at each of its accesses in turn, and at its end, before it commits.

use crate::htm::{Abort, Counters, ElidableLock, Htm, Outcome, RetryPolicy, Site, TCell, Tx, Word};

/// Aborts the first attempt of a region at its first access, the second one at its second, and so on.
#[derive(Default, Debug)]
pub(crate) struct Forced {
    counters: Counters,
}

/// What undoes the changes so far, and how far the attempt goes.
pub(crate) struct ForcedTx<'a> {
    undo: Vec<Box<dyn FnOnce() + 'a>>,
    left: u32,
}

impl<'a> ForcedTx<'a> {
    fn step(&mut self) -> Result<(), Abort> {
        self.left = self.left.checked_sub(1).ok_or(Abort::Other)?;
        Ok(())
    }

    fn change<T: Word>(&mut self, cell: &'a TCell<T>) -> Result<T, Abort> {
        self.step()?;
        let before = cell.get();
        self.undo.push(Box::new(move || cell.set(before)));
        Ok(before)
    }
}

impl<'a> Tx<'a> for ForcedTx<'a> {
    type E = Abort;

    fn load<T: Word>(&mut self, cell: &'a TCell<T>) -> Result<T, Abort> {
        self.step()?;
        Ok(cell.get())
    }

    fn store<T: Word>(&mut self, cell: &'a TCell<T>, value: T) -> Result<(), Abort> {
        self.change(cell)?;
        cell.set(value);
        Ok(())
    }

    fn fetch_or<T: Word>(&mut self, cell: &'a TCell<T>, mask: T) -> Result<T, Abort> {
        let before = self.change(cell)?;
        cell.set(before | mask);
        Ok(before)
    }

    fn fetch_and<T: Word>(&mut self, cell: &'a TCell<T>, mask: T) -> Result<T, Abort> {
        let before = self.change(cell)?;
        cell.set(before & mask);
        Ok(before)
    }

    fn abort(&mut self, code: u8) -> Result<(), Abort> {
        Err(Abort::Explicit(code))
    }

    fn is_speculative(&self) -> bool {
        true
    }
}

impl Htm for Forced {
    type E = Abort;
    type Tx<'a> = ForcedTx<'a>;

    fn atomic_counted<'a, R, B>(&self, _: &'a ElidableLock, _: Site, mut body: B) -> (R, Outcome)
    where
        B: FnMut(&mut ForcedTx<'a>) -> Result<R, Abort>,
    {
        let mut aborts = 0;
        loop {
            let mut tx = ForcedTx { undo: Vec::new(), left: aborts };
            let result = body(&mut tx);
            // The attempt that reaches its end just as it is to abort is aborted there.
            if let Ok(result) = result
                && tx.left > 0
            {
                return (result, Outcome { aborts, took_lock: false });
            }
            tx.undo.into_iter().rev().for_each(|undo| undo());
            aborts += 1;
        }
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn policy(&self) -> &RetryPolicy {
        &RetryPolicy::DBX
    }
}
