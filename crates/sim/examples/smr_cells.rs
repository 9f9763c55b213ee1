//! Prints the SMR tables.
use zoneplug_core::emu::timing::Profile;
use zoneplug_sim::time::{Cell, GEOMETRIES, SEEDS};
fn main() {
    let p = Profile::builtin("smr30").unwrap();
    for cell in Cell::all().take(16) {
        let mut all = Vec::new();
        for g in GEOMETRIES {
            for s in SEEDS {
                let r = cell.go(&p.with_rate(g), s).unwrap();
                all.push(r.mb_per_s() * 1e6 / f64::from(g));
            }
        }
        let m = all.iter().sum::<f64>() / all.len() as f64;
        println!("{cell:?} published {} model {m:.1}", cell.published());
    }
}
