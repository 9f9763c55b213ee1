//! `zoneplug attr | zone-wplugs`: the attributes and plugs of a disk, under the names that Linux gives them. The
//! command opens the disk, or asks the process that serves it.

use crate::disk::{Opened, Use};
use crate::failure::{Failure, Kind};
use crate::server_client::{self, AttributeShown, Request, Server};
use crate::suggest::{self, Suggest};
use crate::{csv, json, term};
use clap::builder::StringValueParser;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use zoneplug_control::names::name_of;
use zoneplug_core::disk::find_attribute;
use zoneplug_core::plain;
use zoneplug_core::sched::Policy;
use zoneplug_server::doors::nvme_tcp::is_of_network;

/// The attributes of the single writer's policy and of its wait. Some policies have no effect if the wait is 0.
const POLICY: &str = "zoned_qd1_policy";
const WAIT: &str = "anticipation_us";

/// The hint of an error about a disk that is not served.
const STATUS_HINT: &str = "zoneplug status names the disks that are served";

/// Flags of `zoneplug attr`.
#[derive(Debug, clap::Args)]
pub(crate) struct AttrArgs {
    /// The disk: a specification, or ublkb0 for one that is served
    #[arg(value_name = "DISK")]
    spec: String,

    /// An attribute, by the name of its file in Linux's sysfs, or a shorter alias; without one: all attributes
    #[arg(value_name = "NAME", value_parser = Suggest::new(StringValueParser::new(), suggest::attributes), hide_possible_values = true)]
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

    /// Print a line of comma-separated values for each attribute
    #[arg(long, conflicts_with_all = ["json", "name"])]
    csv: bool,
}

/// An attribute, in JSON and CSV.
#[derive(Debug, Serialize)]
struct Shown {
    value: Value,
    writable: bool,
    /// The unit of the value; empty if it has none.
    unit: &'static str,
    /// The range and the default, if the attribute is also a key of a specification.
    #[serde(skip_serializing_if = "Option::is_none")]
    range: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    default: Option<Value>,
}

impl Shown {
    /// Adds unit, range and default from the table of attributes, which may lack attributes of a server of another
    /// version.
    fn new(a: AttributeShown) -> Shown {
        let info = find_attribute(&a.name);
        let key = info.filter(|i| i.is_key()).map(|i| &i.key);
        Shown {
            value: value_of(&a.value),
            writable: a.writable,
            unit: info.map_or("", |i| i.key.form.unit()),
            range: key.map(|k| k.form.range()),
            default: key.map(|k| value_of(&k.default.to_string())),
        }
    }
}

/// Turns an attribute's text into JSON: a number if it is one, else text.
pub(crate) fn value_of(text: &str) -> Value {
    text.parse::<u64>().map_or_else(|_| Value::from(text), Value::from)
}

/// The process that has the disk open.
enum Target {
    /// This process.
    Own(Box<Opened>),
    /// A server, which serves the disk under this name.
    Live(Server, String),
}

impl Target {
    fn open(disk: &str, socket: Option<&Path>) -> Result<Target, Failure> {
        Ok(match server_client::find(disk, socket)? {
            Some(server) => Target::Live(server, name_of(disk).to_owned()),
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

    /// Sets an attribute. Returns its value before, if the disk is served: the server knows that of the very moment.
    fn set(&mut self, name: &str, value: &str) -> Result<Option<String>, Failure> {
        match self {
            Target::Own(opened) => opened.disk.set_attribute(name, value)?,
            Target::Live(server, disk) => {
                let (disk, name, value) = (disk.clone(), name.to_owned(), value.to_owned());
                let answer = server.ask(&Request::Set { disk, name, value })?;
                return Ok(answer["was"].as_str().map(str::to_owned));
            }
        }
        Ok(None)
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

/// The failure of a command line that has an attribute in place of the disk.
fn no_disk(args: &AttrArgs) -> Failure {
    let words = [&args.name, &args.value].map(|w| w.iter().map(|w| format!(" {w}")).collect());
    let [name, value]: [String; 2] = words;
    Failure::usage(format!("{} is an attribute, and no disk is named before it", args.spec))
        .hint(format!("zoneplug attr DISK {}{name}{value}; {STATUS_HINT}", args.spec))
}

/// Lists, shows or sets attributes.
pub(crate) fn attr(args: &AttrArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let mut target = Target::open(&args.spec, args.socket.as_deref()).map_err(|f| {
        match find_attribute(&args.spec).is_some() || is_of_network(&args.spec) {
            true => no_disk(args),
            false => f,
        }
    })?;
    let all = target.attributes()?;
    let Some(given) = &args.name else {
        if args.json {
            #[derive(Serialize)]
            struct Document<'a> {
                disk: &'a str,
                attributes: BTreeMap<String, Shown>,
            }
            let attributes = all.into_iter().map(|a| (a.name.clone(), Shown::new(a))).collect();
            return json::print(out, &Document { disk: &args.spec, attributes });
        }
        if args.csv {
            out.write_all(csv::line(["name", "value", "writable"]).as_bytes())?;
        }
        for a in all {
            if args.csv {
                let writable = u8::from(a.writable).to_string();
                out.write_all(csv::line([&a.name, &a.value, &writable]).as_bytes())?;
                continue;
            }
            let (name, value) = (plain(&a.name), plain(&a.value));
            let line = match find_attribute(&a.name).filter(|_| a.writable) {
                Some(info) => format!("rw {name:<24} {value:<11}  {}\n", info.key.form.range()),
                None => format!("{} {name:<24} {value}\n", if a.writable { "rw" } else { "ro" }),
            };
            term::print(out, &line)?;
        }
        return Ok(());
    };
    let name = find_attribute(given).map_or(given.as_str(), |a| a.key.name);
    let found = |name: &str| all.iter().find(|a| a.name == name).map(|a| a.value.clone());
    let was = found(name);
    if was.is_none() && is_of_network(name) && found("enable").is_none() {
        let what = format!(
            "{} has no attribute {name}, which disks have that are served over NVMe/TCP",
            plain(&args.spec)
        );
        return Err(Failure::new(Kind::Device, what).hint(format!(
            "the name of such a disk: zoneplug attr tcp4420n1 {name}; {STATUS_HINT}"
        )));
    }
    if let Some(value) = &args.value {
        let was = target.set(name, value)?.or(was);
        let now = |other: &str| match name == other {
            true => Some(value.clone()),
            false => found(other),
        };
        if [POLICY, WAIT].contains(&name)
            && now(WAIT).as_deref() == Some("0")
            && let Some(policy) = now(POLICY).and_then(|p| Policy::from_name(&p))
            && let Some(text) = policy.never_waits()
        {
            term::note(&text);
        }
        let was = was.unwrap_or_default();
        if args.json {
            return json::print(out, &one(args, name, value, Some(&was)));
        }
        let holder = match target {
            Target::Own(_) => "this process has the disk",
            Target::Live(..) => "the disk is served",
        };
        let mut line = format!("{name}: {} -> {value}, for as long as {holder}", plain(&was));
        // An attribute that the table lacks belongs to a server, and a specification cannot set it.
        if find_attribute(name).is_some() {
            line += &format!("; {name}={value} in a specification sets it for each use");
        }
        line.push('\n');
        return term::print(out, &line);
    }
    let Some(value) = was else {
        // The error of the look-up lists the attributes that exist.
        return target.set(name, "").map(drop);
    };
    if args.json {
        return json::print(out, &one(args, name, &value, None));
    }
    Ok(writeln!(out, "{}", plain(&value))?)
}

/// The JSON document of one attribute. `was` is the old value, if the command has set a new one.
#[derive(Serialize)]
struct OneAttribute<'a> {
    disk: &'a str,
    name: &'a str,
    value: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    was: Option<Value>,
}

fn one<'a>(args: &'a AttrArgs, name: &'a str, value: &str, was: Option<&str>) -> OneAttribute<'a> {
    OneAttribute { disk: &args.spec, name, value: value_of(value), was: was.map(value_of) }
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
            term::print(out, &format!("{}\n", plain(line)))?;
        }
        return Ok(());
    }
    #[derive(Serialize)]
    struct Document<'a> {
        disk: &'a str,
        plugs: Vec<BTreeMap<String, Value>>,
    }
    let plugs = text.lines().map(plug).collect();
    json::print(out, &Document { disk: &args.spec, plugs })
}

/// A line of `zone_wplugs` as JSON: decimal and `0x` numbers become numbers; lengths are in sectors.
fn plug(line: &str) -> BTreeMap<String, Value> {
    let fields = line.split(", ").filter_map(|field| field.split_once(": "));
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).map_or_else(|_| Value::from(text), Value::from),
        None => match value_of(text) {
            Value::String(word) => Value::from(json::key(&word)),
            number => number,
        },
    };
    let named = |name: &str| match json::key(name).as_str() {
        "zone_no" => "zone".to_owned(),
        "wp_ofst" => "write_pointer_offset_sectors".to_owned(),
        "pending_bio" => "pending_bios".to_owned(),
        "ref" => "references".to_owned(),
        "cond" => "condition".to_owned(),
        other => other.to_owned(),
    };
    fields.map(|(name, value)| (named(name), number(value))).collect()
}
