//! Policies of the engine, written as expressions, give the figures of the engine's own.
#![allow(clippy::unwrap_used)]

use zoneplug_core::Nanos;
use zoneplug_models::measure::{Row, Workload};
use zoneplug_models::work::Rw;
use zoneplug_models::{VirtualDisk, Workers, Writer, ways};

// The limits are those of the engine's files.
const BRIEF: &str =
    "[0; if(zones == 1, waits < 1, written < 2M && longest_us < 55000 + 16000 * zones)]";
const STEADY: &str = "[if(zones < 5, 0, -sweep); if(zones == 1, waits < 6 && bytes < 16M, \
    if(zones < 5, longest_us < 200000, turn_us < if(zones < 16, 17000, 30000)))]";

/// The page has these expressions, and every variable that an error names.
#[test]
fn the_page_has_what_an_expression_may_name() {
    let page = include_str!("../../../docs/models.md");
    let row = |word: &str| page.lines().any(|l| l.starts_with(&format!("| `{word}` | ")));
    let e = Writer::parse("[nothing]").unwrap_err();
    let names = e.what_to_try().unwrap().split(';').next().unwrap();
    assert!(names.split(", ").all(row), "{names}");
    for text in [BRIEF, STEADY] {
        assert!(page.contains(&format!("`{text}` |")), "{text}");
    }
}

/// The row of this policy, without how the disk was opened.
fn row(spec: &str, zones: u32, zone_lock: bool, policy: &str) -> (String, Row) {
    let disk = VirtualDisk::parse(spec).unwrap().unwrap();
    let mut load = Workload::new(&disk, Rw::Randwrite);
    (load.work.block_sectors, load.work.depth, load.jobs) = (2048, 8, 4);
    (load.zones, load.zone_lock) = (Some(zones), zone_lock);
    load.last(Nanos(4_000_000_000));
    let way = ways(&disk.config, &[], &[], &[Writer::parse(policy).unwrap()]).unwrap().remove(0);
    let mut row = load.run(&disk, &way, &Workers::all(&|| false), None).unwrap();
    (std::mem::take(&mut row.layer), row)
}

#[test]
fn policies_of_the_engine_are_expressions() {
    for (expression, name) in [
        ("[0]", "fifo"),
        ("[wait_us]", "fifo"),
        ("[wait_us]+300us", "fifo+300us"),
        ("[-sweep]", "clook"),
        ("[-sweep]+300us/100ms", "clook+300us/100ms"),
        (&format!("{BRIEF}+300us"), "brief+300us"),
        (&format!("{STEADY}+300us"), "steady+300us"),
    ] {
        for (zones, zone_lock) in [(4, true), (8, true), (32, false), (64, true)] {
            for spec in ["sim-smr30", "stripe@sim-smr14%sim-smr14"] {
                let of = |policy: &str| format!("{:?}", row(spec, zones, zone_lock, policy).1);
                assert_eq!(of(expression), of(name), "{expression} with {zones} zones of {spec}");
            }
        }
    }
}

/// The oracle can tell: other expressions give other figures.
#[test]
fn other_expressions_give_other_figures() {
    let of = |policy: &str| row("sim-smr30", 32, true, policy);
    let (name, nearest) = of("[-distance]+300us/4s");
    assert_eq!(name, "plug none qd1 [-distance] +300us 4000ms");
    let rates = ["fifo+300us", "clook+300us"].map(|policy| of(policy).1.jobs.mb_per_s);
    assert!(rates.iter().all(|rate| *rate != nearest.jobs.mb_per_s), "{rates:?}");
    let never = format!("{:?}", of("[0; 0]+300us").1);
    assert_eq!(never, format!("{:?}", of("fifo").1), "never stays");
}
