//! The interface of the kernel's ublk driver (`ublk_drv`, `linux/ublk_cmd.h`): command numbers, flags, and
//! structures as bytes. This module makes no system call.
//!
//! Structures are encoded field by field in little endian, so that the layout does not depend on a compiler. The
//! tests compare sizes and numbers with the kernel's header.

/// `_IOR('u', nr, size)` and `_IOWR`: the driver's numbers of commands.
const fn ioc(write: bool, nr: u32, size: u32) -> u32 {
    let dir = if write { 3 } else { 2 };
    dir << 30 | size << 16 | (b'u' as u32) << 8 | nr
}

/// Length of `struct ublksrv_ctrl_cmd`, in bytes.
pub(super) const CTRL_CMD_LEN: usize = 32;
/// Length of `struct ublksrv_io_cmd`, in bytes.
pub(super) const IO_CMD_LEN: usize = 16;
/// Length of `struct ublksrv_io_desc`, in bytes.
pub(super) const IO_DESC_LEN: usize = 24;

const fn ctrl(write: bool, nr: u32) -> u32 {
    ioc(write, nr, CTRL_CMD_LEN as u32)
}

/// Commands to `/dev/ublk-control`.
pub(super) const GET_DEV_INFO: u32 = ctrl(false, 0x02);
pub(super) const ADD_DEV: u32 = ctrl(true, 0x04);
pub(super) const DEL_DEV: u32 = ctrl(true, 0x05);
pub(super) const START_DEV: u32 = ctrl(true, 0x06);
pub(super) const STOP_DEV: u32 = ctrl(true, 0x07);
pub(super) const SET_PARAMS: u32 = ctrl(true, 0x08);
pub(super) const GET_PARAMS: u32 = ctrl(false, 0x09);
pub(super) const START_USER_RECOVERY: u32 = ctrl(true, 0x10);
pub(super) const END_USER_RECOVERY: u32 = ctrl(true, 0x11);
pub(super) const GET_FEATURES: u32 = ctrl(false, 0x13);
pub(super) const DEL_DEV_ASYNC: u32 = ctrl(false, 0x14);
pub(super) const TRY_STOP_DEV: u32 = ctrl(true, 0x17);

/// Commands to `/dev/ublkcN`.
pub(super) const FETCH_REQ: u32 = ioc(true, 0x20, IO_CMD_LEN as u32);
pub(super) const COMMIT_AND_FETCH_REQ: u32 = ioc(true, 0x21, IO_CMD_LEN as u32);

/// Features of the driver, and flags of a device.
pub(super) const F_USER_RECOVERY: u64 = 1 << 3;
pub(super) const F_USER_RECOVERY_REISSUE: u64 = 1 << 4;
pub(super) const F_CMD_IOCTL_ENCODE: u64 = 1 << 6;
pub(super) const F_USER_COPY: u64 = 1 << 7;
pub(super) const F_ZONED: u64 = 1 << 8;
/// Linux 7.0 and newer: commands for many requests at a time. This program makes no device with them.
pub(super) const F_BATCH_IO: u64 = 1 << 15;
/// Linux 7.0 and newer: the driver stops a device only if no program has it open.
pub(super) const F_SAFE_STOP_DEV: u64 = 1 << 17;

/// `ublksrv_ctrl_dev_info.state`.
pub(super) const S_DEV_DEAD: u16 = 0;
pub(super) const S_DEV_LIVE: u16 = 1;
pub(super) const S_DEV_QUIESCED: u16 = 2;

/// Operations of a request.
pub(super) const OP_READ: u8 = 0;
pub(super) const OP_WRITE: u8 = 1;
pub(super) const OP_FLUSH: u8 = 2;
pub(super) const OP_DISCARD: u8 = 3;
pub(super) const OP_WRITE_ZEROES: u8 = 5;
pub(super) const OP_ZONE_OPEN: u8 = 10;
pub(super) const OP_ZONE_CLOSE: u8 = 11;
pub(super) const OP_ZONE_FINISH: u8 = 12;
pub(super) const OP_ZONE_APPEND: u8 = 13;
pub(super) const OP_ZONE_RESET_ALL: u8 = 14;
pub(super) const OP_ZONE_RESET: u8 = 15;
pub(super) const OP_REPORT_ZONES: u8 = 18;
/// FUA in `op_flags`. The driver leaves it unshifted there.
pub(super) const IO_F_FUA: u32 = 1 << 13;

/// Most requests of a queue.
pub(super) const MAX_QUEUE_DEPTH: u16 = 4096;
/// Longest request, in bytes, whose data can be addressed: `UBLK_IO_BUF_BITS`.
pub(super) const MAX_IO_BYTES: u32 = 1 << 25;
/// Distance in bytes between the mapped descriptors of two queues.
pub(super) const DESCRIPTORS_STRIDE: u64 = MAX_QUEUE_DEPTH as u64 * IO_DESC_LEN as u64;

/// Offset in `/dev/ublkcN` at which the data of a request is read and written.
pub(super) const fn data_offset(queue: u16, tag: u16) -> u64 {
    0x8000_0000 + ((queue as u64) << 41 | (tag as u64) << 25)
}

fn put<const N: usize>(out: &mut [u8], at: usize, bytes: [u8; N]) {
    out[at..at + N].copy_from_slice(&bytes);
}

fn get<const N: usize>(b: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&b[at..at + N]);
    out
}

/// `struct ublksrv_ctrl_cmd`.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CtrlCmd {
    pub(super) dev_id: u32,
    /// Address and length of the memory that the command reads or fills.
    pub(super) addr: u64,
    pub(super) len: u16,
    pub(super) data: u64,
}

impl CtrlCmd {
    /// The command as the 80-byte command area of a 128-byte SQE.
    pub(super) fn encode(&self) -> [u8; 80] {
        let mut b = [0; 80];
        put(&mut b, 0, self.dev_id.to_le_bytes());
        // The command belongs to no queue.
        put(&mut b, 4, u16::MAX.to_le_bytes());
        put(&mut b, 6, self.len.to_le_bytes());
        put(&mut b, 8, self.addr.to_le_bytes());
        put(&mut b, 16, self.data.to_le_bytes());
        b
    }
}

/// `struct ublksrv_ctrl_dev_info`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct DevInfo {
    pub(super) nr_hw_queues: u16,
    pub(super) queue_depth: u16,
    pub(super) state: u16,
    pub(super) max_io_bytes: u32,
    pub(super) dev_id: u32,
    pub(super) pid: i32,
    pub(super) flags: u64,
    /// `ublksrv_flags`: the driver keeps this word for the server and does not read it.
    pub(super) identity: u64,
    /// Two reserved words. The driver keeps them as they were given (Linux 6.6 to 7.2).
    pub(super) more: [u64; 2],
}

impl DevInfo {
    pub(super) const LEN: usize = 64;

    pub(super) fn encode(&self) -> [u8; Self::LEN] {
        let mut b = [0; Self::LEN];
        put(&mut b, 0, self.nr_hw_queues.to_le_bytes());
        put(&mut b, 2, self.queue_depth.to_le_bytes());
        put(&mut b, 4, self.state.to_le_bytes());
        put(&mut b, 8, self.max_io_bytes.to_le_bytes());
        put(&mut b, 12, self.dev_id.to_le_bytes());
        put(&mut b, 16, self.pid.to_le_bytes());
        put(&mut b, 24, self.flags.to_le_bytes());
        put(&mut b, 32, self.identity.to_le_bytes());
        put(&mut b, 48, self.more[0].to_le_bytes());
        put(&mut b, 56, self.more[1].to_le_bytes());
        b
    }

    pub(super) fn decode(b: &[u8; Self::LEN]) -> DevInfo {
        DevInfo {
            nr_hw_queues: u16::from_le_bytes(get(b, 0)),
            queue_depth: u16::from_le_bytes(get(b, 2)),
            state: u16::from_le_bytes(get(b, 4)),
            max_io_bytes: u32::from_le_bytes(get(b, 8)),
            dev_id: u32::from_le_bytes(get(b, 12)),
            pid: i32::from_le_bytes(get(b, 16)),
            flags: u64::from_le_bytes(get(b, 24)),
            identity: u64::from_le_bytes(get(b, 32)),
            more: [u64::from_le_bytes(get(b, 48)), u64::from_le_bytes(get(b, 56))],
        }
    }
}

/// Attributes of `struct ublk_param_basic`.
pub(super) const ATTR_READ_ONLY: u32 = 1;
pub(super) const ATTR_ROTATIONAL: u32 = 1 << 1;
pub(super) const ATTR_VOLATILE_CACHE: u32 = 1 << 2;
pub(super) const ATTR_FUA: u32 = 1 << 3;

/// `types` of `struct ublk_params`: the basic, discard and zoned parts are set.
const TYPES: u32 = 1 | 1 << 1 | 1 << 3;

/// The basic, discard and zoned parts of `struct ublk_params`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Params {
    pub(super) attrs: u32,
    pub(super) block_shift: u8,
    pub(super) max_sectors: u32,
    pub(super) zone_sectors: u32,
    pub(super) dev_sectors: u64,
    /// 0: the disk has no discard.
    pub(super) max_discard_sectors: u32,
    pub(super) max_write_zeroes_sectors: u32,
    pub(super) max_open_zones: u32,
    pub(super) max_active_zones: u32,
    pub(super) max_append_sectors: u32,
}

impl Params {
    /// Length in bytes up to the end of `struct ublk_param_zoned`: header 8, basic 32, discard 20, devt 16,
    /// zoned 32.
    pub(super) const LEN: usize = 108;

    pub(super) fn encode(&self) -> [u8; Self::LEN] {
        let mut b = Self::blank();
        put(&mut b, 4, TYPES.to_le_bytes());
        put(&mut b, 8, self.attrs.to_le_bytes());
        // Logical block, physical block, optimal I/O, minimum I/O. There is no value for "no optimum": the kernel
        // takes less than a block as none, and with exactly one block btrfs writes each block separately (seen with
        // Linux 7.2).
        let shift = self.block_shift;
        put(&mut b, 12, [shift, shift, shift - 1, shift]);
        put(&mut b, 16, self.max_sectors.to_le_bytes());
        put(&mut b, 20, self.zone_sectors.to_le_bytes());
        put(&mut b, 24, self.dev_sectors.to_le_bytes());
        let block = 1u32 << self.block_shift;
        put(&mut b, 44, block.to_le_bytes());
        put(&mut b, 48, self.max_discard_sectors.to_le_bytes());
        put(&mut b, 52, self.max_write_zeroes_sectors.to_le_bytes());
        put(&mut b, 56, u16::from(self.max_discard_sectors > 0).to_le_bytes());
        put(&mut b, 76, self.max_open_zones.to_le_bytes());
        put(&mut b, 80, self.max_active_zones.to_le_bytes());
        put(&mut b, 84, self.max_append_sectors.to_le_bytes());
        b
    }

    /// A buffer for the driver to fill: only the length is set.
    pub(super) fn blank() -> [u8; Self::LEN] {
        let mut b = [0; Self::LEN];
        put(&mut b, 0, (Self::LEN as u32).to_le_bytes());
        b
    }

    pub(super) fn decode(b: &[u8; Self::LEN]) -> Params {
        let word = |at| u32::from_le_bytes(get(b, at));
        Params {
            attrs: word(8),
            block_shift: b[12],
            max_sectors: word(16),
            zone_sectors: word(20),
            dev_sectors: u64::from_le_bytes(get(b, 24)),
            max_discard_sectors: word(48),
            max_write_zeroes_sectors: word(52),
            max_open_zones: word(76),
            max_active_zones: word(80),
            max_append_sectors: word(84),
        }
    }
}

/// `struct ublksrv_io_desc`: a request, as the driver describes it in shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IoDesc {
    pub(super) op: u8,
    pub(super) fua: bool,
    /// Length in sectors; for a report the number of zones.
    pub(super) len: u32,
    pub(super) sector: u64,
}

impl IoDesc {
    pub(super) fn decode(b: &[u8; IO_DESC_LEN]) -> IoDesc {
        let op_flags = u32::from_le_bytes(get(b, 0));
        IoDesc {
            op: op_flags as u8,
            fua: op_flags & IO_F_FUA != 0,
            len: u32::from_le_bytes(get(b, 4)),
            sector: u64::from_le_bytes(get(b, 8)),
        }
    }
}

/// `struct ublksrv_io_cmd`: answers the last request of a tag with `result`, and fetches the next one.
/// `append` is the sector at which a zone append landed; the driver requires 0 for everything else.
pub(super) fn io_cmd(queue: u16, tag: u16, result: i32, append: u64) -> [u8; IO_CMD_LEN] {
    let mut b = [0; IO_CMD_LEN];
    put(&mut b, 0, queue.to_le_bytes());
    put(&mut b, 2, tag.to_le_bytes());
    put(&mut b, 4, result.to_le_bytes());
    put(&mut b, 8, append.to_le_bytes());
    b
}

#[cfg(test)]
mod tests {
    use super::*;

    /// U1: commands have the numbers that a C compiler gets from the header, such as `printf("%x",
    /// UBLK_U_CMD_ADD_DEV)`.
    #[test]
    fn commands_have_the_kernels_numbers() {
        assert_eq!(GET_DEV_INFO, 0x8020_7502);
        assert_eq!(ADD_DEV, 0xc020_7504);
        assert_eq!(DEL_DEV, 0xc020_7505);
        assert_eq!(START_DEV, 0xc020_7506);
        assert_eq!(STOP_DEV, 0xc020_7507);
        assert_eq!(SET_PARAMS, 0xc020_7508);
        assert_eq!(GET_PARAMS, 0x8020_7509);
        assert_eq!(START_USER_RECOVERY, 0xc020_7510);
        assert_eq!(END_USER_RECOVERY, 0xc020_7511);
        assert_eq!(GET_FEATURES, 0x8020_7513);
        assert_eq!(DEL_DEV_ASYNC, 0x8020_7514);
        assert_eq!(TRY_STOP_DEV, 0xc020_7517);
        assert_eq!(FETCH_REQ, 0xc010_7520);
        assert_eq!(COMMIT_AND_FETCH_REQ, 0xc010_7521);
    }

    /// U1: the data of each request has its own range of offsets in `/dev/ublkcN`.
    #[test]
    fn data_of_a_request_is_where_the_driver_looks_for_it() {
        assert_eq!(data_offset(0, 0), 0x8000_0000);
        assert_eq!(data_offset(0, 1) - data_offset(0, 0), 1 << 25);
        assert_eq!(data_offset(1, 0) - data_offset(0, 0), 1 << 41);
        assert_eq!(DESCRIPTORS_STRIDE, 96 << 10, "a multiple of a page for each queue");
    }

    #[test]
    fn a_device_is_told_and_read_back() {
        let info = DevInfo {
            nr_hw_queues: 2,
            queue_depth: 128,
            state: S_DEV_QUIESCED,
            max_io_bytes: 1 << 20,
            dev_id: u32::MAX,
            pid: -1,
            flags: F_ZONED | F_USER_COPY,
            identity: 0x1234_5678_9abc_def0,
            more: [7, 8],
        };
        let b = info.encode();
        assert_eq!(DevInfo::decode(&b), info);
        assert_eq!((b[0], b[2], b[4], &b[12..16]), (2, 128, 2, &[0xff; 4][..]));
        assert_eq!((b[24], b[25]), (0x80, 1), "flags");
        assert_eq!(b[32], 0xf0);
        assert!(b[40..48].iter().all(|x| *x == 0), "the owner is the driver's");
        assert_eq!((b[48], b[56]), (7, 8));
    }

    /// U2: parameters are encoded with the layout of the header, and decoded again.
    #[test]
    fn parameters_are_laid_out_as_in_the_header() {
        let p = Params {
            attrs: ATTR_ROTATIONAL | ATTR_VOLATILE_CACHE | ATTR_FUA,
            block_shift: 12,
            max_sectors: 2048,
            zone_sectors: 0x8000,
            dev_sectors: 0x8000 * 8,
            max_discard_sectors: 0x8000,
            max_write_zeroes_sectors: 77,
            max_open_zones: 3,
            max_active_zones: 4,
            max_append_sectors: 99,
        };
        let b = p.encode();
        assert_eq!(Params::decode(&b), p);
        assert_eq!((b[0], b[4]), (108, 0b1011));
        assert_eq!(b[8], 0b1110);
        assert_eq!(&b[12..16], &[12, 12, 11, 12], "no optimum");
        assert_eq!(&b[44..48], &4096u32.to_le_bytes(), "discard granularity must not be 0");
        assert_eq!((b[52], b[56]), (77, 1), "one segment for each discard");
        assert_eq!((b[76], b[80], b[84]), (3, 4, 99));
        assert_eq!(Params { max_discard_sectors: 0, ..p }.encode()[56], 0);
    }

    /// U6: a descriptor is decoded, and the answer to an append has its sector.
    #[test]
    fn a_request_is_read_and_answered() {
        let mut b = [0; IO_DESC_LEN];
        put(&mut b, 0, (u32::from(OP_ZONE_APPEND) | IO_F_FUA | 1 << 11).to_le_bytes());
        put(&mut b, 4, 16u32.to_le_bytes());
        put(&mut b, 8, 0x8000u64.to_le_bytes());
        let d = IoDesc::decode(&b);
        assert_eq!(d, IoDesc { op: OP_ZONE_APPEND, fua: true, len: 16, sector: 0x8000 });
        let c = io_cmd(1, 7, -5, 0x8010);
        assert_eq!(c, [1, 0, 7, 0, 0xfb, 0xff, 0xff, 0xff, 0x10, 0x80, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn a_control_command_is_of_no_queue() {
        let c = CtrlCmd { dev_id: 3, addr: 0x1000, len: 64, data: 42 }.encode();
        assert_eq!(&c[..8], &[3, 0, 0, 0, 0xff, 0xff, 64, 0]);
        assert_eq!((c[9], c[16]), (0x10, 42));
        assert!(c[17..].iter().all(|b| *b == 0));
    }
}
