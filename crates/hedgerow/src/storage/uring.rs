//! Batches of reads and writes through io_uring.
//!
//! Rank 1, Linux alone. A ring serves one batch or stream at a time: a caller takes an idle ring, or makes one,
//! and gives it back, so threads meet only for as long as a push or a pop takes. Whatever does not go
//! well here (no ring to be had, a submission that the kernel refuses, a short or interrupted
//! transfer) is reported as `EAGAIN`, and the caller makes the plain call instead, so that there is one
//! place that knows what short, interrupted and refused calls mean.
//!
//! Invariant: no call returns while the kernel may still use a buffer of it. In a batch nothing panics or
//! returns between the first submission and the last completion: a panic of what the caller does beside
//! a batch of writes is held back until then. In a stream, where the source's code runs in between, the
//! flight waits when it is dropped (`stream.rs`).

use crate::storage::STREAM_DEPTH;
use crate::storage::refused::is_refused;
use crate::storage::runs::Run;
use crate::storage::stream::{Outcome, Reader};
use hedgerow_sync::primitive::atomic::{AtomicUsize, Ordering::Relaxed};
use hedgerow_sync::primitive::{Mutex, thread};
use io_uring::{IoUring, Probe, opcode, squeue, types};
use rustix::io::Errno;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Requests of one ring that the kernel has at a time. Devices gain nothing beyond this.
const DEPTH: usize = 128;
/// Idle rings that are kept. Each holds one descriptor and some 20 KiB of kernel memory.
const MAX_IDLE: usize = 16;
/// Refused submissions in a row after which a ring is given up.
const MAX_REFUSALS: usize = 100;
/// Rings in a row that were given up, or could not be made, after which others are tried only now and then.
const MAX_GIVEN_UP: usize = 8;
/// Batches and streams without a ring before one is tried again: what there was not enough of, descriptors or memory, may be there again.
const TRIED_AFTER: usize = 1000;
/// So many were given up if none will ever work.
const FOR_GOOD: usize = usize::MAX / 2;

/// The rings of a disk.
pub(super) struct Rings {
    idle: Mutex<Vec<IoUring>>,
    /// From [`MAX_GIVEN_UP`] on hardly anybody tries any more, and from [`FOR_GOOD`] on nobody. Relaxed: it decides how, and not what, is
    /// read or written.
    given_up: AtomicUsize,
    /// Batches and streams that have done without one since.
    done_without: AtomicUsize,
}

impl std::fmt::Debug for Rings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Rings({} idle)", self.idle.lock().len())
    }
}

impl Rings {
    /// Makes the first ring and finds out whether the kernel lets it work.
    pub(super) fn new() -> io::Result<Rings> {
        let mut ring = make_ring()?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let used = [opcode::Read::CODE, opcode::Readv::CODE, opcode::Writev::CODE];
        if !used.iter().all(|&op| probe.is_supported(op)) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        // Some sandboxes let a ring be made and refuse its use. A request that does nothing has no
        // buffers, so that giving up half-way is safe.
        let nothing = opcode::Nop::new().build();
        // SAFETY: `push` asks that what the entry points to stays valid; this one has no pointers.
        unsafe { ring.submission().push(&nothing) }.map_err(io::Error::other)?;
        loop {
            match ring.submit_and_wait(1) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                Ok(_) => break,
            }
        }
        match ring.completion().next() {
            Some(entry) if entry.result() >= 0 => {}
            _ => return Err(io::ErrorKind::Unsupported.into()),
        }
        let (given_up, done_without) = Default::default();
        Ok(Rings { idle: Mutex::new(vec![ring]), given_up, done_without })
    }

    /// Reads runs of slices together. One outcome for each run.
    pub(super) fn read(
        &self,
        fd: &OwnedFd,
        runs: &[Run],
        slices: &mut [IoSliceMut<'_>],
    ) -> Vec<Outcome> {
        let vectors = slices.as_mut_ptr();
        let entry = |run: &Run| {
            // `IoSliceMut` has the layout of `iovec` by its documentation.
            let vector = vectors.wrapping_add(run.first).cast();
            opcode::Readv::new(types::Fd(fd.as_raw_fd()), vector, run.count as u32)
                .offset(run.offset_bytes)
                .build()
        };
        // SAFETY: `carry_out` asks that all that the entries point to stay valid, and the bytes read
        // into be ours alone, until it returns: the slices and what they name are borrowed mutably
        // and the descriptor is borrowed for the whole of this call.
        unsafe { self.carry_out(runs, entry, None) }
    }

    /// Writes runs of slices together, and calls `beside`, if there is one, once meanwhile. One outcome
    /// for each run.
    pub(super) fn write(
        &self,
        fd: &OwnedFd,
        runs: &[Run],
        slices: &[IoSlice<'_>],
        beside: Option<&mut dyn FnMut()>,
    ) -> Vec<Outcome> {
        let vectors = slices.as_ptr();
        let entry = |run: &Run| {
            // `IoSlice` has the layout of `iovec` by its documentation.
            let vector = vectors.wrapping_add(run.first).cast();
            opcode::Writev::new(types::Fd(fd.as_raw_fd()), vector, run.count as u32)
                .offset(run.offset_bytes)
                .build()
        };
        // SAFETY: `carry_out` asks that all that the entries point to stay valid until it returns:
        // the slices, what they name, and the descriptor are borrowed for the whole of this call.
        unsafe { self.carry_out(runs, entry, beside) }
    }

    /// Submits an entry for each run, calls `beside`, if there is one, once, and waits for all of them.
    ///
    /// # Safety
    ///
    /// All that the entries point to stays valid until the return, and what is read into is accessed
    /// by nobody else.
    unsafe fn carry_out(
        &self,
        runs: &[Run],
        entry: impl Fn(&Run) -> squeue::Entry,
        mut beside: Option<&mut dyn FnMut()>,
    ) -> Vec<Outcome> {
        let mut outcomes = vec![Err(Errno::AGAIN); runs.len()];
        let mut panic = None;
        if let Some(mut ring) = self.take() {
            let is_wanted = beside.is_some();
            let mut held_back = || {
                if let Some(beside) = &mut beside {
                    panic = catch_unwind(AssertUnwindSafe(&mut **beside)).err();
                }
            };
            let held_back = is_wanted.then_some(&mut held_back as &mut dyn FnMut());
            // SAFETY: passed on to the caller; `held_back` does not panic.
            match unsafe { drive(&mut ring, runs, entry, held_back, &mut outcomes) } {
                Ok(()) => self.give_back(ring),
                Err(error) => self.note_refusal(&error),
            }
        } else if let Some(beside) = beside {
            beside();
        }
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
        outcomes
    }

    fn take(&self) -> Option<IoUring> {
        let given_up = self.given_up.load(Relaxed);
        if given_up >= MAX_GIVEN_UP
            && (given_up >= FOR_GOOD
                || !(self.done_without.fetch_add(1, Relaxed) + 1).is_multiple_of(TRIED_AFTER))
        {
            return None;
        }
        let idle = self.idle.lock().pop();
        idle.map_or_else(make_ring, Ok).inspect_err(|error| self.note_refusal(error)).ok()
    }

    /// Notes that a ring did not work. A sandbox that was set up meanwhile refuses all of them: then none is tried again, and the
    /// idle ones are closed.
    #[cold]
    fn note_refusal(&self, error: &io::Error) {
        let before = match is_final(error) {
            true => self.given_up.fetch_max(FOR_GOOD, Relaxed).max(FOR_GOOD),
            false => self.given_up.fetch_add(1, Relaxed),
        };
        if before + 1 >= MAX_GIVEN_UP {
            // Closed after the lock is free.
            let _idle = std::mem::take(&mut *self.idle.lock());
        }
    }

    fn give_back(&self, ring: IoUring) {
        // This one works: what was refused before was for want of something that comes and goes.
        let refused = self.given_up.load(Relaxed);
        if refused > 0 && refused < FOR_GOOD {
            // If somebody was refused just now, that counts.
            self.given_up.compare_exchange(refused, 0, Relaxed, Relaxed).ok();
        }
        let mut idle = self.idle.lock();
        if idle.len() < MAX_IDLE {
            idle.push(ring);
        }
    }

    /// What reads a stream of this file; `None` if no ring can be had.
    pub(super) fn stream<'f>(&'f self, fd: &'f OwnedFd) -> Option<RingReader<'f>> {
        let ring = self.take()?;
        Some(RingReader { rings: self, ring: Some(ring), fd, under_way: 0, refusals: 0 })
    }
}

/// The reads of one stream.
pub(super) struct RingReader<'f> {
    rings: &'f Rings,
    /// `None` once it was given up.
    ring: Option<IoUring>,
    fd: &'f OwnedFd,
    /// A bit for each read that was taken on and has not ended.
    under_way: u128,
    refusals: usize,
}

const _: () = assert!(STREAM_DEPTH <= DEPTH && STREAM_DEPTH <= u128::BITS as usize);

impl Reader for RingReader<'_> {
    unsafe fn begin(
        &mut self,
        slot: usize,
        offset_bytes: u64,
        buffer: *mut u8,
        len: usize,
    ) -> bool {
        let Some(ring) = &mut self.ring else { return false };
        let entry = opcode::Read::new(types::Fd(self.fd.as_raw_fd()), buffer, len as u32)
            .offset(offset_bytes)
            .build()
            .user_data(slot as u64);
        // SAFETY: `push` asks that what the entry points to stay valid until it has completed: so the
        // caller promises of the buffer, and the descriptor is borrowed.
        let is_taken = unsafe { ring.submission().push(&entry) }.is_ok();
        self.under_way |= u128::from(is_taken) << slot;
        is_taken
    }

    fn wait(&mut self, enough: usize, ended: &mut Vec<(usize, Outcome)>) {
        let Some(ring) = &mut self.ring else { return };
        let first = ended.len();
        while ended.len() - first < enough.max(1) {
            match ring.submit_and_wait(enough - enough.min(ended.len() - first)) {
                Ok(_) => self.refusals = 0,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.refusals += 1;
                    if self.refusals > MAX_REFUSALS || is_final(&error) {
                        self.rings.note_refusal(&error);
                        self.give_up(ended);
                        return;
                    }
                    thread::yield_now();
                }
            }
            reap_into(ring, &mut self.under_way, ended);
            if enough == 0 {
                return;
            }
        }
    }
}

impl RingReader<'_> {
    /// Waits for what the kernel has accepted, reports the rest as `EAGAIN`, and drops the ring.
    #[cold]
    fn give_up(&mut self, ended: &mut Vec<(usize, Outcome)>) {
        let Some(mut ring) = self.ring.take() else { return };
        let mut queue = ring.submission();
        queue.sync();
        let refused = queue.len();
        drop(queue);
        while self.under_way.count_ones() as usize > refused {
            // Completions are delivered when the thread enters the kernel, as this does.
            thread::yield_now();
            reap_into(&mut ring, &mut self.under_way, ended);
        }
        while self.under_way != 0 {
            ended.push((self.under_way.trailing_zeros() as usize, Err(Errno::AGAIN)));
            self.under_way &= self.under_way - 1;
        }
    }
}

impl Drop for RingReader<'_> {
    fn drop(&mut self) {
        if let Some(ring) = self.ring.take()
            && self.under_way == 0
        {
            self.rings.give_back(ring);
        }
    }
}

/// Takes what has completed of a stream.
fn reap_into(ring: &mut IoUring, under_way: &mut u128, ended: &mut Vec<(usize, Outcome)>) {
    for completion in ring.completion() {
        let slot = completion.user_data() as usize;
        *under_way &= !(1 << slot);
        ended.push((slot, outcome(completion.result())));
    }
}

fn outcome(result: i32) -> Outcome {
    usize::try_from(result).map_err(|_| Errno::from_raw_os_error(-result))
}

/// Whether a ring was refused for a reason that does not pass. A descriptor that is no ring (any more) is a reason to make
/// another one.
fn is_final(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    errno.is_some_and(|errno| errno != Errno::OPNOTSUPP && is_refused(errno))
}

fn make_ring() -> io::Result<IoUring> {
    let entries = DEPTH as u32;
    // Without this flag (before Linux 5.19) a completion interrupts the thread that waits for it.
    IoUring::builder()
        .dontfork()
        .setup_coop_taskrun()
        .build(entries)
        .or_else(|_| IoUring::builder().dontfork().build(entries))
}

/// Keeps the ring full until every run has its outcome; calls `beside`, if there is one, once, when as
/// much as possible is under way. An error: the ring is of no use any more.
///
/// # Safety
///
/// As for [`Rings::carry_out`]; and `beside` does not panic.
unsafe fn drive(
    ring: &mut IoUring,
    runs: &[Run],
    entry: impl Fn(&Run) -> squeue::Entry,
    mut beside: Option<&mut dyn FnMut()>,
    outcomes: &mut [Outcome],
) -> io::Result<()> {
    let mut next = 0;
    let mut in_flight = 0;
    let mut refusals = 0;
    while next < runs.len() || in_flight > 0 {
        let mut queue = ring.submission();
        while next < runs.len() && in_flight < DEPTH {
            let entry = entry(&runs[next]).user_data(next as u64);
            // SAFETY: `push` asks that what the entry points to stay valid until it has completed:
            // so the caller promises until we return, and we return with nothing in flight.
            if unsafe { queue.push(&entry) }.is_err() {
                break;
            }
            next += 1;
            in_flight += 1;
        }
        drop(queue);
        // With more to come, half of the ring is refilled at a time, which keeps the device busy;
        // at the end all is waited for at once. With something else to do, nothing is waited for yet.
        let enough = if next < runs.len() { in_flight / 2 } else { in_flight };
        let submitted = match &beside {
            Some(_) => ring.submit(),
            None => ring.submit_and_wait(enough.max(1)),
        };
        if let Some(beside) = beside.take() {
            beside();
        }
        match submitted {
            Ok(_) => refusals = 0,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                refusals += 1;
                if refusals > MAX_REFUSALS || is_final(&error) {
                    abandon(ring, in_flight, outcomes);
                    return Err(error);
                }
                thread::yield_now();
            }
        }
        in_flight -= reap(ring, outcomes);
    }
    if let Some(beside) = beside {
        beside();
    }
    Ok(())
}

/// Takes what has completed. Returns how much that was.
fn reap(ring: &mut IoUring, outcomes: &mut [Outcome]) -> usize {
    let mut count = 0;
    for completion in ring.completion() {
        count += 1;
        if let Some(slot) = outcomes.get_mut(completion.user_data() as usize) {
            *slot = outcome(completion.result());
        }
    }
    count
}

/// Waits for what the kernel has accepted of a ring that takes nothing more. What it has not accepted
/// keeps its `EAGAIN`, and is gone with the ring.
#[cold]
fn abandon(ring: &mut IoUring, mut in_flight: usize, outcomes: &mut [Outcome]) {
    let mut queue = ring.submission();
    queue.sync();
    in_flight -= queue.len();
    drop(queue);
    while in_flight > 0 {
        // Completions are delivered when the thread enters the kernel, as this does.
        thread::yield_now();
        in_flight -= reap(ring, outcomes);
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use std::mem::ManuallyDrop;
    use std::os::fd::FromRawFd;

    #[test]
    fn a_ring_that_fails_is_given_up_and_every_run_is_reported() {
        let Ok(rings) = Rings::new() else {
            return crate::testing::not_run("a ring that fails", "there is no io_uring");
        };
        let file: OwnedFd = tempfile::tempfile().unwrap().into();
        let run = |first: usize| Run { first, count: 1, offset_bytes: first as u64, len_bytes: 3 };
        let runs: Vec<Run> = (0..300).map(run).collect();
        let slices: Vec<IoSlice<'_>> = runs.iter().map(|_| IoSlice::new(b"abc")).collect();
        let mut calls = 0;
        let outcomes = rings.write(&file, &runs, &slices, Some(&mut || calls += 1));
        assert!(outcomes.iter().all(|outcome| *outcome == Ok(3)));
        assert_eq!((rings.idle.lock().len(), calls), (1, 1));
        assert!(rings.write(&file, &[], &[], Some(&mut || calls += 1)).is_empty());
        assert_eq!(calls, 2);

        // Another file takes the descriptor of the idle ring, which then can submit nothing.
        let number = rings.idle.lock()[0].as_raw_fd();
        // SAFETY: `from_raw_fd` asks for an open descriptor that nobody else closes: the ring's own
        // is open, and stays the ring's to close, because this one is never dropped.
        let mut stolen = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(number) });
        rustix::io::dup2(&file, &mut stolen).unwrap();
        let outcomes = rings.write(&file, &runs, &slices, Some(&mut || calls += 1));
        assert!(outcomes.iter().all(|outcome| *outcome == Err(Errno::AGAIN)));
        assert_eq!((rings.idle.lock().len(), calls), (0, 3));

        // The same in the middle of a stream.
        let mut reader = rings.stream(&file).unwrap();
        let (mut buffers, mut ended) = ([[0; 3]; 9], Vec::new());
        for (slot, buffer) in buffers.iter_mut().enumerate() {
            // SAFETY: `begin` asks for a buffer that is left alone until its slot is reported: nobody
            // looks at them any more, and they live until all are.
            assert!(unsafe { reader.begin(slot, 3, buffer.as_mut_ptr(), 3) });
            if slot == 4 {
                reader.wait(5, &mut ended);
                let number = reader.ring.as_ref().unwrap().as_raw_fd();
                // SAFETY: as above.
                let mut stolen = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(number) });
                rustix::io::dup2(&file, &mut stolen).unwrap();
            }
        }
        reader.wait(1, &mut ended);
        // SAFETY: as above, and refused, for the ring is given up.
        assert!(!unsafe { reader.begin(9, 3, buffers[0].as_mut_ptr(), 3) });
        drop(reader);
        ended.sort_unstable_by_key(|(slot, _)| *slot);
        assert_eq!(ended.iter().map(|(slot, _)| *slot).collect::<Vec<_>>(), Vec::from_iter(0..9));
        assert!(ended[..5].iter().all(|(_, outcome)| *outcome == Ok(3)), "{ended:?}");
        assert!(ended[5..].iter().all(|(_, outcome)| *outcome == Err(Errno::AGAIN)), "{ended:?}");
        assert_eq!(rings.idle.lock().len(), 0);
        let outcomes = rings.write(&file, &runs, &slices, None);
        assert!(outcomes.iter().all(|outcome| *outcome == Ok(3)));

        // Want of something is over some day, and a refusal is not.
        let want = || rings.note_refusal(&Errno::MFILE.into());
        (0..MAX_GIVEN_UP).for_each(|_| want());
        assert_eq!(rings.idle.lock().len(), 0);
        for _ in 0..2 {
            let without = (0..).take_while(|_| rings.take().is_none()).count();
            assert_eq!(without, TRIED_AFTER - 1);
            want();
        }
        let batch = || rings.write(&file, &runs[..1], &slices[..1], None)[0];
        let without = (0..).take_while(|_| batch() == Err(Errno::AGAIN)).count();
        assert_eq!((without, rings.idle.lock().len()), (TRIED_AFTER - 1, 1));
        assert_eq!(batch(), Ok(3));

        // A panic beside a batch comes when the batch has ended.
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            rings.write(&file, &runs, &slices, Some(&mut || panic!("on purpose")))
        }));
        assert!(panicked.is_err());
        assert_eq!(rings.idle.lock().len(), 1);

        rings.note_refusal(&Errno::PERM.into());
        assert_eq!(rings.idle.lock().len(), 0);
        assert!((0..3 * TRIED_AFTER).all(|_| batch() == Err(Errno::AGAIN)));
    }
}
