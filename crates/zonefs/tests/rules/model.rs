//! Random sequences of operations on a volume, against a naive model of its files.

use super::{seq, volume_of};
use proptest::prelude::*;
use rustix::io::Errno;
use zoneplug_zonefs::{FileNo, Group, Volume, WriteMode};

const BLOCK: usize = 4096;
const CAPACITY: usize = 6 * BLOCK;
const FILES: u32 = 3;

/// Where a write is to go, relative to the end of the file.
#[derive(Debug, Clone, Copy)]
enum Place {
    End,
    Behind(usize),
    Before(usize),
    /// With `O_APPEND`, whatever the place.
    Append(usize),
}

#[derive(Debug, Clone)]
enum Step {
    Write {
        file: u32,
        place: Place,
        len: usize,
        direct: bool,
    },
    Read {
        file: u32,
        from: usize,
        len: usize,
    },
    Truncate {
        file: u32,
        size: usize,
    },
    Sync {
        file: u32,
    },
    /// Opened and closed by a writer.
    Visit {
        file: u32,
    },
    Remount,
}

fn length() -> impl Strategy<Value = usize> {
    prop_oneof![1..=4usize, (1..=3usize).prop_map(|n| n * BLOCK), 1..3 * BLOCK, Just(CAPACITY)]
}

fn step() -> impl Strategy<Value = Step> {
    let place = prop_oneof![
        6 => Just(Place::End),
        1 => (1..2 * BLOCK).prop_map(Place::Behind),
        1 => (1..2 * BLOCK).prop_map(Place::Before),
        2 => (0..CAPACITY).prop_map(Place::Append),
    ];
    let size = prop_oneof![3 => Just(0), 1 => Just(CAPACITY), 1 => 0..=CAPACITY + 1];
    prop_oneof![
        8 => (0..FILES, place, length(), any::<bool>())
            .prop_map(|(file, place, len, direct)| Step::Write { file, place, len, direct }),
        3 => (0..FILES, 0..CAPACITY + 9, 0..CAPACITY + 9)
            .prop_map(|(file, from, len)| Step::Read { file, from, len }),
        1 => (0..FILES, size).prop_map(|(file, size)| Step::Truncate { file, size }),
        1 => (0..FILES).prop_map(|file| Step::Sync { file }),
        1 => (0..FILES).prop_map(|file| Step::Visit { file }),
        1 => Just(Step::Remount),
    ]
}

/// A file as zonefs has it: bytes. Those behind `durable` are in no zone yet.
#[derive(Debug, Default, Clone)]
struct Model {
    bytes: Vec<u8>,
}

impl Model {
    fn fill_block(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(BLOCK), 0);
    }

    fn write(
        &mut self,
        at: usize,
        how: WriteMode,
        buffered: bool,
        data: &[u8],
    ) -> Result<usize, Errno> {
        let at = if how.append { self.bytes.len() } else { at };
        if at >= CAPACITY {
            return Err(Errno::FBIG);
        }
        let n = data.len().min(CAPACITY - at);
        if how.direct && !(at.is_multiple_of(BLOCK) && n.is_multiple_of(BLOCK)) {
            return Err(Errno::INVAL);
        }
        if !how.direct && !buffered {
            return Err(Errno::IO);
        }
        if at != self.bytes.len() {
            return Err(Errno::INVAL);
        }
        self.bytes.extend_from_slice(&data[..n]);
        Ok(n)
    }

    fn truncate(&mut self, size: usize) -> Result<(), Errno> {
        match size {
            0 => self.bytes.clear(),
            CAPACITY => self.bytes.resize(CAPACITY, 0),
            _ => return Err(Errno::PERM),
        }
        Ok(())
    }
}

fn compare(volume: &Volume, file: FileNo, model: &Model, from: usize, len: usize) {
    assert_eq!(volume.attributes(file).size, model.bytes.len() as u64);
    let read = volume.read(file, from as u64, len as u32).unwrap();
    let wanted = model.bytes.iter().skip(from).take(len).copied().collect::<Vec<_>>();
    assert!(read.as_slice() == wanted, "{from} + {len}");
}

fn run(steps: &[Step], buffered: bool, spec: &str) {
    let options = if buffered { "buffered" } else { "" };
    let (disk, mut volume, _) = volume_of(spec, "", options);
    let mut models = vec![Model::default(); FILES as usize];
    let mut stamp = 0u8;
    for step in steps {
        match *step {
            Step::Write { file, place, len, direct } => {
                let (model, file) = (&mut models[file as usize], seq(&volume, file));
                let end = model.bytes.len();
                let (at, append) = match place {
                    Place::End => (end, false),
                    Place::Behind(n) => (end + n, false),
                    Place::Before(n) => (end.saturating_sub(n), false),
                    Place::Append(at) => (at, true),
                };
                stamp = stamp.wrapping_add(1).max(1);
                let data: Vec<u8> = (0..len).map(|n| (n as u8).wrapping_mul(31) ^ stamp).collect();
                let how = WriteMode { direct, append };
                let wanted = model.write(at, how, buffered, &data);
                assert_eq!(
                    volume.write(file, at as u64, &data, how),
                    wanted,
                    "{step:?} at {at} of {end}"
                );
                compare(&volume, file, model, 0, CAPACITY);
            }
            Step::Read { file, from, len } => {
                compare(&volume, seq(&volume, file), &models[file as usize], from, len);
            }
            Step::Truncate { file, size } => {
                let wanted = models[file as usize].truncate(size);
                assert_eq!(volume.truncate(seq(&volume, file), size as u64), wanted, "{step:?}");
            }
            Step::Sync { file } => {
                models[file as usize].fill_block();
                volume.sync(seq(&volume, file)).unwrap();
            }
            Step::Visit { file } => {
                volume.open_file(seq(&volume, file), true).unwrap();
                models[file as usize].fill_block();
                volume.close_file(seq(&volume, file), true).unwrap();
            }
            Step::Remount => {
                models.iter_mut().for_each(Model::fill_block);
                volume.close().unwrap();
                (volume, _) = super::open(&disk, options);
            }
        }
    }
    for (n, model) in (0..).zip(&models) {
        compare(&volume, seq(&volume, n), model, 0, CAPACITY);
    }
    assert_eq!(volume.files_of(Group::Sequential), FILES);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// F4, F5, F7: files are what the model says, with and without `buffered`, and after a remount.
    #[test]
    fn random_operations_agree_with_the_model(steps in prop::collection::vec(step(), 1..40), buffered: bool) {
        run(&steps, buffered, "mem,zones=4,zone-size=32K,zone-capacity=24K,max-transfer=8K");
    }
}
