//! Prints every cell of the published tables that a model can give: published, ours with its standard error, difference.
//!
//!     cargo run --release -p zoneplug-sim --example tables

use zoneplug_core::Error;
use zoneplug_core::emu::timing::Profile;
use zoneplug_sim::time::{Cell, Expect, Layer};

fn main() -> Result<(), Error> {
    println!(
        "{:16} {:13} {:11} {:>9} {:>9} {:>6} {:>7}  expected",
        "table", "layer", "cell", "published", "ours", "±", "error"
    );
    for cell in Cell::all().into_iter().filter(|c| Layer::BUILT.contains(&c.layer)) {
        let s = cell.sample(&Profile::builtin(cell.table.profile())?)?;
        let error = 100.0 * (s.mean() / cell.published - 1.0);
        let expected = match cell.expect {
            Expect::Within(p) if cell.calibrates => format!("within {p} %, calibrates"),
            Expect::Within(p) => format!("within {p} %"),
            Expect::Shape(why) => format!("shape only: {why}"),
            Expect::Not(why) => format!("not: {why}"),
        };
        println!(
            "{:16} {:13} {:11} {:9.1} {:9.2} {:6.2} {error:+6.1}%  {expected}",
            format!("{:?}", cell.table),
            format!("{:?}", cell.layer),
            cell.name,
            cell.published,
            s.mean(),
            s.standard_error()
        );
    }
    Ok(())
}
