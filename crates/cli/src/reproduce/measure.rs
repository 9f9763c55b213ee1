//! Measures the cells of tables that are about the processor, on a disk that does nothing: each row's columns by turns
//! in short slices, so that changes of load on a shared machine affect all. A slice is a repeat, and is compared with that of
//! the first column. Rates are per processor time. The results hold for this machine and this build.

use crate::bench::arena::Arena;
use crate::bench::group::Group;
use crate::disk::Named;
use crate::failure::Failure;
use crate::interrupt::is_asked;
use std::time::Duration;
use zoneplug_models::layer_name;
use zoneplug_models::reproduce::{CellRuns, Expect, Run, Table, measured, measured_name};

/// Slices of a figure, columns by turns.
const SLICES: u32 = 5;

/// How many figures a table has.
pub(crate) fn figures(table: &Table) -> usize {
    let cells = table.rows.iter().flat_map(|r| &r.cells);
    cells.filter(|c| !matches!(c.expect, Expect::Not(_))).count()
}

/// A column's disk, and how it is opened. Options may have layers in front, as in `po2@zone-size=96M`.
fn disk(table: &Table, options: &str) -> Result<(Named, zoneplug_core::disk::DiskConfig), Failure> {
    let (layers, options) = options.rfind('@').map_or(("", options), |i| options.split_at(i + 1));
    let named = Named::open(&format!("{layers}{},{options}", table.drive))?;
    let config = named.config.clone();
    Ok((named, config))
}

/// Measures a table, each figure for `each`; `done` after each slice of one, with its length.
pub(crate) fn table(
    table: &Table,
    each: Duration,
    arena: &mut Arena,
    done: impl Fn(Duration),
) -> Result<Vec<CellRuns>, Failure> {
    let mut all = Vec::new();
    for row in &table.rows {
        let asked = is_asked();
        let mut groups = Vec::new();
        for (cell, column) in row.cells.iter().zip(&table.columns) {
            let (work, jobs) = measured(cell.client)?;
            let client = measured_name(work, jobs);
            let mut runs = CellRuns { client, ..CellRuns::default() };
            if !matches!(cell.expect, Expect::Not(_)) && !asked {
                let (named, config) = disk(table, column.options)?;
                runs.layer = layer_name(&config, false);
                let group = Group::new(&named, config, work, jobs, arena)?;
                groups.push((all.len(), work, group));
            }
            all.push(runs);
        }
        for i in (0..=SLICES).take_while(|_| !is_asked()) {
            for (_, _, group) in &mut groups {
                let slice = each / SLICES;
                // The first one only warms up.
                group.slice(if i == 0 { slice / 4 } else { slice }, i > 0)?;
                if i > 0 {
                    done(slice);
                }
            }
        }
        for (cell, work, group) in groups {
            let each_slice = group.cpu_ns_of_slices();
            let m = group.measure();
            if m.bios == 0 {
                // A signal came before the first slice.
                continue;
            }
            if m.all_refused() > 0 {
                return Err(Failure::io(format!(
                    "{} BIOs of {} were refused",
                    m.all_refused(),
                    row.name
                ))
                .hint("this is a bug of the layer, or of the table"));
            }
            let block = f64::from(work.block_sectors) * 512.0;
            let p99_ms = m.latency.p99_ns as f64 / 1e6;
            for (n, cpu_ns) in each_slice {
                // Per second of processor time, so that other processes do not count.
                let per_s = 1e9 / cpu_ns.max(1e-3);
                let value = if row.unit == "MB/s" { per_s * block / 1e6 } else { per_s / 1e3 };
                all[cell].runs.push(Run {
                    geometry_ppm: 1_000_000,
                    seed: n,
                    value,
                    p99_ms,
                    max_ms: p99_ms,
                    command_bytes: block,
                });
            }
        }
    }
    Ok(all)
}
