//! A host bus adapter with a shelf of drives behind it: limits the commands in flight and the rate
//! of data through the adapter and through each expander. Owns what the drives share. A command
//! waits here before it goes to its drive; the data of a read waits again on the way back.
//!
//! The data of a write goes to the drive before the drive begins; the data of a read comes after
//! the drive has ended. Each direction of a link carries one transfer at a time, in the order in
//! which they are ready. The links of adapter and expander work at the same time, so the slower one
//! counts. The time of a drive's own link is in the model of the drive.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::task::Waker;
use zoneplug_core::bio::{Command, Commands, Op};
use zoneplug_core::form::Form;
use zoneplug_core::poison::lock;
use zoneplug_core::zone::{Geometry, Limits, Spindles};
use zoneplug_core::{Device, Error, Nanos, Queue};
use zoneplug_devices::spec::Spec;

/// The limits of an adapter; 0 is no limit.
///
/// ```
/// use zoneplug_models::time::Adapter;
/// let a = Adapter::parse("queue=1024,rate=4800MB/s,expander-drives=20,expander-rate=2400MB/s").unwrap();
/// assert_eq!((a.queue, a.expander_drives), (1024, 20));
/// assert!(Adapter::parse("speed=1").unwrap_err().to_string().contains("speed"));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Adapter {
    /// `queue`: most commands in flight, over all drives.
    pub queue: u32,
    /// `rate`: bytes a second in each direction.
    pub rate: u64,
    /// `expander-drives`: the number of drives that share an expander.
    pub expander_drives: u32,
    /// `expander-rate`: bytes a second of an expander in each direction.
    pub expander_rate: u64,
}

impl Adapter {
    /// Parses `queue=1024,rate=4800MB/s,expander-drives=20,expander-rate=2400MB/s`; a missing key
    /// is no limit.
    pub fn parse(text: &str) -> Result<Adapter, Error> {
        let mut spec = Spec::parse(&format!("adapter,{text}"))?.explained_by("docs/models.md");
        let keys = ["queue", "rate", "expander-drives", "expander-rate"];
        let adapter = Self::take(&mut spec, keys)?;
        spec.finish()?;
        Ok(adapter)
    }

    /// Takes `adapter-queue` and the other adapter keys from the specification of a drive. `None`
    /// if it has none.
    pub fn of_drive(spec: &mut Spec) -> Result<Option<Adapter>, Error> {
        let keys =
            ["adapter-queue", "adapter-rate", "adapter-expander-drives", "adapter-expander-rate"];
        let adapter = Self::take(spec, keys)?;
        Ok((adapter != Adapter::default()).then_some(adapter))
    }

    fn take(spec: &mut Spec, keys: [&'static str; 4]) -> Result<Adapter, Error> {
        let count = Form::Number { min: 1, max: u64::from(u32::MAX), unit: "" };
        let [queue, rate, expander_drives, expander_rate] = keys;
        let mut number = |key, form: &Form| -> Result<u64, Error> {
            Ok(spec.take_as(key, form)?.map_or(0, |v| v.number()))
        };
        let adapter = Adapter {
            queue: number(queue, &count)? as u32,
            rate: number(rate, &Form::Rate)?,
            expander_drives: number(expander_drives, &count)? as u32,
            expander_rate: number(expander_rate, &Form::Rate)?,
        };
        if (adapter.expander_drives == 0) != (adapter.expander_rate == 0) {
            return Err(Error::invalid("an expander without its drives, or without its rate")
                .hint("expander-drives=20,expander-rate=2400MB/s"));
        }
        Ok(adapter)
    }
}

/// One direction of data, to the drives or from them: when each link is free again.
#[derive(Debug, Default)]
struct Direction {
    adapter: Nanos,
    expanders: Vec<Nanos>,
}

impl Direction {
    /// Adds a transfer that is ready now and returns its end.
    fn transfer(&mut self, a: &Adapter, expander: usize, bytes: u64, now: Nanos) -> Nanos {
        let mut end = now;
        let mut through = |free: &mut Nanos, rate: u64| {
            if rate > 0 && bytes > 0 {
                let span = u128::from(bytes) * 1_000_000_000 / u128::from(rate);
                *free = (*free).max(now).plus(Nanos(span as u64));
                end = end.max(*free);
            }
        };
        through(&mut self.adapter, a.rate);
        if a.expander_drives > 0 {
            if self.expanders.len() <= expander {
                self.expanders.resize(expander + 1, Nanos(0));
            }
            through(&mut self.expanders[expander], a.expander_rate);
        }
        end
    }
}

/// The state that the drives share.
#[derive(Debug, Default)]
struct Shared {
    in_flight: u32,
    /// The ports of commands that wait for a place, in the order of arrival.
    waiting: VecDeque<u32>,
    /// Places given to waiting commands of each port, with the time.
    given: Vec<VecDeque<Nanos>>,
    to: Direction,
    from: Direction,
}

impl Shared {
    /// Takes a place for a command of a port. `false` if the command has to wait.
    fn take(&mut self, a: &Adapter, port: u32) -> bool {
        if a.queue > 0 && self.in_flight >= a.queue {
            self.waiting.push_back(port);
            return false;
        }
        self.in_flight += 1;
        true
    }

    /// Frees the place of a completed command, or gives it to the command that has waited longest.
    fn leave(&mut self, now: Nanos) {
        match self.waiting.pop_front() {
            Some(port) => self.given[port as usize].push_back(now),
            None => self.in_flight -= 1,
        }
    }
}

/// A drive behind an adapter.
pub(super) struct Port {
    drive: Arc<dyn Device>,
    adapter: Adapter,
    shared: Arc<Mutex<Shared>>,
    number: u32,
}

impl Port {
    /// Puts devices behind one adapter.
    pub(super) fn shelf(drives: Vec<Arc<dyn Device>>, adapter: Adapter) -> Vec<Arc<dyn Device>> {
        let given = drives.iter().map(|_| VecDeque::new()).collect();
        let shared = Arc::new(Mutex::new(Shared { given, ..Shared::default() }));
        let port = |(n, drive)| -> Arc<dyn Device> {
            Arc::new(Port { drive, adapter, shared: Arc::clone(&shared), number: n as u32 })
        };
        drives.into_iter().enumerate().map(port).collect()
    }
}

impl Device for Port {
    fn geometry(&self) -> &Geometry {
        self.drive.geometry()
    }

    fn limits(&self) -> &Limits {
        self.drive.limits()
    }

    fn spindles(&self) -> Spindles {
        self.drive.spindles()
    }

    fn open_queue(&self, depth: u16, waker: Waker) -> Result<Box<dyn Queue>, Error> {
        Ok(Box::new(PortQueue {
            drive: self.drive.open_queue(depth, waker)?,
            adapter: self.adapter,
            shared: Arc::clone(&self.shared),
            port: self.number,
            waiting: VecDeque::new(),
            going: VecDeque::new(),
            coming: VecDeque::new(),
            list: Commands::new(),
        }))
    }
}

struct PortQueue {
    drive: Box<dyn Queue>,
    adapter: Adapter,
    shared: Arc<Mutex<Shared>>,
    port: u32,
    /// Commands without a place.
    waiting: VecDeque<Box<Command>>,
    /// Commands on their way to the drive, with the end of their transfer.
    going: VecDeque<(Nanos, Box<Command>)>,
    /// Commands on their way back, the first to arrive first.
    coming: VecDeque<(Nanos, Box<Command>)>,
    list: Commands,
}

impl fmt::Debug for PortQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PortQueue").field("port", &self.port).finish_non_exhaustive()
    }
}

fn bytes(c: &Command) -> u64 {
    if c.op.has_data() { u64::from(c.len_sectors) << 9 } else { 0 }
}

impl PortQueue {
    fn expander(&self) -> usize {
        self.port.checked_div(self.adapter.expander_drives).unwrap_or(0) as usize
    }

    /// Begins the transfer of a command that has a place.
    fn go(&mut self, shared: &mut Shared, now: Nanos, c: Box<Command>) {
        let data = if c.op == Op::Read { 0 } else { bytes(&c) };
        let at = shared.to.transfer(&self.adapter, self.expander(), data, now);
        // Commands of one drive stay in order.
        let at = self.going.back().map_or(at, |last| last.0.max(at));
        self.going.push_back((at, c));
    }
}

impl PortQueue {
    /// Sends the drive the commands whose transfer has ended.
    fn arrive(&mut self, now: Nanos) {
        while let Some((_, c)) = self.going.pop_front_if(|(at, _)| *at <= now) {
            self.list.push_back(c);
        }
        self.drive.submit(now, &mut self.list);
    }
}

impl Queue for PortQueue {
    fn submit(&mut self, now: Nanos, commands: &mut Commands) {
        let shared = Arc::clone(&self.shared);
        let mut shared = lock(&shared);
        while let Some(c) = commands.pop_front() {
            if shared.take(&self.adapter, self.port) {
                self.go(&mut shared, now, c);
            } else {
                self.waiting.push_back(c);
            }
        }
        self.arrive(now);
    }

    fn poll(&mut self, now: Nanos, done: &mut Commands) {
        let shared = Arc::clone(&self.shared);
        let mut shared = lock(&shared);
        while let Some(at) = shared.given[self.port as usize].pop_front() {
            if let Some(c) = self.waiting.pop_front() {
                self.go(&mut shared, at, c);
            }
        }
        self.arrive(now);
        let mut ended = Commands::new();
        self.drive.poll(now, &mut ended);
        for c in ended {
            let data = if c.op == Op::Read { bytes(&c) } else { 0 };
            let at = shared.from.transfer(&self.adapter, self.expander(), data, now);
            // A completion without data passes those that wait for a transfer.
            let place = self.coming.partition_point(|(other, _)| *other <= at);
            self.coming.insert(place, (at, c));
        }
        while let Some((_, c)) = self.coming.pop_front_if(|(at, _)| *at <= now) {
            shared.leave(now);
            done.push_back(c);
        }
    }

    fn next_deadline(&self) -> Option<Nanos> {
        let given = lock(&self.shared).given[self.port as usize].front().copied();
        let going = self.going.front().map(|g| g.0);
        let coming = self.coming.front().map(|c| c.0);
        [given, going, coming, self.drive.next_deadline()].into_iter().flatten().min()
    }

    fn arm(&mut self) {
        self.drive.arm();
    }
}
