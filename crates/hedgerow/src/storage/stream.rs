//! Reads in a stream: each is submitted as it comes up and handed back as it ends, while others are
//! still under way.
//!
//! Rank 1. [`ReadSource`] is whoever wants the reads; [`fn@run`] drives it over a [`Reader`], which is
//! what carries reads out (io_uring, threads). The caller of a stream gets control back in the calls
//! of its source alone, so that a stream ends like any other call: with nothing under way.
//!
//! Invariant: no call returns, not even by a panic of the source, while anybody may still write to a
//! buffer that was handed in.

use crate::error::Result;
use crate::storage::{ReadRequest, ReadSource, STREAM_DEPTH};
use rustix::io::Errno;

/// Reads that are handed in before the first of them are submitted, so that the device begins while
/// the source goes on looking.
const BURST: usize = 16;
const FIRST_BURST: usize = 4;

/// The outcome of a read: bytes moved, or the error.
pub(super) type Outcome = std::result::Result<usize, Errno>;

/// Carries out reads that are known by small numbers, up to [`STREAM_DEPTH`] at a time.
pub(super) trait Reader {
    /// Takes a read on; `false` if it cannot, and then nothing was begun.
    ///
    /// # Safety
    ///
    /// The buffer is valid for writes of `len` bytes, and accessed by nobody else, until
    /// [`Reader::wait`] has reported `slot`.
    unsafe fn begin(&mut self, slot: usize, offset_bytes: u64, buffer: *mut u8, len: usize)
    -> bool;

    /// Submits what was taken on, and waits until `enough` reads have ended (0 does not wait). Adds
    /// those that have to `ended`. Whatever does not go well is reported as an error of the reads.
    fn wait(&mut self, enough: usize, ended: &mut Vec<(usize, Outcome)>);
}

/// What is under way. Dropped by a panic, it waits for the rest.
struct Flight<'r, R: Reader> {
    reader: &'r mut R,
    count: usize,
    ended: Vec<(usize, Outcome)>,
}

impl<R: Reader> Flight<'_, R> {
    fn wait(&mut self, enough: usize) {
        let before = self.ended.len();
        self.reader.wait(enough, &mut self.ended);
        self.count -= self.ended.len() - before;
    }
}

impl<R: Reader> Drop for Flight<'_, R> {
    fn drop(&mut self) {
        while self.count > 0 {
            self.wait(self.count);
        }
    }
}

/// Drives `source` until it wants nothing more and nothing is under way. `again` makes the plain call
/// for a read that the reader did not take on, or not carry out whole.
pub(super) fn run<'a, R: Reader>(
    reader: &mut R,
    source: &mut dyn ReadSource<'a>,
    again: impl Fn(&mut ReadRequest<'a>),
) {
    // Before the flight, so that they outlive it: the buffers are borrowed until they are handed back.
    let mut reads: Vec<Option<(usize, ReadRequest<'a>)>> = Vec::new();
    reads.resize_with(STREAM_DEPTH, || None);
    let mut vacant: Vec<usize> = (0..STREAM_DEPTH).rev().collect();
    let ended = Vec::with_capacity(STREAM_DEPTH);
    let mut flight = Flight { reader, count: 0, ended };
    loop {
        let mut fresh = 0;
        // The first ones at once: until then the device has nothing to do.
        let burst = if flight.count == 0 { FIRST_BURST } else { BURST };
        while fresh < burst
            && let Some(&slot) = vacant.last()
            && let Some((number, read)) = source.next_read()
        {
            // In its place before its address is taken: a move would end what the address may do.
            let (_, read) = reads[slot].insert((number, read));
            let (offset, buffer, len) = (read.offset_bytes, read.buf.as_mut_ptr(), read.buf.len());
            // SAFETY: `begin` asks for a buffer that nobody else accesses until the slot is reported:
            // the read, which borrows it mutably, stays in `reads`, untouched, until then, and the
            // flight waits before `reads` is dropped.
            if unsafe { flight.reader.begin(slot, offset, buffer, len) } {
                vacant.pop();
                flight.count += 1;
            } else if let Some((number, mut read)) = reads[slot].take() {
                again(&mut read);
                source.end_read(number, read);
            }
            fresh += 1;
        }
        if flight.count == 0 && fresh == 0 {
            return;
        }
        // Some at a time: to wake up for each costs as much as it reads, and the rest keeps the
        // device busy meanwhile.
        let goes_on = fresh == burst && !vacant.is_empty();
        let enough = if goes_on || flight.count == 0 { 0 } else { (flight.count / 8).max(1) };
        flight.wait(enough);
        while let Some((slot, outcome)) = flight.ended.pop() {
            let (number, mut read) = reads[slot].take().expect("a read ends once");
            vacant.push(slot);
            if outcome != Ok(read.buf.len()) {
                again(&mut read);
            }
            source.end_read(number, read);
        }
    }
}

/// The reads of a batch as a source.
pub(super) struct BatchSource<'r, 'b> {
    requests: std::slice::IterMut<'r, ReadRequest<'b>>,
    results: Vec<&'r mut Result<()>>,
}

impl<'r, 'b> BatchSource<'r, 'b> {
    pub(super) fn new(requests: &'r mut [ReadRequest<'b>]) -> BatchSource<'r, 'b> {
        BatchSource { requests: requests.iter_mut(), results: Vec::new() }
    }
}

impl<'r> ReadSource<'r> for BatchSource<'r, '_> {
    fn next_read(&mut self) -> Option<(usize, ReadRequest<'r>)> {
        let request = self.requests.next()?;
        self.results.push(&mut request.result);
        Some((self.results.len() - 1, ReadRequest::new(request.offset_bytes, request.buf)))
    }

    fn end_read(&mut self, number: usize, read: ReadRequest<'r>) {
        *self.results[number] = read.result;
    }
}
