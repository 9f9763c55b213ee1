//! Commands at the disks: each request of a command is a BIO of a client, of which a session has one for each disk.

use super::{Server, Session};
use crate::spec::ScsiStatus;
use crate::unit::{Answer, AnswerData, IoResult, TaskStep};
use zoneplug_buf::IoBuf;
use zoneplug_core::{Bios, DiskClient, IoRequest, Op, Status};

/// The session's use of one disk.
#[derive(Debug)]
pub(super) struct Used<C> {
    pub(super) disk: u32,
    pub(super) client: C,
    /// BIOs to submit.
    list: Bios,
}

impl<C: DiskClient> Used<C> {
    pub(super) fn is_busy(&self) -> bool {
        self.client.outstanding() > 0 || !self.list.is_empty()
    }
}

impl<C: DiskClient> Session<C> {
    /// Carries out the step that a command's task has returned.
    pub(super) fn go_on<S: Server<C>>(&mut self, slot: u16, step: TaskStep, server: &mut S) {
        match step {
            TaskStep::Answer(answer) => self.answer(slot, answer, server),
            TaskStep::Submit(request) => match self.client(request.disk, server) {
                Some(n) => self.start(slot, n, request, server),
                None => {
                    let status = ScsiStatus::Busy;
                    let busy = Answer { status, sense: None, data: AnswerData::None };
                    self.answer(slot, busy, server);
                }
            },
        }
    }

    /// Returns the index of a disk's client, which is opened on first use.
    fn client<S: Server<C>>(&mut self, disk: u32, server: &mut S) -> Option<usize> {
        if let Some(n) = self.used.iter().position(|u| u.disk == disk) {
            return Some(n);
        }
        let entries = self.commands.len();
        let client = server.open(disk, entries as u32)?;
        let (key, now) = (self.client_key, server.now());
        server.recovery(disk).with(|ledger| ledger.is_back(key, now));
        self.used.push(Used { disk, client, list: Bios::with_capacity(entries) });
        Some(self.used.len() - 1)
    }

    /// Makes a BIO of a request of a command, or of a step of its search, and queues it.
    pub(super) fn submit<S: Server<C>>(
        &mut self,
        slot: u16,
        n: usize,
        request: IoRequest,
        server: &S,
    ) {
        let Some(c) = self.commands[usize::from(slot)].as_mut() else { return };
        let (offset, bytes) = request.memory;
        let io = match c.data.take() {
            Some(mut buf) if bytes > 0 => {
                if request.op == Op::Read && !server.fills_buffers(request.disk) {
                    // The buffer may contain data of another initiator.
                    buf.as_mut_slice()[offset as usize..][..bytes as usize].fill(0);
                }
                let (lent, io) = buf.lend_part(offset, bytes);
                c.lent = Some(lent);
                io
            }
            buf => {
                c.data = buf;
                IoBuf::empty()
            }
        };
        let used = &mut self.used[n];
        let mut bio = self.pool.get();
        bio.set(request.op, request.sector, request.len_sectors, io);
        bio.flags = request.flags;
        bio.set_token(used.client.token(slot, request.op));
        used.list.push_back(bio);
    }

    /// Hands BIOs to the disks, takes those that have ended, and goes on with their commands. Returns false if nothing
    /// happened.
    pub(super) fn run_disks<S: Server<C>>(&mut self, server: &mut S) -> bool {
        let mut progress = false;
        for n in 0..self.used.len() {
            let Used { client, list, .. } = &mut self.used[n];
            if !list.is_empty() {
                progress |= client.submit(list) > 0;
            }
            if client.outstanding() == 0 {
                continue;
            }
            client.poll(&mut self.done);
            progress |= !self.done.is_empty();
            while let Some(mut bio) = self.done.pop_front() {
                let slot = bio.token() as u16;
                let used = &mut self.used[n];
                used.client.ended(bio.token(), bio.op, bio.sector);
                let mut result =
                    IoResult { status: bio.status, sector: bio.sector, zones: bio.result };
                let command = self.commands.get_mut(usize::from(slot)).and_then(Option::as_mut);
                let Some(c) = command else {
                    // The token belongs to no command: a faulty device made up the BIO.
                    continue;
                };
                if let Some(lent) = c.lent.take() {
                    let len = lent.len();
                    c.data = used.client.reclaim(&mut bio, lent);
                    if c.data.is_none() {
                        self.memory -= len;
                        if result.status.is_ok() {
                            // Without its memory, a BIO cannot give the initiator the data.
                            result.status = Status::Io;
                        }
                    }
                }
                self.pool.put(bio);
                let Some(work) = &c.work else { continue };
                let (disk, op) = (work.request.disk, work.request.op);
                if c.resending.is_some() || server.recovery(disk).is_after(op, result.status) {
                    self.ended_after_loss(slot, n, result, server);
                } else {
                    self.request_ended(slot, result, server);
                }
            }
        }
        progress
    }
}
