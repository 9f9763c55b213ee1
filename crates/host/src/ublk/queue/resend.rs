//! Requests that the last server of a device may have carried out. This module carries out the steps that
//! [`zoneplug_recovery`] decides, with the queue's own client of the disk, so the thread of the queue never waits for one.

use super::Queue;
use crate::served::timing::Timing;
use crate::ublk::driver::Driver;
use crate::ublk::takeover::replay;
use std::io;
use zoneplug_buf::AlignedBuf;
use zoneplug_core::{IoResult, Status};
use zoneplug_recovery::{DoorStep, Search, StepEnd};

impl<D: Driver, T: Timing> Queue<D, T> {
    /// Carries out a step of the search for the request of a tag. `data`: the data of the request.
    #[cold]
    pub(super) fn search(
        &mut self,
        tag: u16,
        token: u64,
        mut data: Option<AlignedBuf>,
        search: Search,
    ) -> io::Result<()> {
        let r = self.slots[usize::from(tag)].request.of_disk();
        match search.carry_out(&r, &mut data, |bytes| self.take_buffer(bytes)) {
            DoorStep::Send(request, resending) => {
                self.slots[usize::from(tag)].resending = Some(resending);
                self.send(tag, token, &request, data);
            }
            DoorStep::CarryOut => self.send(tag, token, &r, data),
            DoorStep::Replayed(result) => {
                self.counters().count_replayed();
                return self.finish(tag, token, Status::Ok, result.sector, data);
            }
            DoorStep::Failed(result) => {
                return self.finish(tag, token, result.status, r.sector, data);
            }
            // Only a refused write waits for late commands, and none is searched for here.
            DoorStep::AwaitLate(_) => {
                return self.finish(tag, token, Status::Io, r.sector, data);
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
        result: IoResult,
        buf: Option<AlignedBuf>,
    ) -> io::Result<()> {
        let resending = self.slots[usize::from(tag)].resending.take();
        let (Some(resending), Some(recovery)) = (resending, &self.shared.replay) else {
            return Ok(());
        };
        let end = resending.ended(result, buf, recovery, replay::NO_TIME);
        let StepEnd { search, data, own } = end;
        self.keep_buffer(own);
        self.search(tag, token, data, search)
    }
}
