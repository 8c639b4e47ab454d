//! Large values: what a record says of a value that no leaf holds.
//!
//! Rank 1. Three names belong together. A *large value* is what a user puts. An *extent* is the units of the file that hold it. A *stored form*
//! is what the record has in its place, a value like any other to whatever handles pages. Here is the stored form; each folder above has
//! its part under the name `large`:
//!
//! | where | what |
//! |---|---|
//! | `large/` | stored forms: a reference to an extent, a list of frames, an escaped value |
//! | `space/large/` | units of the file, chunks and their checksums, buffers on the way to the file |
//! | `buffer/large/` | pieces of large values in frames; what a changed record tells the file |
//! | `tree/large.rs` | what a change of a leaf tells the pool and the log |
//! | `store/large/` | writing, reading, copying, moving and verifying them |
//! | `database/values.rs`, `value_reader.rs`, `large.rs` | the public way in and out |
//!
//! Pure functions and plain values.

mod held;
mod stored;

pub use held::Held;
pub use stored::{
    Extent, MAX_RUNS, MAX_VALUE_BYTES, Run, Stored, escape, escaped_bytes, is_same_value,
    is_stored_form, read_reference, read_stored, reference_bytes,
};
