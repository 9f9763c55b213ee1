//! The shared state of the handles of a log: the disk, the zones, and the requests of clients with
//! their answers.

use super::io::Io;
use super::sleepers::Sleepers;
use super::table::Table;
use super::{LogAddress, LogError, lock};
use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use zoneplug_core::ZoneNo;

/// Bytes of records written at a time, unless one record is longer.
pub(super) const BATCH: usize = 1 << 20;

/// A request of a client.
#[derive(Debug)]
pub(super) enum Ask {
    /// Appends records. `sync`: they are durable when the answer comes.
    Append {
        records: Vec<Vec<u8>>,
        sync: bool,
    },
    Sync,
    /// Resets the zones that hold only older records.
    Trim(LogAddress),
    ResetOldest,
}

/// The answer to a request.
#[derive(Debug)]
pub(super) enum Answer {
    Addresses(Vec<LogAddress>),
    Zones(Vec<ZoneNo>),
}

/// A request and its number.
pub(super) type Request = (u64, Ask);
pub(super) type Outcome = Result<Answer, LogError>;
pub(super) type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

#[derive(Debug, Default)]
pub(super) struct Requests {
    pub(super) next: u64,
    pub(super) list: VecDeque<Request>,
    /// The answers to requests whose clients still exist.
    pub(super) answers: HashMap<u64, Option<Outcome>>,
}

/// The shared state of the handles of a log.
pub(super) struct Shared<I> {
    pub(super) io: I,
    pub(super) table: Mutex<Table>,
    pub(super) requests: Mutex<Requests>,
    pub(super) sleepers: Arc<Sleepers>,
    /// The work on the current group.
    pub(super) work: Mutex<Option<Work>>,
}

/// The requests of a group. Dropping the group aborts those without an answer.
pub(super) struct Group<I: Io> {
    shared: Arc<Shared<I>>,
    open: Vec<u64>,
}

impl<I: Io> Group<I> {
    pub(super) fn answer(&mut self, id: u64, outcome: Outcome) {
        self.open.retain(|i| *i != id);
        if let Some(place) = lock(&self.shared.requests).answers.get_mut(&id) {
            *place = Some(outcome);
        }
        self.shared.sleepers.wake_one(id);
    }
}

impl<I: Io> Drop for Group<I> {
    fn drop(&mut self) {
        for id in std::mem::take(&mut self.open) {
            // A write in flight may have reached the disk.
            lock(&self.shared.table).suspect = true;
            self.answer(id, Err(LogError::Aborted));
        }
    }
}

impl<I: Io> Shared<I> {
    pub(super) fn new(io: I, table: Table) -> Shared<I> {
        Shared {
            io,
            table: Mutex::new(table),
            requests: Mutex::default(),
            sleepers: Arc::default(),
            work: Mutex::default(),
        }
    }

    /// Takes the next group: consecutive appends and syncs, or one request of another kind.
    pub(super) fn take_group(self: &Arc<Self>) -> Option<(Group<I>, Vec<Request>)> {
        let mut requests = lock(&self.requests);
        let mut taken = Vec::new();
        let mut bytes = 0;
        while let Some((_, ask)) = requests.list.front() {
            let len = match ask {
                Ask::Append { records, .. } => records.iter().map(Vec::len).sum(),
                Ask::Sync => 0,
                _ if taken.is_empty() => usize::MAX,
                _ => break,
            };
            if !taken.is_empty() && bytes + len > BATCH {
                break;
            }
            bytes = len.saturating_add(bytes);
            taken.extend(requests.list.pop_front());
            if len == usize::MAX {
                break;
            }
        }
        drop(requests);
        let open = taken.iter().map(|(id, _)| *id).collect();
        (!taken.is_empty()).then(|| (Group { shared: self.clone(), open }, taken))
    }

    pub(super) fn is_answered(&self, id: u64) -> bool {
        lock(&self.requests).answers.get(&id).is_some_and(Option::is_some)
    }
}
