//! The flags of `zoneplug serve` for its log.

use log::LevelFilter;

/// Flags for the log.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(crate) struct LogArgs {
    /// What is logged: this and what is worse. Without it info in the journal, and warn elsewhere, where stdout has the
    /// disks. The variable ZONEPLUG_LOG sets it too
    #[arg(long, value_name = "LEVEL")]
    pub(crate) log_level: Option<LogLevel>,
}

/// How much is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogLevel {
    /// Nothing.
    Off,
    /// Data or a disk is in danger.
    Error,
    /// Something failed, or was refused, and the disk goes on.
    Warn,
    /// Also starts and stops, and what went well again.
    Info,
    /// Also what explains these.
    Debug,
}

impl LogArgs {
    /// The level of the log, if the flag or the variable sets one.
    pub(super) fn level(self) -> Option<LevelFilter> {
        self.log_level.map(LogLevel::filter)
    }
}

impl LogLevel {
    fn filter(self) -> LevelFilter {
        match self {
            LogLevel::Off => LevelFilter::Off,
            LogLevel::Error => LevelFilter::Error,
            LogLevel::Warn => LevelFilter::Warn,
            LogLevel::Info => LevelFilter::Info,
            LogLevel::Debug => LevelFilter::Debug,
        }
    }
}
