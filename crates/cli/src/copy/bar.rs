//! The progress of a copy: a bar if the length is known, else a count; nothing in a pipe.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Draws on stderr, if that is a terminal.
pub(super) struct Bar(ProgressBar);

impl Bar {
    pub(super) fn new(total: Option<u64>) -> Bar {
        let (bar, form) = match total {
            Some(n) => (
                ProgressBar::new(n),
                "  {bar:40} {percent:>3}%  {binary_bytes}/{binary_total_bytes}  {binary_bytes_per_sec}  {eta} left",
            ),
            None => (
                ProgressBar::no_length(),
                "  {spinner} {binary_bytes}  {binary_bytes_per_sec}  {elapsed}",
            ),
        };
        bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(10));
        if let Ok(style) = ProgressStyle::with_template(form) {
            bar.set_style(style);
        }
        Bar(bar)
    }

    pub(super) fn done(&self, bytes: u64) {
        self.0.inc(bytes);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
