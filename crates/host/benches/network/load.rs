//! The commands of a host or initiator, and how long each took. A benchmark brings the protocol along, as its module `queue`.

use crate::case::{Case, Commands, Shape};
use crate::queue::Host;
use std::os::fd::AsRawFd;
use std::time::Instant;

/// The queues of a host and what they do.
pub(crate) struct Load {
    pub(crate) host: Host,
    case: Case,
    /// Of the queues that have some. Further queues only receive.
    commands: Vec<Commands>,
    scratch: Vec<u8>,
    left: u64,
    done: u64,
    /// Nanoseconds of commands, if they are wanted.
    pub(crate) latencies: Option<Vec<u64>>,
}

impl Load {
    pub(crate) fn new(host: Host, case: Case, shape: Shape, latencies: bool) -> Load {
        let commands = (0..case.queues).map(|q| Commands::new(case, shape, q)).collect();
        Load::of(host, case, commands, latencies)
    }

    /// With these commands of the first queues.
    pub(crate) fn of(host: Host, case: Case, commands: Vec<Commands>, latencies: bool) -> Load {
        let latencies = latencies.then(Vec::new);
        Load { host, case, commands, scratch: vec![0; 512 << 10], left: 0, done: 0, latencies }
    }

    /// Nanoseconds of the command that is slower than so many per mille, of those since this was called last.
    pub(crate) fn percentiles<const N: usize>(&mut self, permille: [usize; N]) -> [f64; N] {
        let mut all = std::mem::take(self.latencies.as_mut().expect("they are wanted"));
        all.sort_unstable();
        permille.map(|p| all.get(all.len() * p / 1000).map_or(0.0, |n| *n as f64))
    }

    /// Sends what there is to send on queue `q`.
    pub(crate) fn send(&mut self, q: usize) {
        let queue = &mut self.host.queues[q];
        while self.left > 0 && queue.in_flight() < self.case.depth {
            let begun = self.latencies.is_some().then(Instant::now);
            queue.push(self.commands[q].access(), begun);
            self.left -= 1;
        }
        queue.pipe.send().expect("the server takes it");
    }

    pub(crate) fn receive(&mut self, q: usize) {
        let (done, latencies) = (&mut self.done, &mut self.latencies);
        let queue = &mut self.host.queues[q];
        let counted = queue.receive(&mut self.scratch, &mut |begun| {
            *done += 1;
            if let (Some(all), Some(begun)) = (latencies.as_mut(), begun) {
                all.push(begun.elapsed().as_nanos() as u64);
            }
        });
        counted.expect("the server answers");
    }

    /// `n` commands in turns with a server that `serve` runs.
    pub(crate) fn step(&mut self, n: u64, mut serve: impl FnMut()) {
        (self.left, self.done) = (n, 0);
        while self.done < n {
            (0..self.commands.len()).for_each(|q| self.send(q));
            serve();
            (0..self.commands.len()).for_each(|q| self.receive(q));
        }
    }

    /// `n` commands beside a server with threads.
    pub(crate) fn run(&mut self, n: u64) {
        (self.left, self.done) = (n, 0);
        let mut watched: Vec<_> = self
            .host
            .queues
            .iter()
            .map(|q| libc::pollfd {
                fd: q.pipe.stream.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            })
            .collect();
        (0..self.commands.len()).for_each(|q| self.send(q));
        while self.done < n {
            for (p, q) in watched.iter_mut().zip(&self.host.queues) {
                let room = if q.pipe.has_output() { libc::POLLOUT } else { 0 };
                (p.events, p.revents) = (libc::POLLIN | room, 0);
            }
            // SAFETY: `watched` lives across the call, and has so many entries.
            let ready = unsafe { libc::poll(watched.as_mut_ptr(), watched.len() as _, 10_000) };
            assert!(ready > 0, "the server does nothing for 10 s");
            for (q, watched) in watched.iter().enumerate() {
                if watched.revents & libc::POLLIN != 0 {
                    self.receive(q);
                }
                if watched.revents != 0 && q < self.commands.len() {
                    self.send(q);
                }
            }
        }
    }
}
