//! The state that the clients of a hosted disk, its handles and its reactor share: the disk, the queues, and the
//! buffers that are withheld from reuse because the device may still write to them.

use crate::clock::Clock;
use crate::runtime::deferred_wake::DeferredWakes;
use crate::runtime::io_error::IoError;
use crate::runtime::reactor_signal::ReactorSignal;
use crate::runtime::shared_queue::{QueueOwner, QueueWork, SharedQueue};
use crate::runtime::withheld::WithheldBuffers;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use zoneplug_core::disk::{Disk, DiskQueue};
use zoneplug_core::poison::lock;
use zoneplug_core::{Nanos, Op, Sector, Status};

/// The longest time that the drop of a disk's last handle waits for the reactor to release the disk.
const CLOSE_PATIENCE: Duration = Duration::from_secs(2);

/// Up to this length no check is made before memory is allocated: allocating is cheaper than the check.
const SHORT: u32 = 64 << 10;

/// The state that the clients of a disk share.
#[derive(Debug)]
pub(crate) struct HostedShared {
    pub(crate) disk: Disk,
    pub(crate) clock: Clock,
    /// Whether commands have deadlines.
    pub(crate) deadlines: bool,
    pub(crate) queues: Mutex<Vec<Arc<SharedQueue>>>,
    /// Counts changes of `queues`.
    pub(crate) version: AtomicU32,
    pub(crate) reactor: Arc<ReactorSignal>,
    pub(crate) deferred_wakes: Arc<DeferredWakes>,
    pub(crate) withheld: WithheldBuffers,
    handles: AtomicUsize,
}

impl HostedShared {
    /// The time for the disk. Reads the clock only if the disk is timed.
    #[inline]
    pub(crate) fn now(&self) -> Nanos {
        if self.disk.is_timed() { self.clock.now() } else { Nanos(0) }
    }

    /// Checks the length of an operation before memory is allocated, and returns the length as a `u32`. The queue checks
    /// the length of short operations, and everything but the length of long ones.
    pub(crate) fn check_length(&self, op: Op, sector: Sector, bytes: u64) -> Result<u32, IoError> {
        let checked = match u32::try_from(bytes) {
            Ok(len) if len <= SHORT => Ok(len),
            Ok(len) => self.disk.check_length(op, sector, bytes.div_ceil(512)).map(|()| len),
            // The length exceeds any buffer.
            Err(_) => Err(Status::OutOfRange),
        };
        checked.map_err(|status| IoError::new(op, sector, status))
    }

    /// Makes the reactor look at the queues.
    pub(crate) fn kick(&self) {
        self.reactor.kick();
    }

    /// Removes the queues of clients that have gone, unless something is in flight on them.
    pub(crate) fn remove_orphans(&self) {
        let mut queues = lock(&self.queues);
        let before = queues.len();
        let mut gone = Vec::new();
        queues.retain(|queue| {
            let done = queue.is_orphan() && self.try_finish(queue);
            if done {
                gone.push(queue.clone());
            }
            !done
        });
        if queues.len() != before {
            self.version.fetch_add(1, Ordering::Release);
        }
        drop(queues);
        drop(gone);
    }

    /// Closes the queue of a client that has gone, if nothing is in flight on the queue: neither BIOs of its own nor
    /// commands of others. Returns whether it did. Only a closed queue may be removed: the reactor does not run a removed
    /// queue, even if a blocked client still refers to it.
    fn try_finish(&self, queue: &SharedQueue) -> bool {
        let Some(mut locked) = queue.try_lock() else { return false };
        let work = QueueWork::of(&locked);
        if work == QueueWork::Busy {
            return false;
        }
        self.withheld.keep(&self.disk, queue.take_left());
        if work == QueueWork::Late {
            // The device may never give its commands back.
            locked.shrink();
            queue.lingers.store(true, Ordering::Release);
            return false;
        }
        // Nobody runs the queue from now on, so it is closed: a freeze must not wait for it.
        locked.close();
        true
    }

    /// Gives up late commands: no handle of the disk is left, and the time to wait for them is over.
    #[cold]
    pub(crate) fn abandon(&self) {
        let queues = std::mem::take(&mut *lock(&self.queues));
        for queue in queues {
            queue.lock().abandon();
        }
    }

    /// Keeps a queue without a client until its commands are back.
    pub(crate) fn adopt(&self, queue: DiskQueue) {
        let mut queue = QueueOwner::new(queue);
        // Releases the lock as a client that goes does: other threads then need no membarrier(2), which may be denied.
        drop(queue.lock_to_leave());
        queue.orphan.store(true, Ordering::Release);
        lock(&self.queues).push(queue.shared().clone());
        self.version.fetch_add(1, Ordering::Release);
        self.kick();
    }
}

impl Drop for HostedShared {
    fn drop(&mut self) {
        self.withheld.leak_rest(&self.disk);
    }
}

/// A reference that keeps the disk open. A hosted disk, a client and a freeze hold one; the reactor does not.
#[derive(Debug)]
pub(crate) struct Handle(Arc<HostedShared>);

impl Handle {
    /// The first handle of a disk that has just been opened.
    pub(crate) fn first(disk: Disk, clock: Clock, deadlines: bool) -> Handle {
        Handle(Arc::new(HostedShared {
            disk,
            clock,
            deadlines,
            queues: Mutex::default(),
            version: AtomicU32::new(0),
            reactor: Arc::default(),
            deferred_wakes: Arc::default(),
            withheld: WithheldBuffers::default(),
            handles: AtomicUsize::new(1),
        }))
    }
}

impl Clone for Handle {
    fn clone(&self) -> Handle {
        self.0.handles.fetch_add(1, Ordering::Relaxed);
        Handle(self.0.clone())
    }
}

impl std::ops::Deref for Handle {
    type Target = Arc<HostedShared>;

    #[inline]
    fn deref(&self) -> &Arc<HostedShared> {
        &self.0
    }
}

impl Drop for Handle {
    /// The last handle waits until the reactor has released the disk. If something is in flight, it does not wait: the
    /// reactor then closes the disk when that is done.
    fn drop(&mut self) {
        if self.0.handles.fetch_sub(1, Ordering::AcqRel) > 1 || !self.0.reactor.close() {
            return;
        }
        let idle = lock(&self.0.queues).iter().all(|q| QueueWork::of(&q.lock()) == QueueWork::None);
        if idle {
            self.0.reactor.wait_left(CLOSE_PATIENCE);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::HostedDisk;
    use crate::runtime::reactor;
    use std::sync::mpsc;
    use std::time::Duration;

    /// Denies membarrier(2) to the calling thread and to those that it starts, if the system has seccomp.
    fn deny_membarrier() {
        let (load, jump, answer) =
            (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, libc::BPF_JMP, libc::BPF_RET);
        let instruction = |code: u32, jf, k| libc::sock_filter { code: code as u16, jt: 0, jf, k };
        let mut filter = [
            // The number of the call.
            instruction(load, 0, 0),
            instruction(jump | libc::BPF_JEQ | libc::BPF_K, 1, libc::SYS_membarrier as u32),
            instruction(answer | libc::BPF_K, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
            instruction(answer | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
        ];
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
        // SAFETY: the program and its instructions live during the calls.
        unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program);
        }
    }

    /// A queue that has lost a report has no client. The reactor, and the drop of the last handle, can lock the queue
    /// even where membarrier(2) is denied.
    #[test]
    fn a_queue_without_a_client_can_be_run_where_membarrier_is_denied() {
        let disk = HostedDisk::open_spec("null,zones=4,zone-size=1M").expect("opens");
        // The process registers for membarrier while it is still allowed.
        drop(disk.open_client(1, 1).expect("opens"));
        let disk = HostedDisk::open_spec("null,zones=4,zone-size=1M").expect("opens");
        let (tell, closed) = mpsc::channel();
        std::thread::spawn(move || {
            deny_membarrier();
            let shared = disk.shared.clone();
            reactor::start(&shared).expect("starts");
            shared.adopt(shared.disk.open_polled_queue(1, 1).expect("opens"));
            drop((shared, disk));
            tell.send(())
        });
        assert_eq!(closed.recv_timeout(Duration::from_secs(20)), Ok(()), "the disk never closes");
    }
}
