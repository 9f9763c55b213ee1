//! What is fuzzed: each function takes any bytes, and panics if a promise is broken. `fuzz_targets/` hands them to
//! libFuzzer (`scripts/fuzz`), `tests/corpora.rs` replays what is in `corpus/`.

mod attributes;
mod disk;
mod input;
mod iscsi;
// The initiator of the tests of the crate.
#[allow(dead_code, clippy::unwrap_used)]
#[path = "../../crates/scsi/tests/session/common.rs"]
mod iscsi_peer;
mod nvme;
mod nvme_commands;
mod nvme_tcp;
mod scsi_commands;
mod socket;
mod text;
mod ublk;
mod zones;

pub use attributes::attributes;
pub use disk::disk_format;
pub use iscsi::iscsi;
pub use nvme::nvme_structures;
pub use nvme_commands::nvme_commands;
pub use nvme_tcp::nvme_tcp;
pub use scsi_commands::scsi_commands;
pub use socket::status_socket;
pub use text::{device_spec, fault_text, numbers, trace_text};
pub use ublk::{append_journal, ublk_requests};

use zoneplug_core::Error;

/// A target by name.
pub type Target = fn(&[u8]);

/// Every target.
pub const TARGETS: [(&str, Target); 14] = [
    ("append_journal", append_journal),
    ("attributes", attributes),
    ("device_spec", device_spec),
    ("disk_format", disk_format),
    ("fault_text", fault_text),
    ("iscsi", iscsi),
    ("numbers", numbers),
    ("nvme_commands", nvme_commands),
    ("nvme_structures", nvme_structures),
    ("nvme_tcp", nvme_tcp),
    ("scsi_commands", scsi_commands),
    ("status_socket", status_socket),
    ("trace_text", trace_text),
    ("ublk_requests", ublk_requests),
];

/// An error says what is wrong, and what to try.
fn explained(e: &Error) {
    assert!(!e.to_string().is_empty() && e.what_to_try().is_some(), "an error without help: {e:?}");
}
