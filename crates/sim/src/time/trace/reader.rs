//! Turns lines into events. Owns the current line, counts of skipped lines, and the clock of the trace.

use super::{Format, Line, MAX_TIME, Raw, TraceEvent, Wrong, blkparse, csv, iolog, shown};
use std::io::{BufRead, Read};
use zoneplug_core::{Error, ErrorKind, Nanos};

/// Which events of the block layer are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Events {
    /// `Q`: requests of programs, before merging.
    #[default]
    Queued,
    /// `D`: commands that were sent to the driver.
    Issued,
}

impl Events {
    fn letter(self) -> u8 {
        match self {
            Events::Queued => b'Q',
            Events::Issued => b'D',
        }
    }
}

/// What was read so far, besides the events.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    /// Number of lines.
    pub lines: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// Lines of no known form.
    pub unknown: u64,
    /// The number of the first line of no known form.
    pub first_unknown: Option<u64>,
    /// Operations of other devices.
    pub elsewhere: u64,
    /// Events with a time before that of the event above them.
    pub backwards: u64,
    /// The time of the last completion after the first event.
    pub last_completion: Option<Nanos>,
}

/// How lines are read.
#[derive(Debug)]
enum Form {
    Blkparse,
    Iolog2,
    Iolog3,
    Csv(csv::Columns),
}

/// Longest line of a trace, in bytes.
const MAX_LINE: u64 = 64 << 10;
/// A text with this many lines of no known form is not a trace.
const PATIENCE: u64 = 1000;

/// A reader of a trace.
///
/// ```
/// use zoneplug_core::Op;
/// use zoneplug_sim::time::trace::{Events, Reader};
/// let text = "fio version 3 iolog\n5 /dev/sda add\n9 /dev/sda write 4096 8192\n";
/// let mut trace = Reader::new(text.as_bytes(), Events::Queued, None).unwrap();
/// let event = trace.next_event().unwrap().unwrap();
/// assert_eq!((event.op, event.sector, event.sectors, event.line), (Op::Write, 8, 16, 3));
/// assert!(trace.next_event().unwrap().is_none());
/// let e = Reader::new(&b""[..], Events::Queued, None).unwrap_err();
/// assert!(e.what_to_try().is_some());
/// ```
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    form: Form,
    events: Events,
    /// The device or file whose operations are taken: the one that was asked for, or that of the first
    /// operation.
    device: Option<Vec<u8>>,
    asked: bool,
    line: Vec<u8>,
    /// The current line was read to detect the format, and is used again.
    again: bool,
    /// The time of the first event, the sum of the waits, and the time of the last event.
    start: Option<Nanos>,
    waited: Nanos,
    last: Nanos,
    /// Lines of the format so far.
    known: u64,
    seen: Seen,
}

impl<R: BufRead> Reader<R> {
    /// Detects the format. `device` names the device whose operations are taken, as the trace does; it must be given
    /// if there are several. Fails if the text is empty, compressed or binary, or cannot be read.
    pub fn new(input: R, events: Events, device: Option<&str>) -> Result<Reader<R>, Error> {
        let mut reader = Reader {
            input,
            form: Form::Blkparse,
            events,
            device: device.map(|d| d.as_bytes().to_vec()),
            asked: device.is_some(),
            line: Vec::new(),
            again: false,
            start: None,
            waited: Nanos(0),
            last: Nanos(0),
            known: 0,
            seen: Seen::default(),
        };
        if !reader.read_line()? {
            return Err(Error::invalid("the trace is empty")
                .hint("blkparse -i sda > FILE, or fio --write_iolog=FILE"));
        }
        let binary = |what: &str, hint: &str| Err(Error::invalid(what).hint(hint));
        match reader.line.trim_ascii() {
            b"fio version 2 iolog" => reader.form = Form::Iolog2,
            b"fio version 3 iolog" => reader.form = Form::Iolog3,
            [0x1f, 0x8b, ..] => {
                return binary("the trace is compressed", "zcat FILE > FILE.txt, and that");
            }
            // The magic number of a binary trace that blkparse has not read yet, in both byte orders.
            [_, b't', b'a', b'e', ..] | [b'e', b'a', b't', _, ..] => {
                return binary(
                    "the trace is blktrace's own, and binary",
                    "blkparse -i FILE > FILE.txt, and that",
                );
            }
            line => match csv::Columns::of(line) {
                Some(columns) => reader.form = Form::Csv(columns),
                None => reader.again = true,
            },
        }
        Ok(reader)
    }

    /// The format of the trace.
    pub fn format(&self) -> Format {
        match self.form {
            Form::Blkparse => Format::Blkparse,
            Form::Iolog2 => Format::Iolog2,
            Form::Iolog3 => Format::Iolog3,
            Form::Csv(_) => Format::Csv,
        }
    }

    /// What was read so far.
    pub fn seen(&self) -> &Seen {
        &self.seen
    }

    /// The next operation; `None` at the end. Fails if the file cannot be read or is not a trace, if a line has
    /// impossible numbers, or if there are several devices and none was named.
    pub fn next_event(&mut self) -> Result<Option<TraceEvent>, Error> {
        while std::mem::take(&mut self.again) || self.read_line()? {
            let n = self.seen.lines;
            let read = match &self.form {
                Form::Blkparse => blkparse::line(&self.line, self.events.letter()),
                Form::Iolog2 => iolog::line(&self.line, false),
                Form::Iolog3 => iolog::line(&self.line, true),
                Form::Csv(columns) => csv::line(&self.line, columns),
            };
            let event = match read.map_err(|e| in_line(n, e))? {
                Line::Event(device, raw) => {
                    self.known += 1;
                    match &self.device {
                        Some(d) if d == device => {}
                        Some(_) if self.asked => {
                            self.seen.elsewhere += 1;
                            continue;
                        }
                        Some(d) => {
                            let what =
                                format!("a second device {} beside {}", shown(device), shown(d));
                            let e = in_line(n, (what, ""));
                            let name = String::from_utf8_lossy(d).into_owned();
                            return Err(e.hint(format!("--device {name}: one at a time")));
                        }
                        None => self.device = Some(device.to_vec()),
                    }
                    raw
                }
                Line::Wait(span) => {
                    self.known += 1;
                    self.waited = Nanos((self.waited.0 + span.0).min(MAX_TIME));
                    continue;
                }
                Line::Completion(device, at) => {
                    self.known += 1;
                    if let (Some(d), Some(start)) = (&self.device, self.start)
                        && d == device
                    {
                        let at = Nanos(at.0.saturating_sub(start.0));
                        self.seen.last_completion = self.seen.last_completion.max(Some(at));
                    }
                    continue;
                }
                Line::Other => {
                    self.known += u64::from(!self.line.trim_ascii().is_empty());
                    continue;
                }
                Line::Unknown => {
                    self.unknown()?;
                    continue;
                }
            };
            return Ok(Some(self.event(event)));
        }
        Ok(None)
    }

    fn event(&mut self, raw: Raw) -> TraceEvent {
        let Raw { op, fua, preflush, sector, sectors, at } = raw;
        let start = *self.start.get_or_insert(at);
        let at = Nanos(at.0.saturating_sub(start.0) + self.waited.0);
        self.seen.backwards += u64::from(at < self.last);
        self.last = self.last.max(at);
        TraceEvent { line: self.seen.lines, at: self.last, op, fua, preflush, sector, sectors }
    }

    #[cold]
    fn unknown(&mut self) -> Result<(), Error> {
        let n = self.seen.lines;
        self.seen.unknown += 1;
        self.seen.first_unknown.get_or_insert(n);
        if self.known == 0 && n >= PATIENCE {
            return Err(no_trace(&self.seen));
        }
        Ok(())
    }

    /// Reads a line; `false` at the end.
    fn read_line(&mut self) -> Result<bool, Error> {
        self.line.clear();
        let mut part = self.input.by_ref().take(MAX_LINE);
        let n = part.read_until(b'\n', &mut self.line).map_err(|e| {
            let what = format!("reading the trace after line {}: {e}", self.seen.lines);
            Error::new(ErrorKind::Io, what).hint("look at the file").source(e)
        })?;
        self.seen.bytes += n as u64;
        self.seen.lines += u64::from(n > 0);
        if n as u64 == MAX_LINE && self.line.last() != Some(&b'\n') {
            let wrong = ("a line of more than 64 KiB".to_owned(), "a trace as text");
            return Err(in_line(self.seen.lines, wrong));
        }
        Ok(n > 0)
    }
}

fn in_line(line: u64, (what, hint): Wrong) -> Error {
    Error::invalid(format!("line {line} of the trace: {what}")).hint(hint)
}

/// The error for a text of no known format.
pub(super) fn no_trace(seen: &Seen) -> Error {
    if seen.elsewhere > 0 {
        let what = format!("{} operations, and none of that device", seen.elsewhere);
        return Error::invalid(what)
            .hint("--device as the trace names it: 8,16 or the name of the file");
    }
    let what = match seen.first_unknown {
        Some(line) => {
            format!("no operation in {} lines; line {line} is of no known format", seen.lines)
        }
        None => format!("no operation in {} lines", seen.lines),
    };
    Error::invalid(what).hint(
        "the output of blkparse with events Q (or --events d), an iolog of fio, version 2 or 3, or a table with the \
         titles time_us,op,offset,length",
    )
}
