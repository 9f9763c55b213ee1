//! The commands of a connection. A slot's number is the transfer tag of its command.

use super::Received;
use crate::spec::Command;
use zoneplug_buf::AlignedBuf;

/// The progress of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SlotState {
    /// The slot has no command.
    Free,
    /// The data are being received with the capsule.
    InCapsule,
    /// The command is complete, and comes up next.
    Ready,
    /// The data must be fetched, once there is memory for them.
    WaitsToFetch,
    /// The command comes up once there is memory for the data that it requests.
    WaitsToSend,
    /// The data were requested.
    Fetching,
    /// The command has come up.
    Up,
    /// The command is answered, and its answer is not completely sent.
    Answered,
}

/// A command.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) state: SlotState,
    pub(super) command: Command,
    /// The memory for the host's data, until the command comes up.
    pub(super) data: Option<AlignedBuf>,
    /// Bytes of data, in either direction, and how many of them have arrived.
    pub(super) len: u32,
    pub(super) got: u32,
    /// Bytes that count towards the connection's limit.
    pub(super) holds: u32,
    /// A data digest was wrong.
    pub(super) spoilt: bool,
}

/// All commands.
#[derive(Debug, Default)]
pub(super) struct Slots {
    all: Vec<Slot>,
    free: Vec<u16>,
}

impl Slots {
    /// Returns the number of commands in flight.
    pub(super) fn used(&self) -> usize {
        self.all.len() - self.free.len()
    }

    /// Takes a slot for a command, if fewer than `max` are in flight.
    pub(super) fn take(
        &mut self,
        command: Command,
        state: SlotState,
        len: u32,
        max: u32,
    ) -> Option<u16> {
        if self.used() >= max as usize {
            return None;
        }
        let slot = Slot { state, command, data: None, len, got: 0, holds: 0, spoilt: false };
        if let Some(n) = self.free.pop() {
            self.all[usize::from(n)] = slot;
            return Some(n);
        }
        let n = u16::try_from(self.all.len()).ok()?;
        self.all.push(slot);
        Some(n)
    }

    pub(super) fn get(&self, slot: u16) -> Option<&Slot> {
        self.all.get(usize::from(slot))
    }

    pub(super) fn get_mut(&mut self, slot: u16) -> Option<&mut Slot> {
        self.all.get_mut(usize::from(slot))
    }

    /// Returns the commands whose data were requested or are being received with their capsules.
    pub(super) fn awaited(&self) -> impl Iterator<Item = &Command> {
        let awaits = |e: &&Slot| matches!(e.state, SlotState::Fetching | SlotState::InCapsule);
        self.all.iter().filter(awaits).map(|e| &e.command)
    }

    /// Returns the memory for the last `left` bytes of a command's data.
    pub(super) fn rest_of_data(&mut self, slot: u16, left: u32) -> &mut [u8] {
        let Some(entry) = self.get_mut(slot) else { return &mut [] };
        let got = entry.got as usize;
        match &mut entry.data {
            Some(buf) => &mut buf.as_mut_slice()[got..got + left as usize],
            None => &mut [],
        }
    }

    /// Hands a command up.
    pub(super) fn come_up(&mut self, slot: u16) -> Option<Received> {
        let entry = self.get_mut(slot)?;
        entry.state = SlotState::Up;
        let (command, data, len) = (entry.command, entry.data.take(), entry.len);
        Some(Received { slot, command, data, len })
    }

    /// Marks the slot's command as answered and returns it. `None`: no command of the slot has come up, or failed on
    /// its way.
    pub(super) fn answered(&mut self, slot: u16) -> Option<Command> {
        let entry = self.get_mut(slot).filter(|e| e.state == SlotState::Up)?;
        entry.state = SlotState::Answered;
        Some(entry.command)
    }

    /// Frees a slot whose answer was sent. Returns the bytes that it held.
    pub(super) fn free(&mut self, slot: u16) -> u64 {
        let entry = &mut self.all[usize::from(slot)];
        entry.state = SlotState::Free;
        self.free.push(slot);
        u64::from(entry.holds)
    }
}
