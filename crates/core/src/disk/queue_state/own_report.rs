//! The command that a queue keeps for the disk's own reports. Revalidation sends it. It is no tag, so nothing that a
//! freeze waits for can delay it (I9).

use crate::bio::Command;

/// The command of one queue for the disk's own reports.
#[derive(Debug)]
pub(crate) struct OwnReport {
    idle: Option<Box<Command>>,
    answer: Option<Box<Command>>,
}

impl OwnReport {
    pub(crate) fn new() -> OwnReport {
        OwnReport { idle: Some(Command::new(0)), answer: None }
    }

    /// Takes the command to send it. An answer that is still here was for a revalidation that was dropped. `None`:
    /// the command is at the device.
    pub(crate) fn take(&mut self) -> Option<Box<Command>> {
        self.idle.take().or_else(|| self.answer.take())
    }

    /// Keeps the command, which has come back from the device.
    pub(crate) fn answered(&mut self, cmd: Box<Command>) {
        self.answer = Some(cmd);
    }

    /// Takes the answer, if there is one.
    pub(crate) fn take_answer(&mut self) -> Option<Box<Command>> {
        self.answer.take()
    }

    /// Puts the command back after its answer was read.
    pub(crate) fn put(&mut self, cmd: Box<Command>) {
        self.idle = Some(cmd);
    }

    /// Returns whether the device has the command.
    pub(crate) fn is_out(&self) -> bool {
        self.idle.is_none() && self.answer.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_nobody_read_is_no_reason_to_wait() {
        let mut own = OwnReport::new();
        let cmd = own.take().expect("it is idle");
        assert!(own.is_out() && own.take().is_none() && own.take_answer().is_none());
        own.answered(cmd);
        assert!(!own.is_out());
        let cmd = own.take().expect("the answer is for a revalidation that was dropped");
        assert!(own.take_answer().is_none(), "and is not read by the next one");
        own.put(cmd);
        assert!(!own.is_out());
    }
}
