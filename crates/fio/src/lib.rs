//! zoneplug for C programs: one shared library, `libzoneplug_fio.so`.
//!
//! # For fio
//!
//! The library is an external engine for stock fio 3.33 to 3.42 on 64-bit Linux. Neither needs to be built for the
//! other: the library finds out which fio has loaded it, and refuses one that it does not know.
//!
//! ```text
//! cargo build --release -p zoneplug-fio
//! fio --ioengine=external:target/release/libzoneplug_fio.so --thread --direct=1 --zonemode=zbd \
//!     --filename=mem,zones=64,zone-size=64M,zone-capacity=48M,conv=4,max-open=8,reorder=7 \
//!     --name=try --rw=randwrite --bs=4k --iodepth=64 --size=1G --verify=crc32c
//! ```
//!
//! * `--filename` is a specification, the same as everywhere in zoneplug: a device and its options, and the layer's own
//!   `mode=plug|none|lock`, `nomerges=0|1`, `strict=0|1` and `tags=` (but not `timeout=`). Without `tags=` a job has as
//!   many commands at the device as its `--iodepth`.
//! * Jobs whose specifications mean the same share one disk, whose data lives until fio ends: a second job of the same
//!   call (after a `stonewall`) reads what the first one wrote.
//! * With `zone_append=1` in the file name, writes are zone appends. The engine remembers where each landed, and does a
//!   read of fio's offset there, so fio verifies the place that the disk told. At its end it prints how many appends
//!   landed elsewhere than where fio would have written.
//! * `--thread` is required: a disk lives in one process.
//! * fio's zoned mode knows zones of one size only. A disk with a shorter last zone loses that zone there, and the
//!   engine says so; without `--zonemode=zbd` the whole disk can be used.
//! * fio hands over as many units at a time as `--iodepth_batch` says, one by default. Contiguous writes merge either
//!   way, because they wait for the one before them.
//! * A request that fails is shown by name, once for each kind: `zoneplug: write at sector 8: zone full`.

pub mod fio;
