//! Text that another user controls: a label in a disk's file, what a socket answers, the lines of a file that is
//! another user's. Nothing of it reaches the terminal as a control character.

use crate::*;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixListener;

/// What a terminal obeys, with a bell, a C1 control, an override of direction and line ends.
const EVIL: &str = "\u{1b}]0;evil\u{7}\u{1b}[2J\u{9b}5m\u{202e}\u{2066}\u{200b}\u{7f}";

/// Nothing but lines of what can be printed.
fn harmless(out: &Output) -> String {
    let all = text(&out.stdout) + &text(&out.stderr);
    let bad = |c: &char| c.is_control() && *c != '\n' || EVIL.contains(*c) && !c.is_ascii();
    assert_eq!(all.chars().find(bad), None, "{all:?}");
    all
}

#[test]
fn a_label_cannot_speak_to_the_terminal() {
    let dir = Dir::new("label");
    let disk = dir.disk("--zones 4 --zone-size 1M");
    let file = std::fs::OpenOptions::new().read(true).write(true).open(&disk).unwrap();
    let mut sector = [0; 512];
    file.read_exact_at(&mut sector, 0).unwrap();
    sector[140..144].copy_from_slice(&(EVIL.len() as u32).to_le_bytes());
    sector[144..144 + EVIL.len()].copy_from_slice(EVIL.as_bytes());
    let sum = crc32c::crc32c(&sector[20..]);
    sector[16..20].copy_from_slice(&sum.to_le_bytes());
    file.write_all_at(&sector, 0).unwrap();
    let all = harmless(&feed(&["info", &disk], b""));
    assert!(all.contains(r"\u{1b}]0;evil\u{7}"), "{all}");
    for command in ["report", "check", "attr", "zone-wplugs", "resync"] {
        harmless(&feed(&[command, &disk], b""));
    }
    // A file may be called anything.
    let named = dir.path(&format!("{EVIL}.zbd"));
    std::fs::rename(&disk, &named).unwrap();
    harmless(&feed(&["info", &named], b""));
    harmless(&feed(&["info", &format!("{named},x=1")], b""));
    harmless(&feed(&["info", &format!("po2@{named}")], b""));
    harmless(&feed(&["read", &named, &dir.path("none/x")], b""));
    let [new, copy] = ["new", "copy"].map(|end| dir.path(&format!("{EVIL}-{end}.zbd")));
    for args in [&["create", &new, "--zones", "4"][..], &["snapshot", &new, &copy]] {
        for code in [0, 3] {
            let out = feed(args, b"");
            assert!(harmless(&out).contains(r"\u{1b}]0;evil\u{7}"));
            assert_eq!(out.status.code(), Some(code), "{args:?}");
        }
    }
}

/// The name of a file, and a label, cannot forge a line.
#[test]
fn a_name_with_two_lines_is_shown_in_one() {
    let dir = Dir::new("lines");
    let disk = dir.path("a\nforged: 4 zones: 0 problems; 0 repaired.zbd");
    let label = "b\nforged";
    let made = feed(&["create", &disk, "--zones", "4", "--label", label], b"");
    let [copy, gone] = ["c\nforged.zbd", "d\nforged.zbd"].map(|name| dir.path(name));
    let all = [
        &["info", &disk][..],
        &["check", &disk],
        &["check", "--repair", &disk],
        &["report", &disk],
        &["attr", &disk],
        &["zone-wplugs", &disk],
        &["resync", &disk],
        &["snapshot", &disk, &copy],
        &["create", &disk, "--zones", "4"],
        &["check", &gone],
        &["read", &gone, "-"],
        &["serve", "--check-config", "--nvme-tcp", "127.0.0.1:0", &disk],
    ];
    for out in std::iter::once(made).chain(all.iter().map(|args| feed(args, b""))) {
        let shown = text(&out.stdout) + &text(&out.stderr);
        assert!(!shown.lines().any(|line| line.starts_with("forged")), "{shown}");
    }
}

#[test]
fn a_server_cannot_speak_to_the_terminal() {
    let dir = Dir::new("socket");
    let path = dir.path("s");
    let listener = UnixListener::bind(&path).unwrap();
    let evil = serde_json::to_string(EVIL).unwrap();
    let shown = format!(
        r#"{{"name":{evil},"spec":{evil},"capacity_bytes":1,"zones":1,"zone_bytes":1,"pid":1,
        "recovered":true,"reads":1,"read_bytes":1,"writes":1,"written_bytes":1,"others":1,
        "errors":1,"replayed":1,"waiting":1,"live_plugs":1}}"#
    );
    let shown = shown.replace('\n', "");
    let named = shown.replacen(&evil, "\"ublkb0\"", 1);
    let attribute = format!(r#"{{"name":{evil},"value":{evil},"writable":true}}"#);
    let nomerges = attribute.replacen(&evil, "\"nomerges\"", 1);
    let refusal = format!(r#"{{"error":{{"code":3,"what":{evil},"try":{evil}}}}}"#);
    let plugs = serde_json::to_string(&format!("Zone no: 1{EVIL}\nflags: {EVIL}\n")).unwrap();
    // Each case: a command, and what its questions are answered.
    let ok = |v: &str| format!("{{\"ok\":{v}}}");
    let status = ok(&format!("[{named}]"));
    let attributes = ok(&format!("[{attribute},{nomerges}]"));
    let cases: [(&[&str], Vec<String>); 7] = [
        (&["status"], vec![ok(&format!("[{shown}]"))]),
        (&["status"], vec![refusal.clone()]),
        (&["status"], vec![EVIL.to_owned()]),
        (&["attr", "ublkb0"], vec![status.clone(), attributes.clone()]),
        (&["attr", "ublkb0", "nomerges"], vec![status.clone(), attributes.clone()]),
        (&["attr", "ublkb0", "nomerges", "1"], vec![status.clone(), attributes, refusal]),
        (&["zone-wplugs", "ublkb0"], vec![status, ok(&plugs)]),
    ];
    for (command, answers) in cases {
        let listener = listener.try_clone().unwrap();
        let server = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut lines = std::io::BufReader::new(stream);
            for answer in answers {
                std::io::BufRead::read_line(&mut lines, &mut String::new()).unwrap();
                lines.get_mut().write_all(format!("{answer}\n").as_bytes()).unwrap();
            }
        });
        let out = at_once(&[command, &["--socket", &path]].concat());
        server.join().unwrap();
        let all = harmless(&out);
        assert!(
            all.contains("evil") || all.contains("answer cannot be read"),
            "{command:?}: {all}"
        );
    }
}

/// Whether a text has what [`harmless`] refuses.
fn is_harmless(text: &str) -> bool {
    let bad = |c: char| c.is_control() && c != '\n' || EVIL.contains(c) && !c.is_ascii();
    !text.contains(bad)
}

/// Names reach a person also by metrics, documents and pages.
#[test]
fn names_are_plain_in_metrics_documents_and_pages() {
    let dir = Dir::new("evil-names");
    let disk = dir.disk("--zones 4 --zone-size 1M");
    let named = dir.path(&format!("{EVIL}.zbd"));
    std::fs::rename(&disk, &named).unwrap();
    {
        let server = metrics::Server::start("evil-metrics", &named);
        let scrape = metrics::get(&server.metrics);
        assert!(is_harmless(&scrape), "{scrape:?}");
        // The value of a label has a backslash doubled.
        assert!(scrape.contains(r"\\u{1b}]0;evil\\u{7}"), "{scrape}");
        let all = harmless(&at_once(&["status", "--json", "--socket", &server.socket]));
        let status: Value = serde_json::from_str(&all).unwrap();
        assert_eq!(status["disks"][0]["spec"], *named, "a program gets the name as it is");
    }
    let all = harmless(&at_once(&["info", "--json", &named]));
    assert!(all.contains(r"\u001b]0;evil\u0007"), "{all}");
    let report: Value =
        serde_json::from_str(&harmless(&at_once(&["report", "--json", &named]))).unwrap();
    assert_eq!(report["disk"], *named);
    harmless(&at_once(&["info", "--json", &format!("{named},x=1")]));
    let (trace, page) = (dir.path(&format!("{EVIL}.csv")), dir.path("page.html"));
    std::fs::write(&trace, "time_s,op,offset,length\n0,write,0,4096\n").unwrap();
    let replay = ["replay", &trace, "--disk", "sim-zns1"];
    harmless(&at_once(&[&replay[..], &["--html", &page]].concat()));
    harmless(&at_once(&["bench", "--disk", &named, "--runtime", "50ms", "--yes"]));
    let page = std::fs::read_to_string(page).unwrap();
    assert!(is_harmless(&page) && page.contains(r"\u{1b}]0;evil\u{7}"), "{page}");
    let bench = ["bench", "--disk", &named, "--runtime", "50ms", "--yes"];
    for form in ["--json", "--csv"] {
        harmless(&at_once(&[&bench[..], &[form]].concat()));
        harmless(&at_once(&[&replay[..], &[form]].concat()));
    }
}

/// A server gives itself a name that people can read. A host may have any that NVMe allows.
#[test]
fn a_name_of_a_subsystem_can_be_read() {
    let check = |flags: &[&str]| {
        let serve = ["serve", "--check-config", "--nvme-tcp", "127.0.0.1:0", "null,zones=4"];
        at_once(&[&serve[..], flags].concat())
    };
    let evil = "nqn.2026-11.dev.zoneplug:\u{202e}gulp";
    let out = check(&["--nqn", evil]);
    assert_eq!(out.status.code(), Some(2), "{}", text(&out.stdout));
    let all = harmless(&out);
    assert!(all.contains(r"zoneplug:\u{202e}gulp has characters that cannot be seen"), "{all}");
    let out = check(&["--nqn", "nqn.2026-11.dev.zoneplug:z\u{fc}rich", "--allow-host", evil]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let out = check(&["--allow-host", "nqn.a\u{1b}[2J"]);
    assert_eq!(out.status.code(), Some(2));
    harmless(&out);
}

/// Root may read any file. An error must not tell its lines to a user with the right to name it only.
#[test]
fn an_error_does_not_quote_another_users_file() {
    let dir = Dir::new("foreign");
    let path = dir.path("secret.profile");
    std::fs::write(&path, "root:swordfish:1:2:3\n").unwrap();
    let commands = [
        vec!["info".to_owned(), format!("sim,profile={path}")],
        vec!["bench".to_owned(), "--disk".to_owned(), format!("sim,profile={path}")],
        vec!["reproduce".to_owned(), "--book".to_owned(), path.clone()],
    ];
    let said = || {
        commands.each_ref().map(|c| {
            let out = at_once(&c.iter().map(String::as_str).collect::<Vec<_>>());
            assert_eq!(out.status.code(), Some(2), "{}", text(&out.stderr));
            text(&out.stderr)
        })
    };
    assert!(said().iter().any(|s| s.contains("swordfish")), "one's own lines are shown");
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&path, Some(65534), Some(65534)).unwrap();
        for s in said() {
            assert!(!s.contains("swordfish") && s.contains("secret.profile"), "{s}");
        }
    }
}
