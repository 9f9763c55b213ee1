//! Disks in files: making and checking them.

use crate::error::failed;
use crate::signals;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;
use zoneplug_core::{Error, form};
use zoneplug_host::Specification;
use zoneplug_host::file::{self, CheckReport, CreateOptions, Identity};

/// A length: bytes, or a text such as `"64M"`.
#[derive(FromPyObject)]
pub(crate) enum Size {
    Bytes(u64),
    Text(String),
}

impl Size {
    fn bytes(self) -> Result<u64, Error> {
        match self {
            Size::Bytes(bytes) => Ok(bytes),
            Size::Text(text) => form::parse_size(&text).ok_or_else(|| {
                Error::invalid(format!("'{text}' is no size")).hint(
                    "a number of bytes, or a text such as \"128K\", \"64MiB\", \"1G\" or \"2T\"",
                )
            }),
        }
    }
}

/// The identity of a disk, as `zoneplug.Identity` takes it.
pub(crate) fn identity<'py>(py: Python<'py>, of: &Identity) -> PyResult<Bound<'py, PyDict>> {
    let all = PyDict::new(py);
    all.set_item("uuid", &of.uuid)?;
    all.set_item("label", &of.label)?;
    all.set_item("format_version", of.version)?;
    all.set_item("created_unix_s", of.created)?;
    all.set_item("opened_for_writing", of.opened)?;
    Ok(all)
}

/// The options of a disk. Raises for one that is unknown.
fn options(given: &Bound<'_, PyDict>) -> PyResult<Result<CreateOptions, Error>> {
    let mut o = CreateOptions::default();
    for (key, value) in given {
        if value.is_none() {
            continue;
        }
        let size = || -> PyResult<Result<u64, Error>> { Ok(value.extract::<Size>()?.bytes()) };
        macro_rules! size {
            ($field:ident) => {
                match size()? {
                    Ok(bytes) => o.$field = Some(bytes),
                    Err(e) => return Ok(Err(e)),
                }
            };
        }
        match key.extract::<String>()?.as_str() {
            "size" => size!(size),
            "zone_size" => size!(zone_size),
            "zone_capacity" => size!(zone_capacity),
            "last_zone_size" => size!(last_zone_size),
            "last_zone_capacity" => size!(last_zone_capacity),
            "lba_size" => size!(lba_size),
            "granularity" => size!(granularity),
            "zone_append_max" => size!(zone_append_max),
            "zones" => o.zones = Some(value.extract()?),
            "conv" => o.conv = value.extract()?,
            "max_open" => o.max_open = value.extract()?,
            "max_active" => o.max_active = value.extract()?,
            "label" => o.label = value.extract()?,
            "preallocate" => o.preallocate = value.extract()?,
            other => {
                let text = format!("create has no option {other}");
                return Err(pyo3::exceptions::PyTypeError::new_err(text));
            }
        }
    }
    Ok(Ok(o))
}

/// Makes a disk in a new file.
#[pyfunction]
pub(crate) fn _create<'py>(
    py: Python<'py>,
    path: PathBuf,
    force: bool,
    given: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyDict>> {
    let options = options(given)?.map_err(|e| failed(py, &e))?;
    let work = move || {
        // A path that no specification can name makes no disk.
        Specification::of_new_file(&path)?;
        file::create(&path, &options, force)
    };
    let made: Identity = signals::wait(py, work)?.map_err(|e| failed(py, &e))?;
    identity(py, &made)
}

/// Checks the disk in a file that no process writes: lines, problems, repaired, zones.
#[pyfunction]
pub(crate) fn _check(
    py: Python<'_>,
    path: PathBuf,
    repair: bool,
) -> PyResult<(Vec<String>, u32, u32, u32)> {
    let report = signals::wait(py, move || file::check(&path, repair))?;
    let CheckReport { lines, problems, repaired, zones } = report.map_err(|e| failed(py, &e))?;
    Ok((lines, problems, repaired, zones))
}
