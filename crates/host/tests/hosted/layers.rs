//! Layers with memory and files of their own, under trouble.

#[path = "../../../core/tests/common/bomb.rs"]
mod bomb;

use bomb::{Bomb, Fuse, POLL, SUBMIT, open_survivor};
use std::sync::Arc;
use std::task::Waker;
use zoneplug_core::disk::{Disk, DiskConfig};
use zoneplug_core::{
    Bio, Bios, Command, Commands, Device, IoBuf, Nanos, Op, Queue, Sector, Status, lost_bios,
};
use zoneplug_devices::emu::{EmuConfig, EmuDisk};
use zoneplug_devices::stack::TapDisk;
use zoneplug_host::{BlockingDisk, CryptDisk, DiskSpec, HostedDisk};

fn emu(spec: &str) -> Arc<EmuDisk> {
    EmuDisk::new(spec.parse::<EmuConfig>().unwrap()).unwrap()
}
fn key() -> Vec<u8> {
    (0..64).collect()
}
fn buf(sectors: u32, fill: u8) -> IoBuf {
    let mut b = IoBuf::leaked(sectors * 512);
    b.copy_from(0, &vec![fill; sectors as usize * 512]);
    b
}
fn first(b: &IoBuf) -> [u8; 4] {
    let mut x = [0; 4];
    b.copy_to(0, &mut x);
    x
}

fn crypted() -> (Disk, Fuse) {
    let (bomb, fuse) = Bomb::new(emu("mem,zones=6,zone-size=64K"));
    (open_survivor(CryptDisk::new(bomb, &key()).unwrap()), fuse)
}
fn go(place: u8, bios: Vec<Box<Bio>>) -> Vec<Box<Bio>> {
    let (disk, fuse) = crypted();
    let mut q = disk.open_polled_queue(8, 4).unwrap();
    // Something to read, and slot 0 of the layer has been in use.
    let mut w = Bio::with_buf(Op::Write, Sector(128), 8, buf(8, 7));
    w.set_token(1);
    q.submit(Nanos(1), &mut Bios::from([w]));
    let mut done = Bios::new();
    q.poll(Nanos(2), &mut done);
    assert_eq!((done.len(), done[0].status), (1, Status::Ok));
    done.clear();
    if place == SUBMIT {
        fuse.light(place);
    }
    q.submit(Nanos(10), &mut bios.into_iter().collect());
    if place == POLL {
        fuse.light(place);
    }
    for i in 0..10 {
        q.poll(Nanos(11 + i), &mut done);
    }
    assert_eq!((q.outstanding(), lost_bios()), (0, 0));
    done.into_iter().collect()
}
fn wbio() -> Box<Bio> {
    let mut w = Bio::with_buf(Op::Write, Sector(0), 8, buf(8, 9));
    w.set_token(77);
    w
}
#[test]
fn a_write_is_the_clients_again_when_the_device_panics_in_submit() {
    let w = wbio();
    let mem = w.data().range();
    let done = go(SUBMIT, vec![w]);
    let seen: Vec<_> = done.iter().map(|b| (b.token(), b.status)).collect();
    assert_eq!(seen, [(77, Status::NoDevice)]);
    assert_eq!(done[0].data().range(), mem, "its own memory");
}
#[test]
fn a_write_is_the_clients_again_when_the_device_panics_in_poll() {
    let w = wbio();
    let mem = w.data().range();
    let done = go(POLL, vec![w]);
    let seen: Vec<_> = done.iter().map(|b| b.token()).collect();
    assert_eq!(seen, [77]);
    assert_eq!(done[0].data().range(), mem, "its own memory");
}
/// W20.
#[test]
fn a_read_that_is_back_before_a_panic_is_decrypted() {
    let mut r = Bio::with_buf(Op::Read, Sector(128), 8, buf(8, 0xff));
    r.set_token(77);
    let done = go(POLL, vec![r]);
    assert_eq!(done.len(), 1);
    assert!(
        !done[0].status.is_ok() || first(done[0].data()) == [7; 4],
        "{:?} with {:x?}",
        done[0].status,
        first(done[0].data())
    );
}
/// The same with nothing but public parts: a client that waits.
#[test]
fn a_hosted_client_gets_its_write_back() {
    let (bomb, fuse) = Bomb::new(emu("mem,zones=6,zone-size=64K"));
    let disk =
        HostedDisk::open(CryptDisk::new(bomb, &key()).unwrap(), DiskConfig::default()).unwrap();
    let (tx, rx) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut io = BlockingDisk::new(&disk).unwrap();
        fuse.light(SUBMIT);
        let r = io.write(Sector(0), zoneplug_buf::AlignedBuf::zeroed(4096));
        let _ = tx.send(r.map_err(|e| e.status));
    });
    let r = rx.recv_timeout(std::time::Duration::from_secs(5)).expect("it never comes back");
    assert_eq!(r.map(|_| ()), Err(Status::NoDevice));
}

fn run_one(q: &mut dyn Queue, c: Box<Command>) -> Box<Command> {
    let mut list = Commands::from([c]);
    q.submit(Nanos(1), &mut list);
    assert!(list.is_empty());
    q.poll(Nanos(1), &mut list);
    list.pop_front().unwrap()
}
/// W20.
#[test]
fn crypt_lets_no_plaintext_down() {
    let plain = emu("mem,zones=4,zone-size=1M,append=native");
    let crypt = CryptDisk::new(plain.clone(), &key()).unwrap();
    assert_eq!(crypt.limits().zone_append_max_sectors, 0);
    let mut q = crypt.open_queue(4, Waker::noop().clone()).unwrap();
    let c =
        run_one(&mut *q, Command::of(Bio::with_buf(Op::ZoneAppend, Sector(0), 8, buf(8, 0x55))));
    let mut raw = plain.open_queue(4, Waker::noop().clone()).unwrap();
    let r = run_one(&mut *raw, Command::of(Bio::with_buf(Op::Read, Sector(0), 8, buf(8, 0))));
    assert_ne!(
        first(r.bios[0].data()),
        [0x55; 4],
        "the plaintext is on the device; the append was {:?}",
        c.status
    );
}
#[test]
fn crypt_refuses_a_command_of_4_gib() {
    let crypt = CryptDisk::new(emu("null,zones=4,zone-size=8G"), &key()).unwrap();
    let mut q = crypt.open_queue(4, Waker::noop().clone()).unwrap();
    let memory: &'static [u8] = zoneplug_buf::AlignedBuf::zeroed(64 << 20).leak();
    let mut c = Command::without_data(Op::Write, Sector(0), 1 << 23);
    for i in 0..64 {
        c.bios.push(Bio::with_buf(Op::Write, Sector(i << 17), 1 << 17, IoBuf::from_static(memory)));
    }
    let c = run_one(&mut *q, c);
    assert_eq!(c.status, Status::InvalidField, "longer than max_transfer_sectors");
}
/// W20.
#[test]
fn crypt_keeps_to_its_own_longest_transfer() {
    let crypt = CryptDisk::new(emu("mem,zones=4,zone-size=8M"), &key()).unwrap();
    let mut q = crypt.open_queue(4, Waker::noop().clone()).unwrap();
    let n = crypt.limits().max_transfer_sectors + 8;
    let c = run_one(&mut *q, Command::of(Bio::with_buf(Op::Write, Sector(0), n, buf(n, 1))));
    assert_eq!(c.status, Status::InvalidField);
}
/// What is taken is taken from the front.
/// W20.
#[test]
fn crypt_takes_from_the_front() {
    let crypt = CryptDisk::new(emu("mem,zones=4,zone-size=1M,latency=1ms"), &key()).unwrap();
    let log = Arc::new(std::sync::Mutex::new(Vec::new()));
    let l = log.clone();
    let tap = TapDisk::new(
        crypt,
        Arc::new(move |e: &_| {
            let e: &zoneplug_devices::stack::TapEvent = e;
            l.lock().unwrap().push((e.status.is_some(), e.sector.0));
        }),
    );
    let mut q = tap.open_queue(1, Waker::noop().clone()).unwrap();
    let w = |at: u64| Command::of(Bio::with_buf(Op::Write, Sector(at), 8, buf(8, 1)));
    q.submit(Nanos(0), &mut Commands::from([w(0)]));
    let bad = Command::without_data(Op::Write, Sector(4096), 8);
    let mut list = Commands::from([w(2048), bad]);
    q.submit(Nanos(0), &mut list);
    let left: Vec<_> = list.iter().map(|c| c.sector.0).collect();
    assert!(left == [2048, 4096], "left: {left:?}; told: {:?}", log.lock().unwrap());
}

fn temp(name: &str) -> std::path::PathBuf {
    let path = std::env::temp_dir().join(format!("zoneplug-review1-{}-{name}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    path
}
#[test]
fn a_trace_survives_a_device_that_panics() {
    // trace over a panicking device: what a trace is for.
    let path = temp("t");
    let text = format!("trace,file={}@mem,zones=4,zone-size=64K", path.display());
    let (bomb, fuse) = Bomb::new(DiskSpec::parse(&text).unwrap().device);
    let disk = HostedDisk::open(bomb, DiskConfig::default()).unwrap();
    let mut io = BlockingDisk::new(&disk).unwrap();
    io.write(Sector(0), zoneplug_buf::AlignedBuf::zeroed(4096)).unwrap();
    fuse.light(POLL);
    let _ = io.read(Sector(0), 8);
    drop((io, disk));
    let n = std::fs::read_to_string(&path).unwrap().lines().count();
    std::fs::remove_file(path).unwrap();
    assert!(n >= 4, "{n} lines");
}
#[test]
fn a_stack_that_is_refused_makes_no_trace() {
    let path = temp("t2");
    let text = format!("linear,first=9,zones=1@trace,file={}@mem,zones=4", path.display());
    assert!(DiskSpec::parse(&text).is_err());
    let there = path.exists();
    let _ = std::fs::remove_file(path);
    assert!(!there, "the file is there, and the corrected specification fails because of it");
}
#[test]
fn tags_of_a_joined_simulated_drive_are_not_swallowed() {
    let e = DiskSpec::parse("linear@sim-zns1,tags=4%sim-zns1").map(|s| s.tags);
    assert!(e.is_err(), "accepted, tags are {:?}", e.unwrap());
}
/// The topmost layer of several devices takes every device; what would be read as another disk than was meant is
/// refused.
#[test]
fn a_cut_is_of_what_follows_and_joins_do_not_nest() {
    let zones = |t: &str| {
        DiskSpec::parse(t).map(|s| s.device.geometry().nr_zones()).map_err(|e| e.to_string())
    };
    let (a, b) = ("mem,zones=4,zone-size=1M", "mem,zones=8,zone-size=1M");
    assert_eq!(zones(&format!("linear,first=0,zones=4@stripe@{a}%{b}")), Ok(4));
    for nested in ["linear@stripe@", "stripe@linear@", "linear@po2@stripe@"] {
        let e = zones(&format!("{nested}{a}%{b}")).unwrap_err();
        assert!(e.contains("a layer of several devices on another"), "{e}");
    }
    assert_eq!(zones(&format!("linear@linear,first=1@{a}%linear,zones=2@{b}")), Ok(5));
}

#[test]
fn a_stack_has_a_limit() {
    let text = format!("{}mem,zones=4,zone-size=64K", "po2@".repeat(20_000));
    assert!(DiskSpec::parse(&text).unwrap_err().to_string().contains("more than 16 layers"));
}

/// Opening a stack for reading changes nothing: none of several durable disks is changed, and no trace is made.
#[test]
fn looking_opens_every_disk_for_reading() {
    use zoneplug_host::file::{self, CreateOptions};
    let paths = [temp("a.zbd"), temp("b.zbd")];
    for path in &paths {
        let options =
            CreateOptions { zones: Some(4), zone_size: Some(1 << 20), ..CreateOptions::default() };
        file::create(path, &options, false).unwrap();
    }
    let trace = temp("look");
    let before: Vec<_> = paths.iter().map(|p| std::fs::read(p).unwrap()).collect();
    let text = format!(
        "trace,file={}@linear@{}%{}",
        trace.display(),
        paths[0].display(),
        paths[1].display()
    );
    let spec = DiskSpec::parse_to_look(&text).unwrap();
    assert!(spec.device.limits().read_only);
    drop(HostedDisk::open(spec.device, spec.config).unwrap());
    for (path, was) in paths.iter().zip(before) {
        assert!(std::fs::read(path).unwrap() == was, "{}", path.display());
        std::fs::remove_file(path).unwrap();
    }
    assert!(!trace.exists());
}
