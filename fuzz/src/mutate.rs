//! A runner for compilers without libFuzzer: mutates a corpus with a seeded generator for so many minutes.
//!
//! `cargo run --release --bin mutate -- TARGET MINUTES [SEED]`; without a target, all of them.

use std::time::{Duration, Instant};
use zoneplug_core::Random;
use zoneplug_fuzz::TARGETS;

const WORDS: &[&str] = &[
    "mem",
    "null",
    ",zones=",
    ",zone-size=",
    ",zone-capacity=",
    ",conv=",
    ",fault=",
    "write/io",
    "any/cut",
    "/zone=",
    "/count=",
    "/p=0.",
    "/skip=",
    "+",
    "/",
    "=",
    ",",
    "torn",
    "delay=5ms",
    "lost",
    "64M",
    "1K",
    "18446744073709551615",
    "4294967296",
    "0",
    "-1",
    ",max-open=",
    ",last-zone-size=",
    ",reorder=",
    ",append=native",
    "seed=",
    "from=",
    "to=",
];

fn mutate(r: &mut Random, corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut data = corpus[r.below(corpus.len() as u32) as usize].clone();
    for _ in 0..r.range(1, 6) {
        let at = r.below(data.len() as u32 + 1) as usize;
        match r.below(6) {
            0 if at < data.len() => data[at] ^= 1 << r.below(8),
            1 if at < data.len() => {
                data.remove(at);
            }
            2 => data.insert(at, b' ' + r.below(95) as u8),
            3 => data.truncate(at),
            4 => {
                let other = &corpus[r.below(corpus.len() as u32) as usize];
                let from = r.below(other.len() as u32 + 1) as usize;
                data.splice(at..at, other[from..].iter().copied());
            }
            _ => {
                let word = WORDS[r.below(WORDS.len() as u32) as usize];
                data.splice(at..at, word.bytes());
            }
        }
        data.truncate(512);
    }
    data
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let wanted = args.get(1).filter(|a| *a != "all");
    let minutes: f64 = args.get(2).and_then(|m| m.parse().ok()).unwrap_or(1.0);
    let seed: u64 = args.get(3).and_then(|s| s.parse().ok()).unwrap_or(1);
    for (name, target) in TARGETS.iter().filter(|t| wanted.is_none_or(|w| w == t.0)) {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/").to_owned() + name;
        let files = std::fs::read_dir(&dir).expect("a corpus");
        let mut corpus: Vec<(std::path::PathBuf, Vec<u8>)> = files
            .map(|f| f.expect("a file").path())
            .map(|p| (p.clone(), std::fs::read(p).expect("a file of the corpus")))
            .collect();
        corpus.sort();
        let corpus: Vec<_> = corpus.into_iter().map(|c| c.1).collect();
        corpus.iter().for_each(|c| target(c));
        let mut r = Random::new(seed);
        let (start, mut n) = (Instant::now(), 0u64);
        while start.elapsed() < Duration::from_secs_f64(minutes * 60.0) {
            for _ in 0..256 {
                let data = mutate(&mut r, &corpus);
                let result = std::panic::catch_unwind(|| target(&data));
                if result.is_err() {
                    println!("{name}: a finding: {:?}", String::from_utf8_lossy(&data));
                    std::process::exit(1);
                }
                n += 1;
            }
        }
        println!("{name}: {n} inputs, no finding");
    }
}
