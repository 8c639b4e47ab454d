//! How the tool can end other than well, the words for it, and the exit code. Plain values.

use std::fmt;
use std::io;

/// Why it did not succeed.
#[derive(Debug)]
pub enum Failure {
    /// A seed from which this tool would draw something else.
    OtherVersion(String),
    /// A defect of the engine.
    Found(String),
    /// The machine does not do its part; what was being done.
    Io(&'static str, io::Error),
}

impl Failure {
    /// As `hedgerow torture` has them.
    pub fn exit_code(&self) -> u8 {
        match self {
            Failure::Io(..) => 1,
            Failure::Found(_) => 7,
            Failure::OtherVersion(_) => 8,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::OtherVersion(words) | Failure::Found(words) => f.write_str(words),
            Failure::Io(doing, error) => write!(f, "{doing}: {error}"),
        }
    }
}
