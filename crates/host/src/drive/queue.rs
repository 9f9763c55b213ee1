//! One queue of a drive: commands on the ring or with a thread, and those that are done. The [`Drive`] says what each command
//! needs next; the queue sees that it gets it, and that a command comes back once. Never blocks.

use super::{Memory, no_ring};
use crate::ring::{Bell, Completion, Inbox, Job, Pool, Reply, Ring, Worker, check_depth};
use io_uring::squeue;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::task::Waker;
use zoneplug_core::zone::ZoneInfo;
use zoneplug_core::{Command, Commands, Error, Nanos, Queue, Status};

/// What a thread found.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) status: Status,
    /// Of a report.
    pub(crate) zones: Vec<ZoneInfo>,
}

impl From<Status> for Outcome {
    fn from(status: Status) -> Outcome {
        Outcome { status, zones: Vec::new() }
    }
}

/// What has happened to a command.
#[derive(Debug)]
pub(crate) enum Event {
    /// It has come.
    Begin,
    /// The kernel or a thread has answered.
    Reply(Reply<Outcome>),
}

/// What a command needs next.
#[derive(Debug)]
pub(crate) enum Step<S, W> {
    /// Nothing: it is done.
    Done(Status),
    /// This, on the ring.
    Ring(S),
    /// A thread.
    Work(W),
}

/// A command in flight.
#[derive(Debug)]
pub(crate) struct Slot<T> {
    command: Option<Box<Command>>,
    /// What the kernel moves.
    pub(crate) memory: Memory,
    /// What the drive remembers of it.
    pub(crate) state: T,
}

impl<T> Slot<T> {
    #[cfg(test)]
    pub(crate) fn of_test(command: Box<Command>) -> Slot<T>
    where
        T: Default,
    {
        Slot { command: Some(command), memory: Memory::default(), state: T::default() }
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

/// A kind of drive: how a command becomes operations of the kernel.
///
/// # Safety
///
/// Every entry that `step` returns moves no memory but that of the slot and of the BIOs of its command.
pub(crate) unsafe trait Drive: Worker<Answer = Outcome> {
    /// Entries of its rings.
    type Sqe: squeue::EntryMarker + Send;
    /// And their answers.
    type Cqe: Completion;
    /// What it remembers of a command.
    type State: Default + Send + std::fmt::Debug;

    /// The next step of the command in `slot`, after `event`. Does not block.
    fn step(&self, slot: &mut Slot<Self::State>, event: Event) -> Step<Self::Sqe, Self::Work>;

    /// The descriptor that operations are on.
    fn fd(&self) -> RawFd;
}

/// What the queues of a drive share.
#[derive(Debug)]
pub(crate) struct Shared<D: Drive> {
    // Its threads end before the drive closes.
    pool: Pool<D>,
    pub(crate) drive: Arc<D>,
    bell: Arc<Bell>,
}

impl<D: Drive> Shared<D> {
    pub(crate) fn new(
        drive: D,
        name: &'static str,
        threads: usize,
    ) -> std::io::Result<Arc<Shared<D>>> {
        let drive = Arc::new(drive);
        let pool = Pool::new(drive.clone(), name, threads);
        Ok(Arc::new(Shared { pool, drive, bell: Arc::new(Bell::new()?) }))
    }

    /// What both kinds of drives do as devices.
    pub(crate) fn open_queue(
        self: &Arc<Self>,
        depth: u16,
        waker: Waker,
    ) -> Result<Box<dyn Queue>, Error> {
        check_depth(depth)?;
        self.pool.start()?;
        Ok(Box::new(DriveQueue::new(self.clone(), depth, waker).map_err(no_ring)?))
    }
}

#[derive(Debug)]
pub(crate) struct DriveQueue<D: Drive> {
    /// Before everything else that a drop ends: it waits until neither the kernel nor a thread uses the commands' memory.
    inbox: Inbox<Outcome, D::Sqe, D::Cqe>,
    shared: Arc<Shared<D>>,
    depth: usize,
    /// Taken and not given back.
    held: usize,
    done: Commands,
    slots: Vec<Slot<D::State>>,
    free: Vec<u32>,
    seen: Nanos,
}

impl<D: Drive> DriveQueue<D> {
    fn new(shared: Arc<Shared<D>>, depth: u16, waker: Waker) -> std::io::Result<DriveQueue<D>> {
        let ring = Ring::new(depth)?;
        // Without it the entries' fixed file would be nobody's.
        if !ring.register(shared.drive.fd()) {
            return Err(std::io::Error::last_os_error());
        }
        let nr = usize::from(depth);
        Ok(DriveQueue {
            inbox: Inbox::new(waker).with_ring(ring, &shared.bell)?,
            shared,
            depth: nr,
            held: 0,
            done: Commands::with_capacity(nr),
            slots: Vec::with_capacity(nr),
            free: Vec::with_capacity(nr),
            seen: Nanos(0),
        })
    }

    fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    fn begin(&mut self, c: Box<Command>) {
        let i = self.free.pop().unwrap_or_else(|| {
            let state = D::State::default();
            self.slots.push(Slot { command: None, memory: Memory::default(), state });
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[i as usize];
        slot.command = Some(c);
        slot.state = D::State::default();
        self.go_on(i, Event::Begin);
    }

    /// Tells the drive, and does what it says.
    fn go_on(&mut self, i: u32, event: Event) {
        let slot = &mut self.slots[i as usize];
        match self.shared.drive.step(slot, event) {
            Step::Done(status) => self.finish(i, status),
            Step::Ring(entry) => {
                let pushed = self.inbox.ring().is_some_and(|ring| {
                    // SAFETY: the entry's memory is the slot's and its command's (contract of `Drive`), and both stay until
                    // the answer: a slot is free only when its command is done, and `drop` waits for that.
                    unsafe { ring.push(entry, u64::from(i)) }
                });
                if !pushed {
                    // Never sent: it may be tried again.
                    self.finish(i, Status::Busy);
                }
            }
            Step::Work(work) => {
                self.shared.pool.push(Job { work, mailbox: self.inbox.mailbox().clone(), slot: i });
            }
        }
    }

    fn finish(&mut self, i: u32, status: Status) {
        let taken = self.slots[i as usize].command.take();
        let mut c = taken.expect("a slot in use has a command");
        self.free.push(i);
        c.status = status;
        self.done.push_back(c);
    }

    /// Takes every answer that is there.
    fn advance(&mut self) {
        loop {
            let mut some = false;
            while let Some((i, reply)) = self.inbox.next() {
                self.go_on(i, Event::Reply(reply));
                some = true;
            }
            self.inbox.send();
            if !some {
                return;
            }
        }
    }

    /// Whether `poll` would find something.
    fn has_work(&self) -> bool {
        !self.done.is_empty() || self.inbox.is_full()
    }
}

impl<D: Drive> Queue for DriveQueue<D> {
    fn submit(&mut self, now: Nanos, commands: &mut Commands) {
        self.seen = now;
        while self.held < self.depth {
            let Some(c) = commands.pop_front() else { break };
            self.held += 1;
            self.begin(c);
        }
        self.inbox.send();
        if self.inbox.is_armed() {
            // Whoever armed the queue before it had anything sleeps until this.
            self.arm();
        }
    }

    fn poll(&mut self, now: Nanos, done: &mut Commands) {
        self.seen = now;
        self.advance();
        assert!(!self.inbox.is_broken(), "a thread of the device has panicked");
        self.held -= self.done.len();
        if done.is_empty() {
            std::mem::swap(&mut self.done, done);
        } else {
            done.append(&mut self.done);
        }
    }

    fn next_deadline(&self) -> Option<Nanos> {
        self.has_work().then_some(self.seen)
    }

    fn arm_fd(&mut self) -> Option<i32> {
        let in_flight = self.in_flight();
        if self.done.is_empty()
            && let Some(fd) = self.inbox.arm_fd(in_flight)
        {
            return Some(fd);
        }
        self.arm();
        None
    }

    fn arm(&mut self) {
        self.inbox.arm(!self.done.is_empty());
    }
}

impl<D: Drive> Drop for DriveQueue<D> {
    /// Waits for what is in flight: the kernel uses the memory of the commands.
    fn drop(&mut self) {
        while self.in_flight() > 0 && !self.inbox.is_broken() {
            self.inbox.wait();
            self.advance();
        }
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
    use zoneplug_core::{Op, Sector};

    const WHILE: Duration = Duration::from_millis(200);

    /// A drive that panics when the command at sector 0 is answered. That one reads a pipe, the one at 1 another; the one at 2 is
    /// a thread's, for a while; the thread panics with the one at 3.
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

        fn step(&self, slot: &mut Slot<()>, event: Event) -> Step<squeue::Entry, u64> {
            let at = slot.command().sector.0;
            match event {
                Event::Begin if at > 1 => Step::Work(at),
                Event::Begin => {
                    let byte = Box::leak(Box::new(0u8));
                    let fd = types::Fd(self.pipes[at as usize].as_raw_fd());
                    Step::Ring(opcode::Read::new(fd, byte, 1).build())
                }
                // A panic that prints nothing: a backtrace takes longer than what the tests wait for.
                Event::Reply(_) if at == 0 => resume_unwind(Box::new("on purpose")),
                Event::Reply(_) => Step::Done(Status::Ok),
            }
        }

        fn fd(&self) -> RawFd {
            self.pipes[0].as_raw_fd()
        }
    }

    /// A queue with these commands in flight, its drive, and what the pipes are written with.
    fn queue(sectors: &[u64]) -> (Box<dyn Queue>, Arc<Shared<Pipes>>, [PipeWriter; 2]) {
        let ((a, to_a), (b, to_b)) = (pipe().unwrap(), pipe().unwrap());
        let drive = Pipes { pipes: [a, b], thread_done: AtomicBool::new(false) };
        let shared = Shared::new(drive, "zoneplug-pipes", 1).unwrap();
        let mut q = shared.open_queue(4, Waker::noop().clone()).unwrap();
        let command = |&s| Command::without_data(Op::Flush, Sector(s), 0);
        let mut commands: Commands = sectors.iter().map(command).collect();
        q.submit(Nanos(0), &mut commands);
        assert!(commands.is_empty());
        (q, shared, [to_a, to_b])
    }

    /// The kernel uses a command's memory until it has answered, whatever becomes of the queue.
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

    /// What a thread panics with is never answered: the queue panics in its turn, which those who watch it know how to handle, and
    /// the thread goes on.
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
