//! Names of statuses and conditions as keys of plain data.

use serde::Serializer;
use std::collections::BTreeMap;
use zoneplug_core::status_key;

/// Serializes counts by status with statuses as keys, for `serialize_with`.
pub fn by_status<S: Serializer>(
    counts: &BTreeMap<&'static str, u64>,
    s: S,
) -> Result<S::Ok, S::Error> {
    s.collect_map(counts.iter().map(|(name, n)| (status_key(name), n)))
}
