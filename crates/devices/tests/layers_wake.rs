//! Layers on devices as they are in reality: no deadlines, completions in any order, one wake-up for each `arm`.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};
use zoneplug_buf::AlignedBuf;
use zoneplug_core::zone::{Geometry, Limits};
use zoneplug_core::{
    Bio, Command, Commands, Device, Error, Flags, IoBuf, Nanos, Op, Queue, Random, Sector,
};
use zoneplug_devices::emu::{EmuConfig, EmuDisk};
use zoneplug_devices::stack::{JoinDisk, Po2Disk, TapDisk};

fn emu(spec: &str) -> Arc<EmuDisk> {
    EmuDisk::new(spec.parse::<EmuConfig>().unwrap()).unwrap()
}
/// A device of the real world: no deadlines; completes when the test says so, and wakes once for each arm.
#[derive(Default)]
struct Bench {
    below: Commands,
    done: Commands,
    armed: bool,
    depth: usize,
    waker: Option<Waker>,
}
type Shared = Arc<Mutex<Bench>>;
struct Manual {
    dev: Arc<EmuDisk>,
    all: Arc<Mutex<Vec<Shared>>>,
}
struct ManualQueue {
    inner: Box<dyn Queue>,
    b: Shared,
}
impl Device for Manual {
    fn geometry(&self) -> &Geometry {
        self.dev.geometry()
    }
    fn limits(&self) -> &Limits {
        self.dev.limits()
    }
    fn open_queue(&self, depth: u16, waker: Waker) -> Result<Box<dyn Queue>, Error> {
        let inner = self.dev.open_queue(1000, Waker::noop().clone())?;
        let b = Arc::new(Mutex::new(Bench {
            depth: depth.into(),
            waker: Some(waker),
            ..Bench::default()
        }));
        self.all.lock().unwrap().push(b.clone());
        Ok(Box::new(ManualQueue { inner, b }))
    }
}
impl Queue for ManualQueue {
    fn submit(&mut self, now: Nanos, commands: &mut Commands) {
        let mut b = self.b.lock().unwrap();
        while b.below.len() + b.done.len() < b.depth {
            let Some(c) = commands.pop_front() else { break };
            let mut l = Commands::from([c]);
            self.inner.submit(now, &mut l);
            self.inner.poll(now, &mut l);
            b.below.append(&mut l);
        }
    }
    fn poll(&mut self, _: Nanos, done: &mut Commands) {
        done.append(&mut self.b.lock().unwrap().done);
    }
    fn next_deadline(&self) -> Option<Nanos> {
        None
    }
    fn arm(&mut self) {
        let mut b = self.b.lock().unwrap();
        b.armed = true;
        if !b.done.is_empty() {
            b.armed = false;
            b.waker.as_ref().unwrap().wake_by_ref();
        }
    }
}
fn complete(b: &Shared, i: u64) {
    let mut b = b.lock().unwrap();
    if b.below.is_empty() {
        return;
    }
    let i = (i % b.below.len() as u64) as usize;
    let c = b.below.remove(i).unwrap();
    b.done.push_back(c);
    if std::mem::take(&mut b.armed) {
        b.waker.as_ref().unwrap().wake_by_ref();
    }
}
struct Bell(AtomicU64);
impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn play(seed: u64) {
    let mut random = Random::new(seed);
    let mut below = |n: u64| random.draw() % n;
    let all: Arc<Mutex<Vec<Shared>>> = Arc::default();
    let spec = "mem,zones=8,zone-size=96K,conv=3,lba-size=512";
    let m = || -> Arc<dyn Device> { Arc::new(Manual { dev: emu(spec), all: all.clone() }) };
    let disk: Arc<dyn Device> = match seed % 8 {
        0 => Po2Disk::new(m()).unwrap(),
        1 => JoinDisk::stripe(vec![m(), m()]).unwrap(),
        2 => JoinDisk::cut(m(), 1..7).unwrap(),
        3 => Po2Disk::new(JoinDisk::stripe(vec![m(), m(), m()]).unwrap()).unwrap(),
        4 => {
            JoinDisk::linear(vec![Po2Disk::new(m()).unwrap(), Po2Disk::new(m()).unwrap()]).unwrap()
        }
        5 => JoinDisk::stripe(vec![
            JoinDisk::cut(m(), 1..5).unwrap(),
            JoinDisk::cut(m(), 1..5).unwrap(),
        ])
        .unwrap(),
        6 => Po2Disk::new(TapDisk::new(JoinDisk::cut(m(), 2..8).unwrap(), Arc::new(|_: &_| {})))
            .unwrap(),
        _ => JoinDisk::cut(Po2Disk::new(m()).unwrap(), 1..7).unwrap(),
    };
    let g = *disk.geometry();
    let bell = Arc::new(Bell(AtomicU64::new(0)));
    let depth = 1 + below(4) as u16;
    let mut q = disk.open_queue(depth, Waker::from(bell.clone())).unwrap();
    let cap = g.capacity().0;
    let (mut sent, mut back) = (0u64, 0u64);
    let mut open: BTreeMap<u64, (Op, u64, u32)> = BTreeMap::new();
    let mut list = Commands::new();
    let mut idle = 0;
    let memory: &'static [u8] = AlignedBuf::zeroed(256 * 512).leak();
    while back < 300 {
        while sent < 300 && list.len() < 3 && sent - back < u64::from(depth) {
            let len = 1 + below(16) as u32;
            let at = below(cap);
            let zs = u64::from(g.zone_sectors());
            let start = at / zs * zs;
            let zl = g.zone_len_sectors(g.zone_of(Sector(at)).0);
            let (op, at, len) = match below(9) {
                0 => (Op::Flush, 0, 0),
                1 => (Op::ZoneResetAll, 0, 0),
                2 => (Op::ReportZones, at, 0),
                3 => (Op::ZoneFinish, start, zl),
                4 => (Op::ZoneReset, start, zl),
                5 | 6 => (Op::Write, start, len),
                _ => (Op::Read, at, len),
            };
            let mut c = if op.has_data() {
                Command::of(Bio::with_buf(
                    op,
                    Sector(at),
                    len,
                    IoBuf::from_static(&memory[..(len as usize) << 9]),
                ))
            } else {
                Command::without_data(op, Sector(at), len)
            };
            if op == Op::Write && below(2) == 0 {
                c.flags = Flags::PREFLUSH;
            }
            if op == Op::ReportZones {
                c.report_max = below(20) as u32;
            }
            let id = std::ptr::from_ref(&*c).addr() as u64;
            assert!(open.insert(id, (op, at, len)).is_none(), "{seed}: doubled");
            list.push_back(c);
            sent += 1;
        }
        q.submit(Nanos(0), &mut list);
        // Arm, poll once more, then sleep.
        let mut done = Commands::new();
        let heard = bell.0.load(Ordering::SeqCst);
        let arm = below(3) > 0;
        if arm {
            q.arm();
        }
        let bs = all.lock().unwrap().clone();
        for _ in 0..below(3) {
            let i = below(bs.len() as u64) as usize;
            complete(&bs[i], below(9));
        }
        q.poll(Nanos(0), &mut done);
        if arm && done.is_empty() && list.is_empty() {
            // Asleep. Complete everything that is at the devices, one by one, until woken.
            let mut n = 0;
            while bell.0.load(Ordering::SeqCst) == heard && q.next_deadline().is_none() {
                let busy: Vec<_> =
                    bs.iter().filter(|b| !b.lock().unwrap().below.is_empty()).collect();
                if busy.is_empty() {
                    assert!(open.is_empty(), "{seed}: lost wake-up, {} open: {open:?}", open.len());
                    break;
                }
                complete(busy[below(busy.len() as u64) as usize], below(9));
                n += 1;
                assert!(n < 1000);
            }
        }
        idle = if done.is_empty() { idle + 1 } else { 0 };
        assert!(idle < 10_000, "{seed}: hang {open:?}");
        for c in done {
            let id = std::ptr::from_ref(&*c).addr() as u64;
            let was = open.remove(&id).unwrap_or_else(|| panic!("{seed}: not ours {c:?}"));
            assert_eq!((c.op, c.sector.0, c.len_sectors), was, "{seed}: {:?}", c.status);
            let ok = match c.op {
                Op::Read | Op::Write | Op::ZoneFinish | Op::ZoneReset => true,
                _ => c.status.is_ok(),
            };
            assert!(ok, "{seed}: {:?} {:?}", c.op, c.status);
            if c.op == Op::ReportZones {
                let first = g.zone_of(c.sector).0.0;
                assert_eq!(c.report.len() as u32, c.report_max.min(g.nr_zones() - first), "{seed}");
                for (i, z) in c.report.iter().enumerate() {
                    let n = zoneplug_core::ZoneNo(first + i as u32);
                    assert_eq!(
                        (z.start, z.len_sectors),
                        (g.zone_start(n), u64::from(g.zone_len_sectors(n))),
                        "{seed}"
                    );
                }
            }
            back += 1;
        }
    }
    assert!(open.is_empty());
}
/// Through any stack, every command comes back once and unchanged, and a queue that sleeps is woken.
#[test]
fn layers_lose_no_command_and_no_wake_up() {
    for seed in 0..1000 {
        play(seed);
    }
}
