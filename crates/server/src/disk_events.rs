//! Logs the events that disks record: failed commands, zones whose write pointer is lost or found again, commands
//! that come back late. A thread sleeps until a disk wakes it. It does not wait for the reader of the log (logs.rs).

use crate::served::Served;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;
use zoneplug_control::{Attempt, Failure};
use zoneplug_core::Status;
use zoneplug_core::disk::{EVENTS_KEPT, Event, EventKind};
use zoneplug_core::plain;
use zoneplug_host::HostedDisk;

/// Time between two checks of the disks' files for changes by other programs. Flushes check too.
const FILE_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// A disk with its name in the log.
pub(crate) struct Watched {
    name: String,
    disk: HostedDisk,
    /// The number of the last logged event.
    last: u64,
    /// Whether another program has changed a file of the disk; logged once.
    changed: bool,
}

/// The thread that logs events, until this is dropped.
pub(crate) struct DiskEvents {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl Watched {
    /// The disks of a server, each once. A disk with several devices has the name of the first one.
    pub(crate) fn of(served: &[Served]) -> Vec<Watched> {
        let mut all: Vec<Watched> = Vec::new();
        for s in served {
            if !all.iter().any(|w| std::ptr::eq(w.disk.disk(), s.disk.disk())) {
                all.push(Watched {
                    name: s.name.clone(),
                    disk: s.disk.clone(),
                    last: 0,
                    changed: false,
                });
            }
        }
        all
    }

    /// Checks whether another program has changed the files of the disk.
    fn check_files(&mut self) {
        if self.changed {
            return;
        }
        if let Err(e) = self.disk.check_files() {
            self.changed = true;
            let what = e.to_string();
            log::error!(event = "file-changed", disk = &*self.name; "{}: its I/O fails: {}", self.name, plain(&what));
        }
    }

    /// Passes the events since the last call to `put`, and wakes `waker` at the next one. The waker is set before the events are
    /// read, so that none comes in between.
    fn watch(&mut self, waker: &Waker, put: &mut dyn FnMut(&str, &Event)) {
        self.disk.wake_at_event(waker);
        self.drain(put);
    }

    /// Passes the events since the last call to `put`.
    fn drain(&mut self, put: &mut dyn FnMut(&str, &Event)) {
        for event in self.disk.events(self.last, EVENTS_KEPT) {
            let lost = event.sequence - self.last - 1;
            if lost > 0 {
                log::warn!(event = "events-lost", disk = &*self.name; "{}: {lost} events came too fast to be logged", self.name);
            }
            self.last = event.sequence;
            put(&self.name, &event);
        }
    }
}

impl DiskEvents {
    /// Logs the events of these disks from now on.
    pub(crate) fn start(mut disks: Vec<Watched>) -> Result<DiskEvents, Failure> {
        let ends = Arc::new(AtomicBool::new(false));
        let told = ends.clone();
        let in_files = disks.iter().any(|d| d.disk.is_in_files());
        let body = move || {
            let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
            loop {
                let over = told.load(Ordering::Acquire);
                disks.iter_mut().for_each(|disk| disk.watch(&waker, &mut log_event));
                if over {
                    return;
                }
                match in_files {
                    true => {
                        disks.iter_mut().for_each(Watched::check_files);
                        std::thread::park_timeout(FILE_CHECK_INTERVAL);
                    }
                    false => std::thread::park(),
                }
            }
        };
        let thread = std::thread::Builder::new().name("zoneplug-events".to_owned()).spawn(body);
        let thread = thread.map_err(|e| {
            Failure::of_system(Attempt::Thread, "no thread for the events of disks", e)
        })?;
        Ok(DiskEvents { ends, thread: Some(thread) })
    }
}

impl Drop for DiskEvents {
    /// Logs all events up to now.
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// Whether a failure needs an operator: the disk or its data are in danger.
fn is_grave(status: Status) -> bool {
    !matches!(
        status,
        Status::OpenLimit
            | Status::ActiveLimit
            | Status::Busy
            | Status::ZoneFull
            | Status::UnalignedWrite
            | Status::InvalidTransition
            | Status::NotSupported
    )
}

/// The text of an event, without the name of its disk.
fn text_of(e: &Event) -> String {
    let zone = e.zone.map_or_else(|| "the disk".to_owned(), |z| format!("zone {}", z.0));
    let op = e.op.map_or("command", |op| op.name());
    match e.kind {
        EventKind::Failed => {
            let mut text = match e.status {
                Status::Timeout => format!("{op} at sector {} did not end in time", e.sector.0),
                Status::OpenLimit => {
                    format!("{op} at sector {}: too many zones are open", e.sector.0)
                }
                Status::ActiveLimit => {
                    format!("{op} at sector {}: too many zones are active", e.sector.0)
                }
                status => format!("{op} at sector {} failed: {status}", e.sector.0),
            };
            if let Some(zone) = e.zone {
                text += &format!(" (zone {})", zone.0);
            }
            if e.count > 1 {
                text += &format!(", {} times", e.count);
            }
            if e.aborted > 0 {
                text += &format!(", and with it {} writes that waited behind it", e.aborted);
            }
            text
        }
        EventKind::Stale => format!(
            "{zone} is stale: its write pointer is unknown ({}), and its writes are refused until zoneplug resync or a reset",
            e.status
        ),
        EventKind::Recovered => format!("{zone} has recovered: its write pointer is known again"),
        EventKind::DataMissing => {
            format!("{zone} has less data than was acknowledged, and is stale")
        }
        EventKind::LateBack => format!("{op} at sector {} has come back late", e.sector.0),
        EventKind::QueueDied => {
            "a queue of the device has died, and is not used any more".to_owned()
        }
        EventKind::Revalidated => {
            "the zones were read again: all write pointers are known".to_owned()
        }
        _ => e.kind.name().to_owned(),
    }
}

/// The log level and the name of an event.
pub(crate) fn level_and_name(kind: EventKind, status: Status) -> (log::Level, &'static str) {
    let level = match kind {
        EventKind::Failed if !is_grave(status) => log::Level::Warn,
        EventKind::Failed | EventKind::Stale | EventKind::DataMissing | EventKind::QueueDied => {
            log::Level::Error
        }
        EventKind::LateBack => log::Level::Warn,
        _ => log::Level::Info,
    };
    let name = match (kind, status) {
        (EventKind::Failed, Status::Timeout) => "timeout",
        (EventKind::Failed, Status::OpenLimit | Status::ActiveLimit) => "limit",
        (EventKind::Failed, Status::ZoneOffline) => "zone-offline",
        (EventKind::Failed, Status::ZoneReadOnly) => "zone-read-only",
        (kind, _) => kind.name(),
    };
    (level, name)
}

fn log_event(name: &str, e: &Event) {
    let (level, event) = level_and_name(e.kind, e.status);
    let text = text_of(e);
    let (op, status) = (e.op.map_or("", |op| op.name()), e.status.name());
    let zone = e.zone.map_or(String::new(), |z| z.0.to_string());
    let (sector, count) = (e.sector.0, u64::from(e.count));
    log::log!(level, event, disk = name, op, status, zone = &*zone, sector, count; "{name}: {text}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use zoneplug_core::Sector;
    use zoneplug_host::BlockingDisk;

    fn lines(spec: &str, work: impl FnOnce(&HostedDisk)) -> Vec<String> {
        let disk = HostedDisk::open_spec(spec).unwrap();
        let mut watched =
            Watched { name: "ublkb0".to_owned(), disk: disk.clone(), last: 0, changed: false };
        work(&disk);
        let mut all = Vec::new();
        watched.drain(&mut |name, e| all.push(format!("{name}: {}", text_of(e))));
        watched.drain(&mut |_, e| panic!("{e:?} is told twice"));
        all
    }

    #[test]
    fn a_failed_write_a_stale_zone_and_its_recovery() {
        let spec = "mem,zones=4,zone-size=1M,zone_recovery=client,fault=write/io";
        let all = lines(spec, |disk| {
            let mut io = BlockingDisk::new(disk).unwrap();
            io.write_from(Sector(2048), &[0; 4096]).unwrap_err();
            io.reset(Sector(2048), 2048).unwrap();
        });
        assert_eq!(
            all,
            [
                "ublkb0: write at sector 2048 failed: I/O error (zone 1)",
                "ublkb0: zone 1 is stale: its write pointer is unknown (I/O error), and its writes are refused until zoneplug resync or a reset",
                "ublkb0: zone 1 has recovered: its write pointer is known again",
            ]
        );
    }

    /// An event that comes while earlier ones are passed on wakes the thread.
    #[test]
    fn an_event_beside_another_is_not_missed() {
        struct Woken(AtomicBool);
        impl std::task::Wake for Woken {
            fn wake(self: Arc<Self>) {
                self.0.store(true, Ordering::Release);
            }
        }
        let spec = "mem,zones=4,zone-size=1M,zone_recovery=client,fault=read/io/count=all";
        let disk = HostedDisk::open_spec(spec).unwrap();
        let mut watched =
            Watched { name: "ublkb0".to_owned(), disk: disk.clone(), last: 0, changed: false };
        let mut io = BlockingDisk::new(&disk).unwrap();
        let mut fails = |zone: u64| _ = io.read(Sector(zone * 2048), 8).unwrap_err();
        fails(0);
        let woken = Arc::new(Woken(AtomicBool::new(false)));
        let mut seen = Vec::new();
        watched.watch(&Waker::from(woken.clone()), &mut |_, e| {
            seen.push(e.zone.unwrap().0);
            fails(1);
        });
        assert!(woken.0.load(Ordering::Acquire) && seen == [0], "{seen:?}");
        watched.drain(&mut |_, e| seen.push(e.zone.unwrap().0));
        assert_eq!(seen, [0, 1]);
    }

    #[test]
    fn limits_and_timeouts_have_words_of_their_own() {
        let all = lines("null,zones=4,zone-size=1M,timeout=20ms,fault=read/lost", |disk| {
            let mut io = BlockingDisk::new(disk).unwrap();
            io.read(Sector(0), 8).unwrap_err();
        });
        assert_eq!(all, ["ublkb0: read at sector 0 did not end in time (zone 0)"]);
        let all = lines("mem,zones=8,zone-size=1M,max-open=1,max-active=1", |disk| {
            let mut io = BlockingDisk::new(disk).unwrap();
            io.open_zones(Sector(0), 2048).unwrap();
            io.open_zones(Sector(2048), 2048).unwrap_err();
        });
        assert_eq!(all, ["ublkb0: zone_open at sector 2048: too many zones are active (zone 1)"]);
    }

    #[test]
    fn the_thread_ends_when_it_is_dropped() {
        let disk = HostedDisk::open_spec("mem,zones=4").unwrap();
        let watched = Watched { name: "ublkb0".to_owned(), disk, last: 0, changed: false };
        let start = std::time::Instant::now();
        drop(DiskEvents::start(vec![watched]).unwrap());
        drop(DiskEvents::start(Vec::new()).unwrap());
        assert!(start.elapsed() < std::time::Duration::from_secs(10));
    }
}
