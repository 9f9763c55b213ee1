//! A disk's attributes as the kernel shows them, under a directory that tests may replace. Only reads small files.

use std::path::{Path, PathBuf};

/// The attributes in `/sys/block/NAME/queue`, in the units that their names say. An attribute that the kernel does not
/// have is 0 or `None`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct QueueAttributes {
    /// `none`, `host-aware` or `host-managed`.
    pub(crate) zoned: String,
    pub(crate) chunk_sectors: u64,
    pub(crate) logical_block_size: u32,
    pub(crate) zone_write_granularity: u32,
    pub(crate) max_open_zones: u32,
    pub(crate) max_active_zones: u32,
    pub(crate) max_sectors_kb: u64,
    pub(crate) max_hw_sectors_kb: u64,
    pub(crate) max_segments: u32,
    pub(crate) write_zeroes_max_bytes: u64,
    pub(crate) discard_max_bytes: u64,
    pub(crate) virt_boundary_mask: u64,
    pub(crate) dma_alignment: Option<u32>,
    pub(crate) write_back: bool,
    pub(crate) fua: bool,
    pub(crate) rotational: bool,
}

fn text(dir: &Path, name: &str) -> Option<String> {
    Some(std::fs::read_to_string(dir.join(name)).ok()?.trim().to_owned())
}

fn number<T: std::str::FromStr>(dir: &Path, name: &str) -> Option<T> {
    text(dir, name)?.parse().ok()
}

impl QueueAttributes {
    /// Reads the directory `queue` of a disk. `None`: there is none.
    pub(crate) fn read(dir: &Path) -> Option<QueueAttributes> {
        if !dir.is_dir() {
            return None;
        }
        let flag = |name| number::<u32>(dir, name).unwrap_or(0) != 0;
        Some(QueueAttributes {
            zoned: text(dir, "zoned").unwrap_or_else(|| "none".to_owned()),
            chunk_sectors: number(dir, "chunk_sectors").unwrap_or(0),
            logical_block_size: number(dir, "logical_block_size").unwrap_or(512),
            zone_write_granularity: number(dir, "zone_write_granularity").unwrap_or(0),
            max_open_zones: number(dir, "max_open_zones").unwrap_or(0),
            max_active_zones: number(dir, "max_active_zones").unwrap_or(0),
            max_sectors_kb: number(dir, "max_sectors_kb").unwrap_or(0),
            max_hw_sectors_kb: number(dir, "max_hw_sectors_kb").unwrap_or(0),
            max_segments: number(dir, "max_segments").unwrap_or(0),
            write_zeroes_max_bytes: number(dir, "write_zeroes_max_bytes").unwrap_or(0),
            discard_max_bytes: number(dir, "discard_max_bytes").unwrap_or(0),
            virt_boundary_mask: number(dir, "virt_boundary_mask").unwrap_or(0),
            dma_alignment: number(dir, "dma_alignment"),
            write_back: text(dir, "write_cache").as_deref() == Some("write back"),
            fua: flag("fua"),
            rotational: flag("rotational"),
        })
    }
}

/// A disk in sysfs.
#[derive(Debug, Clone)]
pub(crate) struct SysDisk {
    /// Its directory.
    pub(crate) dir: PathBuf,
    /// Its name, as in `/dev`.
    pub(crate) name: String,
}

impl SysDisk {
    /// The disk with that device number under `sys`, which is `/sys` except in tests.
    pub(crate) fn of(sys: &Path, kind: &str, dev: (u32, u32)) -> Option<SysDisk> {
        let link = sys.join(format!("dev/{kind}/{}:{}", dev.0, dev.1));
        let dir = std::fs::canonicalize(link).ok()?;
        let name = dir.file_name()?.to_str()?.to_owned();
        Some(SysDisk { dir, name })
    }

    /// The namespace's block device beside an NVMe generic character device (`ng0n1`: `nvme0n1`). A block device that
    /// the kernel hides is in sysfs too, but without a device number.
    pub(crate) fn sibling(&self) -> Option<SysDisk> {
        let rest = self.name.strip_prefix("ng")?;
        let name = format!("nvme{rest}");
        // The block device is in the same directory: the controller's or, with multipath, the subsystem's.
        let dir = self.dir.parent()?.join(&name);
        dir.is_dir().then_some(SysDisk { dir, name })
    }

    /// Its device number, unless the kernel hides it.
    pub(crate) fn dev(&self) -> Option<(u32, u32)> {
        let text = text(&self.dir, "dev")?;
        let (major, minor) = text.split_once(':')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    }

    /// The size in sectors.
    pub(crate) fn size(&self) -> u64 {
        number(&self.dir, "size").unwrap_or(0)
    }

    /// Whether the kernel refuses writes.
    pub(crate) fn is_read_only(&self) -> bool {
        number::<u32>(&self.dir, "ro").unwrap_or(0) != 0
    }

    /// Whether the disk is a partition. The directory above is then that of the whole disk.
    pub(crate) fn is_partition(&self) -> bool {
        self.dir.join("partition").exists()
    }

    /// Devices that are built on this disk: names such as `dm-0`.
    pub(crate) fn holders(&self) -> Vec<String> {
        let Ok(list) = std::fs::read_dir(self.dir.join("holders")) else { return Vec::new() };
        let mut names: Vec<_> =
            list.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect();
        names.sort_unstable();
        names
    }

    /// Names of its partitions.
    pub(crate) fn partitions(&self) -> Vec<String> {
        let Ok(list) = std::fs::read_dir(&self.dir) else { return Vec::new() };
        list.flatten()
            .filter(|e| e.path().join("partition").exists())
            .map(|e| e.file_name().to_string_lossy().into_owned())
            .collect()
    }

    /// The attributes of its queue.
    pub(crate) fn queue(&self) -> QueueAttributes {
        QueueAttributes::read(&self.dir.join("queue")).unwrap_or_default()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A tree of sysfs as a kernel showed it: `PATH=CONTENT` in lines, `PATH->TARGET` for a link.
    pub(crate) fn tree(name: &str, recorded: &str) -> PathBuf {
        let root = std::env::temp_dir().join(format!("zoneplug-sys-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&root);
        for line in recorded.lines().filter(|l| !l.trim().is_empty()) {
            let make = |path: &str| {
                let path = root.join(path.trim());
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                path
            };
            if let Some((path, target)) = line.split_once("->") {
                let at = make(path);
                let _ = std::os::unix::fs::symlink(root.join(target.trim()), at);
            } else if let Some((path, content)) = line.split_once('=') {
                std::fs::write(make(path), format!("{content}\n")).unwrap();
            } else {
                std::fs::create_dir_all(root.join(line.trim())).unwrap();
            }
        }
        root
    }

    /// `queue` of a recorded line of `name=value` pairs.
    fn queue_of(name: &str, recorded: &str) -> QueueAttributes {
        let lines: String = recorded.split(", ").map(|l| format!("queue/{l}\n")).collect();
        let root = tree(name, &lines);
        let q = QueueAttributes::read(&root.join("queue")).unwrap();
        std::fs::remove_dir_all(root).unwrap();
        q
    }

    /// Linux 7.2: null_blk, 512-byte blocks, limits of open and active zones.
    #[test]
    fn attributes_of_a_new_kernel() {
        let q = queue_of(
            "null",
            "chunk_sectors=131072, dma_alignment=1, fua=0, logical_block_size=512, max_active_zones=6, \
             max_hw_sectors_kb=127, max_open_zones=4, max_sectors_kb=127, max_segments=128, nr_zones=16, \
             rotational=0, virt_boundary_mask=0, write_cache=write through, write_zeroes_max_bytes=0, \
             zone_append_max_bytes=130560, zone_write_granularity=512, zoned=host-managed, zoned_qd1_writes=0",
        );
        assert_eq!((q.zoned.as_str(), q.chunk_sectors), ("host-managed", 131_072));
        assert_eq!((q.max_open_zones, q.max_active_zones), (4, 6));
        assert_eq!((q.max_sectors_kb, q.max_segments, q.dma_alignment), (127, 128, Some(1)));
        assert!(!q.write_back && !q.fua && !q.rotational);
    }

    /// Linux 6.1: NVMe without scatter-gather lists has a boundary; a cache and FUA.
    #[test]
    fn attributes_of_an_old_kernel() {
        let q = queue_of(
            "nvme",
            "chunk_sectors=262144, fua=1, logical_block_size=4096, max_active_zones=12, max_open_zones=8, \
             max_sectors_kb=512, max_segments=127, virt_boundary_mask=4095, write_cache=write back, \
             write_zeroes_max_bytes=524288, zone_write_granularity=4096, zoned=host-managed",
        );
        assert_eq!((q.virt_boundary_mask, q.dma_alignment), (4095, None));
        assert!(q.write_back && q.fua);
        assert_eq!((q.zone_write_granularity, q.write_zeroes_max_bytes), (4096, 524_288));
        let q = queue_of("plain", "logical_block_size=512");
        assert_eq!((q.zoned.as_str(), q.max_segments), ("none", 0));
    }

    /// A namespace that Linux 7.2 refuses: its block device is hidden, without a number.
    #[test]
    fn the_block_device_beside_a_character_device() {
        let root = tree(
            "ng",
            "devices/pci/nvme/nvme0/ng0n1/dev=243:0\n\
             devices/pci/nvme/nvme0/nvme0n1/queue/max_hw_sectors_kb=127\n\
             devices/pci/nvme/nvme0/nvme0n1/queue/dma_alignment=511\n\
             devices/pci/nvme/nvme1/ng1n1/dev=243:1\n\
             devices/pci/nvme/nvme1/nvme1n1/dev=259:0\n\
             devices/pci/nvme/nvme1/nvme1n1/size=4194304\n\
             devices/pci/nvme/nvme1/nvme1n1/ro=1\n\
             devices/pci/nvme/nvme1/nvme1n1/holders/dm-3/dev=1:1\n\
             devices/pci/nvme/nvme1/nvme1n1/holders/dm-0/dev=1:2\n\
             devices/pci/nvme/nvme1/nvme1n1/nvme1n1p1/partition=1\n\
             dev/char/243:0->devices/pci/nvme/nvme0/ng0n1\n\
             dev/char/243:1->devices/pci/nvme/nvme1/ng1n1",
        );
        let ng = SysDisk::of(&root, "char", (243, 0)).unwrap();
        let hidden = ng.sibling().unwrap();
        assert_eq!((hidden.name.as_str(), hidden.dev()), ("nvme0n1", None));
        assert_eq!(hidden.queue().max_hw_sectors_kb, 127);
        let other = SysDisk::of(&root, "char", (243, 1)).unwrap().sibling().unwrap();
        assert_eq!((other.dev(), other.size()), (Some((259, 0)), 4_194_304));
        assert!(other.is_read_only() && !other.is_partition());
        assert_eq!(other.holders(), ["dm-0", "dm-3"]);
        assert_eq!(other.partitions(), ["nvme1n1p1"]);
        assert!(SysDisk::of(&root, "char", (243, 2)).is_none());
        std::fs::remove_dir_all(root).unwrap();
    }
}
