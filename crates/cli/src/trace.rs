//! `--trace`: the layer's trace events on stderr, in builds that have them.

use crate::failure::Failure;

/// Shows trace events from now on.
pub(crate) fn start() -> Result<(), Failure> {
    let subscriber = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(tracing::Level::TRACE)
        .with_ansi(false)
        .with_level(false)
        .without_time()
        .finish();
    tracing::subscriber::set_global_default(subscriber).map_err(|e| Failure::io(e.to_string()))
}
