//! What the kernel's driver hands over, and the record that a killed server leaves: for fuzzing. A program never uses it.

use super::abi::{IO_DESC_LEN, IoDesc, Params};
use super::request;
use super::takeover::identity::Left;
use super::takeover::journal::{self, About, Found};
use std::io;
use std::ops::Range;
use std::path::Path;
use zoneplug_core::zone::Geometry;
use zoneplug_core::{Flags, Op, Sector, Status, ZoneNo};

/// A request of the kernel.
#[derive(Debug, Clone, Copy)]
pub struct Request(request::Request);

impl Request {
    /// From a descriptor; or the error number that the kernel is journal.
    pub fn of(descriptor: &[u8; IO_DESC_LEN], zone_sectors: u32) -> Result<Request, i32> {
        let params = Params { zone_sectors, ..Params::default() };
        request::Request::of(IoDesc::decode(descriptor), &params).map(Request)
    }

    /// What is asked for.
    pub fn op(&self) -> Op {
        self.0.op
    }

    /// Where.
    pub fn range(&self) -> (Sector, u32) {
        (self.0.sector, self.0.len_sectors)
    }

    /// How.
    pub fn flags(&self) -> Flags {
        self.0.flags
    }

    /// Bytes of its data.
    pub fn bytes(&self) -> u32 {
        self.0.bytes
    }

    /// What the kernel is told when it ends so.
    pub fn result(&self, status: Status) -> i32 {
        self.0.result(status)
    }
}

/// The shape of a device that a record is of.
#[derive(Debug, Clone)]
pub struct Shape {
    /// Its zones.
    pub geometry: Geometry,
    /// Its queues.
    pub queues: u16,
    /// Requests of a queue.
    pub depth: u16,
}

impl Shape {
    fn about(&self) -> About {
        let Shape { geometry, queues, depth } = self.clone();
        let left = Left { place: 4, opened: 5, paths: "/a".to_owned() };
        let shown = 0..geometry.nr_zones();
        About { dev_id: 0, instance: 1, boot: 2, identity: 3, geometry, shown, queues, depth, left }
    }
}

/// A record of what clients were told of.
pub struct Journal(journal::Journal);

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Journal")
    }
}

fn found(zones: &[u32]) -> Vec<Found> {
    zones.iter().map(|&written| Found { written, empty: written == 0 }).collect()
}

impl Journal {
    /// A new one, kept by `me`; `hidden` says from where on each zone may be looked at.
    pub fn create(path: &Path, shape: &Shape, me: u64, hidden: &[u32]) -> io::Result<Journal> {
        journal::Journal::create(path, shape.about(), me, hidden.iter().copied()).map(Journal)
    }

    /// The one that is at `path`, taken over from `last` by `me` with so much written in each zone; or why it cannot be believed.
    pub fn open(
        path: &Path,
        shape: &Shape,
        last: u64,
        me: u64,
        written: &[u32],
    ) -> Result<Journal, String> {
        let journal = journal::Journal::open(path, shape.about(), last, me)?;
        journal.end_resets(&found(written));
        Ok(Journal(journal))
    }

    /// What the record of the server `last` at `path` says of the files that it served.
    pub fn paths(path: &Path, last: u64) -> Option<String> {
        journal::left(path, 0, 1, 2, last).map(|left| left.paths)
    }

    /// A request is sent.
    pub fn begin(&self, r: &Request) {
        self.0.begin(&r.0);
    }

    /// A request is back.
    pub fn end(&self, r: &Request, succeeded: bool) {
        self.0.end(&r.0, succeeded);
    }

    /// An append of `queue` is acknowledged.
    pub fn record(&self, queue: u16, sector: Sector, len_sectors: u32) {
        self.0.record(queue, sector, len_sectors);
    }

    /// Whether nothing but appends was sent to a zone.
    pub fn only_appends(&self, zone: ZoneNo) -> bool {
        self.0.only_appends(zone)
    }

    /// What no client was told of, with so much written in each zone.
    pub fn unacked(&self, written: &[u32]) -> Vec<(ZoneNo, Vec<Range<u32>>)> {
        self.0.unacked(&found(written))
    }
}
