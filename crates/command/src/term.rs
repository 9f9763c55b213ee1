//! Properties of stdout: its width, and whether it shows colours.

use crate::failure::Failure;
use crate::program;
use std::io::{IsTerminal, Write};
use std::os::fd::AsFd;
use zoneplug_control::said::{self, To};
use zoneplug_core::plain_lines;

/// Width of pictures that do not go to a terminal.
const COLUMNS: usize = 100;
/// The most columns of a terminal. Larger values of `COLUMNS` are cut to this, because pictures are as wide as it
/// says.
const MOST: usize = u16::MAX as usize;
/// Smaller widths are ignored.
const LEAST: usize = 20;

/// Columns of a terminal, else the value of the variable `COLUMNS`. `None`: neither is known.
fn known(of: impl AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(of).ok().map(|s| usize::from(s.ws_col));
    let told = || std::env::var("COLUMNS").ok().and_then(|c| c.trim().parse::<usize>().ok());
    let told = || told().map(|n| n.min(MOST));
    size.filter(|n| *n > 0).or_else(told).filter(|n| *n >= LEAST)
}

/// Width of pictures.
pub fn columns() -> usize {
    known(std::io::stdout()).unwrap_or(COLUMNS)
}

/// Width of text and tables. Unlimited in a file or a pipe, unless `COLUMNS` sets it.
pub fn width() -> usize {
    known(std::io::stdout()).unwrap_or(usize::MAX)
}

/// Width of messages on stderr. Unlimited if stderr is not a terminal.
pub fn width_of_stderr() -> usize {
    let stderr = std::io::stderr();
    if stderr.is_terminal() { known(stderr).unwrap_or(usize::MAX) } else { usize::MAX }
}

/// Whether stdout is a terminal whose user did not ask for plain text (no-color.org).
pub fn colours() -> bool {
    std::io::stdout().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
        && std::env::var_os("TERM").is_none_or(|v| v != "dumb")
}

/// `text` in an SGR style such as `1` or `32`, if `colours` are shown.
pub fn paint(text: &str, sgr: &str, colours: bool) -> String {
    if colours && !sgr.is_empty() { format!("\x1b[{sgr}m{text}\x1b[0m") } else { text.to_owned() }
}

/// Columns that a line takes, without its colour sequences.
fn columns_of(line: &str) -> usize {
    let (mut n, mut style) = (0, false);
    for c in line.chars() {
        match (style, c) {
            (false, '\x1b') => style = true,
            (true, 'm') => style = false,
            (false, _) => n += 1,
            (true, _) => {}
        }
    }
    n
}

/// Breaks lines that are longer than `width` at blanks, and indents the rest by two more than the line. Breaks a
/// longer word after a comma, or at the width.
pub fn fold(text: &str, width: usize) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let (line, end) = match line.strip_suffix('\n') {
            Some(line) => (line, "\n"),
            None => (line, ""),
        };
        if columns_of(line) <= width {
            out += line;
        } else {
            fold_line(line, width, &mut out);
        }
        out += end;
    }
    out
}

fn fold_line(line: &str, width: usize, out: &mut String) {
    let indent = line.chars().take_while(|c| *c == ' ').count();
    let hang = if indent + 2 < width / 2 { indent + 2 } else { 0 };
    let mut used = 0;
    let mut rest = line;
    while !rest.is_empty() {
        let gap = rest.len() - rest.trim_start_matches(' ').len();
        let (blanks, after) = rest.split_at(gap);
        let (mut word, more) = after.split_at(after.find(' ').unwrap_or(after.len()));
        rest = more;
        if word.is_empty() || used == 0 || used + gap + columns_of(word) <= width {
            *out += &blanks[..gap.min(width / 2)];
            used += gap.min(width / 2);
        } else {
            *out += &format!("\n{:hang$}", "");
            used = hang;
        }
        while columns_of(word) > width.saturating_sub(used) {
            let room = width.saturating_sub(used);
            let room = word.char_indices().nth(room).map_or(word.len(), |(i, _)| i);
            let at = word[..room].rfind(',').map_or(room, |i| i + 1);
            *out += &format!("{}\n{:hang$}", &word[..at], "");
            (word, used) = (&word[at..], hang);
        }
        *out += word;
        used += columns_of(word);
    }
}

/// Prints a message on stderr.
pub fn note(text: &str) {
    said::say(To::Stderr, fold(&format!("{}: {text}\n", program::name()), width_of_stderr()));
}

/// Prints a report with lines that fit the terminal. It may name disks and files, so control characters are made
/// harmless.
pub fn print_report(out: &mut dyn Write, text: &str) -> Result<(), Failure> {
    print(out, &plain_lines(text))
}

/// Prints text whose lines fit the terminal.
pub fn print(out: &mut dyn Write, text: &str) -> Result<(), Failure> {
    Ok(out.write_all(fold(text, width()).as_bytes())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_too_long_goes_on_in_the_next() {
        let text = "  one two three four\nshort\n";
        assert_eq!(fold(text, 80), text);
        assert_eq!(fold(text, 14), "  one two\n    three four\nshort\n");
        // Text in columns keeps its columns.
        assert_eq!(fold("  name  what it is\n", 14), "  name  what\n    it is\n");
        let long = "error: mem,zones=64,zone-size=4M,conv=4,max-open=8 is no disk";
        let folded = fold(long, 24);
        assert!(folded.lines().all(|l| l.chars().count() <= 24), "{folded}");
        let plain = |s: &str| s.split_whitespace().collect::<String>();
        assert_eq!(plain(&folded), plain(long));
        assert_eq!(columns_of("\x1b[1mbold\x1b[0m"), 4);
        let nothing = "x".repeat(50);
        assert!(fold(&nothing, 20).lines().all(|l| l.len() <= 20));
    }
}
