//! Moments at which the engine does what is always allowed and seldom due.
//!
//! A leaf may be split before it is full, a page evicted that was used just now, a read started over though nothing has
//! changed, a latch refused that is free: nothing may be wrong then but the time that it takes. In models of a few
//! steps these things hardly ever come by themselves, and least of all two of them together, which is where defects
//! are. So a model has them come now and then (FoundationDB's `buggify`). In each schedule that asks for it some of
//! the points are drawn, and each of those is forced one time in so many.
//!
//! In any build but shuttle's the answer is no, and the question costs nothing. What is forced is drawn from the
//! schedule's randomness, so that a replay has the same, and is counted over all schedules. `Send + Sync`.

/// A rare event that a schedule can force.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Point {
    /// What was read without a latch does not count, though nothing has changed.
    Restart = 0,
    /// A latch that is free is not had by who does not wait.
    Busy = 1,
    /// A leaf or an inner node is split that has room.
    Split = 2,
    /// The neighbours of a leaf are looked at though it is not sparse.
    Merge = 3,
    /// An operation is a sample, and ends the tally of its leaf.
    Convert = 4,
    /// The background thread frees half of the pool's frames.
    Evict = 5,
    /// A checkpoint is due in the background.
    Checkpoint = 6,
    /// The version of a new frame's latch is about to wrap.
    Version = 7,
    /// The records of a leaf and its neighbours are spread over one leaf fewer, though nobody needs the room.
    Spread = 8,
    /// A write is a sample, and ends the period of its leaf as a contended one.
    Sample = 9,
}

/// All of them, in the order of their numbers.
pub const POINTS: [Point; 10] = [
    Point::Restart,
    Point::Busy,
    Point::Split,
    Point::Merge,
    Point::Convert,
    Point::Evict,
    Point::Checkpoint,
    Point::Version,
    Point::Spread,
    Point::Sample,
];

#[cfg(shuttle)]
mod imp {
    use super::{POINTS, Point};
    use shuttle::rand::{Rng, thread_rng};
    // The standard library's, so that a look at them is no step of a schedule.
    use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

    /// One time in so many a point that was drawn is forced.
    const SELDOM: u32 = 12;

    shuttle::lazy_static! {
        // The points of this schedule, a bit each.
        static ref DRAWN: AtomicU32 = AtomicU32::new(0);
    }

    static FORCED: [AtomicU64; POINTS.len()] = [const { AtomicU64::new(0) }; POINTS.len()];

    pub fn draw_points() {
        DRAWN.store(thread_rng().gen_range(0..1 << POINTS.len()), Relaxed);
    }

    pub fn leave_alone(point: Point) {
        DRAWN.fetch_and(!(1 << point as u32), Relaxed);
    }

    pub fn is_drawn(point: Point) -> bool {
        DRAWN.load(Relaxed) & 1 << point as u32 != 0
    }

    pub fn buggify(point: Point) -> bool {
        let is_forced = is_drawn(point) && thread_rng().gen_range(0..SELDOM) == 0;
        FORCED[point as usize].fetch_add(u64::from(is_forced), Relaxed);
        is_forced
    }

    pub fn forced(point: Point) -> u64 {
        FORCED[point as usize].load(Relaxed)
    }
}

/// Draws the points of this schedule, each with probability one half.
#[cfg(shuttle)]
pub fn draw_points() {
    imp::draw_points();
}

/// This schedule does not force the point, even if it has drawn it: its model is about what comes of it by itself.
#[cfg(shuttle)]
pub fn leave_alone(point: Point) {
    imp::leave_alone(point);
}

/// How often a point was forced in this process.
#[cfg(shuttle)]
pub fn forced(point: Point) -> u64 {
    imp::forced(point)
}

/// Whether this schedule has drawn the point, so that the caller continues what was forced.
#[cfg(shuttle)]
pub fn is_drawn(point: Point) -> bool {
    imp::is_drawn(point)
}

/// Whether this schedule has drawn the point: no.
#[cfg(not(shuttle))]
#[inline(always)]
#[must_use]
pub const fn is_drawn(_: Point) -> bool {
    false
}

/// Whether the caller should do now what it may do at any time, although it is not due.
#[cfg(shuttle)]
pub fn buggify(point: Point) -> bool {
    imp::buggify(point)
}

/// Whether the caller should do now what it may do at any time, although it is not due: no.
#[cfg(not(shuttle))]
#[inline(always)]
#[must_use]
pub const fn buggify(_: Point) -> bool {
    false
}
