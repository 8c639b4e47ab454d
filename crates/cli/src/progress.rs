//! Progress bars: on standard error, and only if that is a terminal.

pub use indicatif::ProgressBar;
use indicatif::{ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;

/// A bar for `total` steps; invisible unless standard error is a terminal.
pub fn bar(total: u64, what: &'static str) -> ProgressBar {
    let style = "{msg:10} {wide_bar} {human_pos}/{human_len}  {per_sec}  {eta} left";
    styled(ProgressBar::with_draw_target(Some(total), target()), style, what)
}

/// A counter for a number of steps that nobody knows beforehand.
pub fn counter(what: &'static str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, target());
    let bar = styled(bar, "{spinner} {msg} {human_pos}  {per_sec}  {elapsed}", what);
    if !bar.is_hidden() {
        bar.enable_steady_tick(Duration::from_millis(100));
    }
    bar
}

fn target() -> ProgressDrawTarget {
    if std::io::stderr().is_terminal() {
        ProgressDrawTarget::stderr_with_hz(10)
    } else {
        ProgressDrawTarget::hidden()
    }
}

fn styled(bar: ProgressBar, template: &str, what: &'static str) -> ProgressBar {
    // A template that does not parse would be a mistake in this file; the bar then keeps its own.
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style).with_message(what),
        Err(_) => bar.with_message(what),
    }
}
