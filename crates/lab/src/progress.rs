//! A bar on a terminal; nothing in a pipe.

use indicatif::{ProgressBar, ProgressStyle};
use std::time::Duration;
use zoneplug_core::plain;

/// A progress bar. It is drawn only between measurements, so that it costs them nothing.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// A bar for a run that takes about `total`.
    pub(crate) fn new(total: Duration) -> Progress {
        // indicatif draws on stderr, and only if that is a terminal.
        let bar = ProgressBar::new(total.as_millis() as u64);
        let style = ProgressStyle::with_template("  {bar:40} {percent:>3}%  {elapsed} {wide_msg}");
        if let Ok(style) = style {
            bar.set_style(style);
        }
        Progress(bar)
    }

    /// Shows the current step.
    pub(crate) fn say(&self, what: impl Into<String>) {
        self.0.set_message(plain(&what.into()).into_owned());
    }

    /// Advances the bar by `time`.
    pub(crate) fn done(&self, time: Duration) {
        self.0.inc(time.as_millis() as u64);
    }

    /// Hides the bar while `f` prints.
    pub(crate) fn aside<T>(&self, f: impl FnOnce() -> T) -> T {
        self.0.suspend(f)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
