//! The reactor thread of a process that has one disk. Alone in its file, because the process's threads are looked at.

#![allow(clippy::unwrap_used)]

use std::time::Duration;
use zoneplug_buf::IoBuf;
use zoneplug_core::{Bio, Bios, Op, Sector};
use zoneplug_host::HostedDisk;

/// A client that has stopped waiting does not keep the reactor awake.
#[test]
fn nobody_waits_and_the_reactor_rests() {
    let disk = HostedDisk::open_spec("null,zones=4,zone-size=1M,latency=1ms").unwrap();
    let mut a = disk.open_client(64, 2).unwrap();
    let mut done = Bios::new();
    let ctx = || -> u64 {
        for e in std::fs::read_dir("/proc/self/task").unwrap() {
            let p = e.unwrap().path();
            if std::fs::read_to_string(p.join("comm"))
                .unwrap_or_default()
                .starts_with("zoneplug-reacto")
            {
                let s = std::fs::read_to_string(p.join("status")).unwrap();
                return s
                    .lines()
                    .find(|l| l.starts_with("voluntary"))
                    .unwrap()
                    .split_whitespace()
                    .last()
                    .unwrap()
                    .parse()
                    .unwrap();
            }
        }
        0
    };
    let mut stuck = 0;
    for i in 0..200u64 {
        a.submit(&mut Bios::from([Bio::with_buf(
            Op::ZoneAppend,
            Sector(0),
            8,
            IoBuf::leaked(4096),
        )]));
        a.wait(&mut done, 1, None);
        if i % 20 == 19 {
            std::thread::sleep(Duration::from_millis(5));
            let x = ctx();
            std::thread::sleep(Duration::from_millis(100));
            let y = ctx();
            if y - x > 50 {
                stuck += 1;
            }
        }
    }
    assert_eq!(stuck, 0, "times that the reactor went on at its tick with nobody waiting");
}
