//! How many operations may fault at a time.
//!
//! An operation that faults keeps up to eight frames: six pages of its path are pinned, and a split has reserved two.
//! The pool lets in as many as it has frames for: sixteen frames for everybody, and six for each, because the paths of
//! two operations have their upper pages in common. Were it ever too few, a reservation would wait its ten seconds, with
//! nothing latched but what it has reserved, and fail.
//! Frames that went to the page table since do not count.
//! The others wait with nothing held, so that two operations on a tiny pool cannot take each other's
//! pages for ever. An operation that never faults is never counted.
//!
//! A commit that holds many leaves at a time has the places of so many operations that they suffice for these. While it waits,
//! nobody else is let in: those inside leave, and then there is room. It never asks for more places than there are, or else
//! it waits until it is alone.
//!
//! Two threads may go ahead of all others. Whoever keeps writers out while it reads, such as verification: those of
//! them that were let in before wait for it. And whoever keeps checkpoints out while it changes names: those that were let in may wait
//! for a checkpoint. Their own frames are among those for everybody.
//! `Send + Sync`.

use crate::error::Result;
use crate::wait::Waiting;
use hedgerow_sync::primitive::{Condvar, Mutex, thread};

/// Frames that an operation may keep at a time, beside what it shares with others.
pub const FRAMES_EACH: usize = 6;
/// Frames that are left for everybody.
pub const FRAMES_SHARED: usize = 16;

/// A counting semaphore whose size goes down as frames go to the page table.
pub struct Admission {
    state: Mutex<State>,
    left: Condvar,
}

#[derive(Default)]
struct State {
    inside: usize,
    /// Operations that wait for more than one place.
    large: usize,
    /// The threads that do not wait.
    ahead: [Option<usize>; 2],
}

impl State {
    /// Whether who wants `places` of `all` has to wait.
    fn is_full(&self, all: usize, places: usize) -> bool {
        match places {
            1 => self.inside >= all || self.large > 0,
            _ => self.inside > 0 && self.inside + places > all,
        }
    }
}

/// Operations that `frames` suffice for: at least one.
fn operations(frames: u32) -> usize {
    ((frames as usize).saturating_sub(FRAMES_SHARED) / FRAMES_EACH).max(1)
}

impl Admission {
    /// Nobody is inside.
    pub fn new() -> Admission {
        Admission { state: Mutex::new(State::default()), left: Condvar::new() }
    }

    /// Waits until there is room for `places` operations in a pool of `frames()` frames. The caller holds nothing. Who gives up has
    /// seen, after it was woken, that there is no room: so it keeps no wake-up from others.
    ///
    /// Errors: those of `waiting`.
    pub fn enter(
        &self,
        frames: impl Fn() -> u32,
        places: usize,
        waiting: &Waiting<'_>,
    ) -> Result<()> {
        let mut state = self.state.lock();
        let is_large = places > 1;
        state.large += usize::from(is_large);
        let mut outcome = Ok(());
        while outcome.is_ok()
            && state.is_full(operations(frames()), places)
            && !state.ahead.contains(&Some(thread::id()))
        {
            outcome = waiting.wait_on(&self.left, &mut state);
        }
        state.large -= usize::from(is_large);
        if outcome.is_ok() {
            state.inside += places;
        }
        if is_large {
            // Others have waited for this one.
            self.left.notify_all();
        }
        outcome
    }

    /// Whether so many frames suffice for the operations that are inside, and for one more.
    pub fn suffice(&self, frames: u32) -> bool {
        let state = self.state.lock();
        frames as usize > FRAMES_SHARED + FRAMES_EACH && operations(frames) > state.inside
    }

    /// Gives `places` places back.
    pub fn leave(&self, places: usize) {
        let mut state = self.state.lock();
        state.inside -= places;
        let is_one = places == 1 && state.large == 0;
        drop(state);
        if is_one {
            self.left.notify_one();
        } else {
            self.left.notify_all();
        }
    }

    /// Lets the calling thread in without waiting until this is dropped, one operation at a time. Two
    /// callers at a time (the locks of checkpoints and of names see to that).
    pub fn go_ahead(&self) -> Ahead<'_> {
        let mut state = self.state.lock();
        let free = state.ahead.iter().position(Option::is_none);
        let place = free.expect("two threads ahead of all others");
        state.ahead[place] = Some(thread::id());
        Ahead { admission: self, place }
    }
}

/// The thread that made this does not wait for admission.
#[must_use]
pub struct Ahead<'a> {
    admission: &'a Admission,
    place: usize,
}

impl Drop for Ahead<'_> {
    fn drop(&mut self) {
        self.admission.state.lock().ahead[self.place] = None;
    }
}

impl Default for Admission {
    fn default() -> Admission {
        Admission::new()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use hedgerow_sync::primitive::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::Relaxed;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    #[test]
    fn pins_never_take_all_frames() {
        for frames in 32..1000 {
            let pinned = operations(frames) * FRAMES_EACH;
            assert!(pinned + FRAMES_SHARED <= frames as usize, "{frames}");
        }
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "threads of the system")]
    fn no_more_are_inside_than_there_are_frames_for() {
        const FRAMES: u32 = (FRAMES_SHARED + 3 * FRAMES_EACH) as u32;
        let admission = Admission::new();
        let most = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        admission.enter(|| FRAMES, 1, &Waiting::Forever).unwrap();
                        most.fetch_max(admission.state.lock().inside, Relaxed);
                        std::thread::yield_now();
                        admission.leave(1);
                    }
                });
            }
        });
        assert!((1..=3).contains(&most.into_inner()));
    }

    #[test]
    fn two_threads_go_ahead_of_a_full_house() {
        const PATIENCE: Duration = Duration::from_secs(20);
        let admission = Arc::new(Admission::new());
        admission.enter(|| 32, 1, &Waiting::Forever).unwrap();
        admission.enter(|| 32, 1, &Waiting::Forever).unwrap();
        let (comes, came) = channel();
        let (both, other) = (Arc::new(AtomicUsize::new(0)), comes.clone());
        let ahead = [comes, other].map(|comes| {
            let (admission, both) = (admission.clone(), both.clone());
            let run = move || {
                let ahead = admission.go_ahead();
                both.fetch_add(1, Relaxed);
                while both.load(Relaxed) < 2 {
                    thread::yield_now();
                }
                admission.enter(|| 32, 1, &Waiting::Forever).unwrap();
                admission.leave(1);
                drop(ahead);
                comes.send(()).unwrap();
            };
            thread::spawn_named("ahead", run).unwrap()
        });
        for thread in ahead {
            assert!(came.recv_timeout(PATIENCE).is_ok(), "it waits for those who wait for it");
            thread.join().unwrap();
        }
        admission.leave(1);
        admission.leave(1);
        assert_eq!(admission.state.lock().inside, 0);
    }

    #[test]
    fn who_wants_many_places_is_let_in_before_those_who_come_later_and_waits_for_those_inside() {
        const FRAMES: u32 = (FRAMES_SHARED + 4 * FRAMES_EACH) as u32;
        let admission = Arc::new(Admission::new());
        admission.enter(|| FRAMES, 1, &Waiting::Forever).unwrap();
        admission.enter(|| FRAMES, 1, &Waiting::Forever).unwrap();
        let (tells, told) = channel();
        let thread = |places: usize| {
            let (admission, tells) = (admission.clone(), tells.clone());
            let run = move || {
                admission.enter(|| FRAMES, places, &Waiting::Forever).unwrap();
                tells.send(places).unwrap();
            };
            thread::spawn_named("enters", run).unwrap()
        };
        let large = thread(3);
        while admission.state.lock().large == 0 {
            thread::yield_now();
        }
        let small = thread(1);
        assert!(
            told.recv_timeout(Duration::from_millis(30)).is_err(),
            "three of four are not there"
        );
        admission.leave(1);
        assert_eq!(told.recv_timeout(Duration::from_secs(20)).unwrap(), 3);
        assert!(told.recv_timeout(Duration::from_millis(30)).is_err(), "all four are taken");
        admission.leave(1);
        assert_eq!(told.recv_timeout(Duration::from_secs(20)).unwrap(), 1);
        large.join().unwrap();
        small.join().unwrap();
        admission.leave(3);
        admission.leave(1);
        // Nobody is inside: more places than there are keep nobody waiting.
        admission.enter(|| FRAMES, 9, &Waiting::Forever).unwrap();
        admission.leave(9);
        assert_eq!(admission.state.lock().inside, 0);
    }
}
