//! The table of releases and their rows.

use super::{Abi, FileAbi, IoUAbi, Off, OpsAbi, Release};

/// `ioengine_ops` up to `reset_wp`. It has changed once: by the `shift` of 8 when 3.41 dropped `cancel`.
const fn ops(
    has_cancel: bool,
    size: Off,
    move_zone_wp: Option<Off>,
    get_max_open_zones: Off,
    get_max_active_zones: Option<Off>,
    finish_zone: Option<Off>,
    options: Off,
) -> OpsAbi {
    let s = if has_cancel { 8 } else { 0 };
    OpsAbi {
        size,
        name: 16,
        version: 24,
        flags: 28,
        dlhandle: 32,
        setup: 40,
        init: 48,
        post_init: 56,
        prep: 64,
        queue: 72,
        commit: 80,
        getevents: 88,
        event: 96,
        errdetails: 104,
        cancel: if has_cancel { Some(112) } else { None },
        cleanup: 112 + s,
        open_file: 120 + s,
        close_file: 128 + s,
        invalidate: 136 + s,
        unlink_file: 144 + s,
        get_file_size: 152 + s,
        prepopulate_file: 160 + s,
        terminate: 168 + s,
        iomem_alloc: 176 + s,
        iomem_free: 184 + s,
        io_u_init: 192 + s,
        io_u_free: 200 + s,
        get_zoned_model: 208 + s,
        report_zones: 216 + s,
        reset_wp: 224 + s,
        move_zone_wp,
        get_max_open_zones,
        get_max_active_zones,
        finish_zone,
        option_struct_size: options - 8,
        options,
    }
}

/// `io_u`: 3.41 moved everything after `ddir` by 8; 3.36 also moved `index`.
const fn io_u(s: Off, index: Off) -> IoUAbi {
    IoUAbi {
        issue_time: 16,
        file: 32,
        flags: 40,
        ddir: 44,
        buflen: 64 + s,
        offset: 72 + s,
        buf: 88 + s,
        xfer_buf: 104 + s,
        xfer_buflen: 112 + s,
        resid: 136 + s,
        error: 144 + s,
        index,
        verify_list: if s == 0 { 160 } else { 176 },
    }
}

const fn file(zbd_info: Off, references: Off) -> FileAbi {
    FileAbi {
        filetype: 16,
        fd: 20,
        shadow_fd: 24,
        fileno: 36,
        file_name: 40,
        real_file_size: 48,
        zbd_info,
        references,
        flags: references + 4,
        size: references + 16,
    }
}

const V3_33: Abi = Abi {
    ioops_version: 31,
    ops: ops(true, 264, None, 240, None, None, 256),
    io_u: io_u(0, 152),
    file: file(72, 360),
    flag_no_offload: 1 << 15,
    flag_sets_issue_time: 1 << 16,
    ddir_syncfs: None,
};

const V3_34: Abi = Abi {
    ioops_version: 32,
    ops: ops(true, 280, None, 240, None, Some(248), 272),
    file: file(80, 368),
    ..V3_33
};

const V3_36: Abi = Abi {
    ioops_version: 33,
    ops: ops(true, 288, None, 240, Some(248), Some(256), 280),
    io_u: io_u(0, 148),
    ..V3_34
};

const V3_38: Abi = Abi { ioops_version: 36, file: file(88, 376), ..V3_36 };

const V3_40: Abi = Abi {
    ioops_version: 37,
    ops: ops(true, 296, Some(240), 248, Some(256), Some(264), 288),
    ..V3_38
};

const V3_41: Abi = Abi {
    ioops_version: 39,
    ops: ops(false, 288, Some(232), 240, Some(248), Some(256), 280),
    io_u: io_u(8, 160),
    file: file(88, 368),
    ..V3_40
};

const V3_42: Abi =
    Abi { flag_no_offload: 1 << 16, flag_sets_issue_time: 1 << 17, ddir_syncfs: Some(6), ..V3_41 };

/// First and last release a row holds for, and the row. Ascending, no gaps.
pub const TABLE: &[(Release, Release, Abi)] = &[
    ((3, 33), (3, 33), V3_33),
    ((3, 34), (3, 35), V3_34),
    ((3, 36), (3, 37), V3_36),
    ((3, 38), (3, 39), V3_38),
    ((3, 40), (3, 40), V3_40),
    ((3, 41), (3, 41), V3_41),
    ((3, 42), (3, 42), V3_42),
];

/// The releases [`TABLE`] knows, in words.
fn known() -> String {
    let (first, last) = (TABLE[0].0, TABLE[TABLE.len() - 1].1);
    format!("fio {}.{} to {}.{}", first.0, first.1, last.0, last.1)
}

/// Finds the row for a fio version string such as `fio-3.33`.
///
/// Only a plain release is accepted: a development build (`fio-3.36-12-gabc`,
/// `fio-3.33-dirty`) may hold structures of the release after it.
pub fn lookup(version: &str) -> Result<&'static Abi, String> {
    let unreadable = || {
        format!(
            "this program calls itself '{version}', which is not a fio release; known are {}",
            known()
        )
    };
    let rest = version.trim().strip_prefix("fio-").ok_or_else(unreadable)?;
    let (number, extra) = match rest.find('-') {
        Some(at) => rest.split_at(at),
        None => (rest, ""),
    };
    let mut parts = number.split('.');
    let mut next = || -> Option<u16> {
        let p = parts.next()?;
        if p.is_empty() || !p.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        p.parse().ok()
    };
    let (Some(major), Some(minor)) = (next(), next()) else {
        return Err(unreadable());
    };
    // fio has not used a third number since 2.x, except ".0".
    if !matches!(parts.next(), None | Some("0")) || parts.next().is_some() {
        return Err(unreadable());
    }
    let release = (major, minor);
    let row = TABLE.iter().find(|(min, max, _)| *min <= release && release <= *max);
    match row {
        None => Err(format!(
            "fio {major}.{minor} is not a release this engine knows; known are {}",
            known()
        )),
        Some(_) if !extra.is_empty() => Err(format!(
            "'{version}' is a changed build of fio {major}.{minor}, not the release itself, \
             and may lay out its structures otherwise; use an unchanged release ({})",
            known()
        )),
        Some((_, _, abi)) => Ok(abi),
    }
}
