//! The state of a zone as its clients may know it. Worlds whose clients use the disk and worlds whose clients are hosts
//! of a network have the same; each keeps beside it what only its own clients can see.

use crate::memory::{buf, stamps};
use zoneplug_core::zone::{Condition, Geometry, ZoneInfo};
use zoneplug_core::{Bio, Command, Commands, Nanos, Op, Queue, Sector, ZoneNo};

/// A zone as its clients may know it.
#[derive(Debug, Default)]
pub(crate) struct ClientZone {
    pub(crate) start: u64,
    pub(crate) len: u32,
    pub(crate) cap: u32,
    pub(crate) conventional: bool,
    /// The place of the next write, if nothing in flight fails.
    pub(crate) wp: u32,
    /// Whether a command failed or is unknown, so that the clients must ask for the write pointer.
    pub(crate) unsure: bool,
    /// Whether a reset or finish met writes in flight: the content is not defined until the next reset of the zone at
    /// rest (M4), or, for hosts, until the zone is reported.
    pub(crate) fuzzy: bool,
    /// Whether data of earlier generations may lie behind the acknowledged data.
    pub(crate) mixed: bool,
    /// The first stamp of this generation.
    pub(crate) born: u64,
    /// Counts submitted commands. A report that met none of them describes the zone correctly.
    pub(crate) activity: u64,
    /// Changed by every reset and every conventional write. A read compares only data of one generation.
    pub(crate) generation: u64,
    /// The stamps of the acknowledged data, by sector.
    pub(crate) shadow: Vec<Option<u64>>,
}

impl ClientZone {
    pub(crate) fn new(geometry: &Geometry, zone: ZoneNo) -> ClientZone {
        let len = geometry.zone_len_sectors(zone);
        ClientZone {
            start: geometry.zone_start(zone).0,
            len,
            cap: geometry.capacity_of(zone),
            conventional: geometry.is_conventional(zone),
            shadow: vec![None; len as usize],
            ..ClientZone::default()
        }
    }

    /// Returns the place of the next write in a record of this zone. In a full zone that is the capacity.
    pub(crate) fn write_pointer_of(&self, info: &ZoneInfo) -> u32 {
        match info.cond {
            Condition::Full => self.cap,
            _ => (info.wp.0 - info.start.0) as u32,
        }
    }

    /// Notes that stamps were acknowledged at `offset`, where nothing was.
    pub(crate) fn acknowledged(&mut self, offset: u32, stamps: impl Iterator<Item = u64>) {
        for (place, stamp) in self.shadow[offset as usize..].iter_mut().zip(stamps) {
            assert!(
                place.is_none(),
                "R25: written twice: at {offset} of the zone at {}",
                self.start
            );
            *place = Some(stamp);
        }
    }

    /// Checks that acknowledged data are on the medium, which is that of the whole zone.
    pub(crate) fn check_acknowledged(&self, medium: &[u64]) {
        for (i, known) in self.shadow.iter().enumerate() {
            let kept = known.is_none_or(|s| medium[i] == s);
            assert!(kept, "offset {i}: acknowledged data is gone: {self:?}");
        }
    }
}

/// A range of stamps, and its place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stamped {
    pub(crate) first: u64,
    pub(crate) len: u32,
    pub(crate) zone: usize,
    /// The offset in the zone; `None` for an append until its client is told.
    pub(crate) offset: Option<u32>,
    /// Whether no command can have written it.
    pub(crate) never: bool,
}

/// All stamps of a world, in ascending order.
#[derive(Debug, Default)]
pub(crate) struct Stamps(Vec<Stamped>);

impl Stamps {
    /// Notes that stamps from `first` on are written, or appended, to a zone.
    pub(crate) fn add(&mut self, first: u64, len: u32, zone: usize, offset: Option<u32>) {
        self.0.push(Stamped { first, len, zone, offset, never: false });
    }

    pub(crate) fn find(&mut self, stamp: u64) -> Option<&mut Stamped> {
        let i = self.0.partition_point(|s| s.first <= stamp).checked_sub(1)?;
        self.0.get_mut(i).filter(|s| stamp < s.first + u64::from(s.len))
    }

    /// Returns the range of a stamp that is on the medium of zone `z`, at `offset`. Checks that a client wrote it,
    /// and to that zone.
    pub(crate) fn found(&mut self, z: usize, offset: usize, stamp: u64) -> Stamped {
        let s = self.find(stamp).map(|s| *s);
        let s = s.unwrap_or_else(|| panic!("zone {z}, {offset}: nobody wrote {stamp}"));
        assert_eq!(s.zone, z, "zone {z} holds another's data at {offset}: {stamp}, {s:?}");
        s
    }
}

/// Checks that the first stamps of the ranges in a zone are all different.
pub(crate) fn check_once(z: usize, mut seen: Vec<u64>) {
    seen.sort_unstable();
    assert!(seen.windows(2).all(|w| w[0] != w[1]), "zone {z}: written twice");
}

/// Returns the stamps of sectors on a device, read by commands of at most `most` sectors. `None` if the device refuses.
pub(crate) fn read_medium(
    queue: &mut dyn Queue,
    first: u64,
    len: u32,
    most: u32,
) -> Option<Vec<u64>> {
    let (mut all, mut now) = (Vec::new(), Nanos(0));
    while (all.len() as u32) < len {
        let n = most.min(len - all.len() as u32);
        let bio = Bio::with_buf(Op::Read, Sector(first + all.len() as u64), n, buf(n));
        let mut list = Commands::from([Command::of(bio)]);
        let mut done = Commands::new();
        while done.is_empty() {
            queue.submit(now, &mut list);
            now = queue.next_deadline().unwrap_or(now).max(now);
            queue.poll(now, &mut done);
        }
        if !done[0].status.is_ok() {
            return None;
        }
        all.extend(stamps(done[0].bios[0].data()));
    }
    Some(all)
}
