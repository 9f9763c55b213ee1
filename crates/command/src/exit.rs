//! Reports the failure of a command: two lines on stderr, a document on stdout if JSON is wanted, an exit code.

use crate::failure::{Failure, Kind};
use crate::{json, term};
use std::process::ExitCode;
use zoneplug_control::said::{self, To};

/// Reports a failure on stderr, and as JSON on stdout if `json` is wanted and no document contains it yet. Prints
/// nothing if the reader of the output has gone.
pub fn report(failure: &Failure, json: bool) -> ExitCode {
    let kind = failure.parts().kind;
    if kind != Kind::BrokenPipe {
        // If these fail, there is no other output to report it on.
        if json && !failure.is_in_json() {
            said::say(To::Stdout, json::of_failure(failure));
        }
        let text = term::fold(&failure.to_string(), term::width_of_stderr());
        said::say(To::Stderr, text);
    }
    said::finish();
    ExitCode::from(failure.exit_code())
}
