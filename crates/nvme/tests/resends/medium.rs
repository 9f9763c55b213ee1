//! A disk that carries commands out in any order, but the writes of a zone in that in which it has admitted them, and its
//! clients. The disk may have a deadline: then it gives up some writes of hosts that are gone, and the device carries them
//! out late, in part, or not at all. Until a report of the zone the disk refuses each write.

use super::{BLOCK, ZONE, geometry};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use zoneplug_buf::{AlignedBuf, Lent};
use zoneplug_core::zone::{Condition, Geometry, ZoneInfo, ZoneType};
use zoneplug_core::{Bio, Bios, Nanos, Op, Random, Sector, Status};
use zoneplug_nvme::io_queue::{DiskClient, Disks};
use zoneplug_recovery::DiskRecovery;

#[derive(Debug, Default, Clone)]
pub(super) struct Zone {
    /// The byte that each sector was filled with.
    pub(super) data: Vec<u8>,
    /// Writes that were admitted and have not landed, in their order: their number and end.
    admitted: VecDeque<(u64, u32)>,
    /// Whether the write pointer is unknown, because a write was given up.
    is_stale: bool,
}

/// A write that was given up, and that the device may still carry out.
#[derive(Debug)]
struct LateWrite {
    zone: usize,
    offset: u32,
    data: Vec<u8>,
}

/// A disk that carries commands out in any order, but the writes of a zone in that in which it has admitted them.
#[derive(Debug)]
pub(super) struct Medium {
    pub(super) random: Random,
    pub(super) zones: Vec<Zone>,
    pub(super) last: u64,
    /// Whether the disk has a deadline.
    pub(super) has_deadline: bool,
    late: Vec<LateWrite>,
    /// How many writes were given up and have landed.
    pub(super) landed_late: u64,
}

impl Medium {
    pub(super) fn new(random: Random, zones: u32, has_deadline: bool) -> Medium {
        let zones = vec![Zone::default(); zones as usize];
        Medium { random, zones, last: 0, has_deadline, late: Vec::new(), landed_late: 0 }
    }

    /// Gives a write up. Those behind it in its zone are aborted.
    fn give_up(&mut self, bio: &Bio) {
        let (zone, offset) = geometry().zone_of(bio.sector);
        let mut data = vec![0; bio.len_sectors as usize];
        if bio.op == Op::Write {
            for (i, fill) in data.iter_mut().enumerate() {
                bio.data().copy_to(i as u32 * BLOCK, std::slice::from_mut(fill));
            }
        }
        let zone = zone.0 as usize;
        self.late.push(LateWrite { zone, offset, data });
        (self.zones[zone].is_stale, self.zones[zone].admitted) = (true, VecDeque::new());
    }

    /// The device ends a write that was given up.
    pub(super) fn end_late(&mut self) {
        if self.late.is_empty() || !self.random.one_in(150) {
            return;
        }
        let n = self.random.below(self.late.len() as u32) as usize;
        let LateWrite { zone, offset, data } = self.late.swap_remove(n);
        let there = &mut self.zones[zone].data;
        if there.len() == offset as usize {
            let len = data.len() as u32;
            let lands = self.random.pick(&[len, len, len / 2, 0]);
            there.extend(&data[..lands as usize]);
            self.landed_late += u64::from(lands == len);
        }
    }

    /// Admits a write, if it is one and comes where the last one ends.
    fn admit(&mut self, bio: &Bio) -> Turn {
        if !matches!(bio.op, Op::Write | Op::WriteZeroes) {
            return Turn::Any;
        }
        let (zone, offset) = geometry().zone_of(bio.sector);
        let zone = &mut self.zones[zone.0 as usize];
        if zone.is_stale {
            return Turn::Never(Status::StaleWritePointer);
        }
        let end = zone.admitted.back().map_or(zone.data.len() as u32, |(_, end)| *end);
        if end != offset {
            return Turn::Never(Status::NotAtWritePointer);
        }
        self.last += 1;
        zone.admitted.push_back((self.last, end + bio.len_sectors));
        Turn::Of(self.last)
    }

    /// Whether it is a command's turn. A write leaves the line with it.
    fn is_next(&mut self, bio: &Bio, turn: Turn) -> bool {
        let (zone, _) = geometry().zone_of(bio.sector);
        let admitted = &mut self.zones[zone.0 as usize].admitted;
        match turn {
            Turn::Any => bio.op != Op::ZoneAppend || admitted.is_empty(),
            Turn::Never(_) => true,
            Turn::Of(number) => admitted.pop_front_if(|(first, _)| *first == number).is_some(),
        }
    }

    fn carry_out(&mut self, bio: &mut Bio, tears: bool) -> Status {
        let (zone, offset) = geometry().zone_of(bio.sector);
        let (len, n) = (bio.len_sectors as usize, zone.0 as usize);
        let (is_there, at) = (self.zones[n].data.len(), offset as usize);
        match bio.op {
            Op::Flush => {}
            Op::Read => {
                for i in 0..len {
                    let fill = self.zones[n].data.get(at + i).copied().unwrap_or(0);
                    bio.data_mut().copy_from(i as u32 * BLOCK, &[fill; BLOCK as usize]);
                }
            }
            Op::ReportZones => {
                let cond = match is_there as u32 {
                    0 => Condition::Empty,
                    ZONE => Condition::Full,
                    _ => Condition::ImpOpen,
                };
                let start = geometry().zone_start(zone);
                let len = u64::from(ZONE);
                let info = ZoneInfo {
                    start,
                    len_sectors: len,
                    capacity_sectors: len,
                    wp: start.plus(is_there as u64),
                    zone_type: ZoneType::SeqWriteRequired,
                    cond,
                };
                bio.data_mut().copy_from(0, &info.encode());
                bio.result = 1;
                self.zones[n].is_stale = false;
            }
            Op::ZoneReset => self.zones[n] = Zone::default(),
            Op::Write | Op::WriteZeroes | Op::ZoneAppend => {
                let is_append = bio.op == Op::ZoneAppend;
                if is_there == ZONE as usize {
                    return Status::ZoneFull;
                }
                if !is_append && is_there != at {
                    return Status::NotAtWritePointer;
                }
                if is_there + len > ZONE as usize {
                    return Status::Boundary;
                }
                let lands = if tears && !is_append { len / 2 } else { len };
                for i in 0..lands {
                    let mut sector = [0; BLOCK as usize];
                    if bio.op != Op::WriteZeroes {
                        bio.data().copy_to(i as u32 * BLOCK, &mut sector);
                    }
                    assert!(sector.iter().all(|b| *b == sector[0]));
                    self.zones[n].data.push(sector[0]);
                }
                if is_append {
                    bio.sector = Sector(u64::from(zone.0 * ZONE) + is_there as u64);
                }
                if lands < len {
                    return Status::Io;
                }
            }
            op => panic!("{op:?}"),
        }
        Status::Ok
    }
}

/// When a command is carried out.
#[derive(Debug, Clone, Copy)]
pub(super) enum Turn {
    Any,
    /// A write that is refused, for this reason.
    Never(Status),
    /// As the write of this number.
    Of(u64),
}

/// A client of the disk.
pub(super) struct Client {
    pub(super) medium: Rc<RefCell<Medium>>,
    /// BIOs that are to be carried out, and those that were.
    #[allow(clippy::vec_box)] // BIOs stay in their boxes
    taken: Vec<(Box<Bio>, Turn)>,
    #[allow(clippy::vec_box)] // the same
    landed: Vec<Box<Bio>>,
    pub(super) closing: bool,
}

impl Client {
    /// Whether the deadline of a write passes now. Only answers that reach no host may be lost.
    fn gives_up(&self, medium: &mut Medium, turn: Turn) -> bool {
        let may = medium.has_deadline && self.closing && matches!(turn, Turn::Of(_));
        may && !medium.random.one_in(8)
    }
}

impl DiskClient for Client {
    fn submit(&mut self, bios: &mut Bios) -> usize {
        let mut medium = self.medium.borrow_mut();
        let mut n = 0;
        while !bios.is_empty() && !medium.random.one_in(4) {
            let bio = bios.pop_front().unwrap();
            let turn = medium.admit(&bio);
            self.taken.push((bio, turn));
            n += 1;
        }
        n
    }

    fn poll(&mut self, done: &mut Bios) {
        let mut medium = self.medium.borrow_mut();
        for (mut bio, turn) in std::mem::take(&mut self.taken) {
            let zone = geometry().zone_of(bio.sector).0.0 as usize;
            if let Turn::Of(number) = turn
                && medium.zones[zone].admitted.iter().all(|(first, _)| *first != number)
            {
                bio.status = Status::AbortedBehind;
                self.landed.push(bio);
            } else if self.gives_up(&mut medium, turn) {
                medium.give_up(&bio);
                bio.status = Status::Timeout;
                self.landed.push(bio);
            } else if medium.random.one_in(3) && medium.is_next(&bio, turn) {
                let tears = self.closing && medium.random.one_in(3);
                bio.status = match turn {
                    Turn::Never(status) => status,
                    _ => medium.carry_out(&mut bio, tears),
                };
                let at = medium.random.below(self.landed.len() as u32 + 1) as usize;
                self.landed.insert(at, bio);
            } else {
                self.taken.push((bio, turn));
            }
        }
        while !self.landed.is_empty() && medium.random.one_in(2) {
            done.push_back(self.landed.remove(0));
        }
    }

    fn outstanding(&self) -> u32 {
        (self.taken.len() + self.landed.len()) as u32
    }

    fn reclaim(&mut self, bio: &mut Bio, lent: Lent) -> Option<AlignedBuf> {
        lent.take_back(bio.take_buf()).ok()
    }

    fn refuse_held(&mut self) {
        self.closing = true;
    }

    fn keep_lent(&mut self, _: impl Iterator<Item = Lent>) {}
}

pub(super) struct OneDisk<'a> {
    pub(super) medium: &'a Rc<RefCell<Medium>>,
    pub(super) recovery: &'a DiskRecovery,
    pub(super) replayed: &'a RefCell<u64>,
}

impl Disks for OneDisk<'_> {
    type Client = Client;

    fn open(&self, _: u32, _: u32) -> Option<Client> {
        let (taken, landed) = (Vec::new(), Vec::new());
        Some(Client { medium: self.medium.clone(), taken, landed, closing: false })
    }

    fn fills_buffers(&self, _: u32) -> bool {
        true
    }

    fn geometry(&self, _: u32) -> Geometry {
        geometry()
    }

    fn recovery(&self, _: u32) -> &DiskRecovery {
        self.recovery
    }

    fn late_limit(&self, _: u32, at: Sector) -> Option<Nanos> {
        let zone = geometry().zone_of(at).0.0 as usize;
        let is_late = self.medium.borrow().late.iter().any(|late| late.zone == zone);
        is_late.then_some(Nanos(u64::MAX))
    }

    fn count(&self, _: u32, _: Op, _: u32, _: bool) {}

    fn count_replayed(&self, _: u32) {
        *self.replayed.borrow_mut() += 1;
    }
}
