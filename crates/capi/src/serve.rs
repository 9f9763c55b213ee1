//! Disks that a program serves over NVMe/TCP and iSCSI, as `zoneplug serve` does.

use crate::boundary::{
    Failure, Options, Outcome, Process, Uncancelled, call, close, copy_text, known, options, path,
    text,
};
use libc::{c_char, c_int};
use std::ffi::CString;
use std::path::PathBuf;

/// A flag of `zp_serve`: any host may connect, also over an address that other machines reach.
pub const ZP_SERVE_ANY_HOST: u32 = 1;
/// A flag of `zp_serve`: any initiator may log in over iSCSI, also at an address that other machines reach.
pub const ZP_SERVE_ANY_INITIATOR: u32 = 2;
/// A flag of `zp_serve`: over iSCSI, show only the conventional zones at the beginning of each disk, as a plain disk without zones.
pub const ZP_SERVE_CONVENTIONAL_ONLY: u32 = 4;

/// A host, and the file of the key by which it authenticates itself (DH-HMAC-CHAP).
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct zp_host_key {
    /// The NQN of the host.
    pub nqn: *const c_char,
    /// The path of the file.
    pub path: *const c_char,
}

/// An initiator, and the file of the secret by which it authenticates itself (CHAP).
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct zp_initiator_secret {
    /// The name of the initiator, such as `"iqn.2026-11.org.example:host"`.
    pub iqn: *const c_char,
    /// The path of the file.
    pub path: *const c_char,
}

/// Options of served disks. Set all bytes to zero, then `struct_size`; 0 and NULL are the default of each field.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct zp_serve_options {
    /// `sizeof(struct zp_serve_options)`.
    pub struct_size: usize,
    /// Where to listen for NVMe/TCP. Default: `"127.0.0.1:0"`, which is a free port of this machine; with `iscsi`, nowhere.
    pub address: *const c_char,
    /// The name of the subsystem. Default: one of its own, with the number of the process.
    pub nqn: *const c_char,
    /// The NQNs of hosts that may connect. Default: all of this machine.
    pub hosts: *const *const c_char,
    /// Keys of hosts.
    pub host_keys: *const zp_host_key,
    /// The file of the key by which the disks' side authenticates itself.
    pub own_key: *const c_char,
    /// The path of the control socket, which `zoneplug status --socket PATH` asks. Default: in a temporary directory.
    pub socket: *const c_char,
    /// An address at which Prometheus reads metrics. Default: none.
    pub metrics: *const c_char,
    /// Elements of `hosts`.
    pub nr_hosts: u32,
    /// Elements of `host_keys`.
    pub nr_host_keys: u32,
    /// 0, or a sum of `ZP_SERVE_ANY_HOST`, `ZP_SERVE_ANY_INITIATOR` and `ZP_SERVE_CONVENTIONAL_ONLY`.
    pub flags: u32,
    /// Zero.
    pub reserved: u32,
    /// Where to listen for iSCSI, such as `"127.0.0.1:3260"`. Default: nowhere.
    pub iscsi: *const c_char,
    /// The name of the target of iSCSI. Default: one of its own, with the number of the process.
    pub iqn: *const c_char,
    /// The names of initiators that may log in. Default: all of this machine.
    pub initiators: *const *const c_char,
    /// Secrets of initiators.
    pub initiator_secrets: *const zp_initiator_secret,
    /// The file of the secret by which the disks' side authenticates itself to initiators.
    pub target_secret: *const c_char,
    /// Elements of `initiators`.
    pub nr_initiators: u32,
    /// Elements of `initiator_secrets`.
    pub nr_initiator_secrets: u32,
}

// SAFETY: numbers and pointers, for which zero is a value.
unsafe impl Options for zp_serve_options {
    const NAME: &'static str = "zp_serve_options";
}

/// Served disks. Any number of threads may use this at a time.
pub struct zp_serving {
    running: Running,
    nqn: CString,
    address: CString,
    iqn: CString,
    iscsi_address: CString,
    socket: CString,
    lines: Vec<String>,
    process: Process,
}

/// The disks to serve and how, as a C program has given them.
#[cfg_attr(not(feature = "serve"), allow(dead_code, reason = "only a build that serves reads it"))]
struct WantedServer {
    specs: Vec<String>,
    /// The door of NVMe/TCP, whose clients are hosts with keys.
    nvme_tcp: Option<WantedDoor>,
    /// The door of iSCSI, whose clients are initiators with secrets.
    iscsi: Option<WantedDoor>,
    conventional_only: bool,
    socket: Option<PathBuf>,
    metrics: Option<String>,
}

/// Where disks are served over the network, and the clients that may use them.
#[cfg_attr(not(feature = "serve"), allow(dead_code, reason = "only a build that serves reads it"))]
struct WantedDoor {
    address: String,
    /// The name of the subsystem or the target. `None`: one of its own.
    name: Option<String>,
    clients: Option<Vec<String>>,
    any_client: bool,
    /// The names of clients, and the files of their keys or secrets.
    proofs: Vec<(String, PathBuf)>,
    own_proof: Option<PathBuf>,
}

#[cfg(feature = "serve")]
mod built {
    use super::*;
    use crate::boundary::c_text;
    use std::net::SocketAddr;
    use std::sync::Mutex;
    use zoneplug::serve::{Access, Serve, Serving, default_name, parse_address};
    use zoneplug_core::poison::lock;

    /// `None`: stopped.
    pub(super) type Running = Mutex<Option<Serving>>;

    impl WantedDoor {
        /// The address, the name and the clients. `or`: the name, if none is given.
        fn parts(self, or: String) -> (String, String, Access) {
            let WantedDoor { address, name, clients, any_client, proofs, own_proof } = self;
            let access = Access { clients, any_client, proofs, own_proof };
            (address, name.unwrap_or(or), access)
        }
    }

    pub(super) fn start(wanted: WantedServer) -> Outcome<zp_serving> {
        let WantedServer { specs, nvme_tcp, iscsi, conventional_only, socket, metrics } = wanted;
        let (mut serve, mut nqn, mut iqn) = (Serve::new(), String::new(), String::new());
        let default = default_name("c");
        if let Some(door) = nvme_tcp {
            let (address, name, access) = door.parts(format!("nqn.{default}"));
            let options = access.nvme_tcp(&address, &name)?;
            (serve, nqn) = (serve.nvme_tcp(options, specs.clone()), name);
        }
        if let Some(door) = iscsi {
            let (address, name, access) = door.parts(format!("iqn.{default}"));
            let mut options = access.iscsi(&address, &name)?;
            options.conventional_only = conventional_only;
            (serve, iqn) = (serve.iscsi(options, specs), name);
        }
        serve = match socket {
            Some(path) => serve.socket(path),
            None => serve.private_socket(),
        };
        if let Some(at) = metrics {
            serve = serve.metrics(parse_address(&at)?);
        }
        let serving = serve.start()?;
        let first = |all: &[SocketAddr]| all.first().map(ToString::to_string).unwrap_or_default();
        let (address, iscsi) = (first(serving.addresses()), first(serving.iscsi_addresses()));
        let socket = serving.socket().map(|path| path.display().to_string());
        Ok(zp_serving {
            nqn: c_text(nqn),
            address: c_text(address),
            iqn: c_text(iqn),
            iscsi_address: c_text(iscsi),
            socket: c_text(socket.unwrap_or_default()),
            lines: serving.lines().to_vec(),
            running: Mutex::new(Some(serving)),
            process: Process::this(),
        })
    }

    pub(super) fn is_served(running: &Running) -> bool {
        lock(running).as_ref().is_some_and(Serving::is_served)
    }

    pub(super) fn stop(running: &Running) -> Outcome<()> {
        let serving = lock(running).take();
        Ok(serving.map_or(Ok(()), Serving::stop)?)
    }
}

#[cfg(not(feature = "serve"))]
mod built {
    use super::*;

    pub(super) type Running = std::convert::Infallible;

    pub(super) fn start(_: WantedServer) -> Outcome<zp_serving> {
        let hint = "a build with FEATURES=\"file drives crypt serve\"";
        Err(Failure::new(libc::EOPNOTSUPP, "this build serves no disks", hint))
    }

    pub(super) fn is_served(running: &Running) -> bool {
        match *running {}
    }

    pub(super) fn stop(running: &Running) -> Outcome<()> {
        match *running {}
    }
}

use built::{Running, is_served, start, stop};

/// The elements of an array.
///
/// # Safety
///
/// `array` is null or has `nr` elements.
unsafe fn elements<'a, T>(array: *const T, nr: u32, what: &str) -> Outcome<&'a [T]> {
    match (array.is_null(), nr) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Failure::invalid(&format!("the array of {what} is NULL"), "an array")),
        // SAFETY: the caller's promise.
        _ => Ok(unsafe { std::slice::from_raw_parts(array, nr as usize) }),
    }
}

/// Texts of an array.
///
/// # Safety
///
/// `array` is null or has `nr` strings.
unsafe fn texts(array: *const *const c_char, nr: u32, what: &str) -> Outcome<Vec<String>> {
    // SAFETY: the caller's promise.
    let all = unsafe { elements(array, nr, what) }?;
    // SAFETY: the same.
    all.iter().map(|one| Ok(unsafe { text(*one, what) }?.to_owned())).collect()
}

impl WantedDoor {
    /// Whether options are given that only this door reads: a name, clients, keys or `flags`.
    fn has_options(&self, flags: u32) -> bool {
        let has_clients = self.clients.is_some() || self.any_client;
        let has_proofs = !self.proofs.is_empty() || self.own_proof.is_some();
        self.name.is_some() || flags != 0 || has_clients || has_proofs
    }
}

/// Reads the arguments of a program.
///
/// # Safety
///
/// The pointers are as the header says.
unsafe fn wanted(
    specs: *const *const c_char,
    nr: u32,
    given: &zp_serve_options,
) -> Outcome<WantedServer> {
    let given_text = |one: *const c_char, what: &str| match one.is_null() {
        true => Ok::<_, Failure>(None),
        // SAFETY: a string, says the caller.
        false => Ok(Some(unsafe { text(one, what) }?.to_owned())),
    };
    let file = |one: *const c_char| match one.is_null() {
        true => Ok::<_, Failure>(None),
        // SAFETY: the same.
        false => Ok(Some(unsafe { path(one) }?.to_owned())),
    };
    // SAFETY: arrays of these lengths, and strings, says the caller.
    let (specs, hosts, keys, initiators, secrets) = unsafe {
        let proof = |name, what, file| {
            Ok::<_, Failure>((text(name, what)?.to_owned(), path(file)?.to_owned()))
        };
        let key = |key: &zp_host_key| proof(key.nqn, "the NQN of a host", key.path);
        let secret = |secret: &zp_initiator_secret| {
            proof(secret.iqn, "the name of an initiator", secret.path)
        };
        let keys = elements(given.host_keys, given.nr_host_keys, "keys")?;
        let secrets = elements(given.initiator_secrets, given.nr_initiator_secrets, "secrets")?;
        (
            texts(specs, nr, "specifications")?,
            texts(given.hosts, given.nr_hosts, "hosts")?,
            keys.iter().map(key).collect::<Outcome<Vec<_>>>()?,
            texts(given.initiators, given.nr_initiators, "initiators")?,
            secrets.iter().map(secret).collect::<Outcome<Vec<_>>>()?,
        )
    };
    if specs.is_empty() {
        return Err(Failure::invalid("no disk to serve", "a specification, such as mem,zones=8"));
    }
    let nvme_tcp = WantedDoor {
        address: given_text(given.address, "the address")?
            .unwrap_or_else(|| "127.0.0.1:0".to_owned()),
        name: given_text(given.nqn, "the NQN")?,
        clients: (!hosts.is_empty()).then_some(hosts),
        any_client: given.flags & ZP_SERVE_ANY_HOST != 0,
        proofs: keys,
        own_proof: file(given.own_key)?,
    };
    let iscsi = WantedDoor {
        address: given_text(given.iscsi, "the address of iSCSI")?.unwrap_or_default(),
        name: given_text(given.iqn, "the name of the target")?,
        clients: (!initiators.is_empty()).then_some(initiators),
        any_client: given.flags & ZP_SERVE_ANY_INITIATOR != 0,
        proofs: secrets,
        own_proof: file(given.target_secret)?,
    };
    let over_iscsi = !given.iscsi.is_null();
    // Options of a protocol over which nothing is served would have no effect.
    if !over_iscsi && iscsi.has_options(given.flags & ZP_SERVE_CONVENTIONAL_ONLY) {
        return Err(Failure::invalid(
            "options of iSCSI, and no address for it",
            "iscsi = \"127.0.0.1:0\"",
        ));
    }
    let over_nvme_tcp = !over_iscsi || !given.address.is_null();
    if !over_nvme_tcp && nvme_tcp.has_options(0) {
        let hint = "address = \"127.0.0.1:0\", to serve the disks over NVMe/TCP too";
        return Err(Failure::invalid("options of NVMe/TCP, and an address of iSCSI alone", hint));
    }
    Ok(WantedServer {
        specs,
        nvme_tcp: over_nvme_tcp.then_some(nvme_tcp),
        iscsi: over_iscsi.then_some(iscsi),
        conventional_only: given.flags & ZP_SERVE_CONVENTIONAL_ONLY != 0,
        socket: file(given.socket)?,
        metrics: given_text(given.metrics, "the address of metrics")?,
    })
}

/// Serves the `nr` disks of an array of specifications, and stores what is served in `*serving`: over NVMe/TCP, as namespaces 1, 2 and
/// so on of one subsystem; or, if the options have an address of iSCSI, as LUN 0, 1 and so on of one target, and over NVMe/TCP only if
/// they have an address of that too. `options` may be NULL. Threads of the library serve them; the program goes on. While a disk in a file is
/// served, no other program can write it, nor this one. -EOPNOTSUPP: this build serves no disks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_serve(
    specs: *const *const c_char,
    nr: u32,
    options: *const zp_serve_options,
    serving: *mut *mut zp_serving,
) -> c_int {
    call(|| {
        // SAFETY: options, says the header.
        let given = unsafe { self::options(options)? };
        const ALL: u32 = ZP_SERVE_ANY_HOST | ZP_SERVE_ANY_INITIATOR | ZP_SERVE_CONVENTIONAL_ONLY;
        known(given.flags, ALL, "0, or flags ZP_SERVE_..")?;
        if serving.is_null() {
            return Err(Failure::invalid(
                "the place for what is served is NULL",
                "a pointer's address",
            ));
        }
        let _whole = Uncancelled::begin();
        // SAFETY: strings and arrays, says the header.
        let started = start(unsafe { wanted(specs, nr, &given)? })?;
        // SAFETY: not null, and the place of a pointer, says the header.
        unsafe { serving.write(Box::into_raw(Box::new(started))) };
        Ok(0)
    })
}

/// The served disks that an argument points to.
///
/// # Safety
///
/// `serving` is null or was started and not closed, and no other thread closes it meanwhile.
unsafe fn serving<'a>(serving: *const zp_serving) -> Outcome<&'a zp_serving> {
    // SAFETY: the caller's promise.
    unsafe { serving.as_ref() }
        .ok_or_else(|| Failure::invalid("what is served is NULL", "what zp_serve gave"))
}

/// The address at which the disks are served over NVMe/TCP, such as `"127.0.0.1:40123"`; empty if they are not. The text lives until
/// `zp_serving_close`. NULL for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_serving_address(serving: *mut zp_serving) -> *const c_char {
    // SAFETY: NULL or what is served, says the header.
    unsafe { serving.as_ref() }.map_or(std::ptr::null(), |s| s.address.as_ptr())
}

/// The NQN of the subsystem; empty without NVMe/TCP. The text lives until `zp_serving_close`. NULL for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_serving_nqn(serving: *mut zp_serving) -> *const c_char {
    // SAFETY: NULL or what is served, says the header.
    unsafe { serving.as_ref() }.map_or(std::ptr::null(), |s| s.nqn.as_ptr())
}

/// The address at which the disks are served over iSCSI; empty if they are not. The text lives until `zp_serving_close`. NULL for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_serving_iscsi_address(serving: *mut zp_serving) -> *const c_char {
    // SAFETY: NULL or what is served, says the header.
    unsafe { serving.as_ref() }.map_or(std::ptr::null(), |s| s.iscsi_address.as_ptr())
}

/// The name of the target; empty without iSCSI. The text lives until `zp_serving_close`. NULL for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_serving_iqn(serving: *mut zp_serving) -> *const c_char {
    // SAFETY: NULL or what is served, says the header.
    unsafe { serving.as_ref() }.map_or(std::ptr::null(), |s| s.iqn.as_ptr())
}

/// The path of the control socket. The text lives until `zp_serving_close`. NULL for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_serving_socket(serving: *mut zp_serving) -> *const c_char {
    // SAFETY: NULL or what is served, says the header.
    unsafe { serving.as_ref() }.map_or(std::ptr::null(), |s| s.socket.as_ptr())
}

/// Copies the nth line, from 0 on, of what `zoneplug serve` prints to `buf`, as `zp_attribute` does: how clients reach the disks.
/// -ENOENT: there are no more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_serving_line(
    serving: *mut zp_serving,
    nth: u32,
    buf: *mut c_char,
    size: usize,
) -> c_int {
    call(|| {
        // SAFETY: what is served, says the header.
        let lines = unsafe { &self::serving(serving)?.lines };
        let Some(line) = lines.get(nth as usize) else {
            let what = format!("there are {} lines", lines.len());
            return Err(Failure::new(libc::ENOENT, &what, "a smaller number"));
        };
        // SAFETY: `buf` has that size, says the header.
        unsafe { copy_text(line, buf, size) }
    })
}

/// Returns 1 if the disks are still served, 0 if not: then `zp_serving_stop` says why.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_serving_is_served(serving: *mut zp_serving) -> c_int {
    call(|| {
        // SAFETY: what is served, says the header.
        let this = unsafe { self::serving(serving)? };
        Ok((!this.process.is_other() && is_served(&this.running)).into())
    })
}

/// Stops serving, and makes all data durable. Returns what ended the server before, if it has failed. A further call does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_serving_stop(serving: *mut zp_serving) -> c_int {
    call(|| {
        // SAFETY: what is served, says the header.
        let this = unsafe { self::serving(serving)? };
        this.process.check()?;
        let _whole = Uncancelled::begin();
        stop(&this.running)?;
        Ok(0)
    })
}

/// Stops serving, if `zp_serving_stop` has not, and frees what `zp_serve` gave. NULL is allowed. In a child of a fork this does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zp_serving_close(serving: *mut zp_serving) {
    // SAFETY: NULL, or started and not closed, says the header.
    unsafe { close(serving, |serving| serving.process) };
}
