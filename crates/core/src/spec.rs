//! Device specifications (being written).
