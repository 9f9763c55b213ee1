//! The page of `--html`: every table with its plots.

use super::plot::plots;
use super::text::{self, figure};
use crate::html;
use std::fmt::Write;
use zoneplug_control::html::{begin_table, escape, td};
use zoneplug_models::reproduce::{CellReport, How, Layout, Report, Source, TableReport, Verdict};

/// The page.
pub(crate) fn page(report: &Report) -> String {
    html::page("zoneplug: published tables, reproduced", |out| body(out, report))
}

fn body(out: &mut String, report: &Report) {
    let _ = write!(
        out,
        "<h1>Published tables of zoned block devices, and what zoneplug gives</h1>\n\
         <p>zoneplug {}.</p>\n<pre>{}</pre>\n",
        report.zoneplug,
        escape(&text::summary(report))
    );
    out.push_str(
        "<p>Simulated tables run the engine itself on models of the drives in virtual time. A model is a hypothesis \
            that agrees with published throughput, not a measurement of a drive: <code>docs/models.md</code> has its \
            equations, where each number is from, and what it does not give. Bars span geometries and seeds, or \
            repeats of a measurement; hollow squares are published figures. Measured tables are of the machine that made \
            this page, and only their ratios can be compared.</p>\n<nav><ul>\n",
    );
    for t in &report.tables {
        let _ = writeln!(out, "<li><a href=\"#{}\">{}</a></li>", escape(t.name), escape(t.title));
    }
    out.push_str("</ul></nav>\n");
    for t in &report.tables {
        section(out, report, t);
    }
}

/// The address of a source in the archive of the mailing lists, by its message's id or else by its subject.
fn archived(source: &Source) -> Option<String> {
    const ARCHIVE: &str = "https://lore.kernel.org";
    match source.message_id {
        "none" => None,
        id if id.contains('@') => Some(format!("{ARCHIVE}/r/{id}")),
        _ => {
            let subject = source.title.split(',').next().unwrap_or_default();
            let words: Vec<String> = subject
                .split(|c: char| !c.is_alphanumeric())
                .filter(|w| !w.is_empty())
                .map(str::to_owned)
                .collect();
            Some(format!("{ARCHIVE}/linux-block/?q=s%3A%22{}%22", words.join("+")))
        }
    }
}

fn section(out: &mut String, report: &Report, t: &TableReport) {
    let title = escape(t.source.title);
    let source = match archived(&t.source) {
        Some(url) => format!("<a href=\"{}\">{title}</a>", escape(&url)),
        None => title,
    };
    let _ = write!(
        out,
        "<section id=\"{name}\">\n<h2>{}<code>{name}</code></h2>\n\
         <p class=\"soft\">Published: {source}; {} ({}).<br>Ours: {} <code>{}</code>, {}.</p>\n<dl>\n",
        escape(t.title),
        escape(t.source.published),
        escape(t.source.message_id),
        if t.how == How::Model { "model" } else { "measured on" },
        escape(t.drive),
        escape(&text::how(report, t)),
        name = escape(t.name),
    );
    for c in &t.columns {
        let _ = writeln!(
            out,
            "<dt>{}</dt><dd>{} <code>{}</code></dd>",
            escape(c.name),
            escape(c.says),
            escape(c.options)
        );
    }
    out.push_str("</dl>\n");
    html::plots(out, plots(t));
    table(out, t);
    for (why, cells) in text::reasons(t) {
        let cells = escape(&text::cells_text(t, &cells));
        let _ = writeln!(out, "<p class=\"soft\"><b>{cells}</b>: {}</p>", escape(why));
    }
    if !t.claims.is_empty() {
        out.push_str("<ul class=\"claims\">\n");
        for c in &t.claims {
            let (class, state) = text::state(c);
            let worst = c.worst.map_or_else(|| "-".to_owned(), |w| format!("{w:.3}"));
            let _ = writeln!(
                out,
                "<li><span class=\"{class}\">{state}</span>: {} ({worst})</li>",
                escape(c.text)
            );
        }
        out.push_str("</ul>\n");
    }
    if !t.notes.is_empty() {
        let _ = writeln!(out, "<p>{}</p>", escape(&t.notes.join(" ")));
    }
    out.push_str("</section>\n");
}

fn maybe(x: Option<f64>, form: impl Fn(f64) -> String) -> String {
    x.map_or_else(String::new, form)
}

fn table(out: &mut String, t: &TableReport) {
    let measured = t.how == How::Measure;
    let mut titles =
        vec![t.x.unwrap_or("workload"), "column", "client", "layer", "unit", "published", "ours"];
    titles.extend(if measured {
        &["published ratio", "our ratio", "repeats", "verdict"][..]
    } else if t.layout == Layout::Front {
        &["± s.e.", "p99, ms", "longest, ms"][..]
    } else {
        &["± s.e.", "spread", "error", "command", "p99, ms", "verdict"][..]
    });
    begin_table(out, &titles, 4);
    for (i, c) in t.cells.iter().enumerate() {
        let first = i % t.columns.len() == 0;
        out.push_str(if first { "<tr class=\"first\">" } else { "<tr>" });
        td(out, "w", if first { c.row } else { "" });
        for text in [c.column, &c.client, &c.layer] {
            td(out, "w", text);
        }
        td(out, "", c.unit);
        td(out, "", &text::published(c).replace('-', ""));
        td(out, "", &maybe(c.ours, figure));
        if measured {
            td(out, "", &maybe(c.published_ratio, |r| format!("{r:.2}")));
            td(out, "", &maybe(c.our_ratio, |r| format!("{r:.2}")));
            td(out, "", &text::repeats(c));
            td(out, class_of(c), &text::verdict(c));
        } else if t.layout == Layout::Front {
            td(out, "", &maybe(c.standard_error, figure));
            td(out, "", &maybe(c.p99_ms, |x| format!("{x:.0}")));
            td(out, "", &maybe(c.max_ms, |x| format!("{x:.0}")));
        } else {
            td(out, "", &maybe(c.standard_error, figure));
            td(out, "", &maybe(c.spread, figure));
            td(out, "", &maybe(c.error_percent, |e| format!("{e:+.1} %")));
            td(out, "", &maybe(c.command_bytes, text::command));
            td(out, "", &maybe(c.p99_ms, figure));
            td(out, class_of(c), &text::verdict(c));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</table></div>\n");
}

/// The CSS class for the verdict of a cell.
fn class_of(c: &CellReport) -> &'static str {
    match c.verdict {
        Verdict::Inside => "pass",
        Verdict::Outside => "fail",
        _ => "none",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zoneplug_models::reproduce::{CellRuns, Headline, Run, tables};

    /// smr30-random, with the published figures in place of ours.
    fn as_published() -> TableReport {
        let t = &tables().unwrap()[1];
        let cells = t.rows.iter().flat_map(|r| &r.cells);
        let runs = cells.map(|c| {
            let run = Run {
                geometry_ppm: 1_000_000,
                seed: 1,
                value: c.published.unwrap(),
                p99_ms: 1.0,
                max_ms: 2.0,
                command_bytes: 4096.0,
            };
            CellRuns { runs: vec![run], ..CellRuns::default() }
        });
        TableReport::new(t, runs.collect())
    }

    fn report() -> Report {
        let tables = vec![as_published()];
        Report {
            zoneplug: "0",
            quick: false,
            partial: false,
            geometries: 5,
            seeds: 4,
            headline: Headline::of(&tables),
            tables,
            failed: 0,
        }
    }

    #[test]
    fn a_page_is_one_file() {
        let page = page(&report());
        zoneplug_control::html::assert_one_file(&page);
        assert!(page.contains("pass (±12 %)") && page.contains("published 192"));
        let subject = "Improve+zoned+SMR+HDD+write+throughput%22\">";
        assert!(page.contains(subject), "its source is linked");
    }
}
