//! Ctrl-C, and the other signals that ask for the end: SIGTERM, SIGHUP.
//!
//! A command that measures prints what it knows so far when the first signal comes, and says that it is partial. A
//! second signal ends the process at once. A command that copies, and one that waits for an answer, ends at the first
//! one, unless it [is about to be done](completes). Either way a file that is not complete is removed, and the exit code is 128 and the number of the signal: 130
//! after Ctrl-C.

use crate::failure::Failure;
use crate::{exit, output};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::mpsc::channel;
use zoneplug_host::signals::{Event, Held, Signals};

/// Whether a signal has come.
static ASKED: AtomicBool = AtomicBool::new(false);
/// Which one.
static SIGNAL: AtomicI32 = AtomicI32::new(0);

/// Whether the process waits for a person, and has nothing to show.
static WAITS: AtomicBool = AtomicBool::new(false);
/// Whether the command is about to put its result in place.
static COMPLETES: AtomicBool = AtomicBool::new(false);
/// Whether a thread ends the process already.
static ENDS: AtomicBool = AtomicBool::new(false);

/// What the first signal does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum First {
    /// [`is_asked`] is true from then on, and the command ends as soon as it can.
    Asks,
    /// The process ends.
    Ends,
}

/// Starts to listen. When this returns, all threads block the signals, so a signal no longer kills the process. Must be
/// called before any other thread is started, because threads inherit which signals are blocked. If no thread can be
/// started (`ulimit -u`), signals keep their usual effect. `held` are those that have come since the process began.
pub(crate) fn listen(first: First, held: Option<Held>) {
    let (ready, is_ready) = channel();
    let (go, wait) = channel();
    let listener = move || {
        // A thread that does not block a signal yet would be ended by it, and the process with it.
        let Ok(signals) = Signals::block() else { return };
        if ready.send(()).is_err() || wait.recv().is_err() {
            return;
        }
        while let Ok(event) = signals.wait() {
            let Event::Signal(signal) = event else { continue };
            SIGNAL.store(signal, Ordering::Relaxed);
            if ASKED.swap(true, Ordering::SeqCst) {
                end(signal);
            }
            let ends = first == First::Ends && !COMPLETES.load(Ordering::SeqCst);
            if ends || WAITS.load(Ordering::SeqCst) {
                end_with_a_word();
            }
        }
    };
    let thread = std::thread::Builder::new().name("zoneplug-signals".to_owned());
    if thread.spawn(listener).is_ok() && is_ready.recv().is_ok() && Signals::block().is_ok() {
        // The listener waits for this: it takes signals only if this thread blocks them too.
        let _ = go.send(());
    } else {
        held.into_iter().for_each(Held::release);
    }
}

/// Asks a person in `f`: until it returns, the first signal ends the process, and so does one that came before.
pub(crate) fn while_waiting<T>(f: impl FnOnce() -> T) -> T {
    // Either this thread sees the signal, or the listener sees `WAITS`.
    WAITS.store(true, Ordering::SeqCst);
    if ASKED.load(Ordering::SeqCst) {
        end_with_a_word();
    }
    let answer = f();
    WAITS.store(false, Ordering::SeqCst);
    answer
}

/// The command is about to put its result in place, and is done soon after. A signal that came before ends the process,
/// with nothing in place. One that comes later is too late, and the command ends as without it.
pub(crate) fn completes() {
    // Either this thread sees the signal, or the listener sees `COMPLETES`.
    COMPLETES.store(true, Ordering::SeqCst);
    if ASKED.load(Ordering::SeqCst) {
        end_with_a_word();
    }
}

/// Whether a signal asked for the end.
#[inline]
pub(crate) fn is_asked() -> bool {
    ASKED.load(Ordering::Acquire)
}

/// The failure of a command that a signal ended.
pub(crate) fn failure(what: &str) -> Failure {
    let signal = SIGNAL.load(Ordering::Relaxed);
    let name = match signal {
        1 => "SIGHUP",
        15 => "SIGTERM",
        _ => "Ctrl-C",
    };
    Failure::interrupted(signal, format!("{name} before the end: {what}"))
        .hint("the same command again, for all of it")
}

/// The failure of a command that a signal ended if its figures are `partial`, and `otherwise` if not.
pub(crate) fn or_partial(partial: bool, otherwise: Option<Failure>) -> Option<Failure> {
    if partial { Some(failure("what was printed is partial")) } else { otherwise }
}

/// What a text says under figures that are `partial`.
pub(crate) fn note(partial: bool) -> &'static str {
    match partial {
        true => "PARTIAL: a signal came before the end. These are the figures until then.\n",
        false => "",
    }
}

fn end_with_a_word() -> ! {
    if ENDS.swap(true, Ordering::SeqCst) {
        // Another thread has seen the same signal, and says so.
        loop {
            std::thread::park();
        }
    }
    let _ = exit::report(&failure("nothing more was done"), false);
    end(SIGNAL.load(Ordering::Relaxed))
}

fn end(signal: i32) -> ! {
    output::remove_incomplete();
    std::process::exit(128 + signal)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The threads of this process that listen and block SIGINT.
    fn listeners() -> usize {
        let blocks = |task: &std::path::Path| {
            let text = std::fs::read_to_string(task.join("status")).unwrap_or_default();
            let field = |name| text.lines().find_map(|l| l.strip_prefix(name)).map(str::trim);
            let blocked = field("SigBlk:").and_then(|m| u64::from_str_radix(m, 16).ok());
            // The kernel keeps 15 characters of a thread's name. SIGINT is signal 2.
            field("Name:") == Some("zoneplug-signal") && blocked.is_some_and(|m| m & 1 << 1 != 0)
        };
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        tasks.filter(|t| blocks(&t.as_ref().unwrap().path())).count()
    }

    /// A listener that started late used to be ended by a signal that came meanwhile, and the process with it.
    #[test]
    fn the_listener_blocks_signals_before_the_command_goes_on() {
        for n in 1..=24 {
            listen(First::Asks, None);
            assert_eq!(listeners(), n);
        }
    }
}
