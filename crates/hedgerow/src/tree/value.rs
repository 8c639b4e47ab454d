//! A value copied out of the tree: inline if short, so that a look-up need not allocate.
//!
//! Plain data, `Send + Sync`; it refers to nothing in the pool.

use std::fmt;
use std::ops::Deref;

/// Longest value that is held inline: with its length and the pointer for longer ones two cache lines
/// and a word.
pub const INLINE_BYTES: usize = 119;

/// A copy of a value. Up to [`INLINE_BYTES`] bytes it is held without an allocation.
#[derive(Clone)]
pub struct Value {
    /// Length of the bytes; [`ON_HEAP`] if they are in `heap`.
    len: u8,
    bytes: [u8; INLINE_BYTES],
    heap: Option<Box<[u8]>>,
}

/// Says that the bytes are on the heap.
const ON_HEAP: u8 = u8::MAX;

const _: () = assert!(INLINE_BYTES < ON_HEAP as usize);

impl Value {
    /// Takes the value that `copy` puts into the slice that it is given, and whose length it returns;
    /// it copies nothing if the slice is too short, and is then called again with a longer one.
    #[inline(always)]
    pub(super) fn set_by(&mut self, copy: impl Fn(&mut [u8]) -> usize) {
        let len = copy(self.inline_room());
        if !self.set_inline(len) {
            // A racing page may name another length now; then the caller's validation fails.
            copy(self.set_on_heap(len));
        }
    }

    /// Room for a short value; [`Self::set_inline`] says how much of it was filled.
    #[inline(always)]
    pub(super) fn inline_room(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// Makes the first `len` bytes of the inline room the value; `false` if it is too short for them.
    #[inline(always)]
    pub(super) fn set_inline(&mut self, len: usize) -> bool {
        if len > INLINE_BYTES {
            return false;
        }
        self.len = len as u8;
        true
    }

    /// Makes `len` bytes on the heap the value, zeros as yet.
    #[cold]
    #[inline(never)]
    pub(super) fn set_on_heap(&mut self, len: usize) -> &mut [u8] {
        self.len = ON_HEAP;
        self.heap.insert(vec![0; len].into_boxed_slice())
    }

    /// The bytes.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        match &self.heap {
            Some(bytes) if self.len == ON_HEAP => bytes,
            _ => &self.bytes[..usize::from(self.len).min(INLINE_BYTES)],
        }
    }

    /// The bytes in a vector of their own.
    pub fn into_vec(self) -> Vec<u8> {
        match self.heap {
            Some(bytes) if self.len == ON_HEAP => bytes.into_vec(),
            _ => self.as_bytes().to_vec(),
        }
    }
}

impl Default for Value {
    /// The empty value.
    #[inline(always)]
    fn default() -> Value {
        Value { len: 0, bytes: [0; INLINE_BYTES], heap: None }
    }
}

impl From<&[u8]> for Value {
    fn from(bytes: &[u8]) -> Value {
        let mut value = Value::default();
        value.set_by(|to| {
            if let Some(to) = to.get_mut(..bytes.len()) {
                to.copy_from_slice(bytes);
            }
            bytes.len()
        });
        value
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
