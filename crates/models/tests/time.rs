//! Workloads on models of real drives: what they give, beside what was published and beside a prototype of the models.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::OnceLock;
use zoneplug_core::{Nanos, disk::DiskConfig};
use zoneplug_devices::emu::timing::Profile;
use zoneplug_devices::spec::Spec;
use zoneplug_models::time::{
    Cell, Client, Expect, GEOMETRIES, HostTimes, Layer, RandomReader, Run, SEEDS, Sample,
    SeqWriter, Table, Unit, Workload, ZoneWriter,
};

const K: u32 = 1 << 10;
const M: u32 = 1 << 20;

/// Small writes to large caches are millions of BIOs: only an optimised build has the time for them.
const FULL: bool = !cfg!(debug_assertions);

/// The cells of the 30 TB disk: each is run once for all tests.
fn smr30() -> &'static [(Cell, Sample)] {
    static CELLS: OnceLock<Vec<(Cell, Sample)>> = OnceLock::new();
    CELLS.get_or_init(|| {
        let profile = Profile::builtin("smr30").unwrap();
        Cell::smr30().into_iter().map(|c| (c.clone(), c.sample(&profile).unwrap())).collect()
    })
}

fn sample(table: Table, layer: Layer, name: &str) -> Option<&'static Sample> {
    let is = |c: &Cell| c.table == table && c.layer == layer && c.name == name;
    smr30().iter().find(|(c, _)| is(c)).map(|(_, s)| s)
}

/// Q14, C4: every cell that can be matched is inside its band.
#[test]
#[cfg_attr(debug_assertions, ignore = "slow in a debug build: cargo test --release")]
fn published_tables_are_inside_their_bands() {
    let mut wrong = Vec::new();
    let mut check = |cell: &Cell, sample: &Sample| {
        let error = 100.0 * (sample.mean() / cell.published - 1.0);
        if let Expect::Within(percent) = cell.expect
            && error.abs() > percent
        {
            wrong.push(format!("{:?} {:?} {}: {error:+.1} %", cell.table, cell.layer, cell.name));
        }
    };
    for (cell, sample) in smr30() {
        check(cell, sample);
    }
    for cell in Cell::others().into_iter().filter(|c| FULL || c.table == Table::Zns1) {
        check(&cell, &cell.sample(&Profile::builtin(cell.table.profile()).unwrap()).unwrap());
    }
    assert!(wrong.is_empty(), "outside their bands: {wrong:#?}");
}

/// Q14, R36: where only the shape can be matched, it is: depth 128 is below depth 64.
#[test]
#[cfg_attr(debug_assertions, ignore = "slow in a debug build: cargo test --release")]
fn cells_of_which_only_the_shape_is_known_have_it() {
    let mean = |table, layer, name| sample(table, layer, name).map(Sample::mean);
    let seq = |name| mean(Table::Smr30Sequential, Layer::Baseline, name).unwrap();
    assert!(seq("128") < 0.9 * seq("64") && seq("64") < 0.95 * seq("32"));
}

/// The models are those of the prototype: means agree within 3 %, or within two standard errors of the difference.
/// Depths 64 and 128 of the sequential baseline have a band of their own: they hang on where the tracks lie.
#[test]
#[cfg_attr(debug_assertions, ignore = "slow in a debug build: cargo test --release")]
fn the_models_agree_with_the_prototype() {
    let mut wrong = Vec::new();
    let mut compared = 0;
    for line in include_str!("data/prototype.tsv").lines().filter(|l| !l.starts_with('#')) {
        let f: Vec<&str> = line.split('\t').collect();
        let [table, name, runs, mean, error] = f[..] else { panic!("five columns: {line}") };
        let (runs, mean, error): (usize, f64, f64) =
            (runs.parse().unwrap(), mean.parse().unwrap(), error.parse().unwrap());
        let Some(ours) = as_in_prototype(table, name, runs) else { continue };
        assert_eq!(ours.all.len(), runs, "{line}");
        let difference = (ours.mean() - mean).abs();
        let errors = 2.0 * (error * error + ours.standard_error().powi(2)).sqrt();
        let tracks = table == "seq baseline" && matches!(name, "64" | "128");
        let percent = if tracks { 25.0 } else { 3.0 };
        if difference > errors.max(mean * percent / 100.0) {
            wrong.push(format!(
                "{table} {name}: {:.1} ± {:.1}, prototype {mean} ± {error}",
                ours.mean(),
                ours.standard_error()
            ));
        }
        compared += 1;
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let expected = if FULL { 59 } else { 28 };
    assert_eq!(compared, expected, "rows of the table were left out");
}

/// What the prototype ran there, on our engine.
fn as_in_prototype(table: &str, name: &str, runs: usize) -> Option<Sample> {
    let layer = if table.ends_with("patched") { Layer::SingleWriter } else { Layer::Baseline };
    let quick = ["seq", "zns"].iter().any(|t| table.starts_with(t))
        || table.starts_with("random") && matches!(name, "2" | "8" | "128");
    if !FULL && !quick {
        return None;
    }
    let number = || -> u32 { name.parse().unwrap() };
    let like = |table: Table, workload: Workload, unit: Unit| Cell {
        table,
        name: "",
        layer,
        workload,
        published: 0.0,
        unit,
        expect: Expect::Not("the prototype's"),
        calibrates: false,
    };
    let profile =
        |spec: &str| Profile::from_spec(&mut Spec::parse(spec).unwrap()).unwrap().unwrap();
    let seeds = |cell: &Cell, profile: &Profile| {
        Sample::new((1..=runs as u64).map(|s| cell.go(profile, s).unwrap()).collect())
    };
    let disk = "sim-smr30,outer-rate=246MB/s,seek-sqrt=11500us,cache=20M,max-run=4M,queued-fifo=2";
    let big = "cache-entries=2000,command-time=17us";
    Some(match table {
        "seq baseline" | "seq patched" => {
            let w = Workload::Sequential { bs: M, depth: number() };
            let p = profile(&format!("{disk},max-transfer=2M"));
            like(Table::Smr30Sequential, w, Unit::MbPerS).sample(&p).unwrap()
        }
        "random baseline" | "random patched" => {
            let w = Workload::Random { jobs: 16, depth: 32, bs: M, zones: number() };
            let p = profile(&format!("{disk},max-transfer=2M"));
            like(Table::Smr30Random, w, Unit::MbPerS).sample(&p).unwrap()
        }
        "one job baseline" => {
            let w = Workload::Random { jobs: 1, depth: 32, bs: M, zones: number() };
            let p = profile(&format!("{disk},max-transfer=2M"));
            seeds(&like(Table::Smr30Random, w, Unit::MbPerS), &p)
        }
        "full queue baseline" | "full queue patched" => {
            let w = Workload::FullQueue { outstanding: 512, bs: M, zones: number() };
            let p = profile(&format!("{disk},max-transfer=4M"));
            like(Table::Smr30Random, w, Unit::MbPerS).sample(&p).unwrap()
        }
        "zns seq MB/s" => {
            let cell = Cell::others()
                .into_iter()
                .find(|c| c.table == Table::Zns1 && c.name == format!("seqw{name}"))?;
            cell.sample(&profile("sim-zns1")).unwrap()
        }
        "zns random kIOPS" => {
            let jobs = if name.contains("16x16") { 16 } else { 1 };
            let w = Workload::Random { jobs, depth: 16, bs: 128 * K, zones: 14 };
            seeds(&like(Table::Zns1, w, Unit::Kiops), &profile("sim-zns1"))
        }
        "20 TB random IOPS" => {
            let jobs = if name.contains("16x16") { 16 } else { 1 };
            let bs = if name.starts_with("4K") { 4 * K } else { 128 * K };
            let w = Workload::Random { jobs, depth: 16, bs, zones: 128 };
            seeds(&like(Table::Smr20, w, Unit::Iops), &profile(&format!("sim-smr20,{big}")))
        }
        "14 TB sync 64K IOPS" => {
            let (zones, jobs) = name.split_once(" zones ")?;
            let jobs = jobs.strip_suffix(" jobs")?.parse().unwrap();
            let zones = zones.parse().unwrap();
            let w = Workload::Random { jobs, depth: 1, bs: 64 * K, zones };
            seeds(&like(Table::Smr14, w, Unit::Iops), &profile(&format!("sim-smr14,{big}")))
        }
        _ => panic!("no table {table}"),
    })
}

fn short(profile: &str) -> Run {
    let mut run = Run::new(Profile::builtin(profile).unwrap());
    (run.warm_up, run.length) = (Nanos(1_000_000_000), Nanos(3_000_000_000));
    run.disk = Layer::Baseline.config();
    run
}

/// Everything follows from profile, configuration and seeds, on every machine: these are the bytes of one run.
#[test]
fn a_run_is_the_same_everywhere() {
    let go = |seed| {
        short("smr30").go(vec![
            Box::new(ZoneWriter::fio_zbd(16, 32, M, 16, seed)),
            Box::new(RandomReader::new(1, 128 * K, seed)),
        ])
    };
    let (a, b) = (go(7).unwrap(), go(7).unwrap());
    assert_eq!(a, b);
    assert_ne!(a, go(8).unwrap());
    assert_eq!((a.clients[0].bytes >> 20, a.clients[1].bios), GOLDEN);
}

/// MiB written and reads done by the run above.
const GOLDEN: (u64, u64) = (94, 95);

/// I1: whatever the client, one write of a zone is at the device at a time; and each client gets on.
#[test]
fn every_client_keeps_the_rules_and_gets_on() {
    for profile in ["smr30", "zns1"] {
        type Make = fn() -> Vec<Box<dyn Client>>;
        let clients: [Make; 5] = [
            || vec![Box::new(SeqWriter::new(8, M))],
            || vec![Box::new(ZoneWriter::fio_zbd(16, 32, M, 7, 1))],
            || vec![Box::new(ZoneWriter::open_queue(128, M, 7, 1))],
            || vec![Box::new(ZoneWriter::appender(128, 256 * K, 7, 1))],
            || {
                vec![
                    Box::new(ZoneWriter::fio_zbd(4, 4, M, 4, 1)),
                    Box::new(RandomReader::new(4, 128 * K, 2)),
                    Box::new(RandomReader::new(1, 4 * K, 3)),
                ]
            },
        ];
        for (i, make) in clients.into_iter().enumerate() {
            let mut run = short(profile);
            run.paranoid = true;
            let report = run.go(make()).unwrap();
            for (c, client) in report.clients.iter().enumerate() {
                assert!(client.bios > 10, "{profile}, clients {i}: {c} had {}", client.bios);
                assert_eq!(client.latencies.len() as u64, client.bios);
                assert!(client.latency(500) <= client.latency(990), "{profile}");
            }
            // Faster than the link of the disk, or than the drive, there is nothing.
            assert!(report.mb_per_s() < if profile == "smr30" { 560.0 } else { 2000.0 });
        }
    }
}

/// fio's lock on zones, not its queue depth, decides what is outstanding; without it the queue is full.
#[test]
fn the_lock_of_zones_keeps_the_queue_short() {
    let outstanding = |client: ZoneWriter| {
        let mut run = short("smr30");
        run.length = Nanos(20_000_000_000);
        run.go(vec![Box::new(client)]).unwrap().clients[0].mean_outstanding()
    };
    let locked = outstanding(ZoneWriter::fio_zbd(16, 32, M, 8, 1));
    assert!((2.0..40.0).contains(&locked), "{locked} of 512 outstanding");
    let full = outstanding(ZoneWriter::open_queue(512, M, 8, 1));
    assert!(full > 256.0, "{full} of 512 outstanding");
}

/// Zone append over a disk without it is as fast as writes of the same queue: the layer's emulation costs no turn.
#[test]
fn emulated_appends_are_as_fast_as_writes() {
    let go = |client: ZoneWriter| {
        let mut run = short("smr30");
        run.length = Nanos(20_000_000_000);
        run.go(vec![Box::new(client)]).unwrap().mb_per_s()
    };
    let writes = go(ZoneWriter::open_queue(256, M, 16, 5));
    let appends = go(ZoneWriter::appender(256, M, 16, 5));
    assert!((appends / writes - 1.0).abs() < 0.05, "{appends} and {writes} MB/s");
}

/// A new drive is one data file: half the rate, half the result.
#[test]
fn a_new_drive_is_one_data_file() {
    let text = Profile::builtin_text("smr30").unwrap().replace("245MB/s", "123MB/s");
    let profile = Profile::parse("half", &text).unwrap();
    let (mut run, clients) = Cell::smr30()[3].run(&profile, 1);
    run.length = Nanos(3_000_000_000);
    let mb = run.go(clients).unwrap().mb_per_s();
    assert!((115.0..125.0).contains(&mb), "{mb} MB/s");
}

/// A workload that is not possible says so.
#[test]
fn what_cannot_be_run_says_why() {
    let e = short("smr30").go(vec![Box::new(SeqWriter::new(70_000, 4 * K))]).unwrap_err();
    assert_eq!(e.what(), "the clients have too many BIOs");
    assert!(e.what_to_try().is_some());
    // Two that write to the same zones know nothing of each other.
    let twice = || Box::new(SeqWriter::new(2, M));
    let e = short("smr30").go(vec![twice(), twice()]).unwrap_err();
    assert!(e.to_string().contains("of a client model"), "{e}");
}

/// Opening a disk of 52,156 zones takes no noticeable time, and its report is complete.
#[test]
fn a_disk_of_52156_zones_opens() {
    let profile = Profile::builtin("smr14").unwrap();
    assert_eq!(profile.zones, 52_156);
    let mut run = Run::new(profile);
    (run.warm_up, run.length) = (Nanos(1_000_000), Nanos(100_000_000));
    run.disk = DiskConfig { shards: 4, ..Layer::Baseline.config() };
    let zones = BTreeMap::from([(1u32, 0), (64, 0)]);
    for &n in zones.keys() {
        let times = HostTimes::DISK;
        let w = Workload::Append { outstanding: n, bs: 64 * K, zones: 64 };
        assert!(run.go(w.clients(&times, 1)).unwrap().mb_per_s() > 10.0);
    }
    assert_eq!(GEOMETRIES.len() * SEEDS.len(), 20);
}
