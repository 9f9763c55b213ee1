//! A socket between a client that waits for nothing and a server: packets of a header and data out, headers in. A protocol says
//! how long its headers are.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};

/// What all writes write. The longest transfer.
static DATA: [u8; 1 << 20] = [0x5a; 1 << 20];
const SLICES: usize = 64;
/// The longest header: that of NVMe/TCP's command.
const HEAD_MAX: usize = 72;

/// A header that is to be sent, followed by the first `body` bytes of [`DATA`].
pub(crate) struct Packet {
    head: [u8; HEAD_MAX],
    head_len: usize,
    body: usize,
}

impl Packet {
    pub(crate) fn new(header: &[&[u8]], body: usize) -> Packet {
        let (mut head, mut head_len) = ([0; HEAD_MAX], 0);
        for part in header {
            head[head_len..head_len + part.len()].copy_from_slice(part);
            head_len += part.len();
        }
        Packet { head, head_len, body }
    }

    pub(crate) fn head(&self) -> &[u8] {
        &self.head[..self.head_len]
    }
}

/// A socket. Each header that arrives has `HEAD` bytes; what a packet has behind it is skipped.
pub(crate) struct Pipe<const HEAD: usize> {
    pub(crate) stream: TcpStream,
    pub(crate) output: VecDeque<Packet>,
    /// Bytes of the first packet that were sent.
    sent: usize,
    /// The header that is being read, and how much of it is there.
    head: [u8; HEAD],
    have: usize,
    /// Bytes of data that come before the next header.
    skip: usize,
}

impl<const HEAD: usize> Pipe<HEAD> {
    pub(crate) fn connect(at: SocketAddr) -> io::Result<Pipe<HEAD>> {
        let stream = TcpStream::connect(at)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let (output, head) = (VecDeque::new(), [0; HEAD]);
        Ok(Pipe { stream, output, sent: 0, head, have: 0, skip: 0 })
    }

    pub(crate) fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    /// Sends what there is room for.
    pub(crate) fn send(&mut self) -> io::Result<()> {
        while !self.output.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let (mut filled, mut skip) = (0, self.sent);
            for part in self.output.iter().flat_map(|p| [p.head(), &DATA[..p.body]]) {
                let skipped = skip.min(part.len());
                skip -= skipped;
                if part.len() > skipped && filled < SLICES {
                    slices[filled] = IoSlice::new(&part[skipped..]);
                    filled += 1;
                }
                if filled == SLICES {
                    break;
                }
            }
            match self.stream.write_vectored(&slices[..filled]) {
                Ok(n) => self.sent += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(e),
            }
            while let Some(len) = self.output.front().map(|p| p.head_len + p.body)
                && self.sent >= len
            {
                self.sent -= len;
                self.output.pop_front();
            }
        }
        Ok(())
    }

    /// Reads what there is. Calls `header` with each header and the packets to be sent; it returns how many bytes of data follow.
    pub(crate) fn receive(
        &mut self,
        scratch: &mut [u8],
        header: &mut dyn FnMut(&[u8; HEAD], &mut VecDeque<Packet>) -> usize,
    ) -> io::Result<()> {
        loop {
            let n = match self.stream.read(scratch) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(n) => n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(e),
            };
            let mut bytes = &scratch[..n];
            while !bytes.is_empty() {
                let data = self.skip.min(bytes.len());
                (self.skip, bytes) = (self.skip - data, &bytes[data..]);
                let n = (HEAD - self.have).min(bytes.len());
                if data > 0 || n == 0 {
                    continue;
                }
                self.head[self.have..self.have + n].copy_from_slice(&bytes[..n]);
                (self.have, bytes) = (self.have + n, &bytes[n..]);
                if self.have == HEAD {
                    self.have = 0;
                    self.skip = header(&self.head, &mut self.output);
                }
            }
            if n < scratch.len() {
                return Ok(());
            }
        }
    }
}
