//! Handing the disks of a running server over to the next one (`--takeover`).
//!
//! | step | the next server | the running server |
//! | --- | --- | --- |
//! | 1 | asks what it would get, and compares that with what it is to serve | answers; nothing has changed yet |
//! | 2 | asks for the open files and sockets; opens what is new; checks that it has what it needs | passes them on |
//! | 3 | asks for the disks | makes everything durable, answers the requests that it has begun, begins no others, closes its disks, and says that they are left |
//! | 4 | opens the disks from the files that it has, and serves them | waits |
//! | 5 | says that it serves | ends |
//!
//! A hand-over is refused in step 1 or 2, or by the running server in step 3; that server goes on then. If the next server fails
//! or ends in step 4, the running server opens its disks again and goes on (leave.rs). At no time are the locks of the disks
//! free, nor are hosts refused at the sockets.

use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use zoneplug_core::poison::lock;

/// In the running server: the connection of the one that has asked for its disks.
#[derive(Clone)]
pub(crate) struct HandOver(Arc<Asked>);

struct Asked {
    by: Mutex<Option<UnixStream>>,
    tell: Box<dyn Fn() + Send + Sync>,
}

impl HandOver {
    /// `tell` wakes the thread that calls [`HandOver::take`].
    pub(crate) fn new(tell: impl Fn() + Send + Sync + 'static) -> HandOver {
        HandOver(Arc::new(Asked { by: Mutex::default(), tell: Box::new(tell) }))
    }

    /// `by` waits for an answer. A second server that asks meanwhile sees the end of its connection.
    pub(crate) fn ask(&self, by: UnixStream) {
        lock(&self.0.by).get_or_insert(by);
        (self.0.tell)();
    }

    /// The connection of the server that has asked, if one has.
    pub(crate) fn take(&self) -> Option<UnixStream> {
        lock(&self.0.by).take()
    }
}
