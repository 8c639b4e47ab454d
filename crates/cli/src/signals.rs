//! Ctrl-C, `SIGTERM` and, where there is one, `SIGHUP` set a flag. A signal that was ignored when the program began, as by `nohup`, stays ignored.
//!
//! The tool, the benchmarks and the program of power cuts share this file. The flag carries no data: whoever looks at it may do so
//! with relaxed ordering. Any thread may call.

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

#[cfg(unix)]
const SIGNALS: [i32; 3] = [SIGINT, SIGTERM, signal_hook::consts::SIGHUP];
#[cfg(not(unix))]
const SIGNALS: [i32; 2] = [SIGINT, SIGTERM];

/// What another signal does once the flag is set.
#[derive(Clone, Copy, Debug)]
#[allow(dead_code, reason = "each program that shares this file has one of the two")]
pub enum Second {
    /// It ends the process at once, with this exit code.
    Exits(i32),
    /// It changes nothing.
    ChangesNothing,
}

/// Lets the signals set `flag` from now on. Errors: those of the system.
pub fn set_on_interrupt(flag: &Arc<AtomicBool>, second: Second) -> io::Result<()> {
    let ignored = ignored_signals();
    for signal in SIGNALS.into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0) {
        // Before the other: the first signal finds the flag unset.
        if let Second::Exits(code) = second {
            flag::register_conditional_shutdown(signal, code, Arc::clone(flag))?;
        }
        flag::register(signal, Arc::clone(flag))?;
    }
    Ok(())
}

/// A bit for each signal that this process ignores, the first for signal 1. None where the system does not tell.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
