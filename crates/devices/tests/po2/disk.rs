//! A disk on the layer: compared with a disk that has such zones itself, and its waking.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;
use zoneplug_core::disk::{Disk, DiskConfig, DiskQueue, QueueConfig};
use zoneplug_core::zone::ZONE_RECORD_LEN;

/// N13: over zones of a power of two there is nothing in between.
#[test]
fn nothing_is_in_between_where_nothing_is_to_be_done() {
    let disk = Po2Disk::new(emu("null,zones=4,zone-size=64K")).unwrap();
    assert_eq!(disk.geometry(), disk.inner().geometry());
}

/// N9, N14: above the layer the plug fills a zone to its capacity and refuses the gap itself.
#[test]
fn the_plug_never_writes_into_a_gap() {
    let device = Po2Disk::new(emu(SMALL)).unwrap();
    let disk = Disk::open(device, DiskConfig::default(), &mut |_| Nanos(0)).unwrap();
    let mut q = disk.open_queue(QueueConfig::default()).unwrap();
    let mut list: Bios = (0..9)
        .map(|i| Bio::with_buf(Op::Write, Sector(32 + 3 * i), 3, IoBuf::leaked(3 * SECTOR_SIZE)))
        .collect();
    let mut done = Bios::new();
    while q.outstanding() > 0 || !list.is_empty() {
        q.submit(Nanos(0), &mut list);
        q.poll(Nanos(0), &mut done);
    }
    let failed: Vec<_> =
        done.iter().filter(|b| !b.status.is_ok()).map(|b| (b.sector.0, b.status)).collect();
    assert_eq!(failed, [(56, Status::ZoneFull)]);
}

/// The layer says that it armed its device, so what ends in the layer wakes too, with a descriptor or without.
/// N5.
#[test]
fn a_gap_wakes_who_armed_a_descriptor() {
    struct Flag(AtomicBool);
    impl Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    for fd in [false, true] {
        let flag = Arc::new(Flag(AtomicBool::new(false)));
        let disk = Po2Disk::new(emu(&format!("{SMALL},latency=1ms"))).unwrap();
        let mut q = disk.open_queue(4, Waker::from(flag.clone())).unwrap();
        if fd {
            assert_eq!(q.arm_fd(), None);
        } else {
            q.arm();
        }
        q.submit(Nanos(0), &mut Commands::from([data_command(Op::Read, 24, &[8], 0xff)]));
        assert!(flag.0.load(Ordering::Relaxed), "descriptor: {fd}");
    }
}

/// A queue of a disk, what it was given, and what came back: by token whether it succeeded, where it was, and a sum of
/// the data.
struct Seen {
    q: DiskQueue,
    all: BTreeMap<u64, (bool, u64, u64)>,
}

impl Seen {
    fn new(device: Arc<dyn Device>) -> Seen {
        let mut now = Nanos(0);
        let mut clock = |next: Option<Nanos>| {
            now = now.max(next.unwrap_or(now));
            now
        };
        let disk = Disk::open(device, DiskConfig::default(), &mut clock).unwrap();
        Seen { q: disk.open_polled_queue(64, 64).unwrap(), all: BTreeMap::new() }
    }

    fn poll(&mut self, now: Nanos) {
        let mut done = Bios::new();
        self.q.poll(now, &mut done);
        for bio in done {
            let mut data = vec![0; bio.data().len() as usize];
            if bio.status.is_ok() && matches!(bio.op, Op::Read | Op::ReportZones) {
                bio.data().copy_to(0, &mut data);
            }
            let sum = data.iter().fold(0u64, |s, b| s.wrapping_mul(31).wrapping_add(u64::from(*b)));
            let once = self.all.insert(bio.token(), (bio.status.is_ok(), bio.sector.0, sum));
            assert!(once.is_none(), "{} comes back twice", bio.token());
        }
    }
}

proptest! {
    /// N1-N12: a disk on the layer, whose queue maps addresses itself, and one on a device made with the power of two
    /// answer alike, also with commands of all kinds in flight at a time.
    /// R41.
    #[test]
    fn a_disk_on_the_map_answers_as_one_without(
        size in 2u32..80,
        cap in 1u32..80,
        native in 0u32..2,
        ops in prop::collection::vec((0usize..12, 0u64..600, 1u32..24, 0u8..255, 0u64..4), 1..80),
    ) {
        let (cap, p) = (cap.min(size), size.next_power_of_two());
        let spec = |s: u32| format!(
            "mem,zones=5,zone-size={},zone-capacity={},lba-size=512,latency=1ms,append={}",
            s * 512, cap * 512, if native == 1 { "native" } else { "emulated" },
        );
        let mut both = [Seen::new(Po2Disk::new(emu(&spec(size))).unwrap()), Seen::new(emu(&spec(p)))];
        let mut now = Nanos(1 << 40);
        let mut wps = [0; 5];
        let nr = ops.len();
        for (token, (op, at, len, fill, wait)) in (0..).zip(ops) {
            let at = at % (5 * u64::from(p));
            let zone = at / u64::from(p);
            let start = zone * u64::from(p);
            let (op, at, len, memory) = match op {
                0..=3 => (Op::Read, at, len, len * SECTOR_SIZE),
                4..=6 => {
                    // Mostly where it is due.
                    let wp = &mut wps[zone as usize];
                    let at = start + *wp;
                    *wp = (*wp + u64::from(len)) % u64::from(p);
                    (Op::Write, at, len, len * SECTOR_SIZE)
                }
                7 => {
                    // A longer one is refused by the layer's limit above it, and by the other device (N10).
                    let len = len.min(cap);
                    (Op::ZoneAppend, start, len, len * SECTOR_SIZE)
                }
                8 => (Op::ReportZones, at, 0, 3 * ZONE_RECORD_LEN as u32),
                9 => {
                    wps[zone as usize] = 0;
                    (Op::ZoneReset, start, p, 0)
                }
                10 => (Op::ZoneFinish, start, p, 0),
                _ => (Op::Flush, 0, 0, 0),
            };
            for seen in &mut both {
                let mut buf = IoBuf::leaked(memory);
                buf.copy_from(0, &vec![fill; memory as usize]);
                let mut bio = Bio::with_buf(op, Sector(at), len, buf);
                bio.set_token(token);
                let mut list = Bios::from([bio]);
                prop_assert_eq!(seen.q.submit(now, &mut list), 1);
                if wait > 0 {
                    seen.poll(now);
                }
            }
            now.0 += wait * 400_000;
        }
        for seen in &mut both {
            for step in 0..200 {
                seen.poll(Nanos(now.0 + step * 1_000_000));
            }
        }
        prop_assert_eq!(both[0].all.len(), nr);
        prop_assert_eq!(&both[0].all, &both[1].all);
    }

    /// The layer over zones of any size, and a disk made with the power of two, answer alike.
    /// N1, N2, N12, N17, R41.
    #[test]
    fn as_a_disk_with_such_zones(
        size in 2u32..80,
        cap in 1u32..80,
        conv in 0u32..2,
        ops in prop::collection::vec((0usize..10, 0u64..600, 1u32..40, 1u8..255), 1..60),
    ) {
        let cap = cap.min(size);
        let p = size.next_power_of_two();
        let spec = |s: u32| format!(
            "mem,zones=4,zone-size={},zone-capacity={},conv={conv},lba-size=512,append=native,max-open=2,max-active=3",
            s * 512, cap * 512
        );
        let (disk, mut a) = po2(&spec(size));
        let mut b = emu(&spec(p)).open_queue(16, Waker::noop().clone()).unwrap();
        for (op, at, len, fill) in ops {
            let at = at % disk.geometry().capacity().0;
            let start = at / u64::from(p) * u64::from(p);
            let gap = start + u64::from(size);
            let make = || match op {
                0..=2 => data_command(Op::Read, at, &[len.div_ceil(2), len / 2][..1 + usize::from(len > 1)], 0xff),
                3 => {
                    let wp = 0;
                    data_command(Op::Write, at + wp, &[len], fill)
                }
                4 | 5 => data_command(Op::ZoneAppend, start, &[len], fill),
                6 => Command::without_data(Op::ZoneReset, Sector(start), p),
                7 => Command::without_data(Op::ZoneFinish, Sector(start), p),
                8 => Command::without_data(Op::ZoneOpen, Sector(start), p),
                _ => Command::without_data(Op::ZoneClose, Sector(start), p),
            };
            // The other disk has no gap in its conventional zone.
            if conv == 1 && start == 0 && at + u64::from(len) > gap && op <= 5 {
                continue;
            }
            let (x, y) = (run_one(&mut *a, make()), run_one(&mut *b, make()));
            prop_assert_eq!(x.status.is_ok(), y.status.is_ok(), "{:?} {:?}", x, y);
            prop_assert_eq!((x.sector, x.len_sectors), (y.sector, y.len_sectors));
            if x.op == Op::Read && x.status.is_ok() {
                prop_assert_eq!(data(&x), data(&y));
            }
            let zones = report(&mut *a, at, u32::MAX);
            let mut others = report(&mut *b, at, u32::MAX);
            if let Some(z) = others.first_mut().filter(|z| z.cond == Condition::NotWp) {
                z.capacity_sectors = u64::from(size);
            }
            prop_assert_eq!(zones, others);
        }
    }
}
