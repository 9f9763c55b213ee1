//! The steps that recognise a write or an append which may have been sent again. The caller carries out the steps,
//! compares data, and answers.
//!
//! A write comes here after the disk has refused it because it does not begin at the write pointer, or because the write
//! pointer is unknown. The data between its start and the write pointer are compared with its own. If they are equal,
//! they are this write's, and the rest is written. If they differ, the write is refused. If a client has one write of a
//! zone in flight, its first write of each zone comes here before it reaches the disk.
//!
//! A disk with a deadline may have given up the command that was sent first, and the device may still carry it out. The
//! zone is not reported before the device has answered all such commands of the zone: a report that is older than the
//! write would say that it is not there. The report also makes a write pointer known again that the given-up command
//! has made unknown.
//!
//! An append comes here before it reaches the disk. Its data are compared with those of each place that may be its
//! own. If none is equal, the append is carried out.
//!
//! Data of a FUA command are flushed before the answer.

use crate::client_key::ClientKey;
use crate::data::written_in;
use crate::ledger::{AppendData, AppendSearch, ClaimId, ResendLedger};
use zoneplug_buf::AlignedBuf;
use zoneplug_core::zone::{ZONE_RECORD_LEN, ZoneInfo};
use zoneplug_core::{Flags, IoRequest, IoResult, Nanos, Op, Sector, Status, ZoneNo};

/// Sectors of a write that are read at a time for comparison: 1 MiB. A write of zeroes may be as long as a zone.
const PIECE: u32 = 2048;

/// A command as a client has sent it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SentCommand {
    /// Its client.
    pub client: ClientKey,
    /// The first sector of a write; for an append, the start of the zone.
    pub sector: Sector,
    /// How long it is.
    pub len_sectors: u32,
    /// Whether its data must be durable before the answer.
    pub fua: bool,
}

impl SentCommand {
    /// Makes the command of a client that has led to this request.
    pub fn of(client: ClientKey, r: &IoRequest) -> SentCommand {
        let fua = r.flags.contains(Flags::FUA);
        SentCommand { client, sector: r.sector, len_sectors: r.len_sectors, fua }
    }
}

/// A request that a step makes to the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepIo {
    /// [`Op::ReportZones`]: report the zone of the command. [`Op::Read`]: read data that are compared with the command's.
    /// [`Op::Flush`]: make the disk's data durable.
    pub op: Op,
    /// The first sector.
    pub sector: Sector,
    /// How many sectors are read.
    pub len_sectors: u32,
    /// The length of the buffer that the request needs, apart from the command's data; 0: it needs none.
    pub bytes: u32,
    /// How many sectors of the command's data are before those that are compared.
    pub skip: u32,
}

impl StepIo {
    fn report(zone_start: Sector) -> StepIo {
        let bytes = ZONE_RECORD_LEN as u32;
        StepIo { op: Op::ReportZones, sector: zone_start, len_sectors: 0, bytes, skip: 0 }
    }

    pub(crate) fn compare(at: Sector, len_sectors: u32, skip: u32) -> StepIo {
        StepIo { op: Op::Read, sector: at, len_sectors, bytes: len_sectors << 9, skip }
    }

    const FLUSH: StepIo =
        StepIo { op: Op::Flush, sector: Sector(0), len_sectors: 0, bytes: 0, skip: 0 };

    /// Returns the outcome of the request, which has come back with this result. `found`: its buffer.
    /// `data`: the data of the command; `None`: zeroes.
    pub fn outcome(
        self,
        result: IoResult,
        found: Option<&AlignedBuf>,
        data: Option<&AlignedBuf>,
    ) -> Outcome {
        let IoResult { status, zones, .. } = result;
        match self.op {
            Op::ReportZones => {
                let buf = found.filter(|_| status.is_ok() && zones > 0);
                Outcome::Zone(buf.and_then(|buf| ZoneInfo::decode_at(buf, 0)))
            }
            Op::Read if status.is_ok() => Outcome::Compared(self.is_equal(found, data)),
            _ => Outcome::Ended(status),
        }
    }

    /// Compares what was read with the data of the command. Without data, compares with zeroes.
    fn is_equal(&self, found: Option<&AlignedBuf>, data: Option<&AlignedBuf>) -> bool {
        let (bytes, skip) = (self.bytes as usize, (self.skip as usize) << 9);
        let Some(found) = found.and_then(|b| b.as_slice().get(..bytes)) else { return false };
        match data {
            Some(data) => data.as_slice().get(skip..skip + bytes) == Some(found),
            None => found.iter().all(|b| *b == 0),
        }
    }
}

/// The next step for the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResendStep {
    /// Send this request, in a buffer of its own, and call [`Resend::next`] with [`StepIo::outcome`].
    Ask(StepIo),
    /// Write the command's data without this many leading sectors. The outcome is [`Outcome::Ended`].
    WriteRest(u32),
    /// Wait until the device has answered every command of the zone that the disk has given up. The outcome is
    /// [`Outcome::Ended`]: [`Status::Ok`], or another status if that takes too long. Only a refused write waits.
    AwaitLate,
    /// Carry out the command: it was not sent before. This ends the search.
    CarryOut,
    /// Answer the command with success; an append gets this sector.
    Done(Sector),
    /// Answer the command with this failure.
    Failed(Status),
}

/// A search that goes on, with its next step. [`Search::carry_out`] is for doors.
#[derive(Debug)]
pub struct Search {
    /// The search.
    pub resend: Resend,
    /// Its next step.
    pub step: ResendStep,
}

/// The result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The state of the zone, or `None` if it could not be read.
    Zone(Option<ZoneInfo>),
    /// Whether the data are equal.
    Compared(bool),
    /// The status of a write, a flush or a wait, or of a read that has failed.
    Ended(Status),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// A write waits for commands that the disk has given up.
    Late(ClaimId),
    /// A write waits for the report of its zone.
    Report(ClaimId),
    /// A write compares its first `sectors`, of which `equal` have matched so far.
    Write { id: ClaimId, sectors: u32, equal: u32 },
    /// An append is compared with the data at a place.
    Append { id: ClaimId, at: Sector },
    /// The rest of a write is being written.
    Rest,
    /// The data are being flushed.
    Flush(Sector),
    /// No step is left.
    End,
}

/// A command that may have been sent again.
#[derive(Debug)]
pub struct Resend {
    sent: SentCommand,
    zone: ZoneNo,
    /// The hashes of an append's data.
    data: AppendData,
    /// The places that an append was compared with.
    search: AppendSearch,
    /// The status with which the disk refused a write. `None`: the disk has not got the command yet.
    refused: Option<Status>,
    stage: Stage,
}

impl Resend {
    /// Returns whether a write with this status may have been sent before.
    pub fn may_be_a_resend(status: Status) -> bool {
        matches!(status, Status::NotAtWritePointer | Status::ZoneFull | Status::StaleWritePointer)
    }

    /// Returns the zone of the command.
    pub(crate) fn zone(&self) -> ZoneNo {
        self.zone
    }

    /// Starts the search for a write that was `refused`. Returns `None` for a new write. `known`: another queue of
    /// the client has carried it out.
    pub fn of_write(
        sent: SentCommand,
        refused: Status,
        known: bool,
        ledger: &mut ResendLedger,
        now: Nanos,
    ) -> Option<Search> {
        if !Resend::may_be_a_resend(refused) {
            return None;
        }
        let id = ledger.claim_write(sent.client, sent.sector, known, now)?;
        let stage = Stage::Late(id);
        let zone = ledger.zone(sent.sector);
        let (data, search) = (AppendData::default(), AppendSearch::nowhere());
        let refused = Some(refused);
        let resend = Resend { sent, zone, data, search, refused, stage };
        Some(Search { resend, step: ResendStep::AwaitLate })
    }

    /// Starts the search for a write that no disk has got yet. Returns `None` for a new write.
    pub(crate) fn of_first_write(sent: SentCommand, ledger: &mut ResendLedger) -> Option<Search> {
        let (id, sectors) = ledger.claim_first_write(sent.sector, sent.len_sectors)?;
        let (data, search) = (AppendData::default(), AppendSearch::nowhere());
        let zone = ledger.zone(sent.sector);
        let mut resend = Resend { sent, zone, data, search, refused: None, stage: Stage::End };
        let step = resend.compare(id, sectors, 0);
        Some(Search { resend, step })
    }

    /// Starts the search for an append with these data. Returns `None` for a new append.
    pub(crate) fn of_append(
        sent: SentCommand,
        data: AppendData,
        ledger: &mut ResendLedger,
        now: Nanos,
    ) -> Option<Search> {
        let zone = ledger.zone(sent.sector);
        let search = AppendSearch::nowhere();
        let mut resend = Resend { sent, zone, data, search, refused: None, stage: Stage::End };
        ledger.begin_append(zone);
        match resend.next_place(ledger, now) {
            ResendStep::CarryOut => None,
            step => Some(Search { resend, step }),
        }
    }

    fn next_place(&mut self, ledger: &mut ResendLedger, now: Nanos) -> ResendStep {
        let SentCommand { client, len_sectors, .. } = self.sent;
        let search = &mut self.search;
        match ledger.claim_append(client, self.zone, len_sectors, &self.data, search, now) {
            Some((id, landed)) => {
                self.stage = Stage::Append { id, at: landed.at };
                ResendStep::Ask(StepIo::compare(landed.at, landed.len_sectors, 0))
            }
            None => {
                self.stage = Stage::End;
                ledger.end_append(self.zone);
                ResendStep::CarryOut
            }
        }
    }

    /// Takes the outcome of a step and returns the next.
    pub fn next(&mut self, outcome: Outcome, ledger: &mut ResendLedger, now: Nanos) -> ResendStep {
        match (self.stage, outcome) {
            (Stage::Late(id), Outcome::Ended(Status::Ok)) => {
                self.stage = Stage::Report(id);
                ResendStep::Ask(StepIo::report(ledger.zone_start(self.zone)))
            }
            (Stage::Report(id), Outcome::Zone(zone)) => match self.there(zone) {
                Some(sectors) => self.compare(id, sectors, 0),
                // The zone no longer holds these sectors, or could not be read: the disk decides again.
                None => {
                    ledger.reject(id);
                    self.stage = Stage::Rest;
                    ResendStep::WriteRest(0)
                }
            },
            (Stage::Write { id, .. }, Outcome::Compared(false)) => self.not_recognised(id, ledger),
            (Stage::Write { id, sectors, equal }, Outcome::Compared(true)) => {
                let equal = sectors.min(equal + PIECE);
                if equal < sectors {
                    return self.compare(id, sectors, equal);
                }
                if !ledger.confirm(id) {
                    return self.not_recognised(id, ledger);
                }
                if sectors < self.sent.len_sectors {
                    self.stage = Stage::Rest;
                    return ResendStep::WriteRest(sectors);
                }
                self.found(self.sent.sector)
            }
            (Stage::Append { id, at }, Outcome::Compared(equal)) => {
                if !equal {
                    ledger.reject(id);
                } else if ledger.confirm(id) {
                    ledger.end_append(self.zone);
                    return self.found(at);
                }
                self.next_place(ledger, now)
            }
            (Stage::Rest, Outcome::Ended(Status::Ok)) => self.found(self.sent.sector),
            (Stage::Flush(at), Outcome::Ended(Status::Ok)) => {
                self.stage = Stage::End;
                ResendStep::Done(at)
            }
            (Stage::Rest | Stage::Flush(_), Outcome::Ended(status)) => self.fail(status),
            // If a command that was given up may still land, or the data cannot be read, the write is not recognised: it stays
            // refused, or the disk decides if it was not sent yet.
            (Stage::Late(id) | Stage::Write { id, .. }, Outcome::Ended(_)) => {
                self.not_recognised(id, ledger)
            }
            // The data there are unknown, so the append is not carried out.
            (Stage::Append { .. }, Outcome::Ended(status)) => {
                self.abandon(ledger);
                self.fail(status)
            }
            _ => {
                self.abandon(ledger);
                self.fail(Status::Io)
            }
        }
    }

    /// Compares the next piece of the first `sectors` of a write.
    fn compare(&mut self, id: ClaimId, sectors: u32, equal: u32) -> ResendStep {
        self.stage = Stage::Write { id, sectors, equal };
        let at = self.sent.sector.plus(u64::from(equal));
        ResendStep::Ask(StepIo::compare(at, PIECE.min(sectors - equal), equal))
    }

    /// Returns how many sectors of the write the zone already holds; `None` for none.
    fn there(&self, zone: Option<ZoneInfo>) -> Option<u32> {
        let zone = zone?;
        let end = zone.start.plus(u64::from(written_in(&zone)));
        let there = end.0.checked_sub(self.sent.sector.0).filter(|n| *n > 0)?;
        Some(there.min(u64::from(self.sent.len_sectors)) as u32)
    }

    fn found(&mut self, at: Sector) -> ResendStep {
        if self.sent.fua {
            self.stage = Stage::Flush(at);
            return ResendStep::Ask(StepIo::FLUSH);
        }
        self.stage = Stage::End;
        ResendStep::Done(at)
    }

    fn not_recognised(&mut self, id: ClaimId, ledger: &mut ResendLedger) -> ResendStep {
        ledger.reject(id);
        match self.refused {
            Some(status) => self.fail(status),
            // The disk decides: it refuses a write that does not begin at the write pointer.
            None => {
                self.stage = Stage::End;
                ResendStep::CarryOut
            }
        }
    }

    fn fail(&mut self, status: Status) -> ResendStep {
        self.stage = Stage::End;
        ResendStep::Failed(status)
    }

    /// Returns the place of a command that was found and is being flushed. If the connection ends now, the answer is
    /// lost.
    pub fn found_at(&self) -> Option<Sector> {
        match self.stage {
            Stage::Flush(at) => Some(at),
            _ => None,
        }
    }

    /// Gives the search up, and returns what it has claimed to the ledger.
    pub fn abandon(&mut self, ledger: &mut ResendLedger) {
        match std::mem::replace(&mut self.stage, Stage::End) {
            Stage::Late(id) | Stage::Report(id) | Stage::Write { id, .. } => ledger.reject(id),
            Stage::Append { id, .. } => {
                ledger.reject(id);
                ledger.end_append(self.zone);
            }
            Stage::Rest | Stage::Flush(_) | Stage::End => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Landed;
    use zoneplug_core::zone::{Condition, Geometry, ZoneType};

    const NOW: Nanos = Nanos(7);
    const OK: IoResult = IoResult { status: Status::Ok, sector: Sector(0), zones: 0 };
    const ZONE: u32 = 8192;

    fn client() -> ClientKey {
        ClientKey(1)
    }

    fn ledger() -> ResendLedger {
        ResendLedger::new(Geometry::new(4, ZONE, ZONE).unwrap())
    }

    fn compare(at: u64, len_sectors: u32, skip: u32) -> ResendStep {
        ResendStep::Ask(StepIo::compare(Sector(at), len_sectors, skip))
    }

    /// L2. A long write of zeroes is compared in pieces, not read into memory as a whole.
    #[test]
    fn l2_a_long_write_is_compared_in_pieces() {
        let mut ledger = ledger();
        let sent =
            SentCommand { client: client(), sector: Sector(0), len_sectors: 6000, fua: false };
        ledger.lose_write(client(), sent.sector, sent.len_sectors);
        let refused = Status::NotAtWritePointer;
        let begun = Resend::of_write(sent, refused, false, &mut ledger, NOW);
        let Search { mut resend, step } = begun.unwrap();
        assert_eq!(step, ResendStep::AwaitLate);
        let zone = ZoneInfo {
            start: Sector(0),
            len_sectors: u64::from(ZONE),
            capacity_sectors: u64::from(ZONE),
            wp: Sector(5000),
            zone_type: ZoneType::SeqWriteRequired,
            cond: Condition::ImpOpen,
        };
        let mut next = |outcome| resend.next(outcome, &mut ledger, NOW);
        let nothing_is_late = Outcome::Ended(Status::Ok);
        assert_eq!(next(nothing_is_late), ResendStep::Ask(StepIo::report(Sector(0))));
        assert_eq!(next(Outcome::Zone(Some(zone))), compare(0, PIECE, 0));
        assert_eq!(next(Outcome::Compared(true)), compare(2048, PIECE, 2048));
        assert_eq!(next(Outcome::Compared(true)), compare(4096, 5000 - 4096, 4096));
        assert_eq!(next(Outcome::Compared(true)), ResendStep::WriteRest(5000));
        assert_eq!(next(Outcome::Ended(Status::Ok)), ResendStep::Done(Sector(0)));
    }

    /// L2. Each piece is compared with the data of its place in the command, and only whole.
    #[test]
    fn l2_a_piece_is_compared_with_its_own_data() {
        let mut data = AlignedBuf::zeroed(3 * 4096);
        let pieces = [1u8, 2, 3].map(|byte| {
            data.write(u32::from(byte - 1) * 4096, &[byte; 4096]);
            let mut piece = AlignedBuf::zeroed(4096);
            piece.write(0, &[byte; 4096]);
            piece
        });
        let is_equal = |nth: u32, found: Option<&AlignedBuf>, data: Option<&AlignedBuf>| {
            let step = StepIo::compare(Sector(u64::from(nth) * 8), 8, nth * 8);
            step.outcome(OK, found, data) == Outcome::Compared(true)
        };
        for nth in 0..3 {
            let found = pieces.each_ref().map(|piece| is_equal(nth, Some(piece), Some(&data)));
            assert_eq!(found, [0, 1, 2].map(|n| n == nth), "piece {nth}");
            assert!(!is_equal(nth, Some(&pieces[0]), None), "zeroes are other data");
            assert!(is_equal(nth, Some(&AlignedBuf::zeroed(4096)), None));
            assert!(!is_equal(nth, Some(&AlignedBuf::zeroed(512)), None), "it is too short");
            assert!(!is_equal(nth, None, Some(&data)));
        }
        assert!(!is_equal(3, Some(&pieces[0]), Some(&data)), "behind the data");
    }

    /// L14. A zone is not reported while a write of it that was given up may be carried out. A resent write that has waited too
    /// long is refused as the disk has refused it. The next attempt finds the note again.
    #[test]
    fn l14_a_zone_with_late_commands_is_not_reported() {
        let mut ledger = ledger();
        let sent = SentCommand { client: client(), sector: Sector(8), len_sectors: 8, fua: false };
        ledger.lose_write(client(), sent.sector, sent.len_sectors);
        let refused = Status::StaleWritePointer;
        let mut of_write = || Resend::of_write(sent, refused, false, &mut ledger, NOW).unwrap();
        let [mut first, mut second] = [of_write(), of_write()];
        assert_eq!([first.step, second.step], [ResendStep::AwaitLate; 2]);
        let step = first.resend.next(Outcome::Ended(Status::Timeout), &mut ledger, NOW);
        assert_eq!(step, ResendStep::Failed(refused));
        let step = second.resend.next(Outcome::Ended(Status::Ok), &mut ledger, NOW);
        assert_eq!(step, ResendStep::Ask(StepIo::report(Sector(0))));
    }

    /// L4. An append that cannot be compared with the data at its place is not written, because it may be there
    /// already. The next attempt finds the note again.
    #[test]
    fn l4_what_cannot_be_read_is_not_appended_again() {
        let mut ledger = ledger();
        let data = AppendData::default();
        let landed = Landed { at: Sector(64), len_sectors: 8, hash: None };
        ledger.lose_append(client(), landed);
        let sent = SentCommand { client: client(), sector: Sector(0), len_sectors: 8, fua: false };
        for _ in 0..2 {
            let begun = Resend::of_append(sent, data.clone(), &mut ledger, NOW);
            let Search { mut resend, step } = begun.unwrap();
            assert_eq!(step, compare(64, 8, 0));
            let step = resend.next(Outcome::Ended(Status::ZoneOffline), &mut ledger, NOW);
            assert_eq!(step, ResendStep::Failed(Status::ZoneOffline));
        }
    }
}
