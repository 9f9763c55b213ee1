//! The memory of commands whose connection ends.

use super::*;

/// The bytes that the thread's pool has free after some writes: one waits for another queue, two are with the disk and one
/// waits for a tag when their connection ends, if it does.
fn free_after_writes(connection_ends: bool) -> usize {
    let mut w = World::new();
    let (mut asked, mut link) = (w.connect("nqn.a"), w.connect("nqn.a"));
    w.send(&mut asked, [append(2, 4, 9)]);
    w.send(&mut link, [write(START + 4, 4, 1)]);
    assert!(link.io.waits(), "the disk has refused it");
    w.stall(&[Op::Write]);
    w.send(&mut link, [write(0, 4, 1), write(4, 4, 1), write(8, 4, 1)]);
    w.stall(&[]);
    if connection_ends {
        let mut closing = w.lose(link).expect("two writes are with the disk");
        w.drain(&mut closing);
        assert!(closing.is_empty());
    } else {
        for _ in 0..2 {
            w.run(&mut asked);
            w.run(&mut link);
        }
        assert_eq!(answers(&mut link).len(), 4);
    }
    w.buffers.free_bytes()
}

/// A host that loses its connection costs the thread no memory: the pool gets that of each command back, as if all were
/// answered.
#[test]
fn memory_of_a_lost_connection_is_free_for_others() {
    assert_eq!(free_after_writes(true), free_after_writes(false));
}
