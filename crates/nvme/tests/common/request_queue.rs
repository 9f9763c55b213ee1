//! A queue of an emulated disk that carries out the requests of a task, one at a time.

use zoneplug_buf::{AlignedBuf, IoBuf};
use zoneplug_core::disk::{Disk, DiskConfig, DiskQueue};
use zoneplug_core::{Bio, Bios, IoRequest, IoResult, Nanos};
use zoneplug_devices::emu::{EmuConfig, EmuDisk};

pub(crate) struct RequestQueue {
    queue: DiskQueue,
    now: Nanos,
}

impl RequestQueue {
    /// A disk with these settings, and a queue of it.
    pub(crate) fn open(emu: EmuConfig) -> (Disk, RequestQueue) {
        let device = EmuDisk::new(emu).unwrap();
        let mut wait = |due: Option<Nanos>| due.unwrap_or(Nanos(0));
        let disk = Disk::open(device, DiskConfig::default(), &mut wait).unwrap();
        let queue = disk.open_polled_queue(16, 4).unwrap();
        (disk, RequestQueue { queue, now: Nanos(0) })
    }

    /// Carries out a request, with its part of the task's buffer.
    pub(crate) fn run(&mut self, request: IoRequest, buffer: &mut AlignedBuf) -> IoResult {
        let (offset, bytes) = request.memory;
        let (lent, io) = match bytes {
            0 => (None, IoBuf::empty()),
            _ => {
                let whole = std::mem::replace(buffer, AlignedBuf::zeroed(0));
                let (lent, io) = whole.lend_part(offset, bytes);
                (Some(lent), io)
            }
        };
        let mut bio = Bio::with_buf(request.op, request.sector, request.len_sectors, io);
        bio.flags = request.flags;
        let mut list = Bios::from([bio]);
        self.queue.submit(self.now, &mut list);
        let mut done = Bios::new();
        while done.is_empty() {
            self.now = self.queue.next_deadline().unwrap_or(self.now).max(self.now);
            self.queue.poll(self.now, &mut done);
        }
        let mut bio = done.pop_front().unwrap();
        if let Some(lent) = lent {
            *buffer = lent.take_back(bio.take_buf()).unwrap();
        }
        IoResult { status: bio.status, sector: bio.sector, zones: bio.result }
    }
}
