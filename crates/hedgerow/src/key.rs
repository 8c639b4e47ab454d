//! Arithmetic on keys: byte strings in lexicographic order.
//!
//! Rank 1. Pure functions.

use std::ops::{
    Bound, Range, RangeBounds, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive,
};

mod sealed {
    pub trait Sealed {}
}

/// Bounds of keys, for calls that take a range of them: `..`, the other ranges of `..` and `..=` whose ends are bytes, and a pair of [`Bound`]s.
/// Ends are anything that is `AsRef<[u8]>`: strings, slices, vectors, arrays. Nobody else implements it.
///
/// Both ends are of one type. Literals of different lengths are not: make the first one a slice.
///
/// ```
/// # use std::ops::Bound;
/// # let db = hedgerow::Options::new().in_memory()?;
/// # let birds = db.keyspace("birds")?;
/// # for name in ["dunnock", "robin", "wren"] { birds.put(name.as_bytes(), b"seen")?; }
/// assert_eq!(birds.count_range(..)?, 3);
/// assert_eq!(birds.count_range("e"..)?, 2);
/// assert_eq!(birds.count_range(b"d"..b"s")?, 2);
/// assert_eq!(birds.count_range(&b"d"[..]..=b"robin")?, 2);
/// assert_eq!(birds.count_range((Bound::Excluded("dunnock"), Bound::Unbounded))?, 2);
/// # Ok::<(), hedgerow::Error>(())
/// ```
pub trait KeyRange: sealed::Sealed {
    /// The lower and the upper bound.
    fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>);
}

impl sealed::Sealed for RangeFull {}

impl KeyRange for RangeFull {
    fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        (Bound::Unbounded, Bound::Unbounded)
    }
}

macro_rules! key_ranges {
    ($($name:ty),*) => {
        $(
            impl<K: AsRef<[u8]>> sealed::Sealed for $name {}

            impl<K: AsRef<[u8]>> KeyRange for $name {
                fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
                    let (lower, upper) =
                        (RangeBounds::<K>::start_bound(self), RangeBounds::<K>::end_bound(self));
                    (lower.map(AsRef::as_ref), upper.map(AsRef::as_ref))
                }
            }
        )*
    };
}

key_ranges!(
    Range<K>,
    RangeFrom<K>,
    RangeInclusive<K>,
    RangeTo<K>,
    RangeToInclusive<K>,
    (Bound<K>, Bound<K>)
);

/// The bounds, to keep.
pub fn owned_bounds(bounds: &impl KeyRange) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let (lower, upper) = bounds.bounds();
    (lower.map(<[u8]>::to_vec), upper.map(<[u8]>::to_vec))
}

/// The smallest key above all keys that begin with `prefix`; `None` if there is no such key.
pub fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte < u8::MAX)?;
    let mut key = prefix[..=last].to_vec();
    key[last] += 1;
    Some(key)
}

/// The bounds of the keys that begin with `prefix`, for calls that take bounds: [`Keyspace::range`](crate::Keyspace::range),
/// [`Keyspace::remove_range`](crate::Keyspace::remove_range), [`Keyspace::approximate_count`](crate::Keyspace::approximate_count).
///
/// ```
/// # use std::ops::Bound;
/// # let db = hedgerow::Options::new().in_memory()?;
/// # let birds = db.keyspace("birds")?;
/// # for name in ["robin", "rook", "wren"] { birds.put(name.as_bytes(), b"seen")?; }
/// let (_, end) = hedgerow::prefix_range(b"r");
/// let mut next_page = birds.range((Bound::Excluded(b"robin".to_vec()), end)).keys();
/// assert_eq!(next_page.next().unwrap()?, b"rook");
/// assert_eq!(birds.remove_range(hedgerow::prefix_range(b"r"))?, 2);
/// # Ok::<(), hedgerow::Error>(())
/// ```
#[must_use]
pub fn prefix_range(prefix: &[u8]) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let end = after_prefix(prefix).map_or(Bound::Unbounded, Bound::Excluded);
    (Bound::Included(prefix.to_vec()), end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_a_prefix_is_the_next_one_of_its_length_or_shorter() {
        assert_eq!(after_prefix(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(after_prefix(b"a\xff"), Some(b"b".to_vec()));
        assert_eq!(after_prefix(b"\xff\xff"), None);
    }

    #[test]
    fn a_prefix_has_a_range_without_an_end_only_if_no_key_follows_it() {
        assert_eq!(
            prefix_range(b"a\xff"),
            (Bound::Included(b"a\xff".to_vec()), Bound::Excluded(b"b".to_vec()))
        );
        assert_eq!(prefix_range(b"\xff"), (Bound::Included(b"\xff".to_vec()), Bound::Unbounded));
        assert_eq!(prefix_range(b""), (Bound::Included(Vec::new()), Bound::Unbounded));
    }
}
