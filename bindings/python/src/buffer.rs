//! Memory that a disk reads and writes without copies.

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyBufferError, PyMemoryError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;
use std::ffi::c_int;
use zoneplug_buf::AlignedBuf;
use zoneplug_host::IoError;

/// Memory for I/O, with Python's buffer protocol: `memoryview(buffer)`, `bytes(buffer)`, `numpy.frombuffer(buffer)`. A disk
/// reads into new ones, and writes one without copying it, unless a view of it exists. While it is being written it is
/// empty.
#[pyclass(module = "zoneplug")]
pub(crate) struct Buffer {
    /// `None`: a disk has it.
    memory: Option<AlignedBuf>,
    /// Views of it that exist: the memory must stay where it is.
    views: usize,
}

impl Buffer {
    pub(crate) fn of(memory: AlignedBuf) -> Buffer {
        Buffer { memory: Some(memory), views: 0 }
    }
}

#[pymethods]
impl Buffer {
    /// A buffer of `size` zero bytes.
    #[new]
    fn new(size: u32) -> PyResult<Buffer> {
        zeroed(size).map(Buffer::of)
    }

    fn __len__(&self) -> usize {
        self.memory.as_ref().map_or(0, |m| m.len() as usize)
    }

    fn __repr__(&self) -> String {
        format!("<zoneplug.Buffer of {} bytes>", self.__len__())
    }

    /// # Safety
    ///
    /// Python calls it, with the place of a view.
    unsafe fn __getbuffer__(
        mut slf: PyRefMut<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("there is no place for a view"));
        }
        // SAFETY: not null, and the place of a view. An error leaves it so.
        unsafe { (*view).obj = std::ptr::null_mut() };
        let this = &mut *slf;
        let Some(memory) = this.memory.as_mut() else {
            return Err(PyBufferError::new_err("a disk has this buffer"));
        };
        let (at, len) = (memory.as_mut_ptr(), memory.len());
        this.views += 1;
        // SAFETY: the memory stays while there are views; Python keeps `slf` for as long as the view.
        let filled = unsafe {
            ffi::PyBuffer_FillInfo(view, slf.as_ptr(), at.cast(), len as ffi::Py_ssize_t, 0, flags)
        };
        if filled != 0 {
            slf.views -= 1;
            return Err(PyErr::fetch(slf.py()));
        }
        Ok(())
    }

    /// # Safety
    ///
    /// Python calls it, once for each view.
    unsafe fn __releasebuffer__(&mut self, _view: *mut ffi::Py_buffer) {
        self.views -= 1;
    }
}

/// Memory for `len` bytes, or Python's `MemoryError`.
pub(crate) fn zeroed(len: u32) -> PyResult<AlignedBuf> {
    let memory = AlignedBuf::try_zeroed(len);
    memory.ok_or_else(|| PyMemoryError::new_err(format!("no memory for {len} bytes")))
}

/// The bytes of anything with the buffer protocol. What has items of other types must be contiguous.
pub(crate) fn bytes_of(data: &Bound<'_, PyAny>) -> PyResult<PyBuffer<u8>> {
    PyBuffer::get(data).or_else(|other| {
        let Ok(view) = PyMemoryView::from(data) else { return Err(other) };
        PyBuffer::get(&view.call_method1("cast", ("B",))?)
    })
}

/// The memory of a write: that of a `Buffer`, which has to come back, or a copy of anything with the buffer protocol.
pub(crate) struct Source {
    owner: Option<Py<Buffer>>,
}

impl Source {
    /// Takes the memory of `data`. `check` says whether the disk can take so many bytes, before there is a copy of them, and
    /// gives their number.
    pub(crate) fn take(
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        check: impl FnOnce(u64) -> Result<u32, IoError>,
    ) -> PyResult<Result<(Source, AlignedBuf), IoError>> {
        if let Ok(buffer) = data.cast::<Buffer>() {
            let mut inner = buffer.try_borrow_mut().map_err(PyErr::from)?;
            if inner.views == 0 {
                let Some(memory) = inner.memory.take() else {
                    return Err(PyBufferError::new_err("a disk has this buffer"));
                };
                return Ok(Ok((Source { owner: Some(buffer.clone().unbind()) }, memory)));
            }
        }
        let view = bytes_of(data)?;
        let mut memory = match check(view.len_bytes() as u64) {
            Ok(len) => zeroed(len)?,
            Err(e) => return Ok(Err(e)),
        };
        view.copy_to_slice(py, memory.as_mut_slice())?;
        Ok(Ok((Source { owner: None }, memory)))
    }

    /// Gives the memory back, if it was not a copy and the disk has given it back.
    pub(crate) fn give_back(self, py: Python<'_>, memory: Option<AlignedBuf>) {
        if let (Some(owner), Some(memory)) = (self.owner, memory) {
            owner.borrow_mut(py).memory = Some(memory);
        }
    }
}

/// Copies what was read to memory of the caller.
pub(crate) fn copy_into(py: Python<'_>, data: &AlignedBuf, target: &PyBuffer<u8>) -> PyResult<()> {
    target.copy_from_slice(py, data.as_slice())
}
