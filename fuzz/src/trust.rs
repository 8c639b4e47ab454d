//! Which answers of a store are acceptable, by what was done to its files.
//!
//! Plain values.

use hedgerow::{Error, ErrorKind, Result};

/// What may be expected of a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trust {
    /// Nothing was done to its files: every answer is right, and none is an error.
    Sound,
    /// Its files were damaged, and checksums are there to notice it: every answer is right, or an error that says
    /// that there is damage.
    Damaged,
    /// Its files were damaged past all checksums: any answer and any error will do. No panic will, and no hang.
    Forged,
}

impl Trust {
    /// The answer, unless it is an error that is acceptable.
    pub fn answer<T>(self, answer: Result<T>) -> Option<T> {
        match answer {
            Ok(answer) => Some(answer),
            Err(error) => {
                let is_expected = match self {
                    Trust::Sound => false,
                    Trust::Damaged => tells_of_damage(&error),
                    Trust::Forged => true,
                };
                assert!(is_expected, "{self:?}: {error:?}");
                None
            }
        }
    }

    /// Whether answers that are no errors are right.
    pub fn is_exact(self) -> bool {
        self != Trust::Forged
    }
}

/// Whether an error can come of damage that a checksum has noticed: of the damage itself, of a log that is not where
/// it should be, or of an earlier such error after which nothing may be written.
pub fn tells_of_damage(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Corrupted { .. }
            | ErrorKind::NotAStore
            | ErrorKind::UpgradeRequired { .. }
            | ErrorKind::FileNotFound
            | ErrorKind::LogMissing
            | ErrorKind::FileExists
            | ErrorKind::ForeignLog
            | ErrorKind::KeyspaceDropped
            | ErrorKind::Poisoned
            | ErrorKind::DurabilityUnknown
            | ErrorKind::BatchUnfinished
    )
}
