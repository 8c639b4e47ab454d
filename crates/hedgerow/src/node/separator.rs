//! The shortest key that separates two neighbours.
//!
//! A separator `s` between `a < b` satisfies `a <= s < b`, because the keys of a node are above its lower
//! fence and at most its upper fence. Short separators keep inner nodes flat ("B-Trees Are Back"
//! section 2). Total over any two byte strings; pure.

use super::suffix::Suffix;

/// Bytes of the separator that [`shortest`] would give, of which no more than the length is wanted.
pub(super) fn shortest_len(a: Suffix<'_>, b: Suffix<'_>) -> usize {
    match place(a, b) {
        Place::InSecond(at) | Place::RaisedFirst(at) => at + 1,
        Place::First => a.len(),
    }
}

/// The shortest separator between `a` and `b`; `a` itself if the two are not in order.
pub(super) fn shortest(a: Suffix<'_>, b: Suffix<'_>) -> Vec<u8> {
    match place(a, b) {
        Place::InSecond(at) => b.first_bytes(at + 1),
        Place::RaisedFirst(at) => {
            let mut separator = a.first_bytes(at + 1);
            separator[at] += 1;
            separator
        }
        Place::First => a.first_bytes(a.len()),
    }
}

/// Where the shortest separator comes from.
enum Place {
    /// The second key, up to and with this byte.
    InSecond(usize),
    /// The first key, up to and with this byte, which is raised by one.
    RaisedFirst(usize),
    /// The first key, whole.
    First,
}

fn place(a: Suffix<'_>, b: Suffix<'_>) -> Place {
    let common = a.common_prefix(&b);
    // Nothing is shorter than a key that the other one begins with.
    if a.len() == common || a.get(common) >= b.get(common) {
        return Place::First;
    }
    if b.len() > common + 1 {
        return Place::InSecond(common);
    }
    match raised_at(a, b, common) {
        Some(at) => Place::RaisedFirst(at),
        None => Place::First,
    }
}

/// The byte of `a` behind which to cut it, raising that byte by one, if this is shorter than `a`. Both
/// keys go on behind their common prefix, in order, and `b` by one byte only: no prefix of it will do.
fn raised_at(a: Suffix<'_>, b: Suffix<'_>, common: usize) -> Option<usize> {
    let apart = b.get(common)?.saturating_sub(a.get(common)?);
    let first = if apart > 1 { common } else { common + 1 };
    // The last byte is not worth raising: `a` has the same length.
    (first..a.len() - 1).find(|&at| a.get(at) != Some(u8::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_separate_and_are_as_short_as_any() {
        // All strings of up to three bytes over a small alphabet with both extremes.
        let alphabet = [0u8, 1, 2, 0xfe, 0xff];
        let mut strings = vec![vec![]];
        let mut from = 0;
        for _ in 0..3 {
            let until = strings.len();
            for i in from..until {
                for byte in alphabet {
                    let mut next = strings[i].clone();
                    next.push(byte);
                    strings.push(next);
                }
            }
            from = until;
        }
        strings.sort();
        for (i, a) in strings.iter().enumerate() {
            for b in &strings[i + 1..] {
                let [x, y] = [a, b].map(|key| Suffix::undivided(key));
                let separator = shortest(x, y);
                assert!(*a <= separator && separator < *b, "{a:?} {b:?} {separator:?}");
                assert_eq!(separator.len(), shortest_len(x, y));
                let [x, y] = [a, b].map(|key| Suffix::of(key));
                assert_eq!(
                    (shortest(x, y), shortest_len(x, y)),
                    (separator.clone(), separator.len())
                );
                let best = (0..=a.len()).find(|&len| {
                    // The largest string of this length below `b` is the best candidate.
                    largest_below(b, len).is_some_and(|s| s >= *a)
                });
                assert_eq!(Some(separator.len()), best, "{a:?} {b:?} {separator:?}");
            }
        }
    }

    fn largest_below(b: &[u8], len: usize) -> Option<Vec<u8>> {
        if b.len() > len {
            return Some(b[..len].to_vec());
        }
        // Count down by one at the last byte of `b` that is not zero, and fill up with 0xff. (A prefix of
        // `b` extended by anything below what follows is covered by this.)
        let at = (0..b.len()).rev().find(|&at| b[at] != 0)?;
        let mut s = b[..at].to_vec();
        s.push(b[at] - 1);
        s.resize(len, 0xff);
        (s.as_slice() < b && s.len() == len).then_some(s)
    }

    #[test]
    fn neighbours_out_of_order_give_some_key() {
        for (a, b) in [("b", "a"), ("", ""), ("ab", "a"), ("abc", "abc"), ("zz", "aaaaaa")] {
            let [x, y] = [a, b].map(|key| Suffix::of(key.as_bytes()));
            assert_eq!(shortest(x, y), a.as_bytes());
            assert_eq!(shortest_len(x, y), a.len());
        }
    }
}
