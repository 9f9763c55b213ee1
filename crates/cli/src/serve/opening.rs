//! Opens the disks that are to be served. Those that another server has come from it, as they are open there; the others
//! are opened before that server is asked to leave, so that what is wrong with one shows in time.

use super::answer::Passed;
use super::block;
use super::compare;
use super::inherited::Inherited;
use super::nvme::{Plan, order_window};
use super::once;
use super::served::Origin;
use super::settings::{BlockDisk, Settings};
use crate::disk::Named;
use crate::failure::Failure;
use crate::server_client::IoShown;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Weak;
use std::time::Duration;
use zoneplug_core::Device;
use zoneplug_core::plain;
use zoneplug_core::zone::Geometry;
use zoneplug_host::nvme_tcp::{Disk, KnownDisk};
use zoneplug_host::ublk::{self, Ublk, slices};
use zoneplug_host::{DiskMark, DiskSpec, HostedDisk, check_traces, file, is_volatile, writes_to};

/// An open disk.
pub(super) struct Opened {
    pub(super) disk: HostedDisk,
    pub(super) tags: Option<u16>,
    pub(super) passed: Passed,
    /// The device below it, to see whether it is closed.
    pub(super) device: Weak<dyn Device>,
}

/// A disk that is to be served as a block device.
pub(super) struct Planned<'a> {
    pub(super) of: &'a BlockDisk,
    /// The number of its first device, if one is wished for.
    pub(super) id: Option<u32>,
    pub(super) geometry: Geometry,
}

/// The block devices that are to be, as far as this is known without opening a disk for writing. Refuses what two disks cannot
/// both have.
pub(super) fn planned<'a>(
    settings: &'a Settings,
    plan: Option<&Plan>,
) -> Result<Vec<Planned<'a>>, Failure> {
    let order = settings.order();
    let of_disk = |(spec, f): once::At<'_>| settings.of_disk(spec, f);
    let ublk = settings.block.iter().map(|d| &*d.spec);
    let network = plan.iter().flat_map(|plan| plan.specs()).map(|spec| &**spec);
    once::disks(ublk, network, &order).map_err(of_disk)?;
    let mut numbers = settings.numbers();
    let mut all = Vec::new();
    for of in &settings.block {
        let look = || {
            let device = DiskSpec::parse_to_look(&of.spec)?.device;
            ublk::check(device.geometry(), device.limits())?;
            Ok(*device.geometry())
        };
        let geometry = look().map_err(|f: Failure| settings.of_disk(&of.spec, f))?;
        all.push(Planned { of, id: numbers.first(of), geometry });
        numbers.take(of, slices(&geometry).len() as u32);
    }
    let numbered = all.iter().filter_map(|planned| {
        Some((&*planned.of.spec, planned.id?, slices(&planned.geometry).len()))
    });
    once::numbers(numbered, &order).map_err(of_disk)?;
    Ok(all)
}

/// All disks that are to be served.
fn specs<'a>(settings: &'a Settings, plan: Option<&'a Plan>) -> impl Iterator<Item = &'a String> {
    let ublk = settings.block.iter().map(|d| &d.spec);
    ublk.chain(plan.into_iter().flat_map(Plan::specs))
}

/// The files of a disk that would be opened for writing, and that no server passes on. A drive says what is wrong with it when it
/// is opened, which changes nothing on it.
fn own_files<'a>(spec: &'a str, inherited: &Inherited) -> impl Iterator<Item = &'a Path> {
    let is_passed_on = inherited.has(spec);
    writes_to(spec).filter(move |path| !is_passed_on && path.is_file())
}

/// Checks that traces could be made, and that the disks which no server passes on could be opened. Opening changes a file, and a
/// start that fails is to change none.
pub(super) fn check(
    settings: &Settings,
    plan: Option<&Plan>,
    inherited: &Inherited,
) -> Result<(), Failure> {
    specs(settings, plan).try_for_each(|spec| {
        let checked = check_traces(spec, inherited.has(spec))
            .and_then(|()| own_files(spec, inherited).try_for_each(file::check_writable));
        checked.map_err(|e| settings.of_disk(spec, e))
    })
}

/// Checks that no other process has a file open for writing that this server would open. `patience`: how long to wait for one
/// that has it.
pub(super) fn check_unused(
    settings: &Settings,
    plan: Option<&Plan>,
    inherited: &Inherited,
    patience: Duration,
) -> Result<(), Failure> {
    specs(settings, plan).try_for_each(|spec| {
        own_files(spec, inherited)
            .try_for_each(|path| file::check_unused(path, patience))
            .map_err(|e| settings.of_disk(spec, e))
    })
}

/// The disks that are open, by their specifications.
#[derive(Default)]
pub(super) struct OpenDisks(BTreeMap<String, Opened>);

impl OpenDisks {
    pub(super) fn get(&self, spec: &str) -> Option<&Opened> {
        self.0.get(spec)
    }

    /// The disks, by their specifications.
    pub(super) fn handles(&self) -> Vec<(String, HostedDisk)> {
        self.0.iter().map(|(spec, d)| (spec.clone(), d.disk.clone())).collect()
    }

    /// The devices below the disks.
    pub(super) fn devices(&self) -> Vec<Weak<dyn Device>> {
        self.0.values().map(|d| d.device.clone()).collect()
    }

    /// Opens the disks that are not open yet, and that the servers before this one have or, before these have left, that
    /// they do not have.
    pub(super) fn open(
        &mut self,
        settings: &Settings,
        blocks: &[Planned<'_>],
        (ublk, plan): (Option<&Ublk>, Option<&Plan>),
        inherited: &Inherited,
    ) -> Result<(), Failure> {
        let is_due = |spec: &str| inherited.has_left() || !inherited.has(spec);
        for planned in blocks {
            let spec = &planned.of.spec;
            if self.0.contains_key(spec) || !is_due(spec) {
                continue;
            }
            let of_disk = |f: Failure| settings.of_disk(spec, f);
            // A device whose disk another server has passed on was compared with it.
            if let Some(ublk) = ublk.filter(|_| !is_volatile(spec) && !inherited.has(spec)) {
                // Checked before the disk is opened for writing, because that changes its file: a copy that is refused
                // stays unchanged.
                let options = block::options(&settings.args, planned.of, planned.id, None, None);
                let waiting = ublk.waiting(spec, &planned.geometry, &options);
                waiting.map_err(|e| of_disk(e.into()))?;
            }
            let opened = open(spec, inherited, false).map_err(of_disk)?;
            self.0.insert(spec.clone(), opened);
        }
        for spec in plan.iter().flat_map(|plan| plan.specs()) {
            if !self.0.contains_key(spec) && is_due(spec) {
                let opened = open(spec, inherited, true).map_err(|f| settings.of_disk(spec, f))?;
                self.0.insert(spec.clone(), opened);
            }
        }
        Ok(())
    }

    /// The disks that are served over the network. `known`: how hosts know one.
    pub(super) fn over_network(
        &self,
        plan: &Plan,
        known: impl Fn(&str, DiskMark) -> Option<KnownDisk>,
    ) -> Result<Vec<(Disk, Passed)>, Failure> {
        let mut all: Vec<(Disk, Passed)> = Vec::new();
        for spec in plan.specs() {
            let Some(opened) = self.get(spec) else { continue };
            let known = known(spec, opened.passed.mark);
            let disk =
                Disk { disk: opened.disk.clone(), spec: spec.clone(), tags: opened.tags, known };
            all.push((disk, opened.passed.clone()));
        }
        Ok(all)
    }
}

/// Opens a disk. `over_network`: hosts may reorder the writes of a zone on their way.
fn open(spec: &str, inherited: &Inherited, over_network: bool) -> Result<Opened, Failure> {
    let mut named = Named::open_to_serve(spec, &inherited.disks)?;
    if let Some(window) = order_window(spec).filter(|_| over_network) {
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
        let what = format!("{} is not what it was when it was compared", plain(spec));
        return Err(compare::refused(what, "again".to_owned()));
    }
    Ok(Opened { disk, tags, passed: Passed { mark, held, io, origin, known: None }, device })
}
