//! Queues that are opened while another is in the middle of a poll: that one has looked for its peers already, and has
//! BIOs for them all the same.

use crate::common::*;
use std::sync::{Arc, Mutex};
use zoneplug_core::disk::{Disk, DiskConfig, DiskQueue};
use zoneplug_core::{Bios, Commands, Nanos, Op, Queue, Status, lost_bios};
use zoneplug_devices::emu::EmuDisk;

type Hook = Mutex<Option<Box<dyn FnOnce() + Send>>>;

/// A device that does something else first when it is polled with a command at it: what another thread might do then.
struct InterruptedQueue(Box<dyn Queue>, Arc<Hook>);

impl Queue for InterruptedQueue {
    fn submit(&mut self, now: Nanos, commands: &mut Commands) {
        self.0.submit(now, commands);
    }
    fn poll(&mut self, now: Nanos, done: &mut Commands) {
        let before = done.len();
        self.0.poll(now, done);
        if done.len() > before {
            let hook = self.1.lock().unwrap().take();
            if let Some(hook) = hook {
                hook();
            }
        }
    }
    fn next_deadline(&self) -> Option<Nanos> {
        self.0.next_deadline()
    }
    fn arm(&mut self) {
        self.0.arm();
    }
}

/// A's write ends so. While A polls for it a queue is opened, perhaps with the id of one that has just been closed, and
/// writes behind it: what does A make of that write, and what does its owner get?
fn meets(ended: Status, reuse: bool) -> Vec<(u64, Status)> {
    let m = make(4, 64, 64);
    let dev = EmuDisk::new(m.emu).unwrap();
    let hook = Arc::new(Hook::default());
    let slot = hook.clone();
    let device = wrapped(dev.clone(), move |q| Box::new(InterruptedQueue(q, slot.clone())));
    let disk = open(device, DiskConfig::default());
    let mut a = disk.open_polled_queue(8, 4).unwrap();
    let other = reuse.then(|| disk.open_polled_queue(8, 4).unwrap());
    // A has looked.
    a.poll(Nanos(0), &mut Bios::new());
    if !ended.is_ok() {
        dev.fail_next(zoneplug_devices::emu::Fault::next(Op::Write, ended));
    }
    assert_eq!(a.submit(Nanos(0), &mut Bios::from([token(write(0, 8), 1)])), 1);
    let came: Arc<Mutex<Option<DiskQueue>>> = Arc::default();
    let (to, on): (_, Disk) = (came.clone(), disk);
    *hook.lock().unwrap() = Some(Box::new(move || {
        drop(other);
        let mut new = on.open_polled_queue(8, 4).unwrap();
        assert_eq!(new.submit(Nanos(100), &mut Bios::from([token(write(8, 8), 2)])), 1);
        *to.lock().unwrap() = Some(new);
    }));
    let mut done = Bios::new();
    a.poll(Nanos(100), &mut done);
    let mut new = came.lock().unwrap().take().expect("it was opened");
    assert_eq!(new.outstanding(), 1);
    // What A has sent for the new queue ends 100 ns later.
    a.poll(Nanos(200), &mut done);
    new.poll(Nanos(200), &mut done);
    assert_eq!(
        (a.outstanding(), new.outstanding()),
        (0, 0),
        "a BIO of a queue that was just opened"
    );
    done.iter().map(|b| (b.token(), b.status)).collect()
}

/// I7: a BIO of a queue that was just opened finds its owner: aborted together with what another queue sent, or sent by
/// it.
#[test]
fn i7_a_bio_of_a_queue_that_was_just_opened_comes_back() {
    for reuse in [false, true] {
        let aborted = [(1, Status::Io), (2, Status::AbortedBehind)];
        assert_eq!(meets(Status::Io, reuse), aborted, "reuse {reuse}");
        assert_eq!(meets(Status::Ok, reuse), [(1, Status::Ok), (2, Status::Ok)], "reuse {reuse}");
    }
    assert_eq!(lost_bios(), 0);
}
