//! Command lines for the help and the man pages.

pub(crate) const EXAMPLES: [(&str, &[&str]); 25] = [
    (
        "",
        &[
            "zoneplug create disk.zbd --size 20G --zone-size 256M",
            "zoneplug write disk.zbd data.tar && zoneplug report --map disk.zbd",
            "zoneplug read disk.zbd | tar t",
            "zoneplug reset disk.zbd --offset 0x80000 --count 2",
            "zoneplug serve --ublk disk.zbd",
            "zoneplug mount disk.zbd /mnt --format -o buffered",
            "zoneplug info mem,zones=512,zone-size=64M,conv=16,max-open=14",
            "zoneplug help spec",
        ],
    ),
    (
        "create",
        &[
            "zoneplug create disk.zbd --size 20G --zone-size 256M",
            "zoneplug create zns.zbd --zones 64 --zone-size 96M --zone-capacity 77M",
            "zoneplug create smr.zbd --zones 80 --zone-size 256M --conv 8",
        ],
    ),
    ("info", &["zoneplug info disk.zbd", "zoneplug info mem,zones=512,max-open=14 --json"]),
    (
        "report",
        &["zoneplug report disk.zbd --offset 0x80000 --count 4", "zoneplug report --map disk.zbd"],
    ),
    ("reset", &["zoneplug reset disk.zbd --offset 0x80000 --count 2", "zoneplug reset disk.zbd"]),
    ("open", &["zoneplug open disk.zbd --offset 0x80000"]),
    ("close", &["zoneplug close disk.zbd"]),
    ("finish", &["zoneplug finish disk.zbd --offset 0x80000 --count 2"]),
    ("write", &["zoneplug write disk.zbd data.tar", "tar c data | zoneplug write disk.zbd"]),
    ("read", &["zoneplug read disk.zbd copy.tar", "zoneplug read disk.zbd | tar t"]),
    ("append", &["zoneplug append disk.zbd data.tar --bs 64K"]),
    ("flush", &["zoneplug flush disk.zbd"]),
    ("resync", &["zoneplug resync disk.zbd", "zoneplug resync ublkb0"]),
    ("check", &["zoneplug check disk.zbd", "zoneplug check --repair disk.zbd"]),
    (
        "snapshot",
        &["zoneplug snapshot disk.zbd copy.zbd", "zoneplug snapshot ublkb0 copy.zbd --pause 2s"],
    ),
    (
        "serve",
        &[
            "zoneplug serve --ublk disk.zbd",
            "zoneplug serve --nvme-tcp 127.0.0.1:4420 disk.zbd",
            "zoneplug serve --iscsi 127.0.0.1:3260 disk.zbd",
            "zoneplug serve --config /etc/zoneplug/disks.toml --check-config",
            "zoneplug serve --config /etc/zoneplug/disks.toml --takeover",
        ],
    ),
    ("mount", &["zoneplug mount disk.zbd /mnt --format -o buffered"]),
    ("status", &["zoneplug status", "zoneplug status ublkb0 --json"]),
    ("doctor", &["zoneplug doctor", "zoneplug doctor --json"]),
    ("top", &["zoneplug top", "zoneplug top disk.zbd"]),
    ("attr", &["zoneplug attr ublkb0", "zoneplug attr ublkb0 zoned_qd1_writes 1"]),
    ("zone-wplugs", &["zoneplug zone-wplugs ublkb0"]),
    ("completions", &["zoneplug completions bash > /etc/bash_completion.d/zoneplug"]),
    ("man", &["zoneplug man /usr/local/share/man/man1", "zoneplug man --spec | man -l -"]),
    ("help", &["zoneplug help serve", "zoneplug help spec"]),
];
