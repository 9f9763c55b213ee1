//! The numbers of a session: CmdSN, by which commands keep their order and their number is limited, and StatSN.

use crate::iscsi::header::Header;

/// The meaning of a request's CmdSN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// The request is the next one, or is for immediate delivery.
    Now,
    /// The number is outside of the window: the request is ignored (RFC 7143, section 4.2.2.1).
    Ignored,
    /// Requests before it are missing. They cannot come any more: a connection keeps their order.
    Gap,
}

/// The numbers.
#[derive(Debug)]
pub(super) struct Window {
    /// ExpCmdSN: the number of the next request.
    expected: u32,
    /// Most commands that have not ended.
    depth: u32,
    /// Commands with a number that have not ended.
    used: u32,
    stat_sn: u32,
}

impl Window {
    pub(super) fn new(depth: u16) -> Window {
        Window { expected: 0, depth: u32::from(depth), used: 0, stat_sn: 1 }
    }

    /// Begins with the number of a login request, which is that of the first command too.
    pub(super) fn begin(&mut self, cmd_sn: u32) {
        self.expected = cmd_sn;
    }

    /// MaxCmdSN: the highest number that the initiator may use.
    fn max(&self) -> u32 {
        self.expected.wrapping_add(self.depth - self.used).wrapping_sub(1)
    }

    /// Takes the number of a request. A command keeps its place until [`Window::ended`], other requests have none.
    pub(super) fn take(&mut self, header: &Header, is_command: bool) -> Turn {
        if header.is_immediate() {
            return Turn::Now;
        }
        // Numbers are compared in a circle (RFC 1982).
        let ahead = header.cmd_sn().wrapping_sub(self.expected) as i32;
        if ahead < 0 || ahead as u32 >= self.depth - self.used {
            return Turn::Ignored;
        }
        if ahead > 0 {
            return Turn::Gap;
        }
        self.expected = self.expected.wrapping_add(1);
        self.used += u32::from(is_command);
        Turn::Now
    }

    /// A command with a number has ended.
    pub(super) fn ended(&mut self) {
        self.used -= 1;
    }

    /// Fills in the numbers of a PDU that is no status.
    pub(super) fn number(&self, header: Header) -> Header {
        header.with_word(28, self.expected).with_word(32, self.max())
    }

    /// Fills in the numbers of a PDU that is a status or an answer, and counts it.
    pub(super) fn number_status(&mut self, header: Header) -> Header {
        let header = self.number_next(header);
        self.stat_sn = self.stat_sn.wrapping_add(1);
        header
    }

    /// Returns the number of the last status.
    pub(super) fn last_stat_sn(&self) -> u32 {
        self.stat_sn.wrapping_sub(1)
    }

    /// Fills in the numbers of a PDU with the number of the next status, which it does not use up.
    pub(super) fn number_next(&self, header: Header) -> Header {
        self.number(header).with_word(24, self.stat_sn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iscsi::opcode;

    fn command(cmd_sn: u32) -> Header {
        Header::new(opcode::COMMAND).with_word(24, cmd_sn)
    }

    /// S4. The window is right where the numbers begin again, and when it is full.
    #[test]
    fn s4_the_window_is_right_at_its_edges() {
        let mut w = Window::new(2);
        w.begin(u32::MAX);
        let numbers = |w: &Window| {
            let h = w.number(Header::new(0));
            (h.exp_stat_sn(), u32::from_be_bytes([h.0[32], h.0[33], h.0[34], h.0[35]]))
        };
        assert_eq!(numbers(&w), (u32::MAX, 0));
        assert_eq!(w.take(&command(0), true), Turn::Gap);
        assert_eq!(w.take(&command(1), true), Turn::Ignored, "behind the window");
        assert_eq!(w.take(&command(u32::MAX - 1), true), Turn::Ignored, "before the window");
        assert_eq!(w.take(&command(u32::MAX), true), Turn::Now);
        assert_eq!(w.take(&command(0), true), Turn::Now);
        assert_eq!(numbers(&w), (1, 0), "the window is closed");
        assert_eq!(w.take(&command(1), true), Turn::Ignored);
        let mut immediate = command(77);
        immediate.0[0] |= 0x40;
        assert_eq!(w.take(&immediate, true), Turn::Now, "needs no place");
        w.ended();
        assert_eq!(numbers(&w), (1, 1));
        assert_eq!(w.take(&command(1), false), Turn::Now);
        assert_eq!(numbers(&w), (2, 2), "only commands keep a place");
    }
}
