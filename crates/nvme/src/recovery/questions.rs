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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QuestionId(u64);

#[derive(Debug)]
struct Question {
    id: QuestionId,
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
    open: Vec<Question>,
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
        self.open.retain(|q| q.from != queue);
        self.open.iter_mut().for_each(|q| q.end(queue, false));
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
        self.open.push(Question { id, host, from, at, asked: asked.clone(), found: false });
        (id, asked)
    }

    /// What this queue is asked.
    pub(super) fn to(&self, queue: QueueId) -> Vec<(QuestionId, Sector)> {
        let to_it = |q: &&Question| q.asked.contains(&queue);
        self.open.iter().filter(to_it).map(|q| (q.id, q.at)).collect()
    }

    /// A queue that is asked has a write of that sector in flight, and answers when that has ended.
    pub(super) fn expect(&mut self, id: QuestionId) {
        self.open.iter_mut().filter(|q| q.id == id).for_each(|q| q.found = true);
    }

    /// The answer of a queue: whether it had a write of that sector.
    pub(super) fn answer(&mut self, id: QuestionId, queue: QueueId, found: bool) {
        self.open.iter_mut().filter(|q| q.id == id).for_each(|q| q.end(queue, found));
    }

    /// Takes the answer of all, if they have answered and no queue of the host `drains`.
    pub(super) fn take(
        &mut self,
        id: QuestionId,
        drains: impl Fn(HostKey) -> bool,
    ) -> Option<bool> {
        let n = self.open.iter().position(|q| q.id == id)?;
        let q = &self.open[n];
        (q.asked.is_empty() && !drains(q.host)).then(|| self.open.swap_remove(n).found)
    }
}

impl Question {
    fn end(&mut self, queue: QueueId, found: bool) {
        let before = self.asked.len();
        self.asked.retain(|q| *q != queue);
        self.found |= found && self.asked.len() < before;
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
        assert_eq!(all.to(queue(1, 2)), [(first, Sector(8)), (second, Sector(16))]);
        assert!(all.to(queue(3, 1)).is_empty() && all.to(queue(2, 1)).is_empty());
        all.answer(first, queue(1, 1), false);
        assert_eq!(all.take(first, quiet), None);
        all.answer(first, queue(1, 2), true);
        assert_eq!(all.take(first, quiet), Some(true));
        // A queue that ends has noted what it had, and says no more. One that asks and ends wants no answer.
        all.leave(host(1), queue(1, 1));
        all.expect(second);
        all.answer(second, queue(1, 2), false);
        assert_eq!(
            (all.take(second, |h| h == host(1)), all.take(second, quiet)),
            (None, Some(true))
        );
        all.ask(host(1), queue(2, 1), Sector(8));
        all.leave(host(1), queue(2, 1));
        assert!(!all.any() && !all.are_possible());
    }
}
