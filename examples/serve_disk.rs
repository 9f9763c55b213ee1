//! A program that serves a disk over NVMe/TCP: `zoneplug status` shows it, and any Linux can connect.
//!
//! `cargo run --release -p zoneplug --features serve --example serve_disk` serves a disk in memory until Enter is pressed. Arguments are another
//! specification, and an address.

use zoneplug::Error;
use zoneplug::nvme_tcp::NvmeTcpOptions;
use zoneplug::serve::Serve;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let spec = arguments.next().unwrap_or_else(|| "mem,zones=16,zone-size=64M".to_owned());
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:4420".to_owned());
    let address = address
        .parse()
        .map_err(|_| Error::invalid(format!("{address} is no address")).hint("127.0.0.1:4420"))?;
    let socket = std::env::temp_dir().join(format!("serve-disk-{}.sock", std::process::id()));

    let options = NvmeTcpOptions::new(address, "nqn.2026-11.org.example:serve-disk");
    let served = Serve::new().nvme_tcp(options, [spec]).socket(&socket).start()?;
    for line in served.lines() {
        println!("{line}");
    }
    println!("zoneplug status --socket {}\nEnter ends this", socket.display());

    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    Ok(served.stop()?)
}
