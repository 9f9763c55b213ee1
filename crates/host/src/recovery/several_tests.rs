//! Tests that a server compares each of several disks with those of the last one, not only the first.

use super::bases::Bases;
use crate::HostedDisk;
use crate::backend::file::{CreateOptions, create};
use std::path::PathBuf;

/// A directory for disks, removed with its test.
struct Dir(PathBuf);

impl Dir {
    fn new() -> Dir {
        let dir = std::env::temp_dir().join(format!("zoneplug-several-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Dir(dir)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The name, the place and the number of openings of each disk of a joined one count.
#[test]
fn of_several_disks_each_is_compared() {
    let dir = Dir::new();
    let make = |name: &str| {
        let options =
            CreateOptions { zones: Some(4), zone_size: Some(1 << 20), ..CreateOptions::default() };
        create(dir.path(name).as_ref(), &options, true).unwrap();
    };
    let names = ["a.zbd", "b.zbd", "c.zbd"];
    names.iter().for_each(|name| make(name));
    let spec = format!("linear@{}", names.map(|name| dir.path(name)).join("%"));
    for name in names {
        let (before, path, moved) =
            (Bases::at_paths_of(&spec.parse().unwrap()), dir.path(name), dir.path("moved"));
        assert_eq!(before.files(), 3);
        // A copy at the path of the disk has the same name, and another place.
        std::fs::rename(&path, &moved).unwrap();
        std::fs::copy(&moved, &path).unwrap();
        let copied = Bases::at_paths_of(&spec.parse().unwrap());
        assert_eq!(copied.name(), before.name(), "{name}");
        assert_ne!(copied.disk_state().place, before.disk_state().place, "a copy of {name}");
        std::fs::rename(&moved, &path).unwrap();
        assert_eq!(
            Bases::at_paths_of(&spec.parse().unwrap()).disk_state(),
            before.disk_state(),
            "{name}"
        );
        // A disk that was opened separately has been opened once more.
        drop(HostedDisk::open_spec(&path).unwrap());
        assert_eq!(
            Bases::at_paths_of(&spec.parse().unwrap()).disk_state().opened,
            before.disk_state().opened + 1,
            "{name}"
        );
        assert_eq!(Bases::at_paths_of(&spec.parse().unwrap()).name(), before.name());
        // Another disk at its path has another name.
        make(name);
        assert_ne!(Bases::at_paths_of(&spec.parse().unwrap()).name(), before.name(), "{name}");
    }
    let swapped = format!("linear@{}", ["b.zbd", "a.zbd", "c.zbd"].map(|n| dir.path(n)).join("%"));
    let (one, other) =
        (Bases::at_paths_of(&spec.parse().unwrap()), Bases::at_paths_of(&swapped.parse().unwrap()));
    assert_eq!(one.name(), other.name(), "the same disks");
    assert_ne!(one.layers(), other.layers(), "in another order");
}
