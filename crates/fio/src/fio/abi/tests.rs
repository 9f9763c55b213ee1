use super::access::set;
use super::probe::probe_str;
use super::*;
use core::ffi::c_void;

#[test]
fn releases() {
    for (v, ioops) in [
        ("fio-3.33", 31),
        ("fio-3.34", 32),
        ("fio-3.35", 32),
        ("fio-3.36", 33),
        ("fio-3.37", 33),
        ("fio-3.38", 36),
        ("fio-3.39", 36),
        ("fio-3.40", 37),
        ("fio-3.41", 39),
        ("fio-3.42", 39),
    ] {
        assert_eq!(lookup(v).unwrap().ioops_version, ioops, "{v}");
    }
}

#[test]
fn refused() {
    for v in ["fio-3.32", "fio-3.43", "fio-2.33", "fio-4.0", "fio-3.330"] {
        let e = lookup(v).unwrap_err();
        assert!(e.contains("fio 3.33 to 3.42"), "{e}");
    }
    for v in ["fio-3.33-dirty", "fio-3.36-12-gabcdef", "fio-3.42-1-g0000000-dirty"] {
        let e = lookup(v).unwrap_err();
        assert!(e.contains("changed build") && e.contains("fio 3.33 to 3.42"), "{e}");
    }
    for v in
        ["", "3.33", "fio-", "fio-3", "fio-3.", "fio-3.x", "fio-+3.33", "fio-3.33.1", "fio-3.33rc1"]
    {
        let e = lookup(v).unwrap_err();
        assert!(e.contains("not a fio release"), "{v}: {e}");
    }
    // Modified builds of newer releases are refused as unknown first.
    assert!(lookup("fio-3.50-dirty").unwrap_err().contains("not a release"));
}

#[test]
fn rows_are_ascending_and_without_gaps() {
    assert_eq!(TABLE[0].0, (3, 33));
    for (min, max, _) in TABLE {
        assert!(min <= max);
    }
    for w in TABLE.windows(2) {
        assert_eq!(w[1].0, (w[0].1.0, w[0].1.1 + 1));
        assert!(w[0].2.ioops_version <= w[1].2.ioops_version);
        assert_ne!(w[0].2, w[1].2, "two rows could be one");
    }
}

/// Every field of the operations, in fio's order.
fn ops_fields(o: &OpsAbi) -> Vec<Off> {
    let mut v = vec![
        o.name,
        o.flags,
        o.dlhandle,
        o.setup,
        o.init,
        o.post_init,
        o.prep,
        o.queue,
        o.commit,
        o.getevents,
        o.event,
        o.errdetails,
    ];
    v.extend(o.cancel);
    v.extend([
        o.cleanup,
        o.open_file,
        o.close_file,
        o.invalidate,
        o.unlink_file,
        o.get_file_size,
        o.prepopulate_file,
        o.terminate,
        o.iomem_alloc,
        o.iomem_free,
        o.io_u_init,
        o.io_u_free,
        o.get_zoned_model,
        o.report_zones,
        o.reset_wp,
    ]);
    v.extend(o.move_zone_wp);
    v.push(o.get_max_open_zones);
    v.extend(o.get_max_active_zones);
    v.extend(o.finish_zone);
    v
}

#[test]
fn offsets_do_not_overlap() {
    for (min, _, abi) in TABLE {
        let o = &abi.ops;
        let f = ops_fields(o);
        assert!(f.windows(2).all(|w| w[0] < w[1]), "{min:?} {f:?}");
        // From `dlhandle` up to the last zone callback there is one
        // pointer after the other, with no hole.
        assert!(f[2..].windows(2).all(|w| w[1] == w[0] + 8), "{min:?} {f:?}");
        assert!(o.version == o.name + 8 && o.flags == o.version + 4 && o.dlhandle == o.flags + 4);
        assert!(*f.last().unwrap() < o.option_struct_size);
        assert!(o.options == o.option_struct_size + 8 && o.size == o.options + 8);

        let u = &abi.io_u;
        let f = [
            (u.issue_time, 16),
            (u.file, 8),
            (u.flags, 4),
            (u.ddir, 4),
            (u.buflen, 8),
            (u.offset, 8),
            (u.buf, 8),
            (u.xfer_buf, 8),
            (u.xfer_buflen, 8),
            (u.resid, 8),
            (u.error, 4),
            (u.index, 4),
            (u.verify_list, 8),
        ];
        assert!(f.windows(2).all(|w| w[0].0 + w[0].1 <= w[1].0), "{min:?}");
        assert!(f.iter().all(|(off, size)| off % size == 0), "{min:?}");

        let f = &abi.file;
        let f = [
            (f.filetype, 4),
            (f.fd, 4),
            (f.shadow_fd, 4),
            (f.fileno, 4),
            (f.file_name, 8),
            (f.real_file_size, 8),
            (f.zbd_info, 8),
            (f.references, 4),
            (f.flags, 4),
            (f.size, 0),
        ];
        assert!(f.windows(2).all(|w| w[0].0 + w[0].1 <= w[1].0), "{min:?}");
    }
}

#[test]
fn presence_by_release() {
    for (min, _, abi) in TABLE {
        let o = &abi.ops;
        assert_eq!(o.finish_zone.is_some(), *min >= (3, 34), "{min:?}");
        assert_eq!(o.get_max_active_zones.is_some(), *min >= (3, 36), "{min:?}");
        assert_eq!(o.move_zone_wp.is_some(), *min >= (3, 40), "{min:?}");
        assert_eq!(o.cancel.is_some(), *min < (3, 41), "{min:?}");
        assert_eq!(abi.ddir_syncfs.is_some(), *min >= (3, 42), "{min:?}");
    }
}

/// Spot values, noted independently of the constructors above.
#[test]
fn spot_values() {
    let at = |v: &str| *lookup(v).unwrap();
    for (v, model, options) in
        [("fio-3.33", 216, 256), ("fio-3.39", 216, 280), ("fio-3.41", 208, 280)]
    {
        assert_eq!((at(v).ops.get_zoned_model, at(v).ops.options), (model, options), "{v}");
    }
    for (v, off, buf, len, err) in [
        ("fio-3.33", 72, 104, 112, 144),
        ("fio-3.39", 72, 104, 112, 144),
        ("fio-3.41", 80, 112, 120, 152),
    ] {
        let u = at(v).io_u;
        assert_eq!((u.offset, u.xfer_buf, u.xfer_buflen, u.error), (off, buf, len, err), "{v}");
    }
    assert_eq!(at("fio-3.40").ops.finish_zone, Some(264));
    assert_eq!(at("fio-3.42").file.flags, 372);
    assert_eq!(at("fio-3.38").file.size, 392);
}

#[test]
fn probing_survives_bad_addresses() {
    assert_eq!(probe_str(c"mem,zones=4".as_ptr().cast(), 4096).unwrap(), b"mem,zones=4");
    assert_eq!(probe_str(core::ptr::null(), 10), None);
    assert_eq!(probe_str(16 as *const u8, 10), None);
    assert_eq!(probe_str(0xdead_beef_dead_0000u64 as *const u8, 10), None);
    let long = [b'a'; 300];
    assert_eq!(probe_str(long.as_ptr(), 200), None, "no end within the limit");
    assert!(check_new_file(&TABLE[0].2, 64 as *mut c_void, None).is_err());
}

#[test]
fn a_fresh_file_and_unit_pass_and_others_do_not() {
    for (_, _, abi) in TABLE {
        let mut f = [0u64; 64];
        let p: *mut c_void = f.as_mut_ptr().cast();
        let name = c"mem,zones=4";
        // SAFETY: the buffer is larger than the structure.
        unsafe {
            set(p, abi.file.filetype, FIO_TYPE_FILE);
            set(p, abi.file.fd, -1);
            set(p, abi.file.shadow_fd, -1);
            set(p, abi.file.real_file_size, u64::MAX);
            set(p, abi.file.file_name, name.as_ptr());
        }
        check_new_file(abi, p, None).unwrap();
        // SAFETY: as above.
        let file = unsafe { File::new(abi, p) };
        assert_eq!(file.name().unwrap(), "mem,zones=4");
        file.set_real_file_size(1 << 20);
        assert!(check_new_file(abi, p, None).is_err());
        check_new_file(abi, p, Some(1 << 20)).unwrap();
        // SAFETY: as above.
        unsafe { set(p, abi.file.fd, 3) };
        assert!(check_new_file(abi, p, Some(1 << 20)).is_err());

        let mut u = [0u64; 32];
        let p: *mut c_void = u.as_mut_ptr().cast();
        // SAFETY: as above.
        let unit = unsafe { IoU::new(abi, p) };
        // SAFETY: as above.
        unsafe {
            set(p, abi.io_u.flags, IO_U_F_FREE);
            set(p, abi.io_u.index, 7u32);
            let head = p as usize + abi.io_u.verify_list as usize;
            set(p, abi.io_u.verify_list, [head; 2]);
        }
        check_new_io_u(abi, unit, 7).unwrap();
        assert!(check_new_io_u(abi, unit, 8).is_err());
        // A row with other offsets is detected.
        for (_, _, other) in
            TABLE.iter().filter(|(_, _, o)| o.io_u.verify_list != abi.io_u.verify_list)
        {
            // SAFETY: as above; only reads.
            let unit = unsafe { IoU::new(other, p) };
            assert!(check_new_io_u(other, unit, 7).is_err());
        }
        unit.set_error(5);
        assert!(check_new_io_u(abi, unit, 7).is_err());
        assert!(check_transfer(unit, 1 << 20).is_err());
    }
}
