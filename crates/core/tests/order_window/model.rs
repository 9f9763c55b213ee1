//! The order window, written down as simply as possible: for each zone a write pointer and a map of held writes. It
//! uses no code of the engine.

use std::collections::BTreeMap;
use zoneplug_core::Status;

/// A write that is held.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Held {
    pub len: u32,
    pub token: u64,
    pub queue: usize,
    pub due: u64,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Zone {
    pub wp: u32,
    pub held: BTreeMap<u32, Held>,
    /// What was accepted since the last reset: offset, length, token.
    pub accepted: Vec<(u32, u32, u64)>,
    /// A finish has filled it.
    pub finished: bool,
}

/// A positional write that a client submits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Write {
    pub token: u64,
    pub queue: usize,
    pub zone: usize,
    pub offset: u32,
    pub len: u32,
    pub nowait: bool,
}

/// How many writes took each way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub held: u64,
    pub admitted: u64,
    pub expired: u64,
    pub dropped: u64,
}

#[derive(Debug, Clone)]
pub(crate) struct Model {
    pub zones: Vec<Zone>,
    pub cap: u32,
    pub now: u64,
    /// The attribute `order_window`.
    pub window: u64,
    /// Since when the disk is frozen.
    pub frozen: Option<u64>,
    pub counts: Counts,
    /// What has been refused since this was last taken: token and status.
    pub refused: Vec<(u64, Status)>,
    /// Tokens of writes and appends that were accepted, and where each is: zone and offset.
    pub accepted: BTreeMap<u64, (usize, u32)>,
}

impl Model {
    pub(crate) fn new(zones: usize, cap: u32, window: u64) -> Model {
        Model {
            zones: vec![Zone::default(); zones],
            cap,
            now: 0,
            window,
            frozen: None,
            counts: Counts::default(),
            refused: Vec::new(),
            accepted: BTreeMap::new(),
        }
    }

    /// The status of a write that a disk without a window gets.
    fn strict(&self, zone: usize, offset: u32, len: u32) -> Option<Status> {
        let wp = self.zones[zone].wp;
        if wp >= self.cap {
            Some(Status::ZoneFull)
        } else if offset != wp {
            Some(Status::NotAtWritePointer)
        } else if offset + len > self.cap {
            Some(Status::PastCapacity)
        } else {
            None
        }
    }

    fn accept(&mut self, zone: usize, len: u32, token: u64) {
        let z = &mut self.zones[zone];
        z.accepted.push((z.wp, len, token));
        self.accepted.insert(token, (zone, z.wp));
        z.wp += len;
    }

    /// After an admission: the held writes whose turn has come, and those that were overtaken.
    fn follow(&mut self, zone: usize) {
        while let Some((&offset, &h)) = self.zones[zone].held.first_key_value() {
            if offset > self.zones[zone].wp {
                return;
            }
            self.zones[zone].held.remove(&offset);
            match self.strict(zone, offset, h.len) {
                None => {
                    self.counts.admitted += 1;
                    self.accept(zone, h.len, h.token);
                }
                Some(status) => {
                    self.counts.dropped += 1;
                    self.refused.push((h.token, status));
                }
            }
        }
    }

    /// Contiguous writes that a queue submits together. They are admitted as one, or each alone.
    pub(crate) fn run(&mut self, run: &[Write]) {
        let total = run.iter().map(|w| w.len).sum();
        let first = run[0];
        if self.strict(first.zone, first.offset, total).is_none() {
            run.iter().for_each(|w| self.accept(w.zone, w.len, w.token));
            return self.follow(first.zone);
        }
        run.iter().for_each(|&w| self.write(w));
    }

    fn write(&mut self, w: Write) {
        let Some(status) = self.strict(w.zone, w.offset, w.len) else {
            self.accept(w.zone, w.len, w.token);
            return self.follow(w.zone);
        };
        let zone = &mut self.zones[w.zone];
        let end = w.offset + w.len;
        let apart = |(&at, h): (&u32, &Held)| at >= end || at + h.len <= w.offset;
        let early = w.offset > zone.wp && end <= self.cap && zone.held.iter().all(apart);
        if status != Status::NotAtWritePointer || !early || w.nowait || self.window == 0 {
            return self.refused.push((w.token, status));
        }
        let due = self.now + self.window;
        zone.held.insert(w.offset, Held { len: w.len, token: w.token, queue: w.queue, due });
        self.counts.held += 1;
    }

    /// Appends that a queue submits together.
    pub(crate) fn appends(&mut self, zone: usize, all: &[(u64, u32)]) {
        let total = all.iter().map(|a| a.1).sum();
        if self.strict(zone, self.zones[zone].wp, total).is_none() {
            all.iter().for_each(|&(token, len)| self.accept(zone, len, token));
            return self.follow(zone);
        }
        for &(token, len) in all {
            match self.strict(zone, self.zones[zone].wp, len) {
                Some(status) => self.refused.push((token, status)),
                None => {
                    self.accept(zone, len, token);
                    self.follow(zone);
                }
            }
        }
    }

    /// A reset or finish of a zone at rest.
    pub(crate) fn restart(&mut self, zone: usize, finish: bool) {
        let held = std::mem::take(&mut self.zones[zone].held);
        let z = &mut self.zones[zone];
        z.wp = if finish { self.cap } else { 0 };
        z.finished = finish;
        if !finish {
            z.accepted.clear();
        }
        let status = if finish { Status::ZoneFull } else { Status::NotAtWritePointer };
        for h in held.into_values() {
            self.counts.dropped += 1;
            self.refused.push((h.token, status));
        }
    }

    /// A client goes away. `told`: its writes come back to it.
    pub(crate) fn leave(&mut self, queue: usize, told: bool) {
        for z in &mut self.zones {
            z.held.retain(|_, h| {
                if h.queue == queue {
                    self.counts.dropped += 1;
                    if told {
                        self.refused.push((h.token, Status::NotAtWritePointer));
                    }
                }
                h.queue != queue
            });
        }
    }

    /// A call of a queue at `now`.
    pub(crate) fn call(&mut self, now: u64) {
        self.now = now;
        if self.frozen.is_some() {
            return;
        }
        for z in &mut self.zones {
            z.held.retain(|_, h| {
                if h.due <= now {
                    self.counts.expired += 1;
                    self.refused.push((h.token, Status::NotAtWritePointer));
                }
                h.due > now
            });
        }
    }

    pub(crate) fn freeze(&mut self) {
        self.frozen = Some(self.now);
    }

    pub(crate) fn thaw(&mut self) {
        let pause = self.now - self.frozen.take().expect("it is frozen");
        for h in self.zones.iter_mut().flat_map(|z| z.held.values_mut()) {
            h.due += pause;
        }
    }

    /// When the next write is refused.
    pub(crate) fn next_due(&self) -> Option<u64> {
        let due = self.zones.iter().flat_map(|z| z.held.values()).map(|h| h.due).min();
        due.filter(|_| self.frozen.is_none())
    }

    pub(crate) fn held(&self) -> usize {
        self.zones.iter().map(|z| z.held.len()).sum()
    }
}
