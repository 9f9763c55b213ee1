//! Shards of a sweep: a header, then a line for each cell. The merged file has all lines unchanged, in the order of
//! the cells.

use super::{Input, Part, Parts, no_results};
use crate::failure::Failure;
use crate::sim::Shard;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Write;

/// The supported version of the file form.
const FORM: u32 = 1;

/// The first line of a file, with its keys in the order in which the Python package writes them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Header {
    /// Number of cells of all shards together.
    cells: u64,
    /// The function that was run.
    run: String,
    shard: Option<Shard>,
    zoneplug: String,
    zoneplug_sweep: u32,
}

#[derive(Debug, Deserialize)]
struct Line {
    index: u64,
    #[serde(rename = "key")]
    _key: String,
    #[serde(rename = "result")]
    _result: serde::de::IgnoredAny,
}

fn header(line: &str) -> Option<Header> {
    let header: Option<Header> = serde_json::from_str(line).ok();
    header.filter(|h| h.zoneplug_sweep == FORM)
}

/// Whether this line is the header of a sweep's file.
pub(super) fn is_header(line: &str) -> bool {
    header(line).is_some()
}

/// The lines of one shard, by the number of the cell.
type Lines<'a> = BTreeMap<u64, &'a str>;

pub(super) fn merge(inputs: &[Input], out: &mut dyn Write) -> Result<(), Failure> {
    let mut whole: Option<Header> = None;
    let mut parts = Parts(BTreeMap::new());
    for input in inputs {
        let name = input.name.as_str();
        let mut current = None;
        for (at, line) in input.text.split_inclusive('\n').enumerate() {
            let Some(line) = line.strip_suffix('\n') else {
                // The line is incomplete, so its cell has no result yet.
                break;
            };
            if let Some(h) = header(line) {
                let shard = h.shard.ok_or_else(|| {
                    Failure::usage(format!("{name} has a whole sweep, not a shard of one"))
                        .hint("the files of sweeps with shard=(i, n)")
                })?;
                let h = Header { shard: Some(Shard { number: 0, ..shard }), ..h };
                if whole.get_or_insert_with(|| h.clone()) != &h {
                    return Err(Failure::usage(format!(
                        "{name} is of another sweep than those before"
                    ))
                    .hint(
                        "the shards of one sweep: its cells, run and version, and as many shards",
                    ));
                }
                current = Some((shard, parts.put(shard, name.to_owned(), Lines::new())?));
                continue;
            }
            let wrong = || {
                Failure::usage(format!("{name}: line {} is not one of this sweep", at + 1))
                    .hint("run its shard again, with a new file")
            };
            let (shard, lines) = current.as_mut().ok_or_else(|| no_results(name))?;
            let cells = whole.as_ref().map_or(0, |h| h.cells);
            let Line { index, .. } = serde_json::from_str(line).map_err(|_| wrong())?;
            let is_its_own = index < cells && index % shard.of == shard.number.wrapping_sub(1);
            if !is_its_own || lines.insert(index, line).is_some() {
                return Err(wrong());
            }
        }
        if current.is_none() {
            return Err(no_results(name));
        }
    }
    let Some(header) = whole else { return Ok(()) };
    let of = header.shard.map_or(1, |s| s.of);
    check(&header, of, &parts)?;
    let header = Header { shard: None, ..header };
    serde_json::to_writer(&mut *out, &header)?;
    writeln!(out)?;
    let shards: Vec<&Part<Lines>> = parts.0.values().collect();
    for index in 0..header.cells {
        let shard = usize::try_from(index % of).ok().and_then(|n| shards.get(n));
        if let Some(line) = shard.and_then(|p| p.results.get(&index)) {
            writeln!(out, "{line}")?;
        }
    }
    Ok(())
}

/// Fails if a shard is missing, or lacks the result of one of its cells.
fn check(header: &Header, of: u64, parts: &Parts<Lines>) -> Result<(), Failure> {
    parts.all_there(of, |first, _| {
        format!("the same sweep with shard=({}, {of}) and a file of its own", first.number)
    })?;
    for (shard, part) in &parts.0 {
        // The shard has cells number - 1, number - 1 + of, and so on.
        let all = (header.cells + of - shard.number) / of;
        let found = part.results.len() as u64;
        if found != all {
            let what = format!("{}: {shard} has results of {found} of its {all} cells", part.name);
            return Err(
                Failure::usage(what).hint("the same sweep with that file: it runs what is missing")
            );
        }
    }
    Ok(())
}
