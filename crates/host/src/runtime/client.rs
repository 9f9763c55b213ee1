//! A client of a hosted disk: submits, polls and sleeps. After polls that found nothing, it runs other clients'
//! queues.

use crate::eventfd::Alarm;
use crate::runtime::deferred_wake::{DeferredWaker, DeferredWakes};
use crate::runtime::io_error::IoError;
use crate::runtime::shared::Handle;
use crate::runtime::shared_queue::{QueueOwner, QueueWork, SharedQueue};
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::{Duration, Instant};
use zoneplug_buf::{AlignedBuf, IoBuf, IoRange, Lent};
use zoneplug_core::disk::Armed;
use zoneplug_core::poison::lock;
use zoneplug_core::{Bio, Bios, Error, ErrorKind, Op, Sector};

/// After so many polls that found nothing, a client runs the queues of others.
const POLLS_BEFORE_HELP: u32 = 64;
/// The longest sleep of a client on a descriptor before it polls again.
pub(crate) const TICK: Duration = Duration::from_millis(1);
/// After so many polls that found nothing, [`Client::wait`] sleeps.
const SPINS: u32 = 256;

/// A client of a hosted disk: one thread at a time submits and polls.
///
/// A BIO may come back before the device is done with its memory, if the disk has command deadlines or its device has
/// panicked: see [`Client::is_late`]. [`BlockingDisk`](crate::BlockingDisk) and [`AsyncDisk`](crate::AsyncDisk)
/// handle that themselves.
#[derive(Debug)]
// Aligned, so that threads whose clients are neighbours in memory do not write to the same cache lines.
#[repr(align(128))]
pub struct Client {
    shared: Handle,
    own: QueueOwner,
    /// BIOs that were taken and have not been given back.
    outstanding: u32,
    /// Registered with the engine in place of the client's wakers.
    deferred: Arc<DeferredWaker>,
    depth: u32,
    /// The version of the queues that `others` was read from.
    seen: u32,
    /// The queues of other clients, and their turns at this client's last check.
    others: Vec<(Arc<SharedQueue>, u32)>,
    /// Polls in a row that found nothing.
    in_vain: u32,
    /// Wakes this client's thread. Made at the first sleep.
    alarm: Option<Arc<Alarm>>,
    /// The owner calls deferred wakers: see [`Client::defer_wakes`].
    owner_wakes: bool,
}

impl Client {
    pub(crate) fn new(shared: Handle, own: QueueOwner, depth: u32) -> Client {
        let deferred = DeferredWaker::new(&shared.deferred_wakes);
        Client {
            shared,
            own,
            outstanding: 0,
            deferred,
            depth,
            seen: u32::MAX,
            others: Vec::new(),
            in_vain: 0,
            alarm: None,
            owner_wakes: false,
        }
    }

    /// Leaves the calls of deferred wakers to the owner, which uses this client under a lock. The owner calls them
    /// through the result each time after it has unlocked.
    pub(crate) fn defer_wakes(&mut self) -> Arc<DeferredWakes> {
        self.owner_wakes = true;
        self.shared.deferred_wakes.clone()
    }

    #[inline]
    fn call_wakes(&self) {
        if !self.owner_wakes {
            self.shared.deferred_wakes.call();
        }
    }

    /// Takes BIOs from the front of `bios`, as many as the depth allows, and returns how many.
    #[inline]
    pub fn submit(&mut self, bios: &mut Bios) -> usize {
        let now = self.shared.now();
        let taken = self.own.lock().submit(now, bios);
        self.outstanding += taken as u32;
        self.call_wakes();
        taken
    }

    /// Runs the client's queue, and appends BIOs of this client that have finished to `done`.
    #[inline]
    pub fn poll(&mut self, done: &mut Bios) {
        let now = self.shared.now();
        let before = done.len();
        let mut own_work = false;
        if let Some(mut queue) = self.own.try_lock() {
            queue.poll(now, done);
            // `is_busy` is called only if its answer is used.
            own_work = done.len() == before && queue.is_busy();
            queue.count_turn();
        }
        // A faulty device may have made up some of these BIOs.
        self.outstanding = self.outstanding.saturating_sub((done.len() - before) as u32);
        self.call_wakes();
        if self.shared.deadlines && done.iter().skip(before).any(|b| b.late().is_some()) {
            // A command is late. From now on the reactor checks whether it has come back.
            self.shared.kick();
        }
        if done.len() == before {
            self.nothing_done(own_work);
        } else {
            self.in_vain = 0;
        }
    }

    /// Runs the other queues after a number of polls that found nothing: this client may wait for work on another
    /// client's queue, which that client may never run.
    #[cold]
    fn nothing_done(&mut self, own_work: bool) {
        self.in_vain = self.in_vain.wrapping_add(1);
        let patience = if own_work { POLLS_BEFORE_HELP * 16 } else { POLLS_BEFORE_HELP };
        if self.in_vain.is_multiple_of(patience) {
            self.help();
        }
    }

    /// Runs the queues of clients that have not polled since this client last checked. A client that polls needs no
    /// help, and help would cost it time: it has to take its queue back (`owner_lock.rs`).
    fn help(&mut self) {
        let version = self.shared.version.load(Ordering::Acquire);
        if version != self.seen {
            self.others = lock(&self.shared.queues)
                .iter()
                .filter(|queue| !Arc::ptr_eq(queue, self.own.shared()))
                .map(|queue| (queue.clone(), queue.turns()))
                .collect();
            self.seen = version;
        }
        let now = self.shared.now();
        for (queue, seen) in &mut self.others {
            let turns = queue.turns();
            if std::mem::replace(seen, turns) == turns
                && let Some(mut locked) = queue.try_lock()
                && locked.is_busy()
            {
                locked.poll_for_owner(now);
            }
        }
        self.call_wakes();
    }

    /// BIOs that were taken and have not been given back.
    pub fn outstanding(&self) -> u32 {
        self.outstanding
    }

    /// Checks the length of an operation, as [`HostedDisk::check_length`](crate::HostedDisk::check_length) does.
    pub(crate) fn check_length(&self, op: Op, sector: Sector, bytes: u64) -> Result<u32, IoError> {
        self.shared.check_length(op, sector, bytes)
    }

    /// Checks the length of a read of `len_sectors`.
    pub(crate) fn check_read(&self, sector: Sector, len_sectors: u64) -> Result<u32, IoError> {
        self.check_length(Op::Read, sector, len_sectors.saturating_mul(512))
    }

    /// Checks the length of a write or an append of several pieces.
    pub(crate) fn check_pieces(
        &self,
        op: Op,
        sector: Sector,
        pieces: &[IoSlice<'_>],
    ) -> Result<(), IoError> {
        let bytes = pieces.iter().fold(0u64, |sum, p| sum.saturating_add(p.len() as u64));
        self.check_length(op, sector, bytes).map(drop)
    }

    pub(crate) fn geometry(&self) -> zoneplug_core::zone::Geometry {
        self.shared.disk.geometry()
    }

    /// How many BIOs the client can hold.
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// Polls until at least `min` BIOs have been appended to `done`, nothing is outstanding, or `timeout` has passed.
    /// Sleeps while there is nothing to do. Returns how many were appended.
    pub fn wait(&mut self, done: &mut Bios, min: usize, timeout: Option<Duration>) -> usize {
        let before = done.len();
        let end = timeout.and_then(|t| Instant::now().checked_add(t));
        let mut spins = 0;
        loop {
            self.poll(done);
            let got = done.len() - before;
            if got >= min || self.outstanding() == 0 {
                return got;
            }
            let left = end.map(|e| e.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return got;
            }
            spins += 1;
            if spins < SPINS {
                std::hint::spin_loop();
                continue;
            }
            let alarm = self.alarm();
            if let Some(fd) = self.arm_fd(&Waker::from(alarm.clone())) {
                // This poll, after arming, sees BIOs that finished before; later ones wake the client.
                self.poll(done);
                // If nothing is outstanding, nothing would wake the client.
                if done.len() - before < min && self.outstanding() > 0 {
                    // The descriptor reports the commands that were at the device when it was requested. The poll
                    // above, or another thread that runs this queue, may have begun work that it does not report (a
                    // commit, the next command of a device that panics). So the sleep is limited to TICK.
                    let most =
                        if fd.is_some() { Some(left.map_or(TICK, |l| l.min(TICK))) } else { left };
                    alarm.sleep(fd, most);
                }
            }
            self.own.armed.store(false, Ordering::Release);
        }
    }

    fn alarm(&mut self) -> Arc<Alarm> {
        self.alarm.get_or_insert_with(Alarm::new).clone()
    }

    /// [`Client::arm`], for a thread that sleeps on descriptors. `None`: poll again instead. With a descriptor,
    /// and without other clients, the reactor has nothing to do. The caller sleeps on the descriptor for [`TICK`] at
    /// most; `wait` says why.
    pub(crate) fn arm_fd(&mut self, waker: &Waker) -> Option<Option<i32>> {
        self.deferred.set(waker);
        let mut queue = self.own.lock();
        let Armed { may_sleep, fd } = queue.arm_fd(&Waker::from(self.deferred.clone()));
        let timer = queue.next_deadline().is_some();
        drop(queue);
        if !may_sleep {
            return None;
        }
        // With other clients, the work that this one waits for may be on a queue that no thread runs.
        if fd.is_none() || timer || lock(&self.shared.queues).len() > 1 {
            drop(self.own.lock_to_leave());
            self.own.armed.store(true, Ordering::Release);
            self.shared.kick();
        }
        Some(fd)
    }

    /// Sleeps until the disk is thawed, at most `timeout`: for a client whose BIOs the frozen disk does not take.
    pub fn wait_thaw(&mut self, timeout: Option<Duration>) {
        let alarm = self.alarm();
        if self.arm(&Waker::from(alarm.clone())) {
            alarm.sleep(None, timeout);
        }
        self.own.armed.store(false, Ordering::Release);
    }

    /// Prepares for sleep: `waker` is woken when a BIO of this client has finished, or the disk was thawed. Until the
    /// next poll the reactor runs the queues. False: poll again instead of sleeping. Arm, poll once more, then sleep.
    pub fn arm(&mut self, waker: &Waker) -> bool {
        self.deferred.set(waker);
        let armed = self.own.lock_to_leave().arm(&Waker::from(self.deferred.clone()));
        if armed {
            self.own.armed.store(true, Ordering::Release);
            self.shared.kick();
        }
        armed
    }

    /// The reverse of [`Client::arm`], for a client that has nothing in flight: the reactor need not run its queue.
    pub fn disarm(&self) {
        self.own.armed.store(false, Ordering::Release);
    }

    /// Waits until nothing of this client is in flight. Fails if something still is after `timeout`. Appends finished
    /// BIOs to `done`.
    pub fn drain(&mut self, done: &mut Bios, timeout: Duration) -> Result<(), Error> {
        let end = Instant::now().checked_add(timeout);
        while self.outstanding() > 0 {
            let left = end.map_or(timeout, |e| e.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                let n = self.outstanding();
                return Err(Error::new(ErrorKind::Busy, format!("{n} BIOs are still in flight"))
                    .hint("wait longer; the device has not answered"));
            }
            let all = self.outstanding() as usize;
            self.wait(done, all, Some(left));
        }
        Ok(())
    }

    /// Whether the device may still use the memory of a BIO that came back without it, because the BIO was given up
    /// (its status is *timeout*, or that of another part of it) or its device has panicked. Once this is false,
    /// [`Client::reclaim_late`] returns the memory. It may stay true for ever.
    ///
    /// ```
    /// # use zoneplug_host::HostedDisk;
    /// # use zoneplug_core::{Bio, Bios, Op, Sector};
    /// let disk = HostedDisk::open_spec("null,zones=4,zone-size=1M,timeout=50ms,fault=flush/lost").unwrap();
    /// let mut client = disk.open_client(4, 4).unwrap();
    /// let mut done = Bios::new();
    /// client.submit(&mut Bios::from([Bio::new(Op::Flush, Sector(0), 0)]));
    /// client.wait(&mut done, 1, None);
    /// assert!(client.is_late(&done[0]), "it will never be over: the completion was lost");
    /// ```
    pub fn is_late(&self, bio: &Bio) -> bool {
        bio.late().is_some_and(|late| self.shared.disk.is_late(late))
    }

    /// The memory of a BIO that came back without it, once the device has given it back. `lent`: the memory that the
    /// BIO had when it was submitted.
    pub fn reclaim_late(&self, lent: IoRange) -> Option<IoBuf> {
        self.shared.disk.reclaim(lent)
    }

    /// Fails the writes of this client that the order window holds: no write will come that could fill their gaps.
    #[cfg(any(feature = "iscsi", feature = "nvme-tcp"))]
    pub(crate) fn refuse_held(&mut self) {
        self.own.lock().refuse_held();
    }

    /// Keeps lent memory until it comes back, even after the client was dropped.
    pub(crate) fn keep_lent(&self, lent: impl Iterator<Item = Lent>) {
        self.own.keep(lent);
    }

    /// The buffer that was lent to a BIO that is back. `None`: the BIO came back without it, and the disk keeps the
    /// buffer until that comes back too. The token is not used, because a faulty device may have made up the BIO.
    #[inline]
    pub(crate) fn reclaim(&self, bio: &mut Bio, lent: Option<Lent>) -> Option<AlignedBuf> {
        match lent?.take_back(bio.take_buf()) {
            Ok(buf) => Some(buf),
            Err((lent, _)) => self.withhold(lent),
        }
    }

    #[cold]
    fn withhold(&self, lent: Lent) -> Option<AlignedBuf> {
        self.shared.withheld.keep(&self.shared.disk, [lent]);
        None
    }
}

impl Drop for Client {
    /// Never blocks, unless this is the last reference to the disk (see [`HostedDisk`](crate::HostedDisk)). The
    /// reactor finishes the operations in flight.
    fn drop(&mut self) {
        self.own.orphan.store(true, Ordering::Release);
        let mut queue = self.own.lock_to_leave();
        // Writes in the order window were not accepted, and no write will come that could fill their gaps.
        queue.refuse_held();
        let work = QueueWork::of(&queue);
        drop(queue);
        if work == QueueWork::None {
            self.shared.remove_orphans();
        }
        // `remove_orphans` skips a queue that another thread is running. Later, only the reactor can remove it.
        let left = || lock(&self.shared.queues).iter().any(|q| Arc::ptr_eq(q, self.own.shared()));
        if work != QueueWork::None || left() {
            self.shared.kick();
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::HostedDisk;
    use zoneplug_core::Bios;

    /// If another thread claims the queue of a client, the client's next poll costs more.
    #[test]
    fn a_client_that_polls_is_not_helped() {
        let disk = HostedDisk::open_spec("null,zones=4,zone-size=1M").expect("opens");
        let open = || disk.open_client(4, 4).expect("opens");
        let (mut polls, mut waits) = (open(), open());
        let mut done = Bios::new();
        let patience = super::POLLS_BEFORE_HELP;
        (0..patience).for_each(|_| waits.poll(&mut done));
        assert!(polls.own.is_claimed(), "it has not polled yet");
        for _ in 0..10 {
            polls.poll(&mut done);
            (0..patience).for_each(|_| waits.poll(&mut done));
            assert!(!polls.own.is_claimed());
        }
        (0..patience).for_each(|_| waits.poll(&mut done));
        assert!(polls.own.is_claimed(), "it has not polled since");
    }
}
