//! Comma-separated values: a line of titles, then a line for each row (RFC 4180, but lines end as in Unix).

use zoneplug_core::plain;

/// A cell, in quotes if needed.
fn cell(text: &str) -> String {
    let text = plain(text);
    match text.contains([',', '"']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.into_owned(),
    }
}

/// Formats a line.
pub fn line<T: AsRef<str>>(cells: impl IntoIterator<Item = T>) -> String {
    let cells: Vec<String> = cells.into_iter().map(|c| cell(c.as_ref())).collect();
    cells.join(",") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_with_a_comma_or_a_quote_is_quoted() {
        assert_eq!(
            line(["mem,zones=4", "a \"b\"", "", "1.5"]),
            "\"mem,zones=4\",\"a \"\"b\"\"\",,1.5\n"
        );
        assert_eq!(line(["a\nb\x1b"]), "a\\nb\\u{1b}\n");
    }
}
