//! Which backend a program uses: by the environment variable `HTM`, once, where trees are made.

use super::{Htm, Lock, NOrec, RetryPolicy};
use std::fmt;

/// What `HTM` may say.
const WORDS: [&str; 6] = ["off", "lock", "norec", "rtm", "rtm-forced", "sim"];

/// What is done with the backend that is chosen: a function over all backends, so that trees are made for one of them.
pub trait WithHtm {
    /// What it gives.
    type Out;

    /// Does it.
    fn with<H: Htm + 'static>(self, name: &'static str, htm: H) -> Self::Out;
}

/// A backend that there is not.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ChoiceError {
    /// No backend is called so.
    Unknown(String),
    /// The processor's regions do not commit, or there are none: what was seen.
    NoRtm(String),
    /// This build, or the place where it was asked for, has no simulated machine.
    NotSimulated,
}

impl fmt::Display for ChoiceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChoiceError::Unknown(word) => {
                write!(f, "`{word}` is no backend; there are {}", WORDS.join(", "))
            }
            ChoiceError::NoRtm(seen) => {
                write!(f, "this processor has no transactional memory that works: {seen}")
            }
            ChoiceError::NotSimulated => write!(
                f,
                "the simulated backend is in programs that are built with --cfg hedgerow_sim, in a run"
            ),
        }
    }
}

impl std::error::Error for ChoiceError {}

/// What the environment variable says. Without it: the processor's transactional memory if it works, else the lock.
#[must_use]
pub fn word_of_environment() -> Option<String> {
    std::env::var("HTM").ok()
}

/// Uses the backend of a name: `off` and `lock` are the lock, `norec` is software, `rtm` the processor's, `rtm-forced` the same without
/// a look at whether it is there, `sim` that of a simulated machine. `None`: `rtm` if it works, else `lock`.
///
/// # Errors
/// There is no such backend here.
pub fn choose<W: WithHtm>(
    word: Option<&str>,
    policy: RetryPolicy,
    what: W,
) -> Result<W::Out, ChoiceError> {
    match word {
        None => Ok(best(policy, what)),
        Some("off" | "lock") => Ok(what.with("lock", Lock::new())),
        Some("norec") => Ok(what.with("norec", NOrec::new(policy))),
        Some("rtm") => rtm(policy, what),
        Some("rtm-forced") => forced(policy, what),
        Some("sim") => simulated(policy, what),
        Some(other) => Err(ChoiceError::Unknown(other.to_owned())),
    }
}

#[cfg(all(target_arch = "x86_64", not(any(miri, hedgerow_sim))))]
mod processor {
    use super::{ChoiceError, Lock, RetryPolicy, WithHtm};
    use crate::htm::rtm::{Rtm, forced_by_user};

    pub(super) fn best<W: WithHtm>(policy: RetryPolicy, what: W) -> W::Out {
        match Rtm::new(policy) {
            Ok(rtm) => what.with("rtm", rtm),
            Err(_) => what.with("lock", Lock::new()),
        }
    }

    pub(super) fn rtm<W: WithHtm>(policy: RetryPolicy, what: W) -> Result<W::Out, ChoiceError> {
        let rtm = Rtm::new(policy).map_err(|probe| ChoiceError::NoRtm(probe.to_string()))?;
        Ok(what.with("rtm", rtm))
    }

    pub(super) fn forced<W: WithHtm>(policy: RetryPolicy, what: W) -> Result<W::Out, ChoiceError> {
        Ok(what.with("rtm-forced", forced_by_user(policy)))
    }
}

#[cfg(not(all(target_arch = "x86_64", not(any(miri, hedgerow_sim)))))]
mod processor {
    use super::{ChoiceError, Lock, RetryPolicy, WithHtm};

    pub(super) fn best<W: WithHtm>(_policy: RetryPolicy, what: W) -> W::Out {
        what.with("lock", Lock::new())
    }

    pub(super) fn rtm<W: WithHtm>(_policy: RetryPolicy, _what: W) -> Result<W::Out, ChoiceError> {
        Err(ChoiceError::NoRtm("this build has none".to_owned()))
    }

    pub(super) fn forced<W: WithHtm>(policy: RetryPolicy, what: W) -> Result<W::Out, ChoiceError> {
        rtm(policy, what)
    }
}

use processor::{best, forced, rtm};

fn simulated<W: WithHtm>(policy: RetryPolicy, what: W) -> Result<W::Out, ChoiceError> {
    #[cfg(hedgerow_sim)]
    if hedgerow_sim::is_running() {
        return Ok(what.with("sim", super::Sim::new(policy)));
    }
    let _ = (policy, what);
    Err(ChoiceError::NotSimulated)
}
