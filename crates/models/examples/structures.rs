//! Tries structures of the 30 TB SMR disk, of its host and of its client on all tables of that disk at once, and says how far each
//! is from them: fitted to all of it, and by cross-validation.
//!
//!     cargo run --release -p zoneplug-models --example structures            # every structure: a quarter of an hour
//!     cargo run --release -p zoneplug-models --example structures 1-job/4M   # those whose names contain that
//!
//! A structure is a client (16 jobs of fio, or one that has all zones), the longest command, and what the disk does with writes
//! that wait in its queue. One set of numbers is for all tables: three are fitted to each structure (seek, cache, longest run),
//! each on a grid, by turns, by steps of one and two values as long as that gets better. The rate and the radius are set by cells that no structure changes.
//!
//! An error is the mean over a column of |ln(ours / published)|, in percent. *Fitted* is with all four columns in view. *Held out*
//! is of the column that the numbers were not fitted to. A gain is a figure of the single writer by the one beside it; their error
//! is that of the gains with all in view. Columns: sequential and random writes, of the baseline (b) and of the single writer (w).

use std::collections::HashMap;
use zoneplug_core::Error;
use zoneplug_devices::emu::timing::Profile;
use zoneplug_devices::spec::Spec;
use zoneplug_models::Workers;
use zoneplug_models::reproduce::{Simulation, mean, tables};
use zoneplug_models::time::{GEOMETRIES, Workload};

/// What the disk does with writes that wait in its queue.
const RULES: [(&str, &str); 12] = [
    ("nearest", "queued-fifo=0"),
    ("order", "destage=fifo"),
    ("order-from-2", "queued-fifo=2"),
    ("order-from-3", "queued-fifo=3"),
    ("order-from-4", "queued-fifo=4"),
    ("order-from-6", "queued-fifo=6"),
    ("order-from-8", "queued-fifo=8"),
    ("order-from-12", "queued-fifo=12"),
    ("runs-from-2", "queued-fifo=2,queued-runs=1"),
    ("nearest-of-2", "queued-fifo=2,queued-window=2"),
    ("nearest-of-4", "queued-fifo=2,queued-window=4"),
    ("nearest-of-8", "queued-fifo=2,queued-window=8"),
];
const TRANSFERS: [&str; 3] = ["1M", "2M", "4M"];
const CLIENTS: [(&str, u32); 2] = [("16-jobs", 16), ("1-job", 1)];

/// The numbers that are fitted: values in the order in which they are tried, and where each begins.
const NUMBERS: [(&str, &[&str], usize); 3] = [
    (
        "seek-sqrt",
        &[
            "6ms", "7ms", "8ms", "8500us", "9ms", "9500us", "10ms", "10500us", "11ms", "11500us",
            "12ms", "13ms", "14ms",
        ],
        7,
    ),
    ("cache", &["6M", "9M", "12M", "15M", "18M", "21M", "24M", "32M"], 4),
    ("max-run", &["1M", "2M", "3M", "4M", "6M", "0"], 2),
];
/// Seeds that no table uses.
const SEEDS: [u64; 2] = [201, 202];
const COLUMNS: [&str; 4] = ["seq b", "seq w", "rnd b", "rnd w"];

type Numbers = [usize; 3];

struct Structure {
    name: String,
    jobs: u32,
    options: String,
}

fn structures() -> Vec<Structure> {
    let mut all = Vec::new();
    for (client, jobs) in CLIENTS {
        for transfer in TRANSFERS {
            for (rule, options) in RULES {
                let options = format!("max-transfer={transfer},{options}");
                all.push(Structure { name: format!("{client}/{transfer}/{rule}"), jobs, options });
            }
        }
    }
    all
}

/// A cell: its place among [`COLUMNS`], and what was published.
struct Cell {
    column: usize,
    simulation: Simulation,
    published: f64,
}

/// The cells of the tables of the 30 TB disk, for a client of so many jobs: column after column.
fn cells(jobs_of_client: u32) -> Result<Vec<Cell>, Error> {
    let (tables, mut all) = (tables()?, Vec::new());
    for (t, name) in ["smr30-seq", "smr30-random"].into_iter().enumerate() {
        let table = tables.iter().find(|t| t.name == name).expect("a published table");
        for (c, column) in ["baseline", "patched"].into_iter().enumerate() {
            let place = table.column(column).expect("a column of the table");
            for (r, row) in table.rows.iter().enumerate() {
                let mut simulation = Simulation::of(table, r, place)?;
                if let Workload::Random { jobs, .. } = &mut simulation.client.workload {
                    *jobs = jobs_of_client;
                }
                let published = row.cells[place].published.expect("a figure");
                all.push(Cell { column: 2 * t + c, simulation, published });
            }
        }
    }
    Ok(all)
}

/// A structure with its figures, as far as they are known.
struct Fit<'a> {
    structure: &'a Structure,
    cells: Vec<Cell>,
    known: HashMap<Numbers, Vec<f64>>,
}

impl Fit<'_> {
    fn new(structure: &Structure) -> Result<Fit<'_>, Error> {
        Ok(Fit { structure, cells: cells(structure.jobs)?, known: HashMap::new() })
    }

    /// ln(ours / published) of each cell.
    fn errors(&mut self, numbers: Numbers) -> Result<Vec<f64>, Error> {
        if let Some(known) = self.known.get(&numbers) {
            return Ok(known.clone());
        }
        let values =
            NUMBERS.iter().zip(numbers).map(|((key, grid, _), i)| format!("{key}={}", grid[i]));
        let values: Vec<String> = values.collect();
        let text = format!("sim-smr30,{},{}", self.structure.options, values.join(","));
        let mut spec = Spec::parse(&text)?;
        let profile =
            Profile::from_spec(&mut spec).expect("a profile that is part of the program")?;
        let mut errors = Vec::with_capacity(self.cells.len());
        for cell in &mut self.cells {
            cell.simulation.profile = profile.clone();
            let geometries = if cell.column == 0 { &GEOMETRIES[1..4] } else { &GEOMETRIES[2..3] };
            let seeds = if cell.simulation.client.draws() { &SEEDS[..] } else { &SEEDS[..1] };
            let repeats = geometries.iter().flat_map(|&ppm| seeds.iter().map(move |&s| (ppm, s)));
            let ours = mean(&cell.simulation.over(&repeats.collect::<Vec<_>>())?);
            errors.push((ours / cell.published).ln());
        }
        self.known.insert(numbers, errors.clone());
        Ok(errors)
    }

    /// The mean error of each column, in percent.
    fn by_column(&mut self, numbers: Numbers) -> Result<[f64; 4], Error> {
        let errors = self.errors(numbers)?;
        let mut sums = [(0.0, 0.0); 4];
        for (cell, e) in self.cells.iter().zip(errors) {
            let (sum, n) = &mut sums[cell.column];
            (*sum, *n) = (*sum + 100.0 * e.abs(), *n + 1.0);
        }
        Ok(sums.map(|(sum, n)| sum / n))
    }

    /// The numbers that fit the columns best that are not held out.
    fn fit(&mut self, held_out: Option<usize>) -> Result<Numbers, Error> {
        let mut best = NUMBERS.map(|(_, _, start)| start);
        let cost = |fit: &mut Self, numbers| -> Result<f64, Error> {
            let all = fit.by_column(numbers)?;
            Ok((0..4).filter(|c| Some(*c) != held_out).map(|c| all[c]).sum())
        };
        let mut least = cost(self, best)?;
        loop {
            let before = best;
            for n in 0..NUMBERS.len() {
                // The neighbours of the best value, as long as one is better.
                let mut moved = true;
                while std::mem::take(&mut moved) {
                    for step in [-1, 1, -2, 2] {
                        let mut numbers = best;
                        let Some(value) = best[n].checked_add_signed(step) else { continue };
                        if value >= NUMBERS[n].1.len() {
                            continue;
                        }
                        numbers[n] = value;
                        let it = cost(self, numbers)?;
                        if it < least - 1e-9 {
                            (least, best, moved) = (it, numbers, true);
                        }
                    }
                }
            }
            if best == before {
                return Ok(best);
            }
        }
    }

    /// The mean error of the gains, in percent.
    fn gains(&mut self, numbers: Numbers) -> Result<f64, Error> {
        let errors = self.errors(numbers)?;
        let of = |writer| {
            let cells = self.cells.iter().zip(&errors);
            cells.filter(move |(c, _)| c.column % 2 == writer).map(|(_, e)| *e)
        };
        let all: Vec<f64> = of(0).zip(of(1)).map(|(b, w)| (w - b).abs()).collect();
        Ok(100.0 * all.iter().sum::<f64>() / all.len() as f64)
    }
}

/// The columns that are held out, one after the other. Any structure gives that of sequential writes with the single writer.
const HELD_OUT: [usize; 3] = [0, 2, 3];

/// A line of the table, and by what it is sorted: the mean error of columns that were held out.
fn line(structure: &Structure) -> Result<(f64, String), Error> {
    let mut fit = Fit::new(structure)?;
    let numbers = fit.fit(None)?;
    let (fitted, gains) = (fit.by_column(numbers)?, fit.gains(numbers)?);
    let mut held_out = Vec::with_capacity(HELD_OUT.len());
    for column in HELD_OUT {
        let numbers = fit.fit(Some(column))?;
        held_out.push(fit.by_column(numbers)?[column]);
    }
    let mean = held_out.iter().sum::<f64>() / held_out.len() as f64;
    let values = NUMBERS.iter().zip(numbers).map(|((_, grid, _), i)| format!("{:>7}", grid[i]));
    let values = values.collect::<Vec<_>>().join(" ");
    let four = fitted.map(|x| format!("{x:5.1}")).join(" ");
    let three = held_out.iter().map(|x| format!("{x:5.1}")).collect::<Vec<_>>().join(" ");
    let text = format!("{:20} {values} {four} {three} {mean:5.1} {gains:5.1}", structure.name);
    Ok((mean, text))
}

fn main() -> Result<(), Error> {
    let part = std::env::args().nth(1).unwrap_or_default();
    let all: Vec<Structure> = structures().into_iter().filter(|s| s.name.contains(&part)).collect();
    let workers = Workers::all(&|| false);
    let mut lines = workers.spread(all.len(), |i| {
        let line = line(&all[i])?;
        eprintln!("{}", line.1);
        Ok(line)
    })?;
    lines.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.cmp(&b.1)));
    let keys = NUMBERS
        .map(|(key, ..)| key.trim_start_matches("seek-"))
        .map(|k| format!("{k:>7}"))
        .join(" ");
    let columns = |of: &[usize]| of.iter().map(|c| COLUMNS[*c]).collect::<Vec<_>>().join(" ");
    println!("{:20} {:23} fitted {:16} held out", "", "", "");
    let (fitted, held_out) = (columns(&[0, 1, 2, 3]), columns(&HELD_OUT));
    println!("{:20} {keys} {fitted} {held_out}  mean gains", "structure");
    for (_, text) in lines {
        println!("{text}");
    }
    Ok(())
}
