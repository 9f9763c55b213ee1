//! The client's side of a run: submits BIOs and sets timers. Owns the BIOs, their times and the
//! timers.

use super::report::ClientReport;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use zoneplug_core::zone::Geometry;
use zoneplug_core::{Bio, BioPool, Bios, Error, Flags, IoBuf, Nanos, Op, Sector, Status, ZoneNo};

/// A client of a run: a state machine that is called when one of its BIOs completes or a timer is
/// due.
pub trait Client {
    /// Returns the zones that are partly written at the start, each with its write pointer in
    /// sectors. Called once, before the disk is opened.
    fn prepare(&mut self, geometry: &Geometry) -> Vec<(ZoneNo, u32)>;

    /// Starts the client.
    fn start(&mut self, io: &mut Io);

    /// Handles the completion of one of the client's BIOs.
    fn finished(&mut self, io: &mut Io, bio: Finished);

    /// Handles a timer that is due.
    fn timer(&mut self, io: &mut Io, token: u32);

    /// Handles the failure of one of the client's BIOs. `false`, the default, ends the run with an
    /// error, because client models cause no failures. A client that replays a trace must expect
    /// failures.
    fn failed(&mut self, _io: &mut Io, _bio: Finished, _status: Status) -> bool {
        false
    }
}

/// A completed BIO.
#[derive(Debug, Clone, Copy)]
pub struct Finished {
    /// The token that the client gave it.
    pub token: u32,
    /// Its operation.
    pub op: Op,
    /// Its first sector; for an append, the sector it was written to.
    pub sector: Sector,
    /// Its length in sectors.
    pub sectors: u32,
}

/// The longest BIO with data, in bytes.
pub const MAX_BYTES: u32 = 16 << 20;

/// Memory shared by all BIOs of all runs; a timed disk does not access it.
static MEMORY: [u8; MAX_BYTES as usize] = [0; MAX_BYTES as usize];

/// A submitted BIO.
#[derive(Debug, Clone, Copy, Default)]
struct Sent {
    client: u16,
    token: u32,
    at: Nanos,
    outstanding: bool,
}

/// The client's side of a run.
#[derive(Debug)]
pub struct Io {
    pub(super) now: Nanos,
    /// When the device completed the BIO for which a client is being called.
    pub(super) completed: Nanos,
    /// BIOs that the run has yet to submit.
    pub(super) out: Bios,
    pub(super) clients: Vec<ClientReport>,
    /// The client being called.
    pub(super) current: u16,
    pool: BioPool,
    sent: Vec<Sent>,
    free: Vec<u32>,
    /// Each timer's time, its number, its client and its token. The number orders timers of the same time.
    timers: BinaryHeap<Reverse<(Nanos, u64, u16, u32)>>,
    nr_timers_set: u64,
    geometry: Geometry,
    keep_latencies: bool,
    /// The result, once a client has ended the run.
    pub(super) ended: Option<Result<(), Error>>,
}

impl Io {
    pub(super) fn new(geometry: Geometry, clients: usize, keep_latencies: bool) -> Io {
        Io {
            now: Nanos(0),
            completed: Nanos(0),
            out: Bios::new(),
            clients: (0..clients).map(|_| ClientReport::default()).collect(),
            current: 0,
            pool: BioPool::new(64),
            sent: Vec::new(),
            free: Vec::new(),
            timers: BinaryHeap::new(),
            nr_timers_set: 0,
            geometry,
            keep_latencies,
            ended: None,
        }
    }

    /// Returns the current virtual or real time.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// The layout of the disk.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Submits a write at an offset of a zone.
    pub fn write(&mut self, zone: u32, offset: u32, sectors: u32, token: u32) {
        let sector = self.geometry.zone_start(ZoneNo(zone)).plus(u64::from(offset));
        self.submit(Op::Write, sector, sectors, token);
    }

    /// Submits an append to a zone.
    pub fn append(&mut self, zone: u32, sectors: u32, token: u32) {
        self.submit(Op::ZoneAppend, self.geometry.zone_start(ZoneNo(zone)), sectors, token);
    }

    /// Submits a read.
    pub fn read(&mut self, sector: Sector, sectors: u32, token: u32) {
        self.submit(Op::Read, sector, sectors, token);
    }

    /// Submits a BIO of at most 16 MiB. All BIOs share their memory, because the disk of a run
    /// keeps no data.
    pub fn submit(&mut self, op: Op, sector: Sector, sectors: u32, token: u32) {
        self.submit_with(op, sector, sectors, Flags::NONE, token);
    }

    /// Submits as [`Io::submit`] does, with flags such as FUA.
    pub fn submit_with(&mut self, op: Op, sector: Sector, sectors: u32, flags: Flags, token: u32) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.sent.push(Sent::default());
            self.sent.len() as u32 - 1
        });
        self.sent[slot as usize] =
            Sent { client: self.current, token, at: self.now, outstanding: true };
        let mut bio = self.pool.get();
        let bytes = if op.has_data() { sectors << 9 } else { 0 };
        bio.set(op, sector, sectors, IoBuf::from_static(&MEMORY[..bytes as usize]));
        bio.set_token(u64::from(slot));
        bio.flags = flags;
        self.clients[usize::from(self.current)].submitted();
        self.out.push_back(bio);
    }

    /// Sets a timer that is due after `span`.
    pub fn after(&mut self, span: Nanos, token: u32) {
        self.at(self.now.plus(span), token);
    }

    /// Sets a timer that is due at `time`; a time in the past means now.
    pub fn at(&mut self, time: Nanos, token: u32) {
        self.nr_timers_set += 1;
        self.timers.push(Reverse((time.max(self.now), self.nr_timers_set, self.current, token)));
    }

    /// Returns when the device completed the BIO for which the client is being called. The latency of
    /// the BIO ends at this time. The client is called later, after the host's work.
    pub fn completed_at(&self) -> Nanos {
        self.completed
    }

    /// Ends the run at this moment; with an error, the run fails.
    pub fn end(&mut self, result: Result<(), Error>) {
        self.ended.get_or_insert(result);
    }

    /// Notes in the clients' reports which BIOs are outstanding now.
    pub(super) fn note_waiting(&mut self) {
        for sent in self.sent.iter().filter(|s| s.outstanding) {
            let client = &mut self.clients[usize::from(sent.client)];
            client.waiting += 1;
            client.oldest = client.oldest.max(Nanos(self.now.0.saturating_sub(sent.at.0)));
        }
    }

    pub(super) fn next_timer(&self) -> Option<Nanos> {
        self.timers.peek().map(|Reverse(t)| t.0)
    }

    /// Takes the next timer: its client and its token.
    pub(super) fn pop_timer(&mut self) -> Option<(u16, u32)> {
        self.timers.pop().map(|Reverse((_, _, client, token))| (client, token))
    }

    /// Returns the client of a BIO.
    pub(super) fn client_of(&self, bio: &Bio) -> u16 {
        self.sent[bio.token() as usize].client
    }

    /// Takes back a completed BIO. Returns its client, the completion for the client, and its
    /// status.
    pub(super) fn back(&mut self, bio: Box<Bio>) -> (u16, Finished, Status) {
        let slot = bio.token() as u32;
        let sent = self.sent[slot as usize];
        self.sent[slot as usize].outstanding = false;
        self.free.push(slot);
        let took = Nanos(self.completed.0.saturating_sub(sent.at.0));
        let client = &mut self.clients[usize::from(sent.client)];
        let status = bio.status;
        if status.is_ok() {
            client.finished(bio.len_sectors, took, self.keep_latencies);
        } else {
            client.failed(status);
        }
        let f = Finished {
            token: sent.token,
            op: bio.op,
            sector: bio.sector,
            sectors: bio.len_sectors,
        };
        self.pool.put(bio);
        (sent.client, f, status)
    }
}
