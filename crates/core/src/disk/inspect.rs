//! The state that a disk shows without asking the device: events, cached zones, single writers, the scheduler, late
//! commands.

use super::events::{Event, EventKind};
use super::handle::Disk;
use crate::bio::Late;
use crate::error::{Error, ErrorKind};
use crate::sched::WriterCounters;
use crate::sched::elevator::Elevator;
use crate::sched::policy::Candidate;
use crate::sync::{Ordering, lock};
use crate::unit::ZoneNo;
use crate::zone::{ZoneInfo, ZoneType};
use std::task::Waker;
use zoneplug_buf::{IoBuf, IoRange};

impl Disk {
    /// Appends up to `max` events with numbers above `after` to `events`, the oldest first. If more have happened than
    /// the disk keeps ([`EVENTS_KEPT`](super::EVENTS_KEPT)), the oldest are gone, and the first number that is returned is
    /// above `after + 1`. `after` 0: all that are kept.
    ///
    /// ```
    /// use zoneplug_core::disk::{Disk, DiskConfig, EventKind, QueueConfig};
    /// use zoneplug_core::{Bio, Bios, Nanos, Op, Sector, Status};
    /// use zoneplug_devices::{emu::{EmuConfig, EmuDisk}, spec::Spec, stack::FaultDisk};
    ///
    /// let config = EmuConfig::from_spec(&mut Spec::parse("null,zones=4,zone-size=1M").unwrap()).unwrap();
    /// let device = FaultDisk::new(EmuDisk::new(config).unwrap(), &"flush/medium".parse().unwrap()).unwrap();
    /// let disk = Disk::open(device, DiskConfig::default(), &mut |_| Nanos(0)).unwrap();
    /// let mut queue = disk.open_queue(QueueConfig::default()).unwrap();
    /// queue.submit(Nanos(0), &mut Bios::from([Bio::new(Op::Flush, Sector(0), 0)]));
    /// queue.poll(Nanos(0), &mut Bios::new());
    /// let mut events = Vec::new();
    /// disk.events(0, 10, &mut events);
    /// assert_eq!((events[0].kind, events[0].status), (EventKind::Failed, Status::Medium));
    /// ```
    pub fn events(&self, after: u64, max: usize, events: &mut Vec<Event>) {
        self.shared.events.read(after, max, events);
    }

    /// Returns how many events of a kind there were since the disk was opened, also those that it does not keep.
    ///
    /// ```
    /// # use zoneplug_core::disk::{Disk, EventKind};
    /// # fn f(disk: &Disk) {
    /// let went_stale = disk.event_count(EventKind::Stale);
    /// # }
    /// ```
    pub fn event_count(&self, kind: EventKind) -> u64 {
        self.shared.events.count(kind)
    }

    /// Wakes `waker` once, when the next event is recorded. It replaces the waker of an earlier call. Call this, then
    /// [`Disk::events`], then sleep. The queue that records the event is in use while the waker runs.
    pub fn wake_at_event(&self, waker: &Waker) {
        self.shared.events.wake_at_next(waker);
    }

    /// Returns the layer's view of `zone` without asking the device (M10, M11): an open zone and a closed one are
    /// both *active*.
    ///
    /// Fails if the disk has no such zone (*invalid*), if the write pointer is unknown (*busy*), or if the disk has
    /// no plugs or has used native appends (*not supported*, A8).
    pub fn cached_zone(&self, zone: ZoneNo) -> Result<ZoneInfo, Error> {
        // Locked because a revalidation that commits rebuilds the plugs.
        let layout = lock(&self.shared.layout);
        let g = &layout.geometry;
        if zone.0 >= g.nr_zones() {
            return Err(Error::invalid(format!("{zone} of a disk of {} zones", g.nr_zones())));
        }
        if !layout.plugs {
            return Err(Error::new(ErrorKind::NotSupported, "a disk without plugs caches nothing")
                .hint("send a report"));
        }
        if self.shared.append_used.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::NotSupported, "native appends were used")
                .hint("send a report, or reset all zones"));
        }
        let (shard, i) = self.shared.shard(zone);
        let plug = &shard.plugs[i];
        if plug.is_stale() {
            return Err(Error::new(ErrorKind::Busy, format!("{zone}: stale write pointer"))
                .hint("send a report of the zone"));
        }
        let start = g.zone_start(zone);
        let len = u64::from(g.zone_len_sectors(zone));
        use crate::zone::Condition as C;
        let cond = plug.condition();
        let wp = match cond {
            C::NotWp | C::ReadOnly | C::Offline => u64::MAX,
            C::Full => start.0 + len,
            _ => start.0 + u64::from(plug.write_pointer()),
        };
        Ok(ZoneInfo {
            start,
            len_sectors: len,
            capacity_sectors: u64::from(g.capacity_of(zone)),
            wp: crate::Sector(wp),
            zone_type: if cond == C::NotWp {
                ZoneType::Conventional
            } else {
                ZoneType::SeqWriteRequired
            },
            cond,
        })
    }

    /// Returns how many requests wait in the scheduler.
    pub fn scheduled(&self) -> u32 {
        let elevator: &Elevator = &lock(&self.shared.elevator.0);
        elevator.waiting()
    }

    /// Returns whether a device may still use the memory of a BIO that came back with this ticket. Once this is false
    /// it stays so, and [`Disk::reclaim`] returns the memory. The answer changes only while the queue that sent the
    /// command is polled. A command that never comes back, or comes back with other memory, is late for ever.
    ///
    /// ```
    /// # use zoneplug_core::{disk::Disk, Bio};
    /// # fn f(disk: &Disk, bio: &Bio) {
    /// let free = bio.late().is_none_or(|late| !disk.is_late(late));
    /// # }
    /// ```
    pub fn is_late(&self, late: Late) -> bool {
        self.shared.late.is_open(late)
    }

    /// Returns whether a command that changes `zone` was given up, and its device may still carry it out. A report of the
    /// zone that is sent after this was false is not out of date because of such a command. False for a disk without
    /// plugs.
    ///
    /// ```
    /// # use zoneplug_core::{disk::Disk, ZoneNo};
    /// # fn f(disk: &Disk) {
    /// let may_report = !disk.has_late(ZoneNo(3));
    /// # }
    /// ```
    pub fn has_late(&self, zone: ZoneNo) -> bool {
        // Locked because a revalidation that commits rebuilds the plugs.
        let layout = lock(&self.shared.layout);
        if !layout.plugs || zone.0 >= layout.geometry.nr_zones() {
            return false;
        }
        let (shard, i) = self.shared.shard(zone);
        let ticket = shard.late_ticket(i);
        drop(shard);
        let late = &self.shared.late;
        Late::of(ticket).is_some_and(|ticket| late.is_open(ticket))
            || self.shared.resets.may_change_late(zone, late)
    }

    /// Returns the memory of a BIO that came back without it, once the device has given it back. `lent` is the range
    /// that the BIO had when it was submitted. `None`: the device has not given it back yet, or it was returned
    /// before.
    ///
    /// ```
    /// # use zoneplug_core::{disk::Disk, Bio, Bios, IoRange};
    /// // `lent` is of the buffer that the BIO was submitted with.
    /// fn memory(disk: &Disk, bio: &mut Bio, lent: IoRange) -> Option<zoneplug_core::IoBuf> {
    ///     match bio.late() {
    ///         None => Some(bio.take_buf()).filter(|buf| buf.range() == lent),
    ///         Some(_) => disk.reclaim(lent),
    ///     }
    /// }
    /// ```
    pub fn reclaim(&self, lent: IoRange) -> Option<IoBuf> {
        self.shared.late.reclaim(lent)
    }
}

/// The single writer of one spindle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriterState {
    /// The number of the spindle: see [`Device::spindles`](crate::Device::spindles).
    pub spindle: usize,
    /// Its counts.
    pub counters: WriterCounters,
    /// The zone that has its turn.
    pub turn: Option<ZoneNo>,
    /// The zones that wait for it, first listed first.
    pub listed: Vec<Candidate>,
}

impl Disk {
    /// Returns the single writers, one for every spindle of the device, with their counts and waiting zones.
    ///
    /// ```
    /// use zoneplug_core::disk::{Disk, DiskConfig};
    /// use zoneplug_devices::stack::JoinDisk;
    /// use zoneplug_core::{Nanos, ZoneNo};
    /// use zoneplug_devices::emu::{EmuConfig, EmuDisk};
    /// let drive = || EmuDisk::new("null,zones=4,zone-size=1M".parse::<EmuConfig>().unwrap()).unwrap();
    /// let two = JoinDisk::linear(vec![drive(), drive()]).unwrap();
    /// let config = DiskConfig { zoned_qd1_writes: Some(true), ..DiskConfig::default() };
    /// let disk = Disk::open(two, config, &mut |_| Nanos(0)).unwrap();
    /// let writers = disk.writers();
    /// assert_eq!((writers.len(), writers[1].turn, writers[1].listed.len()), (2, None, 0));
    /// assert_eq!((disk.writer_of(ZoneNo(3)).spindle, disk.writer_of(ZoneNo(4)).spindle), (0, 1));
    /// ```
    pub fn writers(&self) -> Vec<WriterState> {
        (0..self.shared.single_writers.len()).map(|spindle| self.writer(spindle)).collect()
    }

    /// Returns the single writer that `zone` waits for.
    pub fn writer_of(&self, zone: ZoneNo) -> WriterState {
        self.writer(self.shared.spindles.of(zone))
    }

    fn writer(&self, spindle: usize) -> WriterState {
        let writer = self.shared.single_writers[spindle].0.inspect();
        let (turn, listed) = writer.state();
        WriterState { spindle, counters: writer.counters(), turn, listed: listed.to_vec() }
    }

    /// Returns the single writer of a device with one spindle. On other devices it is that of the first spindle;
    /// [`Disk::writers`] has all.
    pub fn single_writer(&self) -> WriterState {
        self.writer(0)
    }
}
