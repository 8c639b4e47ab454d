//! Lines that a protocol depends on. Models and tests can leave out one at a time, and must notice.
//!
//! A build with `--cfg hedgerow_canaries` has them all, and the environment variable `HEDGEROW_CANARY` names the one
//! that is left out: one build for all of them, where a flag for each would be a build for each. In any other build
//! none is, and the question costs nothing.
//!
//! An unknown name is an error: otherwise it would look like a bug that no test notices. The build gets the list of known names from
//! `cargo xtask seeded-bugs`, in `HEDGEROW_CANARIES`, separated by commas. So there is only one list. `Send + Sync`.

#[cfg(hedgerow_canaries)]
use std::io::Write;
// The standard library's: the question is no step of a model.
#[cfg(hedgerow_canaries)]
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Somebody has asked, and nothing is left out: the rest need not look at names, in loops that are run for each byte.
#[cfg(hedgerow_canaries)]
static IS_WHOLE: AtomicBool = AtomicBool::new(false);

/// Whether the line of this name is left out. Ends the process, as for wrong arguments, if the environment names an unknown
/// line.
#[cfg(hedgerow_canaries)]
#[inline(always)]
pub fn leaves_out(name: &str) -> bool {
    !IS_WHOLE.load(Relaxed) && is_chosen(name)
}

#[cfg(hedgerow_canaries)]
#[cold]
fn is_chosen(name: &str) -> bool {
    static CHOSEN: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    let chosen = CHOSEN.get_or_init(|| {
        if let Some(words) = refusal() {
            // Not by a macro: what those say a harness keeps to itself.
            let _ = std::io::stderr().write_all(format!("\n{words}\n").as_bytes());
            std::process::exit(2);
        }
        let chosen = std::env::var(CHOICE).unwrap_or_default();
        IS_WHOLE.store(chosen.is_empty(), Relaxed);
        chosen
    });
    chosen == name
}

/// Whether the line of this name is left out.
#[cfg(not(hedgerow_canaries))]
#[inline(always)]
#[must_use]
pub const fn leaves_out(_: &str) -> bool {
    false
}

/// The environment's word for the line that is left out; empty for none.
const CHOICE: &str = "HEDGEROW_CANARY";

/// The message for a wrong choice: of an unknown line, or of any line in a build without seeded bugs.
pub fn refusal() -> Option<String> {
    let chosen = std::env::var_os(CHOICE).filter(|chosen| !chosen.is_empty())?;
    let known = chosen.to_str().is_some_and(is_known);
    (!known)
        .then(|| format!("WRONG ARGUMENT: {CHOICE}={chosen:?}, which this build cannot leave out"))
}

fn is_known(name: &str) -> bool {
    #[cfg(hedgerow_canaries)]
    let known = env!("HEDGEROW_CANARIES", "build with `cargo xtask seeded-bugs`");
    #[cfg(not(hedgerow_canaries))]
    let known = "";
    known.split(',').any(|known| known == name)
}
