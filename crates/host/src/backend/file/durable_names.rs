//! Tests that the directory of a new file is synced after the file has its name.

use super::create::SYNCED;
use super::{CreateOptions, Snapshot, WritesPrevented, create};
use std::path::{Path, PathBuf};

/// A directory, removed with its test.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Dir {
        let dir = std::env::temp_dir().join(format!("zoneplug-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Dir(dir)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The names in a folder when this thread last synced it.
fn durable(dir: &Path) -> Option<Vec<String>> {
    let synced = SYNCED.take();
    synced.into_iter().rfind(|(of, _)| of == dir).map(|(_, names)| names)
}

fn made(path: &Path) {
    let options =
        CreateOptions { zones: Some(4), zone_size: Some(1 << 20), ..CreateOptions::default() };
    create(path, &options, false).unwrap();
}

#[test]
fn the_name_of_a_new_disk_is_durable() {
    let dir = Dir::new("durable-disk");
    made(&dir.0.join("disk.zbd"));
    assert_eq!(durable(&dir.0).unwrap(), ["disk.zbd"]);
}

/// A snapshot in another folder than its disk: its name is durable, and the temporary name is gone.
#[test]
fn the_name_of_a_snapshot_is_durable() {
    let (of_disk, of_copy) = (Dir::new("durable-original"), Dir::new("durable-snapshot"));
    let (disk, copy) = (of_disk.0.join("disk.zbd"), of_copy.0.join("copy.zbd"));
    made(&disk);
    for new_uuid in [false, true] {
        durable(&of_copy.0);
        let mut snapshot = Snapshot::begin(&disk, &copy, WritesPrevented::ByLock).unwrap();
        snapshot.copy_rest().unwrap();
        assert_eq!(durable(&of_copy.0), None, "it has no name yet");
        snapshot.finish(new_uuid).unwrap();
        assert_eq!(durable(&of_copy.0).expect("its folder is synced"), ["copy.zbd"]);
        std::fs::remove_file(&copy).unwrap();
    }
}
