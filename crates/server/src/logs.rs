//! The log of a server: one line for each event, on stderr, or with fields in systemd's journal if stderr goes there.
//! Repeated lines are counted: of lines about the same event of the same disk, one is written in a second.
//!
//! Lines go through the macros of `log`. The journal gets their fields (`event`, `disk`, `zone`, ...); on stderr the
//! text has the same information. A thread of its own writes them, so that a stalled reader blocks no other thread.
//! Lines that are too many for it are dropped and counted. No request waits for this code.

use log::kv::{Key, Value, VisitSource};
use log::{Level, LevelFilter, Log, Metadata, Record};
use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};
use systemd_journal_logger::{JournalLog, connected_to_journal};
use zoneplug_control::Outbox;
use zoneplug_control::said::{self, LAST_WORDS, To};
use zoneplug_control::{Attempt, Failure};
use zoneplug_core::plain;
use zoneplug_core::poison::lock;

/// Lines with the same key are written once in this time.
const WINDOW: Duration = Duration::from_secs(1);
/// Most keys that are remembered. Lines with further keys are not limited.
const MAX_KEYS: usize = 4096;

/// A record's level, text and fields as owned values.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Line {
    level: Level,
    text: String,
    /// Names in capitals, as in the journal.
    fields: Vec<(String, String)>,
}

struct Fields<'a>(&'a mut Vec<(String, String)>);

impl<'k> VisitSource<'k> for Fields<'_> {
    fn visit_pair(&mut self, key: Key<'k>, value: Value<'k>) -> Result<(), log::kv::Error> {
        let value = value.to_string();
        if !value.is_empty() {
            self.0.push((key.as_str().to_uppercase(), plain(&value).into_owned()));
        }
        Ok(())
    }
}

impl Line {
    fn of(record: &Record<'_>) -> Line {
        let mut fields = Vec::new();
        // The values are texts and numbers, so this does not fail.
        let _ = record.key_values().visit(&mut Fields(&mut fields));
        let text = plain(&record.args().to_string()).into_owned();
        Line { level: record.level(), text, fields }
    }

    fn field(&self, name: &str) -> &str {
        self.fields.iter().find(|(n, _)| n == name).map_or("", |(_, v)| v)
    }

    /// The key of equal lines: the event and its disk, or the text of a line without an event.
    fn key(&self) -> String {
        match self.field("EVENT") {
            "" => self.text.clone(),
            event => {
                let [disk, op, status] = ["DISK", "OP", "STATUS"].map(|n| self.field(n));
                format!("{event} {disk} {op} {status}")
            }
        }
    }

    /// The line as on stderr.
    fn shown(&self) -> String {
        let level = match self.level {
            Level::Error => "error",
            Level::Warn => "warning",
            Level::Info => "info",
            Level::Debug | Level::Trace => "debug",
        };
        format!("zoneplug: {level}: {}\n", self.text)
    }
}

/// The lines of a key in its current second.
#[derive(Debug)]
struct Seen {
    since: Duration,
    more: u32,
    last: Option<Line>,
}

/// Decides which lines are written. Time is an argument, counted from any start.
#[derive(Debug, Default)]
struct Limiter {
    seen: BTreeMap<String, Seen>,
}

impl Limiter {
    /// Returns `line` if it must be written now; else counts it.
    fn admit(&mut self, line: Line, now: Duration) -> Option<Line> {
        let key = line.key();
        match self.seen.get_mut(&key) {
            Some(seen) => {
                seen.more = seen.more.saturating_add(1);
                seen.last = Some(line);
                None
            }
            None => {
                if self.seen.len() < MAX_KEYS {
                    self.seen.insert(key, Seen { since: now, more: 0, last: None });
                }
                Some(line)
            }
        }
    }

    /// The last line of each key whose second is over, with the number of the others. `all`: for all keys.
    fn due(&mut self, now: Duration, all: bool) -> Vec<Line> {
        let mut out = Vec::new();
        self.seen.retain(|_, seen| {
            if !all && now.saturating_sub(seen.since) < WINDOW {
                return true;
            }
            let Some(mut line) = seen.last.take() else { return false };
            if seen.more > 1 {
                line.text += &format!(", and {} more like this", seen.more - 1);
            }
            out.push(line);
            // The line that is returned begins a new second.
            *seen = Seen { since: now, more: 0, last: None };
            true
        });
        out
    }

    /// The time at which the next counted line is due.
    fn next(&self) -> Option<Duration> {
        self.seen.values().filter(|s| s.more > 0).map(|s| s.since + WINDOW).min()
    }
}

/// The destination of lines.
enum Sink {
    Stderr,
    Journal(JournalLog),
}

impl Sink {
    fn put(&self, line: &Line) {
        match self {
            Sink::Stderr => {
                said::write(To::Stderr, line.shown().as_bytes());
            }
            Sink::Journal(journal) => {
                let fields: Vec<(&str, Value<'_>)> =
                    line.fields.iter().map(|(n, v)| (&**n, Value::from(&**v))).collect();
                let text = format_args!("{}", line.text);
                let mut record = Record::builder();
                let record = record.level(line.level).target("zoneplug").key_values(&fields);
                // `format_args` borrows for one statement, so the record is built here.
                let _ = journal.journal_send(&record.args(text).build());
            }
        }
    }
}

/// The logger of the process.
struct ServerLog {
    sink: Sink,
    start: Instant,
    limiter: Mutex<Limiter>,
    /// The queue to the writing thread.
    lines: Outbox<Line>,
}

impl ServerLog {
    /// Passes counted lines that are due, or all, to the writer. Returns the time until the next ones are due.
    fn send_due(&self, all: bool) -> Option<Duration> {
        let now = self.start.elapsed();
        let mut limiter = lock(&self.limiter);
        limiter.due(now, all).into_iter().for_each(|line| self.lines.put(line));
        limiter.next().map(|at| at.saturating_sub(now))
    }

    /// Writes lines as long as the process lives.
    fn write(&self) {
        loop {
            let next = self.send_due(false);
            if let Some(line) = self.lines.take(next) {
                self.sink.put(&line);
            }
            let lost = self.lines.take_lost();
            if lost > 0 {
                log::warn!(event = "lines-lost", count = lost; "{}", lines_lost(lost));
            }
        }
    }
}

fn lines_lost(lost: u64) -> String {
    format!("{lost} lines of the log are lost: its reader was too slow")
}

static LOG: OnceLock<ServerLog> = OnceLock::new();

impl Log for ServerLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        // Other libraries may use the same macros; operators need only the server's own lines.
        if !record.target().starts_with("zoneplug") || !self.enabled(record.metadata()) {
            return;
        }
        let admitted = lock(&self.limiter).admit(Line::of(record), self.start.elapsed());
        match admitted {
            Some(line) => self.lines.put(line),
            // Wakes the writer, so that it learns when the line is due.
            None => self.lines.nudge(),
        }
    }

    fn flush(&self) {}
}

/// Starts logging to the destination of stderr.
pub fn start(level: Option<LevelFilter>) -> Result<(), Failure> {
    let journal = connected_to_journal().then(JournalLog::empty).and_then(Result::ok);
    let usual = if journal.is_some() { LevelFilter::Info } else { LevelFilter::Warn };
    let sink = match journal {
        Some(journal) => Sink::Journal(journal.with_syslog_identifier("zoneplug".to_owned())),
        None => Sink::Stderr,
    };
    let log = LOG.get_or_init(|| ServerLog {
        sink,
        start: Instant::now(),
        limiter: Mutex::default(),
        lines: Outbox::new(),
    });
    log::set_logger(log).map_err(|e| Failure::io(e.to_string()))?;
    log::set_max_level(level.unwrap_or(usual));
    Ok(())
}

/// Starts the writing thread. Earlier lines wait for it.
pub fn write() -> Result<(), Failure> {
    let Some(log) = LOG.get() else { return Ok(()) };
    let writer = std::thread::Builder::new().name("zoneplug-log".to_owned());
    writer
        .spawn(|| log.write())
        .map(drop)
        .map_err(|e| Failure::of_system(Attempt::Thread, "no thread for the log", e))
}

/// Writes all waiting and counted lines. Waits at most a second for the reader of the log.
pub fn finish() {
    let Some(log) = LOG.get() else { return };
    log.send_due(true);
    let lost = log.lines.finish(LAST_WORDS);
    if lost > 0 && matches!(log.sink, Sink::Journal(_)) {
        // The journal stalls, but stderr may not.
        said::say(To::Stderr, format!("zoneplug: {}\n", lines_lost(lost)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(event: &str, zone: u32) -> Line {
        let fields = [("EVENT", event.to_owned()), ("DISK", "ublkb0".to_owned())];
        let mut fields: Vec<(String, String)> =
            fields.into_iter().map(|(n, v)| (n.to_owned(), v)).collect();
        fields.push(("ZONE".to_owned(), zone.to_string()));
        Line { level: Level::Error, text: format!("ublkb0: zone {zone} is stale"), fields }
    }

    fn texts(lines: impl IntoIterator<Item = Line>) -> Vec<String> {
        lines.into_iter().map(|l| l.text).collect()
    }

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn of_what_repeats_a_line_goes_out_each_second_with_the_number_of_the_others() {
        let mut limiter = Limiter::default();
        let stale =
            |limiter: &mut Limiter, zone, at| texts(limiter.admit(line("stale", zone), MS(at)));
        assert_eq!(stale(&mut limiter, 1, 0), ["ublkb0: zone 1 is stale"]);
        assert_eq!(limiter.next(), None, "nothing was counted");
        for zone in 2..=256 {
            assert_eq!(stale(&mut limiter, zone, u64::from(zone)), [""; 0]);
        }
        // A line does not limit other events.
        assert_eq!(texts(limiter.admit(line("failed", 9), MS(500))), ["ublkb0: zone 9 is stale"]);
        assert_eq!(limiter.next(), Some(MS(1000)));
        assert_eq!(texts(limiter.due(MS(999), false)), [""; 0]);
        let due = texts(limiter.due(MS(1000), false));
        assert_eq!(due, ["ublkb0: zone 256 is stale, and 254 more like this"]);
        // The line returned before has begun a second of its own.
        assert_eq!(stale(&mut limiter, 300, 1500), [""; 0]);
        assert_eq!(texts(limiter.due(MS(1999), false)), [""; 0]);
        assert_eq!(texts(limiter.due(MS(2000), false)), ["ublkb0: zone 300 is stale"]);
        assert_eq!(texts(limiter.due(MS(3000), false)), [""; 0]);
        assert!(limiter.seen.is_empty(), "what is over is forgotten");
        assert_eq!(stale(&mut limiter, 301, 3001), ["ublkb0: zone 301 is stale"]);
    }

    /// A storm of ten seconds gives one line a second, and the lines count every event.
    #[test]
    fn nothing_is_logged_twice_a_second_and_nothing_is_lost() {
        let (mut limiter, mut out) = (Limiter::default(), Vec::new());
        for at in 0..10_000 {
            out.extend(limiter.admit(line("stale", 1), MS(at)).map(|l| (at, l.text)));
            out.extend(limiter.due(MS(at), false).into_iter().map(|l| (at, l.text)));
        }
        out.extend(limiter.due(MS(10_000), true).into_iter().map(|l| (10_000, l.text)));
        let gaps: Vec<u64> = out.windows(2).map(|w| w[1].0 - w[0].0).collect();
        assert!(gaps.iter().all(|g| *g >= 1000), "{out:?}");
        let of = |text: &str| {
            let more = text
                .split(", and ")
                .nth(1)
                .map_or(0, |m| m.split(' ').next().unwrap().parse().unwrap());
            1 + more
        };
        assert_eq!(out.iter().map(|(_, text)| of(text)).sum::<u32>(), 10_000);
        assert_eq!(out.len(), 11);
    }

    #[test]
    fn a_line_is_one_line_whatever_is_in_it() {
        let record = |text: &'static str| {
            let fields = [("event", Value::from("refused")), ("disk", Value::from("a\nb"))];
            Line::of(
                &Record::builder()
                    .level(Level::Warn)
                    .args(format_args!("{text}"))
                    .key_values(&fields)
                    .build(),
            )
        };
        let line = record("a\nb\x1b[2J");
        assert_eq!(line.shown(), "zoneplug: warning: a\\nb\\u{1b}[2J\n");
        assert_eq!((line.field("EVENT"), line.field("DISK")), ("refused", "a\\nb"));
    }
}
