//! Prints every cell of the published tables that a model can give: published, ours with its standard error, difference.
//!
//!     cargo run --release -p zoneplug-models --example tables
//!     cargo run --release -p zoneplug-models --example tables smr30 cache=128M,queued-fifo=0
//!
//! The second form is a hypothesis about a drive: its cells with other numbers.

use zoneplug_core::Error;
use zoneplug_devices::emu::timing::Profile;
use zoneplug_devices::spec::Spec;
use zoneplug_models::time::{Cell, Expect};

fn profile(name: &str, options: Option<&String>) -> Result<Profile, Error> {
    let comma = if options.is_some() { "," } else { "" };
    let text = format!("sim-{name}{comma}{}", options.map_or("", |o| o.as_str()));
    let mut spec = Spec::parse(&text)?;
    let profile = Profile::from_spec(&mut spec).expect("a profile that is part of the program");
    spec.finish()?;
    profile
}

fn main() -> Result<(), Error> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    println!("table           layer        cell       published     ours      ±   error  expected");
    let mine = |c: &Cell| args.first().is_none_or(|name| *name == c.table.profile());
    for cell in Cell::all().into_iter().filter(mine) {
        let s = cell.sample(&profile(cell.table.profile(), args.get(1))?)?;
        let error = 100.0 * (s.mean() / cell.published - 1.0);
        let expected = match cell.expect {
            Expect::Within(p) if cell.calibrates => format!("within {p} %, calibrates"),
            Expect::Within(p) => format!("within {p} %"),
            Expect::Shape(why) => format!("shape only: {why}"),
            Expect::Not(why) => format!("not: {why}"),
        };
        println!(
            "{:15} {:12} {:10} {:9.1} {:8.1} {:6.1} {error:+6.1}%  {expected}",
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
