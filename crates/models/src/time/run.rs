//! A run: clients, the engine, a timed device, and virtual time, which advances when nothing else
//! happens.
//!
//! Owns the order of events. The host's work delays the poll: the engine sees a completion
//! [`Run::work`] after it happened, and then sends the next command of the zone. Timers due at the
//! time of a poll come before it.

use super::adapter::{Adapter, Port};
use super::host_times::HostTimes;
use super::io::{Client, Finished, Io};
use super::report::Report;
use std::sync::Arc;
use std::task::Waker;
use zoneplug_core::disk::{Disk, DiskConfig};
use zoneplug_core::sched::Scheduler;
use zoneplug_core::zone::{Geometry, Limits};
use zoneplug_core::{Bios, Device, Error, ErrorKind, Nanos, Queue, ZoneNo};
use zoneplug_devices::emu::timing::{DriveStats, Profile};
use zoneplug_devices::emu::{EmuConfig, EmuDisk, EmuKind};
use zoneplug_devices::stack::JoinDisk;
use zoneplug_host::check_zone_memory;

/// A function that puts layers on a device.
type PutOn = dyn Fn(Arc<dyn Device>) -> Result<Arc<dyn Device>, Error> + Send + Sync;

/// Layers put on the drives.
#[derive(Clone)]
pub struct Layers(Arc<PutOn>);

impl Layers {
    /// Layers that this function puts on a device.
    pub fn new(
        put_on: impl Fn(Arc<dyn Device>) -> Result<Arc<dyn Device>, Error> + Send + Sync + 'static,
    ) -> Layers {
        Layers(Arc::new(put_on))
    }
}

impl std::fmt::Debug for Layers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Layers")
    }
}

/// The setup of a run: drives, the configuration of the disk, and the times.
#[derive(Debug, Clone)]
pub struct Run {
    /// The profile of the drives.
    pub profile: Profile,
    /// The number of disks, each opened separately. Clients are assigned to them in turns.
    pub disks: u32,
    /// The adapter that all drives share.
    pub adapter: Option<Adapter>,
    /// The number of drives of a disk, joined zone by zone in turns.
    pub drives: u32,
    /// Hides the spindles of the drives, so that the whole disk has one single writer.
    pub one_writer: bool,
    /// Layers on the drives, which keep the order of zones and the places in them.
    pub layers: Option<Layers>,
    /// The configuration of the engine: mode, schedulers, the single writer.
    pub disk: DiskConfig,
    /// Most commands at the drive at a time.
    pub tags: u16,
    /// The time of the host's work, from a completion at the device to the next command of the
    /// zone.
    pub work: Nanos,
    /// Time before measuring starts.
    pub warm_up: Nanos,
    /// Time measured.
    pub length: Nanos,
    /// Whether to keep the latency of every BIO, 8 bytes each.
    pub keep_latencies: bool,
    /// Whether the device also checks that at most one write of a zone is in flight (I1).
    pub paranoid: bool,
}

/// Most BIOs that all clients together may have outstanding.
const DEPTH: u32 = 1 << 16;

impl Run {
    /// A run on a drive with its tags and the defaults of the engine.
    pub fn new(profile: Profile) -> Run {
        Run {
            tags: profile.queue_depth,
            profile,
            disks: 1,
            adapter: None,
            drives: 1,
            one_writer: false,
            layers: None,
            disk: DiskConfig::default(),
            work: Nanos(5_000),
            warm_up: Nanos(5_000_000_000),
            length: Nanos(40_000_000_000),
            keep_latencies: true,
            paranoid: false,
        }
    }

    /// A run on a drive with this configuration, and the host times of such a drive.
    ///
    /// ```
    /// use zoneplug_core::{disk::DiskConfig, sched::Scheduler};
    /// use zoneplug_devices::emu::timing::Profile;
    /// use zoneplug_models::time::Run;
    /// let config = DiskConfig { scheduler: Scheduler::MqDeadline, ..DiskConfig::default() };
    /// let run = Run::on(Profile::builtin("smr30").unwrap(), config);
    /// assert_eq!((run.disk.queue_depth, run.tags), (31, 62));
    /// ```
    pub fn on(profile: Profile, config: DiskConfig) -> Run {
        let mut run = Run::new(profile);
        run.work = HostTimes::of(&run.profile).work;
        run.disk = config;
        if run.disk.scheduler != Scheduler::None {
            // Linux gives a scheduler twice the tags of the device, at most 256.
            let own = match run.disk.queue_depth {
                0 => u32::MAX,
                n => n,
            };
            run.disk.queue_depth = own.min(u32::from(run.tags));
            run.tags = 2 * run.tags.min(128);
        }
        run
    }

    /// Runs the clients. Fails if the numbers make no valid disk, or if a BIO failed, which a
    /// client model never causes.
    pub fn go(&self, mut clients: Vec<Box<dyn Client>>) -> Result<Report, Error> {
        let mut all: Vec<&mut dyn Client> = Vec::with_capacity(clients.len());
        for client in &mut clients {
            all.push(&mut **client);
        }
        self.go_with(&mut all)
    }

    /// Joins the drives of a disk to one device.
    fn join(&self, drives: &[Arc<dyn Device>]) -> Result<Arc<dyn Device>, Error> {
        let device: Arc<dyn Device> = match drives {
            [one] => one.clone(),
            _ => JoinDisk::stripe(drives.to_vec())?,
        };
        let device = if self.one_writer { Arc::new(OneHead(device)) } else { device };
        match &self.layers {
            Some(Layers(put_on)) => put_on(device),
            None => Ok(device),
        }
    }

    /// The description of each drive.
    fn drive(&self) -> Result<EmuConfig, Error> {
        let mut config = EmuConfig::new(EmuKind::Null, self.profile.geometry()?);
        config.limits = self.profile.limits();
        config.paranoid = self.paranoid;
        Ok(config)
    }

    /// Fails if there is too little memory for the zones of all disks, and for `clients` bytes of each zone that the
    /// clients keep.
    pub(crate) fn check_memory(&self, clients: u64) -> Result<(), Error> {
        let drives = self.drives.max(1).saturating_mul(self.disks.max(1));
        check_zone_memory(self.drive()?.zone_memory().and_each(clients).of_disks(drives))
    }

    /// Creates the drives of this many disks.
    fn drives(&self, disks: u32) -> Result<Vec<Arc<EmuDisk>>, Error> {
        let config = self.drive()?;
        let drive = || EmuDisk::timed_with(&self.profile, config.clone());
        (0..self.drives.max(1) * disks).map(|_| drive()).collect()
    }

    /// Builds the disks on these drives.
    fn devices(&self, drives: &[Arc<EmuDisk>]) -> Result<Vec<Arc<dyn Device>>, Error> {
        let mut all: Vec<Arc<dyn Device>> = drives.iter().map(|d| Arc::clone(d) as _).collect();
        if let Some(adapter) = self.adapter {
            all = Port::shelf(all, adapter);
        }
        all.chunks(self.drives.max(1) as usize).map(|drives| self.join(drives)).collect()
    }

    /// The geometry and limits of a disk of the run. Fails if the numbers make no valid disk.
    pub fn shape(&self) -> Result<(Geometry, Limits), Error> {
        let device = &self.devices(&self.drives(1)?)?[0];
        Ok((*device.geometry(), device.limits().clone()))
    }

    /// Runs as [`Run::go`] does, with clients that the caller keeps.
    pub fn go_with(&self, clients: &mut [&mut dyn Client]) -> Result<Report, Error> {
        self.check_memory(0)?;
        let disks = self.disks.max(1) as usize;
        let drives = self.drives(disks as u32)?;
        let devices = self.devices(&drives)?;
        let geometry = *devices[0].geometry();
        let nr = self.drives.max(1);
        for (i, client) in clients.iter_mut().enumerate() {
            let first = (i % disks) as u32 * nr;
            for (zone, wp) in client.prepare(&geometry) {
                let drive = &drives[(first + zone.0 % nr) as usize];
                drive.set_write_pointer(ZoneNo(zone.0 / nr), wp);
            }
        }
        let mut now = Nanos(0);
        let mut queues = Vec::with_capacity(disks);
        for device in devices {
            let disk = Disk::open(device, self.disk.clone(), &mut |due| {
                now = due.unwrap_or(now).max(now);
                now
            })?;
            queues.push(disk.open_polled_queue(DEPTH, self.tags)?);
        }
        let mut io = Io::new(geometry, clients.len(), self.keep_latencies);
        // The drive's clock advanced while the disk was opened.
        io.now = now;
        let begin = now.plus(self.warm_up);
        let end = begin.plus(self.length);
        let mut measuring = false;
        let mut before = DriveStats::default();
        for (i, client) in clients.iter_mut().enumerate() {
            io.current = i as u16;
            client.start(&mut io);
        }
        let (mut one, mut done) = (Bios::new(), Bios::new());
        let mut poll_at: Vec<Option<Nanos>> = vec![None; disks];
        // The disks whose next poll may have changed. Disks that wait for each other's places at an
        // adapter all change together.
        let mut touched: Vec<usize> = (0..disks).collect();
        let all_change = self.adapter.is_some_and(|a| a.queue > 0);
        while io.ended.is_none() {
            // Programs submit one BIO at a time.
            while let Some(bio) = io.out.pop_front() {
                let home = usize::from(io.client_of(&bio)) % disks;
                one.push_back(bio);
                if queues[home].submit(io.now, &mut one) != 1 {
                    return Err(Error::new(ErrorKind::Busy, "the clients have too many BIOs")
                        .hint(format!("all together at most {DEPTH}")));
                }
                touched.push(home);
            }
            if all_change {
                touched = (0..disks).collect();
            }
            for home in touched.drain(..) {
                let (queue, poll_at) = (&queues[home], &mut poll_at[home]);
                let due = queue.next_deadline().map(|d| d.plus(self.work));
                *poll_at = [*poll_at, due].into_iter().flatten().min();
                if queue.has_completions() {
                    *poll_at = Some(io.now);
                }
            }
            let due = poll_at.iter().enumerate().filter_map(|(i, at)| Some(((*at)?, i))).min();
            let timer = io.next_timer();
            let Some(next) = [timer, due.map(|d| d.0)].into_iter().flatten().min() else {
                return Err(Error::new(ErrorKind::Busy, "every client waits for another")
                    .hint("this is a bug of a client model, or of the layer"));
            };
            if next > begin && !measuring {
                measuring = true;
                before = drive_stats(&drives);
                io.clients.iter_mut().for_each(super::ClientReport::begin);
            }
            if next > end {
                break;
            }
            io.now = next;
            if timer == Some(next) {
                if let Some((client, token)) = io.pop_timer() {
                    io.current = client;
                    clients[usize::from(client)].timer(&mut io, token);
                }
                continue;
            }
            let Some((_, home)) = due else { continue };
            poll_at[home] = None;
            touched.push(home);
            io.completed = Nanos(next.0.saturating_sub(self.work.0));
            queues[home].poll(next, &mut done);
            while let Some(bio) = done.pop_front() {
                let (client, finished, status) = io.back(bio);
                io.current = client;
                let client = &mut clients[usize::from(client)];
                if status.is_ok() {
                    client.finished(&mut io, finished);
                } else if !client.failed(&mut io, finished, status) {
                    let Finished { op, sector, .. } = finished;
                    let what = format!("{} at {sector} of a client model: {status}", op.name());
                    return Err(Error::new(ErrorKind::Io, what)
                        .hint("this is a bug of the model, or of the layer"));
                }
            }
        }
        io.note_waiting();
        let length = match io.ended.take() {
            Some(result) => result.map(|()| Nanos(io.now.0.saturating_sub(begin.0)))?,
            None => self.length,
        };
        let stats: Vec<_> = drives.iter().map(|d| d.stats()).collect();
        let overlaps: u64 = stats.iter().map(|s| s.overlaps).sum();
        if overlaps > 0 {
            return Err(Error::new(ErrorKind::Io, format!("{overlaps} writes overlapped"))
                .hint("this is a bug of the layer (I1)"));
        }
        let writes = [zoneplug_core::Op::Write, zoneplug_core::Op::ZoneAppend];
        let report = Report {
            length,
            drive: drive_stats(&drives).since(before),
            clients: io
                .clients
                .into_iter()
                .map(|mut c| {
                    c.latencies.sort_unstable();
                    c
                })
                .collect(),
            write_commands: stats
                .iter()
                .map(|s| writes.map(|op| s.commands(op)).iter().sum::<u64>())
                .sum(),
            written_sectors: stats.iter().map(|s| s.written_sectors).sum(),
        };
        queues.into_iter().for_each(disk_is_done);
        Ok(report)
    }
}

/// The sum of the statistics of all drives.
fn drive_stats(drives: &[Arc<EmuDisk>]) -> DriveStats {
    drives.iter().filter_map(|d| d.drive_stats()).fold(DriveStats::default(), |a, b| DriveStats {
        moves: a.moves + b.moves,
        positioning: a.positioning.plus(b.positioning),
        busy: a.busy.plus(b.busy),
    })
}

/// A device that hides the spindles below it.
struct OneHead(Arc<dyn Device>);

impl Device for OneHead {
    fn geometry(&self) -> &Geometry {
        self.0.geometry()
    }

    fn limits(&self) -> &Limits {
        self.0.limits()
    }

    fn is_timed(&self) -> bool {
        self.0.is_timed()
    }

    fn never_panics(&self) -> bool {
        self.0.never_panics()
    }

    fn open_queue(&self, depth: u16, waker: Waker) -> Result<Box<dyn Queue>, Error> {
        self.0.open_queue(depth, waker)
    }
}

/// Drains the queue of a disk before it is dropped.
fn disk_is_done(mut queue: zoneplug_core::disk::DiskQueue) {
    let mut done = Bios::new();
    while queue.outstanding() > 0 {
        let Some(due) = queue.next_deadline() else { return };
        queue.poll(due, &mut done);
        done.clear();
    }
}
