//! Opens the disks to serve. Disks of another server are opened from its open files. All other disks are opened
//! before that server is asked to leave, so that errors show in time.

use crate::config::OpenSpec;
use crate::door::Door;
use crate::error::ServeError;
use crate::inherited::Inherited;
use crate::open_disks::OpenDisks;
use crate::served::{OpenDisk, Origin, PassedDisk};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use zoneplug_control::Failure;
use zoneplug_control::client::IoShown;
use zoneplug_core::Nanos;
use zoneplug_host::{DiskMark, HostedDisk, Specification, file};

/// The specifications of all disks to serve.
fn specs(doors: &[Box<dyn Door>]) -> impl Iterator<Item = &Specification> {
    doors.iter().flat_map(|door| door.specs())
}

/// The files of a disk that this server would open for writing, without those that another server passes on. Drives
/// are left out: opening a drive reports its errors and changes nothing on it.
fn own_files<'a>(spec: &'a Specification, inherited: &Inherited) -> impl Iterator<Item = &'a Path> {
    let is_passed_on = inherited.has(spec);
    spec.writes_to().filter(move |path| !is_passed_on && path.is_file())
}

/// Checks that traces can be made, and that disks can be opened that no server passes on. Opening changes a file, and
/// a failed start must change none.
pub(crate) fn check(doors: &[Box<dyn Door>], inherited: &Inherited) -> Result<(), Failure> {
    let mut traces: HashMap<PathBuf, &Specification> = HashMap::new();
    specs(doors).try_for_each(|spec| {
        for file in spec.trace_files().map_err(|e| Failure::from(e).of_disk(spec))? {
            let path = file.display().to_string();
            match traces.insert(file, spec) {
                Some(other) if other != spec => {
                    let (disk, other) = (spec.to_string(), other.to_string());
                    let failure = Failure::from(ServeError::TraceTwice { path, disk, other });
                    return Err(failure.of_disk(spec));
                }
                _ => {}
            }
        }
        let checked = spec
            .check_traces(inherited.has(spec))
            .and_then(|()| own_files(spec, inherited).try_for_each(file::check_writable));
        checked.map_err(|e| Failure::from(e).of_disk(spec))
    })
}

/// Checks that no other process has a file open for writing that this server would open. `patience`: how long to wait
/// for such a process.
pub(crate) fn check_unused(
    doors: &[Box<dyn Door>],
    inherited: &Inherited,
    patience: Duration,
) -> Result<(), Failure> {
    specs(doors).try_for_each(|spec| {
        own_files(spec, inherited)
            .try_for_each(|path| file::check_unused(path, patience))
            .map_err(|e| Failure::from(e).of_disk(spec))
    })
}

/// Opens the disks that are not open yet. Those of the servers before this one are opened only after these have left.
pub(crate) fn open(
    disks: &mut OpenDisks,
    doors: &[Box<dyn Door>],
    inherited: &Inherited,
    open: OpenSpec,
) -> Result<(), Failure> {
    let is_due = |spec: &Specification| inherited.has_left() || !inherited.has(spec);
    for door in doors {
        for spec in door.specs() {
            if disks.get(spec).is_some() || !is_due(spec) {
                continue;
            }
            // A disk that another server passes on has been compared with the clients' knowledge.
            if !inherited.has(spec) {
                door.check_disk(spec).map_err(|f| f.of_disk(spec))?;
            }
            let opened = open_one(spec, inherited, door.order_window(spec), open);
            disks.insert(spec, opened.map_err(|f| f.of_disk(spec))?);
        }
    }
    Ok(())
}

/// Opens a disk. `order_window`: replaces the window of its specification.
fn open_one(
    spec: &Specification,
    inherited: &Inherited,
    order_window: Option<Nanos>,
    open: OpenSpec,
) -> Result<OpenDisk, Failure> {
    let mut named = open(spec, &inherited.disks)?;
    if let Some(window) = order_window {
        named.config.order_window = window;
    }
    let (tags, held, device) =
        (named.tags, named.held.clone(), std::sync::Arc::downgrade(&named.device));
    let io = IoShown::of(&named.stack);
    let origin = match inherited.has(spec) {
        false => Origin::Own,
        true if inherited.waiting.is_empty() => Origin::TakenBack,
        true => Origin::HandedOver,
    };
    let disk = HostedDisk::open_named(named)?;
    let mark = DiskMark::held(&disk, spec);
    if !inherited.is_as_compared(spec, mark) {
        return Err(ServeError::Changed { disk: Some(spec.to_string()) }.into());
    }
    Ok(OpenDisk { disk, tags, passed: PassedDisk { mark, held, io, origin }, device })
}
