//! Every status that a target answers, with the rules of the specifications for it.
//!
//! The numbers were compared in two sources that are not Linux's header: the text of the NVM Express Base
//! Specification 2.0, 2.1 and 2.2 (sections are those of 2.1) with the Zoned Namespace Command Set Specification 1.1,
//! and the headers of SPDK (`include/spdk/nvme_spec.h`, `nvmf_spec.h`), which agree with libnvme's
//! `src/nvme/types.h`. QEMU's `include/block/nvme.h` has *I/O Command Set Combination Rejected* and *Invalid I/O
//! Command Set* among the generic statuses, where Base keeps 2Bh to 7Fh reserved (4.2.3.1, figure 102).

use super::*;
use crate::target::io;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use zoneplug_core::{Op, Status};

/// Whether a completion says *do not retry*.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dnr {
    /// A repeated command fails again.
    Set,
    /// A repeated command may succeed, here or on another path.
    Clear,
    /// Depends on the cause.
    ByCause,
}

use Dnr::{ByCause, Clear, Set};

/// Status code types (Base 4.2.3, figure 101).
const GENERIC: u16 = 0;
const SPECIFIC: u16 = 1;
const MEDIA: u16 = 2;
const PATH: u16 = 3;

/// A row: the constant, or "" for a status of `zoneplug_core::Status` without one; type; code; *do not retry*; the
/// section of the specification; the cause of the answer, and the reason for *do not retry* set or clear.
type Row = (&'static str, u16, u16, Dnr, &'static str, &'static str);

const TABLE: &[Row] = &[
    ("SUCCESS", GENERIC, 0x00, Clear, "Base 4.2.3.1", "the command is done"),
    (
        "INVALID_OPCODE",
        GENERIC,
        0x01,
        Set,
        "Base 4.2.3.1",
        "no command of this controller, or of this namespace's command set; a Fabrics command that is not supported, as SPDK \
         and Linux answer it",
    ),
    (
        "INVALID_FIELD",
        GENERIC,
        0x02,
        Set,
        "Base 4.2.3.1: unless another status is specified; 5.1.13.1 for an unknown CNS; 5.1.12 for a log offset past the \
         end; 6.5 and 6.6 for a property; ZNS 3.4.1 to 3.4.3 for a sector that does not start a zone, an append past ZASL, an \
         unknown action",
        "a value that stays wrong",
    ),
    (
        "",
        GENERIC,
        0x04,
        ByCause,
        "Base 4.2.3.1: Data Transfer Error",
        "data moved in part: a read may be repeated, a write may have landed",
    ),
    (
        "INTERNAL",
        GENERIC,
        0x06,
        ByCause,
        "Base 4.2.3.1",
        "an error of the disk that is nothing else here, whose outcome is unknown: set; a want of the server itself: clear",
    ),
    (
        "ABORTED",
        GENERIC,
        0x07,
        Set,
        "Base 4.2.3.1",
        "the zone, the queue or the controller has ended what the command waited for; a timeout, whose outcome is unknown",
    ),
    (
        "INVALID_NAMESPACE",
        GENERIC,
        0x0b,
        Set,
        "Base 5.1.13.2 for Identify; 4.2.3.1 for I/O",
        "no namespace has the number. SPDK and Linux answer so for inactive numbers up to NN, too",
    ),
    (
        "SEQUENCE",
        GENERIC,
        0x0c,
        Set,
        "Base 3.3.2.3 for a first command that is not Connect, a queue that exists, a controller that is not enabled; \
         5.1.25.2.1 for Number of Queues with queues; 5.1.25.1.28 for the identifier that Connect has set; 8.3.4 for a message \
         out of order",
        "the order stays wrong",
    ),
    (
        "SGL_LENGTH",
        GENERIC,
        0x0f,
        Set,
        "Base 4.2.3.1, 4.3.2",
        "more or fewer bytes than the command moves",
    ),
    (
        "SGL_TYPE",
        GENERIC,
        0x11,
        Set,
        "Base 4.2.3.1",
        "a descriptor that TCP has not: in a capsule to the host, keyed, a segment",
    ),
    ("SGL_OFFSET", GENERIC, 0x16, Set, "Base 4.2.3.1", "an offset in the capsule other than 0"),
    (
        "KEEP_ALIVE_INVALID",
        GENERIC,
        0x1a,
        Set,
        "Base 4.2.3.1; TCP 3.4: the transport requires Keep Alive",
        "Set Features with a timeout of 0 at an I/O controller",
    ),
    (
        "TRANSIENT_TRANSPORT",
        GENERIC,
        0x22,
        Clear,
        "Base 4.2.3.1; TCP 3.3.1.2.1",
        "a digest of data that is wrong: a retry is likely to succeed",
    ),
    ("LBA_RANGE", GENERIC, 0x80, Set, "NVM 3.2, ZNS 3.4", "blocks past the end of the namespace"),
    (
        "",
        GENERIC,
        0x81,
        Set,
        "Base 4.2.3.1: Capacity Exceeded",
        "the disk has no space left for data; hosts report ENOSPC",
    ),
    (
        "NOT_READY",
        GENERIC,
        0x82,
        ByCause,
        "Base 4.2.3.1: *do not retry* tells whether a later command may succeed",
        "a disk that is busy or has no tag: clear; a disk that is gone: set",
    ),
    ("EVENT_LIMIT", SPECIFIC, 0x05, Set, "Base 5.1.2", "more event requests than AERL says"),
    (
        "INVALID_LOG",
        SPECIFIC,
        0x09,
        Set,
        "Base 5.1.12.4, figure 305",
        "a log page that the controller has not",
    ),
    ("NOT_SAVEABLE", SPECIFIC, 0x0d, Set, "Base 5.1.25.3", "Save: no feature is saved"),
    ("NOT_CHANGEABLE", SPECIFIC, 0x0e, Set, "Base 5.1.25.3", "a feature with one value only"),
    (
        "COMMAND_SET_NOT_SUPPORTED",
        SPECIFIC,
        0x29,
        Set,
        "Base 5.1.12.4, figure 305",
        "the effects log of a command set that the controller has not",
    ),
    (
        "COMMAND_SET_REJECTED",
        SPECIFIC,
        0x2b,
        Set,
        "Base 4.2.3.2, figure 103: Set Features",
        "a combination of command sets other than the one of Identify",
    ),
    (
        "COMMAND_SET",
        SPECIFIC,
        0x2c,
        Set,
        "Base 5.1.13.1: a namespace whose command set has no such structure. For CNS 05h, 5.1.13.2.5 has *Invalid Field in \
         Command* as well; of several that apply the controller selects one (4.2.3)",
        "the zoned structure of a conventional namespace",
    ),
    (
        "CONNECT_FORMAT",
        SPECIFIC,
        0x80,
        Set,
        "Base 6.3, figure 105",
        "Connect with another record format",
    ),
    (
        "CONNECT_BUSY",
        SPECIFIC,
        0x81,
        Clear,
        "Base 6.3, figure 105",
        "Connect when no controller is left: another host may go",
    ),
    (
        "CONNECT_PARAMETERS",
        SPECIFIC,
        0x82,
        Set,
        "Base 6.3, figure 105",
        "Connect with a wrong name, size or number; of an I/O queue with another host than the admin queue's, or while the \
         controller is disabled",
    ),
    ("CONNECT_HOST", SPECIFIC, 0x84, Set, "Base 6.3, figure 105", "a host that may not connect"),
    ("QUEUE_TYPE", SPECIFIC, 0x85, Set, "Base 6.4, figure 105", "Disconnect on the admin queue"),
    (
        "AUTHENTICATION_REQUIRED",
        SPECIFIC,
        0x91,
        Set,
        "Base 3.3.2.3, figure 105: all commands but Connect and authentication",
        "a command on a queue whose host has yet to authenticate",
    ),
    (
        "",
        SPECIFIC,
        0x82,
        Set,
        "NVM 3.2: Attempted Write to Read Only Range",
        "a disk that is opened for reading only",
    ),
    (
        "ZONE_BOUNDARY",
        SPECIFIC,
        0xb8,
        Set,
        "ZNS 3.3, 3.4.1",
        "a write that leaves its zone or the zone's capacity",
    ),
    ("", SPECIFIC, 0xb9, Set, "ZNS 3.3, 3.4.1: Zone Is Full", "a write"),
    ("", SPECIFIC, 0xba, Set, "ZNS 3.3, 3.4: Zone Is Read Only", "a write, or zone management"),
    ("", SPECIFIC, 0xbb, Set, "ZNS 3.3, 3.4: Zone Is Offline", "any command of the zone"),
    (
        "",
        SPECIFIC,
        0xbc,
        Set,
        "ZNS 3.3.7: Zone Invalid Write",
        "a write elsewhere than at the write pointer",
    ),
    ("", SPECIFIC, 0xbd, Set, "ZNS 3.3, 3.4: Too Many Active Zones", "hosts close a zone first"),
    ("", SPECIFIC, 0xbe, Set, "ZNS 3.3, 3.4: Too Many Open Zones", "hosts close a zone first"),
    (
        "ZONE_TRANSITION",
        SPECIFIC,
        0xbf,
        Set,
        "ZNS 3.4.3.1",
        "zone management from a state that the action does not lead from; *offline* of any zone, because only read-only zones \
         may become so and no disk has a command for it",
    ),
    ("", MEDIA, 0x80, Set, "Base 4.2.3.3: Write Fault", "a write that the medium has refused"),
    ("UNRECOVERED_READ", MEDIA, 0x81, Set, "Base 4.2.3.3", "a read that the medium has refused"),
    (
        "INACCESSIBLE",
        PATH,
        0x02,
        Clear,
        "Base 4.2.3.4, 8.1.1.6",
        "the port is inaccessible: with *do not retry* a host would not use its other path",
    ),
];

fn code(row: &Row) -> u16 {
    row.1 << 8 | row.2
}

/// Returns name and value of each constant of the module.
fn constants() -> BTreeMap<String, u16> {
    let lines = include_str!("../status.rs").lines();
    let constant = |line: &str| {
        let (name, value) =
            line.strip_prefix("pub const ")?.strip_suffix(';')?.split_once(": u16 = ")?;
        let value = match value.strip_prefix("0x") {
            Some(digits) => u16::from_str_radix(digits, 16).ok()?,
            None => value.parse().ok()?,
        };
        Some((name.to_owned(), value))
    };
    lines.filter_map(constant).collect()
}

/// J4: each constant has one row, with the type and code of the specification, and each row its constant.
#[test]
fn each_constant_is_what_the_specification_says() {
    let mut rows: BTreeMap<_, _> = constants();
    assert!(rows.len() > 20, "{rows:?}");
    let mut wrong = Vec::new();
    for row in TABLE.iter().filter(|row| !row.0.is_empty()) {
        match rows.remove(row.0) {
            Some(value) if value == code(row) => {}
            value => {
                wrong.push(format!("{} is {value:x?}, not {:#x} ({})", row.0, code(row), row.4));
            }
        }
    }
    wrong.extend(rows.keys().map(|name| format!("{name} is not in the table")));
    assert_eq!(wrong, [""; 0]);
}

/// J4: each status of a disk becomes a status of the table, with *do not retry* as the table says.
#[test]
fn each_status_of_a_disk_is_in_the_table() {
    for status in Status::all() {
        for op in Op::ALL {
            let answer = io::code(op, status);
            let row = TABLE.iter().find(|row| code(row) == answer & !DNR);
            let row = row.unwrap_or_else(|| panic!("{status:?} of {op:?} is {answer:#x}"));
            match row.3 {
                Set => assert_eq!(answer & DNR, DNR, "{status:?} of {op:?}"),
                Clear => assert_eq!(answer & DNR, 0, "{status:?} of {op:?}"),
                ByCause => {}
            }
        }
    }
}

/// Each constant is used in an answer, and no status is answered as a bare number.
#[test]
fn each_constant_is_answered() {
    let mut used = BTreeSet::new();
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut folders = vec![crates.join("nvme/src"), crates.join("host/src/nvme_tcp")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                folders.push(path);
            } else if name.ends_with(".rs")
                && !name.contains("test")
                && !path.ends_with("spec/status.rs")
            {
                let text = std::fs::read_to_string(&path).unwrap();
                let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
                let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                if !path.ends_with("status/table.rs") {
                    used.extend(words.map(str::to_owned));
                }
            }
        }
    }
    let unused: Vec<String> = constants().into_keys().filter(|name| !used.contains(name)).collect();
    assert_eq!(unused, [""; 0]);
}
