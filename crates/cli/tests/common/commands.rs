//! Runs `zoneplug` and `zoneplug-lab`, each by the commands that it has.

#[allow(dead_code)]
#[path = "error_form.rs"]
mod error_form;

pub(crate) use error_form::error_lines;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};

/// The program whose package the tests are in.
const OWN: &str =
    match (option_env!("CARGO_BIN_EXE_zoneplug"), option_env!("CARGO_BIN_EXE_zoneplug-lab")) {
        (Some(path), _) | (None, Some(path)) => path,
        (None, None) => panic!("cargo builds the program of a package for its tests"),
    };

/// The commands of `zoneplug-lab`.
const LAB: [&str; 7] = ["bench", "calibrate", "demo", "merge", "replay", "reproduce", "sim"];

/// The program with this name. Cargo builds only that of the tests' package for them, so the other one is built here if it
/// is not there.
pub(crate) fn named(name: &str, package: &str) -> PathBuf {
    static BUILD: Mutex<()> = Mutex::new(());
    let path = Path::new(OWN).with_file_name(name);
    let _one = BUILD.lock().unwrap();
    if !path.exists() {
        let dir = path.parent().unwrap();
        let profile = dir.file_name().unwrap().to_str().unwrap().replace("debug", "dev");
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--package", package, "--profile", &profile]);
        build.arg("--target-dir").arg(dir.parent().unwrap());
        assert!(build.status().unwrap().success(), "{build:?}");
    }
    path
}

/// `zoneplug`.
pub(crate) static ZONEPLUG: LazyLock<String> =
    LazyLock::new(|| named("zoneplug", "zoneplug-cli").to_str().unwrap().to_owned());

/// `zoneplug-lab`.
pub(crate) static ZONEPLUG_LAB: LazyLock<String> =
    LazyLock::new(|| named("zoneplug-lab", "zoneplug-lab").to_str().unwrap().to_owned());

/// The program that has the command of these arguments.
pub(crate) fn program(args: &[&str]) -> &'static str {
    let is_lab = args.first().is_some_and(|command| LAB.contains(command));
    if is_lab { &ZONEPLUG_LAB } else { &ZONEPLUG }
}

/// Starts a command whose input and outputs are pipes.
pub(crate) fn piped(command: &mut Command) -> Child {
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    piped.spawn().unwrap()
}

/// Runs the command with `input` on its standard input. One that goes on for minutes is killed, and fails the test: a server
/// goes on that should have refused to start.
pub(crate) fn feed(args: &[&str], input: &[u8]) -> Output {
    let mut child = piped(Command::new(program(args)).args(args));
    let (mut stdin, input) = (child.stdin.take().unwrap(), input.to_vec());
    // A command that fails early does not read it all.
    let writer = std::thread::spawn(move || stdin.write_all(&input).is_ok());
    let limit = if args.first() == Some(&"serve") { 60 } else { 240 };
    let out = end(child, Duration::from_secs(limit));
    let _ = writer.join().unwrap();
    out
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a command that must succeed without a word on stderr. Returns its stdout.
pub(crate) fn ok_with(args: &[&str], input: &[u8]) -> Vec<u8> {
    let out = feed(args, input);
    let err = text(&out.stderr);
    assert_eq!((out.status.code(), &*err), (Some(0), ""), "zoneplug {args:?}");
    out.stdout
}

pub(crate) fn ok(args: &[&str]) -> String {
    text(&ok_with(args, b""))
}

/// A command that must fail: its exit code, and two lines on stderr of which one contains `what`.
pub(crate) fn fails(args: &[&str], code: i32, what: &str) {
    fails_with(args, b"", code, what);
}

pub(crate) fn fails_with(args: &[&str], input: &[u8], code: i32, what: &str) {
    assert_failed(&feed(args, input), code, what, &args.join(" "));
}

/// Checks that a command failed with `code` and wrote two lines, one of which contains `what`.
pub(crate) fn assert_failed(out: &Output, code: i32, what: &str, args: &str) {
    let lines = error_lines(out, code, args).map(|line| line + "\n").concat();
    assert!(lines.contains(what), "{args}: {what} is not in {lines}");
}

/// The command with at most so many KiB of memory.
pub(crate) fn within(kib: u32, args: &[&str]) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -v {kib}; exec \"$@\""), "sh", program(args)]).args(args);
    command
}

/// Whether a command works with at most so many KiB of memory. Where it does not, it says that memory is what it lacks.
pub(crate) fn works_within(kib: u32, args: &[&str]) -> bool {
    let out = soon(&mut within(kib, args));
    let err = text(&out.stderr);
    match out.status.code() {
        Some(0) => true,
        Some(4) if err.contains("memory") && err.contains("\ntry: ") => false,
        _ => panic!("{args:?} with {kib} KiB: {}: {err}", out.status),
    }
}

/// Runs a command that must end soon, whatever it is given. Returns its output.
pub(crate) fn soon(command: &mut Command) -> Output {
    let mut child = piped(command);
    let end = Instant::now() + Duration::from_secs(30);
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > end {
            child.kill().unwrap();
            panic!("{command:?} hangs");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

/// Sends a command a signal.
pub(crate) fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// Waits for a command that was sent a signal and must end within a time. Returns its output, and reads it all along: a
/// document may be longer than what a pipe holds.
pub(crate) fn end(child: Child, within: Duration) -> Output {
    let pid = Pid::from_child(&child);
    let (ended, wait) = channel::<()>();
    let watch = std::thread::spawn(move || {
        let late = wait.recv_timeout(within) == Err(RecvTimeoutError::Timeout);
        late && kill_process(pid, Signal::KILL).is_ok()
    });
    let out = child.wait_with_output().unwrap();
    drop(ended);
    assert!(!watch.join().unwrap(), "it goes on: {out:?}");
    out
}

pub(crate) fn at_once(args: &[&str]) -> Output {
    soon(Command::new(program(args)).args(args))
}

pub(crate) fn json(args: &[&str]) -> Value {
    serde_json::from_str(&ok(args)).unwrap()
}

/// Bytes that differ everywhere.
pub(crate) fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut random = zoneplug_core::Random::new(seed);
    (0..len).map(|_| random.draw() as u8).collect()
}

/// A directory that goes with the test.
pub(crate) struct Dir(pub(crate) PathBuf);

impl Dir {
    pub(crate) fn new(name: &str) -> Dir {
        let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("commands-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        Dir(dir)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    /// A new file that only its owner can read.
    #[allow(dead_code, reason = "the laboratory has no secrets")]
    pub(crate) fn private(&self, name: &str, contents: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        std::fs::write(&path, contents).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        path
    }

    /// A new durable disk.
    pub(crate) fn disk(&self, options: &str) -> String {
        let path = self.path("disk.zbd");
        let mut args = vec!["create", &path];
        args.extend(options.split_whitespace());
        ok(&args);
        path
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The conditions of all zones, two letters each.
pub(crate) fn conditions(disk: &str) -> String {
    let report = json(&["report", "--json", disk]);
    let zones = report["zones"].as_array().unwrap();
    zones.iter().map(|z| z["cond"].as_str().unwrap()).collect::<Vec<_>>().join(" ")
}
