//! Disks in files: making, checking and copying them.

use crate::boundary::{
    Failure, Options, Outcome, Uncancelled, call, give_lines, known, options, path, store, zp_line,
};
use crate::disk::{disk, zp_disk};
use libc::{c_char, c_int, c_void};
use std::path::Path;

/// A flag of `zp_create`: finds space for all data now, and keeps it when a zone is reset. No write fails for want of space.
pub const ZP_CREATE_PREALLOCATE: u32 = 1;
/// A flag of `zp_create`: replaces a file that exists, unless a process has it open as a disk.
pub const ZP_CREATE_FORCE: u32 = 2;
/// A flag of `zp_check`: repairs what can be repaired.
pub const ZP_CHECK_REPAIR: u32 = 1;
/// A flag of `zp_snapshot`: the copy has the UUID of the disk, for a copy that replaces the disk.
pub const ZP_SNAPSHOT_KEEP_UUID: u32 = 1;

/// Options of a new disk. Set all bytes to zero, then `struct_size`; 0 is the default of each field. Sizes are bytes.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct zp_create_options {
    /// `sizeof(struct zp_create_options)`.
    pub struct_size: usize,
    /// Bytes of the whole disk; the remainder after whole zones becomes a shorter last zone. 0: `zones` has the number of zones.
    pub size: u64,
    /// Number of zones.
    pub zones: u64,
    /// Bytes of a zone. Default: 256 MiB.
    pub zone_size: u64,
    /// Bytes of a zone that can be written. Default: all.
    pub zone_capacity: u64,
    /// Bytes of the last zone (with `zones`).
    pub last_zone_size: u64,
    /// Bytes of the last zone that can be written.
    pub last_zone_capacity: u64,
    /// Bytes of a logical block. Default: 4096.
    pub lba_size: u64,
    /// Writes to sequential zones are multiples of so many bytes. Default: a logical block.
    pub granularity: u64,
    /// The longest append of the device itself. Default: it has none, and the layer emulates appends.
    pub zone_append_max: u64,
    /// Conventional zones, at the start of the disk.
    pub conv: u32,
    /// Most open zones. Default: no limit.
    pub max_open: u32,
    /// Most active zones. Default: no limit.
    pub max_active: u32,
    /// `ZP_CREATE_*`.
    pub flags: u32,
    /// A name, up to 63 bytes of UTF-8. NULL: none.
    pub label: *const c_char,
}

// SAFETY: numbers and a pointer, for which zero is a value.
unsafe impl Options for zp_create_options {
    const NAME: &'static str = "zp_create_options";
}

/// The identity of a disk in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct zp_identity {
    /// The UUID of the disk, as text.
    pub uuid: [c_char; 40],
    /// The label of the disk. May be empty.
    pub label: [c_char; 64],
    /// When it was made, in seconds since 1970.
    pub created_unix_s: u64,
    /// How often it was opened for writing.
    pub opened_for_writing: u64,
    /// Version of the format of the file.
    pub format_version: u32,
    /// Zero.
    pub reserved: u32,
}

/// The counts of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct zp_check_report {
    /// Problems found.
    pub problems: u32,
    /// Problems repaired.
    pub repaired: u32,
    /// Zones that were checked.
    pub zones: u32,
    /// Zero.
    pub reserved: u32,
}

/// A snapshot that was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct zp_snapshot_report {
    /// The identity of the copy.
    pub identity: zp_identity,
    /// Bytes of data that were copied.
    pub copied: u64,
    /// 1: the copy shares blocks with the disk, which the file system copies when either changes.
    pub shared: u32,
    /// Zero.
    pub reserved: u32,
}

#[cfg(feature = "file")]
impl From<zoneplug::file::Identity> for zp_identity {
    fn from(of: zoneplug::file::Identity) -> zp_identity {
        fn array<const N: usize>(text: &str) -> [c_char; N] {
            let mut all = [0; N];
            // The last byte stays zero.
            for (to, from) in all[..N - 1].iter_mut().zip(text.bytes()) {
                *to = from as c_char;
            }
            all
        }
        zp_identity {
            uuid: array(&of.uuid),
            label: array(&of.label),
            created_unix_s: of.created,
            opened_for_writing: of.opened,
            format_version: of.version,
            reserved: 0,
        }
    }
}

/// The error of a build without disks in files.
#[cfg(not(feature = "file"))]
fn unbuilt() -> Failure {
    Failure::new(libc::EOPNOTSUPP, "this build has no disks in files", "a build with FEATURES=file")
}

#[cfg(feature = "file")]
fn create(path: &Path, given: zp_create_options) -> Outcome<zp_identity> {
    let given_or_default = |bytes: u64| (bytes > 0).then_some(bytes);
    let label = match given.label.is_null() {
        true => "",
        // SAFETY: a string, says the header.
        false => unsafe { crate::boundary::text(given.label, "the label") }?,
    };
    let options = zoneplug::file::CreateOptions {
        size: given_or_default(given.size),
        zones: given_or_default(given.zones),
        zone_size: given_or_default(given.zone_size),
        zone_capacity: given_or_default(given.zone_capacity),
        last_zone_size: given_or_default(given.last_zone_size),
        last_zone_capacity: given_or_default(given.last_zone_capacity),
        conv: given.conv,
        max_open: given.max_open,
        max_active: given.max_active,
        lba_size: given_or_default(given.lba_size),
        granularity: given_or_default(given.granularity),
        zone_append_max: given_or_default(given.zone_append_max),
        label: label.to_owned(),
        preallocate: given.flags & ZP_CREATE_PREALLOCATE != 0,
    };
    // A path that no specification can name makes no disk.
    zoneplug_host::Specification::of_new_file(path)?;
    let force = given.flags & ZP_CREATE_FORCE != 0;
    Ok(zoneplug::file::create(path, &options, force)?.into())
}

#[cfg(not(feature = "file"))]
fn create(_: &Path, _: zp_create_options) -> Outcome<zp_identity> {
    Err(unbuilt())
}

/// Makes a disk in a new file, and stores its identity in `*identity`, unless that is NULL. `zp_open(path)` opens the disk.
/// -EINVAL: such a disk is not possible, or has neither or both of `size` and `zones`. -EBUSY: the file exists, or with
/// `ZP_CREATE_FORCE` is open as a disk.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_create(
    path: *const c_char,
    options: *const zp_create_options,
    identity: *mut zp_identity,
) -> c_int {
    call(|| {
        // SAFETY: a string and options, says the header.
        let (path, given) = unsafe { (self::path(path)?, self::options(options)?) };
        known(given.flags, ZP_CREATE_PREALLOCATE | ZP_CREATE_FORCE, "ZP_CREATE_*")?;
        if (given.size == 0) == (given.zones == 0) {
            let what = "a disk has a size or a number of zones";
            return Err(Failure::invalid(what, "one of the fields `size` and `zones`"));
        }
        let _whole = Uncancelled::begin();
        let made = create(path, given)?;
        // SAFETY: NULL or a place, says the header.
        unsafe { store(identity, made) };
        Ok(0)
    })
}

/// The counts of a check, and its findings.
type Checked = (zp_check_report, Vec<String>);

#[cfg(feature = "file")]
fn check(path: &Path, repair: bool) -> Outcome<Checked> {
    let found = zoneplug::file::check(path, repair)?;
    let (problems, repaired, zones) = (found.problems, found.repaired, found.zones);
    Ok((zp_check_report { problems, repaired, zones, reserved: 0 }, found.lines))
}

#[cfg(not(feature = "file"))]
fn check(_: &Path, _: bool) -> Outcome<Checked> {
    Err(unbuilt())
}

/// Checks the disk in a file that no process writes. Returns the number of problems that are left: 0 for a sound disk. `flags`
/// is 0 or `ZP_CHECK_REPAIR`. Stores counts in `*report`, unless that is NULL, and calls `line` with each finding and what was
/// done about it. A problem that cannot be repaired is a negative errno: both copies of the superblock are damaged, or the
/// file was cut.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_check(
    path: *const c_char,
    flags: u32,
    report: *mut zp_check_report,
    line: zp_line,
    arg: *mut c_void,
) -> c_int {
    call(|| {
        known(flags, ZP_CHECK_REPAIR, "0 or ZP_CHECK_REPAIR")?;
        let _whole = Uncancelled::begin();
        // SAFETY: a string, says the header.
        let (counts, lines) = check(unsafe { self::path(path)? }, flags != 0)?;
        // SAFETY: NULL or a place, and a function that takes `arg`, says the header.
        unsafe {
            store(report, counts);
            give_lines(&lines, line, arg);
        }
        let left = counts.problems.saturating_sub(counts.repaired);
        Ok(c_int::try_from(left).unwrap_or(c_int::MAX))
    })
}

#[cfg(feature = "file")]
fn new_uuid(path: &Path) -> Outcome<zp_identity> {
    Ok(zoneplug::file::new_uuid(path)?.into())
}

#[cfg(not(feature = "file"))]
fn new_uuid(_: &Path) -> Outcome<zp_identity> {
    Err(unbuilt())
}

/// Gives the disk in a file that no process writes a new UUID, as a copy by `cp` needs one: it has that of the original. Stores
/// the new identity in `*identity`, unless that is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_new_uuid(path: *const c_char, identity: *mut zp_identity) -> c_int {
    call(|| {
        let _whole = Uncancelled::begin();
        // SAFETY: a string, and NULL or a place, says the header.
        unsafe { store(identity, new_uuid(self::path(path)?)?) };
        Ok(0)
    })
}

/// The report of a copy, and the problems of the disk that were found.
type Copied = (zp_snapshot_report, Vec<String>);

#[cfg(feature = "file")]
fn snapshot(disk: &zp_disk, path: &Path, keep_uuid: bool) -> Outcome<Copied> {
    let made = disk.hosted()?.snapshot(path, !keep_uuid)?;
    let (shared, copied) = (made.shared.into(), made.copied);
    let report = zp_snapshot_report { identity: made.identity.into(), copied, shared, reserved: 0 };
    Ok((report, made.notices))
}

#[cfg(not(feature = "file"))]
fn snapshot(_: &zp_disk, _: &Path, _: bool) -> Outcome<Copied> {
    Err(unbuilt())
}

/// Makes a consistent copy of an open disk in a new file. The disk stays in use; its operations wait for a moment. `flags` is 0
/// or `ZP_SNAPSHOT_KEEP_UUID`. Stores what was made in `*report`, unless that is NULL, and calls `line` with each problem of the
/// disk, such as damage. -EOPNOTSUPP: the disk is not in one file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_snapshot(
    disk: *mut zp_disk,
    path: *const c_char,
    flags: u32,
    report: *mut zp_snapshot_report,
    line: zp_line,
    arg: *mut c_void,
) -> c_int {
    call(|| {
        known(flags, ZP_SNAPSHOT_KEEP_UUID, "0 or ZP_SNAPSHOT_KEEP_UUID")?;
        // SAFETY: an open disk and a string, says the header.
        let (disk, path) = unsafe { (self::disk(disk)?, self::path(path)?) };
        let _whole = Uncancelled::begin();
        let (made, notices) = snapshot(disk, path, flags != 0)?;
        // SAFETY: NULL or a place, and a function that takes `arg`, says the header.
        unsafe {
            store(report, made);
            give_lines(&notices, line, arg);
        }
        Ok(0)
    })
}
