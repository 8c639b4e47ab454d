//! A value copied out of the tree: inline if short, so that a look-up need not allocate.
//!
//! Plain data, `Send + Sync`; it refers to nothing in the pool.

use hedgerow_sync::optimistic::Copied;
pub use hedgerow_sync::optimistic::INLINE_BYTES;
use std::fmt;
use std::ops::Deref;

/// A copy of a value. Up to [`INLINE_BYTES`] bytes it is held without an allocation.
#[derive(Clone, Default)]
pub struct Value(pub(super) Copied);

impl Value {
    /// The bytes.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// The bytes in a vector of their own.
    pub fn into_vec(self) -> Vec<u8> {
        self.0.into_vec()
    }
}

impl From<&[u8]> for Value {
    fn from(bytes: &[u8]) -> Value {
        Value(Copied::from(bytes))
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

impl PartialEq<[u8]> for Value {
    fn eq(&self, other: &[u8]) -> bool {
        self.as_bytes() == other
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_bytes(), f)
    }
}
