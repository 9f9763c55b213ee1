# Sourced by tests that put file systems on $zoned, the path of an empty zoned disk (no conventional zones needed).
# /tmp/data is what is written to them: 256 MiB.

# A plain drive beside it, for the file systems that keep their metadata apart; in memory, with the same blocks.
plain() { [ -b /dev/plain ] || null_blk plain zoned=0 size=1024 blocksize=4096; }

# use NAME FSCK... : after it was mounted on /mnt: writes, compares, checks, compares again.
use() {
    local name=$1
    shift
    check "$name: 256 MiB are written" sh -c 'cp /tmp/data /mnt/data && sync -f /mnt' || return
    echo 3 >/proc/sys/vm/drop_caches
    check "$name: and read back" cmp /tmp/data /mnt/data
    check "$name: is unmounted" umount /mnt
    [ $# = 0 ] || check "$name: fsck finds nothing" "$@"
}
again() {
    local name=$1
    shift
    check "$name: is mounted again" "$@" || return
    check "$name: and all is there" cmp /tmp/data /mnt/data
    umount /mnt
}

fs_btrfs() {
    blkzone reset "$zoned"
    check "btrfs: mkfs, zoned" mkfs.btrfs -q -f -O zoned -m single -d single "$zoned" || return
    modprobe btrfs
    check "btrfs: is mounted" mount -t btrfs "$zoned" /mnt || return
    local before
    before=$(writes_of "$zoned")
    use btrfs btrfs check --readonly "$zoned"
    local writes=$(($(writes_of "$zoned") - before))
    if [ $writes -lt 8192 ]; then ok "btrfs: 256 MiB went in $writes writes"; else bad "btrfs: 256 MiB went in $writes writes"; fi
    again btrfs mount -t btrfs "$zoned" /mnt
}
writes_of() { awk '{ print $5 }' "/sys/block/$(block_name "$1")/stat"; }
fs_f2fs() {
    blkzone reset "$zoned"
    plain
    check "f2fs: mkfs, zoned" mkfs.f2fs -f -m -c "$zoned" /dev/plain || return
    check "f2fs: is mounted" mount -t f2fs /dev/plain /mnt || return
    use f2fs
    if fsck.f2fs /dev/plain >/tmp/fsck.out 2>&1 </dev/null; then ok "f2fs: fsck finds nothing"; else f2fs_control; fi
    again f2fs mount -t f2fs /dev/plain /mnt
}
# What fsck.f2fs finds on a null_blk of the same layout is not ours: 1.16 counts the free segments of zones with a capacity
# below their size in another way than the kernel.
f2fs_control() {
    local found control
    found=$(grep -F '[Fail]' /tmp/fsck.out | sed 's/^.FSCK. //; s/ *.Fail.*//' | sort -u)
    null_blk f2control size=$(($(blockdev --getsize64 "$zoned") >> 20)) zone_size=$(($(queue "$zoned" chunk_sectors) / 2048)) \
        zone_capacity=$(($(blkzone report -c 1 "$zoned" | sed 's/.*cap \(0x[0-9a-f]*\).*/\1/') / 2048))
    null_blk f2plain zoned=0 size=1024 blocksize=4096
    mkfs.f2fs -f -m -c /dev/f2control /dev/f2plain >/dev/null && mount -t f2fs /dev/f2plain /mnt && cp /tmp/data /mnt/data && umount /mnt
    fsck.f2fs /dev/f2plain >/tmp/fsck.control 2>&1 </dev/null
    control=$(grep -F '[Fail]' /tmp/fsck.control | sed 's/^.FSCK. //; s/ *.Fail.*//' | sort -u)
    if [ -n "$found" ] && [ "$found" = "$control" ]; then
        ok "f2fs: fsck finds what it finds on null_blk too: ${found//$'\n'/, }"
    else
        bad "f2fs: fsck finds '${found//$'\n'/, }', on null_blk '${control//$'\n'/, }'"
        tail -n 15 /tmp/fsck.out | sed 's/^/    | /'
    fi
    null_blk_gone f2control
    null_blk_gone f2plain
}
fs_xfs() {
    case $(uname -r) in [1-5].* | 6.?.* | 6.1[0-4].*) skip "xfs: this kernel's has no zones" && return ;; esac
    blkzone reset "$zoned"
    plain
    check "xfs: mkfs, zoned realtime device" mkfs.xfs -q -f -r zoned=1,rtdev="$zoned" /dev/plain || return
    check "xfs: is mounted" mount -t xfs -o rtdev="$zoned" /dev/plain /mnt || return
    use xfs xfs_repair -n -r "$zoned" /dev/plain
    again xfs mount -t xfs -o rtdev="$zoned" /dev/plain /mnt
}
# Each zone is a file, which is written directly and at its end.
fs_zonefs() {
    local capacity files i
    blkzone reset "$zoned"
    modprobe zonefs
    check "zonefs: mkfs" mkzonefs "$zoned" || return
    check "zonefs: is mounted" mount -t zonefs "$zoned" /mnt || return
    capacity=$(($(stat -c %b /mnt/seq/0) / 2048))
    [ "$capacity" -gt 0 ] || capacity=$(($(blkzone report -c 1 -o "$(queue "$zoned" chunk_sectors)" "$zoned" | sed 's/.*cap \(0x[0-9a-f]*\).*/\1/') / 2048))
    files=$(((256 + capacity - 1) / capacity))
    for ((i = 0; i < files; i++)); do
        dd if=/tmp/data bs=1M skip=$((i * capacity)) count="$capacity" of="/mnt/seq/$i" oflag=direct conv=notrunc status=none ||
            { umount /mnt; zonefs_control "$i"; return; }
    done
    ok "zonefs: 256 MiB are written to $files files of $capacity MiB"
    echo 3 >/proc/sys/vm/drop_caches
    check "zonefs: and read back" zonefs_compare "$files"
    check "zonefs: is unmounted" umount /mnt
    check "zonefs: is mounted again" mount -t zonefs "$zoned" /mnt || return
    check "zonefs: and all is there" zonefs_compare "$files"
    umount /mnt
}
# Linux 6.1.x compares the place of each append with one that it has moved on already ("Corrupted write pointer"), on null_blk too.
zonefs_control() {
    null_blk zcontrol size=64 zone_size=16
    if mkzonefs /dev/zcontrol >/dev/null && mount -t zonefs /dev/zcontrol /mnt &&
        ! dd if=/tmp/data bs=1M count=1 of=/mnt/seq/0 oflag=direct conv=notrunc status=none 2>/dev/null; then
        skip "zonefs: this kernel's cannot write to null_blk either"
    else
        bad "zonefs: file $1 cannot be written, and one of null_blk can"
    fi
    umount /mnt
    null_blk_gone zcontrol
}
zonefs_compare() {
    local i left=$((256 << 20)) bytes
    for ((i = 0; i < $1; i++)); do
        bytes=$((left < capacity << 20 ? left : capacity << 20))
        cmp -n "$bytes" "/mnt/seq/$i" /tmp/data -i "0:$((i * capacity << 20))" && [ "$(stat -c %s "/mnt/seq/$i")" = "$bytes" ] || return 1
        left=$((left - bytes))
    done
}

# file_systems [NAME...]: those named, or all that this kernel and its tools have.
file_systems() {
    local fs list=$*
    for fs in ${list:-btrfs f2fs zonefs xfs}; do
        if ! modprobe "$fs" 2>/dev/null; then skip "$fs: this kernel has none"; continue; fi
        local began=$SECONDS
        "fs_$fs"
        mountpoint -q /mnt && umount -l /mnt
        note "$fs: $((SECONDS - began)) s"
    done
}
