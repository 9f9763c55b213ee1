//! Where BIOs go in and come out. The benchmarks `hosted` and `hosted_cost` share this file.

use zoneplug_core::disk::DiskQueue;
use zoneplug_core::{Bios, Nanos};
use zoneplug_host::Client;

/// A queue that the program polls itself, or the client of a hosted disk.
pub(crate) trait Port: Send {
    fn submit(&mut self, bios: &mut Bios);
    fn poll(&mut self, done: &mut Bios);
}

impl Port for DiskQueue {
    fn submit(&mut self, bios: &mut Bios) {
        DiskQueue::submit(self, Nanos(0), bios);
    }
    fn poll(&mut self, done: &mut Bios) {
        DiskQueue::poll(self, Nanos(0), done);
    }
}

impl Port for Client {
    fn submit(&mut self, bios: &mut Bios) {
        Client::submit(self, bios);
    }
    fn poll(&mut self, done: &mut Bios) {
        Client::poll(self, done);
    }
}
