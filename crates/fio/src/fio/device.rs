//! A disk of the layer, opened once for all jobs that name it.

use super::abi::{self, ZbdZone};
use super::places::{Piece, Places};
use super::program::{Errno, say};
use core::ffi::c_int;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use zoneplug_buf::AlignedBuf;
pub(super) use zoneplug_core::poison::lock;
use zoneplug_core::zone::{Condition, ZoneInfo};
use zoneplug_core::{Bytes, Error, Op, Sector, Status};
use zoneplug_host::IoError;
use zoneplug_host::{BlockingDisk, Client, HostedDisk, Specification};

/// The largest number of tags of a job's client, unless the specification sets `tags=`.
const MAX_TAGS: usize = 4096;
/// The limit of time for zone management.
const PATIENCE: Duration = Duration::from_secs(60);
/// The longest write of `move_zone_wp`.
const FILL: u64 = 1 << 20;

pub(super) struct Device {
    disk: HostedDisk,
    /// The client for zone management. fio sends one such request at a time and waits for it.
    zone_io: Mutex<BlockingDisk>,
    tags: Option<u16>,
    bytes: u64,
    zone_sectors: u32,
    /// 0 for no limit.
    pub(super) max_open: u32,
    /// 0 for no limit.
    pub(super) max_active: u32,
    /// Whether fio has asked for the zones, and thus runs in zoned mode.
    pub(super) zoned: AtomicBool,
    /// Whether a message about the short last zone was printed.
    pub(super) warned_of_short_zone: AtomicBool,
    /// Where appends landed. Only jobs that append use it.
    places: Mutex<Places>,
    /// Failures that were printed: a bit for each status, by operation.
    shown: [AtomicU64; Op::ALL.len()],
}

impl Drop for Device {
    fn drop(&mut self) {
        if let Some(text) = lock(&self.places).summary() {
            // fio's own log would also write this behind the JSON text in the file of `--output`.
            eprintln!("zoneplug: {text}");
        }
    }
}

/// The option of this engine in a file name: writes are zone appends.
const ZONE_APPEND: &str = "zone_append";

/// The parts of a file name of fio.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FileName {
    /// The specification of the disk.
    pub(super) disk: Specification,
    /// Whether the job's writes are zone appends.
    pub(super) appends: bool,
}

impl FileName {
    /// Takes the engine's own option off a file name.
    pub(super) fn parse(text: &str) -> Result<FileName, String> {
        let spec = Specification::parse(text).map_err(|e| error_text(&e))?;
        let (spec, value) = spec.without(ZONE_APPEND).unwrap_or((spec, "0".to_owned()));
        let appends = match &*value {
            "0" => false,
            "1" => true,
            other => return Err(format!("{ZONE_APPEND}={other} is not possible\n0 or 1")),
        };
        Ok(FileName { disk: spec, appends })
    }
}

/// The text of an error, with the hint on a second line.
fn error_text(e: &Error) -> String {
    match e.what_to_try() {
        Some(hint) => format!("{}\n{hint}", e.what()),
        None => e.what().to_owned(),
    }
}

impl Device {
    /// Opens the device of a specification.
    pub(super) fn open(spec: &Specification) -> Result<Device, String> {
        let spec = spec.open().map_err(|e| error_text(&e))?;
        if spec.config.timeout.is_some() {
            return Err("timeout= cannot be used with fio\n\
                        fio uses the memory of a request again as soon as it has failed, and the device might \
                        still be using it; leave timeout= out, or use zoneplug-lab bench"
                .to_owned());
        }
        let tags = spec.tags;
        let disk = HostedDisk::open(spec.device, spec.config).map_err(|e| error_text(&e))?;
        let mut zone_io = BlockingDisk::new(&disk).map_err(|e| error_text(&e))?;
        zone_io.set_timeout(Some(PATIENCE));
        let (geometry, limits) = (disk.disk().geometry(), disk.disk().limits());
        Ok(Device {
            zone_io: Mutex::new(zone_io),
            tags,
            bytes: geometry.capacity_bytes().0,
            zone_sectors: geometry.zone_sectors(),
            max_open: limits.max_open_zones,
            max_active: limits.max_active_zones,
            zoned: AtomicBool::new(false),
            warned_of_short_zone: AtomicBool::new(false),
            places: Mutex::default(),
            shown: Default::default(),
            disk,
        })
    }

    /// Opens a client for a job with at most `depth` requests in flight.
    pub(super) fn client(&self, depth: usize) -> Result<Client, String> {
        let tags = self.tags.unwrap_or(depth.min(MAX_TAGS) as u16);
        self.disk.open_client(depth as u32, tags).map_err(|e| error_text(&e))
    }

    /// The size of the disk.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The number of zones that are as long as the first.
    pub(super) fn whole_zones(&self) -> u64 {
        self.bytes / self.zone_bytes()
    }

    /// The size without a last zone shorter than the others, which fio's zoned mode cannot address.
    pub(super) fn whole_bytes(&self) -> u64 {
        self.whole_zones() * self.zone_bytes()
    }

    fn zone_bytes(&self) -> u64 {
        Sector(u64::from(self.zone_sectors)).to_bytes().0
    }

    /// Prints a failure. Prints each pair of an operation and a status only once, because a failing disk may fail a
    /// million times a second.
    #[cold]
    pub(super) fn print_failure(&self, op: Op, sector: Sector, status: Status) {
        let bit = 1 << (status as u32 % u64::BITS);
        if self.shown[op as usize].fetch_or(bit, Ordering::Relaxed) & bit == 0 {
            let what = IoError::new(op, sector, status);
            say(&format!("{what} (more of this kind are not shown)"));
        }
    }

    fn failed(&self, e: IoError) -> Errno {
        self.print_failure(e.op, e.sector, e.status);
        e.status.errno()
    }

    /// Up to `max` zones from the one that holds `offset`, without a short last one.
    pub(super) fn report(&self, offset: u64, max: u32) -> Result<Vec<ZbdZone>, Errno> {
        if offset >= self.whole_bytes() {
            return Ok(Vec::new());
        }
        let sector = Bytes(offset).to_sectors();
        let found = lock(&self.zone_io).report(sector, max).map_err(|e| self.failed(e))?;
        let end = Bytes(self.whole_bytes()).to_sectors();
        Ok(found.iter().filter(|z| z.start < end).map(to_fio).collect())
    }

    /// Resets or finishes the zones of a range of bytes.
    pub(super) fn manage(&self, op: Op, offset: u64, len: u64) -> Result<(), Errno> {
        let end =
            offset.checked_add(len).filter(|e| (offset | e) & 511 == 0).ok_or(libc::EINVAL)?;
        let (mut at, end) = (Bytes(offset).to_sectors(), Bytes(end).to_sectors());
        // The most whole zones that one operation can name, in sectors.
        let most = u64::from(u32::MAX / self.zone_sectors * self.zone_sectors);
        let mut io = lock(&self.zone_io);
        while at < end {
            let len = (end.0 - at.0).min(most);
            let done = match op {
                Op::Discard => io.discard(at, len),
                _ => io.manage(op, at, len),
            };
            done.map_err(|e| self.failed(e))?;
            if op == Op::ZoneReset {
                lock(&self.places).forget(at.to_bytes().0..at.plus(len).to_bytes().0);
            }
            at = at.plus(len);
        }
        Ok(())
    }

    /// The first sector of the zone of an append at a sector. `None`: the zone is conventional, and takes none.
    pub(super) fn append_sector(&self, sector: Sector) -> Option<Sector> {
        let geometry = self.disk.disk().geometry();
        let (zone, _) = geometry.zone_of(sector);
        (!geometry.is_conventional(zone)).then(|| geometry.zone_start(zone))
    }

    /// Notes where an append has landed.
    pub(super) fn landed(&self, piece: Piece) {
        lock(&self.places).note(piece);
    }

    /// Where `len` bytes that fio names are on the disk, one piece after the other.
    pub(super) fn places_of(&self, offset: u64, len: u64) -> Vec<Piece> {
        lock(&self.places).find(offset..offset.saturating_add(len))
    }

    /// Reads one piece after the other and waits. `copy` gets the distance of each piece from the first, and its bytes.
    pub(super) fn read_pieces(
        &self,
        pieces: &[Piece],
        mut copy: impl FnMut(u64, &AlignedBuf),
    ) -> Result<(), Errno> {
        let mut io = lock(&self.zone_io);
        for piece in pieces {
            let len = Bytes(piece.end - piece.start).to_sectors().0;
            let data = io.read(Bytes(piece.landed).to_sectors(), len);
            copy(piece.start - pieces[0].start, &data.map_err(|e| self.failed(e))?);
        }
        Ok(())
    }

    /// Writes `len` bytes at `offset` and waits. `copy` fills each buffer; it gets the distance of the buffer from
    /// `offset`.
    pub(super) fn fill(
        &self,
        offset: u64,
        len: u64,
        mut copy: impl FnMut(u64, &mut AlignedBuf),
    ) -> Result<(), Errno> {
        if (offset | len) & 511 != 0 {
            return Err(libc::EINVAL);
        }
        let mut io = lock(&self.zone_io);
        let mut at = 0;
        while at < len {
            let mut buf = AlignedBuf::zeroed((len - at).min(FILL) as u32);
            let n = u64::from(buf.len());
            copy(at, &mut buf);
            io.write(Bytes(offset + at).to_sectors(), buf).map_err(|e| self.failed(e))?;
            at += n;
        }
        Ok(())
    }
}

/// A zone in fio's form: in bytes, and with a write pointer inside the zone in any condition.
fn to_fio(z: &ZoneInfo) -> ZbdZone {
    let bytes = |sectors: u64| Sector(sectors).to_bytes().0;
    let (start, len) = (bytes(z.start.0), bytes(z.len_sectors));
    let (zone_type, cond) = match z.cond {
        Condition::NotWp => (abi::ZBD_ZONE_TYPE_CNV, abi::ZBD_ZONE_COND_NOT_WP),
        Condition::Empty => (abi::ZBD_ZONE_TYPE_SWR, abi::ZBD_ZONE_COND_EMPTY),
        Condition::ImpOpen | Condition::Active => {
            (abi::ZBD_ZONE_TYPE_SWR, abi::ZBD_ZONE_COND_IMP_OPEN)
        }
        Condition::ExpOpen => (abi::ZBD_ZONE_TYPE_SWR, abi::ZBD_ZONE_COND_EXP_OPEN),
        Condition::Closed => (abi::ZBD_ZONE_TYPE_SWR, abi::ZBD_ZONE_COND_CLOSED),
        Condition::Full => (abi::ZBD_ZONE_TYPE_SWR, abi::ZBD_ZONE_COND_FULL),
        Condition::ReadOnly => (abi::ZBD_ZONE_TYPE_SWR, abi::ZBD_ZONE_COND_READONLY),
        Condition::Offline => (abi::ZBD_ZONE_TYPE_SWR, abi::ZBD_ZONE_COND_OFFLINE),
    };
    // fio aborts if the write pointer is outside the zone. A zone that has none reports all ones.
    let wp = bytes(z.wp.0.min(z.start.0 + z.len_sectors)).max(start);
    ZbdZone { start, wp, len, capacity: bytes(z.capacity_sectors), zone_type, cond: cond as c_int }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(spec: &str) -> Result<Device, String> {
        Device::open(&spec.parse().unwrap())
    }
    use zoneplug_core::zone::ZoneType;

    #[test]
    fn zones_as_fio_wants_them() {
        let z = ZoneInfo {
            start: Sector(8),
            len_sectors: 8,
            capacity_sectors: 4,
            wp: Sector(0),
            zone_type: ZoneType::SeqWriteRequired,
            cond: Condition::Empty,
        };
        let f = to_fio(&z);
        assert_eq!((f.wp, f.zone_type, f.cond), (4096, abi::ZBD_ZONE_TYPE_SWR, 1));
        assert_eq!((f.start, f.len, f.capacity), (4096, 4096, 2048));
        let f = to_fio(&ZoneInfo { wp: Sector(u64::MAX), cond: Condition::Full, ..z });
        assert_eq!((f.wp, f.cond), (8192, abi::ZBD_ZONE_COND_FULL));
        let f = to_fio(&ZoneInfo { cond: Condition::NotWp, ..z });
        assert_eq!((f.zone_type, f.cond), (abi::ZBD_ZONE_TYPE_CNV, 0));
    }

    #[test]
    fn a_short_last_zone_is_kept_from_the_report() {
        let d = open("mem,zones=5,zone-size=1M,conv=1,last-zone-size=256K").unwrap();
        assert_eq!((d.bytes(), d.whole_zones(), d.whole_bytes()), (4352 << 10, 4, 4 << 20));
        assert_eq!(d.report(0, 100).unwrap().len(), 4);
        assert_eq!(d.report((3 << 20) + 4096, 100).unwrap()[0].start, 3 << 20);
        assert_eq!(d.report(4 << 20, 100).unwrap(), []);
        assert_eq!(d.report(0, 2).unwrap().len(), 2);
    }

    #[test]
    fn zones_are_filled_reset_and_finished() {
        let d = open("mem,zones=4,zone-size=4M").unwrap();
        let mut seen = Vec::new();
        d.fill(0, (2 << 20) + 4096, |at, buf| seen.push((at, buf.len()))).unwrap();
        assert_eq!(seen, [(0, 1 << 20), (1 << 20, 1 << 20), (2 << 20, 4096)]);
        let wp = |zone: u64| d.report(zone << 22, 1).unwrap()[0].wp - (zone << 22);
        assert_eq!(wp(0), (2 << 20) + 4096);
        d.manage(Op::ZoneFinish, 0, 8 << 20).unwrap();
        assert_eq!((wp(0), wp(1)), (4 << 20, 4 << 20));
        d.manage(Op::ZoneReset, 0, 4 << 20).unwrap();
        assert_eq!((wp(0), wp(1)), (0, 4 << 20));
        assert_eq!(d.fill(4096, 4096, |_, _| {}), Err(libc::EIO), "not at the write pointer");
        assert_eq!(d.fill(100, 4096, |_, _| {}), Err(libc::EINVAL));
        assert_eq!(d.manage(Op::ZoneReset, 4096, 4 << 20), Err(libc::EINVAL));
        assert_eq!(d.manage(Op::ZoneReset, 512, u64::MAX), Err(libc::EINVAL));
        assert_eq!(d.manage(Op::Discard, 4 << 20, 4096), Err(libc::EOPNOTSUPP));
        let d = open("mem,zones=4,zone-size=4M,conv=1").unwrap();
        d.manage(Op::Discard, 4096, 8192).unwrap();
    }

    #[test]
    fn the_engine_takes_its_own_option_off_the_name() {
        let name = |text: &str| FileName::parse(text).map(|n| (n.disk.to_string(), n.appends));
        let disk = "po2@mem,zones=4,zone-size=3M".to_owned();
        assert_eq!(name("po2@mem,zones=4,zone-size=3M").unwrap(), (disk.clone(), false));
        for (value, appends) in [("0", false), ("1", true)] {
            let text = format!("po2@mem,zones=4,zone_append={value},zone-size=3M");
            assert_eq!(name(&text).unwrap(), (disk.clone(), appends));
        }
        let e = name("mem,zone_append=2").unwrap_err();
        assert_eq!(e, "zone_append=2 is not possible\n0 or 1");
        assert!(name("mem,zones=4,zones=5").unwrap_err().contains("given twice"));
    }

    #[test]
    fn a_bad_specification_says_what_and_what_to_try() {
        let e = open("mem,zons=4").err().unwrap();
        let lines: Vec<_> = e.lines().collect();
        assert_eq!(lines[0], "mem has no option zons");
        assert!(lines[1].contains("did you mean zones?"), "{e}");
        assert!(open("mem,zones=4,timeout=1s").err().unwrap().starts_with("timeout= cannot"));
        assert!(open("mem,zones=4,mode=fast").err().unwrap().contains("plug, none, lock"));
    }
}
