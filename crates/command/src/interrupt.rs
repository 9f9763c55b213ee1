//! Signals that ask a command to end: Ctrl-C (SIGINT), SIGTERM and SIGHUP.
//!
//! At the first signal, a command that measures prints its figures so far and marks them as partial; a second signal
//! ends the process at once. A command that copies or waits for an answer ends at the first signal, unless it
//! [is about to be done](completes). In each case incomplete files are removed, and the exit code is 128 plus the
//! number of the signal: 130 after Ctrl-C.

use crate::failure::Failure;
use crate::{exit, json};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::mpsc::channel;
use zoneplug_control::said::{self, To};
use zoneplug_host::remove_parts;
use zoneplug_host::signals::{EndRequest, Held, SignalEvent, Signals};

/// Whether a signal has come.
static ASKED: AtomicBool = AtomicBool::new(false);
/// The number of the signal.
static SIGNAL: AtomicI32 = AtomicI32::new(0);

/// Whether the process waits for an answer and has no figures to print.
static WAITS: AtomicBool = AtomicBool::new(false);
/// Whether the command is about to put its result in place.
static COMPLETES: AtomicBool = AtomicBool::new(false);
/// Whether a thread is already ending the process.
static ENDS: AtomicBool = AtomicBool::new(false);

/// The effect of the first signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstSignal {
    /// [`is_asked`] becomes true, and the command ends as soon as it can.
    Asks,
    /// The process ends at once.
    Ends,
}

/// Starts to listen for signals. When this returns, all threads block the signals, so a signal no longer kills the
/// process. Must be called before any other thread is started, because threads inherit blocked signals. If no thread
/// can be started (`ulimit -u`), signals keep their usual effect. `held`: signals that were held back since
/// the process began.
pub fn listen(first: FirstSignal, held: Option<Held>) {
    let (ready, is_ready) = channel();
    let (go, wait) = channel();
    let listener = move || {
        // A signal would end the process in a thread that does not block it yet.
        let Ok(signals) = Signals::block() else { return };
        if ready.send(()).is_err() || wait.recv().is_err() {
            return;
        }
        let mut request: Option<EndRequest> = None;
        while let Ok(event) = signals.wait() {
            let SignalEvent::Signal(signal) = event else { continue };
            match request {
                Some(request) if request.is_repeated() => end(signal),
                Some(_) => continue,
                None => request = Some(EndRequest::begin()),
            }
            SIGNAL.store(signal, Ordering::Relaxed);
            ASKED.store(true, Ordering::SeqCst);
            let ends = first == FirstSignal::Ends && !COMPLETES.load(Ordering::SeqCst);
            if ends || WAITS.load(Ordering::SeqCst) {
                end_with_a_word();
            }
        }
    };
    let thread = std::thread::Builder::new().name("zoneplug-signals".to_owned());
    if thread.spawn(listener).is_ok() && is_ready.recv().is_ok() && Signals::block().is_ok() {
        // The listener takes no signals before this, because this thread must block them first.
        let _ = go.send(());
    } else {
        held.into_iter().for_each(Held::release);
    }
}

/// Runs `f`, which waits for a user. Until it returns, the first signal ends the process, as does one that came
/// before.
pub fn while_waiting<T>(f: impl FnOnce() -> T) -> T {
    // Either this thread sees the signal, or the listener sees `WAITS`.
    WAITS.store(true, Ordering::SeqCst);
    if ASKED.load(Ordering::SeqCst) {
        end_with_a_word();
    }
    let answer = f();
    WAITS.store(false, Ordering::SeqCst);
    answer
}

/// Called before the command puts its result in place. If a signal has come before, the process ends without a
/// result. Later signals have no effect.
pub fn completes() {
    // Either this thread sees the signal, or the listener sees `COMPLETES`.
    COMPLETES.store(true, Ordering::SeqCst);
    if ASKED.load(Ordering::SeqCst) {
        end_with_a_word();
    }
}

/// Whether a signal asked for the end.
#[inline]
pub fn is_asked() -> bool {
    ASKED.load(Ordering::Acquire)
}

/// The failure of a command that a signal ended early. `what`: the state in which it left things.
pub fn failure(what: &str) -> Failure {
    let signal = SIGNAL.load(Ordering::Relaxed);
    let name = match signal {
        1 => "SIGHUP",
        15 => "SIGTERM",
        _ => "Ctrl-C",
    };
    Failure::interrupted(signal, format!("{name} before the end: {what}"))
        .hint("the same command again, for all of it")
}

/// The failure of an early end if figures are `partial`, else `otherwise`.
pub fn or_partial(partial: bool, otherwise: Option<Failure>) -> Option<Failure> {
    if partial { Some(failure("what was printed is partial")) } else { otherwise }
}

/// The line below figures that are `partial`.
pub fn note(partial: bool) -> &'static str {
    match partial {
        true => "PARTIAL: a signal came before the end. These are the figures until then.\n",
        false => "",
    }
}

fn end_with_a_word() -> ! {
    if ENDS.swap(true, Ordering::SeqCst) {
        wait_for_end();
    }
    let failure = failure("nothing more was done");
    // A command that waits has not begun its document yet, and its thread holds the lock of stdout.
    if WAITS.load(Ordering::SeqCst) && json::is_wanted(&std::env::args_os().collect::<Vec<_>>()) {
        said::write(To::Stdout, json::of_failure(&failure).as_bytes());
    }
    let _ = exit::report(&failure, false);
    end(SIGNAL.load(Ordering::Relaxed))
}

/// Another thread reports the signal and ends the process.
fn wait_for_end() -> ! {
    loop {
        std::thread::park();
    }
}

/// Called when the command is over. If a signal is ending the process, that decides the exit code, and what the command
/// has failed with meanwhile is not reported.
pub(crate) fn command_is_over() {
    if ENDS.load(Ordering::SeqCst) {
        wait_for_end();
    }
}

fn end(signal: i32) -> ! {
    ENDS.store(true, Ordering::SeqCst);
    remove_parts();
    std::process::exit(128 + signal)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The threads of this process. The kernel may leave out a thread while another one ends, so two lists have to agree.
    fn threads() -> Vec<std::path::PathBuf> {
        let list = || {
            let tasks = std::fs::read_dir("/proc/self/task").unwrap();
            tasks.map(|t| t.unwrap().path()).collect::<Vec<_>>()
        };
        let mut last = list();
        loop {
            let next = list();
            if next == last {
                return next;
            }
            last = next;
        }
    }

    /// The number of this process's listener threads that block SIGINT.
    fn listeners() -> usize {
        let blocks = |task: &std::path::PathBuf| {
            let text = std::fs::read_to_string(task.join("status")).unwrap_or_default();
            let field = |name| text.lines().find_map(|l| l.strip_prefix(name)).map(str::trim);
            let blocked = field("SigBlk:").and_then(|m| u64::from_str_radix(m, 16).ok());
            // The kernel keeps 15 characters of a thread's name. SIGINT is signal 2.
            field("Name:") == Some("zoneplug-signal") && blocked.is_some_and(|m| m & 1 << 1 != 0)
        };
        threads().iter().filter(|t| blocks(t)).count()
    }

    /// Each listener blocks the signals before `listen` returns; otherwise a signal could end the process.
    #[test]
    fn the_listener_blocks_signals_before_the_command_goes_on() {
        for n in 1..=24 {
            listen(FirstSignal::Asks, None);
            assert_eq!(listeners(), n);
        }
    }
}
