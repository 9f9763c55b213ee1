//! Turns lines and records into events. Owns the current line, counts of what was skipped, and the clock of the trace.

use super::number::shown;
use super::window::{Held, Window};
use super::{
    Columns, Events, Format, Line, MAX_OPERATION, MAX_SPAN, Raw, Seen, TraceEvent, Wrong, blkparse,
    blktrace, csv, iolog,
};
use std::io::{self, BufRead, Read};
use zoneplug_core::{Error, ErrorKind, Hint, Nanos, Op, plain};

/// The parser of lines or records, with its state.
#[derive(Debug)]
enum Parser {
    Blktrace(blktrace::Records),
    Blkparse,
    Iolog2,
    Iolog3,
    Csv(Columns),
}

/// Longest line of a trace, in bytes.
const MAX_LINE: u64 = 64 << 10;
/// A text whose first lines, this many, have no known format is not a trace.
const PATIENCE: u64 = 1000;
/// Number of operations that a reader holds to sort them by time; about 2 MB of memory.
pub const WINDOW: usize = 32 << 10;
/// Maximum number of devices whose completions are noted. Completions may come before the first operation, which says
/// whose completions are wanted.
const MAX_DEVICES: usize = 4096;

const IOLOG2: &[u8] = b"fio version 2 iolog";
const IOLOG3: &[u8] = b"fio version 3 iolog";
/// The byte order mark with which UTF-8 text may begin.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// First bytes of files that can be converted to a trace: the kind of file, and the command that converts it.
const FOREIGN: [(&[u8], &str, &str); 8] = [
    (b"\x1f\x8b", "compressed", "zcat FILE"),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd", "zstd -dc FILE"),
    (b"\xfd7zX", "compressed by xz", "xz -dc FILE"),
    (b"BZh", "compressed by bzip2", "bzip2 -dc FILE"),
    (b"PK\x03\x04", "in a zip archive", "unzip -p FILE"),
    (b"\xff\xfe\0\0", "UTF-32", "iconv -f UTF-32 -t UTF-8 FILE"),
    (b"\xff\xfe", "UTF-16", "iconv -f UTF-16 -t UTF-8 FILE"),
    (b"\xfe\xff", "UTF-16", "iconv -f UTF-16 -t UTF-8 FILE"),
];

/// The kind of a file that can be converted to a trace, by its first line, and the command that converts it.
fn foreign(line: &[u8]) -> Option<(&'static str, &'static str)> {
    if let Some((_, what, how)) = FOREIGN.iter().find(|(mark, ..)| line.starts_with(mark)) {
        return Some((what, how));
    }
    if line.get(257..262) == Some(b"ustar") {
        return Some(("in a tar archive", "tar -xOf FILE"));
    }
    // A text in UTF-16 without a mark: every other byte of its first characters is 0.
    match line.iter().take(4).map(|b| *b == 0).collect::<Vec<_>>()[..] {
        [false, true, false, true] => Some(("UTF-16", "iconv -f UTF-16LE -t UTF-8 FILE")),
        [true, false, true, false] => Some(("UTF-16", "iconv -f UTF-16BE -t UTF-8 FILE")),
        _ => None,
    }
}

/// A file, and in front of it the bytes that were read to detect the format.
type Input<R> = io::Chain<io::Cursor<Vec<u8>>, R>;

/// A reader of a trace.
///
/// ```
/// use zoneplug_core::Op;
/// use zoneplug_models::time::trace::{Events, Reader};
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
    /// The files; more than one only for blktrace.
    inputs: Vec<Input<R>>,
    parser: Parser,
    events: Events,
    /// The device or file whose operations are taken: the one asked for, or that of the first
    /// operation.
    device: Option<Vec<u8>>,
    asked: bool,
    line: Vec<u8>,
    /// Whether the current line was read to detect the format, and is to be parsed again.
    again: bool,
    /// Operations that wait for earlier ones. `None`: events have the order of lines.
    window: Option<Window>,
    ended: bool,
    /// The time from which events count.
    start: Option<Nanos>,
    /// The time of the last event returned.
    last: Nanos,
    /// The latest time of all operations read.
    latest: Nanos,
    /// The sum of fio's waits.
    waited: Nanos,
    /// The last completion of each device.
    completions: Vec<(Vec<u8>, Nanos)>,
    /// Lines of the format so far.
    known: u64,
    seen: Seen,
}

impl<R: BufRead> Reader<R> {
    /// Detects the format. `device`: the device whose operations are taken, spelled as in the trace; needed if the
    /// trace has several. Fails if the file is empty or compressed, or cannot be read. A text of no known format fails
    /// in [`Reader::next_event`].
    pub fn new(input: R, events: Events, device: Option<&str>) -> Result<Reader<R>, Error> {
        Reader::of_files(vec![input], events, device)
    }

    /// Detects the format as [`Reader::new`] does, for several files that are one trace: blktrace
    /// writes one for each processor. Their records are taken in the order of their times.
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
            // blktrace leaves an empty file for a processor without events.
            if !head.is_empty() {
                is_binary |= blktrace::is_magic(&head);
                inputs.push(io::Cursor::new(head).chain(file));
            }
        }
        let parser = match is_binary || inputs.len() > 1 {
            true => Parser::Blktrace(blktrace::Records::new(events, inputs.len())),
            false => Parser::Blkparse,
        };
        let mut reader = Reader {
            // The first four bytes show that the file is a trace.
            known: u64::from(is_binary),
            inputs,
            parser,
            events,
            device: device.map(|d| d.as_bytes().to_vec()),
            asked: device.is_some(),
            line: Vec::new(),
            again: false,
            window: Some(Window::new(WINDOW)),
            ended: false,
            start: None,
            last: Nanos(0),
            latest: Nanos(0),
            waited: Nanos(0),
            completions: Vec::new(),
            seen: Seen::default(),
        };
        if let Parser::Blktrace(_) = reader.parser {
            return Ok(reader);
        }
        if !reader.read_line()? {
            return Err(Error::invalid("the trace is empty")
                .hint("blktrace -d /dev/sda, blkparse -i sda > FILE, or fio --write_iolog=FILE"));
        }
        if let Some((what, how)) = foreign(&reader.line) {
            return Err(Error::invalid(format!("the trace is {what}"))
                .hint(format!("{how} > TRACE, and that file")));
        }
        reader.again = !reader.detect();
        Ok(reader)
    }

    /// Reads a table with these columns, whatever its titles are. Fails for binary records of
    /// blktrace.
    ///
    /// ```
    /// use zoneplug_models::time::trace::{Columns, Events, Reader};
    /// let table = "5,R,126703644672,4096,1577808000000007\n5,W,126703648768,4096,1577808000000009\n";
    /// let columns = Columns::parse("device,op,offset,length,time_us").unwrap();
    /// let trace = Reader::new(table.as_bytes(), Events::Queued, None).unwrap();
    /// let mut trace = trace.with_columns(&columns).unwrap();
    /// let first = trace.next_event().unwrap().unwrap();
    /// let second = trace.next_event().unwrap().unwrap();
    /// assert_eq!((first.at.0, second.at.0, second.sectors), (0, 2_000, 8));
    /// ```
    pub fn with_columns(mut self, columns: &Columns) -> Result<Reader<R>, Error> {
        if let Parser::Blktrace(_) = self.parser {
            return Err(Error::invalid("binary records of blktrace have no columns")
                .hint(Hint::from("leave ").option("columns").text(" out")));
        }
        while self.line.trim_ascii().is_empty() && self.read_line()? {}
        let columns = columns.clone().separated_as(&self.line);
        // The caller's names replace the titles.
        self.again = !csv::is_heading(&columns, &self.line);
        self.parser = Parser::Csv(columns);
        Ok(self)
    }

    /// Sorts this many operations by time, instead of [`WINDOW`].
    pub fn with_window(mut self, operations: usize) -> Reader<R> {
        self.window = Some(Window::new(operations));
        self
    }

    /// Returns events in the order of their lines, with times counted from `earliest`.
    pub fn in_order_of_lines(mut self, earliest: Nanos) -> Reader<R> {
        (self.window, self.start) = (None, Some(earliest));
        self
    }

    /// The format of the trace.
    pub fn format(&self) -> Format {
        match self.parser {
            Parser::Blktrace(_) => Format::Blktrace,
            Parser::Blkparse => Format::Blkparse,
            Parser::Iolog2 => Format::Iolog2,
            Parser::Iolog3 => Format::Iolog3,
            Parser::Csv(_) => Format::Csv,
        }
    }

    /// Whether any line or record so far was one of the format.
    pub(crate) fn has_known(&self) -> bool {
        self.known > 0
    }

    /// The counts of lines and operations so far.
    pub fn seen(&self) -> &Seen {
        &self.seen
    }

    /// Returns the next operation, in the order of times as far as the window allows; `None` at the
    /// end. Fails if the file cannot be read or is not a trace, if a line has impossible numbers,
    /// or if the trace has several devices and none was named.
    pub fn next_event(&mut self) -> Result<Option<TraceEvent>, Error> {
        let held = loop {
            if self.ended || self.window.as_ref().is_some_and(|w| !w.has_room()) {
                break self.window.as_mut().and_then(Window::pop);
            }
            match (self.read_operation()?, &mut self.window) {
                (None, _) => self.end(),
                (Some(held), Some(window)) => window.push(held),
                (held, None) => break held,
            }
        };
        held.map(|held| self.event(&held)).transpose()
    }

    /// Reads up to and including the next operation of the device.
    fn read_operation(&mut self) -> Result<Option<Held>, Error> {
        let unit = self.format().unit();
        loop {
            let is_text = !matches!(self.parser, Parser::Blktrace(_));
            if is_text && !std::mem::take(&mut self.again) && !self.read_line()? {
                return Ok(None);
            }
            let mut n = self.seen.lines;
            let read = match &mut self.parser {
                Parser::Blktrace(records) => {
                    match records.next(&mut self.inputs, &mut self.seen)? {
                        Some((number, record)) => {
                            n = number;
                            Ok(record)
                        }
                        None => return Ok(None),
                    }
                }
                Parser::Blkparse => blkparse::line(&self.line, self.events.letter()),
                Parser::Iolog2 => iolog::line(&self.line, false),
                Parser::Iolog3 => iolog::line(&self.line, true),
                Parser::Csv(columns) => {
                    if !columns.is_settled() {
                        csv::settle_columns(columns, &self.line);
                    }
                    match csv::line(&self.line, columns, self.events.letter()) {
                        // A first line may be a comment, or the end of one that was cut off.
                        Err(_) if columns.is_guess() => Ok(Line::NotOfFormat),
                        read => read,
                    }
                }
            };
            match read.and_then(possible).map_err(|e| in_line(unit, n, e))? {
                Line::Event(device, raw) => {
                    self.known += 1;
                    match &self.device {
                        Some(d) if d == device => {}
                        Some(_) if self.asked => {
                            self.seen.note_elsewhere(device);
                            continue;
                        }
                        Some(d) => {
                            let what =
                                format!("a second device {} beside {}", shown(device), shown(d));
                            let e = in_line(unit, n, (what, ""));
                            let name = String::from_utf8_lossy(d).into_owned();
                            let hint = Hint::from("").option_with("device", name);
                            return Err(e.hint(hint.text(" takes one of them")));
                        }
                        None => self.device = Some(device.to_vec()),
                    }
                    return Ok(Some(self.timed(n, raw, is_text)));
                }
                Line::Wait(span) => {
                    self.known += 1;
                    self.waited = Nanos((self.waited.0 + span.0).min(MAX_SPAN));
                }
                Line::Completion(device, at) => {
                    self.known += 1;
                    let noted = self.completions.iter().position(|(d, _)| d == device);
                    if let Some(i) = noted {
                        self.completions[i].1 = at.max(self.completions[i].1);
                    } else if self.completions.len() < MAX_DEVICES {
                        self.completions.push((device.to_vec(), at));
                    }
                }
                Line::Skipped => self.known += u64::from(!self.line.trim_ascii().is_empty()),
                Line::Empty => {
                    self.known += 1;
                    self.seen.empty += 1;
                }
                Line::PassThrough => {
                    self.known += 1;
                    self.seen.pass_through += 1;
                }
                Line::Unclear => {
                    self.known += 1;
                    self.seen.unclear += 1;
                }
                Line::UnknownOp(word) => {
                    self.seen.note_strange(n, word);
                    self.lose_patience(n)?;
                }
                Line::NotOfFormat => self.unknown(n)?,
            }
        }
    }

    /// Adds fio's waits to the time of an operation that was read, and notes the time.
    fn timed(&mut self, n: u64, mut raw: Raw, is_text: bool) -> Held {
        raw.at = raw.at.plus(self.waited);
        if raw.at >= self.latest {
            self.latest = raw.at;
        } else if is_text {
            self.seen.note_backwards(Nanos(self.latest.0 - raw.at.0));
        }
        let earliest = self.seen.earliest.map_or(raw.at, |e| e.min(raw.at));
        self.seen.earliest = Some(earliest);
        Held { raw, n }
    }

    /// Converts the earliest waiting operation to an event.
    fn event(&mut self, held: &Held) -> Result<TraceEvent, Error> {
        let Raw { op, fua, preflush, sector, sectors, mut at } = held.raw;
        // Times of fio's version 2 are sums of waits, so they already count from the start of the trace.
        let from_start = matches!(self.parser, Parser::Iolog2);
        let start = if from_start { Nanos(0) } else { *self.start.get_or_insert(at) };
        if self.window.is_some() && at < self.last {
            self.seen.late += 1;
            if let Parser::Blktrace(_) = self.parser {
                self.seen.note_backwards(Nanos(self.last.0 - at.0));
            }
            at = self.last;
        }
        self.last = at;
        let at = Nanos(at.0.saturating_sub(start.0));
        if at.0 > MAX_SPAN {
            let what = format!("{} years after the earliest", at.0 / 31_556_952_000_000_000);
            let hint = "a trace of one clock: without lines whose times have another epoch";
            return Err(in_line(self.format().unit(), held.n, (what, hint)));
        }
        Ok(TraceEvent { line: held.n, at, op, fua, preflush, sector, sectors })
    }

    /// Computes the time of the last completion, which needs the end of the trace.
    fn end(&mut self) {
        self.ended = true;
        let Some(earliest) = self.seen.earliest else { return };
        let of = self.completions.iter().find(|(d, _)| Some(d) == self.device.as_ref());
        let after = of.and_then(|(_, at)| at.0.checked_sub(earliest.0));
        self.seen.last_completion = after.map(Nanos);
    }

    /// Handles a line of no known format. Such lines may precede the titles of a table, or repeat
    /// where files were joined.
    #[cold]
    fn unknown(&mut self, n: u64) -> Result<(), Error> {
        let is_head = match self.parser {
            Parser::Iolog2 => self.line.trim_ascii() == IOLOG2,
            Parser::Iolog3 => self.line.trim_ascii() == IOLOG3,
            _ => self.known == 0 && self.detect(),
        };
        if is_head {
            return Ok(());
        }
        self.seen.unknown += 1;
        self.seen.first_unknown.get_or_insert(n);
        self.lose_patience(n)
    }

    /// Fails if none of many lines is one of a trace.
    fn lose_patience(&self, n: u64) -> Result<(), Error> {
        match self.known == 0 && n >= PATIENCE {
            true => Err(no_trace(self.format(), &self.seen)),
            false => Ok(()),
        }
    }

    /// Detects whether the current line begins a trace of another format than blkparse's.
    fn detect(&mut self) -> bool {
        if !matches!(self.parser, Parser::Blkparse) {
            return false;
        }
        self.parser = match self.line.trim_ascii() {
            IOLOG2 => Parser::Iolog2,
            IOLOG3 => Parser::Iolog3,
            line => match Columns::of(line) {
                Some(columns) => Parser::Csv(columns),
                None => return false,
            },
        };
        true
    }

    /// Reads a line; `false` at the end.
    fn read_line(&mut self) -> Result<bool, Error> {
        self.line.clear();
        let Some(input) = self.inputs.first_mut() else { return Ok(false) };
        let mut part = input.by_ref().take(MAX_LINE);
        let n = part.read_until(b'\n', &mut self.line);
        let n = n.map_err(|e| unreadable(self.seen.lines, e))?;
        if self.line.first() == BYTE_ORDER_MARK.first() && self.line.starts_with(BYTE_ORDER_MARK) {
            self.line.drain(..BYTE_ORDER_MARK.len());
        }
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

/// Refuses a read or write of a length that no command has. A replay makes a BIO for each part of an operation, so
/// such a length would exhaust memory.
fn possible(line: Line<'_>) -> Result<Line<'_>, Wrong> {
    match &line {
        Line::Event(_, raw)
            if !matches!(raw.op, Op::Discard | Op::Flush)
                && !raw.op.is_zone_management()
                && raw.sectors > MAX_OPERATION =>
        {
            let what = format!("an operation of {} sectors of 512 bytes", raw.sectors);
            Err((what, "at most 2 TiB: no command of Linux, SCSI or NVMe is longer"))
        }
        _ => Ok(line),
    }
}

fn in_line(unit: &str, line: u64, (what, hint): Wrong) -> Error {
    Error::invalid(format!("{unit} {line} of the trace: {what}")).hint(hint)
}

/// The error for a file without operations.
pub(crate) fn no_trace(format: Format, seen: &Seen) -> Error {
    let unit = format.unit();
    if seen.elsewhere > 0 {
        let what = format!("{} operations, and none of that device", seen.elsewhere);
        // A name with blanks, or none, is one word of a command line only between quotes.
        let named = |d: &String| match d.is_empty() || d.contains(' ') {
            true => format!("'{}'", plain(d)),
            false => plain(d).into_owned(),
        };
        let mut devices: Vec<_> = seen.other_devices.iter().map(named).collect();
        let last = devices.pop().unwrap_or_default();
        let names = match devices.is_empty() {
            true => last,
            false => format!("{} or {last}", devices.join(", ")),
        };
        return Error::invalid(what).hint(
            Hint::from("").option_with("device", names).text(": the trace has operations of it"),
        );
    }
    let units = if seen.lines == 1 { unit.to_owned() } else { format!("{unit}s") };
    let within = format!("in {} {units}", seen.lines);
    if seen.empty > 0 && seen.first_strange.is_none() {
        let what = format!(
            "no operation reads or writes anything {within}: {} without a length",
            seen.empty
        );
        return Error::invalid(what).hint(
            Hint::from("a trace of reads and writes; ")
                .option("columns")
                .text(" names the column of the length"),
        );
    }
    let none = format!("no operation {within}");
    let what = match (seen.first_unknown, &seen.first_strange) {
        (Some(line), _) => format!("{none}; {unit} {line} is of no known format"),
        (None, Some((line, word))) => {
            format!(
                "{none}; {unit} {line} has {}, which is not an operation",
                shown(word.as_bytes())
            )
        }
        (None, None) => none,
    };
    Error::invalid(what).hint(
        Hint::from("a file of blktrace or the output of blkparse with events Q (or ")
            .option_with("events", "d")
            .text(
                "), an iolog of fio, version 2 or 3, or a table with the titles time_us,op,offset,length; ",
            )
            .option("columns")
            .text(" names those of a table without titles"),
    )
}
