//! Commands of which only a part is below. Layers that send less down than they were given share this.

use zoneplug_buf::Parts;
use zoneplug_core::bio::{Bio, Command};

/// Identifies a command by its address: its box does not move while a device below holds it.
pub(super) fn address(c: &Command) -> usize {
    std::ptr::from_ref(c).addr()
}

/// A command whose first sectors are below in a separate command, with the memory of these sectors.
pub(super) struct Cut {
    whole: Box<Command>,
    /// The memory of the BIO that the cut goes through.
    split: Option<Parts>,
}

/// Returns a command of the first `take` sectors of `whole`, and the data needed to undo the cut.
pub(super) fn cut(mut whole: Box<Command>, take: u32) -> (Box<Command>, Cut) {
    let mut part = Command::new(whole.bios.len());
    part.set(whole.op, whole.sector, take, whole.flags);
    let mut split = None;
    let mut left = take;
    for bio in &mut whole.bios {
        let len = bio.len_sectors.min(left);
        if len == 0 {
            break;
        }
        let mut buf = bio.take_buf();
        if len < bio.len_sectors && buf.len() > len << 9 {
            buf = split.insert(Parts::new(buf)).take_front(len << 9);
        }
        let mut b = Bio::with_buf(bio.op, bio.sector, len, buf);
        b.flags = bio.flags;
        part.bios.push(b);
        left -= len;
    }
    (part, Cut { whole, split })
}

impl Cut {
    /// Returns the whole command, with the memory that came back in `part`. Memory that a device has kept is missing.
    pub(super) fn rejoin(self, part: &mut Command) -> Box<Command> {
        let Cut { mut whole, mut split } = self;
        for (bio, b) in whole.bios.iter_mut().zip(&mut part.bios) {
            let mut buf = b.take_buf();
            // The last BIO of the part is the one that was cut.
            if b.len_sectors < bio.len_sectors
                && let Some(mut parts) = split.take()
            {
                let back = parts.put_back(buf).is_ok();
                buf = if back { parts.join().unwrap_or_default() } else { Default::default() };
            }
            bio.set_buf(buf);
        }
        whole
    }
}
