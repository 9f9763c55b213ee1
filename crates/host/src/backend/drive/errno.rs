//! The status that an errno of the kernel means. The kernel's own table is `blk_errors` (block/blk-core.c).

use zoneplug_core::Status;

/// The status that an errno means. The kernel reports most errors as `EIO`; callers that can then ask for the condition
/// of the zone.
pub(crate) fn status_of(errno: i32) -> Status {
    match errno {
        0 => Status::Ok,
        libc::EOPNOTSUPP | libc::ENOTTY | libc::ENOSYS => Status::NotSupported,
        libc::ETIMEDOUT => Status::Timeout,
        libc::ENOSPC => Status::NoSpace,
        libc::ENODEV | libc::ENXIO | libc::ENOLINK | libc::EBADF => Status::NoDevice,
        libc::ENODATA | libc::EILSEQ => Status::Medium,
        // No data has moved: the submitting thread was interrupted or has ended, or the kernel had no memory.
        libc::EAGAIN | libc::EINTR | libc::ECANCELED | libc::ENOMEM => Status::Busy,
        libc::ETOOMANYREFS => Status::OpenLimit,
        libc::EOVERFLOW => Status::ActiveLimit,
        libc::EINVAL => Status::InvalidField,
        libc::EPERM | libc::EACCES | libc::EROFS => Status::ReadOnlyDisk,
        _ => Status::Io,
    }
}

/// Whether an errno may mean that the device has been removed. The kernel also reports `EIO` for that.
pub(crate) fn is_gone_errno(errno: i32) -> bool {
    matches!(errno, libc::EIO | libc::ENODEV | libc::ENXIO | libc::ENOLINK | libc::EINTR)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// O3: limits pass through unchanged, whatever the kernel.
    #[test]
    fn limits_have_an_errno_of_their_own_and_come_back_as_such() {
        for s in [Status::OpenLimit, Status::ActiveLimit, Status::NoSpace, Status::Timeout] {
            assert_eq!(status_of(s.errno()), s);
        }
        assert_eq!(status_of(libc::EIO), Status::Io);
        assert_eq!(status_of(libc::ENODATA), Status::Medium);
        assert_eq!(status_of(libc::EAGAIN), Status::Busy);
        assert_eq!(status_of(9999), Status::Io);
        assert!(is_gone_errno(libc::EIO) && !is_gone_errno(libc::EINVAL));
    }
}
