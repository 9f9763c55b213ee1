//! What clients of a server's socket ask, and what a server that is none answers them.

use zoneplug_control::client::{Answer, AttributeShown, Request, Shown};
use zoneplug_control::{Kind, Reply, respond};
use zoneplug_core::plain;
use zoneplug_host::HostedDisk;
use zoneplug_host::ServedCounters;
use zoneplug_server::{HandOver, PassedDisk, Served, Serving};

/// Lines of any bytes: each question has one line as its answer, which is one of those that the client knows; a failure says what
/// is wrong and what to try, and what is shown of it holds nothing that a terminal obeys.
pub fn status_socket(data: &[u8]) {
    let of = |n: u64, spec: &str| Served {
        door: "ublk",
        name: format!("ublkb{n}"),
        spec: spec.to_owned(),
        disk: HostedDisk::open_spec(spec).expect("a disk in memory"),
        recovered: n == 1,
        outlives: n == 0,
        counters: Box::new(move || ServedCounters { reads: n, ..ServedCounters::default() }),
        network: None,
        passed: PassedDisk::default(),
    };
    let disks =
        vec![of(0, "mem,zones=8,zone-size=1M,tags=2"), of(1, "null,zones=4,zone-size=2M,tags=2")];
    let serving = Serving::new(disks, Vec::new(), Vec::new(), HandOver::new(|| ()));
    let mut pause = None;
    for question in data.split_inclusive(|b| *b == b'\n').take(16) {
        if let Ok(request) = serde_json::from_slice::<Request>(question) {
            let again = serde_json::to_vec(&request).expect("a request is JSON");
            assert_eq!(serde_json::from_slice::<Request>(&again).ok(), Some(request));
        }
        // Half of the lines come from a client of another user.
        let Reply::Line(line, _) = respond(question, &serving, &mut pause, question.len() % 2 == 0)
        else {
            continue;
        };
        assert_eq!(line.iter().position(|b| *b == b'\n'), Some(line.len() - 1), "one line");
        match serde_json::from_slice(&line).expect("the client knows the answer") {
            Answer::Ok(_) => {}
            Answer::Error(wrong) => {
                assert!((Kind::Io as u8..=Kind::NotSupported as u8).contains(&wrong.code));
                assert!(!wrong.what.is_empty() && !wrong.hint.is_empty(), "{wrong:?}");
                shown(&wrong.what);
                shown(&wrong.hint);
            }
        }
        // The same bytes from the other side.
        match serde_json::from_slice(question) {
            Ok(Answer::Ok(value)) => {
                for disk in serde_json::from_value::<Vec<Shown>>(value.clone()).unwrap_or_default()
                {
                    shown(&disk.spec);
                }
                for a in serde_json::from_value::<Vec<AttributeShown>>(value).unwrap_or_default() {
                    shown(&a.value);
                }
            }
            Ok(Answer::Error(wrong)) => shown(&wrong.what),
            Err(_) => shown(&String::from_utf8_lossy(question)),
        }
    }
}

fn shown(text: &str) {
    let text = plain(text);
    let obeyed = |c: char| c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c);
    assert!(!text.contains(obeyed), "{text:?}");
}
