# Sourced by the tests that run in the guest: results, devices, fio. The working directory has our programs in it;
# /share is a folder of the host's.
set -uo pipefail
passed=0 failed=0 skipped=0
engine=external:$PWD/libzoneplug_fio.so

# Results: one line each. `finish` at the end of a test gives its status.
ok() { passed=$((passed + 1)); printf 'ok    %s\n' "$*"; }
bad() { failed=$((failed + 1)); printf 'FAIL  %s\n' "$*"; }
skip() { skipped=$((skipped + 1)); printf 'skip  %s\n' "$*"; }
note() { printf '      %s\n' "$*"; }

# check TEXT COMMAND...: ok if the command succeeds; else its output is shown.
check() {
    local text=$1 status=0
    shift
    "$@" >/tmp/check.out 2>&1 || status=$?
    if [ $status = 0 ]; then ok "$text"; else
        bad "$text: status $status of: $*"
        tail -n 15 /tmp/check.out | sed 's/^/    | /'
        return 1
    fi
}

# refuses TEXT PATTERN COMMAND...: ok if the command fails by itself, and says so in a line with the pattern.
refuses() {
    local text=$1 pattern=$2 status=0
    shift 2
    "$@" >/tmp/check.out 2>&1 || status=$?
    if [ $status != 0 ] && [ $status -lt 100 ] && grep -qE -- "$pattern" /tmp/check.out; then
        ok "$text: $(grep -m1 -E -- "$pattern" /tmp/check.out)"
    else
        bad "$text: status $status, expected a failure with: $pattern"
        tail -n 15 /tmp/check.out | sed 's/^/    | /'
    fi
}

# equal TEXT IS EXPECTED
equal() { if [ "$2" = "$3" ]; then ok "$1: $2"; else bad "$1: $2, expected $3"; fi; }

# A build without what the test is about.
lacks() {
    printf 'skip  %s\n' "$*"
    exit 77
}

# The end of a test. A kernel that has complained fails it, whatever the checks said; so does a test that has checked nothing.
finish() {
    local complaints
    [ $((passed + failed + skipped)) -gt 0 ] || bad "nothing was checked"
    complaints=$(dmesg | grep -E 'BUG:|kernel BUG at|Oops|blocked for more than|general protection|soft lockup' | head -5)
    [ -z "$complaints" ] || bad "the kernel complained: $complaints"
    printf '%s passed, %s failed, %s skipped\n' "$passed" "$failed" "$skipped"
    [ "$failed" = 0 ]
    exit
}

# until SECONDS COMMAND...: waits for it to succeed.
until_ok() {
    local end=$((SECONDS + $1))
    shift
    until "$@" 2>/dev/null; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.2
    done
}

# block_name PATH: the kernel's name of a block device, dm-0 for one of the device mapper.
block_name() { basename "$(readlink -f "/sys/dev/block/$(stat -Lc %Hr:%Lr "$1")")"; }
# queue DEVICE ATTRIBUTE: of sysfs; DEVICE by path or name.
queue() { cat "/sys/block/$(block_name "/dev/${1#/dev/}")/queue/$2" 2>/dev/null || echo -; }

nulls=/sys/kernel/config/nullb
# null_blk NAME KEY=VALUE...: makes /dev/NAME: zoned, in memory, 32 zones of 8 MiB, unless told otherwise.
null_blk() {
    local name=$1 kv
    shift
    modprobe null_blk nr_devices=0
    mkdir "$nulls/$name" || return 1
    for kv in size=256 zone_size=8 zoned=1 memory_backed=1 completion_nsec=0 irqmode=0 queue_mode=2 blocksize=4096 \
        submit_queues="$(nproc)" hw_queue_depth=128 "$@"; do
        if [ -e "$nulls/$name/${kv%%=*}" ]; then
            echo "${kv#*=}" >"$nulls/$name/${kv%%=*}" || return 1
        else
            note "this null_blk has no ${kv%%=*}"
        fi
    done
    echo 1 >"$nulls/$name/power"
}
null_blk_gone() { echo 0 >"$nulls/$1/power"; rmdir "$nulls/$1"; }

# scsi_disk KEY=VALUE...: makes a scsi_debug disk, and sets `disk` to its path.
scsi_disk() {
    modprobe sd_mod
    modprobe scsi_debug max_luns=1 num_tgts=1 "$@" || return 1
    until_ok 10 scsi_found
}
scsi_found() {
    local s
    for s in /sys/block/sd*; do
        if grep -q scsi_debug "$s/device/model" 2>/dev/null; then
            disk=/dev/${s##*/}
            [ -b "$disk" ]
            return
        fi
    done
    return 1
}

# fio_run TEXT ARGUMENTS...: ok if fio ends well and its own verification, where asked for, found nothing. Shows what
# was moved.
fio_run() {
    local text=$1 status=0 moved
    shift
    fio --name=job --direct=1 --thread --output-format=json --output=/tmp/fio.out "$@" >/tmp/fio.err 2>&1 || status=$?
    moved=$(sed -n '/^{/,$p' /tmp/fio.out | jq -r '[.jobs[] | .error, .total_err // 0] as $e | [.jobs[].write.io_bytes] as $w | [.jobs[].read.io_bytes] as $r
        | "\($e | map(select(. != 0)) | length) errors, \(($w | add) / 1048576 | floor) MiB written, \(($r | add) / 1048576 | floor) MiB read"' 2>/dev/null)
    if [ $status = 0 ] && [[ $moved == "0 errors"* ]] && ! grep -qE '^(verify|fio: verify)' /tmp/fio.err /tmp/fio.out; then
        ok "$text: $moved"
    else
        bad "$text: status $status, ${moved:-no result}"
        { cat /tmp/fio.err; grep -hE '^(fio|verify|zoneplug)' /tmp/fio.out; } | head -15 | sed 's/^/    | /'
        return 1
    fi
}

# has_serve: a build without ublk skips the test; a kernel without it too.
has_serve() {
    ./zoneplug serve --help >/dev/null 2>&1 || lacks "this build has no zoneplug serve"
    modprobe ublk_drv || lacks "this kernel has no ublk"
}
# serve NUMBER SPEC [ARGUMENT...]: starts a daemon with a disk as /dev/ublkbNUMBER; its process is $daemon. With launch=setsid
# it is in a session of its own; with patience=SECONDS it may take longer than 20.
launch=
serve() {
    local number=$1
    shift
    $launch ./zoneplug serve --ublk "$@" >>/tmp/serve.out 2>&1 &
    daemon=$!
    until_ok "${patience:-20}" test -b "/dev/ublkb$number" && until_ok "${patience:-20}" grep -q "ublkb$number" /tmp/serve.out && return
    bad "zoneplug serve --ublk $* makes no /dev/ublkb$number"
    sed 's/^/    | /' /tmp/serve.out
    return 1
}
# served_no_more NUMBER: SIGTERM, and the device is gone, and the status is 0.
served_no_more() {
    local status=0
    kill -TERM "$daemon"
    wait "$daemon" || status=$?
    if [ $status = 0 ] && until_ok 10 test ! -e "/dev/ublkb$1"; then ok "the daemon ends on SIGTERM, and takes /dev/ublkb$1 along"; else
        bad "the daemon ended with $status; /dev/ublkb$1: $(ls "/dev/ublkb$1" 2>&1)"
        sed 's/^/    | /' /tmp/serve.out | tail -8
    fi
}

# random_data PATH MIB: what is written must not be all the same, nor take long to make.
random_data() {
    head -c "$(($2 << 20))" /dev/urandom >"$1"
}

# dm_* without udev.
export DM_DISABLE_UDEV=1
