//! A command that may have been sent again, while a step of its search is with the disk. Every door keeps one for such a command.

use crate::client_key::ClientKey;
use crate::disk::DiskRecovery;
use crate::ledger::Landed;
use crate::resend::{Outcome, Resend, StepIo};
use zoneplug_buf::AlignedBuf;
use zoneplug_core::{Flags, IoRequest, Nanos, Op, Status};

/// A command that may have been sent again, and the step that goes on.
#[derive(Debug)]
pub struct Resending {
    resend: Resend,
    /// The request by which the step asks the disk. `None`: the step waits, or the rest of a write is written.
    asked: Option<StepIo>,
    /// The command's data, while a step asks the disk.
    data: Option<AlignedBuf>,
}

/// A resent write that waits until the device has answered the commands of its zone that the disk has given up: one of
/// them may be the first sending of the write.
#[derive(Debug)]
pub struct LateWait {
    /// The slot of the write.
    pub slot: u16,
    /// The index of its disk's client.
    pub client: usize,
    /// The end of the wait: the write is refused then.
    until: Nanos,
}

impl LateWait {
    /// Begins a wait of at most `limit`.
    pub fn new(slot: u16, client: usize, limit: Nanos, now: Nanos) -> LateWait {
        LateWait { slot, client, until: Nanos(now.0.saturating_add(limit.0)) }
    }

    /// Returns the outcome of the wait, for [`DiskRecovery::next`]. `None`: it goes on. `limit`: that of a wait which would
    /// begin now; without one, nothing is late any more.
    pub fn outcome(&self, limit: Option<Nanos>, now: Nanos) -> Option<Outcome> {
        match limit {
            None => Some(NOTHING_LATE),
            Some(_) if now < self.until => None,
            Some(_) => Some(Outcome::Ended(Status::Timeout)),
        }
    }
}

/// The outcome of a wait for late commands where there is none.
pub const NOTHING_LATE: Outcome = Outcome::Ended(Status::Ok);

/// The end of a step.
#[derive(Debug)]
pub struct StepEnd {
    /// The search.
    pub resend: Resend,
    /// The outcome of the step, for [`DiskRecovery::next`].
    pub outcome: Outcome,
    /// The command's data.
    pub data: Option<AlignedBuf>,
    /// The buffer of the step, which is not needed any more.
    pub own: Option<AlignedBuf>,
}

impl Resending {
    /// Makes a command whose step waits, or writes the rest of its data.
    pub fn waiting(resend: Resend) -> Resending {
        Resending { resend, asked: None, data: None }
    }

    /// Makes a command whose step asks the disk. Keeps the command's data meanwhile.
    pub fn asking(resend: Resend, io: StepIo, data: Option<AlignedBuf>) -> Resending {
        Resending { resend, asked: Some(io), data }
    }

    /// Returns the search of a step that has waited.
    pub fn into_resend(self) -> Resend {
        self.resend
    }

    /// Returns the command's data, if the step has another buffer.
    pub fn into_data(self) -> Option<AlignedBuf> {
        self.data
    }

    /// Takes the end of the step's request: its status, its number of reported zones, and its buffer.
    pub fn ended(self, (status, zones): (Status, u32), buf: Option<AlignedBuf>) -> StepEnd {
        let Resending { resend, asked, data } = self;
        match asked {
            Some(io) => {
                let outcome = io.outcome((status, zones), buf.as_ref(), data.as_ref());
                StepEnd { resend, outcome, data, own: buf }
            }
            None => StepEnd { resend, outcome: Outcome::Ended(status), data: buf, own: None },
        }
    }

    /// Notes the request `r` of a client again, because the connection has ended and the client may send it once more.
    /// `resets`: see [`DiskRecovery::resets`].
    pub fn lose(&mut self, client: ClientKey, r: &IoRequest, resets: u32, recovery: &DiskRecovery) {
        if r.op != Op::ZoneAppend {
            recovery.with(|ledger| ledger.lose_write(client, r.sector, r.len_sectors));
        } else if let Some(at) = self.resend.found_at() {
            let landed = Landed { at, len_sectors: r.len_sectors, hash: None };
            recovery.lose_append(client, landed, resets);
        }
        recovery.with(|ledger| self.resend.abandon(ledger));
    }
}

impl StepIo {
    /// Returns the request of this step of the command `r`.
    pub fn request(self, r: &IoRequest) -> IoRequest {
        let StepIo { op, sector, len_sectors, bytes, .. } = self;
        IoRequest { op, sector, len_sectors, memory: (0, bytes), flags: Flags::NONE, ..*r }
    }
}

/// Returns the write `r` without its first `done` sectors.
pub fn rest_of(r: &IoRequest, done: u32) -> IoRequest {
    let bytes = if r.memory.1 == 0 { 0 } else { r.memory.1 - (done << 9) };
    IoRequest {
        sector: r.sector.plus(u64::from(done)),
        len_sectors: r.len_sectors - done,
        memory: (r.memory.0 + (r.memory.1 - bytes), bytes),
        ..*r
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::data_hash;
    use crate::last_server::WINDOW;
    use crate::resend::{ResendStep, Sent};
    use zoneplug_core::Sector;
    use zoneplug_core::zone::Geometry;

    /// L4. The connection of a resent append ends while its place is compared: the note is kept no longer than without that.
    #[test]
    fn l4_a_comparison_ends_with_its_connection() {
        let disk = DiskRecovery::new(Geometry::new(4, 0x800, 0x800).unwrap());
        let (client, buf) = (ClientKey(1), AlignedBuf::zeroed(4096));
        let hash = Some(data_hash(&buf, 4096));
        let landed = Landed { at: Sector(0x808), len_sectors: 8, hash };
        disk.with(|ledger| ledger.lose_append(client, landed));
        let sector = Sector(0x800);
        let r = IoRequest { sector, len_sectors: 8, ..IoRequest::new(0, Op::ZoneAppend) };
        let begun = disk.begin(r.op, Sent::of(client, &r), Some(&buf), Nanos(0));
        let Some((resend, ResendStep::Ask(io))) = begun else { panic!("it is not found") };
        let mut resending = Resending::asking(resend, io, None);
        resending.lose(client, &r, disk.resets(sector), &disk);
        let has_appends = |at| {
            disk.with(|ledger| {
                ledger.is_back(client, at);
                ledger.has_appends()
            })
        };
        assert!(has_appends(Nanos(0)) && !has_appends(WINDOW));
    }
}
