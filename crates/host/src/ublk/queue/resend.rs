//! Requests that the last server of a device may have carried out. This module carries out the steps that
//! [`zoneplug_recovery`] decides, with the queue's own client of the disk, so the thread of the queue never waits for one.

use super::Queue;
use crate::served::timing::Timing;
use crate::ublk::driver::Driver;
use crate::ublk::takeover::replay;
use std::io;
use zoneplug_buf::AlignedBuf;
use zoneplug_core::{Flags, Status};
use zoneplug_recovery::{Resend, ResendStep, Resending, StepEnd};

impl<D: Driver, T: Timing> Queue<D, T> {
    /// Carries out a step of the request of a tag. `data`: the data of the request.
    #[cold]
    pub(super) fn step(
        &mut self,
        tag: u16,
        token: u64,
        data: Option<AlignedBuf>,
        (resend, step): (Resend, ResendStep),
    ) -> io::Result<()> {
        let r = self.slots[usize::from(tag)].request;
        match step {
            ResendStep::CarryOut => {
                let part = (r.op, r.sector, r.len_sectors);
                self.send(tag, token, part, r.flags, (data, 0..r.bytes));
            }
            ResendStep::Done(at) => {
                self.counters().count_replayed();
                return self.finish(tag, token, Status::Ok, at, data);
            }
            // Only a refused write waits for late commands, and none is searched for here.
            ResendStep::AwaitLate => {
                return self.finish(tag, token, Status::Io, r.sector, data);
            }
            ResendStep::Failed(status) => {
                return self.finish(tag, token, status, r.sector, data);
            }
            ResendStep::WriteRest(done) => {
                let part = (r.op, r.sector.plus(u64::from(done)), r.len_sectors - done);
                let from = (done << 9).min(r.bytes);
                self.keep_step(tag, Resending::waiting(resend));
                self.send(tag, token, part, r.flags, (data, from..r.bytes));
            }
            ResendStep::Ask(io) => {
                let own = self.buffer(io.bytes);
                self.keep_step(tag, Resending::asking(resend, io, data));
                let part = (io.op, io.sector, io.len_sectors);
                self.send(tag, token, part, Flags::NONE, (own, 0..io.bytes));
            }
        }
        Ok(())
    }

    /// Goes on after a step has ended. `buf`: the buffer that the step used.
    #[cold]
    pub(super) fn step_ended(
        &mut self,
        tag: u16,
        token: u64,
        (status, zones): (Status, u32),
        buf: Option<AlignedBuf>,
    ) -> io::Result<()> {
        let resending = self.slots[usize::from(tag)].resending.take();
        let (Some(resending), Some(recovery)) = (resending, &self.shared.replay) else {
            return Ok(());
        };
        let StepEnd { mut resend, outcome, data, own } = resending.ended((status, zones), buf);
        let step = recovery.next(&mut resend, outcome, replay::NO_TIME);
        self.keep_buffer(own);
        self.step(tag, token, data, (resend, step))
    }

    fn keep_step(&mut self, tag: u16, resending: Resending) {
        self.slots[usize::from(tag)].resending = Some(Box::new(resending));
    }
}
