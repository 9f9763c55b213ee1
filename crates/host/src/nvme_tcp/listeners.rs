//! The sockets at which a server listens.

use super::NvmeTcpOptions;
use crate::network::listeners::Sockets;
use std::net::{SocketAddr, TcpListener};
use zoneplug_core::Error;

/// The listening sockets of a server. A server that takes over gets those of the last one, so that no host is refused
/// in between.
#[derive(Debug, Clone)]
pub struct NvmeTcpListeners(pub(super) Sockets);

impl NvmeTcpListeners {
    /// Listens at all addresses of `options`, or fails. Takes sockets of `given` that are at one of these addresses;
    /// for port 0, any at the same IP address.
    ///
    /// # Errors
    ///
    /// [`NvmeTcpOptions::check`] refuses the options, or an address is not available.
    pub fn bind(
        options: &NvmeTcpOptions,
        given: &mut Vec<TcpListener>,
    ) -> Result<NvmeTcpListeners, Error> {
        // Without a decision about who may connect, no socket listens where other machines reach it.
        options.check()?;
        Ok(NvmeTcpListeners(Sockets::bind(options.addresses(), given)?))
    }

    /// The addresses of the sockets, in the order of the options.
    pub fn addresses(&self) -> &[SocketAddr] {
        self.0.addresses()
    }

    /// The sockets.
    pub fn sockets(&self) -> impl Iterator<Item = &TcpListener> {
        self.0.iter()
    }
}
