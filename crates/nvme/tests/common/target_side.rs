//! The target's side of tests that pass bytes between a host and an I/O queue.

use std::io::IoSlice;
use std::sync::Arc;
use zoneplug_buf::Buffers;
use zoneplug_core::Nanos;
use zoneplug_core::zone::{Geometry, Limits};
use zoneplug_nvme::target::{Namespace, Namespaces, Nqn, SubsystemConfig, Target};
use zoneplug_nvme::tcp::Connection;

/// The subsystem of [`target`].
pub(crate) const NQN: &str = "nqn.test";

/// A target with the namespaces of one disk of this geometry.
pub(crate) fn target(geometry: &Geometry) -> Target {
    let mut target = Target::new(vec![]);
    let nqn = Nqn::new(NQN).unwrap();
    target.add_subsystem(SubsystemConfig::new(nqn.clone())).unwrap();
    let limits = Limits {
        logical_block_sectors: 1,
        write_granularity_sectors: 1,
        zone_append_max_sectors: 16,
        ..Limits::default()
    };
    let all = Namespace::of(0, [1; 16], geometry, &limits).unwrap();
    target.add_namespaces(&nqn, all).unwrap();
    target
}

/// The namespaces of one disk of this geometry.
pub(crate) fn namespaces(geometry: &Geometry) -> Arc<Namespaces> {
    target(geometry).namespaces(&Nqn::new(NQN).unwrap()).unwrap()
}

/// Takes all bytes that a connection has for its host.
pub(crate) fn output(connection: &mut Connection, buffers: &mut Buffers, now: Nanos) -> Vec<u8> {
    let mut all = Vec::new();
    while connection.has_output() {
        let mut slices = [IoSlice::new(&[]); 8];
        let filled = connection.output(&mut slices);
        let bytes: Vec<u8> = slices[..filled].iter().flat_map(|s| s.to_vec()).collect();
        connection.sent(bytes.len(), buffers, now);
        all.extend(bytes);
    }
    all
}
