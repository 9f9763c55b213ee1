//! A log that eight threads write, and one that tasks of tokio write, with nothing but `use zoneplug::...`: no
//! `unsafe`, no crate of zoneplug's own rooms. `.ci/run` builds and runs it.

use std::collections::BTreeSet;
use std::error::Error;
use zoneplug::zone_log::{AsyncZoneLog, LogAddress, LogOptions, Record, ZoneLog};
use zoneplug::{HostedDisk, Op, Status};

const WRITERS: usize = 8;
const RECORDS: usize = 250;

fn name(writer: usize, n: usize) -> String {
    format!("writer {writer}, record {n}, {}", "x".repeat(n * 7 % 900))
}

/// Each record is there once, where its writer was told, and those of one writer are in its order.
fn check(records: &[Record], told: &[Vec<LogAddress>]) {
    assert_eq!(records.len(), WRITERS * RECORDS);
    assert!(records.is_sorted_by_key(|r| r.address.sequence()));
    for (writer, addresses) in told.iter().enumerate() {
        let prefix = format!("writer {writer},");
        let of_this = |r: &&Record| r.data.starts_with(prefix.as_bytes());
        for (n, (record, at)) in records.iter().filter(of_this).zip(addresses).enumerate() {
            assert_eq!((record.address, &record.data[..]), (*at, name(writer, n).as_bytes()));
        }
    }
    let all: BTreeSet<u64> = told.iter().flatten().map(|at| at.sequence()).collect();
    assert_eq!(all.len(), records.len());
}

fn with_threads() -> Result<(), Box<dyn Error>> {
    let disk = HostedDisk::open_spec("mem,zones=16,zone-size=1M,max-open=2")?;
    let log = ZoneLog::open(&disk, LogOptions::new())?;
    let told = std::thread::scope(|s| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let log = log.clone();
                s.spawn(move || {
                    (0..RECORDS)
                        .map(|n| log.append(name(writer, n).as_bytes()))
                        .collect::<Result<_, _>>()
                })
            })
            .collect();
        writers
            .into_iter()
            .map(|w| w.join().expect("no writer panics"))
            .collect::<Result<Vec<Vec<_>>, _>>()
    })?;
    log.sync()?;
    drop(log);
    let log = ZoneLog::open(&disk, LogOptions::new())?;
    check(&log.iter().collect::<Result<Vec<_>, _>>()?, &told);
    Ok(())
}

async fn with_tasks() -> Result<(), Box<dyn Error>> {
    let disk = HostedDisk::open_spec("mem,zones=16,zone-size=1M,lba-size=512")?;
    let log = AsyncZoneLog::open(&disk, LogOptions::new()).await?;
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let log = log.clone();
            tokio::spawn(async move {
                let mut told = Vec::new();
                for n in 0..RECORDS {
                    told.push(log.append(name(writer, n).as_bytes()).await?);
                }
                Ok::<_, zoneplug::zone_log::LogError>(told)
            })
        })
        .collect();
    let mut told = Vec::new();
    for writer in writers {
        told.push(writer.await??);
    }
    log.sync().await?;
    drop(log);
    let log = AsyncZoneLog::open(&disk, LogOptions::new()).await?;
    let (mut cursor, mut records) = (log.cursor(), Vec::new());
    while let Some(record) = cursor.next().await {
        records.push(record?);
    }
    check(&records, &told);
    Ok(())
}

/// What a program without a log does: operations by themselves, and their errors.
fn by_hand() -> Result<(), zoneplug::Error> {
    use zoneplug::{AlignedBuf, Batch, BlockingDisk, ZoneNo, zone::Condition};
    let disk = HostedDisk::open_spec("mem,zones=4,zone-size=1M")?;
    let mut io = BlockingDisk::new(&disk)?;
    let zone = io.zone(ZoneNo(1))?;
    let mut batch = Batch::new(&disk, 64)?;
    let fits = zone.capacity_sectors / 8;
    for n in 0..=fits {
        batch.append(zone.start, AlignedBuf::padded(&n.to_le_bytes(), 4096));
    }
    let mut refused = Vec::new();
    while let Some(one) = batch.wait_any(None) {
        refused.extend(one.result.err());
    }
    let last = refused.pop().expect("one block does not fit");
    assert!(refused.is_empty() && last.op == Op::ZoneAppend && last.status == Status::ZoneFull);
    let buf = last.into_buf().expect("the disk is done with it");
    assert_eq!(buf.as_slice()[..8], fits.to_le_bytes());
    assert_eq!(io.zone(ZoneNo(1))?.cond, Condition::Full);
    io.reset(zone.start, zone.len_sectors)?;
    assert_eq!(disk.counters().plugs.rejected.by(Status::ZoneFull), 1);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    by_hand()?;
    tokio::task::spawn_blocking(|| with_threads().map_err(|e| e.to_string())).await??;
    with_tasks().await?;
    // What was not built says which feature has it.
    let e = HostedDisk::open_spec("./none.zbd").expect_err("this program has no feature file");
    assert!(e.to_string().contains("the feature file"), "{e}");
    println!("{WRITERS} threads and {WRITERS} tasks: {} records in order", 2 * WRITERS * RECORDS);
    Ok(())
}
