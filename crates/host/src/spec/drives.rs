//! Opens the drives of a specification: NVMe namespaces by their character devices, all others by their block
//! devices.

use super::{Opened, Purpose, keys};
use crate::backend::blk::BlkDisk;
use crate::backend::data_path::DataPath;
use crate::backend::drive::{DriveOptions, Node, cannot_open};
use crate::backend::nvme::{self, NvmeDisk};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;
use zoneplug_core::{Device, Error};
use zoneplug_devices::spec::Spec;

fn is_char_device(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|m| m.file_type().is_char_device())
}

fn is_char_file(file: &std::fs::File) -> bool {
    file.metadata().is_ok_and(|m| m.file_type().is_char_device())
}

/// Whether a drive is write-protected. False if the drive cannot be asked.
pub(super) fn is_protected(path: &Path) -> bool {
    match is_char_device(path) {
        true => nvme::is_protected(path),
        false => Node::of(path, "block").is_ok_and(|node| node.disk.is_read_only()),
    }
}

/// Opens the drive at the path that a specification names, or uses the one that is open already.
pub(super) fn open(
    spec: &mut Spec,
    purpose: Purpose,
    opened: &mut Opened,
) -> Result<(Arc<dyn Device>, DataPath), Error> {
    let options = DriveOptions {
        read_only: spec.flag(&keys::READ_ONLY)?.unwrap_or(purpose == Purpose::Look),
        force: spec.flag(&keys::FORCE)?.unwrap_or(false),
        serve: purpose == Purpose::Serve,
    };
    let buffered = spec.flag(&keys::DRIVE_DIRECT)? == Some(false);
    spec.finish()?;
    if buffered {
        return Err(Error::invalid("direct=0 is not possible with a drive").hint(
            "the page cache would write in an order of its own, which a zone refuses: leave it out",
        ));
    }
    let path = Path::new(spec.kind());
    let given = opened.given.at(path);
    let file = given.and_then(|given| given.files().next());
    let is_char = file.map_or_else(|| is_char_device(path), is_char_file);
    let (device, drive): (Arc<dyn Device>, _) = if is_char {
        let disk = NvmeDisk::open_with(path, options, given)?;
        (disk.clone(), disk.held())
    } else {
        let disk = BlkDisk::open_with(path, options, given)?;
        (disk.clone(), disk.held())
    };
    if let Some(held) = &mut opened.held {
        held.add(drive.map_err(|e| cannot_open(path, e))?.named(path));
    }
    Ok((device, DataPath::DRIVE))
}
