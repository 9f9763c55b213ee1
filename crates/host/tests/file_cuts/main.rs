//! Power cuts and kills at every step of random work on a durable disk, with any subset of what was not synced lost.
//!
//!     cargo test --release -p zoneplug-host --test file_cuts
//!     ZONEPLUG_CUTS=2000 cargo test --release -p zoneplug-host --test file_cuts -- --nocapture
//!     ZONEPLUG_CUT_SEED=17 cargo test -p zoneplug-host --test file_cuts       # one seed again
//!
//! The oracle knows what was asked for and when it was acknowledged, nothing of how the disk works. Every sector that
//! is written has a number of its own, so what a read shows says which write it came from.
#![allow(clippy::unwrap_used)]

mod oracle;
mod world;

use std::cell::RefCell;
use std::task::Waker;
use world::*;
use zoneplug_core::{Device, IoBuf, ZoneNo};
use zoneplug_host::file::testing::Left;

/// One seed: work, cuts and kills at random moments, work again on what one of them left. Returns cuts and kills.
fn seed(seed: u64, threads: bool, limited: bool) -> (u64, u64) {
    thread_local!(static MEMORY: RefCell<Vec<IoBuf>> = const { RefCell::new(Vec::new()) });
    let mut memory = MEMORY.take();
    memory.resize_with(9, || IoBuf::leaked(160 << 10));
    let mut world = World::new(seed, threads, limited);
    let (mut cuts, mut kills) = (0, 0);
    for round in 0..3 {
        let steps = 20 + world.random.below(60) as usize;
        if world.random.one_in(3) {
            let (after, draw) = (world.random.below(16), world.random.seed(4));
            let times = [1, 2, 9][world.random.below(3) as usize];
            world.storage.fail_some_syncs(after, times, draw);
        }
        if world.random.one_in(6) {
            world.work(steps / 2, if threads { 6 } else { 1 }, &mut memory);
            let draw = world.random.next();
            world.storage.fail_writing_back(draw);
        }
        world.work(steps, if threads { 6 } else { 1 }, &mut memory);
        world.check_client_view(&mut memory[8]);
        world.storage.fail_syncs(false);
        let moments = world.storage.moments();
        let mut next = None;
        for i in 0..6 {
            let moment = world.random.below(moments as u64 + 1) as usize;
            let kill = i == 5;
            // All, nothing, and everything in between.
            let odds = world.random.below(5);
            let mut coin = Random(zoneplug_core::Random::new(world.random.next()));
            let after = match kill {
                true => world.storage.after_kill(moment),
                false => world.storage.after_cut(moment, &mut || coin.left(odds)),
            };
            if world.random.one_in(2) {
                after.evict(world.random.seed(3));
            }
            let copy = after.after_kill(after.moments());
            // Also cut while the disk recovers: it must not make things worse.
            drop(World::open(after.clone(), false));
            let later = after
                .after_cut(world.random.below(after.moments() as u64 + 1) as usize, &mut || {
                    coin.left(2)
                });
            for (storage, what) in [(copy, "first"), (after, "second"), (later, "third")] {
                if what == "third" && kill {
                    continue;
                }
                let disk = World::open(storage.clone(), false);
                storage.begin();
                // What is shown is on the medium: a power cut and memory that forgets change nothing.
                let same = |memory: &mut IoBuf, (zones, shown): (_, oracle::Shown)| {
                    if what != "first" {
                        return Ok(zones);
                    }
                    let cut = storage.after_cut(0, &mut || Left::Nothing);
                    storage.evict(0);
                    for disk in [&World::open(cut, false), &disk] {
                        let again = world.check(disk, moment, kill, memory)?.1;
                        if shown != again {
                            return Err(format!(
                                "what was shown does not stay: {shown:?}, {again:?}"
                            ));
                        }
                    }
                    Ok(zones)
                };
                let found = world.check(&disk, moment, kill, &mut memory[8]);
                let zones = match found.and_then(|found| same(&mut memory[8], found)) {
                    Ok(zones) => zones,
                    Err(e) => panic!(
                        "after {} at {moment} of {moments} in round {round}, {what} opening: {e}\n\
                         ZONEPLUG_CUT_SEED={seed} cargo test -p zoneplug-host --test file_cuts\n{:#?}",
                        if kill { "a kill" } else { "a power cut" },
                        world.asked
                    ),
                };
                if what == "third" {
                    next = Some((storage, zones, disk));
                }
            }
            if kill { kills += 1 } else { cuts += 1 }
        }
        let Some((storage, zones, disk)) = next else { break };
        drop(disk);
        let disk = World::open(storage.clone(), threads);
        storage.begin();
        // What conventional zones hold now is what they began with.
        let mut queue = disk.open_queue(1, Waker::noop().clone()).unwrap();
        world.first.clear();
        for n in (0..zones.len() as u32).filter(|n| disk.geometry().is_conventional(ZoneNo(*n))) {
            let (start, len) = (
                disk.geometry().zone_start(ZoneNo(n)),
                disk.geometry().zone_len_sectors(ZoneNo(n)),
            );
            read(&mut *queue, &mut memory[8], start, len);
            for i in 0..len {
                let mut s = [0; 512];
                memory[8].copy_to(i * 512, &mut s);
                world.first.insert((n, i), number(&s).unwrap());
            }
        }
        drop(queue);
        world.counts = (0..zones.len() as u32).map(|n| disk.write_count(ZoneNo(n))).collect();
        world.disk = disk;
        world.storage = storage;
        world.zones = zones;
        world.asked.clear();
        world.failed = false;
    }
    MEMORY.set(memory);
    (cuts, kills)
}

fn wanted() -> u64 {
    std::env::var("ZONEPLUG_CUTS").ok().and_then(|n| n.parse().ok()).unwrap_or(400)
}

fn all(threads: bool, limited: bool, first: u64, wanted: u64) {
    if let Ok(n) = std::env::var("ZONEPLUG_CUT_SEED") {
        seed(n.parse().unwrap(), threads, limited);
        return;
    }
    let (mut cuts, mut kills, mut n) = (0, 0, first);
    while cuts < wanted {
        let (c, k) = seed(n, threads, limited);
        (cuts, kills, n) = (cuts + c, kills + k, n + 1);
    }
    println!("{cuts} power cuts and {kills} kills replayed in {} seeds: no violation", n - first);
}

#[test]
fn power_cuts_lose_what_they_may_and_nothing_else() {
    all(false, false, 1, wanted());
}

/// Commits and writes at the same time; the seed fixes the work, not the interleaving.
#[test]
fn power_cuts_between_threads() {
    all(true, false, 1_000_001, wanted() / 4);
}

/// Records of a table that is cut in the middle take no more places than there are.
#[test]
fn power_cuts_where_active_zones_are_limited() {
    all(false, true, 2_000_001, wanted() + wanted() / 4);
}
