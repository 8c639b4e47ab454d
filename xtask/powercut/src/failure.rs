//! How a run can end other than well, the words for it, and the exit code.
//!
//! Plain values; no state.

/// Why a run did not come to a good end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure {
    /// Something was lost or broken.
    Found(String),
    /// Wrong arguments.
    Usage(String),
    /// What a cut has left is no file system any more.
    NoFileSystem(String),
    /// This machine cannot do it; nothing was found out.
    Cannot(String),
    /// It could, and then something of the system failed: nothing is known.
    Broken(String),
    /// Ctrl-C; what was done up to there.
    Interrupted(String),
}

impl Failure {
    /// The words for standard error.
    pub fn words(&self) -> &str {
        match self {
            Failure::Found(words)
            | Failure::Usage(words)
            | Failure::NoFileSystem(words)
            | Failure::Cannot(words)
            | Failure::Broken(words)
            | Failure::Interrupted(words) => words,
        }
    }

    /// The documented exit code.
    pub fn exit_code(&self) -> u8 {
        match self {
            Failure::Found(_) | Failure::NoFileSystem(_) => 1,
            Failure::Usage(_) => 2,
            Failure::Cannot(_) => 3,
            Failure::Broken(_) => 4,
            Failure::Interrupted(_) => 130,
        }
    }

    /// The same, with what it belongs to before a finding.
    pub fn within(self, what: &str) -> Failure {
        match self {
            Failure::Found(words) => Failure::Found(format!("{what}: {words}")),
            Failure::NoFileSystem(words) => Failure::NoFileSystem(format!("{what}: {words}")),
            other => other,
        }
    }

    /// The same on a machine that is known to be able.
    pub fn on_an_able_machine(self) -> Failure {
        match self {
            Failure::Cannot(words) => Failure::Broken(words),
            other => other,
        }
    }
}
