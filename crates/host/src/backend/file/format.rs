//! The format on disk: `docs/disk-format.md` in code. Owns the place of everything in the file, and the
//! bytes of each structure. Never accesses a file.

use super::{CreateOptions, FileError, Identity};
use crc32c::crc32c;
use zoneplug_core::unit::SECTOR_SHIFT;
use zoneplug_core::zone::{Condition, Geometry, Limits};
use zoneplug_core::{Bytes, Error, ZoneNo};
use zoneplug_devices::emu::{EmuConfig, EmuKind};

/// The version that this code writes, and the newest that it reads.
pub(super) const VERSION: u32 = 1;
/// The first bytes of a disk. The line ends show whether a text transfer changed it.
pub(crate) const MAGIC: [u8; 16] = *b"zoneplug disk\r\n\x1a";
/// Length of a superblock, a table sector and the session. A power cut does not tear a sector.
pub(super) const SECTOR: usize = 512;
/// Alignment of every region.
pub(crate) const PAGE: u64 = 4096;
/// Alignment of the data area.
const DATA_ALIGN: u64 = 1 << 20;
/// Offset of the session.
pub(super) const SESSION_AT: u64 = PAGE;
/// Offset of the first copy of the table.
const TABLE_AT: u64 = 2 * PAGE;
/// Bytes of one zone's record in a table sector.
const RECORD: usize = 32;
/// The number of clients that a session lists as told of a loss.
pub(super) const TOLD: usize = 32;
/// Bytes before the records of a table sector.
const TABLE_HEAD: usize = 32;
/// Zones in a table sector.
pub(super) const GROUP: u32 = ((SECTOR - TABLE_HEAD) / RECORD) as u32;
/// Bytes of a note.
pub(super) const NOTE: u64 = 32;
/// Longest label, in bytes.
pub(super) const LABEL: usize = 63;

const TABLE_MAGIC: [u8; 4] = *b"ZPTB";
const SESSION_MAGIC: [u8; 4] = *b"ZPSS";

fn put32(b: &mut [u8], at: usize, n: u32) {
    b[at..at + 4].copy_from_slice(&n.to_le_bytes());
}

fn put64(b: &mut [u8], at: usize, n: u64) {
    b[at..at + 8].copy_from_slice(&n.to_le_bytes());
}

fn get32(b: &[u8], at: usize) -> u32 {
    let mut n = [0; 4];
    n.copy_from_slice(&b[at..at + 4]);
    u32::from_le_bytes(n)
}

fn get64(b: &[u8], at: usize) -> u64 {
    let mut n = [0; 8];
    n.copy_from_slice(&b[at..at + 8]);
    u64::from_le_bytes(n)
}

/// The superblock: identity, geometry and limits of a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Super {
    pub(super) uuid: [u8; 16],
    pub(super) created: u64,
    pub(super) label: String,
    pub(super) geometry: Geometry,
    pub(super) limits: Limits,
    /// Space was allocated when the disk was made, and is kept when a zone is reset.
    pub(super) keeps_space: bool,
}

/// The place of each region, in bytes of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    /// Both copies of the table.
    pub(super) tables: [u64; 2],
    pub(super) groups: u32,
    pub(super) notes: u64,
    pub(super) data: u64,
    /// Distance between two zones.
    pub(super) stride: u64,
    pub(super) len: u64,
}

impl Layout {
    pub(super) fn of(g: &Geometry) -> Layout {
        let groups = g.nr_zones().div_ceil(GROUP);
        let table = (u64::from(groups) * SECTOR as u64).next_multiple_of(PAGE);
        let notes = TABLE_AT + 2 * table;
        let data = (notes + u64::from(g.nr_zones()) * NOTE).next_multiple_of(DATA_ALIGN);
        let stride = (u64::from(g.zone_sectors()) << SECTOR_SHIFT).next_multiple_of(PAGE);
        let len = data + u64::from(g.nr_zones()) * stride + PAGE;
        Layout { tables: [TABLE_AT, TABLE_AT + table], groups, notes, data, stride, len }
    }

    /// The offsets of both copies of the superblock.
    pub(super) fn supers(&self) -> [u64; 2] {
        [0, self.len - PAGE]
    }

    /// The offset of the table sector of a group with the number `seq`. The copies take turns.
    pub(super) fn table(&self, group: u32, seq: u64) -> u64 {
        self.tables[(seq & 1) as usize] + u64::from(group) * SECTOR as u64
    }

    pub(super) fn note(&self, zone: u32) -> u64 {
        self.notes + u64::from(zone) * NOTE
    }

    /// The offset in the file of a sector of a zone.
    pub(super) fn data(&self, zone: u32, sectors: u32) -> u64 {
        self.data + u64::from(zone) * self.stride + (u64::from(sectors) << SECTOR_SHIFT)
    }

    /// The first byte behind a zone and its padding.
    pub(super) fn zone_end(&self, zone: u32) -> u64 {
        self.data(zone, 0) + self.stride
    }
}

/// The result of decoding a superblock.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    Good(Box<Super>, Layout),
    /// Without the magic.
    Foreign,
    Damaged,
    Newer(u32),
}

impl Super {
    /// The disk that options describe. Limits and layout are those of an emulated disk with the same
    /// options.
    pub(super) fn new(o: &CreateOptions, uuid: [u8; 16], created: u64) -> Result<Super, Error> {
        let mut text = "mem".to_owned();
        for (key, bytes) in [
            ("size", o.size),
            ("zone-size", Some(o.zone_size.unwrap_or(256 << 20))),
            ("zone-capacity", o.zone_capacity),
            ("last-zone-size", o.last_zone_size),
            ("last-zone-capacity", o.last_zone_capacity),
            ("lba-size", o.lba_size),
            ("granularity", o.granularity),
            ("append-max", o.zone_append_max),
        ] {
            if let Some(n) = bytes {
                text += &format!(",{key}={}", Bytes(n));
            }
        }
        if let Some(n) = o.zones {
            text += &format!(",zones={n}");
        }
        for (key, n) in [("conv", o.conv), ("max-open", o.max_open), ("max-active", o.max_active)] {
            if n > 0 {
                text += &format!(",{key}={n}");
            }
        }
        if o.label.len() > LABEL || o.label.chars().any(char::is_control) {
            return Err(FileError::Label { label: o.label.clone(), most: LABEL }.into());
        }
        let config: EmuConfig = text.parse()?;
        let (geometry, limits) = (config.geometry, config.limits);
        let label = o.label.clone();
        Ok(Super { uuid, created, label, geometry, limits, keeps_space: false })
    }

    pub(super) fn encode(&self) -> [u8; SECTOR] {
        let (g, l, at) = (&self.geometry, &self.limits, Layout::of(&self.geometry));
        let last = ZoneNo(g.nr_zones() - 1);
        let mut b = [0; SECTOR];
        b[..16].copy_from_slice(&MAGIC);
        put32(&mut b, 20, VERSION);
        b[24..40].copy_from_slice(&self.uuid);
        let places =
            [self.created, at.len, at.tables[0], at.tables[1], at.notes, at.data, at.stride];
        for (i, n) in places.into_iter().enumerate() {
            put64(&mut b, 40 + 8 * i, n);
        }
        let numbers = [
            g.zone_sectors(),
            g.zone_capacity_sectors(),
            g.nr_zones(),
            g.nr_conventional(),
            g.zone_len_sectors(last),
            g.capacity_of(last),
            l.logical_block_sectors,
            l.write_granularity_sectors,
            l.max_open_zones,
            l.max_active_zones,
            l.zone_append_max_sectors,
            self.label.len() as u32,
        ];
        for (i, n) in numbers.into_iter().enumerate() {
            put32(&mut b, 96 + 4 * i, n);
        }
        b[144..144 + self.label.len()].copy_from_slice(self.label.as_bytes());
        put32(&mut b, 208, u32::from(self.keeps_space));
        let crc = crc32c(&b[20..]);
        put32(&mut b, 16, crc);
        b
    }

    pub(super) fn decode(b: &[u8; SECTOR]) -> Found {
        if b[..16] != MAGIC {
            return Found::Foreign;
        }
        if get32(b, 16) != crc32c(&b[20..]) {
            return Found::Damaged;
        }
        match get32(b, 20) {
            0 => return Found::Damaged,
            VERSION => {}
            newer => return Found::Newer(newer),
        }
        match Self::fields(b) {
            Some(s) => {
                let layout = Layout::of(&s.geometry);
                Found::Good(Box::new(s), layout)
            }
            None => Found::Damaged,
        }
    }

    /// The fields of a superblock whose checksum is right. `None` if they describe no disk.
    fn fields(b: &[u8; SECTOR]) -> Option<Super> {
        let n = |i: usize| get32(b, 96 + 4 * i);
        let geometry = Geometry::new(u64::from(n(2)), n(0), n(1)).ok()?;
        let geometry = geometry.with_last_zone(n(4), n(5)).ok()?;
        if n(3) >= n(2) {
            return None;
        }
        let geometry = geometry.with_conventional((0..n(3)).map(ZoneNo)).ok()?;
        let limits = Limits {
            logical_block_sectors: n(6),
            write_granularity_sectors: n(7),
            max_open_zones: n(8),
            max_active_zones: n(9),
            zone_append_max_sectors: n(10),
            ..Limits::default()
        };
        let config = EmuConfig { limits, ..EmuConfig::new(EmuKind::Mem, geometry) };
        config.check().ok()?;
        let label = b.get(144..144 + n(11) as usize).filter(|l| l.len() <= LABEL)?;
        let mut uuid = [0; 16];
        uuid.copy_from_slice(&b[24..40]);
        let s = Super {
            uuid,
            created: get64(b, 40),
            label: String::from_utf8(label.to_vec()).ok()?,
            geometry: config.geometry,
            limits: config.limits,
            keeps_space: get32(b, 208) == 1,
        };
        // The places follow from the geometry. A superblock with other places is not of this version.
        (s.encode() == *b).then_some(s)
    }

    /// The identity of the disk. `opened` is from its session.
    pub(super) fn identity(&self, opened: u64) -> Identity {
        let hex: Vec<String> = self.uuid.iter().map(|b| format!("{b:02x}")).collect();
        let uuid = [&hex[..4], &hex[4..6], &hex[6..8], &hex[8..10], &hex[10..]]
            .map(|part| part.concat())
            .join("-");
        Identity {
            uuid,
            label: self.label.clone(),
            version: VERSION,
            created: self.created,
            opened,
        }
    }
}

/// The record of one zone in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Record {
    /// The write pointer: sectors written.
    pub(super) wp: u32,
    /// Never open: a restart closes open zones.
    pub(super) cond: Condition,
    /// Counts resets.
    pub(super) generation: u64,
    /// Counts writes.
    pub(super) writes: u64,
}

impl Record {
    /// The record of a zone of a new disk.
    pub(super) fn new(conventional: bool) -> Record {
        let cond = if conventional { Condition::NotWp } else { Condition::Empty };
        Record { wp: 0, cond, generation: 0, writes: 0 }
    }

    /// Whether a zone of this capacity, written in multiples of `unit`, can have this record.
    pub(super) fn is_possible(&self, conventional: bool, capacity: u32, unit: u32) -> bool {
        if !self.wp.is_multiple_of(unit) {
            return false;
        }
        match self.cond {
            Condition::NotWp => conventional && self.wp == 0,
            _ if conventional => false,
            Condition::Empty => self.wp == 0,
            Condition::Closed => self.wp > 0 && self.wp < capacity,
            Condition::Full | Condition::ReadOnly | Condition::Offline => self.wp <= capacity,
            _ => false,
        }
    }
}

/// Encodes the table sector of a group.
pub(super) fn encode_table(
    uuid: &[u8; 16],
    group: u32,
    seq: u64,
    zones: &[Record],
) -> [u8; SECTOR] {
    let mut b = [0; SECTOR];
    b[..4].copy_from_slice(&TABLE_MAGIC);
    put32(&mut b, 8, group);
    put64(&mut b, 16, seq);
    b[24..32].copy_from_slice(&uuid[..8]);
    for (i, z) in zones.iter().enumerate() {
        let r = &mut b[TABLE_HEAD + i * RECORD..][..RECORD];
        put32(r, 0, z.wp);
        r[4] = z.cond as u8;
        put64(r, 8, z.generation);
        put64(r, 16, z.writes);
    }
    let crc = crc32c(&b[8..]);
    put32(&mut b, 4, crc);
    b
}

/// Decodes a table sector: its number and records. `None` if it belongs to another disk, group or copy.
pub(super) fn decode_table(
    b: &[u8],
    uuid: &[u8; 16],
    group: u32,
    copy: usize,
) -> Option<(u64, [Record; GROUP as usize])> {
    let good = b[..4] == TABLE_MAGIC
        && get32(b, 4) == crc32c(&b[8..SECTOR])
        && get32(b, 8) == group
        && (get64(b, 16) & 1) as usize == copy
        && b[24..32] == uuid[..8];
    if !good {
        return None;
    }
    let mut records = [Record::new(false); GROUP as usize];
    for (i, r) in records.iter_mut().enumerate() {
        let z = &b[TABLE_HEAD + i * RECORD..][..RECORD];
        let cond = Condition::from_u8(z[4])?;
        *r = Record { wp: get32(z, 0), cond, generation: get64(z, 8), writes: get64(z, 16) };
    }
    Some((get64(b, 16), records))
}

/// Whether a table sector with number `a` is newer than one with `b`. Numbers wrap around (RFC 1982).
pub(super) fn is_newer(a: u64, b: u64) -> bool {
    a.wrapping_sub(b) as i64 > 0
}

/// The state of a zone that a write leaves in the file before it is acknowledged. A note counts while the system
/// runs, until the table has the same state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) wp: u32,
    pub(super) generation: u64,
    pub(super) writes: u64,
    pub(super) session: u64,
}

impl Note {
    pub(super) fn encode(&self) -> [u8; NOTE as usize] {
        let mut b = [0; NOTE as usize];
        put32(&mut b, 4, self.wp);
        put64(&mut b, 8, self.generation);
        put64(&mut b, 16, self.writes);
        put64(&mut b, 24, self.session);
        let crc = crc32c(&b[4..]);
        put32(&mut b, 0, crc);
        b
    }

    pub(super) fn decode(b: &[u8]) -> Option<Note> {
        (get32(b, 0) == crc32c(&b[4..NOTE as usize])).then(|| Note {
            wp: get32(b, 4),
            generation: get64(b, 8),
            writes: get64(b, 16),
            session: get64(b, 24),
        })
    }
}

/// The last opening for writing, and the boot of the system in which it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Session {
    pub(super) id: u64,
    pub(super) boot: [u8; 16],
    /// The disk was closed, so the table has everything.
    pub(super) closed: bool,
    /// The error (errno) of a sync, or of writing the table, after which it is unknown what is durable; 0:
    /// none. The boot id is then zero, so that no program believes the notes.
    pub(super) failure: u32,
    /// How often the disk was opened for writing; 0 if the last program does not count.
    pub(super) opened: u64,
    /// A loss that clients of this or an earlier session do not know yet.
    pub(super) debt: Debt,
}

/// Acknowledged writes were lost, and clients that outlive the writer may not know it: the next flush of each such
/// client fails, once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Debt {
    /// The boot in which the loss happened; zeroes: there is none. A new boot has new clients.
    pub(super) boot: [u8; 16],
    /// The clients that were told; 0: a free place. If a client is dropped from the list, it is told again.
    pub(super) told: [u64; TOLD],
}

impl Debt {
    /// A loss that no client knows. Without a boot id there are no notes, so every acknowledged write was durable.
    pub(super) fn new(boot: Option<[u8; 16]>) -> Debt {
        Debt { boot: boot.unwrap_or_default(), ..Debt::default() }
    }

    pub(super) fn is_of(&self, boot: Option<[u8; 16]>) -> bool {
        self.boot != [0; 16] && boot == Some(self.boot)
    }

    /// Whether this client must be told. Adds it to the told clients.
    pub(super) fn tell(&mut self, client: u64) -> bool {
        let owed = self.boot != [0; 16] && !self.told.contains(&client);
        if owed {
            self.told.rotate_right(1);
            self.told[0] = client;
        }
        owed
    }
}

impl Session {
    pub(super) fn encode(&self) -> [u8; SECTOR] {
        let mut b = [0; SECTOR];
        b[..4].copy_from_slice(&SESSION_MAGIC);
        put64(&mut b, 8, self.id);
        put32(&mut b, 16, u32::from(self.closed));
        put32(&mut b, 20, self.failure);
        b[24..40].copy_from_slice(&self.boot);
        put64(&mut b, 40, self.opened);
        b[48..64].copy_from_slice(&self.debt.boot);
        for (i, client) in self.debt.told.iter().enumerate() {
            put64(&mut b, 64 + 8 * i, *client);
        }
        let crc = crc32c(&b[8..]);
        put32(&mut b, 4, crc);
        b
    }

    pub(super) fn decode(b: &[u8; SECTOR]) -> Option<Session> {
        if b[..4] != SESSION_MAGIC || get32(b, 4) != crc32c(&b[8..]) {
            return None;
        }
        let mut boot = [0; 16];
        boot.copy_from_slice(&b[24..40]);
        let (id, closed, opened) = (get64(b, 8), get32(b, 16) == 1, get64(b, 40));
        let mut debt = Debt::default();
        debt.boot.copy_from_slice(&b[48..64]);
        for (i, client) in debt.told.iter_mut().enumerate() {
            *client = get64(b, 64 + 8 * i);
        }
        Some(Session { id, boot, closed, failure: get32(b, 20), opened, debt })
    }
}

/// The error for a file that is no disk, or a disk that cannot be opened.
pub(super) fn no_disk(what: &str, found: [&Found; 2]) -> Error {
    let path = what.to_owned();
    let newer = found.iter().find_map(|f| match f {
        Found::Newer(version) => Some(*version),
        _ => None,
    });
    match newer {
        Some(version) => FileError::Newer { path, version, newest: VERSION },
        None if found.contains(&&Found::Damaged) => FileError::Damaged { path },
        None => FileError::NoDisk { path },
    }
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Super {
        let o = CreateOptions {
            size: Some(10_000 * 4096),
            zone_size: Some(96 * 4096),
            zone_capacity: Some(80 * 4096),
            conv: 2,
            max_open: 3,
            max_active: 5,
            label: "a label".into(),
            ..CreateOptions::default()
        };
        Super::new(&o, [7; 16], 99).unwrap()
    }

    /// The parts of a file lie one behind the other, whatever the number of zones, and the second superblock is its last page.
    #[test]
    fn no_part_of_a_file_lies_in_another() {
        for zones in [1u32, 31, 32, 33, 1000, 32_767, 32_768, 40_000, 1_000_000] {
            let g = Geometry::new(u64::from(zones), 64, 64).unwrap();
            let l = Layout::of(&g);
            let last = zones - 1;
            let table = u64::from(last / GROUP + 1) * SECTOR as u64;
            let ends = [
                (l.supers()[0] + PAGE, l.table(0, 0)),
                (l.table(0, 0) + table, l.table(0, 1)),
                (l.table(0, 1) + table, l.note(0)),
                (l.note(last) + NOTE, l.data(0, 0)),
                (l.data(last, 0) + (64 << SECTOR_SHIFT), l.supers()[1]),
                (l.supers()[1] + PAGE, l.len),
            ];
            for (n, (end, next)) in ends.into_iter().enumerate() {
                assert!(
                    end <= next,
                    "{zones} zones: part {n} ends at {end}, the next begins at {next}"
                );
            }
        }
    }

    #[test]
    fn structures_are_read_as_they_were_written() {
        let s = sample();
        let Found::Good(back, layout) = Super::decode(&s.encode()) else { panic!("good") };
        assert_eq!(*back, s);
        assert_eq!(layout, Layout::of(&s.geometry));
        let n = Note { wp: 5, generation: 6, writes: 7, session: 8 };
        assert_eq!(Note::decode(&n.encode()), Some(n));
        let mut debt = Debt::new(Some([9; 16]));
        assert!(debt.tell(7) && debt.tell(8) && !debt.tell(7));
        let x = Session { id: 3, boot: [4; 16], closed: true, failure: 6, opened: 5, debt };
        assert_eq!(Session::decode(&x.encode()), Some(x));
        let r = Record { wp: 8, cond: Condition::Closed, generation: 1, writes: 2 };
        let (seq, records) =
            decode_table(&encode_table(&s.uuid, 3, 9, &[r]), &s.uuid, 3, 1).unwrap();
        assert_eq!((seq, records[0]), (9, r));
        assert_eq!(Note::decode(&[0; 32]), None);
    }

    #[test]
    fn every_bit_counts() {
        let good = sample().encode();
        for bit in 0..SECTOR * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            let found = Super::decode(&bad);
            assert!(matches!(found, Found::Damaged | Found::Foreign), "bit {bit}: {found:?}");
        }
    }

    #[test]
    fn a_newer_version_is_told_from_damage() {
        let mut b = sample().encode();
        put32(&mut b, 20, VERSION + 1);
        let crc = crc32c(&b[20..]);
        put32(&mut b, 16, crc);
        assert_eq!(Super::decode(&b), Found::Newer(VERSION + 1));
    }
}
