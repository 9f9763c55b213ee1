//! The limits on a peer of a connection: commands, memory and time.

use super::*;

/// K3. A host that must authenticate gets little memory and a deadline.
#[test]
fn k3_a_host_that_has_to_authenticate_has_little_memory_and_time() {
    let config = Config::default();
    let at = |n: u64| Nanos(NOW.0 + n);
    let write = |blocks| write(1, 0, pattern(blocks * BLOCK, 1), BLOCK);
    let mut target = Controller::new(config, queue(true));
    target.connection.restrict(1024, NOW);
    let mut host = Initiator::new(Options { in_capsule: 0, ..Options::default() });
    for blocks in [2, 3] {
        host.send(write(blocks).0, write(blocks).1);
    }
    exchange(&mut host, &mut target, [usize::MAX; 2]);
    let status: Vec<u16> = all_done(&mut host).iter().map(|d| d.completion.status).collect();
    assert!(status.contains(&0) && status.iter().any(|s| *s != 0), "{status:x?}");
    assert!(target.largest <= 1024);
    // Bytes sent meanwhile do not extend the deadline.
    assert_eq!(target.connection.next_deadline(), Some(at(config.connect.0)));
    target.connection.expire(at(config.connect.0 - 1));
    target.events();
    assert_eq!(target.ended, None);
    target.connection.lift();
    assert_eq!(target.connection.next_deadline(), None);
    host.send(write(3).0, write(3).1);
    exchange(&mut host, &mut target, [usize::MAX; 2]);
    assert_eq!(all_done(&mut host)[0].completion.status, 0);
    // The host fails to authenticate again.
    target.connection.restrict(1024, NOW);
    target.connection.expire(at(config.connect.0));
    target.events();
    assert_eq!(target.ended, Some(Ended::Slow(TimedOut::Handshake)));
}

/// K3. A host that sends more commands than its queue has entries, or does not take its answers, is disconnected.
#[test]
fn k3_commands_in_flight_are_bounded_by_the_queue() {
    let flush = Command::new(opcode::FLUSH).with_data_apart(0);
    let one = capsule(flush, 0);
    let one = [&one.0.encode()[..], &one.1].concat();
    let mut target = ready();
    let full = one.repeat(128);
    target.receive(&full, 1000);
    assert_eq!((target.taken.len(), target.ended), (128, None));
    target.answer();
    // The commands are answered, but no answer was sent.
    assert_eq!(target.connection.in_flight(), 128);
    target.receive(&one, 1000);
    assert_eq!(target.ended, Some(Ended::Wrong(FatalError { status: fatal::SEQUENCE, info: 0 })));
    let mut target = ready();
    for _ in 0..3 {
        target.receive(&full, 1000);
        target.answer();
        assert_eq!(target.send(100).len(), 128 * 24);
    }
    assert_eq!(target.ended, None);
    // The head wraps round the queue of 128.
    target.receive(&one, 1000);
    target.answer();
    let last = target.send(usize::MAX);
    assert_eq!(Completion::decode(last[8..24].try_into().unwrap()).sq_head, 1);
}

/// K3. A peer that makes no progress is disconnected.
#[test]
fn k3_a_peer_that_makes_no_progress_is_cut_off() {
    let config = Config::default();
    let (patience, handshake) = (config.patience.0, config.handshake.0);
    let slow = |c: &mut Connection, at: u64| {
        assert_eq!(c.next_deadline(), Some(Nanos(at)));
        c.expire(Nanos(at - 1));
        let mut buffers = Buffers::new(0);
        assert!(c.next_event(&mut buffers).is_none());
        c.expire(Nanos(at));
        match c.next_event(&mut buffers) {
            Some(ConnectionEvent::Ended(Ended::Slow(what))) => {
                assert!(c.next_deadline().is_none() && c.next_event(&mut buffers).is_none());
                what
            }
            other => panic!("{other:?}"),
        }
    };
    let mut c = Connection::new(config, NOW);
    assert_eq!(slow(&mut c, NOW.0 + handshake), TimedOut::Handshake);
    let mut c = Connection::new(config, NOW);
    let request = Initiator::new(Options::default()).take_output();
    let late = Nanos(NOW.0 + handshake / 2);
    assert_eq!(c.receive(&request, 128, &mut Buffers::new(0), late), 128);
    assert!(c.next_event(&mut Buffers::new(0)).is_none());
    c.sent(128, &mut Buffers::new(0), late);
    assert_eq!(slow(&mut c, late.0 + config.connect.0), TimedOut::Handshake);
    let mut target = ready();
    let (common, rest) = capsule(Command::new(opcode::FLUSH).with_data_apart(0), 0);
    target.receive(&common.encode(), 3);
    assert_eq!(slow(&mut target.connection, NOW.0 + patience), TimedOut::Pdu);
    let mut target = ready();
    target.receive(&[&common.encode()[..], &rest].concat(), 9);
    assert_eq!(target.connection.next_deadline(), None, "a command may take as long as it likes");
    target.answer();
    assert_eq!(slow(&mut target.connection, NOW.0 + patience), TimedOut::Output);
    let mut target = fetching(Digests::default());
    assert_eq!(slow(&mut target.connection, NOW.0 + patience), TimedOut::Data);
}

/// K3. A host is not disconnected while its link is slow but makes progress.
#[test]
fn k3_a_slow_way_to_the_host_is_no_fault_of_it() {
    let (config, mut host) = (Config::default(), Initiator::new(Options::default()));
    let mut target = Controller::new(config, queue(false));
    exchange(&mut host, &mut target, [usize::MAX; 2]);
    let (command, data) = read(1, 0, 64, BLOCK);
    host.send(command, data);
    let (command, data) = write(1, 0, pattern(32 << 10, 1), BLOCK);
    host.send(command, data);
    target.receive(&host.take_output(), usize::MAX);
    target.answer();
    assert_eq!(target.connection.fetching, 1);
    // The R2T is behind the data of the read. The host takes some of these before each deadline.
    let mut now = NOW;
    for _ in 0..3 {
        now = now.plus(Nanos(config.patience.0 - 1));
        target.connection.sent(100, &mut target.buffers, now);
        target.connection.expire(now);
        target.events();
        assert_eq!(target.ended, None);
    }
    // The host takes no more data.
    target.connection.expire(now.plus(config.patience));
    target.events();
    assert!(matches!(target.ended, Some(Ended::Slow(_))));
}
