//! Threads for work that would block. A pool owns the list of jobs; each queue owns the mailbox that receives its answers. The
//! threads do not know what the work is for.

use super::epoll_waker::Sleeper;
use crate::callback::contain_panic;
use crate::threads::spawn;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::Waker;
use std::thread::JoinHandle;
use zoneplug_core::Error;
use zoneplug_core::poison::lock;

/// Collects the answers to the jobs of a queue.
#[derive(Debug)]
pub(crate) struct Mailbox<A> {
    answers: Mutex<VecDeque<(u32, A)>>,
    /// Answers have come since the last [`Mailbox::take`], or the mailbox has become broken. Read without the lock.
    full: AtomicBool,
    /// The next answer calls the waker.
    armed: AtomicBool,
    /// A job has panicked, so answers may never come.
    broken: AtomicBool,
    waker: Waker,
}

impl<A> Mailbox<A> {
    pub(crate) fn new(waker: Waker) -> Arc<Mailbox<A>> {
        Arc::new(Mailbox {
            answers: Mutex::new(VecDeque::new()),
            full: AtomicBool::new(false),
            armed: AtomicBool::new(false),
            broken: AtomicBool::new(false),
            waker,
        })
    }

    /// Calls the waker. A client's waker may panic, which must not end the calling thread.
    fn wake(&self) {
        contain_panic(|| self.waker.wake_by_ref());
    }

    pub(crate) fn push(&self, slot: u32, answer: A) {
        lock(&self.answers).push_back((slot, answer));
        self.full.store(true, Ordering::SeqCst);
        self.ring();
    }

    /// Tells the queue that not_empty of its answers may never come.
    #[cold]
    fn spoil(&self) {
        self.broken.store(true, Ordering::SeqCst);
        self.full.store(true, Ordering::SeqCst);
        self.ring();
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::SeqCst)
    }

    pub(crate) fn is_full(&self) -> bool {
        self.full.load(Ordering::SeqCst)
    }

    /// Takes the answers. False: nothing has happened since the last call.
    pub(crate) fn take(&self, into: &mut VecDeque<(u32, A)>) -> bool {
        let full = self.is_full();
        if full {
            let mut answers = lock(&self.answers);
            self.full.store(false, Ordering::SeqCst);
            into.append(&mut answers);
        }
        full
    }

    /// Whether the next answer calls the waker.
    pub(crate) fn is_armed(&self) -> bool {
        self.armed.load(Ordering::SeqCst)
    }

    /// Calls the waker at the next answer, or at once if one is there or the caller is `ready`: the caller has something to do.
    pub(crate) fn arm(&self, ready: bool) {
        self.armed.store(true, Ordering::SeqCst);
        if (ready || self.is_full()) && self.armed.swap(false, Ordering::SeqCst) {
            self.wake();
        }
    }

    /// Calls the waker if the mailbox is armed.
    pub(crate) fn ring(&self) {
        if self.armed.swap(false, Ordering::SeqCst) {
            self.wake();
        }
    }
}

impl<A: Send> Sleeper for Mailbox<A> {
    fn ring(&self) {
        Mailbox::ring(self);
    }
}

/// The work that the threads of a disk do.
pub(crate) trait Worker: Send + Sync + 'static {
    /// One piece of work.
    type Work: Send + std::fmt::Debug;
    /// The result of the work.
    type Answer: Send + std::fmt::Debug;

    /// Takes the next job, and other jobs that can be done together with it.
    fn take(list: &mut VecDeque<Job<Self>>) -> Vec<Job<Self>> {
        list.pop_front().into_iter().collect()
    }

    /// Does the jobs and answers each. May block.
    fn run(&self, jobs: Vec<Job<Self>>);
}

/// Work, and the mailbox and slot that its answer goes to.
#[derive(Debug)]
pub(crate) struct Job<W: Worker + ?Sized> {
    pub(crate) work: W::Work,
    pub(crate) mailbox: Arc<Mailbox<W::Answer>>,
    pub(crate) slot: u32,
}

#[derive(Debug)]
struct Jobs<W: Worker> {
    list: VecDeque<Job<W>>,
    closing: bool,
}

/// The jobs that no thread has taken, and the threads that wait for one.
#[derive(Debug)]
struct JobQueue<W: Worker> {
    jobs: Mutex<Jobs<W>>,
    not_empty: Condvar,
}

/// The threads of a disk. Opening the first queue starts one thread or fails, so each job has a thread.
pub(crate) struct Pool<W: Worker> {
    bench: Arc<JobQueue<W>>,
    worker: Arc<W>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// The first job has come, and the other threads were asked for, once.
    grown: AtomicBool,
    nr: usize,
    name: &'static str,
}

impl<W: Worker> std::fmt::Debug for Pool<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool")
            .field("name", &self.name)
            .field("nr", &self.nr)
            .finish_non_exhaustive()
    }
}

impl<W: Worker> Pool<W> {
    /// At most `nr` threads of that name.
    pub(crate) fn new(worker: Arc<W>, name: &'static str, nr: usize) -> Pool<W> {
        let jobs = Mutex::new(Jobs { list: VecDeque::new(), closing: false });
        let bench = Arc::new(JobQueue { jobs, not_empty: Condvar::new() });
        Pool { bench, worker, threads: Mutex::default(), grown: AtomicBool::new(false), nr, name }
    }

    /// Gives a job to the threads. [`Pool::start`] must have succeeded before.
    pub(crate) fn push(&self, job: Job<W>) {
        lock(&self.bench.jobs).list.push_back(job);
        self.bench.not_empty.notify_one();
        if !self.grown.swap(true, Ordering::Relaxed) {
            // The first job starts the other threads. If the system refuses one, the pool works without it.
            let _ = self.grow(self.nr);
        }
    }

    /// Starts the first thread, if it does not exist yet.
    pub(crate) fn start(&self) -> Result<(), Error> {
        self.grow(self.nr.min(1))
    }

    fn grow(&self, nr: usize) -> Result<(), Error> {
        let mut threads = lock(&self.threads);
        while threads.len() < nr {
            let (bench, worker) = (self.bench.clone(), self.worker.clone());
            threads.push(spawn(self.name, move || work(&bench, &*worker))?);
        }
        Ok(())
    }
}

impl<W: Worker> Drop for Pool<W> {
    fn drop(&mut self) {
        lock(&self.bench.jobs).closing = true;
        self.bench.not_empty.notify_all();
        for t in lock(&self.threads).drain(..) {
            let _ = t.join();
        }
    }
}

fn work<W: Worker>(bench: &JobQueue<W>, worker: &W) {
    loop {
        let batch = {
            let mut jobs = lock(&bench.jobs);
            loop {
                let batch = W::take(&mut jobs.list);
                if !batch.is_empty() {
                    break batch;
                }
                if jobs.closing {
                    return;
                }
                jobs = zoneplug_core::poison::unpoisoned(bench.not_empty.wait(jobs));
            }
        };
        let mailboxes: Vec<_> = batch.iter().map(|job| job.mailbox.clone()).collect();
        if contain_panic(|| worker.run(batch)).is_none() {
            mailboxes.iter().for_each(|m| m.spoil());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Wake;
    use std::time::{Duration, Instant};

    struct Panics;

    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("a waker that panics");
        }
    }

    #[derive(Debug)]
    struct Echo;

    impl Worker for Echo {
        type Work = u32;
        type Answer = u32;

        fn run(&self, jobs: Vec<Job<Echo>>) {
            for job in jobs {
                job.mailbox.push(job.slot, job.work);
            }
        }
    }

    /// The pool's only thread calls a waker that panics, and still does the next job.
    #[test]
    fn a_waker_that_panics_ends_no_thread() {
        let pool = Pool::new(Arc::new(Echo), "zoneplug-echo", 1);
        pool.start().unwrap();
        let mailbox = Mailbox::new(Waker::from(Arc::new(Panics)));
        for work in 0..3 {
            mailbox.arm(false);
            pool.push(Job { work, mailbox: mailbox.clone(), slot: 7 });
            let (mut answers, start) = (VecDeque::new(), Instant::now());
            while answers.is_empty() {
                assert!(start.elapsed() < Duration::from_secs(20), "job {work} is never done");
                mailbox.take(&mut answers);
            }
            assert_eq!(answers, [(7, work)]);
        }
    }
}
