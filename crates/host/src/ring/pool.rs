//! Threads for what would block: syncs, the table, holes, and all data where there is no io_uring. Owns the list of
//! jobs and the mailboxes through which they answer; knows what a job is, not why.

use super::state::{Core, Want, lock};
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::Waker;
use std::thread::JoinHandle;
use zoneplug_core::{IoBuf, Status};

/// Threads without, and with, data to move.
const FEW: usize = 2;
const MANY: usize = 4;

/// What a job found.
#[derive(Debug)]
pub(super) enum Answer {
    Committed(Status),
    Moved(io::Result<()>),
}

/// Where a queue gets the answers of its jobs.
#[derive(Debug)]
pub(super) struct Mailbox {
    answers: Mutex<Vec<(u32, Answer)>>,
    /// Answers are there; saves the lock.
    full: AtomicBool,
    /// The next answer wakes.
    armed: AtomicBool,
    waker: Waker,
}

impl Mailbox {
    pub(super) fn new(waker: Waker) -> Arc<Mailbox> {
        Arc::new(Mailbox {
            answers: Mutex::default(),
            full: AtomicBool::new(false),
            armed: AtomicBool::new(false),
            waker,
        })
    }

    pub(super) fn push(&self, slot: u32, answer: Answer) {
        lock(&self.answers).push((slot, answer));
        self.full.store(true, Ordering::SeqCst);
        if self.armed.swap(false, Ordering::SeqCst) {
            self.waker.wake_by_ref();
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.full.load(Ordering::SeqCst)
    }

    pub(super) fn take(&self, into: &mut Vec<(u32, Answer)>) {
        if self.is_full() {
            let mut answers = lock(&self.answers);
            self.full.store(false, Ordering::SeqCst);
            into.append(&mut answers);
        }
    }

    /// Wakes at the next answer, or now if `ready` or one is there.
    pub(super) fn arm(&self, ready: bool) {
        self.armed.store(true, Ordering::SeqCst);
        if (ready || self.is_full()) && self.armed.swap(false, Ordering::SeqCst) {
            self.waker.wake_by_ref();
        }
    }

    /// Wakes if it is armed.
    pub(super) fn ring(&self) {
        if self.armed.swap(false, Ordering::SeqCst) {
            self.waker.wake_by_ref();
        }
    }
}

/// What is to be done.
#[derive(Debug)]
pub(super) enum Work {
    Commit(Want),
    Zero { at: u64, len: u64 },
    Data { write: bool, at: u64, bufs: Vec<(IoBuf, u32)> },
}

/// Work, and who waits for it.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) work: Work,
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) slot: u32,
}

#[derive(Debug, Default)]
struct Jobs {
    list: VecDeque<Job>,
    closing: bool,
}

#[derive(Debug, Default)]
struct Bench {
    jobs: Mutex<Jobs>,
    some: Condvar,
}

/// The threads of a disk, which exist once there was a job.
#[derive(Debug)]
pub(super) struct Pool {
    bench: Arc<Bench>,
    core: Arc<Core>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    nr: usize,
}

impl Pool {
    /// `data`: whether data is moved by threads.
    pub(super) fn new(core: Arc<Core>, data: bool) -> Pool {
        let nr = if data { MANY } else { FEW };
        Pool { bench: Arc::default(), core, threads: Mutex::default(), nr }
    }

    pub(super) fn push(&self, job: Job) {
        self.start();
        lock(&self.bench.jobs).list.push_back(job);
        self.bench.some.notify_one();
        if lock(&self.threads).is_empty() {
            // No thread could be started: the caller does it.
            if let Some(batch) = next(&mut lock(&self.bench.jobs)) {
                run(&self.core, batch);
            }
        }
    }

    fn start(&self) {
        let mut threads = lock(&self.threads);
        while threads.len() < self.nr {
            let (bench, core) = (self.bench.clone(), self.core.clone());
            let name = "zoneplug-file".to_owned();
            match std::thread::Builder::new().name(name).spawn(move || work(&bench, &core)) {
                Ok(t) => threads.push(t),
                Err(_) => return,
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        lock(&self.bench.jobs).closing = true;
        self.bench.some.notify_all();
        for t in lock(&self.threads).drain(..) {
            let _ = t.join();
        }
    }
}

/// The next job, and with a commit all others that wait: they share the syncs.
fn next(jobs: &mut Jobs) -> Option<Vec<Job>> {
    let first = jobs.list.pop_front()?;
    let mut batch = vec![first];
    if matches!(batch[0].work, Work::Commit(_)) {
        let (commits, others) =
            jobs.list.drain(..).partition(|j| matches!(j.work, Work::Commit(_)));
        jobs.list = others;
        batch.extend::<VecDeque<Job>>(commits);
    }
    Some(batch)
}

fn work(bench: &Bench, core: &Core) {
    loop {
        let batch = {
            let mut jobs = lock(&bench.jobs);
            loop {
                if let Some(batch) = next(&mut jobs) {
                    break batch;
                }
                if jobs.closing {
                    return;
                }
                jobs = bench.some.wait(jobs).unwrap_or_else(std::sync::PoisonError::into_inner);
            }
        };
        run(core, batch);
    }
}

fn run(core: &Core, batch: Vec<Job>) {
    let wants: Vec<Want> = batch
        .iter()
        .filter_map(|j| if let Work::Commit(w) = j.work { Some(w) } else { None })
        .collect();
    let status = if wants.is_empty() { Status::Ok } else { core.commit(&wants) };
    for job in batch {
        let answer = perform(core, job.work, status);
        job.mailbox.push(job.slot, answer);
    }
}

fn perform(core: &Core, work: Work, committed: Status) -> Answer {
    match work {
        Work::Commit(_) => Answer::Committed(committed),
        Work::Zero { at, len } => Answer::Moved(core.zero(at, len)),
        Work::Data { write, at, bufs } => {
            Answer::Moved(core.storage.transfer(write, at, &mut bufs.into_iter()))
        }
    }
}

/// Does it here and now.
pub(super) fn inline(core: &Core, work: Work) -> Answer {
    let status = match work {
        Work::Commit(want) => core.commit(&[want]),
        _ => Status::Ok,
    };
    perform(core, work, status)
}
