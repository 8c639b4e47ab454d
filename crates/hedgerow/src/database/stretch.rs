//! Records as they were at one moment, a stretch of them at a time, and a cursor over all stretches.
//!
//! A tree that is read as of a snapshot, or with a transaction's own changes in it, has no leaf that could be lent. So its
//! records are put together for the range of one leaf: a [`Stretch`]. Whoever does that implements [`Stretches`]; the cursor, its bounds and its
//! directions are the same for all. Of a record of a long key it hands over what the tree has (`long/view.rs`).
//!
//! Invariants: a stretch has all records with `lower < key <= upper`, in order; `first <= gap <= end` while one is loaded; each stretch goes on where
//! the one before has ended; an error is sticky. `Send`; used by one thread at a time.

use crate::error::{Error, ErrorKind, Result};
use crate::tree::{Beyond, Target};
use std::fmt;
use std::ops::Bound;

/// See the head of the file.
#[derive(Default)]
pub(super) struct Stretch {
    bytes: Vec<u8>,
    /// Where keys and values end, and whether the value is in a stored form.
    ends: Vec<(usize, usize, bool)>,
    lower: Option<Vec<u8>>,
    upper: Option<Vec<u8>>,
}

impl Stretch {
    /// Of no records, with fences that `lower` and `upper` append, or say that there are none.
    pub(super) fn begin(
        &mut self,
        lower: impl FnOnce(&mut Vec<u8>) -> bool,
        upper: impl FnOnce(&mut Vec<u8>) -> bool,
    ) {
        self.clear();
        let cleared = |fence: &mut Option<Vec<u8>>| {
            let mut bytes = fence.take().unwrap_or_default();
            bytes.clear();
            bytes
        };
        let mut fence = cleared(&mut self.lower);
        self.lower = lower(&mut fence).then_some(fence);
        let mut fence = cleared(&mut self.upper);
        self.upper = upper(&mut fence).then_some(fence);
    }

    /// Takes all records out.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Adds a record behind the others. `is_stored`: the value stands for one that no leaf holds.
    pub(super) fn push(&mut self, key: &[u8], value: &[u8], is_stored: bool) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.ends.push((key_end, self.bytes.len(), is_stored));
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// A record by its place.
    pub(super) fn get(&self, place: usize) -> (&[u8], &[u8]) {
        let start = place.checked_sub(1).map_or(0, |before| self.ends[before].1);
        let (key_end, end, _) = self.ends[place];
        (&self.bytes[start..key_end], &self.bytes[key_end..end])
    }

    /// Whether the value of a record stands for one that no leaf holds.
    pub(super) fn is_stored(&self, place: usize) -> bool {
        self.ends[place].2
    }

    /// The first place whose key is not below `key`, or is above it.
    fn place_of(&self, key: &[u8], is_above: bool) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            let at = self.get(middle).0;
            if at < key || is_above && at == key { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// The key that all keys are above.
    pub(super) fn lower(&self) -> Option<&[u8]> {
        self.lower.as_deref()
    }

    /// The key that no key is above.
    pub(super) fn upper(&self) -> Option<&[u8]> {
        self.upper.as_deref()
    }

    /// Whether a key lies in its range.
    fn has_room_for(&self, key: &[u8]) -> bool {
        self.is_above_lower(key) && self.upper().is_none_or(|upper| key <= upper)
    }

    fn is_above_lower(&self, key: &[u8]) -> bool {
        self.lower().is_none_or(|lower| key > lower)
    }
}

/// Which stretch is wanted.
#[derive(Clone, Copy)]
pub(super) enum Wanted<'w> {
    /// The one at a place.
    At(Target<'w>),
    /// The one beside that which was loaded last, whose end is the fence.
    Next(Beyond<'w>),
}

impl<'w> Wanted<'w> {
    /// Where it is.
    pub(super) fn target(&self) -> Target<'w> {
        match self {
            Wanted::At(target) => *target,
            Wanted::Next(beyond) => beyond.target(),
        }
    }
}

/// Where stretches come from.
pub(super) trait Stretches: Send {
    /// Loads a stretch.
    ///
    /// Errors: those of reads; then there is nothing of use in `to`.
    fn load(&mut self, wanted: Wanted<'_>, to: &mut Stretch) -> Result<()>;

    /// Whether [`Self::saw`] is to be told.
    fn watches(&self) -> bool {
        false
    }

    /// Somebody has seen all records of an interval, or that there are none. `is_new`: it does not go on from the one that was told last.
    fn saw(&mut self, _from: Bound<&[u8]>, _to: Bound<&[u8]>, _is_new: bool) {}
}

#[derive(Clone)]
enum Place {
    Start,
    End,
    Sought(Vec<u8>),
    Stretch,
}

/// Where an interval of keys begins and ends.
pub(super) type Interval = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// A position between two records, in bounds.
pub(super) struct StretchCursor {
    source: Box<dyn Stretches>,
    lower: Bound<Vec<u8>>,
    upper: Bound<Vec<u8>>,
    place: Place,
    stretch: Stretch,
    /// Whether the stretch is one that was loaded. It stays right: what the cursor goes over never changes.
    is_loaded: bool,
    first: usize,
    gap: usize,
    end: usize,
    fence: Vec<u8>,
    error: Option<Error>,
    /// Where it was sent last, and what was seen from there on, if the source wants to know.
    origin: Place,
    seen: Option<Interval>,
}

impl fmt::Debug for StretchCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StretchCursor").finish_non_exhaustive()
    }
}

impl StretchCursor {
    /// Before the first record in bounds. Reads nothing yet.
    pub(super) fn new(
        source: Box<dyn Stretches>,
        lower: Bound<Vec<u8>>,
        upper: Bound<Vec<u8>>,
    ) -> StretchCursor {
        StretchCursor {
            source,
            lower,
            upper,
            place: Place::Start,
            stretch: Stretch::default(),
            is_loaded: false,
            first: 0,
            gap: 0,
            end: 0,
            fence: Vec::new(),
            error: None,
            origin: Place::Start,
            seen: None,
        }
    }

    /// Moves over the record behind or before the cursor; its place, for [`Self::record`].
    pub(super) fn step(&mut self, forward: bool) -> Result<Option<usize>> {
        if let Some(error) = &self.error {
            return Err(error.duplicate());
        }
        if is_empty(&self.lower, &self.upper) {
            return Ok(None);
        }
        let watches = self.source.watches();
        loop {
            let passed = match forward {
                true if self.gap < self.end => {
                    self.gap += 1;
                    Some(self.gap - 1)
                }
                false if self.gap > self.first => {
                    self.gap -= 1;
                    Some(self.gap)
                }
                _ => None,
            };
            if let Some(place) = passed {
                if watches {
                    let key = self.stretch.get(place).0.to_vec();
                    self.note(forward, Some(key));
                }
                return Ok(Some(place));
            }
            match self.go_on(forward) {
                Ok(true) => {}
                Ok(false) => {
                    if watches {
                        self.note(forward, None);
                    }
                    return Ok(None);
                }
                Err(error) => {
                    self.fail(&error);
                    return Err(error);
                }
            }
        }
    }

    /// Tells the source what was seen: up to a key, or to the bound in this direction.
    fn note(&mut self, forward: bool, key: Option<Vec<u8>>) {
        let is_new = self.seen.is_none();
        let end = |bound: &Bound<Vec<u8>>| key.clone().map_or(bound.clone(), Bound::Included);
        let (lower, upper) = match (self.seen.take(), &self.origin, forward) {
            (None, Place::Start, true) => (self.lower.clone(), end(&self.upper)),
            (None, Place::Sought(from), true) => (Bound::Included(from.clone()), end(&self.upper)),
            (None, Place::End, false) => (end(&self.lower), self.upper.clone()),
            (None, Place::Sought(from), false) => (end(&self.lower), Bound::Excluded(from.clone())),
            // There is nothing on this side.
            (None, _, _) => return,
            (Some((lower, upper)), _, true) => {
                let is_inside = match (&key, &upper) {
                    (_, Bound::Unbounded) => true,
                    (Some(key), Bound::Included(upper)) => key <= upper,
                    (Some(key), Bound::Excluded(upper)) => key < upper,
                    (None, _) => false,
                };
                (lower, if is_inside { upper } else { end(&self.upper) })
            }
            (Some((lower, upper)), _, false) => {
                let is_inside = match (&key, &lower) {
                    (_, Bound::Unbounded) => true,
                    (Some(key), Bound::Included(lower)) => key >= lower,
                    (Some(key), Bound::Excluded(lower)) => key > lower,
                    (None, _) => false,
                };
                (if is_inside { lower } else { end(&self.lower) }, upper)
            }
        };
        let (from, to) = (lower.as_ref().map(Vec::as_slice), upper.as_ref().map(Vec::as_slice));
        self.source.saw(from, to, is_new);
        self.seen = Some((lower, upper));
    }

    /// The record that was moved over last.
    pub(super) fn record(&self, place: usize) -> (&[u8], &[u8]) {
        self.stretch.get(place)
    }

    /// Whether its value stands for one that no leaf holds.
    pub(super) fn is_stored(&self, place: usize) -> bool {
        self.stretch.is_stored(place)
    }

    /// Of the next `most` records of the stretch in a direction, the values that stand for one that no leaf holds; the next one first.
    pub(super) fn upcoming_stored(
        &self,
        forward: bool,
        most: usize,
    ) -> impl Iterator<Item = &[u8]> {
        let there = if forward { self.end - self.gap } else { self.gap - self.first };
        let places = (0..there.min(most))
            .map(move |next| if forward { self.gap + next } else { self.gap - 1 - next });
        let stored = places.filter(|place| self.stretch.is_stored(*place));
        stored.map(|place| self.stretch.get(place).1)
    }

    /// Every further step returns this error.
    pub(super) fn fail(&mut self, error: &Error) {
        self.error = Some(error.duplicate());
        (self.first, self.gap, self.end) = (0, 0, 0);
    }

    /// Goes before the first record in bounds whose key is not below `key`. Reads nothing yet.
    pub(super) fn seek(&mut self, key: &[u8]) {
        self.go(Place::Sought(key.to_vec()));
    }

    /// Goes before the first record in bounds. Reads nothing yet.
    pub(super) fn seek_to_start(&mut self) {
        self.go(Place::Start);
    }

    /// Goes behind the last record in bounds. Reads nothing yet.
    pub(super) fn seek_to_end(&mut self) {
        self.go(Place::End);
    }

    fn go(&mut self, place: Place) {
        self.seen = None;
        self.origin = place.clone();
        self.place = place;
        (self.first, self.gap, self.end) = (0, 0, 0);
    }

    /// Loads the next stretch in a direction. False: there is none.
    fn go_on(&mut self, forward: bool) -> Result<bool> {
        let (source, stretch) = (&mut self.source, &mut self.stretch);
        if matches!(self.place, Place::Stretch) {
            let (fence, bound) = match forward {
                true => (stretch.upper(), &self.upper),
                false => (stretch.lower(), &self.lower),
            };
            let Some(fence) = fence else { return Ok(false) };
            let is_over = match bound {
                Bound::Included(key) | Bound::Excluded(key) if forward => key.as_slice() <= fence,
                Bound::Included(key) | Bound::Excluded(key) => key.as_slice() > fence,
                Bound::Unbounded => false,
            };
            if is_over {
                return Ok(false);
            }
            self.fence.clear();
            self.fence.extend_from_slice(fence);
            let fence = &self.fence;
            self.is_loaded = false;
            let bound = match bound {
                Bound::Included(key) | Bound::Excluded(key) => Some(key.as_slice()),
                Bound::Unbounded => None,
            };
            source.load(Wanted::Next(Beyond { fence, forward, bound }), stretch)?;
            let advances = match forward {
                true => stretch.upper().is_none_or(|upper| upper > fence.as_slice()),
                false => stretch.is_above_lower(fence),
            };
            if !advances {
                let kind = ErrorKind::Corrupted { page: None, offset_bytes: None };
                return Err(Error::new(kind, "a leaf out of order"));
            }
            let gap = stretch.place_of(fence, true);
            self.is_loaded = true;
            self.enter(gap);
            return Ok(true);
        }
        let (key, is_above) = match (&self.place, &self.lower, &self.upper) {
            (Place::Sought(key), ..) => (Some(key.as_slice()), false),
            (Place::End, _, Bound::Included(key)) => (Some(key.as_slice()), true),
            (Place::End, _, Bound::Excluded(key)) => (Some(key.as_slice()), false),
            (Place::End, _, Bound::Unbounded) => (None, true),
            (_, Bound::Included(key), _) => (Some(key.as_slice()), false),
            (_, Bound::Excluded(key), _) => (Some(key.as_slice()), true),
            (_, Bound::Unbounded, _) => (Some(&[][..]), false),
        };
        if !self.is_loaded || !key.is_some_and(|key| stretch.has_room_for(key)) {
            self.is_loaded = false;
            source.load(Wanted::At(key.map_or(Target::Last, Target::Key)), stretch)?;
            self.is_loaded = true;
        }
        let gap = key.map_or(stretch.len(), |key| stretch.place_of(key, is_above));
        self.enter(gap);
        Ok(true)
    }

    /// Takes up a stretch that was just loaded, at a gap.
    fn enter(&mut self, gap: usize) {
        let stretch = &self.stretch;
        self.first = match &self.lower {
            Bound::Included(key) => stretch.place_of(key, false),
            Bound::Excluded(key) => stretch.place_of(key, true),
            Bound::Unbounded => 0,
        };
        self.end = match &self.upper {
            Bound::Included(key) => stretch.place_of(key, true),
            Bound::Excluded(key) => stretch.place_of(key, false),
            Bound::Unbounded => stretch.len(),
        };
        self.end = self.end.max(self.first);
        self.gap = gap.clamp(self.first, self.end);
        self.place = Place::Stretch;
    }
}

/// Whether no key lies in these bounds.
pub(super) fn is_empty(lower: &Bound<Vec<u8>>, upper: &Bound<Vec<u8>>) -> bool {
    match (lower, upper) {
        (Bound::Included(low), Bound::Included(high)) => low > high,
        (Bound::Excluded(low), Bound::Included(high))
        | (Bound::Included(low) | Bound::Excluded(low), Bound::Excluded(high)) => low >= high,
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
    }
}
