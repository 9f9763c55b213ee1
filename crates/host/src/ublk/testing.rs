//! For fuzzing: requests as the driver hands them over, and the journal of a killed server. No program uses
//! this.

use super::abi::{IO_DESC_LEN, IoDesc, Params};
use super::request;
use super::takeover::identity::LastServer;
use super::takeover::journal::{self, About, FoundZone};
use std::io;
use std::ops::Range;
use std::path::Path;
use zoneplug_core::zone::Geometry;
use zoneplug_core::{Flags, Op, Sector, Status, ZoneNo};

/// A request of the kernel.
#[derive(Debug, Clone, Copy)]
pub struct Request(request::Request);

impl Request {
    /// Reads a descriptor. The error is the number that the kernel gets.
    pub fn of(descriptor: &[u8; IO_DESC_LEN], zone_sectors: u32) -> Result<Request, i32> {
        let params = Params { zone_sectors, ..Params::default() };
        request::Request::of(IoDesc::decode(descriptor), &params).map(Request)
    }

    /// The operation.
    pub fn op(&self) -> Op {
        self.0.op
    }

    /// The first sector and the length in sectors.
    pub fn range(&self) -> (Sector, u32) {
        (self.0.sector, self.0.len_sectors)
    }

    /// The flags.
    pub fn flags(&self) -> Flags {
        self.0.flags
    }

    /// Bytes of data.
    pub fn bytes(&self) -> u32 {
        self.0.bytes
    }

    /// The answer to the kernel for a status.
    pub fn result(&self, status: Status) -> i32 {
        self.0.result(status)
    }
}

/// The shape of the device that a journal is about.
#[derive(Debug, Clone)]
pub struct Shape {
    /// The zones.
    pub geometry: Geometry,
    /// Number of queues.
    pub queues: u16,
    /// Requests that a queue takes at a time.
    pub depth: u16,
}

impl Shape {
    fn about(&self) -> About {
        let Shape { geometry, queues, depth } = self.clone();
        let left = LastServer { place: 4, opened: 5, paths: "/a".to_owned() };
        let shown = 0..geometry.nr_zones();
        About { dev_id: 0, instance: 1, boot: 2, identity: 3, geometry, shown, queues, depth, left }
    }
}

/// A journal of acknowledged appends.
pub struct Journal(journal::Journal);

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Journal")
    }
}

fn found(zones: &[u32]) -> Vec<FoundZone> {
    zones.iter().map(|&written| FoundZone { written, empty: written == 0 }).collect()
}

impl Journal {
    /// Makes a journal that `me` keeps. `hidden` says for each zone from which offset on it may be
    /// searched.
    pub fn create(path: &Path, shape: &Shape, me: u64, hidden: &[u32]) -> io::Result<Journal> {
        journal::Journal::create(path, shape.about(), me, hidden.iter().copied()).map(Journal)
    }

    /// Opens the journal at `path`, which `me` takes over from `last`. `written` is what each zone holds.
    /// The error says why the journal cannot be believed.
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

    /// The files that the server `last` noted in its journal at `path`.
    pub fn paths(path: &Path, last: u64) -> Option<String> {
        journal::left(path, 0, 1, 2, last).map(|left| left.paths)
    }

    /// A request is about to be sent.
    pub fn begin(&self, r: &Request) {
        self.0.begin(&r.0);
    }

    /// A request has come back.
    pub fn end(&self, r: &Request, succeeded: bool) {
        self.0.end(&r.0, succeeded);
    }

    /// An append of `queue` is about to be acknowledged.
    pub fn record(&self, queue: u16, sector: Sector, len_sectors: u32) {
        self.0.record(queue, sector, len_sectors);
    }

    /// Whether nothing but appends was sent to a zone.
    pub fn only_appends(&self, zone: ZoneNo) -> bool {
        self.0.only_appends(zone)
    }

    /// The space that no client was told of, if each zone holds `written`.
    pub fn unacked(&self, written: &[u32]) -> Vec<(ZoneNo, Vec<Range<u32>>)> {
        self.0.unacked(&found(written))
    }
}
