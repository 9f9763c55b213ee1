//! Keeps several operations in flight, for commands that otherwise work step by step.

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

/// Runs a future to its end in this thread.
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

/// An operation in flight.
type OpInFlight<T> = Pin<Box<dyn Future<Output = Result<T, IoError>>>>;

/// Operations in flight. Their results come in the order of submission.
pub(crate) struct Window<T> {
    sent: VecDeque<OpInFlight<T>>,
    depth: usize,
}

impl<T> Window<T> {
    /// A window of up to `depth` operations.
    pub(crate) fn new(depth: usize) -> Window<T> {
        Window { sent: VecDeque::with_capacity(depth), depth }
    }

    /// Adds an operation in flight.
    pub(crate) fn push(&mut self, op: impl Future<Output = Result<T, IoError>> + 'static) {
        self.sent.push_back(Box::pin(op));
    }

    /// If the window is full, waits for the oldest operation.
    pub(crate) fn make_room(&mut self) -> Result<Option<T>, IoError> {
        if self.sent.len() < self.depth { Ok(None) } else { self.next() }
    }

    /// Waits for the oldest operation. If it failed, waits for all others too, so that none stays in flight.
    pub(crate) fn next(&mut self) -> Result<Option<T>, IoError> {
        let answer = self.sent.pop_front().map(block_on).transpose();
        if answer.is_err() {
            for op in self.sent.drain(..) {
                let _ = block_on(op);
            }
        }
        answer
    }

    /// Waits for all operations, and discards their results but the first error.
    pub(crate) fn finish(&mut self) -> Result<(), IoError> {
        while self.next()?.is_some() {}
        Ok(())
    }
}
