//! Disks that a program serves.
#![cfg(feature = "serve")]
#![allow(clippy::unwrap_used)]

mod common;
#[path = "../../host/tests/common/nvme_host.rs"]
mod nvme_host;

#[path = "../../host/tests/common/iscsi_initiator.rs"]
mod iscsi_initiator;

use common::{Directory, message};
use iscsi_initiator::Initiator;
use libc::{EBUSY, EINVAL, ENOENT, c_char};
use nvme_host::{INVALID_HOST, KEY, OTHER_KEY};
use std::ffi::{CStr, CString};
use std::io::{Read, Write};
use std::mem::zeroed;
use std::net::TcpStream;
use std::path::Path;
use std::ptr::{null, null_mut};
use zoneplug_capi::*;
use zoneplug_nvme::initiator::{Options, connect};

fn options() -> zp_serve_options {
    // SAFETY: numbers and pointers.
    let zero: zp_serve_options = unsafe { zeroed() };
    zp_serve_options { struct_size: size_of_val(&zero), ..zero }
}

/// Serves disks, or returns the errno.
fn serve(specs: &[&CStr], options: *const zp_serve_options) -> Result<*mut zp_serving, i32> {
    let specs: Vec<*const c_char> = specs.iter().map(|s| s.as_ptr()).collect();
    let mut serving = null_mut();
    // SAFETY: strings, options and a place.
    match unsafe { zp_serve(specs.as_ptr(), specs.len() as u32, options, &raw mut serving) } {
        0 => Ok(serving),
        errno => Err(errno),
    }
}

fn said(text: *const c_char) -> String {
    // SAFETY: a string that lives until the close.
    unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_owned()
}

#[test]
fn disks_are_served_until_they_are_stopped() {
    let served = serve(&[c"mem,zones=8", c"mem,zones=4,zone-size=1M"], null()).unwrap();
    let mut line = [0; 256];
    // SAFETY: what is served, and memory of that length.
    unsafe {
        let address = said(zp_serving_address(served));
        let port: u16 = address.strip_prefix("127.0.0.1:").unwrap().parse().unwrap();
        assert!(port > 0);
        let nqn = said(zp_serving_nqn(served));
        assert!(nqn.starts_with(&format!("nqn.2026-11.org.example:c-{}", std::process::id())));
        for (nth, start) in [(1, "namespace 1  mem,zones=8"), (2, "namespace 2  mem,zones=4,")] {
            let n = zp_serving_line(served, nth, line.as_mut_ptr(), line.len());
            let text = said(line.as_ptr());
            assert!(text.len() == n as usize && text.starts_with(start), "{text}");
        }
        assert_eq!(zp_serving_line(served, 99, line.as_mut_ptr(), line.len()), -ENOENT);
        // A PDU that is no ICReq: the server speaks NVMe/TCP, and ends the connection.
        let mut host = TcpStream::connect(&address).unwrap();
        host.write_all(&[9; 128]).unwrap();
        let mut answer = Vec::new();
        let _ = host.read_to_end(&mut answer);
        assert!(answer.first().is_none_or(|kind| *kind == 3), "C2HTermReq, not {answer:?}");
        assert_eq!(zp_serving_is_served(served), 1);

        let socket = said(zp_serving_socket(served));
        assert!(Path::new(&socket).exists());
        assert_eq!(zp_serving_stop(served), 0, "{}", message());
        assert_eq!((zp_serving_is_served(served), zp_serving_stop(served)), (0, 0));
        assert!(!Path::new(&socket).parent().unwrap().exists(), "its directory is removed");
        assert!(TcpStream::connect(&address).is_err());
        zp_serving_close(served);
        zp_serving_close(null_mut());
    }
}

/// A served disk in a file is the server's alone; a close without a stop gives it back.
#[test]
fn a_file_is_in_use_while_it_is_served() {
    let directory = Directory::new("served");
    let (path, socket) = (directory.path("disk.zbd"), directory.path("control"));
    // SAFETY: strings, options and places.
    unsafe {
        let small: zp_create_options = zeroed();
        let small = zp_create_options {
            struct_size: size_of_val(&small),
            zones: 4,
            zone_size: 1 << 20,
            ..small
        };
        assert_eq!(zp_create(path.as_ptr(), &raw const small, null_mut()), 0, "{}", message());
        let options = zp_serve_options {
            nqn: c"nqn.2026-11.org.example:mine".as_ptr(),
            socket: socket.as_ptr(),
            metrics: c"127.0.0.1:0".as_ptr(),
            ..options()
        };
        let served = serve(&[&path], &raw const options).unwrap();
        assert_eq!(said(zp_serving_nqn(served)), "nqn.2026-11.org.example:mine");
        assert_eq!(said(zp_serving_socket(served)), socket.to_str().unwrap());
        let mut disk = null_mut();
        assert_eq!(zp_open(path.as_ptr(), &raw mut disk), -EBUSY);
        zp_serving_close(served);
        assert_eq!(zp_open(path.as_ptr(), &raw mut disk), 0, "{}", message());
        zp_close(disk);
    }
}

#[test]
fn what_cannot_be_served_is_refused() {
    assert_eq!(serve(&[], null()), Err(-EINVAL));
    assert_eq!(message(), "no disk to serve");
    assert_eq!(serve(&[c"mem,zone=8"], null()), Err(-EINVAL));
    let wrong = |change: &dyn Fn(&mut zp_serve_options)| {
        let mut given = options();
        change(&mut given);
        (serve(&[c"mem,zones=8"], &raw const given).unwrap_err(), message())
    };
    assert_eq!(
        wrong(&|o| o.address = c"here".as_ptr()),
        (-EINVAL, "'here' is no address".to_owned())
    );
    assert_eq!(wrong(&|o| o.nqn = c"mine".as_ptr()).0, -EINVAL);
    // Other machines reach this address, and nothing says which hosts may use the disk.
    assert_eq!(wrong(&|o| o.address = c"0.0.0.0:0".as_ptr()).0, -EINVAL);
    assert_eq!(wrong(&|o| o.metrics = c"there".as_ptr()).0, -EINVAL);
    assert_eq!(wrong(&|o| o.own_key = c"/nowhere/key".as_ptr()).0, -ENOENT);
    assert_eq!(wrong(&|o| o.nr_hosts = 1), (-EINVAL, "the array of hosts is NULL".to_owned()));
    assert_eq!(wrong(&|o| o.nr_host_keys = 1).0, -EINVAL);
    // A failure of the server has a name, and one of a disk keeps the errno of the system.
    assert_eq!(serve(&[c"mem,zones=8", c"mem,zones=8"], null()), Err(-EINVAL));
    assert_eq!(said(zp_error_reason()), "DiskTwice");
    assert_eq!(serve(&[c"/nowhere/disk.zbd"], null()), Err(-ENOENT));
    assert_eq!(wrong(&|o| o.flags = 8).0, -EINVAL);
    assert_eq!(
        wrong(&|o| o.iscsi = c"here".as_ptr()),
        (-EINVAL, "'here' is no address".to_owned())
    );
    let at = c"127.0.0.1:0".as_ptr();
    assert_eq!(wrong(&|o| (o.iscsi, o.iqn) = (at, c"mine".as_ptr())).0, -EINVAL);
    assert_eq!(said(zp_error_reason()), "InvalidName");
    assert_eq!(wrong(&|o| o.iscsi = c"0.0.0.0:0".as_ptr()).0, -EINVAL);
    assert_eq!(said(zp_error_reason()), "Open");
    assert_eq!(
        wrong(&|o| (o.iscsi, o.target_secret) = (at, c"/nowhere/secret".as_ptr())).0,
        -ENOENT
    );
    let null = wrong(&|o| (o.iscsi, o.nr_initiators) = (at, 1));
    assert_eq!(null, (-EINVAL, "the array of initiators is NULL".to_owned()));
    assert_eq!(wrong(&|o| (o.iscsi, o.nr_initiator_secrets) = (at, 1)).0, -EINVAL);
    // Options of a protocol over which nothing would be served.
    for flags in [ZP_SERVE_ANY_INITIATOR, ZP_SERVE_CONVENTIONAL_ONLY] {
        let (errno, text) = wrong(&|o| o.flags = flags);
        assert_eq!((errno, &*text), (-EINVAL, "options of iSCSI, and no address for it"));
    }
    assert_eq!(wrong(&|o| o.iqn = c"iqn.2026-11.org.example:mine".as_ptr()).0, -EINVAL);
    let (errno, text) = wrong(&|o| (o.iscsi, o.flags) = (at, ZP_SERVE_ANY_HOST));
    assert_eq!((errno, &*text), (-EINVAL, "options of NVMe/TCP, and an address of iSCSI alone"));
    // SAFETY: NULL.
    unsafe {
        assert!(zp_serving_address(null_mut()).is_null());
        assert!(zp_serving_iscsi_address(null_mut()).is_null());
        assert!(zp_serving_iqn(null_mut()).is_null());
        assert_eq!(zp_serving_stop(null_mut()), -EINVAL);
    }
}

/// Hints name the fields and flags of `zp_serve_options`.
#[test]
fn hints_name_the_options_of_c() {
    let hint = |change: &dyn Fn(&mut zp_serve_options)| {
        let mut given = options();
        change(&mut given);
        serve(&[c"mem,zones=8"], &raw const given).unwrap_err();
        said(zp_error_hint())
    };
    assert_eq!(
        hint(&|o| o.address = c"0.0.0.0:0".as_ptr()),
        "host_keys = {{NQN, FILE}}; hosts = {NQN} (on the host: cat /etc/nvme/hostnqn); \
         ZP_SERVE_ANY_HOST"
    );
    assert_eq!(
        hint(&|o| o.iscsi = c"0.0.0.0:0".as_ptr()),
        "initiator_secrets = {{IQN, FILE}}; initiators = {IQN} \
         (on the initiator: cat /etc/iscsi/initiatorname.iscsi); ZP_SERVE_ANY_INITIATOR"
    );
    let hosts = [c"nqn.2026-11.org.example:host".as_ptr()];
    assert_eq!(
        hint(&|o| (o.hosts, o.nr_hosts, o.flags) = (hosts.as_ptr(), 1, ZP_SERVE_ANY_HOST)),
        "either hosts or ZP_SERVE_ANY_HOST"
    );
}

/// An initiator writes and reads a disk that is served over iSCSI alone; another disk is served over both protocols.
#[test]
fn disks_are_served_over_iscsi() {
    const NAME: &CStr = c"iqn.2026-11.dev.zoneplug:test";
    assert_eq!(NAME.to_str().unwrap(), iscsi_initiator::NAME);
    let initiator = "iqn.2026-11.org.example:initiator";
    let start = |change: &dyn Fn(&mut zp_serve_options)| {
        let mut given = zp_serve_options { iqn: NAME.as_ptr(), ..options() };
        given.iscsi = c"127.0.0.1:0".as_ptr();
        change(&mut given);
        serve(&[c"mem,zones=4,zone-size=1M,conv=1"], &raw const given).unwrap()
    };
    let served = start(&|_| ());
    // SAFETY: what is served.
    unsafe {
        assert_eq!(
            (said(zp_serving_address(served)), said(zp_serving_nqn(served))),
            Default::default()
        );
        assert_eq!(said(zp_serving_iqn(served)), iscsi_initiator::NAME);
        let at = said(zp_serving_iscsi_address(served)).parse().unwrap();
        let mut i = Initiator::logged_in_at(at, initiator);
        assert_eq!(i.write(0, &[7; 8192]), (0, None));
        assert_eq!(i.read(0, 2), [7; 8192]);
        assert_eq!(zp_serving_stop(served), 0, "{}", message());
        assert_eq!(i.command(0, &[0; 6], 0, &[]), None, "the session has ended");
        zp_serving_close(served);
    }
    let served = start(&|o| {
        (o.address, o.flags) = (c"127.0.0.1:0".as_ptr(), ZP_SERVE_CONVENTIONAL_ONLY);
    });
    assert_eq!(connects(served, "nqn.2026-11.org.example:host"), (0, false));
    // SAFETY: what is served.
    unsafe {
        let at = said(zp_serving_iscsi_address(served)).parse().unwrap();
        let mut i = Initiator::logged_in_at(at, initiator);
        let (status, inquiry) = i.command(0, &[0x12, 0, 0, 0, 96, 0], 96, &[]).unwrap();
        assert_eq!((status, inquiry[0]), (0, 0), "a plain disk");
        zp_serving_close(served);
    }
}

/// A file that only this user can read.
fn private_file(directory: &Directory, name: &str, text: &str) -> CString {
    use std::os::unix::fs::PermissionsExt;
    let path = directory.path(name);
    let at = Path::new(path.to_str().unwrap());
    std::fs::write(at, text).unwrap();
    std::fs::set_permissions(at, std::fs::Permissions::from_mode(0o600)).unwrap();
    path
}

/// Each option of iSCSI has its effect on an initiator that logs in.
#[test]
fn options_of_iscsi_arrive() {
    use zoneplug::iscsi::Secret;
    let directory = Directory::new("served-secrets");
    let file = |name: &str, text: &str| private_file(&directory, name, text);
    let (theirs, own) = (file("theirs", "secret of a host"), file("own", "secret of the disk"));
    let names = [c"iqn.2026-11.org.example:a".as_ptr(), c"iqn.2026-11.org.example:b".as_ptr()];
    let [a, b] = ["iqn.2026-11.org.example:a", "iqn.2026-11.org.example:b"];
    let start = |change: &dyn Fn(&mut zp_serve_options)| {
        let mut given = options();
        (given.iscsi, given.iqn) =
            (c"0.0.0.0:0".as_ptr(), c"iqn.2026-11.dev.zoneplug:test".as_ptr());
        change(&mut given);
        let served = serve(&[c"mem,zones=8"], &raw const given).unwrap();
        // SAFETY: what is served.
        let at = said(unsafe { zp_serving_iscsi_address(served) }).replace("0.0.0.0", "127.0.0.1");
        let at = at.parse().unwrap();
        (served, move || Initiator::connect_at(at))
    };
    let (served, connect) = start(&|o| (o.initiators, o.nr_initiators) = (names[1..].as_ptr(), 1));
    assert_eq!([a, b].map(|name| connect().log_in(name, 1)), [[2, 2], [0, 0]]);
    // SAFETY: what is served.
    unsafe { zp_serving_close(served) };
    let (served, connect) = start(&|o| o.flags = ZP_SERVE_ANY_INITIATOR);
    assert_eq!(connect().log_in(a, 1), [0, 0]);
    // SAFETY: the same.
    unsafe { zp_serving_close(served) };
    let secrets = [zp_initiator_secret { iqn: names[0], path: theirs.as_ptr() }];
    let secret = Secret::parse("secret of a host").unwrap();
    let (served, connect) = start(&|o| {
        (o.initiator_secrets, o.nr_initiator_secrets) = (secrets.as_ptr(), 1);
        o.target_secret = own.as_ptr();
    });
    let (status, response) = connect().prove(a, &secret, &[7; 16]);
    assert!(status == [0, 0] && !response.is_empty(), "both sides prove their secrets");
    assert_eq!(connect().log_in(a, 1), [2, 1], "no proof");
    assert_eq!(connect().log_in(b, 1), [2, 2]);
    // SAFETY: the same.
    unsafe { zp_serving_close(served) };
}

/// Connects as a host. Returns the status of the connect command, and whether the host must authenticate.
fn connects(served: *mut zp_serving, host: &str) -> (u16, bool) {
    use zoneplug_nvme::spec::fabrics::ANY_CONTROLLER;
    // SAFETY: what is served.
    let (address, nqn) =
        unsafe { (said(zp_serving_address(served)), said(zp_serving_nqn(served))) };
    let address = address.replace("0.0.0.0", "127.0.0.1").parse().unwrap();
    let mut q = nvme_host::Queue::open_at(address, Options::default());
    let done = q.run(connect(0, 32, ANY_CONTROLLER, &nqn, host)).completion;
    (done.status, done.result >> 17 & 1 == 1)
}

/// Each option has its effect on a host that connects.
#[test]
fn options_arrive() {
    let (host, other) = ("nqn.2026-11.org.example:host", "nqn.2026-11.org.example:other");
    let start = |change: &dyn Fn(&mut zp_serve_options)| {
        let mut given = options();
        given.address = c"0.0.0.0:0".as_ptr();
        change(&mut given);
        serve(&[c"mem,zones=8"], &raw const given).unwrap()
    };
    let listed =
        [c"nqn.2026-11.org.example:first".as_ptr(), c"nqn.2026-11.org.example:host".as_ptr()];
    let served = start(&|o| (o.hosts, o.nr_hosts) = (listed.as_ptr(), 2));
    assert_eq!([host, other].map(|h| connects(served, h)), [(0, false), (INVALID_HOST, false)]);
    // SAFETY: what is served.
    unsafe { zp_serving_close(served) };
    let served = start(&|o| o.flags = ZP_SERVE_ANY_HOST);
    assert_eq!(connects(served, other), (0, false));
    // SAFETY: the same.
    unsafe { zp_serving_close(served) };

    let directory = Directory::new("served-keys");
    let file = |name: &str, text: &str| private_file(&directory, name, text);
    let (key, own) = (file("key", KEY), file("own", OTHER_KEY));
    let keys = [zp_host_key { nqn: listed[1], path: key.as_ptr() }];
    for (own_key, attach) in [(null(), false), (own.as_ptr(), true)] {
        let served = start(&|o| {
            (o.host_keys, o.nr_host_keys, o.own_key) = (keys.as_ptr(), 1, own_key);
        });
        assert_eq!([host, other].map(|h| connects(served, h)), [(0, true), (INVALID_HOST, false)]);
        let mut line = [0; 256];
        // SAFETY: what is served, and memory of that length.
        unsafe {
            assert!(zp_serving_line(served, 2, line.as_mut_ptr(), line.len()) > 0);
            let text = said(line.as_ptr());
            assert!(text.contains("--dhchap-secret"), "{text}");
            assert_eq!(text.contains("--dhchap-ctrl-secret"), attach, "{text}");
            zp_serving_close(served);
        }
    }
    let served = start(&|o| {
        (o.address, o.metrics) = (c"127.0.0.2:0".as_ptr(), c"127.0.0.1:0".as_ptr());
    });
    let lines = (0..9).map_while(|nth| {
        let mut line = [0; 256];
        // SAFETY: the same.
        let n = unsafe { zp_serving_line(served, nth, line.as_mut_ptr(), line.len()) };
        (n > 0).then(|| said(line.as_ptr()))
    });
    let lines: Vec<String> = lines.collect();
    assert!(lines[0].starts_with("127.0.0.2:"), "{lines:?}");
    assert!(lines.iter().any(|l| l.starts_with("metrics at http://127.0.0.1:")), "{lines:?}");
    // SAFETY: the same.
    unsafe { zp_serving_close(served) };
}
