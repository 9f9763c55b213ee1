//! The trace of a workload in virtual time, in the text form of `blkparse`.

use crate::failure::Failure;
use crate::output::Output;
use std::cell::RefCell;
use std::io::{BufWriter, Write};
use zoneplug_core::{Nanos, Op, Sector};
use zoneplug_models::measure::Log;

/// Writes the commands of jobs in the form of `blkparse`. Keeps the first error of the file until the end.
pub(super) struct Trace(RefCell<Lines>);

struct Lines {
    file: BufWriter<Output>,
    number: u64,
    start: Option<Nanos>,
    result: std::io::Result<()>,
}

impl Trace {
    /// Writes the trace to `file`.
    pub(super) fn new(file: Output) -> Trace {
        let file = BufWriter::new(file);
        Trace(RefCell::new(Lines { file, number: 0, start: None, result: Ok(()) }))
    }

    /// Ends the trace and puts the file in its place.
    pub(super) fn finish(self) -> Result<(), Failure> {
        let mut lines = self.0.into_inner();
        let written = lines.result.and_then(|()| lines.file.flush());
        written.map_err(|e| lines.file.get_ref().failed(&e))?;
        let (file, _) = lines.file.into_parts();
        file.finish()
    }
}

impl Log for Trace {
    fn line(&self, at: Nanos, job: u32, action: char, op: Op, sector: Sector, sectors: u32) {
        let mut l = self.0.borrow_mut();
        let start = *l.start.get_or_insert(at);
        let ns = at.0.saturating_sub(start.0);
        l.number += 1;
        let rwbs = match op {
            Op::Read => "R",
            Op::ZoneAppend => "ZA",
            Op::ZoneReset => "ZR",
            _ => "W",
        };
        let (s, ns, n) = (ns / 1_000_000_000, ns % 1_000_000_000, l.number);
        let text = format_args!(
            "  8,0  {job:3} {n:8} {s:5}.{ns:09} {:5}  {action} {rwbs:>3} {} + {sectors} [job{job}]\n",
            1000 + job,
            sector.0
        );
        let written = l.file.write_fmt(text);
        if l.result.is_ok() {
            l.result = written;
        }
    }
}
