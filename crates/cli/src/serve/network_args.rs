//! The flags of `zoneplug serve` for the network.

use crate::failure::Failure;
use crate::server_client::DIRECTORY;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use zoneplug_core::plain;
use zoneplug_host::Specification;
use zoneplug_host::nvme_tcp::{DhGroup, Key, NvmeTcpOptions, read_key, usual_records};
use zoneplug_server::doors::nvme_tcp::Plan;

/// Flags of `zoneplug serve` for the network.
#[derive(Debug, Clone, clap::Args)]
#[group(id = "network")]
pub(super) struct NetworkArgs {
    /// Serve disks over the network to the NVMe/TCP initiator of any Linux: 127.0.0.1:4420 po2@disk.zbd. Other machines
    /// need --allow-host or --dhchap-key. Repeat it with other addresses alone for more ways to the same disks
    #[arg(long, num_args = 1.., value_names = ["ADDRESS:PORT", "SPEC"])]
    pub(super) nvme_tcp: Vec<String>,

    /// The disks that the file of settings serves at these addresses.
    #[arg(skip)]
    pub(super) of_file: Vec<Specification>,

    /// The NVMe name of what --nvme-tcp serves; without it one made of the names of this machine and of the port
    #[arg(long, value_name = "NQN")]
    nqn: Option<String>,

    /// Only hosts with this name may connect (on the host: cat /etc/nvme/hostnqn). Repeat it for more hosts
    #[arg(long, value_name = "NQN")]
    allow_host: Vec<String>,

    /// Any host may connect, from wherever the address is reached
    #[arg(long, conflicts_with = "allow_host")]
    allow_any_host: bool,

    /// A host that may connect if it knows the key in this file, as nvme gen-dhchap-key writes it. Repeat it for more hosts.
    /// Without --allow-host no others may
    #[arg(long, value_name = "NQN=FILE")]
    dhchap_key: Vec<String>,

    /// The key by which this server shows hosts who it is, if they ask for that
    #[arg(long, value_name = "FILE")]
    dhchap_ctrl_key: Option<PathBuf>,

    /// The weakest Diffie-Hellman group that a host may use with its key: null, ffdhe2048, 3072, 4096, 6144 or 8192
    #[arg(long, value_name = "GROUP", default_value_t)]
    dhchap_dhgroup: DhGroup,
}

/// The values of a flag for the network: an address, the disks that are served there, and further addresses.
pub(super) struct AddressedDisks {
    pub(super) listen: SocketAddr,
    pub(super) also_listen: Vec<SocketAddr>,
    pub(super) specs: Vec<Specification>,
}

impl AddressedDisks {
    /// Reads the values of `--flag`. `usual`: an address as an example. `of_file`: disks that were read before, from the file of
    /// settings; then all values are addresses. `None`: there are no values.
    pub(super) fn read(
        flag: &str,
        usual: &str,
        values: &[String],
        of_file: &[Specification],
    ) -> Result<Option<AddressedDisks>, Failure> {
        let [first, rest @ ..] = values else { return Ok(None) };
        let port = usual.rsplit(':').next().unwrap_or_default();
        let address = |text: &String| {
            text.parse::<SocketAddr>().map_err(|_| {
                Failure::usage(format!("{} is no address with a port", plain(text)))
                    .hint(format!("--{flag} {usual} SPEC, or [::1]:{port}"))
            })
        };
        let listen = address(first)?;
        // An address is never a specification, so disks end where the next address is.
        let more = match of_file {
            [] => rest.iter().position(|text| text.parse::<SocketAddr>().is_ok()),
            [..] => Some(0),
        };
        let (specs, more) = rest.split_at(more.unwrap_or(rest.len()));
        if specs.is_empty() && of_file.is_empty() {
            let failure = Failure::usage(format!("--{flag} {listen} names no disk"));
            let hint = format!("--{flag} {listen} <SPEC>; further addresses come after it");
            return Err(failure.hint(hint));
        }
        let also_listen = more.iter().map(|text| {
            address(text).map_err(|_| {
                Failure::usage(format!("{} follows the second address", plain(text)))
                    .hint("disks after the first address: each address shows all of them")
            })
        });
        let also_listen = also_listen.collect::<Result<_, _>>()?;
        let given = specs.iter().map(|text| text.parse()).collect::<Result<Vec<_>, _>>();
        let given = given.map_err(|e: zoneplug_core::Error| Failure::from(e))?;
        let specs = [of_file, &given].concat();
        Ok(Some(AddressedDisks { listen, also_listen, specs }))
    }
}

impl NetworkArgs {
    /// Reads the flags. `None`: no disk is served over the network. A failure comes with the name of its flag.
    pub(super) fn plan(&self, latencies: bool) -> Result<Option<Plan>, (&'static str, Failure)> {
        let of_network = |f| ("nvme-tcp", f);
        let named =
            AddressedDisks::read("nvme-tcp", "127.0.0.1:4420", &self.nvme_tcp, &self.of_file);
        let Some(AddressedDisks { listen, also_listen, specs }) = named.map_err(of_network)? else {
            return Ok(None);
        };
        let nqn = match &self.nqn {
            Some(nqn) => nqn.clone(),
            None => format!("nqn.2026-11.dev.zoneplug:{}-{}", machine(), listen.port()),
        };
        let hosts = Some(self.allow_host.clone()).filter(|list| !list.is_empty());
        // Names are checked by themselves first, so that an error is attributed to their key.
        let named = NvmeTcpOptions { any_host: true, ..NvmeTcpOptions::new(listen, &nqn) };
        named.check().map_err(|e| ("nqn", e.into()))?;
        if hosts.is_some() {
            let named = NvmeTcpOptions { any_host: false, hosts: hosts.clone(), ..named };
            named.check().map_err(|e| ("allow-host", e.into()))?;
        }
        let keys = self.dhchap_key.iter().map(|text| key_of_host(text));
        let keys = keys.collect::<Result<_, _>>().map_err(|f| ("dhchap-key", f))?;
        let own = self.dhchap_ctrl_key.as_deref().map(read_key).transpose();
        let own = own.map_err(|e| ("dhchap-ctrl-key", e.into()))?;
        let options = NvmeTcpOptions {
            also_listen,
            hosts,
            any_host: self.allow_any_host,
            dhchap_keys: keys,
            dhchap_ctrl_key: own,
            dhchap_dhgroup: self.dhchap_dhgroup,
            // The directory does not depend on --socket, so that a restarted server with another socket finds it. It
            // is in memory.
            records: usual_records(Path::new(DIRECTORY)),
            latencies,
            ..NvmeTcpOptions::new(listen, &nqn)
        };
        options.check().map_err(|e| of_network(e.into()))?;
        Ok(Some(Plan::new(options, specs)))
    }

    /// Makes each flag require the one that it refers to: an address, or a key.
    pub(super) fn require(command: clap::Command) -> clap::Command {
        require_each::<Self>(command, |id| match id {
            "nvme_tcp" => None,
            "dhchap_dhgroup" => Some("dhchap_key"),
            _ => Some("nvme_tcp"),
        })
    }
}

/// Makes each flag of `Flags` require another one: the flag that `needed` returns for its id.
pub(super) fn require_each<Flags: clap::Args>(
    command: clap::Command,
    needed: impl Fn(&str) -> Option<&'static str>,
) -> clap::Command {
    let own = Flags::augment_args(clap::Command::new("flags"));
    own.get_arguments().map(clap::Arg::get_id).fold(command, |command, id| {
        match needed(id.as_str()) {
            Some(needed) => command.mut_arg(id.clone(), |arg| arg.requires(needed)),
            None => command,
        }
    })
}

/// The name of this machine, without characters that names of subsystems and targets cannot have.
pub(super) fn machine() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let plain = |c: &char| c.is_ascii_alphanumeric() || ".-".contains(*c);
    let name: String = name.trim().chars().filter(plain).take(64).collect();
    if name.is_empty() { "localhost".to_owned() } else { name }
}

/// Reads `NQN=FILE` and the key in the file.
fn key_of_host(text: &str) -> Result<(String, Key), Failure> {
    let (nqn, file) = text.split_once('=').ok_or_else(|| {
        Failure::usage(format!("{} names no file", plain(text)))
            .hint("--dhchap-key NQN=FILE (on the host: cat /etc/nvme/hostnqn)")
    })?;
    Ok((nqn.to_owned(), read_key(Path::new(file))?))
}
