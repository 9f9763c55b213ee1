//! Self-contained HTML pages without scripts. They follow the reader's light or dark theme and fit a narrow window, in which
//! tables scroll by themselves. `zoneplug serve --metrics` shows one, and `zoneplug-lab` makes others.

use std::fmt::Write;
use zoneplug_core::plain_lines;

/// The colours of a page, for light and dark, as variables of CSS.
pub const PALETTE: &str = include_str!("html/colours.css");
const PAGE_STYLE: &str = include_str!("html/page.css");

/// Escapes text, which may come from outside, for XML.
///
/// ```
/// assert_eq!(zoneplug_control::html::escape("a<b>\x1b"), "a&lt;b&gt;\\u{1b}");
/// ```
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in plain_lines(text).chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            c => out.push(c),
        }
    }
    out
}

/// A page with this title, more styles and lines of its head, and the content that `body` writes.
pub fn page(title: &str, styles: &str, head: &str, body: impl FnOnce(&mut String)) -> String {
    let mut out = String::new();
    let _ = write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n{head}\
         <title>{}</title>\n\
         <style>\n{PALETTE}{PAGE_STYLE}{styles}</style>\n</head>\n<body>\n<main>\n",
        escape(title)
    );
    body(&mut out);
    out += "</main>\n</body>\n</html>\n";
    out
}

/// Begins a table whose first `words` columns are text. `</table></div>` ends it.
pub fn begin_table<T: AsRef<str>>(out: &mut String, titles: &[T], words: usize) {
    out.push_str("<div class=\"scroll\"><table>\n<tr>");
    for (i, title) in titles.iter().enumerate() {
        let class = if i < words { " class=\"w\"" } else { "" };
        let _ = write!(out, "<th{class}>{}</th>", escape(title.as_ref()));
    }
    out.push_str("</tr>\n");
}

/// Writes a cell.
pub fn td(out: &mut String, class: &str, text: &str) {
    let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
    let _ = write!(out, "<td{class}>{}</td>", escape(text));
}

/// Panics unless a page is one file: it must fetch and run nothing, and close every tag. For tests.
pub fn assert_one_file(page: &str) {
    for foreign in ["<script", "<link", "<img", "src=", "url(", "@import"] {
        assert!(!page.contains(foreign), "{foreign}");
    }
    for tag in
        ["section", "figure", "svg", "table", "tr", "td", "p", "dl", "ul", "pre", "style", "title"]
    {
        let open =
            page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count();
        assert_eq!(open, page.matches(&format!("</{tag}>")).count(), "{tag}");
    }
    assert!(page.contains("prefers-color-scheme: dark"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_break_out() {
        assert_eq!(escape(r#"<a href="x">&"#), "&lt;a href=&quot;x&quot;&gt;&amp;");
        assert_eq!(escape("a\u{202e}\x1b<\n"), "a\\u{202e}\\u{1b}&lt;\n");
        assert!(
            page("</title><b>", "", "", |_| ()).contains("<title>&lt;/title&gt;&lt;b&gt;</title>")
        );
    }
}
