//! The flags of `zoneplug serve` for metrics.

use crate::failure::Failure;
use std::net::SocketAddr;
use zoneplug_core::plain;

/// Flags of `zoneplug serve` for metrics.
#[derive(Debug, Clone, clap::Args)]
#[group(id = "measured")]
pub(crate) struct MetricsArgs {
    /// Serve metrics for Prometheus at http://ADDRESS:PORT/metrics: 127.0.0.1:9420. There is no authentication, so that
    /// only addresses of this machine are taken without --metrics-public
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<String>,

    /// Serve the metrics also to other machines, to any that reaches the address
    #[arg(long)]
    metrics_public: bool,

    /// Measure how long operations take, for zoneplug status and top; --metrics does it too
    #[arg(long)]
    latency: bool,
}

impl MetricsArgs {
    /// Makes `--metrics-public` require `--metrics`.
    pub(super) fn require(command: clap::Command) -> clap::Command {
        command.mut_arg("metrics_public", |arg| arg.requires("metrics"))
    }

    /// Whether servers measure how long operations take.
    pub(crate) fn times(&self) -> bool {
        self.latency || self.metrics.is_some()
    }

    /// The address of the metrics, if they are served.
    pub(crate) fn address(&self) -> Result<Option<SocketAddr>, Failure> {
        let Some(text) = &self.metrics else { return Ok(None) };
        let address: SocketAddr = text.parse().map_err(|_| {
            Failure::usage(format!("--metrics {} is no address with a port", plain(text)))
                .hint("--metrics 127.0.0.1:9420, or [::1]:9420")
        })?;
        if !address.ip().to_canonical().is_loopback() && !self.metrics_public {
            let what = format!("--metrics {address} can be read from other machines");
            return Err(Failure::usage(what)
                .hint("--metrics 127.0.0.1:9420, or --metrics-public as well: anyone who reaches it reads all"));
        }
        Ok(Some(address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(args: &[&str]) -> Result<Option<SocketAddr>, Failure> {
        #[derive(Debug, clap::Parser)]
        struct Flags {
            #[command(flatten)]
            metrics: MetricsArgs,
        }
        let flags: Flags = clap::Parser::try_parse_from([&["x"], args].concat()).unwrap();
        flags.metrics.address()
    }

    #[test]
    fn other_machines_need_a_word() {
        for local in ["127.0.0.1:9420", "127.1.2.3:0", "[::1]:9420", "[::ffff:127.0.0.1]:9420"] {
            assert!(address(&["--metrics", local]).unwrap().is_some(), "{local}");
        }
        for open in ["0.0.0.0:9420", "[::]:9420", "192.0.2.1:9420", "[::ffff:192.0.2.1]:9420"] {
            let e = address(&["--metrics", open]).unwrap_err().to_string();
            assert!(e.contains("--metrics-public"), "{open}: {e}");
            assert!(address(&["--metrics", open, "--metrics-public"]).unwrap().is_some());
        }
        assert!(
            address(&["--metrics", "localhost:9420"])
                .unwrap_err()
                .to_string()
                .contains("no address")
        );
        assert_eq!(address(&[]).unwrap(), None);
    }
}
