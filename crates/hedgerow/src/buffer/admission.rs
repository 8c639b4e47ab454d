//! How many operations may fault at a time.
//!
//! An operation that faults keeps up to six frames (the pages of its path, and those it reserved).
//! The pool lets in as many as it has frames for: sixteen frames for everybody, and six for each.
//! Frames that went to the page table since do not count.
//! The others wait with nothing held, so that two operations on a tiny pool cannot take each other's
//! pages for ever. An operation that never faults is never counted. `Send + Sync`.

use hedgerow_sync::primitive::{Condvar, Mutex};

/// Frames that an operation may keep at a time.
pub const FRAMES_EACH: usize = 6;
/// Frames that are left for everybody.
pub const FRAMES_SHARED: usize = 16;

/// A counting semaphore whose size goes down as frames go to the page table.
pub struct Admission {
    inside: Mutex<usize>,
    left: Condvar,
}

/// Operations that `frames` suffice for: at least one.
fn operations(frames: u32) -> usize {
    ((frames as usize).saturating_sub(FRAMES_SHARED) / FRAMES_EACH).max(1)
}

impl Admission {
    /// Nobody is inside.
    pub fn new() -> Admission {
        Admission { inside: Mutex::new(0), left: Condvar::new() }
    }

    /// Waits until there is room in a pool of `frames()` frames. The caller holds nothing.
    pub fn enter(&self, frames: impl Fn() -> u32) {
        let mut inside = self.inside.lock();
        while *inside >= operations(frames()) {
            self.left.wait(&mut inside);
        }
        *inside += 1;
    }

    /// Gives the place back.
    pub fn leave(&self) {
        *self.inside.lock() -= 1;
        self.left.notify_one();
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

    #[test]
    fn pins_never_take_all_frames() {
        for frames in 32..1000 {
            let pinned = operations(frames) * FRAMES_EACH;
            assert!(pinned + FRAMES_SHARED <= frames as usize, "{frames}");
        }
    }
}
