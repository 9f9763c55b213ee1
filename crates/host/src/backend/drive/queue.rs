//! Commands of a drive. The [`Drive`] decides what each command needs next; [`DriveSteps`] puts that on the ring or
//! gives it to a thread.

use super::{Memory, no_ring};
use crate::backend::ring::{
    self, Completions, EpollWaker, Job, Pool, Reply, Ring, RingCqe, RingSlots, SlotQueue, Steps,
    Worker, check_depth,
};
use io_uring::squeue;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::task::Waker;
use zoneplug_core::zone::ZoneInfo;
use zoneplug_core::{Command, Error, Queue, Status};

/// The result of a thread's work.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) status: Status,
    /// The zones of a report.
    pub(crate) zones: Vec<ZoneInfo>,
}

impl From<Status> for Outcome {
    fn from(status: Status) -> Outcome {
        Outcome { status, zones: Vec::new() }
    }
}

/// An event in the life of a command.
#[derive(Debug)]
pub(crate) enum DriveEvent {
    /// The queue has accepted the command.
    Begin,
    /// The kernel or a thread has answered.
    Reply(Reply<Outcome>),
}

/// The next step of a command.
#[derive(Debug)]
pub(crate) enum DriveStep<S, W> {
    /// Nothing; the command is done.
    Done(Status),
    /// This entry on the ring.
    Ring(S),
    /// This work by a thread.
    Work(W),
}

/// A command in flight.
#[derive(Debug, Default)]
pub(crate) struct DriveSlot<T> {
    command: Option<Box<Command>>,
    /// The memory that the kernel reads or writes.
    pub(crate) memory: Memory,
    /// The drive's own state for the command.
    pub(crate) state: T,
}

impl<T> DriveSlot<T> {
    #[cfg(test)]
    pub(crate) fn of_test(command: Box<Command>) -> DriveSlot<T>
    where
        T: Default,
    {
        DriveSlot { command: Some(command), memory: Memory::default(), state: T::default() }
    }

    /// The command.
    pub(crate) fn command(&mut self) -> &mut Command {
        self.command.as_mut().expect("a slot in use has a command")
    }

    /// The command, and the memory for it.
    pub(crate) fn parts(&mut self) -> (&mut Command, &mut Memory) {
        (self.command.as_mut().expect("a slot in use has a command"), &mut self.memory)
    }
}

impl<T: Default + Send> ring::RingSlot for DriveSlot<T> {
    fn place(&mut self) -> &mut Option<Box<Command>> {
        &mut self.command
    }
}

/// A kind of drive: how a command becomes operations of the kernel.
///
/// # Safety
///
/// No entry that `step` returns points to memory other than that of the slot and of the BIOs of its command.
pub(crate) unsafe trait Drive: Worker<Answer = Outcome> {
    /// Entries of its rings.
    type Sqe: squeue::EntryMarker + Send;
    /// Answers of its rings.
    type Cqe: RingCqe;
    /// The drive's own state of a command.
    type State: Default + Send + std::fmt::Debug;

    /// The next step of the command in `slot`, after `event`. Does not block.
    fn step(
        &self,
        slot: &mut DriveSlot<Self::State>,
        event: DriveEvent,
    ) -> DriveStep<Self::Sqe, Self::Work>;

    /// The descriptor that all operations use.
    fn fd(&self) -> RawFd;
}

/// State that the queues of a drive share.
#[derive(Debug)]
pub(crate) struct DriveShared<D: Drive> {
    // The first field, so that its threads end before the drive is closed.
    pool: Pool<D>,
    pub(crate) drive: Arc<D>,
    epoll_waker: Arc<EpollWaker>,
}

impl<D: Drive> DriveShared<D> {
    pub(crate) fn new(
        drive: D,
        name: &'static str,
        threads: usize,
    ) -> std::io::Result<Arc<DriveShared<D>>> {
        let drive = Arc::new(drive);
        let pool = Pool::new(drive.clone(), name, threads);
        Ok(Arc::new(DriveShared { pool, drive, epoll_waker: Arc::new(EpollWaker::new()?) }))
    }

    /// Opens a queue, for both kinds of drives.
    pub(crate) fn open_queue(
        self: &Arc<Self>,
        depth: u16,
        waker: Waker,
    ) -> Result<Box<dyn Queue>, Error> {
        check_depth(depth)?;
        self.pool.start()?;
        let completions = self.completions(depth, waker).map_err(no_ring)?;
        Ok(Box::new(SlotQueue::new(DriveSteps(self.clone()), completions, depth)))
    }

    fn completions(
        &self,
        depth: u16,
        waker: Waker,
    ) -> std::io::Result<Completions<Outcome, D::Sqe, D::Cqe>> {
        let ring = Ring::new(depth)?;
        // The entries name the file by its index in the ring.
        if !ring.register(self.drive.fd()) {
            return Err(std::io::Error::last_os_error());
        }
        Completions::new(waker).with_ring(ring, &self.epoll_waker)
    }
}

/// The steps of a drive's commands.
struct DriveSteps<D: Drive>(Arc<DriveShared<D>>);

impl<D: Drive> DriveSteps<D> {
    /// Reports `event` to the drive, and does what the drive asks for.
    fn go_on(&self, slots: &mut RingSlots<Self>, i: u32, event: DriveEvent) {
        let (slot, completions) = slots.parts(i);
        match self.0.drive.step(slot, event) {
            DriveStep::Done(status) => {
                let c = slots.release(i);
                slots.finish(c, status);
            }
            DriveStep::Ring(entry) => {
                let pushed = completions.ring().is_some_and(|ring| {
                    // SAFETY: the entry's memory is the slot's and its command's (contract of `Drive`). Both stay until
                    // the answer: a slot is free only when its command is done, and the queue's drop waits for that.
                    unsafe { ring.push(entry, u64::from(i)) }
                });
                if !pushed {
                    // The command was never sent, so it may be tried again.
                    let c = slots.release(i);
                    slots.finish(c, Status::Busy);
                }
            }
            DriveStep::Work(work) => {
                self.0.pool.push(Job { work, mailbox: completions.mailbox().clone(), slot: i });
            }
        }
    }
}

impl<D: Drive> Steps for DriveSteps<D> {
    type Slot = DriveSlot<D::State>;
    type Answer = Outcome;
    type Sqe = D::Sqe;
    type Cqe = D::Cqe;

    fn begin(&mut self, slots: &mut RingSlots<Self>, c: Box<Command>) -> Result<(), Box<Command>> {
        let i = slots.take(c);
        slots.get(i).state = D::State::default();
        self.go_on(slots, i, DriveEvent::Begin);
        Ok(())
    }

    fn reply(&mut self, slots: &mut RingSlots<Self>, i: u32, reply: Reply<Outcome>) {
        self.go_on(slots, i, DriveEvent::Reply(reply));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use io_uring::{cqueue, opcode, types};
    use std::io::{PipeReader, PipeWriter, Write, pipe};
    use std::os::fd::AsRawFd;
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;
    use zoneplug_core::{Commands, Nanos, Op, Sector};

    const WHILE: Duration = Duration::from_millis(200);

    /// A drive that panics when the command at sector 0 is answered. The commands at 0 and 1 each read a pipe. A
    /// thread takes a while for the command at 2, and panics on the one at 3.
    #[derive(Debug)]
    struct Pipes {
        pipes: [PipeReader; 2],
        thread_done: AtomicBool,
    }

    impl Worker for Pipes {
        type Work = u64;
        type Answer = Outcome;

        fn run(&self, jobs: Vec<Job<Pipes>>) {
            for job in jobs {
                assert!(job.work != 3, "a thread panics on purpose");
                std::thread::sleep(WHILE);
                self.thread_done.store(true, Ordering::SeqCst);
                job.mailbox.push(job.slot, Status::Ok.into());
            }
        }
    }

    // SAFETY: the entries are of memory that is never freed.
    unsafe impl Drive for Pipes {
        type Sqe = squeue::Entry;
        type Cqe = cqueue::Entry;
        type State = ();

        fn step(
            &self,
            slot: &mut DriveSlot<()>,
            event: DriveEvent,
        ) -> DriveStep<squeue::Entry, u64> {
            let at = slot.command().sector.0;
            match event {
                DriveEvent::Begin if at > 1 => DriveStep::Work(at),
                DriveEvent::Begin => {
                    let byte = Box::leak(Box::new(0u8));
                    let fd = types::Fd(self.pipes[at as usize].as_raw_fd());
                    DriveStep::Ring(opcode::Read::new(fd, byte, 1).build())
                }
                // Panics without a message: a backtrace takes longer than the tests wait.
                DriveEvent::Reply(_) if at == 0 => resume_unwind(Box::new("on purpose")),
                DriveEvent::Reply(_) => DriveStep::Done(Status::Ok),
            }
        }

        fn fd(&self) -> RawFd {
            self.pipes[0].as_raw_fd()
        }
    }

    /// A queue with these commands in flight, its drive, and the writing ends of its pipes.
    fn queue(sectors: &[u64]) -> (Box<dyn Queue>, Arc<DriveShared<Pipes>>, [PipeWriter; 2]) {
        let ((a, to_a), (b, to_b)) = (pipe().unwrap(), pipe().unwrap());
        let drive = Pipes { pipes: [a, b], thread_done: AtomicBool::new(false) };
        let shared = DriveShared::new(drive, "zoneplug-pipes", 1).unwrap();
        let mut q = shared.open_queue(4, Waker::noop().clone()).unwrap();
        let command = |&s| Command::without_data(Op::Flush, Sector(s), 0);
        let mut commands: Commands = sectors.iter().map(command).collect();
        q.submit(Nanos(0), &mut commands);
        assert!(commands.is_empty());
        (q, shared, [to_a, to_b])
    }

    /// The kernel uses a command's memory until it has answered, even if the queue's drop panics.
    #[test]
    fn a_panic_while_a_queue_is_dropped_leaves_nothing_on_the_ring() {
        let (q, _shared, [mut a, mut b]) = queue(&[0, 1]);
        a.write_all(&[1]).unwrap();
        let answered = Arc::new(AtomicBool::new(false));
        let says = answered.clone();
        let late = std::thread::spawn(move || {
            std::thread::sleep(WHILE);
            says.store(true, Ordering::SeqCst);
            b.write_all(&[1]).unwrap();
        });
        assert!(catch_unwind(AssertUnwindSafe(|| drop(q))).is_err(), "it panics");
        assert!(answered.load(Ordering::SeqCst), "the drop has waited for the other command");
        late.join().unwrap();
    }

    #[test]
    fn a_panic_while_a_queue_is_dropped_leaves_nothing_with_a_thread() {
        let (q, shared, [mut a, _b]) = queue(&[0, 2]);
        a.write_all(&[1]).unwrap();
        assert!(catch_unwind(AssertUnwindSafe(|| drop(q))).is_err(), "it panics");
        assert!(shared.drive.thread_done.load(Ordering::SeqCst), "the drop has waited for it");
    }

    /// A command whose thread panics is never answered. Its queue then panics, which its caller handles; the thread
    /// goes on.
    #[test]
    fn a_thread_that_panics_is_a_queue_that_panics() {
        let (mut q, shared, _pipes) = queue(&[3]);
        let end = std::time::Instant::now() + Duration::from_secs(20);
        let polled = catch_unwind(AssertUnwindSafe(|| {
            while std::time::Instant::now() < end {
                q.poll(Nanos(0), &mut Commands::new());
            }
        }));
        assert!(polled.is_err(), "the command is never done");
        drop(q);
        let mut q = shared.open_queue(4, Waker::noop().clone()).unwrap();
        let (mut commands, mut done) = (Commands::new(), Commands::new());
        commands.push_back(Command::without_data(Op::Flush, Sector(2), 0));
        q.submit(Nanos(0), &mut commands);
        while done.is_empty() {
            assert!(std::time::Instant::now() < end, "there is no thread any more");
            q.poll(Nanos(0), &mut done);
        }
        assert!(done[0].status.is_ok());
    }
}
