//! The answer to a command.

use crate::spec::ScsiStatus;
use crate::spec::sense::SenseData;

/// The data of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnswerData {
    /// None.
    None,
    /// These bytes.
    Bytes(Vec<u8>),
    /// So many bytes from the start of the command's buffer.
    Buffer(u32),
}

/// The answer to a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: ScsiStatus,
    /// Why the command was refused or has failed.
    pub sense: Option<SenseData>,
    /// The data for the initiator.
    pub data: AnswerData,
}

impl Answer {
    /// Success, with these data.
    pub(super) fn good(data: AnswerData) -> Answer {
        Answer { status: ScsiStatus::Good, sense: None, data }
    }

    /// A failure with this sense.
    pub(super) fn failed(sense: impl Into<SenseData>) -> Answer {
        let sense = Some(sense.into());
        Answer { status: ScsiStatus::CheckCondition, sense, data: AnswerData::None }
    }
}
