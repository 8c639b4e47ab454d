//! Ctrl-C, `SIGTERM` and `SIGHUP`: stop soon and leave a valid store; a second one stops at once.
//!
//! The handler only sets a flag, which loops of the commands look at between records. Even the second signal loses no
//! more than what the log has not got yet, a tenth of a second: what is there is never changed in place.

use crate::failure::Failure;
use std::sync::atomic::{AtomicBool, Ordering};

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Exit code of a process that ended on Ctrl-C.
const EXIT_INTERRUPTED: i32 = 130;

/// Installs the handler.
pub fn install() -> Result<(), Failure> {
    ctrlc::set_handler(|| {
        // Relaxed: the flag carries no data with it.
        if REQUESTED.swap(true, Ordering::Relaxed) {
            std::process::exit(EXIT_INTERRUPTED);
        }
    })
    .map_err(|error| Failure::Other(format!("cannot handle Ctrl-C: {error}")))
}

/// Whether the command was asked to stop.
pub fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}

/// `Err` if the command was asked to stop; for loops that change nothing.
pub fn check() -> Result<(), Failure> {
    if requested() { Err(Failure::Interrupted(String::new())) } else { Ok(()) }
}
