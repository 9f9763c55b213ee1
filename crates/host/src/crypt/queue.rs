//! One queue of the layer. A write goes down with memory of ours in the place of its BIOs, and gets them back; a
//! read is decrypted where it lies, once the device is done with it.

use super::{Key, SECTOR};
use std::sync::Arc;
use std::task::Waker;
use zoneplug_buf::{AlignedBuf, IoBuf};
use zoneplug_core::unit::{SECTOR_SHIFT, Sector};
use zoneplug_core::{Bio, Command, Commands, Nanos, Op, Queue, Status};

/// How much is encrypted at a time, on the stack.
const CHUNK: usize = 8 * SECTOR;

/// A write under way.
#[derive(Default)]
struct Slot {
    /// The command's own BIOs; of a free slot, the one that stands in for them, if there is one.
    #[allow(clippy::vec_box, reason = "it changes places with a command's")]
    bios: Vec<Box<Bio>>,
    memory: Option<AlignedBuf>,
    busy: bool,
}

pub(super) struct CryptQueue {
    key: Arc<Key>,
    inner: Box<dyn Queue>,
    slots: Vec<Slot>,
    free: Vec<usize>,
    /// Writes that have no memory to encrypt, not polled.
    refused: Commands,
    armed: bool,
    seen: Nanos,
    waker: Waker,
}

impl CryptQueue {
    pub(super) fn new(key: Arc<Key>, inner: Box<dyn Queue>, waker: Waker) -> CryptQueue {
        CryptQueue {
            key,
            inner,
            slots: Vec::new(),
            free: Vec::new(),
            refused: Commands::new(),
            armed: false,
            seen: Nanos(0),
            waker,
        }
    }

    #[cold]
    fn refuse(&mut self, commands: &mut Commands) {
        for mut c in std::mem::take(commands) {
            if c.op == Op::Write && !is_whole(&c) {
                c.status = Status::InvalidField;
                self.refused.push_back(c);
            } else {
                commands.push_back(c);
            }
        }
    }

    /// Puts encrypted memory in the place of a write's BIOs.
    fn seal(&mut self, c: &mut Command) {
        let id = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() - 1
        });
        let slot = &mut self.slots[id];
        let len = c.len_sectors << SECTOR_SHIFT;
        let memory = match slot.memory.take() {
            Some(m) if m.len() >= len => m,
            _ => AlignedBuf::zeroed(len.next_power_of_two()),
        };
        // SAFETY: the slot keeps the memory until its command is back from below; a queue that goes before that leaks it.
        let buf = unsafe { memory.io() }.slice(0, len);
        let mut at = 0;
        let mut chunk = [0; CHUNK];
        for bio in &c.bios {
            let mut from = 0;
            let end = bio.len_sectors << SECTOR_SHIFT;
            while from < end {
                let n = (end - from).min(CHUNK as u32);
                let part = &mut chunk[..n as usize];
                bio.buf.copy_to(from, part);
                self.key.encrypt(part, sector(c, at));
                buf.copy_from(at, part);
                (from, at) = (from + n, at + n);
            }
        }
        slot.memory = Some(memory);
        slot.busy = true;
        if slot.bios.is_empty() {
            slot.bios.push(Bio::new(Op::Write, c.sector, 0));
        }
        slot.bios[0].set(c.op, c.sector, c.len_sectors, buf);
        (slot.bios[0].token, slot.bios[0].flags) = (id as u64, c.flags);
        std::mem::swap(&mut slot.bios, &mut c.bios);
    }

    /// Undoes [`CryptQueue::seal`].
    fn unseal(&mut self, c: &mut Command) {
        let id = c.bios[0].token as usize;
        let slot = &mut self.slots[id];
        c.bios[0].buf = IoBuf::empty();
        std::mem::swap(&mut slot.bios, &mut c.bios);
        slot.busy = false;
        self.free.push(id);
    }

    fn decrypt(&self, c: &Command) {
        let mut at = 0;
        let mut chunk = [0; CHUNK];
        for bio in &c.bios {
            let (mut from, end) = (0, bio.buf.len());
            while from < end {
                let n = (end - from).min(CHUNK as u32);
                let part = &mut chunk[..n as usize];
                bio.buf.copy_to(from, part);
                self.key.decrypt(part, sector(c, at));
                bio.buf.copy_from(from, part);
                (from, at) = (from + n, at + n);
            }
        }
    }
}

/// The sector of a command `bytes` into it.
fn sector(c: &Command, bytes: u32) -> Sector {
    c.sector.plus(u64::from(bytes >> SECTOR_SHIFT))
}

/// Whether a write has the memory that it says.
fn is_whole(c: &Command) -> bool {
    !c.bios.is_empty() && c.has_whole_bios(false)
}

impl Queue for CryptQueue {
    fn submit(&mut self, now: Nanos, commands: &mut Commands) {
        self.seen = now;
        if commands.iter().any(|c| c.op == Op::Write && !is_whole(c)) {
            self.refuse(commands);
        }
        for c in commands.iter_mut().filter(|c| c.op == Op::Write) {
            self.seal(c);
        }
        self.inner.submit(now, commands);
        // Not taken: as they came.
        for c in commands.iter_mut().filter(|c| c.op == Op::Write) {
            self.unseal(c);
        }
        if self.armed && !self.refused.is_empty() {
            self.armed = false;
            self.waker.wake_by_ref();
        }
    }

    fn poll(&mut self, now: Nanos, done: &mut Commands) {
        let first = done.len();
        self.inner.poll(now, done);
        for c in done.range_mut(first..) {
            match c.op {
                Op::Write => self.unseal(c),
                Op::Read if c.status.is_ok() => self.decrypt(c),
                _ => {}
            }
        }
        done.append(&mut self.refused);
    }

    fn next_deadline(&self) -> Option<Nanos> {
        if self.refused.is_empty() { self.inner.next_deadline() } else { Some(self.seen) }
    }

    fn arm(&mut self) {
        self.armed = true;
        self.inner.arm();
        if !self.refused.is_empty() {
            self.armed = false;
            self.waker.wake_by_ref();
        }
    }

    fn arm_fd(&mut self) -> Option<i32> {
        if self.refused.is_empty() {
            return self.inner.arm_fd();
        }
        self.arm();
        None
    }
}

impl Drop for CryptQueue {
    fn drop(&mut self) {
        for slot in self.slots.iter_mut().filter(|s| s.busy) {
            // The device may still read it.
            std::mem::forget(slot.memory.take());
        }
    }
}
