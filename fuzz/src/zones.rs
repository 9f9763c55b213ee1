//! The zones of a disk as the answers to a client say that they are, and the device beside them.

use std::sync::Arc;
use std::task::Waker;
use zoneplug_buf::{AlignedBuf, IoBuf, Lent};
use zoneplug_core::zone::Condition;
use zoneplug_core::{Bio, Command, Commands, Device, Nanos, Op, Sector, ZoneNo};
use zoneplug_devices::emu::EmuDisk;

/// Numbers of blocks, but for the first.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    pub(crate) block_sectors: u32,
    /// A zone.
    pub(crate) size: u32,
    /// The part of a zone that can be written.
    pub(crate) capacity: u32,
}

/// The byte that each block is filled with, and the write pointer.
#[derive(Debug, Clone)]
struct Zone {
    blocks: Vec<u8>,
    /// Blocks that a client has deallocated since: they may be zero instead.
    deallocated: Vec<bool>,
    wp: u32,
}

/// All zones. The first ones are conventional.
pub(crate) struct Zones {
    layout: Layout,
    conventional: u32,
    zones: Vec<Zone>,
}

impl Zones {
    pub(crate) fn new(layout: Layout, conventional: u32, sequential: u32) -> Zones {
        let zone = Zone {
            blocks: vec![0; layout.size as usize],
            deallocated: vec![false; layout.size as usize],
            wp: 0,
        };
        Zones { layout, conventional, zones: vec![zone; (conventional + sequential) as usize] }
    }

    fn place(&self, block: u32) -> (usize, usize) {
        ((block / self.layout.size) as usize, (block % self.layout.size) as usize)
    }

    /// Notes that blocks were written.
    pub(crate) fn write(&mut self, mut block: u32, blocks: u32, fill: u8) {
        if block >= self.conventional * self.layout.size {
            let (z, n) = self.place(block);
            let zone = &mut self.zones[z];
            assert_eq!(n, zone.wp as usize, "zone {z}: at the write pointer");
            zone.wp += blocks;
            assert!(zone.wp <= self.layout.capacity, "zone {z}: within the capacity");
        }
        for _ in 0..blocks {
            let (z, n) = self.place(block);
            self.zones[z].blocks[n] = fill;
            self.zones[z].deallocated[n] = false;
            block += 1;
        }
    }

    /// Notes that a sequential zone was reset.
    pub(crate) fn reset(&mut self, zone: u32) {
        let zone = &mut self.zones[zone as usize];
        zone.blocks.fill(0);
        zone.deallocated.fill(false);
        zone.wp = 0;
    }

    /// Notes that a zone was finished.
    pub(crate) fn finish(&mut self, zone: u32) {
        self.zones[zone as usize].wp = self.layout.capacity;
    }

    /// The sequential zones.
    pub(crate) fn sequential(&self) -> std::ops::Range<u32> {
        self.conventional..self.zones.len() as u32
    }

    pub(crate) fn is_empty(&self, zone: u32) -> bool {
        self.zones[zone as usize].wp == 0
    }

    /// Notes that a client has deallocated a block. Only the conventional blocks are a drive's to forget, and it may forget
    /// some although the command fails.
    pub(crate) fn deallocate(&mut self, block: u32) {
        let (z, n) = self.place(block);
        self.zones[z].deallocated[n] = true;
    }

    /// The block reads as it was written.
    pub(crate) fn check_block(&self, block: u32, data: &[u8]) {
        let (z, n) = self.place(block);
        let zone = &self.zones[z];
        let all = |fill| data.iter().all(|b| *b == fill);
        let good = all(zone.blocks[n]) || zone.deallocated[n] && all(0);
        assert!(good, "zone {z}, block {n}: not as in {zone:?}");
    }

    /// The device is what the answers say. `opened`: a zone was opened without a write, so it may have been finished with all
    /// others.
    pub(crate) fn check(&self, emu: &Arc<EmuDisk>, opened: bool) {
        let mut queue = emu.open_queue(1, Waker::noop().clone()).expect("a queue");
        let Layout { block_sectors, size, capacity } = self.layout;
        for (z, zone) in (0u32..).zip(&self.zones) {
            let info = emu.zone_info(ZoneNo(z));
            let wp = match info.cond {
                Condition::Full => capacity,
                Condition::NotWp => 0,
                _ => (info.wp.0 - info.start.0) as u32 / block_sectors,
            };
            assert!(wp == zone.wp || opened && wp == capacity, "zone {z}: {info:?}, not {zone:?}");
            for n in 0..size {
                let sector = Sector(info.start.0 + u64::from(n * block_sectors));
                let (lent, io): (Lent, IoBuf) = AlignedBuf::zeroed(block_sectors << 9).lend();
                let bio = Bio::with_buf(Op::Read, sector, block_sectors, io);
                let mut list = Commands::from([Command::of(bio)]);
                let mut done = Commands::new();
                queue.submit(Nanos(0), &mut list);
                queue.poll(Nanos(0), &mut done);
                let mut bio = done[0].bios.pop().expect("a BIO");
                let data = lent.take_back(bio.take_buf()).expect("its memory");
                self.check_block(z * size + n, data.as_slice());
            }
        }
        assert_eq!(emu.stats().overlaps, 0);
    }
}
