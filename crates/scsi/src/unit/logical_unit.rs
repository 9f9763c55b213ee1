//! A unit and what it owes its initiators: unit attentions, which are reported before the next command.

use super::Unit;
use super::answer::{Answer, AnswerData};
use super::control::{report_luns, request_sense};
use super::nexus::{Nexus, TransportId};
use super::reservations::{Refusal, Reservations};
use super::task::{Task, TaskStep};
use crate::command::{ReserveOut, ScsiCommand, parse};
use crate::spec::ScsiStatus;
use crate::spec::operation::OperationInfo;
use crate::spec::sense::INVALID_FIELD;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use zoneplug_buf::AlignedBuf;
use zoneplug_core::Sense;

/// The longest parameter list that is looked at.
const MAX_LIST: u32 = 4096;

/// Most attentions that wait for an initiator. Later ones are dropped.
const MAX_ATTENTIONS: usize = 8;

/// A command as it arrives at a unit.
#[derive(Debug, Clone, Copy)]
pub struct Arrived<'a> {
    /// The initiator.
    pub nexus: Nexus,
    /// The command.
    pub cdb: &'a [u8],
    /// The buffer with the data that it brings.
    pub data: Option<&'a AlignedBuf>,
    /// How many bytes of data came.
    pub data_len: u32,
    /// Most bytes that the initiator takes.
    pub expected: u32,
    /// The numbers of all units, for REPORT LUNS.
    pub luns: &'a [u16],
}

/// An initiator with a session.
#[derive(Debug)]
struct Connected {
    transport_id: TransportId,
    attentions: VecDeque<Sense>,
}

/// A unit and its initiators. Only [`LogicalUnit::begin`] and the calls about initiators need it; the steps of a task
/// need the [`Unit`], which threads share.
#[derive(Debug)]
pub struct LogicalUnit {
    unit: Arc<Unit>,
    initiators: BTreeMap<Nexus, Connected>,
    reservations: Reservations,
}

impl LogicalUnit {
    /// Makes a unit without initiators.
    pub fn new(unit: Arc<Unit>) -> LogicalUnit {
        LogicalUnit { unit, initiators: BTreeMap::new(), reservations: Reservations::default() }
    }

    /// Returns the unit.
    pub fn unit(&self) -> &Arc<Unit> {
        &self.unit
    }

    /// Notes a new session of an initiator. It begins without an attention: the initiator knows that its session is new,
    /// and Linux fails what it can send only once if that is the first command (reports of zones, appends that it makes
    /// writes of).
    pub fn enter(&mut self, nexus: Nexus, transport_id: TransportId) {
        self.initiators.insert(nexus, Connected { transport_id, attentions: VecDeque::new() });
    }

    /// Forgets the session of an initiator. Its registration stays.
    pub fn leave(&mut self, nexus: Nexus) {
        self.initiators.remove(&nexus);
    }

    /// Tells all initiators but `except` of an event, before their next commands.
    pub fn notify(&mut self, sense: Sense, except: Option<Nexus>) {
        let told: Vec<Nexus> =
            self.initiators.keys().copied().filter(|n| Some(*n) != except).collect();
        for nexus in told {
            self.owe(nexus, sense);
        }
    }

    /// Replaces the unit by another of the same disk, for example after the disk has grown.
    pub fn replace(&mut self, unit: Arc<Unit>) {
        self.unit = unit;
    }

    /// Begins a command: the task, and its first step.
    pub fn begin(&mut self, c: Arrived<'_>) -> (Task, TaskStep) {
        let (command, info) = match parse(c.cdb, self.unit.abilities()) {
            Ok(parsed) => parsed,
            Err(sense) => return Task::answered(self.unit.disk(), Answer::failed(sense)),
        };
        let brings = command.data_out(self.unit.block_len());
        let (task, step) = self.begin_parsed(c, command, info);
        (task.with_data_out(brings), step)
    }

    fn begin_parsed(
        &mut self,
        c: Arrived<'_>,
        command: ScsiCommand,
        info: &OperationInfo,
    ) -> (Task, TaskStep) {
        let disk = self.unit.disk();
        // INQUIRY and REPORT LUNS leave an attention, REQUEST SENSE reports it as data.
        let answer = match command {
            ScsiCommand::ReportLuns { select, allocation } => {
                report_luns(select, allocation, c.luns)
            }
            ScsiCommand::Inquiry { .. } => {
                return Task::begin(&self.unit, &command, c.data, c.data_len, c.expected);
            }
            _ => match (self.attention(c.nexus), command) {
                (Some(sense), ScsiCommand::RequestSense { descriptors, allocation }) => {
                    request_sense(sense.into(), descriptors, allocation)
                }
                (Some(sense), _) => Answer::failed(sense),
                (None, _) if !self.reservations.allows(c.nexus, info.access) => conflict(),
                (None, ScsiCommand::ReserveIn { action, allocation }) => {
                    let mut b = self.reservations.read(action);
                    b.truncate(allocation as usize);
                    Answer::good(AnswerData::Bytes(b))
                }
                (None, ScsiCommand::ReserveOut { action, scope, kind, list_len }) => {
                    let list = c.data.map_or(&[][..], |d| d.as_slice());
                    match list.get(..list_len.min(MAX_LIST) as usize) {
                        Some(list) if c.data_len >= list_len => {
                            self.reserve(c.nexus, action, scope, kind, list)
                        }
                        _ => Answer::failed(INVALID_FIELD),
                    }
                }
                (None, _) => {
                    return Task::begin(&self.unit, &command, c.data, c.data_len, c.expected);
                }
            },
        };
        Task::answered(disk, answer)
    }

    /// Carries out PERSISTENT RESERVE OUT.
    fn reserve(
        &mut self,
        nexus: Nexus,
        action: ReserveOut,
        scope: u8,
        kind: u8,
        list: &[u8],
    ) -> Answer {
        let initiator = self.initiators.get(&nexus);
        let id = initiator.map_or_else(TransportId::default, |c| c.transport_id.clone());
        match self.reservations.change(nexus, &id, action, scope, kind, list) {
            Ok(attentions) => {
                for (other, sense) in attentions {
                    self.owe(other, sense);
                }
                Answer::good(AnswerData::None)
            }
            Err(Refusal::Conflict) => conflict(),
            Err(Refusal::Check(sense)) => Answer::failed(sense),
        }
    }

    /// Notes an attention for an initiator that has a session.
    fn owe(&mut self, nexus: Nexus, sense: Sense) {
        if let Some(Connected { attentions: waiting, .. }) = self.initiators.get_mut(&nexus)
            && waiting.len() < MAX_ATTENTIONS
            && !waiting.contains(&sense)
        {
            waiting.push_back(sense);
        }
    }

    /// Takes the oldest attention of an initiator.
    fn attention(&mut self, nexus: Nexus) -> Option<Sense> {
        self.initiators.get_mut(&nexus)?.attentions.pop_front()
    }
}

/// The answer to a command that a reservation forbids.
fn conflict() -> Answer {
    Answer { status: ScsiStatus::ReservationConflict, sense: None, data: AnswerData::None }
}
