//! The page of `--html`: the text of the terminal, plots, and the command line that makes the page again.

use super::plot::plots;
use super::text::Report;
use crate::html;
use crate::program::quoted;
use std::fmt::{self, Write};
use zoneplug_control::html::{begin_table, escape, td};

/// The page. `command`: the words of the command line after the program's name.
pub(super) fn page(report: &Report, command: &[String]) -> String {
    let title = format!("{}: replayed by zoneplug", report.trace);
    html::page(&title, |out| {
        // Writing to a String does not fail.
        let _ = body(out, report, command);
    })
}

/// The end of the page's first sentence for a replay in virtual time.
const MODELS: &str = ", on models of drives. A model is a hypothesis that agrees with published throughput, not a \
    measurement of a drive: <code>docs/models.md</code> says what it does not give.";

fn body(out: &mut String, report: &Report, command: &[String]) -> fmt::Result {
    let text = |write: &dyn Fn(&mut String) -> fmt::Result| -> Result<String, fmt::Error> {
        let mut text = String::new();
        write(&mut text)?;
        Ok(escape(text.trim_end()))
    };
    let words: Vec<String> = command.iter().map(|w| quoted(w)).collect();
    write!(
        out,
        "<h1>{}</h1>\n<p>Replayed by zoneplug {} in {} time{}</p>\n<pre>{}</pre>\n<p>The same again: <code>\
         zoneplug-lab {}</code></p>\n",
        escape(&report.trace),
        report.zoneplug,
        report.time,
        if report.time == "virtual" { MODELS } else { "." },
        text(&|t| report.heading(t))?,
        escape(&words.join(" ")),
    )?;
    html::plots(out, plots(report));
    table(out, report);
    writeln!(out, "<pre>{}</pre>", text(&|t| report.notes(t))?)
}

/// Writes the table, with the lowest and highest figures of repeats in brackets.
fn table(out: &mut String, report: &Report) {
    let (titles, groups) = report.columns();
    let mut groups = groups.iter().flat_map(|&(name, n)| vec![name; n]);
    let full = |title: &&str| format!("{} {title}", groups.next().unwrap_or("")).trim().to_owned();
    let mut titles: Vec<String> = titles.iter().map(full).collect();
    titles.extend(Report::LAST_TITLES.map(str::to_owned));
    begin_table(out, &titles, 2);
    let mut disk = None;
    for row in &report.rows {
        let first = disk.replace(&row.disk) != Some(&row.disk);
        out.push_str(if first { "<tr class=\"first\">" } else { "<tr>" });
        let ranges = report.range_cells(row);
        for (i, cell) in report.cells(row).iter().enumerate() {
            match ranges.as_ref().and_then(|r| r.get(i)).filter(|range| *range != cell) {
                Some(range) => td(out, "", &format!("{cell} ({range})")),
                None => td(out, if i < 2 { "w" } else { "" }, cell),
            }
        }
        report.last_cells(row).iter().for_each(|cell| td(out, "", cell));
        out.push_str("</tr>\n");
    }
    out.push_str("</table></div>\n");
}
