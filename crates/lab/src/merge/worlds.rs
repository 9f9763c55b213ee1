//! Shards of a simulation: adds their counts, and computes the figures of the whole run from the sums.

use super::{Input, list, no_results};
use crate::failure::Failure;
use crate::json;
use crate::sim::{Of, Shard, Summary, count, missing};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Write;
use std::ops::RangeInclusive;
use zoneplug_models::Summary as Figures;
use zoneplug_sim::Tally;

/// The `"error"` of a document.
#[derive(Debug, Deserialize)]
struct Wrong {
    message: String,
    hint: String,
}

/// A document of `zoneplug-lab sim`. A run that failed before it had results has only `error`.
#[derive(Debug, Deserialize)]
struct Document {
    schema: u32,
    error: Option<Wrong>,
    #[serde(flatten)]
    figures: serde_json::Map<String, serde_json::Value>,
}

/// The results of a shard, and the name of their file.
struct Part {
    name: String,
    shard: Shard,
    summary: Summary,
    error: Option<Wrong>,
}

/// The document of the whole run.
#[derive(Debug, Serialize)]
struct Merged<'a> {
    #[serde(flatten)]
    summary: &'a Summary,
    shards: u64,
}

/// The documents of a file: one, or several one after the other.
fn parts(input: &Input) -> Result<Vec<Part>, Failure> {
    let documents = serde_json::Deserializer::from_str(&input.text).into_iter::<Document>();
    let mut all = Vec::new();
    for document in documents {
        let document = document.map_err(|_| no_results(&input.name))?;
        let name = input.name.clone();
        if document.schema != json::SCHEMA {
            return Err(no_results(&name));
        }
        if let (Some(error), None) = (&document.error, document.figures.get("worlds")) {
            return Err(Failure::usage(format!("{name} has no figures: {}", error.message))
                .hint(error.hint.clone()));
        }
        let figures = serde_json::Value::Object(document.figures);
        let summary: Summary = serde_json::from_value(figures).map_err(|_| no_results(&name))?;
        let Some(shard) = summary.shard else {
            return Err(Failure::usage(format!("{name} has a whole run, not a shard of one"))
                .hint("the results of zoneplug-lab sim with --shard I/N"));
        };
        all.push(Part { name, shard, summary, error: document.error });
    }
    if all.is_empty() { Err(no_results(&input.name)) } else { Ok(all) }
}

/// The command that runs a shard.
fn command(seeds: &RangeInclusive<u64>, number: u64, of: u64) -> String {
    let (first, last) = (seeds.start(), seeds.end());
    format!("zoneplug-lab sim --seeds {first}..{last} --shard {number}/{of} --json")
}

/// Sorts the parts by number. Fails if one is of another run or there twice.
fn sorted(parts: Vec<Part>) -> Result<BTreeMap<u64, Part>, Failure> {
    let of_one_run = |p: &Part| {
        let s = &p.summary;
        (s.zoneplug.clone(), s.first_seed, s.last_seed, p.shard.of)
    };
    let mut by_number: BTreeMap<u64, Part> = BTreeMap::new();
    for part in parts {
        if let Some(other) = by_number.values().next()
            && of_one_run(other) != of_one_run(&part)
        {
            let run = |p: &Part| {
                let (version, first, last, of) = of_one_run(p);
                format!(
                    "{} is of {of} shards of the seeds {first}..{last} (zoneplug {version})",
                    p.name
                )
            };
            return Err(Failure::usage(format!("{}, but {}", run(other), run(&part)))
                .hint("the shards of one run, made by one version"));
        }
        if let Some(other) = by_number.get(&part.shard.number) {
            let names = format!("in {} and in {}", other.name, part.name);
            return Err(Failure::usage(format!("{} is there twice: {names}", part.shard))
                .hint("leave one of them out"));
        }
        by_number.insert(part.shard.number, part);
    }
    Ok(by_number)
}

/// Fails if a shard is missing, or stopped before its last seed for another reason than a broken promise.
fn check(parts: &BTreeMap<u64, Part>, seeds: &RangeInclusive<u64>, of: u64) -> Result<(), Failure> {
    // At most 1000 missing shards are listed, however large `of` is.
    let absent: Vec<u64> = (1..=of).filter(|n| !parts.contains_key(n)).take(1000).collect();
    if let [first, rest @ ..] = &absent[..] {
        let (is, all) = if rest.is_empty() { ("shard", " is") } else { ("shards", " are") };
        let then = if rest.is_empty() { "" } else { ", and the others" };
        return Err(Failure::usage(format!("{is} {} of {of}{all} missing", list(&absent)))
            .hint(format!("{}{then}", command(seeds, *first, of))));
    }
    for part in parts.values() {
        let (ran, all) = (part.summary.figures.worlds, count(&part.shard.seeds(seeds)?));
        if part.summary.figures.failed_seed.is_none() && u128::from(ran) != all {
            let what = format!("{}: {} has run {ran} of its {all} seeds", part.name, part.shard);
            return Err(Failure::usage(what).hint(command(seeds, part.shard.number, of)));
        }
    }
    Ok(())
}

pub(super) fn merge(inputs: &[Input], as_json: bool, out: &mut dyn Write) -> Result<(), Failure> {
    let mut all = Vec::new();
    for input in inputs {
        all.extend(parts(input)?);
    }
    let parts = sorted(all)?;
    let Some(one) = parts.values().next() else { return Ok(()) };
    let version = env!("CARGO_PKG_VERSION");
    if one.summary.zoneplug != version {
        let what = format!("{} was made by zoneplug {}", one.name, one.summary.zoneplug);
        return Err(Failure::usage(format!("{what}, and this is {version}"))
            .hint(format!("zoneplug-lab merge of version {}", one.summary.zoneplug)));
    }
    let (first, last, of) = (one.summary.first_seed, one.summary.last_seed, one.shard.of);
    if first > last {
        return Err(no_results(&one.name));
    }
    let seeds = first..=last;
    check(&parts, &seeds, of)?;
    let mut tally = Tally::default();
    for part in parts.values() {
        part.summary.figures.add_to(&mut tally).ok_or_else(|| no_results(&part.name))?;
    }
    // Shards have their seeds in order, so the first shard that failed has the lowest failing seed.
    let failed = parts.values().find(|p| p.summary.figures.failed_seed.is_some());
    let seconds = parts.values().map(|p| p.summary.figures.elapsed_s).sum();
    let whole = Of { seeds, shard: None };
    let failed_seed = failed.and_then(|p| p.summary.figures.failed_seed);
    let figures = Figures::new(&tally, seconds, false, failed_seed);
    let s = Summary::new(&whole, figures);
    let failure = failed.map_or_else(|| missing(&tally), |p| Some(broken(p)));
    if as_json {
        return json::end(out, &Merged { summary: &s, shards: of }, failure);
    }
    s.show(&tally, out)?;
    writeln!(out, "{of} shards of the seeds {first}..{last}; the time is that of all of them")?;
    failure.map_or(Ok(()), Err)
}

/// The failure that a shard's broken promise gives the whole run.
fn broken(part: &Part) -> Failure {
    let seed = part.summary.figures.failed_seed.unwrap_or_default();
    match &part.error {
        Some(error) => Failure::io(error.message.clone()).hint(error.hint.clone()),
        None => Failure::io(format!("seed {seed} broke a promise"))
            .hint(format!("zoneplug-lab sim --seeds {seed}..{seed}")),
    }
}
