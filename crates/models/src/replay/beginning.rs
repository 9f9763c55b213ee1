//! Looks at the beginning of a trace, before the rest of a pipe is copied.

use super::input;
use crate::time::trace::{Columns, Events, Reader, no_trace};
use std::io::Read;
use std::sync::Arc;
use zoneplug_core::Error;

/// Fails if data that begin with `head`, and go on for long, are no trace: `head` has no line of a trace, and no record.
/// Data that are compressed by gzip are unpacked.
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
    // The unpacking of compressed data ends with an error, because their end is missing.
    let mut unpacked = Vec::new();
    let bytes = input::reader(Box::new(head), None, 4096, &Arc::default())?;
    let _ = bytes.take(head.len() as u64).read_to_end(&mut unpacked);
    // The last line may be cut off. A record that is cut off is no error.
    let whole = unpacked.iter().rposition(|b| *b == b'\n').map_or(unpacked.len(), |end| end + 1);
    let mut reader = Reader::new(&unpacked[..whole], events, device)?;
    if let Some(columns) = columns {
        reader = reader.with_columns(columns)?;
    }
    while reader.next_event()?.is_some() {}
    match reader.has_known() {
        true => Ok(()),
        false => Err(no_trace(reader.format(), reader.seen())),
    }
}
