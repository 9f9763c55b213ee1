//! Several threads and tasks on one log.

use super::common::{Memory, block_on, counting, data, open};
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use zoneplug::zone_log::{AsyncZoneLog, LogError, LogOptions, ZoneLog};
use zoneplug_core::Op;
use zoneplug_devices::stack::TapDisk;

/// A record that does not fit ends its zone early: reading does not go on to where the zone would be full.
#[test]
fn the_rest_of_a_zone_that_ends_early_is_not_read() {
    let memory = Memory::new("mem,zones=4,zone-size=4M");
    let read = Arc::new(AtomicU64::new(0));
    let heard = read.clone();
    let listener = move |e: &zoneplug_devices::stack::TapEvent| {
        if (e.op, e.status) == (Op::Read, None) {
            heard.fetch_add(u64::from(e.len_sectors) * 512, Ordering::Relaxed);
        }
    };
    let disk = open(TapDisk::new(memory.0, Arc::new(listener)));
    let log = ZoneLog::open(&disk, LogOptions::new()).unwrap();
    for n in 0..3 {
        log.append(&data(n, 2_100_000)).unwrap();
    }
    let log = ZoneLog::open(&disk, LogOptions::new()).unwrap();
    assert_eq!(log.iter().filter(Result::is_ok).count(), 3);
    // Opening reads the newest zone, the iteration all three.
    let read = read.load(Ordering::Relaxed);
    assert!(read < 4 * (2_100_000 + (600 << 10)), "{read} bytes");
}

/// Eight threads append and sync; each record is there once, and the records of a thread are in its order.
#[test]
fn threads_share_a_log() {
    let memory = Memory::new("mem,zones=16,zone-size=256K");
    let log = ZoneLog::open(&memory.open(), LogOptions::new()).unwrap();
    std::thread::scope(|s| {
        for t in 0..8u64 {
            let log = log.clone();
            s.spawn(move || {
                for n in 0..100u64 {
                    let rest = data(n, (n as usize * 37) % 900);
                    let record = [&t.to_le_bytes()[..], &n.to_le_bytes(), &rest].concat();
                    let at = match n % 3 {
                        0 => log.append_sync(&record).unwrap(),
                        _ => log.append(&record).unwrap(),
                    };
                    assert_eq!(log.read(at).unwrap(), record);
                }
            });
        }
    });
    for log in [log, ZoneLog::open(&memory.open(), LogOptions::new()).unwrap()] {
        let mut next = [0u64; 8];
        let mut nr = 0;
        for record in log.iter().map(Result::unwrap) {
            let number = |i: usize| u64::from_le_bytes(record.data[i..i + 8].try_into().unwrap());
            let (t, n) = (number(0), number(8));
            assert_eq!(next[t as usize], n, "thread {t}");
            assert_eq!(record.data[16..], data(n, (n as usize * 37) % 900));
            next[t as usize] += 1;
            nr += 1;
        }
        assert_eq!(nr, 800);
    }
}

/// Tasks that append at the same time share writes, and their syncs share flushes.
#[test]
fn tasks_share_writes_and_flushes() {
    let memory = Memory::new("mem,zones=8,zone-size=1M");
    let (disk, counts) = counting(memory.0, [Op::Write, Op::Flush]);
    block_on(async {
        let log = AsyncZoneLog::open(&disk, LogOptions::new()).await.unwrap();
        log.append_sync(b"first").await.unwrap();
        let before = [0, 1].map(|i| counts[i].load(Ordering::Relaxed));
        let mut tasks: Vec<_> =
            (0..100).map(|n| Box::pin(log.append_sync(&data(n, 100)))).collect();
        let mut at = Vec::new();
        for task in &mut tasks {
            at.push(task.await.unwrap());
        }
        let used = [0, 1].map(|i| counts[i].load(Ordering::Relaxed) - before[i]);
        assert_eq!(used, [1, 1], "100 appends of 100 bytes, each durable: one write, one flush");
        for (n, at) in at.iter().enumerate() {
            assert_eq!(log.read(*at).await.unwrap(), data(n as u64, 100));
        }
        let mut cursor = log.cursor_from(at[50]).await.unwrap();
        let mut nr = 0;
        while let Some(record) = cursor.next().await {
            assert_eq!(record.unwrap().address, at[50 + nr]);
            nr += 1;
        }
        assert_eq!(nr, 50);
        let one = log.append(b"more").await.unwrap();
        assert_eq!(cursor.next().await.unwrap().unwrap().address, one, "an end is not for ever");
    });
}

fn poll<F: Future>(f: &mut Pin<Box<F>>) -> Poll<F::Output> {
    f.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// A task that goes away in the middle of the write that it does for all leaves the write to the others.
#[test]
fn a_task_that_is_dropped_holds_up_nobody() {
    let spec = "mem,zones=8,zone-size=1M,latency=2ms";
    for dropped in 0..3 {
        let memory = Memory::new(spec);
        block_on(async {
            let log = AsyncZoneLog::open(&memory.open(), LogOptions::new()).await.unwrap();
            let mut tasks: Vec<_> =
                (0..3).map(|n| Some(Box::pin(log.append(&data(n, 10))))).collect();
            for task in tasks.iter_mut().flatten() {
                assert!(poll(task).is_pending());
            }
            tasks[dropped] = None;
            for task in tasks.into_iter().flatten() {
                task.await.unwrap();
            }
            let at = log.append(b"next").await.unwrap();
            assert_eq!(log.read(at).await.unwrap(), b"next");
            let mut cursor = log.cursor();
            let mut nr = 0;
            while let Some(r) = cursor.next().await {
                r.unwrap();
                nr += 1;
            }
            assert_eq!(nr, 4, "it was in the group already");
        });
    }
}

/// A task that began the write for all and is not polled any more (a `select` that goes on elsewhere) delays no other
/// task.
#[test]
fn a_task_that_is_not_polled_on_holds_up_no_other() {
    let (done, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let memory = Memory::new("mem,zones=8,zone-size=1M,latency=2ms");
        block_on(async {
            let log = AsyncZoneLog::open(&memory.open(), LogOptions::new()).await.unwrap();
            let mut first = Box::pin(log.append(b"first"));
            assert!(poll(&mut first).is_pending());
            // In the same group as the first, in the next, and in one after that.
            let second = Box::pin(log.append(b"second"));
            let (third, fourth) = (Box::pin(log.sync()), Box::pin(log.reset_oldest()));
            second.await.unwrap();
            third.await.unwrap();
            assert_eq!(fourth.await, Ok(None));
            assert_eq!(poll(&mut first).map(|r| r.unwrap().sequence()), Poll::Ready(1));
        });
        done.send(()).unwrap();
    });
    told.recv_timeout(std::time::Duration::from_secs(30)).expect("the others are done");
}

/// Tasks that wait for the group after the one that another task works on are not forgotten when that task has its
/// answer.
#[test]
fn tasks_of_later_groups_are_not_forgotten() {
    let memory = Memory::new("mem,zones=8,zone-size=1M,latency=1ms");
    let log = block_on(AsyncZoneLog::open(&memory.open(), LogOptions::new())).unwrap();
    std::thread::scope(|s| {
        for t in 0..4u64 {
            let log = log.clone();
            s.spawn(move || {
                for n in 0..40 {
                    match n % 4 {
                        0 => drop(block_on(log.reset_oldest()).unwrap()),
                        1 => block_on(log.sync()).unwrap(),
                        _ => assert!(block_on(log.append(&data(t, 100))).is_ok()),
                    }
                }
            });
        }
    });
    assert_eq!(log.numbers(), 1..81);
}

/// A request that is dropped before its turn is not carried out; a log whose handles have all gone is closed.
#[test]
fn a_request_that_is_dropped_in_the_list_is_not_carried_out() {
    let memory = Memory::new("mem,zones=8,zone-size=1M");
    let disk = memory.open();
    block_on(async {
        let log = AsyncZoneLog::open(&disk, LogOptions::new()).await.unwrap();
        drop(log.append(b"never"));
        let kept = pin!(log.append(b"kept"));
        assert_eq!(kept.await.unwrap().sequence(), 1);
    });
    drop(disk);
    for _ in 0..1000 {
        if Arc::strong_count(&memory.0) == 1 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert_eq!(Arc::strong_count(&memory.0), 1, "something holds the disk");
}

/// A zone is reset while others read it: they get the record or that it is gone, never anything else.
#[test]
fn readers_and_a_reset_do_not_mix() {
    let memory = Memory::new("mem,zones=3,zone-size=64K");
    let log = ZoneLog::open(&memory.open(), LogOptions::new()).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let newest = std::sync::Mutex::new(vec![(log.append(&data(0, 3000)).unwrap(), 0)]);
    std::thread::scope(|s| {
        for i in 0..2usize {
            let (log, newest, stop) = (log.clone(), &newest, &stop);
            s.spawn(move || {
                let mut read = 0;
                while !stop.load(Ordering::Relaxed) || read == 0 {
                    let (at, n) = {
                        let list = newest.lock().unwrap();
                        list[(read * 7 + i) % list.len()]
                    };
                    read += 1;
                    match log.read(at) {
                        Ok(bytes) => assert_eq!(bytes, data(n, 3000)),
                        Err(e) => assert_eq!(e, LogError::Stale(at)),
                    }
                }
            });
        }
        for n in 1..2000 {
            let at = loop {
                match log.append(&data(n, 3000)) {
                    Ok(at) => break at,
                    Err(LogError::Full) => drop(log.reset_oldest().unwrap()),
                    Err(e) => panic!("{e}"),
                }
            };
            let mut list = newest.lock().unwrap();
            list.push((at, n));
            if list.len() > 40 {
                list.remove(0);
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

/// Tasks may go from thread to thread: every future of a log is `Send`, and holds no reference to its record.
#[test]
fn futures_of_a_log_can_be_spawned() {
    fn spawned<T>(future: impl Future<Output = T> + Send) -> T {
        block_on(future)
    }
    let memory = Memory::new("mem,zones=4,zone-size=64K");
    let disk = memory.open();
    let log = spawned(AsyncZoneLog::create(&disk, LogOptions::new())).unwrap();
    let append = |n: u8| log.append(&[n; 10]);
    let (second, first) = (append(1), append(2));
    let at = spawned(first).unwrap();
    assert_eq!(
        (at.sequence(), spawned(second).unwrap().sequence()),
        (2, 1),
        "the order of the calls"
    );
    spawned(log.sync()).unwrap();
    let mut cursor = spawned(log.cursor_from(at)).unwrap();
    assert_eq!(spawned(cursor.next()).unwrap().unwrap().data, spawned(log.read(at)).unwrap());
    assert_eq!(spawned(log.append_batch([b"x"])).unwrap().len(), 1);
    assert_eq!(spawned(log.trim(at)), Ok(vec![]));
}
