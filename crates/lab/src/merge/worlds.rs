//! Shards of a simulation: adds their counts, and computes the figures of the whole run from the sums.

use super::{Input, Part, Parts, no_results};
use crate::failure::Failure;
use crate::json;
use crate::sim::{Of, Shard, Summary, count, missing};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Write;
use std::ops::RangeInclusive;
use zoneplug_sim::{Summary as Figures, Tally};

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

/// The results of a shard.
struct Results {
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
fn documents(input: &Input) -> Result<Vec<(Shard, Results)>, Failure> {
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
        all.push((shard, Results { summary, error: document.error }));
    }
    if all.is_empty() { Err(no_results(&input.name)) } else { Ok(all) }
}

/// The command that runs a shard.
fn command(seeds: &RangeInclusive<u64>, Shard { number, of }: Shard) -> String {
    let (first, last) = (seeds.start(), seeds.end());
    format!("zoneplug-lab sim --seeds {first}..{last} --shard {number}/{of} --json")
}

/// Sorts the results by shard. Fails if one is of another run or there twice.
fn sorted(inputs: &[Input]) -> Result<Parts<Results>, Failure> {
    let run = |shard: Shard, s: &Summary| {
        let (first, last) = (s.first_seed, s.last_seed);
        format!("{} shards of the seeds {first}..{last} (zoneplug {})", shard.of, s.zoneplug)
    };
    let mut parts: Parts<Results> = Parts(BTreeMap::new());
    for input in inputs {
        for (shard, results) in documents(input)? {
            let own = run(shard, &results.summary);
            if let Some((&shard, other)) = parts.0.first_key_value() {
                let (name, others) = (&other.name, run(shard, &other.results.summary));
                if own != others {
                    let what = format!("{name} is of {others}, but {} is of {own}", input.name);
                    return Err(
                        Failure::usage(what).hint("the shards of one run, made by one version")
                    );
                }
            }
            parts.put(shard, input.name.clone(), results)?;
        }
    }
    Ok(parts)
}

/// Fails if a shard is missing, or stopped before its last seed for another reason than a broken promise.
fn check(parts: &Parts<Results>, seeds: &RangeInclusive<u64>, of: u64) -> Result<(), Failure> {
    parts.all_there(of, |first, more| {
        let then = if more { ", and the others" } else { "" };
        format!("{}{then}", command(seeds, first))
    })?;
    for (shard, part) in &parts.0 {
        let figures = &part.results.summary.figures;
        let (ran, all) = (figures.worlds, count(&shard.seeds(seeds)?));
        if figures.failed_seed.is_none() && u128::from(ran) != all {
            let what = format!("{}: {shard} has run {ran} of its {all} seeds", part.name);
            return Err(Failure::usage(what).hint(command(seeds, *shard)));
        }
    }
    Ok(())
}

pub(super) fn merge(inputs: &[Input], as_json: bool, out: &mut dyn Write) -> Result<(), Failure> {
    let parts = sorted(inputs)?;
    let Some((&Shard { of, .. }, Part { name, results: one })) = parts.0.first_key_value() else {
        return Ok(());
    };
    let (made_by, version) = (&one.summary.zoneplug, env!("CARGO_PKG_VERSION"));
    if made_by != version {
        let what = format!("{name} was made by zoneplug {made_by}, and this is {version}");
        return Err(Failure::usage(what).hint(format!("zoneplug-lab merge of version {made_by}")));
    }
    let (first, last) = (one.summary.first_seed, one.summary.last_seed);
    if first > last {
        return Err(no_results(name));
    }
    let seeds = first..=last;
    check(&parts, &seeds, of)?;
    let mut tally = Tally::default();
    for Part { name, results } in parts.0.values() {
        results.summary.figures.add_to(&mut tally).ok_or_else(|| no_results(name))?;
    }
    let results = || parts.0.values().map(|p| &p.results);
    // Shards have their seeds in order, so the first shard that failed has the lowest failing seed.
    let failed = results().find(|p| p.summary.figures.failed_seed.is_some());
    let seconds = results().map(|p| p.summary.figures.elapsed_s).sum();
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
fn broken(part: &Results) -> Failure {
    let seed = part.summary.figures.failed_seed.unwrap_or_default();
    match &part.error {
        Some(error) => Failure::io(error.message.clone()).hint(error.hint.clone()),
        None => Failure::io(format!("seed {seed} broke a promise"))
            .hint(format!("zoneplug-lab sim --seeds {seed}..{seed}")),
    }
}
