//! The form of an error that a program shows.

use std::process::Output;

/// Checks that a program ended with `code`, and wrote two lines: what is wrong, with `what` in it, and what to try.
pub(crate) fn assert_error(out: &Output, code: i32, what: &str, args: &str) {
    let err = String::from_utf8_lossy(&out.stderr).into_owned();
    let lines: Vec<&str> = err.lines().collect();
    assert_eq!(out.status.code(), Some(code), "{args}: {err}");
    assert_eq!(lines.len(), 2, "{args}: {err}");
    assert!(lines[0].starts_with("error: ") && lines[0].contains(what), "{args}: {err}");
    assert!(lines[1].starts_with("try: ") && lines[1].len() > 8, "{args}: {err}");
    assert_eq!(out.stdout.len(), 0, "{args}");
}
