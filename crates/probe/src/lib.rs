//! Probes (USDT) of zoneplug: places in a running program to which bpftrace, perf and SystemTap can attach.
//!
//! A probe is an instruction without effect, and a note in the ELF file with its address, its name, and the registers
//! of its arguments (in SystemTap's format, `stapsdt` version 3). A tracing program makes the kernel put a breakpoint
//! there, and raise a counter, whose address is in the note too. So a caller first checks the counter, and computes
//! the arguments only if a program is tracing:
//!
//! ```
//! if zoneplug_probe::issue::is_watched() {
//!     zoneplug_probe::issue::fire(0x1000, 1, 8, 8, 1);
//! }
//! ```
//!
//! Otherwise a probe costs a comparison with a word in memory and a jump. The crate `probe` has macros for such
//! notes, but checks the counter and computes the arguments in the middle of the traced code; that costs its callers
//! registers. Here [`fire`](issue::fire) is a function that is never inlined. On systems other than Linux on x86-64
//! and aarch64 no probe is ever watched.
//!
//! With the feature `recorded` a test reads what probes tell on its thread: `recorded::during`.

/// Makes the module of a probe.
macro_rules! probe {
    ($(#[$doc:meta])* $name:ident($($arg:ident),+)) => {
        $(#[$doc])*
        pub mod $name {
            use std::sync::atomic::AtomicU16;

            /// The number of programs that watch the probe. The kernel writes it.
            #[cfg_attr(target_os = "linux", unsafe(link_section = ".probes"))]
            static WATCHERS: AtomicU16 = AtomicU16::new(0);

            /// Whether a program watches this probe.
            #[inline(always)]
            pub fn is_watched() -> bool {
                #[cfg(feature = "recorded")]
                if $crate::recorded::is_on() {
                    return true;
                }
                // SAFETY: the word lives as long as the program, and only the kernel writes it. Compilers compare a
                // volatile word in place, but would load an atomic into a register first.
                unsafe { WATCHERS.as_ptr().read_volatile() != 0 }
            }

            /// The instruction at which a tracing program stops.
            #[cold]
            #[inline(never)]
            pub fn fire($($arg: u64),+) {
                #[cfg(feature = "recorded")]
                $crate::recorded::keep(stringify!($name), &[$($arg),+]);
                #[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
                {
                    // SAFETY: one instruction without effect. The rest makes a note in a section that is not loaded,
                    // and an empty section, by whose address tools detect that a file was relinked. The note only
                    // names the arguments and the counter.
                    #[cfg(target_arch = "x86_64")]
                    unsafe {
                        $crate::note!($name, ($($arg),+), WATCHERS, [att_syntax]);
                    }
                    // SAFETY: as above.
                    #[cfg(target_arch = "aarch64")]
                    unsafe {
                        $crate::note!($name, ($($arg),+), WATCHERS, []);
                    }
                }
                #[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
                let _ = ($($arg,)+);
            }
        }
    };
}

/// The instruction and its note: lengths of the owner's name and of the description, type 3; the owner; the addresses
/// of the instruction, of the base section and of the counter; then provider, name and arguments, each signed and of
/// 8 bytes.
#[doc(hidden)]
#[macro_export]
macro_rules! note {
    ($name:ident, ($first:ident $(, $arg:ident)*), $watchers:ident, [$($option:ident)?]) => {
        std::arch::asm!(
            "77: nop",
            ".pushsection .note.stapsdt, \"?\", \"note\"",
            ".balign 4",
            ".4byte 72f - 71f",
            ".4byte 74f - 73f",
            ".4byte 3",
            "71: .asciz \"stapsdt\"",
            "72: .balign 4",
            "73: .8byte 77b",
            ".8byte _.stapsdt.base",
            ".8byte {watchers}",
            ".asciz \"zoneplug\"",
            concat!(".asciz \"", stringify!($name), "\""),
            concat!(".asciz \"-8@{", stringify!($first), "}", $(" -8@{", stringify!($arg), "}",)* "\""),
            "74: .balign 4",
            ".popsection",
            ".ifndef _.stapsdt.base",
            ".pushsection .stapsdt.base, \"aG\", \"progbits\", .stapsdt.base, comdat",
            ".weak _.stapsdt.base",
            ".hidden _.stapsdt.base",
            "_.stapsdt.base: .space 1",
            ".size _.stapsdt.base, 1",
            ".popsection",
            ".endif",
            watchers = sym $watchers,
            $first = in(reg) $first,
            $($arg = in(reg) $arg,)*
            options(readonly, nostack, preserves_flags $(, $option)?),
        )
    };
}

/// Keeps for tests what probes tell.
#[cfg(feature = "recorded")]
pub mod recorded {
    use std::cell::RefCell;

    /// The name of a probe, and its arguments.
    pub type Fired = (&'static str, Vec<u64>);

    thread_local! {
        /// `None`: nothing is kept.
        static KEPT: RefCell<Option<Vec<Fired>>> = const { RefCell::new(None) };
    }

    /// Whether probes on this thread are kept.
    pub(crate) fn is_on() -> bool {
        KEPT.with_borrow(Option::is_some)
    }

    /// Keeps a probe, if probes on this thread are kept.
    pub(crate) fn keep(name: &'static str, arguments: &[u64]) {
        KEPT.with_borrow_mut(|kept| {
            if let Some(all) = kept {
                all.push((name, arguments.to_vec()));
            }
        });
    }

    /// Runs `work`, and returns the probes that it has fired on this thread.
    pub fn during(work: impl FnOnce()) -> Vec<Fired> {
        KEPT.set(Some(Vec::new()));
        work();
        KEPT.take().unwrap_or_default()
    }
}

probe!(
    /// A command is sent to the device.
    issue(command, op, sector, count, bios)
);
probe!(
    /// A command comes back.
    complete(command, op, sector, count, status)
);
probe!(
    /// Writes have to wait in the plug of their zone.
    add_to_plug(zone, sector, count, bios)
);
probe!(
    /// Writes that waited are sent to the device as one command.
    issue_from_plug(zone, sector, count, bios)
);
probe!(
    /// The sector of an append is known.
    append_position(zone, sector, count)
);
probe!(
    /// A management BIO was accepted.
    zone_management(op, sector, count)
);
probe!(
    /// The disk asks the device for the write pointer of a zone.
    zone_recovery(zone, number)
);
probe!(
    /// A write was submitted before the write pointer has reached its sector, and is held.
    hold_write(zone, sector, count)
);
probe!(
    /// A write was held for too long and is refused.
    expire_write(zone, sector, count)
);
probe!(
    /// A command has failed at the device.
    error(op, status, zone, sector, aborted)
);
probe!(
    /// Another event that the disk records.
    zone_event(kind, zone, sector)
);
probe!(
    /// A server takes over the block device of another one.
    takeover(device, queues)
);
