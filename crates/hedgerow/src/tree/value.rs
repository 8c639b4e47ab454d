//! A value copied out of the tree: inline if short, so that a look-up need not allocate.
//!
//! Plain data, `Send + Sync`; it refers to nothing in the pool.

use hedgerow_sync::optimistic::Copied;
pub use hedgerow_sync::optimistic::INLINE_BYTES;
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

/// A copy of a key or of a value. Up to 112 bytes are held without an allocation.
///
/// It derefs to the bytes, and is compared, ordered and hashed as they are. `Debug` shows the length and not the bytes, which may
/// be secrets.
///
/// ```
/// let value = hedgerow::Value::from(&b"wren"[..]);
/// assert_eq!(value, b"wren");
/// assert_eq!(format!("{value:?}"), "Value { len_bytes: 4 }");
/// assert_eq!(Vec::from(value), b"wren".to_vec());
/// ```
#[derive(Clone, Default)]
pub struct Value(pub(super) Copied);

impl Value {
    /// The bytes, which the value lends.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// The bytes as a vector. Allocates and copies if they are held without an allocation.
    pub fn into_vec(self) -> Vec<u8> {
        self.0.into_vec()
    }
}

impl From<&[u8]> for Value {
    fn from(bytes: &[u8]) -> Value {
        Value(Copied::from(bytes))
    }
}

impl<const N: usize> From<&[u8; N]> for Value {
    fn from(bytes: &[u8; N]) -> Value {
        Value::from(&bytes[..])
    }
}

impl<const N: usize> From<[u8; N]> for Value {
    fn from(bytes: [u8; N]) -> Value {
        Value::from(&bytes[..])
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Value {
        Value(Copied::from(bytes))
    }
}

impl From<Value> for Vec<u8> {
    fn from(value: Value) -> Vec<u8> {
        value.into_vec()
    }
}

impl Deref for Value {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Value) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Value {}

impl PartialOrd for Value {
    fn partial_cmp(&self, other: &Value) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Byte by byte, as keys are ordered.
impl Ord for Value {
    fn cmp(&self, other: &Value) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

/// As of the bytes.
impl Hash for Value {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl Borrow<[u8]> for Value {
    fn borrow(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl PartialEq<[u8]> for Value {
    fn eq(&self, other: &[u8]) -> bool {
        self.as_bytes() == other
    }
}

impl PartialEq<&[u8]> for Value {
    fn eq(&self, other: &&[u8]) -> bool {
        self.as_bytes() == *other
    }
}

impl<const N: usize> PartialEq<[u8; N]> for Value {
    fn eq(&self, other: &[u8; N]) -> bool {
        self.as_bytes() == other
    }
}

impl<const N: usize> PartialEq<&[u8; N]> for Value {
    fn eq(&self, other: &&[u8; N]) -> bool {
        self.as_bytes() == *other
    }
}

impl PartialEq<Vec<u8>> for Value {
    fn eq(&self, other: &Vec<u8>) -> bool {
        self.as_bytes() == other.as_slice()
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Value").field("len_bytes", &self.len()).finish()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use std::collections::{BTreeSet, HashSet};

    #[test]
    fn a_value_is_compared_and_hashed_as_its_bytes_and_does_not_show_them() {
        let long = vec![b'x'; INLINE_BYTES + 1];
        for bytes in [&b""[..], b"wren", b"\0\xff\"", &long] {
            let value = Value::from(bytes);
            assert_eq!(value, bytes);
            assert_eq!(value, *bytes);
            assert_eq!(value, bytes.to_vec());
            assert_eq!(Value::from(bytes.to_vec()), value);
            assert!(HashSet::from([value.clone()]).contains(bytes));
            assert!(BTreeSet::from([value]).contains(bytes));
        }
        assert_eq!(Value::from(&b"wren"[..]), b"wren");
        assert_eq!(Value::from(&b"wren"[..]), *b"wren");
        assert_ne!(Value::from(&b"wren"[..]), b"wrens");
        let (high, low) = (Value::from(&b"\xff"[..]), Value::from(long));
        assert!(high > low);
        assert_eq!(format!("{:?}", Value::from(&b"secret"[..])), "Value { len_bytes: 6 }");
    }
}
