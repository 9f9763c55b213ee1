//! Operations give one replay, whatever the order of their lines, the epoch of their times and the format.
//!
//! `ZONEPLUG_ORDERS=10000` says how many orders are tried, `ZONEPLUG_SEED` the first.
#![allow(clippy::unwrap_used)]

use flate2::Compression;
use flate2::write::GzEncoder;
use std::collections::{BTreeMap, VecDeque};
use std::io::{Read, Write};
use zoneplug_core::disk::DiskConfig;
use zoneplug_models::replay::{Map, Replay, Speed, Trace};
use zoneplug_models::time::trace::{Columns, Events};
use zoneplug_models::{VirtualDisk, Workers};

/// Random numbers by a seed.
struct Random(zoneplug_core::Random);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0.draw() % n
    }

    fn shuffle<T>(&mut self, all: &mut [T]) {
        for i in (1..all.len()).rev() {
            let j = self.below(i as u64 + 1) as usize;
            all.swap(i, j);
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Operation {
    us: u64,
    /// The letter of Linux.
    op: &'static str,
    sector: u64,
    sectors: u64,
}

const DISK: &str = "sim-zns1,zones=8,zone-size=2M,zone-capacity=2M,max-open=4,max-active=4";
const ZONE: u64 = 4096;

/// Operations in the order of their times, some at one time: writes at write pointers, and now and then elsewhere.
fn operations(random: &mut Random) -> Vec<Operation> {
    let mut wp = [0u64; 4];
    let mut us = 0;
    let strays = random.below(2) == 0;
    let count = 20 + random.below(80);
    (0..count)
        .map(|_| {
            us += random.below(400) / 3 * u64::from(random.below(5) > 0);
            let zone = random.below(4);
            let sectors = 8 * (1 + random.below(16));
            let wp = &mut wp[zone as usize];
            let (op, at, sectors) = match random.below(12) {
                0..2 => ("R", random.below(ZONE), 1 + random.below(64)),
                2 => ("F", 0, 0),
                3 => {
                    *wp = 0;
                    ("D", 0, ZONE)
                }
                4 if strays => ("W", random.below(ZONE - 256), sectors),
                _ if *wp + sectors > ZONE => {
                    *wp = 0;
                    ("D", 0, ZONE)
                }
                _ => {
                    *wp += sectors;
                    ("W", *wp - sectors, sectors)
                }
            };
            let sector = if op == "F" { 0 } else { zone * ZONE + at };
            Operation { us, op, sector, sectors }
        })
        .collect()
}

/// How a trace is written down.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Form {
    Seconds,
    Milliseconds,
    Microseconds,
    Nanoseconds,
    /// Without titles, in ticks of 100 ns.
    Ticks,
    Blkparse,
    Iolog,
    /// blktrace's own, of two processors.
    Blktrace,
}

const FORMS: [Form; 8] = [
    Form::Seconds,
    Form::Milliseconds,
    Form::Microseconds,
    Form::Nanoseconds,
    Form::Ticks,
    Form::Blkparse,
    Form::Iolog,
    Form::Blktrace,
];

/// A number in a unit of so many microseconds, with a fraction.
fn point(us: i128, unit: u128) -> String {
    let digits = unit.ilog10() as usize;
    let (sign, us) = (if us < 0 { "-" } else { "" }, us.unsigned_abs());
    format!("{sign}{}.{:0digits$}", us / unit, us % unit)
}

fn line(form: Form, o: &Operation, us: i128) -> String {
    let Operation { op, sector, sectors, .. } = o;
    let time = match form {
        Form::Seconds => point(us, 1_000_000),
        Form::Milliseconds => point(us, 1_000),
        Form::Microseconds => us.to_string(),
        Form::Nanoseconds => (us * 1_000).to_string(),
        Form::Ticks => (us * 10).to_string(),
        Form::Blkparse => {
            let place = if *sectors > 0 { format!("{sector} + {sectors} ") } else { String::new() };
            return format!("8,0 0 1 {}000 7 Q {op} {place}[x]", point(us, 1_000_000));
        }
        Form::Iolog => {
            let action = match *op {
                "R" => "read",
                "W" => "write",
                "D" => "trim",
                _ => "sync",
            };
            return format!("{us} d {action} {} {}", sector * 512, sectors * 512);
        }
        Form::Blktrace => String::new(),
    };
    format!("{time},{op},{sector},{sectors}")
}

/// A record of version 7.
fn record(o: &Operation, us: i128) -> Vec<u8> {
    let categories = match o.op {
        "R" => 1,
        "W" => 1 << 1,
        "D" => 1 << 1 | 1 << 13,
        _ => 1 << 1 | 1 << 2,
    };
    let mut bytes = Vec::new();
    for word in [0x6561_7407u32, 1] {
        bytes.extend(word.to_le_bytes());
    }
    for long in [us as u64 * 1_000, o.sector] {
        bytes.extend(long.to_le_bytes());
    }
    for word in [o.sectors as u32 * 512, 1 | categories << 16, 7, 8 << 20, 0, 0] {
        bytes.extend(word.to_le_bytes());
    }
    bytes
}

/// The files of a trace.
fn write(form: Form, lines: &[Operation], epoch: i128) -> Vec<Vec<u8>> {
    if form == Form::Blktrace {
        let (first, second) = lines.split_at(lines.len() / 2);
        let file = |part: &[Operation]| {
            part.iter().flat_map(|o| record(o, epoch + i128::from(o.us))).collect()
        };
        return vec![file(first), file(second)];
    }
    let head = match form {
        Form::Seconds => "time_s,op,sector,sectors\n",
        Form::Milliseconds => "time_ms,op,sector,sectors\n",
        Form::Microseconds => "time_us,op,sector,sectors\n",
        Form::Nanoseconds => "time_ns,op,sector,sectors\n",
        Form::Iolog => "fio version 3 iolog\n",
        Form::Ticks | Form::Blkparse | Form::Blktrace => "",
    };
    let mut text = head.to_owned();
    for o in lines {
        text += &line(form, o, epoch + i128::from(o.us));
        text.push('\n');
    }
    vec![text.into_bytes()]
}

/// The lines in another order; those of one time keep theirs.
fn reorder(random: &mut Random, lines: &[Operation]) -> (&'static str, Vec<Operation>) {
    let mut all: Vec<(usize, Operation)> = lines.iter().copied().enumerate().collect();
    let how = match random.below(6) {
        0 => {
            random.shuffle(&mut all);
            "any order"
        }
        1 => {
            all.reverse();
            "the last line first"
        }
        2 => {
            let n = random.below(all.len() as u64) as usize;
            all.rotate_left(n);
            "the first line later"
        }
        3 => {
            // Each processor's lines are in order.
            let cpus: Vec<u64> = all.iter().map(|_| random.below(4)).collect();
            all.sort_by_key(|(i, _)| cpus[*i]);
            "files of processors, joined"
        }
        4 => {
            for piece in all.chunks_mut(2 + random.below(9) as usize) {
                random.shuffle(piece);
            }
            "buffers, interleaved"
        }
        _ => "as they were",
    };
    // Two of one time keep their order.
    let mut of_times = BTreeMap::<u64, VecDeque<Operation>>::new();
    lines.iter().for_each(|o| of_times.entry(o.us).or_default().push_back(*o));
    let next = |(_, o): &(usize, Operation)| of_times.get_mut(&o.us).unwrap().pop_front().unwrap();
    (how, all.iter().map(next).collect())
}

/// The outcome of a trace: its survey, how it fits, and its row. Numbers of lines are those of the file, so they are left out.
fn replay(files: &[Vec<u8>], form: Form, room: usize) -> String {
    let open = || Ok(files.iter().map(|f| Box::new(&f[..]) as Box<dyn Read>).collect());
    let columns = Columns::parse("time_100ns,op,sector,sectors").unwrap();
    let columns = (form == Form::Ticks).then_some(&columns);
    let trace = Trace::new(&open, Events::Queued, None).with_columns(columns).with_room(room);
    let disks = [VirtualDisk::parse(DISK).unwrap().unwrap()];
    let workers = Workers::all(&|| false).at_most(1);
    let replay = Replay::of(&trace, &disks, &workers).unwrap();
    let s = &replay.survey;
    assert_eq!((s.seen.unknown, s.seen.strange, s.seen.empty, s.seen.late), (0, 0, 0, 0));
    let of =
        (s.writes, s.reads, s.flushes, s.discards, s.written, s.read, s.end_sector, s.makespan());
    let fit = &replay.fits[0];
    let ways = [vec![DiskConfig::default().into()]];
    let pace = replay.pace(Speed::Times(1.0), None);
    let mut rows = replay.rows(&ways, Map::Auto, pace, 1, &workers).unwrap();
    rows[0].refused.first = None;
    format!("{of:?} {} {:?} {rows:?}", fit.misplaced, fit.begin())
}

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |n| n.parse().expect("a number"))
}

#[test]
fn the_order_and_the_epoch_of_a_trace_do_not_matter() {
    let begin = number("ZONEPLUG_SEED", 0);
    let mut hows = BTreeMap::<&str, u32>::new();
    for seed in begin..begin + number("ZONEPLUG_ORDERS", 300) {
        let mut random = Random(zoneplug_core::Random::new(seed));
        let form = FORMS[random.below(FORMS.len() as u64) as usize];
        let mut lines = operations(&mut random);
        if form == Form::Blktrace {
            // Nothing says which of two records of one time in two files is the first.
            lines.iter_mut().zip(0..).for_each(|(o, i)| o.us += i);
        }
        let want = replay(&write(Form::Microseconds, &lines, 0), Form::Microseconds, 1 << 20);
        // Nanoseconds of 64 bits end in 2554. Those of a table may begin in any year, before the clock's own too.
        let is_table = !matches!(form, Form::Blkparse | Form::Iolog | Form::Blktrace);
        let epoch = match random.below(if is_table { 7 } else { 4 }) {
            0 => 0,
            1 => random.below(1 << 30).into(),
            2 => i128::from(1_700_000_000_000_000 + random.below(1 << 50)),
            3 => random.below(u64::MAX / 1_000 - (1 << 30)).into(),
            4 => -i128::from(random.below(1 << 20)),
            5 => -i128::from(random.below(1 << 50)),
            // Since the year 1, as .NET counts.
            _ => 62_135_596_800_000_000 + i128::from(random.below(1 << 51)),
        };
        let (how, lines) = reorder(&mut random, &lines);
        let room = [1, 7, 40, 1 << 20][random.below(4) as usize];
        let mut files = write(form, &lines, epoch);
        if random.below(4) == 0 {
            for file in &mut files {
                let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
                packed.write_all(file).unwrap();
                *file = packed.finish().unwrap();
            }
        }
        let got = replay(&files, form, room);
        *hows.entry(how).or_default() += 1;
        assert!(
            got == want,
            "seed {seed}: {form:?} from {epoch} us, {how}, room {room}\n{got}\n{want}"
        );
    }
    println!("{hows:?}");
}
