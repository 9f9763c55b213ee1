//! Limits the actions of an attacker who controls a server. Before its first thread, the server gives up every
//! capability that serving does not need, for itself and all processes that it starts, and can never gain another
//! (`no_new_privs`). When all disks are open, a filter denies its threads the system calls that a server does not
//! need.
//!
//! The filter lists the denied calls, which fail with EPERM. A list of allowed calls would be too strict: the C
//! library and a new version of Rust may use other calls, and a server whose calls fail stops I/O to its disks. The
//! systemd unit `packaging/zoneplug@.service` has a list of allowed calls, which can be changed without a new build.

use crate::error::ServeError;
use rustix::thread::{self, CapabilitySet, CapabilitySets};
#[cfg(target_arch = "x86_64")]
use seccompiler::sock_filter;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use zoneplug_control::Failure;

/// The capabilities that serving needs.
///
/// | capability | for |
/// | --- | --- |
/// | `SYS_ADMIN` | every command to `/dev/ublk-control`, also the one that removes a device at the end; commands to NVMe drives before 6.2 |
/// | `SYS_RESOURCE` | `PR_SET_IO_FLUSHER` |
/// | `SYS_RAWIO` | drive commands for which the driver requires it |
/// | `DAC_OVERRIDE`, `DAC_READ_SEARCH` | disks in files of other users |
const NEEDED: CapabilitySet = CapabilitySet::SYS_ADMIN
    .union(CapabilitySet::SYS_RESOURCE)
    .union(CapabilitySet::SYS_RAWIO)
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH);

/// System calls that no server makes once it serves: those that start programs, or concern other users, processes,
/// namespaces, or the kernel itself.
const DENIED: &[i64] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_setgroups,
    libc::SYS_capset,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsmount,
    libc::SYS_fsconfig,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_syslog,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_mknodat,
    libc::SYS_fchownat,
    libc::SYS_fchown,
    libc::SYS_personality,
    libc::SYS_vhangup,
    libc::SYS_lookup_dcookie,
    libc::SYS_nfsservctl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mknod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lchown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_kexec_file_load,
    // `libc` names the call of this processor for glibc alone, and musl's has the same number.
    #[cfg(target_arch = "aarch64")]
    294,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_uselib,
];

fn failed(call: &'static str, e: impl std::fmt::Display) -> Failure {
    ServeError::NotConfined { call, because: e.to_string() }.into()
}

/// Gives up capabilities that serving does not need, and the ways to regain them. `chown`: keeps CAP_CHOWN to give
/// the socket away; the filter later denies the system calls for it. Must be called before any thread is started,
/// because a thread inherits the capabilities of the thread that starts it.
pub fn drop_rights(chown: bool) -> Result<(), Failure> {
    let needed = if chown { NEEDED.union(CapabilitySet::CHOWN) } else { NEEDED };
    thread::set_no_new_privs(true).map_err(|e| failed("no_new_privs", e))?;
    let _ = thread::clear_ambient_capability_set();
    for capability in CapabilitySet::all().difference(needed).iter() {
        // Errors are ignored: the call fails without CAP_SETPCAP, and for a capability that the kernel does not know.
        let _ = thread::remove_capability_from_bounding_set(capability);
    }
    let has = thread::capabilities(None).map_err(|e| failed("capget", e))?;
    let keeps = has.permitted.intersection(needed);
    let sets =
        CapabilitySets { effective: keeps, permitted: keeps, inheritable: CapabilitySet::empty() };
    // A systemd unit may already have removed the other capabilities, and denied capset(2).
    if has == sets {
        Ok(())
    } else {
        thread::set_capabilities(None, sets).map_err(|e| failed("capset", e))
    }
}

/// Returns the instructions that deny all calls of x86-64's x32 ABI, which has numbers of its own for the denied calls.
/// The list of denied calls has none of these numbers, and a server makes no such call.
#[cfg(target_arch = "x86_64")]
fn denies_x32() -> [sock_filter; 3] {
    const X32_SYSCALL_BIT: u32 = 0x4000_0000;
    let load_number = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    let jump_if_at_least = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
    let end = (libc::BPF_RET | libc::BPF_K) as u16;
    let denied = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
    [
        // The number of the call is the first field of `struct seccomp_data`.
        sock_filter { code: load_number, jt: 0, jf: 0, k: 0 },
        sock_filter { code: jump_if_at_least, jt: 0, jf: 1, k: X32_SYSCALL_BIT },
        sock_filter { code: end, jt: 0, jf: 0, k: denied },
    ]
}

/// Returns the filter of system calls.
fn filter() -> Result<BpfProgram, Failure> {
    let rules = DENIED.iter().map(|call| (*call, Vec::new())).collect();
    let denied = SeccompAction::Errno(libc::EPERM as u32);
    let arch = std::env::consts::ARCH.try_into().map_err(|e| failed("seccomp", e))?;
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, denied, arch);
    let program: Result<BpfProgram, _> = filter.and_then(TryInto::try_into);
    let program = program.map_err(|e| failed("seccomp", e))?;
    #[cfg(target_arch = "x86_64")]
    let program = denies_x32().into_iter().chain(program).collect();
    Ok(program)
}

/// Denies system calls that no server needs, in all present and future threads of this process.
pub(crate) fn filter_calls() -> Result<(), Failure> {
    let program = filter()?;
    seccompiler::apply_filter_all_threads(&program).map_err(|e| failed("seccomp", e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::chown;
    use std::process::Command;
    use std::sync::mpsc::channel;
    use zoneplug_buf::AlignedBuf;
    use zoneplug_core::Sector;
    use zoneplug_host::file::{CreateOptions, create};
    use zoneplug_host::{BlockingDisk, HostedDisk};

    const CHILD: &str = "ZONEPLUG_CONFINED";
    /// The variable that makes the child keep the capability to give its socket away.
    const GIVES: &str = "ZONEPLUG_CONFINED_GIVES";

    /// The rights of each thread according to the kernel: the union of its capability sets, `no_new_privs`, and whether
    /// it has a filter.
    ///
    /// Leaves out the thread of the test harness, which is older than the limits.
    fn threads() -> Vec<(u64, String, String)> {
        let first = std::process::id().to_string();
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let tasks = tasks.filter(|t| t.as_ref().unwrap().file_name() != *first);
        let of = |task: std::path::PathBuf| {
            let status = std::fs::read_to_string(task.join("status")).unwrap();
            let field = |name: &str| {
                let line = status.lines().find_map(|l| l.strip_prefix(name)).unwrap();
                line.trim().to_owned()
            };
            // The bounding set stays as it is without CAP_SETPCAP, which a user who is not root lacks.
            let bounding = rustix::process::geteuid().is_root().then_some("CapBnd:");
            let caps = ["CapEff:", "CapPrm:", "CapInh:", "CapAmb:"].into_iter().chain(bounding);
            let caps = caps.map(|n| u64::from_str_radix(&field(n), 16).unwrap());
            (caps.fold(0, |a, b| a | b), field("NoNewPrivs:"), field("Seccomp:"))
        };
        tasks.map(|t| of(t.unwrap().path())).collect()
    }

    fn denied<T: std::fmt::Debug>(what: std::io::Result<T>) {
        assert_eq!(what.unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
    }

    /// Actions of an attacker, all of which must fail.
    fn attack(file: &str) {
        denied(Command::new("/bin/true").status());
        denied(std::os::unix::fs::chroot("/"));
        denied(chown(file, Some(1), Some(1)));
        denied(
            thread::set_capabilities(None, thread::capabilities(None).unwrap()).map_err(Into::into),
        );
    }

    /// Actions of a server, all of which must succeed.
    fn work(spec: &str, at: u64) {
        let disk = HostedDisk::open_spec(spec).unwrap();
        let mut io = BlockingDisk::new(&disk).unwrap();
        io.write(Sector(at), AlignedBuf::zeroed(65536)).unwrap();
        io.flush().unwrap();
        io.read(Sector(at), 128).unwrap();
    }

    /// Runs the filter as the kernel does, for a call by its number. Returns what it answers.
    #[cfg(target_arch = "x86_64")]
    fn answer(program: &[seccompiler::sock_filter], number: i64) -> u32 {
        const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;
        let (mut at, mut value) = (0, 0);
        loop {
            let i = &program[at];
            at += 1;
            let jump = |holds: bool| usize::from(if holds { i.jt } else { i.jf });
            match u32::from(i.code) {
                0x20 => value = [number as u32, AUDIT_ARCH_X86_64][i.k as usize / 4],
                0x05 => at += i.k as usize,
                0x15 => at += jump(value == i.k),
                0x35 => at += jump(value >= i.k),
                0x06 => return i.k,
                code => panic!("no such instruction is expected: {code:#x}"),
            }
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn calls_are_denied_under_each_of_their_numbers() {
        const X32: i64 = 0x4000_0000;
        let program = filter().unwrap();
        let denied = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
        for call in [libc::SYS_execve, X32 | 520, X32 | libc::SYS_read, libc::SYS_kexec_file_load] {
            assert_eq!(answer(&program, call), denied, "{call:#x}");
        }
        for call in [libc::SYS_read, libc::SYS_pwrite64, libc::SYS_io_uring_enter] {
            assert_eq!(answer(&program, call), libc::SECCOMP_RET_ALLOW, "{call}");
        }
    }

    /// The tests below run this in a process of its own, because the limits cannot be undone.
    #[test]
    fn child() {
        let Ok(file) = std::env::var(CHILD) else { return };
        let gives = std::env::var(GIVES).is_ok();
        drop_rights(gives).unwrap();
        let needed = if gives { NEEDED.union(CapabilitySet::CHOWN) } else { NEEDED };
        let spec = format!("{file},io=threads");
        let disk = HostedDisk::open_spec(&spec).unwrap();
        let mut io = BlockingDisk::new(&disk).unwrap();
        let (start, started) = channel::<()>();
        let (waiting, path) = (std::thread::spawn(move || started.recv()), file.clone());
        let early = std::thread::spawn(move || {
            waiting.join().unwrap().unwrap();
            attack(&path);
        });
        filter_calls().unwrap();
        start.send(()).unwrap();
        early.join().unwrap();
        io.write(Sector(0), AlignedBuf::zeroed(65536)).unwrap();
        io.flush().unwrap();
        let all = threads();
        assert!(all.len() > 1, "the disk has threads: {all:?}");
        for (caps, no_new_privs, filter) in all {
            assert_eq!(caps & !needed.bits(), 0, "{caps:x}");
            assert_eq!((&*no_new_privs, &*filter), ("1", "2"));
        }
        drop((io, disk));
        attack(&file);
        for (i, io) in ["auto", "threads"].iter().enumerate() {
            work(&format!("{file},io={io}"), 128 * (1 + i as u64));
        }
        let path = file;
        std::thread::spawn(move || attack(&path)).join().unwrap();
        println!("confined");
    }

    #[test]
    fn a_server_that_is_taken_over_can_do_little_more_than_serve() {
        confined(&[]);
    }

    /// The server keeps a capability to give its socket away, but the system calls for it are denied once it is confined.
    #[test]
    fn a_server_that_may_give_its_socket_away_cannot_once_it_is_confined() {
        confined(&[(GIVES, "1")]);
    }

    fn confined(variables: &[(&str, &str)]) {
        // If this is on tmpfs, the test misses the back end's own threads and rings.
        let path = std::env::temp_dir().join(format!(
            "zoneplug-{}-confined{}.zbd",
            std::process::id(),
            variables.len()
        ));
        let options = CreateOptions { zones: Some(2), ..CreateOptions::default() };
        create(&path, &options, true).unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap());
        let child = child.args(["--exact", "--nocapture", "confine::tests::child"]);
        let out = child.env(CHILD, &path).envs(variables.iter().copied()).output().unwrap();
        std::fs::remove_file(&path).unwrap();
        let said = String::from_utf8_lossy(&out.stdout).into_owned();
        let errors = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success() && said.contains("confined"), "{said}{errors}");
    }
}
