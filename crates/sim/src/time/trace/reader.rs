//! Turns lines and records into events. Owns the current line, counts of what was skipped, and the clock of the trace.

use super::{
    Events, Format, Line, MAX_TIME, Raw, Seen, TraceEvent, Wrong, blkparse, blktrace, csv, iolog,
    shown,
};
use std::io::{self, BufRead, Read};
use zoneplug_core::{Error, ErrorKind, Nanos};

/// How lines or records are read.
#[derive(Debug)]
enum Form {
    Blktrace(blktrace::Records),
    Blkparse,
    Iolog2,
    Iolog3,
    Csv(csv::Columns),
}

/// Longest line of a trace, in bytes.
const MAX_LINE: u64 = 64 << 10;
/// A text with this many lines of no known form is not a trace.
const PATIENCE: u64 = 1000;

/// A file, and in front of it the bytes that were read to detect the format.
type Input<R> = io::Chain<io::Cursor<Vec<u8>>, R>;

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
    /// More than one: blktrace's.
    inputs: Vec<Input<R>>,
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
    /// if there are several. Fails if the file is empty, compressed or of no known format, or cannot be read.
    pub fn new(input: R, events: Events, device: Option<&str>) -> Result<Reader<R>, Error> {
        Reader::of_files(vec![input], events, device)
    }

    /// The same for several files that are one trace: blktrace writes one for each processor. Their records are taken in
    /// the order of their times.
    pub fn of_files(
        files: Vec<R>,
        events: Events,
        device: Option<&str>,
    ) -> Result<Reader<R>, Error> {
        let mut inputs = Vec::new();
        let mut is_binary = false;
        for mut file in files {
            let mut head = Vec::new();
            file.by_ref().take(4).read_to_end(&mut head).map_err(|e| unreadable(0, e))?;
            // blktrace's file of a processor that did nothing.
            if !head.is_empty() {
                is_binary |= blktrace::is_magic(&head);
                inputs.push(io::Cursor::new(head).chain(file));
            }
        }
        let form = match is_binary || inputs.len() > 1 {
            true => Form::Blktrace(blktrace::Records::new(events, inputs.len())),
            false => Form::Blkparse,
        };
        let mut reader = Reader {
            // Its first four bytes say that it is a trace.
            known: u64::from(is_binary),
            inputs,
            form,
            events,
            device: device.map(|d| d.as_bytes().to_vec()),
            asked: device.is_some(),
            line: Vec::new(),
            again: false,
            start: None,
            waited: Nanos(0),
            last: Nanos(0),
            seen: Seen::default(),
        };
        if let Form::Blktrace(_) = reader.form {
            return Ok(reader);
        }
        if !reader.read_line()? {
            return Err(Error::invalid("the trace is empty")
                .hint("blktrace -d /dev/sda, blkparse -i sda > FILE, or fio --write_iolog=FILE"));
        }
        match reader.line.trim_ascii() {
            b"fio version 2 iolog" => reader.form = Form::Iolog2,
            b"fio version 3 iolog" => reader.form = Form::Iolog3,
            [0x1f, 0x8b, ..] => {
                return Err(Error::invalid("the trace is compressed")
                    .hint("zcat FILE > FILE.out, and that"));
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
            Form::Blktrace(_) => Format::Blktrace,
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
        let unit = self.format().unit();
        loop {
            let is_text = !matches!(self.form, Form::Blktrace(_));
            if is_text && !std::mem::take(&mut self.again) && !self.read_line()? {
                return Ok(None);
            }
            let mut n = self.seen.lines;
            let read = match &mut self.form {
                Form::Blktrace(records) => match records.next(&mut self.inputs, &mut self.seen)? {
                    Some((number, record)) => {
                        n = number;
                        Ok(record)
                    }
                    None => return Ok(None),
                },
                Form::Blkparse => blkparse::line(&self.line, self.events.letter()),
                Form::Iolog2 => iolog::line(&self.line, false),
                Form::Iolog3 => iolog::line(&self.line, true),
                Form::Csv(columns) => csv::line(&self.line, columns),
            };
            let event = match read.map_err(|e| in_line(unit, n, e))? {
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
                            let e = in_line(unit, n, (what, ""));
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
                Line::Unclear => {
                    self.known += 1;
                    self.seen.unclear += 1;
                    continue;
                }
                Line::Unknown => {
                    self.unknown()?;
                    continue;
                }
            };
            return Ok(Some(self.event(n, event)));
        }
    }

    fn event(&mut self, line: u64, raw: Raw) -> TraceEvent {
        let Raw { op, fua, preflush, sector, sectors, at } = raw;
        let start = *self.start.get_or_insert(at);
        let at = Nanos(at.0.saturating_sub(start.0) + self.waited.0);
        self.seen.backwards += u64::from(at < self.last);
        self.last = self.last.max(at);
        TraceEvent { line, at: self.last, op, fua, preflush, sector, sectors }
    }

    #[cold]
    fn unknown(&mut self) -> Result<(), Error> {
        let n = self.seen.lines;
        self.seen.unknown += 1;
        self.seen.first_unknown.get_or_insert(n);
        if self.known == 0 && n >= PATIENCE {
            return Err(no_trace(self.format(), &self.seen));
        }
        Ok(())
    }

    /// Reads a line; `false` at the end.
    fn read_line(&mut self) -> Result<bool, Error> {
        self.line.clear();
        let Some(input) = self.inputs.first_mut() else { return Ok(false) };
        let mut part = input.by_ref().take(MAX_LINE);
        let n = part.read_until(b'\n', &mut self.line);
        let n = n.map_err(|e| unreadable(self.seen.lines, e))?;
        self.seen.bytes += n as u64;
        self.seen.lines += u64::from(n > 0);
        if n as u64 == MAX_LINE && self.line.last() != Some(&b'\n') {
            let wrong = ("a line of more than 64 KiB".to_owned(), "a trace as text");
            return Err(in_line("line", self.seen.lines, wrong));
        }
        Ok(n > 0)
    }
}

fn unreadable(line: u64, e: io::Error) -> Error {
    let what = format!("reading the trace after line {line}: {e}");
    Error::new(ErrorKind::Io, what).hint("look at the file").source(e)
}

fn in_line(unit: &str, line: u64, (what, hint): Wrong) -> Error {
    Error::invalid(format!("{unit} {line} of the trace: {what}")).hint(hint)
}

/// The error for a file without operations.
pub(super) fn no_trace(format: Format, seen: &Seen) -> Error {
    let unit = format.unit();
    if seen.elsewhere > 0 {
        let what = format!("{} operations, and none of that device", seen.elsewhere);
        return Error::invalid(what)
            .hint("--device as the trace names it: 8,16 or the name of the file");
    }
    let what = match seen.first_unknown {
        Some(line) => {
            format!("no operation in {} {unit}s; {unit} {line} is of no known format", seen.lines)
        }
        None => format!("no operation in {} {unit}s", seen.lines),
    };
    Error::invalid(what).hint(
        "a file of blktrace or the output of blkparse with events Q (or --events d), an iolog of fio, version 2 or 3, or \
         a table with the titles time_us,op,offset,length",
    )
}
