//! `zoneplug serve --metrics`: the data of `zoneplug status` over HTTP, in Prometheus's format and as a page for readers.

mod http;
mod page;
mod text;

use crate::door::listen_at;
use crate::served::Served;
use http::{Bounds, HttpText};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::Wake;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};
use zoneplug_control::{Attempt, Failure};
use zoneplug_host::WakeFd;

/// How long a text is used again. Making it examines every zone of every disk, and clients may ask at any rate.
const FRESH: Duration = Duration::from_secs(1);
/// How long the end waits for a text that is being made.
const LAST_TEXT: Duration = Duration::from_secs(5);

fn no_metrics(at: impl std::fmt::Display, e: std::io::Error) -> Failure {
    Failure::of_system(Attempt::Address, format!("no metrics at {at}"), e)
}

/// Listens at `address`, as [`listen_at`] does.
pub(crate) fn listen(
    address: SocketAddr,
    given: &mut Vec<TcpListener>,
) -> Result<TcpListener, Failure> {
    listen_at(address, given).map_err(|e| no_metrics(address, e))
}

/// The metrics server, until this is dropped. Its thread holds the disks only while it makes a text, so that a disk
/// is closed when its server ends.
pub(crate) struct Metrics {
    address: SocketAddr,
    ends: Arc<End>,
    thread: JoinHandle<()>,
    /// `None` once this is dropped.
    disks: Option<Arc<Vec<Served>>>,
}

struct End {
    bell: Arc<WakeFd>,
    is_over: AtomicBool,
}

impl Metrics {
    /// Answers at a listening socket from now on.
    pub(crate) fn open(listener: &TcpListener, disks: Vec<Served>) -> Result<Metrics, Failure> {
        Self::open_with(listener, disks, Bounds::default())
    }

    fn open_with(
        listener: &TcpListener,
        disks: Vec<Served>,
        bounds: Bounds,
    ) -> Result<Metrics, Failure> {
        let failed = |e| no_metrics("this socket", e);
        let listener = listener.try_clone().map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let bell = WakeFd::new().map_err(failed)?;
        bell.clear();
        let (ends, disks) =
            (Arc::new(End { bell, is_over: AtomicBool::new(false) }), Arc::new(disks));
        let (of_thread, served) = (ends.clone(), Arc::downgrade(&disks));
        let body = move || {
            let is_over = || of_thread.is_over.load(Ordering::Acquire);
            let text = texts(served, Instant::now);
            // poll(2) fails only if there is no memory. The disks are then served without metrics.
            let _ = http::serve(&listener, of_thread.bell.as_fd(), is_over, text, bounds);
        };
        let thread = std::thread::Builder::new().name("zoneplug-metrics".to_owned()).spawn(body);
        let thread = thread
            .map_err(|e| Failure::of_system(Attempt::Thread, "no thread for the metrics", e))?;
        Ok(Metrics { address, ends, thread, disks: Some(disks) })
    }

    /// The lines that report where the page and the metrics are.
    pub(crate) fn lines(&self) -> [String; 2] {
        let at = self.address;
        [format!("status page at http://{at}/"), format!("metrics at http://{at}/metrics")]
    }
}

/// Makes a text with its type, each at most once in [`FRESH`] of this clock.
fn texts(
    disks: Weak<Vec<Served>>,
    mut clock: impl FnMut() -> Instant,
) -> impl FnMut(HttpText) -> Option<(&'static str, String)> {
    let (mut page, mut metrics): (Option<(Instant, String)>, _) = (None, None);
    move |wanted| {
        let disks = disks.upgrade()?;
        let now = clock();
        let (last, kind) = match wanted {
            HttpText::Page => (&mut page, page::CONTENT_TYPE),
            HttpText::Metrics => (&mut metrics, text::CONTENT_TYPE),
        };
        let is_fresh = last.as_ref().is_some_and(|(made, _)| now.duration_since(*made) < FRESH);
        if !is_fresh {
            let shown = disks.iter().map(Served::shown).collect::<Vec<_>>();
            let text = match wanted {
                HttpText::Page => page::of(&shown, SystemTime::now()),
                HttpText::Metrics => text::of(shown),
            };
            *last = Some((now, text));
        }
        last.as_ref().map(|(_, text)| (kind, text.clone()))
    }
}

impl Drop for Metrics {
    fn drop(&mut self) {
        self.ends.is_over.store(true, Ordering::Release);
        self.ends.bell.clone().wake();
        // Making a text holds the disks, and waits only briefly for each.
        let end = Instant::now() + LAST_TEXT;
        while !self.thread.is_finished() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.disks = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::served::PassedDisk;
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use zoneplug_host::{HostedDisk, ServedCounters};

    fn served() -> Served {
        let spec = "mem,zones=8,zone-size=1M";
        Served {
            door: "ublk",
            name: "ublkb0".to_owned(),
            spec: spec.to_owned(),
            disk: HostedDisk::open_spec(spec).unwrap(),
            recovered: false,
            outlives: false,
            counters: Box::new(ServedCounters::default),
            network: None,
            passed: PassedDisk::default(),
        }
    }

    /// A client that stays connected must not keep the disks open or the port in use.
    #[test]
    fn the_disks_and_the_port_go_with_it() {
        let at = |address| listen(address, &mut Vec::new());
        let listener = at("127.0.0.1:0".parse().unwrap()).unwrap();
        let metrics = Metrics::open(&listener, vec![served()]).unwrap();
        drop(listener);
        let (address, disks) = (metrics.address, Arc::downgrade(metrics.disks.as_ref().unwrap()));
        assert!(at(address).is_err(), "the port is taken");
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        assert!(text.contains("zoneplug_zones{disk=\"ublkb0\",condition=\"empty\"} 8"), "{text}");
        let silent = TcpStream::connect(address).unwrap();
        let start = Instant::now();
        drop(metrics);
        assert!(disks.upgrade().is_none(), "its disks are closed when it has gone");
        assert!(start.elapsed() < LAST_TEXT);
        drop(at(address).unwrap());
        drop((client, silent));
    }

    /// A text is made only if the last one is old, however often clients ask.
    #[test]
    fn a_text_is_made_once_in_a_while() {
        let disks = Arc::new(vec![served()]);
        let time = std::cell::Cell::new(Instant::now());
        let mut texts = texts(Arc::downgrade(&disks), || time.get());
        let mut io = zoneplug_host::BlockingDisk::new(&disks[0].disk).unwrap();
        let mut zone = 0;
        let (mut texts_made, mut last) = (0, String::new());
        // A client asks four times while a text is fresh.
        for asked in 0..40 {
            let (_, text) = texts(HttpText::Metrics).unwrap();
            if text != last {
                assert!(
                    text.contains(&format!("condition=\"active\"}} {zone}")),
                    "{asked}: {text}"
                );
                assert_eq!(asked % 4, 0, "it was fresh");
                (texts_made, last) = (texts_made + 1, text);
            }
            if zone < 8 {
                io.append_from(zoneplug_core::Sector(zone * 0x800), &[0; 4096]).unwrap();
                zone += 1;
            }
            time.set(time.get() + FRESH / 4);
        }
        assert_eq!(texts_made, 3, "after no zone, after four, and after eight");
        drop((io, disks));
        assert_eq!(texts(HttpText::Page), None, "the server is ending");
    }
}
