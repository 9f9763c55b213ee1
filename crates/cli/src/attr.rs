//! `zoneplug attr | zone-wplugs`: what can be seen of the layer, under the names that Linux gives it; of a disk that is opened for
//! the command, or of one that another process serves.

use crate::disk::{Opened, Use};
use crate::failure::Failure;
use crate::live::{self, AttributeShown, Request, Server};
use crate::modelled::never_waits;
use crate::plain::plain;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use zoneplug_core::sched::Policy;

/// The single writer's policy, and how long it may wait: some policies do nothing without a wait.
const POLICY: &str = "zoned_qd1_policy";
const WAIT: &str = "anticipation_us";

/// Flags of `zoneplug attr`.
#[derive(Debug, clap::Args)]
pub(crate) struct AttrArgs {
    /// The disk: a specification, or ublkb0 for one that is served
    #[arg(value_name = "DISK")]
    spec: String,

    /// An attribute, by the name of its file in Linux's sysfs; all of them without one
    #[arg(value_name = "NAME")]
    name: Option<String>,

    /// A new value
    #[arg(value_name = "VALUE", requires = "name")]
    value: Option<String>,

    /// The socket of the server, if the disk is served and the socket is not in /run/zoneplug
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Shown {
    value: String,
    writable: bool,
}

/// Where the layer is that is looked at.
enum Target {
    /// In this process.
    Own(Box<Opened>),
    /// In another, by this name.
    Live(Server, String),
}

impl Target {
    fn open(disk: &str, socket: Option<&Path>) -> Result<Target, Failure> {
        Ok(match live::find(disk, socket)? {
            Some(server) => Target::Live(server, live::name_of(disk).to_owned()),
            None => Target::Own(Box::new(Opened::new(disk, Use::Look)?)),
        })
    }

    fn attributes(&mut self) -> Result<Vec<AttributeShown>, Failure> {
        match self {
            Target::Own(opened) => {
                Ok(opened.disk.disk().attributes().iter().map(AttributeShown::of).collect())
            }
            Target::Live(server, disk) => {
                let all = server.ask(&Request::Attributes { disk: disk.clone() })?;
                Ok(serde_json::from_value(all)?)
            }
        }
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), Failure> {
        match self {
            Target::Own(opened) => opened.disk.set_attribute(name, value)?,
            Target::Live(server, disk) => {
                let (disk, name, value) = (disk.clone(), name.to_owned(), value.to_owned());
                server.ask(&Request::Set { disk, name, value })?;
            }
        }
        Ok(())
    }

    fn plugs(&mut self) -> Result<String, Failure> {
        match self {
            Target::Own(opened) => {
                let mut text = String::new();
                // Writing to a string does not fail.
                let _ = opened.disk.disk().zone_wplugs(&mut text);
                Ok(text)
            }
            Target::Live(server, disk) => {
                let text = server.ask(&Request::ZoneWplugs { disk: disk.clone() })?;
                Ok(serde_json::from_value(text)?)
            }
        }
    }
}

/// Lists, shows or sets attributes.
pub(crate) fn attr(args: &AttrArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let mut target = Target::open(&args.spec, args.socket.as_deref())?;
    let all = target.attributes()?;
    let Some(name) = &args.name else {
        if args.json {
            let map: BTreeMap<String, Shown> = all
                .into_iter()
                .map(|a| (a.name, Shown { value: a.value, writable: a.writable }))
                .collect();
            serde_json::to_writer_pretty(&mut *out, &map)?;
            return Ok(writeln!(out)?);
        }
        for a in all {
            let rw = if a.writable { "rw" } else { "ro" };
            writeln!(out, "{rw} {:<24} {}", plain(&a.name), plain(&a.value))?;
        }
        return Ok(());
    };
    let value_of = |name: &str| all.iter().find(|a| a.name == name).map(|a| a.value.clone());
    let was = value_of(name);
    if let Some(value) = &args.value {
        target.set(name, value)?;
        let is = |other: &str| match name == other {
            true => Some(value.clone()),
            false => value_of(other),
        };
        if [POLICY, WAIT].contains(&name.as_str())
            && is(WAIT).as_deref() == Some("0")
            && let Some(policy) = is(POLICY).and_then(|p| Policy::from_name(&p))
            && let Some(text) = never_waits(policy)
        {
            eprintln!("zoneplug: {text}");
        }
        let was = was.unwrap_or_default();
        if args.json {
            let map = BTreeMap::from([("name", name.as_str()), ("was", &was), ("value", value)]);
            serde_json::to_writer(&mut *out, &map)?;
            return Ok(writeln!(out)?);
        }
        let key = match name.as_str() {
            "strict_management" => "strict".to_owned(),
            "zoned_qd1_writes" => "qd1".to_owned(),
            "zoned_qd1_policy" => "policy".to_owned(),
            other => other.replace('_', "-"),
        };
        let holder = match target {
            Target::Own(_) => "this process has the disk",
            Target::Live(..) => "the disk is served",
        };
        return Ok(writeln!(
            out,
            "{name}: {} -> {value}, for as long as {holder}; {key}={value} in a \
             specification sets it for each use",
            plain(&was)
        )?);
    }
    let Some(value) = was else {
        // Its error names those that there are.
        return target.set(name, "");
    };
    if args.json {
        serde_json::to_writer(&mut *out, &BTreeMap::from([("name", name), ("value", &value)]))?;
        return Ok(writeln!(out)?);
    }
    Ok(writeln!(out, "{}", plain(&value))?)
}

/// Flags of `zoneplug zone-wplugs`.
#[derive(Debug, clap::Args)]
pub(crate) struct PlugArgs {
    /// The disk: a specification, or ublkb0 for one that is served
    #[arg(value_name = "DISK")]
    spec: String,

    /// The socket of the server, if the disk is served and the socket is not in /run/zoneplug
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// The plugs, in the form of Linux's `zone_wplugs`.
pub(crate) fn zone_wplugs(args: &PlugArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let text = Target::open(&args.spec, args.socket.as_deref())?.plugs()?;
    if !args.json {
        for line in text.lines() {
            writeln!(out, "{}", plain(line))?;
        }
        return Ok(());
    }
    let plugs: Vec<BTreeMap<&str, &str>> = text
        .lines()
        .map(|l| l.split(", ").filter_map(|field| field.split_once(": ")).collect())
        .collect();
    serde_json::to_writer(&mut *out, &plugs)?;
    Ok(writeln!(out)?)
}
