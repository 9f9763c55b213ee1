//! Stacks of layers by their specifications.

use zoneplug_buf::AlignedBuf;
use zoneplug_core::disk::DiskConfig;
use zoneplug_core::{Sector, Status};
use zoneplug_devices::conformance::{Target, run};
use zoneplug_host::{BlockingDisk, CryptDisk, DiskSpec, HostedDisk, Specification, open_device};

fn error(text: &str) -> String {
    let e = DiskSpec::parse(text).expect_err(text);
    format!("{} | {}", e.what(), e.what_to_try().unwrap_or("no hint"))
}

/// Layers are in front, the topmost first; options of the disk stay where they are.
#[test]
fn a_stack_is_one_text() {
    let spec = DiskSpec::parse("po2@mem,zones=8,zone-size=96M,tags=4,qd1=1").unwrap();
    let g = spec.device.geometry();
    assert_eq!((g.zone_sectors() >> 11, g.zone_capacity_sectors() >> 11), (128, 96));
    assert_eq!((spec.tags, spec.config.zoned_qd1_writes), (Some(4), Some(true)));
    // On itself, and on a drive with a power of two, it does nothing.
    for text in ["po2@po2@mem,zones=8,zone-size=96M", "po2@null,zones=8,zone-size=128M"] {
        assert_eq!(DiskSpec::parse(text).unwrap().device.geometry().zone_sectors() >> 11, 128);
    }
    let (base, file) = ("/tmp/a@b.zbd,direct=0", Some(std::path::Path::new("/tmp/a@b.zbd")));
    for text in [base.to_owned(), format!("po2@{base}"), format!("po2,fault=read/io@po2@{base}")] {
        let spec = Specification::parse(&text).unwrap();
        assert_eq!((spec.disk().text(), spec.file()), (base, file), "{text}");
    }
}

#[test]
fn what_is_wrong_in_a_stack_is_named() {
    for (text, what) in [
        ("po2@", "'' names no kind"),
        ("po2", "po2 is a layer, and on no device | the device behind an @"),
        ("po3@mem", "no layer is called 'po3' | did you mean po2@?"),
        ("po2,zones=4@mem", "po2 has no option zones"),
        ("po2,qd1=1@mem", "options of the disk are at the end"),
        ("po2,fault=nothing@mem", "nothing"),
        ("po2@mem,zone=4", "did you mean zones?"),
        ("po2@mem,zones=1,zone-size=2T", "zone-size"),
        ("linear@mem,tags=4%mem", "options of the disk"),
        ("linear@mem,zones=4,zone-size=1M%mem,zones=4,zone-size=2M", "devices with zones of"),
        ("linear,first=3,zones=2@mem,zones=4", "it has zones 0 to 4"),
        ("stripe,first=3@mem", "stripe has no option first"),
        ("crypt@mem", "crypt without a key"),
        ("crypt,key-file=/nonexistent@mem", "/nonexistent cannot be read"),
        ("delay@mem", "delay of nothing"),
        ("delay,write=2@mem", "write is a time"),
        ("trace@mem", "trace without a file"),
        ("trace,file=/nonexistent/t@mem", "there is no directory /nonexistent"),
    ] {
        let e = error(text);
        assert!(e.contains(what), "{text}: {e}");
    }
}

/// Once the zones are too many, no further device is made.
#[test]
fn a_join_of_too_many_zones_stops_there() {
    let half = "mem,zones=2000001,zone-size=1M";
    let e = error(&format!("linear@{half}%/nonexistent/a.zbd%{half}"));
    assert!(e.contains("4000002 zones: 1 to 4000000 are possible"), "{e}");
}

/// Devices that are joined are written one after the other.
#[test]
fn devices_are_joined_by_a_percent_sign() {
    let zones = |text: &str| DiskSpec::parse(text).unwrap().device.geometry().nr_zones();
    assert_eq!(zones("linear@mem,zones=4%mem,zones=6%mem,zones=5,tags=9"), 15);
    assert_eq!(zones("stripe@mem,zones=4%mem,zones=6"), 8);
    assert_eq!(zones("linear,first=1,zones=2@mem,zones=4"), 2);
    assert_eq!(zones("linear,first=1@mem,zones=4"), 3);
    assert_eq!(
        zones("po2@stripe@po2@mem,zones=4,zone-size=3M%mem,zones=4,zone-size=4M,zone-capacity=3M"),
        8
    );
    let one = DiskSpec::parse("sim-zns1").unwrap();
    assert_eq!(DiskSpec::parse("linear@sim-zns1%sim-zns1,qd1=1").unwrap().tags, one.tags);
    let spec = Specification::parse("po2@linear@po2@mem,zones=4%null,zones=3").unwrap();
    assert_eq!(spec.disk().text(), "null,zones=3");
}

/// A bracket holds the devices of an inner layer together. Options behind it are those of the disk.
#[test]
fn layers_of_several_devices_nest_in_brackets() {
    let (a, b) = ("mem,zones=4,zone-size=1M", "mem,zones=8,zone-size=1M");
    let text = format!("stripe@[linear@{a}%{b}]%po2@[linear@{b}%{a}],tags=4,qd1=1");
    let spec = DiskSpec::parse(&text).unwrap();
    assert_eq!(spec.device.geometry().nr_zones(), 24);
    assert_eq!((spec.tags, spec.config.zoned_qd1_writes), (Some(4), Some(true)));
    let depths: Vec<_> = spec.stack.iter().map(|level| level.depth).collect();
    assert_eq!(depths, [0, 1, 2, 2, 1, 2, 3, 3]);
    assert!(error(&format!("stripe@[linear@{a},tags=4%{b}]%{a}")).contains("options of the disk"));
    assert!(
        error(&format!("stripe@[linear@{a}%{b}],zones=2%{a}")).contains("zones behind a bracket")
    );
}

/// Quotation marks make a path of any name, and of a key file.
#[test]
fn a_path_has_any_characters() {
    use zoneplug_host::file::{CreateOptions, create};
    let dir = temp("po2@a b,c=d%e[f]\"g\\");
    std::fs::create_dir_all(&dir).unwrap();
    let (path, key) = (dir.join("x,y.zbd"), dir.join("k@1"));
    let o = CreateOptions { zones: Some(4), zone_size: Some(1 << 20), ..CreateOptions::default() };
    create(&path, &o, false).unwrap();
    std::fs::write(&key, (0..64).collect::<Vec<u8>>()).unwrap();
    let (file, key) = [path.as_path(), &key].map(|p| Specification::of_path(p).unwrap()).into();
    assert_eq!(file.file(), Some(path.as_path()));
    let text = format!("stripe@crypt,key-file={key}@{file}%mem,zones=4,zone-size=1M");
    let spec = Specification::parse(&text).unwrap();
    assert_eq!(spec.files().collect::<Vec<_>>(), [path.as_path()]);
    assert_eq!(spec.open().unwrap().device.geometry().nr_zones(), 8);
    let again = Specification::parse(&spec.canonical()).unwrap();
    assert_eq!(again.open().unwrap().device.geometry().nr_zones(), 8);
    std::fs::remove_dir_all(dir).unwrap();
}

fn temp(name: &str) -> std::path::PathBuf {
    let path = std::env::temp_dir().join(format!("zoneplug-stack-{}-{name}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    path
}

fn sectors(fill: impl Fn(u32) -> u8, n: u32) -> AlignedBuf {
    let mut buf = AlignedBuf::zeroed(n * 512);
    (0..n).for_each(|i| buf.write(i * 512, &[fill(i); 512]));
    buf
}

/// What is written through the layer is not what is on the device, and comes back as it was; what was never written is
/// zeroes.
/// W20, A12.
#[test]
fn an_encrypted_disk_reads_what_it_wrote() {
    let key = temp("key");
    for bytes in [32u8, 64] {
        std::fs::write(&key, (0..bytes).collect::<Vec<_>>()).unwrap();
        let plain = open_device("mem,zones=4,zone-size=1M,append=native,write-cache=1").unwrap();
        let crypt = CryptDisk::with_key_file(plain.clone(), &key).unwrap();
        let disk = HostedDisk::open(crypt, DiskConfig::default()).unwrap();
        let mut io = BlockingDisk::new(&disk).unwrap();
        io.write(Sector(0), sectors(|i| i as u8, 64)).unwrap();
        let at = io.append(Sector(0), sectors(|i| i as u8 + 64, 8)).unwrap().0;
        assert_eq!(at, Sector(64));
        let back = io.read(Sector(0), 80).unwrap().to_vec();
        for (i, sector) in back.chunks(512).enumerate() {
            let want = if i < 72 { i as u8 } else { 0 };
            assert!(sector.iter().all(|b| *b == want), "sector {i}");
        }
        let raw = HostedDisk::open(plain, DiskConfig::default()).unwrap();
        let mut raw = BlockingDisk::new(&raw).unwrap();
        let below = raw.read(Sector(0), 72).unwrap().to_vec();
        let seen: std::collections::BTreeSet<_> = below.chunks(512).map(<[u8]>::to_vec).collect();
        assert_eq!(seen.len(), 72, "each sector is another");
        assert!(
            below.iter().zip(&back).filter(|(a, b)| a == b).count() < 400,
            "chance is 1 in 256"
        );
    }
    std::fs::write(&key, [1; 65]).unwrap();
    let e = error(&format!("crypt,key-file={}@mem", key.display()));
    assert!(e.starts_with("a key of more than 64 bytes"), "{e}");
    std::fs::remove_file(key).unwrap();
}

/// A trace has a line for each command on its way down and one on its way up.
#[test]
fn a_trace_is_what_blkparse_prints() {
    let path = temp("trace");
    let text = format!("trace,file={}@mem,zones=4,zone-size=1M", path.display());
    let spec = DiskSpec::parse(&text).unwrap();
    let disk = HostedDisk::open(spec.device, spec.config).unwrap();
    let mut io = BlockingDisk::new(&disk).unwrap();
    io.write_fua(Sector(2048), sectors(|_| 1, 8)).unwrap();
    // Appends are emulated here.
    assert_eq!(io.append_fua(Sector(2048), sectors(|_| 2, 8)).unwrap().0, Sector(2056));
    io.read(Sector(2048), 8).unwrap();
    io.reset(Sector(2048), 2048).unwrap();
    io.flush().unwrap();
    drop((io, disk));
    assert!(error(&text).contains("it is there already"), "it is not written over");
    let trace = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    let words =
        |l: &str| l.split_whitespace().skip(5).map(str::to_owned).collect::<Vec<_>>().join(" ");
    let lines: Vec<_> = trace.lines().map(words).collect();
    assert_eq!(
        lines,
        [
            "D WF 2048 + 8 [zoneplug]",
            "C WF 2048 + 8 [0]",
            "D WF 2056 + 8 [zoneplug]",
            "C WF 2056 + 8 [0]",
            "D R 2048 + 8 [zoneplug]",
            "C R 2048 + 8 [0]",
            "D ZR 2048 + 2048 [zoneplug]",
            "C ZR 2048 + 2048 [0]",
            "D F 0 + 0 [zoneplug]",
            "C F 0 + 0 [0]",
        ]
    );
}

/// Every layer alone, and three deep.
#[test]
fn layers_with_files_conform() {
    let key = temp("conform-key");
    std::fs::write(&key, (0..64).collect::<Vec<u8>>()).unwrap();
    let mut nr = 0;
    for stack in
        ["crypt@", "crypt@po2@crypt@", "trace@", "trace@crypt@delay@", "crypt@trace@stripe@"]
    {
        for kind in ["null", "mem"] {
            let base = format!(
                "{kind},zones=12,zone-size=640K,zone-capacity=600K,conv=3,last-zone-size=320K,last-zone-capacity=300K,latency=2us"
            );
            let mut make = || {
                nr += 1;
                let trace = temp(&format!("trace-{nr}"));
                let text = stack
                    .replace("crypt@", &format!("crypt,key-file={}@", key.display()))
                    .replace("trace@", &format!("trace,file={}@", trace.display()))
                    .replace("delay@", "delay,any=1us@");
                let joined =
                    if stack.contains("stripe") { format!("{base}%{base}") } else { base.clone() };
                let device = open_device(&format!("{text}{joined}")).unwrap();
                let _ = std::fs::remove_file(trace);
                device
            };
            run(&mut Target::new(&mut make, kind == "mem"));
        }
    }
    std::fs::remove_file(key).unwrap();
}

/// A fault above a layer and one below it hit in the addresses of their places.
#[test]
fn faults_are_where_they_are_written() {
    let below = "po2@mem,zones=4,zone-size=96K,fault=write/io/from=96K/to=100K";
    let above = "po2,fault=write/io/from=128K/to=132K@mem,zones=4,zone-size=96K";
    for text in [below, above] {
        let spec = DiskSpec::parse(text).unwrap();
        let disk = HostedDisk::open(spec.device, spec.config).unwrap();
        let mut io = BlockingDisk::new(&disk).unwrap();
        io.write(Sector(0), AlignedBuf::zeroed(4096)).unwrap();
        let e = io.write(Sector(256), AlignedBuf::zeroed(4096)).unwrap_err();
        assert_eq!(e.status, Status::Io, "{text}");
    }
}

/// One file may be there several times, as cuts of it: it is opened once, and each cut writes its own zones.
#[test]
fn cuts_of_one_file_are_one_disk() {
    use zoneplug_host::file::{CreateOptions, create};
    let path = std::env::temp_dir().join(format!("zoneplug-cuts-{}.zbd", std::process::id()));
    let o = CreateOptions { zones: Some(8), zone_size: Some(1 << 20), ..CreateOptions::default() };
    create(&path, &o, true).unwrap();
    let file = path.display();
    let cut = |first: u32, zones: u32| format!("linear,first={first},zones={zones}@{file}");
    let zone = |n: u64| Sector(n * 2048);
    let write = |text: &str, n: u64, byte: u8| {
        let disk = HostedDisk::open_spec(text).unwrap();
        let mut buf = AlignedBuf::zeroed(4096);
        buf.write(0, &[byte; 4096]);
        BlockingDisk::new(&disk).unwrap().write(zone(n), buf).unwrap();
    };
    // The second half in front of the first, and zone by zone in turns.
    let swapped = format!("linear@{}%{}", cut(4, 4), cut(0, 4));
    (0..4).for_each(|n| write(&swapped, n, 4 + n as u8));
    let turns = format!("stripe@{}%{}", cut(0, 2), cut(2, 2));
    (0..4).for_each(|n| write(&turns, n, [0, 2, 1, 3][n as usize]));
    let disk = HostedDisk::open_spec(&file.to_string()).unwrap();
    let mut io = BlockingDisk::new(&disk).unwrap();
    for n in 0..8 {
        let found = io.read(zone(n), 8).unwrap().to_vec();
        assert!(found.iter().all(|b| u64::from(*b) == n), "zone {n} has {}", found[0]);
    }
    drop((io, disk));
    // A zone that would be there twice, and options that one opening cannot have both.
    for (text, what) in [
        (format!("linear@{}%{}", cut(0, 5), cut(4, 4)), "named 2 times"),
        (format!("linear@{file}%{}", cut(0, 4)), "named 2 times"),
        (format!("linear@{file}%{file}"), "named 2 times"),
        (format!("linear@{}%{},io=threads", cut(0, 4), cut(4, 4)), "different options"),
    ] {
        let e = error(&text);
        assert!(e.contains(what), "{text}: {e}");
    }
    std::fs::remove_file(path).unwrap();
}
