//! Sets the six numbers of the 30 TB SMR disk from six cells of the published tables, one after the other.
//!
//!     cargo run --release -p zoneplug-models --example calibrate
//!     cargo run --release -p zoneplug-models --example calibrate check
//!
//! The second form fails if the file of the profile has other values.
//!
//! The order matters: each cell depends on the numbers set before it and, hardly, on those set after it. It begins with
//! guesses that are off, tries every value of a grid, and keeps the one that comes nearest. Random cells are means over
//! seeds that no table uses: what a zone gets depends on where it is, so few seeds would calibrate to their draws.
//! All other cells are goodness of fit: see the example `tables`. For a drive of one's own replace the published figures.

use zoneplug_core::Error;
use zoneplug_devices::emu::timing::Profile;
use zoneplug_devices::spec::Spec;
use zoneplug_models::time::{Cell, Layer, Sample, Table};

/// A number, the cell that sets it, and the values that are tried.
struct Step {
    key: &'static str,
    table: Table,
    layer: Layer,
    cell: &'static str,
    grid: Vec<String>,
}

/// Values before their step, all of them wrong.
const GUESSES: [(&str, &str); 6] = [
    ("outer-rate", "260MB/s"),
    ("inner-radius", "0.5"),
    ("seek-sqrt", "9ms"),
    ("cache", "64M"),
    ("max-run", "16M"),
    ("max-transfer", "4M"),
];

fn steps() -> Vec<Step> {
    use Layer::{Baseline, SingleWriter};
    use Table::{Smr30Random as Random, Smr30Sequential as Sequential};
    let texts = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
    let step = |key, table, layer, cell, grid| Step { key, table, layer, cell, grid };
    vec![
        step(
            "outer-rate",
            Sequential,
            Baseline,
            "1",
            (236..=256).map(|n| format!("{n}MB/s")).collect(),
        ),
        step(
            "inner-radius",
            Random,
            SingleWriter,
            "1",
            (45..=65).map(|n| format!("0.{n}")).collect(),
        ),
        step(
            "seek-sqrt",
            Random,
            Baseline,
            "32",
            (16..=30).map(|n| format!("{}us", n * 500)).collect(),
        ),
        step(
            "cache",
            Random,
            SingleWriter,
            "64",
            texts(&["4M", "8M", "12M", "16M", "18M", "20M", "22M", "24M", "32M", "64M", "128M"]),
        ),
        step(
            "max-run",
            Random,
            SingleWriter,
            "2",
            texts(&["1M", "2M", "3M", "4M", "5M", "6M", "8M", "16M"]),
        ),
        step("max-transfer", Sequential, Baseline, "32", texts(&["1M", "2M", "3M", "4M"])),
    ]
}

fn profile(values: &[(&str, String)]) -> Result<Profile, Error> {
    let options: String = values.iter().map(|(k, v)| format!(",{k}={v}")).collect();
    let mut spec = Spec::parse(&format!("sim-smr30{options}"))?;
    Profile::from_spec(&mut spec).expect("a profile that is part of the program")
}

fn main() -> Result<(), Error> {
    let check = std::env::args().any(|a| a == "check");
    let mut values: Vec<_> = GUESSES.iter().map(|(k, v)| (*k, (*v).to_owned())).collect();
    let cells = Cell::smr30();
    let seeds: Vec<u64> = (101..=124).collect();
    let in_file = Profile::builtin_text("smr30").expect("it is part of the program");
    for (i, step) in steps().iter().enumerate() {
        let line = |l: &&str| l.starts_with(&format!("{} = ", step.key));
        let now = in_file.lines().find(line).and_then(|l| l.split('#').next()).unwrap_or_default();
        let is = |c: &&Cell| c.table == step.table && c.layer == step.layer && c.name == step.cell;
        let cell = cells.iter().find(is).expect("a cell of the tables");
        let mut tried: Vec<(f64, &String, Sample)> = Vec::with_capacity(step.grid.len());
        for value in &step.grid {
            values[i].1.clone_from(value);
            let profile = profile(&values)?;
            let sample = match step.table {
                Table::Smr30Sequential => cell.sample(&profile)?,
                _ => cell.sample_over(&profile, &[1_000_000], &seeds)?,
            };
            tried.push(((sample.mean() - cell.published).abs(), value, sample));
        }
        // What was published is rounded: values that differ by less are a tie, and the first of them stays.
        let least = tried.iter().map(|(off, ..)| *off).fold(f64::INFINITY, f64::min);
        let best = tried.into_iter().find(|(off, ..)| *off < least + 0.5);
        let (_, value, sample) = best.expect("a grid has values");
        values[i].1.clone_from(value);
        if check && now.trim() != format!("{} = {value}", step.key) {
            return Err(Error::invalid(format!("the file has {}, not {value}", now.trim()))
                .hint("run the example without check, and copy what it prints"));
        }
        println!(
            "{} = {value} # {:?}, {:?}, {} = {}: {:.1} ± {:.1}; in the file: {}",
            step.key,
            step.table,
            step.layer,
            step.cell,
            cell.published,
            sample.mean(),
            sample.standard_error(),
            now.trim()
        );
    }
    Ok(())
}
