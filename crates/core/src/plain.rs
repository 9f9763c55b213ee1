//! Text from outside, made fit to be shown: names of hosts and disks, labels, paths, specifications, data from
//! sockets and traces. A terminal obeys control characters, and some characters change the direction of their
//! neighbours. Code that shows such text, in a terminal, a log, a metric or a page, passes it through this module.

use std::borrow::Cow;

/// Returns whether a character shows something, and nothing else.
///
/// ```
/// use zoneplug_core::is_plain;
/// assert!(is_plain('ü') && is_plain('\\') && !is_plain('\n') && !is_plain('\u{202e}'));
/// ```
pub fn is_plain(c: char) -> bool {
    // The escapes of a debug output are for unprintable characters (Unicode's Cc, Cf, Zl and others), and for three
    // others.
    let is_printable = matches!(c, '"' | '\'' | '\\') || c.escape_debug().len() == 1;
    is_printable && !BLANK_LETTERS.contains(&c)
}

/// Characters that Unicode has among the letters and symbols and that show nothing: fillers of Hangul and the empty pattern of Braille.
const BLANK_LETTERS: [char; 5] = ['\u{115f}', '\u{1160}', '\u{3164}', '\u{ffa0}', '\u{2800}'];

/// Returns `text` on one line, with unprintable characters as `\u{1b}`. Text that is plain already stays unchanged.
///
/// ```
/// assert_eq!(zoneplug_core::plain("nqn.a\u{202e}\x1b[2J"), "nqn.a\\u{202e}\\u{1b}[2J");
/// ```
pub fn plain(text: &str) -> Cow<'_, str> {
    escaped(text, is_plain)
}

/// Makes text with several lines fit to be shown, as [`plain`] does one line.
///
/// ```
/// assert_eq!(zoneplug_core::plain_lines("one\n\x1b[2J\n"), "one\n\\u{1b}[2J\n");
/// ```
pub fn plain_lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c == '\n' || is_plain(c))
}

/// Converts the name of a status or a condition to a key.
///
/// ```
/// use zoneplug_core::status_key;
/// assert_eq!(status_key("not at the write pointer"), "not_at_the_write_pointer");
/// assert_eq!(status_key("I/O error"), "io_error");
/// ```
pub fn status_key(name: &str) -> String {
    let key = |c: char| match c {
        ' ' | '-' | '_' => Some('_'),
        c => c.is_ascii_alphanumeric().then(|| c.to_ascii_lowercase()),
    };
    name.chars().filter_map(key).collect()
}

/// Escapes all characters of `text` except those that `is_kept` accepts.
fn escaped(text: &str, is_kept: impl Fn(char) -> bool) -> Cow<'_, str> {
    if text.chars().all(&is_kept) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match is_kept(c) {
            true => out.push(c),
            false if c.is_ascii() => out.extend(c.escape_default()),
            false => out.extend(c.escape_unicode()),
        }
    }
    Cow::Owned(out)
}

/// A message on one line: white space is one blank, and the rest is [`plain`].
pub fn one_line(text: &str) -> Cow<'_, str> {
    // The most common text has no white space but single blanks between its words.
    let is_one_line = text.split(' ').all(|word| !word.is_empty() && word.chars().all(is_plain));
    if is_one_line || text.is_empty() {
        return Cow::Borrowed(text);
    }
    let words: Vec<&str> = text.split_whitespace().collect();
    Cow::Owned(plain(&words.join(" ")).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_terminal_obeys_is_left() {
        for text in ["", "disk.zbd", "po2@/dev/ng0n1,tags=4", "Zürich \"2\" \\ 'x'", "盘 №7"] {
            assert!(matches!(plain(text), Cow::Borrowed(t) if t == text), "{text}");
        }
        for (text, line) in
            [("", ""), ("a b", "a b"), ("a  b", "a b"), (" a", "a"), ("a\nb\x07\n", "a b\\u{7}")]
        {
            assert_eq!(one_line(text), line);
            let kept = matches!(one_line(text), Cow::Borrowed(_));
            assert_eq!(kept, text == line, "{text:?}");
        }
        assert_eq!(plain("a\x1b[2Jb\nc\t\x7f"), "a\\u{1b}[2Jb\\nc\\t\\u{7f}");
        // C1 controls, overrides and isolates of direction, separators, marks that cannot be seen.
        let all = ('\0'..' ')
            .chain('\u{7f}'..='\u{9f}')
            .chain('\u{202a}'..='\u{202e}')
            .chain('\u{2066}'..='\u{2069}')
            .chain([
                '\u{200b}', '\u{200e}', '\u{200f}', '\u{61c}', '\u{2028}', '\u{2029}', '\u{feff}',
            ])
            .chain(BLANK_LETTERS)
            // Blanks of other widths.
            .chain(['\u{a0}', '\u{2003}', '\u{3000}']);
        for c in all {
            let text = plain(&c.to_string()).into_owned();
            assert!(text.starts_with('\\') && text.is_ascii(), "{:x} is {text}", u32::from(c));
        }
    }
}
