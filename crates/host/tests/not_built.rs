//! What a build without features says of a specification that needs one: `scripts/features` runs this.

#![cfg(not(any(feature = "file", feature = "drives", feature = "crypt", feature = "ublk")))]
#![allow(clippy::unwrap_used)]

use zoneplug_core::{ErrorKind, Sector};
use zoneplug_host::{BlockingDisk, DiskSpec, HostedDisk};

#[test]
fn a_kind_that_is_not_built_names_its_feature() {
    for (spec, feature) in [
        ("./a.zbd", "file"),
        ("a.zbd,io=ring", "file"),
        ("/dev/zero", "drives"),
        ("crypt,key-file=k@mem,zones=4,zone-size=1M", "crypt"),
        ("linear@mem,zones=4,zone-size=1M%./a.zbd", "file"),
    ] {
        let e = DiskSpec::parse(spec).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::NotSupported, "{spec}: {e}");
        assert!(e.to_string().contains("not in this build"), "{spec}: {e}");
        let hint = e.what_to_try().unwrap();
        assert!(hint.contains(&format!("the feature {feature}:")), "{spec}: {hint}");
    }
}

#[test]
fn disks_in_memory_need_no_feature() {
    for spec in ["mem,zones=4,zone-size=1M", "po2@mem,zones=4,zone-size=1M,zone-capacity=768K"] {
        let disk = HostedDisk::open_spec(spec).unwrap();
        let mut io = BlockingDisk::new(&disk).unwrap();
        assert_eq!(io.report(Sector(0), 9).unwrap().len(), 4);
    }
}
