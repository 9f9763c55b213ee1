//! Answers about the devices of a specification before any is opened: which are files and which are drives, which
//! outlive the process, and which take writes. Also the error for a name that is neither a kind nor a file.
//!
//! One rule distinguishes a file from a kind of device. An unquoted name that equals the name of a kind is that kind.
//! Any other name is a path if it is quoted, contains a `/`, ends in `.zbd`, or if something of that name exists. A path
//! that leads to a device node is a drive.

use super::drives::is_protected;
use super::keys::{self, KINDS, Kind, LAYERS, is_kind, is_layer, kind_names, layer_names};
use super::tree::{SpecNode, SpecPart, Specification, is_clearly_path};
use crate::backend::trace::can_be_made;
use crate::held::HeldDisks;
use crate::paths::{is_drive, may_write};
use std::path::{Path, PathBuf};
use zoneplug_core::Error;
use zoneplug_core::form::Key;
use zoneplug_devices::spec::{Spec, SpecError, nearest};

impl SpecPart {
    /// The path of a drive.
    pub fn drive(&self) -> Option<&Path> {
        let is_it = self.kind().is_none() && is_drive(self.name());
        is_it.then(|| Path::new(self.name()))
    }

    /// The path of a disk in a file.
    pub fn file(&self) -> Option<&Path> {
        let name = self.name();
        let is_path = self.kind().is_none()
            && (self.is_quoted() || is_clearly_path(name) || Path::new(name).exists());
        (is_path && !is_drive(name)).then(|| Path::new(name))
    }

    fn path(&self) -> Option<&Path> {
        self.file().or_else(|| self.drive())
    }

    /// Whether the device is opened for reading only.
    fn is_to_read(&self) -> bool {
        self.options().flag(&keys::READ_ONLY).is_ok_and(|asked| asked == Some(true))
    }

    /// The keys that the device or layer may have. None for an unknown name.
    ///
    /// ```
    /// let spec = zoneplug_host::Specification::parse("po2@mem")?;
    /// assert!(spec.disk().keys().any(|key| key.is("zones")));
    /// # Ok::<(), zoneplug_core::Error>(())
    /// ```
    pub fn keys(&self) -> impl Iterator<Item = &'static Key> + use<> {
        let by_name = |name: &str| KINDS.iter().find(|k| k.name == name);
        let layer = LAYERS.iter().find(|l| !self.is_quoted() && l.name == self.name());
        let device = match (layer, self.drive(), self.file()) {
            (Some(_), ..) => None,
            (_, Some(_), _) => by_name("DRIVE"),
            (.., Some(_)) => by_name("FILE"),
            _ => self.kind(),
        };
        let of_disk = device.into_iter().flat_map(|_| keys::disk_keys());
        layer.or(device).into_iter().flat_map(Kind::keys).chain(of_disk)
    }
}

impl SpecNode {
    /// The paths of all durable disks and drives.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> + use<'_> {
        self.devices().filter_map(SpecPart::path)
    }
}

impl HeldDisks {
    /// Whether one of the disks at the bottom of a specification is among these.
    pub fn has(&self, spec: &SpecNode) -> bool {
        spec.paths().any(|path| self.at(path).is_some())
    }
}

impl Specification {
    /// Like [`Specification::of_path`], for a file that is to be made. The bare file name must be enough to name it.
    ///
    /// ```
    /// use std::path::Path;
    /// use zoneplug_host::Specification;
    /// assert_eq!(&*Specification::of_new_file(Path::new("a@b.zbd"))?, r#""a@b.zbd""#);
    /// let e = Specification::of_new_file(Path::new("sim-smr30")).unwrap_err();
    /// assert!(e.what_to_try().is_some_and(|hint| hint.contains("./sim-smr30")));
    /// # Ok::<(), zoneplug_core::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The name is a kind of device, or [`Specification::of_path`] refuses it.
    pub fn of_new_file(path: &Path) -> Result<Specification, Error> {
        let spec = Specification::of_path(path)?;
        let name = spec.disk().name();
        if is_kind(name) {
            let what = format!("no specification names a file that is called {name}");
            let hint = format!("./{name} or {name}.zbd: {name} alone is another kind of device");
            return Err(Error::invalid(what).hint(hint));
        }
        Ok(spec)
    }

    /// The path, if the only device is a durable disk. There may be layers on it.
    pub fn file(&self) -> Option<&Path> {
        self.only()?.file()
    }

    /// The path, if the only device is a drive (`/dev/sda`, `/dev/ng0n1`). There may be layers on it.
    pub fn drive(&self) -> Option<&Path> {
        self.only()?.drive()
    }

    fn only(&self) -> Option<&SpecPart> {
        let mut all = self.devices();
        let only = all.next()?;
        all.next().is_none().then_some(only)
    }

    /// The files of all durable disks.
    ///
    /// ```
    /// let spec = zoneplug_host::Specification::parse("linear@./a.zbd%mem%./b.zbd")?;
    /// let files: Vec<_> = spec.files().collect();
    /// assert_eq!(files, [std::path::Path::new("./a.zbd"), std::path::Path::new("./b.zbd")]);
    /// # Ok::<(), zoneplug_core::Error>(())
    /// ```
    pub fn files(&self) -> impl Iterator<Item = &Path> + use<'_> {
        self.devices().filter_map(SpecPart::file)
    }

    /// The paths of all durable disks and drives.
    pub fn paths(&self) -> impl Iterator<Item = &Path> + use<'_> {
        self.root().paths()
    }

    /// The paths of the durable disks and drives that are opened for writing.
    ///
    /// ```
    /// let spec = zoneplug_host::Specification::parse("linear@./a.zbd%./b.zbd,read-only=1")?;
    /// assert_eq!(spec.writes_to().collect::<Vec<_>>(), [std::path::Path::new("./a.zbd")]);
    /// # Ok::<(), zoneplug_core::Error>(())
    /// ```
    pub fn writes_to(&self) -> impl Iterator<Item = &Path> + use<'_> {
        self.devices().filter(|device| !device.is_to_read()).filter_map(SpecPart::path)
    }

    /// Whether a device is lost when the process ends: a disk in memory, or one that keeps no data.
    ///
    /// ```
    /// let is_volatile = |text| zoneplug_host::Specification::parse(text).unwrap().is_volatile();
    /// assert!(is_volatile("linear@./a.zbd%mem"));
    /// assert!(!is_volatile("po2@./a.zbd"));
    /// assert!(!is_volatile("./sim-logs"), "a file, and no modelled drive");
    /// ```
    pub fn is_volatile(&self) -> bool {
        self.devices().any(|device| device.path().is_none())
    }

    /// Whether a disk could be written if it were opened for writing. An open disk cannot answer this, because one
    /// that was opened only to inspect it is always read-only.
    ///
    /// ```
    /// let takes_writes = |text| zoneplug_host::Specification::parse(text).unwrap().takes_writes();
    /// assert!(takes_writes("mem,zones=8"));
    /// assert!(!takes_writes("mem,zones=8,read-only=1"));
    /// ```
    pub fn takes_writes(&self) -> bool {
        self.devices().all(|device| {
            !device.is_to_read()
                && match (device.drive(), device.file()) {
                    (Some(path), _) => !is_protected(path),
                    (_, Some(path)) => may_write(path).is_ok(),
                    _ => true,
                }
        })
    }

    /// Whether all devices keep the data that is written.
    ///
    /// ```
    /// let keeps_data = |text| zoneplug_host::Specification::parse(text).unwrap().keeps_data();
    /// assert!(keeps_data("po2@mem,zones=8"));
    /// assert!(!keeps_data("stripe@mem%null"));
    /// ```
    pub fn keeps_data(&self) -> bool {
        self.devices().all(|device| device.kind().is_none_or(|kind| kind.name != "null"))
    }

    /// Whether a read writes each byte of its buffer. An emulated disk without data, and a modelled drive, may leave
    /// old bytes in the buffer.
    #[cfg(any(feature = "iscsi", feature = "nvme-tcp"))]
    pub(crate) fn fills_buffers(&self) -> bool {
        let is_mem = |device: &SpecPart| device.kind().is_some_and(|kind| kind.name == "mem");
        self.devices().all(|device| is_mem(device) || device.file().is_some())
    }

    /// Checks that the traces of the specification can be made, and makes none. `goes_on`: another server has the
    /// disk, and this one continues its traces.
    ///
    /// ```
    /// let spec = zoneplug_host::Specification::parse("trace,file=/none/t@mem")?;
    /// assert!(spec.check_traces(false).unwrap_err().to_string().contains("there is no directory"));
    /// # Ok::<(), zoneplug_core::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// A file that cannot be made, or that exists.
    pub fn check_traces(&self, goes_on: bool) -> Result<(), Error> {
        self.named_traces().try_for_each(|path| can_be_made(path, goes_on))
    }

    /// The files of traces, as the specification names them.
    fn named_traces(&self) -> impl Iterator<Item = &Path> {
        let traces = self.layers().filter(|layer| layer.name() == "trace");
        traces.filter_map(|layer| layer.value(&keys::TRACE_FILE)).map(Path::new)
    }

    /// The files of the traces, by paths that are equal if the files are: their directories have no links.
    ///
    /// ```
    /// use zoneplug_host::Specification;
    /// let files = Specification::parse("trace,file=/t@mem")?.trace_files()?;
    /// assert_eq!(files, [std::path::Path::new("/t")]);
    /// let two = Specification::parse("linear@trace,file=/t@mem%trace,file=//t@mem")?;
    /// assert!(two.trace_files().unwrap_err().to_string().contains("two traces into one file"));
    /// # Ok::<(), zoneplug_core::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Two traces have the same file; only one of them could write it.
    pub fn trace_files(&self) -> Result<Vec<PathBuf>, Error> {
        let mut all = Vec::new();
        for path in self.named_traces() {
            let path = without_links(path);
            if all.contains(&path) {
                return Err(Error::invalid(format!(
                    "two traces into one file, {}",
                    path.display()
                ))
                .hint("trace,file=PATH names a file of its own"));
            }
            all.push(path);
        }
        Ok(all)
    }
}

/// The path with the links of its directory resolved, if the directory exists. The file need not exist.
fn without_links(path: &Path) -> PathBuf {
    let dir = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match (dir.canonicalize(), path.file_name()) {
        (Ok(dir), Some(name)) => dir.join(name),
        _ => path.to_owned(),
    }
}

/// The error for a kind that is neither a kind of device nor the name of a file.
pub(super) fn neither(spec: &Spec) -> Error {
    let kind = spec.kind();
    let name = kind.to_owned();
    if Path::new(kind).is_dir() {
        SpecError::Directory { path: name }
    } else if is_layer(kind) {
        SpecError::LayerAlone { layer: name }
    } else if let Some((layer, _)) = kind.split_once('@') {
        let near = nearest(layer, &layer_names());
        SpecError::NoSuchDisk { name, layer: Some(layer.to_owned()), near, known: layer_names() }
    } else {
        let near = nearest(kind, &kind_names());
        SpecError::NoSuchDisk { name, layer: None, near, known: kind_names() }
    }
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// U9. The next server can take over a disk in a file, whatever the file's name.
    #[test]
    fn only_what_is_in_memory_ends_with_its_process() {
        for spec in [
            "null",
            "mem,zones=8",
            "po2@mem,zone-size=96M",
            "sim-smr30",
            "sim,profile=x",
            "linear@d.zbd%mem",
        ] {
            assert!(Specification::parse(spec).unwrap().is_volatile(), "{spec}");
        }
        for spec in ["disk.zbd", "/srv/disk.zbd,io=ring", "po2@./d.zbd", "stripe@a.zbd%b.zbd"] {
            assert!(!Specification::parse(spec).unwrap().is_volatile(), "{spec}");
        }
        for spec in [
            "./sim-logs",
            "sim-logs.zbd,qd1=1",
            "po2@./mem",
            "./null",
            "\"mem\"",
            "po2@\"sim-smr30\"",
        ] {
            let spec = Specification::parse(spec).unwrap();
            assert!(!spec.is_volatile(), "{spec}: a file with the name of a kind");
        }
    }
}
