//! The ioctls of NVMe character devices (linux/nvme_ioctl.h) and the layout of their ring commands. The only `unsafe`
//! code is the calls.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use zoneplug_buf::AlignedBuf;

/// `struct nvme_passthru_cmd`. Without its last field it is also `struct nvme_uring_cmd`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Passthru {
    pub(super) opcode: u8,
    pub(super) flags: u8,
    pub(super) rsvd1: u16,
    pub(super) nsid: u32,
    pub(super) cdw2: u32,
    pub(super) cdw3: u32,
    pub(super) metadata: u64,
    pub(super) addr: u64,
    pub(super) metadata_len: u32,
    /// Bytes; for a vectored command, elements of the list at `addr`.
    pub(super) data_len: u32,
    /// Command dwords 10 to 15.
    pub(super) cdw: [u32; 6],
    pub(super) timeout_ms: u32,
    pub(super) result: u32,
}

const NVME_IOCTL_ID: libc::Ioctl = libc::_IO(b'N' as u32, 0x40);
const NVME_IOCTL_ADMIN_CMD: libc::Ioctl = libc::_IOWR::<Passthru>(b'N' as u32, 0x41);
const NVME_IOCTL_IO_CMD: libc::Ioctl = libc::_IOWR::<Passthru>(b'N' as u32, 0x43);
/// `NVME_URING_CMD_IO`.
pub(super) const URING_CMD_IO: u32 = libc::_IOWR::<Passthru>(b'N' as u32, 0x80) as u32;
/// `NVME_URING_CMD_IO_VEC`.
pub(super) const URING_CMD_IO_VEC: u32 = libc::_IOWR::<Passthru>(b'N' as u32, 0x81) as u32;

impl Passthru {
    /// The bytes of this command in a ring entry of 128 bytes.
    pub(super) fn bytes(&self) -> [u8; 80] {
        let mut b = [0; 80];
        let mut put = |at: usize, bytes: &[u8]| b[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &[self.opcode, self.flags]);
        put(4, &self.nsid.to_ne_bytes());
        put(8, &self.cdw2.to_ne_bytes());
        put(12, &self.cdw3.to_ne_bytes());
        put(16, &self.metadata.to_ne_bytes());
        put(24, &self.addr.to_ne_bytes());
        put(32, &self.metadata_len.to_ne_bytes());
        put(36, &self.data_len.to_ne_bytes());
        for (i, d) in self.cdw.iter().enumerate() {
            put(40 + 4 * i, &d.to_ne_bytes());
        }
        put(64, &self.timeout_ms.to_ne_bytes());
        b
    }
}

/// The queue of the controller that a command goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum To {
    Admin,
    Io,
}

/// The number of the namespace behind a file.
pub(super) fn namespace(file: &File) -> io::Result<u32> {
    // SAFETY: a request without an argument.
    let id = unsafe { libc::ioctl(file.as_raw_fd(), NVME_IOCTL_ID) };
    if id < 0 { Err(io::Error::last_os_error()) } else { Ok(id as u32) }
}

/// Sends one command that reads `len` bytes, and waits. An error of the drive has its NVMe status in its text.
pub(super) fn fetch(file: &File, to: To, mut cmd: Passthru, len: u32) -> io::Result<Vec<u8>> {
    let mut buf = AlignedBuf::zeroed(len);
    cmd.addr = buf.as_mut_ptr() as u64;
    cmd.data_len = len;
    let request = if to == To::Admin { NVME_IOCTL_ADMIN_CMD } else { NVME_IOCTL_IO_CMD };
    // SAFETY: the request reads and writes one `Passthru`; the drive writes `len` bytes at most to the buffer that it
    // names.
    match unsafe { libc::ioctl(file.as_raw_fd(), request, &mut cmd) } {
        0 => Ok(buf.to_vec()),
        status if status > 0 => Err(io::Error::other(format!("NVMe status {:#x}", status & 0x7ff))),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// linux/nvme_ioctl.h: sizes are a part of the numbers.
    #[test]
    fn structures_and_requests_are_the_kernels() {
        assert_eq!(size_of::<Passthru>(), 72);
        assert_eq!(
            [NVME_IOCTL_ID, NVME_IOCTL_ADMIN_CMD, NVME_IOCTL_IO_CMD],
            [0x4e40, 0xc048_4e41, 0xc048_4e43]
        );
        assert_eq!([URING_CMD_IO, URING_CMD_IO_VEC], [0xc048_4e80, 0xc048_4e81]);
    }

    #[test]
    fn a_command_lies_in_an_entry_as_in_memory() {
        let c = Passthru {
            opcode: 0x7d,
            nsid: 0x0102_0304,
            addr: 0x1122_3344_5566_7788,
            data_len: 0x2000,
            cdw: [10, 11, 12, 13, 14, 15],
            timeout_ms: 77,
            ..Default::default()
        };
        let b = c.bytes();
        let word = |at: usize| u32::from_ne_bytes(b[at..at + 4].try_into().unwrap());
        assert_eq!((b[0], word(4), word(36), word(64)), (0x7d, 0x0102_0304, 0x2000, 77));
        assert_eq!(u64::from_ne_bytes(b[24..32].try_into().unwrap()), c.addr);
        assert_eq!([40, 44, 48, 52, 56, 60].map(word), c.cdw);
        assert!(b[68..].iter().all(|&x| x == 0));
        assert_eq!(std::mem::offset_of!(Passthru, addr), 24);
        assert_eq!(std::mem::offset_of!(Passthru, data_len), 36);
        assert_eq!(std::mem::offset_of!(Passthru, cdw), 40);
        assert_eq!(std::mem::offset_of!(Passthru, timeout_ms), 64);
    }

    #[test]
    fn what_is_no_nvme_device_says_so() {
        let file = File::open("/dev/null").unwrap();
        assert_eq!(namespace(&file).unwrap_err().raw_os_error(), Some(libc::ENOTTY));
        assert!(fetch(&file, To::Admin, Passthru::default(), 4096).is_err());
    }
}
