//! `zoneplug serve --metrics`: what a scrape says is what was done, whatever other clients of its port do.

use super::nvme_host::{BLOCK, Queue, ZONE};
use super::{Dir, ZONEPLUG, fails, json, ok};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use zoneplug_nvme::initiator::{read, reset_zone, write, zone_append};

const NQN: &str = "nqn.2026-11.dev.zoneplug:metrics";

/// A server over the network that does not outlive its test, and where it is.
pub(crate) struct Server {
    process: Child,
    nvme: String,
    pub(crate) metrics: String,
    pub(crate) socket: String,
    _dir: Dir,
}

impl Server {
    pub(crate) fn start(name: &str, spec: &str) -> Server {
        let dir = Dir::new(name);
        let socket = dir.path("s");
        let mut process = Command::new(&*ZONEPLUG)
            .args(["serve", "--nvme-tcp", "127.0.0.1:0", spec, "--nqn", NQN])
            .args(["--metrics", "127.0.0.1:0", "--socket", &socket])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines().map(Result::unwrap);
        let (mut nvme, mut metrics) = (String::new(), String::new());
        for line in lines {
            if let Some((address, _)) = line.split_once("  nqn.") {
                nvme = address.to_owned();
            }
            if let Some(url) = line.strip_prefix("metrics at http://") {
                metrics = url.strip_suffix("/metrics").unwrap().to_owned();
                break;
            }
        }
        Server { process, nvme, metrics, socket, _dir: dir }
    }

    /// The series of a scrape that is newer than what was done before it.
    fn scrape(&self) -> BTreeMap<String, f64> {
        std::thread::sleep(Duration::from_millis(1_100));
        let text = get(&self.metrics);
        let series = text.lines().filter(|l| !l.starts_with('#'));
        let series = series.map(|l| l.rsplit_once(' ').unwrap());
        series.map(|(name, value)| (name.to_owned(), value.parse().unwrap())).collect()
    }

    /// Ends it as a person does.
    fn stop(mut self) -> Duration {
        let start = Instant::now();
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").arg(pid).status().unwrap().success());
        assert!(self.process.wait().unwrap().success());
        start.elapsed()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The body of the metrics at an address.
pub(crate) fn get(address: &str) -> String {
    get_at(address, "/metrics", "text/plain; version=0.0.4")
}

/// The body of a server's answer at a path, which must be of this type.
fn get_at(address: &str, path: &str, kind: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains(&format!("Content-Type: {kind}")), "{head}");
    body.to_owned()
}

/// What Prometheus's linter says of a scrape; nothing where it is not installed.
fn lint(text: &str) -> Option<String> {
    let mut promtool = match Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
    {
        Ok(process) => process,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            assert!(std::env::var_os("ZONEPLUG_CI").is_none(), "promtool: {e}");
            return None;
        }
        Err(e) => panic!("promtool: {e}"),
    };
    promtool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let out = promtool.wait_with_output().unwrap();
    let said = [out.stdout, out.stderr].concat();
    Some(format!("{}{}", out.status, String::from_utf8_lossy(&said)))
}

/// The alert rules of the package fire when they should, by Prometheus's own test, and use metrics that there are.
#[test]
fn alert_rules_fire_for_what_they_name() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/prometheus");
    let rules = std::fs::read_to_string(format!("{folder}/zoneplug.rules.yml")).unwrap();
    let page = include_str!("../../../../docs/metrics.md");
    let words = rules.split(|c: char| !(c.is_ascii_lowercase() || c == '_'));
    let names: Vec<_> = words.filter(|w| w.starts_with("zoneplug_")).collect();
    assert!(names.len() > 5, "{names:?}");
    for name in names {
        let name = name.strip_suffix("_bucket").unwrap_or(name);
        assert!(page.contains(&format!("`{name}{{")), "{name}");
    }
    let test = ["test", "rules", "zoneplug.rules.test.yml"];
    match Command::new("promtool").args(test).current_dir(folder).output() {
        Ok(out) => assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stdout)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            assert!(std::env::var_os("ZONEPLUG_CI").is_none(), "promtool: {e}");
        }
        Err(e) => panic!("promtool: {e}"),
    }
}

/// A disk with a limit, which has more series than one without.
#[test]
fn prometheus_has_nothing_to_say_of_a_scrape() {
    let server = Server::start("metrics-lint", "mem,zones=8,zone-size=4M,max-open=2,max-active=4");
    let (_admin, mut io) = Queue::pair_at(&server.nvme, NQN);
    assert_eq!(io.run(write(1, ZONE, vec![1; 4096], BLOCK)).completion.status, 0);
    let text = get(&server.metrics);
    if let Some(said) = lint(&text) {
        assert_eq!(said, "exit status: 0");
        // It does say something of a counter without `_total`.
        let wrong = text.replace("zoneplug_io_errors_total", "zoneplug_io_errors");
        let said = lint(&wrong).unwrap();
        assert!(said.contains("zoneplug_io_errors counter metrics should have"), "{said}");
    }
}

/// Few enough that each operation is timed.
#[test]
fn a_scrape_says_what_was_done() {
    let server = Server::start("metrics-scrape", "mem,zones=8,zone-size=4M");
    let (_admin, mut io) = Queue::pair_at(&server.nvme, NQN);
    let pause = || std::thread::sleep(Duration::from_millis(6));
    for i in 0..10 {
        assert_eq!(io.run(write(1, ZONE + i, vec![1; 4096], BLOCK)).completion.status, 0);
        assert_eq!(io.run(read(1, ZONE + i, 1, BLOCK)).completion.status, 0);
        assert_eq!(io.run(zone_append(1, 2 * ZONE, vec![2; 8192], BLOCK)).completion.status, 0);
        pause();
    }
    assert_ne!(io.run(write(1, ZONE, vec![1; 4096], BLOCK)).completion.status, 0);
    assert_eq!(io.run(reset_zone(1, 2 * ZONE)).completion.status, 0);
    let all = server.scrape();
    let port = server.nvme.rsplit_once(':').unwrap().1;
    let disk = format!("tcp{port}n1");
    let of = |name: &str, op: &str| {
        let series = format!("{name}{{disk=\"{disk}\",op=\"{op}\"}}");
        *all.get(&series).unwrap_or_else(|| panic!("no {series} in {all:#?}"))
    };
    let wanted =
        [("write", 10., 4096., 1.), ("read", 10., 4096., 0.), ("zone_append", 10., 8192., 0.)];
    for (op, n, bytes, errors) in wanted {
        assert_eq!(of("zoneplug_io_operations_total", op), n, "{op}");
        assert_eq!(of("zoneplug_io_bytes_total", op), n * bytes, "{op}");
        assert_eq!(of("zoneplug_io_errors_total", op), errors, "{op}");
        assert_eq!(of("zoneplug_io_latency_seconds_count", op), n + errors, "{op}");
        let sum = of("zoneplug_io_latency_seconds_sum", op);
        assert!(sum > 0. && sum < 10., "{op}: {sum}");
        let buckets =
            format!("zoneplug_io_latency_seconds_bucket{{disk=\"{disk}\",op=\"{op}\",le=");
        let mut values: Vec<f64> =
            all.iter().filter(|(k, _)| k.starts_with(&buckets)).map(|(_, v)| *v).collect();
        values.sort_by(f64::total_cmp);
        assert_eq!((values.len(), values.last()), (26, Some(&(n + errors))), "{op}");
    }
    assert_eq!(of("zoneplug_io_operations_total", "zone_reset"), 1.);
    assert_eq!(of("zoneplug_io_latency_seconds_count", "zone_reset"), 1.);
    let zones = |c: &str| all[&format!("zoneplug_zones{{disk=\"{disk}\",condition=\"{c}\"}}")];
    assert_eq!(
        ["conventional", "empty", "active", "full", "stale"].map(zones),
        [0., 7., 1., 0., 0.]
    );
    assert_eq!(all[&format!("zoneplug_nvme_hosts{{address=\"{}\"}}", server.nvme)], 1.);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let age = now.as_secs_f64() - all["process_start_time_seconds"];
    assert!((0. ..60.).contains(&age), "{age}");
    // `status` says the same.
    let v = json(&["status", "--socket", &server.socket, "--json"]);
    assert_eq!((&v["schema"], &v["disks"][0]["name"]), (&1.into(), &disk.as_str().into()));
    let ops = v["disks"][0]["operations"].as_array().unwrap();
    let write = ops.iter().find(|o| o["op"] == "write").unwrap();
    assert_eq!((&write["count"], &write["errors"]), (&10.into(), &1.into()));
    let buckets = write["latency"]["buckets"].as_array().unwrap();
    assert_eq!(buckets.iter().map(|n| n.as_u64().unwrap()).sum::<u64>(), 11);
    server.stop();
}

#[test]
fn failures_and_stale_zones_are_counted() {
    let spec = "mem,zones=8,zone-size=4M,zone_recovery=client,fault=write/io/zone=3/count=1";
    let server = Server::start("metrics-stale", spec);
    let (_admin, mut io) = Queue::pair_at(&server.nvme, NQN);
    assert_ne!(io.run(write(1, 3 * ZONE, vec![1; 4096], BLOCK)).completion.status, 0);
    let all = server.scrape();
    let port = server.nvme.rsplit_once(':').unwrap().1;
    let of = |name: &str, label: &str| all[&format!("{name}{{disk=\"tcp{port}n1\",{label}}}")];
    assert_eq!(of("zoneplug_zones", "condition=\"stale\""), 1.);
    assert_eq!(of("zoneplug_events_total", "event=\"stale\""), 1.);
    assert_eq!(of("zoneplug_events_total", "event=\"failed\""), 1.);
    assert_eq!(of("zoneplug_events_total", "event=\"recovered\""), 0.);
    assert_eq!(io.run(reset_zone(1, 3 * ZONE)).completion.status, 0);
    let all = server.scrape();
    let of = |name: &str, label: &str| all[&format!("{name}{{disk=\"tcp{port}n1\",{label}}}")];
    assert_eq!(of("zoneplug_zones", "condition=\"stale\""), 0.);
    assert_eq!(of("zoneplug_events_total", "event=\"recovered\""), 1.);
    let status = ok(&["status", "--socket", &server.socket]);
    assert!(status.contains("events: 1 failed, 1 recovered, 1 stale"), "{status}");
    // The page for readers has the same.
    let page = get_at(&server.metrics, "/", "text/html");
    for part in [
        &format!("<h1>zoneplug: tcp{port}n1</h1>"),
        "<dd>failed: 1, recovered: 1, stale: 1</dd>",
        "</span>8 empty<",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
}

/// Clients that are silent, slow, or send nonsense: the disk is served, a scrape is answered, and the server ends at once.
#[test]
fn hostile_clients_of_the_port_disturb_nothing() {
    let server = Server::start("metrics-hostile", "mem,zones=8,zone-size=4M");
    let (_admin, mut io) = Queue::pair_at(&server.nvme, NQN);
    let mut held = Vec::new();
    for i in 0..100 {
        let mut stream = TcpStream::connect(&server.metrics).unwrap();
        let _ = match i % 4 {
            0 => Ok(()),
            1 => stream.write_all(b"GET /metr"),
            2 => stream.write_all(&[b'x'; 20_000]),
            // It never reads.
            _ => stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n"),
        };
        held.push(stream);
        let start = Instant::now();
        assert_eq!(io.run(write(1, i, vec![1; 4096], BLOCK)).completion.status, 0);
        assert!(start.elapsed() < Duration::from_secs(5), "a write waits for a client of the port");
    }
    let start = Instant::now();
    assert!(get(&server.metrics).contains("zoneplug_build_info"));
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    let ended = server.stop();
    assert!(ended < Duration::from_secs(5), "{ended:?}");
    drop(held);
}

/// U16. The next server answers at the address of the metrics from then on: it takes the socket of the last one.
#[test]
fn u16_the_metrics_go_on_over_a_hand_over() {
    let dir = Dir::new("metrics-handover");
    let disk = dir.disk("--size 64M --zone-size 8M");
    let mut first = Server::start("metrics-last", &disk);
    let args = ["--nvme-tcp", &first.nvme, &disk, "--nqn", NQN, "--metrics", &first.metrics];
    let mut next = Command::new(&*ZONEPLUG)
        .args(["serve", "--takeover", "--socket", &first.socket])
        .args(args)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(next.stdout.take().unwrap()).lines().map(Result::unwrap);
    let said = lines.any(|line| line.contains(&format!("metrics at http://{}", first.metrics)));
    let ended = said.then(|| (first.process.wait().unwrap().success(), get(&first.metrics)));
    let _ = next.kill();
    next.wait().unwrap();
    let (is_well, text) = ended.expect("it does not serve");
    assert!(is_well && text.contains("zoneplug_build_info"), "{text}");
}

#[test]
fn addresses_that_are_no_good_are_refused() {
    let serve = |args: &[&str], code, what| {
        fails(&[&["serve", "--nvme-tcp", "127.0.0.1:0", "mem"], args].concat(), code, what);
    };
    serve(&["--metrics", "0.0.0.0:9420"], 2, "--metrics-public");
    serve(&["--metrics", "9420"], 2, "no address with a port");
    serve(&["--metrics-public"], 2, "--metrics");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    serve(&["--metrics", &taken], 3, "no metrics at");
}

/// A block for each interval.
#[test]
fn status_watches_in_a_pipe() {
    let server = Server::start("metrics-watch", "mem,zones=8,zone-size=4M");
    let (_admin, mut io) = Queue::pair_at(&server.nvme, NQN);
    let mut watch = Command::new(&*ZONEPLUG)
        .args(["status", "--socket", &server.socket, "--watch", "0.3"])
        .env("COLUMNS", "80")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let out = BufReader::new(watch.stdout.take().unwrap());
    let (mut blocks, mut wrote, start) = (0, false, Instant::now());
    let mut lines = out.lines().map(Result::unwrap);
    for i in 0..ZONE {
        assert_eq!(io.run(write(1, i, vec![1; 4096], BLOCK)).completion.status, 0);
        std::thread::sleep(Duration::from_millis(2));
        if start.elapsed() > Duration::from_millis(1_500) {
            break;
        }
    }
    for line in lines.by_ref() {
        assert!(line.chars().count() <= 80 && !line.contains('\x1b'), "{line}");
        blocks += usize::from(line.starts_with("tcp"));
        let fields: Vec<&str> = line.split_whitespace().collect();
        if fields.first() == Some(&"write") {
            let rate: f64 = fields[1].parse().unwrap();
            wrote |= rate > 10. && fields[4] != "-";
        }
        if blocks >= 3 && wrote {
            break;
        }
    }
    let _ = watch.kill();
    let _ = watch.wait();
    assert!(blocks >= 3 && wrote, "{blocks}");
    fails(&["status", "--watch", "0"], 2, "0.1");
    fails(&["status", "--watch", "--json"], 2, "--json");
}
