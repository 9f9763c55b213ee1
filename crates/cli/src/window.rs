//! Many operations at a time, for commands that otherwise do one thing after the other.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use zoneplug_host::IoError;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a future.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    loop {
        if let Poll::Ready(x) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return x;
        }
        std::thread::park();
    }
}

/// An operation that was sent.
type Sent<T> = Pin<Box<dyn Future<Output = Result<T, IoError>>>>;

/// Operations in flight, answered in the order in which they were sent.
pub(crate) struct Window<T> {
    sent: VecDeque<Sent<T>>,
    depth: usize,
}

impl<T> Window<T> {
    /// Up to `depth` operations at a time.
    pub(crate) fn new(depth: usize) -> Window<T> {
        Window { sent: VecDeque::with_capacity(depth), depth }
    }

    /// Adds one that was sent.
    pub(crate) fn push(&mut self, op: impl Future<Output = Result<T, IoError>> + 'static) {
        self.sent.push_back(Box::pin(op));
    }

    /// Waits for the oldest if there are as many as there may be.
    pub(crate) fn make_room(&mut self) -> Result<Option<T>, IoError> {
        if self.sent.len() < self.depth { Ok(None) } else { self.next() }
    }

    /// Waits for the oldest operation. If it failed, waits for all, so that none stays in flight.
    pub(crate) fn next(&mut self) -> Result<Option<T>, IoError> {
        let answer = self.sent.pop_front().map(block_on).transpose();
        if answer.is_err() {
            for op in self.sent.drain(..) {
                let _ = block_on(op);
            }
        }
        answer
    }

    /// Waits for all, and forgets what they say unless it is an error.
    pub(crate) fn finish(&mut self) -> Result<(), IoError> {
        while self.next()?.is_some() {}
        Ok(())
    }
}
