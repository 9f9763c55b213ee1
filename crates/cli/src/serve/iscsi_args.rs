//! The flags of `zoneplug serve` for iSCSI.

use super::network_args::{AddressedDisks, machine, require_each};
use crate::failure::Failure;
use std::path::{Path, PathBuf};
use zoneplug_core::plain;
use zoneplug_host::Specification;
use zoneplug_host::iscsi::{IscsiOptions, Secret, check_name, read_chap_secret};
use zoneplug_server::doors::iscsi::Plan;

/// Flags of `zoneplug serve` for iSCSI.
#[derive(Debug, Clone, clap::Args)]
#[group(id = "scsi")]
pub(super) struct IscsiArgs {
    /// Serve disks over the network to the iSCSI initiator of any Linux, as SMR disks (ZBC): 127.0.0.1:3260 disk.zbd. Other
    /// machines need --allow-initiator or --chap-secret. Repeat it with other addresses alone for more ways to the same disks
    #[arg(long, num_args = 1.., value_names = ["ADDRESS:PORT", "SPEC"])]
    pub(super) iscsi: Vec<String>,

    /// The disks that the file of settings serves at these addresses.
    #[arg(skip)]
    pub(super) of_file: Vec<Specification>,

    /// The name of the target that --iscsi serves; without it one made of the names of this machine and of the port
    #[arg(long, value_name = "NAME")]
    iqn: Option<String>,

    /// Only initiators with this name may log in (on the initiator: cat /etc/iscsi/initiatorname.iscsi). Repeat it for more
    #[arg(long, value_name = "NAME")]
    allow_initiator: Vec<String>,

    /// Any initiator may log in, from wherever the address is reached
    #[arg(long, conflicts_with = "allow_initiator")]
    allow_any_initiator: bool,

    /// Show only the conventional zones at the beginning of each disk, as a plain disk without zones
    #[arg(long)]
    conventional_only: bool,

    /// An initiator that may log in if it knows the secret in this file (CHAP). Repeat it for more initiators. Without
    /// --allow-initiator no others may
    #[arg(long, value_name = "NAME=FILE")]
    chap_secret: Vec<String>,

    /// The secret by which this server shows initiators who it is, if they ask for that (mutual CHAP)
    #[arg(long, value_name = "FILE")]
    chap_target_secret: Option<PathBuf>,
}

/// Reads `NAME=FILE` and the secret in the file.
fn secret_of_initiator(text: &str) -> Result<(String, Secret), Failure> {
    let (name, file) = text.split_once('=').ok_or_else(|| {
        Failure::usage(format!("{} names no file", plain(text)))
            .hint("--chap-secret NAME=FILE (on the initiator: cat /etc/iscsi/initiatorname.iscsi)")
    })?;
    check_name(name)?;
    Ok((name.to_owned(), read_chap_secret(Path::new(file))?))
}

impl IscsiArgs {
    /// Reads the flags. `None`: no disk is served over iSCSI. A failure comes with the name of its flag.
    pub(super) fn plan(&self, latencies: bool) -> Result<Option<Plan>, (&'static str, Failure)> {
        let of_door = |f| ("iscsi", f);
        let named = AddressedDisks::read("iscsi", "127.0.0.1:3260", &self.iscsi, &self.of_file);
        let Some(AddressedDisks { listen, also_listen, specs }) = named.map_err(of_door)? else {
            return Ok(None);
        };
        let name = match &self.iqn {
            Some(name) => name.clone(),
            None => {
                let machine = machine().to_ascii_lowercase();
                format!("iqn.2026-11.dev.zoneplug:{machine}-{}", listen.port())
            }
        };
        check_name(&name).map_err(|e| ("iqn", e.into()))?;
        for initiator in &self.allow_initiator {
            check_name(initiator).map_err(|e| ("allow-initiator", e.into()))?;
        }
        let secrets = self.chap_secret.iter().map(|text| secret_of_initiator(text));
        let secrets = secrets.collect::<Result<_, _>>().map_err(|f| ("chap-secret", f))?;
        let own = self.chap_target_secret.as_deref().map(read_chap_secret).transpose();
        let own_secret = own.map_err(|e| ("chap-target-secret", e.into()))?;
        let options = IscsiOptions {
            also_listen,
            initiators: Some(self.allow_initiator.clone()).filter(|list| !list.is_empty()),
            any_initiator: self.allow_any_initiator,
            conventional_only: self.conventional_only,
            secrets,
            own_secret,
            latencies,
            ..IscsiOptions::new(listen, &name)
        };
        options.check().map_err(|e| of_door(e.into()))?;
        Ok(Some(Plan::new(options, specs)))
    }

    /// Makes each flag require the address.
    pub(super) fn require(command: clap::Command) -> clap::Command {
        require_each::<Self>(command, |id| (id != "iscsi").then_some("iscsi"))
    }
}
