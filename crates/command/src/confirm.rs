//! Asks the user before data is destroyed.

use crate::failure::Failure;
use crate::{interrupt, term};
use std::io::{IsTerminal, Write};
use zoneplug_core::plain;

/// The flag that answers the question.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub struct Consent {
    /// Do not ask before the data of more than one zone is destroyed
    #[arg(short, long)]
    yes: bool,

    /// As --yes, and write to a drive that holds a file system or a partition table, or is mounted
    #[arg(short, long)]
    force: bool,
}

impl Consent {
    /// Whether a file system on a drive may be overwritten.
    pub fn is_forced(self) -> bool {
        self.force
    }

    /// Asks whether to go on with `what`, which destroys the data of `zones` zones. Does not ask for a single zone.
    /// Refuses if standard input or standard error is no terminal, because no user could answer.
    pub fn ask(self, what: &str, zones: usize) -> Result<(), Failure> {
        if self.yes || self.force || zones <= 1 {
            return Ok(());
        }
        let what = plain(what);
        let refused = |what: String| Failure::usage(what).hint("--yes if that is what you want");
        if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
            return Err(refused(format!("not without --yes: this {what}")));
        }
        let question = format!("This {what}. Go on? [y/N] ");
        let mut answer = String::new();
        let read = interrupt::while_waiting(|| {
            eprint!("{}", term::fold(&question, term::width_of_stderr()));
            // If the prompt cannot be shown, no answer comes, and the change is refused.
            let _ = std::io::stderr().flush();
            std::io::stdin().read_line(&mut answer)
        });
        match (read, answer.trim()) {
            (Ok(_), "y" | "Y" | "yes") => Ok(()),
            _ => Err(refused("cancelled; nothing was changed".to_owned())),
        }
    }
}
