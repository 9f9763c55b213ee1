//! Looks at the beginning of a trace, before the rest of a pipe is copied.

use super::input;
use crate::time::trace::{Columns, Events, Format, Reader, no_trace};
use std::io::Read;
use std::sync::Arc;
use zoneplug_core::Error;

/// Fails if data that begin with `head`, and go on for long, are no trace: nothing in it is a line of a trace, or a
/// record. What is compressed by gzip is unpacked.
///
/// ```
/// use zoneplug_models::replay::check_beginning;
/// use zoneplug_models::time::trace::Events;
/// let check = |head: &[u8]| check_beginning(head, Events::Queued, None, None);
/// check(b"time_us,op,offset,length\n1,write,0,4096\n2,wri").unwrap();
/// assert!(check(&[0; 65536]).unwrap_err().to_string().contains("more than 64 KiB"));
/// assert!(check("y\n".repeat(900).as_bytes()).is_err());
/// ```
pub fn check_beginning(
    head: &[u8],
    events: Events,
    device: Option<&str>,
    columns: Option<&Columns>,
) -> Result<(), Error> {
    // Of compressed data the end is missing, which ends the unpacking with an error.
    let mut unpacked = Vec::new();
    let bytes = input::reader(Box::new(head), None, 4096, &Arc::default())?;
    let _ = bytes.take(head.len() as u64).read_to_end(&mut unpacked);
    let head = &unpacked[..];
    // The last line may be cut off.
    let whole = head.iter().rposition(|b| *b == b'\n').map_or(head, |end| &head[..=end]);
    let binary = Reader::new(head, events, device)?.format() == Format::Blktrace;
    let mut reader = Reader::new(if binary { head } else { whole }, events, device)?;
    if let Some(columns) = columns {
        reader = reader.with_columns(columns)?;
    }
    while reader.next_event()?.is_some() {}
    match reader.has_known() {
        true => Ok(()),
        false => Err(no_trace(reader.format(), reader.seen())),
    }
}
