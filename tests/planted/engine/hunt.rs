//! Which world of the simulation catches a planted bug first, or how many do. `scripts/plant` copies this file to
//! `crates/sim/examples/hunt.rs` of its work tree; `scripts/planted` runs it.
//!
//!     hunt                      the names of the bugs that the simulation must catch
//!     hunt NAME FIRST LAST      until a world of these seeds catches the bug; exit status 1 if none does
//!     hunt NAME FIRST LAST all  in every world of these seeds
//!
//! Only those worlds run whose clients use what has the bug: a world with a target has an even seed.

use zoneplug_core::planted::{Bug, plant};
use zoneplug_sim::{Steps, run};

fn main() -> std::process::ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (name, first, last, all) = match &args[..] {
        [name, first, last] => (name, first, last, false),
        [name, first, last, all] if all == "all" => (name, first, last, true),
        _ => {
            Bug::ALL.iter().for_each(|b| println!("{}", b.name()));
            return 0.into();
        }
    };
    let bug = Bug::from_name(name).unwrap_or_else(|| panic!("no bug is called {name}"));
    let seed = |text: &str| text.parse::<u64>().expect("a seed is a number");
    plant(Some(bug));
    let (mut worlds, mut caught, mut said) = (0, 0, String::new());
    let target = u64::from(!bug.name().starts_with("Target"));
    for seed in (seed(first)..=seed(last)).filter(|seed| seed % 2 == target) {
        worlds += 1;
        if let Err(f) = run(seed, &Steps::All, false) {
            caught += 1;
            if said.is_empty() {
                let what: String = f.what.chars().take(80).collect();
                said = format!("  first {seed}: {}", what.replace('\n', " "));
            }
            if !all {
                break;
            }
        }
    }
    println!("{caught:>6} of {worlds} worlds  {name:<24}{said}");
    u8::from(caught == 0).into()
}
