//! Ctrl-C, `SIGTERM` and `SIGHUP`: stop soon and leave a valid store; a second one stops at once.
//!
//! A command that looks says so by [`look`]. From then on the first signal only sets a flag, which its loops look at between records.
//! Any other command the first signal ends at once. Even that loses no
//! more than what the log has not got yet, a tenth of a second: what is there is never changed in place.

use crate::failure::Failure;
use crate::signals::{self, Second};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Whether the next signal ends the process: it does unless somebody looks, and then from the first signal on.
static ENDS: OnceLock<Arc<AtomicBool>> = OnceLock::new();
static LOOKS: AtomicBool = AtomicBool::new(false);

/// Exit code of a process that ended on Ctrl-C.
const EXIT_INTERRUPTED: i32 = 130;

/// Installs the handlers.
pub fn install() -> Result<(), Failure> {
    let ends = ENDS.get_or_init(|| Arc::new(AtomicBool::new(true)));
    signals::set_on_interrupt(ends, Second::Exits(EXIT_INTERRUPTED))
        .map_err(|error| Failure::Io("cannot handle Ctrl-C".to_owned(), error))
}

/// The command looks from now on whether it was asked to stop. Called once, before it has begun anything that it must not leave behind.
pub fn look() {
    if let Some(ends) = ENDS.get() {
        ends.store(false, Ordering::Relaxed);
    }
    LOOKS.store(true, Ordering::Relaxed);
}

/// Whether the command was asked to stop since [`look`].
pub fn requested() -> bool {
    // Relaxed: the flags carry no data with them, and the threads of a command begin after it looks.
    LOOKS.load(Ordering::Relaxed) && ENDS.get().is_some_and(|ends| ends.load(Ordering::Relaxed))
}

/// `Err` if the command was asked to stop; for loops that change nothing.
pub fn check() -> Result<(), Failure> {
    if requested() { Err(Failure::Interrupted(String::new())) } else { Ok(()) }
}
