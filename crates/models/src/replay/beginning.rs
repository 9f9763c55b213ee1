//! Looks at the beginning of a trace, before the rest of a pipe is copied.

use super::{Columns, Events, Format, Reader};
use zoneplug_core::Error;

/// Fails if data that begin with `head` are no trace: a line without an end, or a thousand lines of which none is an
/// operation. A compressed trace passes: what it holds is known when it is unpacked.
///
/// ```
/// use zoneplug_models::time::trace::{Events, check_beginning};
/// let check = |head: &[u8]| check_beginning(head, Events::Queued, None, None);
/// check(b"time_us,op,offset,length\n1,write,0,4096\n2,wri").unwrap();
/// assert!(check(&[0; 65536]).unwrap_err().to_string().contains("more than 64 KiB"));
/// let words = "y\n".repeat(2000);
/// assert!(check(words.as_bytes()).is_err());
/// ```
pub fn check_beginning(
    head: &[u8],
    events: Events,
    device: Option<&str>,
    columns: Option<&Columns>,
) -> Result<(), Error> {
    if head.starts_with(b"\x1f\x8b") {
        return Ok(());
    }
    // The last line may be cut off.
    let whole = head.iter().rposition(|b| *b == b'\n').map_or(head, |end| &head[..=end]);
    let mut reader = Reader::new(whole, events, device)?;
    if reader.format() == Format::Blktrace {
        return Ok(());
    }
    if let Some(columns) = columns {
        reader = reader.with_columns(columns)?;
    }
    while reader.next_event()?.is_some() {}
    Ok(())
}
