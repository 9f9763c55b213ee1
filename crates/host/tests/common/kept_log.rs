//! A logger that keeps what is logged. A program has one logger.

use std::sync::{Mutex, Once};

/// The lines that were logged: level, event and text.
pub(crate) struct Kept(Mutex<Vec<String>>);

static KEPT: Kept = Kept(Mutex::new(Vec::new()));

impl log::Log for Kept {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }
    fn log(&self, record: &log::Record<'_>) {
        let event = record.key_values().get("event".into()).map(|v| v.to_string());
        let line = format!("{} {}: {}", record.level(), event.unwrap_or_default(), record.args());
        self.0.lock().unwrap().push(line);
    }
    fn flush(&self) {}
}

impl Kept {
    /// Keeps warnings and errors from now on. All tests of a program share the lines.
    pub(crate) fn warnings() -> &'static Kept {
        static SET: Once = Once::new();
        SET.call_once(|| {
            log::set_logger(&KEPT).unwrap();
            log::set_max_level(log::LevelFilter::Warn);
        });
        &KEPT
    }

    /// The lines that contain `what`.
    pub(crate) fn lines(&self, what: &str) -> Vec<String> {
        self.0.lock().unwrap().iter().filter(|l| l.contains(what)).cloned().collect()
    }
}
