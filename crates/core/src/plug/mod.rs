//! Plugs (being written).
