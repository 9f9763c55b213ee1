//! Wakers that use the disk. zoneplug calls them without holding a lock (I8), so nothing that they do can deadlock.

use crate::common;
use crate::common::within;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use zoneplug_buf::AlignedBuf;
use zoneplug_core::Sector;
use zoneplug_host::{AsyncDisk, Client, HostedDisk};

/// A waker that calls a function, and notes that it has.
struct Calls<F>(F, AtomicBool);

impl<F: Fn() + Send + Sync + 'static> Calls<F> {
    fn new(f: F) -> Arc<Calls<F>> {
        Arc::new(Calls(f, AtomicBool::new(false)))
    }

    fn was_called(&self) -> bool {
        self.1.load(Ordering::SeqCst)
    }
}

impl<F: Fn() + Send + Sync + 'static> Wake for Calls<F> {
    fn wake(self: Arc<Self>) {
        self.0();
        self.1.store(true, Ordering::SeqCst);
    }
}

/// I8: a client's waker thaws the disk, which wakes another client.
#[test]
fn a_waker_may_wake_another_client() {
    within("a waker that wakes another client", || {
        let disk = HostedDisk::open_spec("null,zones=4,zone-size=1M").unwrap();
        let mut first = disk.open_client(4, 4).unwrap();
        let second: Mutex<Client> = Mutex::new(disk.open_client(4, 4).unwrap());
        let other = Calls::new(|| {});
        let (disk2, other2) = (disk.clone(), other.clone());
        let thawing = Calls::new(move || {
            let frozen = disk2.freeze().unwrap();
            assert!(second.lock().unwrap().arm(&Waker::from(other2.clone())));
            drop(frozen);
        });
        let frozen = disk.freeze().unwrap();
        assert!(first.arm(&Waker::from(thawing.clone())));
        drop(frozen);
        common::until("both are woken", || thawing.was_called() && other.was_called());
    });
}

/// I8: the adapter that is polled wakes a future of another adapter, whose waker uses the first.
#[test]
fn a_futures_waker_may_use_the_adapter_that_is_polled() {
    within("a waker that uses the adapter that is polled", || {
        for _ in 0..100 {
            let disk = HostedDisk::open_spec("mem,zones=4,zone-size=1M,latency=300us").unwrap();
            let polled = AsyncDisk::new(&disk, 4).unwrap();
            let other = AsyncDisk::new(&disk, 4).unwrap();
            // Both append to one zone, so the second append is sent when the first completes.
            let mut first = pin!(polled.append(Sector(0), AlignedBuf::zeroed(4096)));
            let mut second = pin!(other.append(Sector(0), AlignedBuf::zeroed(4096)));
            let used = polled.clone();
            let waker = Calls::new(move || assert!(used.geometry().nr_zones() == 4));
            let _ = second.as_mut().poll(&mut Context::from_waker(&Waker::from(waker.clone())));
            let mut cx = Context::from_waker(Waker::noop());
            while first.as_mut().poll(&mut cx).is_pending() {}
            while !waker.was_called() {
                let _ = pin!(polled.flush()).as_mut().poll(&mut cx);
            }
        }
    });
}
