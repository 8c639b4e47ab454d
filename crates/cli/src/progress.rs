//! Progress bars: on standard error, and only if that is a terminal.

use crate::size::show_per_second;
pub use indicatif::ProgressBar;
use indicatif::{ProgressDrawTarget, ProgressState, ProgressStyle};
use std::fmt::Write;
use std::io::IsTerminal;
use std::time::Duration;

/// A bar for `total` steps; invisible unless standard error is a terminal.
pub fn bar(total: u64, what: &'static str) -> ProgressBar {
    let style = "{msg:10} {wide_bar} {human_pos}/{human_len}  {rate}  {eta} left";
    styled(ProgressBar::with_draw_target(Some(total), target()), style, what)
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
    if std::io::stderr().is_terminal() {
        ProgressDrawTarget::stderr_with_hz(10)
    } else {
        ProgressDrawTarget::hidden()
    }
}

fn styled(bar: ProgressBar, template: &str, what: &'static str) -> ProgressBar {
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
