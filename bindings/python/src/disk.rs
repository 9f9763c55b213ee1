//! A disk, and calls that wait. The interpreter lock is released around each operation.

use crate::buffer::{Buffer, Source, bytes_of, copy_into, zeroed};
use crate::error::{Process, closed, failed, io_failed};
use crate::signals;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use std::path::PathBuf;
use std::sync::Mutex;
use zoneplug_buf::AlignedBuf;
use zoneplug_core::poison::lock;
use zoneplug_core::{Error, Op, Sector};
use zoneplug_host::{BlockingDisk, HostedDisk, IoError, Specification};

/// Why a call failed.
enum Failure {
    Open(Error),
    Io(IoError),
}

impl From<IoError> for Failure {
    fn from(e: IoError) -> Failure {
        Failure::Io(e)
    }
}

/// A disk. Any number of threads may use it at a time.
#[pyclass(module = "zoneplug", frozen, subclass)]
pub(crate) struct Disk {
    /// `None`: closed.
    disk: Mutex<Option<HostedDisk>>,
    process: Process,
    /// For calls that wait, of which each takes one.
    idle: Mutex<Vec<BlockingDisk>>,
}

impl Disk {
    fn of(disk: HostedDisk) -> Disk {
        Disk { disk: Mutex::new(Some(disk)), process: Process::this(), idle: Mutex::default() }
    }

    /// Goes on with another disk, which a power cut has left.
    pub(crate) fn replace(&self, py: Python<'_>, disk: HostedDisk) -> PyResult<()> {
        self.hosted(py)?;
        let before = lock(&self.disk).replace(disk);
        let idle = std::mem::take(&mut *lock(&self.idle));
        py.detach(|| drop((idle, before)));
        Ok(())
    }

    /// The disk, if it is open and this process may use it.
    pub(crate) fn hosted(&self, py: Python<'_>) -> PyResult<HostedDisk> {
        self.process.check(py)?;
        lock(&self.disk).clone().ok_or_else(|| closed(py))
    }

    /// Runs an operation without the interpreter lock.
    fn run<T: Send>(
        &self,
        py: Python<'_>,
        work: impl Send + FnOnce(&mut BlockingDisk) -> Result<T, IoError>,
    ) -> PyResult<T> {
        let disk = self.hosted(py)?;
        let idle = lock(&self.idle).pop();
        let (client, result) = py.detach(move || {
            let client = match idle {
                Some(client) => client,
                None => match BlockingDisk::new(&disk) {
                    Ok(client) => client,
                    Err(e) => return (None, Err(Failure::Open(e))),
                },
            };
            let mut client = client;
            client.give_up_when(Some(signals::is_raised));
            let result = work(&mut client).map_err(Failure::from);
            (Some(client), result)
        });
        if let Some(e) = signals::taken() {
            // The operation goes on without its client, and the disk keeps its memory until it is done.
            py.detach(|| drop(client));
            return Err(e);
        }
        // After a close the client would keep the device open.
        if lock(&self.disk).is_some() {
            lock(&self.idle).extend(client);
        } else {
            py.detach(|| drop(client));
        }
        result.map_err(|e| match e {
            Failure::Open(e) => failed(py, &e),
            Failure::Io(e) => io_failed(py, &e),
        })
    }

    /// Writes or appends.
    fn write_out(
        &self,
        py: Python<'_>,
        (op, at): (Op, Sector),
        data: &Bound<'_, PyAny>,
        work: impl Send + FnOnce(&mut BlockingDisk, AlignedBuf) -> Result<Written, IoError>,
    ) -> PyResult<u64> {
        // Before the memory is taken.
        let disk = self.hosted(py)?;
        let taken = Source::take(py, data, |bytes| disk.check_length(op, at, bytes))?;
        let (source, memory) = taken.map_err(|e| io_failed(py, &e))?;
        // Stays here if there is no client to write it.
        let mut kept = Some(memory);
        let place = &mut kept;
        let result = self.run(py, move |io| {
            let memory = place.take().unwrap_or_else(|| AlignedBuf::zeroed(0));
            match work(io, memory) {
                Ok((at, memory)) => {
                    *place = Some(memory);
                    Ok(at.0)
                }
                Err(e) => {
                    let IoError { op, sector, status, .. } = e;
                    *place = e.into_buf();
                    Err(IoError::new(op, sector, status))
                }
            }
        });
        source.give_back(py, kept);
        result
    }

    /// Reads into new memory.
    fn read_new(&self, py: Python<'_>, sector: u64, nbytes: u64) -> PyResult<AlignedBuf> {
        let sector = Sector(sector);
        whole_sectors(nbytes)?;
        let checked = self.hosted(py)?.check_length(Op::Read, sector, nbytes);
        let len = checked.map_err(|e| io_failed(py, &e))?;
        let memory = py.detach(|| AlignedBuf::try_zeroed(len));
        let memory = memory.map_or_else(|| zeroed(len), Ok)?;
        self.run(py, |io| io.read_buf(sector, memory))
    }

    fn range(&self, py: Python<'_>, op: Op, sector: u64, nr_sectors: u64) -> PyResult<()> {
        let sector = Sector(sector);
        self.run(py, |io| match op {
            Op::Discard => io.discard(sector, nr_sectors),
            Op::WriteZeroes => io.write_zeroes(sector, nr_sectors),
            _ => io.manage(op, sector, nr_sectors),
        })
    }
}

/// A name of a disk: the text of a specification, or the path of a file or a drive, whatever its characters are.
#[derive(FromPyObject)]
pub(crate) enum Name {
    Text(String),
    Path(PathBuf),
}

impl Name {
    pub(crate) fn read(&self) -> Result<Specification, Error> {
        match self {
            Name::Text(text) => Specification::parse(text),
            Name::Path(path) => Specification::of_path(path),
        }
    }
}

/// A disk to open, or an open one.
#[derive(FromPyObject)]
enum Named<'py> {
    Open(Bound<'py, Opened>),
    Name(Name),
}

/// An open disk that becomes a `Disk`: one of the crash harness.
#[pyclass(module = "zoneplug._zoneplug", frozen)]
pub(crate) struct Opened(HostedDisk);

impl Opened {
    pub(crate) fn new(disk: HostedDisk) -> Opened {
        Opened(disk)
    }
}

/// Where data landed, and their buffer.
type Written = (Sector, AlignedBuf);

/// Refuses a length in bytes that is not one in sectors.
pub(crate) fn whole_sectors(nbytes: u64) -> PyResult<()> {
    match nbytes % 512 {
        0 => Ok(()),
        _ => Err(PyValueError::new_err(format!("{nbytes} bytes are no whole sectors of 512"))),
    }
}

#[pymethods]
impl Disk {
    #[new]
    fn new(py: Python<'_>, spec: Named<'_>) -> PyResult<Disk> {
        let name = match spec {
            Named::Open(opened) => return Ok(Disk::of(opened.get().0.clone())),
            Named::Name(name) => name,
        };
        let open = move || HostedDisk::open_named(name.read()?.open()?);
        let opened = signals::wait(py, open)?;
        Ok(Disk::of(opened.map_err(|e| failed(py, &e))?))
    }

    fn close(&self, py: Python<'_>) {
        let disk = lock(&self.disk).take();
        let idle = std::mem::take(&mut *lock(&self.idle));
        if self.process.is_other() {
            // Its threads are not here, and its device is the parent's.
            std::mem::forget((disk, idle));
        } else {
            // Closing a device waits for it.
            py.detach(|| drop((idle, disk)));
        }
    }

    #[getter]
    fn closed(&self) -> bool {
        lock(&self.disk).is_none()
    }

    fn read(&self, py: Python<'_>, sector: u64, nbytes: u64) -> PyResult<Buffer> {
        self.read_new(py, sector, nbytes).map(Buffer::of)
    }

    fn read_into(&self, py: Python<'_>, sector: u64, buffer: &Bound<'_, PyAny>) -> PyResult<()> {
        let buffer = bytes_of(buffer)?;
        if buffer.readonly() {
            return Err(PyValueError::new_err("the buffer cannot be written"));
        }
        let data = self.read_new(py, sector, buffer.len_bytes() as u64)?;
        copy_into(py, &data, &buffer)
    }

    fn write(
        &self,
        py: Python<'_>,
        sector: u64,
        data: &Bound<'_, PyAny>,
        fua: bool,
    ) -> PyResult<()> {
        let at = Sector(sector);
        let work = |io: &mut BlockingDisk, memory| {
            let back = if fua { io.write_fua(at, memory) } else { io.write(at, memory) };
            back.map(|memory| (at, memory))
        };
        self.write_out(py, (Op::Write, at), data, work).map(drop)
    }

    fn append(
        &self,
        py: Python<'_>,
        zone_start: u64,
        data: &Bound<'_, PyAny>,
        fua: bool,
    ) -> PyResult<u64> {
        let at = Sector(zone_start);
        self.write_out(py, (Op::ZoneAppend, at), data, |io, memory| {
            if fua { io.append_fua(at, memory) } else { io.append(at, memory) }
        })
    }

    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, BlockingDisk::flush)
    }

    fn discard(&self, py: Python<'_>, sector: u64, nr_sectors: u64) -> PyResult<()> {
        self.range(py, Op::Discard, sector, nr_sectors)
    }

    fn write_zeroes(&self, py: Python<'_>, sector: u64, nr_sectors: u64) -> PyResult<()> {
        self.range(py, Op::WriteZeroes, sector, nr_sectors)
    }

    fn reset(&self, py: Python<'_>, sector: u64, nr_sectors: u64) -> PyResult<()> {
        self.range(py, Op::ZoneReset, sector, nr_sectors)
    }

    fn reset_all(&self, py: Python<'_>) -> PyResult<()> {
        self.range(py, Op::ZoneResetAll, 0, 0)
    }

    fn finish(&self, py: Python<'_>, sector: u64, nr_sectors: u64) -> PyResult<()> {
        self.range(py, Op::ZoneFinish, sector, nr_sectors)
    }

    fn open_zone(&self, py: Python<'_>, sector: u64, nr_sectors: u64) -> PyResult<()> {
        self.range(py, Op::ZoneOpen, sector, nr_sectors)
    }

    fn close_zone(&self, py: Python<'_>, sector: u64, nr_sectors: u64) -> PyResult<()> {
        self.range(py, Op::ZoneClose, sector, nr_sectors)
    }

    /// The records of Linux's `struct blk_zone`, 64 bytes each.
    fn _report<'py>(
        &self,
        py: Python<'py>,
        sector: u64,
        nr: u32,
        resync: bool,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let sector = Sector(sector);
        let zones =
            self.run(py, |io| if resync { io.resync(sector, nr) } else { io.report(sector, nr) })?;
        let records: Vec<u8> = zones.iter().flat_map(|z| z.encode()).collect();
        Ok(PyBytes::new(py, &records))
    }

    /// Numbers of the disk, by name.
    fn _properties<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let disk = self.hosted(py)?;
        let (g, l) = (disk.geometry(), disk.limits());
        let all = PyDict::new(py);
        all.set_item("sectors", g.capacity().0)?;
        all.set_item("nr_zones", g.nr_zones())?;
        all.set_item("zone_sectors", g.zone_sectors())?;
        all.set_item("zone_capacity_sectors", g.zone_capacity_sectors())?;
        all.set_item("nr_conventional_zones", g.nr_conventional())?;
        all.set_item("logical_block_sectors", l.logical_block_sectors)?;
        all.set_item("write_granularity_sectors", l.write_granularity_sectors)?;
        all.set_item("max_open_zones", l.max_open_zones)?;
        all.set_item("max_active_zones", l.max_active_zones)?;
        all.set_item("zone_append_max_sectors", l.zone_append_max_sectors)?;
        all.set_item("write_cache", l.write_cache)?;
        all.set_item("fua", l.fua)?;
        all.set_item("rotational", l.rotational)?;
        all.set_item("read_only", l.read_only)?;
        Ok(all)
    }

    /// A snapshot in a new file: its identity, what was found, whether blocks are shared, and the bytes that were copied.
    #[cfg(feature = "file")]
    fn _snapshot<'py>(
        &self,
        py: Python<'py>,
        path: PathBuf,
        keep_uuid: bool,
    ) -> PyResult<(Bound<'py, PyDict>, Vec<String>, bool, u64)> {
        let disk = self.hosted(py)?;
        let made = signals::wait(py, move || disk.snapshot(&path, !keep_uuid))?;
        let made = made.map_err(|e| failed(py, &e))?;
        let identity = crate::file::identity(py, &made.identity)?;
        Ok((identity, made.notices, made.shared, made.copied))
    }

    fn counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let c = self.hosted(py)?.counters();
        let all = PyDict::new(py);
        let rejected = PyDict::new(py);
        for (status, n) in c.plugs.rejected.iter() {
            rejected.set_item(status.name(), n)?;
        }
        for (name, n) in [
            ("issued", c.plugs.issued),
            ("parked", c.plugs.parked),
            ("merged", c.plugs.merged),
            ("aborted", c.plugs.aborted),
            ("lost", c.plugs.lost),
            ("resynced", c.plugs.resynced),
            ("missing", c.plugs.missing),
            ("retried", c.plugs.retried),
            ("waiting", c.waiting),
            ("live_plugs", c.live_plugs.into()),
            ("timeouts", c.timeouts),
            ("late", c.late),
            ("dead_queues", c.dead_queues),
            ("writer_turns", c.writer.turns),
            ("window_held", c.window.held),
        ] {
            all.set_item(name, n)?;
        }
        all.set_item("rejected", rejected)?;
        Ok(all)
    }

    /// A tuple for each event: see `zoneplug.Event`.
    fn _events<'py>(&self, py: Python<'py>, after: u64) -> PyResult<Bound<'py, PyList>> {
        let all = PyList::empty(py);
        for e in self.hosted(py)?.events(after, usize::MAX) {
            let (kind, op) = (e.kind.name(), e.op.map(Op::name));
            let status = e.status.name();
            let zone = e.zone.map(|z| z.0);
            all.append((e.sequence, kind, op, status, zone, e.sector.0, e.count, e.aborted))?;
        }
        Ok(all)
    }

    fn attributes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let all = PyDict::new(py);
        for a in self.hosted(py)?.disk().attributes() {
            all.set_item(a.name, a.value)?;
        }
        Ok(all)
    }

    fn set_attribute(&self, py: Python<'_>, name: &str, value: &str) -> PyResult<()> {
        let disk = self.hosted(py)?;
        let (name, value) = (name.to_owned(), value.to_owned());
        let changed = signals::wait(py, move || disk.set_attribute(&name, &value))?;
        changed.map_err(|e| failed(py, &e))
    }

    fn zone_wplugs(&self, py: Python<'_>) -> PyResult<String> {
        let mut dump = String::new();
        let disk = self.hosted(py)?;
        // Writing to a string does not fail.
        let _ = disk.disk().zone_wplugs(&mut dump);
        Ok(dump)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.process.is_other() {
            std::mem::forget((lock(&self.disk).take(), std::mem::take(&mut *lock(&self.idle))));
        }
    }
}
