//! Transactions that do not end in time.

use super::*;

/// J13: a transaction that has begun fails at any step when its time is over. An authentication that is not underway
/// does not.
#[test]
fn a_host_that_takes_too_long() {
    for v in two() {
        let t_id = MessageHeader::read(&v.bytes("negotiate")).unwrap().t_id;
        let mut a = controller(&v);
        assert!(!a.is_underway());
        assert_eq!(a.time_out(), None);
        let receive = with_sgl(Command::authentication_receive(4096), 4096);
        let steps = ["negotiate", "", "reply", "", "success2"];
        for n in 1..steps.len() {
            let mut a = controller(&v);
            for step in &steps[..n] {
                match *step {
                    "" => drop(receive_as(&mut a, &v.random("controller_random"))),
                    name => assert_eq!(send(&mut a, &v.bytes(name)), (0, None)),
                }
            }
            if a.is_admitted() {
                // In a one-way transaction, Success1 is the last message.
                assert!(!a.is_underway());
                assert_eq!((a.time_out(), a.is_admitted()), (None, true));
                continue;
            }
            assert!(a.is_underway());
            assert_eq!(a.time_out(), Some(Change::Failed));
            assert!(!a.is_underway());
            assert_eq!(a.time_out(), None);
            fails(&mut a, t_id, failure::FAILED);
        }
        // While a value is computed, another command is refused and changes nothing. If the time ends meanwhile, the result
        // does not undo the failure.
        if v.text("group") == "0" {
            continue;
        }
        for over in [false, true] {
            let mut a = controller(&v);
            send(&mut a, &v.bytes("negotiate"));
            let random = v.random("controller_random");
            let Begun::Job(job) = a.begin(&receive, &[], &random) else { panic!("no job") };
            assert!(a.is_underway());
            let Begun::Answer(second) = a.begin(&receive, &[], &random) else { panic!("a job") };
            assert_eq!((second.completion.status, second.change), (status::SEQUENCE | DNR, None));
            if over {
                assert_eq!(a.time_out(), Some(Change::Failed));
            }
            let reply = a.finish(job.run());
            let want = if over { status::SEQUENCE | DNR } else { 0 };
            assert_eq!((reply.completion.status, reply.change), (want, None));
            assert_eq!(reply.data.is_empty(), over);
            match over {
                true => fails(&mut a, t_id, failure::FAILED),
                false => assert_eq!(send(&mut a, &v.bytes("reply")), (0, None)),
            }
        }
    }
}
