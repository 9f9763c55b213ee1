//! The settings of a server: from its flags, and from the file that `--config` names.
//!
//! A key of the file is a flag of `zoneplug serve` without its leading dashes, read by the parser of that flag. So
//! clap's structs define flags and keys, and every flag is a key unless `FLAGS_ONLY` names it (config_file.rs). A flag
//! overrides a key, so does `ZONEPLUG_LOG`, and a key of a disk overrides the same key above the disks.

use super::Args;
use super::config_file::{
    AtConfigPlace, ConfigFile, ConfigPlace, DiskTable, Entry, FLAGS_ONLY, Given, flag_keys,
    refused_value,
};
use super::iscsi_args::IscsiArgs;
use super::metrics_args::MetricsArgs;
use super::network_args::NetworkArgs;
use crate::failure::{self, Failure, FailureParts};
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args as _, Command, FromArgMatches};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use zoneplug_control::{Access, check_socket};
use zoneplug_core::plain;
use zoneplug_host::Specification;
use zoneplug_host::ublk::MAX_ID;
use zoneplug_server::doors::NetworkPlans;
use zoneplug_server::doors::ublk::{BlockDisk, DeviceOptions, Numbers};
use zoneplug_server::{FileOrder, NamedAddress, check_addresses};

/// The flag whose value may also come from the environment.
const LOG_LEVEL: &str = "log-level";
/// The environment variable for that flag.
pub(super) const LOG_VARIABLE: &str = "ZONEPLUG_LOG";

/// How a disk is served as a block device.
#[derive(Debug, Clone, Default, PartialEq, Eq, clap::Args)]
pub(super) struct DeviceArgs {
    /// N of the first /dev/ublkbN; the other disks get the numbers that follow. Without it the next free numbers
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=i64::from(MAX_ID)))]
    pub(super) id: Option<u32>,

    /// The number of queues of a disk; each queue has a thread
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(super) queues: Option<u16>,

    /// The number of requests that a queue has in flight, from 1 to 4096
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub(super) depth: u16,

    /// Have Linux remove the devices when this process dies, instead of keeping them for the next server
    #[arg(long)]
    pub(super) no_recovery: bool,
}

/// A door of the network in a file.
struct NetworkDoor {
    /// The key of the door.
    key: &'static str,
    protocol: &'static str,
    /// An address as an example.
    address: &'static str,
    /// Whether a table has a disk for the door.
    serves: fn(&DiskTable) -> bool,
}

const NVME_TCP: NetworkDoor = NetworkDoor {
    key: "nvme-tcp",
    protocol: "NVMe/TCP",
    address: "127.0.0.1:4420",
    serves: |disk| disk.network,
};
const ISCSI: NetworkDoor = NetworkDoor {
    key: "iscsi",
    protocol: "iSCSI",
    address: "127.0.0.1:3260",
    serves: |disk| disk.iscsi,
};

impl DeviceArgs {
    fn options(&self) -> DeviceOptions {
        let DeviceArgs { id, queues, depth, no_recovery } = *self;
        DeviceOptions { id, queues, depth, no_recovery }
    }
}

/// The settings from flags and file together.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) args: Args,
    pub(super) block: Vec<BlockDisk>,
    /// The path of the file, if there is one.
    pub(super) file: Option<PathBuf>,
    /// The places in the file: of disks by specification, and of keys by name.
    disks: Vec<(Specification, ConfigPlace)>,
    keys: Vec<(String, ConfigPlace)>,
}

/// How clients reach a server, apart from block devices.
#[derive(Debug)]
pub(super) struct ClientAccess {
    /// The disks that are served over the network, and how.
    pub(super) plans: NetworkPlans,
    /// The users that may use the socket.
    pub(super) access: Access,
    /// The address of the metrics.
    pub(super) metrics_at: Option<SocketAddr>,
}

/// The parser of flags and keys together. If a flag of the server requires another one, only this parser refuses it
/// alone: the parser of the command line does not know whether the file has the other one as a key.
fn flags() -> Command {
    let all = Command::new("serve").bin_name("zoneplug serve").no_binary_name(true);
    let all = Args::augment_args(all.disable_help_flag(true));
    MetricsArgs::require(IscsiArgs::require(NetworkArgs::require(all)))
}

/// The failure of a server without disks. `file`: its settings.
fn no_disk(file: Option<&Path>) -> Failure {
    let Some(file) = file else {
        return Failure::usage("zoneplug serve needs a disk")
            .hint("--ublk, --nvme-tcp or --iscsi, and a disk; or --config FILE");
    };
    Failure::usage(format!("{} has no disk", file.display()))
        .hint("[[disk]] with spec = \"disk.zbd\" and ublk = true")
}

/// The parser of the flags of a block device.
fn device_flags() -> Command {
    DeviceArgs::augment_args(Command::new("disk").no_binary_name(true).disable_help_flag(true))
}

/// The words of a flag on a command line: one for each value.
fn words(name: &str, given: &Given) -> Vec<OsString> {
    match given {
        Given::Switch(true) => vec![format!("--{name}").into()],
        Given::Switch(false) => Vec::new(),
        Given::Values(all) => all.iter().map(|v| format!("--{name}={v}").into()).collect(),
    }
}

/// The words of a flag on the actual command line. `None`: the flag is not there.
fn given_as_flag(arg: &Arg, line: &ArgMatches) -> Option<Vec<OsString>> {
    let id = arg.get_id().as_str();
    if line.value_source(id) != Some(ValueSource::CommandLine) {
        return None;
    }
    let flag = OsString::from(format!("--{}", arg.get_long()?));
    if !arg.get_action().takes_values() {
        return Some(vec![flag]);
    }
    let mut all = Vec::new();
    for value in line.get_raw(id).into_iter().flatten() {
        let mut word = flag.clone();
        word.push("=");
        word.push(value);
        all.push(word);
    }
    // The value is optional, and there is none.
    Some(if all.is_empty() { vec![flag] } else { all })
}

/// The value of `--log-level` from the environment, unless the flag is on the line.
fn level_of_environment(arg: &Arg, line: &ArgMatches) -> Option<OsString> {
    let is_free = arg.get_long() == Some(LOG_LEVEL) && given_as_flag(arg, line).is_none();
    std::env::var_os(LOG_VARIABLE).filter(|_| is_free)
}

/// Checks the value from the environment, so that its failure names the variable and no flag or key.
fn check_environment(command: &Command, line: &ArgMatches) -> Result<(), Failure> {
    let level = command.get_arguments().find_map(|arg| level_of_environment(arg, line));
    let Some(level) = level.map(|level| level.to_string_lossy().into_owned()) else {
        return Ok(());
    };
    let Some((why, hint)) = refused_value(command, LOG_LEVEL, &level) else { return Ok(()) };
    let failure = Failure::usage(format!("{LOG_VARIABLE} = {}: {why}", plain(&level)));
    Err(failure.hint(hint.unwrap_or_else(|| "zoneplug serve --help".to_owned())))
}

/// Builds a command line: each flag of `command` comes from `line`, else from the environment, else from the first of
/// `tables` that has it. If a flag on the line excludes a key, the key is left out, unless that flag itself can be no
/// key.
fn merged(command: &Command, line: &ArgMatches, tables: &[&[Entry]]) -> Vec<OsString> {
    let mut all = Vec::new();
    for arg in command.get_arguments() {
        let Some(name) = arg.get_long() else { continue };
        if let Some(words) = given_as_flag(arg, line) {
            all.extend(words);
            continue;
        }
        let on_line =
            |a: &&Arg| line.value_source(a.get_id().as_str()) == Some(ValueSource::CommandLine);
        // If the excluding flag is no key, both are kept, and the parser refuses them.
        let is_key = |a: &&Arg| a.get_long().is_some_and(|name| !FLAGS_ONLY.contains(&name));
        let mut excluding = command.get_arg_conflicts_with(arg).into_iter();
        let excluded = excluding.any(|a| on_line(&a) && is_key(&a));
        if let Some(level) = level_of_environment(arg, line) {
            let mut word = OsString::from(format!("--{name}="));
            word.push(level);
            all.push(word);
        } else if !excluded {
            let found = tables.iter().find_map(|t| t.iter().find(|e| e.name == name));
            all.extend(found.into_iter().flat_map(|e| words(name, &e.given)));
        }
    }
    all
}

/// A failure that names keys of the file in place of flags.
fn with_key_names(failure: &Failure) -> Failure {
    let FailureParts { kind, what, hint } = failure.parts();
    let keyed = Failure::new(kind, in_keys(what)).hint(in_keys(hint));
    match failure.disk() {
        Some(disk) => keyed.of_disk(disk),
        None => keyed,
    }
}

/// Whether a text has this flag, and not only a longer one that begins with its name.
fn names_flag(text: &str, name: &str) -> bool {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-';
    text.split("--").skip(1).any(|t| t.split(|c| !is_name(c)).next() == Some(name))
}

/// Replaces flags in a text by keys of the file: `--key WORD` by `key = "WORD"`, a switch by `key = true`, and the flag of
/// clap's errors, `'--key <WORD>'`, by `key`. A WORD begins with a capital letter or a digit; any other word belongs to
/// the sentence.
fn in_keys(text: &str) -> String {
    let flags = flags();
    let keys = flag_keys(&flags);
    let mut said = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("--") {
        said.push_str(&rest[..at]);
        rest = &rest[at + 2..];
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-';
        let (name, after) = rest.split_at(rest.find(|c| !is_name(c)).unwrap_or(rest.len()));
        let Some(key) = keys.iter().find(|a| a.get_long() == Some(name)) else {
            said.push_str("--");
            continue;
        };
        if said.ends_with('\'')
            && let Some(end) = after.find('\'')
        {
            said.pop();
            said.push_str(name);
            rest = &after[end + 1..];
            continue;
        }
        said.push_str(name);
        rest = after;
        if let Some(placeholder) = after.strip_prefix(" <") {
            rest = placeholder.find('>').map_or("", |end| &placeholder[end + 1..]);
            rest = rest.strip_prefix(" [SPEC]...").unwrap_or(rest);
            continue;
        }
        let value = after.strip_prefix(' ').map(|t| t.split([' ', ';', ',', ')']).next());
        let is_value = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit();
        match value.flatten().filter(|v| v.starts_with(is_value)) {
            _ if !key.get_action().takes_values() => said.push_str(" = true"),
            Some(value) => {
                said.push_str(&format!(" = \"{value}\""));
                rest = &after[1 + value.len()..];
            }
            None => {}
        }
    }
    said + rest
}

impl Settings {
    /// Reads the file that `args` names, if any, and merges it with the flags in `line`, which take precedence.
    pub(super) fn read(args: &Args, line: &ArgMatches) -> Result<Settings, Failure> {
        let named_twice =
            || Failure::usage("--check-config and --config both name a file").hint("one of them");
        let file = match (&args.config, args.check_config.iter().flatten().next()) {
            (Some(_), Some(_)) => return Err(named_twice()),
            (file, checked) => file.as_ref().or(checked),
        };
        let (top, of_disk) = (flags(), device_flags());
        let read = match file {
            Some(path) => ConfigFile::read(path, &top, &of_disk)?,
            None => ConfigFile::default(),
        };
        check_environment(&top, line)?;
        // Failures are not attributed to a key that a flag overrides.
        let on_line = |e: &&Entry| {
            let mut flags = top.get_arguments().filter(|a| a.get_long() == Some(&e.name));
            flags.any(|a| given_as_flag(a, line).is_some())
        };
        let keys = read.keys.iter().filter(|e| !on_line(e));
        let keys = keys.map(|e| (e.name.clone(), e.place.clone())).collect();
        let mut settings = Settings {
            args: args.clone(),
            block: Vec::new(),
            file: file.cloned(),
            disks: read.disks.iter().map(|d| (d.spec.clone(), d.place.clone())).collect(),
            keys,
        };
        let parsed = top.clone().try_get_matches_from(merged(&top, line, &[&read.keys]));
        let parsed = parsed.and_then(|m| Args::from_arg_matches(&m));
        settings.args = parsed.map_err(|e| settings.refused(&e, line))?;
        // Disks on the command line replace those of the file.
        let named = [&args.ublk, &args.network.nvme_tcp, &args.scsi.iscsi];
        if named.iter().any(|values| !values.is_empty()) {
            let device = &settings.args.device;
            let served = |spec: &String| -> Result<_, Failure> {
                Ok(BlockDisk { spec: spec.parse()?, device: device.options(), own_id: false })
            };
            settings.block = args.ublk.iter().map(served).collect::<Result<_, _>>()?;
            settings.args.network.nvme_tcp.clone_from(&args.network.nvme_tcp);
            settings.args.scsi.iscsi.clone_from(&args.scsi.iscsi);
            settings.disks.clear();
            return Ok(settings);
        }
        for disk in read.disks.iter().filter(|d| d.ublk) {
            let words = merged(&of_disk, line, &[&disk.keys, &read.keys]);
            let parsed = of_disk.clone().try_get_matches_from(words);
            let parsed = parsed.and_then(|m| DeviceArgs::from_arg_matches(&m));
            let device = parsed.map_err(|e| settings.refused(&e, line))?;
            // `--id` on the command line counts from the first disk on, so it overrides the ids of disks.
            let own_id = args.device.id.is_none() && disk.keys.iter().any(|e| e.name == "id");
            settings.block.push(BlockDisk {
                spec: disk.spec.clone(),
                device: device.options(),
                own_id,
            });
        }
        settings.args.network.of_file =
            settings.over_network(&read, &NVME_TCP, &settings.args.network.nvme_tcp)?;
        settings.args.scsi.of_file =
            settings.over_network(&read, &ISCSI, &settings.args.scsi.iscsi)?;
        if read.disks.is_empty() {
            return Err(no_disk(file.map(PathBuf::as_path)));
        }
        Ok(settings)
    }

    /// The disks that the file serves by a door. Fails if there are disks and no addresses, or addresses and no disk.
    fn over_network(
        &self,
        read: &ConfigFile,
        door: &NetworkDoor,
        addresses: &[String],
    ) -> Result<Vec<Specification>, Failure> {
        let NetworkDoor { key, protocol, address, serves } = *door;
        let mut disks = read.disks.iter().filter(|d| serves(d)).peekable();
        if addresses.is_empty() {
            return match disks.peek() {
                None => Ok(Vec::new()),
                Some(d) => {
                    let what = format!("{key} = true, and no address to serve it at");
                    let hint = format!("{key} = \"{address}\" above the first [[disk]]");
                    Err(Failure::usage(what).hint(hint).at(&d.place))
                }
            };
        }
        let none = || {
            let hint = format!("{key} = true below [[disk]], or no address");
            let what = format!("an address for {protocol}, and no disk is served there");
            let failure = Failure::usage(what).hint(hint);
            match self.keys.iter().find(|(n, _)| n == key) {
                None => failure,
                Some((_, place)) => failure.at(place),
            }
        };
        disks.peek().ok_or_else(none)?;
        Ok(disks.map(|d| d.spec.clone()).collect())
    }

    /// The failure of the merged command line, at the place of its key. `line` without the file fails in the same way
    /// if no key takes part; then the failure names flags.
    fn refused(&self, e: &clap::Error, line: &ArgMatches) -> Failure {
        let flags = flags();
        let cli = Command::new("zoneplug").subcommand(flags.clone());
        let failure = failure::from_clap(e, &cli);
        let Some(file) = &self.file else { return failure };
        let what = failure.parts().what;
        let alone = flags.clone().try_get_matches_from(merged(&flags, line, &[])).err();
        if alone.is_some_and(|a| failure::from_clap(&a, &cli).parts().what == what) {
            return failure;
        }
        let named = self.keys.iter().find(|(name, _)| names_flag(what, name));
        let mut keyed = with_key_names(&failure);
        if keyed.parts().hint.contains("--help") {
            keyed = keyed.hint(match e.kind() {
                ErrorKind::ArgumentConflict => "one of the two keys",
                _ => "docs/serve-config.md has all keys",
            });
        }
        match named {
            Some((_, place)) => keyed.at(place),
            None => keyed.before(&format!("{}: ", file.display())),
        }
    }

    /// Adds to a failure of a disk where the file names that disk.
    pub(super) fn placed(&self, failure: Failure) -> Failure {
        let Some(spec) = failure.disk().map(str::to_owned) else { return failure };
        let found = self.disks.iter().find(|(s, _)| **s == *spec);
        let Some((spec, place)) = found else { return failure };
        let is_missing = |path: &Path| path.is_relative() && !path.exists();
        let failure = match std::env::current_dir() {
            Ok(here) if spec.paths().any(is_missing) => {
                let hint = failure.parts().hint.to_owned();
                let here = here.display().to_string();
                let hint = format!(
                    "{hint}. A relative path begins at the working directory, here {}",
                    plain(&here)
                );
                failure.hint(hint)
            }
            _ => failure,
        };
        failure.at(place)
    }

    /// Adds to a failure where the file has this key, if it has it.
    fn at_key(&self, name: &str, failure: Failure) -> Failure {
        let found = self.keys.iter().find(|(n, _)| n == name).map(|(_, place)| place.clone());
        match found {
            Some(place) => with_key_names(&failure).at(&place),
            None => failure,
        }
    }

    /// Parses and checks how clients reach the server, apart from block devices.
    pub(super) fn client_access(&self) -> Result<ClientAccess, Failure> {
        let placed = |(key, f)| self.at_key(key, f);
        let times = self.args.measured.times();
        let nvme_tcp = self.args.network.plan(times).map_err(placed)?;
        let plans = NetworkPlans { nvme_tcp, iscsi: self.args.scsi.plan(times).map_err(placed)? };
        let access = self.args.access.access().map_err(placed)?;
        let metrics_at = self.args.measured.address().map_err(|f| self.at_key("metrics", f))?;
        if let Some(path) = &self.args.socket {
            check_socket(path).map_err(|f| self.at_key("socket", f))?;
        }
        let all: Vec<_> = plans
            .addresses()
            .chain(metrics_at.map(|address| NamedAddress { key: "metrics", address }))
            .collect();
        check_addresses(&all).map_err(placed)?;
        Ok(ClientAccess { plans, access, metrics_at })
    }

    /// The index of each disk in the file.
    pub(super) fn order(&self) -> FileOrder<'_> {
        self.disks.iter().enumerate().map(|(n, (spec, _))| (&**spec, n)).collect()
    }

    /// The numbers of the devices, from `--id` on.
    pub(super) fn numbers(&self) -> Numbers {
        Numbers(self.args.device.id)
    }
}

#[cfg(test)]
mod tests;
