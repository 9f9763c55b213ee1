//! Tests that the pages for operators name all logged events with their levels, and quote log lines as they are.

use crate::disk_events::level_and_name;
use log::Level;
use std::collections::BTreeMap;
use std::path::Path;
use zoneplug_core::Status;
use zoneplug_core::disk::EventKind;

/// Statuses of commands that differ in the name or level of their event.
const STATUSES: [Status; 9] = [
    Status::Io,
    Status::Medium,
    Status::Timeout,
    Status::OpenLimit,
    Status::ActiveLimit,
    Status::ZoneOffline,
    Status::ZoneReadOnly,
    Status::NoDevice,
    Status::UnalignedWrite,
];

/// The source files of the program, each as one line.
fn sources() -> Vec<String> {
    fn add(dir: &Path, all: &mut Vec<String>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                add(&path, all);
            } else if path.extension().is_some_and(|e| e == "rs") && !path.ends_with(file!()) {
                let text = std::fs::read_to_string(&path).unwrap();
                // Joins strings that continue on the next line.
                let text = text.replace("\\\n", " ");
                all.push(text.split_whitespace().collect::<Vec<_>>().join(" "));
            }
        }
    }
    let mut all = Vec::new();
    for of in ["src", "../control/src", "../cli/src", "../host/src"] {
        add(&Path::new(env!("CARGO_MANIFEST_DIR")).join(of), &mut all);
    }
    all
}

/// The events that the program logs, each with its gravest level.
fn logged() -> BTreeMap<String, Level> {
    let mut all = BTreeMap::new();
    let mut add = |name: &str, level: Level| {
        let known = all.entry(name.to_owned()).or_insert(level);
        *known = level.min(*known);
    };
    for kind in EventKind::ALL {
        let any = STATUSES.map(|status| level_and_name(kind, status));
        any.into_iter().for_each(|(level, name)| add(name, level));
    }
    for text in sources() {
        for (of, level) in [("error", Level::Error), ("warn", Level::Warn), ("info", Level::Info)] {
            for call in text.split(&format!("log::{of}!(")).skip(1) {
                let rest = call.trim_start().strip_prefix("event = \"");
                let name = rest.and_then(|r| r.split_once('"')).map(|(name, _)| name);
                add(name.unwrap_or_else(|| panic!("a line without an event: {call:.60}")), level);
            }
        }
    }
    all
}

/// The texts between pairs of `mark`.
fn between(text: &str, mark: char) -> impl Iterator<Item = &str> {
    text.split(mark).skip(1).step_by(2)
}

/// The cells of the first table below a heading, by row.
fn table<'a>(page: &'a str, heading: &str) -> Vec<Vec<&'a str>> {
    let (_, part) = page.split_once(heading).unwrap();
    let rows = part.lines().skip_while(|l| !l.starts_with('|')).take_while(|l| l.starts_with('|'));
    rows.skip(2).map(|l| l.split('|').skip(1).map(str::trim).collect()).collect()
}

#[test]
fn the_page_of_the_log_has_each_event_at_its_level() {
    let page = include_str!("../../../docs/serve-config.md");
    let (mut said, mut level) = (BTreeMap::new(), Level::Trace);
    for row in table(page, "\n## The log\n") {
        level = row[0].parse().unwrap_or(level);
        said.extend(between(row[1], '`').map(|name| (name.to_owned(), level)));
    }
    assert_eq!(said, logged());
}

#[test]
fn each_alarm_has_a_remedy_and_is_one() {
    let page = include_str!("../../../docs/operating.md");
    let (logged, sources) = (logged(), sources());
    let rows = table(page, "\n## Alarms\n");
    let first = || rows.iter().map(|row| row[0]);
    let named: Vec<&str> = first().flat_map(|cell| between(cell, '`')).collect();
    for name in &named {
        assert!(logged.get(*name).is_some_and(|l| *l <= Level::Warn), "{name} is no alarm");
    }
    for (name, _) in logged.iter().filter(|(_, level)| **level == Level::Error) {
        assert!(named.contains(&name.as_str()), "{name} has no remedy");
    }
    let names: Vec<&str> =
        STATUSES.iter().map(|s| s.name()).chain([Status::NoSpace.name()]).collect();
    for words in first().flat_map(|cell| between(cell, '*')) {
        let is_said = sources.iter().any(|text| text.contains(words)) || names.contains(&words);
        assert!(is_said, "nothing says `{words}`");
    }
    assert!(rows.iter().all(|row| !row[1].is_empty() && !row[2].is_empty()));
}
