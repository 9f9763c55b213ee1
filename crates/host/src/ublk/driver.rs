//! The interface of a queue's thread to the kernel's driver, and its implementation [`KernelDriver`]. In tests, the fake
//! of `testing.rs` stands in. A command for each tag waits in the ring, and is completed when the tag has a request. The
//! result of the request goes with the next such command.

use super::abi::{self, IoDesc};
use super::queue_ring::{QueueRing, RingAnswer};
use super::sys::{self, CopyDirection, Descriptors};
use std::fs::File;
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;
use zoneplug_buf::AlignedBuf;

/// `id` of ring entries that belong to no tag: the two polls.
const WAKE: u64 = u64::MAX;
const DEVICE: u64 = u64::MAX - 1;

/// An event from the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DriverEvent {
    /// Linux has sent a request, in the I/O descriptor of this tag.
    Request(u16),
    /// A file descriptor that was polled is readable.
    Readable(Polled),
    /// The driver sends no more requests.
    Ended,
}

/// A file descriptor on which a queue sleeps, in addition to its ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Polled {
    /// The counter that the queue's waker raises.
    Wake,
    /// The file descriptor of the disk's device.
    Device,
}

/// The kernel's side of a queue. Only `submit` and `wait` pass results and polls to the kernel; `copy` moves data.
pub(super) trait Driver {
    /// The next event. Makes no system call. An error means that the kernel did not take a result, so that the request
    /// of that result would never end.
    fn event(&mut self) -> io::Result<Option<DriverEvent>>;

    /// Whether there is an event now, or the next system call will bring one.
    fn has_events(&mut self) -> bool;

    /// The I/O descriptor of a tag that the driver has handed over.
    fn request(&self, tag: u16) -> IoDesc;

    /// Copies the first `len` bytes of a buffer to or from the data of a request.
    fn copy(
        &self,
        direction: CopyDirection,
        tag: u16,
        buf: &mut AlignedBuf,
        len: u32,
    ) -> io::Result<()>;

    /// Whether there is room for a result or a poll. If not, `submit` makes room.
    fn has_room(&mut self) -> bool;

    /// Ends the request of a tag with a result. `append` is the sector at which a zone append landed, else 0.
    fn answer(&mut self, tag: u16, result: i32, append: u64) -> io::Result<()>;

    /// Makes the driver report once that `fd` is readable.
    fn poll(&mut self, fd: RawFd, polled: Polled) -> io::Result<()>;

    /// Passes results and polls to the kernel without waiting, and takes its events.
    fn submit(&mut self) -> io::Result<()>;

    /// Passes results and polls to the kernel, and waits at most `most` for an event.
    fn wait(&mut self, most: Option<Duration>) -> io::Result<()>;
}

/// The failed step of a queue that cannot make its ring.
pub(super) const NO_RING: &str = "no ring";
/// The failed step of a queue whose commands for requests the driver does not get.
const NO_FETCH: &str = "no fetch commands";

/// A queue of `/dev/ublkcN`.
pub(super) struct KernelDriver {
    char_dev: Arc<File>,
    number: u16,
    depth: u16,
    ring: QueueRing,
    descriptors: Descriptors,
    /// Tags that the driver has taken back.
    gone: u16,
}

impl KernelDriver {
    /// Fetches the first requests. The error names the step that failed. The calling thread must be the one that uses
    /// the queue.
    pub(super) fn open(
        char_dev: &Arc<File>,
        number: u16,
        depth: u16,
    ) -> Result<KernelDriver, (&'static str, io::Error)> {
        let failed = |what| move |e| (what, e);
        // A command for each tag, and two polls.
        let entries = u32::from(depth) + 2;
        let ring = QueueRing::new(entries, 2 * entries).map_err(failed(NO_RING))?;
        let mut driver = KernelDriver {
            ring,
            descriptors: Descriptors::map(char_dev, number, depth)
                .map_err(failed("no descriptors"))?,
            char_dev: char_dev.clone(),
            number,
            depth,
            gone: 0,
        };
        (0..depth)
            .try_for_each(|tag| driver.command(abi::FETCH_REQ, tag, 0, 0))
            .map_err(failed(NO_FETCH))?;
        driver.submit().map_err(failed(NO_FETCH))?;
        // A refused fetch is completed at once. The others wait for requests, which come only after the device is
        // started.
        match driver.ring.answer() {
            Some(a) if a.result < 0 => {
                Err(("the driver refuses fetches", io::Error::from_raw_os_error(-a.result)))
            }
            _ => Ok(driver),
        }
    }

    fn command(&mut self, op: u32, tag: u16, result: i32, append: u64) -> io::Result<()> {
        let cmd = abi::io_cmd(self.number, tag, result, append);
        self.ring.command(&self.char_dev, op, cmd, u64::from(tag))
    }

    /// The event that an answer of the ring stands for. `None`: the queue need not know.
    fn event_of(&mut self, answer: RingAnswer) -> io::Result<Option<DriverEvent>> {
        match (answer.id, answer.result) {
            (WAKE, _) => Ok(Some(DriverEvent::Readable(Polled::Wake))),
            (DEVICE, _) => Ok(Some(DriverEvent::Readable(Polled::Device))),
            (tag, 0) => Ok(Some(DriverEvent::Request(tag as u16))),
            // `UBLK_IO_RES_ABORT`: the device stops.
            (_, result) if result == -libc::ENODEV => {
                self.gone += 1;
                Ok((self.gone == self.depth).then_some(DriverEvent::Ended))
            }
            (_, result) => Err(io::Error::from_raw_os_error(result.abs())),
        }
    }
}

impl Driver for KernelDriver {
    fn event(&mut self) -> io::Result<Option<DriverEvent>> {
        loop {
            let Some(answer) = self.ring.answer() else { return Ok(None) };
            if let Some(event) = self.event_of(answer)? {
                return Ok(Some(event));
            }
        }
    }

    fn has_events(&mut self) -> bool {
        self.ring.has_answers()
    }

    fn request(&self, tag: u16) -> IoDesc {
        self.descriptors.get(tag)
    }

    fn copy(
        &self,
        direction: CopyDirection,
        tag: u16,
        buf: &mut AlignedBuf,
        len: u32,
    ) -> io::Result<()> {
        sys::copy(&self.char_dev, direction, abi::data_offset(self.number, tag), buf, len)
    }

    fn has_room(&mut self) -> bool {
        !self.ring.is_full()
    }

    fn answer(&mut self, tag: u16, result: i32, append: u64) -> io::Result<()> {
        self.command(abi::COMMIT_AND_FETCH_REQ, tag, result, append)
    }

    fn poll(&mut self, fd: RawFd, polled: Polled) -> io::Result<()> {
        let id = match polled {
            Polled::Wake => WAKE,
            Polled::Device => DEVICE,
        };
        self.ring.poll(fd, id)
    }

    fn submit(&mut self) -> io::Result<()> {
        self.ring.submit()
    }

    fn wait(&mut self, most: Option<Duration>) -> io::Result<()> {
        self.ring.wait(most)
    }
}
