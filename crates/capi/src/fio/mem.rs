//! A zoned disk in memory. Stands in for the block layer until that is wired
//! in, and proves the engine: `mem,zones=16,zone-size=1M,cap=512K,conv=2,
//! last=256K,max-open=4,max-active=6,fail-at=N,fails=1`.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::backend::{Backend, Completion, Errno, Geometry, Op, Queue, State, Submit, Zone};

struct Mem {
    geo: Geometry,
    /// Where writes fail, to see how fio takes it.
    fail_at: u64,
    state: Mutex<Disk>,
}

struct Disk {
    data: Vec<u8>,
    zones: Vec<Zone>,
    /// How often they still fail.
    fails: u64,
}

fn size(s: &str) -> Result<u64, String> {
    let (digits, unit) = match s.as_bytes().last() {
        Some(b'k' | b'K') => (&s[..s.len() - 1], 10),
        Some(b'm' | b'M') => (&s[..s.len() - 1], 20),
        Some(b'g' | b'G') => (&s[..s.len() - 1], 30),
        _ => (s, 0),
    };
    let n: u64 = digits.parse().map_err(|_| format!("'{s}' is not a size"))?;
    n.checked_mul(1 << unit).ok_or_else(|| format!("'{s}' is too large"))
}

pub(super) fn open(spec: &str) -> Result<Arc<dyn Backend>, String> {
    let mut parts = spec.split(',');
    if parts.next() != Some("mem") {
        return Err(format!("'{spec}' is not a device this engine knows"));
    }
    let (mut count, mut zone, mut cap, mut conv, mut last) = (16, 1 << 20, None, 0, None);
    let (mut max_open, mut max_active, mut fail_at, mut fails) = (0, 0, u64::MAX, u64::MAX);
    for p in parts {
        let (k, v) = p.split_once('=').ok_or_else(|| format!("'{p}' is not KEY=VALUE"))?;
        let v = size(v)?;
        match k {
            "zones" => count = v,
            "zone-size" => zone = v,
            "cap" => cap = Some(v),
            "conv" => conv = v,
            "last" => last = Some(v),
            "max-open" => max_open = v as u32,
            "max-active" => max_active = v as u32,
            "fail-at" => fail_at = v,
            "fails" => fails = v,
            _ => return Err(format!("'{k}' is not a setting of the in-memory disk")),
        }
    }
    if count == 0 || zone == 0 || count.checked_mul(zone).is_none_or(|b| b > 8 << 30) {
        return Err("the in-memory disk must have 1 byte to 8 GiB".into());
    }
    let mut zones = Vec::new();
    for i in 0..count {
        let len = if i + 1 == count { last.unwrap_or(zone) } else { zone };
        let conventional = i < conv;
        zones.push(Zone {
            start: i * zone,
            len,
            capacity: if conventional { len } else { cap.unwrap_or(zone).min(len) },
            wp: i * zone,
            state: if conventional { State::Conventional } else { State::Empty },
        });
    }
    let bytes = zones.last().map_or(0, |z| z.start + z.len);
    Ok(Arc::new(Mem {
        geo: Geometry { bytes, block: 512, zone, max_open, max_active },
        fail_at,
        state: Mutex::new(Disk { data: vec![0; bytes as usize], zones, fails }),
    }))
}

impl Mem {
    fn run(&self, op: Op) -> Result<(), Errno> {
        let mut d = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let d = &mut *d;
        match op {
            Op::Flush => Ok(()),
            Op::Read { offset, buf, len } => {
                let from = &d.data[offset as usize..][..len];
                // SAFETY: the submitter vouches for the buffer.
                unsafe { buf.copy_from_nonoverlapping(from.as_ptr(), len) };
                Ok(())
            }
            Op::Write { offset, buf, len } => {
                if offset >= self.fail_at && d.fails > 0 {
                    d.fails -= 1;
                    return Err(libc::EIO);
                }
                let z = &mut d.zones[(offset / self.geo.zone) as usize];
                let end = offset + len as u64;
                match z.state {
                    State::Conventional if end <= z.start + z.len => {}
                    State::Empty | State::ImplicitOpen | State::Closed
                        if offset == z.wp && end <= z.start + z.capacity =>
                    {
                        z.wp = end;
                        z.state = if end == z.start + z.capacity {
                            State::Full
                        } else {
                            State::ImplicitOpen
                        };
                    }
                    _ => return Err(libc::EIO),
                }
                let to = &mut d.data[offset as usize..][..len];
                // SAFETY: the submitter vouches for the buffer.
                unsafe { to.as_mut_ptr().copy_from_nonoverlapping(buf, len) };
                let open = d.zones.iter().filter(|z| z.state == State::ImplicitOpen).count();
                if self.geo.max_open != 0 && open > self.geo.max_open as usize {
                    return Err(libc::EOVERFLOW);
                }
                Ok(())
            }
        }
    }

    fn each(&self, offset: u64, len: u64, f: impl Fn(&mut Zone)) -> Result<(), Errno> {
        let mut d = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        for z in d.zones.iter_mut().filter(|z| z.start >= offset && z.start < offset + len) {
            if z.state == State::Conventional {
                return Err(libc::EINVAL);
            }
            f(z);
        }
        Ok(())
    }
}

impl Backend for Mem {
    fn geometry(&self) -> Geometry {
        self.geo
    }
    fn report(&self, offset: u64, max: usize) -> Result<Vec<Zone>, Errno> {
        let d = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(d.zones.iter().skip((offset / self.geo.zone) as usize).take(max).copied().collect())
    }
    fn reset(&self, offset: u64, len: u64) -> Result<(), Errno> {
        self.each(offset, len, |z| {
            z.wp = z.start;
            z.state = State::Empty;
        })
    }
    fn finish(&self, offset: u64, len: u64) -> Result<(), Errno> {
        self.each(offset, len, |z| {
            z.wp = z.start + z.len;
            z.state = State::Full;
        })
    }
    fn write_sync(&self, offset: u64, len: u64, data: Option<&[u8]>) -> Result<(), Errno> {
        let zero = vec![0; len as usize];
        let buf = data.unwrap_or(&zero);
        self.run(Op::Write { offset, buf: buf.as_ptr(), len: buf.len() })
    }
    fn queue(self: Arc<Self>, depth: usize) -> Result<Box<dyn Queue>, Errno> {
        Ok(Box::new(MemQueue { disk: self, depth, todo: VecDeque::new() }))
    }
}

/// Does the work only when reaped, so that requests really are in flight.
struct MemQueue {
    disk: Arc<Mem>,
    depth: usize,
    todo: VecDeque<(Op, usize)>,
}

// SAFETY: the buffer addresses in it are used by whoever holds the queue.
unsafe impl Send for MemQueue {}

impl Queue for MemQueue {
    unsafe fn submit(&mut self, op: Op, tag: usize) -> Submit {
        if self.todo.len() >= self.depth {
            return Submit::Busy;
        }
        self.todo.push_back((op, tag));
        Submit::Queued
    }
    fn reap(
        &mut self,
        _min: usize,
        max: usize,
        _timeout: Option<Duration>,
        out: &mut Vec<Completion>,
    ) -> Result<(), Errno> {
        for _ in 0..max {
            let Some((op, tag)) = self.todo.pop_front() else { break };
            out.push(Completion { tag, result: self.disk.run(op) });
        }
        Ok(())
    }
}
