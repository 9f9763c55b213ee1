//! The command as its users see it: output, exit codes, two lines for an error.

#[path = "common/error_form.rs"]
mod error_form;

use error_form::assert_error;
use serde_json::Value;
use std::io::Read;
use std::process::{Command, Output, Stdio};

fn zoneplug(args: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zoneplug"));
    command.args(args.split_whitespace()).output().expect("the command runs")
}

fn stdout(out: &Output) -> String {
    String::from_utf8(out.stdout.clone()).expect("UTF-8")
}

fn json(args: &str) -> Value {
    let out = zoneplug(args);
    let err = String::from_utf8_lossy(&out.stderr);
    assert_eq!((out.status.code(), &*err), (Some(0), ""), "{args}");
    serde_json::from_str(&stdout(&out)).expect("a JSON document")
}

#[test]
fn bad_input_is_one_line_for_what_and_one_for_what_to_try() {
    for (args, code, what) in [
        ("info", 2, "SPEC"),
        ("info mem,zones", 2, "zones"),
        ("info floppy", 3, "floppy"),
        ("frob", 2, "frob"),
    ] {
        assert_error(&zoneplug(args), code, what, args);
    }
}

#[test]
fn info_shows_the_disk_and_its_zones() {
    let spec = "mem,zones=100,zone-size=4M,zone-capacity=3M,conv=4,last-zone-size=1M,max-open=7";
    let text = stdout(&zoneplug(&format!("info {spec}")));
    for part in [
        "96 sequential, 4 conventional",
        "zone capacity",
        "3M",
        "max_open_zones",
        "░░░░····",
        "empty             96 zones",
    ] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    assert!(!text.contains('\x1b'), "no colours in a pipe");
    let v = json(&format!("info {spec} --json"));
    assert_eq!((v["zones"].as_u64(), v["conventional_zones"].as_u64()), (Some(100), Some(4)));
    assert_eq!(v["attributes"]["max_open_zones"].as_u64(), Some(7));
    assert_eq!(v["conditions"]["empty"].as_u64(), Some(96));
    assert_eq!(v["map"].as_array().map(Vec::len), Some(2));
}

#[test]
fn help_documents_the_exit_codes() {
    for args in ["--help", "info --help"] {
        let out = zoneplug(args);
        assert_eq!(out.status.code(), Some(0));
        assert!(stdout(&out).contains("Exit codes:"), "{args}");
    }
}

/// A command of the other program is named, with the command line that works.
#[test]
fn a_command_of_the_other_program_says_where_it_is() {
    for command in ["bench", "calibrate", "demo", "merge", "replay", "reproduce", "sim"] {
        let out = zoneplug(&format!("{command} --disk [x] -- mem,zones=4"));
        assert_eq!(out.status.code(), Some(2), "{command}");
        let said = format!(
            "error: {command} is a command of zoneplug-lab\n\
             try: zoneplug-lab {command} --disk '[x]' -- mem,zones=4\n"
        );
        assert_eq!(String::from_utf8_lossy(&out.stderr), said);
        assert!(stdout(&zoneplug("--help")).contains(command));
    }
    let out = zoneplug("sim --json");
    let v: Value = serde_json::from_slice(&out.stdout).expect("a JSON document");
    assert_eq!(v["error"]["hint"], "zoneplug-lab sim --json");
}

/// The version names the commit of the checkout and the features; nothing in it depends on the time of the build.
#[test]
fn the_version_names_the_build() {
    let short = format!("zoneplug {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(stdout(&zoneplug("-V")), short);
    let out = zoneplug("--version");
    assert_eq!(out.status.code(), Some(0));
    let text = stdout(&out);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert_eq!(format!("{}\n", lines[0]), short);
    let build = lines[1].strip_prefix("build: ").expect("a line for the build");
    let git = Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).output();
    match git.ok().filter(|o| o.status.success()) {
        Some(o) => assert_eq!(build.trim_end_matches(" and changes"), stdout(&o).trim()),
        None => assert_eq!(build.split_whitespace().count(), 1, "{text}"),
    }
    let features = lines[2].strip_prefix("features:").expect("a line for the features");
    for (name, on) in [("mount", cfg!(feature = "mount")), ("probes", cfg!(feature = "probes"))] {
        assert_eq!(features.split(' ').any(|f| f == name), on, "{text}");
    }
}

/// A reader that goes away is no error.
#[test]
fn a_closed_pipe_is_quiet() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_zoneplug"))
        .args(["info", "null,zones=200000"])
        .env("COLUMNS", "20")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command runs");
    drop(child.stdout.take());
    let mut err = String::new();
    child.stderr.take().expect("a pipe").read_to_string(&mut err).expect("UTF-8");
    let status = child.wait().expect("it ends");
    assert_eq!((status.code(), err.as_str()), (Some(0), ""));
}
