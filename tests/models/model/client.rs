//! A client that sleeps as real ones do, and the BIOs that it submits.

use super::*;

/// What a sleeping client waits for.
struct Bell {
    rung: Mutex<bool>,
    cond: Condvar,
}

impl Bell {
    fn wait(&self) {
        let mut rung = self.rung.lock().expect("nobody panics here");
        while !*rung {
            rung = self.cond.wait(rung).expect("nobody panics here");
        }
        *rung = false;
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        *self.rung.lock().expect("nobody panics here") = true;
        self.cond.notify_one();
    }
}

/// How one BIO ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Answer {
    pub(crate) token: u64,
    pub(crate) status: Status,
    pub(crate) sector: Sector,
}

/// The answer to a BIO that has succeeded: its token, and the block where it began.
pub(crate) fn ok(token: u64, block: u64) -> Answer {
    Answer { token, status: Status::Ok, sector: Sector(block * B) }
}

/// A client with its queue: *arm, poll once more, sleep*, and nothing else that would notice a change.
pub(crate) struct Client {
    pub(crate) queue: DiskQueue,
    bell: Arc<Bell>,
    waker: Waker,
    todo: Bios,
    done: Bios,
    /// Its own clock: it sleeps until its queue's next deadline at most, and clocks of different clients differ.
    now: Nanos,
}

impl Client {
    pub(crate) fn new(disk: &Disk) -> Client {
        Self::of_tags(disk, 2)
    }

    pub(crate) fn of_tags(disk: &Disk, tags: u16) -> Client {
        let bell = Arc::new(Bell { rung: Mutex::new(false), cond: Condvar::new() });
        let waker = Waker::from(bell.clone());
        let config = QueueConfig { depth: 8, tags, waker: waker.clone() };
        let queue = disk.open_queue(config).expect("a queue");
        Client { queue, bell, waker, todo: Bios::new(), done: Bios::new(), now: NOW }
    }

    /// With these BIOs to submit.
    pub(crate) fn with(mut self, bios: impl IntoIterator<Item = Box<Bio>>) -> Client {
        self.todo.extend(bios);
        self
    }

    /// Submits what the disk takes now.
    pub(crate) fn submit(&mut self) {
        self.queue.submit(self.now, &mut self.todo);
    }

    /// One poll.
    pub(crate) fn poll(&mut self) {
        self.queue.poll(self.now, &mut self.done);
    }

    /// Whether everything is back, and no other queue needs this one.
    fn is_quiet(&self) -> bool {
        self.todo.is_empty() && self.queue.outstanding() == 0 && !self.queue.is_busy()
    }

    /// Submits, polls and sleeps until everything is back.
    pub(crate) fn settle(&mut self) {
        loop {
            if !self.todo.is_empty() {
                self.submit();
            }
            self.poll();
            if self.is_quiet() {
                return;
            }
            if !self.queue.arm(&self.waker) {
                continue;
            }
            let before = self.done.len();
            self.poll();
            let due = self.queue.next_deadline();
            if let Some(due) = due {
                self.now = self.now.max(due);
            } else if self.done.len() == before && !self.is_quiet() {
                self.bell.wait();
            }
        }
    }

    /// Polls for as long as queues that were dropped have work.
    #[cfg_attr(loom, expect(dead_code, reason = "only the larger cases need it"))]
    pub(crate) fn drain_orphans(&mut self) {
        self.poll();
        while let Some(due) = self.queue.next_deadline() {
            self.now = self.now.max(due);
            self.poll();
        }
    }

    /// Settles and leaves the disk; what came back, by token.
    pub(crate) fn finish(mut self) -> Vec<Answer> {
        self.settle();
        drop(self.queue);
        let mut all: Vec<_> = self
            .done
            .iter()
            .map(|b| Answer { token: b.token(), status: b.status, sector: b.sector })
            .collect();
        all.sort();
        all
    }
}

/// A client for each BIO. They submit one after the other, so that the first is at the device and the others wait
/// behind it.
pub(crate) fn submitted<const N: usize>(disk: &Disk, bios: [Box<Bio>; N]) -> [Client; N] {
    let mut clients = bios.map(|bio| Client::new(disk).with([bio]));
    clients.iter_mut().for_each(Client::submit);
    clients
}

/// A client that has written the first block, and whose write to the second block is at the device. The write fails in
/// a [`World`] with `fails_at: B`.
pub(crate) fn before_a_failure(disk: &Disk) -> Client {
    let mut client = Client::new(disk).with([zeroes(0, 1, 0)]);
    client.settle();
    let mut client = client.with([zeroes(B, 1, 2)]);
    client.submit();
    client
}

/// The answer to that write.
pub(crate) fn failed() -> Answer {
    Answer { token: 2, status: Status::Medium, sector: Sector(B) }
}

fn with_token(mut bio: Box<Bio>, token: u64) -> Box<Bio> {
    bio.set_token(token);
    bio
}

fn one_block() -> IoBuf {
    // The device never looks: every BIO may use the same memory.
    static MEMORY: [u8; (BLOCK as usize) << 9] = [0; (BLOCK as usize) << 9];
    IoBuf::from_static(&MEMORY)
}

/// An append of one block to the zone that starts at `start`.
pub(crate) fn append(start: u64, token: u64) -> Box<Bio> {
    with_token(Bio::with_buf(Op::ZoneAppend, Sector(start), BLOCK, one_block()), token)
}

/// A read of one block.
pub(crate) fn read(sector: u64, token: u64) -> Box<Bio> {
    with_token(Bio::with_buf(Op::Read, Sector(sector), BLOCK, one_block()), token)
}

/// Zeroes, ordered as a write.
pub(crate) fn zeroes(sector: u64, blocks: u32, token: u64) -> Box<Bio> {
    with_token(Bio::new(Op::WriteZeroes, Sector(sector), blocks * BLOCK), token)
}

/// A reset of a zone of `blocks`.
pub(crate) fn reset(start: u64, blocks: u32, token: u64) -> Box<Bio> {
    with_token(Bio::new(Op::ZoneReset, Sector(start), blocks * BLOCK), token)
}
