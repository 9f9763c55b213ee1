//! Shrinks a failing world: leaves out ranges of steps, ever smaller ones, while the world still fails. Each step
//! draws from its own sequence, so the remaining steps stay the same.

use crate::run::{Failure, Steps, run};
use crate::world::World;

/// A failing world, shrunk.
#[derive(Debug, Clone)]
pub struct Shrunk {
    /// The remaining steps.
    pub steps: Steps,
    /// Their failure, with a trace.
    pub failure: Failure,
    /// BIOs that they submit.
    pub bios: usize,
}

/// Most worlds to try.
const TRIES: u32 = 3000;

/// Shrinks the failing world of `seed`. `None` if it does not fail.
pub fn shrink(seed: u64) -> Option<Shrunk> {
    let fails = |list: &[u32]| run(seed, &Steps::Only(list.to_vec()), false).is_err();
    run(seed, &Steps::All, false).err()?;
    let mut list: Vec<u32> = (0..World::STEPS.1).collect();
    // Steps after the failure do not matter, so the shortest prefix comes first.
    let (mut low, mut high) = (0, list.len());
    while low < high {
        let middle = (low + high) / 2;
        if fails(&list[..middle]) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    if fails(&list[..high]) {
        list.truncate(high);
    }
    let mut tries = 0;
    let mut chunk = list.len().div_ceil(2);
    while chunk > 0 && tries < TRIES {
        let mut at = 0;
        let mut any = false;
        while at < list.len() && tries < TRIES {
            let end = (at + chunk).min(list.len());
            let fewer: Vec<u32> = list[..at].iter().chain(&list[end..]).copied().collect();
            tries += 1;
            if fails(&fewer) {
                list = fewer;
                any = true;
            } else {
                at = end;
            }
        }
        if chunk == 1 && !any {
            break;
        }
        chunk = if chunk == 1 { 1 } else { chunk / 2 };
    }
    let steps = Steps::Only(list);
    let failure = run(seed, &steps, true).err()?;
    let bios = failure.trace.iter().filter(|l| l.starts_with("  bio ")).count();
    Some(Shrunk { steps, failure, bios })
}
