//! Reads that expect capsules, under hosts that send the expected capsules and others.

use super::tests::{BLOCK, Controller, digests, exchange, pattern, queue};
use super::*;
use crate::initiator::{Data, Initiator, Options, read, write};
use crate::spec::opcode;
use proptest::prelude::*;

/// The host's next commands: the length of each write in blocks; an empty list stands for a flush.
fn steps() -> impl Strategy<Value = Vec<u32>> {
    let run = prop_oneof![
        4 => (1usize..40, prop_oneof![Just(1u32), Just(8), Just(16)]).prop_map(|(n, b)| vec![b; n]),
        1 => (1usize..4).prop_map(|n| vec![0; n]),
        1 => (17u32..60).prop_map(|b| vec![b]),
        1 => proptest::collection::vec(0u32..20, 1..6),
    ];
    proptest::collection::vec(run, 1..6).prop_map(|runs| runs.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]
    /// K1. All data arrive at their place for any expectation and any cut of the stream.
    #[test]
    fn k1_what_is_expected_changes_nothing(
        steps in steps(),
        cuts in proptest::collection::vec(prop_oneof![1usize..200, 1usize..20_000, Just(usize::MAX)], 1..20),
        (header, data) in any::<(bool, bool)>(),
    ) {
        let options = Options { digests: digests(header, data), ..Options::default() };
        let mut host = Initiator::new(options);
        let mut target = Controller::new(Config::default(), queue(true));
        exchange(&mut host, &mut target, [usize::MAX; 2]);
        let (mut at, mut written) = (0, Vec::new());
        let mut cuts = cuts.into_iter().cycle();
        for (i, part) in steps.chunks(20).enumerate() {
            for (n, blocks) in part.iter().enumerate() {
                if *blocks == 0 {
                    host.send(Command::new(opcode::FLUSH), Data::None);
                    continue;
                }
                let bytes = pattern(blocks * BLOCK, (i * 20 + n) as u8);
                let (c, d) = write(1, at, bytes.clone(), BLOCK);
                host.send(c, d);
                written.push((at, bytes));
                at += u64::from(*blocks);
            }
            while host.in_flight() > 0 {
                let out = host.take_output();
                let mut rest = &out[..];
                while !rest.is_empty() {
                    let n = rest.len().min(cuts.next().unwrap_or(1));
                    target.receive(&rest[..n], usize::MAX);
                    rest = &rest[n..];
                }
                target.answer();
                host.received(&target.send(usize::MAX)).unwrap();
            }
            prop_assert!(std::iter::from_fn(|| host.done()).all(|d| d.completion.status == 0));
        }
        for (at, bytes) in written {
            let (c, d) = read(1, at, bytes.len() as u32 / BLOCK, BLOCK);
            host.send(c, d);
            exchange(&mut host, &mut target, [usize::MAX; 2]);
            prop_assert!(host.done().unwrap().data == bytes);
        }
    }
}

/// Receives `n` writes of 4 KiB that are sent together, as far as there is room. Returns how many bytes had to be
/// copied, and how many reads received them.
fn copied(target: &mut Controller, n: u32) -> (usize, usize) {
    let mut host = Initiator::new(Options::default());
    let _ = host.take_output();
    let agreed = crate::tcp::pdu::Initialize { version: 0, align: 0, digests: 0, max: 4096 };
    host.received(&agreed.encode(crate::tcp::pdu::Kind::IcResp)).unwrap();
    for i in 0..n {
        let (c, d) = write(1, u64::from(i) * 8, pattern(4096, i as u8), BLOCK);
        host.send(c, d);
    }
    let (out, mut done, mut copied, mut reads) = (host.take_output(), 0, 0, 0);
    while done < out.len() {
        let read = |slices: &mut [IoSliceMut<'_>]| {
            let mut n = 0;
            let last = slices.len() - 1;
            for (i, part) in slices.iter_mut().enumerate() {
                let m = part.len().min(out.len() - done - n);
                part[..m].copy_from_slice(&out[done + n..][..m]);
                n += m;
                copied += if i == last { m } else { 0 };
            }
            Ok::<_, ()>(n)
        };
        done += target.connection.receive_with(&mut target.buffers, Nanos(1), read).unwrap().0;
        reads += 1;
        target.events();
    }
    target.answer();
    target.send(usize::MAX);
    (copied, reads)
}

/// Data of writes of one length are not copied: a read puts them at their final place. A wrong expectation suspends
/// that for a while.
#[test]
fn data_of_equal_writes_are_read_to_where_they_stay() {
    let mut target = Controller::new(Config::default(), queue(true));
    exchange(&mut Initiator::new(Options::default()), &mut target, [usize::MAX; 2]);
    for _ in 0..5 {
        copied(&mut target, 16);
    }
    let kept = target.buffers.free_bytes();
    for _ in 0..3 {
        assert_eq!(copied(&mut target, 16), (0, 1));
    }
    (0..40).for_each(|_| assert_eq!(copied(&mut target, 1), (0, 1)));
    assert_eq!(target.buffers.free_bytes(), kept, "what was not used is given back");
    let flush = Command::new(opcode::FLUSH).with_data_apart(0);
    let common = crate::tcp::pdu::Common { kind: 4, flags: 0, hlen: 72, pdo: 0, plen: 72 };
    let two = [&common.encode()[..], &flush.0, &common.encode(), &flush.0].concat();
    target.receive(&two, usize::MAX);
    assert_eq!(target.taken.len(), 2);
    target.answer();
    assert!(copied(&mut target, 16).0 > 15 * 4096);
}
