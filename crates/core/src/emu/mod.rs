//! Emulated zoned disks (being written).
