//! Ticket latches: who comes draws a number and waits at one word until it is called. First come, first served.

use super::{Latch, pause, spin};
use hedgerow_sync::primitive::atomic::{AtomicU32, Ordering};

/// Pauses for each thread that is before this one: about as long as a short critical section.
const PAUSES_EACH: u32 = 16;

/// Two words of 4 bytes: the next ticket, and whose turn it is. Both wrap around, and there are never 2^32 threads.
#[derive(Default)]
struct Counter {
    next: AtomicU32,
    turn: AtomicU32,
}

impl Counter {
    #[inline]
    fn draw(&self) -> u32 {
        // Relaxed: the turn is what orders holders.
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// How many are before the owner of `ticket`. Acquire: at zero, everything that the last holder did is seen.
    #[inline]
    fn before(&self, ticket: u32) -> u32 {
        ticket.wrapping_sub(self.turn.load(Ordering::Acquire))
    }

    #[inline]
    fn call_next(&self, ticket: u32) {
        self.turn.store(ticket.wrapping_add(1), Ordering::Release);
    }
}

/// Looks at the turn all the time.
#[derive(Default)]
pub struct Ticket(Counter);

impl Latch for Ticket {
    #[inline]
    fn read<R>(&self, mut read: impl FnMut() -> R) -> R {
        self.write(&mut read)
    }

    #[inline]
    fn write<R>(&self, write: impl FnOnce() -> R) -> R {
        let ticket = self.0.draw();
        spin(|| self.0.before(ticket) == 0);
        let result = write();
        self.0.call_next(ticket);
        result
    }
}

/// Looks at the turn after a pause in proportion to the number of those that come before.
#[derive(Default)]
pub struct Proportional(Counter);

impl Latch for Proportional {
    #[inline]
    fn read<R>(&self, mut read: impl FnMut() -> R) -> R {
        self.write(&mut read)
    }

    #[inline]
    fn write<R>(&self, write: impl FnOnce() -> R) -> R {
        let ticket = self.0.draw();
        loop {
            match self.0.before(ticket) {
                0 => break,
                before => pause(before.saturating_mul(PAUSES_EACH)),
            }
        }
        let result = write();
        self.0.call_next(ticket);
        result
    }
}
