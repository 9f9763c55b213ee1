//! The page at `/` of the metrics address: the data of `zoneplug status` for a reader, in one HTML file without scripts.
//! Browsers load it again each few seconds.

use crate::measure::CONDITIONS;
use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use std::time::{SystemTime, UNIX_EPOCH};
use zoneplug_control::client::Shown;
use zoneplug_control::figures::{about, duration};
use zoneplug_control::html::{begin_table, escape, page, td};
use zoneplug_core::{Bytes, plain};

/// The Content-Type of the page.
pub(super) const CONTENT_TYPE: &str = "text/html; charset=utf-8";
/// The seconds after which a browser loads the page again, as a line of its head.
const AGAIN: &str = "<meta http-equiv=\"refresh\" content=\"5\">\n";
/// The colours of the zones in the bar: one for each of the [`CONDITIONS`].
const COLOURS: [&str; CONDITIONS.len()] = ["c7", "c2", "c1", "c0", "c5", "c6", "rule"];
const STYLE: &str = "\
.bar { display: flex; height: 14px; margin: .6em 0 .3em; border-radius: 4px; overflow: hidden; background: var(--rule); }
.bar span { min-width: 1px; }
.key { white-space: nowrap; margin-left: .9em; }
.key span { display: inline-block; width: .8em; height: .8em; border-radius: 2px; margin-right: .35em; }
p.bad { color: var(--bad); font-weight: 600; }
";

/// Makes the page of the disks of one server, at this time.
pub(super) fn of(disks: &[Shown], now: SystemTime) -> String {
    let title = match disks {
        [] => "zoneplug: no disk is served".to_owned(),
        [one] => format!("zoneplug: {}", plain(&one.name)),
        all => format!("zoneplug: {} disks", all.len()),
    };
    page(&title, STYLE, AGAIN, |out| {
        let _ = writeln!(out, "<h1>{}</h1>", escape(&title));
        if let Some(first) = disks.first() {
            server(out, first, now);
            overview(out, disks);
            disks.iter().for_each(|d| disk(out, d));
        }
    })
}

/// Writes what all disks of a server share.
fn server(out: &mut String, d: &Shown, now: SystemTime) {
    let m = &d.measured;
    let now = now.duration_since(UNIX_EPOCH).map_or(0, |t| t.as_secs());
    let up = now.saturating_sub(m.started_unix_s);
    let (days, hours, minutes) = (up / 86_400, up / 3600 % 24, up / 60 % 60);
    let up = match (days, hours) {
        (0, 0) => format!("{minutes} min {} s", up % 60),
        (0, _) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    };
    let _ = writeln!(
        out,
        "<p class=\"soft\">zoneplug {}, process {}, for {up}. <a href=\"/metrics\">Metrics</a></p>",
        escape(&m.version),
        d.pid
    );
    let Some(hosts) = &d.hosts else { return };
    if d.failed_authentications > 0 {
        let _ = writeln!(
            out,
            "<p class=\"bad\">{} hosts failed to authenticate</p>",
            d.failed_authentications
        );
    }
    if hosts.is_empty() {
        out.push_str("<p class=\"soft\">No host is connected.</p>\n");
        return;
    }
    begin_table(out, &["host", "I/O queues", "authenticated"], 1);
    for h in hosts {
        let known = if h.authenticated { "yes" } else { "no" };
        row(out, &[&h.nqn], &[&h.queues, &known]);
    }
    out.push_str("</table></div>\n");
}

/// Writes a row of a table: words, then figures.
fn row(out: &mut String, words: &[&str], figures: &[&dyn Display]) {
    out.push_str("<tr>");
    words.iter().for_each(|word| td(out, "w", word));
    figures.iter().for_each(|figure| td(out, "", &figure.to_string()));
    out.push_str("</tr>\n");
}

fn overview(out: &mut String, disks: &[Shown]) {
    let titles =
        ["disk", "specification", "size", "zones", "reads", "writes", "errors", "waiting BIOs"];
    begin_table(out, &titles, 2);
    for d in disks {
        let zones = format!("{} of {}", d.zones, Bytes(d.zone_bytes));
        let reads = format!("{} ({})", d.reads, about(d.read_bytes));
        let writes = format!("{} ({})", d.writes, about(d.written_bytes));
        let size = Bytes(d.capacity_bytes);
        row(out, &[&d.name, &d.spec], &[&size, &zones, &reads, &writes, &d.errors, &d.waiting]);
    }
    out.push_str("</table></div>\n");
}

/// Writes what is known of a disk beyond its row in the overview.
fn disk(out: &mut String, d: &Shown) {
    let m = &d.measured;
    let _ = writeln!(out, "<section>\n<h2>{}</h2>", escape(&d.name));
    if let Some(what) = &d.file_changed {
        let _ = writeln!(out, "<p class=\"bad\">Its I/O fails: {}</p>", escape(what));
    }
    if !d.enabled {
        out.push_str("<p class=\"bad\">Hosts do not see it: attribute enable is 0.</p>\n");
    }
    if m.late > 0 {
        let _ = writeln!(
            out,
            "<p class=\"bad\">The device has not answered {} commands that were given up.</p>",
            m.late
        );
    }
    zones(out, &m.conditions);
    let facts = [
        (
            "plugs",
            format!("{} live, {} BIOs parked so far, {} merged", d.live_plugs, m.parked, m.merged),
        ),
        ("I/O", d.io.iter().map(|io| io.shown()).collect::<Vec<_>>().join("; ")),
        ("paths", list(d.paths.iter().map(|p| (&p.address, &p.ana_state)))),
        (
            "held early writes",
            match d.held_total {
                0 => String::new(),
                all => format!("{} now, {all} so far, {} expired", d.held, d.held_expired),
            },
        ),
        ("events", list(m.events.iter().filter(|(_, n)| **n > 0))),
        ("zones where most wait", list(m.waiting_zones.iter().map(|z| (z.zone, z.waiting)))),
        (
            "slowest zones of a minute",
            list(
                m.slow_zones
                    .iter()
                    .map(|z| (z.zone, format!("{} {}", z.op, duration(z.longest_ns)))),
            ),
        ),
    ];
    out.push_str("<dl>\n");
    for (name, fact) in facts.iter().filter(|(_, fact)| !fact.is_empty()) {
        let _ = writeln!(out, "<dt>{name}</dt><dd>{}</dd>", escape(fact));
    }
    out.push_str("</dl>\n");
    if !m.operations.is_empty() {
        begin_table(out, &["operation", "number", "bytes", "errors", "p50", "p99"], 1);
        for o in &m.operations {
            let within = |q| {
                let ns = o.latency.as_ref().and_then(|l| l.quantile_ns(q));
                ns.map_or_else(|| "-".to_owned(), duration)
            };
            row(
                out,
                &[&o.op],
                &[&o.count, &about(o.bytes), &o.errors, &within(0.5), &within(0.99)],
            );
        }
        out.push_str("</table></div>\n");
    }
    out.push_str("</section>\n");
}

/// Lists pairs: `3: 7, 9: 2`.
fn list<A: Display, B: Display>(pairs: impl Iterator<Item = (A, B)>) -> String {
    pairs.map(|(a, b)| format!("{a}: {b}")).collect::<Vec<_>>().join(", ")
}

/// Draws the zones by condition as a bar, with its key.
fn zones(out: &mut String, conditions: &BTreeMap<String, u64>) {
    let (mut bar, mut key) = (String::new(), String::new());
    for ((name, _), colour) in CONDITIONS.iter().zip(COLOURS) {
        let Some(n) = conditions.get(*name).filter(|n| **n > 0) else { continue };
        let (name, colour) = (name.replace('_', " "), format!("background:var(--{colour})"));
        bar += &format!("<span style=\"flex:{n};{colour}\" title=\"{n} {name}\"></span>");
        key += &format!(" <span class=\"key\"><span style=\"{colour}\"></span>{n} {name}</span>");
    }
    let _ = writeln!(out, "<div class=\"bar\">{bar}</div>\n<p class=\"soft\">Zones:{key}</p>");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use zoneplug_control::html::assert_one_file;

    fn disk(name: &str) -> Shown {
        let text = super::super::text::tests::DISK.replace("tcp4420n1", name);
        serde_json::from_str(&text).unwrap()
    }

    fn at(d: &Shown, seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(d.measured.started_unix_s + seconds)
    }

    /// All that `status` knows of a disk is on its page.
    #[test]
    fn a_page_has_what_status_shows() {
        let d = disk("tcp4420n1");
        let text = of(std::slice::from_ref(&d), at(&d, 3 * 86_400 + 2 * 3600 + 5));
        assert_one_file(&text);
        let operation = &d.measured.operations[0];
        let hosts = d.hosts.as_ref().unwrap();
        for part in [
            "<title>zoneplug: tcp4420n1</title>",
            "for 3 d 2 h.",
            &format!("<td class=\"w\">{}</td>", operation.op),
            &format!("<td>{}</td>", operation.count),
            &escape(&hosts[0].nqn),
            "title=\"3 empty\"",
            "1 stale",
            "<dt>zones where most wait</dt><dd>3: 7</dd>",
            "<dd>2: write 1.5 ms</dd>",
            "<dt>events</dt><dd>failed: 1</dd>",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
        assert!(of(&[], SystemTime::now()).contains("no disk is served"));
        let two = of(&[disk("a"), disk("b")], at(&d, 61));
        assert!(two.contains("zoneplug: 2 disks") && two.contains("for 1 min 1 s."), "{two}");
        assert_eq!(two.matches("<section>").count(), 2);
    }

    /// Names from outside stay text, and a disk that does not work says so.
    #[test]
    fn what_comes_from_outside_is_text() {
        let mut d = disk("<script>\u{202e}");
        d.spec = "/a\"><b>".to_owned();
        d.file_changed = Some("<i>gone".to_owned());
        d.enabled = false;
        d.measured.late = 2;
        d.measured.conditions.insert("<u>".to_owned(), 1);
        let text = of(&[d], SystemTime::now());
        assert_one_file(&text);
        for foreign in ["<b>", "<i>", "<u>", "\u{202e}", "<script>"] {
            assert!(!text.contains(foreign), "{foreign}");
        }
        let warnings = text.matches("<p class=\"bad\">").count();
        assert!(warnings >= 3, "{warnings}: {text}");
    }
}
