//! Traces as people have them: forms of tables, epochs, orders, packed files, pipes; and what is said of what is left out.

use crate::*;

const DISK: [&str; 4] = ["--disk", "sim-smr30", "--policy", "off"];
/// Three writes from the beginning of a zone on, 10 us apart.
const TABLE: &str =
    "time_us,op,offset,length\n10,write,0,65536\n20,write,65536,65536\n30,write,131072,65536\n";

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut child = Command::new("gzip")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("gzip, which every Debian has");
    let mut stdin = child.stdin.take().unwrap();
    let bytes = bytes.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&bytes));
    let out = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    out.stdout
}

/// The JSON document of a replay of a file, with more flags.
fn of_file(path: &str, flags: &[&str]) -> Value {
    json(&[&["replay", path, "--json"], &DISK[..], flags].concat())
}

/// The rows of a replay of standard input.
fn of_stdin(input: &[u8]) -> Value {
    let out = ok_with(&[&["replay", "-", "--json"], &DISK[..]].concat(), input);
    serde_json::from_slice(&out).unwrap()
}

/// Each way to write the same trace down gives the same rows; each of them failed or was moved to a log.
#[test]
fn a_trace_may_be_written_down_in_many_ways() {
    let dir = Dir::new("ways");
    let plain = dir.path("plain");
    std::fs::write(&plain, TABLE).unwrap();
    let want = of_file(&plain, &[]);
    assert_eq!(want["rows"][0]["map"], "exact");
    let utf8 = |text: &str| text.as_bytes().to_vec();
    let epoch = 1_700_000_000_000_000u64;
    let line = |us: u64, n: u64| format!("{us},write,{},65536\n", n * 65_536);
    let late = format!(
        "time_us,op,offset,length\n{}{}{}",
        line(epoch, 0),
        line(epoch + 10, 1),
        line(epoch + 20, 2)
    );
    let quoted = TABLE.lines().map(|l| format!("\"{}\"\r\n", l.replace(',', "\",\"")));
    for (name, content, flags) in [
        ("epoch", utf8(&late), &[][..]),
        (
            "iolog",
            format!("fio version 3 iolog\n{epoch} d write 0 65536\n{} d write 65536 65536\n{} d write 131072 65536\n", epoch + 10, epoch + 20)
                .into_bytes(),
            &[],
        ),
        (
            "blkparse",
            utf8("8,0 0 1 1700000000.000000000 7 Q WS 0 + 128 [x]\n8,0 1 1 1700000000.000010000 7 Q WS 128 + 128 [x]\n8,0 0 2 1700000000.000020000 7 Q W 256 + 128 [x]\n"),
            &[],
        ),
        ("mark", format!("\u{feff}{TABLE}").into_bytes(), &[]),
        ("quotes", quoted.collect::<String>().into_bytes(), &[]),
        ("semicolons", utf8(&TABLE.replace(',', ";")), &[]),
        ("tabs", utf8(&TABLE.replace(',', "\t")), &[]),
        ("letters", utf8(&TABLE.replace("write", "WS")), &[]),
        ("hexadecimal", utf8(&TABLE.replace("131072", "0x20000").replace("65536", "0x10000")), &[]),
        (
            "order",
            utf8("time_us,op,offset,length\n30,write,131072,65536\n10,write,0,65536\n20,write,65536,65536\n"),
            &[],
        ),
        (
            "no titles",
            utf8("128166372003061600,hm,0,Write,0,65536,7\n128166372003061700,hm,0,Write,65536,65536,7\n128166372003061800,hm,0,Write,131072,65536,7\n"),
            &["--columns", "time_100ns,-,device,op,offset,length"],
        ),
        ("packed.gz", gzip(TABLE.as_bytes()), &[]),
        ("packed twice", [gzip(&TABLE.as_bytes()[..50]), gzip(&TABLE.as_bytes()[50..])].concat(), &[]),
    ] {
        let path = dir.path(name);
        std::fs::write(&path, content).unwrap();
        let v = of_file(&path, flags);
        assert_eq!(v["rows"], want["rows"], "{name}");
        assert_eq!(v["recorded"]["makespan_s"], want["recorded"]["makespan_s"], "{name}");
    }
}

/// Standard input is a trace, whether it is a pipe or a file, packed or not; so is a named pipe.
#[test]
fn a_trace_may_come_through_a_pipe() {
    let dir = Dir::new("pipe");
    let (plain, pipe) = (dir.path("plain"), dir.path("pipe"));
    std::fs::write(&plain, TABLE).unwrap();
    let rows = of_file(&plain, &[])["rows"].clone();
    let v = of_stdin(TABLE.as_bytes());
    assert_eq!((&v["rows"], &v["trace"]), (&rows, &"standard input".into()));
    assert_eq!(of_stdin(&gzip(TABLE.as_bytes()))["rows"], rows);
    // More than one row, so it is read again.
    let args = ["replay", "-", "--json", "--disk", "sim-smr30", "--policy", "off,fifo"];
    let v: Value = serde_json::from_slice(&ok_with(&args, TABLE.as_bytes())).unwrap();
    assert_eq!(v["rows"].as_array().unwrap().len(), 2);
    let redirected = |args: &[&str]| {
        let file = std::fs::File::open(&plain).unwrap();
        Command::new(&*ZONEPLUG_LAB).args(args).stdin(file).output().unwrap()
    };
    let out = redirected(&[&["replay", "-", "--json"], &DISK[..]].concat());
    assert_eq!(serde_json::from_slice::<Value>(&out.stdout).unwrap()["rows"], rows);
    // A page does not replace what is read.
    let out = redirected(&[&["replay", "-", "--html", &plain], &DISK[..]].concat());
    assert!(text(&out.stderr).contains("is what is read"), "{}", text(&out.stderr));
    assert_eq!(std::fs::read_to_string(&plain).unwrap(), TABLE);
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let writer = {
        let pipe = pipe.clone();
        std::thread::spawn(move || std::fs::write(pipe, TABLE))
    };
    assert_eq!(of_file(&pipe, &[])["rows"], rows);
    writer.join().unwrap().unwrap();
    fails(&[&["replay", "-"], &DISK[..]].concat(), 2, "the trace is empty");
    // Endless data that cannot be a trace do not fill the disk.
    let words = "$(printf %01000d 0)";
    for endless in [
        "cat /dev/zero",
        "yes",
        "yes ''",
        &format!("yes {words}"),
        "yes | gzip",
        "{ printf '\\037\\213'; cat /dev/urandom; }",
        "{ printf '\\007\\164\\141\\145'; cat /dev/zero; }",
    ] {
        let script = format!("{endless} | \"$0\" replay - --disk sim-smr30");
        let out = soon(Command::new("sh").args(["-c", &script, &ZONEPLUG_LAB]));
        assert_eq!(out.status.code(), Some(2), "{endless}: {}", text(&out.stderr));
        assert!(text(&out.stderr).contains("\ntry: "), "{endless}: {}", text(&out.stderr));
    }
    // Data may be lost, and no answer can come.
    let real = ["replay", "-", "--real-time", "--disk"];
    let disk = dir.path("disk");
    ok(&["create", &disk, "--zones", "4", "--zone-size", "1M"]);
    ok_with(&["write", &disk, "-"], &[7; 4096]);
    fails_with(
        &[&real[..], &[&disk, "--reset"]].concat(),
        TABLE.as_bytes(),
        2,
        "not without --yes",
    );
    let cut = gzip(TABLE.as_bytes());
    fails_with(
        &[&["replay", "-"], &DISK[..]].concat(),
        &cut[..cut.len() / 2],
        1,
        "reading the trace",
    );
    let mut no_room = Command::new(&*ZONEPLUG_LAB);
    no_room.env("TMPDIR", "/nowhere").args(["replay", "-"]).args(DISK);
    let err = text(&soon(&mut no_room).stderr);
    assert!(
        err.contains("error: copying - to /nowhere: ") && err.contains("\ntry: TMPDIR="),
        "{err}"
    );
}

/// Files of blktrace's processors may be packed.
#[test]
fn files_of_processors_may_be_packed() {
    let dir = Dir::new("packed");
    let traces = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/tests/data/traces/blktrace");
    for n in [0, 1] {
        let bytes = std::fs::read(format!("{traces}/sdb.blktrace.{n}")).unwrap();
        std::fs::write(dir.path(&format!("sdb.blktrace.{n}.gz")), gzip(&bytes)).unwrap();
    }
    let want = of_file(&format!("{traces}/sdb.blktrace.0"), &[]);
    for name in ["sdb", "sdb.blktrace.1.gz"] {
        let v = of_file(&dir.path(name), &[]);
        assert_eq!((&v["rows"], &v["recorded"]["files"]), (&want["rows"], &2.into()), "{name}");
    }
}

/// Lines that are left out or out of order are counted and said, in text and in JSON.
#[test]
fn what_is_left_out_of_a_trace_is_said() {
    let dir = Dir::new("left-out");
    let path = dir.path("t");
    let table = "time_ms,op,offset,length\n50,W,0,4096\n1,verify,0,4096\n2,W,4096,4096\n3,XY,0,512\n4,verify,0,512\n5,R,0,0\n6,N,0,8\n?\n";
    std::fs::write(&path, table).unwrap();
    let said = ok(&[&["replay", &path], &DISK[..]].concat());
    for what in [
        "  1 line is nothing of this format; the first is line 9\n",
        "  3 operations of no known kind not sent ('XY' 1, 'verify' 2); the first is line 3\n",
        "  1 operation of no length, not sent\n",
        "  1 operation that passes the block layer by, as of SCSI, not sent\n",
        "  1 event stands behind later ones, by 48.0 ms at most: sorted by their times\n",
    ] {
        assert!(said.contains(what), "{what} is not in {said}");
    }
    let v = of_file(&path, &[]);
    let r = &v["recorded"];
    assert_eq!(r["unknown_operations"], serde_json::json!({"XY": 1, "verify": 2}));
    for (key, is) in [
        ("operations", 2.0),
        ("unknown_lines", 1.0),
        ("first_unknown_operation_line", 3.0),
        ("empty_operations", 1.0),
        ("pass_through_commands", 1.0),
        ("out_of_order", 1.0),
        ("out_of_order_by_s", 0.048),
    ] {
        assert_eq!(r[key].as_f64(), Some(is), "{key} in {r:#}");
    }
}

/// `gzip -k` leaves the file that it packs. Both hold the events of one processor, which must be sent once.
#[test]
fn two_files_of_one_processor_are_refused() {
    let dir = Dir::new("two-of-one");
    let traces = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/tests/data/traces/blktrace");
    let bytes = std::fs::read(format!("{traces}/sdb.blktrace.0")).unwrap();
    let (plain, packed) = (dir.path("sdb.blktrace.0"), dir.path("sdb.blktrace.0.gz"));
    std::fs::write(&plain, &bytes).unwrap();
    let rows = of_file(&plain, &[])["rows"].clone();
    std::fs::write(&packed, gzip(&bytes)).unwrap();
    let what = format!("{plain} and {packed} are both of processor 0\ntry: mv {packed} to another");
    for name in ["sdb", "sdb.blktrace", "sdb.blktrace.0", "sdb.blktrace.0.gz"] {
        fails(&[&["replay", &dir.path(name)], &DISK[..]].concat(), 2, &what);
    }
    std::fs::remove_file(&packed).unwrap();
    assert_eq!(of_file(&plain, &[])["rows"], rows);
}

/// Only the first kinds are told apart. The operations of all others are counted together.
#[test]
fn operations_of_many_unknown_kinds_are_all_counted() {
    let dir = Dir::new("many-kinds");
    let path = dir.path("t");
    let unknown: String = (0..100).map(|n| format!("{n},kind{n:02},0,4096\n")).collect();
    let table = format!("time_us,op,offset,length\n0,write,0,4096\n{unknown}");
    std::fs::write(&path, table).unwrap();
    let r = &of_file(&path, &[])["recorded"];
    assert_eq!(r["unknown_operations"].as_object().unwrap().len(), 32);
    assert_eq!(r["unknown_operations_of_other_kinds"], 68);
    let said = ok(&[&["replay", &path], &DISK[..]].concat());
    assert!(
        said.contains("  100 operations of no known kind not sent ('kind00' 1, 'kind01' 1,")
            && said.contains("'kind07' 1, others 92); the first is line 3\n"),
        "{said}"
    );
}

/// The command says why a trace is laid over the zones of a disk, and what to do about management of other zones: a write may be
/// a part of a block or past the capacity, and a reset of other zones needs a disk with those zones.
#[test]
fn why_a_trace_does_not_fit_is_said() {
    let dir = Dir::new("why");
    let path = dir.path("t");
    let with = |lines: &str| {
        std::fs::write(&path, format!("time_us,op,offset,length\n{lines}")).unwrap();
    };
    let small = "sim-smr30,zone-size=1M";
    let replay = |disk: &str, map: &str| at_once(&["replay", &path, "--disk", disk, "--map", map]);
    for (lines, why) in [
        ("0,write,0,1000\n", "line 2 writes at sector 0, a part of a block"),
        ("0,write,4096,4096\n1,write,0,4096\n", "the write pointer of zone 0 is 16 sectors from"),
    ] {
        with(lines);
        let said = text(&replay(small, "auto").stdout);
        assert!(said.contains(why), "{said}");
    }
    with("0,write,0,0\n1,read,0,0\n");
    let err = text(&replay(small, "auto").stderr);
    assert!(
        err.contains("reads or writes anything in 3 lines: 2 without a length\ntry: "),
        "{err}"
    );
    with("0,write,0,4096\n1,reset,1048576,1048576\n");
    for map in ["exact", "log"] {
        assert_eq!(replay(small, map).status.code(), Some(0), "{map}");
        let err = text(&replay("sim-smr30", map).stderr);
        assert!(err.ends_with("\ntry: a disk with zones of the size that the trace was recorded with (zone-size=)\n"), "{err}");
    }
}

/// A read of a part of a block is no reason to refuse a trace.
#[test]
fn a_read_of_a_part_of_a_block_is_sent() {
    let dir = Dir::new("part");
    let path = dir.path("t");
    std::fs::write(&path, "fio version 3 iolog\n100 /dev/nvme0n1 read 1000 4096\n").unwrap();
    for map in ["auto", "exact", "log"] {
        let v = of_file(&path, &["--map", map]);
        let row = &v["rows"][0];
        assert_eq!(
            (&row["refused"]["operations"], &row["reads"]["operations"]),
            (&0.into(), &1.into())
        );
        assert_eq!(row["changed"]["made_whole_blocks"], 1, "{map}");
    }
    let said = ok(&[&["replay", &path], &DISK[..]].concat());
    assert!(
        said.contains("    1 read or write of a part of a block, sent as whole blocks\n"),
        "{said}"
    );
}

#[test]
fn columns_that_are_none_are_refused() {
    let dir = Dir::new("columns");
    let path = dir.path("t");
    std::fs::write(&path, "1,W,0,4096\n").unwrap();
    let with = |columns: &str, what: &str| {
        fails(&[&["replay", &path, "--columns", columns], &DISK[..]].concat(), 2, what);
    };
    with("time_us,op,offset,size", "'size' is no column of a trace");
    with("time_us,op,offset", "no column for the length");
    with("time_us,op,offset,offset,length", "two columns for the place");
    with(
        "op,time_us,offset,length",
        "no operation in 1 line; line 1 has '1', which is not an operation",
    );
    fails(&[&["replay", &path], &DISK[..]].concat(), 2, "--columns names those");
    std::fs::write(&path, b"\x07tae").unwrap();
    with("time_us,op,offset,length", "binary records of blktrace have no columns");
}

/// A signal while the trace is still awaited leaves a document, too.
#[test]
fn a_replay_that_waits_for_its_trace_ends_with_a_document() {
    let mut child = piped(Command::new(&*ZONEPLUG_LAB).args(["replay", "-", "--json"]).args(DISK));
    let stdin = child.stdin.take();
    std::thread::sleep(Duration::from_millis(300));
    signal(&child, rustix::process::Signal::INT);
    let out = end(child, Duration::from_secs(20));
    drop(stdin);
    let document: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(document["error"]["kind"], "interrupted", "{document}");
    assert_eq!((out.status.code(), text(&out.stderr).lines().count()), (Some(130), 2));
}

/// A length beyond every disk took all memory, and no signal ended it.
#[test]
fn a_length_beyond_the_disk_costs_nothing() {
    let dir = Dir::new("far");
    let trace = dir.path("t");
    let line = |op: &str| format!("time_us,op,offset,length\n0,{op},0,4611686018427387904\n");
    for op in ["read", "write", "WZ"] {
        std::fs::write(&trace, line(op)).unwrap();
        fails(&[&["replay", &trace], &DISK[..]].concat(), 2, "at most 2 TiB");
    }
    for op in ["discard", "reset"] {
        std::fs::write(&trace, line(op)).unwrap();
        for map in ["log", "exact"] {
            let child = Command::new(&*ZONEPLUG_LAB)
                .args(["replay", &trace, "--map", map])
                .args(DISK)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            end(child, Duration::from_secs(20));
        }
    }
}

/// gzip(1) takes the data before such bytes, and warns. Zeroes fill the last block of a tape.
#[test]
fn bytes_behind_gzip_are_left_out_and_said() {
    let dir = Dir::new("behind-gzip");
    let rows = of_stdin(TABLE.as_bytes())["rows"].clone();
    for (behind, bytes) in [(&b"garbage\n"[..], 8), (b"\x1f", 1), (b"\0\0\0\0\0", 0), (b"\0\0x", 3)]
    {
        let path = dir.path("t.gz");
        std::fs::write(&path, [&gzip(TABLE.as_bytes()), behind].concat()).unwrap();
        let v = of_file(&path, &[]);
        assert_eq!((&v["rows"], &v["recorded"]["bytes_behind_gzip"]), (&rows, &bytes.into()));
        let said = ok(&[&["replay", &path], &DISK[..]].concat());
        let noted = said.contains("behind the end of the gzip data left out");
        assert_eq!(noted, bytes > 0, "{said}");
    }
}

/// blktrace writes a file for each processor: one that is missing between others was lost, or its processor was offline.
#[test]
fn a_missing_file_of_a_processor_is_said() {
    let dir = Dir::new("missing");
    let traces = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/tests/data/traces/blktrace");
    for (n, as_n) in [(0, 0), (1, 2)] {
        let to = dir.path(&format!("sdb.blktrace.{as_n}"));
        std::fs::copy(format!("{traces}/sdb.blktrace.{n}"), to).unwrap();
    }
    let said = ok(&[&["replay", &dir.path("sdb")], &DISK[..]].concat());
    let line = "  no file sdb.blktrace.1: blktrace writes one for each processor that is online\n";
    assert!(said.contains(line), "{said}");
    let v = of_file(&dir.path("sdb"), &[]);
    assert_eq!(v["recorded"]["missing_files"], serde_json::json!(["sdb.blktrace.1"]));
    std::fs::rename(dir.path("sdb.blktrace.0"), dir.path("sdb.blktrace.2")).unwrap();
    let said = ok(&[&["replay", &dir.path("sdb.blktrace.2")], &DISK[..]].concat());
    assert!(said.contains("no file sdb.blktrace.0 (and 1 more): "), "{said}");
}

#[test]
fn a_device_that_the_trace_lacks_brings_the_names_of_those_that_it_has() {
    let dir = Dir::new("lacks");
    let path = dir.path("t\nu.csv");
    let mut table = "time_s,op,offset,length,device\n".to_owned();
    for device in ["8:16", "sdb", "8:16", "x\u{7}", "sd a"] {
        table.push_str(&format!("0.5,write,0,4096,{device}\n"));
    }
    std::fs::write(&path, table).unwrap();
    let what = "error: 5 operations, and none of that device\n\
                try: --device 8:16, sdb, x\\u{7} or 'sd a': the trace has operations of it\n";
    fails(&[&["replay", &path, "--device", "8,32"], &DISK[..]].concat(), 2, what);
    // A name of two lines stays on the line that names the trace.
    let said = ok(&[&["replay", &path, "--device", "sdb"], &DISK[..]].concat());
    assert!(said.contains("t\\nu.csv: CSV, 1 operation"), "{said}");
}

/// Tables with the titles that public traces and biosnoop have need no `--columns`.
#[test]
fn titles_of_known_tables_are_recognised() {
    let dir = Dir::new("titles");
    for text in [
        "Timestamp,Response,IOType,LUN,Offset,Size\n1.5,0.01,W,1,0,4096\n1.6,,R,1,0,4096\n",
        "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n\
         128166372003061629,hm,1,Write,0,4096,100\n128166372004061629,hm,1,Read,0,4096,100\n",
        "TIME(s)     COMM           PID     DISK      T SECTOR     BYTES  LAT(ms)\n\
         0.000000    dd             123     sda       W 0          4096     1.00\n\
         0.100000    dd             123     sda       R 0          4096     1.00\n",
    ] {
        let path = dir.path("t");
        std::fs::write(&path, text).unwrap();
        let r = &of_file(&path, &[])["recorded"];
        let figures = ["writes", "reads", "written_bytes", "unknown_lines"].map(|k| r[k].as_u64());
        assert_eq!(figures, [1, 1, 4096, 0].map(Some), "{text}: {r:#}");
        assert_eq!(r["makespan_s"].as_f64(), Some(0.1), "{text}");
    }
}
