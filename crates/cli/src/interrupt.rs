//! Ctrl-C, `SIGTERM` and `SIGHUP`: stop soon and leave a valid store; a second one stops at once.
//!
//! The handler only sets a flag, which loops of the commands look at between records. Even the second signal loses no
//! more than what the log has not got yet, a tenth of a second: what is there is never changed in place.

use crate::failure::Failure;
use crate::signals::{self, Second};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

static REQUESTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Exit code of a process that ended on Ctrl-C.
const EXIT_INTERRUPTED: i32 = 130;

/// Installs the handlers.
pub fn install() -> Result<(), Failure> {
    let requested = REQUESTED.get_or_init(Arc::default);
    signals::set_on_interrupt(requested, Second::Exits(EXIT_INTERRUPTED))
        .map_err(|error| Failure::Io("cannot handle Ctrl-C".to_owned(), error))
}

/// Whether the command was asked to stop.
pub fn requested() -> bool {
    // Relaxed: the flag carries no data with it.
    REQUESTED.get().is_some_and(|requested| requested.load(Ordering::Relaxed))
}

/// `Err` if the command was asked to stop; for loops that change nothing.
pub fn check() -> Result<(), Failure> {
    if requested() { Err(Failure::Interrupted(String::new())) } else { Ok(()) }
}
