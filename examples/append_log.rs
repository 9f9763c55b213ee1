//! A log over two zones: what the author of a database writes.
//!
//! Records are appended without choosing a place: the disk says where each landed, and that address is the record's
//! name. When a zone is full the log goes on in the other one, after resetting it: the older half of the
//! history goes, as in any ring.
//!
//! `cargo run --release --example append_log` runs it on a disk in memory; a device specification as its argument
//! takes another disk.

use std::error::Error;
use zoneplug_buf::AlignedBuf;
use zoneplug_core::zone::{Condition, ZoneInfo};
use zoneplug_core::{Sector, Status, ZoneNo};
use zoneplug_host::{BlockingDisk, HostedDisk};

/// Each record takes whole blocks; the first four bytes are its length.
const BLOCK: usize = 4096;

struct Log {
    io: BlockingDisk,
    /// Where the two zones start; the first is the one being written.
    zones: [Sector; 2],
    /// How often an old zone was reset to make room.
    turns: u32,
}

impl Log {
    /// A log in the first two sequential zones of a disk. Their write pointers say where it goes on: there is no
    /// other state to lose.
    fn open(disk: &HostedDisk) -> Result<Log, Box<dyn Error>> {
        let geometry = disk.disk().geometry();
        let mut zones = (0..geometry.nr_zones())
            .map(ZoneNo)
            .filter(|&z| !geometry.is_conventional(z))
            .map(|z| geometry.zone_start(z));
        let (Some(a), Some(b)) = (zones.next(), zones.next()) else {
            return Err("the log needs two sequential zones".into());
        };
        let mut io = BlockingDisk::new(disk)?;
        // The one that is partly written is the current one.
        let half = |z: ZoneInfo| z.cond != Condition::Empty && z.cond != Condition::Full;
        let swap = half(io.report(b, 1)?[0]);
        Ok(Log { io, zones: if swap { [b, a] } else { [a, b] }, turns: 0 })
    }

    /// Appends a record and returns its address.
    fn append(&mut self, record: &[u8]) -> Result<Sector, Box<dyn Error>> {
        let blocks = (4 + record.len()).div_ceil(BLOCK);
        let mut buf = AlignedBuf::zeroed((blocks * BLOCK) as u32);
        buf.write(0, &(record.len() as u32).to_le_bytes());
        buf.write(4, record);
        let capacity = self.io.report(self.zones[0], 1)?[0].capacity_sectors;
        if u64::from(buf.len() >> 9) > capacity {
            return Err("the record is longer than a zone".into());
        }
        // Full: what does not fit was not written, not even in part.
        let full = |s| matches!(s, Status::ZoneFull | Status::PastCapacity);
        match self.io.append(self.zones[0], buf) {
            Ok((at, _)) => Ok(at),
            Err(e) if full(e.status) => {
                self.turn()?;
                self.append(record)
            }
            Err(e) => Err(e.into()),
        }
    }

    /// Goes on in the older zone, which loses its records.
    fn turn(&mut self) -> Result<(), Box<dyn Error>> {
        self.zones.swap(0, 1);
        let older = self.io.report(self.zones[0], 1)?[0];
        self.io.reset(older.start, older.len_sectors as u32)?;
        self.turns += 1;
        Ok(())
    }

    /// Reads the record at an address that `append` returned.
    fn read(&mut self, at: Sector) -> Result<Vec<u8>, Box<dyn Error>> {
        let first = self.io.read(at, (BLOCK / 512) as u32)?.to_vec();
        let len = u32::from_le_bytes([first[0], first[1], first[2], first[3]]) as usize;
        let blocks = (4 + len).div_ceil(BLOCK);
        let all = self.io.read(at, (blocks * BLOCK / 512) as u32)?.to_vec();
        Ok(all[4..4 + len].to_vec())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let spec = std::env::args().nth(1).unwrap_or("mem,zones=2,zone-size=1M".to_owned());
    println!("{}", run(&spec)?);
    Ok(())
}

/// Writes 1000 records to the disk that `spec` names, and reads those that are still there.
pub(crate) fn run(spec: &str) -> Result<String, Box<dyn Error>> {
    let mut log = Log::open(&HostedDisk::open_spec(spec)?)?;
    let mut kept: Vec<(Sector, String)> = Vec::new();
    for n in 0..1000 {
        let record = format!("record {n} {}", "x".repeat(n % 5000));
        let turns = log.turns;
        let at = log.append(record.as_bytes())?;
        if log.turns > turns {
            // The zone that is written now was reset: its older records are gone.
            let zone = log.io.report(log.zones[0], 1)?[0];
            let end = zone.start.plus(zone.len_sectors);
            kept.retain(|(at, _)| *at < zone.start || *at >= end);
        }
        kept.push((at, record));
    }
    // The newest records, as many as two zones hold, are there.
    for (at, record) in kept.iter().rev().take(100) {
        if log.read(*at)? != record.as_bytes() {
            return Err(format!("the record at {at} is another").into());
        }
    }
    let last = kept.last().map(|(at, _)| *at).ok_or("nothing was written")?;
    Ok(format!("1000 records, {} zones reused, the last one at {last}", log.turns))
}
