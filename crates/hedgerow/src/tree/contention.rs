//! Contention Split: two keys that threads contend for come to different leaves.
//!
//! "Contention and Space Management in B-Trees", section 3: threads that update different keys of one leaf wait for each
//! other's latch without need. A sample of the writes to a leaf counts how many met another thread. A period ends at random,
//! after so many writes on average. If enough of its sample was contended, and the last two sampled writes updated different
//! keys, then the leaf is split between the two, although it is not full.
//!
//! - A write is contended if it had to start over because of another thread, or waited for its leaf. Page faults and
//!   checkpoints do not count.
//! - The counts stand beside the frame ([`Contention`](crate::page::Contention)). A sampled write changes them under the leaf's exclusive latch, which
//!   it holds anyway.
//! - The split is made after the write, with nothing held, like the merge of a sparse leaf: pages are reserved, parent and leaf are latched by upgrades,
//!   everything is looked at again. It is never needed, so it is given up on interference.
//! - Both halves are *hot* afterwards: merges leave them alone, unless they have no records. A quiet period takes a third of that
//!   away, and so does the pool's clock if it finds the leaf unused. So a split and a merge cannot undo each other in turn.
//! - A leaf that is filled in one direction splits by itself soon, and a split between its keys would not help: it is left
//!   alone as long as such insertions go on.
//!
//! Where the paper's listing contradicts its text, the text is followed: the share is a fraction (the listing divides
//! integers), and the place of the last write is compared before it is overwritten. Thread-safety: as for [`Tree`].

use super::Tree;
use super::descend::Target;
use super::merge::is_interference;
use super::retry::{Retry, Stop};
use super::split::{Cut, Outcome, Room};
use crate::error::{Error, ErrorKind, Result};
use crate::node::{LeafSplit, Node, plain_leaf, rung, split_between};
use crate::page::{
    ContentionCounters, EpochStay, FrameHead, FrameId, MOST_SAMPLES, PagePool, Period, Place,
    PoolSession, Restart,
};
use crate::types::Purpose;
use hedgerow_sync::primitive::atomic::AtomicU64;
use hedgerow_sync::primitive::atomic::Ordering::Relaxed;
use hedgerow_sync::primitive::buggify::{Point, buggify, is_drawn};
use hedgerow_sync::primitive::sample::roll;

/// How often a split starts over because others interfered, before it is left to a later period.
const TRIES: u32 = 4;

/// Pages of which one or two are apart from the leaf, from each other, and from the root if that is the leaf: each excludes
/// one frame at most ([`PoolSession::take_apart`]).
const PAGES: usize = 2;
const PAGES_OF_A_ROOT: usize = 4;

/// The longest period: as many writes on average.
const LONGEST_PERIOD: u32 = 1 << 24;

/// When a leaf counts as contended, so that it is split between two keys that threads update at the same time.
///
/// Some of the writes to a leaf are sampled: how many of these met another thread at the leaf is counted. A period of a leaf
/// ends at one write in so many, at random. The leaf counts as contended if the share of contended writes in the sample is
/// large enough. The default is [`ContentionSplit::if_thirtieth_contended`].
///
/// See [`Keyspace::with_contention_split`](crate::Keyspace::with_contention_split).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ContentionSplit {
    /// Of 2^32 rolls, the ones that make a write a sample. Zero if nothing is counted.
    sample_below: u32,
    /// Of these, the ones that end a period.
    period_below: u32,
    share: f64,
    least_samples: u16,
}

impl ContentionSplit {
    /// Nothing is counted, and nothing is split.
    pub(crate) const OFF: ContentionSplit =
        ContentionSplit { sample_below: 0, period_below: 0, share: 1.0, least_samples: 1 };

    /// A leaf is contended if all sampled writes were: the rarer choice, of "Contention and Space Management in B-Trees" (CIDR 2021). One write
    /// in 4 is sampled, and a period ends at one write in 512. At least 16 must have been sampled.
    #[must_use]
    pub const fn if_all_contended() -> ContentionSplit {
        ContentionSplit {
            sample_below: u32::MAX / 4,
            period_below: u32::MAX / 512,
            share: 1.0,
            least_samples: 16,
        }
    }

    /// A leaf is contended if a thirtieth of the sampled writes were, and else as [`ContentionSplit::if_all_contended`]: the default, of "B-Trees
    /// Are Back" (SIGMOD 2025), section 7.3.
    #[must_use]
    pub const fn if_thirtieth_contended() -> ContentionSplit {
        ContentionSplit { share: 1.0 / 30.0, ..ContentionSplit::if_all_contended() }
    }

    /// Other parameters. One write in `sample_one_in` is sampled (1 to 2^24), a period ends at one in `period_one_in` (from
    /// `sample_one_in` to 2^24), not before `least_samples` (1 to 32,768) are counted, and a leaf is contended if `share` of
    /// them (0 to 1) were. With a share of 0 every leaf counts as contended, which is for tests.
    ///
    /// ```
    /// use hedgerow::ContentionSplit;
    /// assert_eq!(ContentionSplit::new(4, 512, 1.0, 16)?, ContentionSplit::if_all_contended());
    /// assert!(ContentionSplit::new(4, 512, 1.5, 16).is_err());
    /// # Ok::<(), hedgerow::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for a parameter out of its range.
    pub fn new(
        sample_one_in: u32,
        period_one_in: u32,
        share: f64,
        least_samples: u16,
    ) -> Result<ContentionSplit> {
        let refusal = |words: String| Err(Error::new(ErrorKind::InvalidArgument, words));
        if !(1..=LONGEST_PERIOD).contains(&sample_one_in) {
            return refusal(format!(
                "one write in {sample_one_in} cannot be sampled: it is one in 1 to {LONGEST_PERIOD}"
            ));
        }
        if !(sample_one_in..=LONGEST_PERIOD).contains(&period_one_in) {
            return refusal(format!(
                "a period of {period_one_in} writes: it has {sample_one_in} to {LONGEST_PERIOD}, because its last write is sampled"
            ));
        }
        if !(0.0..=1.0).contains(&share) {
            return refusal(format!("a share of {share} of the sampled writes: it is 0 to 1"));
        }
        if !(1..=MOST_SAMPLES).contains(&least_samples) {
            return refusal(format!(
                "a share of at least {least_samples} samples: it is 1 to {MOST_SAMPLES}"
            ));
        }
        let below = |one_in: u32| u32::MAX / one_in;
        Ok(ContentionSplit {
            sample_below: below(sample_one_in),
            period_below: below(period_one_in),
            share,
            least_samples,
        })
    }

    fn is_reached(&self, period: Period) -> bool {
        f64::from(period.contended()) >= self.share * f64::from(period.samples())
    }
}

impl Default for ContentionSplit {
    fn default() -> ContentionSplit {
        ContentionSplit::if_thirtieth_contended()
    }
}

impl<P: PagePool> Tree<P> {
    /// Notes a write to the leaf in a frame, whose exclusive latch is held: of the record at `place`, if it was an update. `met`:
    /// it met another thread. Whether the leaf is to be split.
    #[inline(always)]
    pub(super) fn note_write(&self, frame: FrameId, place: Option<usize>, met: bool) -> bool {
        let (roll, below) = (roll(), self.contention.sample_below);
        let is_sample = roll < below || below > 0 && is_drawn(Point::Sample);
        rung::HINTS && is_sample && self.note_sampled_write(frame, place, met, roll)
    }

    /// Not inlined, so that the writes that are no samples pay nothing for it.
    #[inline(never)]
    fn note_sampled_write(
        &self,
        frame: FrameId,
        place: Option<usize>,
        met: bool,
        roll: u32,
    ) -> bool {
        let Some(contention) = self.pool.contention(frame) else { return false };
        let (before, place) = (contention.get(), Place::new(place));
        // While others sleep, who runs meets nobody.
        let met = met || self.pool.head(frame).latch().is_awaited();
        let period = before.after_sample(place, met);
        let is_forced = buggify(Point::Sample);
        if roll < self.contention.period_below || period.is_full() || is_forced {
            return self.end_period(frame, before, place, met, is_forced);
        }
        contention.set(period);
        false
    }

    /// Ends the period of a leaf, which was `before` until this last sample, if that has samples enough. Whether the leaf is to
    /// be split: the place of the other key is there then.
    #[cold]
    #[inline(never)]
    fn end_period(
        &self,
        frame: FrameId,
        before: Period,
        place: Place,
        met: bool,
        is_forced: bool,
    ) -> bool {
        let Some(contention) = self.pool.contention(frame) else { return false };
        let period = before.after_sample(place, met);
        let is_long = period.samples() >= self.contention.least_samples || is_forced;
        if !is_long {
            contention.set(period);
            return false;
        }
        if !self.contention.is_reached(period) && !is_forced {
            contention.set(period.next().cooled());
            return false;
        }
        contention.set(period.next());
        if place == Place::NONE {
            self.count_contended(|done| &done.refused_no_update);
            return false;
        }
        // With this sample the last place is the one at hand.
        if [Place::NONE, place].contains(&before.place()) {
            self.count_contended(|done| &done.refused_one_key);
            return false;
        }
        // An update has not changed it, so that the bytes of the frame do even if the writer has a copy.
        let run = Node::new(self.pool.bytes(frame)).run();
        if let Some(run) = run
            && !before.has_run(run)
        {
            // If none follow, the next period is not hindered.
            contention.set(period.next().with_run(run));
            self.count_contended(|done| &done.refused_sequential);
            return false;
        }
        contention.set(period.next().with_place(before.place()));
        true
    }

    /// Splits the leaf for `key` between it and another key that threads update. The write that found this out is
    /// done whatever happens here, so that an error is not reported: whoever needs a page that cannot be had is told.
    #[cold]
    pub(super) fn split_contended<'p>(
        &'p self,
        key: &[u8],
        purpose: Purpose,
        mut retry: Retry<'p, P>,
    ) {
        let mut tries = 0;
        while tries < TRIES {
            let went_on = match self.try_split_contended(key, purpose, &mut retry) {
                Ok(Some(Outcome::ParentFull(bytes))) => {
                    tries += 1;
                    let room = Room::Separator(bytes);
                    self.make_room_at(1, key, room, purpose, &mut retry)
                }
                Ok(Some(_)) => return self.count_contended(|done| &done.splits),
                Ok(None) => return self.count_contended(|done| &done.gave_up_changed),
                Err(stop) => {
                    tries += u32::from(is_interference(&stop));
                    retry.after(stop)
                }
            };
            if went_on.is_err() {
                return self.count_contended(|done| &done.gave_up_full);
            }
        }
        self.count_contended(|done| &done.gave_up_busy);
    }

    /// The other key is the one that the last sampled write has updated, perhaps after the write at hand. `None` if the leaf
    /// cannot be cut between the keys: it has changed, or the sides would not fit.
    fn try_split_contended<'p>(
        &'p self,
        key: &[u8],
        purpose: Purpose,
        retry: &mut Retry<'p, P>,
    ) -> Result<Option<Outcome>, Stop> {
        let is_root = self.reach(Target::Key(key), 0)?.parent.is_none();
        retry.session.reserve(if is_root { PAGES_OF_A_ROOT } else { PAGES })?;
        let reached = self.reach(Target::Key(key), 0)?;
        if reached.parent.is_none() != is_root {
            return Err(Restart::Conflict.into());
        }
        let stay = self.pool.enter_to_append(0, purpose, &self.wait.to_tidy_up())?;
        let mut latched = reached.latch()?;
        let frame = latched.page.frame();
        let scans = self.are_scans_common(frame);
        let place = self.pool.contention(frame).and_then(|known| known.get().place().index());
        let bytes = latched.page.write(stay.epoch());
        let Some(split) = place.and_then(|place| split_from(bytes, key, place)) else {
            // It may have been sorted.
            latched.release_changed();
            return Ok(None);
        };
        let cut = Cut { level: 0, split: &split, scans, epoch: stay.epoch(), is_apart: true };
        self.divide(latched, key, &cut, &mut retry.session).map(Some)
    }

    /// Notes that the leaf in the first of these frames was split, and what was on the right went to the second: because of
    /// contention, or for another reason.
    pub(super) fn hand_contention_on(&self, frames: [FrameId; 2], is_apart: bool) {
        if let [Some(left), Some(right)] = frames.map(|frame| self.pool.contention(frame)) {
            let before = left.get();
            let both = if is_apart { before.heated() } else { before.next() };
            left.set(both);
            right.set(both);
        }
    }

    /// Notes that two leaves became one in the first of these frames. If one of them is hot, the other had no records.
    pub(super) fn merge_contention(&self, frames: [FrameId; 2]) {
        if let [Some(left), Some(right)] = frames.map(|frame| self.pool.contention(frame)) {
            let hotter = if right.get().is_hot() { right } else { left };
            left.set(hotter.get().next());
        }
    }

    /// Notes that the latched leaf in `frame` went to another one.
    pub(super) fn keep_contention(&self, frame: FrameId, to: FrameId) {
        if let (Some(from), Some(to)) = (self.pool.contention(frame), self.pool.contention(to)) {
            to.set(from.get().next());
            from.forget();
        }
    }

    fn count_contended(&self, counter: impl FnOnce(&ContentionCounters) -> &AtomicU64) {
        if let Some(done) = self.pool.contention_counters() {
            counter(done).fetch_add(1, Relaxed);
        }
    }
}

/// The cut of a leaf between a key and that of the record at `place`.
fn split_from(page: &mut [u8], key: &[u8], place: usize) -> Option<LeafSplit> {
    let leaf = plain_leaf(page);
    if place >= leaf.end() {
        return None;
    }
    // A copy: the leaf may be sorted.
    let mut other = Vec::new();
    leaf.append_key(place, &mut other);
    split_between(page, key, &other)
}
