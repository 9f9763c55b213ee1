//! By what a device is known again after its server has died: a number that the driver keeps for it (`ublksrv_flags`), made of what
//! was served. `mod.rs` gives it to new devices and looks for it when it starts; it opens disks in files for reading their UUID, and
//! changes nothing.

use crate::file::{Access, FileDisk};
use crate::spec::{JOINER, bases, file_of, joins, split_layer};

/// Whether all that a specification names outlives the process that has it open: only then is there anything for another server
/// to take over.
pub fn outlives_its_server(spec: &str) -> bool {
    bases(spec).iter().all(|base| {
        let kind = base.split(',').next().unwrap_or_default();
        !(kind == "null" || kind == "mem" || kind == "sim" || kind.starts_with("sim-"))
    })
}

/// What a device is known by after its server has died: which disks it is made of, in the upper half, and with which layers, in
/// the lower. Never 0, which other servers leave there.
pub(super) fn mark(spec: &str) -> u64 {
    let disks: Vec<String> = bases(spec).iter().map(|b| identity(b)).collect();
    (hash(&disks.join(&JOINER.to_string())) << 32 | hash(&identity(spec))).max(1)
}

/// The disks of a mark.
pub(super) fn disks_of(mark: u64) -> u64 {
    mark >> 32
}

/// FNV-1a, folded to 32 bits.
fn hash(text: &str) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for b in b"zoneplug ".iter().chain(text.as_bytes()) {
        hash = (hash ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3);
    }
    (hash >> 32 ^ hash) & 0xffff_ffff
}

/// The layers of a specification and its disks: the UUID of one in a file, the path of another, whatever it is called here.
fn identity(spec: &str) -> String {
    if let Some((layer, rest)) = split_layer(spec) {
        let below: Vec<String> = match joins(layer) {
            true => rest.split(JOINER).map(identity).collect(),
            false => vec![identity(rest)],
        };
        return format!("{layer}@{}", below.join(&JOINER.to_string()));
    }
    let kind = spec.split(',').next().unwrap_or_default();
    let path = std::path::Path::new(kind);
    let uuid = || FileDisk::open(path, Access::ReadOnly).ok().map(|d| d.identity().uuid);
    file_of(spec).and_then(|_| uuid()).unwrap_or_else(|| {
        path.canonicalize().map_or_else(|_| kind.to_owned(), |p| p.display().to_string())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HostedDisk;
    use crate::file::CreateOptions;

    #[test]
    fn only_what_outlives_its_server_is_taken_over() {
        for spec in [
            "null",
            "mem,zones=8",
            "po2@mem,zone-size=96M",
            "sim-smr30",
            "sim,profile=x",
            "linear@d.zbd%mem",
        ] {
            assert!(!outlives_its_server(spec), "{spec}");
        }
        for spec in ["disk.zbd", "/srv/disk.zbd,io=ring", "po2@./d.zbd", "stripe@a.zbd%b.zbd"] {
            assert!(outlives_its_server(spec), "{spec}");
        }
    }

    /// Two disks of the same name in different directories, and one that took another's place, are not each other.
    #[test]
    fn a_mark_is_of_a_disk_and_the_layers_on_it() {
        let dir = std::env::temp_dir().join(format!("zoneplug-mark-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("a.zbd");
        let text = path.display().to_string();
        let create = || {
            let _ = std::fs::remove_file(&path);
            let opts = CreateOptions {
                zones: Some(4),
                zone_size: Some(1 << 20),
                ..CreateOptions::default()
            };
            crate::file::create(&path, &opts, false).unwrap();
            mark(&text)
        };
        let first = create();
        let open = HostedDisk::open_spec(&text).unwrap();
        assert_eq!(first, mark(&text), "also while it is open");
        drop(open);
        assert_eq!(first, mark(&format!("{text},qd1=1")), "attributes are not part of it");
        assert_eq!(first, mark(&dir.join("./a.zbd").display().to_string()));
        assert_ne!(first, mark(&format!("po2@{text}")));
        let joined = |other: &str| mark(&format!("linear@{text}%{other}"));
        assert_ne!(joined("/b"), joined("/c"));
        assert_eq!(disks_of(first), disks_of(mark(&format!("po2@{text}"))), "the same disk");
        assert_ne!(disks_of(first), disks_of(mark("/dev/a")));
        assert_ne!(first, create(), "another disk in its place");
        std::fs::remove_dir_all(&dir).unwrap();
        assert_ne!(mark("/dev/a"), mark("/dev/b"));
        assert_ne!(mark(""), 0);
    }
}
