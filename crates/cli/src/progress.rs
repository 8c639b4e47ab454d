//! Progress bars: on standard error, and only if that is a terminal and `--quiet` was not said.
//!
//! There is one at a time. Any thread may write a line beside it: the bar makes room, and is drawn again below. A bar asks nothing of the
//! engine, so a line may be written with locks of the engine held.

use crate::size::show_per_second;
use hedgerow::Database;
pub use indicatif::ProgressBar;
use indicatif::{ProgressDrawTarget, ProgressState, ProgressStyle, WeakProgressBar};
use std::fmt::Write;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Whether no bar is shown. Relaxed: it is set before there is one.
static IS_QUIET: AtomicBool = AtomicBool::new(false);
/// The bar that was made last.
static LAST: Mutex<Option<WeakProgressBar>> = Mutex::new(None);

/// No bar is shown from now on.
pub fn hide() {
    IS_QUIET.store(true, Ordering::Relaxed);
}

/// Writes a line to standard error, where a bar may be.
pub fn beside<T>(write: impl FnOnce() -> T) -> T {
    let last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    let bar = last.as_ref().and_then(WeakProgressBar::upgrade);
    drop(last);
    match bar {
        Some(bar) => bar.suspend(write),
        None => write(),
    }
}

/// A bar for `total` steps; invisible unless standard error is a terminal.
pub fn bar(total: u64, what: &'static str) -> ProgressBar {
    let style = "{msg:10} {wide_bar} {human_pos}/{human_len}  {rate}  {eta} left";
    styled(ProgressBar::with_draw_target(Some(total), target()), style, what)
}

/// A [`counter`] while data goes to standard output, where a bar would be among it if both are one terminal.
pub fn counter_beside_data(what: &'static str) -> ProgressBar {
    match std::io::stdout().is_terminal() {
        true => ProgressBar::hidden(),
        false => counter(what),
    }
}

/// A bar for all pages of a store, which are about as many as it says.
pub fn of_pages(db: &Database, what: &'static str) -> ProgressBar {
    match db.stats() {
        Ok(stats) => bar(stats.pages, what),
        Err(_) => counter(what),
    }
}

/// A counter for a number of steps that nobody knows beforehand.
pub fn counter(what: &'static str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, target());
    let bar = styled(bar, "{spinner} {msg} {human_pos}  {rate}  {elapsed}", what);
    if !bar.is_hidden() {
        bar.enable_steady_tick(Duration::from_millis(100));
    }
    bar
}

fn target() -> ProgressDrawTarget {
    if std::io::stderr().is_terminal() && !IS_QUIET.load(Ordering::Relaxed) {
        ProgressDrawTarget::stderr_with_hz(10)
    } else {
        ProgressDrawTarget::hidden()
    }
}

fn styled(bar: ProgressBar, template: &str, what: &'static str) -> ProgressBar {
    if !bar.is_hidden() {
        *LAST.lock().unwrap_or_else(PoisonError::into_inner) = Some(bar.downgrade());
    }
    // A template that does not parse would be a mistake in this file; the bar then keeps its own.
    match ProgressStyle::with_template(template) {
        Ok(style) => {
            // The bar's own rate has four digits behind the point.
            let rate = |state: &ProgressState, to: &mut dyn Write| {
                let _ = to.write_str(&show_per_second(state.per_sec()));
            };
            bar.with_style(style.with_key("rate", rate)).with_message(what)
        }
        Err(_) => bar.with_message(what),
    }
}
