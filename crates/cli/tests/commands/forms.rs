//! The forms of output: JSON is data and documented, tables and help fit 80 columns. Each test goes over every command
//! that the binary has, so that a new command has to take part.

use crate::*;
use std::collections::BTreeSet;
use std::os::unix::net::UnixListener;
use std::sync::LazyLock;

/// Commands without `--json`, each with the reason.
const WITHOUT_JSON: [(&str, &str); 6] = [
    ("read", "its standard output is the data"),
    ("flush", "it prints nothing"),
    ("mount", "it runs until the directory is unmounted"),
    ("completions", "its output is a script for a shell"),
    ("man", "its output is for man(1)"),
    ("help", "its output is a text"),
];

/// Keys whose values are objects with names from elsewhere: statuses, conditions, classes, Linux's attributes.
const MAPS: [&str; 6] =
    ["refused_by_status", "refused_before", "by_status", "conditions", "classes", "attributes"];

/// Texts that may look like a number because they are names.
const NAMES: [(&str, &str); 1] = [("reproduce", "row")];

/// Every command of both programs, from the man pages, which are made from the parsers' own definitions. They are made
/// once: tests that run at the same time would remove each other's folder.
fn commands() -> Vec<String> {
    static ALL: LazyLock<Vec<String>> = LazyLock::new(commands_of_pages);
    ALL.clone()
}

fn commands_of_pages() -> Vec<String> {
    let dir = Dir::new("forms-man");
    let mut all = Vec::new();
    for (program, prefix) in [(&*ZONEPLUG, "zoneplug-"), (&*ZONEPLUG_LAB, "zoneplug-lab-")] {
        let out = soon(Command::new(program).args(["man", &dir.path("man1")]));
        let pages = text(&out.stdout);
        let names = pages.lines().filter_map(|l| l.rsplit_once(prefix)?.1.strip_suffix(".1"));
        all.extend(names.map(str::to_owned));
    }
    all.sort();
    all.dedup();
    all
}

/// A server that answers `status` with one disk, as often as it is asked.
fn server(path: &str) {
    let listener = UnixListener::bind(path).unwrap();
    std::thread::spawn(move || {
        let disk = r#"{"name":"ublkb0","spec":"mem","capacity_bytes":1073741824,"zones":4,
            "zone_bytes":268435456,"pid":1,"recovered":true,"reads":1,"read_bytes":4096,"writes":1,
            "written_bytes":4096,"others":0,"errors":0,"replayed":1,"waiting":1,"live_plugs":1,
            "io":[{"device":"d.zbd","by":"ring","direct":true}],
            "address":"127.0.0.1:4420","nqn":"nqn.x","hosts":[{"nqn":"nqn.y","queues":2}]}"#;
        let answer = format!("{{\"ok\":[{}]}}\n", disk.replace('\n', ""));
        for stream in listener.incoming() {
            let mut lines = std::io::BufReader::new(stream.unwrap());
            while std::io::BufRead::read_line(&mut lines, &mut String::new()).is_ok_and(|n| n > 0) {
                if lines.get_mut().write_all(answer.as_bytes()).is_err() {
                    break;
                }
            }
        }
    });
}

/// Command lines that print what the commands can print, in an order in which they can be run.
fn examples(dir: &Dir) -> Vec<Vec<String>> {
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/tests/data/traces/fio-v3.log");
    std::fs::write(dir.path("data"), noise(3_000_000, 1)).unwrap();
    let (disk, data, socket) = (dir.path("disk.zbd"), dir.path("data"), dir.path("s"));
    server(&socket);
    let config = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/zoneplug.toml");
    let copy = dir.path("copy.zbd");
    let (part, rest) = (dir.path("part.1"), dir.path("part.2"));
    std::fs::write(&part, ok(&["sim", "--seeds", "1..4", "--shard", "1/2", "--json"])).unwrap();
    std::fs::write(&rest, ok(&["sim", "--seeds", "1..4", "--shard", "2/2", "--json"])).unwrap();
    let layout =
        "--zones 40 --zone-size 1M --zone-capacity 900K --conv 2 --max-open 8 --label mine";
    let spec =
        "linear@mem,zones=64,zone-size=64M,zone-capacity=48M,conv=4,max-open=8,max-active=12";
    let own = "--bs 16k --iodepth 8 --runtime 30ms";
    let lines = format!(
        "demo --seconds 0.02
        create {disk} {layout}
        write {disk} {data}
        append {disk} {data} --bs 64K
        report {disk}
        report {spec} --verbose
        report {spec} --map
        info {disk}
        info {spec}
        attr {spec}
        attr {spec} nomerges
        attr {spec} nomerges 1
        zone-wplugs {disk}
        open {disk} --offset 20480 --count 2 --verbose
        close {disk} --verbose
        finish {disk} --offset 20480 --count 3 --verbose --yes
        reset {disk} --verbose --yes
        resync {disk}
        check {disk} --new-uuid
        snapshot {disk} {copy}
        status --socket {socket}
        doctor
        serve --check-config {config}
        serve --check-config {config} --nvme-tcp 127.0.0.1:4420 mem
        status --socket {socket}.none
        bench --seconds 0.01
        bench --disk mem,zones=16,zone-size=1M,max-open=5,reorder=1 {own} --numjobs 2 --verify
        bench --disk mem,reorder=1 {own} --mode none
        bench --disk sim-smr30 --rw randwrite --bs 1M --iodepth 32 --reads 2 --runtime 2s \
              --policy off,clook+300us/4s --zones 32
        bench --disk sim-zns1 --runtime 100ms --mode plug,lock
        bench --disk sim-smr30 --rw randwrite --bs 1M --iodepth 8 --runtime 1s --drives 1,3 \
              --adapter rate=200MB/s,queue=8
        replay {trace} --disk sim-smr30 --disk sim-zns1 --policy off,fifo,clook+300us/4s
        replay {trace} --disk sim-smr30 --map exact
        replay {trace} --disk sim-smr30 --disk sim-zns1 --policy off,fifo --repeat 3
        replay {trace} --real-time --disk mem,zones=64,zone-size=16M
        calibrate sim-zns1
        reproduce --list
        reproduce --quick smr20 append-zns null-zwp
        sim --seeds 1..40
        sim --seeds 1..40 --shard 2/4
        merge {part} {rest}
        sim --seed 7"
    );
    #[cfg(feature = "top")]
    let lines = {
        let at_work = format!("{socket}.top");
        top::server(&at_work);
        format!("{lines}\n top --once --interval 100ms --socket {at_work}\n top --once {disk}")
    };
    let joined = lines.replace("\\\n", " ");
    joined.lines().map(|l| l.split_whitespace().map(str::to_owned).collect()).collect()
}

/// Whether a text is a number, with a unit or without: `12 MB/s`, `4K`, `7`.
fn is_prose_number(text: &str) -> bool {
    let end = text.find(|c: char| !(c.is_ascii_digit() || "+-.,".contains(c)));
    let (number, unit) = text.split_at(end.unwrap_or(text.len()));
    let units = [
        "", "%", "B", "K", "M", "G", "T", "KiB", "MiB", "GiB", "TiB", "kB", "MB", "GB", "B/s",
        "KiB/s", "MiB/s", "kB/s", "MB/s", "GB/s", "ns", "us", "ms", "s", "m", "h", "IOPS", "KIOPS",
        "KiOPS", "zones", "zone", "sectors", "bytes", "BIOs",
    ];
    number.replace(',', "").parse::<f64>().is_ok() && units.contains(&unit.trim())
}

/// Adds the keys of a document to `keys`; what is wrong with it to `wrong`.
fn walk(command: &str, key: &str, v: &Value, keys: &mut BTreeSet<String>, wrong: &mut Vec<String>) {
    match v {
        Value::Object(map) => {
            for (k, v) in map {
                let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
                if !k.chars().all(legal) || !k.starts_with(|c: char| c.is_ascii_lowercase()) {
                    wrong.push(format!("{command}: the key '{k}' is not in snake_case"));
                }
                if !MAPS.contains(&key) {
                    keys.insert(k.clone());
                }
                walk(command, k, v, keys, wrong);
            }
        }
        Value::Array(all) => all.iter().for_each(|v| walk(command, key, v, keys, wrong)),
        Value::String(s) if is_prose_number(s) && !NAMES.contains(&(command, key)) => {
            wrong.push(format!("{command}: \"{key}\": \"{s}\" is a number as text"));
        }
        _ => {}
    }
}

/// The keys that docs/json.md lists: those of each command, and those that any document may have.
fn documented() -> (BTreeSet<(String, String)>, BTreeSet<String>) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/json.md");
    let (mut of, mut shared) = (BTreeSet::new(), BTreeSet::new());
    let mut sections: Vec<String> = Vec::new();
    for line in std::fs::read_to_string(path).unwrap().lines() {
        if let Some(title) = line.strip_prefix("## ") {
            sections = title.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        }
        let Some(cell) = line.strip_prefix("| `").and_then(|l| l.split(" | ").next()) else {
            continue;
        };
        for key in cell.split('`').step_by(2) {
            if sections.is_empty() {
                shared.insert(key.to_owned());
            }
            of.extend(sections.iter().map(|s| (s.clone(), key.to_owned())));
        }
    }
    (of, shared)
}

#[test]
fn json_of_every_command_is_data_whose_keys_are_documented() {
    let names = commands();
    assert!(names.len() > 20, "{names:?}");
    let dir = Dir::new("forms-json");
    let (documented, shared) = documented();
    let (mut seen, mut wrong) = (BTreeSet::new(), Vec::new());
    for line in examples(&dir) {
        let command = line[0].as_str();
        // A picture has no data of its own.
        if line.iter().any(|a| a == "--map" && command == "report") {
            continue;
        }
        let mut args: Vec<&str> = line.iter().map(String::as_str).collect();
        args.push("--json");
        let out = feed(&args, b"");
        let (stdout, stderr) = (text(&out.stdout), text(&out.stderr));
        let Ok(v) = serde_json::from_str::<Value>(&stdout) else {
            wrong.push(format!("{line:?}: no JSON, or more than one document: {stdout} {stderr}"));
            continue;
        };
        if v["schema"] != 1 {
            wrong.push(format!("{line:?}: no schema"));
        }
        let code = v.get("error").map_or(0, |e| e["exit"].as_i64().unwrap_or(-1));
        if i64::from(out.status.code().unwrap_or(-1)) != code {
            wrong.push(format!("{line:?}: exit code {:?}, but {code} in JSON", out.status.code()));
        }
        let mut keys = BTreeSet::new();
        walk(command, "", &v, &mut keys, &mut wrong);
        seen.extend(keys.into_iter().map(|k| (command.to_owned(), k)));
    }
    for name in &names {
        let reason = WITHOUT_JSON.iter().find(|(n, _)| n == name);
        let has = ok(&[name, "--help"]).contains("--json");
        let ran = seen.iter().any(|(c, _)| c == name);
        if has != reason.is_none() || has != ran {
            wrong.push(format!("{name}: --json {has}, reason {reason:?}, an example above {ran}"));
        }
    }
    for (command, key) in &seen {
        if !shared.contains(key) && !documented.contains(&(command.clone(), key.clone())) {
            wrong.push(format!("{command}: docs/json.md has no key `{key}`"));
        }
    }
    for (command, key) in &documented {
        if !seen.contains(&(command.clone(), key.clone())) {
            wrong.push(format!("{command}: docs/json.md has `{key}`, which no example gives"));
        }
    }
    wrong.dedup();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_number_as_text_is_known_as_one() {
    for text in ["12", "-1.5", "12 MB/s", "4K", "1,234 ns", "100%", "97.5 ms"] {
        assert!(is_prose_number(text), "{text}");
    }
    for text in ["0.1.0", "mem,zones=4", "4 writes waited", "plug", "", "ublkb0", "8,16 of sda"] {
        assert!(!is_prose_number(text), "{text}");
    }
}

/// With `--json` a failure is a document too, with the exit code that the command has.
#[test]
fn a_failure_is_json_on_stdout_and_two_lines_on_stderr() {
    for (args, kind, exit) in [
        (&["info", "nix.zbd", "--json"][..], "device", 3),
        (&["info", "mem,zone=4", "--json"], "usage", 2),
        (&["check", "mem", "--json"], "not_supported", 4),
        (&["bench", "--json", "--frob"], "usage", 2),
        (&["frob", "--json"], "usage", 2),
        (&["report", "mem,zones=4", "--json", "-o", "99999999"], "usage", 2),
        (
            &[
                "bench",
                "--disk",
                "mem,reorder=1",
                "--mode",
                "none",
                "--iodepth",
                "16",
                "--runtime",
                "40ms",
                "--json",
            ],
            "io",
            1,
        ),
    ] {
        let out = feed(args, b"");
        let v: Value = serde_json::from_slice(&out.stdout).unwrap();
        let error = &v["error"];
        assert_eq!((&v["schema"], &error["kind"]), (&1.into(), &kind.into()), "{args:?}");
        assert_eq!((error["exit"].as_i64(), out.status.code()), (Some(exit), Some(exit as i32)));
        let lines = ["message", "hint"]
            .map(|k| error[k].as_str().unwrap().split_whitespace().collect::<Vec<_>>().join(" "));
        let want = format!("error: {}\ntry: {}\n", lines[0], lines[1]);
        assert_eq!(text(&out.stderr), want, "{args:?}");
    }
    // The figures of a run that failed are beside its error.
    let run = "bench --disk mem,reorder=1 --mode none --iodepth 16 --runtime 40ms --json";
    let out = feed(&run.split(' ').collect::<Vec<_>>(), b"");
    let v: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert!(v["measure"]["refused"].as_u64().unwrap() > 0 && v["error"]["exit"] == 1);
    // Not an option: a word after the options.
    assert_eq!(feed(&["info", "--", "--json"], b"").stdout, b"");
}

/// What is printed with `COLUMNS=80`, by lines that are longer.
fn too_wide(args: &[&str]) -> Vec<String> {
    let out = Command::new(program(args)).args(args).env("COLUMNS", "80").output().unwrap();
    let text = text(&out.stdout);
    assert!(!text.is_empty() || !out.stderr.is_empty(), "{args:?} prints nothing");
    text.lines().filter(|l| l.chars().count() > 80).map(str::to_owned).collect()
}

#[test]
fn tables_and_help_fit_80_columns() {
    let mut wide = Vec::new();
    let names = commands();
    let help = names.iter().map(|n| vec![n.as_str(), "--help"]);
    for args in help.chain([vec!["--help"], vec!["help"]]) {
        wide.extend(too_wide(&args).into_iter().map(|l| format!("{}: {l}", args.join(" "))));
    }
    let dir = Dir::new("forms-80");
    for line in examples(&dir) {
        let args: Vec<&str> = line.iter().map(String::as_str).collect();
        wide.extend(too_wide(&args).into_iter().map(|l| format!("{}: {l}", line.join(" "))));
    }
    assert!(wide.is_empty(), "{}", wide.join("\n"));
}

/// Rows of CSV have as many cells as there are titles, and figures are figures.
#[test]
fn csv_has_a_line_of_titles_and_rows_of_data() {
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/tests/data/traces/fio-v3.log");
    let replay = format!("replay {trace} --disk sim-smr30 --policy off,fifo --csv");
    let repeat = format!("{replay} --disk sim-zns1 --repeat 2");
    for (line, rows, figure) in [
        ("bench --seconds 0.01 --csv", 32, "ns_per_bio"),
        ("bench --disk mem,zones=16 --runtime 20ms --csv", 1, "mb_per_s"),
        ("bench --disk sim-smr30 --runtime 1s --reads 1 --policy off,fifo --csv", 4, "p99_ns"),
        (&replay, 2, "writes_mean_ns"),
        (&repeat, 4, "reads_p99_ns_high"),
        ("reproduce --quick zns --csv", 12, "value"),
        ("reproduce --list --csv", 10, "cells"),
        ("attr mem --csv", 10, "writable"),
    ] {
        let out = ok(&line.split(' ').collect::<Vec<_>>());
        let cells = |l: &str| -> Vec<String> {
            let (mut cells, mut quoted) = (vec![String::new()], false);
            for c in l.chars() {
                match c {
                    '"' => quoted = !quoted,
                    ',' if !quoted => cells.push(String::new()),
                    c => cells.last_mut().unwrap().push(c),
                }
            }
            cells
        };
        let mut lines = out.lines().map(cells);
        let titles = lines.next().unwrap();
        let column = titles.iter().position(|t| t == figure).unwrap();
        let found: Vec<_> = lines.collect();
        assert!(found.len() >= rows, "{line}: {} rows\n{out}", found.len());
        for row in &found {
            assert_eq!(row.len(), titles.len(), "{line}: {row:?}");
            assert!(row[column].parse::<f64>().is_ok(), "{line}: {figure} of {row:?}");
        }
    }
}

/// What `demo` says to try next works, as it is printed, in an empty directory.
#[test]
fn what_the_demo_says_to_try_next_works() {
    let said = ok(&["demo", "--seconds", "0.02"]);
    assert!(!said.contains('\x1b') && !said.contains('\r'));
    for part in ["1. Writes stay", "2. Waiting writes", "3. Zone append", "100.0 % written"] {
        assert!(said.contains(part), "{part} in\n{said}");
    }
    let (_, next) = said.split_once("Try next:\n").unwrap();
    // The README shows the same, but for the figures.
    let readme = include_str!("../../../../README.md");
    assert!(readme.lines().count() <= 250, "the README has {} lines", readme.lines().count());
    assert!(readme.contains("    cargo demo "), "its first command");
    let is_bar = |l: &&str| l.contains("% written") || l.contains("s/s, p99");
    for line in said.lines().filter(|l| !is_bar(l) && !l.contains(" build")) {
        // The README shows the build of its first command, which has the demonstration alone and names an alias.
        let line = line.replace(&**ZONEPLUG_LAB, "cargo lab");
        assert!(readme.contains(&line), "the README does not show: {line}");
    }
    let dir = Dir::new("demo");
    let commands: Vec<&str> = next.lines().map(str::trim).filter(|l| !l.starts_with('#')).collect();
    assert_eq!(commands.len(), 3, "{next}");
    for line in commands {
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(words[0], *ZONEPLUG_LAB);
        let mut command = Command::new(words[0]);
        let command = command.args(&words[1..]).current_dir(&dir.0).stdin(Stdio::null());
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // A build without optimisation calibrates for half a minute of processor.
        let out = end(child, Duration::from_secs(300));
        assert_eq!(out.status.code(), Some(0), "{line}: {}", text(&out.stderr));
    }
    let v = json(&["demo", "--seconds", "0.02", "--json"]);
    assert_eq!((&v["partial"], &v["order"][1]["refused"]), (&false.into(), &0.into()));
    assert!(v["order"][0]["refused"].as_u64().unwrap() > 0, "a disk that reorders refuses some");
    let rate = |i: usize| v["tags"][i]["reads_per_s"].as_f64().unwrap();
    assert!(rate(1) > 10.0 * rate(2), "reads beside waiting writes: {} and {}", rate(1), rate(2));
}
