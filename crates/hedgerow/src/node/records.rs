//! Records of a leaf outside of a page: what one layout gives and another is built from, and what a bulk
//! load stages.
//!
//! Whole keys and values lie one behind the other in one buffer. Invariant (of whoever pushes): the
//! keys ascend, and all together take less than 4 GiB. Plain data.

/// Records in the order of their keys.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Records {
    bytes: Vec<u8>,
    places: Vec<Place>,
}

/// Where a record lies in the buffer: the key, and the value right behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Place {
    key_at: u32,
    value_at: u32,
    end: u32,
}

impl Place {
    #[inline(always)]
    fn lens(self) -> (usize, usize) {
        ((self.value_at - self.key_at) as usize, (self.end - self.value_at) as usize)
    }
}

impl Records {
    /// No records, with room for some.
    pub fn with_capacity(records: usize, bytes: usize) -> Self {
        Records { bytes: Vec::with_capacity(bytes), places: Vec::with_capacity(records) }
    }

    /// Number of records.
    #[inline]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there are none.
    #[cfg(hedgerow_internals)]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Adds a record, whose key is above all others.
    #[inline]
    pub fn push(&mut self, key: &[u8], value: &[u8]) {
        self.push_with(|to| to.extend_from_slice(key), |to| to.extend_from_slice(value));
    }

    /// Adds a record whose key and value are appended by functions.
    #[inline]
    pub(super) fn push_with(
        &mut self,
        key: impl FnOnce(&mut Vec<u8>),
        value: impl FnOnce(&mut Vec<u8>),
    ) {
        let key_at = self.bytes.len() as u32;
        key(&mut self.bytes);
        let value_at = self.bytes.len() as u32;
        value(&mut self.bytes);
        self.places.push(Place { key_at, value_at, end: self.bytes.len() as u32 });
    }

    /// Bytes of all keys and values together.
    pub(super) fn total_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The last key.
    #[inline]
    pub(super) fn last_key(&self) -> Option<&[u8]> {
        let last = self.places.last()?;
        Some(&self.bytes[last.key_at as usize..last.value_at as usize])
    }

    /// The key at `index`, which there is.
    pub(super) fn key(&self, index: usize) -> &[u8] {
        let place = self.places[index];
        &self.bytes[place.key_at as usize..place.value_at as usize]
    }

    /// The first records, each in one piece, and how much of that is the key.
    pub(super) fn joined(&self, count: usize) -> impl Iterator<Item = (&[u8], usize)> {
        self.places[..count]
            .iter()
            .map(|place| (&self.bytes[place.key_at as usize..place.end as usize], place.lens().0))
    }

    /// The values.
    pub(super) fn values(&self) -> impl Iterator<Item = &[u8]> {
        let value = |place: &Place| &self.bytes[place.value_at as usize..place.end as usize];
        self.places.iter().map(value)
    }

    /// The keys.
    pub(super) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        let key = |place: &Place| &self.bytes[place.key_at as usize..place.value_at as usize];
        self.places.iter().map(key)
    }

    /// Bytes of the first keys and values, when of each key no more than what is behind its first `cut`
    /// bytes counts.
    pub(super) fn bytes_behind(&self, count: usize, cut: usize) -> usize {
        let Some(last) = self.places[..count].last() else { return 0 };
        let cut = u32::try_from(cut).unwrap_or(u32::MAX);
        let places = self.places[..count].iter();
        let dropped: u32 = places.map(|place| (place.value_at - place.key_at).min(cut)).sum();
        (last.end - dropped) as usize
    }

    /// The lengths of the first keys and values.
    pub(super) fn lens(&self, count: usize) -> impl Iterator<Item = (usize, usize)> {
        self.places[..count].iter().map(|place| place.lens())
    }

    /// Moves all records but the first `count` behind those of `to`, whose keys are below.
    pub(super) fn move_end(&mut self, count: usize, to: &mut Records) {
        let Some(first) = self.places.get(count) else { return };
        let (from, at) = (first.key_at, to.bytes.len() as u32);
        to.bytes.extend_from_slice(&self.bytes[from as usize..]);
        to.places.extend(self.places[count..].iter().map(|place| Place {
            key_at: place.key_at - from + at,
            value_at: place.value_at - from + at,
            end: place.end - from + at,
        }));
        self.bytes.truncate(from as usize);
        self.places.truncate(count);
    }

    /// Copies of some of the records.
    pub(super) fn part(&self, range: std::ops::Range<usize>) -> Records {
        let Some(places) = self.places.get(range).filter(|places| !places.is_empty()) else {
            return Records::default();
        };
        let (from, end) = (places[0].key_at, places[places.len() - 1].end);
        Records {
            bytes: self.bytes[from as usize..end as usize].to_vec(),
            places: places
                .iter()
                .map(|place| Place {
                    key_at: place.key_at - from,
                    value_at: place.value_at - from,
                    end: place.end - from,
                })
                .collect(),
        }
    }

    /// Drops all records and keeps the room for them.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.places.clear();
    }

    /// The records: keys and values.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&[u8], &[u8])> {
        self.places.iter().map(|place| {
            let joined = &self.bytes[place.key_at as usize..place.end as usize];
            joined.split_at(place.lens().0)
        })
    }
}
