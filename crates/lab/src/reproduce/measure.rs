//! Measures cells of tables about processor time, on a disk that does nothing. The columns of a row take turns
//! several times, so that changes of load on a shared machine affect all of them. Each repeat opens its disks anew,
//! because the place of their memory can change a figure by a third, and is compared with the first column. Rates are
//! per second of processor time. The results hold for this machine and this build.

use crate::disk::Named;
use crate::failure::Failure;
use crate::interrupt::is_asked;
use crate::load::arena::Arena;
use crate::load::group::Group;
use std::time::Duration;
use zoneplug_models::layer_name;
use zoneplug_models::reproduce::{
    Cell, CellRuns, Expect, Row, Run, Table, measured, measured_name,
};

/// Number of times that a figure is measured.
const REPEATS: u32 = 5;

/// The number of figures in a table.
pub(crate) fn figures(table: &Table) -> usize {
    table.rows.iter().flat_map(|r| &r.cells).filter(|c| is_run(c)).count()
}

fn is_run(cell: &Cell) -> bool {
    !matches!(cell.expect, Expect::Not(_))
}

/// Opens a column's disk. Options may have layers in front, as in `po2@zone-size=96M`.
fn disk(table: &Table, options: &str) -> Result<(Named, zoneplug_core::disk::DiskConfig), Failure> {
    let (layers, options) = options.rfind('@').map_or(("", options), |i| options.split_at(i + 1));
    let named = Named::open(&format!("{layers}{},{options}", table.drive))?;
    let config = named.config.clone();
    Ok((named, config))
}

/// Measures a table, each figure for `each`. Calls `done` with the length of each repeat of a figure.
pub(crate) fn table(
    table: &Table,
    each: Duration,
    arena: &mut Arena,
    done: impl Fn(Duration),
) -> Result<Vec<CellRuns>, Failure> {
    let mut all = Vec::new();
    for row in &table.rows {
        let first = all.len();
        for (cell, column) in row.cells.iter().zip(&table.columns) {
            let (work, jobs) = measured(cell.client)?;
            let mut runs = CellRuns { client: measured_name(work, jobs), ..CellRuns::default() };
            if is_run(cell) {
                runs.layer = layer_name(&disk(table, column.options)?.1, false);
            }
            all.push(runs);
        }
        for repeat in (1..=REPEATS).take_while(|_| !is_asked()) {
            for (cell, run) in repeat_row(table, row, repeat, each / REPEATS, arena)? {
                all[first + cell].runs.push(run);
                done(each / REPEATS);
            }
        }
    }
    Ok(all)
}

/// Measures the columns of a row, one after the other, each on a newly opened disk.
fn repeat_row(
    table: &Table,
    row: &Row,
    repeat: u32,
    slice: Duration,
    arena: &mut Arena,
) -> Result<Vec<(usize, Run)>, Failure> {
    let mut runs = Vec::new();
    for (n, (cell, column)) in row.cells.iter().zip(&table.columns).enumerate() {
        if !is_run(cell) {
            continue;
        }
        let (work, jobs) = measured(cell.client)?;
        let (named, config) = disk(table, column.options)?;
        let mut group = Group::new(&named, config, work, jobs, arena)?;
        // The first slice only warms up.
        group.run_slice(slice / 4, false)?;
        group.run_slice(slice, true)?;
        let m = group.measure();
        if m.bios == 0 {
            // A signal came before the measurement.
            continue;
        }
        if m.all_refused() > 0 {
            let what = format!("{} BIOs of {} were refused", m.all_refused(), row.name);
            return Err(Failure::io(what).hint("this is a bug of the layer, or of the table"));
        }
        // The rate per second of processor time, so that other processes do not count.
        let per_s = 1e9 / m.cpu_ns_per_bio.max(1e-3);
        let block = f64::from(work.block_sectors) * 512.0;
        let value = if row.unit == "MB/s" { per_s * block / 1e6 } else { per_s / 1e3 };
        let p99_ms = m.latency.p99_ns as f64 / 1e6;
        runs.push((
            n,
            Run {
                geometry_ppm: 1_000_000,
                seed: u64::from(repeat),
                value,
                p99_ms,
                max_ms: p99_ms,
                command_bytes: block,
            },
        ));
    }
    Ok(runs)
}
