//! Peers that open connections and never connect.
#![cfg(feature = "nvme-tcp")]
#![allow(clippy::unwrap_used)]

#[path = "common/nvme_host.rs"]
mod nvme_host;

use nvme_host::{BLOCK, HOST, Host, MEM, disk, options, pattern, soon};
use std::io::{Read, Write};
use std::net::TcpStream;
use zoneplug_host::nvme_tcp::{NvmeTcp, NvmeTcpOptions};
use zoneplug_nvme::initiator::{Initiator, Options};

const MAX: usize = 64;

/// A connection with ICReq, that was answered, and nothing else.
fn stranger(server: &NvmeTcp) -> TcpStream {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    let bytes = Initiator::new(Options::default()).take_output();
    stream.write_all(&bytes).unwrap();
    // A server that closes it at once may not answer.
    let _ = stream.read(&mut [0; 128]);
    stream
}

/// K3. Also when all places were taken before the host comes, and while more of them come.
#[test]
fn k3_connections_that_never_connect_keep_no_host_out() {
    let options = NvmeTcpOptions { threads: 2, max_connections: MAX, ..options() };
    let server = NvmeTcp::start(&options, vec![disk(MEM)], || ()).unwrap();
    let mut first = Host::new(&server, HOST);
    let mut flood: Vec<TcpStream> = (0..2 * MAX).map(|_| stranger(&server)).collect();
    for n in 0..8 {
        let mut host = Host::new(&server, HOST);
        assert_eq!(host.write(n, &pattern(BLOCK as usize, n as u8)), 0);
        flood.extend((0..MAX / 4).map(|_| stranger(&server)));
        // Those that are connected stay, the oldest too.
        assert_eq!(host.read(n, 1), pattern(BLOCK as usize, n as u8));
        assert_eq!(first.read(n, 1), pattern(BLOCK as usize, n as u8));
    }
    // The youngest stay, the oldest were closed.
    let is_open = |s: &mut TcpStream| {
        s.set_nonblocking(true).unwrap();
        s.read(&mut [0; 128]).is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock)
    };
    assert!(is_open(flood.last_mut().unwrap()));
    soon("the oldest is closed", || !is_open(&mut flood[0]));
}
