//! Queries between the queues of a client about a write that a disk has refused. A refusal may have two causes:
//!
//! - The client may have sent the write before, through another path whose loss this server has not noticed. A
//!   client that loses one of two paths continues on the other at once, perhaps before the server learns of the loss.
//!   The queue with the write asks the queues of the client's other paths whether they have carried out a write
//!   of this sector or are about to. Their answers, and the client's draining queues, decide whether the write is
//!   compared with the disk.
//! - The write may have arrived before its turn, while the data of an earlier one are on the way on another
//!   connection. The queue asks all other queues of the client whether they wait for such data, and submits the write
//!   again when they have answered.

use crate::client_key::ClientKey;
use crate::client_key::ClientQueue;
use std::collections::BTreeMap;
use zoneplug_core::Sector;

/// The identity of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PeerQueryId(u64);

/// A question about a write, which starts at this sector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// Has the queue carried out this write?
    Had(Sector),
    /// Does the queue have an earlier write of the same zone that no disk has yet?
    Awaits(Sector),
}

/// The answer of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// The final answer: yes or no.
    Now(bool),
    /// The queue answers later. True: the answer will be yes.
    Later(bool),
}

#[derive(Debug)]
struct PeerQuery {
    client: ClientKey,
    from: ClientQueue,
    what: Asked,
    /// Queues that have not answered yet.
    asked: Vec<ClientQueue>,
    /// Whether a queue has said yes.
    found: bool,
}

/// The queues to which a disk is shown, and the queries between them.
#[derive(Debug, Default)]
pub(crate) struct PeerQueries {
    queues: BTreeMap<ClientKey, Vec<ClientQueue>>,
    open: BTreeMap<PeerQueryId, PeerQuery>,
    last: u64,
}

impl PeerQueries {
    /// Adds a queue of `client`, to which the disk is shown from now on.
    pub(crate) fn enter(&mut self, client: ClientKey, queue: ClientQueue) {
        self.queues.entry(client).or_default().push(queue);
    }

    /// Removes a queue that has ended and whose commands are noted. Its open answers become no.
    pub(crate) fn leave(&mut self, client: ClientKey, queue: ClientQueue) {
        if let Some(queues) = self.queues.get_mut(&client) {
            queues.retain(|q| *q != queue);
            if queues.is_empty() {
                self.queues.remove(&client);
            }
        }
        self.open.retain(|_, q| q.from != queue);
        self.open.values_mut().for_each(|q| q.end(queue, false));
    }

    /// Returns whether a client may use the disk through several paths.
    pub(crate) fn are_possible(&self) -> bool {
        self.queues.values().any(|all| all.iter().any(|q| q.path != all[0].path))
    }

    /// Returns whether a query is open.
    pub(crate) fn any(&self) -> bool {
        !self.open.is_empty()
    }

    /// Returns the queues that a query of this kind goes to.
    pub(crate) fn peers(
        &self,
        client: ClientKey,
        from: ClientQueue,
        what: Asked,
    ) -> impl Iterator<Item = ClientQueue> {
        let all = self.queues.get(&client).into_iter().flatten().copied();
        all.filter(move |q| match what {
            Asked::Had(_) => q.path != from.path,
            Asked::Awaits(_) => *q != from,
        })
    }

    /// Opens a query to the other queues of the client, for [`Asked::Had`] only to those of its other paths. Also
    /// returns these queues. The caller must tell them of every query: a queue that was told of an earlier one may
    /// have looked at its queries before this one was opened.
    pub(crate) fn ask(
        &mut self,
        client: ClientKey,
        from: ClientQueue,
        what: Asked,
    ) -> (PeerQueryId, Vec<ClientQueue>) {
        self.last += 1;
        let id = PeerQueryId(self.last);
        let asked: Vec<_> = self.peers(client, from, what).collect();
        self.open.insert(id, PeerQuery { client, from, what, asked: asked.clone(), found: false });
        (id, asked)
    }

    /// Withdraws a query.
    pub(crate) fn withdraw(&mut self, id: PeerQueryId) {
        self.open.remove(&id);
    }

    /// Answers the queries to a queue of `client` with `reply`. Returns whether it answered any, and whether any stay
    /// open.
    pub(crate) fn answer(
        &mut self,
        client: ClientKey,
        queue: ClientQueue,
        reply: impl Fn(Asked) -> Reply,
    ) -> (bool, bool) {
        let (mut answered, mut stays) = (false, false);
        let asked = |q: &&mut PeerQuery| q.client == client && q.asked.contains(&queue);
        for q in self.open.values_mut().filter(asked) {
            match reply(q.what) {
                Reply::Now(found) => {
                    q.end(queue, found);
                    answered = true;
                }
                Reply::Later(found) => {
                    q.found |= found;
                    stays = true;
                }
            }
        }
        (answered, stays)
    }

    /// Takes the combined answer of all queues. Returns `None` while a queue has not answered, or while `drains`
    /// reports a closed connection of the client that may still carry out the write.
    pub(crate) fn take(
        &mut self,
        id: PeerQueryId,
        drains: impl Fn(ClientKey) -> bool,
    ) -> Option<bool> {
        let q = self.open.get(&id)?;
        let drains = || matches!(q.what, Asked::Had(_)) && drains(q.client);
        let (found, is_over) = (q.found, q.asked.is_empty() && !drains());
        is_over.then(|| {
            self.open.remove(&id);
            found
        })
    }
}

impl PeerQuery {
    fn end(&mut self, queue: ClientQueue, found: bool) {
        self.asked.retain(|q| *q != queue);
        self.found |= found;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(n: u8) -> ClientKey {
        ClientKey(u64::from(n))
    }

    fn queue(path: u16, number: u16) -> ClientQueue {
        ClientQueue { path, number }
    }

    /// L10. A queue asks only the queues of its client's other paths.
    #[test]
    fn l10_the_other_paths_of_a_client_are_asked() {
        let mut all = PeerQueries::default();
        let quiet = |_: ClientKey| false;
        for (n, path, number) in [(1, 1, 1), (1, 1, 2), (2, 3, 1)] {
            all.enter(client(n), queue(path, number));
        }
        assert!(!all.are_possible());
        let had = |at| Asked::Had(Sector(at));
        let (alone, nobody) = all.ask(client(1), queue(1, 1), had(8));
        assert_eq!((nobody, all.take(alone, |_| true), all.any()), (vec![], None, true));
        assert_eq!((all.take(alone, quiet), all.any()), (Some(false), false));
        all.enter(client(1), queue(2, 1));
        assert!(all.are_possible());
        let (first, told) = all.ask(client(1), queue(2, 1), had(8));
        assert_eq!(told, [queue(1, 1), queue(1, 2)]);
        let (second, told) = all.ask(client(1), queue(2, 1), had(16));
        assert_eq!(told.len(), 2, "they may have looked before it was asked");
        let nobody = |_| panic!("it is not asked");
        assert_eq!(all.answer(client(2), queue(3, 1), nobody), (false, false));
        assert_eq!(all.answer(client(1), queue(2, 1), nobody), (false, false));
        // The queue answers the first query; a write of the second is in flight.
        let reply = |what| if what == had(8) { Reply::Now(false) } else { Reply::Later(true) };
        assert_eq!(all.answer(client(1), queue(1, 1), reply), (true, true));
        assert_eq!(all.answer(client(1), queue(1, 1), reply), (false, true));
        assert_eq!(all.take(first, quiet), None);
        let answered = all.answer(client(1), queue(1, 2), |what| Reply::Now(what == had(8)));
        assert_eq!(answered, (true, false));
        assert_eq!((all.take(first, quiet), all.take(second, quiet)), (Some(true), None));
        // A queue that ends has its commands noted and counts as no. A query of a queue that ends disappears.
        all.leave(client(1), queue(1, 1));
        assert_eq!(
            (all.take(second, |h| h == client(1)), all.take(second, quiet)),
            (None, Some(true))
        );
        all.ask(client(1), queue(2, 1), had(8));
        all.leave(client(1), queue(2, 1));
        assert!(!all.any() && !all.are_possible());
    }

    /// L12. A query about an earlier write goes to all queues of the client and does not wait for draining queues.
    #[test]
    fn l12_all_other_queues_of_a_client_are_asked_for_writes_before_one() {
        let mut all = PeerQueries::default();
        for (n, path, number) in [(1, 1, 1), (1, 1, 2), (1, 2, 1), (2, 3, 1)] {
            all.enter(client(n), queue(path, number));
        }
        let what = Asked::Awaits(Sector(8));
        let (id, told) = all.ask(client(1), queue(1, 1), what);
        assert_eq!(told, [queue(1, 2), queue(2, 1)]);
        assert_eq!(all.answer(client(1), queue(1, 2), |_| Reply::Now(false)), (true, false));
        assert_eq!(all.answer(client(1), queue(2, 1), |_| Reply::Later(false)), (false, true));
        assert_eq!(all.take(id, |_| true), None);
        assert_eq!(all.answer(client(1), queue(2, 1), |_| Reply::Now(false)), (true, false));
        assert_eq!(all.take(id, |_| true), Some(false));
        let (id, _) = all.ask(client(1), queue(1, 1), what);
        all.withdraw(id);
        assert!(!all.any());
        assert_eq!(all.peers(client(2), queue(3, 1), what).count(), 0);
    }
}
