//! Writes that the disk refuses while the data of earlier writes are on the way over other connections of the host.
//! Codes such as L12 are requirements of docs/requirements.md.

use super::*;

/// Makes the host send all data only on request, and keeps the requests and all else that is sent to the host until
/// [`arrive`].
fn slow(w: &mut World, link: &mut Link) {
    link.initiator = Initiator::new(Options { in_capsule: 0, ..Options::default() });
    w.run(link);
    link.on_the_way = Some(Vec::new());
}

/// The host gets all that was sent to it, and answers.
fn arrive(w: &mut World, link: &mut Link) {
    let late = link.on_the_way.take().unwrap();
    link.initiator.received(&late).unwrap();
    w.run(link);
}

/// L12. A refused write also waits for data on the way over other connections of its host, even if their queue has not
/// used the disk yet. Data of another host do not count.
#[test]
fn l12_a_refused_write_waits_for_the_data_of_writes_before_it_on_other_queues() {
    for (host, awaited, waits) in [
        ("nqn.a", START, true),
        ("nqn.a", START + 8, false),
        ("nqn.a", START + 12, false),
        ("nqn.a", 0, false),
        ("nqn.b", START, false),
    ] {
        let mut w = World::new();
        let (mut first, mut second) = (w.connect(host), w.connect("nqn.a"));
        slow(&mut w, &mut first);
        w.send(&mut first, [write(awaited, 8, 1)]);
        w.send(&mut second, [write(START + 8, 4, 2)]);
        for _ in 0..2 {
            w.run(&mut first);
            w.run(&mut second);
        }
        assert_eq!(second.initiator.in_flight(), usize::from(waits), "{host}: data at {awaited}");
        assert_eq!(second.io.waits(), waits);
        if !waits {
            assert_ne!(answers(&mut second)[0].0, 0);
            continue;
        }
        arrive(&mut w, &mut first);
        w.run(&mut second);
        assert_eq!((answers(&mut first), answers(&mut second)), (vec![(0, 0)], vec![(0, 0)]));
        let zone = [data(8, 1), data(4, 2)].concat();
        let zone: Vec<u8> = zone.iter().step_by(BLOCK as usize).copied().collect();
        assert_eq!(w.medium.borrow().zones[1], zone);
    }
}

/// L12. The data may reach the disk between the refusal and the moment at which the other queues are asked. So the write
/// is tried once more, without the order window, which holds writes that come before their place.
#[test]
fn l12_a_write_that_came_between_the_refusal_and_the_question_counts() {
    let mut w = World::new();
    let (mut first, mut second) = (w.connect("nqn.a"), w.connect("nqn.a"));
    w.send(&mut second, [write(START + 8, 4, 2)]);
    assert!(second.io.waits(), "the other queue is asked");
    // The other queue gets the question and the write at the same time.
    w.send(&mut first, [write(START, 8, 1)]);
    if second.io.waits() {
        // First the other queue is asked whether it has had this very write (L10).
        w.run(&mut second);
        w.run(&mut first);
    }
    w.run(&mut second);
    assert_eq!(answers(&mut second), [(0, 0)]);
    // A write whose predecessor never comes is held once, and not again at its last try.
    w.medium.borrow_mut().holds = true;
    w.send(&mut second, [write(START + 16, 4, 2)]);
    w.medium.borrow_mut().holds = false;
    w.run(&mut second);
    w.medium.borrow_mut().holds = true;
    for _ in 0..2 {
        w.run(&mut first);
        w.run(&mut second);
    }
    assert_eq!(answers(&mut second), [(0x1bc, 0)]);
}

/// L12. Refused writes of three queues wait for the data of another one, and for each other, whatever the order in which
/// they came. All land.
#[test]
fn l12_refused_writes_of_several_queues_wait_for_each_other() {
    let orders = [[1, 2, 3], [1, 3, 2], [2, 1, 3], [2, 3, 1], [3, 1, 2], [3, 2, 1]];
    for order in orders {
        let mut w = World::new();
        let mut links = [0; 4].map(|_| w.connect("nqn.a"));
        slow(&mut w, &mut links[0]);
        w.send(&mut links[0], [write(START, 4, 9)]);
        for zone in [2, 1] {
            for n in order {
                // Each queue has two of each zone.
                let at = u64::from(zone * ZONE) + 4 * n;
                w.send(&mut links[n as usize], [write(at + 12, 4, 1), write(at, 4, 1)]);
            }
        }
        let turns = |w: &mut World, links: &mut [Link]| {
            for n in [0, 3, 1, 2, 0, 1, 2, 3, 2, 1, 3, 0].repeat(6) {
                w.run(&mut links[n]);
            }
        };
        turns(&mut w, &mut links);
        let refused: Vec<_> = links.iter_mut().map(|l| answers(l).len()).collect();
        assert_eq!(refused, [0, 2, 2, 2], "{order:?}: of the zone without a first write");
        arrive(&mut w, &mut links[0]);
        turns(&mut w, &mut links);
        let landed: Vec<_> = links.iter_mut().map(answers).collect();
        let ok = vec![(0, 0); 2];
        assert_eq!(landed, [vec![(0, 0)], ok.clone(), ok.clone(), ok], "{order:?}");
        assert_eq!(w.medium.borrow().zones[1].len(), 28);
    }
}

/// L12. The connection whose data are awaited ends. The order window may hold the writes behind these data once more; then
/// these writes fail.
#[test]
fn l12_the_time_of_the_window_begins_when_the_connection_before_has_ended() {
    let mut w = World::new();
    let (mut first, mut second) = (w.connect("nqn.a"), w.connect("nqn.a"));
    slow(&mut w, &mut first);
    w.send(&mut first, [write(START, 8, 1)]);
    w.send(&mut second, [write(START + 8, 4, 2)]);
    for _ in 0..2 {
        w.run(&mut first);
        w.run(&mut second);
    }
    assert!(second.io.waits());
    w.medium.borrow_mut().holds = true;
    assert!(w.lose(first).is_none());
    w.run(&mut second);
    assert_eq!(second.io.clients().map(DiskClient::outstanding).sum::<u32>(), 1, "it is held");
    assert!(!second.io.waits() && answers(&mut second).is_empty());
    w.medium.borrow_mut().holds = false;
    w.run(&mut second);
    assert_eq!(answers(&mut second), [(0x1bc, 0)]);
}

/// L12, L11. A queue that stops takes no more data, so no other queue waits for them. Its own refused writes stay
/// unanswered.
#[test]
fn l12_a_queue_that_stops_is_not_waited_for() {
    let mut w = World::new();
    let (mut first, mut second) = (w.connect("nqn.a"), w.connect("nqn.a"));
    slow(&mut w, &mut first);
    w.send(&mut first, [write(START, 8, 1)]);
    w.send(&mut second, [write(START + 8, 4, 2)]);
    w.run(&mut first);
    w.run(&mut second);
    assert!(second.io.waits() && second.io.is_busy());
    first.io.stop();
    w.run(&mut first);
    w.run(&mut second);
    assert_ne!(answers(&mut second)[0].0, 0);
    let mut third = w.connect("nqn.a");
    slow(&mut w, &mut third);
    w.send(&mut third, [write(START, 8, 1)]);
    w.send(&mut second, [write(START + 8, 4, 2)]);
    for _ in 0..2 {
        w.run(&mut first);
        w.run(&mut third);
        w.run(&mut second);
    }
    assert!(second.io.waits());
    second.io.stop();
    assert!(!second.io.waits() && !second.io.is_busy(), "nothing of it is to be waited for");
    arrive(&mut w, &mut third);
    w.run(&mut second);
    assert_eq!((answers(&mut second), second.initiator.in_flight()), (vec![], 1));
    assert!(w.lose(second).is_none());
}
