//! Who waits for room in the log, in the order in which they came.
//!
//! Rank 2. A queue under the log's lock. Whoever finds room gives it to the first of the queue, and wakes that thread alone. With one
//! condition for all, a thousand threads would wake for each flush, in order to find that the room is somebody else's. A thread that
//! leaves the queue without room wakes the next one, which may have the same reason. `Send + Sync` by the lock that it lies under.

use hedgerow_sync::primitive::{Arc, Condvar, Mutex};
use std::collections::VecDeque;
use std::time::Duration;

/// What a thread is told that sleeps in the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Told {
    Nothing,
    /// It is the first one, or something has gone wrong.
    Look,
    /// It has been given room.
    Served,
}

/// A place in the queue, where a thread sleeps.
pub(super) struct Place {
    told: Mutex<Told>,
    changed: Condvar,
}

impl Place {
    /// Sleeps until somebody wakes this thread, for `timeout` at most. Tells whether it has been given room. The log's lock is not
    /// held.
    pub(super) fn sleep(&self, timeout: Duration) -> bool {
        let mut told = self.told.lock();
        if *told == Told::Nothing {
            self.changed.wait_for(&mut told, timeout);
        }
        if *told == Told::Look {
            *told = Told::Nothing;
        }
        *told == Told::Served
    }

    fn tell(&self, what: Told) {
        *self.told.lock() = what;
    }
}

/// Threads that have been told something, and are to be woken with nothing locked: one that runs at once, in place of the one that
/// wakes it, would find the log locked.
#[must_use]
pub(super) struct ToWake(Vec<Arc<Place>>);

impl ToWake {
    pub(super) fn is_any(&self) -> bool {
        !self.0.is_empty()
    }

    /// Wakes them.
    pub(super) fn wake(self) {
        self.0.iter().for_each(|place| place.changed.notify_one());
    }
}

struct Waiting {
    number: u64,
    len: u64,
    place: Arc<Place>,
}

/// See the head of the file.
pub(super) struct RoomQueue {
    waiting: VecDeque<Waiting>,
    next_number: u64,
    to_wake: Vec<Arc<Place>>,
}

impl RoomQueue {
    pub(super) fn new() -> RoomQueue {
        RoomQueue { waiting: VecDeque::new(), next_number: 0, to_wake: Vec::new() }
    }

    /// The last place: its number, and where to sleep.
    pub(super) fn join(&mut self, len: u64) -> (u64, Arc<Place>) {
        let (told, changed) = (Mutex::new(Told::Nothing), Condvar::new());
        let place = Arc::new(Place { told, changed });
        let number = self.next_number;
        self.next_number += 1;
        self.waiting.push_back(Waiting { number, len, place: place.clone() });
        (number, place)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Who has waited longest.
    pub(super) fn first_number(&self) -> Option<u64> {
        self.waiting.front().map(|first| first.number)
    }

    /// How many wait.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// What the first one waits for.
    pub(super) fn first_len(&self) -> Option<u64> {
        self.waiting.front().map(|first| first.len)
    }

    /// The first one has been given room, and goes.
    pub(super) fn serve_first(&mut self) {
        if let Some(first) = self.waiting.pop_front() {
            first.place.tell(Told::Served);
            self.to_wake.push(first.place);
        }
    }

    /// Whether this number has been served; for who has not left.
    pub(super) fn is_served(&self, number: u64) -> bool {
        self.waiting.front().is_none_or(|first| first.number > number)
    }

    /// Takes the number out, unless it was served.
    pub(super) fn leave(&mut self, number: u64) -> bool {
        match self.waiting.iter().position(|waiting| waiting.number == number) {
            Some(at) => self.waiting.remove(at).is_some(),
            None => false,
        }
    }

    /// The first one is to see for itself.
    pub(super) fn let_first_look(&mut self) {
        if let Some(first) = self.waiting.front() {
            first.place.tell(Told::Look);
            self.to_wake.push(first.place.clone());
        }
    }

    /// Everybody who has been told something since this was called last.
    pub(super) fn take_told(&mut self) -> ToWake {
        ToWake(std::mem::take(&mut self.to_wake))
    }
}
