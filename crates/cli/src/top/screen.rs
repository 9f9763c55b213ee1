//! Takes the terminal at the start. Gives it back at the end, at a signal, at a panic, and while the job is stopped.

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

/// Most columns and rows that are drawn. Each cell takes memory, and a terminal may report 65,535 of both.
const MOST_COLUMNS: u16 = 1024;
const MOST_ROWS: u16 = 512;

/// Flags of received signals.
pub(crate) struct Signals {
    ends: Vec<(i32, Arc<AtomicBool>)>,
    stops: Arc<AtomicBool>,
    continues: Arc<AtomicBool>,
}

impl Signals {
    /// Sets flags for signals from now on, in place of their usual effects.
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

    /// The signal that has asked for the end, if any.
    pub(crate) fn end(&self) -> Option<i32> {
        self.ends.iter().find(|(_, flag)| flag.load(Ordering::Relaxed)).map(|(signal, _)| *signal)
    }
}

/// The terminal, from its taking until this is dropped.
pub(crate) struct Screen {
    terminal: DefaultTerminal,
    /// The drawn part of the terminal.
    area: Rect,
    pub(crate) signals: Signals,
}

fn failed(e: &io::Error) -> Failure {
    Failure::io(format!("the terminal: {e}")).hint("zoneplug top --once needs none")
}

/// The part of a terminal to draw on: all of it, up to `MOST_COLUMNS` and `MOST_ROWS`. A serial console does not know its size
/// and says 0; it is taken for the usual one.
fn area(backend: &impl Backend<Error = io::Error>) -> io::Result<Rect> {
    let size = backend.size()?;
    let known = |n: u16, usual| if n == 0 { usual } else { n };
    let (width, height) = (known(size.width, 80), known(size.height, 24));
    Ok(Rect::new(0, 0, width.min(MOST_COLUMNS), height.min(MOST_ROWS)))
}

fn in_area(area: Rect) -> TerminalOptions {
    TerminalOptions { viewport: Viewport::Fixed(area) }
}

impl Screen {
    /// Takes the terminal. A panic gives it back before its message is printed.
    pub(crate) fn take() -> Result<Screen, Failure> {
        let signals = Signals::note().map_err(|e| failed(&e))?;
        let area = area(&CrosstermBackend::new(io::stdout())).map_err(|e| failed(&e))?;
        let terminal = ratatui::try_init_with_options(in_area(area)).map_err(|e| failed(&e))?;
        let screen = Screen { terminal, area, signals };
        execute!(io::stdout(), EnterAlternateScreen).map_err(|e| failed(&e))?;
        Ok(screen)
    }

    /// Draws a picture with the current size of the terminal.
    pub(crate) fn draw(&mut self, picture: impl FnOnce(&mut Frame<'_>)) -> Result<(), Failure> {
        if area(self.terminal.backend()).map_err(|e| failed(&e))? != self.area {
            self.redraw()?;
        }
        self.terminal.draw(picture).map(drop).map_err(|e| failed(&e))
    }

    /// Waits for a key, for at most `most`. False: the terminal has gone. Must be called before crossterm is asked
    /// for events, because crossterm loops forever on a terminal that has gone.
    pub(crate) fn wait(&self, most: Duration) -> bool {
        let stdin = io::stdin();
        let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
        let most = Timespec::try_from(most).unwrap_or_default();
        // An error means that a signal has come, which the caller checks.
        let looked = poll(&mut fds, Some(&most));
        looked.is_err() || !fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
    }

    /// Gives the terminal to the shell and stops. Takes it again when the shell continues the job.
    pub(crate) fn suspend(&mut self) -> Result<(), Failure> {
        self.signals.stops.store(false, Ordering::Relaxed);
        restore();
        emulate_default_handler(SIGTSTP).map_err(|e| failed(&e))?;
        self.take_again()
    }

    /// Stops if SIGTSTP has come. Takes the terminal again if another signal had stopped the process. True: the
    /// caller must draw all of the screen.
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

    /// Takes the terminal again, because the shell may have changed its mode.
    fn take_again(&mut self) -> Result<(), Failure> {
        self.signals.continues.store(false, Ordering::Relaxed);
        // crossterm does not enable a mode that it believes to be enabled.
        let _ = disable_raw_mode();
        enable_raw_mode()
            .and_then(|()| execute!(io::stdout(), EnterAlternateScreen))
            .map_err(|e| failed(&e))?;
        self.redraw()
    }

    /// Makes the next draw cover the whole screen.
    pub(crate) fn redraw(&mut self) -> Result<(), Failure> {
        // ratatui's own `clear` asks for the position of the cursor, which some terminals do not answer.
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

/// Gives the terminal back. Ignores errors of a terminal that has gone, for which ratatui's `restore` would panic.
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

    /// The test runs itself on a terminal, and panics while it has the terminal.
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
