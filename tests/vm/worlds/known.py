"""What kernels and tools do wrong by themselves: what a world must not take for a fault of the disk.

Each was seen without zoneplug, on a disk of the kernel's own (--door), or in the kernel's own trace.

| file system | Linux | what it does | how that was seen | what a world does about it |
| --- | --- | --- | --- | --- |
| btrfs | 7.2 | a rename on a small zoned disk ends with *No space left on device* | on null_blk, by the same workload | takes it for a full file system |
| btrfs | 7.2 | an operation ends with EAGAIN while another one syncs | on null_blk, by others; in a few worlds | does it again, and counts it |
| btrfs | 7.2 | a zoned disk without a free block group is not mounted when there is a log to replay: *parent transid verify failed* | the \
disk returned what was written, and the superblock and the log fit together (a world without a power cut); source: open_ctree calls \
btrfs_zoned_reserve_data_reloc_bg, which joins a transaction and so raises the generation that btrfs_replay_log then compares with | looks for nothing more |
| btrfs | 7.2 | pieces of a file change places on a zoned disk, and each has its right checksum: where worker threads compute checksums (the \
processor does not help with crc32c, or the checksum is sha256 or blake2), those of two bios of one extent may be listed in another order than \
the bios, and btrfs_finish_ordered_zoned splits the extent by that list | on scsi_debug: `tests/vm/run btrfs-checksums -- crc32c`, 5 of 24 \
files; none of 48 with xxhash | in user-mode Linux all file systems are made with xxhash, which has no worker threads (image/stage2) |
| btrfs-progs | 7.3 | `btrfs check` takes zones for an error that were written after the last superblock, for block groups that the power cut has \
undone. The kernel resets them when it needs them | the commands at the disk: the first write of these zones is after the last write of a superblock | \
takes no other error of the checker |
| XFS | 7.2 | when a zoned file system becomes full, most of all after it has grown, its thread xfs_zoned_gcd may take the processor without \
end, and sends nothing to the disk | perf of the guest: in world 3012 after a growth, in world 1756 without one | ends when no program of the guest runs any more; \
a grown XFS is not filled |
| XFS | 7.2 | a growth writes the other superblocks before its transaction is in the log on the disk. After a power cut in between they agree on the \
larger size, and `xfs_repair -n` would change the first one and looks no further | the commands at the disk, in world 4038: the other superblocks are \
written, and nothing of the log before them | takes no other complaint of the checker |
| f2fs | 7.2 | fsync ends when a flush has ended that was sent before the node block was written. After a power cut the file may be as \
before the last operation that was acknowledged | block_rq_issue and block_rq_complete: the flush of the thread f2fs_flush is issued and \
completed before the write of the node completes, and the fsync returns | does not look at the file of the last operation |
| f2fs | 7.2 | an append that is under way is found without its data: the block that it rewrites, which has acknowledged data, reads as \
zeroes | f2fs sends no flush between the data and the node block that names them | does not look at the file of an operation that was \
under way |
| f2fs | 7.2 | acknowledged data are gone after one write error of the medium | on a loop disk (`--door loop`), in 2 of 150 worlds, before such errors were left out | there are no such errors \
below f2fs |
| each, over NVMe/TCP | 7.2 | a write whose connection is gone is sent again at once, five times, and given up with EIO before the host begins to connect \
again | in world 489, without a word from the server; with nvme_core.max_retries=200 it is sent 200 times. A processor of a world is as fast as it likes, so a \
real one is less likely to get there | takes what follows in this boot for no fault, and looks for what was acknowledged |
| ext4 below | 7.2 | the journal asks for a flush and does not look at its result, so that an error of the medium is told to nobody | source: \
jbd2_journal_commit_transaction | there are no such errors below ext4 |
"""

import re

# (name, file system, what a guest says, or scripts/kernel-worlds of a guest that does not end)
KNOWN = (
    ("ENOSPC at a rename", "btrfs", r"^FAIL replace of .*\[Errno 28\]"),
    (
        "superblocks after half a growth",
        "xfs",
        r"^FAIL xfs_repair -n .*: Phase 1 - find and verify superblock\.\.\. \| would write modified primary superblock \|",
    ),
    (
        "zones of no block group",
        "btrfs",
        r"^FAIL btrfs check (?!.*ERROR: (?!zoned: devid \d+ zone \d+ is open/written but not referenced|errors found in extent allocation)).*"
        r"open/written but not referenced by any block group",
    ),
    ("garbage collection without end", "xfs", r"^FAIL the kernel takes the processor, and no program runs"),
    ("no replay on a full disk", "btrfs", r"^FAIL mount of .*parent transid verify failed on .*failed to read log tree"),
)

# Linux gives up a command that it could not send. The status is Linux's own, and no target gives it.
UNSENT = re.compile(
    r"^(?:nvme nvme0: failed to send request -\d+\r?\n){6,}nvme0n1: I/O Cmd\(0x[0-9a-f]+\) .* I/O Error \(sct 0x3 / sc 0x70\)", re.M
)


def of(fs, line, before):
    """The name of the known fault that a line of a guest tells of, or None. `before`: what the guest has said before it."""
    # Such an error ends a file system, so its later operations fail too.
    if UNSENT.search(before):
        return "a write given up unsent"
    return next((name for name, its_fs, said in KNOWN if its_fs == fs and re.search(said, line)), None)
