//! Random worlds: a disk with faults, several queues, and clients that do everything they may and some things they
//! may not. One thread, virtual time.
//!
//! The oracles are outside the code under test: the strict device, stamps on the medium, and a shadow of what was
//! acknowledged (see `world.rs`). A seed that fails prints itself; `ZONEPLUG_SEED=n cargo test -p zoneplug-core
//! --test disk_model` runs it alone, and `ZONEPLUG_SEEDS=n` runs so many per mode.

#[path = "../common/mod.rs"]
mod common;
mod done;
mod ops;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use world::World;
use zoneplug_core::disk::Mode;

fn env(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|v| v.parse().ok())
}

#[allow(clippy::disallowed_macros)] // a failing test says how to run it again
fn run(mode: Mode, default_seeds: u64) {
    let seeds = match env("ZONEPLUG_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..env("ZONEPLUG_SEEDS").unwrap_or(default_seeds),
    };
    for seed in seeds {
        let world = catch_unwind(AssertUnwindSafe(|| World::new(seed, mode).run()));
        if let Err(panic) = world {
            println!("seed {seed}, mode {mode}: ZONEPLUG_SEED={seed} cargo test --test disk_model");
            resume_unwind(panic);
        }
    }
    assert_eq!(zoneplug_core::lost_bios(), 0, "BIOs were dropped in flight");
}

/// I1-I7, R44: plugs keep every promise in every world.
#[test]
fn random_worlds_with_plugs_keep_every_promise() {
    run(Mode::Plug, 3000);
}

/// C1: with zone locks, writes of one zone that come through one queue keep their order.
#[test]
fn random_worlds_with_zone_locks_keep_the_order_of_a_queue() {
    run(Mode::Lock, 500);
}

/// P15: without plugs everything that needs no order works.
#[test]
fn random_worlds_without_plugs_work_for_clients_that_wait() {
    run(Mode::None, 500);
}
