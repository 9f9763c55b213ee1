//! Messages from other threads to a worker: mail, and wake-ups for its clients. A worker that is awake gets them
//! without a system call.

use crate::eventfd::eventfd;
use std::fs::File;
use std::io::{self, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Wake;
use zoneplug_core::poison::lock;
use zoneplug_nvme::spec::Completion;
use zoneplug_nvme::target::Namespaces;
use zoneplug_nvme::target::auth::Computed;

/// A message for a worker. Connections are named by their keys.
#[derive(Debug)]
pub(super) enum Mail {
    /// A new connection.
    Connection(TcpStream),
    /// A disk has done work of the connection.
    Ready(u64),
    /// Another queue queries that of the connection.
    Asked(u64),
    /// The answer to a command that the connection has kept waiting.
    Complete(u64, Completion),
    /// The Diffie-Hellman value that the connection waits for.
    Computed(u64, Box<Computed>),
    /// The namespaces that the I/O queue shows from now on.
    Namespaces(u64, Arc<Namespaces>),
    /// Close the connection. The target has ended its queue.
    Close(u64),
    /// A controller has a keep alive time: check it regularly.
    KeepAlive,
    /// Stop the worker.
    Stop,
}

/// A worker's mailbox. Wakes the worker.
#[derive(Debug)]
pub(super) struct Mailbox {
    mail: Mutex<Vec<Mail>>,
    event: File,
    sleeps: AtomicBool,
}

impl Mailbox {
    pub(super) fn new() -> io::Result<Arc<Mailbox>> {
        let (mail, sleeps) = (Mutex::default(), AtomicBool::new(false));
        Ok(Arc::new(Mailbox { mail, event: eventfd()?, sleeps }))
    }

    /// The descriptor on which the worker sleeps, watched for edges.
    pub(super) fn fd(&self) -> RawFd {
        self.event.as_raw_fd()
    }

    pub(super) fn put(&self, mail: Mail) {
        lock(&self.mail).push(mail);
        self.ring();
    }

    /// Moves the mail into `all`, which is empty, in order of arrival.
    pub(super) fn take(&self, all: &mut Vec<Mail>) {
        std::mem::swap(&mut *lock(&self.mail), all);
    }

    /// Announces that the worker is about to sleep: new mail wakes it from now on. The worker then checks once more
    /// for mail and completions, because earlier ones do not wake it. False: there is mail.
    pub(super) fn will_sleep(&self) -> bool {
        self.sleeps.store(true, Ordering::SeqCst);
        lock(&self.mail).is_empty()
    }

    /// The worker is awake.
    pub(super) fn is_awake(&self) {
        self.sleeps.store(false, Ordering::SeqCst);
    }

    /// Wakes the worker.
    pub(super) fn ring(&self) {
        if self.sleeps.swap(false, Ordering::SeqCst) {
            // The write fails only if the counter is full; the worker has then not seen its edge yet.
            let _ = (&self.event).write(&1u64.to_ne_bytes());
        }
    }
}

impl Wake for Mailbox {
    fn wake(self: Arc<Self>) {
        self.ring();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ring();
    }
}

/// Wakes a worker for one of its connections.
#[derive(Debug)]
pub(super) struct ConnectionWaker {
    mailbox: Arc<Mailbox>,
    key: u64,
    /// The worker was woken for the connection and has not run it yet.
    rung: AtomicBool,
}

impl ConnectionWaker {
    pub(super) fn new(mailbox: Arc<Mailbox>, key: u64) -> Arc<ConnectionWaker> {
        Arc::new(ConnectionWaker { mailbox, key, rung: AtomicBool::new(false) })
    }

    /// The worker runs the connection now.
    pub(super) fn clear_rung(&self) {
        self.rung.store(false, Ordering::SeqCst);
    }
}

impl Wake for ConnectionWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.rung.swap(true, Ordering::SeqCst) {
            self.mailbox.put(Mail::Ready(self.key));
        }
    }
}
