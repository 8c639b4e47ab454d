//! Ctrl-C, `SIGTERM` and `SIGHUP`: stop soon and leave a valid store; a second one stops at once.
//!
//! The handler only sets a flag, which loops of the commands look at between records. Even the second signal loses no
//! more than what the log has not got yet, a tenth of a second: what is there is never changed in place. A signal that was
//! ignored when the program began, as by `nohup`, stays ignored.

use crate::failure::Failure;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

static REQUESTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Exit code of a process that ended on Ctrl-C.
const EXIT_INTERRUPTED: i32 = 130;

/// Installs the handlers.
pub fn install() -> Result<(), Failure> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    use signal_hook::flag;
    let requested = REQUESTED.get_or_init(Arc::default);
    let ignored = ignored_signals();
    for signal in
        [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0)
    {
        // In this order: the first signal finds the flag unset, and sets it.
        flag::register_conditional_shutdown(signal, EXIT_INTERRUPTED, Arc::clone(requested))
            .and_then(|_| flag::register(signal, Arc::clone(requested)))
            .map_err(|error| Failure::Io("cannot handle Ctrl-C".to_owned(), error))?;
    }
    Ok(())
}

/// A bit for each signal that this process ignores, the first for signal 1. Where the system does not tell, none.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
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
