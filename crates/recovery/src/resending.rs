//! The steps of a search as a door carries them out, and a command that may have been sent again while a step of its search
//! is with the disk.

use crate::client_key::ClientKey;
use crate::disk::DiskRecovery;
use crate::ledger::Landed;
use crate::resend::{Outcome, Resend, ResendStep, Search, StepIo};
use zoneplug_buf::AlignedBuf;
use zoneplug_core::{Flags, IoRequest, IoResult, Nanos, Op, Status};

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
    /// The search, with the next step.
    pub search: Search,
    /// The command's data.
    pub data: Option<AlignedBuf>,
    /// The buffer of the step, which is not needed any more.
    pub own: Option<AlignedBuf>,
}

/// A door's part of a step. Each door carries it out with its own clients and buffers.
#[derive(Debug)]
pub enum DoorStep {
    /// Send this request to the disk. Keep the rest with the command until the request has ended: [`Resending::ended`].
    Send(IoRequest, Box<Resending>),
    /// Wait until no command of the zone can be carried out that the disk has given up: [`LateWait`], or [`NOTHING_LATE`] if
    /// there is none.
    AwaitLate(Resend),
    /// Send the command as it is: the client has not sent it before.
    CarryOut,
    /// Answer the command with success, and count it as replayed: an earlier server, or an earlier connection, has carried
    /// it out.
    Replayed(IoResult),
    /// Answer the command with this failure.
    Failed(IoResult),
}

impl Search {
    /// Returns the door's part of the step. `r`: the request of the command. `data`: the command's buffer; while the step asks
    /// the disk, the buffer of the step is there in its place, which `take` makes with a length in bytes.
    pub fn carry_out(
        self,
        r: &IoRequest,
        data: &mut Option<AlignedBuf>,
        take: impl FnOnce(u32) -> AlignedBuf,
    ) -> DoorStep {
        let Search { resend, step } = self;
        let result = |status, sector| IoResult { status, sector, zones: 0 };
        match step {
            ResendStep::Ask(io) => {
                let own = (io.bytes > 0).then(|| take(io.bytes));
                let data = std::mem::replace(data, own);
                let resending = Resending { resend, asked: Some(io), data };
                DoorStep::Send(io.request(r), Box::new(resending))
            }
            ResendStep::WriteRest(done) => {
                DoorStep::Send(rest_of(r, done), Box::new(Resending::waiting(resend)))
            }
            ResendStep::AwaitLate => DoorStep::AwaitLate(resend),
            ResendStep::CarryOut => DoorStep::CarryOut,
            ResendStep::Done(sector) => DoorStep::Replayed(result(Status::Ok, sector)),
            ResendStep::Failed(status) => DoorStep::Failed(result(status, r.sector)),
        }
    }
}

impl Resending {
    /// Makes a command whose step waits, or writes the rest of its data.
    pub fn waiting(resend: Resend) -> Resending {
        Resending { resend, asked: None, data: None }
    }

    /// Takes the outcome of a wait.
    pub fn waited(self, outcome: Outcome, recovery: &DiskRecovery, now: Nanos) -> Search {
        recovery.next(self.resend, outcome, now)
    }

    /// Returns the command's data, if the step has another buffer.
    pub fn into_data(self) -> Option<AlignedBuf> {
        self.data
    }

    /// Takes the end of the step's request: its result and its buffer.
    pub fn ended(
        self,
        result: IoResult,
        buf: Option<AlignedBuf>,
        recovery: &DiskRecovery,
        now: Nanos,
    ) -> StepEnd {
        let Resending { resend, asked, data } = self;
        let (outcome, data, own) = match asked {
            Some(io) => (io.outcome(result, buf.as_ref(), data.as_ref()), data, buf),
            None => (Outcome::Ended(result.status), buf, None),
        };
        StepEnd { search: recovery.next(resend, outcome, now), data, own }
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
    fn request(self, r: &IoRequest) -> IoRequest {
        let StepIo { op, sector, len_sectors, bytes, .. } = self;
        IoRequest { op, sector, len_sectors, memory: (0, bytes), flags: Flags::NONE, ..*r }
    }
}

/// Returns the write `r` without its first `done` sectors.
fn rest_of(r: &IoRequest, done: u32) -> IoRequest {
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
    use crate::resend::SentCommand;
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
        let begun = disk.begin(r.op, SentCommand::of(client, &r), Some(&buf), Nanos(0));
        let begun = begun.unwrap().carry_out(&r, &mut None, AlignedBuf::zeroed);
        let DoorStep::Send(asked, mut resending) = begun else { panic!("it is not found") };
        assert_eq!((asked.op, asked.sector), (Op::Read, landed.at));
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
