//! A server for `zoneplug top`, with all that a server can say.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;

/// Answers `status` with one disk that has done a little more each time, and `zones` with its zones.
pub(crate) fn server(path: &str) {
    let listener = UnixListener::bind(path).unwrap();
    std::thread::spawn(move || {
        let mut n = 0;
        for stream in listener.incoming() {
            let mut lines = BufReader::new(stream.unwrap());
            let mut line = String::new();
            while lines.read_line(&mut line).is_ok_and(|n| n > 0) {
                n += 1;
                let answer = if line.contains("\"zones\"") { zones(n) } else { status(n) };
                if lines.get_mut().write_all(answer.replace('\n', "").as_bytes()).is_err()
                    || lines.get_mut().write_all(b"\n").is_err()
                {
                    break;
                }
                line.clear();
            }
        }
    });
}

fn status(n: u64) -> String {
    format!(
        r#"{{"ok":[{{"name":"ublkb0","spec":"mem","capacity_bytes":1073741824,"zones":4,
        "zone_bytes":268435456,"pid":1,"recovered":false,"reads":1,"read_bytes":4096,"writes":{n},
        "written_bytes":4096,"others":0,"errors":0,"replayed":0,"waiting":1,"live_plugs":1,
        "operations":[{{"op":"write","count":{n},"bytes":4096,"errors":0,
        "latency":{{"sum_ns":{n},"buckets":[0,{n}]}}}}]}}]}}"#
    )
}

fn zones(n: u64) -> String {
    format!(
        r#"{{"ok":{{"first":0,"zones":4,"per_cell":1,"conditions":"naef",
        "written_sectors":[0,{n},0,8],"capacity_sectors":[0,8,8,8],"waiting":[0,1,0,0],
        "in_flight":[0,1,0,0],"scheduled":0,"writers":[{{"spindle":0,"turn":1,"listed":2,
        "turns":{n},"cut_off":0,"longest_wait_ns":5}}]}}}}"#
    )
}
