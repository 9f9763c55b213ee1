//! Messages from other threads to a worker: mail, and wake-ups for its clients. A worker that is awake gets them
//! without a system call.

use crate::eventfd::eventfd;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Wake;
use zoneplug_core::poison::lock;

/// A worker's mailbox for messages of a protocol. Wakes the worker.
#[derive(Debug)]
pub(crate) struct Mailbox<M> {
    mail: Mutex<Vec<M>>,
    event: File,
    sleeps: AtomicBool,
}

impl<M> Mailbox<M> {
    pub(crate) fn new() -> io::Result<Arc<Mailbox<M>>> {
        let (mail, sleeps) = (Mutex::default(), AtomicBool::new(false));
        Ok(Arc::new(Mailbox { mail, event: eventfd()?, sleeps }))
    }

    /// The descriptor on which the worker sleeps, watched for edges.
    pub(crate) fn fd(&self) -> RawFd {
        self.event.as_raw_fd()
    }

    pub(crate) fn put(&self, mail: M) {
        lock(&self.mail).push(mail);
        self.ring();
    }

    /// Moves the mail into `all`, which is empty, in order of arrival.
    pub(crate) fn take(&self, all: &mut Vec<M>) {
        std::mem::swap(&mut *lock(&self.mail), all);
    }

    /// Announces that the worker is about to sleep: new mail wakes it from now on. The worker then checks once more
    /// for mail and completions, because earlier ones do not wake it. False: there is mail.
    pub(crate) fn will_sleep(&self) -> bool {
        self.sleeps.store(true, Ordering::SeqCst);
        lock(&self.mail).is_empty()
    }

    /// The worker is awake.
    pub(crate) fn is_awake(&self) {
        self.sleeps.store(false, Ordering::SeqCst);
    }

    /// Wakes the worker.
    pub(crate) fn ring(&self) {
        if self.sleeps.swap(false, Ordering::SeqCst) {
            // The write fails only if the counter is full; the worker has then not seen its edge yet.
            let _ = (&self.event).write(&1u64.to_ne_bytes());
        }
    }
}

impl<M: Send + 'static> Wake for Mailbox<M> {
    fn wake(self: Arc<Self>) {
        self.ring();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ring();
    }
}

/// Wakes a worker for one of its connections.
#[cfg(feature = "nvme-tcp")]
#[derive(Debug)]
pub(crate) struct ConnectionWaker<M> {
    mailbox: Arc<Mailbox<M>>,
    key: u64,
    /// Makes the message that a disk has done work of the connection.
    ready: fn(u64) -> M,
    /// The worker was woken for the connection and has not run it yet.
    rung: AtomicBool,
}

#[cfg(feature = "nvme-tcp")]
impl<M> ConnectionWaker<M> {
    pub(crate) fn new(
        mailbox: Arc<Mailbox<M>>,
        key: u64,
        ready: fn(u64) -> M,
    ) -> Arc<ConnectionWaker<M>> {
        Arc::new(ConnectionWaker { mailbox, key, ready, rung: AtomicBool::new(false) })
    }

    /// The worker runs the connection now.
    pub(crate) fn clear_rung(&self) {
        self.rung.store(false, Ordering::SeqCst);
    }
}

#[cfg(feature = "nvme-tcp")]
impl<M: Send + 'static> Wake for ConnectionWaker<M> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.rung.swap(true, Ordering::SeqCst) {
            self.mailbox.put((self.ready)(self.key));
        }
    }
}
