//! Queue latches of Mellor-Crummey and Scott: each waits at a line of its own. First come, first served.
//!
//! A queue is made of nodes, which have numbers instead of addresses. A thread has one node, for whatever latch it waits: it holds one latch at
//! a time, and whoever comes behind it is done with its node when it gives the latch back. A node is published by the swap that
//! puts its number at the tail. Behind that, accesses of the read-write latch are sequentially consistent: it rests on pairs of a
//! store and a load of another word. The exclusive latch needs only releases and acquisitions.

use super::{Latch, spin};
use hedgerow_sync::primitive::atomic::{
    AtomicU32,
    Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
};
use hedgerow_sync::primitive::thread;

/// Threads alive that may use these latches.
const MOST_THREADS: usize = 1_024;
/// No node.
const NONE: u32 = 0;

/// Bits of [`Node::state`]: the owner waits; a reader, or a writer, comes behind it.
const BLOCKED: u32 = 1;
const READER_BEHIND: u32 = 2;
const WRITER_BEHIND: u32 = 4;

/// One line of the cache, and the one that may be fetched with it.
#[repr(align(128))]
struct Node {
    next: AtomicU32,
    state: AtomicU32,
    /// Whether the owner writes: 1 or 0.
    is_writer: AtomicU32,
}

/// By the number of the thread. All of them are at rest when no latch is held.
static NODES: [Node; MOST_THREADS] = [const {
    Node { next: AtomicU32::new(NONE), state: AtomicU32::new(0), is_writer: AtomicU32::new(0) }
}; MOST_THREADS];

fn node(number: u32) -> &'static Node {
    &NODES[number as usize - 1]
}

/// The number of the calling thread's node, from 1 on, which is made ready to wait. Panics with too many threads.
fn my_node(is_writer: bool) -> u32 {
    let number = thread::id();
    assert!(number < MOST_THREADS, "{MOST_THREADS} threads at most");
    let mine = &NODES[number];
    // Relaxed: the swap of the tail publishes them.
    mine.next.store(NONE, Relaxed);
    mine.state.store(BLOCKED, Relaxed);
    mine.is_writer.store(is_writer.into(), Relaxed);
    number as u32 + 1
}

impl Node {
    fn wait(&self) {
        spin(|| self.state.load(SeqCst) & BLOCKED == 0);
    }

    fn unblock(&self) {
        self.state.fetch_and(!BLOCKED, SeqCst);
    }

    /// Who comes behind: somebody has taken a place there, and is about to say so.
    fn next(&self) -> u32 {
        let mut next = NONE;
        spin(|| {
            next = self.next.load(SeqCst);
            next != NONE
        });
        next
    }

    /// Whether nobody came behind, and the queue is empty now.
    fn leave(&self, number: u32, tail: &AtomicU32) -> bool {
        self.next.load(SeqCst) == NONE
            && tail.compare_exchange(number, NONE, SeqCst, SeqCst).is_ok()
    }
}

/// The exclusive one: the tail of the queue, in 8 bytes as a pointer would have.
#[derive(Default)]
#[repr(align(8))]
pub struct Mcs(AtomicU32);

impl Latch for Mcs {
    #[inline]
    fn read<R>(&self, mut read: impl FnMut() -> R) -> R {
        self.write(&mut read)
    }

    #[inline]
    fn write<R>(&self, write: impl FnOnce() -> R) -> R {
        let number = my_node(true);
        let mine = node(number);
        let before = self.0.swap(number, AcqRel);
        if before != NONE {
            node(before).next.store(number, Release);
            spin(|| mine.state.load(Acquire) == 0);
        }
        let result = write();
        if !mine.leave(number, &self.0) {
            node(mine.next()).state.store(0, Release);
        }
        result
    }
}

/// The fair read-write one ("Scalable Reader-Writer Synchronization for Shared-Memory Multiprocessors", PPoPP 1991, with the correction of 2003 to
/// the end of a read): a queue of readers and writers, the number of readers inside, and the writer that the last of them lets in.
#[derive(Default)]
pub struct QueuingReadWrite {
    tail: AtomicU32,
    readers: AtomicU32,
    next_writer: AtomicU32,
}

impl QueuingReadWrite {
    fn begin_read(&self, number: u32) {
        let mine = node(number);
        let before = self.tail.swap(number, SeqCst);
        if before == NONE {
            self.readers.fetch_add(1, SeqCst);
            mine.unblock();
        } else {
            let before = node(before);
            // A writer, or a reader that waits itself, counts this one in and lets it in.
            let is_let_in = before.is_writer.load(SeqCst) == 1
                || before
                    .state
                    .compare_exchange(BLOCKED, BLOCKED | READER_BEHIND, SeqCst, SeqCst)
                    .is_ok();
            if is_let_in {
                before.next.store(number, SeqCst);
                mine.wait();
            } else {
                self.readers.fetch_add(1, SeqCst);
                before.next.store(number, SeqCst);
                mine.unblock();
            }
        }
        if mine.state.load(SeqCst) & READER_BEHIND != 0 {
            let next = mine.next();
            self.readers.fetch_add(1, SeqCst);
            node(next).unblock();
        }
    }

    fn end_read(&self, number: u32) {
        let mine = node(number);
        if !mine.leave(number, &self.tail) {
            let next = mine.next();
            if mine.state.load(SeqCst) & WRITER_BEHIND != 0 {
                self.next_writer.store(next, SeqCst);
            }
        }
        if self.readers.fetch_sub(1, SeqCst) == 1 {
            let writer = self.next_writer.load(SeqCst);
            // Readers that came after the last one left keep the writer out, and let it in themselves.
            if writer != NONE
                && self.readers.load(SeqCst) == 0
                && self.next_writer.compare_exchange(writer, NONE, SeqCst, SeqCst).is_ok()
            {
                node(writer).unblock();
            }
        }
    }

    fn begin_write(&self, number: u32) {
        let mine = node(number);
        let before = self.tail.swap(number, SeqCst);
        if before == NONE {
            self.next_writer.store(number, SeqCst);
            if self.readers.load(SeqCst) == 0 && self.next_writer.swap(NONE, SeqCst) == number {
                mine.unblock();
            }
        } else {
            let before = node(before);
            // Before the link: whoever sees the link sees what is behind it.
            before.state.fetch_or(WRITER_BEHIND, SeqCst);
            before.next.store(number, SeqCst);
        }
        mine.wait();
    }

    fn end_write(&self, number: u32) {
        let mine = node(number);
        if !mine.leave(number, &self.tail) {
            let next = node(mine.next());
            if next.is_writer.load(SeqCst) == 0 {
                self.readers.fetch_add(1, SeqCst);
            }
            next.unblock();
        }
    }
}

impl Latch for QueuingReadWrite {
    #[inline]
    fn read<R>(&self, mut read: impl FnMut() -> R) -> R {
        let number = my_node(false);
        self.begin_read(number);
        let result = read();
        self.end_read(number);
        result
    }

    #[inline]
    fn write<R>(&self, write: impl FnOnce() -> R) -> R {
        let number = my_node(true);
        self.begin_write(number);
        let result = write();
        self.end_write(number);
        result
    }
}
