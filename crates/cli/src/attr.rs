//! `zoneplug attr | zone-wplugs`: what can be seen of the layer, under the names that Linux gives it.

use crate::disk::{Opened, Use};
use crate::failure::Failure;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;

/// Flags of `zoneplug attr`.
#[derive(Debug, clap::Args)]
pub(crate) struct AttrArgs {
    /// The disk
    #[arg(value_name = "DISK")]
    spec: String,

    /// An attribute, by the name of its file in Linux's sysfs; all of them without one
    #[arg(value_name = "NAME")]
    name: Option<String>,

    /// A new value
    #[arg(value_name = "VALUE", requires = "name")]
    value: Option<String>,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Shown {
    value: String,
    writable: bool,
}

/// Lists, shows or sets attributes.
pub(crate) fn attr(args: &AttrArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let opened = Opened::new(&args.spec, Use::Look)?;
    let disk = opened.disk.disk();
    let Some(name) = &args.name else {
        let all = disk.attributes();
        if args.json {
            let map: BTreeMap<&str, Shown> = all
                .into_iter()
                .map(|a| (a.name, Shown { value: a.value, writable: a.writable }))
                .collect();
            serde_json::to_writer_pretty(&mut *out, &map)?;
            return Ok(writeln!(out)?);
        }
        for a in all {
            let rw = if a.writable { "rw" } else { "ro" };
            writeln!(out, "{rw} {:<24} {}", a.name, a.value)?;
        }
        return Ok(());
    };
    if let Some(value) = &args.value {
        let was = disk.attribute(name).unwrap_or_default();
        opened.disk.set_attribute(name, value)?;
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
        return Ok(writeln!(
            out,
            "{name}: {was} -> {value}, for as long as this process has the disk; {key}={value} in a \
             specification sets it for each use"
        )?);
    }
    let Some(value) = disk.attribute(name) else {
        // Its error names those that there are.
        disk.set_attribute(name, "")?;
        return Ok(());
    };
    if args.json {
        serde_json::to_writer(&mut *out, &BTreeMap::from([("name", name), ("value", &value)]))?;
        return Ok(writeln!(out)?);
    }
    Ok(writeln!(out, "{value}")?)
}

/// Flags of `zoneplug zone-wplugs`.
#[derive(Debug, clap::Args)]
pub(crate) struct PlugArgs {
    /// The disk
    #[arg(value_name = "DISK")]
    spec: String,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// The plugs, in the form of Linux's `zone_wplugs`.
pub(crate) fn zone_wplugs(args: &PlugArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let disk = Opened::new(&args.spec, Use::Look)?;
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = disk.disk.disk().zone_wplugs(&mut text);
    if !args.json {
        return Ok(write!(out, "{text}")?);
    }
    let plugs: Vec<BTreeMap<&str, &str>> = text
        .lines()
        .map(|l| l.split(", ").filter_map(|field| field.split_once(": ")).collect())
        .collect();
    serde_json::to_writer(&mut *out, &plugs)?;
    Ok(writeln!(out)?)
}
