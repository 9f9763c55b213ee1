//! Writes that were refused although their host may have sent them before, through another controller whose loss this server
//! has not noticed. A host that has lost one of two paths goes on by the other at once, and may be ahead of the news.
//!
//! The queue that has got such a write asks the queues of the host's other controllers: have you carried out a write of this
//! sector, or are you about to? What they answer, and what a drain of this host brings, decides whether the write is compared
//! with the disk.

use super::host_key::HostKey;
use crate::target::QueueId;
use std::collections::BTreeMap;
use zoneplug_core::Sector;

/// Names a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QuestionId(u64);

#[derive(Debug)]
struct Question {
    host: HostKey,
    from: QueueId,
    at: Sector,
    /// Who has not answered yet.
    asked: Vec<QueueId>,
    /// A queue has.
    found: bool,
}

/// The queues that use a disk, and what they ask each other.
#[derive(Debug, Default)]
pub(super) struct Questions {
    queues: BTreeMap<HostKey, Vec<QueueId>>,
    open: BTreeMap<QuestionId, Question>,
    last: u64,
}

impl Questions {
    /// A queue of `host` uses the disk from now on.
    pub(super) fn enter(&mut self, host: HostKey, queue: QueueId) {
        self.queues.entry(host).or_default().push(queue);
    }

    /// The queue has ended. What it had is noted.
    pub(super) fn leave(&mut self, host: HostKey, queue: QueueId) {
        if let Some(queues) = self.queues.get_mut(&host) {
            queues.retain(|q| *q != queue);
            if queues.is_empty() {
                self.queues.remove(&host);
            }
        }
        self.open.retain(|_, q| q.from != queue);
        self.open.values_mut().for_each(|q| q.end(queue, false));
    }

    /// Whether a host may use the disk through two controllers.
    pub(super) fn are_possible(&self) -> bool {
        self.queues.values().any(|all| all.iter().any(|q| q.controller != all[0].controller))
    }

    /// Whether another controller of `host` than that of `from` uses the disk.
    pub(super) fn has_others(&self, host: HostKey, from: QueueId) -> bool {
        let all = self.queues.get(&host).into_iter().flatten();
        all.into_iter().any(|q| q.controller != from.controller)
    }

    /// Whether a queue is asked, or an answer waits.
    pub(super) fn any(&self) -> bool {
        !self.open.is_empty()
    }

    /// Asks the queues of the host's other controllers for a write of `at`. Also returns those, which are to be told of each
    /// question: one that knows of another may have looked at its questions before this one was asked.
    pub(super) fn ask(
        &mut self,
        host: HostKey,
        from: QueueId,
        at: Sector,
    ) -> (QuestionId, Vec<QueueId>) {
        self.last += 1;
        let id = QuestionId(self.last);
        let all = self.queues.get(&host).into_iter().flatten().copied();
        let asked: Vec<_> = all.filter(|q| q.controller != from.controller).collect();
        self.open.insert(id, Question { host, from, at, asked: asked.clone(), found: false });
        (id, asked)
    }

    /// Has a queue answer what it is asked: `had` says whether it had a write of a sector. `None`: it has one in flight, and
    /// answers when that has ended. False: it has answered nothing.
    pub(super) fn answer(&mut self, queue: QueueId, had: impl Fn(Sector) -> Option<bool>) -> bool {
        let mut any = false;
        for q in self.open.values_mut().filter(|q| q.asked.contains(&queue)) {
            match had(q.at) {
                Some(found) => {
                    q.end(queue, found);
                    any = true;
                }
                None => q.found = true,
            }
        }
        any
    }

    /// Takes the answer of all, if they have answered and no queue of the host `drains`.
    pub(super) fn take(
        &mut self,
        id: QuestionId,
        drains: impl Fn(HostKey) -> bool,
    ) -> Option<bool> {
        let q = self.open.get(&id)?;
        let (found, is_over) = (q.found, q.asked.is_empty() && !drains(q.host));
        is_over.then(|| {
            self.open.remove(&id);
            found
        })
    }
}

impl Question {
    fn end(&mut self, queue: QueueId, found: bool) {
        self.asked.retain(|q| *q != queue);
        self.found |= found;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::{HostId, Nqn};

    fn host(n: u8) -> HostKey {
        HostKey::of(&HostId { nqn: Nqn::new("nqn.x").unwrap(), id: [n; 16] })
    }

    fn queue(controller: u16, qid: u16) -> QueueId {
        QueueId { controller, qid }
    }

    /// L10. A queue asks those of its host's other controllers, and none else.
    #[test]
    fn l10_the_other_controllers_of_a_host_are_asked() {
        let mut all = Questions::default();
        let quiet = |_: HostKey| false;
        for (n, c, qid) in [(1, 1, 1), (1, 1, 2), (2, 3, 1)] {
            all.enter(host(n), queue(c, qid));
        }
        assert!(!all.are_possible());
        let (alone, nobody) = all.ask(host(1), queue(1, 1), Sector(8));
        assert_eq!((nobody, all.take(alone, |_| true), all.any()), (vec![], None, true));
        assert_eq!((all.take(alone, quiet), all.any()), (Some(false), false));
        all.enter(host(1), queue(2, 1));
        assert!(all.are_possible());
        let (first, told) = all.ask(host(1), queue(2, 1), Sector(8));
        assert_eq!(told, [queue(1, 1), queue(1, 2)]);
        let (second, told) = all.ask(host(1), queue(2, 1), Sector(16));
        assert_eq!(told.len(), 2, "they may have looked before it was asked");
        let nobody = |_| panic!("it is not asked");
        assert!(!all.answer(queue(3, 1), nobody) && !all.answer(queue(2, 1), nobody));
        // One answers the first question, and has a write of the second in flight.
        let had = |at: Sector| (at == Sector(8)).then_some(false);
        assert!(all.answer(queue(1, 1), had) && !all.answer(queue(1, 1), had));
        assert_eq!(all.take(first, quiet), None);
        assert!(all.answer(queue(1, 2), |at| Some(at == Sector(8))));
        assert_eq!((all.take(first, quiet), all.take(second, quiet)), (Some(true), None));
        // A queue that ends has noted what it had, and says no more. One that asks and ends wants no answer.
        all.leave(host(1), queue(1, 1));
        assert_eq!(
            (all.take(second, |h| h == host(1)), all.take(second, quiet)),
            (None, Some(true))
        );
        all.ask(host(1), queue(2, 1), Sector(8));
        all.leave(host(1), queue(2, 1));
        assert!(!all.any() && !all.are_possible());
    }
}
