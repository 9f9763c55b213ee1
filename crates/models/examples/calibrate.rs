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
use zoneplug_models::reproduce::{Run, Simulation, Table, mean, standard_error, tables};

/// A number, the cell that sets it, and the values that are tried.
struct Step {
    key: &'static str,
    table: &'static str,
    column: &'static str,
    row: &'static str,
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

const SEQUENTIAL: &str = "smr30-seq";

fn steps() -> Vec<Step> {
    const RANDOM: &str = "smr30-random";
    let texts = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
    let step = |key, table, column, row, grid| Step { key, table, column, row, grid };
    vec![
        step(
            "outer-rate",
            SEQUENTIAL,
            "baseline",
            "1",
            (236..=256).map(|n| format!("{n}MB/s")).collect(),
        ),
        step("inner-radius", RANDOM, "patched", "1", (45..=65).map(|n| format!("0.{n}")).collect()),
        step(
            "seek-sqrt",
            RANDOM,
            "baseline",
            "32",
            (16..=30).map(|n| format!("{}us", n * 500)).collect(),
        ),
        step(
            "cache",
            RANDOM,
            "patched",
            "64",
            texts(&["4M", "8M", "12M", "16M", "18M", "20M", "22M", "24M", "32M", "64M", "128M"]),
        ),
        step(
            "max-run",
            RANDOM,
            "patched",
            "2",
            texts(&["1M", "2M", "3M", "4M", "5M", "6M", "8M", "16M"]),
        ),
        step("max-transfer", SEQUENTIAL, "baseline", "32", texts(&["1M", "2M", "3M", "4M"])),
    ]
}

fn profile(values: &[(&str, String)]) -> Result<Profile, Error> {
    let options: String = values.iter().map(|(k, v)| format!(",{k}={v}")).collect();
    let mut spec = Spec::parse(&format!("sim-smr30{options}"))?;
    Profile::from_spec(&mut spec).expect("a profile that is part of the program")
}

/// The cell of a step, and what was published.
fn cell(tables: &[Table], step: &Step) -> Result<(Simulation, f64), Error> {
    let table = tables.iter().find(|t| t.name == step.table).expect("a table");
    let row = table.rows_of(step.row)[0];
    let column = table.column(step.column).expect("a column of the table");
    let published = table.rows[row].cells[column].published.expect("a figure");
    Ok((Simulation::of(table, row, column)?, published))
}

fn main() -> Result<(), Error> {
    let check = std::env::args().any(|a| a == "check");
    let mut values: Vec<_> = GUESSES.iter().map(|(k, v)| (*k, (*v).to_owned())).collect();
    let tables = tables()?;
    let seeds: Vec<(u32, u64)> = (101..=124).map(|seed| (1_000_000, seed)).collect();
    let in_file = Profile::builtin_text("smr30").expect("it is part of the program");
    for (i, step) in steps().iter().enumerate() {
        let line = |l: &&str| l.starts_with(&format!("{} = ", step.key));
        let now = in_file.lines().find(line).and_then(|l| l.split('#').next()).unwrap_or_default();
        let (mut cell, published) = cell(&tables, step)?;
        let mut tried: Vec<(f64, &String, Vec<Run>)> = Vec::with_capacity(step.grid.len());
        for value in &step.grid {
            values[i].1.clone_from(value);
            cell.profile = profile(&values)?;
            let runs = match step.table {
                SEQUENTIAL => cell.over(&cell.repeats())?,
                _ => cell.over(&seeds)?,
            };
            tried.push(((mean(&runs) - published).abs(), value, runs));
        }
        // What was published is rounded: values that differ by less are a tie, and the first of them stays.
        let least = tried.iter().map(|(off, ..)| *off).fold(f64::INFINITY, f64::min);
        let best = tried.into_iter().find(|(off, ..)| *off < least + 0.5);
        let (_, value, runs) = best.expect("a grid has values");
        values[i].1.clone_from(value);
        if check && now.trim() != format!("{} = {value}", step.key) {
            return Err(Error::invalid(format!("the file has {}, not {value}", now.trim()))
                .hint("run the example without check, and copy what it prints"));
        }
        println!(
            "{} = {value} # {}, {}, {} = {}: {:.1} ± {:.1}; in the file: {}",
            step.key,
            step.table,
            step.column,
            step.row,
            published,
            mean(&runs),
            standard_error(&runs),
            now.trim()
        );
    }
    Ok(())
}
