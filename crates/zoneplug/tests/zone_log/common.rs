//! Disks for logs, and ways to damage them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use zoneplug::zone::Condition;
use zoneplug::{AlignedBuf, BlockingDisk, HostedDisk, Op, ZoneNo};
use zoneplug_core::Device;
use zoneplug_core::disk::DiskConfig;
use zoneplug_devices::emu::{EmuConfig, EmuDisk};
use zoneplug_devices::stack::{TapDisk, TapEvent};

/// A disk in memory that can be opened again and again.
pub(crate) struct Memory(pub(crate) Arc<EmuDisk>);

impl Memory {
    pub(crate) fn new(spec: &str) -> Memory {
        Memory(EmuDisk::new(spec.parse::<EmuConfig>().unwrap()).unwrap())
    }

    pub(crate) fn open(&self) -> HostedDisk {
        open(self.0.clone())
    }

    pub(crate) fn cond(&self, zone: u32) -> Condition {
        self.0.zone_info(ZoneNo(zone)).cond
    }

    /// Zones that count as active.
    pub(crate) fn active(&self) -> usize {
        let nr = self.0.geometry().nr_zones();
        (0..nr).filter(|z| self.cond(*z).is_active()).count()
    }

    /// Changes the data of a zone outside the log: reads it, resets the zone, and writes it again.
    pub(crate) fn change(&self, zone: u32, f: impl FnOnce(&mut Vec<u8>)) {
        let disk = self.open();
        let mut io = BlockingDisk::new(&disk).unwrap();
        let info = self.0.zone_info(ZoneNo(zone));
        let full = info.cond == Condition::Full;
        let written = if full { info.capacity_sectors } else { info.wp.0 - info.start.0 };
        let mut data = io.read(info.start, written).unwrap().to_vec();
        f(&mut data);
        io.reset(info.start, info.len_sectors).unwrap();
        let mut buf = AlignedBuf::zeroed(data.len() as u32);
        buf.write(0, &data);
        if !data.is_empty() {
            io.write(info.start, buf).unwrap();
        }
    }
}

pub(crate) fn open(device: Arc<dyn Device>) -> HostedDisk {
    HostedDisk::open(device, DiskConfig::default()).unwrap()
}

/// A disk that counts the commands of each of `ops` that are sent to `device`.
pub(crate) fn counting<const N: usize>(
    device: Arc<dyn Device>,
    ops: [Op; N],
) -> (HostedDisk, Arc<[AtomicU64; N]>) {
    let counts = Arc::new(ops.map(|_| AtomicU64::new(0)));
    let heard = counts.clone();
    let listener = move |e: &TapEvent| {
        if let Some(nth) = ops.iter().position(|op| (*op, None) == (e.op, e.status)) {
            heard[nth].fetch_add(1, Ordering::Relaxed);
        }
    };
    (open(TapDisk::new(device, Arc::new(listener))), counts)
}

/// Data of the record with this number.
pub(crate) fn data(n: u64, len: usize) -> Vec<u8> {
    (0..len).map(|i| (n as usize * 31 + i) as u8).collect()
}

/// Runs a future to its end in this thread.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    use std::task::{Context, Poll, Wake, Waker};
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}
