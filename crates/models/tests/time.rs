//! Workloads on models of real drives: what they give, beside what was published and beside a prototype of the models.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::OnceLock;
use zoneplug_core::{Nanos, disk::DiskConfig};
use zoneplug_devices::emu::timing::Profile;
use zoneplug_models::Workers;
use zoneplug_models::reproduce::{
    self, Plan, Simulation, TableReport, Verdict, mean, standard_error, tables,
};
use zoneplug_models::time::{
    Client, GEOMETRIES, HostTimes, RandomReader, Run, SEEDS, SeqWriter, Workload, ZoneWriter,
};

const K: u32 = 1 << 10;
const M: u32 = 1 << 20;

/// Small writes to large caches are millions of BIOs: only an optimised build has the time for them.
const FULL: bool = !cfg!(debug_assertions);

/// The tables of the 30 TB disk: each cell is run once for all tests.
fn smr30() -> &'static [TableReport] {
    static TABLES: OnceLock<Vec<TableReport>> = OnceLock::new();
    TABLES.get_or_init(|| reports(&["smr30-seq", "smr30-random"]))
}

fn reports(names: &[&str]) -> Vec<TableReport> {
    let all = tables().unwrap();
    let chosen: Vec<_> = all.iter().filter(|t| names.contains(&t.name)).collect();
    let runs = Plan::new(&chosen, false).unwrap().go(&Workers::all(&|| false), || ()).unwrap();
    chosen.into_iter().zip(runs).map(|(t, runs)| TableReport::new(t, runs)).collect()
}

/// Q14, C4: every cell that can be matched is inside its band.
#[test]
#[cfg_attr(debug_assertions, ignore = "slow in a debug build: cargo test --release")]
fn published_tables_are_inside_their_bands() {
    let others = reports(if FULL { &["zns", "smr20", "append-smr14"] } else { &["zns"] });
    let outside = smr30().iter().chain(&others).flat_map(|table| {
        let cells = table.cells.iter().filter(|c| c.verdict == Verdict::Outside);
        cells.map(|c| format!("{} {} {}: {:?} %", table.name, c.column, c.row, c.error_percent))
    });
    let outside: Vec<String> = outside.collect();
    assert!(outside.is_empty(), "outside their bands: {outside:#?}");
}

/// Q14, R36: where only the shape can be matched, it is: depth 128 is below depth 64.
#[test]
#[cfg_attr(debug_assertions, ignore = "slow in a debug build: cargo test --release")]
fn cells_of_which_only_the_shape_is_known_have_it() {
    let cell = |row| smr30()[0].cells.iter().find(|c| c.column == "baseline" && c.row == row);
    let seq = |row| cell(row).and_then(|c| c.ours).unwrap();
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
        let [table, name, runs, figure, error] = f[..] else { panic!("five columns: {line}") };
        let (runs, figure, error): (usize, f64, f64) =
            (runs.parse().unwrap(), figure.parse().unwrap(), error.parse().unwrap());
        let Some(ours) = as_in_prototype(table, name, runs) else { continue };
        assert_eq!(ours.len(), runs, "{line}");
        let (our_mean, our_error) = (mean(&ours), standard_error(&ours));
        let errors = 2.0 * (error * error + our_error.powi(2)).sqrt();
        let tracks = table == "seq baseline" && matches!(name, "64" | "128");
        let percent = if tracks { 25.0 } else { 3.0 };
        if (our_mean - figure).abs() > errors.max(figure * percent / 100.0) {
            wrong.push(format!(
                "{table} {name}: {our_mean:.1} ± {our_error:.1}, prototype {figure} ± {error}"
            ));
        }
        compared += 1;
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let expected = if FULL { 59 } else { 28 };
    assert_eq!(compared, expected, "rows of the table were left out");
}

/// The runs of what the prototype ran there, on our engine.
fn as_in_prototype(table: &str, name: &str, runs: usize) -> Option<Vec<reproduce::Run>> {
    let writer = u32::from(table.ends_with("patched"));
    let quick = ["seq", "zns"].iter().any(|t| table.starts_with(t))
        || table.starts_with("random") && matches!(name, "2" | "8" | "128");
    if !FULL && !quick {
        return None;
    }
    let like = |drive: &str, client: &str, unit| Simulation::parse(drive, client, unit).unwrap();
    let usual = |s: &Simulation| s.over(&s.repeats()).unwrap();
    let seeds = |s: &Simulation| {
        let repeats: Vec<_> = (1..=runs as u64).map(|seed| (1_000_000, seed)).collect();
        s.over(&repeats).unwrap()
    };
    let disk = "sim-smr30,outer-rate=246MB/s,seek-sqrt=11500us,cache=20M,max-run=4M,queued-fifo=2";
    let disk = |transfer| format!("{disk},max-transfer={transfer},qd1={writer}");
    let big = "cache-entries=2000,command-time=17us,qd1=0";
    let jobs = if name.contains("16x16") { 16 } else { 1 };
    Some(match table {
        "seq baseline" | "seq patched" => {
            usual(&like(&disk("2M"), &format!("seq,bs=1M,depth={name}"), "MB/s"))
        }
        "random baseline" | "random patched" => {
            let client = format!("fio,jobs=16,depth=32,bs=1M,zones={name}");
            usual(&like(&disk("2M"), &client, "MB/s"))
        }
        "one job baseline" => {
            let client = format!("fio,jobs=1,depth=32,bs=1M,zones={name}");
            seeds(&like(&disk("2M"), &client, "MB/s"))
        }
        "full queue baseline" | "full queue patched" => {
            let client = format!("full,outstanding=512,bs=1M,zones={name}");
            usual(&like(&disk("4M"), &client, "MB/s"))
        }
        "zns seq MB/s" => {
            let all = tables().unwrap();
            let zns = all.iter().find(|t| t.name == "zns").unwrap();
            let row = *zns.rows_of(&format!("seqw{name}")).first()?;
            usual(&Simulation::of(zns, row, zns.column("plug-none").unwrap()).unwrap())
        }
        "zns random kIOPS" => {
            let client = format!("fio,jobs={jobs},depth=16,bs=128K,zones=14");
            seeds(&like("sim-zns1,mode=plug", &client, "KIOPS"))
        }
        "20 TB random IOPS" => {
            let bs = if name.starts_with("4K") { "4K" } else { "128K" };
            let client = format!("fio,jobs={jobs},depth=16,bs={bs},zones=128");
            seeds(&like(&format!("sim-smr20,{big}"), &client, "IOPS"))
        }
        "14 TB sync 64K IOPS" => {
            let (zones, jobs) = name.split_once(" zones ")?;
            let jobs = jobs.strip_suffix(" jobs")?;
            let client = format!("fio,jobs={jobs},depth=1,bs=64K,zones={zones}");
            seeds(&like(&format!("sim-smr14,{big}"), &client, "IOPS"))
        }
        _ => panic!("no table {table}"),
    })
}

fn short(profile: &str) -> Run {
    let mut run = Run::new(Profile::builtin(profile).unwrap());
    (run.warm_up, run.length) = (Nanos(1_000_000_000), Nanos(3_000_000_000));
    run.disk.zoned_qd1_writes = Some(false);
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
    let mut simulation = Simulation::parse("sim-smr30,qd1=0", "seq,bs=1M,depth=8", "MB/s").unwrap();
    (simulation.profile, simulation.client.length) = (profile, Some(Nanos(3_000_000_000)));
    let mb = mean(&simulation.over(&[(1_000_000, 1)]).unwrap());
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
    run.disk = DiskConfig { shards: 4, zoned_qd1_writes: Some(false), ..DiskConfig::default() };
    let zones = BTreeMap::from([(1u32, 0), (64, 0)]);
    for &n in zones.keys() {
        let times = HostTimes::DISK;
        let w = Workload::Append { outstanding: n, bs: 64 * K, zones: 64 };
        assert!(run.go(w.clients(&times, 1)).unwrap().mb_per_s() > 10.0);
    }
    assert_eq!(GEOMETRIES.len() * SEEDS.len(), 20);
}
