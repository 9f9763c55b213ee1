//! Pages with plots: `reproduce --html` and `replay --html` make them. Plots stand beside each other, and below each other in a
//! narrow window; `svg.rs` has the elements of plots.

pub(crate) mod svg;

use std::fmt::Write;
use svg::STYLE;
use zoneplug_control::html;

/// A page with this title, which may have plots, and the content that `body` writes.
pub(crate) fn page(title: &str, body: impl FnOnce(&mut String)) -> String {
    html::page(title, STYLE, "", body)
}

/// Writes plots beside each other.
pub(crate) fn plots(out: &mut String, plots: impl IntoIterator<Item = String>) {
    out.push_str("<div class=\"plots\">\n");
    for svg in plots {
        let _ = writeln!(out, "<figure>{svg}</figure>");
    }
    out.push_str("</div>\n");
}
