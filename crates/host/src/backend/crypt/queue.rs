//! One queue of the layer. While a write is at the device, its BIOs are replaced by one with encrypted data. A read
//! is decrypted in the client's memory when the device has completed it.

use super::{Key, SECTOR};
use std::sync::Arc;
use std::task::Waker;
use zoneplug_buf::{AlignedBuf, Lent};
use zoneplug_core::unit::{SECTOR_SHIFT, Sector};
use zoneplug_core::{Bio, Command, Commands, Nanos, Op, Queue, Status};

/// How much is encrypted at a time, on the stack.
const CHUNK: usize = 8 * SECTOR;

/// A write in flight.
#[derive(Default)]
struct CryptSlot {
    /// The command's own BIOs. In a free slot: this layer's BIO, if there is one.
    #[allow(clippy::vec_box, reason = "it changes places with a command's")]
    bios: Vec<Box<Bio>>,
    /// Memory of this layer, unless it is lent.
    memory: Option<AlignedBuf>,
    lent: Option<Lent>,
    /// The address of the command, which does not move while the device has it; 0: the slot is free.
    command: usize,
}

/// The writes in flight, and the key.
struct CryptSlots {
    key: Arc<Key>,
    slots: Vec<CryptSlot>,
    free: Vec<usize>,
}

impl CryptSlots {
    /// Replaces a write's BIOs by one with encrypted data.
    fn seal(&mut self, c: &mut Command) {
        let id = self.free.pop().unwrap_or_else(|| {
            self.slots.push(CryptSlot::default());
            self.slots.len() - 1
        });
        let slot = &mut self.slots[id];
        let len = c.len_sectors << SECTOR_SHIFT;
        let mut memory = match slot.memory.take() {
            Some(m) if m.len() >= len => m,
            _ => AlignedBuf::zeroed(len.next_power_of_two()),
        };
        let mut at = 0;
        let mut chunk = [0; CHUNK];
        for bio in &c.bios {
            let mut from = 0;
            let end = bio.len_sectors << SECTOR_SHIFT;
            while from < end {
                let n = (end - from).min(CHUNK as u32);
                let part = &mut chunk[..n as usize];
                bio.data().copy_to(from, part);
                self.key.encrypt(part, sector(c, at));
                memory.write(at, part);
                (from, at) = (from + n, at + n);
            }
        }
        let (lent, buf) = memory.lend_part(0, len);
        slot.lent = Some(lent);
        slot.command = address(c);
        if slot.bios.is_empty() {
            slot.bios.push(Bio::new(Op::Write, c.sector, 0));
        }
        slot.bios[0].set(c.op, c.sector, c.len_sectors, buf);
        slot.bios[0].flags = c.flags;
        std::mem::swap(&mut slot.bios, &mut c.bios);
    }

    /// Undoes [`CryptSlots::seal`]. False: the command was not sealed.
    fn unseal(&mut self, c: &mut Command) -> bool {
        let at = address(c);
        let Some(id) = self.slots.iter().position(|s| s.command == at) else { return false };
        let slot = &mut self.slots[id];
        std::mem::swap(&mut slot.bios, &mut c.bios);
        // If the device has kept or exchanged the BIO, the memory that the slot has lent is lost.
        slot.bios.truncate(1);
        let buf = slot.bios.first_mut().map(|bio| bio.take_buf()).unwrap_or_default();
        slot.memory = slot.lent.take().and_then(|lent| lent.take_back(buf).ok());
        if slot.memory.is_none() && c.status.is_ok() {
            c.status = Status::Io;
        }
        slot.command = 0;
        self.free.push(id);
        true
    }

    fn decrypt(&self, c: &mut Command) {
        let mut at = 0;
        let mut chunk = [0; CHUNK];
        let start = c.sector;
        for bio in c.bios.iter_mut().filter(|bio| !bio.data().is_shared()) {
            let (mut from, end) = (0, bio.data().len());
            while from < end {
                let n = (end - from).min(CHUNK as u32);
                let part = &mut chunk[..n as usize];
                bio.data().copy_to(from, part);
                self.key.decrypt(part, start.plus(u64::from(at >> SECTOR_SHIFT)));
                bio.data_mut().copy_from(from, part);
                (from, at) = (from + n, at + n);
            }
        }
    }
}

/// Commands are identified by their addresses: a box does not move while the device below holds it.
fn address(c: &Command) -> usize {
    std::ptr::from_ref(c).addr()
}

/// A list lent to the device. On drop its commands from `first` on get the client's memory back, also if the device
/// panics.
struct GivenBack<'a> {
    slots: &'a mut CryptSlots,
    list: &'a mut Commands,
    first: usize,
    /// True: the commands are completed. False: the device has not taken them.
    up: bool,
}

impl Drop for GivenBack<'_> {
    fn drop(&mut self) {
        for c in self.list.range_mut(self.first..) {
            if !self.slots.unseal(c) && c.op == Op::Read && self.up && c.status.is_ok() {
                self.slots.decrypt(c);
            }
        }
    }
}

pub(super) struct CryptQueue {
    inner: Box<dyn Queue>,
    slots: CryptSlots,
    /// Longest command, in sectors.
    max: u32,
    depth: usize,
    /// Commands that were refused and have not been polled.
    refused: Commands,
    armed: bool,
    seen: Nanos,
    waker: Waker,
}

impl CryptQueue {
    pub(super) fn new(
        key: Arc<Key>,
        inner: Box<dyn Queue>,
        max: u32,
        depth: u16,
        waker: Waker,
    ) -> CryptQueue {
        let depth = usize::from(depth);
        CryptQueue {
            inner,
            slots: CryptSlots {
                key,
                slots: Vec::with_capacity(depth),
                free: Vec::with_capacity(depth),
            },
            max,
            depth,
            refused: Commands::new(),
            armed: false,
            seen: Nanos(0),
            waker,
        }
    }

    /// Why a command must not be sent. The sector of a native append is unknown, and so is its tweak; data without
    /// memory cannot be encrypted.
    fn refusal(&self, c: &Command) -> Option<Status> {
        match c.op {
            Op::ZoneAppend => Some(Status::NotSupported),
            Op::Read | Op::Write if c.len_sectors > self.max => Some(Status::InvalidField),
            Op::Write if c.bios.is_empty() || !c.has_whole_bios(false) => {
                Some(Status::InvalidField)
            }
            _ => None,
        }
    }

    fn send(&mut self, now: Nanos, commands: &mut Commands) {
        for c in commands.iter_mut().filter(|c| c.op == Op::Write) {
            self.slots.seal(c);
        }
        let list = GivenBack { slots: &mut self.slots, list: commands, first: 0, up: false };
        self.inner.submit(now, list.list);
    }

    /// Sends commands in order; some of them are refused.
    #[cold]
    fn send_some(&mut self, now: Nanos, commands: &mut Commands) {
        while let Some(first) = commands.front() {
            if let Some(status) = self.refusal(first) {
                if self.refused.len() >= self.depth {
                    return;
                }
                if let Some(mut c) = commands.pop_front() {
                    c.status = status;
                    self.refused.push_back(c);
                }
                continue;
            }
            let good = commands.iter().take_while(|c| self.refusal(c).is_none()).count();
            let mut rest = commands.split_off(good);
            self.send(now, commands);
            let turned_away = !commands.is_empty();
            commands.append(&mut rest);
            if turned_away {
                return;
            }
        }
    }
}

/// The sector of byte `bytes` of a command.
fn sector(c: &Command, bytes: u32) -> Sector {
    c.sector.plus(u64::from(bytes >> SECTOR_SHIFT))
}

impl Queue for CryptQueue {
    fn submit(&mut self, now: Nanos, commands: &mut Commands) {
        self.seen = now;
        if commands.iter().any(|c| self.refusal(c).is_some()) {
            self.send_some(now, commands);
        } else {
            self.send(now, commands);
        }
        if self.armed && !self.refused.is_empty() {
            self.armed = false;
            self.waker.wake_by_ref();
        }
    }

    fn poll(&mut self, now: Nanos, done: &mut Commands) {
        let first = done.len();
        let list = GivenBack { slots: &mut self.slots, list: done, first, up: true };
        self.inner.poll(now, list.list);
        drop(list);
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
