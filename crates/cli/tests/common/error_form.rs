//! The form of an error that a program shows.

use std::process::Output;

/// The two lines that a failed program wrote: what is wrong, and what to try. Checks its exit code. `args`: the command, for
/// messages.
pub(crate) fn error_lines(out: &Output, code: i32, args: &str) -> [String; 2] {
    let err = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(code), "{args}: {:?}: {err}", out.status);
    let lines: Vec<String> = err.lines().map(str::to_owned).collect();
    let lines: [String; 2] =
        lines.try_into().unwrap_or_else(|l| panic!("{args}: not two lines: {l:?}"));
    assert!(lines[0].starts_with("error: "), "{args}: {err}");
    assert!(lines[1].starts_with("try: ") && lines[1].len() > 8, "{args}: {err}");
    lines
}

/// Checks that a program failed with `code` and wrote two lines, the first of which contains `what`, and nothing else.
pub(crate) fn assert_error(out: &Output, code: i32, what: &str, args: &str) {
    let [error, _] = error_lines(out, code, args);
    assert!(error.contains(what), "{args}: {error}");
    assert_eq!(out.stdout.len(), 0, "{args}");
}
