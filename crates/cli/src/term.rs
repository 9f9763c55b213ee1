//! What kind of thing stdout is: its width, and whether it shows colours.

use std::io::IsTerminal;

/// Width of output that goes somewhere else than to a terminal.
const COLUMNS: usize = 100;

/// Columns of the terminal.
pub(crate) fn columns() -> usize {
    match rustix::termios::tcgetwinsize(std::io::stdout()) {
        Ok(size) if size.ws_col >= 20 => usize::from(size.ws_col),
        _ => COLUMNS,
    }
}

/// Whether stdout is a terminal whose owner did not ask for plain text (no-color.org).
pub(crate) fn colours() -> bool {
    std::io::stdout().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
        && std::env::var_os("TERM").is_none_or(|v| v != "dumb")
}

/// `text` in an SGR style such as `1` or `32`, where colours are shown.
pub(crate) fn paint(text: &str, sgr: &str, colours: bool) -> String {
    if colours && !sgr.is_empty() { format!("\x1b[{sgr}m{text}\x1b[0m") } else { text.to_owned() }
}
