//! The condition machine (being written).
