//! Each latch keeps writers apart, and readers see no half of a change; with real threads.

use super::{Latch, Nothing, Visitor, blocking, queues, spinning, tickets, visit_all};
use hedgerow_sync::primitive::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Barrier, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// A waiting thread spins while the holder waits for a processor: with more threads than processors that takes whole slices of the
/// scheduler. So these tests run one behind the other.
static ALONE: Mutex<()> = Mutex::new(());

/// Two numbers that are equal between changes.
#[derive(Default)]
struct Shared<L> {
    latch: L,
    numbers: [AtomicU64; 2],
}

impl<L: Latch> Shared<L> {
    /// Adds one to both, by loads and stores that others could come between.
    fn add(&self, gives_way: bool) {
        self.latch.write(|| {
            for number in &self.numbers {
                let before = number.load(Relaxed);
                if gives_way {
                    thread::yield_now();
                }
                number.store(before + 1, Relaxed);
            }
        });
    }

    /// Whether a reader saw the same number twice.
    fn is_whole(&self, gives_way: bool) -> bool {
        let [first, second] = self.latch.read(|| {
            let first = self.numbers[0].load(Relaxed);
            if gives_way {
                thread::yield_now();
            }
            [first, self.numbers[1].load(Relaxed)]
        });
        first == second
    }
}

/// How often each thread writes and reads at most, and how long: where the next one in a queue has to be the one that runs, a turn may
/// take a slice of the scheduler.
const ROUNDS: u64 = 1_000;
const SPAN: Duration = Duration::from_millis(300);

/// Increments that were lost, and reads of half a change.
fn errors<L: Latch>(threads: u64) -> (u64, u64) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let shared = Shared::<L>::default();
    let start = Barrier::new(threads as usize);
    let (halves, added) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        let (shared, start, halves, added) = (&shared, &start, &halves, &added);
        for _ in 0..threads {
            scope.spawn(move || {
                start.wait();
                let begun = Instant::now();
                for round in (0..ROUNDS).take_while(|_| begun.elapsed() < SPAN) {
                    let gives_way = round % 250 == 0;
                    shared.add(gives_way);
                    added.fetch_add(1, Relaxed);
                    halves.fetch_add((!shared.is_whole(gives_way)).into(), Relaxed);
                }
            });
        }
    });
    let lost = shared.numbers.iter().map(|number| added.load(Relaxed) - number.load(Relaxed));
    (lost.sum(), halves.load(Relaxed))
}

macro_rules! excludes {
    ($($name:ident: $latch:ty, $threads:expr;)*) => {$(
        #[test]
        fn $name() {
            assert_eq!(errors::<$latch>($threads), (0, 0));
        }
    )*};
}

excludes! {
    optimistic_excludes: spinning::Optimistic, 2;
    hybrid_spinning_excludes: blocking::Hybrid, 2;
    hybrid_parked_excludes: blocking::Parked, 2;
    hybrid_shared_excludes: blocking::Shared, 2;
    read_write_of_a_byte_excludes: spinning::ReadWrite<AtomicU8>, 2;
    read_write_excludes: spinning::ReadWrite<AtomicU64>, 2;
    queuing_read_write_excludes: queues::QueuingReadWrite, 3;
    futex_read_write_excludes: blocking::FutexReadWrite, 2;
    futex_mutex_excludes: blocking::FutexMutex, 2;
    test_and_set_of_a_byte_excludes: spinning::TestAndSet<AtomicU8>, 2;
    test_and_set_excludes: spinning::TestAndSet<AtomicU64>, 2;
    test_first_of_a_byte_excludes: spinning::TestFirst<AtomicU8>, 2;
    test_first_excludes: spinning::TestFirst<AtomicU64>, 2;
    backoff_of_a_byte_excludes: spinning::Backoff<AtomicU8>, 2;
    backoff_excludes: spinning::Backoff<AtomicU64>, 2;
    ticket_excludes: tickets::Ticket, 2;
    proportional_ticket_excludes: tickets::Proportional, 2;
    mcs_excludes: queues::Mcs, 3;
    parking_lot_read_write_excludes: blocking::ParkingLotReadWrite, 2;
    parking_lot_mutex_excludes: blocking::ParkingLotMutex, 2;
}

#[test]
fn the_test_finds_out_what_does_not_exclude() {
    // Threads may run one behind the other for once.
    assert!((0..20).any(|_| errors::<Nothing>(2) != (0, 0)));
}

#[test]
fn readers_are_inside_together_where_they_may_be() {
    struct Together;

    impl Visitor for Together {
        fn visit<L: Latch>(&mut self, name: &'static str, shared: bool) {
            if !shared {
                return;
            }
            let (latch, inside) = (L::default(), Barrier::new(2));
            thread::scope(|scope| {
                for _ in 0..2 {
                    // Nobody writes: once is enough. Neither leaves before the other one has entered.
                    scope.spawn(|| latch.read(|| inside.wait().is_leader()));
                }
            });
            assert!(latch.write(|| true), "{name}: it is free again");
        }
    }

    visit_all(&mut Together);
}
