//! A disk: open and close, properties, attributes, the plug dump.

use crate::boundary::{Failure, Outcome, Process, Uncancelled, call, copy_text, text};
use libc::{c_char, c_int};
use std::ffi::CStr;
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};
use zoneplug::crash::Power;
use zoneplug_core::Error;
use zoneplug_core::disk::DiskCounters;
use zoneplug_core::poison::lock;
use zoneplug_core::zone::{Geometry, Limits};
use zoneplug_host::{Batch, BlockingDisk, DiskSpec, HostedDisk, WakeFd};

/// Most operations of a queue.
pub(crate) const MAX_DEPTH: u32 = 4096;

/// Most operations at the device of a call that waits for several.
const BATCH_DEPTH: u16 = 32;

/// A disk. Any number of threads may use it at a time.
pub struct zp_disk {
    disk: HostedDisk,
    /// Commands of one queue at the device, if the specification has `tags=`.
    pub(crate) tags: Option<u16>,
    process: Process,
    /// Clients for calls that wait. Each call takes one.
    idle: Mutex<Vec<BlockingDisk>>,
    /// Clients for calls that wait for several operations.
    idle_batches: Mutex<Vec<Batch>>,
    /// The power, if the program can cut it.
    pub(crate) power: Option<Power>,
    /// Announces events, once there is a descriptor.
    pub(crate) bell: Mutex<Option<Arc<WakeFd>>>,
}

impl zp_disk {
    /// A handle of an open disk.
    pub(crate) fn new(disk: HostedDisk, tags: Option<u16>) -> zp_disk {
        let (idle, idle_batches) = (Mutex::default(), Mutex::default());
        let (process, power, bell) = (Process::this(), None, Mutex::default());
        zp_disk { disk, tags, process, idle, idle_batches, power, bell }
    }

    /// Goes on with another disk, which a power cut has left.
    pub(crate) fn replace(&mut self, disk: HostedDisk) {
        lock(&self.idle).clear();
        lock(&self.idle_batches).clear();
        if let Some(bell) = &*lock(&self.bell) {
            self.disk.wake_at_event(Waker::noop());
            // The program does not know yet what has happened to the other disk.
            bell.wake_by_ref();
        }
        self.disk = disk;
    }

    /// The disk, unless this process is a child of the one that opened it.
    pub(crate) fn hosted(&self) -> Outcome<&HostedDisk> {
        self.process.check()?;
        Ok(&self.disk)
    }

    /// Runs a call that waits for one operation.
    pub(crate) fn with_client<T>(
        &self,
        work: impl FnOnce(&mut BlockingDisk) -> Outcome<T>,
    ) -> Outcome<T> {
        self.with_idle(&self.idle, BlockingDisk::new, work)
    }

    /// Runs a call that waits for several operations, of which up to [`BATCH_DEPTH`] are at the device at a time.
    pub(crate) fn with_batch<T>(&self, work: impl FnOnce(&mut Batch) -> Outcome<T>) -> Outcome<T> {
        let depth = self.tags.unwrap_or(BATCH_DEPTH).clamp(1, BATCH_DEPTH);
        self.with_idle(&self.idle_batches, |disk| Batch::new(disk, depth), work)
    }

    /// Runs a call with an idle client. Each thread that calls at the same time uses its own client, which is kept for later
    /// calls.
    fn with_idle<C, T>(
        &self,
        idle: &Mutex<Vec<C>>,
        new: impl FnOnce(&HostedDisk) -> Result<C, Error>,
        work: impl FnOnce(&mut C) -> Outcome<T>,
    ) -> Outcome<T> {
        let disk = self.hosted()?;
        let _whole = Uncancelled::begin();
        let kept = lock(idle).pop();
        let mut client = match kept {
            Some(client) => client,
            None => new(disk)?,
        };
        let result = work(&mut client);
        lock(idle).push(client);
        result
    }
}

/// The disk that an argument names.
///
/// # Safety
///
/// `disk` is null or was opened and not closed, and no other thread closes it meanwhile.
pub(crate) unsafe fn disk<'a>(disk: *const zp_disk) -> Outcome<&'a zp_disk> {
    // SAFETY: the caller's promise.
    unsafe { disk.as_ref() }
        .ok_or_else(|| Failure::invalid("the disk is NULL", "what zp_open gave"))
}

/// Opens the disk that `spec` names, such as `"mem,zones=64,zone-size=4M"`, `"disk.zbd"` or `"/dev/nvme0n1"`, and
/// stores it in `*disk`. Returns 0, or a negative errno: -EINVAL if the specification is wrong, -ENOENT if there is no
/// such file or drive, -EBUSY if it is in use, -EOPNOTSUPP if this build or system cannot open it. Starts threads.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_open(spec: *const c_char, disk: *mut *mut zp_disk) -> c_int {
    call(|| {
        if disk.is_null() {
            return Err(Failure::invalid("the place for the disk is NULL", "a pointer's address"));
        }
        let _whole = Uncancelled::begin();
        // SAFETY: a string, says the header.
        let spec = DiskSpec::parse(unsafe { text(spec, "the specification") }?)?;
        let tags = spec.tags;
        let hosted = HostedDisk::open_named(spec)?;
        let new = zp_disk::new(hosted, tags);
        // SAFETY: not null, and the place of a pointer, says the header.
        unsafe { disk.write(Box::into_raw(Box::new(new))) };
        Ok(0)
    })
}

/// Closes a disk. NULL is allowed. No thread may be in a call with this disk, or use it afterwards. Queues stay usable;
/// the device is closed with the last of them. Does not flush: what was acknowledged and not flushed is as durable as on
/// any disk. In a child of a fork this does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_close(disk: *mut zp_disk) {
    call(|| {
        if disk.is_null() {
            return Ok(0);
        }
        let _whole = Uncancelled::begin();
        // SAFETY: opened and not closed, says the header.
        let disk = unsafe { Box::from_raw(disk) };
        if disk.process.is_other() {
            // The disk's threads do not exist in this process, and the parent owns its device.
            std::mem::forget(disk);
        } else if lock(&disk.bell).is_some() {
            // Queues may keep the disk open, but the descriptor is closed with the handle.
            disk.disk.wake_at_event(Waker::noop());
        }
        Ok(0)
    });
}

/// The state of a disk that properties are read from.
struct View {
    geometry: Geometry,
    limits: Limits,
    counters: DiskCounters,
    withheld: u64,
}

type Property = (&'static CStr, fn(&View) -> u64);

/// The numbers of a disk, by name. Later versions add more at the end.
static PROPERTIES: [Property; 45] = [
    (c"sectors", |v| v.geometry.capacity().0),
    (c"nr_zones", |v| v.geometry.nr_zones().into()),
    (c"zone_sectors", |v| v.geometry.zone_sectors().into()),
    (c"zone_capacity_sectors", |v| v.geometry.zone_capacity_sectors().into()),
    (c"nr_conventional_zones", |v| v.geometry.nr_conventional().into()),
    (c"logical_block_sectors", |v| v.limits.logical_block_sectors.into()),
    (c"write_granularity_sectors", |v| v.limits.write_granularity_sectors.into()),
    (c"max_transfer_sectors", |v| v.limits.max_transfer_sectors.into()),
    (c"zone_append_max_sectors", |v| v.limits.zone_append_max_sectors.into()),
    (c"max_open_zones", |v| v.limits.max_open_zones.into()),
    (c"max_active_zones", |v| v.limits.max_active_zones.into()),
    (c"write_cache", |v| v.limits.write_cache.into()),
    (c"fua", |v| v.limits.fua.into()),
    (c"rotational", |v| v.limits.rotational.into()),
    (c"read_only", |v| v.limits.read_only.into()),
    (c"issued", |v| v.counters.plugs.issued),
    (c"parked", |v| v.counters.plugs.parked),
    (c"merged", |v| v.counters.plugs.merged),
    (c"aborted", |v| v.counters.plugs.aborted),
    (c"lost", |v| v.counters.plugs.lost),
    (c"resynced", |v| v.counters.plugs.resynced),
    (c"missing", |v| v.counters.plugs.missing),
    (c"retried", |v| v.counters.plugs.retried),
    (c"rejected", |v| v.counters.plugs.rejected.total()),
    (c"live_plugs", |v| v.counters.live_plugs.into()),
    (c"waiting", |v| v.counters.waiting),
    (c"timeouts", |v| v.counters.timeouts),
    (c"late", |v| v.counters.late),
    (c"dead_queues", |v| v.counters.dead_queues),
    (c"window_writes", |v| v.counters.window.writes),
    (c"window_sectors", |v| v.counters.window.sectors),
    (c"window_held", |v| v.counters.window.held),
    (c"window_admitted", |v| v.counters.window.admitted),
    (c"window_expired", |v| v.counters.window.expired),
    (c"window_dropped", |v| v.counters.window.dropped),
    (c"window_over_zone", |v| v.counters.window.over_zone),
    (c"window_over_client", |v| v.counters.window.over_client),
    (c"window_over_disk", |v| v.counters.window.over_disk),
    (c"writer_turns", |v| v.counters.writer.turns),
    (c"writer_cut_off", |v| v.counters.writer.cut_off),
    (c"writer_anticipated", |v| v.counters.writer.anticipated),
    (c"writer_longest_wait_ns", |v| v.counters.writer.longest_wait.0),
    (c"withheld_bytes", |v| v.withheld),
    (c"sector_bytes", |_| 512),
    (c"max_queue_depth", |_| u64::from(MAX_DEPTH)),
];

/// Stores a number of the disk in `*value`: its size and limits (`"sectors"`, `"nr_zones"`, `"zone_sectors"`,
/// `"zone_capacity_sectors"`, `"logical_block_sectors"`, `"max_open_zones"`, ...) and what it has counted since it was
/// opened (`"issued"`, `"parked"`, `"merged"`, `"rejected"`, ...). Names with `sectors` are in units of 512 bytes; a
/// limit of 0 is none. `zp_property_name` lists them. Returns 0, or -ENOENT if there is no such property.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_property(
    disk: *mut zp_disk,
    name: *const c_char,
    value: *mut u64,
) -> c_int {
    call(|| {
        // SAFETY: an open disk and a string, says the header.
        let (disk, name) = unsafe { (self::disk(disk)?.hosted()?, text(name, "the name")?) };
        let named = |p: &&Property| p.0.to_bytes() == name.as_bytes();
        let Some((_, get)) = PROPERTIES.iter().find(named) else {
            return Err(Failure::new(
                libc::ENOENT,
                &format!("a disk has no property {name:?}"),
                "zp_property_name lists them; zp_attribute has those that can be changed",
            ));
        };
        if value.is_null() {
            return Err(Failure::invalid("the place for the value is NULL", "a number's address"));
        }
        let view = View {
            geometry: disk.geometry(),
            limits: disk.limits(),
            counters: disk.counters(),
            withheld: disk.withheld().bytes,
        };
        // SAFETY: not null, and the place of a number, says the header.
        unsafe { value.write(get(&view)) };
        Ok(0)
    })
}

/// The name of a property, by its place from 0 on. NULL: there are no more. The text lives for ever.
#[unsafe(no_mangle)]
pub extern "C" fn zp_property_name(nth: u32) -> *const c_char {
    PROPERTIES.get(nth as usize).map_or(std::ptr::null(), |p| p.0.as_ptr())
}

/// Copies the value of an attribute, such as `"zoned_qd1_writes"`, to the `size` bytes at `buf`, as snprintf does: ends
/// it with a zero byte, and returns the length of the whole value. -ENOENT: the disk has no such attribute.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_attribute(
    disk: *mut zp_disk,
    name: *const c_char,
    buf: *mut c_char,
    size: usize,
) -> c_int {
    call(|| {
        // SAFETY: an open disk and a string, says the header.
        let (disk, name) = unsafe { (self::disk(disk)?.hosted()?, text(name, "the name")?) };
        let Some(value) = disk.disk().attribute(name) else {
            return Err(disk.disk().no_attribute(name).into());
        };
        // SAFETY: `buf` has that size, says the header.
        unsafe { copy_text(&value, buf, size) }
    })
}

/// Changes an attribute, and returns when it has taken effect. -ENOENT: the disk has no such attribute. -EINVAL: it does
/// not take this value. -EBUSY: the device did not finish what it has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_set_attribute(
    disk: *mut zp_disk,
    name: *const c_char,
    value: *const c_char,
) -> c_int {
    call(|| {
        // SAFETY: an open disk and strings, says the header.
        let (disk, name, value) = unsafe {
            (self::disk(disk)?.hosted()?, text(name, "the name")?, text(value, "the value")?)
        };
        let _whole = Uncancelled::begin();
        disk.set_attribute(name, value)?;
        Ok(0)
    })
}

/// Copies the name of the disk's nth attribute, from 0 on, to `buf`, as `zp_attribute` does. -ENOENT: there are no more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_attribute_name(
    disk: *mut zp_disk,
    nth: u32,
    buf: *mut c_char,
    size: usize,
) -> c_int {
    call(|| {
        // SAFETY: an open disk, says the header.
        let all = unsafe { self::disk(disk)?.hosted()? }.disk().attributes();
        let Some(a) = all.get(nth as usize) else {
            let what = format!("this disk has {} attributes", all.len());
            return Err(Failure::new(libc::ENOENT, &what, "a smaller number"));
        };
        // SAFETY: `buf` has that size, says the header.
        unsafe { copy_text(a.name, buf, size) }
    })
}

/// Copies the plug dump to `buf`, as `zp_attribute` does: a line for each zone that is busy, stale or partly written, in
/// the form of Linux's `zone_wplugs`. A second call may find a longer one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_wplugs(disk: *mut zp_disk, buf: *mut c_char, size: usize) -> c_int {
    call(|| {
        let mut dump = String::new();
        // SAFETY: an open disk, says the header.
        let disk = unsafe { self::disk(disk)?.hosted()? };
        disk.disk()
            .zone_wplugs(&mut dump)
            .map_err(|_| Failure::new(libc::EIO, "the dump failed", "report this"))?;
        // SAFETY: `buf` has that size, says the header.
        unsafe { copy_text(&dump, buf, size) }
    })
}

/// Reads the zones of the device again, after something else has changed them. The disk does nothing else meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_revalidate(disk: *mut zp_disk) -> c_int {
    call(|| {
        let _whole = Uncancelled::begin();
        // SAFETY: an open disk, says the header.
        unsafe { self::disk(disk)?.hosted()? }.revalidate()?;
        Ok(0)
    })
}
