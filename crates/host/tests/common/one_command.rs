//! Sends one command to a durable disk.

use std::task::Waker;
use zoneplug_core::{Command, Commands, Device, Nanos};
use zoneplug_host::file::FileDisk;

/// Sends `c` on a queue of its own, and waits until it is back.
pub(crate) fn run(disk: &FileDisk, c: Box<Command>) -> Box<Command> {
    let mut queue = disk.open_queue(1, Waker::noop().clone()).unwrap();
    let (mut list, mut done) = (Commands::from([c]), Commands::new());
    queue.submit(Nanos(0), &mut list);
    while done.is_empty() {
        queue.poll(Nanos(0), &mut done);
        std::thread::yield_now();
    }
    done.pop_front().unwrap()
}
