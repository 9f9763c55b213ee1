//! The terminal: taken at the start, given back at the end, at a signal, at a panic, and while the job is stopped.

use crate::failure::Failure;
use ratatui::backend::{Backend, CrosstermBackend};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, disable_raw_mode, enable_raw_mode};
use ratatui::layout::Rect;
use ratatui::{DefaultTerminal, Frame, Terminal, TerminalOptions, Viewport};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGTSTP};
use signal_hook::low_level::emulate_default_handler;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Most columns and rows that are drawn on. A terminal may say that it has 65,535 of each, and each cell takes memory.
const MOST_COLUMNS: u16 = 1024;
const MOST_ROWS: u16 = 512;

/// Signals that have come.
pub(crate) struct Signals {
    ends: Vec<(i32, Arc<AtomicBool>)>,
    stops: Arc<AtomicBool>,
    continues: Arc<AtomicBool>,
}

impl Signals {
    /// Notes signals from now on, instead of their usual effect.
    fn note() -> io::Result<Signals> {
        let note = |signal: i32| {
            let flag = Arc::new(AtomicBool::new(false));
            signal_hook::flag::register(signal, flag.clone()).map(|_| flag)
        };
        let mut ends = Vec::new();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            ends.push((signal, note(signal)?));
        }
        Ok(Signals { ends, stops: note(SIGTSTP)?, continues: note(SIGCONT)? })
    }

    /// The signal that asks for the end, if one has come.
    pub(crate) fn end(&self) -> Option<i32> {
        self.ends.iter().find(|(_, flag)| flag.load(Ordering::Relaxed)).map(|(signal, _)| *signal)
    }
}

/// The terminal, as long as this lives.
pub(crate) struct Screen {
    terminal: DefaultTerminal,
    /// The part of the terminal that is drawn on.
    area: Rect,
    pub(crate) signals: Signals,
}

fn failed(e: &io::Error) -> Failure {
    Failure::io(format!("the terminal: {e}")).hint("zoneplug top --once needs none")
}

/// The part of a terminal that is drawn on: all of one that a person can read.
fn area(backend: &impl Backend<Error = io::Error>) -> io::Result<Rect> {
    let size = backend.size()?;
    Ok(Rect::new(0, 0, size.width.min(MOST_COLUMNS), size.height.min(MOST_ROWS)))
}

fn in_area(area: Rect) -> TerminalOptions {
    TerminalOptions { viewport: Viewport::Fixed(area) }
}

impl Screen {
    /// Takes the terminal. A panic gives it back before it says what happened.
    pub(crate) fn take() -> Result<Screen, Failure> {
        let signals = Signals::note().map_err(|e| failed(&e))?;
        let area = area(&CrosstermBackend::new(io::stdout())).map_err(|e| failed(&e))?;
        let terminal = ratatui::try_init_with_options(in_area(area)).map_err(|e| failed(&e))?;
        let screen = Screen { terminal, area, signals };
        execute!(io::stdout(), EnterAlternateScreen).map_err(|e| failed(&e))?;
        Ok(screen)
    }

    /// Draws a picture as large as the terminal is now.
    pub(crate) fn draw(&mut self, picture: impl FnOnce(&mut Frame<'_>)) -> Result<(), Failure> {
        if area(self.terminal.backend()).map_err(|e| failed(&e))? != self.area {
            self.redraw()?;
        }
        self.terminal.draw(picture).map(drop).map_err(|e| failed(&e))
    }

    /// Waits for a key, so long at most. False: the terminal has gone. To be called before events are asked for: crossterm
    /// reads a terminal that has gone for ever.
    pub(crate) fn wait(&self, most: Duration) -> bool {
        let stdin = io::stdin();
        let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
        let most = Timespec::try_from(most).unwrap_or_default();
        // An error is a signal that has come; the caller looks for it.
        let looked = poll(&mut fds, Some(&most));
        looked.is_err() || !fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
    }

    /// Gives the terminal to the shell and stops; goes on when the shell lets it.
    pub(crate) fn suspend(&mut self) -> Result<(), Failure> {
        self.signals.stops.store(false, Ordering::Relaxed);
        restore();
        emulate_default_handler(SIGTSTP).map_err(|e| failed(&e))?;
        self.take_again()
    }

    /// Stops if the signal for it has come; takes the terminal again if it was stopped by another signal. True: all is to be
    /// drawn.
    pub(crate) fn stop_if_asked(&mut self) -> Result<bool, Failure> {
        if self.signals.stops.load(Ordering::Relaxed) {
            self.suspend()?;
            return Ok(true);
        }
        if self.signals.continues.load(Ordering::Relaxed) {
            self.take_again()?;
            return Ok(true);
        }
        Ok(false)
    }

    /// The shell may have set the terminal in its own way meanwhile.
    fn take_again(&mut self) -> Result<(), Failure> {
        self.signals.continues.store(false, Ordering::Relaxed);
        // What is enabled already is not enabled again.
        let _ = disable_raw_mode();
        enable_raw_mode()
            .and_then(|()| execute!(io::stdout(), EnterAlternateScreen))
            .map_err(|e| failed(&e))?;
        self.redraw()
    }

    /// Has the next picture drawn as a whole.
    pub(crate) fn redraw(&mut self) -> Result<(), Failure> {
        // The terminal's own way to do this asks where the cursor is, and not all terminals answer.
        let begin = || {
            let backend = CrosstermBackend::new(io::stdout());
            let area = area(&backend)?;
            let mut terminal = Terminal::with_options(backend, in_area(area))?;
            terminal.backend_mut().clear()?;
            Ok((terminal, area))
        };
        (self.terminal, self.area) = begin().map_err(|e| failed(&e))?;
        Ok(())
    }
}

/// Gives the terminal back. One that has gone takes nothing back, and no message either: the library's own function would panic.
fn restore() {
    let _ = ratatui::try_restore();
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

#[cfg(test)]
#[path = "../../tests/top/screen.rs"]
#[allow(dead_code, clippy::unwrap_used)]
mod pty;

#[cfg(test)]
mod tests {
    use super::Screen;
    use std::process::Command;

    const PANICS: &str = "ZONEPLUG_TEST_SCREEN_PANICS";

    /// Runs itself on a terminal, where it panics while it has that.
    #[test]
    fn a_panic_gives_the_terminal_back_before_it_says_what_happened() {
        if std::env::var_os(PANICS).is_some() {
            let _screen = Screen::take().expect("a terminal");
            std::thread::sleep(std::time::Duration::from_millis(300));
            panic!("on purpose");
        }
        let mut command = Command::new(std::env::current_exe().expect("this test"));
        let name = "a_panic_gives_the_terminal_back_before_it_says_what_happened";
        command.args(["--nocapture", name]).env(PANICS, "1").env("RUST_BACKTRACE", "0");
        let mut on = super::pty::Screen::start(command, 24, 80);
        on.until("it has the terminal", |_| on.is_taken() && !on.edits_lines());
        assert_eq!(on.end().code(), Some(101));
        on.shows("panicked at");
        assert!(!on.is_taken(), "the shell's screen is shown");
        assert!(on.edits_lines(), "and lines are edited");
    }
}
