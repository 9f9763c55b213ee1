//! The conformance suite of the device seam (being written).
