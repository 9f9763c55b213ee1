//! Runs the cases of `queue.c` on the queue of the Rust library; scripts/capi-cost subtracts its cost from that of C.
//! The program takes each buffer back after its operation, as a program in safe Rust must. Usage: queue CASE OPERATIONS

#![allow(clippy::unwrap_used, missing_docs)]

use zoneplug_buf::{AlignedBuf, Lent};
use zoneplug_core::{Bio, BioPool, Bios, Op, Sector};
use zoneplug_host::HostedDisk;

fn main() {
    let args: Vec<_> = std::env::args().collect();
    // `cargo test --benches` and `cargo bench` call it without a case.
    let [_, case, total] = args.as_slice() else { return };
    let Ok(total) = total.parse::<u64>() else { return };
    let depth: u64 = case.rsplit('-').next().unwrap().parse().unwrap();
    let (read, random) = (case.starts_with("read"), case.starts_with("random"));
    let disk = HostedDisk::open_spec("null,zones=128,zone-size=2G").unwrap();
    let mut client = disk.open_client(16, 16).unwrap();
    let (mut list, mut done) = (Bios::with_capacity(16), Bios::with_capacity(16));
    let mut pool = BioPool::new(16);
    let mut memory: Vec<AlignedBuf> = (0..16).map(|_| AlignedBuf::zeroed(4096)).collect();
    let mut lent: Vec<Option<Lent>> = (0..16).map(|_| None).collect();
    for n in (0..total).step_by(depth as usize) {
        for i in 0..depth {
            let sector = if random { i * 4_194_304 + n / depth * 8 } else { (n + i) * 8 };
            let op = if read { Op::Read } else { Op::Write };
            let (loan, buf) = memory.pop().unwrap().lend();
            lent[i as usize] = Some(loan);
            let mut bio: Box<Bio> = pool.get();
            bio.set(op, Sector(sector), 8, buf);
            bio.set_token(i);
            list.push_back(bio);
        }
        assert_eq!(client.submit(&mut list) as u64, depth);
        let mut left = depth;
        while left > 0 {
            client.poll(&mut done);
            while let Some(mut bio) = done.pop_front() {
                assert!(bio.status.is_ok());
                let loan = lent[bio.token() as usize].take().unwrap();
                memory.push(loan.take_back(bio.take_buf()).unwrap());
                pool.put(bio);
                left -= 1;
            }
        }
    }
}
