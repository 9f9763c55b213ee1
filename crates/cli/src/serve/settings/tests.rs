//! Merging files with flags, and the places of errors.

use super::*;
use crate::serve::config_file::{DISK_KEYS, FLAGS_ONLY, flag_keys};

const EXAMPLE: &str = include_str!("../../../../../packaging/zoneplug.toml");

/// Reads the settings of a command line with a file of this text.
fn read(text: &str, flags: &[&str]) -> Result<Settings, String> {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let n = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let dir = std::env::temp_dir().join(format!("zoneplug-config-{}-{n}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let path = dir.join("z.toml");
    std::fs::write(&path, text).unwrap();
    let name = path.display().to_string();
    let line = flags_of(&[&["--config", &name], flags].concat());
    let args = Args::from_arg_matches(&line).unwrap();
    let settings = Settings::read(&args, &line);
    std::fs::remove_dir_all(&dir).unwrap();
    settings.map_err(|f| f.to_string().replace(&name, "z.toml"))
}

fn flags_of(words: &[&str]) -> ArgMatches {
    let command = Args::augment_args(Command::new("serve").no_binary_name(true));
    command.try_get_matches_from(words).unwrap()
}

fn wrong(text: &str, at: &str, hint: &str) {
    let e = read(text, &[]).unwrap_err();
    assert_eq!(e.lines().count(), 2, "{e}");
    assert!(e.starts_with(&format!("error: z.toml:{at}")), "{text}\n{e}");
    assert!(e.lines().nth(1).unwrap().contains(hint), "{text}\n{e}");
}

#[test]
fn a_file_is_what_the_flags_are() {
    let text = r#"
        depth = 64
        queues = 2
        id = 4
        log-level = "debug"
        socket-mode = 0o640
        nvme-tcp = ["127.0.0.1:4420", "[::1]:4420"]
        nqn = "nqn.x"
        allow-any-host = false

        [[disk]]
        spec = "mem,zones=8"
        ublk = true
        depth = 32
        no-recovery = true

        [[disk]]
        device = "po2@mem,zones=9"
        zone-size = "1M"
        read-ahead = "0"
        nvme-tcp = true
    "#;
    // A key that the specification does not have.
    let e = read(text, &[]).unwrap_err();
    assert!(e.contains("z.toml:20:9: there is no key read-ahead"), "{e}");
    let text = text
        .replace("read-ahead = \"0\"", "zoned_qd1_writes = true\nlatency = \"1ms\"\nublk = true");
    let s = read(&text, &[]).unwrap();
    let of = |b: &BlockDisk| (b.spec.to_string(), b.device.clone(), b.own_id);
    let device = DeviceOptions { id: Some(4), queues: Some(2), depth: 32, no_recovery: true };
    assert_eq!(of(&s.block[0]), ("mem,zones=8".to_owned(), device.clone(), false));
    let spec = "po2@mem,zones=9,zone-size=1M,zoned_qd1_writes=1,latency=1ms";
    let device = DeviceOptions { depth: 64, no_recovery: false, ..device };
    assert_eq!(of(&s.block[1]), (spec.to_owned(), device, false));
    assert_eq!(s.args.network.nvme_tcp, ["127.0.0.1:4420", "[::1]:4420"]);
    let plan = s.client_access().unwrap().plans.nvme_tcp.unwrap();
    assert_eq!(plan.nqn(), "nqn.x");
    assert_eq!(plan.specs().iter().map(|s| s.to_string()).collect::<Vec<_>>(), [spec]);
}

/// A disk may be served over both protocols of the network, each at addresses of its own.
#[test]
fn a_file_has_disks_of_iscsi() {
    let text = "iscsi = [\"127.0.0.1:3260\", \"[::1]:3260\"]\niqn = \"iqn.2026-11.test:x\"
        nvme-tcp = \"127.0.0.1:4420\"
        [[disk]]\nspec = \"mem\"\niscsi = true\nnvme-tcp = true\n
        [[disk]]\nspec = \"null\"\niscsi = true\n";
    let s = read(text, &[]).unwrap();
    let texts = |all: &[Specification]| all.iter().map(|s| s.to_string()).collect::<Vec<_>>();
    assert_eq!(s.args.scsi.iscsi, ["127.0.0.1:3260", "[::1]:3260"]);
    assert_eq!(texts(&s.args.scsi.of_file), ["mem", "null"]);
    assert_eq!(texts(&s.args.network.of_file), ["mem"]);
    let plans = s.client_access().unwrap().plans;
    assert_eq!(plans.iscsi.as_ref().unwrap().target(), "iqn.2026-11.test:x");
    assert_eq!(plans.addresses().count(), 3);
    let e = read("[[disk]]\nspec = \"mem\"\niscsi = true", &[]).unwrap_err();
    assert!(e.contains("iscsi = true, and no address") && e.contains("127.0.0.1:3260"), "{e}");
    let e = read("iscsi = \"localhost\"\n[[disk]]\nspec = \"mem\"\nublk = true", &[]).unwrap_err();
    assert!(e.contains("1:9: localhost is no address") && e.contains("127.0.0.1:3260"), "{e}");
    let e = read(&text.replace("iqn.2026-11.test:x", "disk"), &[]).unwrap();
    let e = e.client_access().err().unwrap().to_string();
    assert!(e.contains("no name of iSCSI"), "{e}");
}

#[test]
fn a_flag_overrides_the_key_at_the_top_and_of_every_disk() {
    let text = "depth = 64\nqueues = 2\nid = 1\n
        allow-any-host = true\nnvme-tcp = \"0.0.0.0:1\"\nnqn = \"nqn.file\"
        [[disk]]\nspec = \"mem\"\nublk = true\nnvme-tcp = true\ndepth = 32\nid = 9\n
        [[disk]]\nspec = \"null\"\nublk = true\n";
    let s = read(text, &["--depth", "16", "--nqn", "nqn.flag"]).unwrap();
    assert_eq!([s.block[0].device.depth, s.block[1].device.depth], [16, 16]);
    assert_eq!((s.block[0].device.queues, s.args.network.nvme_tcp.len()), (Some(2), 1));
    assert_eq!(s.client_access().unwrap().plans.nvme_tcp.unwrap().nqn(), "nqn.flag");
    // The disk with its own number keeps it; the number at the top counts from the first disk without one.
    let mut numbers = s.numbers();
    assert_eq!(numbers.first(&s.block[0]), Some(9));
    numbers.take(&s.block[0], 3);
    assert_eq!(numbers.first(&s.block[1]), Some(1));
    numbers.take(&s.block[1], 2);
    assert_eq!(numbers.first(&s.block[1]), Some(3));
    // A number in a flag goes to the first disk, whatever the file says.
    let s = read(text, &["--id", "5"]).unwrap();
    let mut numbers = s.numbers();
    assert_eq!([0, 1].map(|n| numbers.first(&s.block[n])), [Some(5), Some(5)]);
    numbers.take(&s.block[0], 3);
    assert_eq!(numbers.first(&s.block[1]), Some(8));
    // A flag that excludes a key wins; otherwise both would be refused.
    let s = read(text, &["--allow-host", "nqn.2014-08.org.nvmexpress:uuid:x"]).unwrap();
    assert!(s.client_access().is_ok());
    // --takeover is no key, so --no-recovery is refused with it and not dropped.
    let e = read(&format!("no-recovery = true\n{text}"), &["--takeover"]).unwrap_err();
    assert!(e.contains("z.toml:1:1: ") && e.contains("--takeover"), "{e}");
    // Disks on the command line replace those of the file.
    let s = read(text, &["--ublk", "null,zones=4", "--id", "7"]).unwrap();
    assert_eq!((s.block.len(), &*s.block[0].spec), (1, "null,zones=4"));
    assert_eq!((s.numbers().first(&s.block[0]), s.block[0].device.depth), (Some(7), 64));
    assert!(s.args.network.nvme_tcp.is_empty());
}

#[test]
fn a_number_has_any_form_that_toml_has() {
    for depth in ["128", "0x80", "0o200", "0b1000_0000", "1_28", "+128"] {
        let disk = format!("depth = {depth}\n[[disk]]\nspec = \"mem\"\nublk = true\n");
        let settings = read(&disk, &[]).unwrap_or_else(|e| panic!("{depth}: {e}"));
        assert_eq!(settings.block[0].device.depth, 128, "{depth}");
    }
}

#[test]
fn the_key_of_a_disk_overrides_that_at_the_top() {
    let text = "depth = 64\nqueues = 2\nno-recovery = true\n
        [[disk]]\nspec = \"mem\"\nublk = true\ndepth = 32\nqueues = 1\nno-recovery = false\n
        [[disk]]\nspec = \"null\"\nublk = true\n";
    let s = read(text, &[]).unwrap();
    let of = |n: usize| {
        let d = &s.block[n].device;
        (d.depth, d.queues, d.no_recovery)
    };
    assert_eq!([of(0), of(1)], [(32, Some(1), false), (64, Some(2), true)]);
}

/// The metrics are in the file, and the command line makes them public.
#[test]
fn a_flag_may_need_a_key_of_the_file() {
    let disk = "[[disk]]\nspec = \"mem\"\nublk = true";
    let metrics = format!("metrics = \"0.0.0.0:9420\"\n{disk}");
    let settings = read(&metrics, &["--metrics-public"]).unwrap();
    assert!(settings.client_access().unwrap().metrics_at.is_some());
    // No key of the file takes part in these failures.
    for (flag, needed) in
        [(&["--metrics-public"][..], "--metrics"), (&["--nqn", "nqn.x"], "--nvme-tcp")]
    {
        let e = read(&format!("depth = 7\nlatency = true\n{disk}"), flag).unwrap_err();
        assert!(e.starts_with(&format!("error: zoneplug serve needs {needed} <")), "{e}");
    }
}

#[test]
fn errors_name_the_line_and_the_column() {
    let disk = "\n[[disk]]\nspec = \"mem\"\nublk = true\n";
    let with = |key: &str| format!("{key}{disk}");
    wrong("depth = 3 4", "1:", "toml.io");
    wrong("[[disk]\n", "1:", "toml.io");
    wrong("depth = 1\ndepth = 2\n", "2:1", "toml.io");
    wrong(&with("depht = 64"), "1:1: there is no key depht here", "did you mean depth?");
    wrong(
        &with("\n  depth = 5000"),
        "2:11: depth = 5000: 5000 is not in 1..=4096",
        "The number of requests that a queue has in flight, from 1 to 4096",
    );
    wrong(&with("depth = 1.5"), "1:9", "depth");
    wrong(&with("depth = true"), "1:9: depth is a text or a number", "depth");
    wrong(&with("join = 1"), "1:8: join is true or false", "join = true");
    let levels = "one of off, error, warn, info, debug";
    wrong(&with("log-level = \"loud\""), "1:13: log-level = loud: no such value", levels);
    wrong(&with("queues = 3.5"), "1:10: queues = 3.5: no whole number", "queues");
    wrong(&with("dhchap-dhgroup = \"ffdhe1\""), "1:18", "ffdhe2048");
    wrong(&with("socket-mode = \"0999\""), "1:15", "chmod");
    wrong(&with("nvme-tcp = \"localhost\""), "1:12: localhost is no address", "127.0.0.1:4420");
    wrong(
        &with("nvme-tcp = \"127.0.0.1:4420\""),
        "1:1: an address for NVMe/TCP",
        "nvme-tcp = true",
    );
    wrong(&with("ublk = \"mem\""), "1:1: ublk is a flag", "[[disk]]");
    // In TOML, keys below a table's name belong to that table.
    let below = "[[disk]]\nspec = \"mem\"\nublk = true\nlog-level = \"info\"";
    wrong(below, "4:1: log-level is a key of the server", "above the first [[disk]]");
    wrong("spec = \"mem\"\nublk = true", "1:1: spec is a key of a disk", "[[disk]] above it");
    wrong(&with("moved = true"), "1:1: moved is a flag", "command line");
    wrong("disk = \"mem\"", "1:8: disk is not a list", "[[disk]]");
    wrong("[disk]\nspec = \"mem\"", "1:1: disk is not a list", "[[disk]]");
    wrong("[[disk]]\nspec = \"mem\"\n", "1:1: a disk that is served in no way", "ublk = true");
    wrong("[[disk]]\nublk = true\n", "1:1: a disk without spec", "device");
    wrong("[[disk]]\nspec = 7\nublk = true\n", "2:8: spec is a text", "spec = ");
    wrong("[[disk]]\nspec = \"mem\"\ndevice = \"mem\"\nublk = true", "3:10", "one of them");
    wrong("[[disk]]\nspec = \"mem\"\nzones = 8\nublk = true", "3:1: zones beside spec", "device =");
    wrong(
        "[[disk]]\ndevice = \"mem\"\nzone = 8\nublk = true",
        "3:1: there is no key zone",
        "did you mean zones",
    );
    wrong(
        "[[disk]]\ndevice = \"mem\"\nzones = \"8,9\"\nublk = true",
        "3:9",
        "zones is a whole number",
    );
    wrong(
        "[[disk]]\ndevice = \"mem\"\nzone-size = \"64X\"\nublk = true",
        "3:13: zone-size = 64X",
        "64M",
    );
    wrong("[[disk]]\nspec = \"mem\"\nublk = 1", "3:8: ublk of a disk", "ublk = true");
    wrong(
        "[[disk]]\nspec = \"mem\"\nnvme-tcp = true",
        "1:1: nvme-tcp = true, and no address",
        "127.0.0.1",
    );
    wrong(
        "nvme-tcp = \"127.0.0.1:1\"\n[[disk]]\nspec = \"mem\"\nnvme-tcp = true\ndepth = 3",
        "5:1: depth of a disk",
        "ublk",
    );
    wrong(&format!("{disk}{disk}"), "6:1: mem is a disk at line 2", "once");
    let two = "[[disk]]\nspec = \"mem\"\nublk = true\nid = 3\n[[disk]]\nspec = \"null\"\nublk = true\nid = 3";
    wrong(two, "8:1: the disk at line 4 has this id too", "own");
    let both = "allow-any-host = true\nallow-host = [\"nqn.x\"]\nnvme-tcp = \"127.0.0.1:1\"\n[[disk]]\nspec = \"mem\"\nnvme-tcp = true";
    assert!(read(both, &[]).unwrap_err().contains("z.toml:"), "{}", read(both, &[]).unwrap_err());
    let e = read("nqn = \"nqn.x\"\n[[disk]]\nspec = \"mem\"\nublk = true", &[]).unwrap_err();
    assert!(e.contains("z.toml: zoneplug serve needs nvme-tcp\n"), "{e}");
    assert!(read("", &[]).unwrap_err().contains("z.toml has no disk"));
}

/// The example is valid, and so is the example with all commented keys enabled.
#[test]
fn the_example_shows_every_key_and_is_right() {
    let s = read(EXAMPLE, &[]).unwrap();
    assert_eq!(s.block.len(), 1);
    let is_key = |l: &str| {
        l.starts_with("#[[disk]]")
            || l.split(" = ").next().is_some_and(|k| {
                k.strip_prefix('#').is_some_and(|k| {
                    !k.is_empty()
                        && k.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c))
                }) && l.contains(" = ")
            })
    };
    let all: Vec<&str> = EXAMPLE.lines().map(|l| if is_key(l) { &l[1..] } else { l }).collect();
    let shown = all.join("\n");
    let top = flags();
    let of_disk = device_flags();
    let read_all = ConfigFile::parse("example", shown, &top, &of_disk).unwrap();
    let names = |keys: &[Entry]| keys.iter().map(|e| e.name.clone()).collect::<Vec<_>>();
    let (of_top, of_disks) = (names(&read_all.keys), names(&read_all.disks[1].keys));
    for key in flag_keys(&top) {
        let name = key.get_long().unwrap();
        assert!(of_top.iter().any(|n| n == name), "packaging/zoneplug.toml does not show {name}");
    }
    for key in flag_keys(&of_disk) {
        let name = key.get_long().unwrap();
        assert!(
            of_disks.iter().any(|n| n == name),
            "packaging/zoneplug.toml has no disk with {name}"
        );
    }
    for name in DISK_KEYS {
        assert!(all.iter().any(|l| l.starts_with(&format!("{name} = "))), "{name}");
    }
    assert!(all.iter().all(|l| l.chars().count() <= 120));
    // The page about the file lists each key too.
    let page = include_str!("../../../../../docs/serve-config.md");
    for key in flag_keys(&top) {
        let name = format!("`{}`", key.get_long().unwrap());
        assert!(page.contains(&name), "docs/serve-config.md does not explain {name}");
    }
}

/// The name of a disk's key has one meaning: no specification has a key with the name of a flag.
#[test]
fn keys_of_a_disk_are_no_keys_of_a_specification() {
    let of_disk = device_flags();
    let own: Vec<&str> = flag_keys(&of_disk).iter().filter_map(|a| a.get_long()).collect();
    for kind in zoneplug_host::KINDS.iter() {
        for key in kind.keys().chain(zoneplug_host::disk_keys()) {
            for name in own.iter().chain(&DISK_KEYS) {
                assert!(!key.is(name), "{name} of {}", kind.name);
            }
        }
    }
    for name in FLAGS_ONLY {
        assert!(flags().get_arguments().any(|a| a.get_long() == Some(name)), "{name} is no flag");
    }
}

#[test]
fn a_hint_of_flags_becomes_one_of_keys() {
    for (flags, keys) in [
        (
            "--dhchap-key NQN=FILE; --allow-host NQN (on the host: cat /etc/nvme/hostnqn); --allow-any-host",
            "dhchap-key = \"NQN=FILE\"; allow-host = \"NQN\" (on the host: cat /etc/nvme/hostnqn); allow-any-host = true",
        ),
        ("--metrics-public, or an address", "metrics-public = true, or an address"),
        ("--metrics 127.0.0.1:9420, or [::1]:9420", "metrics = \"127.0.0.1:9420\", or [::1]:9420"),
        ("'--allow-host <NQN>' is not '--allow-any-host'", "allow-host is not allow-any-host"),
        ("serve needs --metrics <ADDRESS:PORT>", "serve needs metrics"),
        ("serve needs --nvme-tcp <ADDRESS:PORT> [SPEC]...", "serve needs nvme-tcp"),
        ("--socket of its own; --help", "socket of its own; --help"),
        ("nothing", "nothing"),
    ] {
        assert_eq!(in_keys(flags), keys);
    }
    assert!(names_flag("'--metrics <ADDRESS:PORT>' is missing", "metrics"));
    assert!(!names_flag("--metrics-public needs another flag", "metrics"));
}
