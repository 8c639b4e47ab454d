//! Messages on standard error: each is a line, written by one call, beside a progress bar if there is one.
//!
//! A message that cannot be written is lost without an error: of that nobody can be told, and the exit code still says how the command
//! ended. Any thread may write one.

use crate::progress;
use std::fmt;
use std::io::{self, Write};

/// Writes the line of a message; for `tell!`.
pub fn line(words: fmt::Arguments<'_>) {
    let line = format!("{words}\n");
    let _ = progress::beside(|| io::stderr().write_all(line.as_bytes()));
}

/// Takes what `eprintln!` takes, which panics where standard error is full, or its reader has gone.
macro_rules! tell {
    ($($words:tt)*) => {
        $crate::tell::line(format_args!($($words)*))
    };
}
