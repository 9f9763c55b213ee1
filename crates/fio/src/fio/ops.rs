//! The block of callbacks that fio asks for.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Once;

use super::abi::{self, Abi, Off};
use super::{engine, job, program};

/// More than the largest `ioengine_ops` in the table.
const ROOM: usize = 512;

/// Memory for one `ioengine_ops`. fio writes to it too (its library handle,
/// and a flag for direct I/O), hence the cell.
#[repr(C, align(16))]
struct Block(UnsafeCell<[u8; ROOM]>);

// SAFETY: written here once before fio sees it, and afterwards by fio's main
// thread only, while it parses its options.
unsafe impl Sync for Block {}

static BLOCK: Block = Block(UnsafeCell::new([0; ROOM]));
static FILL: Once = Once::new();

const NAME: &CStr = c"zoneplug";

/// A callback as fio's structure holds it: an address.
#[derive(Clone, Copy)]
pub(super) struct Callback(*const c_void);

macro_rules! callback {
    ($f:path as $t:ty) => {{
        // The type is written out, so that signature and field cannot differ.
        let f: $t = $f;
        Callback(f as *const c_void)
    }};
}

/// The callbacks that are compiled for a row of the table: `queue` and `commit`.
type OfRow = (unsafe extern "C" fn(Td, Ptr) -> c_int, unsafe extern "C" fn(Td) -> c_int);

fn of_row(abi: &Abi) -> OfRow {
    const ALL: [OfRow; abi::TABLE.len()] = [
        (job::queue::<0>, job::commit::<0>),
        (job::queue::<1>, job::commit::<1>),
        (job::queue::<2>, job::commit::<2>),
        (job::queue::<3>, job::commit::<3>),
        (job::queue::<4>, job::commit::<4>),
        (job::queue::<5>, job::commit::<5>),
        (job::queue::<6>, job::commit::<6>),
    ];
    let row = abi::TABLE.iter().position(|(.., row)| row == abi);
    ALL[row.expect("the row is one of the table")]
}

type Td = *mut c_void;
type Ptr = *mut c_void;

/// The callbacks and their fields. Fields that are not listed stay null.
pub(super) fn callbacks(abi: &Abi) -> Vec<(Off, Callback)> {
    type OnTd = unsafe extern "C" fn(Td) -> c_int;
    type OnTdVoid = unsafe extern "C" fn(Td);
    type OnPairVoid = unsafe extern "C" fn(Td, Ptr);
    type OnPair = unsafe extern "C" fn(Td, Ptr) -> c_int;
    type GetEvents = unsafe extern "C" fn(Td, u32, u32, *const libc::timespec) -> c_int;
    type Event = unsafe extern "C" fn(Td, c_int) -> Ptr;
    type Model = unsafe extern "C" fn(Td, Ptr, *mut c_int) -> c_int;
    type Report = unsafe extern "C" fn(Td, Ptr, u64, *mut abi::ZbdZone, u32) -> c_int;
    type Range = unsafe extern "C" fn(Td, Ptr, u64, u64) -> c_int;
    type Move = unsafe extern "C" fn(Td, Ptr, *mut abi::ZbdZone, u64, *const c_char) -> c_int;
    type Limit = unsafe extern "C" fn(Td, Ptr, *mut u32) -> c_int;

    let (queue, commit) = of_row(abi);
    let o = &abi.ops;
    let mut v = vec![
        (o.get_file_size, callback!(engine::get_file_size as OnPair)),
        (o.init, callback!(job::init as OnTd)),
        (o.cleanup, callback!(job::cleanup as OnTdVoid)),
        (o.io_u_init, callback!(job::io_u_init as OnPair)),
        (o.io_u_free, callback!(job::io_u_free as OnPairVoid)),
        (o.open_file, callback!(job::open_file as OnPair)),
        (o.close_file, callback!(engine::close_file as OnPair)),
        (o.invalidate, callback!(engine::invalidate as OnPair)),
        (o.unlink_file, callback!(engine::unlink_file as OnPair)),
        (o.queue, callback!(queue as OnPair)),
        (o.commit, callback!(commit as OnTd)),
        (o.getevents, callback!(job::getevents as GetEvents)),
        (o.event, callback!(job::event as Event)),
        (o.get_zoned_model, callback!(engine::get_zoned_model as Model)),
        (o.report_zones, callback!(engine::report_zones as Report)),
        (o.reset_wp, callback!(engine::reset_wp as Range)),
        (o.get_max_open_zones, callback!(engine::get_max_open_zones as Limit)),
    ];
    if let Some(at) = o.finish_zone {
        v.push((at, callback!(engine::finish_zone as Range)));
    }
    if let Some(at) = o.get_max_active_zones {
        v.push((at, callback!(engine::get_max_active_zones as Limit)));
    }
    if let Some(at) = o.move_zone_wp {
        v.push((at, callback!(engine::move_zone_wp as Move)));
    }
    v
}

/// Fills a zeroed block of at least `abi.ops.size` bytes.
fn fill(abi: &Abi, block: &mut [u8]) {
    let mut put = |at: Off, bytes: &[u8]| {
        assert!(at as usize + bytes.len() <= abi.ops.size as usize, "outside ioengine_ops");
        block[at as usize..][..bytes.len()].copy_from_slice(bytes);
    };
    put(abi.ops.name, &(NAME.as_ptr() as usize).to_ne_bytes());
    put(abi.ops.version, &abi.ioops_version.to_ne_bytes());
    // Diskless: a file has no descriptor, so fio must not use its own functions on it. `queue` does trims as zone
    // resets.
    let flags = abi::FIO_RAWIO
        | abi::FIO_DISKLESSIO
        | abi::FIO_NOEXTEND
        | abi::FIO_NODISKUTIL
        | abi::FIO_MEMALIGN
        | abi::FIO_ASYNCIO_SYNC_TRIM
        | abi.flag_no_offload
        | abi.flag_sets_issue_time;
    put(abi.ops.flags, &flags.to_ne_bytes());
    for (at, f) in callbacks(abi) {
        put(at, &(f.0 as usize).to_ne_bytes());
    }
}

/// fio looks this entry up in an external engine. If the engine does not know this fio, leaves `*out` null, and fio
/// gives up.
///
/// # Safety
/// To be called by fio with the address of a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn get_ioengine(out: *mut *mut c_void) {
    if out.is_null() {
        return;
    }
    // SAFETY: fio passes a pointer of its own.
    unsafe { out.write(core::ptr::null_mut()) };
    let found = std::panic::catch_unwind(|| match engine::start() {
        Ok(abi) => {
            // SAFETY: within `call_once`, and fio has no pointer to it yet.
            FILL.call_once(|| fill(abi, unsafe { &mut *BLOCK.0.get() }));
            true
        }
        Err(why) => {
            program::say(&why);
            false
        }
    });
    if found.unwrap_or(false) {
        // SAFETY: as above.
        unsafe { out.write(BLOCK.0.get().cast()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_gets_its_zone_callbacks() {
        for (min, _, abi) in abi::TABLE {
            assert!((abi.ops.size as usize) < ROOM);
            let mut block = [0u8; ROOM];
            fill(abi, &mut block);
            let word =
                |at: Off| usize::from_ne_bytes(block[at as usize..][..8].try_into().unwrap());
            let o = &abi.ops;
            for at in [
                o.name,
                o.queue,
                o.commit,
                o.getevents,
                o.event,
                o.init,
                o.io_u_free,
                o.cleanup,
                o.get_file_size,
                o.open_file,
                o.get_zoned_model,
                o.report_zones,
                o.reset_wp,
                o.get_max_open_zones,
            ] {
                assert_ne!(word(at), 0, "{min:?} {at}");
            }
            for at in [o.finish_zone, o.get_max_active_zones, o.move_zone_wp].into_iter().flatten()
            {
                assert_ne!(word(at), 0, "{min:?} {at}");
            }
            for at in [o.dlhandle, o.setup, o.prep, o.errdetails, o.iomem_alloc, o.options] {
                assert_eq!(word(at), 0, "{min:?} {at}");
            }
            assert!(block[o.size as usize..].iter().all(|b| *b == 0), "{min:?}");
            let version = i32::from_ne_bytes(block[o.version as usize..][..4].try_into().unwrap());
            assert_eq!(version, abi.ioops_version);
        }
    }

    #[test]
    fn refuses_when_not_inside_fio() {
        let mut p: *mut c_void = core::ptr::dangling_mut();
        // SAFETY: a valid address.
        unsafe { get_ioengine(&mut p) };
        assert!(p.is_null());
    }
}
