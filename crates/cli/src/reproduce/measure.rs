//! Measures the cells of tables that are about the processor, on a disk that does nothing: each row's columns by turns,
//! several times, so that changes of load on a shared machine affect all. Each repeat opens its disks anew, because where their
//! memory lies can be a third of a figure; it is compared with that of the first column. Rates are per processor time. The
//! results hold for this machine and this build.

use crate::bench::arena::Arena;
use crate::bench::group::Group;
use crate::disk::Named;
use crate::failure::Failure;
use crate::interrupt::is_asked;
use std::time::Duration;
use zoneplug_models::layer_name;
use zoneplug_models::reproduce::{
    Cell, CellRuns, Expect, Row, Run, Table, measured, measured_name,
};

/// How often a figure is measured, columns by turns.
const REPEATS: u32 = 5;

/// How many figures a table has.
pub(crate) fn figures(table: &Table) -> usize {
    table.rows.iter().flat_map(|r| &r.cells).filter(|c| is_run(c)).count()
}

fn is_run(cell: &Cell) -> bool {
    !matches!(cell.expect, Expect::Not(_))
}

/// A column's disk, and how it is opened. Options may have layers in front, as in `po2@zone-size=96M`.
fn disk(table: &Table, options: &str) -> Result<(Named, zoneplug_core::disk::DiskConfig), Failure> {
    let (layers, options) = options.rfind('@').map_or(("", options), |i| options.split_at(i + 1));
    let named = Named::open(&format!("{layers}{},{options}", table.drive))?;
    let config = named.config.clone();
    Ok((named, config))
}

/// Measures a table, each figure for `each`; `done` after each repeat of one, with its length.
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

/// Measures the columns of a row, one after the other, each on a disk of its own, which is opened for that.
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
        // This one only warms up.
        group.slice(slice / 4, false)?;
        group.slice(slice, true)?;
        let m = group.measure();
        if m.bios == 0 {
            // A signal came before.
            continue;
        }
        if m.all_refused() > 0 {
            let what = format!("{} BIOs of {} were refused", m.all_refused(), row.name);
            return Err(Failure::io(what).hint("this is a bug of the layer, or of the table"));
        }
        // Per second of processor time, so that other processes do not count.
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
