//! The commands that the last server of a disk may have carried out without an answer.
//!
//! Nothing lists these commands. A command that a client sends is therefore compared with the data that the last server left: the sectors
//! of each zone that were written when this server started, and the space that no client was told of ([`Space`]). A [`Rule`] selects the
//! commands to compare.

use crate::client_key::ClientKey;
use crate::space::Space;
use std::collections::BTreeMap;
use zoneplug_core::{Nanos, ZoneNo};

/// How long after its first command a client that is back may send commands of the last server again.
pub(crate) const WINDOW: Nanos = Nanos(20_000_000_000);
/// How long after the start of a server a client of the last one may come back.
pub(crate) const RESTART: Nanos = Nanos(3_600_000_000_000);
/// How long after the first client is back appends are looked for in space of the last server. Limited, because each
/// append is hashed until then.
pub(crate) const SPACES: Nanos = Nanos(60_000_000_000);
/// The largest number of clients that may send commands of the last server again.
pub(crate) const MAX_CLIENTS: usize = 1024;

/// Selects the commands that may be those of the last server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// The commands of each client, for [`WINDOW`] after its first command.
    Window,
    /// The first write of each zone, and its first `appends` appends, as long as nothing else has changed the zone. For a disk with one
    /// client that has stayed, and has one write of a zone in flight.
    First { appends: u32 },
}

/// The commands to compare of one disk, until they expire.
#[derive(Debug)]
pub(crate) struct LastServer {
    rule: Rule,
    /// The sectors of each zone that were written when this server started. Empty if there was no last server.
    written: Vec<u32>,
    /// When `written` expires, and with it `spaces`.
    until: Nanos,
    /// For each client that is back after a restart, the time until which it may send commands of the last server again.
    pub(crate) back: BTreeMap<ClientKey, Nanos>,
    /// For each zone, the space that no client of the last server was told of, and how many more appends are looked for in it.
    spaces: BTreeMap<u32, (Space, u32)>,
    /// When `spaces` expires. Set when the first client is back.
    spaces_until: Option<Nanos>,
    block_sectors: u32,
}

impl LastServer {
    /// Makes the record of a last server that has left nothing.
    pub(crate) fn none() -> LastServer {
        LastServer {
            rule: Rule::Window,
            written: Vec::new(),
            until: Nanos(0),
            back: BTreeMap::new(),
            spaces: BTreeMap::new(),
            spaces_until: None,
            block_sectors: 1,
        }
    }

    pub(crate) fn set_rule(&mut self, rule: Rule) {
        self.rule = rule;
    }

    pub(crate) fn set_written(&mut self, written: Vec<u32>, now: Nanos) {
        self.written = if written.iter().any(|n| *n > 0) { written } else { Vec::new() };
        self.until = now.plus(RESTART);
    }

    pub(crate) fn set_spaces(&mut self, spaces: BTreeMap<u32, Space>, block_sectors: u32) {
        let appends = match self.rule {
            Rule::Window => u32::MAX,
            Rule::First { appends } => appends,
        };
        self.spaces = spaces.into_iter().map(|(zone, space)| (zone, (space, appends))).collect();
        self.block_sectors = block_sectors.max(1);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.written.is_empty() && self.spaces.is_empty()
    }

    /// Returns the length of a block, if appends must be looked for in space.
    pub(crate) fn looks_for_blocks(&self) -> Option<u32> {
        (!self.spaces.is_empty()).then_some(self.block_sectors)
    }

    /// Returns whether a command of a zone may be one of the last server.
    pub(crate) fn concerns(&self, zone: ZoneNo) -> bool {
        self.written.get(zone.0 as usize).is_some_and(|n| *n > 0)
            || self.spaces.contains_key(&zone.0)
    }

    /// Notes that a client is back, at its first command on a new connection: starts its time limit, and at the first client
    /// the one of `spaces`.
    pub(crate) fn is_back(&mut self, client: ClientKey, now: Nanos) {
        if !self.written.is_empty() && self.back.len() < MAX_CLIENTS {
            self.back.entry(client).or_insert(now.plus(WINDOW));
            self.spaces_until.get_or_insert(now.plus(SPACES));
        }
    }

    /// Forgets what has expired. Keeps the space of a zone if `is_compared` returns true: an append is being compared with
    /// it.
    pub(crate) fn expire(&mut self, now: Nanos, is_compared: impl Fn(ZoneNo) -> bool) {
        if self.rule != Rule::Window {
            return;
        }
        if now >= self.until {
            self.written.clear();
        }
        if now >= self.until || self.spaces_until.is_some_and(|until| now >= until) {
            self.spaces.retain(|zone, _| is_compared(ZoneNo(*zone)));
        }
    }

    fn may_come_again(&self, client: ClientKey, now: Nanos) -> bool {
        match self.rule {
            Rule::Window => self.back.get(&client).is_some_and(|until| now < *until),
            Rule::First { .. } => true,
        }
    }

    /// Returns whether the last server may have carried out a write that the disk has refused. The write begins `offset` sectors after
    /// the start of its zone.
    pub(crate) fn may_have_written(
        &self,
        client: ClientKey,
        zone: ZoneNo,
        offset: u32,
        now: Nanos,
    ) -> bool {
        self.written.get(zone.0 as usize).is_some_and(|written| offset < *written)
            && self.may_come_again(client, now)
    }

    /// Returns how many sectors of a zone were written when this server started, and forgets this: only the first write of the zone is
    /// compared with them. Forgets the space of the zone too, because no append is looked for after a write. `None`: writes are compared only after the disk has refused them.
    pub(crate) fn take_written(&mut self, zone: ZoneNo) -> Option<u32> {
        if self.rule == Rule::Window {
            return None;
        }
        self.spaces.remove(&zone.0);
        self.written.get_mut(zone.0 as usize).map(std::mem::take)
    }

    /// Notes that an append has come. With [`Rule::First`], no later write of its zone is compared.
    pub(crate) fn begin_append(&mut self, zone: ZoneNo) {
        if self.rule != Rule::Window
            && let Some(written) = self.written.get_mut(zone.0 as usize)
        {
            *written = 0;
        }
    }

    /// Returns the offset in the zone at which an append with these hashes most probably lies, except those in `tried`.
    pub(crate) fn place(
        &self,
        client: ClientKey,
        zone: ZoneNo,
        len_sectors: u32,
        blocks: &[u64],
        tried: &[u32],
        now: Nanos,
    ) -> Option<u32> {
        if !self.may_come_again(client, now) || !len_sectors.is_multiple_of(self.block_sectors) {
            return None;
        }
        let places = self.spaces.get(&zone.0)?.0.places(blocks);
        places.into_iter().find(|at| !tried.contains(at))
    }

    /// Removes blocks from the space, for the append to which they belong. Returns false if another append has taken one of
    /// them.
    pub(crate) fn take_blocks(&mut self, zone: ZoneNo, offset: u32, blocks: usize) -> bool {
        let Some((space, _)) = self.spaces.get_mut(&zone.0) else { return false };
        let is_there = space.cut(offset, blocks);
        if space.is_empty() {
            self.spaces.remove(&zone.0);
        }
        is_there
    }

    /// Notes that the search for an append of a zone has ended, with or without a result.
    pub(crate) fn end_append(&mut self, zone: ZoneNo) {
        if self.rule != Rule::Window
            && let Some((_, left)) = self.spaces.get_mut(&zone.0)
        {
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.spaces.remove(&zone.0);
            }
        }
    }

    /// Forgets a zone that has changed.
    pub(crate) fn forget_zone(&mut self, zone: ZoneNo) {
        if let Some(written) = self.written.get_mut(zone.0 as usize) {
            *written = 0;
        }
        self.spaces.remove(&zone.0);
    }

    /// Forgets all zones.
    pub(crate) fn forget_all(&mut self) {
        self.written.clear();
        self.spaces.clear();
    }
}
