//! Disks (being written).
