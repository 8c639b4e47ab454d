//! Memory that goes between a large value and the file: a share of the limit, lent in buffers of whole chunks.
//!
//! A stream keeps its buffer from one call to the next, so that reading or writing small pieces costs no I/O for
//! each. Such a loan can be called back: when somebody else needs memory, the share asks the borrowers one after
//! the other, and a borrower that is not inside of a call gives its buffer back. So a stream that nobody calls is in
//! nobody's way. A borrower that was called since it was asked last keeps its buffer for one more round. As long as a chunk is
//! free, nobody is asked twice, what is staged is not written for anybody, and a call whose waits are bounded asks nobody.
//!
//! Invariants: what is lent and what is kept are no more than the share together. The lock of the share is the
//! last one: a borrower is asked with nothing locked, because giving back may write to the file. `Send + Sync`.

use crate::error::{Error, ErrorKind, Result};
use crate::storage::AlignedBuffer;
use crate::wait::Waiting;
use hedgerow_sync::primitive::atomic::AtomicUsize;
use hedgerow_sync::primitive::atomic::Ordering::Relaxed;
use hedgerow_sync::primitive::time::Moment;
use hedgerow_sync::primitive::{Arc, Condvar, Mutex, Weak};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

/// How long somebody waits for a buffer, and how long before it looks again by itself.
const LONGEST_LOAN_WAIT: Duration = Duration::from_secs(10);
const LOAN_WAIT: Duration = Duration::from_millis(100);
/// What one read leaves of the share: a part of it, and so many chunks at most.
const LEFT_PART: usize = 4;
const MOST_LEFT_CHUNKS: usize = 32;
/// Buffers that are kept at most.
const KEPT_BUFFERS: usize = 4;

/// Why a borrower is asked for its loan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need {
    /// A chunk is free, and more would be of use: what is staged is not written for that.
    More,
    /// Less than a chunk is free.
    Any,
    /// The same, and whoever asks is not to wait for others: what a thread can write it does not write itself.
    AtOnce,
}

/// Somebody who keeps a loan between calls, and can be asked for it.
pub trait Borrower: Send + Sync {
    /// Gives the loan back unless a call is using it, or has used it since this was asked last. Waits for
    /// nobody who may be waiting for a loan.
    fn give_back(self: Arc<Self>, need: Need);
}

/// How long a loan is for.
pub enum LoanFor {
    /// Many calls: whoever it is can be asked for it between two of them.
    Stream(Weak<dyn Borrower>),
    /// What a call does.
    Call,
    /// One read of a call.
    Read,
}

/// The share, and who has borrowed of it.
#[derive(Default)]
pub(in crate::space) struct Loans {
    /// Of the whole share. It is set once, before anybody asks.
    bytes: AtomicUsize,
    share: Mutex<Share>,
    returned: Condvar,
    /// Those who wait for a buffer now.
    waiting: AtomicUsize,
}

#[derive(Default)]
struct Share {
    bytes: usize,
    /// Not lent.
    free_bytes: usize,
    /// Of those, in buffers that came back: making one costs as much as filling it.
    kept: Vec<AlignedBuffer>,
    /// Whose loans can be called back, in the order in which they were lent.
    borrowers: BTreeMap<u64, Weak<dyn Borrower>>,
    next_borrower: u64,
    /// The next one to ask.
    hand: u64,
}

impl Share {
    /// A buffer of so many bytes, which are not lent. Its content is anything.
    fn take(&mut self, bytes: usize) -> Result<AlignedBuffer> {
        let kept = self.kept.iter().position(|kept| kept.len() == bytes);
        let buffer = match kept {
            Some(at) => self.kept.swap_remove(at),
            None => {
                // What is kept and what is lent are no more than the share together.
                let mut kept_bytes: usize = self.kept.iter().map(|kept| kept.len()).sum();
                while kept_bytes + bytes > self.free_bytes {
                    let Some(dropped) = self.kept.pop() else { break };
                    kept_bytes -= dropped.len();
                }
                AlignedBuffer::zeroed(bytes)?
            }
        };
        self.free_bytes -= bytes;
        Ok(buffer)
    }

    /// A buffer of one to `most` chunks, where one is free. It is half of what is free at most, so that the next one need not wait; for
    /// one read, which gives it back soon, all but what changes take at a time.
    fn take_some(&mut self, chunk: usize, most: usize, is_one_read: bool) -> Result<AlignedBuffer> {
        let free = self.free_bytes / chunk;
        let left = (self.bytes / chunk / LEFT_PART).clamp(1, MOST_LEFT_CHUNKS);
        let chunks = if is_one_read { (free / 2).max(free.saturating_sub(left)) } else { free / 2 };
        self.take(chunks.clamp(1, most) * chunk)
    }

    fn take_back(&mut self, buffer: AlignedBuffer) {
        self.free_bytes += buffer.len();
        if self.kept.len() < KEPT_BUFFERS {
            self.kept.push(buffer);
        }
    }

    /// The next borrower in turn that is still there.
    fn next_to_ask(&mut self) -> Option<Arc<dyn Borrower>> {
        for _ in 0..self.borrowers.len() {
            let next = self.borrowers.range(self.hand..).next();
            let (&at, borrower) = next.or_else(|| self.borrowers.iter().next())?;
            self.hand = at + 1;
            if let Some(borrower) = borrower.upgrade() {
                return Some(borrower);
            }
        }
        None
    }
}

/// A buffer on loan; it goes back when it is dropped.
pub struct Loan {
    /// There until it goes back.
    buffer: Option<AlignedBuffer>,
    /// Its number among those that can be called back.
    borrower: Option<u64>,
    loans: Arc<Loans>,
}

impl fmt::Debug for Loan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loan").field("bytes", &self.len()).finish_non_exhaustive()
    }
}

impl Deref for Loan {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.buffer.as_deref().unwrap_or_default()
    }
}

impl DerefMut for Loan {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.buffer.as_deref_mut().unwrap_or_default()
    }
}

impl Loan {
    /// Whether somebody waits for a buffer: whoever ends a call then keeps none.
    pub fn is_wanted(&self) -> bool {
        // A hint: whoever waits looks again by itself.
        self.loans.waiting.load(Relaxed) > 0
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        {
            let mut share = self.loans.share.lock();
            if let Some(buffer) = self.buffer.take() {
                share.take_back(buffer);
            }
            if let Some(borrower) = self.borrower {
                share.borrowers.remove(&borrower);
            }
        }
        self.loans.returned.notify_all();
    }
}

impl Loans {
    /// Sets how much memory buffers may take at a time. Before anybody borrows one.
    pub(in crate::space) fn set_bytes(&self, bytes: usize) {
        self.bytes.store(bytes, Relaxed);
        *self.share.lock() = Share { bytes, free_bytes: bytes, ..Share::default() };
    }

    /// How much memory buffers may take at a time. Locks nothing.
    pub(in crate::space) fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// See [`crate::space::slot_store::SlotStore::lend`].
    pub(in crate::space) fn lend(
        self: &Arc<Self>,
        chunk: usize,
        most: usize,
        loan_for: LoanFor,
        waiting: &Waiting<'_>,
    ) -> Result<Loan> {
        let most = most.max(1);
        let since = Moment::now();
        let mut is_waiting = None;
        while since.elapsed() < LONGEST_LOAN_WAIT {
            self.call_back(chunk, most, waiting.is_bounded());
            let mut share = self.share.lock();
            if share.free_bytes >= chunk {
                let is_one_read = matches!(loan_for, LoanFor::Read);
                let buffer = Some(share.take_some(chunk, most, is_one_read)?);
                let borrower = if let LoanFor::Stream(borrower) = loan_for {
                    let number = share.next_borrower;
                    share.next_borrower += 1;
                    share.borrowers.insert(number, borrower);
                    Some(number)
                } else {
                    None
                };
                return Ok(Loan { buffer, borrower, loans: self.clone() });
            }
            if share.bytes < chunk {
                return Err(Error::new(
                    ErrorKind::MemoryLimit,
                    "the memory limit is too small for large values: set at least 128 KiB more than the smallest",
                ));
            }
            is_waiting.get_or_insert_with(|| Wanting::begin(self));
            let most = waiting.nap_of(LOAN_WAIT)?;
            self.returned.wait_for(&mut share, most);
        }
        Err(Error::new(
            ErrorKind::MemoryLimit,
            "others use all of the memory that the limit has for reading and writing large values; try again",
        ))
    }

    /// Lends what is free at once, and asks nobody for his: giving back may write.
    pub(in crate::space) fn lend_free(self: &Arc<Self>, chunk: usize, most: usize) -> Option<Loan> {
        let mut share = self.share.lock();
        let is_free = share.free_bytes >= chunk;
        let buffer = is_free.then(|| share.take_some(chunk, most.max(1), false).ok()).flatten();
        buffer.map(|buffer| Loan { buffer: Some(buffer), borrower: None, loans: self.clone() })
    }

    /// Asks borrowers for what they do not use, until so many chunks can be lent, or a half of the share is free; if the call is bounded,
    /// until one can. Where there is not even one they are asked twice: the second time nobody has used its buffer since, unless a
    /// call does so now.
    fn call_back(&self, chunk: usize, most: usize, is_bounded: bool) {
        let mut asked = 0;
        loop {
            let (next, has_one) = {
                let mut share = self.share.lock();
                let wanted = most.saturating_mul(2 * chunk).min(share.bytes / 2).max(chunk);
                let has_one = share.free_bytes >= chunk;
                let rounds = if has_one { 1 } else { 2 };
                if share.free_bytes >= wanted
                    || has_one && is_bounded
                    || asked >= rounds * share.borrowers.len()
                {
                    return;
                }
                (share.next_to_ask(), has_one)
            };
            let Some(borrower) = next else { return };
            borrower.give_back(match (has_one, is_bounded) {
                (true, _) => Need::More,
                (false, true) => Need::AtOnce,
                (false, false) => Need::Any,
            });
            asked += 1;
        }
    }
}

/// Somebody waits for a buffer; until the value is dropped.
struct Wanting<'l>(&'l Loans);

impl<'l> Wanting<'l> {
    fn begin(loans: &'l Loans) -> Wanting<'l> {
        loans.waiting.fetch_add(1, Relaxed);
        Wanting(loans)
    }
}

impl Drop for Wanting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait::Wait;
    use hedgerow_sync::primitive::random::SplitMix64;

    const CHUNK: usize = 4096;

    fn share(chunks: usize) -> Share {
        Share { bytes: chunks * CHUNK, free_bytes: chunks * CHUNK, ..Share::default() }
    }

    fn bytes(buffers: &[AlignedBuffer]) -> usize {
        buffers.iter().map(|buffer| buffer.len()).sum()
    }

    #[test]
    fn a_kept_buffer_gives_way_to_one_of_another_length() {
        let mut share = share(4);
        let long = share.take(3 * CHUNK).unwrap();
        share.take_back(long);
        assert_eq!(bytes(&share.kept), 3 * CHUNK);
        let short = share.take(CHUNK).unwrap();
        assert_eq!(bytes(&share.kept), 3 * CHUNK, "there is memory for both");
        let other = share.take(CHUNK).unwrap();
        assert_eq!((short.len(), other.len()), (CHUNK, CHUNK));
        assert_eq!(bytes(&share.kept), 0, "and none for all three");
        assert_eq!(share.free_bytes, 2 * CHUNK);
    }

    #[test]
    fn what_is_lent_and_what_is_kept_are_no_more_than_the_share() {
        let seed = crate::testing::environment::fresh_seed();
        let mut random = SplitMix64::new(seed);
        let mut share = share(12);
        let mut lent: Vec<AlignedBuffer> = Vec::new();
        for _ in 0..2000 {
            let chunks = 1 + random.below(5) as usize;
            if random.below(2) == 0 && share.free_bytes >= chunks * CHUNK {
                lent.push(share.take(chunks * CHUNK).unwrap());
                assert_eq!(lent.last().unwrap().len(), chunks * CHUNK);
            } else if !lent.is_empty() {
                let at = random.below(lent.len() as u64) as usize;
                share.take_back(lent.swap_remove(at));
            }
            assert_eq!(share.free_bytes, share.bytes - bytes(&lent));
            assert!(bytes(&lent) + bytes(&share.kept) <= share.bytes);
            assert!(share.kept.len() <= KEPT_BUFFERS);
        }
    }

    /// A borrower that says how often it was asked.
    #[derive(Default)]
    struct Stream {
        loan: Mutex<Option<Loan>>,
        asked: AtomicUsize,
    }

    impl Borrower for Stream {
        fn give_back(self: Arc<Self>, _: Need) {
            self.asked.fetch_add(1, Relaxed);
            if let Some(mut loan) = self.loan.try_lock() {
                *loan = None;
            }
        }
    }

    fn loans(chunks: usize) -> Arc<Loans> {
        let loans = Arc::new(Loans::default());
        loans.set_bytes(chunks * CHUNK);
        loans
    }

    fn begin(loans: &Arc<Loans>) -> Arc<Stream> {
        let stream = Arc::new(Stream::default());
        let weak: Weak<Stream> = Arc::downgrade(&stream);
        let loan = loans.lend(CHUNK, 1, LoanFor::Stream(weak), &Waiting::Forever).unwrap();
        *stream.loan.lock() = Some(loan);
        stream
    }

    #[test]
    fn idle_borrowers_give_back_and_one_in_a_call_does_not() {
        let loans = loans(2);
        let (busy, idle) = (begin(&loans), begin(&loans));
        let in_a_call = busy.loan.lock();
        assert_eq!(loans.share.lock().free_bytes, 0);
        for _ in 0..3 {
            let loan = loans.lend(CHUNK, 1, LoanFor::Call, &Waiting::Forever).unwrap();
            assert_eq!(loan.len(), CHUNK);
            assert!(idle.loan.lock().is_none());
        }
        assert!(in_a_call.is_some());
        assert!(busy.asked.load(Relaxed) > 0);
        drop(in_a_call);
        // Who is gone is asked no more, and takes no place.
        drop((busy, idle));
        assert_eq!(loans.share.lock().borrowers.len(), 0);
        assert_eq!(loans.share.lock().free_bytes, 2 * CHUNK);
    }

    #[test]
    fn nobody_is_asked_for_more_by_who_may_not_wait_and_once_by_others() {
        let loans = loans(4);
        let busy: Vec<_> = (0..3).map(|_| begin(&loans)).collect();
        let in_calls: Vec<_> = busy.iter().map(|stream| stream.loan.lock()).collect();
        let asked = || busy.iter().map(|stream| stream.asked.load(Relaxed)).collect::<Vec<_>>();
        let before = asked();
        let loan = loans.lend(CHUNK, 4, LoanFor::Call, &Wait::Never.begin()).unwrap();
        assert_eq!(asked(), before, "a chunk was free");
        drop(loan);
        drop(loans.lend(CHUNK, 4, LoanFor::Call, &Waiting::Forever).unwrap());
        assert_eq!(asked(), before.iter().map(|asked| asked + 1).collect::<Vec<_>>());
        drop(in_calls);
    }

    #[test]
    fn many_idle_borrowers_leave_as_much_for_others_as_none() {
        let loans = loans(64);
        let idle: Vec<_> = (0..1000).map(|_| begin(&loans)).collect();
        let loan = loans.lend(CHUNK, 16, LoanFor::Call, &Waiting::Forever).unwrap();
        assert_eq!(loan.len(), 16 * CHUNK);
        drop((loan, idle));
        assert_eq!(loans.share.lock().borrowers.len(), 0);
    }
}
