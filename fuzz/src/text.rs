//! Texts from outside: device specifications, faults, numbers with units, block traces. What can be read is shown as it is read;
//! what cannot is explained.

use crate::explained;
use zoneplug_core::Op;
use zoneplug_core::disk::TAGS;
use zoneplug_core::form::{Form, Time, parse_size, parse_time};
use zoneplug_core::{Bytes, Error, Nanos};
use zoneplug_devices::emu::EmuConfig;
use zoneplug_devices::spec::Spec;
use zoneplug_devices::stack::FaultPlan;
use zoneplug_host::{DiskSpec, Specification, take_config};
use zoneplug_models::time::trace::{Columns, Events, Reader};
use zoneplug_sim::Steps;

/// The text of faults: read, shown and read again it is the same.
pub fn fault_text(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match text.parse::<FaultPlan>() {
        Ok(plan) => {
            let shown = plan.to_string();
            assert_eq!(shown.parse::<FaultPlan>().expect(&shown), plan, "{text}");
            assert!(
                !shown.contains([',', ':']),
                "commas are a specification's, colons fio's: {shown}"
            );
        }
        Err(e) => explained(&e),
    }
}

/// A device specification: what can be read is printed as it is read, and that of an emulated disk can be opened.
pub fn device_spec(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match Specification::parse(text) {
        Ok(spec) => {
            let canonical = spec.canonical();
            let again = Specification::parse(&canonical).expect(&canonical);
            assert_eq!(again.root(), canonical.root(), "{text} as {canonical}");
            assert_eq!(again.canonical(), canonical, "{text}");
        }
        Err(e) => explained(&e),
    }
    let device = |text: &str| -> Result<EmuConfig, Error> {
        let mut spec = Spec::parse(text)?;
        // The keys of the disk, which `DiskSpec` reads.
        take_config(&mut spec)?;
        spec.take(&TAGS)?;
        spec.take_as("fault", &Form::Text("faults"))?;
        let config = EmuConfig::from_spec(&mut spec)?;
        spec.finish()?;
        Ok(config)
    };
    let config = match device(text) {
        Ok(config) => config,
        Err(e) => return explained(&e),
    };
    let shown = config.to_string();
    assert_eq!(shown.parse::<EmuConfig>().expect(&shown), config, "{text}");
    // Large disks take time to make, which is not what is looked for.
    if config.geometry.nr_zones() <= 1024 {
        match DiskSpec::parse(text) {
            Ok(disk) => assert_eq!(*disk.device.geometry(), config.geometry, "{text}"),
            Err(e) => explained(&e),
        }
    }
}

/// Sizes, times and lists of steps.
pub fn numbers(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Some(n) = parse_size(text) {
        let shown = Bytes(n).to_string();
        assert_eq!(parse_size(&shown), Some(n), "{text} is shown as {shown}");
    }
    if let Some(n) = parse_time(text) {
        let shown = Time(Nanos(n)).to_string();
        assert_eq!(parse_time(&shown), Some(n), "{text} is shown as {shown}");
    }
    match text.parse::<Steps>() {
        Ok(steps) => {
            let shown = steps.to_string();
            assert_eq!(shown.parse::<Steps>().expect(&shown), steps, "{text}");
        }
        Err(e) => assert!(!e.is_empty()),
    }
}

/// A block trace, binary or as text, in one file or in two, also as a table with columns of these names: operations in the order of their times, each of a place that a
/// disk could have, or an error with help.
pub fn trace_text(data: &[u8]) {
    let (first, second) = data.split_at(data.len() / 2);
    let columns = Columns::parse("time_100ns,-,device,op,offset,length").expect("columns");
    for (files, events, columns) in [
        (vec![data], Events::Queued, None),
        (vec![data], Events::Issued, None),
        (vec![first, second], Events::Queued, None),
        (vec![data], Events::Queued, Some(&columns)),
    ] {
        let trace = Reader::of_files(files, events, None);
        let trace = trace.and_then(|t| match columns {
            Some(columns) => t.with_columns(columns),
            None => Ok(t),
        });
        let mut trace = match trace {
            Ok(trace) => trace,
            Err(e) => {
                explained(&e);
                continue;
            }
        };
        let (mut at, mut line) = (Nanos(0), 0);
        loop {
            match trace.next_event() {
                Ok(Some(e)) => {
                    // Operations are sorted by time, and those of one time by line.
                    let is_next = e.at > at || e.line > line || trace.seen().late > 0;
                    assert!(e.at >= at && is_next, "{e:?} after line {line}");
                    let is_bare = e.op == Op::Flush || e.op.is_zone_management();
                    assert!(e.sectors > 0 || is_bare, "{e:?}");
                    assert!(
                        e.sector.checked_add(e.sectors).is_some_and(|end| end < 1 << 56),
                        "{e:?}"
                    );
                    (at, line) = (e.at, e.line);
                }
                Ok(None) => break,
                Err(e) => break explained(&e),
            }
        }
        let seen = trace.seen();
        assert!(seen.bytes <= data.len() as u64 && seen.unknown <= seen.lines, "{seen:?}");
    }
}
