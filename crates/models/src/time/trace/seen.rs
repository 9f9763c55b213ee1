//! Counts of what was read besides the events: what was left out, and what was out of order.

use std::collections::BTreeMap;
use zoneplug_core::Nanos;

/// The number of unknown kinds of operations counted separately.
const KINDS: usize = 32;
/// The number of other devices that are named.
const DEVICES: usize = 8;

/// Counts of everything read so far besides the events.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    /// Number of lines, or of records in blktrace's format.
    pub lines: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// Lines of no known form.
    pub unknown: u64,
    /// The number of the first line of no known form.
    pub first_unknown: Option<u64>,
    /// Operations of an unknown kind.
    pub strange: u64,
    /// The first operation of an unknown kind: its line and its kind.
    pub first_strange: Option<(u64, String)>,
    /// The number of each unknown kind, for the first kinds.
    pub strange_kinds: BTreeMap<String, u64>,
    /// Empty reads and writes.
    pub empty: u64,
    /// Commands that bypass the block layer, such as those of SCSI.
    pub pass_through: u64,
    /// Operations of other devices.
    pub elsewhere: u64,
    /// The names of the first of these devices.
    pub other_devices: Vec<String>,
    /// Zone management without its kind or its zone.
    pub unclear: u64,
    /// Records cut off by the end of their file.
    pub cut: u64,
    /// Bytes behind the end of the gzip data, which are left out.
    pub behind_gzip: u64,
    /// Events that blktrace lost, by their sequence numbers.
    pub lost: u64,
    /// Events that stand behind a later one. blktrace writes each processor's records in pieces, so
    /// of its records only those that come too late for the window count.
    pub backwards: u64,
    /// The largest time by which such an event is earlier.
    pub furthest_back: Nanos,
    /// Events that came too late for the window, and got the time of the event before them.
    pub late: u64,
    /// The earliest time of an event, as a reader of the same trace counts it: what
    /// [`Reader::in_order_of_lines`](super::Reader::in_order_of_lines) takes. Only differences of such times have a meaning.
    pub earliest: Option<Nanos>,
    /// The time from the earliest event to the last completion. Known at the end.
    pub last_completion: Option<Nanos>,
}

impl Seen {
    /// Counts an operation of an unknown kind.
    #[cold]
    pub(super) fn note_strange(&mut self, line: u64, word: &[u8]) {
        let name: String = String::from_utf8_lossy(word).chars().take(20).collect();
        self.strange += 1;
        if self.strange_kinds.len() < KINDS || self.strange_kinds.contains_key(&name) {
            *self.strange_kinds.entry(name.clone()).or_default() += 1;
        }
        self.first_strange.get_or_insert((line, name));
    }

    /// Operations of a kind that is not known and that [`strange_kinds`](Seen::strange_kinds) has no room for.
    pub fn strange_of_other_kinds(&self) -> u64 {
        self.strange - self.strange_kinds.values().sum::<u64>()
    }

    /// Counts an operation of another device than the one asked for.
    pub(super) fn note_elsewhere(&mut self, device: &[u8]) {
        self.elsewhere += 1;
        let names = &mut self.other_devices;
        if names.len() < DEVICES && !names.iter().any(|d| d.as_bytes() == device) {
            names.push(String::from_utf8_lossy(device).into_owned());
        }
    }

    /// Counts an event that stands behind one that is so much later.
    pub(super) fn note_backwards(&mut self, by: Nanos) {
        self.backwards += 1;
        self.furthest_back = self.furthest_back.max(by);
    }
}
