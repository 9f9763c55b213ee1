//! `--trace`: the layer's trace events on stderr, in builds that have them.

use crate::failure::Failure;

/// The flag. A build without trace events has none.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct Trace {
    /// Show what the plugs do on stderr
    #[cfg(feature = "trace")]
    #[arg(long, global = true, help_heading = "Global options")]
    trace: bool,
}

impl Trace {
    /// Shows trace events from now on, if they are wanted.
    pub fn start(self) -> Result<(), Failure> {
        #[cfg(feature = "trace")]
        if self.trace {
            let subscriber = tracing_subscriber::fmt()
                .with_writer(std::io::stderr)
                .with_max_level(tracing::Level::TRACE)
                .with_ansi(false)
                .with_level(false)
                .without_time()
                .finish();
            let set = tracing::subscriber::set_global_default(subscriber);
            return set.map_err(|e| Failure::io(e.to_string()));
        }
        Ok(())
    }
}
