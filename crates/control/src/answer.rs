//! Answers on a control socket: any line from a client gets one line of JSON. Reads no socket and no clock.

use crate::client::{Answer, FailureShown, Request, StateShown};
use crate::error::{ControlError, Forbidden};
use crate::failure::{Failure, FailureParts};
use crate::pause::Pause;
use serde_json::{Value, json};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

/// The answer that reports a failure.
pub fn refusal(f: &Failure) -> Vec<u8> {
    let FailureParts { kind, what, hint } = f.parts();
    let (what, hint) = (what.to_owned(), hint.to_owned());
    line(&Answer::Error(FailureShown { code: kind as u8, what, hint }))
}

/// The line of an answer, with a line end.
fn line(answer: &Answer) -> Vec<u8> {
    // A struct of JSON values, numbers and texts cannot fail to serialize.
    let mut text = serde_json::to_vec(answer).unwrap_or_default();
    text.push(b'\n');
    text
}

/// Answers the requests of clients.
pub trait Answers: Send + Sync + 'static {
    /// Answers a request. `pause`: the pause of this connection.
    fn answer(&self, request: &Request, pause: &mut Option<Pause>) -> Result<Value, Failure>;

    /// The open files of the disks below a served one with their number for each disk, or the sockets of the server.
    fn open_files(&self, _disk: Option<&str>) -> Result<(Vec<usize>, Vec<OwnedFd>), Failure> {
        Err(ControlError::NoTakeover.into())
    }

    /// Fails if the server cannot leave its disks to another one.
    fn can_leave(&self) -> Result<(), Failure> {
        Err(ControlError::NoTakeover.into())
    }

    /// Leaves the disks to the process at the other end, which waits for an answer. Returns the connection and the reason if
    /// the server cannot leave them by now, or another process has asked before.
    fn hand_over(&self, stream: UnixStream) -> Result<(), (UnixStream, Failure)> {
        Err((stream, ControlError::NoTakeover.into()))
    }
}

/// The answer to a line while the disks are left: the record of when they were left, or a failure that names the next
/// server.
pub(crate) fn respond_left(question: &[u8], left: Option<&StateShown>) -> Vec<u8> {
    match (serde_json::from_slice(question), left) {
        (Ok(Request::State {}), Some(state)) => answer_line(json!(state)),
        _ => {
            let to = left.and_then(|state| state.handed_over_to);
            refusal(&ControlError::BeingLeft { to }.into())
        }
    }
}

/// The reply to a request.
pub enum Reply {
    /// A line, and open files to send before it.
    Line(Vec<u8>, Vec<OwnedFd>),
    /// Pass the connection to the thread that leaves the disks to another server.
    HandOver,
}

/// The reply to a line. `pause`: the pause of the connection. `is_owner`: whether the client is the user of this
/// process, or root.
pub fn respond(
    question: &[u8],
    serving: &impl Answers,
    pause: &mut Option<Pause>,
    is_owner: bool,
) -> Reply {
    let refused = |f: &Failure| Reply::Line(refusal(f), Vec::new());
    let request: Request = match serde_json::from_slice(question) {
        Ok(request) => request,
        Err(e) => return refused(&ControlError::NotAQuestion { because: e.to_string() }.into()),
    };
    if request.is_of_owner() && !is_owner {
        return refused(&ControlError::NotPermitted { what: Forbidden::Question }.into());
    }
    let answered = match &request {
        Request::HandOver {} => match serving.can_leave() {
            Ok(()) => return Reply::HandOver,
            Err(f) => Err(f),
        },
        Request::Pass { disk } => {
            serving.open_files(disk.as_deref()).map(|(counts, files)| (json!(counts), files))
        }
        request => serving.answer(request, pause).map(|value| (value, Vec::new())),
    };
    match answered {
        Ok((value, files)) => Reply::Line(answer_line(value), files),
        Err(f) => refused(&f),
    }
}

/// The answer that returns a value.
pub fn answer_line(value: Value) -> Vec<u8> {
    line(&Answer::Ok(value))
}
