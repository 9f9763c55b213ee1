//! The end of a server: when a connection counts as answered.

use super::*;
use std::io::{IoSlice, IoSliceMut, Read};
use zoneplug_nvme::association::{Association, Server};
use zoneplug_nvme::dhchap::Random;
use zoneplug_nvme::spec::Completion;
use zoneplug_nvme::spec::fabrics::{ANY_CONTROLLER, Configuration, property};
use zoneplug_nvme::target::auth::Job;
use zoneplug_nvme::target::{Activity, Target};

const HOST: &str = "nqn.host";

/// A server without sockets, for the time of a call.
struct OneServer<'a> {
    medium: &'a Rc<RefCell<Medium>>,
    recovery: &'a DiskRecovery,
    buffers: &'a mut Buffers,
    target: &'a mut Target,
    acknowledged: u64,
}

impl<'a> Server<Client> for OneServer<'a> {
    type Disks = OneDisk<'a>;

    fn io(&mut self) -> IoContext<'_, OneDisk<'a>> {
        let disks = OneDisk { medium: self.medium, recovery: self.recovery };
        IoContext { disks, buffers: self.buffers, now: Nanos(0) }
    }

    fn enter<R>(&mut self, f: impl FnOnce(&mut Target) -> (R, Option<QueueId>)) -> R {
        f(self.target).0
    }

    fn acknowledged(&mut self, sent: u64) -> u64 {
        self.acknowledged.min(sent)
    }

    fn take_place(&mut self, _: Option<&Nqn>, _: bool) -> Option<bool> {
        Some(true)
    }

    fn connect_refused(&mut self, _: Option<&Nqn>, refused: &Completion) {
        panic!("{refused:?}");
    }

    fn leave(&mut self, _: QueueId) -> bool {
        true
    }

    fn activity(&mut self) -> Activity {
        Activity::default()
    }

    fn random(&mut self) -> Option<Random> {
        None
    }

    fn ended(&mut self) {}
    fn discard_output(&mut self, _: u64) {}
    fn put_client(&mut self, _: Client) {}
    fn put_closing(&mut self, _: ClosingQueue<Client>) {}
    fn compute(&mut self, _: Job) {}
    fn cancel_computation(&mut self) {}
    fn authentication_failed(&mut self, _: &Nqn) {}
}

/// A server, and the bytes that the host's machine has acknowledged on the connection at hand.
struct Serving {
    world: World,
    target: Target,
    acknowledged: u64,
}

/// Both ends of a connection of the server.
struct Served {
    host: Initiator,
    association: Association<Client>,
    sent: u64,
}

impl Serving {
    fn new() -> Serving {
        Serving { world: World::new(), target: target_side::target(&geometry()), acknowledged: 0 }
    }

    fn server(&mut self) -> OneServer<'_> {
        let World { medium, recovery, buffers, .. } = &mut self.world;
        OneServer {
            medium,
            recovery,
            buffers,
            target: &mut self.target,
            acknowledged: self.acknowledged,
        }
    }

    /// A connection whose first command has succeeded, and the result of that.
    fn connect(&mut self, qid: u16, controller: u16) -> (Served, u64) {
        let local = "127.0.0.1:4420".parse().unwrap();
        let association = Association::new(Config::default(), local, Nanos(0));
        let mut new = Served { host: Initiator::new(Options::default()), association, sent: 0 };
        let connect = initiator::connect(qid, 32, controller, target_side::NQN, HOST);
        let result = self.ok(&mut new, connect);
        (new, result)
    }

    /// The result of a command that succeeds.
    fn ok(&mut self, c: &mut Served, (command, data): (Command, Data)) -> u64 {
        c.host.send(command, data);
        for _ in 0..4 {
            self.turn(c);
            self.send(c);
        }
        let done = c.host.done().expect("it is answered");
        assert_eq!(done.completion.status, 0);
        done.completion.result
    }

    /// The server takes what the host sends, and does what it can. Its answers stay with it.
    fn turn(&mut self, c: &mut Served) {
        let up = c.host.take_output();
        let mut left = &up[..];
        while !left.is_empty() {
            let read = |slices: &mut [IoSliceMut<'_>]| left.read_vectored(slices);
            c.association.receive_with(&mut self.world.buffers, Nanos(0), read).unwrap();
            c.association.run(&mut self.server());
        }
        c.association.run(&mut self.server());
    }

    /// The server sends its answers. The host's machine acknowledges none of them.
    fn send(&mut self, c: &mut Served) {
        while c.association.has_output() {
            let mut slices = [IoSlice::new(&[]); 8];
            let filled = c.association.output(&mut slices);
            let bytes = slices[..filled].iter().flat_map(|s| s.to_vec()).collect::<Vec<u8>>();
            c.association.sent(bytes.len(), &mut self.server());
            c.host.received(&bytes).unwrap();
            c.sent += bytes.len() as u64;
        }
    }

    /// The host's machine acknowledges everything that was sent on a connection.
    fn acknowledge(&mut self, c: &Served) {
        self.acknowledged = c.sent;
    }
}

/// L11. A server that ends waits for the disk, then for the way out, then for the host's machine: an answer that is still
/// with the server when it ends is lost, although its command was carried out.
#[test]
fn l11_a_command_is_answered_when_its_host_has_all_of_the_answer() {
    let mut s = Serving::new();
    let (mut admin, id) = s.connect(0, ANY_CONTROLLER);
    let start = Command::property_set(property::CC, Configuration::START.encode());
    s.ok(&mut admin, (start, Data::None));
    s.ok(&mut admin, initiator::set_queues(1));
    let (mut io, _) = s.connect(1, id as u16);
    s.acknowledge(&io);
    assert!(io.association.is_answered(&mut s.server()), "there was nothing but Connect");
    s.world.stall(&[Op::ZoneAppend]);
    let (command, data) = append(1, 4, 1);
    io.host.send(command, data);
    s.turn(&mut io);
    io.association.stop();
    assert!(!io.association.is_answered(&mut s.server()), "the disk has it");
    s.world.stall(&[]);
    s.turn(&mut io);
    assert_eq!(s.world.medium.borrow().zones[1].len(), 4, "it is carried out");
    assert!(!io.association.is_answered(&mut s.server()), "the answer is to be sent");
    s.send(&mut io);
    assert!(!io.association.is_answered(&mut s.server()), "the answer is on its way");
    s.acknowledge(&io);
    assert!(io.association.is_answered(&mut s.server()) && io.association.has_answered_append());
}
