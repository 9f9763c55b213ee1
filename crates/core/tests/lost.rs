//! A BIO that cannot be delivered is counted as lost.

mod common;

use common::*;
use zoneplug_core::disk::DiskConfig;
use zoneplug_core::{Bios, Commands, Nanos, Op, Queue, Status, lost_bios};
use zoneplug_devices::emu::EmuDisk;

/// A broken device's queue: each read comes back with a BIO more than it had.
struct OneMoreQueue(Box<dyn Queue>);

impl Queue for OneMoreQueue {
    fn submit(&mut self, now: Nanos, commands: &mut Commands) {
        self.0.submit(now, commands);
    }
    fn poll(&mut self, now: Nanos, done: &mut Commands) {
        self.0.poll(now, done);
        for c in done.iter_mut().filter(|c| c.op == Op::Read) {
            c.bios.push(read(0, 4));
        }
    }
    fn next_deadline(&self) -> Option<Nanos> {
        self.0.next_deadline()
    }
    fn arm(&mut self) {
        self.0.arm();
    }
}

/// A device gives a client one BIO too many, so the client has as many as it submitted while one of its writes is
/// parked behind another client's, and leaves. When that write is done, its queue is gone.
#[test]
fn a_bio_whose_queue_is_gone_is_counted() {
    // Commands take 100 ns.
    let dev = EmuDisk::new(make(4, 64, 64).emu).expect("a device");
    let disk = open(wrapped(dev, |queue| Box::new(OneMoreQueue(queue))), DiskConfig::default());
    let mut stays = disk.open_polled_queue(4, 4).expect("a queue");
    let mut leaves = disk.open_polled_queue(4, 4).expect("a queue");
    assert_eq!(stays.submit(Nanos(0), &mut Bios::from([write(0, 8)])), 1);
    assert_eq!(leaves.submit(Nanos(0), &mut Bios::from([write(8, 8), read(64, 4)])), 2);
    let mut done = Bios::new();
    leaves.poll(Nanos(100), &mut done);
    assert_eq!((done.len(), leaves.outstanding()), (2, 0));
    drop(leaves);
    assert_eq!(lost_bios(), 0);
    done.clear();
    for now in 1..4 {
        stays.poll(Nanos(now * 100), &mut done);
    }
    assert_eq!((done.len(), done[0].status, stays.outstanding()), (1, Status::Ok, 0));
    assert_eq!(lost_bios(), 1);
}
