//! How a command can end other than well, the words for it, and the exit code.

use crate::escape::escape;
use hedgerow::{Error, ErrorKind};
use std::io;

/// Why a command did not succeed.
#[derive(Debug)]
pub enum Failure {
    /// The engine said no; what was being done, and its error. Empty if the error says it.
    Engine(String, Error),
    /// Reading or writing something other than the store failed.
    Io(String, io::Error),
    /// An input or a check is wrong; the sentence says how.
    Other(String),
    /// The key is not in the keyspace of this name. Said by the exit code and one line.
    KeyNotFound(String),
    /// Arguments that do not go together.
    Usage(String),
    /// An input with a format of its own is cut off or damaged; the sentence says where and how.
    DamagedInput(String),
    /// An input in a later version of its format than this tool knows.
    NewerInput(String),
    /// Verification found this much damage; it has been printed.
    Damage(u64),
    /// A seed from which this tool would draw something else.
    OtherVersion(String),
    /// A test of the machine or of the engine has found this; it is told where to look.
    Found(String),
    /// Whoever read the output has gone, and wants no more of it: no failure to complain about.
    PipeClosed,
    /// Ctrl-C; what has been done up to there.
    Interrupted(String),
}

impl Failure {
    /// How a command ends that has printed what it found. Damage is damage, although nobody may have read all of the lines.
    pub fn damage(printed: Result<(), Failure>, defects: u64) -> Result<(), Failure> {
        match printed {
            Ok(()) | Err(Failure::PipeClosed) if defects > 0 => Err(Failure::Damage(defects)),
            printed => printed,
        }
    }

    /// The words for standard error, without the program's name; `None` to stay silent.
    pub fn words(&self) -> Option<String> {
        Some(match self {
            Failure::Engine(doing, error) if doing.is_empty() => {
                format!("{error}{}", hint(error))
            }
            Failure::Engine(doing, error) => format!("{doing}: {error}{}", hint(error)),
            Failure::Io(doing, error) => format!("{doing}: {error}"),
            Failure::Other(words)
            | Failure::Usage(words)
            | Failure::DamagedInput(words)
            | Failure::Found(words)
            | Failure::NewerInput(words)
            | Failure::OtherVersion(words) => words.clone(),
            Failure::KeyNotFound(keyspace) => {
                format!("key not found in keyspace `{}`", escape(keyspace.as_bytes()))
            }
            Failure::Damage(1) => "1 defect found".to_owned(),
            Failure::Damage(count) => format!("{count} defects found"),
            Failure::PipeClosed => return None,
            Failure::Interrupted(done) if done.is_empty() => "interrupted".to_owned(),
            Failure::Interrupted(done) => format!("interrupted; {done}"),
        })
    }

    /// The documented exit code.
    pub fn exit_code(&self) -> u8 {
        match self {
            Failure::Engine(_, error) => match error.kind() {
                ErrorKind::Locked { .. } => 5,
                ErrorKind::UpgradeRequired { .. } => 6,
                ErrorKind::InvalidOption | ErrorKind::InvalidArgument | ErrorKind::InvalidName => 2,
                ErrorKind::Corrupted { .. } => 4,
                _ => 1,
            },
            Failure::Io(..) | Failure::Other(_) => 1,
            Failure::Usage(_) => 2,
            Failure::KeyNotFound(_) => 3,
            Failure::Damage(_) | Failure::DamagedInput(_) => 4,
            Failure::NewerInput(_) => 6,
            Failure::Found(_) => 7,
            Failure::OtherVersion(_) => 8,
            Failure::PipeClosed => 0,
            Failure::Interrupted(_) => 130,
        }
    }
}

impl From<Error> for Failure {
    /// Without a word about what was being done: whoever knows adds it.
    fn from(error: Error) -> Failure {
        Failure::Engine(String::new(), error)
    }
}

/// What to do about it, where there is something.
pub fn hint(error: &Error) -> &'static str {
    match error.kind() {
        ErrorKind::Locked { .. } => "; close it there first, or wait for that with --wait SECONDS",
        // A limit of the process or of the file system is in the way, not what others have on the disk.
        ErrorKind::DiskFull => match error.io_error().map(std::io::Error::kind) {
            Some(std::io::ErrorKind::FileTooLarge) => {
                "; raise the limit for the length of a file (ulimit -f) and run the command again"
            }
            Some(std::io::ErrorKind::QuotaExceeded) => {
                "; ask for a larger quota, or free some space, and run the command again"
            }
            _ => "; free some space and run the command again",
        },
        ErrorKind::LogMissing => {
            "; put the log back, or salvage the store without it: hedgerow repair"
        }
        ErrorKind::Corrupted { .. } => {
            "; list the damage with `hedgerow verify`, then restore a backup or run `hedgerow repair`"
        }
        ErrorKind::NotClosed => " and close it; `hedgerow recover` does both",
        _ => "",
    }
}
