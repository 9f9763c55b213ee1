//! Names of statuses and conditions as keys of plain data.

use serde::Serializer;
use std::collections::BTreeMap;

/// Serializes counts by status with statuses as keys, for `serialize_with`.
pub fn by_status<S: Serializer>(
    counts: &BTreeMap<&'static str, u64>,
    s: S,
) -> Result<S::Ok, S::Error> {
    s.collect_map(counts.iter().map(|(name, n)| (status_key(name), n)))
}

/// Converts the name of a status or a condition to a key.
///
/// ```
/// assert_eq!(zoneplug_models::status_key("not at the write pointer"), "not_at_the_write_pointer");
/// assert_eq!(zoneplug_models::status_key("I/O error"), "io_error");
/// ```
pub fn status_key(name: &str) -> String {
    let key = |c: char| match c {
        ' ' | '-' | '_' => Some('_'),
        c => c.is_ascii_alphanumeric().then(|| c.to_ascii_lowercase()),
    };
    name.chars().filter_map(key).collect()
}
