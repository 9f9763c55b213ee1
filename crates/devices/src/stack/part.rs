//! What layers have in common that send less down than they were given. Owns nothing.

use zoneplug_buf::IoBuf;
use zoneplug_core::bio::{Bio, Command};

/// A command is known by where it is: a box does not move while somebody below holds it.
pub(super) fn address(c: &Command) -> usize {
    std::ptr::from_ref(c).addr()
}

/// A command of the first `take` sectors of `c`.
pub(super) fn first_part(c: &Command, take: u32) -> Box<Command> {
    let mut part = Command::new(c.bios.len());
    part.set(c.op, c.sector, take, c.flags);
    let mut left = take;
    for bio in &c.bios {
        let len = bio.len_sectors.min(left);
        if len == 0 {
            break;
        }
        let buf =
            if bio.data().is_empty() { IoBuf::empty() } else { bio.data().slice(0, len << 9) };
        let mut b = Bio::with_buf(bio.op, bio.sector, len, buf);
        b.flags = bio.flags;
        part.bios.push(b);
        left -= len;
    }
    part
}
