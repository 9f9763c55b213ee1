//! Work for the threads of a durable disk: syncs, the table, holes, and all data if there is no io_uring.

use super::commit::Want;
use super::state::Core;
use super::storage::transfer;
use crate::backend::ring::{Job, Worker};
use std::collections::VecDeque;
use std::io;
use zoneplug_core::{IoBuf, Status};

/// Number of threads without and with data to move.
pub(super) const FEW: usize = 2;
pub(super) const MANY: usize = 4;

/// The result of a job.
#[derive(Debug)]
pub(super) enum FileAnswer {
    Committed(Status),
    Moved(io::Result<()>),
}

/// A job.
#[derive(Debug)]
pub(super) enum FileWork {
    Commit(Want),
    Zero {
        at: u64,
        len: u64,
        hole: bool,
    },
    /// The memory belongs to a command, which its queue keeps until the answer.
    Data {
        write: bool,
        at: u64,
        bufs: Vec<(IoBuf, u32)>,
    },
}

impl Worker for Core {
    type Work = FileWork;
    type Answer = FileAnswer;

    /// Takes the next job. If it is a commit, also takes all other waiting commits, which share its syncs.
    fn take(list: &mut VecDeque<Job<Core>>) -> Vec<Job<Core>> {
        let mut batch: Vec<_> = list.pop_front().into_iter().collect();
        if batch.first().is_some_and(|j| matches!(j.work, FileWork::Commit(_))) {
            let (commits, others) =
                list.drain(..).partition(|j| matches!(j.work, FileWork::Commit(_)));
            *list = others;
            batch.extend::<VecDeque<_>>(commits);
        }
        batch
    }

    fn run(&self, batch: Vec<Job<Core>>) {
        let wants: Vec<Want> = batch
            .iter()
            .filter_map(|j| if let FileWork::Commit(w) = j.work { Some(w) } else { None })
            .collect();
        let status = if wants.is_empty() { Status::Ok } else { self.commit(&wants) };
        for job in batch {
            let answer = perform(self, job.work, status);
            job.mailbox.push(job.slot, answer);
        }
    }
}

fn perform(core: &Core, work: FileWork, committed: Status) -> FileAnswer {
    match work {
        FileWork::Commit(_) => FileAnswer::Committed(committed),
        FileWork::Zero { at, len, hole } => FileAnswer::Moved(core.zero(at, len, hole)),
        FileWork::Data { write, at, bufs } => {
            FileAnswer::Moved(transfer(&*core.storage, write, at, &mut bufs.into_iter()))
        }
    }
}

/// Does the work in the calling thread.
pub(super) fn inline(core: &Core, work: FileWork) -> FileAnswer {
    let status = match work {
        FileWork::Commit(want) => core.commit(&[want]),
        _ => Status::Ok,
    };
    perform(core, work, status)
}
