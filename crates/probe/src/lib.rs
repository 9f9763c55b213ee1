//! Probes (USDT) of zoneplug: places in a program to which bpftrace, perf and SystemTap attach while it runs.
//!
//! A probe is an instruction that does nothing, and a note in the ELF file that says where it is, what it is called, and
//! in which registers its arguments are (the format is SystemTap's, `stapsdt` version 3). A program that watches has the
//! kernel put a breakpoint there, and raise a counter, whose address the note has too. So a caller looks at the counter
//! first, and computes the arguments only for a watcher:
//!
//! ```
//! if zoneplug_probe::issue::is_watched() {
//!     zoneplug_probe::issue::fire(0x1000, 1, 8, 8, 1);
//! }
//! ```
//!
//! Without a watcher that is a comparison with a word in memory and a jump. The crate `probe` has macros for such notes,
//! but looks and computes the arguments in one place, in the middle of the code that is watched; that costs its callers
//! registers. Here [`fire`](issue::fire) is a function that is never inlined. On other systems than Linux on x86-64 and
//! aarch64 no probe is ever watched.

/// Makes the module of a probe.
macro_rules! probe {
    ($(#[$doc:meta])* $name:ident($($arg:ident),+)) => {
        $(#[$doc])*
        pub mod $name {
            use std::sync::atomic::AtomicU16;

            /// How many programs watch. The kernel writes it.
            #[cfg_attr(target_os = "linux", unsafe(link_section = ".probes"))]
            static WATCHERS: AtomicU16 = AtomicU16::new(0);

            /// Whether a program watches this probe.
            #[inline(always)]
            pub fn is_watched() -> bool {
                // SAFETY: the word lives as long as the program, and only the kernel writes it. Compilers compare it in
                // place this way, and load an atomic into a register first.
                unsafe { WATCHERS.as_ptr().read_volatile() != 0 }
            }

            /// What the program that watches stops at.
            #[cold]
            #[inline(never)]
            pub fn fire($($arg: u64),+) {
                #[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
                {
                    // SAFETY: one instruction that does nothing. The rest makes a note in a section that is not loaded,
                    // and an empty section by whose address tools see whether a file was relinked. The arguments and the
                    // counter are only named in the note.
                    #[cfg(target_arch = "x86_64")]
                    unsafe {
                        $crate::note!($name, ($($arg),+), WATCHERS, att_syntax);
                    }
                    // SAFETY: as above.
                    #[cfg(target_arch = "aarch64")]
                    unsafe {
                        $crate::note!($name, ($($arg),+), WATCHERS, nostack);
                    }
                }
                #[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
                let _ = ($($arg,)+);
            }
        }
    };
}

/// The instruction and its note: lengths of the owner's name and of the description, type 3; then the owner; then the
/// addresses of the instruction, of the base section and of the counter; then provider, name and arguments, each of which is
/// signed and has 8 bytes.
#[doc(hidden)]
#[macro_export]
macro_rules! note {
    ($name:ident, ($first:ident $(, $arg:ident)*), $watchers:ident, $option:ident) => {
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
            options(readonly, nostack, preserves_flags, $option),
        )
    };
}

probe!(
    /// A command goes to the device.
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
    /// Writes that waited go to the device as one command.
    issue_from_plug(zone, sector, count, bios)
);
probe!(
    /// The place of an append is known.
    append_position(zone, sector, count)
);
probe!(
    /// A management BIO was accepted.
    zone_management(op, sector, count)
);
probe!(
    /// The device is asked for the write pointer of a zone.
    zone_recovery(zone, number)
);
probe!(
    /// A write has come before its place, and is held.
    hold_write(zone, sector, count)
);
probe!(
    /// A write was held for too long, and is refused.
    expire_write(zone, sector, count)
);
probe!(
    /// A command has failed at the device.
    error(op, status, zone, sector, aborted)
);
probe!(
    /// Something else that the disk records.
    zone_event(kind, zone, sector)
);
probe!(
    /// A server goes on with the block device of another one.
    takeover(device, queues)
);
