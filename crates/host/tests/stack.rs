//! Stacks of layers by their specifications.
#![allow(clippy::unwrap_used)]

use zoneplug_buf::AlignedBuf;
use zoneplug_core::{Sector, Status};
use zoneplug_host::{BlockingDisk, DiskSpec, HostedDisk, base_of, file_of};

fn error(text: &str) -> String {
    let e = DiskSpec::parse(text).expect_err(text);
    format!("{e} | {}", e.what_to_try().unwrap_or("no hint"))
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
        assert_eq!((base_of(&text), file_of(&text)), (base, file), "{text}");
    }
}

#[test]
fn what_is_wrong_in_a_stack_is_named() {
    for (text, what) in [
        ("po2@", "'' names no kind"),
        ("po2", "no kind of device is called 'po2'"),
        ("po3@mem", "no kind of device is called 'po3@mem'"),
        ("po2,zones=4@mem", "po2 has no option zones"),
        ("po2,qd1=1@mem", "options of the disk are at the end"),
        ("po2,fault=nothing@mem", "nothing"),
        ("po2@mem,zone=4", "did you mean zones?"),
        ("po2@mem,zones=1,zone-size=2T", "zone-size"),
    ] {
        let e = error(text);
        assert!(e.contains(what), "{text}: {e}");
    }
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
