//! The control device `/dev/ublk-control`: makes, starts, stops and removes block devices, and reports support that
//! the kernel lacks.

use super::UblkError;
use super::abi::{self, CtrlCmd, DevInfo, Params};
use super::sys::ControlRing;
use crate::os_error::{Attempt, os_error};
use std::fs::File;
use std::io;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use zoneplug_core::poison::lock;
use zoneplug_core::{Error, ErrorKind};

const PATH: &str = "/dev/ublk-control";
/// The first Linux version with zoned ublk devices.
const LINUX: (u32, u32) = (6, 6);
/// How long a removed device usually keeps its number.
const MOMENT: Duration = Duration::from_millis(500);
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Features of the driver that a zoned device needs.
const NEEDED: u64 = abi::F_ZONED | abi::F_USER_COPY | abi::F_CMD_IOCTL_ENCODE;

/// The open control device.
pub(super) struct Control {
    file: File,
    ring: Mutex<ControlRing>,
    features: u64,
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Control").finish_non_exhaustive()
    }
}

/// The version of Linux, or an empty text if it cannot be read.
fn kernel() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    text.trim().to_owned()
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// The hint of an error if the driver is missing.
fn how_to_get_it(release: &str) -> String {
    let (major, minor) = LINUX;
    match version(release) {
        Some(v) if v < LINUX => format!("Linux {major}.{minor} or newer: this is {release}"),
        _ => format!(
            "modprobe ublk_drv; if there is no such module, a kernel {major}.{minor} or newer with CONFIG_BLK_DEV_UBLK \
             and CONFIG_BLK_DEV_ZONED (this is {release})"
        ),
    }
}

fn cannot_open(e: io::Error, release: &str) -> Error {
    match e.kind() {
        io::ErrorKind::NotFound => {
            let what = if std::path::Path::new("/sys/module/ublk_drv").exists() {
                format!("no block devices can be served: the module ublk_drv is there, but {PATH} is not")
            } else {
                format!("no block devices can be served: the module ublk_drv is not loaded, {PATH} is missing")
            };
            Error::new(ErrorKind::NotSupported, what).hint(how_to_get_it(release))
        }
        io::ErrorKind::PermissionDenied => Error::new(
            ErrorKind::NotSupported,
            format!("no block devices can be served: {PATH} may not be opened"),
        )
        .hint("run it as root: zoned ublk disks need CAP_SYS_ADMIN"),
        _ => Error::new(ErrorKind::NotSupported, format!("{PATH} cannot be opened: {e}"))
            .hint(how_to_get_it(release)),
    }
    .source(e)
}

/// The error of a command. `what`: the attempt that failed.
fn failed(what: &str, e: io::Error) -> Error {
    os_error(Attempt::UblkCommand, what, e)
}

impl Control {
    /// Opens the control device. The error says what is missing if zoned disks cannot be served.
    pub(super) fn open() -> Result<Control, Error> {
        let release = kernel();
        let file = File::options().read(true).write(true).open(PATH);
        let file = file.map_err(|e| cannot_open(e, &release))?;
        let ring = ControlRing::new().map_err(|e| {
            os_error(
                Attempt::UblkRing,
                "no block devices can be served: io_uring cannot be used",
                e,
            )
        })?;
        let mut control = Control { file, ring: Mutex::new(ring), features: 0 };
        let mut features = [0; 8];
        // Older drivers do not have this command.
        let asked = control.call(abi::GET_FEATURES, CtrlCmd::default(), &mut features);
        let features = asked.map_or(0, |()| u64::from_le_bytes(features));
        if features & NEEDED != NEEDED {
            let what = "this kernel's ublk has no zoned disks";
            return Err(Error::new(ErrorKind::NotSupported, what).hint(how_to_get_it(&release)));
        }
        control.features = features;
        Ok(control)
    }

    fn call(&self, op: u32, cmd: CtrlCmd, buf: &mut [u8]) -> io::Result<()> {
        lock(&self.ring).call(&self.file, op, cmd, buf)
    }

    fn plain(&self, op: u32, dev_id: u32, data: u64, what: &str) -> Result<(), Error> {
        let cmd = CtrlCmd { dev_id, data, ..CtrlCmd::default() };
        self.call(op, cmd, &mut []).map_err(|e| failed(&format!("ublk device {dev_id}: {what}"), e))
    }

    /// Adds a device. Returns the parameters that the driver chose.
    pub(super) fn add(&self, wish: DevInfo) -> Result<DevInfo, Error> {
        let mut b = wish.encode();
        let cmd = CtrlCmd { dev_id: wish.dev_id, ..CtrlCmd::default() };
        self.call(abi::ADD_DEV, cmd, &mut b).map_err(|e| match e.raw_os_error() {
            Some(libc::EINVAL) => {
                Error::new(ErrorKind::NotSupported, "the kernel makes no zoned ublk disk")
                    .hint(
                        "a kernel with CONFIG_BLK_DEV_ZONED, 6.6 or newer; dmesg has what it says",
                    )
                    .source(e)
            }
            Some(libc::EEXIST) => Error::from(UblkError::Exists { id: wish.dev_id }).source(e),
            _ => failed("a ublk device cannot be made", e),
        })?;
        Ok(DevInfo::decode(&b))
    }

    /// The device with this number, if there is one.
    pub(super) fn info(&self, dev_id: u32) -> Result<Option<DevInfo>, Error> {
        let mut b = [0; DevInfo::LEN];
        let cmd = CtrlCmd { dev_id, ..CtrlCmd::default() };
        match self.call(abi::GET_DEV_INFO, cmd, &mut b) {
            Ok(()) => Ok(Some(DevInfo::decode(&b))),
            Err(e) if e.raw_os_error() == Some(libc::ENODEV) => Ok(None),
            Err(e) => Err(failed(&format!("ublk device {dev_id} cannot be looked at"), e)),
        }
    }

    pub(super) fn set_params(&self, dev_id: u32, params: &Params) -> Result<(), Error> {
        let cmd = CtrlCmd { dev_id, ..CtrlCmd::default() };
        self.call(abi::SET_PARAMS, cmd, &mut params.encode())
            .map_err(|e| failed(&format!("ublk device {dev_id}: its parameters are refused"), e))
    }

    pub(super) fn params(&self, dev_id: u32) -> Result<Params, Error> {
        let mut b = Params::blank();
        let cmd = CtrlCmd { dev_id, ..CtrlCmd::default() };
        self.call(abi::GET_PARAMS, cmd, &mut b).map_err(|e| {
            failed(&format!("ublk device {dev_id}: its parameters cannot be read"), e)
        })?;
        Ok(Params::decode(&b))
    }

    /// Makes the block device appear. Returns when the kernel has read its zones; the queues must serve requests
    /// meanwhile.
    pub(super) fn start(&self, dev_id: u32) -> Result<(), Error> {
        self.plain(abi::START_DEV, dev_id, pid(), "it does not start")
    }

    /// Removes the block device. The queues serve the requests that the kernel still sends, and then end.
    pub(super) fn stop(&self, dev_id: u32) -> Result<(), Error> {
        self.plain(abi::STOP_DEV, dev_id, 0, "it does not stop")
    }

    /// Like [`Control::stop`], unless a program has the block device open. `None`: the kernel cannot tell.
    pub(super) fn try_stop(&self, dev_id: u32) -> Option<Result<(), Error>> {
        let can = self.features & abi::F_SAFE_STOP_DEV != 0;
        can.then(|| self.plain(abi::TRY_STOP_DEV, dev_id, 0, "it does not stop"))
    }

    /// Frees the device number. If a program still has the block device open, such as a mounted file
    /// system, the driver frees the number when that program closes it. This call waits for [`MOMENT`] at
    /// most.
    pub(super) fn delete(&self, dev_id: u32) -> Result<(), Error> {
        let cmd = CtrlCmd { dev_id, ..CtrlCmd::default() };
        match self.call(abi::DEL_DEV_ASYNC, cmd, &mut []) {
            // Before Linux 6.9 there is only the command that waits.
            Err(e) if matches!(e.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EINVAL)) => {
                self.plain(abi::DEL_DEV, dev_id, 0, "it cannot be removed")
            }
            Err(e) => Err(failed(&format!("ublk device {dev_id}: it cannot be removed"), e)),
            Ok(()) => {
                let end = Instant::now() + MOMENT;
                while self.info(dev_id)?.is_some() && Instant::now() < end {
                    std::thread::sleep(POLL_INTERVAL);
                }
                Ok(())
            }
        }
    }

    pub(super) fn start_recovery(&self, dev_id: u32) -> Result<(), Error> {
        self.plain(abi::START_USER_RECOVERY, dev_id, 0, "it cannot be taken over")
    }

    /// Ends a recovery: the block device continues, and the queues serve the waiting requests.
    pub(super) fn end_recovery(&self, dev_id: u32) -> Result<(), Error> {
        self.plain(abi::END_USER_RECOVERY, dev_id, pid(), "it does not go on")
    }
}

fn pid() -> u64 {
    u64::from(std::process::id())
}

/// The numbers of all devices that the driver has.
pub(super) fn device_numbers() -> Vec<u32> {
    let mut found: Vec<u32> = std::fs::read_dir("/sys/class/ublk-char")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|e| e.file_name().to_str()?.strip_prefix("ublkc")?.parse().ok())
        .collect();
    found.sort_unstable();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// U1: the error of a missing driver names what is missing and what to try.
    #[test]
    fn what_is_missing_is_said_in_a_line_with_what_to_try() {
        let e = cannot_open(io::ErrorKind::NotFound.into(), "6.18.1-1");
        assert!(
            e.to_string().contains("ublk_drv") && e.to_string().contains("/dev/ublk-control"),
            "{e}"
        );
        assert!(e.what_to_try().unwrap().contains("modprobe ublk_drv"));
        let e = cannot_open(io::ErrorKind::NotFound.into(), "6.1.0-50-amd64");
        assert_eq!(e.what_to_try(), Some("Linux 6.6 or newer: this is 6.1.0-50-amd64"));
        let e = cannot_open(io::ErrorKind::PermissionDenied.into(), "6.18.1");
        assert!(e.what_to_try().unwrap().contains("root"));
        assert_eq!(e.kind(), ErrorKind::NotSupported);
    }

    #[test]
    fn versions_are_read() {
        assert_eq!(version("7.2.13+deb14-amd64"), Some((7, 2)));
        assert_eq!(version("6.6"), Some((6, 6)));
        assert_eq!(version("?"), None);
        assert!(version(&kernel()).is_some(), "the hints name the Linux that runs: {}", kernel());
    }
}
