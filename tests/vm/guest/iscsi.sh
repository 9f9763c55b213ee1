# Sourced by the tests of disks served over iSCSI, after lib.sh: the initiator, the server, the devices.
# A test sets `disks`, and may set `flags` for each server.
target=iqn.2026-11.dev.zoneplug:guest
at=127.0.0.1:3260
initiator=iqn.2026-11.test:guest
node="iscsiadm -m node -T $target -p $at"
flags=''

# has_iscsi: what a test needs of the kernel; the daemon of the initiator runs then.
has_iscsi() {
    modprobe iscsi_tcp 2>/dev/null
    modprobe sd_mod 2>/dev/null
    modprobe sg 2>/dev/null
    [ -e /sys/class/iscsi_transport ] || lacks "this kernel has no initiator of iSCSI"
    ip link set lo up
    # See nvme.sh.
    [[ $(uname -r) != 6.1.* ]] || echo never >/sys/kernel/mm/transparent_hugepage/enabled
    mkdir -p /etc/iscsi /run/lock/iscsi
    echo InitiatorName=$initiator >/etc/iscsi/initiatorname.iscsi
    iscsid || { bad "no iscsid"; finish; }
    sleep 1
    note "$(uname -r), $(iscsiadm --version)"
}
# start [FLAG...]: the server of $disks; its process is $server.
start() {
    : >/tmp/serve.out
    # shellcheck disable=SC2086
    ./zoneplug serve --iscsi $at $disks --iqn $target --socket /tmp/s $flags "$@" >>/tmp/serve.out 2>&1 &
    server=$!
    until_ok 20 grep -q -e --login /tmp/serve.out && return
    bad "the server does not start"
    sed 's/^/    | /' /tmp/serve.out
    return 1
}
# stop: ends the server in order.
stop() {
    kill -TERM $server
    wait $server
    equal "the server ends" $? 0
}
# disk_of LUN: its block device.
disk_of() {
    local s
    for s in /sys/block/sd*; do
        [ "$(cat "$s/device/vendor" 2>/dev/null)" != "ZONEPLUG" ] || [[ $(readlink "$s/device") != *:"$1" ]] || { echo "/dev/${s##*/}" && return; }
    done
    return 1
}
there() { [ -b "$(disk_of "$1")" ]; }
discover() {
    check "discovery" iscsiadm -m discovery -t sendtargets -p $at
    equal "finds the target" "$(iscsiadm -m node | awk '{ print $2 }' | sort -u)" $target
}
