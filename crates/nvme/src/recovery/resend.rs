//! A write or an append that may have been sent again: what to ask the disk about it, step by step. The caller carries out
//! the steps, compares data, and answers.
//!
//! A write comes here after the disk has refused it, because it begins behind the write pointer. What is between its start
//! and the write pointer is compared with its data. If that is equal it is this write's, and the rest is written. If it
//! differs, the write is refused.
//!
//! An append comes here before the disk is asked. The data of each place that may be its own are compared with its data.
//! If none is equal, it is appended.
//!
//! Data that are to be durable when they are answered (FUA) are flushed.

use super::disk::written_in;
use super::lost::{AppendData, ClaimId, HostKey, Lost};
use zoneplug_core::zone::ZoneInfo;
use zoneplug_core::{Nanos, Sector, Status, ZoneNo};

/// A command that a host has sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sent {
    /// Its host.
    pub(crate) host: HostKey,
    /// Where a write begins; the start of the zone of an append.
    pub(crate) sector: Sector,
    pub(crate) len_sectors: u32,
    pub(crate) fua: bool,
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResendStep {
    /// Report the zone of the command: [`Outcome::Zone`].
    Report,
    /// Compare so many sectors at this place with the start of the command's data: [`Outcome::Compared`].
    Compare(Sector, u32),
    /// Write the command's data without the first so many sectors: [`Outcome::Ended`].
    WriteRest(u32),
    /// Flush: [`Outcome::Ended`].
    Flush,
    /// Append the data: the command was not sent before.
    Append,
    /// The command is done: answer it, an append with this sector.
    Done(Sector),
    /// The command has failed so.
    Failed(Status),
}

/// How a step ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The state of the zone, if it could be read.
    Zone(Option<ZoneInfo>),
    /// Whether the data are equal. Data that cannot be read are not.
    Compared(bool),
    /// The status of a write or a flush.
    Ended(Status),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// A write asks for the write pointer.
    Report(ClaimId),
    /// A write compares so many of its sectors.
    Write(ClaimId, u32),
    /// An append compares its data with those of the note of this number.
    Append { id: ClaimId, number: u64, at: Sector },
    /// The rest of a write is written.
    Rest,
    /// The data are flushed.
    Flush(Sector),
    /// Nothing more is asked for.
    End,
}

/// A command that may have been sent again.
#[derive(Debug)]
pub(crate) struct Resend {
    sent: Sent,
    zone: ZoneNo,
    /// The data of an append.
    data: AppendData,
    /// Why a write was refused.
    refused: Status,
    stage: Stage,
}

impl Resend {
    /// A write that was `refused`. `None`: it is a new one.
    pub(crate) fn of_write(
        sent: Sent,
        refused: Status,
        lost: &mut Lost,
        now: Nanos,
    ) -> Option<(Resend, ResendStep)> {
        if !matches!(refused, Status::NotAtWritePointer | Status::ZoneFull) {
            return None;
        }
        let id = lost.claim_write(sent.host, sent.sector, now)?;
        let stage = Stage::Report(id);
        let zone = lost.zone(sent.sector);
        Some((
            Resend { sent, zone, data: AppendData::default(), refused, stage },
            ResendStep::Report,
        ))
    }

    /// An append with these data. `None`: it is a new one.
    pub(crate) fn of_append(
        sent: Sent,
        data: AppendData,
        lost: &mut Lost,
        now: Nanos,
    ) -> Option<(Resend, ResendStep)> {
        let zone = lost.zone(sent.sector);
        let refused = Status::NotAtWritePointer;
        let mut resend = Resend { sent, zone, data, refused, stage: Stage::End };
        match resend.next_place(u64::MAX, lost, now) {
            ResendStep::Append => None,
            step => Some((resend, step)),
        }
    }

    fn next_place(&mut self, below: u64, lost: &mut Lost, now: Nanos) -> ResendStep {
        let what = (self.zone, self.sent.len_sectors, &self.data);
        match lost.claim_append(self.sent.host, what, below, now) {
            Some((id, number, landed)) => {
                self.stage = Stage::Append { id, number, at: landed.at };
                ResendStep::Compare(landed.at, landed.len_sectors)
            }
            None => {
                self.stage = Stage::End;
                ResendStep::Append
            }
        }
    }

    /// The step has ended.
    pub(crate) fn next(&mut self, outcome: Outcome, lost: &mut Lost, now: Nanos) -> ResendStep {
        match (self.stage, outcome) {
            (Stage::Report(id), Outcome::Zone(zone)) => match self.there(zone) {
                Some(sectors) => {
                    self.stage = Stage::Write(id, sectors);
                    ResendStep::Compare(self.sent.sector, sectors)
                }
                None => self.refuse(id, lost),
            },
            (Stage::Write(id, sectors), Outcome::Compared(equal)) => {
                if !equal || !lost.confirm(id) {
                    return self.refuse(id, lost);
                }
                if sectors < self.sent.len_sectors {
                    self.stage = Stage::Rest;
                    return ResendStep::WriteRest(sectors);
                }
                self.found(self.sent.sector)
            }
            (Stage::Append { id, number, at }, Outcome::Compared(equal)) => {
                if !equal {
                    lost.reject(id);
                } else if lost.confirm(id) {
                    return self.found(at);
                }
                self.next_place(number, lost, now)
            }
            (Stage::Rest, Outcome::Ended(Status::Ok)) => self.found(self.sent.sector),
            (Stage::Flush(at), Outcome::Ended(Status::Ok)) => {
                self.stage = Stage::End;
                ResendStep::Done(at)
            }
            (Stage::Rest | Stage::Flush(_), Outcome::Ended(status)) => self.fail(status),
            _ => {
                self.abandon(lost);
                self.fail(Status::Io)
            }
        }
    }

    /// How many sectors of the write are behind the write pointer.
    fn there(&self, zone: Option<ZoneInfo>) -> Option<u32> {
        let zone = zone?;
        let end = zone.start.plus(u64::from(written_in(&zone)));
        let there = end.0.checked_sub(self.sent.sector.0).filter(|n| *n > 0)?;
        Some(there.min(u64::from(self.sent.len_sectors)) as u32)
    }

    fn found(&mut self, at: Sector) -> ResendStep {
        if self.sent.fua {
            self.stage = Stage::Flush(at);
            return ResendStep::Flush;
        }
        self.stage = Stage::End;
        ResendStep::Done(at)
    }

    fn refuse(&mut self, id: ClaimId, lost: &mut Lost) -> ResendStep {
        lost.reject(id);
        self.fail(self.refused)
    }

    fn fail(&mut self, status: Status) -> ResendStep {
        self.stage = Stage::End;
        ResendStep::Failed(status)
    }

    /// Where an append was found, while that is being made durable. Its answer is lost if the connection ends now.
    pub(crate) fn found_at(&self) -> Option<Sector> {
        match self.stage {
            Stage::Flush(at) => Some(at),
            _ => None,
        }
    }

    /// Nothing is compared any more: the connection has ended.
    pub(crate) fn abandon(&mut self, lost: &mut Lost) {
        match std::mem::replace(&mut self.stage, Stage::End) {
            Stage::Report(id) | Stage::Write(id, _) | Stage::Append { id, .. } => {
                lost.give_back(id);
            }
            Stage::Rest | Stage::Flush(_) | Stage::End => {}
        }
    }
}
